/* Opening with settings that tidesdb_open() lacks; families with merge operators and default expiries. */
#include <stdlib.h>

#include "extended.h"

/* Keeps the longer of two texts; the text "bad" is an error. */
static int longer(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx)
{
    if (ctx != NULL) ++*(atomic_int *)ctx;
    if (operand_size == 3 && memcmp(operand, "bad", 3) == 0) return 7;
    if (value_size >= operand_size) return tidesdb_x_result_append(value, value_size);
    /* In two pieces. */
    OK(tidesdb_x_result_append(operand, 1));
    return tidesdb_x_result_append(operand + 1, operand_size - 1);
}

static int not_empty(const uint8_t *operand, size_t operand_size, void *ctx)
{
    (void)operand;
    (void)ctx;
    return operand_size == 0;
}

static db_t *open_with(const char *path, const tidesdb_x_merge_operator_t *operators, size_t count, unsigned flags)
{
    tidesdb_config_t config = quiet(path);
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .merge_operators = operators,
                                        .merge_operator_count = count, .flags = flags};
    db_t *db = NULL;
    OK(tidesdb_x_open(&options, &db));
    return db;
}

static cf_t *merging(db_t *db, const char *name, const char *operator_name)
{
    cf_t *cf = NULL;
    tidesdb_x_family_options_t options = {.size = sizeof options, .merge_operator = operator_name};
    OK(tidesdb_x_create_family(db, name, &options, &cf));
    CHECK(cf == tidesdb_get_column_family(db, name));
    return cf;
}

