/* Every field of every statistics structure, for a database of known contents. */
#include <stdlib.h>

#include "../kit/store.h"

enum { KEY = 9, VALUE = 11, LARGE = 10000, LEVELS = 8 };

/* Expected values for a family. */
struct truth {
    int levels, tables[LEVELS];
    uint64_t keys[LEVELS], tombstones[LEVELS];
    uint64_t memtable_keys, user_bytes, flushes, compactions;
    double key_size, value_size, density, amplification;
    int density_level;
};

static tidesdb_stats_t *stats_of(cf_t *cf)
{
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    CHECK(stats != NULL);
    return stats;
}

/* Returns whether a equals b within a thousandth. */
static int near(double a, double b)
{
    double difference = a > b ? a - b : b - a;
    return difference <= 1e-3 * (b > 1 ? b : 1);
}

static void check_levels(const tidesdb_stats_t *stats, const struct truth *truth)
{
    CHECK_INT(stats->num_levels, truth->levels);
    for (int i = 0; i < truth->levels; i++) {
        CHECK_INT(stats->level_num_sstables[i], truth->tables[i]);
        CHECK_INT(stats->level_key_counts[i], truth->keys[i]);
        CHECK_INT(stats->level_tombstone_counts[i], truth->tombstones[i]);
        size_t least = (size_t)((truth->keys[i] - truth->tombstones[i]) * (KEY + VALUE));
        CHECK(stats->level_sizes[i] >= least && (stats->level_sizes[i] > 0) == (truth->tables[i] > 0));
    }
}

static void check_family(cf_t *cf, const char *name, const struct truth *truth)
{
    tidesdb_stats_t *stats = stats_of(cf);
    uint64_t in_tables = 0, tombstones = 0, sizes = 0;
    check_levels(stats, truth);
    for (int i = 0; i < truth->levels; i++) {
        in_tables += truth->keys[i];
        tombstones += truth->tombstones[i];
        sizes += stats->level_sizes[i];
    }
    CHECK_STR(stats->config->name, name);
    CHECK_INT(stats->config->klog_value_threshold, 512);
    CHECK_INT(stats->config->use_btree, stats->use_btree);
    CHECK(stats->memtable_size >= truth->memtable_keys * (KEY + VALUE));
    CHECK_INT(stats->total_keys, in_tables + truth->memtable_keys);
    CHECK_INT(stats->total_data_size, sizes + stats->memtable_size);
    CHECK(near(stats->avg_key_size, truth->key_size));
    CHECK(near(stats->avg_value_size / (truth->value_size > 0 ? truth->value_size : 1), truth->value_size > 0));
    CHECK(near(stats->read_amp, truth->amplification));
    CHECK_INT(stats->use_btree, 0);
    CHECK(stats->btree_total_nodes == 0 && stats->btree_max_height == 0 && stats->btree_avg_height == 0);
    CHECK_INT(stats->total_tombstones, tombstones);
    CHECK(near(stats->tombstone_ratio, in_tables == 0 ? 0 : (double)tombstones / (double)in_tables));
    CHECK(near(stats->max_sst_density, truth->density));
    CHECK_INT(stats->max_sst_density_level, truth->density_level);
    CHECK_INT(stats->user_bytes_written, truth->user_bytes);
    CHECK_INT(stats->wal_bytes_written, truth->user_bytes);
    CHECK_INT(stats->flush_count, truth->flushes);
    CHECK_INT(stats->compaction_count, truth->compactions);
    tidesdb_free_stats(stats);
}

static void put_large(db_t *db, cf_t *cf, int count)
{
    static char value[LARGE];
    memset(value, 'v', sizeof value);
    txn_t *txn = begin(db);
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "big%06d", i);
        OK(tidesdb_txn_put(txn, cf, B(key), (const uint8_t *)value, sizeof value, 0));
    }
    commit(txn);
}

static void delete_some(db_t *db, cf_t *cf, int count)
{
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i);
        del(db, cf, key);
    }
}

/* A database that merges only on request, with uncompressed families. */
static db_t *open_known(int unified)
{
    tidesdb_config_t config = quiet("db");
    config.num_compaction_threads = 0;
    config.unified_memtable = unified;
    config.max_memory_usage = (size_t)512 << 20;
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    return db;
}

static cf_t *known_family(db_t *db, const char *name)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.compression_algorithm = TDB_COMPRESS_NONE;
    return family_with(db, name, &config);
}

