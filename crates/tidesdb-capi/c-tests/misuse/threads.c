/* Handles used by several threads at once. */
#define _GNU_SOURCE
#include <pthread.h>

#include "table.h"

enum { THREADS = 3 };

struct shared {
    db_t *db;
    cf_t *cf;
    txn_t *txn;
    iter_t *iter;
    int rounds;
    atomic_int busy, served;
};

static void *run(struct shared *shared, void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, body, shared) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return NULL;
}

static void set_up(struct shared *shared)
{
    memset(shared, 0, sizeof *shared);
    shared->db = open_at("db");
    shared->cf = family(shared->db, "f");
    fill(shared->db, shared->cf, 0, 100);
    shared->txn = begin_at(shared->db, TDB_ISOLATION_SNAPSHOT);
    shared->rounds = scaled(20000, 200);
}

/* Checks for a code that is allowed while other threads use the handle, or have finished or freed it. */
static void may_be(struct shared *shared, const char *what, int rc)
{
    count_check();
    if (rc == TDB_ERR_BUSY) atomic_fetch_add(&shared->busy, 1);
    if (rc == TDB_SUCCESS) atomic_fetch_add(&shared->served, 1);
    switch (rc) {
    case TDB_SUCCESS:
    case TDB_ERR_MEMORY:
    case TDB_ERR_INVALID_ARGS:
    case TDB_ERR_NOT_FOUND:
    case TDB_ERR_CONFLICT:
    case TDB_ERR_BUSY: return;
    default: fail(__FILE__, __LINE__, "%s returned %d", what, rc);
    }
}

static void *use_transaction(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < shared->rounds; i++) {
        char key[32];
        uint8_t *value = NULL;
        size_t size = 0;
        snprintf(key, sizeof key, "key%06d", i % 100);
        may_be(shared, "put", tidesdb_txn_put(shared->txn, shared->cf, B(key), B("new"), 0));
        int rc = tidesdb_txn_get(shared->txn, shared->cf, B(key), &value, &size);
        may_be(shared, "get", rc);
        if (rc == TDB_SUCCESS) tidesdb_free(value);
        may_be(shared, "savepoint", tidesdb_txn_savepoint(shared->txn, "s"));
        may_be(shared, "rollback_to", tidesdb_txn_rollback_to_savepoint(shared->txn, "s"));
        if (i % 20 == 0) {
            may_be(shared, "commit", tidesdb_txn_commit(shared->txn));
            may_be(shared, "rollback", tidesdb_txn_rollback(shared->txn));
            may_be(shared, "reset", tidesdb_txn_reset(shared->txn, TDB_ISOLATION_SNAPSHOT));
        }
    }
    return NULL;
}

static void one_transaction_in_many_threads(void)
{
    struct shared shared;
    set_up(&shared);
    run(&shared, use_transaction);
    CHECK(atomic_load(&shared.served) > 0);
    tidesdb_txn_free(shared.txn);
    CHECK_INT(count_keys(shared.db, shared.cf), 100);
    close_db(shared.db);
}

static void *use_iterator(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < shared->rounds; i++) {
        may_be(shared, "next", tidesdb_iter_next(shared->iter));
        if (i % 7 == 0) may_be(shared, "prev", tidesdb_iter_prev(shared->iter));
        if (i % 13 == 0) may_be(shared, "first", tidesdb_iter_seek_to_first(shared->iter));
        if (i % 17 == 0) may_be(shared, "seek", tidesdb_iter_seek(shared->iter, B("key000050")));
        uint8_t *key = NULL, *value = NULL;
        size_t size = 0, value_size = 0;
        may_be(shared, "key", tidesdb_iter_key(shared->iter, &key, &size));
        if (i % 256 < 128) continue; /* no values are requested for a while, so no rows are read ahead */
        may_be(shared, "key_value", tidesdb_iter_key_value(shared->iter, &key, &size, &value, &value_size));
        int valid = tidesdb_iter_valid(shared->iter);
        CHECK(valid == 0 || valid == 1);
    }
    return NULL;
}

static void one_iterator_in_many_threads(void)
{
    struct shared shared;
    set_up(&shared);
    OK(tidesdb_iter_new(shared.txn, shared.cf, &shared.iter));
    run(&shared, use_iterator);
    CHECK(atomic_load(&shared.served) > 0);
    tidesdb_iter_free(shared.iter);
    tidesdb_txn_free(shared.txn);
    close_db(shared.db);
}

