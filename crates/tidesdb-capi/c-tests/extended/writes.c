/* Writes without a transaction, and those that transactions of db.h lack. */
#include "extended.h"

static void a_row_is_put_and_deleted_without_a_transaction(void)
{
    struct shop shop = open_shop();
    uint64_t put = 0, del = 0;
    OK(tidesdb_x_put(shop.cf, B("apple"), B("red"), NULL, &put));
    X_GET(shop.cf, NULL, "apple", "red");
    OK(tidesdb_x_delete(shop.cf, B("apple"), NULL, &del));
    X_GET(shop.cf, NULL, "apple", NULL);
    CHECK(0 < put && put < del);
    OK(tidesdb_x_put(shop.cf, B("apple"), B("green"), NULL, NULL));
    OK(tidesdb_x_single_delete(shop.cf, B("apple"), NULL, NULL));
    X_GET(shop.cf, NULL, "apple", NULL);
    OK(tidesdb_x_put(shop.cf, B("empty"), NULL, 0, NULL, NULL));
    X_GET(shop.cf, NULL, "empty", "");
    STORED(shop.db, shop.cf, "empty", "");
    close_db(shop.db);
    shop.db = open_at("db");
    X_GET(family(shop.db, "f"), NULL, "empty", "");
    close_db(shop.db);
}

static void ranges_and_prefixes_are_deleted(void)
{
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 1000);
    OK(tidesdb_x_delete_range(shop.cf, B("key000002"), B("key000998"), NULL, NULL));
    X_ROWS(shop.cf, NULL, "key000000=value000000 key000001=value000001 key000998=value000998 key000999=value000999 ");
    OK(tidesdb_x_delete_prefix(shop.cf, B("key00000"), NULL, NULL));
    X_ROWS(shop.cf, NULL, "key000998=value000998 key000999=value000999 ");
    OK(tidesdb_x_delete_range(shop.cf, B("key000999"), NULL, 0, NULL, NULL));
    X_ROWS(shop.cf, NULL, "key000998=value000998 ");
    OK(tidesdb_x_delete_range(shop.cf, NULL, 0, NULL, 0, NULL, NULL));
    X_ROWS(shop.cf, NULL, "");
    OK(tidesdb_x_delete_range(shop.cf, B("b"), B("a"), NULL, NULL)); /* an empty range */
    OK(tidesdb_x_compact_range(shop.cf, NULL, 0, NULL, 0));
    OK(tidesdb_x_compact_range(shop.cf, B("a"), B("b")));
    close_db(shop.db);
}

