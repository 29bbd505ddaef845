/* Hooks and comparators that call the library. */
#include "table.h"

struct visit {
    db_t *db;
    cf_t *cf, *other;
    txn_t *txn;
    iter_t *iter;
    int depth, calls;
    int code; /* of the tested call */
};

static int hook_uses_others(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)seq;
    struct visit *visit = ctx;
    visit->calls++;
    if (visit->depth >= 3) return 0;
    visit->depth++;
    CHECK(count == 1 && ops[0].key_size == 3);
    txn_t *txns[12];
    for (int i = 0; i < 12; i++) txns[i] = begin(visit->db);
    for (int i = 0; i < 12; i++) {
        EXPECT(txns[i], visit->cf, "key", "value");
        tidesdb_txn_free(txns[i]);
    }
    put(visit->db, visit->other, "from the hook", "1");
    put(visit->db, visit->cf, "key", "value");
    CHECK(count_keys(visit->db, visit->other) > 0);
    flush(visit->other);
    visit->depth--;
    return 0;
}

/* Leaves only the freed transactions that the library keeps, which must not affect later calls. */
static void freed_transactions_of_a_closed_database(void)
{
    enum { COUNT = 40 };
    txn_t *txns[COUNT];
    db_t *db = open_at("earlier");
    for (int i = 0; i < COUNT; i++) txns[i] = begin(db);
    for (int i = 0; i < COUNT; i++) tidesdb_txn_free(txns[i]);
    close_db(db);
}

static void a_hook_uses_other_transactions(void)
{
    struct visit visit = {0};
    freed_transactions_of_a_closed_database();
    visit.db = open_at("db");
    visit.cf = family(visit.db, "f");
    visit.other = family(visit.db, "g");
    OK(tidesdb_cf_set_commit_hook(visit.cf, hook_uses_others, &visit));
    put(visit.db, visit.cf, "key", "value");
    CHECK_INT(visit.calls, 4);
    STORED(visit.db, visit.other, "from the hook", "1");
    close_db(visit.db);
}

static int hook_uses_its_own(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)count;
    (void)seq;
    struct visit *visit = ctx;
    uint8_t *value = NULL;
    size_t size = 0;
    iter_t *iter = NULL;
    visit->calls++;
    CHECK_RC(tidesdb_txn_get(visit->txn, visit->cf, B("key"), &value, &size), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_put(visit->txn, visit->cf, B("key"), B("x"), 0), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_delete(visit->txn, visit->cf, B("key")), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_contains(visit->txn, visit->cf, B("key")), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_savepoint(visit->txn, "s"), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_commit(visit->txn), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_rollback(visit->txn), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_txn_reset(visit->txn, TDB_ISOLATION_SNAPSHOT), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_iter_new(visit->txn, visit->cf, &iter), TDB_ERR_BUSY);
    CHECK(value == NULL && size == 0 && iter == NULL);
    return 0;
}

static void a_hook_uses_its_own_transaction(void)
{
    struct visit visit = {0};
    visit.db = open_at("db");
    visit.cf = family(visit.db, "f");
    visit.txn = begin(visit.db);
    OK(tidesdb_cf_set_commit_hook(visit.cf, hook_uses_its_own, &visit));
    for (int i = 0; i < 3; i++) {
        OK(tidesdb_txn_put(visit.txn, visit.cf, B("key"), B("value"), 0));
        OK(tidesdb_txn_commit(visit.txn));
        CHECK_INT(visit.calls, i + 1);
        OK(tidesdb_txn_reset(visit.txn, TDB_ISOLATION_SNAPSHOT));
    }
    tidesdb_txn_free(visit.txn);
    STORED(visit.db, visit.cf, "key", "value");
    close_db(visit.db);
}

static int hook_frees_its_own(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)seq;
    struct visit *visit = ctx;
    visit->calls++;
    tidesdb_txn_free(visit->txn);
    CHECK(count == 1 && ops[0].key_size == 3 && memcmp(ops[0].key, "key", 3) == 0);
    CHECK(ops[0].value_size == 5 && memcmp(ops[0].value, "value", 5) == 0);
    return 0;
}

