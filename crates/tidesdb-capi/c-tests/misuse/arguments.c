/* Each pointer NULL in turn, lengths of 0 and huge lengths, numbers out of range. */
#include <stdint.h>

#include "table.h"

static void check_null(struct world *world, const struct row *row, int at)
{
    union arg args[MAX_ARGS] = {{0}};
    char why[32];
    right_args(world, row, args);
    args[at].p = NULL;
    args[at].f = NULL;
    snprintf(why, sizeof why, "argument %d NULL", at + 1);
    long result = row->call(args);
    if (row->nulls[at] == 'x') {
        count_check();
        release(world, row, args, result);
    } else {
        refused(world, row, result, why);
    }
}

static void every_pointer_null_in_turn(void)
{
    struct world world;
    build(&world);
    int cases = 0;
    for (int r = 0; r < row_count; r++) {
        const struct row *row = &rows[r];
        CHECK_INT(strlen(row->kinds), strlen(row->nulls));
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            if (row->nulls[at] == '-') continue;
            check_null(&world, row, at);
            cases++;
        }
    }
    CHECK(cases > 150);
    STORED(world.db, world.cf, "key", "value");
    AT(world.iter, "key");
    tear_down(&world);
}

static void all_pointers_null_at_once(void)
{
    struct world world;
    build(&world);
    for (int r = 0; r < row_count; r++) {
        union arg args[MAX_ARGS] = {{0}};
        const struct row *row = &rows[r];
        right_args(&world, row, args);
        for (int at = 0; row->kinds[at] != '\0'; at++)
            if (is_pointer(row->kinds[at])) args[at].p = NULL;
        long result = row->call(args);
        if (strchr(row->nulls, '2') != NULL) refused(&world, row, result, "all NULL");
    }
    STORED(world.db, world.cf, "key", "value");
    tear_down(&world);
}

/* The functions that check the lengths of keys and values; comparators do not. */
static int has_length(const struct row *row)
{
    return strchr(row->kinds, 'n') != NULL && row->result == 'r';
}

static void lengths_that_cannot_be(void)
{
    static const size_t sizes[] = {(size_t)1 << 32, ((size_t)1 << 32) + 3, (size_t)1 << 40,
                                   SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 1, SIZE_MAX};
    struct world world;
    build(&world);
    for (int r = 0; r < row_count; r++) {
        const struct row *row = &rows[r];
        if (!has_length(row)) continue;
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            for (int s = 0; row->kinds[at] == 'n' && s < 7; s++) {
                union arg args[MAX_ARGS] = {{0}};
                right_args(&world, row, args);
                args[at].n = sizes[s];
                refused(&world, row, row->call(args), "a huge length");
                args[at - 1].p = NULL;
                refused(&world, row, row->call(args), "a huge length of NULL");
            }
        }
    }
    STORED(world.db, world.cf, "key", "value");
    tear_down(&world);
}

static void lengths_of_zero(void)
{
    struct world world;
    build(&world);
    for (int r = 0; r < row_count; r++) {
        const struct row *row = &rows[r];
        if (!has_length(row)) continue;
        for (int at = 0; row->kinds[at] != '\0'; at++) {
            int is_value = at == 5 && strcmp(row->name, "tidesdb_txn_put") == 0;
            if (row->kinds[at] != 'n' || is_value) continue;
            if (strcmp(row->name, "tidesdb_compact_range") == 0) continue;
            union arg args[MAX_ARGS] = {{0}};
            right_args(&world, row, args);
            args[at].n = 0;
            refused(&world, row, row->call(args), "a length of 0");
        }
    }
    tear_down(&world);
}