static void a_prefix_needs_an_order_by_bytes(void)
{
    db_t *db = open_at("db");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "case_insensitive");
    cf_t *cf = family_with(db, "f", &config);
    x_put(cf, "Apple", "1");
    CHECK_RC(tidesdb_x_delete_prefix(cf, B("app"), NULL, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(strstr(tidesdb_last_error(), "order") != NULL);
    OK(tidesdb_x_delete_range(cf, B("APP"), B("apr"), NULL, NULL));
    X_GET(cf, NULL, "apple", NULL);
    strcpy(config.comparator_name, "reverse");
    cf = family_with(db, "g", &config);
    x_put(cf, "a1", "1");
    x_put(cf, "b1", "1");
    OK(tidesdb_x_delete_prefix(cf, B("a"), NULL, NULL));
    X_ROWS(cf, NULL, "b1=1 ");
    close_db(db);
}

static void a_transaction_deletes_ranges(void)
{
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 10);
    txn_t *txn = begin(shop.db);
    OK(tidesdb_x_txn_delete_range(txn, shop.cf, B("key000001"), B("key000005")));
    OK(tidesdb_x_txn_delete_prefix(txn, shop.cf, B("key000008")));
    OK(tidesdb_x_txn_put(txn, shop.cf, B("key000003"), B("again"), NULL));
    EXPECT(txn, shop.cf, "key000002", NULL);
    EXPECT(txn, shop.cf, "key000003", "again");
    X_GET(shop.cf, NULL, "key000002", "value000002");
    uint64_t seq = 0;
    OK(tidesdb_x_txn_commit(txn, NULL, &seq));
    CHECK(seq > 0);
    CHECK_RC(tidesdb_x_txn_commit(txn, NULL, &seq), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_txn_put(txn, shop.cf, B("a"), B("b"), NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_txn_free(txn);
    WALK(shop.db, shop.cf, "key000000 key000003 key000005 key000006 key000007 key000009 ");
    close_db(shop.db);
}

static void a_conflict_is_found(void)
{
    struct shop shop = open_shop();
    txn_t *txn = begin_at(shop.db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_x_txn_put(txn, shop.cf, B("a"), B("mine"), NULL));
    x_put(shop.cf, "a", "theirs");
    CHECK_RC(tidesdb_x_txn_commit(txn, NULL, NULL), TDB_ERR_CONFLICT);
    tidesdb_txn_free(txn);
    X_GET(shop.cf, NULL, "a", "theirs");
    close_db(shop.db);
}

static void the_sync_mode_is_checked(void)
{
    struct shop shop = open_shop();
    tidesdb_x_write_options_t options = {sizeof options, TDB_X_SYNC_FULL, 0, 0, 0, 0};
    OK(tidesdb_x_put(shop.cf, B("a"), B("1"), &options, NULL));
    options.sync_mode = TDB_X_SYNC_NONE;
    OK(tidesdb_x_delete(shop.cf, B("a"), &options, NULL));
    options.sync_mode = TDB_X_SYNC_INTERVAL;
    CHECK_RC(tidesdb_x_put(shop.cf, B("a"), B("1"), &options, NULL), TDB_ERR_INVALID_ARGS);
    options.sync_interval_us = 1000;
    OK(tidesdb_x_put(shop.cf, B("a"), B("1"), &options, NULL));
    static const int wrong[] = {-1, 4, 99, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 5; i++) {
        options.sync_mode = wrong[i];
        CHECK_RC(tidesdb_x_put(shop.cf, B("a"), B("2"), &options, NULL), TDB_ERR_INVALID_ARGS);
    }
    options.sync_mode = TDB_X_SYNC_FULL;
    txn_t *txn = begin(shop.db);
    CHECK_RC(tidesdb_x_txn_put(txn, shop.cf, B("a"), B("2"), &options), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_txn_put(txn, shop.cf, B("b"), B("2"), NULL));
    OK(tidesdb_x_txn_commit(txn, &options, NULL));
    tidesdb_txn_free(txn);
    X_ROWS(shop.cf, NULL, "a=1 b=2 ");
    close_db(shop.db);
}

/* Returns whether all commits up to seq are durable. */
static int is_durable(db_t *db, uint64_t seq)
{
    return figure(db, "durable_end") > seq;
}

static void a_write_is_as_durable_as_it_is_asked_for(void)
{
    db_t *db = open_at("db");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    cf_t *lazy = family_with(db, "lazy", &config);
    config.sync_mode = TDB_SYNC_FULL;
    cf_t *full = family_with(db, "full", &config);
    tidesdb_x_write_options_t none = {.size = sizeof none, .sync_mode = TDB_X_SYNC_NONE};
    tidesdb_x_write_options_t sync = {.size = sizeof sync, .sync_mode = TDB_X_SYNC_FULL, .ttl_ms = 3600000};
    uint64_t seq = 0;
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_put(lazy, B("a"), B("1"), NULL, &seq));
    CHECK(!is_durable(db, seq));
    OK(tidesdb_x_put(lazy, B("a"), B("1"), &sync, &seq)); /* with an expiry */
    CHECK(is_durable(db, seq));
    sync.ttl_ms = 0;
    OK(tidesdb_x_put(full, B("a"), B("1"), &none, &seq));
    CHECK(!is_durable(db, seq));
    OK(tidesdb_x_delete(full, B("a"), NULL, &seq));
    CHECK(is_durable(db, seq));
    OK(tidesdb_x_batch_new(db, &batch));
    OK(tidesdb_x_batch_put(batch, lazy, B("b"), B("1"), NULL));
    OK(tidesdb_x_batch_write(batch, NULL, &seq));
    CHECK(!is_durable(db, seq));
    OK(tidesdb_x_batch_put(batch, full, B("b"), B("1"), NULL));
    OK(tidesdb_x_batch_put(batch, lazy, B("b"), B("1"), NULL));
    OK(tidesdb_x_batch_write(batch, NULL, &seq)); /* the strictest of its families */
    CHECK(is_durable(db, seq));
    OK(tidesdb_x_batch_put(batch, full, B("c"), B("1"), NULL));
    OK(tidesdb_x_batch_write(batch, &none, &seq));
    CHECK(!is_durable(db, seq));
    OK(tidesdb_x_batch_write(batch, &sync, NULL)); /* empty: makes all before it durable */
    CHECK(is_durable(db, seq));
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, lazy, B("d"), B("1"), 0));
    OK(tidesdb_x_txn_commit(txn, &sync, &seq));
    CHECK(is_durable(db, seq));
    tidesdb_txn_free(txn);
    txn = begin(db);
    OK(tidesdb_txn_put(txn, full, B("d"), B("1"), 0));
    OK(tidesdb_x_txn_commit(txn, &none, &seq));
    CHECK(!is_durable(db, seq));
    tidesdb_txn_free(txn);
    tidesdb_x_batch_free(batch);
    close_db(db);
}

