/* INI files: every key, saving and loading, and refused files. */
#include <stdlib.h>
#include <unistd.h>

#include "../kit/store.h"

typedef tidesdb_column_family_config_t settings_t;

static int a_hook(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)count;
    (void)seq;
    (void)ctx;
    return 0;
}

/* Settings that differ from the defaults in every field. */
static settings_t unusual(void)
{
    settings_t c = tidesdb_default_column_family_config();
    c.write_buffer_size = 1234567;
    c.level_size_ratio = 7;
    c.min_levels = 3;
    c.dividing_level_offset = 2;
    c.klog_value_threshold = 4096;
    c.compression_algorithm = TDB_COMPRESS_ZSTD;
    c.enable_bloom_filter = 0;
    c.bloom_fpr = 0.125;
    c.enable_block_indexes = 0;
    c.index_sample_ratio = 5;
    c.block_index_prefix_len = 24;
    c.sync_mode = TDB_SYNC_INTERVAL;
    c.sync_interval_us = 5000;
    strcpy(c.comparator_name, "reverse");
    strcpy(c.comparator_ctx_str, "some context");
    c.skip_list_max_level = 9;
    c.skip_list_probability = 0.5f;
    c.default_isolation_level = TDB_ISOLATION_SNAPSHOT;
    c.min_disk_space = 1000000;
    c.l1_file_count_trigger = 8;
    c.l0_queue_stall_threshold = 30;
    c.tombstone_density_trigger = 0.75;
    c.tombstone_density_min_entries = 99;
    c.use_btree = 1;
    c.object_lazy_compaction = 1;
    c.object_prefetch_compaction = 0;
    return c;
}

static void same(const settings_t *a, const settings_t *b)
{
    CHECK_INT(a->write_buffer_size, b->write_buffer_size);
    CHECK_INT(a->level_size_ratio, b->level_size_ratio);
    CHECK_INT(a->min_levels, b->min_levels);
    CHECK_INT(a->dividing_level_offset, b->dividing_level_offset);
    CHECK_INT(a->klog_value_threshold, b->klog_value_threshold);
    CHECK_INT(a->compression_algorithm, b->compression_algorithm);
    CHECK_INT(a->enable_bloom_filter, b->enable_bloom_filter);
    CHECK(a->bloom_fpr == b->bloom_fpr);
    CHECK_INT(a->enable_block_indexes, b->enable_block_indexes);
    CHECK_INT(a->index_sample_ratio, b->index_sample_ratio);
    CHECK_INT(a->block_index_prefix_len, b->block_index_prefix_len);
    CHECK_INT(a->sync_mode, b->sync_mode);
    CHECK_INT(a->sync_interval_us, b->sync_interval_us);
    CHECK_STR(a->comparator_name, b->comparator_name);
    CHECK_STR(a->comparator_ctx_str, b->comparator_ctx_str);
    CHECK_INT(a->skip_list_max_level, b->skip_list_max_level);
    CHECK(a->skip_list_probability == b->skip_list_probability);
    CHECK_INT(a->default_isolation_level, b->default_isolation_level);
    CHECK_INT(a->min_disk_space, b->min_disk_space);
    CHECK_INT(a->l1_file_count_trigger, b->l1_file_count_trigger);
    CHECK_INT(a->l0_queue_stall_threshold, b->l0_queue_stall_threshold);
    CHECK(a->tombstone_density_trigger == b->tombstone_density_trigger);
    CHECK_INT(a->tombstone_density_min_entries, b->tombstone_density_min_entries);
    CHECK_INT(a->use_btree, b->use_btree);
    CHECK_INT(a->object_lazy_compaction, b->object_lazy_compaction);
    CHECK_INT(a->object_prefetch_compaction, b->object_prefetch_compaction);
}

static void every_key_comes_back(void)
{
    settings_t saved = unusual(), loaded;
    memset(&loaded, 0xee, sizeof loaded);
    OK(tidesdb_cf_config_save_to_ini("f.ini", "family", &saved));
    OK(tidesdb_cf_config_load_from_ini("f.ini", "family", &loaded));
    same(&saved, &loaded);
}

