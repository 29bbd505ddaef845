/* Batches. */
#include "extended.h"

static void a_batch_is_atomic_over_families(void)
{
    struct shop shop = open_shop();
    cf_t *other = family(shop.db, "g");
    tidesdb_x_batch_t *batch = NULL;
    size_t count = 9, bytes = 9;
    OK(tidesdb_x_batch_new(shop.db, &batch));
    OK(tidesdb_x_batch_size(batch, &count, &bytes));
    CHECK_INT(count, 0);
    x_put(shop.cf, "old", "1");
    x_put(other, "r1", "1");
    x_put(other, "r2", "1");
    OK(tidesdb_x_batch_put(batch, shop.cf, B("a"), B("1"), NULL));
    OK(tidesdb_x_batch_put(batch, other, B("b"), B("2"), NULL));
    OK(tidesdb_x_batch_delete(batch, shop.cf, B("old")));
    OK(tidesdb_x_batch_delete_range(batch, other, B("r"), B("s")));
    OK(tidesdb_x_batch_size(batch, &count, &bytes));
    CHECK_INT(count, 4);
    CHECK(bytes > 10);
    OK(tidesdb_x_batch_size(batch, NULL, NULL));
    X_GET(shop.cf, NULL, "a", NULL);
    uint64_t seq = 0;
    OK(tidesdb_x_batch_write(batch, NULL, &seq));
    CHECK(seq > 0);
    X_ROWS(shop.cf, NULL, "a=1 ");
    X_ROWS(other, NULL, "b=2 ");
    OK(tidesdb_x_batch_size(batch, &count, NULL));
    CHECK_INT(count, 0); /* it can be used again */
    OK(tidesdb_x_batch_put(batch, other, B("c"), B("3"), NULL));
    OK(tidesdb_x_batch_clear(batch));
    OK(tidesdb_x_batch_write(batch, NULL, NULL));
    X_ROWS(other, NULL, "b=2 ");
    tidesdb_x_batch_free(batch);
    tidesdb_x_batch_free(batch);
    tidesdb_x_batch_free(NULL);
    CHECK_RC(tidesdb_x_batch_write(batch, NULL, NULL), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
}

static void many_operations_are_added_in_one_call(void)
{
    struct shop shop = open_shop();
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(shop.db, &batch));
    /* Puts only. */
    static const size_t puts[] = {1, 3, 2, 0, 1, 1};
    OK(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"aonebbc3", puts, 3, NULL));
    OK(tidesdb_x_batch_write(batch, NULL, NULL));
    X_ROWS(shop.cf, NULL, "a=one bb= c=3 ");
    /* One of each kind but merges; a range to the end. */
    static const uint8_t kinds[] = {TDB_X_OP_PUT, TDB_X_OP_DELETE, TDB_X_OP_SINGLE_DELETE, TDB_X_OP_DELETE_RANGE,
                                    TDB_X_OP_DELETE_PREFIX, TDB_X_OP_PUT};
    static const size_t sizes[] = {1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 2, 2};
    x_put(shop.cf, "z1", "1");
    x_put(shop.cf, "pre1", "1");
    OK(tidesdb_x_batch_add(batch, shop.cf, kinds, (const uint8_t *)"d4aczpzz!!", sizes, 6, NULL));
    size_t count = 0;
    OK(tidesdb_x_batch_size(batch, &count, NULL));
    CHECK_INT(count, 6);
    OK(tidesdb_x_batch_write(batch, NULL, NULL));
    X_ROWS(shop.cf, NULL, "bb= d=4 zz=!! ");
    OK(tidesdb_x_batch_add(batch, shop.cf, NULL, NULL, NULL, 0, NULL));
    tidesdb_x_batch_free(batch);
    close_db(shop.db);
}

static void a_list_with_a_fault_commits_nothing(void)
{
    struct shop shop = open_shop();
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(shop.db, &batch));
    static const size_t sizes[] = {1, 1, 0, 1}; /* the second key is empty */
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"a1b", sizes, 2, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(strstr(tidesdb_last_error(), "operation 1") != NULL);
    CHECK_RC(tidesdb_x_batch_write(batch, NULL, NULL), TDB_ERR_INVALID_ARGS);
    X_ROWS(shop.cf, NULL, "");
    OK(tidesdb_x_batch_clear(batch));
    static const uint8_t unknown[] = {6};
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, unknown, (const uint8_t *)"a1", sizes, 1, NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_batch_clear(batch));
    static const uint8_t valued[] = {TDB_X_OP_DELETE};
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, valued, (const uint8_t *)"a1", sizes, 1, NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_batch_clear(batch));
    static const size_t endless[] = {SIZE_MAX, 2, SIZE_MAX / 2, 1};
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"a1", endless, 1, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"a1", endless + 2, 1, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"a1", sizes, SIZE_MAX, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"a1", sizes, SIZE_MAX / 2, NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_batch_add(batch, shop.cf, NULL, (const uint8_t *)"a1", sizes, 1, NULL));
    OK(tidesdb_x_batch_write(batch, NULL, NULL));
    X_ROWS(shop.cf, NULL, "a=1 ");
    CHECK_RC(tidesdb_x_batch_merge(batch, shop.cf, B("a"), B("1")), TDB_ERR_INVALID_ARGS);
    tidesdb_x_batch_free(batch);
    close_db(shop.db);
}

static void a_batch_ends_with_its_families_and_its_database(void)
{
    struct shop shop = open_shop();
    db_t *second = open_at("second");
    cf_t *foreign = family(second, "f"), *gone = family(shop.db, "gone");
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(shop.db, &batch));
    CHECK_RC(tidesdb_x_batch_put(batch, foreign, B("a"), B("1"), NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_batch_put(batch, gone, B("a"), B("1"), NULL));
    OK(tidesdb_drop_column_family(shop.db, "gone"));
    CHECK_RC(tidesdb_x_batch_put(batch, gone, B("b"), B("1"), NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_batch_write(batch, NULL, NULL), TDB_ERR_NOT_FOUND);
    OK(tidesdb_x_batch_clear(batch));
    OK(tidesdb_x_batch_put(batch, shop.cf, B("a"), B("1"), NULL));
    close_db(second);
    close_db(shop.db);
    CHECK_RC(tidesdb_x_batch_write(batch, NULL, NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_x_batch_free(batch);
}

const struct test batch_tests[] = {
    TEST(a_batch_is_atomic_over_families),
    TEST(many_operations_are_added_in_one_call),
    TEST(a_list_with_a_fault_commits_nothing),
    TEST(a_batch_ends_with_its_families_and_its_database),
    END_OF_TESTS,
};
