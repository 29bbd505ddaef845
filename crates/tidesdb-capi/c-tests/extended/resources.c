/* Many databases that share memory, a cache and threads. */
#include "extended.h"

static tidesdb_x_resources_use_t used(tidesdb_x_resources_t *resources)
{
    tidesdb_x_resources_use_t use = {.size = sizeof use};
    OK(tidesdb_x_resources_use(resources, &use));
    return use;
}

static void databases_share_what_they_use(void)
{
    enum { COUNT = 12 };
    const tidesdb_x_resources_options_t options = {
        .size = sizeof options, .memory_limit = 64 << 20, .cache_bytes = 4 << 20, .descriptors = 200, .threads = 2};
    tidesdb_x_resources_t *resources = NULL;
    OK(tidesdb_x_resources_new(&options, &resources));
    OK(tidesdb_x_resources_set_compaction_rate(resources, UINT64_C(1) << 40));
    db_t *all[COUNT];
    cf_t *families[COUNT];
    for (int n = 0; n < COUNT; n++) {
        char path[16];
        snprintf(path, sizeof path, "db%d", n);
        tidesdb_config_t config = quiet(path);
        config.block_cache_size = 0; /* they use that of the resources */
        const tidesdb_x_open_options_t open = {.size = sizeof open, .config = &config, .resources = resources};
        OK(tidesdb_x_open(&open, &all[n]));
        OK(tidesdb_x_create_family(all[n], "f", &(tidesdb_x_family_options_t){.size = sizeof(tidesdb_x_family_options_t)}, &families[n]));
        for (int k = 0; k < 50; k++) {
            char key[16];
            snprintf(key, sizeof key, "k%04d", k);
            x_put(families[n], key, path);
        }
        flush(families[n]);
    }
    tidesdb_cache_stats_t cache;
    OK(tidesdb_get_cache_stats(all[0], &cache));
    CHECK_INT(cache.enabled, 1);
    CHECK_INT(used(resources).databases, COUNT);
    CHECK_INT(used(resources).memory_limit, 64 << 20);
    CHECK(used(resources).memory_used > 0 && used(resources).memory_used < 64 << 20);
    CHECK(used(resources).threads > 0 && used(resources).threads < 12);
    OK(tidesdb_close(all[0]));
    CHECK_INT(used(resources).databases, COUNT - 1);
    tidesdb_x_resources_free(resources); /* the databases keep what they share */
    for (int n = 1; n < COUNT; n++) {
        char path[16];
        snprintf(path, sizeof path, "db%d", n);
        X_GET(families[n], NULL, "k0007", path);
        x_put(families[n], "later", "row");
        flush(families[n]);
        OK(tidesdb_close(all[n]));
    }
}

static void numbers_out_of_their_domain_are_refused(void)
{
    tidesdb_x_resources_t *resources = NULL;
    tidesdb_x_resources_options_t options = {.size = sizeof options, .threads = 257};
    CHECK_RC(tidesdb_x_resources_new(&options, &resources), TDB_ERR_INVALID_ARGS);
    options.threads = 2;
    options.size = 8;
    CHECK_RC(tidesdb_x_resources_new(&options, &resources), TDB_ERR_INVALID_ARGS);
    options = (tidesdb_x_resources_options_t){
        .size = sizeof options, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, 256};
    OK(tidesdb_x_resources_new(&options, &resources));
    tidesdb_config_t config = quiet("most");
    const tidesdb_x_open_options_t open = {.size = sizeof open, .config = &config, .resources = resources};
    db_t *db = NULL;
    OK(tidesdb_x_open(&open, &db));
    close_db(db);
    tidesdb_x_resources_free(resources);
    /* An open that an older program has compiled has no such field. */
    tidesdb_x_open_options_t older = {.size = offsetof(tidesdb_x_open_options_t, resources), .config = &config};
    older.resources = (tidesdb_x_resources_t *)(uintptr_t)12345;
    OK(tidesdb_x_open(&older, &db));
    close_db(db);
    older.size = sizeof older;
    CHECK_RC(tidesdb_x_open(&older, &db), TDB_ERR_INVALID_ARGS);
}

const struct test resource_tests[] = {
    TEST(databases_share_what_they_use),
    TEST(numbers_out_of_their_domain_are_refused),
    END_OF_TESTS,
};
