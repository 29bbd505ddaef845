/* Snapshots. */
#include "extended.h"

static void a_snapshot_shows_what_was_committed_before(void)
{
    struct shop shop = open_shop();
    cf_t *other = family(shop.db, "g");
    x_put(shop.cf, "a", "1");
    x_put(other, "b", "1");
    tidesdb_x_read_options_t at = {sizeof at, NULL, NULL, 0};
    OK(tidesdb_x_snapshot_new(shop.db, &at.snapshot));
    uint64_t seq = 0, later = 0;
    OK(tidesdb_x_snapshot_seq(at.snapshot, &seq));
    OK(tidesdb_x_put(shop.cf, B("a"), B("2"), NULL, &later));
    CHECK(later > seq);
    OK(tidesdb_x_delete_range(other, NULL, 0, NULL, 0, NULL, NULL));
    flush(shop.cf);
    OK(tidesdb_compact(shop.cf));
    X_GET(shop.cf, &at, "a", "1");
    X_GET(shop.cf, NULL, "a", "2");
    X_ROWS(other, &at, "b=1 ");
    X_ROWS(other, NULL, "");
    uint8_t buffer[8];
    tidesdb_x_row_t row;
    OK(tidesdb_x_first(other, &at, buffer, 8, &row));
    OK(tidesdb_x_last(other, &at, buffer, 8, &row));
    OK(tidesdb_x_contains(other, B("b"), &at));
    size_t size = 1, needed;
    tidesdb_x_span_t span;
    OK(tidesdb_x_multi_get(shop.cf, (const uint8_t *)"a", &size, 1, &at, buffer, 8, &span, &needed));
    CHECK(needed == 1 && buffer[0] == '1');
    OK(tidesdb_x_multi_contains(other, (const uint8_t *)"b", &size, 1, &at, buffer));
    CHECK_INT(buffer[0], 1);
    OK(tidesdb_x_expiry(other, B("b"), &at, &seq));
    tidesdb_x_snapshot_free(at.snapshot);
    CHECK_RC(tidesdb_x_contains(other, B("b"), &at), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_snapshot_seq(at.snapshot, &seq), TDB_ERR_INVALID_ARGS);
    tidesdb_x_snapshot_free(at.snapshot);
    tidesdb_x_snapshot_free(NULL);
    close_db(shop.db);
}

static void a_snapshot_of_the_past_needs_its_history(void)
{
    struct shop shop = open_shop();
    uint64_t first = 0;
    tidesdb_x_read_options_t at = {sizeof at, NULL, NULL, 0};
    OK(tidesdb_x_put(shop.cf, B("a"), B("1"), NULL, &first));
    OK(tidesdb_x_snapshot_at(shop.db, first, &at.snapshot));
    X_GET(shop.cf, &at, "a", "1");
    tidesdb_x_snapshot_free(at.snapshot);
    tidesdb_x_snapshot_t *none = NULL;
    CHECK_RC(tidesdb_x_snapshot_at(shop.db, first + 1000000, &none), TDB_ERR_INVALID_ARGS);
    CHECK(none == NULL);
    close_db(shop.db);
}

static void a_snapshot_ends_with_its_database(void)
{
    struct shop shop = open_shop();
    db_t *second = open_at("second");
    cf_t *foreign = family(second, "f");
    x_put(shop.cf, "a", "1");
    x_put(foreign, "a", "1");
    tidesdb_x_read_options_t at = {sizeof at, NULL, NULL, 0};
    OK(tidesdb_x_snapshot_new(shop.db, &at.snapshot));
    CHECK_RC(tidesdb_x_contains(foreign, B("a"), &at), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_contains(shop.cf, B("a"), &at));
    close_db(shop.db);
    CHECK_RC(tidesdb_x_contains(shop.cf, B("a"), &at), TDB_ERR_INVALID_ARGS);
    tidesdb_x_snapshot_free(at.snapshot);
    X_GET(foreign, NULL, "a", "1");
    close_db(second);
}

const struct test snapshot_tests[] = {
    TEST(a_snapshot_shows_what_was_committed_before),
    TEST(a_snapshot_of_the_past_needs_its_history),
    TEST(a_snapshot_ends_with_its_database),
    END_OF_TESTS,
};