static void hooks_stay_out_of_the_file(void)
{
    settings_t saved = unusual(), loaded;
    saved.commit_hook_fn = a_hook;
    saved.commit_hook_ctx = &saved;
    saved.object_target_file_size = 77;
    OK(tidesdb_cf_config_save_to_ini("f.ini", "family", &saved));
    OK(tidesdb_cf_config_load_from_ini("f.ini", "family", &loaded));
    CHECK(loaded.commit_hook_fn == NULL && loaded.commit_hook_ctx == NULL);
    CHECK(loaded.comparator_fn_cached == NULL && loaded.comparator_ctx_cached == NULL);
    CHECK_INT(loaded.object_target_file_size, 0);
}

static void the_file_has_the_known_keys(void)
{
    static const char *const keys[] = {
        "write_buffer_size", "level_size_ratio", "min_levels", "dividing_level_offset", "value_threshold",
        "compression_algorithm", "enable_bloom_filter", "bloom_fpr", "enable_block_indexes",
        "index_sample_ratio", "block_index_prefix_len", "sync_mode", "sync_interval_us",
        "comparator_name", "comparator_ctx_str", "skip_list_max_level", "skip_list_probability",
        "default_isolation_level", "min_disk_space", "l1_file_count_trigger",
        "l0_queue_stall_threshold", "tombstone_density_trigger", "tombstone_density_min_entries",
        "use_btree", "object_lazy_compaction", "object_prefetch_compaction"};
    settings_t saved = unusual();
    OK(tidesdb_cf_config_save_to_ini("f.ini", "my family", &saved));
    char *text = read_file("f.ini");
    CHECK(strstr(text, "[my family]") != NULL);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char begin[64];
        snprintf(begin, sizeof begin, "\n%s", keys[i]);
        const char *at = strstr(text, begin);
        if (at == NULL) fail(__FILE__, __LINE__, "no key %s in\n%s", keys[i], text);
        CHECK(strchr(" =", at[strlen(begin)]) != NULL);
    }
    CHECK(strstr(text, "ZSTD") != NULL);
    CHECK(strstr(text, "1234567") != NULL);
    free(text);
}

static void saving_replaces_the_file(void)
{
    settings_t saved = unusual(), loaded, defaults = tidesdb_default_column_family_config();
    OK(tidesdb_cf_config_save_to_ini("f.ini", "first", &saved));
    OK(tidesdb_cf_config_save_to_ini("f.ini", "second", &saved));
    OK(tidesdb_cf_config_load_from_ini("f.ini", "second", &loaded));
    same(&saved, &loaded);
    OK(tidesdb_cf_config_load_from_ini("f.ini", "first", &loaded));
    same(&defaults, &loaded);
}

static void a_file_written_by_hand(void)
{
    write_file("f.ini",
               "; a comment\n"
               "# another\n"
               "[other]\n"
               "write_buffer_size = 1\n"
               "\n"
               "[family]\n"
               "write_buffer_size=1048576\n"
               "  value_threshold = 100\n"
               "compression_algorithm = SNAPPY\n"
               "sync_mode = 1\n"
               "comparator_name = uint64\n"
               "bloom_fpr = 0.5\n"
               "no_such_key = 12\n");
    settings_t c;
    OK(tidesdb_cf_config_load_from_ini("f.ini", "family", &c));
    CHECK_INT(c.write_buffer_size, 1048576);
    CHECK_INT(c.klog_value_threshold, 100);
    CHECK_INT(c.compression_algorithm, TDB_COMPRESS_SNAPPY);
    CHECK_INT(c.sync_mode, TDB_SYNC_FULL);
    CHECK_STR(c.comparator_name, "uint64");
    CHECK(c.bloom_fpr == 0.5);
    CHECK_INT(c.level_size_ratio, 10);
}