static void *begin_and_free(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < shared->rounds; i++) {
        txn_t *txn = begin(shared->db);
        EXPECT(txn, shared->cf, "key000007", "value000007");
        tidesdb_txn_free(txn);
        tidesdb_txn_free(txn);
        CHECK_RC(tidesdb_txn_rollback(txn), TDB_ERR_INVALID_ARGS);
    }
    return NULL;
}

static void handles_of_their_own(void)
{
    struct shared shared;
    set_up(&shared);
    run(&shared, begin_and_free);
    tidesdb_txn_free(shared.txn);
    close_db(shared.db);
}

static void *use_while_freed(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < shared->rounds / 10; i++) {
        may_be(shared, "put", tidesdb_txn_put(shared->txn, shared->cf, B("key000001"), B("value000001"), 0));
        may_be(shared, "next", tidesdb_iter_next(shared->iter));
        may_be(shared, "commit", tidesdb_txn_commit(shared->txn));
    }
    return NULL;
}

static void freed_while_others_use_it(void)
{
    struct shared shared;
    set_up(&shared);
    for (int round = 0, rounds = scaled(50, 3); round < rounds; round++) {
        pthread_t threads[THREADS];
        OK(tidesdb_iter_new(shared.txn, shared.cf, &shared.iter));
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, use_while_freed, &shared) == 0);
        tidesdb_iter_free(shared.iter);
        tidesdb_txn_free(shared.txn);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        tidesdb_iter_free(shared.iter);
        tidesdb_txn_free(shared.txn);
        shared.txn = begin(shared.db);
    }
    tidesdb_txn_free(shared.txn);
    CHECK_INT(count_keys(shared.db, shared.cf), 100);
    close_db(shared.db);
}

static void *use_until_closed(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0;; i++) {
        txn_t *txn = NULL;
        char key[32];
        snprintf(key, sizeof key, "key%06d", i % 100);
        int rc = tidesdb_txn_begin(shared->db, &txn);
        if (rc != TDB_SUCCESS) {
            CHECK(rc == TDB_ERR_INVALID_ARGS || rc == TDB_ERR_INVALID_DB || rc == TDB_ERR_BUSY);
            return NULL;
        }
        rc = tidesdb_txn_put(txn, shared->cf, B(key), B("value"), 0);
        if (rc != TDB_ERR_INVALID_DB) may_be(shared, "put", rc);
        rc = tidesdb_txn_commit(txn);
        /* A close in the middle of a commit: it is unknown whether the commit is in the log. */
        int unknown = rc == TDB_ERR_IO && strstr(tidesdb_last_error(), "closed") != NULL;
        if (rc != TDB_ERR_INVALID_DB && !unknown) may_be(shared, "commit", rc);
        iter_t *iter = NULL;
        if (tidesdb_iter_new(shared->txn, shared->cf, &iter) == TDB_SUCCESS) {
            rc = tidesdb_iter_seek_to_first(iter);
            if (rc != TDB_ERR_INVALID_DB) may_be(shared, "first", rc);
            tidesdb_iter_free(iter);
        }
        tidesdb_txn_free(txn);
    }
}

static void closed_while_others_use_it(void)
{
    for (int round = 0, rounds = scaled(20, 2); round < rounds; round++) {
        struct shared shared;
        set_up(&shared);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, use_until_closed, &shared) == 0);
        sleep_ms(5 + round);
        int rc = tidesdb_close(shared.db);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_BUSY);
        while (rc == TDB_ERR_BUSY) rc = tidesdb_close(shared.db);
        CHECK_INT(rc, TDB_SUCCESS);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        tidesdb_txn_free(shared.txn);
        db_t *db = open_at("db");
        CHECK_INT(count_keys(db, family(db, "f")), 100);
        close_db(db);
    }
}

static void *close_it(void *arg)
{
    struct shared *shared = arg;
    may_be(shared, "close", tidesdb_close(shared->db));
    return NULL;
}

static void closed_by_many_threads(void)
{
    for (int round = 0, rounds = scaled(20, 2); round < rounds; round++) {
        struct shared shared;
        set_up(&shared);
        run(&shared, close_it);
        CHECK_INT(atomic_load(&shared.served), 1);
        tidesdb_txn_free(shared.txn);
    }
}

static void *make_and_drop(void *arg)
{
    struct shared *shared = arg;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    for (int i = 0; i < shared->rounds / 100; i++) {
        int rc = tidesdb_create_column_family(shared->db, "g", &config);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_EXISTS);
        cf_t *cf = tidesdb_get_column_family(shared->db, "g");
        txn_t *txn = begin(shared->db);
        if (cf != NULL) may_be(shared, "put", tidesdb_txn_put(txn, cf, B("key"), B("value"), 0));
        may_be(shared, "commit", tidesdb_txn_commit(txn));
        tidesdb_txn_free(txn);
        rc = tidesdb_drop_column_family(shared->db, "g");
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_NOT_FOUND);
    }
    return NULL;
}