static void an_operator_of_the_program_combines_operands(void)
{
    atomic_int calls = 0;
    tidesdb_x_merge_operator_t op = {sizeof op, "longer", longer, not_empty, &calls};
    db_t *db = open_with("db", &op, 1, 0);
    cf_t *cf = merging(db, "f", "longer");
    OK(tidesdb_x_merge(cf, B("a"), B("one"), NULL, NULL));
    X_GET(cf, NULL, "a", "one");
    OK(tidesdb_x_merge(cf, B("a"), B("three"), NULL, NULL));
    OK(tidesdb_x_merge(cf, B("a"), B("two"), NULL, NULL));
    X_GET(cf, NULL, "a", "three");
    STORED(db, cf, "a", "three");
    CHECK_RC(tidesdb_x_merge(cf, B("a"), NULL, 0, NULL, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(strstr(tidesdb_last_error(), "returned 1") != NULL);
    flush(cf);
    OK(tidesdb_compact(cf));
    X_GET(cf, NULL, "a", "three");
    txn_t *txn = begin(db);
    tidesdb_x_read_options_t in = {sizeof in, txn, NULL, 0};
    OK(tidesdb_x_txn_merge(txn, cf, B("a"), B("sixteen")));
    X_GET(cf, &in, "a", "sixteen");
    X_GET(cf, NULL, "a", "three");
    commit(txn);
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(db, &batch));
    OK(tidesdb_x_batch_merge(batch, cf, B("b"), B("ten")));
    static const uint8_t kinds[] = {TDB_X_OP_MERGE, TDB_X_OP_MERGE};
    static const size_t sizes[] = {1, 6, 1, 1};
    OK(tidesdb_x_batch_add(batch, cf, kinds, (const uint8_t *)"btwentyb1", sizes, 2, NULL));
    OK(tidesdb_x_batch_write(batch, NULL, NULL));
    tidesdb_x_batch_free(batch);
    X_ROWS(cf, NULL, "a=sixteen b=twenty ");
    CHECK(calls > 3);
    CHECK_RC(tidesdb_x_result_append((const uint8_t *)"x", 1), TDB_ERR_INVALID_ARGS);
    close_db(db);
    int after = calls;
    sleep_ms(20);
    CHECK_INT(calls, after);
    /* Without its operator the family can be used, but its operands cannot be combined. */
    db = open_at("db");
    cf = family(db, "f");
    CHECK_RC(tidesdb_x_merge(cf, B("a"), B("one"), NULL, NULL), TDB_X_ERR_MERGE);
    x_put(cf, "c", "1");
    X_GET(cf, NULL, "c", "1");
    close_db(db);
    db = open_with("db", &op, 1, TDB_X_MUST_EXIST);
    X_ROWS(family(db, "f"), NULL, "a=sixteen b=twenty c=1 ");
    close_db(db);
}

static void a_failure_of_the_operator_is_that_of_one_key(void)
{
    tidesdb_x_merge_operator_t op = {sizeof op, "longer", longer, NULL, NULL};
    db_t *db = open_with("db", &op, 1, 0);
    cf_t *cf = merging(db, "f", "longer");
    uint8_t buffer[64];
    size_t size = 5;
    x_put(cf, "a", "1");
    x_put(cf, "c", "3");
    OK(tidesdb_x_merge(cf, B("b"), B("bad"), NULL, NULL)); /* alone it is a value */
    X_GET(cf, NULL, "b", "bad");
    OK(tidesdb_x_merge(cf, B("b"), B("bad"), NULL, NULL));
    for (int flushed = 0; flushed < 2; flushed++) {
        CHECK_RC(tidesdb_x_get(cf, B("b"), NULL, buffer, 64, &size), TDB_X_ERR_MERGE);
        CHECK(strstr(tidesdb_last_error(), "returned 7") != NULL);
        CHECK_INT(size, 5);
        X_GET(cf, NULL, "a", "1");
        /* An iterator stops there once and goes on after it, in both directions. */
        tidesdb_x_iter_t *iter = NULL;
        tidesdb_x_row_t rows[8];
        size_t count = 0, needed = 0;
        OK(tidesdb_x_iter_new(cf, NULL, NULL, 0, NULL, 0, &iter));
        OK(tidesdb_x_iter_next(iter, buffer, 64, rows, 8, &count, &needed));
        CHECK(count == 1 && buffer[0] == 'a');
        CHECK_RC(tidesdb_x_iter_next(iter, buffer, 64, rows, 8, &count, &needed), TDB_X_ERR_MERGE);
        OK(tidesdb_x_iter_next(iter, buffer, 64, rows, 8, &count, &needed));
        CHECK(count == 1 && buffer[0] == 'c');
        CHECK_RC(tidesdb_x_iter_next(iter, buffer, 64, rows, 8, &count, &needed), TDB_ERR_NOT_FOUND);
        OK(tidesdb_x_iter_prev(iter, buffer, 64, rows, 8, &count, &needed));
        CHECK(count == 1 && buffer[0] == 'c');
        CHECK_RC(tidesdb_x_iter_prev(iter, buffer, 64, rows, 8, &count, &needed), TDB_X_ERR_MERGE);
        OK(tidesdb_x_iter_prev(iter, buffer, 64, rows, 8, &count, &needed));
        CHECK(count == 1 && buffer[0] == 'a');
        tidesdb_x_iter_free(iter);
        flush(cf);
        OK(tidesdb_compact(cf));
    }
    OK(tidesdb_x_delete(cf, B("b"), NULL, NULL));
    X_ROWS(cf, NULL, "a=1 c=3 ");
    close_db(db);
}

static db_t *open_db;
static atomic_int closing, nested;

/* Tries what a merge operator must not do. */
static int forbidden(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx)
{
    (void)value;
    (void)value_size;
    cf_t *cf = *(cf_t **)ctx;
    if (closing) return tidesdb_x_result_append(operand, operand_size); /* in a flush: the handles are stale */
    CHECK_RC(tidesdb_x_put(cf, B("x"), B("y"), NULL, NULL), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_close(open_db), TDB_ERR_BUSY);
    CHECK_RC(tidesdb_x_delete_range(cf, NULL, 0, NULL, 0, NULL, NULL), TDB_ERR_BUSY);
    X_GET(cf, NULL, "other", "1"); /* reading is allowed */
    OK(tidesdb_x_result_append(operand, operand_size));
    if (!nested) {
        nested = 1;
        X_GET(cf, NULL, "nested", "n2"); /* by another run of this function, with a result of its own */
        nested = 0;
    }
    return 0;
}

static void an_operator_may_only_read(void)
{
    cf_t *cf = NULL;
    tidesdb_x_merge_operator_t op = {sizeof op, "forbidden", forbidden, NULL, &cf};
    open_db = open_with("db", &op, 1, 0);
    cf = merging(open_db, "f", "forbidden");
    x_put(cf, "other", "1");
    OK(tidesdb_x_merge(cf, B("nested"), B("n1"), NULL, NULL));
    OK(tidesdb_x_merge(cf, B("nested"), B("n2"), NULL, NULL));
    OK(tidesdb_x_merge(cf, B("a"), B("1"), NULL, NULL));
    OK(tidesdb_x_merge(cf, B("a"), B("2"), NULL, NULL));
    X_GET(cf, NULL, "a", "2");
    closing = 1;
    close_db(open_db);
}

static void operators_that_are_built_in_need_no_function(void)
{
    db_t *db = open_at("db");
    cf_t *sums = merging(db, "sums", "tidesdb.add"), *lists = merging(db, "lists", "tidesdb.append:, ");
    uint64_t number = 40, sum = 0;
    size_t size = 0;
    OK(tidesdb_x_merge(sums, B("n"), (const uint8_t *)&number, 8, NULL, NULL));
    number = 2;
    OK(tidesdb_x_merge(sums, B("n"), (const uint8_t *)&number, 8, NULL, NULL));
    CHECK_RC(tidesdb_x_merge(sums, B("n"), (const uint8_t *)&number, 7, NULL, NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_get(sums, B("n"), NULL, (uint8_t *)&sum, 8, &size));
    CHECK(size == 8 && sum == 42);
    OK(tidesdb_x_merge(lists, B("l"), B("a"), NULL, NULL));
    OK(tidesdb_x_merge(lists, B("l"), B("b"), NULL, NULL));
    close_db(db);
    db = open_at("db");
    X_GET(family(db, "lists"), NULL, "l", "a, b");
    close_db(db);
}

static void operators_are_checked_at_the_open(void)
{
    static char endless[257];
    memset(endless, 'x', 256);
    tidesdb_config_t config = quiet("db");
    tidesdb_x_merge_operator_t ops[2] = {{sizeof ops[0], "a", longer, NULL, NULL}, {sizeof ops[0], "b", longer, NULL, NULL}};
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .merge_operators = ops,
                                        .merge_operator_count = 2};
    db_t *db = NULL;
    const char *wrong[] = {"", "tidesdb.mine", endless, "\xff", "b", NULL};
    for (int i = 0; i < 6; i++) {
        ops[0].name = wrong[i];
        CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
    }
    ops[0].name = "a";
    ops[0].merge = NULL;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
    ops[0].merge = longer;
    ops[1].size = 0;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
    ops[1].size = sizeof ops[0];
    options.merge_operator_count = SIZE_MAX;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
    options.merge_operator_count = 2;
    options.flags = 8;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
    options.flags = TDB_X_MUST_EXIST;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_NOT_FOUND);
    options.flags = 0;
    options.config = NULL;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_open(NULL, &db), TDB_ERR_INVALID_ARGS);
    options.config = &config;
    CHECK_RC(tidesdb_x_open(&options, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(db == NULL);
    OK(tidesdb_x_open(&options, &db));
    tidesdb_x_family_options_t family_options = {.size = sizeof family_options, .merge_operator = "unknown"};
    cf_t *cf = NULL;
    CHECK_RC(tidesdb_x_create_family(db, "f", &family_options, &cf), TDB_ERR_NOT_FOUND);
    CHECK(cf == NULL && tidesdb_get_column_family(db, "f") == NULL);
    tidesdb_t *second = NULL;
    options.flags = TDB_X_MUST_BE_NEW;
    CHECK_RC(tidesdb_x_open(&options, &second), TDB_ERR_LOCKED);
    OK(tidesdb_x_create_family(db, "f", NULL, NULL));
    CHECK_RC(tidesdb_x_create_family(db, "f", NULL, &cf), TDB_ERR_EXISTS);
    close_db(db);
}

static int backwards(const uint8_t *a, size_t an, const uint8_t *b, size_t bn, void *ctx)
{
    ++*(atomic_int *)ctx;
    return tidesdb_comparator_memcmp(b, bn, a, an, NULL);
}

static void comparators_may_be_given_at_the_open(void)
{
    atomic_int calls = 0;
    tidesdb_config_t config = quiet("db");
    tidesdb_x_comparator_t order = {sizeof order, "backwards", backwards, &calls};
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .comparators = &order, .comparator_count = 1};
    tidesdb_column_family_config_t family_config = tidesdb_default_column_family_config();
    strcpy(family_config.comparator_name, "backwards");
    for (int round = 0; round < 2; round++) {
        db_t *db = NULL;
        OK(tidesdb_x_open(&options, &db));
        tidesdb_x_family_options_t of = {.size = sizeof of, .config = &family_config};
        if (round == 0) OK(tidesdb_x_create_family(db, "f", &of, NULL));
        cf_t *cf = tidesdb_get_column_family(db, "f");
        x_put(cf, "a", "1");
        x_put(cf, "b", "2");
        X_ROWS(cf, NULL, "b=2 a=1 ");
        close_db(db);
    }
    CHECK(calls > 0);
    order.compare = NULL;
    db_t *db = NULL;
    CHECK_RC(tidesdb_x_open(&options, &db), TDB_ERR_INVALID_ARGS);
}

