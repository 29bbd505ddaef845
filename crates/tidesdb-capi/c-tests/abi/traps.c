/* Behaviour that existing programs and bindings rely on, one test each. Trap 7 is in statistics.c, trap 10 in hooks.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tidesdb/objstore.h>
#include <tidesdb/tidesdb_version.h>

#include "../kit/store.h"

static void trap_01_reset_of_an_open_transaction_without_writes(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "0");
    txn_t *txn = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    for (int i = 0; i < 100; i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", i);
        EXPECT(txn, cf, "key", value);
        snprintf(value, sizeof value, "%d", i + 1);
        put(db, cf, "key", value);
        OK(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT));
    }
    OK(tidesdb_txn_put(txn, cf, B("key"), B("own"), 0));
    CHECK_RC(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT), TDB_ERR_INVALID_ARGS);
    commit(txn);
    STORED(db, cf, "key", "own");
    close_db(db);
}

static void trap_02_free_takes_values(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    txn_t *txn = begin(db);
    for (int i = 0; i < 2; i++) {
        uint8_t *value = NULL;
        size_t size = 0;
        if (i == 0) OK(tidesdb_txn_get(txn, cf, B("key"), &value, &size));
        else OK(tidesdb_txn_get_notrack(txn, cf, B("key"), &value, &size));
        CHECK(size == 5 && memcmp(value, "value", 5) == 0);
        value = realloc(value, 1000);
        CHECK(value != NULL && memcmp(value, "value", 5) == 0);
        free(value);
    }
    OK(tidesdb_txn_put(txn, cf, B("empty"), NULL, 0, 0));
    uint8_t *value = NULL;
    size_t size = 1;
    OK(tidesdb_txn_get(txn, cf, B("empty"), &value, &size));
    CHECK(value != NULL && size == 0);
    free(value);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void trap_03_the_default_path_is_static(void)
{
    tidesdb_config_t config = tidesdb_default_config();
    CHECK(config.db_path != NULL && config.db_path[0] != '\0');
    CHECK(config.db_path == tidesdb_default_config().db_path);
    db_t *db = NULL;
    config.log_level = TDB_LOG_NONE;
    OK(tidesdb_open(&config, &db));
    close_db(db);
    CHECK(access("tidesdb", F_OK) == 0);
}

static void trap_04_compression_available_is_found_by_its_name(void)
{
    void *found = dlsym(RTLD_DEFAULT, "tidesdb_compression_available");
    CHECK(found != NULL);
    int (*available)(int);
    memcpy(&available, &found, sizeof available);
    CHECK_INT(available(TDB_COMPRESS_LZ4), 1);
    CHECK_INT(available(77), 0);
}

static void trap_05_effects_on_the_disk(void)
{
    db_t *db = open_at("db");
    put(db, family(db, "f"), "key", "value");
    OK(tidesdb_backup(db, "backup"));
    OK(tidesdb_checkpoint(db, "checkpoint"));
    OK(tidesdb_clone_column_family(db, "f", "clone"));
    STORED(db, tidesdb_get_column_family(db, "clone"), "key", "value");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config(), loaded;
    config.write_buffer_size = 4321;
    OK(tidesdb_cf_config_save_to_ini("config.ini", "f", &config));
    OK(tidesdb_cf_config_load_from_ini("config.ini", "f", &loaded));
    CHECK_INT(loaded.write_buffer_size, 4321);
    close_db(db);
    static const char *const copies[] = {"backup", "checkpoint"};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        CHECK(stat(copies[i], &st) == 0 && S_ISDIR(st.st_mode));
        db = open_at(copies[i]);
        STORED(db, tidesdb_get_column_family(db, "f"), "key", "value");
        close_db(db);
    }
}

static void trap_06_the_sync_mode_switches_live(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    tidesdb_stats_t *stats = NULL;
    for (int mode = TDB_SYNC_INTERVAL; mode >= TDB_SYNC_NONE; mode--) {
        config.sync_mode = mode;
        OK(tidesdb_cf_update_runtime_config(cf, &config, 0));
        OK(tidesdb_get_stats(cf, &stats));
        CHECK_INT(stats->config->sync_mode, mode);
        tidesdb_free_stats(stats);
        fill(db, cf, mode * 100, 100);
    }
    CHECK_INT(count_keys(db, cf), 300);
    close_db(db);
}

static void trap_08_a_missing_key_writes_nothing(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "deleted", "value");
    del(db, cf, "deleted");
    txn_t *txn = begin(db);
    for (int i = 0; i < 2; i++) {
        EXPECT(txn, cf, "none", NULL);
        EXPECT(txn, cf, "deleted", NULL);
        uint8_t byte, *value = &byte;
        size_t size = 4711;
        CHECK_RC(tidesdb_txn_get_notrack(txn, cf, B("none"), &value, &size), TDB_ERR_NOT_FOUND);
        CHECK(value == &byte && size == 4711);
        flush(cf);
    }
    tidesdb_txn_free(txn);
    close_db(db);
}

static void trap_09_the_end_of_an_iteration(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    txn_t *txn = begin(db);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    for (int backwards = 0; backwards < 2; backwards++) {
        int (*step)(tidesdb_iter_t *) = backwards ? tidesdb_iter_prev : tidesdb_iter_next;
        OK(tidesdb_iter_seek(iter, B("key")));
        CHECK_INT(step(iter), TDB_ERR_NOT_FOUND);
        CHECK_INT(tidesdb_iter_valid(iter), 0);
        CHECK_INT(step(iter), TDB_ERR_INVALID_ARGS);
        CHECK_INT(step(iter), TDB_ERR_INVALID_ARGS);
    }
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

static int is_ours(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name == NULL ? info->dlpi_name : name + 1;
    if (strncmp(name, "libtidesdb", 10) == 0) snprintf(found, 64, "%s", name);
    return 0;
}

static void trap_11_the_soname(void)
{
    char found[64] = "";
    dl_iterate_phdr(is_ours, found);
    CHECK_STR(found, "libtidesdb.so.9");
}

static void trap_12_headers_in_standard_places(void)
{
    CHECK_INT(TIDESDB_VERSION_MAJOR, 9);
    /* Bindings derive their structures from this version: before 9.3.8, tidesdb_db_stats_t had no epochs. */
    CHECK_STR(TIDESDB_VERSION, "9.3.14");
    CHECK_INT(sizeof(tidesdb_db_stats_t), 304);
    CHECK_INT(TDB_DEFAULT_WRITE_BUFFER_SIZE, tidesdb_default_column_family_config().write_buffer_size);
    CHECK_INT(TDB_DEFAULT_BLOCK_CACHE_SIZE, tidesdb_default_config().block_cache_size);
    CHECK_INT(sizeof(tidesdb_objstore_t), 88);
}

const struct test trap_tests[] = {
    TEST(trap_01_reset_of_an_open_transaction_without_writes),
    TEST(trap_02_free_takes_values),
    TEST(trap_03_the_default_path_is_static),
    TEST(trap_04_compression_available_is_found_by_its_name),
    TEST(trap_05_effects_on_the_disk),
    TEST(trap_06_the_sync_mode_switches_live),
    TEST(trap_08_a_missing_key_writes_nothing),
    TEST(trap_09_the_end_of_an_iteration),
    TEST(trap_11_the_soname),
    TEST(trap_12_headers_in_standard_places),
    END_OF_TESTS,
};