static void families_that_come_and_go(void)
{
    struct shared shared;
    set_up(&shared);
    run(&shared, make_and_drop);
    tidesdb_txn_free(shared.txn);
    CHECK_INT(count_keys(shared.db, shared.cf), 100);
    close_db(shared.db);
}

/* Calls with everything that takes stack: each compression, long and many values, an open that recovers, copies. */
static void *work_on_a_small_stack(void *arg)
{
    (void)arg;
    for (int round = 0; round < 2; round++) {
        db_t *db = open_at("db");
        for (int algorithm = TDB_COMPRESS_NONE; algorithm <= TDB_COMPRESS_LZ4_FAST; algorithm++) {
            tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
            config.compression_algorithm = (tidesdb_compression_t)algorithm;
            char name[16];
            snprintf(name, sizeof name, "f%d", algorithm);
            cf_t *cf = tidesdb_get_column_family(db, name);
            if (cf == NULL) cf = family_with(db, name, &config);
            fill(db, cf, 0, scaled(300, 30));
            static uint8_t value[1 << 21];
            txn_t *txn = begin_at(db, TDB_ISOLATION_SERIALIZABLE);
            for (int i = 0; i < scaled(5000, 50); i++) {
                char key[32];
                snprintf(key, sizeof key, "key%06d", i * 7919 % 5000);
                OK(tidesdb_txn_put(txn, cf, B(key), value, i % 100 == 0 ? 20000 : 40, i % 7 == 0 ? time(NULL) + 1000 : 0));
            }
            OK(tidesdb_txn_put(txn, cf, B("long"), value, sizeof value, 0));
            OK(tidesdb_txn_savepoint(txn, "s"));
            OK(tidesdb_txn_delete(txn, cf, B("key000001")));
            OK(tidesdb_txn_rollback_to_savepoint(txn, "s"));
            uint8_t *found = NULL;
            size_t size = 0;
            OK(tidesdb_txn_get(txn, cf, B("long"), &found, &size));
            tidesdb_free(found);
            commit(txn);
            count_keys(db, cf);
            OK(tidesdb_compact(cf));
            OK(tidesdb_compact_range(cf, B("a"), B("z")));
            txn = begin(db);
            OK(tidesdb_txn_get(txn, cf, B("long"), &found, &size));
            tidesdb_free(found);
            tidesdb_txn_free(txn);
            CHECK(count_keys(db, cf) > 0);
            double cost;
            OK(tidesdb_range_cost(cf, B("a"), B("z"), &cost));
            tidesdb_stats_t *stats = NULL;
            OK(tidesdb_get_stats(cf, &stats));
            tidesdb_free_stats(stats);
            OK(tidesdb_cf_update_runtime_config(cf, &config, 1));
            OK(tidesdb_cf_config_save_to_ini("settings.ini", name, &config));
            OK(tidesdb_cf_config_load_from_ini("settings.ini", name, &config));
            fill(db, cf, 0, 10);
        }
        tidesdb_db_stats_t stats;
        OK(tidesdb_get_db_stats(db, &stats));
        OK(tidesdb_clone_column_family(db, "f2", "clone"));
        OK(tidesdb_rename_column_family(db, "clone", "renamed"));
        OK(tidesdb_drop_column_family(db, "renamed"));
        OK(tidesdb_backup(db, round == 0 ? "backup" : "backup again"));
        OK(tidesdb_checkpoint(db, round == 0 ? "checkpoint" : "checkpoint again"));
        OK(tidesdb_purge(db));
        CHECK_RC(tidesdb_drop_column_family(db, "none"), TDB_ERR_NOT_FOUND);
        CHECK(strlen(tidesdb_last_error()) > 0);
        close_db(db);
    }
    return NULL;
}

/* The size that c-api.md asks for. Callbacks add what they use themselves. */
static void a_thread_with_a_small_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_create(&thread, &attributes, work_on_a_small_stack, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attributes);
}

const struct test thread_tests[] = {
    TEST(one_transaction_in_many_threads),
    TEST(one_iterator_in_many_threads),
    TEST(handles_of_their_own),
    TEST(freed_while_others_use_it),
    TEST(closed_while_others_use_it),
    TEST(closed_by_many_threads),
    TEST(families_that_come_and_go),
    TEST(a_thread_with_a_small_stack),
    END_OF_TESTS,
};
