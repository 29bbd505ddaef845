/* The library as a whole: defaults, memory, errors, limits. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "../kit/store.h"

static void defaults_of_a_database(void)
{
    tidesdb_config_t c = tidesdb_default_config();
    CHECK_STR(c.db_path, "./tidesdb");
    CHECK_INT(c.num_flush_threads, 0);
    CHECK_INT(c.num_compaction_threads, 2);
    CHECK_INT(c.log_level, TDB_LOG_INFO);
    CHECK_INT(c.block_cache_size, TDB_DEFAULT_BLOCK_CACHE_SIZE);
    CHECK_INT(c.max_open_sstables, 256);
    CHECK_INT(c.log_to_file, 0);
    CHECK_INT(c.log_truncation_at, 25165824);
    CHECK_INT(c.max_memory_usage, 0);
    CHECK_INT(c.unified_memtable, 0);
    CHECK_INT(c.unified_memtable_write_buffer_size, 0);
    CHECK_INT(c.unified_memtable_skip_list_max_level, 12);
    CHECK(c.unified_memtable_skip_list_probability == 0.25f);
    CHECK_INT(c.unified_memtable_sync_mode, TDB_SYNC_NONE);
    CHECK_INT(c.unified_memtable_sync_interval_us, 0);
    CHECK(c.object_store == NULL && c.object_store_config == NULL);
    CHECK_INT(c.max_concurrent_flushes, 0);
    CHECK_INT(c.finish_compactions_on_close, 0);
}

static void defaults_of_a_family(void)
{
    tidesdb_column_family_config_t c = tidesdb_default_column_family_config();
    CHECK_STR(c.name, "");
    CHECK_INT(c.write_buffer_size, TDB_DEFAULT_WRITE_BUFFER_SIZE);
    CHECK_INT(c.level_size_ratio, 10);
    CHECK_INT(c.min_levels, 1);
    CHECK_INT(c.dividing_level_offset, 1);
    CHECK_INT(c.klog_value_threshold, 512);
    CHECK_INT(c.compression_algorithm, TDB_COMPRESS_LZ4);
    CHECK_INT(c.enable_bloom_filter, 1);
    CHECK(c.bloom_fpr == 0.01);
    CHECK_INT(c.enable_block_indexes, 1);
    CHECK_INT(c.index_sample_ratio, 1);
    CHECK_INT(c.block_index_prefix_len, 16);
    CHECK_INT(c.sync_mode, TDB_SYNC_NONE);
    CHECK_INT(c.sync_interval_us, 128000);
    CHECK_STR(c.comparator_name, "");
    CHECK_STR(c.comparator_ctx_str, "");
    CHECK(c.comparator_fn_cached == NULL && c.comparator_ctx_cached == NULL);
    CHECK_INT(c.skip_list_max_level, 12);
    CHECK(c.skip_list_probability == 0.25f);
    CHECK_INT(c.default_isolation_level, TDB_ISOLATION_READ_COMMITTED);
    CHECK_INT(c.min_disk_space, 104857600);
    CHECK_INT(c.l1_file_count_trigger, 4);
    CHECK_INT(c.l0_queue_stall_threshold, 10);
    CHECK(c.tombstone_density_trigger == 0.0);
    CHECK_INT(c.tombstone_density_min_entries, 1024);
    CHECK_INT(c.use_btree, 0);
    CHECK(c.commit_hook_fn == NULL && c.commit_hook_ctx == NULL);
    CHECK_INT(c.object_target_file_size, 0);
    CHECK_INT(c.object_lazy_compaction, 0);
    CHECK_INT(c.object_prefetch_compaction, 1);
}

static void defaults_of_an_object_store(void)
{
    tidesdb_objstore_config_t c = tidesdb_objstore_default_config();
    CHECK(c.local_cache_path == NULL);
    CHECK_INT(c.local_cache_max_bytes, 0);
    CHECK_INT(c.cache_on_read, 1);
    CHECK_INT(c.cache_on_write, 1);
    CHECK_INT(c.max_concurrent_uploads, 4);
    CHECK_INT(c.max_concurrent_downloads, 8);
    CHECK_INT(c.multipart_threshold, 64 << 20);
    CHECK_INT(c.multipart_part_size, 8 << 20);
    CHECK_INT(c.sync_manifest_to_object, 1);
    CHECK_INT(c.replicate_wal, 1);
    CHECK_INT(c.wal_upload_sync, 0);
    CHECK_INT(c.wal_sync_threshold_bytes, 1 << 20);
    CHECK_INT(c.wal_sync_on_commit, 0);
    CHECK_INT(c.replica_mode, 0);
    CHECK_INT(c.replica_sync_interval_us, 5000000);
    CHECK_INT(c.replica_replay_wal, 1);
}

/* The library for them is not installed here: `cargo xtask s3` tests it. */
static void object_stores_of_s3_need_their_library(void)
{
    tidesdb_objstore_s3_config_t s3 = {0};
    CHECK(tidesdb_objstore_fs_create(NULL) == NULL);
    CHECK(tidesdb_objstore_s3_create("e", "b", "p", "a", "s", "r", 1, 0) == NULL);
    CHECK(strstr(tidesdb_last_error(), "libtidesdb_s3") && strstr(tidesdb_last_error(), "TIDESDB_S3_LIBRARY"));
    CHECK(tidesdb_objstore_s3_create(NULL, NULL, NULL, NULL, NULL, NULL, 0, 0) == NULL);
    CHECK(tidesdb_objstore_s3_create_config(&s3) == NULL);
    CHECK(tidesdb_objstore_s3_create_config(NULL) == NULL);
}