static void settled(cf_t *cf)
{
    for (double begin = now_ms(); tidesdb_is_flushing(cf) && now_ms() - begin < 20000;) sleep_ms(2);
    CHECK_INT(tidesdb_is_flushing(cf), 0);
}

static void every_figure_of_a_family(void)
{
    db_t *db = open_known(0);
    cf_t *cf = known_family(db, "known");
    struct truth truth = {.levels = 1, .amplification = 1};
    check_family(cf, "known", &truth);
    fill(db, cf, 0, 1000);
    truth.memtable_keys = 1000;
    truth.user_bytes = 1000 * (KEY + VALUE);
    check_family(cf, "known", &truth);
    tidesdb_stats_t *full = stats_of(cf);
    flush(cf);
    settled(cf);
    truth = (struct truth){.levels = 1, .tables = {1}, .keys = {1000}, .user_bytes = truth.user_bytes, .flushes = 1,
                           .key_size = KEY, .value_size = VALUE, .amplification = 2};
    check_family(cf, "known", &truth);
    tidesdb_stats_t *flushed = stats_of(cf);
    CHECK(flushed->memtable_size < full->memtable_size);
    CHECK_INT(flushed->flush_bytes_written, flushed->level_sizes[0]);
    tidesdb_free_stats(full);
    tidesdb_free_stats(flushed);
    put_large(db, cf, 100);
    delete_some(db, cf, 250);
    flush(cf);
    settled(cf);
    truth.tables[0] = 2;
    truth.keys[0] = 1350;
    truth.tombstones[0] = 250;
    truth.user_bytes += 100 * (KEY + LARGE) + 250 * KEY;
    truth.flushes = 2;
    truth.value_size = (1000.0 * VALUE + 100.0 * LARGE) / 1350;
    truth.density = 250.0 / 350;
    truth.density_level = 1;
    truth.amplification = 3;
    check_family(cf, "known", &truth);
    tidesdb_stats_t *before = stats_of(cf);
    CHECK(before->total_data_size > 100 * LARGE);
    OK(tidesdb_compact(cf));
    truth = (struct truth){.levels = 2, .tables = {0, 1}, .keys = {0, 850}, .user_bytes = truth.user_bytes,
                           .flushes = 2, .compactions = 1, .key_size = KEY,
                           .value_size = (750.0 * VALUE + 100.0 * LARGE) / 850, .amplification = 2};
    check_family(cf, "known", &truth);
    tidesdb_stats_t *after = stats_of(cf);
    CHECK_INT(after->flush_bytes_written, before->flush_bytes_written);
    CHECK_INT(before->compaction_bytes_read + before->compaction_bytes_written, 0);
    CHECK_INT(after->compaction_bytes_read, before->flush_bytes_written);
    CHECK(after->compaction_bytes_written > 0 && after->compaction_bytes_written < after->compaction_bytes_read);
    CHECK(after->total_data_size > 100 * LARGE && after->total_data_size < before->total_data_size);
    tidesdb_free_stats(before);
    tidesdb_free_stats(after);
    close_db(db);
}

/* Database statistics that are sums over families. */
static void check_sums(db_t *db, cf_t *const *families, int count)
{
    tidesdb_db_stats_t all;
    memset(&all, 0xee, sizeof all);
    OK(tidesdb_get_db_stats(db, &all));
    uint64_t user = 0, flush = 0, written = 0, read = 0, flushes = 0, merges = 0, data = 0, memtables = 0;
    int tables = 0;
    for (int i = 0; i < count; i++) {
        tidesdb_stats_t *of = stats_of(families[i]);
        user += of->user_bytes_written;
        flush += of->flush_bytes_written;
        written += of->compaction_bytes_written;
        read += of->compaction_bytes_read;
        flushes += of->flush_count;
        merges += of->compaction_count;
        memtables += of->memtable_size;
        data += of->total_data_size - of->memtable_size;
        for (int level = 0; level < of->num_levels; level++) tables += of->level_num_sstables[level];
        tidesdb_free_stats(of);
    }
    CHECK_INT(all.num_column_families, count);
    CHECK_INT(all.user_bytes_written, user);
    CHECK_INT(all.flush_bytes_written, flush);
    CHECK_INT(all.compaction_bytes_written, written);
    CHECK_INT(all.compaction_bytes_read, read);
    CHECK_INT(all.flush_count, flushes);
    CHECK_INT(all.compaction_count, merges);
    CHECK_INT(all.total_memtable_bytes, memtables);
    CHECK_INT(all.total_data_size_bytes, data);
    CHECK_INT(all.total_sstable_count, tables);
    CHECK_INT(all.num_open_sstables, tables);
}

