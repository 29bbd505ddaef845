/* Comparators: built-in ones, user-defined ones, and databases that open when these are registered. */

#include "../kit/store.h"

#define ORDER(fn, a, b) tidesdb_comparator_##fn(B(a), B(b), NULL)
#define RAW(number) ((const uint8_t *)&(number)), sizeof(number)

static void orders_of_bytes(void)
{
    CHECK(ORDER(memcmp, "a", "b") < 0);
    CHECK(ORDER(memcmp, "b", "a") > 0);
    CHECK(ORDER(memcmp, "ab", "ab") == 0);
    CHECK(ORDER(memcmp, "a", "ab") < 0);
    CHECK(ORDER(memcmp, "ab", "a") > 0);
    CHECK(ORDER(memcmp, "\x7f", "\x80") < 0);
    CHECK(ORDER(memcmp, "B", "a") < 0);
    CHECK(ORDER(reverse_memcmp, "a", "b") > 0);
    CHECK(ORDER(reverse_memcmp, "b", "a") < 0);
    CHECK(ORDER(reverse_memcmp, "ab", "ab") == 0);
    CHECK(ORDER(reverse_memcmp, "a", "ab") > 0);
    CHECK(ORDER(case_insensitive, "ABC", "abc") == 0);
    CHECK(ORDER(case_insensitive, "abd", "ABC") > 0);
    CHECK(ORDER(case_insensitive, "a", "Ab") < 0);
    CHECK(ORDER(case_insensitive, "[", "a") < 0);
    CHECK(tidesdb_comparator_lexicographic((const uint8_t *)"a", 2, (const uint8_t *)"b", 2, NULL) < 0);
    CHECK(tidesdb_comparator_lexicographic((const uint8_t *)"b", 2, (const uint8_t *)"a", 2, NULL) > 0);
    CHECK(tidesdb_comparator_lexicographic((const uint8_t *)"a\0x", 4, (const uint8_t *)"a\0y", 4, NULL) == 0);
}

static void orders_of_numbers(void)
{
    uint64_t one = 1, large = UINT64_C(1) << 63;
    int64_t minus = -1, plus = 1;
    CHECK_INT(tidesdb_comparator_uint64(RAW(one), RAW(large), NULL), -1);
    CHECK_INT(tidesdb_comparator_uint64(RAW(large), RAW(one), NULL), 1);
    CHECK_INT(tidesdb_comparator_uint64(RAW(one), RAW(one), NULL), 0);
    CHECK_INT(tidesdb_comparator_int64(RAW(minus), RAW(plus), NULL), -1);
    CHECK_INT(tidesdb_comparator_int64(RAW(plus), RAW(minus), NULL), 1);
    CHECK_INT(tidesdb_comparator_int64(RAW(plus), RAW(plus), NULL), 0);
    CHECK(ORDER(uint64, "a", "b") < 0);
    CHECK(ORDER(int64, "ab", "a") > 0);
}

static void the_built_in_names(void)
{
    static const struct {
        const char *name;
        tidesdb_comparator_fn fn;
    } built_in[] = {
        {"memcmp", tidesdb_comparator_memcmp},
        {"lexicographic", tidesdb_comparator_lexicographic},
        {"uint64", tidesdb_comparator_uint64},
        {"int64", tidesdb_comparator_int64},
        {"reverse", tidesdb_comparator_reverse_memcmp},
        {"case_insensitive", tidesdb_comparator_case_insensitive},
    };
    db_t *db = open_at("db");
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++) {
        tidesdb_comparator_fn fn = NULL;
        void *ctx = &fn;
        OK(tidesdb_get_comparator(db, built_in[i].name, &fn, &ctx));
        CHECK(fn != NULL);
        CHECK((fn(B("a"), B("b"), ctx) < 0) == (built_in[i].fn(B("a"), B("b"), NULL) < 0));
        OK(tidesdb_get_comparator(db, built_in[i].name, NULL, NULL));
        CHECK_RC(tidesdb_register_comparator(db, built_in[i].name, built_in[i].fn, "", NULL),
                 TDB_ERR_INVALID_ARGS);
    }
    tidesdb_comparator_fn fn = tidesdb_comparator_memcmp;
    void *ctx = &db;
    CHECK_RC(tidesdb_get_comparator(db, "none", &fn, &ctx), TDB_ERR_NOT_FOUND);
    CHECK(fn == tidesdb_comparator_memcmp && ctx == &db);
    CHECK_RC(tidesdb_get_comparator(NULL, "memcmp", &fn, &ctx), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_get_comparator(db, NULL, &fn, &ctx), TDB_ERR_INVALID_ARGS);
    close_db(db);
}

