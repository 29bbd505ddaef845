/* Databases: open, close, locks, killed processes, damaged files. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../kit/store.h"

static void data_is_there_after_a_reopening(void)
{
    db_t *db = open_at("db");
    put(db, family(db, "f"), "key", "value");
    close_db(db);
    for (int round = 0; round < 3; round++) {
        db = open_at("db");
        cf_t *cf = tidesdb_get_column_family(db, "f");
        CHECK(cf != NULL);
        STORED(db, cf, "key", "value");
        STORED(db, cf, "other", NULL);
        close_db(db);
    }
}

static void open_refuses_null(void)
{
    tidesdb_config_t config = quiet("db");
    db_t *db = NULL;
    CHECK_RC(tidesdb_open(NULL, &db), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_open(&config, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_open(NULL, NULL), TDB_ERR_INVALID_ARGS);
    config.db_path = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_MEMORY);
    CHECK(access("db", F_OK) != 0);
}

static void open_creates_the_last_directory_only(void)
{
    tidesdb_config_t config = quiet("a/b");
    db_t *db = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_IO);
    CHECK(access("a", F_OK) != 0);
    CHECK(mkdir("a", 0700) == 0);
    OK(tidesdb_open(&config, &db));
    close_db(db);
}

static void open_refuses_a_file(void)
{
    write_file("db", "no directory");
    tidesdb_config_t config = quiet("db");
    db_t *db = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_IO);
    char *text = read_file("db");
    CHECK_STR(text, "no directory");
    free(text);
}

static void open_copies_the_configuration(void)
{
    char path[] = "db";
    tidesdb_config_t config = quiet(path);
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    memset(path, 'x', 2);
    memset(&config, 0xff, sizeof config);
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    flush(cf);
    STORED(db, cf, "key", "value");
    close_db(db);
    CHECK(access("db", F_OK) == 0 && access("xx", F_OK) != 0);
}

static void a_unified_sync_mode_must_be_one(void)
{
    static const int wrong[] = {-1, 3, 1 << 30};
    for (int i = 0; i < 3; i++) {
        tidesdb_config_t config = quiet("db");
        db_t *db = NULL;
        config.unified_memtable_sync_mode = wrong[i];
        OK(tidesdb_open(&config, &db));
        close_db(db);
        config.unified_memtable = 1;
        CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_INVALID_ARGS);
    }
}

static void one_handle_per_directory(void)
{
    db_t *db = open_at("db"), *second = NULL;
    tidesdb_config_t config = quiet("db");
    CHECK_RC(tidesdb_open(&config, &second), TDB_ERR_LOCKED);
    CHECK(symlink("db", "link") == 0);
    config.db_path = "link/";
    CHECK_RC(tidesdb_open(&config, &second), TDB_ERR_LOCKED);
    close_db(db);
    close_db(open_at("db"));
}

/* Opens the database, notifies the parent, and waits to be killed. */
static void hold(int ready)
{
    db_t *db = open_at("db");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.sync_mode = TDB_SYNC_FULL;
    cf_t *cf = family_with(db, "f", &config);
    put(db, cf, "key", "value");
    CHECK(write(ready, "x", 1) == 1);
    sleep_ms(60000);
    _exit(0);
}

static void one_process_per_directory_until_it_is_killed(void)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) hold(ready[1]);
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    tidesdb_config_t config = quiet("db");
    db_t *db = NULL;
    int rc = tidesdb_open(&config, &db);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_INT(rc, TDB_ERR_LOCKED);
    db = open_at("db");
    STORED(db, tidesdb_get_column_family(db, "f"), "key", "value");
    close_db(db);
}

static void write_and_leave(void *arg)
{
    (void)arg;
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 500);
    flush(cf);
    fill(db, cf, 500, 500);
    txn_t *open = begin(db);
    OK(tidesdb_txn_put(open, cf, B("uncommitted"), B("x"), 0));
}

static void a_process_that_leaves_without_a_close_loses_nothing(void)
{
    CHECK_INT(in_child(write_and_leave, NULL), 0);
    db_t *db = open_at("db");
    cf_t *cf = tidesdb_get_column_family(db, "f");
    CHECK(cf != NULL);
    CHECK_INT(count_keys(db, cf), 1000);
    STORED(db, cf, "uncommitted", NULL);
    STORED(db, cf, "key000999", "value000999");
    close_db(db);
}

static void close_refuses_null_and_closed(void)
{
    CHECK_RC(tidesdb_close(NULL), TDB_ERR_INVALID_ARGS);
    db_t *db = open_at("db");
    close_db(db);
    CHECK_RC(tidesdb_close(db), TDB_ERR_INVALID_ARGS);
    txn_t *txn = NULL;
    CHECK_RC(tidesdb_txn_begin(db, &txn), TDB_ERR_INVALID_ARGS);
    CHECK(txn == NULL);
}

static void close_makes_children_stale(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 10);
    txn_t *txn = begin(db);
    iter_t *iter = NULL;
    OK(tidesdb_txn_put(txn, cf, B("key"), B("value"), 0));
    OK(tidesdb_iter_new(txn, cf, &iter));
    OK(tidesdb_iter_seek_to_first(iter));
    close_db(db);
    CHECK_RC(tidesdb_txn_put(txn, cf, B("key"), B("value"), 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_INVALID_ARGS);
    CHECK_INT(tidesdb_iter_valid(iter), 0);
    CHECK_RC(tidesdb_flush_memtable(cf), TDB_ERR_INVALID_ARGS);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    db = open_at("db");
    CHECK_INT(count_keys(db, family(db, "f")), 10);
    close_db(db);
}

