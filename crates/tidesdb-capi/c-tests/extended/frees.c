/* Frees of an object beside a call that uses it: by the call's own callback, or by another thread. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "extended.h"

static struct {
    txn_t *txn;
    tidesdb_x_batch_t *batch;
    tidesdb_x_value_writer_t *writer;
    tidesdb_x_builder_t *builder;
    tidesdb_x_iter_t *iter;
    iter_t *base;
    int calls;
    atomic_int waits, is_inside, may_go;
} freed;

/* Frees everything, twice; first as what it is not, which must do nothing. */
static void free_all(void)
{
    tidesdb_x_batch_free((tidesdb_x_batch_t *)freed.writer);
    tidesdb_x_batch_free((tidesdb_x_batch_t *)freed.builder);
    tidesdb_x_value_reader_free((tidesdb_x_value_reader_t *)freed.batch);
    if (freed.batch != NULL) CHECK_RC(tidesdb_x_batch_size(freed.batch, NULL, NULL), TDB_ERR_BUSY);
    for (int i = 0; i < 2; i++) {
        tidesdb_txn_free(freed.txn);
        tidesdb_x_batch_free(freed.batch);
        tidesdb_x_value_writer_free(freed.writer);
        tidesdb_x_builder_free(freed.builder);
        tidesdb_x_iter_free(freed.iter);
        tidesdb_iter_free(freed.base);
    }
    freed.calls++;
}

static int free_in_hook(const tidesdb_x_commit_op_t *ops, size_t count, uint64_t seq, void *ctx)
{
    (void)seq;
    (void)ctx;
    CHECK(count == 1 && ops[0].key_size == 1);
    free_all();
    if (freed.batch != NULL) CHECK_RC(tidesdb_x_batch_size(freed.batch, NULL, NULL), TDB_ERR_INVALID_ARGS);
    return 0;
}

static int free_in_operator(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx)
{
    (void)value;
    (void)value_size;
    (void)ctx;
    if (atomic_load(&freed.waits)) {
        atomic_store(&freed.is_inside, 1);
        while (!atomic_load(&freed.may_go)) sched_yield();
    } else if (freed.iter != NULL || freed.base != NULL || freed.txn != NULL) {
        free_all();
    }
    return tidesdb_x_result_append(operand, operand_size);
}

static int free_in_order(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, void *ctx)
{
    (void)ctx;
    if (freed.builder != NULL) free_all();
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* A database whose families m and o have the functions above; b=2 is two operands. */
static db_t *open_freeing(cf_t **merged, cf_t **ordered)
{
    tidesdb_config_t config = quiet("db");
    tidesdb_x_merge_operator_t op = {sizeof op, "freeing", free_in_operator, NULL, NULL};
    tidesdb_x_comparator_t order = {sizeof order, "freeing", free_in_order, NULL};
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .comparators = &order, .comparator_count = 1,
                                        .merge_operators = &op, .merge_operator_count = 1};
    db_t *db = NULL;
    memset(&freed, 0, sizeof freed);
    OK(tidesdb_x_open(&options, &db));
    tidesdb_x_family_options_t family = {.size = sizeof family, .merge_operator = "freeing"};
    OK(tidesdb_x_create_family(db, "m", &family, merged));
    tidesdb_column_family_config_t settings = tidesdb_default_column_family_config();
    snprintf(settings.comparator_name, sizeof settings.comparator_name, "freeing");
    *ordered = family_with(db, "o", &settings);
    x_put(*merged, "a", "1");
    OK(tidesdb_x_merge(*merged, B("b"), B("1"), NULL, NULL));
    OK(tidesdb_x_merge(*merged, B("b"), B("2"), NULL, NULL));
    return db;
}

/* The handle is refused, as one that was freed. */
static void is_stale(int code)
{
    CHECK_INT(code, TDB_ERR_INVALID_ARGS);
    CHECK(strstr(tidesdb_last_error(), "a handle is NULL, was freed") != NULL);
}

static void nothing_is_open(db_t *db)
{
    tidesdb_db_stats_t stats;
    OK(tidesdb_get_db_stats(db, &stats));
    CHECK_INT(stats.txn_memory_bytes, 0);
    CHECK_INT(figure(db, "cursors"), 0);
    CHECK_INT(figure(db, "snapshots"), 0);
}

