/* Transactions: visibility, end, savepoints, time to live. */
#include <stdlib.h>
#include <time.h>

#include "../kit/store.h"

static void writes_are_seen_by_their_transaction_first(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "b", "old");
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_put(txn, cf, B("b"), B("new"), -1));
    EXPECT(txn, cf, "a", "1");
    EXPECT(txn, cf, "b", "new");
    STORED(db, cf, "a", NULL);
    STORED(db, cf, "b", "old");
    OK(tidesdb_txn_delete(txn, cf, B("a")));
    EXPECT(txn, cf, "a", NULL);
    CHECK_RC(tidesdb_txn_contains(txn, cf, B("a")), TDB_ERR_NOT_FOUND);
    OK(tidesdb_txn_contains(txn, cf, B("b")));
    OK(tidesdb_txn_put(txn, cf, B("a"), B("2"), 0));
    OK(tidesdb_txn_single_delete(txn, cf, B("never there")));
    commit(txn);
    STORED(db, cf, "a", "2");
    STORED(db, cf, "b", "new");
    WALK(db, cf, "a b ");
    close_db(db);
}

static void deletes_of_both_kinds(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "a", "1");
    put(db, cf, "b", "2");
    flush(cf);
    txn_t *txn = begin(db);
    OK(tidesdb_txn_single_delete(txn, cf, B("a")));
    OK(tidesdb_txn_delete(txn, cf, B("b")));
    OK(tidesdb_txn_delete(txn, cf, B("never there")));
    EXPECT(txn, cf, "a", NULL);
    commit(txn);
    for (int round = 0; round < 2; round++) {
        STORED(db, cf, "a", NULL);
        STORED(db, cf, "b", NULL);
        WALK(db, cf, "");
        OK(tidesdb_purge_cf(cf));
    }
    put(db, cf, "a", "3");
    STORED(db, cf, "a", "3");
    close_db(db);
}