static void a_row_that_takes_most_of_the_memory_is_refused(void)
{
    tidesdb_config_t config = quiet("db");
    config.max_memory_usage = 64 << 20;
    db_t *db = NULL;
    OK(tidesdb_open(&config, &db));
    cf_t *cf = family(db, "f");
    static uint8_t value[49 << 20];
    CHECK_RC(tidesdb_x_put(cf, B("a"), value, sizeof value, NULL, NULL), TDB_ERR_MEMORY_LIMIT);
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(db, &batch));
    CHECK_RC(tidesdb_x_batch_put(batch, cf, B("a"), value, sizeof value, NULL), TDB_ERR_MEMORY_LIMIT);
    txn_t *txn = begin(db);
    CHECK_RC(tidesdb_x_txn_put(txn, cf, B("a"), value, sizeof value, NULL), TDB_ERR_MEMORY_LIMIT);
    tidesdb_txn_free(txn);
    tidesdb_x_batch_free(batch);
    CHECK_RC(tidesdb_x_contains(cf, B("a"), NULL), TDB_ERR_NOT_FOUND);
    close_db(db);
}

static uint64_t now_in_ms(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void rows_expire(void)
{
    struct shop shop = open_shop();
    tidesdb_x_write_options_t ttl = {sizeof ttl, 0, 0, 0, 3600000, 0}, at = {sizeof at, 0, 0, 0, 0, 0}, never = at;
    never.flags = TDB_X_NEVER_EXPIRES;
    uint64_t before = now_in_ms(), expiry = 7;
    OK(tidesdb_x_put(shop.cf, B("hour"), B("1"), &ttl, NULL));
    OK(tidesdb_x_expiry(shop.cf, B("hour"), NULL, &expiry));
    CHECK(expiry >= before + 3600000 && expiry <= now_in_ms() + 3600001);
    at.expires_at_ms = before + 12345678;
    OK(tidesdb_x_put(shop.cf, B("at"), B("1"), &at, NULL));
    OK(tidesdb_x_expiry(shop.cf, B("at"), NULL, &expiry));
    CHECK_INT(expiry, at.expires_at_ms);
    OK(tidesdb_x_put(shop.cf, B("never"), B("1"), &never, NULL));
    OK(tidesdb_x_expiry(shop.cf, B("never"), NULL, &expiry));
    CHECK_INT(expiry, 0);
    at.expires_at_ms = before - 1000;
    OK(tidesdb_x_put(shop.cf, B("past"), B("1"), &at, NULL));
    expiry = 7;
    CHECK_RC(tidesdb_x_expiry(shop.cf, B("past"), NULL, &expiry), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_x_expiry(shop.cf, B("ha"), NULL, &expiry), TDB_ERR_NOT_FOUND);
    CHECK_INT(expiry, 7);
    X_GET(shop.cf, NULL, "past", NULL);
    at.expires_at_ms = UINT64_MAX; /* the latest moment there is */
    OK(tidesdb_x_put(shop.cf, B("late"), B("1"), &at, NULL));
    X_GET(shop.cf, NULL, "late", "1");
    txn_t *txn = begin(shop.db);
    OK(tidesdb_x_txn_put(txn, shop.cf, B("later"), B("1"), &ttl));
    commit(txn);
    OK(tidesdb_x_expiry(shop.cf, B("later"), NULL, &expiry));
    CHECK(expiry >= before + 3600000);
    ttl.expires_at_ms = 1;
    CHECK_RC(tidesdb_x_put(shop.cf, B("two"), B("1"), &ttl, NULL), TDB_ERR_INVALID_ARGS);
    ttl.expires_at_ms = 0;
    CHECK_RC(tidesdb_x_delete(shop.cf, B("hour"), &ttl, NULL), TDB_ERR_INVALID_ARGS);
    X_GET(shop.cf, NULL, "hour", "1");
    close_db(shop.db);
}

static void a_family_without_an_operator_has_no_merges(void)
{
    struct shop shop = open_shop();
    CHECK_RC(tidesdb_x_merge(shop.cf, B("n"), B("1"), NULL, NULL), TDB_ERR_INVALID_ARGS);
    txn_t *txn = begin(shop.db);
    CHECK_RC(tidesdb_x_txn_merge(txn, shop.cf, B("n"), B("1")), TDB_ERR_INVALID_ARGS);
    tidesdb_txn_free(txn);
    close_db(shop.db);
}

const struct test write_tests[] = {
    TEST(a_row_is_put_and_deleted_without_a_transaction),
    TEST(ranges_and_prefixes_are_deleted),
    TEST(a_prefix_needs_an_order_by_bytes),
    TEST(a_transaction_deletes_ranges),
    TEST(a_conflict_is_found),
    TEST(the_sync_mode_is_checked),
    TEST(a_write_is_as_durable_as_it_is_asked_for),
    TEST(a_row_that_takes_most_of_the_memory_is_refused),
    TEST(rows_expire),
    TEST(a_family_without_an_operator_has_no_merges),
    END_OF_TESTS,
};