static void a_family_has_a_default_expiry(void)
{
    db_t *db = open_at("db");
    cf_t *cf = NULL;
    tidesdb_x_family_options_t options = {.size = sizeof options, .default_ttl_ms = 3600000};
    OK(tidesdb_x_create_family(db, "f", &options, &cf));
    tidesdb_x_write_options_t never = {sizeof never, 0, TDB_X_NEVER_EXPIRES, 0, 0, 0};
    uint64_t expiry = 0;
    x_put(cf, "hour", "1");
    OK(tidesdb_x_expiry(cf, B("hour"), NULL, &expiry));
    CHECK(expiry > 0);
    OK(tidesdb_x_put(cf, B("never"), B("1"), &never, NULL));
    OK(tidesdb_x_expiry(cf, B("never"), NULL, &expiry));
    CHECK_INT(expiry, 0);
    put(db, cf, "base", "1"); /* the base interface names the expiry of each row */
    OK(tidesdb_x_expiry(cf, B("base"), NULL, &expiry));
    CHECK_INT(expiry, 0);
    tidesdb_x_batch_t *batch = NULL;
    OK(tidesdb_x_batch_new(db, &batch));
    OK(tidesdb_x_batch_put(batch, cf, B("batch"), B("1"), NULL));
    OK(tidesdb_x_batch_put(batch, cf, B("kept"), B("1"), &never));
    OK(tidesdb_x_batch_write(batch, NULL, NULL));
    tidesdb_x_batch_free(batch);
    OK(tidesdb_x_expiry(cf, B("batch"), NULL, &expiry));
    CHECK(expiry > 0);
    OK(tidesdb_x_expiry(cf, B("kept"), NULL, &expiry));
    CHECK_INT(expiry, 0);
    close_db(db);
}

