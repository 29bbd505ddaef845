/*
 * What is different on Windows: paths in UTF-8 and with backslashes, data in the DLL, streams of log files, memory of the C library,
 * numbers of 64 bits where `long` has 32.
 */
#include <direct.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

#include <tidesdb/tidesdb.h>

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
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
