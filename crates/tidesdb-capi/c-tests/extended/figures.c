/* Figures, explanations, findings, and a reader beside the writer. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extended.h"

static const tidesdb_x_figure_t *find(const tidesdb_x_figure_t *all, size_t count, const char *group, const char *of,
                                      const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].group, group) == 0 && strcmp(all[i].of, of) == 0 && strcmp(all[i].name, name) == 0) return &all[i];
    fail(__FILE__, __LINE__, "no figure %s %s %s", group, of, name);
}

static void figures_have_names(void)
{
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 100);
    OK(tidesdb_x_delete(shop.cf, B("key000001"), NULL, NULL));
    flush(shop.cf);
    tidesdb_x_figure_t *all = NULL;
    size_t count = 0;
    OK(tidesdb_x_figures(shop.db, &all, &count));
    CHECK(count > 150);
    const tidesdb_x_figure_t *flushes = find(all, count, "family", "f", "flushes");
    CHECK_INT(flushes->number, 1);
    CHECK(flushes->real == 1.0 && flushes->is_counter == 1 && flushes->level == 0);
    CHECK_STR(flushes->unit, "count");
    CHECK(find(all, count, "database", "", "wal_bytes")->number > 1000); /* the log, also if the memtable is unified */
    CHECK_STR(find(all, count, "database", "", "cache_bytes")->unit, "bytes");
    CHECK(find(all, count, "database", "", "memory_limit_bytes")->number > 0);
    CHECK_INT(find(all, count, "family", "f", "level_tables")->level, 1);
    CHECK(find(all, count, "operation", "commits", "p99")->number == 0);
    CHECK(find(all, count, "stall", "memtables", "stopped") != NULL);
    for (size_t i = 0; i < count; i++) {
        CHECK(all[i].name[0] != '\0' && all[i].unit[0] != '\0' && all[i].level >= 0);
        CHECK(strncmp(all[i].of, "tidesdb:", 8) != 0);
    }
    tidesdb_free(all);
    char *text = NULL;
    OK(tidesdb_x_metrics(shop.db, &text));
    CHECK(strstr(text, "# EOF") != NULL && strstr(text, "tidesdb_family_flushes") != NULL);
    tidesdb_free(text);
    close_db(shop.db);
}

/* Bytes of the files of a folder whose names have this end. */
static uint64_t bytes_of_files(const char *folder, const char *end)
{
    uint64_t sum = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, end) != NULL && stat(path, &st) == 0) sum += (uint64_t)st.st_size;
    }
    closedir(dir);
    return sum;
}

static void the_size_on_disk_is_known(void)
{
    struct shop shop = open_shop();
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    settings.klog_value_threshold = 100;
    cf_t *cf = family_with(shop.db, "g", &settings);
    static uint8_t value[5000];
    for (int i = 0; i < 200; i++) {
        char key[16];
        snprintf(key, sizeof key, "%06d", i);
        for (size_t k = 0; k < sizeof value; k++) value[k] = (uint8_t)rand();
        OK(tidesdb_x_put(i % 2 ? cf : shop.cf, B(key), value, sizeof value, NULL, NULL));
    }
    OK(tidesdb_x_flush(shop.cf));
    OK(tidesdb_x_flush(cf));
    tidesdb_x_figure_t *all = NULL;
    size_t count = 0;
    uint64_t tables = 0, values = 0;
    OK(tidesdb_x_figures(shop.db, &all, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(all[i].group, "family") != 0) continue;
        if (strcmp(all[i].name, "level_bytes") == 0) tables += all[i].number;
        if (strcmp(all[i].name, "value_log_file_bytes") == 0) values += all[i].number;
    }
    CHECK(find(all, count, "database", "", "wal_live_bytes")->number < 4 << 20);
    tidesdb_free(all);
    CHECK(tables > 0 && values > 500000);
    CHECK_INT(tables, bytes_of_files("db", ".klog"));
    CHECK(values <= bytes_of_files("db", ".vlog") && values + (2 << 20) > bytes_of_files("db", ".vlog"));
    close_db(shop.db);
}