static void a_hook_frees_its_own_transaction(void)
{
    struct visit visit = {0};
    visit.db = open_at("db");
    visit.cf = family(visit.db, "f");
    OK(tidesdb_cf_set_commit_hook(visit.cf, hook_frees_its_own, &visit));
    for (int i = 0; i < 3; i++) {
        visit.txn = begin(visit.db);
        OK(tidesdb_txn_put(visit.txn, visit.cf, B("key"), B("value"), 0));
        OK(tidesdb_txn_commit(visit.txn));
        tidesdb_txn_free(visit.txn);
        tidesdb_txn_free(visit.txn);
    }
    CHECK_INT(visit.calls, 3);
    STORED(visit.db, visit.cf, "key", "value");
    close_db(visit.db);
}

static int hook_drops_its_family(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)seq;
    struct visit *visit = ctx;
    visit->calls++;
    visit->code = tidesdb_drop_column_family(visit->db, "f");
    CHECK(count == 1 && memcmp(ops[0].key, "key", 3) == 0);
    return 0;
}

static void a_hook_drops_its_family(void)
{
    struct visit visit = {0};
    visit.db = open_at("db");
    visit.cf = family(visit.db, "f");
    OK(tidesdb_cf_set_commit_hook(visit.cf, hook_drops_its_family, &visit));
    put(visit.db, visit.cf, "key", "value");
    CHECK_INT(visit.calls, 1);
    CHECK(visit.code == TDB_SUCCESS || visit.code == TDB_ERR_BUSY);
    CHECK((tidesdb_get_column_family(visit.db, "f") == NULL) == (visit.code == TDB_SUCCESS));
    close_db(visit.db);
}

static int hook_changes_itself(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)ops;
    (void)count;
    (void)seq;
    struct visit *visit = ctx;
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    visit->calls++;
    OK(tidesdb_cf_update_runtime_config(visit->cf, &config, 0));
    OK(tidesdb_rename_column_family(visit->db, visit->calls == 1 ? "f" : "g", visit->calls == 1 ? "g" : "f"));
    OK(tidesdb_purge_cf(visit->cf));
    OK(tidesdb_cf_set_commit_hook(visit->cf, visit->calls == 2 ? NULL : hook_changes_itself, visit));
    return 0;
}

static void a_hook_changes_its_family(void)
{
    struct visit visit = {0};
    visit.db = open_at("db");
    visit.cf = family(visit.db, "f");
    OK(tidesdb_cf_set_commit_hook(visit.cf, hook_changes_itself, &visit));
    for (int i = 0; i < 4; i++) put(visit.db, visit.cf, "key", "value");
    CHECK_INT(visit.calls, 2);
    STORED(visit.db, visit.cf, "key", "value");
    close_db(visit.db);
}

static int hook_closes(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)seq;
    struct visit *visit = ctx;
    visit->calls++;
    visit->code = tidesdb_close(visit->db);
    CHECK(count == 1 && memcmp(ops[0].key, "key", 3) == 0);
    return 0;
}

static void a_hook_closes_its_database(void)
{
    struct visit visit = {0};
    visit.db = open_at("db");
    visit.cf = family(visit.db, "f");
    OK(tidesdb_cf_set_commit_hook(visit.cf, hook_closes, &visit));
    visit.txn = begin(visit.db);
    OK(tidesdb_txn_put(visit.txn, visit.cf, B("key"), B("value"), 0));
    OK(tidesdb_txn_commit(visit.txn));
    CHECK_INT(visit.calls, 1);
    tidesdb_txn_free(visit.txn);
    if (visit.code == TDB_SUCCESS) {
        CHECK_RC(tidesdb_close(visit.db), TDB_ERR_INVALID_ARGS);
    } else {
        CHECK_INT(visit.code, TDB_ERR_BUSY);
        close_db(visit.db);
    }
    visit.db = open_at("db");
    STORED(visit.db, family(visit.db, "f"), "key", "value");
    close_db(visit.db);
}

static struct visit asked;

/* Byte order, but first calls the library for something else. */
static int order_that_calls(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    if (asked.txn != NULL && asked.depth == 0) {
        asked.depth = 1;
        uint8_t *value = NULL;
        size_t size = 0;
        int rc = tidesdb_txn_get(asked.txn, asked.other, B("key"), &value, &size);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_BUSY);
        if (rc == TDB_SUCCESS) tidesdb_free(value);
        asked.code = tidesdb_txn_contains(asked.txn, asked.cf, B("key"));
        if (asked.iter != NULL) (void)tidesdb_iter_next(asked.iter);
        asked.calls++;
        asked.depth = 0;
    }
    return any_order(a, na, b, nb, ctx);
}