/* Fields that are 0 when idle, and fields without a meaning in this engine. */
static void check_rest(const tidesdb_db_stats_t *all)
{
    CHECK_INT(all->memory_pressure_level, 0);
    CHECK_INT(all->flush_pending_count, 0);
    CHECK_INT(all->total_immutable_count, 0);
    CHECK_INT(all->txn_memory_bytes, 0);
    CHECK_INT(all->compaction_queue_size, 0);
    CHECK_INT(all->flush_queue_size, 0);
    CHECK_INT(all->unified_immutable_count, 0);
    CHECK_INT(all->unified_is_flushing, 0);
    CHECK_INT(all->object_store_enabled, 0);
    CHECK(all->object_store_connector == NULL);
    CHECK_INT(all->local_cache_bytes_used, 0);
    CHECK_INT(all->local_cache_bytes_max, 0);
    CHECK_INT(all->local_cache_num_files, 0);
    CHECK_INT(all->last_uploaded_generation, 0);
    CHECK_INT(all->upload_queue_depth, 0);
    CHECK_INT(all->total_uploads, 0);
    CHECK_INT(all->total_upload_failures, 0);
    CHECK_INT(all->replica_mode, 0);
    CHECK_INT(all->primary_epoch, 0);
    CHECK_INT(all->seen_epoch, 0);
}

/* The log: one for all families, reported as the unified log if the memtable is unified. */
static void check_log(const tidesdb_db_stats_t *all, int unified, uint64_t bytes)
{
    uint64_t mine = unified ? all->uwal_bytes_written : all->wal_bytes_written;
    uint64_t other = unified ? all->wal_bytes_written : all->uwal_bytes_written;
    CHECK(mine >= bytes && mine < 4 * bytes + 100000);
    CHECK_INT(other, 0);
    CHECK_INT(all->unified_memtable_enabled, unified);
    CHECK_INT(all->unified_memtable_bytes, unified ? all->total_memtable_bytes : 0);
    CHECK_INT(all->unified_next_cf_index, unified ? 2 : 0);
    CHECK((all->unified_wal_generation > 0) == unified);
}

static void figures_of_all_families(int unified)
{
    db_t *db = open_known(unified);
    tidesdb_db_stats_t empty, all;
    OK(tidesdb_get_db_stats(db, &empty));
    check_rest(&empty);
    CHECK_INT(empty.num_column_families, 0);
    CHECK_INT(empty.total_memtable_bytes, 0);
    CHECK_INT(empty.user_bytes_written, 0);
    CHECK_INT(empty.resolved_memory_limit, (size_t)512 << 20);
    CHECK(empty.total_memory > 0 && empty.available_memory > 0 && empty.available_memory <= empty.total_memory);
    cf_t *families[2] = {known_family(db, "one"), known_family(db, "two")};
    check_sums(db, families, 2);
    fill(db, families[0], 0, 1000);
    put_large(db, families[1], 20);
    check_sums(db, families, 2);
    OK(tidesdb_get_db_stats(db, &all));
    check_rest(&all);
    CHECK(all.global_seq > empty.global_seq);
    CHECK_INT(all.user_bytes_written, 1000 * (KEY + VALUE) + 20 * (KEY + LARGE));
    check_log(&all, unified, 1000 * (KEY + VALUE));
    for (int i = 0; i < 2; i++) {
        flush(families[i]);
        settled(families[i]);
    }
    delete_some(db, families[0], 100);
    OK(tidesdb_compact(families[0]));
    check_sums(db, families, 2);
    close_db(db);
    db = open_known(unified);
    families[0] = tidesdb_get_column_family(db, "one");
    families[1] = tidesdb_get_column_family(db, "two");
    check_sums(db, families, 2);
    OK(tidesdb_get_db_stats(db, &all));
    check_rest(&all);
    CHECK_INT(all.user_bytes_written, 0);
    CHECK(all.total_sstable_count >= 2);
    close_db(db);
}

static void every_figure_of_a_database(void)
{
    figures_of_all_families(0);
}

/* Regression test: the statistics always reported that the memtable is not unified. */
static void every_figure_of_a_unified_database(void)
{
    figures_of_all_families(1);
}

