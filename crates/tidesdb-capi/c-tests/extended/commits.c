/* Commits in the background, and the exchange of a value that is expected. */
#include <pthread.h>

#include "extended.h"

struct results {
    db_t *_Atomic db;
    cf_t *cf;
    atomic_int called, failed;
    _Atomic uint64_t last;
    int slow;
};

static void receive(int code, uint64_t seq, const char *message, void *ctx)
{
    struct results *results = ctx;
    if (results->slow) sleep_ms(results->slow);
    if (code == TDB_SUCCESS) {
        CHECK(seq > results->last); /* in the order of the calls */
        results->last = seq;
        CHECK_STR(message, "");
    } else {
        CHECK(seq == 0 && message[0] != '\0');
        results->failed++;
    }
    CHECK_RC(tidesdb_close(results->db), results->db == NULL ? TDB_ERR_INVALID_ARGS : TDB_ERR_BUSY);
    results->called++;
}

static void wait_for(atomic_int *number, int want)
{
    for (int i = 0; *number < want; i++) {
        CHECK(i < 30000);
        sleep_ms(1);
    }
}

static void batches_are_committed_in_the_background(void)
{
    struct shop shop = open_shop();
    struct results results = {.db = shop.db, .cf = shop.cf};
    tidesdb_x_write_options_t full = {sizeof full, TDB_X_SYNC_FULL, 0, 0, 0, 0};
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(shop.db, &batch));
    int batches = scaled(2000, 50);
    for (int i = 0; i < batches; i++) {
        char key[16];
        snprintf(key, sizeof key, "%06d", i);
        OK(tidesdb_x_batch_put(batch, shop.cf, B(key), B("v"), NULL));
        OK(tidesdb_x_batch_write_async(batch, i % 2 ? &full : NULL, receive, &results));
        size_t count = 9;
        OK(tidesdb_x_batch_size(batch, &count, NULL));
        CHECK_INT(count, 0);
    }
    wait_for(&results.called, batches);
    CHECK_INT(count_keys(shop.db, shop.cf), batches);
    CHECK_INT(results.failed, 0);
    CHECK(figure(shop.db, "durable_end") > results.last); /* the last one asked for it */
    /* A family that is dropped: the commit fails, and the function is told. */
    cf_t *gone = family(shop.db, "gone");
    OK(tidesdb_x_batch_put(batch, gone, B("a"), B("1"), NULL));
    OK(tidesdb_drop_column_family(shop.db, "gone"));
    OK(tidesdb_x_batch_write_async(batch, NULL, receive, &results));
    wait_for(&results.called, batches + 1);
    CHECK_INT(results.failed, 1);
    CHECK_RC(tidesdb_x_batch_write_async(batch, NULL, NULL, NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_x_batch_free(batch);
    close_db(shop.db);
    CHECK_INT(results.called, batches + 1);
}

static void a_close_commits_what_is_queued(void)
{
    struct shop shop = open_shop();
    struct results results = {.db = shop.db, .cf = shop.cf, .slow = 2};
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(shop.db, &batch));
    for (int i = 0; i < 50; i++) {
        uint8_t key = (uint8_t)i;
        OK(tidesdb_x_batch_put(batch, shop.cf, &key, 1, B("v"), NULL));
        OK(tidesdb_x_batch_write_async(batch, NULL, receive, &results));
    }
    results.db = NULL; /* which of two codes the handle gives while it is closed depends on the moment */
    close_db(shop.db);
    CHECK_INT(results.called, 50);
    CHECK_INT(results.failed, 0);
    sleep_ms(20);
    CHECK_INT(results.called, 50);
    tidesdb_x_batch_free(batch);
    shop.db = open_at("db");
    CHECK_INT(count_keys(shop.db, family(shop.db, "f")), 50);
    close_db(shop.db);
}

/* Commits again from within the function, until the database closes. */
static void again(int code, uint64_t seq, const char *message, void *ctx)
{
    struct results *results = ctx;
    (void)seq;
    (void)message;
    CHECK_RC(code, TDB_SUCCESS);
    tidesdb_x_batch_t *batch = NULL;
    results->called++;
    if (tidesdb_x_batch_new(results->db, &batch) != TDB_SUCCESS) return;
    if (tidesdb_x_batch_put(batch, results->cf, B("a"), B("1"), NULL) == TDB_SUCCESS &&
        tidesdb_x_batch_write_async(batch, NULL, again, results) == TDB_SUCCESS)
        results->failed++; /* here: how many it has begun */
    tidesdb_x_batch_free(batch);
}

static void a_close_ends_commits_that_beget_others(void)
{
    for (int round = 0, rounds = scaled(20, 2); round < rounds; round++) {
        struct shop shop = open_shop();
        struct results results = {.db = shop.db, .cf = shop.cf};
        again(TDB_SUCCESS, 1, "", &results);
        wait_for(&results.called, 10);
        close_db(shop.db);
        CHECK_INT(results.called, results.failed + 1); /* each that was begun was reported, and the first call */
    }
}

static void *count_up(void *arg)
{
    struct shop *shop = arg;
    for (int i = 0, rounds = scaled(500, 20); i < rounds;) {
        uint64_t old = 0, next = 0;
        size_t size = 0;
        int swapped = 0;
        OK(tidesdb_x_get(shop->cf, B("n"), NULL, (uint8_t *)&old, 8, &size));
        next = old + 1;
        int rc = tidesdb_x_compare_and_swap(shop->cf, B("n"), (uint8_t *)&old, 8, (uint8_t *)&next, 8, NULL, &swapped);
        if (rc == TDB_ERR_CONFLICT) continue;
        CHECK_RC(rc, TDB_SUCCESS);
        i += swapped;
    }
    return NULL;
}

static void a_value_is_exchanged_if_it_is_expected(void)
{
    struct shop shop = open_shop();
    int swapped = 7;
    OK(tidesdb_x_compare_and_swap(shop.cf, B("a"), B("1"), B("2"), NULL, &swapped));
    CHECK_INT(swapped, 0);
    OK(tidesdb_x_compare_and_swap(shop.cf, B("a"), NULL, 0, B("1"), NULL, &swapped));
    CHECK_INT(swapped, 1);
    OK(tidesdb_x_compare_and_swap(shop.cf, B("a"), NULL, 0, B("1"), NULL, &swapped));
    CHECK_INT(swapped, 0);
    OK(tidesdb_x_compare_and_swap(shop.cf, B("a"), B("1"), B(""), NULL, &swapped));
    CHECK_INT(swapped, 1);
    OK(tidesdb_x_compare_and_swap(shop.cf, B("a"), B(""), NULL, 0, NULL, &swapped));
    CHECK_INT(swapped, 1);
    X_GET(shop.cf, NULL, "a", NULL);
    uint64_t zero = 0, sum = 0;
    size_t size = 0;
    OK(tidesdb_x_put(shop.cf, B("n"), (uint8_t *)&zero, 8, NULL, NULL));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, count_up, &shop) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(tidesdb_x_get(shop.cf, B("n"), NULL, (uint8_t *)&sum, 8, &size));
    CHECK_INT(sum, 3 * scaled(500, 20));
    close_db(shop.db);
}

const struct test commit_tests[] = {
    TEST(batches_are_committed_in_the_background),
    TEST(a_close_commits_what_is_queued),
    TEST(a_close_ends_commits_that_beget_others),
    TEST(a_value_is_exchanged_if_it_is_expected),
    END_OF_TESTS,
};
