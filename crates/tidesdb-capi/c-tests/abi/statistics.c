/* Statistics: filled, plausible, and freed. */
#include "../kit/store.h"

static void figures_of_a_family(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    tidesdb_stats_t *stats = NULL;
    CHECK_RC(tidesdb_get_stats(NULL, &stats), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_get_stats(cf, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(stats == NULL);
    OK(tidesdb_get_stats(cf, &stats));
    CHECK_STR(stats->config->name, "f");
    CHECK_INT(stats->total_keys, 0);
    tidesdb_free_stats(stats);
    fill(db, cf, 0, 1000);
    OK(tidesdb_get_stats(cf, &stats));
    CHECK(stats->memtable_size > 10000);
    CHECK_INT(stats->total_keys, 1000);
    CHECK(stats->user_bytes_written >= 20000);
    CHECK(stats->wal_bytes_written >= 20000);
    tidesdb_free_stats(stats);
    flush(cf);
    OK(tidesdb_compact(cf));
    OK(tidesdb_get_stats(cf, &stats));
    CHECK_INT(stats->total_keys, 1000);
    CHECK(stats->total_data_size > 1000);
    CHECK(stats->avg_key_size > 1 && stats->avg_key_size < 30);
    CHECK(stats->avg_value_size > 1 && stats->avg_value_size < 40);
    CHECK(stats->read_amp >= 1);
    CHECK(stats->flush_count >= 1);
    CHECK(stats->flush_bytes_written > 0);
    CHECK_INT(stats->use_btree, 0);
    CHECK_INT(stats->total_tombstones, 0);
    tidesdb_free_stats(stats);
    close_db(db);
}

static void tombstones_are_counted(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 100);
    flush(cf);
    for (int i = 0; i < 50; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i);
        del(db, cf, key);
    }
    flush(cf);
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    CHECK_INT(stats->total_tombstones, 50);
    CHECK(stats->tombstone_ratio > 0 && stats->tombstone_ratio <= 1);
    tidesdb_free_stats(stats);
    CHECK_INT(count_keys(db, cf), 50);
    close_db(db);
}

static void trap_07_level_arrays_begin_at_0(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 1000);
    flush(cf);
    double begin = now_ms();
    while (tables(cf) == 0 && now_ms() - begin < 10000) sleep_ms(2);
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    CHECK(stats->num_levels >= 1 && stats->num_levels < 100);
    uint64_t keys = 0;
    for (int i = 0; i < stats->num_levels; i++) {
        CHECK((stats->level_sizes[i] > 0) == (stats->level_num_sstables[i] > 0));
        CHECK((stats->level_key_counts[i] > 0) == (stats->level_num_sstables[i] > 0));
        CHECK(stats->level_tombstone_counts[i] == 0);
        keys += stats->level_key_counts[i];
    }
    CHECK_INT(stats->level_num_sstables[0], 1);
    CHECK_INT(keys, 1000);
    CHECK(stats->max_sst_density == 0);
    tidesdb_free_stats(stats);
    close_db(db);
}

static void figures_of_a_database(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    family(db, "g");
    fill(db, cf, 0, 1000);
    tidesdb_db_stats_t stats;
    memset(&stats, 0xee, sizeof stats);
    OK(tidesdb_get_db_stats(db, &stats));
    CHECK_INT(stats.num_column_families, 2);
    CHECK(stats.total_memory > 0 && stats.available_memory <= stats.total_memory);
    CHECK(stats.resolved_memory_limit > 0);
    CHECK(stats.memory_pressure_level >= 0 && stats.memory_pressure_level < 10);
    CHECK(stats.total_memtable_bytes > 10000);
    CHECK_INT(stats.total_sstable_count, 0);
    CHECK(stats.global_seq > 0);
    CHECK_INT(stats.object_store_enabled, 0);
    CHECK_INT(stats.replica_mode, 0);
    CHECK_INT(stats.total_uploads, 0);
    CHECK_INT(stats.primary_epoch, 0);
    CHECK(stats.wal_bytes_written + stats.uwal_bytes_written > 0);
    CHECK(stats.user_bytes_written >= 20000);
    uint64_t seq = stats.global_seq;
    put(db, cf, "key", "value");
    flush(cf);
    OK(tidesdb_compact(cf));
    OK(tidesdb_get_db_stats(db, &stats));
    CHECK(stats.global_seq > seq);
    CHECK_INT(stats.total_sstable_count, 1);
    CHECK(stats.total_data_size_bytes > 0);
    CHECK(stats.flush_count >= 1);
    CHECK_RC(tidesdb_get_db_stats(NULL, &stats), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_get_db_stats(db, NULL), TDB_ERR_INVALID_ARGS);
    close_db(db);
}

