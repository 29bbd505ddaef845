/* Handles that are freed, of another kind, of another database, or invented. */
#include <stdlib.h>

#include "table.h"

/* Calls every function once for each handle argument, with bad in its place. */
static void all_refuse(struct world *world, char except, void *bad, const char *why)
{
    for (int r = 0; r < row_count; r++) {
        const struct row *row = &rows[r];
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            if (!is_handle(row->kinds[at]) || row->kinds[at] == except) continue;
            union arg args[MAX_ARGS] = {{0}};
            right_args(world, row, args);
            args[at].p = bad;
            refused(world, row, row->call(args), why);
        }
    }
}

static void still_whole(struct world *world)
{
    STORED(world->db, world->cf, "key", "value");
    STORED(world->other_db, world->other_cf, "key", "value");
    EXPECT(world->txn, world->cf, "key2", "value2");
    OK(tidesdb_iter_seek_to_first(world->iter));
    AT(world->iter, "key");
}

static void of_another_kind(void)
{
    struct world world;
    build(&world);
    all_refuse(&world, 'D', world.db, "a database");
    all_refuse(&world, 'C', world.cf, "a family");
    all_refuse(&world, 'T', world.txn, "a transaction");
    all_refuse(&world, 'I', world.iter, "an iterator");
    still_whole(&world);
    tear_down(&world);
}

static void made_up(void)
{
    static const uint64_t numbers[] = {1, 2, 3, 8, 16, 4095, 4096, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63,
                                       UINT64_C(0xdeadbeefdeadbeef), UINT64_C(0x7fffffffffff), UINT32_MAX};
    struct world world;
    int here;
    void *heap = malloc(64);
    build(&world);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        all_refuse(&world, '-', (void *)(uintptr_t)numbers[i], "a number");
    all_refuse(&world, '-', &here, "an address of the stack");
    all_refuse(&world, '-', heap, "an address of the heap");
    all_refuse(&world, '-', (void *)(uintptr_t)rows, "an address of the program");
    free(heap);
    still_whole(&world);
    tear_down(&world);
}

/* A changed bit may give another valid handle. */
static int is_one_of(const struct world *world, const void *handle)
{
    return handle == world->db || handle == world->other_db || handle == world->cf || handle == world->other_cf ||
           handle == world->txn || handle == world->iter;
}

static void one_bit_off(void)
{
    struct world world;
    build(&world);
    for (int bit = 0; bit < 64; bit++) {
        static const char kinds[] = "DCTI";
        for (int k = 0; k < 4; k++) {
            uintptr_t handle = (uintptr_t)handle_of(&world, kinds[k]) ^ (uintptr_t)1 << bit;
            if (is_one_of(&world, (void *)handle)) continue;
            all_refuse(&world, '-', (void *)handle, "a handle with a bit off");
        }
    }
    still_whole(&world);
    tear_down(&world);
}

static void freed(void)
{
    struct world world;
    build(&world);
    cf_t *cf = family(world.db, "gone");
    txn_t *txn = begin(world.db);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(world.txn, world.cf, &iter));
    db_t *db = open_at("third");
    cf_t *cf_of_closed = family(db, "f");
    txn_t *txn_of_closed = begin(db);
    OK(tidesdb_drop_column_family(world.db, "gone"));
    tidesdb_txn_free(txn);
    tidesdb_iter_free(iter);
    close_db(db);
    all_refuse(&world, '-', cf, "a dropped family");
    all_refuse(&world, '-', txn, "a freed transaction");
    all_refuse(&world, '-', iter, "a freed iterator");
    all_refuse(&world, '-', db, "a closed database");
    all_refuse(&world, '-', cf_of_closed, "a closed database's family");
    all_refuse(&world, '-', txn_of_closed, "a closed database's transaction");
    for (int i = 0; i < 3; i++) {
        tidesdb_txn_free(txn);
        tidesdb_txn_free(txn_of_closed);
        tidesdb_iter_free(iter);
        CHECK_RC(tidesdb_close(db), TDB_ERR_INVALID_ARGS);
    }
    still_whole(&world);
    tear_down(&world);
}