static void a_callback_frees_the_object_of_its_call(void)
{
    cf_t *cf = NULL, *ordered = NULL;
    db_t *db = open_freeing(&cf, &ordered);
    uint8_t buffer[64];
    size_t count = 0, needed = 0;
    tidesdb_x_row_t rows[4];

    OK(tidesdb_x_set_commit_hook(cf, free_in_hook, NULL));
    OK(tidesdb_x_batch_new(db, &freed.batch));
    OK(tidesdb_x_batch_put(freed.batch, cf, B("c"), B("3"), NULL));
    OK(tidesdb_x_batch_write(freed.batch, NULL, NULL));
    is_stale(tidesdb_x_batch_size(freed.batch, NULL, NULL));
    freed.batch = NULL;

    freed.txn = begin(db);
    OK(tidesdb_x_txn_put(freed.txn, cf, B("d"), B("4"), NULL));
    OK(tidesdb_x_txn_commit(freed.txn, NULL, NULL));
    is_stale(tidesdb_txn_reset(freed.txn, TDB_ISOLATION_SNAPSHOT));
    freed.txn = NULL;

    OK(tidesdb_x_value_writer_new(cf, B("e"), NULL, &freed.writer));
    OK(tidesdb_x_value_writer_write(freed.writer, B("5")));
    OK(tidesdb_x_value_writer_commit(freed.writer, NULL));
    is_stale(tidesdb_x_value_writer_write(freed.writer, B("6")));
    freed.writer = NULL;
    CHECK_INT(freed.calls, 3);
    OK(tidesdb_x_set_commit_hook(cf, NULL, NULL));

    OK(tidesdb_x_iter_new(cf, NULL, NULL, 0, NULL, 0, &freed.iter));
    OK(tidesdb_x_iter_next(freed.iter, buffer, sizeof buffer, rows, 4, &count, &needed));
    CHECK_INT(count, 4);
    is_stale(tidesdb_x_iter_seek(freed.iter, NULL, 0));
    freed.iter = NULL;

    txn_t *txn = begin(db);
    uint8_t *key = NULL, *value = NULL;
    size_t key_size = 0, value_size = 0;
    OK(tidesdb_iter_new(txn, cf, &freed.base));
    OK(tidesdb_iter_seek(freed.base, B("b")));
    (void)tidesdb_iter_key_value(freed.base, &key, &key_size, &value, &value_size); /* if the seek has not read the value yet */
    is_stale(tidesdb_iter_seek_to_first(freed.base));
    freed.base = NULL;

    freed.txn = txn; /* by a read */
    X_GET(cf, (&(tidesdb_x_read_options_t){sizeof(tidesdb_x_read_options_t), txn, NULL, 0}), "b", "2");
    is_stale(tidesdb_txn_reset(freed.txn, TDB_ISOLATION_SNAPSHOT));
    freed.txn = NULL;

    tidesdb_x_builder_t *builder = NULL;
    OK(tidesdb_x_builder_new(ordered, NULL, &builder));
    OK(tidesdb_x_builder_put(builder, B("a"), B("1"), NULL));
    freed.builder = builder; /* the comparison of the next key with this one frees it */
    OK(tidesdb_x_builder_put(builder, B("b"), B("2"), NULL));
    is_stale(tidesdb_x_builder_put(builder, B("c"), B("3"), NULL));
    freed.builder = NULL;

    nothing_is_open(db);
    X_ROWS(cf, NULL, "a=1 b=2 c=3 d=4 e=5 ");
    CHECK_INT(count_keys(db, ordered), 0);
    close_db(db);
}

static void *read_in_transaction(void *cf)
{
    uint8_t buffer[8];
    size_t size = 0;
    tidesdb_x_read_options_t in = {sizeof in, freed.txn, NULL, 0};
    CHECK_RC(tidesdb_x_get(cf, B("b"), &in, buffer, sizeof buffer, &size), TDB_SUCCESS);
    return NULL;
}

static void *read_by_iterator(void *cf)
{
    (void)cf;
    uint8_t buffer[64];
    size_t count = 0, needed = 0;
    tidesdb_x_row_t rows[4];
    CHECK_RC(tidesdb_x_iter_next(freed.iter, buffer, sizeof buffer, rows, 4, &count, &needed), TDB_SUCCESS);
    CHECK_INT(count, 2);
    return NULL;
}

