/*
 * What is different on Windows: paths in UTF-8 and with backslashes, data in the DLL, streams of log files, memory of the C library,
 * numbers of 64 bits where `long` has 32. And the extended interface: functions of the program that the DLL calls, files and folders that it makes.
 */
#include <direct.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

#include <tidesdb/extended.h>
#include <tidesdb/tidesdb.h>

#define B(text) ((const uint8_t *)(text)), strlen(text)

static int checks, failures;

#define CHECK(what) check((what) != 0, #what, __LINE__)

static void check(int right, const char *what, int line)
{
    checks++;
    if (right) return;
    failures++;
    fprintf(stderr, "line %d: not so: %s (%s)\n", line, what, tidesdb_last_error());
}

static tidesdb_t *open_at(const char *path, int log_to_file)
{
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = path;
    config.log_to_file = log_to_file;
    config.log_level = TDB_LOG_WARN;
    tidesdb_t *db = NULL;
    CHECK(tidesdb_open(&config, &db) == TDB_SUCCESS);
    return db;
}

static int is_folder(const wchar_t *path)
{
    DWORD attributes = GetFileAttributesW(path);
    return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

/* Returns whether a file has a text in it. */
static int has(const wchar_t *path, const char *text)
{
    static char bytes[1 << 16];
    FILE *file = _wfopen(path, L"rb");
    if (file == NULL) return 0;
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = 0;
    fclose(file);
    return strstr(bytes, text) != NULL;
}

/* A row whose expiry needs more than 32 bits, and its value in memory of the C library. */
static void rows(tidesdb_t *db)
{
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    CHECK(tidesdb_create_column_family(db, "fruit", &settings) == TDB_SUCCESS);
    tidesdb_column_family_t *fruit = tidesdb_get_column_family(db, "fruit");
    tidesdb_txn_t *txn;
    const uint8_t *key = (const uint8_t *)"apple";
    CHECK(tidesdb_txn_begin(db, &txn) == TDB_SUCCESS);
    CHECK(tidesdb_txn_put(txn, fruit, key, 5, (const uint8_t *)"red", 3, (TDB_TIME_T)1 << 33) == TDB_SUCCESS);
    CHECK(tidesdb_txn_commit(txn) == TDB_SUCCESS);
    CHECK(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT) == TDB_SUCCESS);
    uint8_t *value = NULL;
    size_t size = 0;
    CHECK(tidesdb_txn_get(txn, fruit, key, 5, &value, &size) == TDB_SUCCESS);
    CHECK(size == 3 && memcmp(value, "red", 3) == 0);
    free(value);
    tidesdb_txn_free(txn);
}

static void paths(tidesdb_t *db)
{
    CHECK(is_folder(L"gr\u00fcn.db"));
    CHECK(_mkdir("copies") == 0);
    CHECK(tidesdb_checkpoint(db, "copies\\one") == TDB_SUCCESS && is_folder(L"copies\\one"));
    CHECK(tidesdb_backup(db, "copies/zw\xc3\xb6lf") == TDB_SUCCESS && is_folder(L"copies\\zw\u00f6lf"));
    CHECK(tidesdb_backup(db, "copies/\xff") == TDB_ERR_INVALID_ARGS);
    CHECK(strstr(tidesdb_last_error(), "not UTF-8") != NULL);
    CHECK(tidesdb_backup(db, "nowhere\\one") == TDB_ERR_IO);
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    CHECK(tidesdb_cf_config_save_to_ini("gr\xc3\xbcn.ini", "one", &settings) == TDB_SUCCESS);
    CHECK(tidesdb_cf_config_save_to_ini("gr\xc3\xbcn.ini", "two", &settings) == TDB_SUCCESS);
    CHECK(has(L"gr\u00fcn.ini", "[two]") && !has(L"gr\u00fcn.ini", "[one]"));
    CHECK(tidesdb_cf_config_load_from_ini("gr\xc3\xbcn.ini", "two", &settings) == TDB_SUCCESS);
}

static void logs(void)
{
    const wchar_t *log = L"gr\u00fcn.db\\LOG";
    CHECK(_tidesdb_log_file != NULL && _tidesdb_log_level == TDB_LOG_WARN);
    tidesdb_log_write(TDB_LOG_WARN, "a.c", 7, "line %d of %s", 1, "two");
    CHECK(has(log, "tidesdb WARN  a.c:7: line 1 of two\n"));
    fprintf(_tidesdb_log_file, "a line of the program\n");
    fflush(_tidesdb_log_file);
    CHECK(has(log, "a line of the program\n"));
}

/* Joins a value and its operand by a plus. */
static int join(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx)
{
    ++*(int *)ctx;
    return tidesdb_x_result_append(value, value_size) != TDB_SUCCESS || tidesdb_x_result_append(B("+")) != TDB_SUCCESS ||
           tidesdb_x_result_append(operand, operand_size) != TDB_SUCCESS;
}

