/* Commit hooks: when and how often they are called, and with which operations. */
#include "../kit/store.h"

struct seen {
    int calls, ops, deletes, answer;
    uint64_t seq;
    char text[512];
    db_t *db;
    cf_t *cf;
};

static int record(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    struct seen *seen = ctx;
    seen->calls++;
    CHECK(count > 0);
    CHECK(seq > seen->seq);
    seen->seq = seq;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(seen->text);
        CHECK(ops[i].is_delete == 0 || ops[i].is_delete == 1);
        if (ops[i].is_delete) CHECK(ops[i].value_size == 0);
        snprintf(seen->text + used, sizeof seen->text - used, "%s%.*s=%.*s@%ld ",
                 ops[i].is_delete ? "-" : "", (int)ops[i].key_size, (const char *)ops[i].key,
                 (int)ops[i].value_size, (const char *)(ops[i].value == NULL ? (const uint8_t *)"" : ops[i].value),
                 (long)ops[i].ttl);
        seen->ops++;
        seen->deletes += ops[i].is_delete;
    }
    if (seen->cf != NULL) STORED(seen->db, seen->cf, "a", "1");
    return seen->answer;
}

static void what_a_hook_sees(void)
{
    db_t *db = open_at("db");
    struct seen seen = {0};
    cf_t *cf = family(db, "f");
    OK(tidesdb_cf_set_commit_hook(cf, record, &seen));
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("b"), B("2"), 0));
    OK(tidesdb_txn_put(txn, cf, B("a"), B("1"), 4102444800));
    OK(tidesdb_txn_delete(txn, cf, B("c")));
    OK(tidesdb_txn_put(txn, cf, B("e"), NULL, 0, -1));
    commit(txn);
    CHECK_INT(seen.calls, 1);
    CHECK_STR(seen.text, "b=2@0 a=1@4102444800 -c=@0 e=@0 ");
    txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("x"), B("2"), 0));
    OK(tidesdb_txn_rollback(txn));
    tidesdb_txn_free(txn);
    txn = begin(db);
    EXPECT(txn, cf, "b", "2");
    commit(txn);
    CHECK_INT(seen.calls, 1);
    close_db(db);
}

static void a_hook_of_the_settings(void)
{
    db_t *db = open_at("db");
    struct seen seen = {0};
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.commit_hook_fn = record;
    config.commit_hook_ctx = &seen;
    cf_t *cf = family_with(db, "f", &config);
    put(db, cf, "a", "1");
    CHECK_INT(seen.calls, 1);
    OK(tidesdb_cf_set_commit_hook(cf, NULL, NULL));
    put(db, cf, "a", "1");
    CHECK_INT(seen.calls, 1);
    CHECK_RC(tidesdb_cf_set_commit_hook(NULL, record, &seen), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_cf_set_commit_hook(cf, record, &seen));
    put(db, cf, "a", "1");
    CHECK_INT(seen.calls, 2);
    close_db(db);
    db = open_at("db");
    put(db, family(db, "f"), "a", "1");
    CHECK_INT(seen.calls, 2);
    close_db(db);
}

static void fixed_c17_new_settings_keep_the_hook(void)
{
    db_t *db = open_at("db");
    struct seen seen = {0}, other = {0};
    cf_t *cf = family(db, "f");
    OK(tidesdb_cf_set_commit_hook(cf, record, &seen));
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    OK(tidesdb_cf_update_runtime_config(cf, &config, 0));
    put(db, cf, "a", "1");
    CHECK_INT(seen.calls, 1);
    config.commit_hook_fn = record;
    config.commit_hook_ctx = &other;
    OK(tidesdb_cf_update_runtime_config(cf, &config, 0));
    put(db, cf, "a", "1");
    CHECK_INT(seen.calls, 1);
    CHECK_INT(other.calls, 1);
    close_db(db);
}

static void what_a_hook_answers_changes_nothing(void)
{
    db_t *db = open_at("db");
    struct seen seen = {.answer = -5};
    cf_t *cf = family(db, "f");
    OK(tidesdb_cf_set_commit_hook(cf, record, &seen));
    put(db, cf, "a", "1");
    STORED(db, cf, "a", "1");
    CHECK_INT(seen.calls, 1);
    close_db(db);
}