static void orders_of_nothing(void)
{
    static tidesdb_comparator_fn const orders[] = {
        tidesdb_comparator_memcmp, tidesdb_comparator_lexicographic, tidesdb_comparator_uint64,
        tidesdb_comparator_int64, tidesdb_comparator_reverse_memcmp, tidesdb_comparator_case_insensitive};
    for (int i = 0; i < 6; i++) {
        CHECK_INT(orders[i](NULL, 0, NULL, 0, NULL), 0);
        CHECK_INT(orders[i]((const uint8_t *)"a", 0, (const uint8_t *)"b", 0, NULL), 0);
        int one = orders[i](NULL, 0, (const uint8_t *)"a", 1, NULL);
        int two = orders[i]((const uint8_t *)"a", 1, NULL, 0, NULL);
        CHECK((one < 0 && two > 0) || (one > 0 && two < 0));
    }
}

static void isolations_out_of_their_domain(void)
{
    static const int levels[] = {-1, 5, 6, 99, 1 << 20, INT32_MAX, INT32_MIN};
    struct world world;
    build(&world);
    for (int i = 0; i < 7; i++) {
        txn_t *txn = NULL;
        tidesdb_isolation_level_t level;
        memcpy(&level, &levels[i], sizeof level);
        CHECK_RC(tidesdb_txn_begin_with_isolation(world.db, level, &txn), TDB_ERR_INVALID_ARGS);
        CHECK(txn == NULL);
        CHECK_RC(tidesdb_txn_reset(world.txn, level), TDB_ERR_INVALID_ARGS);
    }
    tear_down(&world);
}

/* Structures of random bytes, except for their strings and pointers. */
static void settings_of_any_bytes(void)
{
    struct world world;
    build(&world);
    for (int byte = 0; byte < 256; byte += 5) {
        tidesdb_column_family_config_t c;
        memset(&c, byte, sizeof c);
        c.comparator_name[0] = '\0';
        c.commit_hook_fn = NULL;
        c.comparator_fn_cached = c.comparator_ctx_cached = c.commit_hook_ctx = NULL;
        int rc = tidesdb_create_column_family(world.db, "g", &c);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_INVALID_ARGS);
        if (rc == TDB_SUCCESS) OK(tidesdb_drop_column_family(world.db, "g"));
        rc = tidesdb_cf_update_runtime_config(world.cf, &c, 0);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_INVALID_ARGS);
        rc = tidesdb_cf_config_save_to_ini("f.ini", "f", &c);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_INVALID_ARGS);
    }
    put(world.db, world.cf, "key", "value");
    STORED(world.db, world.cf, "key", "value");
    tear_down(&world);
}

static void ini_files_of_any_bytes(void)
{
    uint32_t random = 12345;
    for (int round = 0, rounds = scaled(2000, 50); round < rounds; round++) {
        static const char *const pieces[] = {"[f]", "=", "\n", "sync_mode", " ", "min_levels = ", "99999999999999999999",
                                             "-1", "\"", ";", "[", "]", "\xff\xfe", "compression_algorithm = LZ4\n",
                                             "bloom_fpr = nan\n", "comparator_name = ", "aaaaaaaaaaaaaaaaaaaaaaaa"};
        char text[1024] = "";
        for (int i = 0; i < 24; i++) {
            random = random * 1664525 + 1013904223;
            strcat(text, pieces[(random >> 16) % (sizeof pieces / sizeof pieces[0])]);
        }
        write_file("f.ini", text);
        tidesdb_column_family_config_t c, before;
        memset(&c, 0x5a, sizeof c);
        before = c;
        int rc = tidesdb_cf_config_load_from_ini("f.ini", "f", &c);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_CORRUPTION || rc == TDB_ERR_INVALID_ARGS);
        if (rc != TDB_SUCCESS) CHECK(memcmp(&c, &before, sizeof c) == 0);
    }
}

const struct test argument_tests[] = {
    TEST(every_pointer_null_in_turn),
    TEST(all_pointers_null_at_once),
    TEST(lengths_that_cannot_be),
    TEST(lengths_of_zero),
    TEST(orders_of_nothing),
    TEST(isolations_out_of_their_domain),
    TEST(settings_of_any_bytes),
    TEST(ini_files_of_any_bytes),
    END_OF_TESTS,
};