static void of_another_database(void)
{
    struct world world;
    build(&world);
    for (int r = 0; r < row_count; r++) {
        const struct row *row = &rows[r];
        const char *family = strchr(row->kinds, 'C');
        if (family == NULL || family == row->kinds) continue;
        union arg args[MAX_ARGS] = {{0}};
        right_args(&world, row, args);
        args[family - row->kinds].p = world.other_cf;
        refused(&world, row, row->call(args), "another database's family");
    }
    OK(tidesdb_txn_put(world.txn, world.cf, B("new"), B("1"), 0));
    CHECK_RC(tidesdb_txn_put(world.txn, world.other_cf, B("new"), B("1"), 0), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_txn_commit(world.txn));
    STORED(world.db, world.cf, "new", "1");
    STORED(world.other_db, world.other_cf, "new", NULL);
    tear_down(&world);
}

static void wrong_frees_free_nothing(void)
{
    struct world world;
    build(&world);
    void *all[] = {world.db, world.cf, world.txn, world.iter};
    for (int i = 0; i < 4; i++) {
        if (all[i] != world.txn) tidesdb_txn_free(all[i]);
        if (all[i] != world.iter) tidesdb_iter_free(all[i]);
        if (all[i] != world.db) CHECK_RC(tidesdb_close(all[i]), TDB_ERR_INVALID_ARGS);
    }
    still_whole(&world);
    tear_down(&world);
}

static void a_slot_that_is_used_again(void)
{
    struct world world;
    build(&world);
    txn_t *old = begin(world.db);
    iter_t *old_iter = NULL;
    OK(tidesdb_iter_new(world.txn, world.cf, &old_iter));
    tidesdb_txn_free(old);
    tidesdb_iter_free(old_iter);
    for (int i = 0, rounds = scaled(100000, 5000); i < rounds; i++) {
        txn_t *txn = begin(world.db);
        iter_t *iter = NULL;
        CHECK(txn != old);
        if (i % 8 == 0) {
            OK(tidesdb_iter_new(txn, world.cf, &iter));
            CHECK(iter != old_iter);
            CHECK_INT(tidesdb_iter_valid(old_iter), 0);
            tidesdb_iter_free(old_iter);
            CHECK_RC(tidesdb_iter_seek_to_first(old_iter), TDB_ERR_INVALID_ARGS);
            OK(tidesdb_iter_seek_to_first(iter));
        }
        CHECK_RC(tidesdb_txn_rollback(old), TDB_ERR_INVALID_ARGS);
        tidesdb_txn_free(old);
        EXPECT(txn, world.cf, "key", "value");
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
        if (i % 1000 == 999) old = txn;
    }
    still_whole(&world);
    tear_down(&world);
}

static void a_family_of_the_same_name_is_another(void)
{
    db_t *db = open_at("db");
    for (int i = 0, rounds = scaled(100, 10); i < rounds; i++) {
        cf_t *old = family(db, "f");
        put(db, old, "key", "value");
        OK(tidesdb_drop_column_family(db, "f"));
        cf_t *cf = family(db, "f");
        CHECK(cf != old);
        txn_t *txn = begin(db);
        CHECK_RC(tidesdb_txn_put(txn, old, B("key"), B("value"), 0), TDB_ERR_INVALID_ARGS);
        EXPECT(txn, cf, "key", NULL);
        tidesdb_txn_free(txn);
        CHECK_RC(tidesdb_delete_column_family(db, old), TDB_ERR_INVALID_ARGS);
        OK(tidesdb_delete_column_family(db, cf));
    }
    close_db(db);
}

