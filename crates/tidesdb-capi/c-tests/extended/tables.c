/* Tables of sorted rows: built, taken, and refused. */
#include <stdlib.h>

#include "extended.h"

static const char *key_of(int n)
{
    static char key[16];
    snprintf(key, sizeof key, "k%06d", n);
    return key;
}

/* The fastest way to load sorted rows: one call for each, one commit for all. */
static void sorted_rows_are_taken_as_one_commit(void)
{
    struct shop shop = open_shop();
    const int rows = scaled(50000, 2000);
    tidesdb_x_builder_t *builder = NULL;
    tidesdb_x_ingested_t taken = {.size = sizeof taken};
    tidesdb_x_snapshot_t *before = NULL;
    x_put(shop.cf, "k000001", "old");
    OK(tidesdb_x_snapshot_new(shop.db, &before));
    OK(tidesdb_x_builder_new(shop.cf, NULL, &builder));
    for (int n = 0; n < rows; n++) OK(tidesdb_x_builder_put(builder, B(key_of(n)), B("value"), NULL));
    X_GET(shop.cf, NULL, "k000001", "old");
    OK(tidesdb_x_builder_commit(builder, NULL, &taken));
    CHECK_INT(taken.rows, rows);
    CHECK(taken.seq > 0 && taken.tables >= 1 && taken.bytes > (uint64_t)rows);
    X_GET(shop.cf, NULL, "k000001", "value");
    const tidesdb_x_read_options_t then = {.size = sizeof then, .snapshot = before};
    X_GET(shop.cf, &then, "k000001", "old");
    X_GET(shop.cf, &then, "k000002", NULL);
    CHECK_RC(tidesdb_x_builder_commit(builder, NULL, NULL), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_builder_put(builder, B("z"), B("z"), NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_x_builder_free(builder);
    tidesdb_x_snapshot_free(before);
    close_db(shop.db);
    shop.db = open_at("db");
    X_GET(family(shop.db, "f"), NULL, key_of(rows - 1), "value");
    close_db(shop.db);
}

/* Tables of two families, built outside, taken together; long values come along. */
static void tables_of_two_families_are_taken_together(void)
{
    struct shop shop = open_shop();
    cf_t *other = family(shop.db, "other");
    static uint8_t longer[100000];
    memset(longer, 'x', sizeof longer);
    cf_t *cfs[] = {shop.cf, other};
    const char *stems[] = {"one", "two"};
    const char **paths[2] = {NULL, NULL};
    tidesdb_x_tables_t tables[2];
    x_put(shop.cf, "delete me", "value");
    x_put(shop.cf, "m1", "value");
    for (int i = 0; i < 2; i++) {
        tidesdb_x_builder_t *builder = NULL;
        size_t count = 0;
        OK(tidesdb_x_builder_new(cfs[i], stems[i], &builder));
        static const uint8_t kinds[] = {TDB_X_OP_PUT, TDB_X_OP_DELETE, TDB_X_OP_DELETE_RANGE, TDB_X_OP_PUT};
        static const size_t sizes[] = {1, 1, 9, 0, 1, 1, 1, 2};
        OK(tidesdb_x_builder_add(builder, kinds, (const uint8_t *)"a1delete memnnno", sizes, 4, NULL));
        OK(tidesdb_x_builder_put(builder, B("z"), longer, sizeof longer, NULL));
        CHECK_RC(tidesdb_x_builder_put(builder, B("b"), B("late"), NULL), TDB_ERR_INVALID_ARGS);
        CHECK(strstr(tidesdb_last_error(), "operation") == NULL);
        static const size_t late[] = {1, 1, 1, 0};
        CHECK_RC(tidesdb_x_builder_add(builder, kinds + 2, (const uint8_t *)"xyb", late, 2, NULL), TDB_ERR_INVALID_ARGS);
        CHECK(strstr(tidesdb_last_error(), "operation 1: ") != NULL);
        CHECK_RC(tidesdb_x_builder_commit(builder, NULL, NULL), TDB_ERR_INVALID_ARGS);
        OK(tidesdb_x_builder_finish(builder, &paths[i], &count));
        CHECK_INT(count, 1);
        CHECK(strstr(paths[i][0], i == 0 ? "one-000001.klog" : "two-000001.klog") != NULL);
        CHECK_RC(tidesdb_x_builder_finish(builder, &paths[i], &count), TDB_ERR_INVALID_ARGS);
        tidesdb_x_builder_free(builder);
        tables[i].cf = cfs[i];
        tables[i].paths = paths[i];
        tables[i].count = 1;
    }
    tidesdb_x_ingested_t taken = {.size = sizeof taken};
    const tidesdb_x_write_options_t synced = {.size = sizeof synced, .sync_mode = TDB_X_SYNC_FULL};
    OK(tidesdb_x_ingest(shop.db, tables, 1, TDB_X_COPY, NULL, NULL));
    OK(tidesdb_x_ingest(shop.db, tables, 2, TDB_X_MOVE, &synced, &taken));
    CHECK_INT(taken.tables, 2);
    CHECK_INT(taken.rows, 8);
    for (int i = 0; i < 2; i++) {
        X_GET(cfs[i], NULL, "a", "1");
        X_GET(cfs[i], NULL, "delete me", NULL);
        X_GET(cfs[i], NULL, "m1", NULL);
        X_GET(cfs[i], NULL, "n", "no");
        CHECK_RC(tidesdb_x_ingest(shop.db, &tables[i], 1, TDB_X_COPY, NULL, NULL), TDB_ERR_IO);
    }
    uint64_t size = 0;
    tidesdb_x_value_reader_t *reader = NULL;
    OK(tidesdb_x_value_reader_new(other, B("z"), NULL, &reader, &size));
    CHECK_INT(size, sizeof longer);
    tidesdb_x_value_reader_free(reader);
    CHECK_RC(tidesdb_x_ingest(shop.db, tables, 1, 3, NULL, NULL), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_ingest(shop.db, NULL, 0, TDB_X_LINK, NULL, &taken));
    CHECK_INT(taken.seq, 0);
    for (int i = 0; i < 2; i++) tidesdb_free(paths[i]);
    close_db(shop.db);
}

/* A builder belongs to its database: a close ends it, and its files go. */
static void what_is_not_finished_leaves_nothing(void)
{
    struct shop shop = open_shop();
    tidesdb_x_builder_t *dropped = NULL, *closed = NULL;
    OK(tidesdb_x_builder_new(shop.cf, "dropped", &dropped));
    OK(tidesdb_x_builder_put(dropped, B("a"), B("1"), NULL));
    tidesdb_x_builder_free(dropped);
    OK(tidesdb_x_builder_new(shop.cf, NULL, &closed));
    OK(tidesdb_x_builder_put(closed, B("a"), B("1"), NULL));
    const tidesdb_x_write_options_t never = {.size = sizeof never, .sync_mode = TDB_X_SYNC_FULL};
    CHECK_RC(tidesdb_x_builder_put(closed, B("b"), B("1"), &never), TDB_ERR_INVALID_ARGS);
    close_db(shop.db);
    CHECK_RC(tidesdb_x_builder_put(closed, B("b"), B("1"), NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_x_builder_free(closed);
    FILE *left = fopen("dropped-000001.klog", "rb");
    CHECK(left == NULL);
    shop.db = open_at("db");
    X_GET(family(shop.db, "f"), NULL, "a", NULL);
    close_db(shop.db);
}

const struct test table_tests[] = {
    TEST(sorted_rows_are_taken_as_one_commit),
    TEST(tables_of_two_families_are_taken_together),
    TEST(what_is_not_finished_leaves_nothing),
    END_OF_TESTS,
};
