/* Column families: names, creation, drop, rename, clone. */
#include <dirent.h>
#include <stdlib.h>

#include "../kit/store.h"

typedef tidesdb_column_family_config_t settings_t;

static void creating(void)
{
    db_t *db = open_at("db");
    settings_t c = tidesdb_default_column_family_config();
    OK(tidesdb_create_column_family(db, "f", &c));
    CHECK_RC(tidesdb_create_column_family(db, "f", &c), TDB_ERR_EXISTS);
    CHECK_RC(tidesdb_create_column_family(NULL, "g", &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_create_column_family(db, NULL, &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_create_column_family(db, "g", NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_create_column_family(db, "", &c), TDB_ERR_INVALID_ARGS);
    CHECK(tidesdb_get_column_family(db, "g") == NULL);
    CHECK(tidesdb_get_column_family(db, "") == NULL);
    CHECK(tidesdb_get_column_family(db, NULL) == NULL);
    CHECK(tidesdb_get_column_family(NULL, "f") == NULL);
    CHECK(tidesdb_get_column_family(db, "f") == tidesdb_get_column_family(db, "f"));
    close_db(db);
}

static void settings_out_of_their_domain(void)
{
    db_t *db = open_at("db");
    settings_t good = tidesdb_default_column_family_config(), bad = good;
    bad.compression_algorithm = (tidesdb_compression_t)5;
    CHECK_RC(tidesdb_create_column_family(db, "f", &bad), TDB_ERR_INVALID_ARGS);
    bad.compression_algorithm = (tidesdb_compression_t)-1;
    CHECK_RC(tidesdb_create_column_family(db, "f", &bad), TDB_ERR_INVALID_ARGS);
    bad = good;
    bad.sync_mode = 3;
    CHECK_RC(tidesdb_create_column_family(db, "f", &bad), TDB_ERR_INVALID_ARGS);
    bad.sync_mode = TDB_SYNC_INTERVAL;
    bad.sync_interval_us = 0;
    CHECK_RC(tidesdb_create_column_family(db, "f", &bad), TDB_ERR_INVALID_ARGS);
    bad = good;
    bad.default_isolation_level = (tidesdb_isolation_level_t)5;
    CHECK_RC(tidesdb_create_column_family(db, "f", &bad), TDB_ERR_INVALID_ARGS);
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    close_db(db);
}

static void zero_sizes_and_ratios_are_accepted(void)
{
    db_t *db = open_at("db");
    settings_t c;
    memset(&c, 0, sizeof c);
    cf_t *cf = family_with(db, "zeroed", &c);
    fill(db, cf, 0, 1000);
    flush(cf);
    OK(tidesdb_compact(cf));
    CHECK_INT(count_keys(db, cf), 1000);
    close_db(db);
    db = open_at("db");
    CHECK_INT(count_keys(db, tidesdb_get_column_family(db, "zeroed")), 1000);
    close_db(db);
}

static void names_that_are_not_ended(void)
{
    db_t *db = open_at("db");
    settings_t c = tidesdb_default_column_family_config();
    memset(c.comparator_name, 'x', sizeof c.comparator_name);
    int rc = tidesdb_create_column_family(db, "f", &c);
    CHECK(rc == TDB_ERR_NOT_FOUND || rc == TDB_ERR_INVALID_ARGS);
    c = tidesdb_default_column_family_config();
    memset(c.name, 'x', sizeof c.name);
    memset(c.comparator_ctx_str, 'x', sizeof c.comparator_ctx_str);
    cf_t *cf = family_with(db, "f", &c);
    tidesdb_stats_t *stats = NULL;
    OK(tidesdb_get_stats(cf, &stats));
    CHECK_STR(stats->config->name, "f");
    CHECK(strlen(stats->config->comparator_ctx_str) < sizeof c.comparator_ctx_str);
    tidesdb_free_stats(stats);
    close_db(db);
}

static int entries(const char *dir)
{
    int count = 0;
    DIR *list = opendir(dir);
    CHECK(list != NULL);
    while (readdir(list) != NULL) count++;
    closedir(list);
    return count;
}

static void fixed_c9_names_are_data(void)
{
    static const char *const names[] = {"..", ".", "/", "a/b", "../../x", "gr\xc3\xbc\xc3\x9f" "e",
                                        "\xf0\x9f\x8c\x8a", " ", "new\nline", "CURRENT", "*"};
    enum { COUNT = sizeof names / sizeof names[0] };
    char longest[129];
    memset(longest, 'n', sizeof longest);
    longest[128] = '\0';
    db_t *db = open_at("db");
    int here = entries(".");
    for (int i = 0; i < COUNT; i++) {
        cf_t *cf = family(db, names[i]);
        put(db, cf, "name", names[i]);
        flush(cf);
    }
    settings_t c = tidesdb_default_column_family_config();
    CHECK_RC(tidesdb_create_column_family(db, longest, &c), TDB_ERR_INVALID_ARGS);
    longest[127] = '\0';
    put(db, family(db, longest), "name", longest);
    CHECK_RC(tidesdb_create_column_family(db, "no utf\xff", &c), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_rename_column_family(db, "*", "\xc3"), TDB_ERR_INVALID_ARGS);
    CHECK(tidesdb_get_column_family(db, "no utf\xff") == NULL);
    CHECK_INT(entries("."), here);
    close_db(db);
    db = open_at("db");
    for (int i = 0; i < COUNT; i++) {
        cf_t *cf = tidesdb_get_column_family(db, names[i]);
        CHECK(cf != NULL);
        STORED(db, cf, "name", names[i]);
        OK(tidesdb_drop_column_family(db, names[i]));
    }
    STORED(db, tidesdb_get_column_family(db, longest), "name", longest);
    close_db(db);
    CHECK_INT(entries("."), here);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void listing(void)
{
    db_t *db = open_at("db");
    char *nothing = NULL, **names = &nothing;
    int count = 7;
    OK(tidesdb_list_column_families(db, &names, &count));
    CHECK(names == NULL);
    CHECK_INT(count, 0);
    family(db, "b");
    family(db, "a");
    family(db, "c");
    OK(tidesdb_drop_column_family(db, "b"));
    OK(tidesdb_list_column_families(db, &names, &count));
    CHECK_INT(count, 2);
    qsort(names, 2, sizeof names[0], by_text);
    CHECK_STR(names[0], "a");
    CHECK_STR(names[1], "c");
    free(names[0]);
    free(names[1]);
    free(names);
    CHECK_RC(tidesdb_list_column_families(NULL, &names, &count), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_list_column_families(db, NULL, &count), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_list_column_families(db, &names, NULL), TDB_ERR_INVALID_ARGS);
    close_db(db);
}

static void dropping_by_name_and_by_handle(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "f");
    put(db, cf, "key", "value");
    flush(cf);
    OK(tidesdb_drop_column_family(db, "f"));
    CHECK_RC(tidesdb_drop_column_family(db, "f"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_drop_column_family(NULL, "f"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_drop_column_family(db, NULL), TDB_ERR_INVALID_ARGS);
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    CHECK_RC(tidesdb_flush_memtable(cf), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_delete_column_family(db, cf), TDB_ERR_INVALID_ARGS);
    cf = family(db, "f");
    STORED(db, cf, "key", NULL);
    put(db, cf, "key", "value");
    CHECK_RC(tidesdb_delete_column_family(NULL, cf), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_delete_column_family(db, NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_delete_column_family(db, cf));
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    close_db(db);
    db = open_at("db");
    CHECK(tidesdb_get_column_family(db, "f") == NULL);
    close_db(db);
}

static void a_commit_into_a_dropped_family(void)
{
    db_t *db = open_at("db");
    cf_t *gone = family(db, "gone"), *other = family(db, "other");
    txn_t *txn = begin(db);
    OK(tidesdb_txn_put(txn, gone, B("key"), B("value"), 0));
    OK(tidesdb_txn_put(txn, other, B("key"), B("value"), 0));
    OK(tidesdb_drop_column_family(db, "gone"));
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_txn_commit(txn), TDB_ERR_NOT_FOUND);
    OK(tidesdb_txn_rollback(txn));
    OK(tidesdb_txn_reset(txn, TDB_ISOLATION_READ_COMMITTED));
    OK(tidesdb_txn_put(txn, other, B("key2"), B("value"), 0));
    commit(txn);
    WALK(db, other, "key2 ");
    close_db(db);
}

static void renaming(void)
{
    db_t *db = open_at("db");
    cf_t *cf = family(db, "old");
    family(db, "taken");
    put(db, cf, "key", "value");
    OK(tidesdb_rename_column_family(db, "old", "new"));
    CHECK(tidesdb_get_column_family(db, "old") == NULL);
    CHECK(tidesdb_get_column_family(db, "new") == cf);
    STORED(db, cf, "key", "value");
    put(db, cf, "key2", "value2");
    OK(tidesdb_rename_column_family(db, "new", "new"));
    CHECK_RC(tidesdb_rename_column_family(db, "old", "x"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_rename_column_family(db, "new", "taken"), TDB_ERR_EXISTS);
    CHECK_RC(tidesdb_rename_column_family(db, "new", ""), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_rename_column_family(NULL, "new", "x"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_rename_column_family(db, NULL, "x"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_rename_column_family(db, "new", NULL), TDB_ERR_INVALID_ARGS);
    close_db(db);
    db = open_at("db");
    cf = tidesdb_get_column_family(db, "new");
    CHECK(cf != NULL);
    WALK(db, cf, "key key2 ");
    close_db(db);
}

static void cloning(void)
{
    db_t *db = open_at("db");
    cf_t *source = family(db, "source");
    fill(db, source, 0, 100);
    flush(source);
    fill(db, source, 100, 100);
    OK(tidesdb_clone_column_family(db, "source", "copy"));
    cf_t *copy = tidesdb_get_column_family(db, "copy");
    CHECK(copy != NULL && copy != source);
    CHECK_INT(count_keys(db, copy), 200);
    put(db, copy, "only", "here");
    del(db, source, "key000000");
    CHECK_INT(count_keys(db, copy), 201);
    CHECK_INT(count_keys(db, source), 199);
    CHECK_RC(tidesdb_clone_column_family(db, "source", "source"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_clone_column_family(db, "source", "copy"), TDB_ERR_EXISTS);
    CHECK_RC(tidesdb_clone_column_family(db, "none", "x"), TDB_ERR_NOT_FOUND);
    CHECK_RC(tidesdb_clone_column_family(NULL, "source", "x"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_clone_column_family(db, NULL, "x"), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_clone_column_family(db, "source", NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_drop_column_family(db, "source"));
    close_db(db);
    db = open_at("db");
    CHECK_INT(count_keys(db, tidesdb_get_column_family(db, "copy")), 201);
    close_db(db);
}

static void many_families_in_one_transaction(void)
{
    enum { COUNT = 256 };
    int count = scaled(COUNT, 16);
    static cf_t *cfs[COUNT];
    db_t *db = open_at("db");
    txn_t *txn = begin(db);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        cfs[i] = family(db, name);
        OK(tidesdb_txn_put(txn, cfs[i], B(name), B("x"), 0));
    }
    commit(txn);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        STORED(db, cfs[i], name, "x");
    }
    close_db(db);
}

const struct test family_tests[] = {
    TEST(creating),
    TEST(settings_out_of_their_domain),
    TEST(zero_sizes_and_ratios_are_accepted),
    TEST(names_that_are_not_ended),
    TEST(fixed_c9_names_are_data),
    TEST(listing),
    TEST(dropping_by_name_and_by_handle),
    TEST(a_commit_into_a_dropped_family),
    TEST(renaming),
    TEST(cloning),
    TEST(many_families_in_one_transaction),
    END_OF_TESTS,
};