static void an_order_calls_the_library(void)
{
    db_t *db = open_at("db");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "asks");
    OK(tidesdb_register_comparator(db, "asks", order_that_calls, "", NULL));
    asked.db = db;
    asked.cf = family_with(db, "f", &config);
    asked.other = family(db, "g");
    put(db, asked.other, "key", "value");
    fill(db, asked.cf, 0, 50);
    asked.txn = begin(db);
    put(db, asked.cf, "key", "value");
    STORED(db, asked.cf, "key000010", "value000010");
    CHECK(asked.calls > 0);
    EXPECT(asked.txn, asked.cf, "key000010", "value000010");
    OK(tidesdb_txn_put(asked.txn, asked.cf, B("key000010"), B("new"), 0));
    EXPECT(asked.txn, asked.cf, "key000010", "new");
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(asked.txn, asked.cf, &iter));
    asked.iter = iter;
    OK(tidesdb_iter_seek(iter, B("key000010")));
    AT(iter, "key000010");
    asked.iter = NULL;
    tidesdb_iter_free(iter);
    OK(tidesdb_txn_commit(asked.txn));
    txn_t *txn = asked.txn;
    asked.txn = NULL;
    tidesdb_txn_free(txn);
    CHECK_INT(count_keys(db, asked.cf), 51);
    OK(tidesdb_purge_cf(asked.cf));
    CHECK_INT(count_keys(db, asked.cf), 51);
    close_db(db);
}

static atomic_int nonsense_calls;

/* Not a valid order: results in this family do not matter, but other families must keep their data. */
static int order_without_sense(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    (void)ctx;
    unsigned hash = (unsigned)atomic_fetch_add(&nonsense_calls, 1) * 2654435761u;
    if (na > 0 && nb > 0) hash ^= (unsigned)a[na - 1] * 31 + b[nb - 1];
    return (int)(hash >> 16) % 3 - 1;
}

static void an_order_that_is_none(void)
{
    db_t *db = open_at("db");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "nonsense");
    OK(tidesdb_register_comparator(db, "nonsense", order_without_sense, "", NULL));
    cf_t *cf = family_with(db, "f", &config), *sane = family(db, "sane");
    put(db, sane, "key", "value");
    for (int i = 0; i < 300; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%06d", i % 100);
        txn_t *txn = begin(db);
        (void)tidesdb_txn_put(txn, cf, B(key), B("value"), 0);
        (void)tidesdb_txn_commit(txn);
        (void)tidesdb_txn_rollback(txn);
        tidesdb_txn_free(txn);
        if (i % 100 == 99) (void)tidesdb_flush_memtable(cf);
    }
    (void)tidesdb_purge_cf(cf);
    txn_t *txn = begin(db);
    iter_t *iter = NULL;
    OK(tidesdb_iter_new(txn, cf, &iter));
    int steps = 0;
    for (int rc = tidesdb_iter_seek_to_first(iter); rc == 0 && steps < 1000; rc = tidesdb_iter_next(iter)) steps++;
    for (int rc = tidesdb_iter_seek_to_last(iter); rc == 0 && steps < 2000; rc = tidesdb_iter_prev(iter)) steps++;
    tidesdb_iter_free(iter);
    tidesdb_txn_free(txn);
    STORED(db, sane, "key", "value");
    (void)tidesdb_close(db);
    db = open_at("db");
    OK(tidesdb_register_comparator(db, "nonsense", tidesdb_comparator_memcmp, "", NULL));
    STORED(db, tidesdb_get_column_family(db, "sane"), "key", "value");
    put(db, tidesdb_get_column_family(db, "sane"), "key", "new");
    close_db(db);
}

const struct test callback_tests[] = {
    TEST(a_hook_uses_other_transactions),
    TEST(a_hook_uses_its_own_transaction),
    TEST(a_hook_frees_its_own_transaction),
    TEST(a_hook_drops_its_family),
    TEST(a_hook_changes_its_family),
    TEST(a_hook_closes_its_database),
    TEST(an_order_calls_the_library),
    TEST(an_order_that_is_none),
    END_OF_TESTS,
};