static void a_database_is_opened_for_reading_only(void)
{
    db_t *db = open_at("db");
    x_put(family(db, "f"), "a", "1");
    close_db(db);
    db = open_with("db", NULL, 0, TDB_X_READ_ONLY);
    cf_t *cf = tidesdb_get_column_family(db, "f");
    X_GET(cf, NULL, "a", "1");
    CHECK_RC(tidesdb_x_put(cf, B("a"), B("2"), NULL, NULL), TDB_ERR_READONLY);
    CHECK_RC(tidesdb_x_create_family(db, "g", NULL, NULL), TDB_ERR_READONLY);
    close_db(db);
}

static void history_lets_snapshots_of_the_past_be_made(void)
{
    tidesdb_config_t config = quiet("db");
    tidesdb_x_open_options_t options = {.size = sizeof options, .config = &config, .history_bytes = 1 << 20};
    db_t *db = NULL;
    OK(tidesdb_x_open(&options, &db));
    cf_t *cf = family(db, "f");
    uint64_t first = 0, second = 0;
    OK(tidesdb_x_put(cf, B("a"), B("1"), NULL, &first));
    OK(tidesdb_x_put(cf, B("a"), B("2"), NULL, &second));
    flush(cf);
    OK(tidesdb_compact(cf));
    tidesdb_x_read_options_t at = {sizeof at, NULL, NULL, 0};
    OK(tidesdb_x_snapshot_at(db, first, &at.snapshot));
    X_GET(cf, &at, "a", "1");
    uint64_t seq = 0;
    OK(tidesdb_x_snapshot_seq(at.snapshot, &seq));
    CHECK_INT(seq, first);
    tidesdb_x_snapshot_free(at.snapshot);
    OK(tidesdb_x_snapshot_at(db, second, &at.snapshot));
    X_GET(cf, &at, "a", "2");
    tidesdb_x_snapshot_free(at.snapshot);
    close_db(db);
}

const struct test operator_tests[] = {
    TEST(an_operator_of_the_program_combines_operands),
    TEST(a_failure_of_the_operator_is_that_of_one_key),
    TEST(an_operator_may_only_read),
    TEST(operators_that_are_built_in_need_no_function),
    TEST(operators_are_checked_at_the_open),
    TEST(comparators_may_be_given_at_the_open),
    TEST(a_family_has_a_default_expiry),
    TEST(a_database_is_opened_for_reading_only),
    TEST(history_lets_snapshots_of_the_past_be_made),
    END_OF_TESTS,
};