/* Flips a bit in the largest file with this suffix, at one third of its length. */
static void damage(const char *dir, const char *end)
{
    char victim[600] = "";
    off_t size = 0;
    DIR *list = opendir(dir);
    CHECK(list != NULL);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        size_t length = strlen(entry->d_name), ending = strlen(end);
        if (length < ending || strcmp(entry->d_name + length - ending, end) != 0) continue;
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        CHECK(stat(path, &st) == 0);
        if (st.st_size <= size) continue;
        size = st.st_size;
        strcpy(victim, path);
    }
    closedir(list);
    CHECK(size > 0);
    FILE *file = fopen(victim, "r+");
    CHECK(file != NULL && fseek(file, size / 3, SEEK_SET) == 0);
    int byte = fgetc(file);
    CHECK(fseek(file, size / 3, SEEK_SET) == 0);
    CHECK(fputc(byte ^ 0x10, file) != EOF && fclose(file) == 0);
}

static void a_damaged_table_is_told_with_its_place(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 20000);
    flush(cf);
    close_db(db);
    damage("db", ".klog");
    db = open_at("db");
    cf = tidesdb_get_column_family(db, "f");
    CHECK(cf != NULL);
    txn_t *txn = begin(db);
    int damaged = 0;
    for (int i = 0; i < 20000; i += 10) {
        char key[32];
        uint8_t *value = NULL;
        size_t size = 0;
        snprintf(key, sizeof key, "key%06d", i);
        int rc = tidesdb_txn_get(txn, cf, B(key), &value, &size);
        if (rc == TDB_SUCCESS) tidesdb_free(value);
        if (rc == TDB_SUCCESS) continue;
        CHECK_INT(rc, TDB_ERR_CORRUPTION);
        CHECK(strstr(tidesdb_last_error(), ".klog") != NULL);
        CHECK(strpbrk(tidesdb_last_error(), "0123456789") != NULL);
        damaged++;
    }
    CHECK(damaged > 0);
    tidesdb_txn_free(txn);
    tidesdb_close(db);
}

static void a_damaged_manifest_is_refused(void)
{
    db_t *db = open_at("db");
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        family(db, name);
    }
    close_db(db);
    damage("db", ".manifest");
    tidesdb_config_t config = quiet("db");
    db = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_CORRUPTION);
    CHECK(strstr(tidesdb_last_error(), ".manifest") != NULL);
    CHECK(db == NULL);
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_CORRUPTION);
}

static void settings_without_effect_are_accepted(void)
{
    tidesdb_config_t config = quiet("db");
    config.unified_memtable = 1;
    config.unified_memtable_write_buffer_size = 1 << 20;
    config.num_flush_threads = 3;
    config.num_compaction_threads = 0;
    config.max_concurrent_flushes = 9;
    config.max_open_sstables = 0;
    config.block_cache_size = 0;
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    settings.use_btree = 1;
    settings.skip_list_max_level = 99;
    cf_t *cf = family_with(db, "f", &settings);
    fill(db, cf, 0, 100);
    flush(cf);
    CHECK_INT(count_keys(db, cf), 100);
    close_db(db);
}

/* Regression test: below a limit of 128 MiB, which is that of a container of 256 MiB, a family could not be created with the
 * default settings, because their write buffer was larger than half of the limit. */
static void the_default_settings_work_within_every_memory_limit(void)
{
    static const size_t mib[] = {0, 1, 16, 32, 50, 100, 127, 128, 1000};
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        char path[16];
        snprintf(path, sizeof path, "db%zu", mib[i]);
        tidesdb_config_t config = quiet(path);
        config.max_memory_usage = mib[i] << 20;
        db_t *db = NULL;
        OK(tidesdb_open(&config, &db));
        cf_t *cf = family_with(db, "f", &settings);
        fill(db, cf, 0, 100);
        flush(cf);
        OK(tidesdb_cf_update_runtime_config(cf, &settings, 1));
        fill(db, cf, 100, 100);
        CHECK_INT(count_keys(db, cf), 200);
        tidesdb_stats_t *stats = NULL;
        OK(tidesdb_get_stats(cf, &stats));
        CHECK_INT(stats->config->write_buffer_size, settings.write_buffer_size);
        tidesdb_free_stats(stats);
        close_db(db);
    }
}

const struct test lifecycle_tests[] = {
    TEST(the_default_settings_work_within_every_memory_limit),
    TEST(data_is_there_after_a_reopening),
    TEST(open_refuses_null),
    TEST(open_creates_the_last_directory_only),
    TEST(open_refuses_a_file),
    TEST(open_copies_the_configuration),
    TEST(a_unified_sync_mode_must_be_one),
    TEST(one_handle_per_directory),
    TEST_ALONE(one_process_per_directory_until_it_is_killed),
    TEST_ALONE(a_process_that_leaves_without_a_close_loses_nothing),
    TEST(close_refuses_null_and_closed),
    TEST(close_makes_children_stale),
    TEST(a_damaged_table_is_told_with_its_place),
    TEST(a_damaged_manifest_is_refused),
    TEST(settings_without_effect_are_accepted),
    END_OF_TESTS,
};
