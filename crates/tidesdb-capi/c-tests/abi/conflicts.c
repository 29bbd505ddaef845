/* Isolation: which commits fail with a conflict, and the state afterwards. */
#include "../kit/store.h"

static void a_lost_update_is_refused(void)
{
    static const tidesdb_isolation_level_t levels[] = {
        TDB_ISOLATION_REPEATABLE_READ, TDB_ISOLATION_SNAPSHOT, TDB_ISOLATION_SERIALIZABLE};
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    for (int i = 0; i < 3; i++) {
        put(db, cf, "key", "0");
        txn_t *first = begin_at(db, levels[i]), *second = begin_at(db, levels[i]);
        EXPECT(first, cf, "key", "0");
        EXPECT(second, cf, "key", "0");
        OK(tidesdb_txn_put(first, cf, B("key"), B("first"), 0));
        OK(tidesdb_txn_put(second, cf, B("key"), B("second"), 0));
        commit(first);
        CHECK_RC(tidesdb_txn_commit(second), TDB_ERR_CONFLICT);
        STORED(db, cf, "key", "first");
        CHECK_RC(tidesdb_txn_commit(second), TDB_ERR_CONFLICT);
        CHECK_RC(tidesdb_txn_reset(second, levels[i]), TDB_ERR_INVALID_ARGS);
        OK(tidesdb_txn_rollback(second));
        OK(tidesdb_txn_reset(second, levels[i]));
        EXPECT(second, cf, "key", "first");
        OK(tidesdb_txn_put(second, cf, B("key"), B("second"), 0));
        commit(second);
        STORED(db, cf, "key", "second");
    }
    close_db(db);
}

static void the_weak_levels_let_the_last_one_win(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    for (int level = TDB_ISOLATION_READ_UNCOMMITTED; level <= TDB_ISOLATION_READ_COMMITTED; level++) {
        txn_t *first = begin_at(db, (tidesdb_isolation_level_t)level);
        txn_t *second = begin_at(db, (tidesdb_isolation_level_t)level);
        OK(tidesdb_txn_put(first, cf, B("key"), B("first"), 0));
        OK(tidesdb_txn_put(second, cf, B("key"), B("second"), 0));
        commit(first);
        EXPECT(second, cf, "key", "second");
        commit(second);
        STORED(db, cf, "key", "second");
    }
    close_db(db);
}

static void what_the_levels_see(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "old");
    txn_t *txns[5];
    for (int level = 0; level <= 4; level++) {
        txns[level] = begin_at(db, (tidesdb_isolation_level_t)level);
        EXPECT(txns[level], cf, "key", "old");
    }
    put(db, cf, "key", "new");
    put(db, cf, "key2", "new");
    for (int level = 0; level <= 4; level++) {
        int weak = level <= TDB_ISOLATION_READ_COMMITTED;
        EXPECT(txns[level], cf, "key", weak ? "new" : "old");
        EXPECT(txns[level], cf, "key2", weak ? "new" : NULL);
        commit(txns[level]);
    }
    close_db(db);
}

static void reads_count_from_repeatable_read_up(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "read", "0");
    txn_t *txn = begin_at(db, TDB_ISOLATION_REPEATABLE_READ);
    EXPECT(txn, cf, "read", "0");
    put(db, cf, "read", "1");
    OK(tidesdb_txn_put(txn, cf, B("written"), B("1"), 0));
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_CONFLICT);
    tidesdb_txn_free(txn);
    STORED(db, cf, "written", NULL);
    close_db(db);
}

static void reads_without_track_do_not_count(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "read", "0");
    for (int level = TDB_ISOLATION_REPEATABLE_READ; level <= TDB_ISOLATION_SERIALIZABLE; level++) {
        txn_t *txn = begin_at(db, (tidesdb_isolation_level_t)level);
        uint8_t *value = NULL;
        size_t size = 0;
        OK(tidesdb_txn_get_notrack(txn, cf, B("read"), &value, &size));
        tidesdb_free(value);
        OK(tidesdb_txn_contains(txn, cf, B("read")));
        put(db, cf, "read", "1");
        OK(tidesdb_txn_put(txn, cf, B("written"), B("1"), 0));
        commit(txn);
    }
    close_db(db);
}

static void write_skew_is_refused_at_serializable(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "x", "1");
    put(db, cf, "y", "1");
    for (int serializable = 0; serializable < 2; serializable++) {
        tidesdb_isolation_level_t level = serializable ? TDB_ISOLATION_SERIALIZABLE : TDB_ISOLATION_SNAPSHOT;
        txn_t *first = begin_at(db, level), *second = begin_at(db, level);
        EXPECT(first, cf, "y", "1");
        EXPECT(second, cf, "x", "1");
        OK(tidesdb_txn_put(first, cf, B("x"), B("1"), 0));
        OK(tidesdb_txn_put(second, cf, B("y"), B("1"), 0));
        commit(first);
        CHECK_RC(tidesdb_txn_commit(second), serializable ? TDB_ERR_CONFLICT : TDB_SUCCESS);
        tidesdb_txn_free(second);
    }
    close_db(db);
}

static void fixed_c19_a_phantom_is_refused_at_serializable(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "a", "1");
    put(db, cf, "z", "1");
    txn_t *txn = begin_at(db, TDB_ISOLATION_SERIALIZABLE);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    int rc = tidesdb_iter_seek_to_first(iter);
    while (rc == TDB_SUCCESS) rc = tidesdb_iter_next(iter);
    tidesdb_iter_free(iter);
    put(db, cf, "m", "a phantom");
    OK(tidesdb_txn_put(txn, cf, B("count"), B("2"), 0));
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_CONFLICT);
    tidesdb_txn_free(txn);
    close_db(db);
}

static void reading_only_is_never_refused_at_snapshot(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "0");
    for (int level = 0; level <= 4; level++) {
        txn_t *txn = begin_at(db, (tidesdb_isolation_level_t)level);
        OK(tidesdb_txn_contains(txn, cf, B("key")));
        put(db, cf, "key", "1");
        commit(txn);
    }
    close_db(db);
}

static void a_transaction_over_two_families_is_whole(void)
{
    db_t *db = open_at("db");
    cf_t *a = family(db, "a"), *b = family(db, "b");
    put(db, a, "key", "0");
    txn_t *txn = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_txn_put(txn, b, B("key"), B("1"), 0));
    OK(tidesdb_txn_put(txn, a, B("key"), B("1"), 0));
    put(db, a, "key", "2");
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_CONFLICT);
    tidesdb_txn_free(txn);
    STORED(db, b, "key", NULL);
    txn = begin_at(db, TDB_ISOLATION_SERIALIZABLE);
    OK(tidesdb_txn_put(txn, b, B("key"), B("3"), 0));
    OK(tidesdb_txn_put(txn, a, B("key"), B("3"), 0));
    commit(txn);
    STORED(db, a, "key", "3");
    STORED(db, b, "key", "3");
    close_db(db);
}

const struct test conflict_tests[] = {
    TEST(a_lost_update_is_refused),
    TEST(the_weak_levels_let_the_last_one_win),
    TEST(what_the_levels_see),
    TEST(reads_count_from_repeatable_read_up),
    TEST(reads_without_track_do_not_count),
    TEST(write_skew_is_refused_at_serializable),
    TEST(fixed_c19_a_phantom_is_refused_at_serializable),
    TEST(reading_only_is_never_refused_at_snapshot),
    TEST(a_transaction_over_two_families_is_whole),
    END_OF_TESTS,
};