static cf_t *ordered(db_t *db, const char *comparator)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, comparator);
    return family_with(db, comparator, &config);
}

static void families_in_built_in_orders(void)
{
    static const char *const keys[] = {"b", "A", "c", "a1"};
    static const struct {
        const char *name, *walk;
    } orders[] = {
        {"memcmp", "A a1 b c "},
        {"reverse", "c b a1 A "},
        {"case_insensitive", "A a1 b c "},
    };
    db_t *db = open_at("db");
    for (int i = 0; i < 3; i++) {
        cf_t *cf = ordered(db, orders[i].name);
        for (int k = 0; k < 4; k++) {
            put(db, cf, keys[k], "x");
            if (k == 1) flush(cf);
        }
        WALK(db, cf, orders[i].walk);
    }
    STORED(db, tidesdb_get_column_family(db, "case_insensitive"), "B", "x");
    close_db(db);
    db = open_at("db");
    for (int i = 0; i < 3; i++) {
        cf_t *cf = tidesdb_get_column_family(db, orders[i].name);
        CHECK(cf != NULL);
        WALK(db, cf, orders[i].walk);
    }
    close_db(db);
}

static void families_in_orders_of_numbers(void)
{
    static const int64_t numbers[] = {300, -2, 1, -300, 0, 256, 2};
    static const int64_t by_sign[] = {-300, -2, 0, 1, 2, 256, 300};
    static const int64_t by_bits[] = {0, 1, 2, 256, 300, -300, -2};
    db_t *db = open_at("db");
    for (int sign = 0; sign < 2; sign++) {
        cf_t *cf = ordered(db, sign ? "int64" : "uint64");
        txn_t *txn = begin(db);
        for (int i = 0; i < 7; i++) OK(tidesdb_txn_put(txn, cf, RAW(numbers[i]), B("x"), 0));
        commit(txn);
        flush(cf);
        txn = begin(db);
        iter_t *iter = NULL;
        OK(tidesdb_iter_new(txn, cf, &iter));
        OK(tidesdb_iter_seek_to_first(iter));
        for (int i = 0; i < 7; i++) {
            uint8_t *key;
            size_t size;
            OK(tidesdb_iter_key(iter, &key, &size));
            CHECK_INT(size, 8);
            CHECK(memcmp(key, sign ? &by_sign[i] : &by_bits[i], 8) == 0);
            CHECK_RC(tidesdb_iter_next(iter), i < 6 ? TDB_SUCCESS : TDB_ERR_NOT_FOUND);
        }
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
    }
    close_db(db);
}

/* Byte order, reversed if the context says so. */
static int by_context(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    int order = memcmp(a, b, na < nb ? na : nb);
    if (order == 0) order = (na > nb) - (na < nb);
    return *(const int *)ctx * order;
}

static int backwards = -1;