static void reads_are_explained(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "whale", "blue");
    flush(shop.cf);
    tidesdb_x_read_options_t at = {sizeof at, NULL, NULL, 0};
    OK(tidesdb_x_snapshot_new(shop.db, &at.snapshot));
    OK(tidesdb_x_delete(shop.cf, B("whale"), NULL, NULL));
    char *text = NULL;
    OK(tidesdb_x_explain(shop.cf, B("whale"), NULL, &text));
    CHECK(strstr(text, "delete") != NULL);
    tidesdb_free(text);
    OK(tidesdb_x_explain(shop.cf, B("whale"), &at, &text));
    CHECK(strstr(text, "blue") != NULL || strstr(text, "4 bytes") != NULL);
    tidesdb_free(text);
    OK(tidesdb_x_explain_range(shop.cf, B("a"), NULL, 0, 100, NULL, &text));
    CHECK(strlen(text) > 20);
    tidesdb_free(text);
    tidesdb_x_snapshot_free(at.snapshot);
    at.snapshot = NULL;
    at.txn = begin(shop.db);
    text = NULL;
    CHECK_RC(tidesdb_x_explain(shop.cf, B("whale"), &at, &text), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_explain_range(shop.cf, NULL, 0, NULL, 0, 1, &at, &text), TDB_ERR_INVALID_ARGS);
    CHECK(text == NULL);
    tidesdb_txn_free(at.txn);
    close_db(shop.db);
}

/* A family that nobody reads but that has many old snapshots gives the doctor something to find only after some time, so the fields of what
 * there is are looked at. */
static void check_findings(tidesdb_x_finding_t *findings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK(findings[i].severity >= 0 && findings[i].severity <= 2);
        CHECK(findings[i].rule[0] != '\0' && findings[i].what[0] != '\0');
        CHECK(findings[i].evidence != NULL && findings[i].cause != NULL);
        CHECK(findings[i].advice != NULL && findings[i].price != NULL);
    }
    tidesdb_free(findings);
}

static void the_doctor_looks_at_a_database(void)
{
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 100);
    tidesdb_x_finding_t *findings = NULL;
    size_t count = 77;
    OK(tidesdb_x_diagnose(shop.db, &findings, &count));
    CHECK(findings != NULL && count < 77);
    check_findings(findings, count);
    close_db(shop.db);
}

struct pipes {
    int ready[2], end[2];
};

/* The process that writes. */
static void write_until_told(void *arg)
{
    const struct pipes *pipes = arg;
    char c;
    close(pipes->ready[0]); /* so that it ends with the other process */
    close(pipes->end[1]);
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    flush(shop.cf);
    x_put(shop.cf, "b", "2");
    OK(tidesdb_sync_wal(shop.cf));
    CHECK(write(pipes->ready[1], "r", 1) == 1);
    CHECK(read(pipes->end[0], &c, 1) == 1);
    x_put(shop.cf, "c", "3");
    OK(tidesdb_sync_wal(shop.cf));
    CHECK(write(pipes->ready[1], "r", 1) == 1);
    CHECK(read(pipes->end[0], &c, 1) == 1);
    close_db(shop.db);
}

static void wait_for_figures(uint32_t process)
{
    for (int i = 0;; i++) {
        tidesdb_x_writer_t writer = {.size = sizeof writer};
        tidesdb_x_figure_t *all = NULL;
        size_t count = 0;
        int rc = tidesdb_x_writer_figures("db", &writer, &all, &count);
        if (rc == TDB_SUCCESS) {
            CHECK_INT(writer.process, process);
            CHECK_INT(writer.size, sizeof writer);
            CHECK(writer.state == TDB_X_WRITER_RUNNING || writer.state == TDB_X_WRITER_IDLE);
            CHECK(writer.written_ms > UINT64_C(1600000000000) && writer.age_ms < 60000);
            CHECK(find(all, count, "database", "", "wal_bytes")->unit != NULL);
            tidesdb_free(all);
            return;
        }
        CHECK_RC(rc, TDB_ERR_NOT_FOUND);
        CHECK(i < 2000);
        sleep_ms(10);
    }
}