static void figures_of_the_cache(void)
{
    tidesdb_config_t config = quiet("db");
    tidesdb_cache_stats_t stats;
    for (int on = 0; on < 2; on++) {
        db_t *db = NULL;
        config.block_cache_size = on ? 8 << 20 : 0;
        OK(tidesdb_open(&config, &db));
        cf_t *cf = family(db, on ? "on" : "off");
        fill(db, cf, 0, 1000);
        flush(cf);
        OK(tidesdb_compact(cf));
        for (int i = 0; i < 3; i++) STORED(db, cf, "key000500", "value000500");
        memset(&stats, 0xee, sizeof stats);
        OK(tidesdb_get_cache_stats(db, &stats));
        CHECK_INT(stats.enabled, on);
        if (on) {
            CHECK(stats.hits + stats.misses > 0);
            CHECK(stats.hit_rate >= 0 && stats.hit_rate <= 1);
            CHECK(stats.num_partitions > 0);
        } else {
            CHECK(stats.total_entries == 0 && stats.total_bytes == 0 && stats.hits == 0);
            CHECK(stats.misses == 0 && stats.hit_rate == 0 && stats.num_partitions == 0);
        }
        CHECK_RC(tidesdb_get_cache_stats(NULL, &stats), TDB_ERR_INVALID_ARGS);
        CHECK_RC(tidesdb_get_cache_stats(db, NULL), TDB_ERR_INVALID_ARGS);
        close_db(db);
    }
}

static void the_cost_of_a_range(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    double small = -1, large = -1, turned = -1;
    OK(tidesdb_range_cost(cf, B("a"), B("z"), &small));
    CHECK(small == 0);
    fill(db, cf, 0, 5);
    OK(tidesdb_range_cost(cf, B("a"), B("z"), &small));
    CHECK(small > 0.0049 && small < 0.0051); /* a thousandth for each row in a memtable, and nothing for the memtable */
    fill(db, cf, 0, 50000);
    flush(cf);
    OK(tidesdb_compact(cf));
    OK(tidesdb_range_cost(cf, B("key000000"), B("key000010"), &small));
    OK(tidesdb_range_cost(cf, B("key000000"), B("key049999"), &large));
    OK(tidesdb_range_cost(cf, B("key049999"), B("key000000"), &turned));
    CHECK(small >= 0 && large > small && turned == large);
    double cost = -1;
    CHECK_RC(tidesdb_range_cost(NULL, B("a"), B("z"), &cost), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_range_cost(cf, NULL, 1, B("z"), &cost), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_range_cost(cf, B("a"), NULL, 1, &cost), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_range_cost(cf, B("a"), B(""), &cost), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_range_cost(cf, B(""), B("a"), &cost), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_range_cost(cf, B("a"), B("z"), NULL), TDB_ERR_INVALID_ARGS);
    CHECK(cost == -1);
    close_db(db);
}

static void a_bound_of_the_keys(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    uint64_t keys = 99;
    CHECK_RC(tidesdb_cf_estimate_cardinality(NULL, &keys), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_estimate_cardinality(cf, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_INT(keys, 99);
    OK(tidesdb_cf_estimate_cardinality(cf, &keys));
    CHECK_INT(keys, 0);
    fill(db, cf, 0, 1000);
    flush(cf);
    fill(db, cf, 500, 1000);
    OK(tidesdb_cf_estimate_cardinality(cf, &keys));
    CHECK(keys >= 1500 && keys <= 2000);
    close_db(db);
}

const struct test statistics_tests[] = {
    TEST(figures_of_a_family),
    TEST(tombstones_are_counted),
    TEST(trap_07_level_arrays_begin_at_0),
    TEST(figures_of_a_database),
    TEST(figures_of_the_cache),
    TEST(the_cost_of_a_range),
    TEST(a_bound_of_the_keys),
    END_OF_TESTS,
};
