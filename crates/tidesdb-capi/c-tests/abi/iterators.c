/* Iterators: their position after every call. */
#include "../kit/store.h"

/* b, d and f in one table, another table and the memtable; c was deleted. */
static cf_t *three_keys(db_t *db)
{
    cf_t *cf = family(db, "f");
    put(db, cf, "b", "1");
    put(db, cf, "c", "x");
    flush(cf);
    put(db, cf, "d", "2");
    del(db, cf, "c");
    flush(cf);
    put(db, cf, "f", "3");
    return cf;
}

static iter_t *iterate(txn_t *txn, cf_t *cf)
{
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    CHECK(iter != NULL);
    return iter;
}

static void an_iterator_begins_nowhere(void)
{
    db_t *db = open_at("db");
    cf_t *cf = three_keys(db);
    txn_t *txn = begin(db);
    iter_t *iter = iterate(txn, cf);
    uint8_t *key = NULL, *value = NULL;
    size_t size = 9, size2 = 9;
    CHECK_INT(tidesdb_iter_valid(iter), 0);
    CHECK_RC(tidesdb_iter_key(iter, &key, &size), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_value(iter, &value, &size), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_key_value(iter, &key, &size, &value, &size2), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_prev(iter), TDB_ERR_INVALID_ARGS);
    CHECK(key == NULL && value == NULL && size == 9 && size2 == 9);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void forwards_and_backwards(void)
{
    db_t *db = open_at("db");
    cf_t *cf = three_keys(db);
    txn_t *txn = begin(db);
    iter_t *iter = iterate(txn, cf);
    OK(tidesdb_iter_seek_to_first(iter));
    AT(iter, "b");
    OK(tidesdb_iter_next(iter));
    AT(iter, "d");
    OK(tidesdb_iter_prev(iter));
    AT(iter, "b");
    OK(tidesdb_iter_next(iter));
    OK(tidesdb_iter_next(iter));
    AT(iter, "f");
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_NOT_FOUND);
    CHECK_INT(tidesdb_iter_valid(iter), 0);
    OK(tidesdb_iter_seek_to_last(iter));
    AT(iter, "f");
    OK(tidesdb_iter_prev(iter));
    AT(iter, "d");
    OK(tidesdb_iter_next(iter));
    AT(iter, "f");
    OK(tidesdb_iter_prev(iter));
    OK(tidesdb_iter_prev(iter));
    AT(iter, "b");
    CHECK_RC(tidesdb_iter_prev(iter), TDB_ERR_NOT_FOUND);
    CHECK_INT(tidesdb_iter_valid(iter), 0);
    CHECK_RC(tidesdb_iter_prev(iter), TDB_ERR_INVALID_ARGS);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void seeking(void)
{
    db_t *db = open_at("db");
    cf_t *cf = three_keys(db);
    txn_t *txn = begin(db);
    iter_t *iter = iterate(txn, cf);
    static const struct {
        const char *key, *up, *down;
    } seeks[] = {
        {"a", "b", NULL}, {"b", "b", "b"}, {"bb", "d", "b"}, {"c", "d", "b"},
        {"d", "d", "d"},  {"f", "f", "f"}, {"g", NULL, "f"},
    };
    for (size_t i = 0; i < sizeof seeks / sizeof seeks[0]; i++) {
        const char *key = seeks[i].key, *up = seeks[i].up, *down = seeks[i].down;
        CHECK_RC(tidesdb_iter_seek(iter, B(key)), up == NULL ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
        if (up != NULL) AT(iter, up);
        else CHECK_INT(tidesdb_iter_valid(iter), 0);
        CHECK_RC(tidesdb_iter_seek_for_prev(iter, B(key)), down == NULL ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
        if (down != NULL) AT(iter, down);
        else CHECK_INT(tidesdb_iter_valid(iter), 0);
    }
    OK(tidesdb_iter_seek(iter, B("c")));
    OK(tidesdb_iter_prev(iter));
    AT(iter, "b");
    OK(tidesdb_iter_seek_for_prev(iter, B("c")));
    OK(tidesdb_iter_next(iter));
    AT(iter, "d");
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void keys_and_values_stay_until_it_moves(void)
{
    db_t *db = open_at("db");
    cf_t *cf = three_keys(db);
    txn_t *txn = begin(db);
    iter_t *iter = iterate(txn, cf);
    uint8_t *key, *value, *key2, *value2;
    size_t key_size, value_size, key_size2, value_size2;
    for (int rc = tidesdb_iter_seek_to_first(iter), i = 0; rc == TDB_SUCCESS; rc = tidesdb_iter_next(iter), i++) {
        OK(tidesdb_iter_key(iter, &key, &key_size));
        OK(tidesdb_iter_value(iter, &value, &value_size));
        put(db, cf, "bbb", "new");
        OK(tidesdb_iter_key_value(iter, &key2, &key_size2, &value2, &value_size2));
        CHECK(key_size == 1 && key[0] == "bdf"[i] && value_size == 1 && value[0] == "123"[i]);
        CHECK(key_size2 == 1 && key2[0] == key[0] && value_size2 == 1 && value2[0] == value[0]);
        CHECK_INT(tidesdb_iter_valid(iter), 1);
    }
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void an_iterator_sees_its_transaction(void)
{
    db_t *db = open_at("db");
    cf_t *cf = three_keys(db);
    txn_t *txn = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_txn_put(txn, cf, B("e"), B("own"), 0));
    OK(tidesdb_txn_delete(txn, cf, B("b")));
    put(db, cf, "dd", "later");
    iter_t *iter = iterate(txn, cf);
    OK(tidesdb_iter_seek_to_first(iter));
    AT(iter, "d");
    OK(tidesdb_iter_next(iter));
    AT(iter, "e");
    uint8_t *value;
    size_t size;
    OK(tidesdb_iter_value(iter, &value, &size));
    CHECK(size == 3 && memcmp(value, "own", 3) == 0);
    OK(tidesdb_iter_next(iter));
    AT(iter, "f");
    OK(tidesdb_iter_prev(iter));
    AT(iter, "e");
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    WALK(db, cf, "b d dd f ");
    close_db(db);
}

static void an_empty_family(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    iter_t *iter = iterate(txn, cf);
    CHECK_RC(tidesdb_iter_seek_to_first(iter), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_iter_seek_to_last(iter), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_iter_seek(iter, B("a")), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_iter_seek_for_prev(iter, B("a")), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_INVALID_ARGS);
    CHECK_INT(tidesdb_iter_valid(iter), 0);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void iterator_arguments(void)
{
    db_t *db = open_at("db");
    cf_t *cf = three_keys(db);
    txn_t *txn = begin(db);
    iter_t *iter = NULL;
    CHECK_RC(tidesdb_iter_new(NULL, cf, &iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_new(txn, NULL, &iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_new(txn, cf, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(iter == NULL);
    iter = iterate(txn, cf);
    CHECK_RC(tidesdb_iter_seek(iter, NULL, 1), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek(iter, (const uint8_t *)"a", 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_for_prev(iter, NULL, 1), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_for_prev(iter, (const uint8_t *)"a", 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek(NULL, B("a")), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_for_prev(NULL, B("a")), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_to_first(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_seek_to_last(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_next(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_prev(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_INT(tidesdb_iter_valid(NULL), 0);
    tidesdb_iter_free(iter);
    OK(tidesdb_txn_commit(txn));
    int rc = tidesdb_iter_new(txn, cf, &iter);
    CHECK(rc == TDB_ERR_INVALID_ARGS || rc == TDB_ERR_MEMORY);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void a_long_walk_over_many_tables(void)
{
    int count = scaled(20000, 1000);
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    for (int part = 0; part < 10; part++) {
        fill(db, cf, part * count / 10, count / 10);
        if (part % 3 == 2) flush(cf);
    }
    txn_t *txn = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    iter_t *iter = iterate(txn, cf);
    char key[32];
    int seen = 0;
    for (int rc = tidesdb_iter_seek_to_first(iter); rc == TDB_SUCCESS; rc = tidesdb_iter_next(iter)) {
        snprintf(key, sizeof key, "key%06d", seen++);
        AT(iter, key);
        if (seen == count / 2) OK(tidesdb_compact(cf));
    }
    CHECK_INT(seen, count / 10 * 10);
    for (int rc = tidesdb_iter_seek_to_last(iter); rc == TDB_SUCCESS; rc = tidesdb_iter_prev(iter)) {
        snprintf(key, sizeof key, "key%06d", --seen);
        AT(iter, key);
    }
    CHECK_INT(seen, 0);
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    close_db(db);
}

/* Checks key and value of row i of fill(), by the function for both and by those for one. */
static void at_row(iter_t *iter, int i)
{
    char key[32], value[32];
    uint8_t *k = NULL, *v = NULL, *k2 = NULL, *v2 = NULL;
    size_t ks = 0, vs = 0, ks2 = 0, vs2 = 0;
    snprintf(key, sizeof key, "key%06d", i);
    snprintf(value, sizeof value, "value%06d", i);
    OK(tidesdb_iter_key_value(iter, &k, &ks, &v, &vs));
    CHECK(ks == strlen(key) && memcmp(k, key, ks) == 0);
    CHECK(vs == strlen(value) && memcmp(v, value, vs) == 0);
    if (i % 3 != 0) return;
    CHECK_INT(tidesdb_iter_valid(iter), 1);
    OK(tidesdb_iter_key(iter, &k2, &ks2));
    OK(tidesdb_iter_value(iter, &v2, &vs2));
    CHECK(k == k2 && v == v2 && ks == ks2 && vs == vs2);
}

static void no_row(iter_t *iter)
{
    uint8_t *k = NULL, *v = NULL;
    size_t ks = 7, vs = 7;
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_key_value(iter, &k, &ks, &v, &vs), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_key(iter, &k, &ks), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_value(iter, &v, &vs), TDB_ERR_INVALID_ARGS);
    CHECK_INT(tidesdb_iter_valid(iter), 0);
    CHECK(k == NULL && v == NULL && ks == 7 && vs == 7);
}

/* A scan that requests values reads rows ahead. It must allow changes of direction, seeks and invalid calls at any row. */
static void walk_and_turn(db_t *db, cf_t *cf, iter_t *iter)
{
    uint8_t *k = NULL, *v = NULL;
    size_t ks = 7, vs = 7;
    OK(tidesdb_iter_seek_to_first(iter));
    for (int i = 0; i < 300; i++) {
        at_row(iter, i);
        if (i % 41 == 40) {
            OK(tidesdb_iter_prev(iter));
            at_row(iter, i - 1);
            OK(tidesdb_iter_next(iter));
            at_row(iter, i);
        }
        if (i % 100 == 60) {
            CHECK_RC(tidesdb_iter_key_value(iter, NULL, &ks, &v, &vs), TDB_ERR_INVALID_ARGS);
            CHECK_RC(tidesdb_iter_key_value(iter, &k, NULL, &v, &vs), TDB_ERR_INVALID_ARGS);
            CHECK_RC(tidesdb_iter_key_value(iter, &k, &ks, NULL, &vs), TDB_ERR_INVALID_ARGS);
            CHECK_RC(tidesdb_iter_key_value(iter, &k, &ks, &v, NULL), TDB_ERR_INVALID_ARGS);
            CHECK_RC(tidesdb_iter_key(iter, NULL, &ks), TDB_ERR_INVALID_ARGS);
            CHECK_RC(tidesdb_iter_value(iter, &v, NULL), TDB_ERR_INVALID_ARGS);
            CHECK(k == NULL && v == NULL && ks == 7 && vs == 7);
            put(db, cf, "key000299a", "later");
            at_row(iter, i);
        }
        if (i % 100 == 90) {
            OK(tidesdb_iter_seek(iter, B("key000010")));
            at_row(iter, 10);
            OK(tidesdb_iter_seek_to_last(iter));
            at_row(iter, 299);
            char key[32];
            snprintf(key, sizeof key, "key%06d", i);
            OK(tidesdb_iter_seek_for_prev(iter, B(key)));
            at_row(iter, i);
        }
        CHECK_RC(tidesdb_iter_next(iter), i == 299 ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
    }
    no_row(iter);
}

static void walks_that_read_ahead(void)
{
    enum { MANY = 40 };
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    fill(db, cf, 0, 150);
    flush(cf);
    fill(db, cf, 150, 150);
    txn_t *txn = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    iter_t *iters[MANY];
    for (int n = 0; n < MANY; n++) iters[n] = iterate(txn, cf);
    walk_and_turn(db, cf, iters[0]);
    walk_and_turn(db, cf, iters[MANY - 1]);
    /* Freed in the middle of rows that were read ahead, and left there when the database is closed. */
    for (int n = 0; n < MANY; n += MANY - 1) {
        OK(tidesdb_iter_seek_to_first(iters[n]));
        for (int i = 0; i < 30; i++) {
            at_row(iters[n], i);
            OK(tidesdb_iter_next(iters[n]));
        }
    }
    tidesdb_iter_free(iters[0]);
    no_row(iters[0]);
    iters[0] = iterate(txn, cf);
    CHECK_INT(tidesdb_iter_valid(iters[0]), 0);
    for (int n = 0; n < MANY - 1; n++) tidesdb_iter_free(iters[n]);
    at_row(iters[MANY - 1], 30);
    tidesdb_txn_free(txn);
    at_row(iters[MANY - 1], 30);
    close_db(db);
    no_row(iters[MANY - 1]);
}

/* Long values, which are not copied, and empty values. */
static void walks_over_values_of_all_lengths(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    static char bytes[200000];
    memset(bytes, 'v', sizeof bytes - 1);
    txn_t *txn = begin(db);
    for (int i = 0; i < 200; i++) {
        char key[32];
        size_t size = i % 50 == 49 ? 150000 : i % 10 == 9 ? 5000 : (size_t)(i % 10) * 60;
        snprintf(key, sizeof key, "key%06d", i);
        OK(tidesdb_txn_put(txn, cf, B(key), (const uint8_t *)bytes, size, 0));
    }
    commit(txn);
    for (int turn = 0; turn < 2; turn++) {
        txn = begin(db);
        iter_t *iter = iterate(txn, cf);
        OK(tidesdb_iter_seek_to_first(iter));
        for (int i = 0; i < 200; i++) {
            uint8_t *k, *v;
            size_t ks, vs, size = i % 50 == 49 ? 150000 : i % 10 == 9 ? 5000 : (size_t)(i % 10) * 60;
            OK(tidesdb_iter_key_value(iter, &k, &ks, &v, &vs));
            CHECK(ks == 9 && vs == size && memcmp(v, bytes, size) == 0);
            CHECK_RC(tidesdb_iter_next(iter), i == 199 ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
        }
        no_row(iter);
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
        flush(cf);
    }
    close_db(db);
}

/* An iterator keeps its view when its transaction ends. A restarted transaction counts as another one. */
static void an_iterator_outlives_the_end_of_its_transaction(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "a", "1");
    for (int how = 0; how < 3; how++) {
        txn_t *txn = begin(db);
        OK(tidesdb_txn_put(txn, cf, B("b"), B("2"), 0));
        iter_t *iter = NULL;
        OK(tidesdb_iter_new(txn, cf, &iter));
        if (how == 0) OK(tidesdb_txn_rollback(txn));
        else OK(tidesdb_txn_commit(txn));
        if (how == 2) OK(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT));
        OK(tidesdb_iter_seek_to_first(iter));
        AT(iter, "a");
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
    }
    close_db(db);
}

typedef int seek_fn(iter_t *iter, const uint8_t *key, size_t size);

/* Seeks by bytes that the iterator has lent, and by a copy of them with another iterator. Both must come to the same row. */
static void same_row(iter_t *lent_by, iter_t *other, seek_fn *seek, const uint8_t *lent, size_t size)
{
    static uint8_t copy[1024];
    uint8_t *key = NULL, *expected = NULL;
    size_t n = 0, n2 = 0;
    CHECK(size <= sizeof copy);
    memcpy(copy, lent, size);
    int found = seek(other, copy, size);
    CHECK_RC(seek(lent_by, lent, size), found);
    if (found != TDB_SUCCESS) return;
    OK(tidesdb_iter_key(lent_by, &key, &n));
    OK(tidesdb_iter_key(other, &expected, &n2));
    CHECK(n == n2 && memcmp(key, expected, n) == 0);
}

/* A move frees what the iterator has lent; the key of a seek is needed until it has ended. */
static void a_seek_by_what_the_iterator_has_lent(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    char key[32], value[701];
    for (int table = 0; table < 3; table++) {
        for (int i = table; i < 300; i += 3) {
            snprintf(key, sizeof key, "key%06d", i);
            memset(value, 'x', sizeof value);
            memcpy(value, key, 9); /* as a key it lies behind this row */
            value[i % 2 ? 9 : 700] = 0; /* in the value log, or not */
            put(db, cf, key, value);
        }
        if (table < 2) flush(cf);
    }
    txn_t *txn = begin(db);
    iter_t *iter = iterate(txn, cf), *other = iterate(txn, cf);
    for (int i = 0; i < 300; i += 7) {
        for (int how = 0; how < 6; how++) {
            uint8_t *row = NULL, *its = NULL;
            size_t n = 0, size = 0;
            snprintf(key, sizeof key, "key%06d", i);
            OK(tidesdb_iter_seek(iter, B(key)));
            if (how % 3 == 2) (void)tidesdb_iter_next(iter), OK(tidesdb_iter_prev(iter));
            OK(tidesdb_iter_key_value(iter, &row, &n, &its, &size));
            seek_fn *seek = how < 3 ? tidesdb_iter_seek : tidesdb_iter_seek_for_prev;
            if (how % 3 == 0) same_row(iter, other, seek, its, size);
            else same_row(iter, other, seek, row, 4 + (size_t)(i + how) % 6);
        }
        /* Rows that are read ahead, by steps. */
        OK(tidesdb_iter_seek_to_first(iter));
        for (int steps = 0; steps < i % 40; steps++) OK(tidesdb_iter_next(iter));
        uint8_t *row = NULL;
        size_t n = 0;
        OK(tidesdb_iter_key(iter, &row, &n));
        same_row(iter, other, i % 2 ? tidesdb_iter_seek : tidesdb_iter_seek_for_prev, row, n - 1);
    }
    tidesdb_iter_free(iter);
    tidesdb_iter_free(other);
    tidesdb_txn_free(txn);
    close_db(db);
}

const struct test iterator_tests[] = {
    TEST(an_iterator_begins_nowhere),
    TEST(forwards_and_backwards),
    TEST(seeking),
    TEST(keys_and_values_stay_until_it_moves),
    TEST(an_iterator_sees_its_transaction),
    TEST(an_empty_family),
    TEST(iterator_arguments),
    TEST(an_iterator_outlives_the_end_of_its_transaction),
    TEST(a_seek_by_what_the_iterator_has_lent),
    TEST(a_long_walk_over_many_tables),
    TEST(walks_that_read_ahead),
    TEST(walks_over_values_of_all_lengths),
    END_OF_TESTS,
};