static void another_thread_frees_the_object_of_a_call(void)
{
    cf_t *cf = NULL, *ordered = NULL;
    db_t *db = open_freeing(&cf, &ordered);
    for (int is_iterator = 0; is_iterator < 2; is_iterator++) {
        atomic_store(&freed.may_go, 0);
        atomic_store(&freed.is_inside, 0);
        atomic_store(&freed.waits, 1);
        if (is_iterator) {
            OK(tidesdb_x_iter_new(cf, NULL, NULL, 0, NULL, 0, &freed.iter));
        } else {
            freed.txn = begin(db);
            OK(tidesdb_x_txn_put(freed.txn, cf, B("x"), B("1"), NULL));
        }
        pthread_t reader;
        CHECK(pthread_create(&reader, NULL, is_iterator ? read_by_iterator : read_in_transaction, cf) == 0);
        while (!atomic_load(&freed.is_inside)) sched_yield();
        double begun = now_ms();
        tidesdb_txn_free(freed.txn);
        tidesdb_x_iter_free(freed.iter);
        CHECK(now_ms() - begun < 10000); /* it does not wait for the call */
        if (is_iterator) {
            is_stale(tidesdb_x_iter_seek(freed.iter, NULL, 0));
        } else {
            is_stale(tidesdb_txn_commit(freed.txn));
        }
        atomic_store(&freed.may_go, 1);
        CHECK(pthread_join(reader, NULL) == 0);
        freed.txn = NULL;
        freed.iter = NULL;
        nothing_is_open(db);
    }
    X_GET(cf, NULL, "x", NULL);
    close_db(db);
}

struct race {
    cf_t *cf;
    txn_t *txn;
    tidesdb_x_iter_t *iter;
    tidesdb_x_batch_t *batch;
    tidesdb_x_value_reader_t *reader;
    tidesdb_x_value_writer_t *writer;
    atomic_int begun;
};

static void *use_until_freed(void *arg)
{
    struct race *race = arg;
    uint8_t buffer[64];
    size_t count = 0, needed = 0;
    tidesdb_x_row_t rows[4];
    atomic_store(&race->begun, 1);
    for (int left = 5; left > 0;) {
        left = 0;
        left += tidesdb_x_txn_put(race->txn, race->cf, B("t"), B("1"), NULL) != TDB_ERR_INVALID_ARGS;
        left += tidesdb_x_iter_seek(race->iter, NULL, 0) != TDB_ERR_INVALID_ARGS;
        (void)tidesdb_x_iter_next(race->iter, buffer, sizeof buffer, rows, 4, &count, &needed);
        left += tidesdb_x_batch_put(race->batch, race->cf, B("t"), B("1"), NULL) != TDB_ERR_INVALID_ARGS;
        left += tidesdb_x_value_reader_read_at(race->reader, 0, buffer, sizeof buffer, &count) != TDB_ERR_INVALID_ARGS;
        left += tidesdb_x_value_writer_write(race->writer, B("1")) != TDB_ERR_INVALID_ARGS;
    }
    return NULL;
}

/* Whatever call a free meets, the object ends: nothing is open afterwards, and no handle is left over. */
static void frees_meet_calls_of_another_thread(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    for (int round = 0; round < scaled(500, 50); round++) {
        struct race race = {.cf = shop.cf};
        tidesdb_x_read_options_t now = {sizeof now, NULL, NULL, 0};
        uint64_t size = 0;
        race.txn = begin(shop.db);
        OK(tidesdb_x_iter_new(shop.cf, NULL, NULL, 0, NULL, 0, &race.iter));
        OK(tidesdb_x_batch_new(shop.db, &race.batch));
        OK(tidesdb_x_value_reader_new(shop.cf, B("a"), &now, &race.reader, &size));
        OK(tidesdb_x_value_writer_new(shop.cf, B("w"), NULL, &race.writer));
        pthread_t user;
        CHECK(pthread_create(&user, NULL, use_until_freed, &race) == 0);
        while (!atomic_load(&race.begun)) sched_yield();
        for (int i = 0; i < round % 16; i++) sched_yield();
        tidesdb_txn_free(race.txn);
        tidesdb_x_iter_free(race.iter);
        tidesdb_x_batch_free(race.batch);
        tidesdb_x_value_reader_free(race.reader);
        tidesdb_x_value_writer_free(race.writer);
        CHECK(pthread_join(user, NULL) == 0);
        nothing_is_open(shop.db);
    }
    X_ROWS(shop.cf, NULL, "a=1 ");
    close_db(shop.db);
}

const struct test free_tests[] = {
    TEST(a_callback_frees_the_object_of_its_call),
    TEST(another_thread_frees_the_object_of_a_call),
    TEST(frees_meet_calls_of_another_thread),
    END_OF_TESTS,
};
