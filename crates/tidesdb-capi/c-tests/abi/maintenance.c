/* Flush, merge, sync of the log, and copies. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>

#include "../kit/store.h"

static void flushing(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    OK(tidesdb_flush_memtable(cf));
    CHECK_INT(tables(cf), 0);
    fill(db, cf, 0, 1000);
    flush(cf);
    double begin = now_ms();
    while (tables(cf) == 0 && now_ms() - begin < 10000) sleep_ms(2);
    CHECK_INT(tables(cf), 1);
    CHECK_INT(count_keys(db, cf), 1000);
    CHECK_RC(tidesdb_flush_memtable(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_INT(tidesdb_is_flushing(NULL), 0);
    CHECK_INT(tidesdb_is_compacting(NULL), 0);
    CHECK_INT(tidesdb_is_flushing(cf), 0);
    close_db(db);
}

static cf_t *with_tables(db_t *db, const char *name, int count)
{
    cf_t *cf = family(db, name);
    for (int i = 0; i < count; i++) {
        fill(db, cf, i * 50, 100);
        flush(cf);
    }
    return cf;
}

static void merging(void)
{
    db_t *db = open_at("db");
    cf_t *cf = with_tables(db, "f", 3);
    OK(tidesdb_compact(cf));
    CHECK_INT(tables(cf), 1);
    CHECK_INT(tidesdb_is_compacting(cf), 0);
    CHECK_INT(count_keys(db, cf), 200);
    OK(tidesdb_compact(cf));
    CHECK_RC(tidesdb_compact(NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_compact(family(db, "empty")));
    close_db(db);
}

static void merging_a_range(void)
{
    db_t *db = open_at("db");
    cf_t *cf = with_tables(db, "f", 3);
    OK(tidesdb_compact_range(cf, B("key000020"), B("key000120")));
    CHECK_INT(count_keys(db, cf), 200);
    OK(tidesdb_compact_range(cf, NULL, 0, B("key000120")));
    OK(tidesdb_compact_range(cf, B("key000020"), NULL, 0));
    CHECK_RC(tidesdb_compact_range(cf, NULL, 0, NULL, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_compact_range(NULL, B("a"), B("b")), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_compact_range(cf, NULL, 3, B("b")), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_compact_range(cf, B("b"), NULL, 3), TDB_ERR_INVALID_ARGS);
    CHECK_INT(count_keys(db, cf), 200);
    STORED(db, cf, "key000199", "value000199");
    close_db(db);
}

static void fixed_c7_a_purge_is_complete(void)
{
    db_t *db = open_at("db");
    cf_t *a = with_tables(db, "a", 5), *b = with_tables(db, "b", 5);
    fill(db, a, 1000, 10);
    OK(tidesdb_purge_cf(a));
    CHECK_INT(tables(a), 1);
    CHECK_INT(count_keys(db, a), 310);
    for (int i = 0; i < 310; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i < 300 ? i : i + 700);
        del(db, a, key);
    }
    OK(tidesdb_purge(db));
    CHECK_INT(tables(a), 0);
    CHECK_INT(tables(b), 1);
    CHECK_INT(count_keys(db, b), 300);
    CHECK_RC(tidesdb_purge_cf(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_purge(NULL), TDB_ERR_INVALID_ARGS);
    close_db(db);
}

static void syncing(void)
{
    tidesdb_config_t config = quiet("db");
    config.unified_memtable = 1;
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    cf_t *cf = family(db, "f");
    OK(tidesdb_sync_wal(cf));
    put(db, cf, "key", "value");
    OK(tidesdb_sync_wal(cf));
    CHECK_RC(tidesdb_sync_wal(NULL), TDB_ERR_INVALID_ARGS);
    close_db(db);
}

typedef int (*copy_fn)(tidesdb_t *, const char *);

static int call_backup(tidesdb_t *db, const char *dir)
{
    return tidesdb_backup(db, dir);
}

static int call_checkpoint(tidesdb_t *db, const char *dir)
{
    return tidesdb_checkpoint(db, dir);
}

static void check_copy(copy_fn copy)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 500);
    flush(cf);
    fill(db, cf, 500, 500);
    put(db, family(db, "g"), "key", "value");
    OK(copy(db, "copy"));
    CHECK(mkdir("empty", 0700) == 0);
    OK(copy(db, "empty"));
    /* Anything makes a folder a full one: files, folders and links, whatever their names. */
    CHECK(mkdir("full", 0700) == 0 && mkdir("full/folder", 0700) == 0);
    CHECK_RC(copy(db, "full"), TDB_ERR_EXISTS);
    CHECK(rmdir("full/folder") == 0 && symlink("nowhere", "full/link") == 0);
    CHECK_RC(copy(db, "full"), TDB_ERR_EXISTS);
    CHECK(unlink("full/link") == 0);
    write_file("full/\xff", "x");
    CHECK_RC(copy(db, "full"), TDB_ERR_EXISTS);
    CHECK(unlink("full/\xff") == 0 && rmdir("full") == 0);
    fill(db, cf, 1000, 100);
    CHECK_RC(copy(db, "copy"), TDB_ERR_EXISTS);
    CHECK_RC(copy(db, "db"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(copy(db, "./db/"), TDB_ERR_INVALID_ARGS);
    write_file("file", "x");
    CHECK_RC(copy(db, "file"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(copy(db, "no/such"), TDB_ERR_IO);
    CHECK_RC(copy(NULL, "x"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(copy(db, NULL), TDB_ERR_INVALID_ARGS);
    db_t *other = open_at("copy");
    cf_t *copied = tidesdb_get_column_family(other, "f");
    CHECK(copied != NULL);
    CHECK_INT(count_keys(other, copied), 1000);
    STORED(other, tidesdb_get_column_family(other, "g"), "key", "value");
    fill(other, copied, 5000, 100);
    OK(tidesdb_purge(other));
    close_db(other);
    CHECK_INT(count_keys(db, cf), 1100);
    STORED(db, cf, "key005000", NULL);
    close_db(db);
    other = open_at("empty");
    CHECK_INT(count_keys(other, tidesdb_get_column_family(other, "f")), 1000);
    close_db(other);
}

static void a_backup_is_a_database(void)
{
    check_copy(call_backup);
}

static void a_checkpoint_is_a_database(void)
{
    check_copy(call_checkpoint);
}

static void cancelling_stops_merges_and_nothing_else(void)
{
    db_t *db = open_at("db");
    cf_t *cf = with_tables(db, "f", 3);
    CHECK_RC(tidesdb_cancel_background_work(NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_cancel_background_work(db));
    OK(tidesdb_cancel_background_work(db));
    CHECK_INT(tidesdb_is_compacting(cf), 0);
    fill(db, cf, 1000, 100);
    flush(cf);
    CHECK_INT(count_keys(db, cf), 300);
    close_db(db);
    db = open_at("db");
    cf = tidesdb_get_column_family(db, "f");
    CHECK_INT(count_keys(db, cf), 300);
    OK(tidesdb_compact(cf));
    CHECK_INT(tables(cf), 1);
    close_db(db);
}

const struct test maintenance_tests[] = {
    TEST(flushing),
    TEST(merging),
    TEST(merging_a_range),
    TEST(fixed_c7_a_purge_is_complete),
    TEST(syncing),
    TEST(a_backup_is_a_database),
    TEST(a_checkpoint_is_a_database),
    TEST(cancelling_stops_merges_and_nothing_else),
    END_OF_TESTS,
};