static void get_notrack_and_contains(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    txn_t *txn = begin(db);
    uint8_t *value = NULL;
    size_t size = 0;
    OK(tidesdb_txn_get_notrack(txn, cf, B("key"), &value, &size));
    CHECK(size == 5 && memcmp(value, "value", 5) == 0);
    tidesdb_free(value);
    value = (uint8_t *)db;
    CHECK_RC(tidesdb_txn_get_notrack(txn, cf, B("none"), &value, &size), TDB_ERR_NOT_FOUND);
    CHECK(value == (uint8_t *)db && size == 5);
    OK(tidesdb_txn_contains(txn, cf, B("key")));
    CHECK_RC(tidesdb_txn_contains(txn, cf, B("none")), TDB_ERR_NOT_FOUND);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void arguments(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = NULL;
    CHECK_RC(tidesdb_txn_begin(NULL, &txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_begin(db, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_begin_with_isolation(db, (tidesdb_isolation_level_t)5, &txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_begin_with_isolation(db, (tidesdb_isolation_level_t)-1, &txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_begin_with_isolation(NULL, TDB_ISOLATION_SNAPSHOT, &txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_begin_with_isolation(db, TDB_ISOLATION_SNAPSHOT, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(txn == NULL);
    txn = begin(db);
    const uint8_t *key = (const uint8_t *)"key";
    CHECK_RC(tidesdb_txn_put(txn, cf, key, 0, B("v"), 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, NULL, 3, B("v"), 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, key, 3, NULL, 1, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, key, 3, key, UINT32_MAX, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, key, SIZE_MAX, key, 3, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, key, 3, key, SIZE_MAX, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, key, SIZE_MAX, key, 2, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_delete(txn, cf, key, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_single_delete(txn, cf, key, 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_contains(txn, cf, key, 0), TDB_ERR_INVALID_ARGS);
    uint8_t *value = NULL;
    size_t size = 9;
    CHECK_RC(tidesdb_txn_get(txn, cf, key, 0, &value, &size), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_get(txn, cf, key, 3, NULL, &size), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_get(txn, cf, key, 3, &value, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(value == NULL && size == 9);
    OK(tidesdb_txn_commit(txn));
    tidesdb_txn_free(txn);
    WALK(db, cf, "");
    close_db(db);
}

static void a_committed_transaction_is_finished(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    uint8_t *value = NULL;
    size_t size = 0;
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_commit(txn));
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_rollback(txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, B("b"), B("1"), 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_delete(txn, cf, B("a")), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_single_delete(txn, cf, B("a")), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_get(txn, cf, B("a"), &value, &size), TDB_ERR_MEMORY);
    CHECK_RC(tidesdb_txn_get_notrack(txn, cf, B("a"), &value, &size), TDB_ERR_MEMORY);
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, "s"), TDB_ERR_INVALID_ARGS);
    CHECK(value == NULL && size == 0);
    OK(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT));
    EXPECT(txn, cf, "a", "1");
    OK(tidesdb_txn_put(txn, cf, B("b"), B("2"), 0));
    commit(txn);
    WALK(db, cf, "a b ");
    close_db(db);
}

static void rolling_back(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_rollback(txn));
    OK(tidesdb_txn_rollback(txn));
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_rollback(NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_commit(NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_txn_reset(txn, TDB_ISOLATION_READ_COMMITTED));
    OK(tidesdb_txn_put(txn, cf, B("b"), B("1"), 0));
    commit(txn);
    WALK(db, cf, "b ");
    txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("c"), B("1"), 0));
    tidesdb_txn_free(txn);
    WALK(db, cf, "b ");
    close_db(db);
}

static void resetting(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    CHECK_RC(tidesdb_txn_reset(NULL, TDB_ISOLATION_SNAPSHOT), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    CHECK_RC(tidesdb_txn_reset(txn, TDB_ISOLATION_SNAPSHOT), TDB_ERR_INVALID_ARGS);
    EXPECT(txn, cf, "a", "1");
    OK(tidesdb_txn_commit(txn));
    CHECK_RC(tidesdb_txn_reset(txn, (tidesdb_isolation_level_t)5), TDB_ERR_INVALID_ARGS);
    for (int level = 0; level <= 4; level++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", level);
        OK(tidesdb_txn_reset(txn, (tidesdb_isolation_level_t)level));
        EXPECT(txn, cf, "a", "1");
        EXPECT(txn, cf, key, NULL);
        OK(tidesdb_txn_put(txn, cf, B(key), B("x"), 0));
        OK(tidesdb_txn_commit(txn));
    }
    tidesdb_txn_free(txn);
    WALK(db, cf, "a k0 k1 k2 k3 k4 ");
    close_db(db);
}

/* One savepoint per statement, as in SQL layers: released savepoints must not slow later ones. */
static void many_savepoints(void)
{
    db_t *db = open_at("db");
    txn_t *txn = begin(db);
    double lap[2] = {0, 0};
    for (int round = 0; round < 2; round++) {
        double start = now_ms();
        for (int i = 0; i < 2000; i++) {
            OK(tidesdb_txn_savepoint(txn, "statement"));
            OK(tidesdb_txn_rollback_to_savepoint(txn, "statement"));
        }
        lap[round] = now_ms() - start;
        for (int i = 0; round == 0 && i < scaled(200000, 2000); i++) {
            OK(tidesdb_txn_savepoint(txn, "statement"));
            OK(tidesdb_txn_release_savepoint(txn, "statement"));
        }
    }
    CHECK(lap[1] < 20 * lap[0] + 50);
    tidesdb_txn_free(txn);
    close_db(db);
}

static const char *numbered(char *name, int n)
{
    snprintf(name, 24, "savepoint %d", n);
    return name;
}

/* Regression test: each call compared its name with those of all savepoints, so 76,949 of them took a minute. */
static void savepoints_of_many_names(void)
{
    const int count = scaled(300000, 3000);
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    char name[24];
    for (int i = 0; i < count; i++) {
        OK(tidesdb_txn_savepoint(txn, numbered(name, i)));
        if (i % 100 == 0) OK(tidesdb_txn_put(txn, cf, B(numbered(name, i)), B("value"), 0));
    }
    for (int i = 0; i < count; i += 2) OK(tidesdb_txn_savepoint(txn, numbered(name, i))); /* moves to the end */
    for (int i = 1; i < count; i += 4) OK(tidesdb_txn_release_savepoint(txn, numbered(name, i)));
    OK(tidesdb_txn_put(txn, cf, B("last"), B("value"), 0));
    for (int i = count - 2; i >= 0; i -= 2) {
        CHECK_RC(tidesdb_txn_release_savepoint(txn, numbered(name, i % 4 == 0 ? i + 1 : count)), TDB_ERR_NOT_FOUND);
        OK(tidesdb_txn_rollback_to_savepoint(txn, numbered(name, i)));
    }
    EXPECT(txn, cf, "last", NULL);
    EXPECT(txn, cf, "savepoint 0", "value");
    OK(tidesdb_txn_rollback_to_savepoint(txn, "savepoint 3"));
    EXPECT(txn, cf, "savepoint 100", NULL);
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, numbered(name, count - 1)), TDB_ERR_NOT_FOUND);
    commit(txn);
    CHECK_INT(count_keys(db, cf), 1);
    close_db(db);
}

static void savepoints(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, "one"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_txn_release_savepoint(txn, "one"), TDB_ERR_NOT_FOUND);
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_savepoint(txn, "one"));
    OK(tidesdb_txn_put(txn, cf, B("a"), B("2"), 0));
    OK(tidesdb_txn_put(txn, cf, B("b"), B("1"), 0));
    OK(tidesdb_txn_savepoint(txn, "two"));
    OK(tidesdb_txn_delete(txn, cf, B("a")));
    OK(tidesdb_txn_savepoint(txn, "three"));
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, "none"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_txn_release_savepoint(txn, "none"), TDB_ERR_NOT_FOUND);
    OK(tidesdb_txn_release_savepoint(txn, "one"));
    CHECK_RC(tidesdb_txn_release_savepoint(txn, "one"), TDB_ERR_NOT_FOUND);
    EXPECT(txn, cf, "a", NULL);
    OK(tidesdb_txn_rollback_to_savepoint(txn, "two"));
    EXPECT(txn, cf, "a", "2");
    EXPECT(txn, cf, "b", "1");
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, "three"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, "two"), TDB_ERR_NOT_FOUND);
    commit(txn);
    STORED(db, cf, "a", "2");
    close_db(db);
}

/* Each call that fails leaves the transaction, its savepoints and its cursors as they were. */
static void a_call_that_fails_changes_nothing(void)
{
    static const uint8_t longest[(1 << 16) + 1] = {1};
    db_t *db = open_at("db"), *elsewhere = open_at("elsewhere");
    cf_t *cf = family(db, "f"), *other = family(elsewhere, "f"), *gone = family(db, "gone");
    put(db, cf, "c", "0");
    OK(tidesdb_drop_column_family(db, "gone"));
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_savepoint(txn, "s"));
    OK(tidesdb_txn_put(txn, cf, B("b"), B("2"), 0));
    OK(tidesdb_txn_delete(txn, cf, B("c")));
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    OK(tidesdb_iter_seek_to_first(iter));
    for (int call = 0; call < 16; call++) {
        const uint8_t *key = call % 2 ? longest : (const uint8_t *)"";
        size_t size = call % 2 ? sizeof longest : 0;
        int rc = TDB_SUCCESS;
        switch (call / 2) {
        case 0: rc = tidesdb_txn_put(txn, cf, key, size, B("v"), 0); break;
        case 1: rc = tidesdb_txn_put(txn, cf, key, size, B("v"), time(NULL) + 100); break;
        case 2: rc = tidesdb_txn_delete(txn, cf, key, size); break;
        case 3: rc = tidesdb_txn_single_delete(txn, cf, key, size); break;
        case 4: rc = tidesdb_txn_put(txn, call % 2 ? other : gone, B("k"), B("v"), 0); break;
        case 5: rc = tidesdb_txn_delete(txn, call % 2 ? other : gone, B("k")); break;
        case 6: rc = call % 2 ? tidesdb_txn_rollback_to_savepoint(txn, "none") : tidesdb_txn_release_savepoint(txn, "none"); break;
        case 7: rc = tidesdb_txn_reset(txn, call % 2 ? TDB_ISOLATION_SNAPSHOT : (tidesdb_isolation_level_t)9); break;
        }
        CHECK(rc != TDB_SUCCESS);
        EXPECT(txn, cf, "a", "1");
        EXPECT(txn, cf, "b", "2");
        EXPECT(txn, cf, "c", NULL);
        CHECK(tidesdb_iter_valid(iter));
    }
    OK(tidesdb_iter_next(iter));
    CHECK(tidesdb_iter_valid(iter));
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_NOT_FOUND);
    CHECK(!tidesdb_iter_valid(iter));
    tidesdb_iter_free(iter);
    OK(tidesdb_txn_rollback_to_savepoint(txn, "s"));
    EXPECT(txn, cf, "b", NULL);
    commit(txn);
    WALK(db, cf, "a c ");
    WALK(elsewhere, other, "");
    close_db(elsewhere);
    close_db(db);
}