static void every_compression_has_its_name(void)
{
    static const char *const names[] = {"NONE", "SNAPPY", "LZ4", "ZSTD", "LZ4_FAST"};
    for (int i = 0; i < 5; i++) {
        char text[64];
        settings_t c;
        snprintf(text, sizeof text, "[f]\ncompression_algorithm = %s\n", names[i]);
        write_file("f.ini", text);
        OK(tidesdb_cf_config_load_from_ini("f.ini", "f", &c));
        CHECK_INT(c.compression_algorithm, i);
        OK(tidesdb_cf_config_save_to_ini("g.ini", "f", &c));
        char *saved = read_file("g.ini");
        CHECK(strstr(saved, names[i]) != NULL);
        free(saved);
    }
}

static void a_missing_section_gives_the_defaults(void)
{
    write_file("f.ini", "[other]\nmin_levels = 9\n");
    settings_t c, defaults = tidesdb_default_column_family_config();
    memset(&c, 0xee, sizeof c);
    OK(tidesdb_cf_config_load_from_ini("f.ini", "family", &c));
    same(&defaults, &c);
    write_file("f.ini", "");
    OK(tidesdb_cf_config_load_from_ini("f.ini", "family", &c));
    same(&defaults, &c);
}

static void what_is_no_ini_file_is_refused(void)
{
    settings_t c, before;
    memset(&c, 0x55, sizeof c);
    before = c;
    write_file("f.ini", "[family\nmin_levels = 9\n");
    CHECK_RC(tidesdb_cf_config_load_from_ini("f.ini", "family", &c), TDB_ERR_CORRUPTION);
    write_file("f.ini", "[family]\nthis is no pair\n");
    CHECK_RC(tidesdb_cf_config_load_from_ini("f.ini", "family", &c), TDB_ERR_CORRUPTION);
    CHECK(memcmp(&c, &before, sizeof c) == 0);
    CHECK(strstr(tidesdb_last_error(), "f.ini") != NULL);
}

static void ini_paths_and_null(void)
{
    settings_t c = tidesdb_default_column_family_config();
    CHECK_RC(tidesdb_cf_config_load_from_ini("none.ini", "f", &c), TDB_ERR_IO);
    CHECK(strstr(tidesdb_last_error(), "none.ini") != NULL);
    CHECK_RC(tidesdb_cf_config_load_from_ini(NULL, "f", &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_config_load_from_ini("f.ini", NULL, &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_config_load_from_ini("f.ini", "f", NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_config_save_to_ini("no/dir/f.ini", "f", &c), TDB_ERR_IO);
    CHECK_RC(tidesdb_cf_config_save_to_ini(NULL, "f", &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_config_save_to_ini("f.ini", NULL, &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_cf_config_save_to_ini("f.ini", "f", NULL), TDB_ERR_INVALID_ARGS);
    CHECK(access("f.ini", F_OK) != 0);
}

static void loaded_settings_make_a_family(void)
{
    settings_t c = unusual(), loaded;
    OK(tidesdb_cf_config_save_to_ini("f.ini", "f", &c));
    OK(tidesdb_cf_config_load_from_ini("f.ini", "f", &loaded));
    db_t *db = open_at("db");
    cf_t *cf = family_with(db, "f", &loaded);
    put(db, cf, "a", "1");
    put(db, cf, "b", "2");
    WALK(db, cf, "b a ");
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    same(&c, stats->config);
    CHECK_STR(stats->config->name, "f");
    tidesdb_free_stats(stats);
    close_db(db);
    db = open_at("db");
    cf = tidesdb_get_column_family(db, "f");
    CHECK(cf != NULL);
    OK(tidesdb_get_stats(cf, &stats));
    same(&c, stats->config);
    tidesdb_free_stats(stats);
    WALK(db, cf, "b a ");
    close_db(db);
}

const struct test config_tests[] = {
    TEST(every_key_comes_back),
    TEST(hooks_stay_out_of_the_file),
    TEST(the_file_has_the_known_keys),
    TEST(saving_replaces_the_file),
    TEST(a_file_written_by_hand),
    TEST(every_compression_has_its_name),
    TEST(a_missing_section_gives_the_defaults),
    TEST(what_is_no_ini_file_is_refused),
    TEST(ini_paths_and_null),
    TEST(loaded_settings_make_a_family),
    END_OF_TESTS,
};
