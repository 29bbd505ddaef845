/* Calls that race a drop or a close, and comparators that read while others commit. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "table.h"

enum { THREADS = 3, LONG = 4096, ROWS = 40 };

/* Settings with which a value of LONG bytes goes to a value log. */
static tidesdb_column_family_config_t separating(void)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.klog_value_threshold = 64;
    return config;
}

/* Returns value number n, LONG bytes long. */
static const uint8_t *value_of(int n, uint8_t *value)
{
    for (int i = 0; i < LONG; i++) value[i] = (uint8_t)(n * 31 + i * 7);
    return value;
}

static void put_long(db_t *db, cf_t *cf, const char *key, int n)
{
    uint8_t value[LONG];
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B(key), value_of(n, value), LONG, 0));
    commit(txn);
}

static int files_ending(const char *directory, const char *end)
{
    DIR *dir = opendir(directory);
    CHECK(dir != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        size_t size = strlen(entry->d_name);
        if (size > strlen(end) && strcmp(entry->d_name + size - strlen(end), end) == 0) count++;
    }
    closedir(dir);
    return count;
}

/* Returns the number of value logs, without that of the settings family, after background work that holds one briefly has
 * ended. */
static int value_logs_left(void)
{
    enum { SETTINGS = 1 };
    int count = files_ending("db", ".vlog");
    for (double begin = now_ms(); count > SETTINGS && now_ms() - begin < 3000;) {
        sleep_ms(5);
        count = files_ending("db", ".vlog");
    }
    return count > SETTINGS ? count - SETTINGS : 0;
}

struct getters {
    db_t *db;
    atomic_int stop, found;
};

static void *get_again_and_again(void *arg)
{
    struct getters *getters = arg;
    while (!atomic_load(&getters->stop)) {
        cf_t *cf = tidesdb_get_column_family(getters->db, "g");
        if (cf == NULL) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&getters->found, 1);
        int flushing = tidesdb_is_flushing(cf);
        CHECK(flushing == 0 || flushing == 1);
    }
    return NULL;
}

/* Regression test: a thread that looked up a family while another one dropped it created a new handle for the dropped family.
 * The database kept that handle, and the value logs of the family, until it was closed. */
static void a_family_dropped_while_others_get_it_leaves_no_files(void)
{
    struct getters getters = {.db = open_at("db")};
    tidesdb_column_family_config_t config = separating();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, get_again_and_again, &getters) == 0);
    for (int round = 0, rounds = scaled(300, 20); round < rounds; round++) {
        cf_t *cf = family_with(getters.db, "g", &config);
        put_long(getters.db, cf, "key", round);
        OK(tidesdb_drop_column_family(getters.db, "g"));
        CHECK(tidesdb_get_column_family(getters.db, "g") == NULL);
        CHECK_RC(tidesdb_flush_memtable(cf), TDB_ERR_INVALID_ARGS);
    }
    atomic_store(&getters.stop, 1);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&getters.found) > 0);
    CHECK_INT(value_logs_left(), 0);
    close_db(getters.db);
}

struct freer {
    db_t *db;
    cf_t *cf;
    pthread_barrier_t barrier;
};

static void *free_a_transaction(void *arg)
{
    struct freer *freer = arg;
    put_long(freer->db, freer->cf, "key", 1);
    pthread_barrier_wait(&freer->barrier);
    pthread_barrier_wait(&freer->barrier);
    return NULL;
}

/* Regression test: a freed transaction is kept in its thread for reuse. It kept the families that it had used alive, dropped
 * ones too, in every thread that went on with other work. */
