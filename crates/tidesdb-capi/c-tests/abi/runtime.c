/* Changing the settings of an open family. */
#include "../kit/store.h"

typedef tidesdb_column_family_config_t settings_t;

static settings_t settings_of(cf_t *cf)
{
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    settings_t settings = *stats->config;
    tidesdb_free_stats(stats);
    return settings;
}

static void changes_are_seen_and_kept_if_asked(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    settings_t c = settings_of(cf);
    c.write_buffer_size = 1 << 20;
    c.sync_mode = TDB_SYNC_FULL;
    c.level_size_ratio = 5;
    c.compression_algorithm = TDB_COMPRESS_NONE;
    OK(tidesdb_cf_update_runtime_config(cf, &c, 1));
    settings_t now = settings_of(cf);
    CHECK_INT(now.write_buffer_size, 1 << 20);
    CHECK_INT(now.sync_mode, TDB_SYNC_FULL);
    put(db, cf, "key", "value");
    close_db(db);
    db = open_at("db");
    cf = tidesdb_get_column_family(db, "f");
    now = settings_of(cf);
    CHECK_INT(now.write_buffer_size, 1 << 20);
    CHECK_INT(now.sync_mode, TDB_SYNC_FULL);
    CHECK_INT(now.level_size_ratio, 5);
    CHECK_INT(now.compression_algorithm, TDB_COMPRESS_NONE);
    STORED(db, cf, "key", "value");
    close_db(db);
}

static void without_persist_a_reopening_forgets_it(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    settings_t c = settings_of(cf);
    c.write_buffer_size = 1 << 20;
    c.sync_mode = TDB_SYNC_FULL;
    OK(tidesdb_cf_update_runtime_config(cf, &c, 0));
    CHECK_INT(settings_of(cf).write_buffer_size, 1 << 20);
    CHECK_INT(settings_of(cf).sync_mode, TDB_SYNC_FULL);
    put(db, cf, "key", "value");
    flush(cf);
    close_db(db);
    db = open_at("db");
    cf = tidesdb_get_column_family(db, "f");
    CHECK_INT(settings_of(cf).write_buffer_size, 64 << 20);
    CHECK_INT(settings_of(cf).sync_mode, TDB_SYNC_NONE);
    close_db(db);
}

static void what_cannot_change_does_not(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "a", "1");
    put(db, cf, "b", "2");
    settings_t c = settings_of(cf);
    strcpy(c.name, "another");
    strcpy(c.comparator_name, "reverse");
    c.use_btree = 1;
    c.object_lazy_compaction = 1;
    OK(tidesdb_cf_update_runtime_config(cf, &c, 1));
    settings_t now = settings_of(cf);
    CHECK_STR(now.name, "f");
    CHECK(strcmp(now.comparator_name, "reverse") != 0);
    CHECK_INT(now.use_btree, 0);
    CHECK_INT(now.object_lazy_compaction, 0);
    WALK(db, cf, "a b ");
    CHECK(tidesdb_get_column_family(db, "f") == cf);
    CHECK(tidesdb_get_column_family(db, "another") == NULL);
    close_db(db);
}

static void a_small_buffer_takes_effect_at_the_next_memtable(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    settings_t c = settings_of(cf);
    c.write_buffer_size = 64 << 10;
    OK(tidesdb_cf_update_runtime_config(cf, &c, 0));
    flush(cf);
    for (int i = 0; i < 40; i++) fill(db, cf, i * 1000, 1000);
    double begin = now_ms();
    while (tables(cf) == 0 && now_ms() - begin < 20000) sleep_ms(5);
    CHECK(tables(cf) > 0);
    CHECK_INT(count_keys(db, cf), 40000);
    close_db(db);
}

static void bad_settings_change_nothing(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    settings_t good = settings_of(cf), bad = good;
    CHECK_RC(tidesdb_cf_update_runtime_config(NULL, &good, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_update_runtime_config(cf, NULL, 0), TDB_ERR_INVALID_ARGS);
    bad.write_buffer_size = 1 << 20;
    bad.sync_mode = 7;
    CHECK_RC(tidesdb_cf_update_runtime_config(cf, &bad, 0), TDB_ERR_INVALID_ARGS);
    bad.sync_mode = TDB_SYNC_INTERVAL;
    bad.sync_interval_us = 0;
    CHECK_RC(tidesdb_cf_update_runtime_config(cf, &bad, 0), TDB_ERR_INVALID_ARGS);
    bad = good;
    bad.write_buffer_size = 1 << 20;
    bad.compression_algorithm = (tidesdb_compression_t)9;
    CHECK_RC(tidesdb_cf_update_runtime_config(cf, &bad, 0), TDB_ERR_INVALID_ARGS);
    bad = good;
    bad.write_buffer_size = 1 << 20;
    bad.default_isolation_level = (tidesdb_isolation_level_t)5;
    CHECK_RC(tidesdb_cf_update_runtime_config(cf, &bad, 0), TDB_ERR_INVALID_ARGS);
    CHECK_INT(settings_of(cf).write_buffer_size, good.write_buffer_size);
    CHECK_INT(settings_of(cf).sync_mode, good.sync_mode);
    close_db(db);
}

static void every_sync_mode_works_live(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    static const int modes[] = {TDB_SYNC_FULL, TDB_SYNC_NONE, TDB_SYNC_INTERVAL, TDB_SYNC_FULL};
    for (int i = 0; i < 4; i++) {
        settings_t c = settings_of(cf);
        c.sync_mode = modes[i];
        c.sync_interval_us = 1000;
        OK(tidesdb_cf_update_runtime_config(cf, &c, 0));
        CHECK_INT(settings_of(cf).sync_mode, modes[i]);
        fill(db, cf, i * 10, 10);
    }
    CHECK_INT(count_keys(db, cf), 40);
    close_db(db);
}

const struct test runtime_tests[] = {
    TEST(changes_are_seen_and_kept_if_asked),
    TEST(without_persist_a_reopening_forgets_it),
    TEST(what_cannot_change_does_not),
    TEST(a_small_buffer_takes_effect_at_the_next_memtable),
    TEST(bad_settings_change_nothing),
    TEST(every_sync_mode_works_live),
    END_OF_TESTS,
};