static void another_process_is_looked_at(void)
{
    struct pipes pipes;
    CHECK(pipe(pipes.ready) == 0 && pipe(pipes.end) == 0);
    char c;
    tidesdb_x_writer_t writer = {.size = sizeof writer};
    tidesdb_x_figure_t *all = NULL;
    tidesdb_x_finding_t *findings = NULL;
    size_t count = 0;
    CHECK_RC(tidesdb_x_writer_figures("none", &writer, &all, &count), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_x_writer_diagnose("none", &findings, &count), TDB_ERR_NOT_FOUND);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        write_until_told(&pipes);
        _exit(0);
    }
    close(pipes.ready[1]);
    close(pipes.end[0]);
    CHECK(read(pipes.ready[0], &c, 1) == 1);
    wait_for_figures((uint32_t)child);
    OK(tidesdb_x_writer_diagnose("db", &findings, &count));
    check_findings(findings, count);
    writer.size = 4;
    CHECK_RC(tidesdb_x_writer_figures("db", &writer, &all, &count), TDB_ERR_INVALID_ARGS);

    tidesdb_config_t config = quiet("db");
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config};
    tidesdb_x_reader_t *reader = NULL;
    db_t *first = NULL, *same = NULL, *second = NULL;
    OK(tidesdb_x_reader_open(&options, &reader));
    OK(tidesdb_x_reader_refresh(reader, &first));
    OK(tidesdb_x_reader_refresh(reader, &same));
    CHECK(first != same);
    X_ROWS(tidesdb_get_column_family(first, "f"), NULL, "a=1 b=2 ");
    close_db(first); /* another handle may show the same view */
    cf_t *cf = tidesdb_get_column_family(same, "f");
    X_ROWS(cf, NULL, "a=1 b=2 ");
    CHECK_RC(tidesdb_x_put(cf, B("a"), B("2"), NULL, NULL), TDB_ERR_READONLY);
    CHECK(write(pipes.end[1], "e", 1) == 1);
    CHECK(read(pipes.ready[0], &c, 1) == 1);
    OK(tidesdb_x_reader_refresh(reader, &second));
    X_ROWS(cf, NULL, "a=1 b=2 ");
    X_ROWS(tidesdb_get_column_family(second, "f"), NULL, "a=1 b=2 c=3 ");
    WALK(second, tidesdb_get_column_family(second, "f"), "a b c ");
    OK(tidesdb_x_reader_close(reader));
    CHECK_RC(tidesdb_x_reader_close(reader), TDB_ERR_INVALID_ARGS);
    db_t *none = NULL;
    CHECK_RC(tidesdb_x_reader_refresh(reader, &none), TDB_ERR_INVALID_ARGS);
    X_GET(tidesdb_get_column_family(second, "f"), NULL, "c", "3"); /* views outlive their reader */
    close_db(same);
    close_db(second);
    CHECK(write(pipes.end[1], "e", 1) == 1);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    writer.size = sizeof writer;
    OK(tidesdb_x_writer_figures("db", &writer, &all, &count));
    CHECK_INT(writer.state, TDB_X_WRITER_CLOSED);
    tidesdb_free(all);
}

static tidesdb_x_reader_t *held;

/* Refreshes and closes the reader, which is refused, and takes the operand. */
static int close_reader(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx)
{
    (void)value;
    (void)value_size;
    db_t *view = NULL;
    if (held != NULL) {
        CHECK_RC(tidesdb_x_reader_refresh(held, &view), TDB_ERR_BUSY);
        CHECK_RC(tidesdb_x_reader_close(held), TDB_ERR_BUSY);
        ++*(int *)ctx;
    }
    return tidesdb_x_result_append(operand, operand_size) == TDB_SUCCESS ? 0 : 1;
}

/* Regression test: a close waited for the call that had called it. */
static void a_reader_is_closed_by_no_function_that_the_library_calls(void)
{
    int calls = 0;
    tidesdb_config_t config = quiet("db");
    const tidesdb_x_merge_operator_t newest = {.size = sizeof newest, .name = "newest", .merge = close_reader, .ctx = &calls};
    const tidesdb_x_open_options_t options = {
        .size = sizeof options, .config = &config, .merge_operators = &newest, .merge_operator_count = 1};
    const tidesdb_x_family_options_t settings = {.size = sizeof settings, .merge_operator = "newest"};
    db_t *db = NULL, *view = NULL;
    cf_t *cf = NULL;
    OK(tidesdb_x_open(&options, &db));
    OK(tidesdb_x_create_family(db, "f", &settings, &cf));
    x_put(cf, "k", "old");
    flush(cf);
    OK(tidesdb_x_merge(cf, B("k"), B("new"), NULL, NULL));
    close_db(db);
    tidesdb_x_reader_t *reader = NULL;
    OK(tidesdb_x_reader_open(&options, &reader));
    OK(tidesdb_x_reader_refresh(reader, &view));
    held = reader;
    X_GET(tidesdb_get_column_family(view, "f"), NULL, "k", "new");
    held = NULL;
    CHECK(calls > 0);
    OK(tidesdb_x_reader_close(reader));
    close_db(view);
}

const struct test figure_tests[] = {
    TEST(figures_have_names),
    TEST(the_size_on_disk_is_known),
    TEST(reads_are_explained),
    TEST(the_doctor_looks_at_a_database),
    TEST_ALONE(another_process_is_looked_at),
    TEST(a_reader_is_closed_by_no_function_that_the_library_calls),
    END_OF_TESTS,
};