static void a_freed_transaction_keeps_no_dropped_family(void)
{
    struct freer freer = {.db = open_at("db")};
    tidesdb_column_family_config_t config = separating();
    CHECK(pthread_barrier_init(&freer.barrier, NULL, 2) == 0);
    for (int round = 0; round < 10; round++) {
        pthread_t thread;
        freer.cf = family_with(freer.db, "g", &config);
        CHECK(pthread_create(&thread, NULL, free_a_transaction, &freer) == 0);
        pthread_barrier_wait(&freer.barrier);
        CHECK(files_ending("db", ".vlog") > 1);
        OK(tidesdb_drop_column_family(freer.db, "g"));
        CHECK_INT(value_logs_left(), 0);
        pthread_barrier_wait(&freer.barrier);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    pthread_barrier_destroy(&freer.barrier);
    close_db(freer.db);
}

/* A row held by the pointers that an iterator returned. */
struct held {
    txn_t *txn;
    iter_t *iter;
    uint8_t *key, *value;
    size_t key_size, value_size;
    int n;
};

static void hold(struct held *held, db_t *db, cf_t *cf, int steps)
{
    held->txn = begin(db);
    held->n = steps;
    OK(tidesdb_iter_new(held->txn, cf, &held->iter));
    OK(tidesdb_iter_seek_to_first(held->iter));
    for (int i = 0; i < steps; i++) {
        OK(tidesdb_iter_value(held->iter, &held->value, &held->value_size));
        OK(tidesdb_iter_next(held->iter));
    }
    OK(tidesdb_iter_key_value(held->iter, &held->key, &held->key_size, &held->value, &held->value_size));
}

static void still_the_same(const struct held *held)
{
    char key[32];
    uint8_t value[LONG];
    snprintf(key, sizeof key, "key%06d", held->n);
    CHECK_INT(held->key_size, strlen(key));
    CHECK(memcmp(held->key, key, strlen(key)) == 0);
    CHECK(held->value_size == 8 || held->value_size == LONG);
    CHECK(memcmp(held->value, value_of(held->n, value), held->value_size) == 0);
}

static void stale_but_freed_once(struct held *held)
{
    uint8_t *bytes;
    size_t size;
    CHECK_INT(tidesdb_iter_valid(held->iter), 0);
    CHECK_RC(tidesdb_iter_next(held->iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_prev(held->iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_to_first(held->iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_key(held->iter, &bytes, &size), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_value(held->iter, &bytes, &size), TDB_ERR_INVALID_ARGS);
    still_the_same(held);
    tidesdb_iter_free(held->iter);
    tidesdb_iter_free(held->iter);
    tidesdb_txn_free(held->txn);
}

/* Writes rows 0 to ROWS - 1, every other one long, to a table or to the memtable. */
static cf_t *make_rows(db_t *db, const char *name, int in_table)
{
    tidesdb_column_family_config_t config = separating();
    cf_t *cf = family_with(db, name, &config);
    txn_t *txn = begin(db);
    for (int n = 0; n < ROWS; n++) {
        char key[32];
        uint8_t value[LONG];
        snprintf(key, sizeof key, "key%06d", n);
        OK(tidesdb_txn_put(txn, cf, B(key), value_of(n, value), n % 2 == 0 ? 8 : LONG, 0));
    }
    commit(txn);
    if (in_table) flush(cf);
    return cf;
}

static void *close_the_database(void *db)
{
    close_db(db);
    return NULL;
}

static void close_elsewhere(db_t *db)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, close_the_database, db) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Regression test: a close freed the iterators of other threads, so their keys and values pointed to freed memory. */
static void what_an_iterator_lent_outlives_a_close(void)
{
    enum { HELD = 2 * 4 };
    static const int steps[] = {0, 1, 6, 17};
    for (int round = 0; round < 3; round++) {
        struct held held[HELD];
        db_t *db = open_at("db");
        for (int i = 0; i < HELD; i++) {
            const char *name = i < 4 ? "memory" : "table";
            cf_t *cf = tidesdb_get_column_family(db, name);
            if (cf == NULL) cf = make_rows(db, name, i >= 4);
            hold(&held[i], db, cf, steps[i % 4]);
        }
        close_elsewhere(db);
        for (int i = 0; i < HELD; i++) still_the_same(&held[i]);
        /* The files of the held rows are removed, but the rows must stay readable. */
        db = open_at("db");
        OK(tidesdb_drop_column_family(db, "memory"));
        OK(tidesdb_drop_column_family(db, "table"));
        OK(tidesdb_purge(db));
        for (int i = 0; i < HELD; i++) stale_but_freed_once(&held[i]);
        CHECK_INT(value_logs_left(), 0);
        close_db(db);
    }
}

/* The header guarantees that rows stay valid after the end of the transaction and a drop of the family. */
static void what_an_iterator_lent_outlives_its_transaction_and_family(void)
{
    db_t *db = open_at("db");
    for (int round = 0; round < 4; round++) {
        uint8_t value[LONG];
        struct held held[2];
        cf_t *cf = make_rows(db, "f", round % 2);
        for (int i = 0; i < 2; i++) hold(&held[i], db, cf, 5);
        tidesdb_iter_free(held[1].iter);
        /* Row 5 was written by the transaction itself. */
        OK(tidesdb_txn_delete(held[1].txn, cf, B("key000006")));
        OK(tidesdb_txn_put(held[1].txn, cf, B("key000005"), value_of(5, value), LONG, 0));
        OK(tidesdb_iter_new(held[1].txn, cf, &held[1].iter));
        OK(tidesdb_iter_seek(held[1].iter, B("key000005")));
        OK(tidesdb_iter_key_value(held[1].iter, &held[1].key, &held[1].key_size, &held[1].value,
                                  &held[1].value_size));
        for (int i = 0; i < 2; i++) {
            if (round < 2) OK(tidesdb_txn_commit(held[i].txn));
            else OK(tidesdb_txn_rollback(held[i].txn));
            still_the_same(&held[i]);
            tidesdb_txn_free(held[i].txn);
        }
        fill(db, cf, 100, 2000);
        OK(tidesdb_purge_cf(cf));
        OK(tidesdb_drop_column_family(db, "f"));
        OK(tidesdb_purge(db));
        for (int i = 0; i < 2; i++) {
            still_the_same(&held[i]);
            tidesdb_iter_free(held[i].iter);
        }
    }
    CHECK_INT(value_logs_left(), 0);
    close_db(db);
}

struct readers {
    db_t *db;
    cf_t *cf;
    atomic_int started, rows;
};

/* Scans until the database is closed, and checks each row again after the next call has failed. */
static void *read_until_closed(void *arg)
{
    struct readers *readers = arg;
    atomic_fetch_add(&readers->started, 1);
    for (;;) {
        struct held held = {0};
        if (tidesdb_txn_begin(readers->db, &held.txn) != TDB_SUCCESS) return NULL;
        int rc = tidesdb_iter_new(held.txn, readers->cf, &held.iter);
        if (rc == TDB_SUCCESS) rc = tidesdb_iter_seek_to_first(held.iter);
        for (held.n = 0; rc == TDB_SUCCESS; held.n++) {
            rc = tidesdb_iter_key_value(held.iter, &held.key, &held.key_size, &held.value, &held.value_size);
            if (rc != TDB_SUCCESS) break;
            still_the_same(&held);
            atomic_fetch_add(&readers->rows, 1);
            rc = tidesdb_iter_next(held.iter);
            if (rc == TDB_ERR_INVALID_ARGS) still_the_same(&held);
        }
        count_check();
        if (rc != TDB_ERR_NOT_FOUND && rc != TDB_ERR_INVALID_ARGS && rc != TDB_ERR_INVALID_DB)
            fail(__FILE__, __LINE__, "a scan ended with %d", rc);
        tidesdb_iter_free(held.iter);
        tidesdb_txn_free(held.txn);
    }
}

static void readers_keep_what_they_hold_while_another_closes(void)
{
    for (int round = 0, rounds = scaled(60, 4); round < rounds; round++) {
        struct readers readers = {.db = open_at("db")};
        readers.cf = tidesdb_get_column_family(readers.db, "f");
        if (readers.cf == NULL) readers.cf = make_rows(readers.db, "f", 0);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, read_until_closed, &readers) == 0);
        while (atomic_load(&readers.started) < THREADS) sleep_ms(1);
        sleep_ms(round % 4);
        int rc = tidesdb_close(readers.db);
        while (rc == TDB_ERR_BUSY) rc = tidesdb_close(readers.db);
        CHECK_INT(rc, TDB_SUCCESS);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* A comparator that looks up a key of another family. */
struct lookup {
    db_t *db;
    cf_t *names;
    atomic_int on, reads, busy;
};

static int order_that_reads(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    struct lookup *lookup = ctx;
    if (atomic_load(&lookup->on)) {
        txn_t *txn = NULL;
        uint8_t *value = NULL;
        size_t size = 0;
        int rc = tidesdb_txn_begin(lookup->db, &txn);
        if (rc == TDB_SUCCESS) {
            rc = tidesdb_txn_get(txn, lookup->names, B("name"), &value, &size);
            tidesdb_txn_free(txn);
        }
        /* A read succeeds, or is refused at once. */
        if (rc == TDB_SUCCESS) {
            CHECK(size == 5 && memcmp(value, "value", 5) == 0);
            tidesdb_free(value);
            atomic_fetch_add(&lookup->reads, 1);
        } else {
            CHECK_INT(rc, TDB_ERR_BUSY);
            atomic_fetch_add(&lookup->busy, 1);
        }
    }
    int order = memcmp(a, b, na < nb ? na : nb);
    return order != 0 ? order : (na > nb) - (na < nb);
}

struct committer {
    struct lookup *lookup;
    cf_t *cf;
    const char *prefix;
    int rounds;
};

static void *commit_again_and_again(void *arg)
{
    struct committer *committer = arg;
    for (int i = 0; i < committer->rounds; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s%06d", committer->prefix, i);
        put(committer->lookup->db, committer->cf, key, "value");
    }
    return NULL;
}

/* Regression test: if a later commit had already returned, a comparator that read during the insert of its own commit waited
 * for that insert, and so for itself. Then every reader of the database waited too. */
static void a_comparator_reads_while_others_commit(void)
{
    static struct lookup lookup;
    memset(&lookup, 0, sizeof lookup);
    lookup.db = open_at("db");
    lookup.names = family(lookup.db, "names");
    put(lookup.db, lookup.names, "name", "value");
    OK(tidesdb_register_comparator(lookup.db, "reads", order_that_reads, "", &lookup));
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "reads");
    struct committer committers[THREADS];
    pthread_t threads[THREADS];
    committers[0].cf = committers[1].cf = family_with(lookup.db, "ordered", &config);
    committers[2].cf = family(lookup.db, "plain");
    atomic_store(&lookup.on, 1);
    for (int i = 0; i < THREADS; i++) {
        committers[i].lookup = &lookup;
        committers[i].prefix = i == 0 ? "a" : "b";
        committers[i].rounds = scaled(3000, 50);
        CHECK(pthread_create(&threads[i], NULL, commit_again_and_again, &committers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    atomic_store(&lookup.on, 0);
    CHECK(atomic_load(&lookup.reads) > 0);
    CHECK_INT(count_keys(lookup.db, committers[0].cf), 2 * committers[0].rounds);
    CHECK_INT(count_keys(lookup.db, committers[2].cf), committers[2].rounds);
    close_db(lookup.db);
}

const struct test race_tests[] = {
    TEST(a_family_dropped_while_others_get_it_leaves_no_files),
    TEST(a_freed_transaction_keeps_no_dropped_family),
    TEST(what_an_iterator_lent_outlives_a_close),
    TEST(what_an_iterator_lent_outlives_its_transaction_and_family),
    TEST(readers_keep_what_they_hold_while_another_closes),
    TEST_ALONE(a_comparator_reads_while_others_commit),
    END_OF_TESTS,
};