static void registering(void)
{
    db_t *db = open_at("db");
    char name[80], text[400];
    memset(name, 'n', sizeof name);
    memset(text, 't', sizeof text);
    text[399] = '\0';
    name[64] = '\0';
    CHECK_RC(tidesdb_register_comparator(db, name, by_context, NULL, &backwards), TDB_ERR_INVALID_ARGS);
    name[63] = '\0';
    OK(tidesdb_register_comparator(db, name, by_context, text, &backwards));
    CHECK_RC(tidesdb_register_comparator(db, name, by_context, "", &backwards), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_register_comparator(NULL, "x", by_context, "", NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_register_comparator(db, NULL, by_context, "", NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_register_comparator(db, "x", NULL, "", NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_register_comparator(db, "x", by_context, NULL, &backwards));
    tidesdb_comparator_fn fn = NULL;
    void *ctx = NULL;
    OK(tidesdb_get_comparator(db, name, &fn, &ctx));
    CHECK(fn == by_context && ctx == &backwards);
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "unknown");
    CHECK_RC(tidesdb_create_column_family(db, "f", &config), TDB_ERR_NOT_FOUND);
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    memcpy(config.comparator_name, name, sizeof config.comparator_name);
    cf_t *cf = family_with(db, "f", &config);
    for (const char *key = "cab"; *key != '\0'; key++) put(db, cf, (char[]){*key, '\0'}, "x");
    WALK(db, cf, "c b a ");
    close_db(db);
}

static void make_backwards(void *arg)
{
    db_t *db = open_at("db");
    OK(tidesdb_register_comparator(db, "backwards", by_context, "", &backwards));
    cf_t *cf = ordered(db, "backwards");
    put(db, cf, "a", "1");
    put(db, cf, "c", "3");
    flush(cf);
    put(db, cf, "b", "2");
    put(db, family(db, "other"), "key", "value");
    if (*(int *)arg) close_db(db);
}

/* Every call fails that needs the engine, and the message names what is missing. */
static void check_waiting(db_t *db)
{
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    CHECK(tidesdb_get_column_family(db, "backwards") == NULL);
    CHECK_RC(tidesdb_create_column_family(db, "backwards", &config), TDB_ERR_EXISTS);
    CHECK_RC(tidesdb_create_column_family(db, "new", &config), TDB_ERR_INVALID_DB);
    CHECK(tidesdb_get_column_family(db, "other") == NULL);
    CHECK(strstr(tidesdb_last_error(), "\"backwards\"") != NULL);
    CHECK_RC(tidesdb_drop_column_family(db, "other"), TDB_ERR_INVALID_DB);
    CHECK_RC(tidesdb_rename_column_family(db, "other", "new"), TDB_ERR_INVALID_DB);
    CHECK_RC(tidesdb_clone_column_family(db, "other", "new"), TDB_ERR_INVALID_DB);
    txn_t *txn = NULL;
    CHECK_RC(tidesdb_txn_begin(db, &txn), TDB_ERR_INVALID_DB);
    CHECK(txn == NULL);
    char **names = NULL;
    int count = 7;
    CHECK_RC(tidesdb_list_column_families(db, &names, &count), TDB_ERR_INVALID_DB);
    CHECK(names == NULL && count == 7);
    tidesdb_db_stats_t stats;
    CHECK_RC(tidesdb_get_db_stats(db, &stats), TDB_ERR_INVALID_DB);
    tidesdb_cache_stats_t cache;
    CHECK_RC(tidesdb_get_cache_stats(db, &cache), TDB_ERR_INVALID_DB);
    CHECK_RC(tidesdb_purge(db), TDB_ERR_INVALID_DB);
    CHECK_RC(tidesdb_backup(db, "copy"), TDB_ERR_INVALID_DB);
    CHECK_RC(tidesdb_checkpoint(db, "copy"), TDB_ERR_INVALID_DB);
    CHECK_RC(tidesdb_cancel_background_work(db), TDB_ERR_INVALID_DB);
    tidesdb_config_t again = quiet("db");
    db_t *other = NULL;
    CHECK_RC(tidesdb_open(&again, &other), TDB_ERR_LOCKED);
    tidesdb_comparator_fn fn = NULL;
    OK(tidesdb_get_comparator(db, "memcmp", &fn, NULL));
    CHECK_RC(tidesdb_get_comparator(db, "backwards", &fn, NULL), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_register_comparator(db, "memcmp", by_context, "", &backwards), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_register_comparator(db, "another", by_context, "", &backwards));
    CHECK(tidesdb_get_column_family(db, "backwards") == NULL);
}

static void check_waiting_family(void)
{
    for (int round = 0; round < 2; round++) {
        db_t *db = open_at("db");
        check_waiting(db);
        if (round == 0) {
            close_db(db);
            continue;
        }
        OK(tidesdb_register_comparator(db, "backwards", by_context, "", &backwards));
        CHECK_RC(tidesdb_register_comparator(db, "backwards", by_context, "", &backwards), TDB_ERR_INVALID_ARGS);
        cf_t *cf = tidesdb_get_column_family(db, "backwards");
        CHECK(cf != NULL);
        WALK(db, cf, "c b a ");
        STORED(db, cf, "b", "2");
        put(db, cf, "bb", "4");
        WALK(db, cf, "c bb b a ");
        OK(tidesdb_purge_cf(cf));
        WALK(db, cf, "c bb b a ");
        STORED(db, family(db, "other"), "key", "value");
        close_db(db);
    }
}

static void fixed_c8_a_family_waits_for_its_comparator(void)
{
    int close = 1;
    make_backwards(&close);
    check_waiting_family();
}

static void fixed_c8_also_after_a_kill(void)
{
    int close = 0;
    CHECK_INT(in_child(make_backwards, &close), 0);
    check_waiting_family();
}

/* Names of the engine for its own comparators are available to callers. */
static void any_other_name_is_free(void)
{
    static const char *const names[] = {"u64", "i64", "bytewise", "reverse-bytewise", "case-insensitive"};
    db_t *db = open_at("db");
    for (int i = 0; i < 5; i++) {
        tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
        strcpy(config.comparator_name, names[i]);
        OK(tidesdb_register_comparator(db, names[i], by_context, "", &backwards));
        cf_t *cf = family_with(db, names[i], &config);
        put(db, cf, "a", "1");
        put(db, cf, "b", "2");
        OK(tidesdb_purge_cf(cf));
    }
    close_db(db);
    db = open_at("db");
    for (int i = 0; i < 5; i++) {
        CHECK(tidesdb_get_column_family(db, names[i]) == NULL);
        OK(tidesdb_register_comparator(db, names[i], by_context, "", &backwards));
    }
    for (int i = 0; i < 5; i++) WALK(db, tidesdb_get_column_family(db, names[i]), "b a ");
    close_db(db);
}

/* A comparator may only read: the thread that compares may hold locks that other calls would wait for. */
static struct {
    db_t *db;
    txn_t *txn;
    int commit, close, flush, create, put, delete, single, hook, stats, found;
    cf_t *other;
} within;

static int order_that_writes(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, void *ctx)
{
    if (within.txn != NULL) {
        tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
        within.commit = tidesdb_txn_commit(within.txn);
        within.close = tidesdb_close(within.db);
        within.flush = tidesdb_purge(within.db);
        within.create = tidesdb_create_column_family(within.db, "more", &config);
        within.put = tidesdb_txn_put(within.txn, within.other, B("x"), B("y"), 0);
        within.delete = tidesdb_txn_delete(within.txn, within.other, B("x"));
        within.single = tidesdb_txn_single_delete(within.txn, within.other, B("x"));
        within.hook = tidesdb_cf_set_commit_hook(within.other, NULL, NULL);
        /* These wait for locks that a thread may hold while it compares. */
        tidesdb_stats_t *stats = NULL;
        within.stats = tidesdb_get_stats(within.other, &stats);
        within.found = tidesdb_get_column_family(within.db, "g") != NULL;
    }
    return by_context(a, na, b, nb, ctx);
}

static void a_comparator_may_only_read(void)
{
    db_t *db = open_at("db");
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    strcpy(config.comparator_name, "writes");
    OK(tidesdb_register_comparator(db, "writes", order_that_writes, "", &backwards));
    cf_t *cf = family_with(db, "f", &config), *other = family(db, "g");
    put(db, cf, "a", "1");
    within.db = db;
    within.other = other;
    within.txn = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_txn_put(within.txn, other, B("k"), B("v"), 0));
    txn_t *outer = begin_at(db, TDB_ISOLATION_SNAPSHOT);
    OK(tidesdb_txn_put(outer, cf, B("b"), B("2"), 0));
    OK(tidesdb_txn_commit(outer));
    CHECK_INT(within.commit, TDB_ERR_BUSY);
    CHECK_INT(within.close, TDB_ERR_BUSY);
    CHECK_INT(within.flush, TDB_ERR_BUSY);
    CHECK_INT(within.create, TDB_ERR_BUSY);
    CHECK_INT(within.put, TDB_ERR_BUSY);
    CHECK_INT(within.delete, TDB_ERR_BUSY);
    CHECK_INT(within.single, TDB_ERR_BUSY);
    CHECK_INT(within.hook, TDB_ERR_BUSY);
    CHECK_INT(within.stats, TDB_ERR_BUSY);
    CHECK(!within.found);
    txn_t *later = within.txn;
    within.txn = NULL;
    commit(later);
    tidesdb_txn_free(outer);
    STORED(db, other, "k", "v");
    WALK(db, cf, "b a ");
    close_db(db);
}

const struct test comparator_tests[] = {
    TEST(orders_of_bytes),
    TEST(orders_of_numbers),
    TEST(the_built_in_names),
    TEST(families_in_built_in_orders),
    TEST(families_in_orders_of_numbers),
    TEST(registering),
    TEST(any_other_name_is_free),
    TEST(a_comparator_may_only_read),
    TEST(fixed_c8_a_family_waits_for_its_comparator),
    TEST_ALONE(fixed_c8_also_after_a_kill),
    END_OF_TESTS,
};