static void a_savepoint_of_the_same_name_moves(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    OK(tidesdb_txn_savepoint(txn, "s"));
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_savepoint(txn, "s"));
    OK(tidesdb_txn_put(txn, cf, B("b"), B("1"), 0));
    OK(tidesdb_txn_rollback_to_savepoint(txn, "s"));
    EXPECT(txn, cf, "a", "1");
    EXPECT(txn, cf, "b", NULL);
    CHECK_RC(tidesdb_txn_savepoint(NULL, "s"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_savepoint(txn, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(NULL, "s"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_rollback_to_savepoint(txn, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_release_savepoint(NULL, "s"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_txn_release_savepoint(txn, NULL), TDB_ERR_INVALID_ARGS);
    commit(txn);
    WALK(db, cf, "a ");
    close_db(db);
}

static void savepoints_do_not_outlive_a_reset(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    txn_t *txn = begin(db);
    OK(tidesdb_txn_savepoint(txn, "s"));
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 0));
    OK(tidesdb_txn_commit(txn));
    OK(tidesdb_txn_reset(txn, TDB_ISOLATION_READ_COMMITTED));
    OK(tidesdb_txn_put(txn, cf, B("b"), B("1"), 0));
    CHECK(tidesdb_txn_rollback_to_savepoint(txn, "s") != TDB_SUCCESS);
    commit(txn);
    WALK(db, cf, "a b ");
    close_db(db);
}

static void time_to_live_is_a_moment(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    time_t now = time(NULL);
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("for ever"), B("1"), 0));
    OK(tidesdb_txn_put(txn, cf, B("for ever, too"), B("1"), -1));
    OK(tidesdb_txn_put(txn, cf, B("long"), B("1"), now + 1000));
    OK(tidesdb_txn_put(txn, cf, B("over"), B("1"), now - 10));
    OK(tidesdb_txn_put(txn, cf, B("short"), B("1"), now + 1));
    commit(txn);
    STORED(db, cf, "over", NULL);
    sleep_ms(2500);
    STORED(db, cf, "short", NULL);
    WALK(db, cf, "for ever for ever, too long ");
    flush(cf);
    OK(tidesdb_compact(cf));
    WALK(db, cf, "for ever for ever, too long ");
    close_db(db);
    db = open_at("db");
    WALK(db, family(db, "f"), "for ever for ever, too long ");
    close_db(db);
}

