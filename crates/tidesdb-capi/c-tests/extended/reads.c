/* Reads of one key or of many. */
#include "extended.h"

static void a_value_is_read_into_a_buffer(void)
{
    struct shop shop = open_shop();
    uint8_t buffer[8];
    size_t size = 77;
    x_put(shop.cf, "a", "12345");
    memset(buffer, '.', sizeof buffer);
    OK(tidesdb_x_get(shop.cf, B("a"), NULL, buffer, 5, &size));
    CHECK_INT(size, 5);
    CHECK(memcmp(buffer, "12345...", 8) == 0);
    memset(buffer, '.', sizeof buffer);
    CHECK_RC(tidesdb_x_get(shop.cf, B("a"), NULL, buffer, 4, &size), TDB_ERR_TOO_LARGE);
    CHECK_INT(size, 5);
    CHECK(memcmp(buffer, "........", 8) == 0);
    size = 0;
    CHECK_RC(tidesdb_x_get(shop.cf, B("a"), NULL, NULL, 0, &size), TDB_ERR_TOO_LARGE);
    CHECK_INT(size, 5);
    size = 77;
    CHECK_RC(tidesdb_x_get(shop.cf, B("b"), NULL, buffer, 8, &size), TDB_ERR_NOT_FOUND);
    CHECK_INT(size, 77);
    OK(tidesdb_x_put(shop.cf, B("e"), NULL, 0, NULL, NULL));
    OK(tidesdb_x_get(shop.cf, B("e"), NULL, NULL, 0, &size));
    CHECK_INT(size, 0);
    OK(tidesdb_x_contains(shop.cf, B("a"), NULL));
    CHECK_RC(tidesdb_x_contains(shop.cf, B("b"), NULL), TDB_ERR_NOT_FOUND);
    close_db(shop.db);
}