static int64_t txn_memory(db_t *db)
{
    tidesdb_db_stats_t all;
    OK(tidesdb_get_db_stats(db, &all));
    return all.txn_memory_bytes;
}

/* Regression test: uncommitted writes were not counted. Buffers may be up to twice as large as their contents. */
static void memory_of_transactions(void)
{
    static char value[100000];
    db_t *db = open_at("db"), *other = open_at("other");
    cf_t *cf = family(db, "f");
    txn_t *a = begin(db), *b = begin(db);
    CHECK_INT(txn_memory(db), 0);
    OK(tidesdb_txn_put(a, cf, B("a"), (const uint8_t *)value, sizeof value, 0));
    CHECK(txn_memory(db) >= 100000 && txn_memory(db) < 250000);
    OK(tidesdb_txn_savepoint(a, "s"));
    OK(tidesdb_txn_put(a, cf, B("b"), (const uint8_t *)value, sizeof value, 0));
    OK(tidesdb_txn_put(b, cf, B("c"), (const uint8_t *)value, sizeof value, 0));
    CHECK(txn_memory(db) >= 300000 && txn_memory(db) < 750000);
    CHECK_INT(txn_memory(other), 0);
    OK(tidesdb_txn_rollback_to_savepoint(a, "s"));
    CHECK(txn_memory(db) >= 200000 && txn_memory(db) < 750000);
    OK(tidesdb_txn_commit(a));
    CHECK(txn_memory(db) >= 100000 && txn_memory(db) < 750000);
    OK(tidesdb_txn_reset(a, TDB_ISOLATION_SNAPSHOT));
    OK(tidesdb_txn_delete(a, cf, B("a")));
    CHECK(txn_memory(db) > 100000);
    OK(tidesdb_txn_rollback(a));
    tidesdb_txn_free(b);
    CHECK_INT(txn_memory(db), 0);
    tidesdb_txn_free(a);
    CHECK_INT(txn_memory(db), 0);
    close_db(db);
    close_db(other);
}

/* Immutable memtables: visible while a large one is flushed. */
static void flushes_that_wait(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, scaled(200000, 20000));
    OK(tidesdb_flush_memtable(cf));
    tidesdb_db_stats_t all;
    OK(tidesdb_get_db_stats(db, &all));
    CHECK(all.total_immutable_count == 0 || all.total_immutable_count == 1);
    CHECK_INT(all.flush_pending_count, all.total_immutable_count);
    CHECK_INT(all.flush_queue_size, all.total_immutable_count);
    CHECK(all.total_memtable_bytes > 0);
    settled(cf);
    OK(tidesdb_get_db_stats(db, &all));
    CHECK_INT(all.flush_pending_count + all.total_immutable_count, 0);
    CHECK_INT(all.flush_queue_size, 0);
    close_db(db);
}

static void every_figure_of_the_cache(void)
{
    db_t *db = open_known(0);
    cf_t *cf = family(db, "f"); /* compressed: uncompressed blocks do not use the cache */
    tidesdb_cache_stats_t cold, warm;
    fill(db, cf, 0, 20000);
    flush(cf);
    settled(cf);
    OK(tidesdb_get_cache_stats(db, &cold));
    CHECK_INT(cold.enabled, 1);
    CHECK(cold.num_partitions >= 1);
    for (int i = 0; i < 200; i++) STORED(db, cf, "key010000", "value010000");
    OK(tidesdb_get_cache_stats(db, &warm));
    CHECK(warm.hits >= cold.hits + 100);
    CHECK(warm.misses > cold.misses && warm.misses <= cold.misses + 20);
    CHECK(warm.total_entries > cold.total_entries && warm.total_entries <= cold.total_entries + 20);
    CHECK(warm.total_bytes > cold.total_bytes && warm.total_bytes < cold.total_bytes + (1 << 20));
    CHECK(near(warm.hit_rate, (double)warm.hits / (double)(warm.hits + warm.misses)));
    tidesdb_stats_t *stats = stats_of(cf);
    CHECK(near(stats->hit_rate, warm.hit_rate));
    tidesdb_free_stats(stats);
    close_db(db);
}

const struct test figure_tests[] = {
    TEST(every_figure_of_a_family),
    TEST(every_figure_of_a_database),
    TEST(every_figure_of_a_unified_database),
    TEST(memory_of_transactions),
    TEST(flushes_that_wait),
    TEST(every_figure_of_the_cache),
    END_OF_TESTS,
};