static int destroyed;

static void destroy(void *ctx)
{
    (void)ctx;
    destroyed++;
}

static void an_incomplete_connector_is_refused_and_stays_the_callers(void)
{
    tidesdb_objstore_t *store = calloc(1, sizeof *store);
    CHECK(store != NULL);
    store->backend = TDB_BACKEND_UNKNOWN;
    store->destroy = destroy;
    tidesdb_config_t config = quiet("db");
    config.object_store = store;
    db_t *db = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_INVALID_ARGS);
    CHECK(strlen(tidesdb_last_error()) > 0);
    CHECK(db == NULL);
    CHECK_INT(destroyed, 0);
    free(store);
    close_db(open_at("db"));
}

static void there_are_no_replicas(void)
{
    CHECK_RC(tidesdb_promote_to_primary(NULL), TDB_ERR_INVALID_ARGS);
    db_t *db = open_at("db");
    CHECK_RC(tidesdb_promote_to_primary(db), TDB_ERR_INVALID_ARGS);
    close_db(db);
}

static void compression_available_means_usable(void)
{
    CHECK_INT(tidesdb_compression_available(TDB_COMPRESS_NONE), 1);
    CHECK_INT(tidesdb_compression_available(TDB_COMPRESS_LZ4), 1);
    CHECK_INT(tidesdb_compression_available(-1), 0);
    CHECK_INT(tidesdb_compression_available(5), 0);
    CHECK_INT(tidesdb_compression_available(1 << 30), 0);
    db_t *db = open_at("db");
    for (int algorithm = 0; algorithm <= 4; algorithm++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", algorithm);
        tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
        config.compression_algorithm = (tidesdb_compression_t)algorithm;
        int available = tidesdb_compression_available(algorithm);
        CHECK(available == 0 || available == 1);
        if (!available) {
            CHECK_RC(tidesdb_create_column_family(db, name, &config), TDB_ERR_INVALID_ARGS);
            continue;
        }
        cf_t *cf = family_with(db, name, &config);
        fill(db, cf, 0, 2000);
        flush(cf);
        STORED(db, cf, "key001234", "value001234");
        CHECK_INT(count_keys(db, cf), 2000);
    }
    close_db(db);
}

static void *error_of_another_thread(void *arg)
{
    (void)arg;
    CHECK_STR(tidesdb_last_error(), "");
    CHECK_RC(tidesdb_close(NULL), TDB_ERR_INVALID_ARGS);
    CHECK(strlen(tidesdb_last_error()) > 0);
    return NULL;
}

static void last_error_is_of_this_thread(void)
{
    CHECK_STR(tidesdb_last_error(), "");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, error_of_another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_STR(tidesdb_last_error(), "");
    write_file("file", "no directory");
    tidesdb_config_t config = quiet("file/db");
    db_t *db = NULL;
    CHECK_RC(tidesdb_open(&config, &db), TDB_ERR_IO);
    CHECK(strstr(tidesdb_last_error(), "file/db") != NULL);
}

static void open_file_limit(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_INT(tidesdb_raise_open_file_limit(0), (long)limit.rlim_cur);
    CHECK_INT(tidesdb_raise_open_file_limit(-5), (long)limit.rlim_cur);
    CHECK_INT(tidesdb_raise_open_file_limit(1), (long)limit.rlim_cur);
    struct rlimit low = {64, limit.rlim_max};
    if (limit.rlim_max < 128) return;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    CHECK_INT(tidesdb_raise_open_file_limit(100), 100);
    CHECK(getrlimit(RLIMIT_NOFILE, &low) == 0);
    CHECK_INT(low.rlim_cur, 100);
    CHECK(tidesdb_raise_open_file_limit(1L << 60) >= 100);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void free_takes_null(void)
{
    tidesdb_free(NULL);
    tidesdb_free_stats(NULL);
    tidesdb_txn_free(NULL);
    tidesdb_iter_free(NULL);
}

static atomic_long taken, given;

static void *count_malloc(size_t size)
{
    void *p = malloc(size);
    if (p != NULL) atomic_fetch_add(&taken, 1);
    return p;
}

static void *count_calloc(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p != NULL) atomic_fetch_add(&taken, 1);
    return p;
}