static void a_database_that_is_opened_again_is_another(void)
{
    db_t *old = open_at("db");
    cf_t *old_cf = family(old, "f");
    put(old, old_cf, "key", "value");
    for (int i = 0, rounds = scaled(30, 3); i < rounds; i++) {
        close_db(old);
        db_t *db = open_at("db");
        CHECK(db != old);
        CHECK_RC(tidesdb_flush_memtable(old_cf), TDB_ERR_INVALID_ARGS);
        CHECK(tidesdb_get_column_family(old, "f") == NULL);
        old = db;
        old_cf = tidesdb_get_column_family(db, "f");
        STORED(db, old_cf, "key", "value");
    }
    close_db(old);
}

static void in_the_wrong_order(void)
{
    struct world world;
    build(&world);
    tidesdb_txn_free(world.txn);
    int rc = tidesdb_iter_next(world.iter);
    CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_INVALID_ARGS);
    (void)tidesdb_iter_valid(world.iter);
    uint8_t *key = NULL;
    size_t size = 0;
    (void)tidesdb_iter_key(world.iter, &key, &size);
    world.txn = begin(world.db);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(world.txn, world.cf, &iter));
    OK(tidesdb_iter_seek_to_first(iter));
    OK(tidesdb_drop_column_family(world.db, "f"));
    rc = tidesdb_iter_next(iter);
    CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_INVALID_ARGS || rc == TDB_ERR_NOT_FOUND);
    close_db(world.db);
    CHECK_RC(tidesdb_iter_next(iter), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_iter_next(world.iter), TDB_ERR_INVALID_ARGS);
    tidesdb_iter_free(world.iter);
    tidesdb_txn_free(world.txn);
    tidesdb_iter_free(iter);
    close_db(world.other_db);
}

static void many_at_once(void)
{
    enum { MOST = 20000 };
    static txn_t *txns[MOST];
    int count = scaled(MOST, 500);
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    for (int i = 0; i < count; i++) txns[i] = begin(db);
    for (int i = 0; i < count; i += 997) EXPECT(txns[i], cf, "key", "value");
    for (int i = 0; i < count; i += 2) tidesdb_txn_free(txns[i]);
    for (int i = 0; i < count; i++) {
        int rc = tidesdb_txn_contains(txns[i], cf, B("key"));
        CHECK_INT(rc, i % 2 == 0 ? TDB_ERR_INVALID_ARGS : TDB_SUCCESS);
    }
    close_db(db);
    for (int i = 0; i < count; i++) tidesdb_txn_free(txns[i]);
}

/* Freed transactions that the library keeps must not outlive their database or be used for another one. */
static void transactions_of_a_closed_database_stay_away(void)
{
    enum { COUNT = 40 };
    txn_t *txns[COUNT];
    for (int round = 0; round < 3; round++) {
        db_t *db = open_at("db");
        cf_t *cf = family(db, "f");
        put(db, cf, "key", "value");
        for (int i = 0; i < COUNT; i++) txns[i] = begin(db);
        for (int i = 0; i < COUNT; i++) tidesdb_txn_free(txns[i]);
        close_db(db);
        db = open_at("other");
        cf = family(db, "g");
        put(db, cf, "key", "value");
        for (int i = 0; i < COUNT; i++) txns[i] = begin(db);
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < i; k++) CHECK(txns[i] != txns[k]);
        for (int i = 0; i < COUNT; i += 2) tidesdb_txn_free(txns[i]);
        for (int i = 1; i < COUNT; i += 2) {
            EXPECT(txns[i], cf, "key", "value");
            tidesdb_txn_free(txns[i]);
        }
        close_db(db);
    }
}

const struct test handle_tests[] = {
    TEST(of_another_kind),
    TEST(made_up),
    TEST(one_bit_off),
    TEST(freed),
    TEST(of_another_database),
    TEST(wrong_frees_free_nothing),
    TEST(a_slot_that_is_used_again),
    TEST(a_family_of_the_same_name_is_another),
    TEST(a_database_that_is_opened_again_is_another),
    TEST(in_the_wrong_order),
    TEST(transactions_of_a_closed_database_stay_away),
    TEST(many_at_once),
    END_OF_TESTS,
};