static void trap_10_hooks_come_after_visibility_once_per_family(void)
{
    db_t *db = open_at("db");
    cf_t *first = family(db, "first"), *second = family(db, "second"), *third = family(db, "third");
    struct seen of_first = {.db = db, .cf = first}, of_second = {.db = db, .cf = first}, of_third = {0};
    OK(tidesdb_cf_set_commit_hook(first, record, &of_first));
    OK(tidesdb_cf_set_commit_hook(second, record, &of_second));
    OK(tidesdb_cf_set_commit_hook(third, record, &of_third));
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, first, B("z"), B("old"), 0));
    OK(tidesdb_txn_put(txn, second, B("k"), B("1"), 0));
    OK(tidesdb_txn_put(txn, first, B("a"), B("1"), 0));
    OK(tidesdb_txn_put(txn, first, B("y"), B("gone"), 0));
    OK(tidesdb_txn_delete(txn, first, B("y")));
    OK(tidesdb_txn_put(txn, first, B("z"), B("new"), 0));
    commit(txn);
    CHECK_INT(of_first.calls, 1);
    CHECK_INT(of_second.calls, 1);
    CHECK_INT(of_third.calls, 0);
    CHECK(of_first.seq == of_second.seq);
    CHECK_INT(of_first.ops, 5);
    CHECK_INT(of_first.deletes, 1);
    CHECK_STR(of_first.text, "z=old@0 a=1@0 y=gone@0 -y=@0 z=new@0 ");
    CHECK_STR(of_second.text, "k=1@0 ");
    close_db(db);
}

/* Regression test: a hook got only the last write of each key: of put, put and delete only the delete. A hook that mirrors a
 * family or counts writes needs all of them. */
static void a_hook_sees_every_operation_in_order(void)
{
    db_t *db = open_at("db");
    struct seen seen = {0};
    cf_t *cf = family(db, "f");
    OK(tidesdb_cf_set_commit_hook(cf, record, &seen));
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, cf, B("k"), B("1"), 0));
    OK(tidesdb_txn_put(txn, cf, B("k"), B("2"), 4102444800));
    OK(tidesdb_txn_delete(txn, cf, B("k")));
    commit(txn);
    CHECK_STR(seen.text, "k=1@0 k=2@4102444800 -k=@0 ");
    CHECK_INT(seen.calls, 1);
    seen.text[0] = '\0';
    txn = begin(db);
    OK(tidesdb_txn_single_delete(txn, cf, B("k")));
    OK(tidesdb_txn_savepoint(txn, "s"));
    OK(tidesdb_txn_put(txn, cf, B("k"), B("undone"), 0));
    OK(tidesdb_txn_rollback_to_savepoint(txn, "s"));
    for (int i = 0; i < 3; i++) OK(tidesdb_txn_put(txn, cf, B("k"), B("same"), 0));
    commit(txn);
    CHECK_STR(seen.text, "-k=@0 k=same@0 k=same@0 k=same@0 ");
    close_db(db);
}

static int sizes(const tidesdb_commit_op_t *ops, int count, uint64_t seq, void *ctx)
{
    (void)seq;
    size_t *seen = ctx;
    for (int i = 0; i < count; i++) {
        CHECK(ops[i].is_delete || (ops[i].value[0] == 'v' && ops[i].value[ops[i].value_size - 1] == 'v'));
        seen[1 + seen[0]++] = ops[i].value_size;
    }
    return 0;
}

/* Values of klog_value_threshold bytes or more are stored in a value log. */
static void a_hook_sees_every_value_whatever_its_size(void)
{
    static char value[100000];
    static const size_t lengths[] = {511, 512, 100000, 1, 512, 100000, 3};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    memset(value, 'v', sizeof value);
    db_t *db = open_at("db");
    size_t seen[1 + COUNT] = {0};
    cf_t *cf = family(db, "f");
    OK(tidesdb_cf_set_commit_hook(cf, sizes, seen));
    txn_t *txn = begin(db);
    for (int i = 0; i < COUNT; i++) OK(tidesdb_txn_put(txn, cf, B("k"), (const uint8_t *)value, lengths[i], 0));
    commit(txn);
    CHECK_INT(seen[0], COUNT);
    for (int i = 0; i < COUNT; i++) CHECK_INT(seen[1 + i], lengths[i]);
    close_db(db);
}

const struct test hook_tests[] = {
    TEST(what_a_hook_sees),
    TEST(a_hook_of_the_settings),
    TEST(fixed_c17_new_settings_keep_the_hook),
    TEST(what_a_hook_answers_changes_nothing),
    TEST(a_hook_sees_every_operation_in_order),
    TEST(a_hook_sees_every_value_whatever_its_size),
    TEST(trap_10_hooks_come_after_visibility_once_per_family),
    END_OF_TESTS,
};