static void *count_realloc(void *old, size_t size)
{
    void *p = realloc(old, size);
    if (old == NULL && p != NULL) atomic_fetch_add(&taken, 1);
    return p;
}

static void count_free(void *p)
{
    if (p != NULL) atomic_fetch_add(&given, 1);
    free(p);
}

static void init_counts_every_value(void)
{
    OK(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free));
    CHECK_RC(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free), TDB_ERR_MEMORY);
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    long before = atomic_load(&taken);
    txn_t *txn = begin(db);
    uint8_t *value = NULL;
    size_t size = 0;
    OK(tidesdb_txn_get(txn, cf, B("key"), &value, &size));
    CHECK(atomic_load(&taken) > before);
    tidesdb_free(value);
    tidesdb_txn_free(txn);
    char **names = NULL;
    int count = 0;
    OK(tidesdb_list_column_families(db, &names, &count));
    CHECK_INT(count, 1);
    tidesdb_free(names[0]);
    tidesdb_free(names);
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    tidesdb_free_stats(stats);
    close_db(db);
    CHECK_INT(atomic_load(&taken), atomic_load(&given));
    tidesdb_finalize();
}

static void init_after_the_first_use_is_refused(void)
{
    close_db(open_at("db"));
    CHECK_RC(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free), TDB_ERR_MEMORY);
    tidesdb_finalize();
    OK(tidesdb_init(NULL, NULL, NULL, NULL));
    db_t *db = open_at("db");
    put(db, family(db, "f"), "key", "value");
    STORED(db, family(db, "f"), "key", "value");
    close_db(db);
    tidesdb_finalize();
    tidesdb_finalize();
}

static void one_null_allocator_stands_for_libc(void)
{
    OK(tidesdb_init(count_malloc, NULL, count_realloc, count_free));
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    STORED(db, cf, "key", "value");
    close_db(db);
    CHECK_INT(atomic_load(&taken), 0);
    CHECK_INT(atomic_load(&given), 0);
}

static void ensure_initialized_refuses_a_later_init(void)
{
    CHECK_INT(tidesdb_initialized, 0);
    tidesdb_ensure_initialized();
    tidesdb_ensure_initialized();
    CHECK_INT(tidesdb_initialized, 1);
    CHECK_RC(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free), TDB_ERR_MEMORY);
    tidesdb_finalize();
    CHECK_INT(tidesdb_initialized, 0);
    OK(tidesdb_init(count_malloc, count_calloc, count_realloc, count_free));
    tidesdb_finalize();
}

static void log_write_formats_a_line(void)
{
    FILE *before = _tidesdb_log_file, *file = fopen("lines", "w");
    CHECK(file != NULL);
    _tidesdb_log_file = file;
    tidesdb_log_write(TDB_LOG_WARN, "a.c", 12, "%s=%d %.1f %c", "x", -5, 2.5, '!');
    tidesdb_log_write(77, NULL, 0, "once\n");
    tidesdb_log_write(TDB_LOG_WARN, "a.c", 12, NULL);
    static char long_text[9000];
    memset(long_text, 'z', sizeof long_text - 1);
    tidesdb_log_write(TDB_LOG_FATAL, "b.c", 1, "%s", long_text);
    _tidesdb_log_file = before;
    CHECK(fclose(file) == 0);
    char *lines = read_file("lines");
    static const char start[] = "tidesdb WARN  a.c:12: x=-5 2.5 !\ntidesdb LOG   ?:0: once\ntidesdb FATAL b.c:1: zzz";
    CHECK(strncmp(lines, start, strlen(start)) == 0);
    CHECK_INT(strlen(strstr(lines, "zzz")), 4095 + 1);
    free(lines);
}

const struct test library_tests[] = {
    TEST(defaults_of_a_database),
    TEST(defaults_of_a_family),
    TEST(defaults_of_an_object_store),
    TEST(object_stores_of_s3_need_their_library),
    TEST(an_incomplete_connector_is_refused_and_stays_the_callers),
    TEST(there_are_no_replicas),
    TEST(compression_available_means_usable),
    TEST_ALONE(last_error_is_of_this_thread),
    TEST(open_file_limit),
    TEST(free_takes_null),
    TEST_ALONE(ensure_initialized_refuses_a_later_init),
    TEST(log_write_formats_a_line),
    TEST_ALONE(init_counts_every_value),
    TEST_ALONE(init_after_the_first_use_is_refused),
    TEST_ALONE(one_null_allocator_stands_for_libc),
    END_OF_TESTS,
};