static void sizes_of_pairs(void)
{
    static const size_t sizes[] = {1, 511, 512, 513, 4096, 65536, 1 << 20, 5 << 20};
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    uint8_t *bytes = malloc((5 << 20) + 8);
    CHECK(bytes != NULL);
    for (int i = 0; i < (5 << 20) + 8; i++) bytes[i] = (uint8_t)(i * 7 ^ i >> 9);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8 && round == 0; i++) {
            char key[16];
            snprintf(key, sizeof key, "key%d", i);
            txn_t *txn = begin(db);
            OK(tidesdb_txn_put(txn, cf, B(key), bytes + i, sizes[i] - 1, 0));
            OK(tidesdb_txn_put(txn, cf, bytes + i, i < 6 ? sizes[i] : 7, B("long key"), 0));
            commit(txn);
        }
        for (int i = 0; i < 8; i++) {
            char key[16];
            uint8_t *value = NULL;
            size_t size = 0;
            snprintf(key, sizeof key, "key%d", i);
            txn_t *txn = begin(db);
            OK(tidesdb_txn_get(txn, cf, B(key), &value, &size));
            CHECK(size == sizes[i] - 1 && memcmp(value, bytes + i, size) == 0);
            tidesdb_free(value);
            OK(tidesdb_txn_contains(txn, cf, bytes + i, i < 6 ? sizes[i] : 7));
            tidesdb_txn_free(txn);
        }
        flush(cf);
    }
    free(bytes);
    close_db(db);
}

const struct test transaction_tests[] = {
    TEST(writes_are_seen_by_their_transaction_first),
    TEST(deletes_of_both_kinds),
    TEST(get_notrack_and_contains),
    TEST(arguments),
    TEST(a_committed_transaction_is_finished),
    TEST(rolling_back),
    TEST(resetting),
    TEST(savepoints),
    TEST(many_savepoints),
    TEST(savepoints_of_many_names),
    TEST(a_call_that_fails_changes_nothing),
    TEST(a_savepoint_of_the_same_name_moves),
    TEST(savepoints_do_not_outlive_a_reset),
    TEST(time_to_live_is_a_moment),
    TEST(sizes_of_pairs),
    END_OF_TESTS,
};