static void many_keys_are_read_in_one_call(void)
{
    struct shop shop = open_shop();
    uint8_t buffer[16], found[4];
    tidesdb_x_span_t spans[4];
    size_t needed = 0;
    static const size_t sizes[] = {1, 2, 3, 1};
    const uint8_t *keys = (const uint8_t *)"abbccca";
    x_put(shop.cf, "a", "one");
    x_put(shop.cf, "ccc", "three");
    for (int flushed = 0; flushed < 2; flushed++) {
        OK(tidesdb_x_multi_get(shop.cf, keys, sizes, 4, NULL, buffer, sizeof buffer, spans, &needed));
        CHECK_INT(needed, 11);
        CHECK(memcmp(buffer, "onethreeone", 11) == 0);
        CHECK(spans[0].offset == 0 && spans[0].size == 3);
        CHECK(spans[1].offset == TDB_X_NONE && spans[1].size == 0);
        CHECK(spans[2].offset == 3 && spans[2].size == 5);
        CHECK(spans[3].offset == 8 && spans[3].size == 3);
        needed = 0;
        CHECK_RC(tidesdb_x_multi_get(shop.cf, keys, sizes, 4, NULL, buffer, 10, spans, &needed), TDB_ERR_TOO_LARGE);
        CHECK_INT(needed, 11);
        OK(tidesdb_x_multi_contains(shop.cf, keys, sizes, 4, NULL, found));
        CHECK(found[0] == 1 && found[1] == 0 && found[2] == 1 && found[3] == 1);
        flush(shop.cf);
    }
    OK(tidesdb_x_multi_get(shop.cf, NULL, NULL, 0, NULL, NULL, 0, NULL, &needed));
    CHECK_INT(needed, 0);
    static const size_t wrong[] = {1, 0};
    CHECK_RC(tidesdb_x_multi_get(shop.cf, keys, wrong, 2, NULL, buffer, 16, spans, &needed), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_multi_contains(shop.cf, keys, wrong, 2, NULL, found), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
}

static void a_read_sees_a_transaction_with_its_writes(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    txn_t *txn = begin(shop.db);
    tidesdb_x_read_options_t in = {sizeof in, NULL, NULL, 0};
    in.txn = txn;
    OK(tidesdb_x_txn_put(txn, shop.cf, B("b"), B("2"), NULL));
    OK(tidesdb_txn_delete(txn, shop.cf, B("a")));
    X_ROWS(shop.cf, &in, "b=2 ");
    X_GET(shop.cf, &in, "a", NULL);
    X_GET(shop.cf, &in, "b", "2");
    X_GET(shop.cf, NULL, "a", "1");
    OK(tidesdb_x_contains(shop.cf, B("b"), &in));
    uint8_t found[2];
    static const size_t sizes[] = {1, 1};
    OK(tidesdb_x_multi_contains(shop.cf, (const uint8_t *)"ab", sizes, 2, &in, found));
    CHECK(found[0] == 0 && found[1] == 1);
    tidesdb_txn_free(txn);
    CHECK_RC(tidesdb_x_contains(shop.cf, B("b"), &in), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
}

/* A commit that depends on a row which was read with TDB_X_UNTRACKED does not conflict. */
static void an_untracked_read_makes_no_conflict(void)
{
    struct shop shop = open_shop();
    for (int untracked = 0; untracked < 2; untracked++) {
        txn_t *txn = begin_at(shop.db, TDB_ISOLATION_SERIALIZABLE);
        tidesdb_x_read_options_t in = {sizeof in, txn, NULL, untracked ? TDB_X_UNTRACKED : 0};
        x_put(shop.cf, "a", "1");
        CHECK_RC(tidesdb_x_contains(shop.cf, B("a"), &in), untracked ? TDB_SUCCESS : TDB_ERR_NOT_FOUND);
        x_put(shop.cf, "a", "2");
        OK(tidesdb_txn_put(txn, shop.cf, B("b"), B("1"), 0));
        CHECK_INT(tidesdb_txn_commit(txn), untracked ? TDB_SUCCESS : TDB_ERR_CONFLICT);
        tidesdb_txn_free(txn);
    }
    close_db(shop.db);
}

/* Calls each function that reads. Returns those that refuse the flags, and say so: one letter each. */
static void refusals(cf_t *cf, txn_t *txn, unsigned flags, const char *name, char *refused)
{
    tidesdb_x_read_options_t in = {sizeof in, txn, NULL, flags}, newest = {sizeof newest, NULL, NULL, flags};
    const uint8_t *key = (const uint8_t *)"a";
    const size_t key_size = 1;
    uint8_t buffer[32];
    size_t size;
    uint64_t expiry;
    tidesdb_x_span_t span;
    tidesdb_x_row_t row;
    char *text = NULL;
    tidesdb_x_iter_t *iter = NULL;
    tidesdb_x_value_reader_t *reader = NULL;
    for (const char *call = "gcmMflepirxX"; *call != '\0'; call++) {
        int rc = *call == 'g' ? tidesdb_x_get(cf, key, 1, &in, buffer, 32, &size)
               : *call == 'c' ? tidesdb_x_contains(cf, key, 1, &in)
               : *call == 'm' ? tidesdb_x_multi_get(cf, key, &key_size, 1, &in, buffer, 32, &span, &size)
               : *call == 'M' ? tidesdb_x_multi_contains(cf, key, &key_size, 1, &in, buffer)
               : *call == 'f' ? tidesdb_x_first(cf, &in, buffer, 32, &row)
               : *call == 'l' ? tidesdb_x_last(cf, &in, buffer, 32, &row)
               : *call == 'e' ? tidesdb_x_expiry(cf, key, 1, &in, &expiry)
               : *call == 'i' ? tidesdb_x_iter_new(cf, &in, NULL, 0, NULL, 0, &iter)
               : *call == 'p' ? tidesdb_x_iter_new_prefix(cf, &in, key, 1, &iter)
               : *call == 'r' ? tidesdb_x_value_reader_new(cf, key, 1, &in, &reader, NULL)
               : *call == 'x' ? tidesdb_x_explain(cf, key, 1, &newest, &text)
                              : tidesdb_x_explain_range(cf, key, 1, NULL, 0, 9, &newest, &text);
        tidesdb_x_iter_free(iter);
        tidesdb_x_value_reader_free(reader);
        tidesdb_free(text);
        iter = NULL;
        reader = NULL;
        text = NULL;
        if (rc == TDB_SUCCESS) continue;
        CHECK_RC(rc, TDB_ERR_INVALID_ARGS);
        CHECK(strstr(tidesdb_last_error(), name) != NULL);
        *refused++ = *call;
    }
    *refused = '\0';
}

/* Regression test: flags that a function does not take were ignored. */
static void flags_that_have_no_effect_are_refused(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    txn_t *txn = begin_at(shop.db, TDB_ISOLATION_SERIALIZABLE);
    char refused[16];
    refusals(shop.cf, txn, 0, "", refused);
    CHECK_STR(refused, "");
    refusals(shop.cf, txn, TDB_X_KEYS_ONLY, "TDB_X_KEYS_ONLY", refused);
    CHECK_STR(refused, "gmrxX");
    refusals(shop.cf, txn, TDB_X_UNTRACKED, "TDB_X_UNTRACKED", refused);
    CHECK_STR(refused, "mMflepirxX");
    tidesdb_txn_free(txn);
    close_db(shop.db);
}

static void the_first_and_the_last_row_are_found(void)
{
    struct shop shop = open_shop();
    uint8_t buffer[32];
    tidesdb_x_row_t row = {7, 7, 7};
    tidesdb_x_read_options_t keys = {sizeof keys, NULL, NULL, TDB_X_KEYS_ONLY};
    CHECK_RC(tidesdb_x_first(shop.cf, NULL, buffer, 32, &row), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_x_last(shop.cf, NULL, buffer, 32, &row), TDB_ERR_NOT_FOUND);
    CHECK_INT(row.offset, 7);
    fill(shop.db, shop.cf, 0, 10);
    OK(tidesdb_x_first(shop.cf, NULL, buffer, 32, &row));
    CHECK(row.offset == 0 && row.key_size == 9 && row.value_size == 11);
    CHECK(memcmp(buffer, "key000000value000000", 20) == 0);
    OK(tidesdb_x_last(shop.cf, &keys, buffer, 9, &row));
    CHECK(row.key_size == 9 && row.value_size == 0 && memcmp(buffer, "key000009", 9) == 0);
    CHECK_RC(tidesdb_x_last(shop.cf, NULL, buffer, 19, &row), TDB_ERR_TOO_LARGE);
    CHECK(row.key_size == 9 && row.value_size == 11);
    close_db(shop.db);
}

static void options_are_checked(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    struct {
        tidesdb_x_read_options_t known;
        uint64_t unknown;
    } newer = {{sizeof newer, NULL, NULL, 0}, 0};
    OK(tidesdb_x_contains(shop.cf, B("a"), &newer.known)); /* of a later version, with a default */
    newer.unknown = 1;
    CHECK_RC(tidesdb_x_contains(shop.cf, B("a"), &newer.known), TDB_ERR_INVALID_ARGS);
    static const size_t sizes[] = {0, 1, 8, sizeof(void *) * 3, 4097, SIZE_MAX};
    for (int i = 0; i < 6; i++) {
        newer.known.size = sizes[i];
        CHECK_RC(tidesdb_x_contains(shop.cf, B("a"), &newer.known), TDB_ERR_INVALID_ARGS);
    }
    tidesdb_x_read_options_t options = {sizeof options, NULL, NULL, 4};
    CHECK_RC(tidesdb_x_contains(shop.cf, B("a"), &options), TDB_ERR_INVALID_ARGS);
    options.flags = 0;
    options.txn = begin(shop.db);
    OK(tidesdb_x_snapshot_new(shop.db, &options.snapshot));
    CHECK_RC(tidesdb_x_contains(shop.cf, B("a"), &options), TDB_ERR_INVALID_ARGS);
    tidesdb_x_snapshot_free(options.snapshot);
    tidesdb_txn_free(options.txn);
    tidesdb_x_write_options_t write = {sizeof write, 0, 2, 0, 0, 0};
    CHECK_RC(tidesdb_x_put(shop.cf, B("a"), B("1"), &write, NULL), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
}

const struct test read_tests[] = {
    TEST(a_value_is_read_into_a_buffer),
    TEST(many_keys_are_read_in_one_call),
    TEST(a_read_sees_a_transaction_with_its_writes),
    TEST(an_untracked_read_makes_no_conflict),
    TEST(flags_that_have_no_effect_are_refused),
    TEST(the_first_and_the_last_row_are_found),
    TEST(options_are_checked),
    END_OF_TESTS,
};