static void extended(void)
{
    int calls = 0;
    tidesdb_config_t config = tidesdb_default_config();
    config.db_path = "mehr\\gr\xc3\xbcn.db";
    config.log_level = TDB_LOG_NONE;
    tidesdb_x_merge_operator_t op = {sizeof op, "join", join, NULL, &calls};
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .merge_operators = &op, .merge_operator_count = 1};
    tidesdb_x_family_options_t settings = {.size = sizeof settings, .merge_operator = "join"};
    tidesdb_t *db = NULL;
    tidesdb_column_family_t *cf = NULL;
    CHECK(_mkdir("mehr") == 0 && tidesdb_x_open(&options, &db) == TDB_SUCCESS);
    CHECK(tidesdb_x_create_family(db, "f", &settings, &cf) == TDB_SUCCESS);
    CHECK(tidesdb_x_put(cf, B("a"), B("1"), NULL, NULL) == TDB_SUCCESS);
    CHECK(tidesdb_x_merge(cf, B("a"), B("2"), NULL, NULL) == TDB_SUCCESS);
    uint8_t buffer[64];
    size_t size = 0, count = 0, needed = 0;
    CHECK(tidesdb_x_get(cf, B("a"), NULL, buffer, sizeof buffer, &size) == TDB_SUCCESS);
    CHECK(size == 3 && memcmp(buffer, "1+2", 3) == 0 && calls > 0);

    tidesdb_x_builder_t *builder = NULL;
    const char **paths = NULL;
    CHECK(tidesdb_x_builder_new(cf, "mehr/zw\xc3\xb6lf", &builder) == TDB_SUCCESS);
    CHECK(tidesdb_x_builder_put(builder, B("b"), B("3"), NULL) == TDB_SUCCESS);
    CHECK(tidesdb_x_builder_finish(builder, &paths, &count) == TDB_SUCCESS && count == 1);
    CHECK(strstr(paths[0], "zw\xc3\xb6lf-000001.klog") != NULL);
    CHECK(GetFileAttributesW(L"mehr\\zw\u00f6lf-000001.klog") != INVALID_FILE_ATTRIBUTES);
    tidesdb_x_tables_t tables = {cf, paths, count};
    tidesdb_x_ingested_t taken = {.size = sizeof taken};
    CHECK(tidesdb_x_ingest(db, &tables, 1, TDB_X_MOVE, NULL, &taken) == TDB_SUCCESS && taken.rows == 1);
    CHECK(GetFileAttributesW(L"mehr\\zw\u00f6lf-000001.klog") == INVALID_FILE_ATTRIBUTES);
    tidesdb_free(paths);
    tidesdb_x_builder_free(builder);

    tidesdb_x_iter_t *iter = NULL;
    tidesdb_x_row_t row[4];
    CHECK(tidesdb_x_iter_new(cf, NULL, B("b"), NULL, 0, &iter) == TDB_SUCCESS);
    CHECK(tidesdb_x_iter_next(iter, buffer, sizeof buffer, row, 4, &count, &needed) == TDB_SUCCESS);
    CHECK(count == 1 && memcmp(buffer, "b3", 2) == 0);
    tidesdb_x_iter_free(iter);

    tidesdb_x_backups_t *backups = NULL;
    uint64_t number = 0, faults = 1;
    CHECK(tidesdb_x_backups_open("mehr\\f\xc3\xbcr sp\xc3\xa4ter", &backups) == TDB_SUCCESS);
    CHECK(tidesdb_x_backups_create(backups, db, NULL, &number) == TDB_SUCCESS);
    CHECK(tidesdb_x_backups_verify(backups, number, &faults, NULL) == TDB_SUCCESS && faults == 0);
    CHECK(tidesdb_x_backups_restore(backups, number, "mehr\\zur\xc3\xbc" "ck") == TDB_SUCCESS);
    CHECK(is_folder(L"mehr\\f\u00fcr sp\u00e4ter") && is_folder(L"mehr\\zur\u00fcck"));
    tidesdb_x_backups_free(backups);
    CHECK(tidesdb_close(db) == TDB_SUCCESS);

    config.db_path = "mehr\\zur\xc3\xbc" "ck";
    options.flags = TDB_X_MUST_EXIST;
    db = NULL;
    CHECK(tidesdb_x_open(&options, &db) == TDB_SUCCESS);
    cf = tidesdb_get_column_family(db, "f");
    CHECK(tidesdb_x_get(cf, B("a"), NULL, buffer, sizeof buffer, &size) == TDB_SUCCESS && size == 3);
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
}

int main(void)
{
    CHECK(tidesdb_initialized == 0);
    void *memory = tidesdb_allocator.malloc_fn(100);
    CHECK(memory != NULL);
    tidesdb_free(memory);
    CHECK(tidesdb_raise_open_file_limit(1000) == LONG_MAX);
    tidesdb_t *db = open_at("gr\xc3\xbcn.db", 1);
    if (db == NULL) return 1;
    CHECK(tidesdb_initialized == 1);
    rows(db);
    paths(db);
    logs();
    FILE *stream = _tidesdb_log_file;
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    CHECK(_tidesdb_log_file == NULL);
    fprintf(stream, "a late line\n"); /* the stream is still valid, and goes nowhere */
    fflush(stream);
    CHECK(!has(L"gr\u00fcn.db\\LOG", "a late line"));
    db = open_at("copies\\one", 1);
    CHECK(_tidesdb_log_file == stream);
    tidesdb_log_write(TDB_LOG_ERROR, NULL, 1, "again");
    CHECK(has(L"copies\\one\\LOG", "tidesdb ERROR ?:1: again\n"));
    CHECK(tidesdb_get_column_family(db, "fruit") != NULL);
    CHECK(tidesdb_close(db) == TDB_SUCCESS);
    extended();
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
