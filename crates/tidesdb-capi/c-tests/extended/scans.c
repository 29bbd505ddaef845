/* Iterators. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "extended.h"

static tidesdb_x_iter_t *iterate(cf_t *cf, const char *start, const char *end)
{
    tidesdb_x_iter_t *iter = NULL;
    OK(tidesdb_x_iter_new(cf, NULL, B(start), B(end), &iter));
    return iter;
}

static struct shop letters(void)
{
    struct shop shop = open_shop();
    for (char c = 'a'; c <= 'g'; c++) {
        char key[2] = {c, '\0'}, value[2] = {(char)(c - 'a' + 'A'), '\0'};
        x_put(shop.cf, key, value);
        if (c == 'd') flush(shop.cf);
    }
    return shop;
}

static void rows_come_in_both_directions(void)
{
    struct shop shop = letters();
    for (size_t rows = 1; rows < 9; rows++) {
        tidesdb_x_iter_t *iter = iterate(shop.cf, "", "");
        X_NEXT(iter, rows, "a=A b=B c=C d=D e=E f=F g=G ");
        X_PREV(iter, rows, "g=G f=F e=E d=D c=C b=B a=A ");
        X_PREV(iter, rows, "");
        X_NEXT(iter, rows, "a=A b=B c=C d=D e=E f=F g=G ");
        tidesdb_x_iter_free(iter);
        iter = iterate(shop.cf, "", "");
        X_PREV(iter, rows, "g=G f=F e=E d=D c=C b=B a=A ");
        tidesdb_x_iter_free(iter);
    }
    close_db(shop.db);
}

static void bounds_and_prefixes_limit_it(void)
{
    struct shop shop = letters();
    x_put(shop.cf, "cc", "1");
    x_put(shop.cf, "cd", "2");
    tidesdb_x_iter_t *iter = iterate(shop.cf, "b", "d");
    X_NEXT(iter, 2, "b=B c=C cc=1 cd=2 ");
    X_PREV(iter, 3, "cd=2 cc=1 c=C b=B ");
    OK(tidesdb_x_iter_seek(iter, B("a"))); /* before the range */
    X_NEXT(iter, 9, "b=B c=C cc=1 cd=2 ");
    OK(tidesdb_x_iter_seek_for_prev(iter, B("z")));
    X_PREV(iter, 9, "cd=2 cc=1 c=C b=B ");
    OK(tidesdb_x_iter_seek(iter, B("f")));
    X_NEXT(iter, 9, "");
    tidesdb_x_iter_free(iter);
    iter = iterate(shop.cf, "f", "");
    X_NEXT(iter, 9, "f=F g=G ");
    tidesdb_x_iter_free(iter);
    iter = iterate(shop.cf, "", "c");
    X_PREV(iter, 9, "b=B a=A ");
    tidesdb_x_iter_free(iter);
    iter = iterate(shop.cf, "d", "b");
    X_NEXT(iter, 9, "");
    X_PREV(iter, 9, "");
    tidesdb_x_iter_free(iter);
    OK(tidesdb_x_iter_new_prefix(shop.cf, NULL, B("c"), &iter));
    X_NEXT(iter, 9, "c=C cc=1 cd=2 ");
    tidesdb_x_iter_free(iter);
    close_db(shop.db);
}

static void a_seek_goes_between_two_rows(void)
{
    struct shop shop = letters();
    tidesdb_x_iter_t *iter = iterate(shop.cf, "", "");
    OK(tidesdb_x_iter_seek(iter, B("c")));
    X_NEXT(iter, 3, "c=C d=D e=E f=F g=G ");
    OK(tidesdb_x_iter_seek(iter, B("c")));
    X_PREV(iter, 3, "b=B a=A ");
    OK(tidesdb_x_iter_seek(iter, B("cx")));
    X_PREV(iter, 3, "c=C b=B a=A ");
    OK(tidesdb_x_iter_seek_for_prev(iter, B("c")));
    X_PREV(iter, 3, "c=C b=B a=A ");
    OK(tidesdb_x_iter_seek_for_prev(iter, B("c")));
    X_NEXT(iter, 3, "d=D e=E f=F g=G ");
    OK(tidesdb_x_iter_seek(iter, B("x")));
    X_PREV(iter, 1, "g=G f=F e=E d=D c=C b=B a=A ");
    OK(tidesdb_x_iter_seek_for_prev(iter, B("A")));
    X_NEXT(iter, 1, "a=A b=B c=C d=D e=E f=F g=G ");
    OK(tidesdb_x_iter_seek(iter, NULL, 0));
    X_NEXT(iter, 9, "a=A b=B c=C d=D e=E f=F g=G ");
    OK(tidesdb_x_iter_seek_for_prev(iter, NULL, 0));
    X_NEXT(iter, 9, "");
    tidesdb_x_iter_free(iter);
    close_db(shop.db);
}

static void it_turns_round_at_any_row(void)
{
    struct shop shop = letters();
    tidesdb_x_iter_t *iter = iterate(shop.cf, "", "");
    uint8_t buffer[64];
    tidesdb_x_row_t rows[8];
    /* The number of rows that lie before it. */
    size_t at = 0, count = 0, needed = 0;
    uint32_t random = 7;
    OK(tidesdb_x_iter_seek(iter, NULL, 0));
    for (int i = 0; i < 2000; i++) {
        random = random * 1664525 + 1013904223;
        size_t want = 1 + (random >> 20) % 3;
        int forwards = (random >> 28) % 2 == 0;
        size_t left = forwards ? 7 - at : at;
        int rc = forwards ? tidesdb_x_iter_next(iter, buffer, 64, rows, want, &count, &needed)
                          : tidesdb_x_iter_prev(iter, buffer, 64, rows, want, &count, &needed);
        CHECK_RC(rc, left == 0 ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
        if (left == 0) continue;
        CHECK_INT(count, want < left ? want : left);
        for (size_t n = 0; n < count; n++) {
            if (!forwards) at--;
            CHECK_INT(buffer[rows[n].offset], 'a' + at);
            CHECK_INT(buffer[rows[n].offset + 1], 'A' + at);
            if (forwards) at++;
        }
    }
    tidesdb_x_iter_free(iter);
    close_db(shop.db);
}

static void a_row_that_has_no_room_is_not_lost(void)
{
    struct shop shop = open_shop();
    x_put(shop.cf, "a", "1");
    x_put(shop.cf, "b", "0123456789");
    x_put(shop.cf, "c", "3");
    tidesdb_x_iter_t *iter = iterate(shop.cf, "", "");
    uint8_t buffer[11];
    tidesdb_x_row_t rows[4];
    for (int forwards = 1; forwards >= 0; forwards--) {
        size_t count = 77, needed = 77;
#define STEP(room) \
    (forwards ? tidesdb_x_iter_next(iter, buffer, room, rows, 4, &count, &needed) \
              : tidesdb_x_iter_prev(iter, buffer, room, rows, 4, &count, &needed))
        CHECK_RC(STEP(1), TDB_ERR_TOO_LARGE);
        CHECK_INT(count, 77);
        CHECK_INT(needed, 2);
        OK(STEP(10));
        CHECK(count == 1 && needed == 11 && buffer[0] == (forwards ? 'a' : 'c'));
        CHECK_RC(STEP(10), TDB_ERR_TOO_LARGE);
        CHECK_RC(STEP(0), TDB_ERR_TOO_LARGE);
        OK(STEP(11));
        CHECK(count == 1 && needed == 2 && memcmp(buffer, "b0123456789", 11) == 0);
        OK(STEP(11));
        CHECK(count == 1 && needed == 0);
        CHECK_RC(STEP(11), TDB_ERR_NOT_FOUND);
    }
    size_t count = 0;
    OK(tidesdb_x_iter_next(iter, buffer, 11, rows, 4, &count, NULL));
    CHECK_RC(tidesdb_x_iter_next(iter, buffer, 11, rows, 0, &count, NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_x_iter_free(iter);
    close_db(shop.db);
}

static void rows_are_lent(void)
{
    struct shop shop = letters();
    tidesdb_x_iter_t *iter = iterate(shop.cf, "", "");
    const uint8_t *bytes = NULL;
    const tidesdb_x_row_t *rows = NULL;
    size_t count = 0;
    OK(tidesdb_x_iter_lend_next(iter, 3, 1000, &bytes, &rows, &count));
    CHECK(count == 3 && memcmp(bytes, "aAbBcC", 6) == 0 && rows[2].offset == 4);
    OK(tidesdb_x_iter_lend_next(iter, 100, 4, &bytes, &rows, &count));
    CHECK(count == 2 && memcmp(bytes, "dDeE", 4) == 0);
    OK(tidesdb_x_iter_lend_next(iter, 100, 0, &bytes, &rows, &count)); /* one row in any case */
    CHECK(count == 1 && memcmp(bytes, "fF", 2) == 0);
    OK(tidesdb_x_iter_lend_prev(iter, 2, 1000, &bytes, &rows, &count));
    CHECK(count == 2 && memcmp(bytes, "fFeE", 4) == 0);
    CHECK_RC(tidesdb_x_iter_lend_next(iter, 0, 1000, &bytes, &rows, &count), TDB_ERR_INVALID_ARGS);
    OK(tidesdb_x_iter_lend_next(iter, SIZE_MAX, SIZE_MAX, &bytes, &rows, &count));
    CHECK(count == 3 && memcmp(bytes, "eEfFgG", 6) == 0);
    /* The rows outlive the database. */
    close_db(shop.db);
    CHECK(count == 3 && memcmp(bytes, "eEfFgG", 6) == 0 && rows[2].key_size == 1);
    CHECK_RC(tidesdb_x_iter_lend_prev(iter, 1, 1, &bytes, &rows, &count), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_iter_seek(iter, NULL, 0), TDB_ERR_INVALID_ARGS);
    tidesdb_x_iter_free(iter);
    tidesdb_x_iter_free(iter);
    tidesdb_x_iter_free(NULL);
}

static void keys_alone_need_no_values(void)
{
    struct shop shop = letters();
    tidesdb_x_read_options_t keys = {sizeof keys, NULL, NULL, TDB_X_KEYS_ONLY};
    tidesdb_x_iter_t *iter = NULL;
    OK(tidesdb_x_iter_new(shop.cf, &keys, NULL, 0, B("d"), &iter));
    X_NEXT(iter, 2, "a= b= c= ");
    X_PREV(iter, 2, "c= b= a= ");
    tidesdb_x_iter_free(iter);
    close_db(shop.db);
}

/* More rows than the engine reads ahead, of memory, of tables and of value logs, against the base iterator. */
static void long_walks_are_the_same_as_row_by_row(void)
{
    enum { ROWS = 20000 };
    struct shop shop = open_shop();
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    config.klog_value_threshold = 64;
    cf_t *cf = family_with(shop.db, "g", &config);
    int rows = scaled(ROWS, 500);
    for (int i = 0; i < rows; i++) {
        char key[16], value[200];
        snprintf(key, sizeof key, "%08d", i);
        memset(value, 'a' + i % 26, sizeof value);
        OK(tidesdb_x_put(cf, B(key), (const uint8_t *)value, (size_t)(i % 7 == 0 ? 200 : i % 50), NULL, NULL));
        if (i == rows / 2) flush(cf);
        if (i % 3 == 0) OK(tidesdb_x_delete(cf, B(key), NULL, NULL));
    }
    txn_t *txn = begin(shop.db);
    iter_t *base = NULL;
    OK(tidesdb_iter_new(txn, cf, &base));
    OK(tidesdb_iter_seek_to_first(base));
    tidesdb_x_iter_t *iter = iterate(cf, "", "");
    size_t count = 0, all = 0, needed = 0;
    uint8_t buffer[4096];
    tidesdb_x_row_t spans[100];
    while (tidesdb_x_iter_next(iter, buffer, sizeof buffer, spans, 100, &count, &needed) == TDB_SUCCESS) {
        for (size_t i = 0; i < count; i++) {
            uint8_t *key, *value;
            size_t key_size, value_size;
            OK(tidesdb_iter_key_value(base, &key, &key_size, &value, &value_size));
            CHECK(spans[i].key_size == key_size && spans[i].value_size == value_size);
            CHECK(memcmp(buffer + spans[i].offset, key, key_size) == 0);
            CHECK(memcmp(buffer + spans[i].offset + key_size, value, value_size) == 0);
            (void)tidesdb_iter_next(base);
        }
        all += count;
    }
    CHECK_INT(all, rows - (rows + 2) / 3);
    CHECK_INT(tidesdb_iter_valid(base), 0);
    tidesdb_x_iter_free(iter);
    tidesdb_iter_free(base);
    tidesdb_txn_free(txn);
    close_db(shop.db);
}

/* Overwrites bytes in the middle of the largest table. */
static void damage_a_table(const char *folder, int bytes)
{
    char largest[256] = "", path[512];
    long most = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".klog") == NULL || stat(path, &st) != 0 || st.st_size <= most) continue;
        most = (long)st.st_size;
        snprintf(largest, sizeof largest, "%s", entry->d_name);
    }
    closedir(dir);
    CHECK(most > 10000);
    snprintf(path, sizeof path, "%s/%s", folder, largest);
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL && fseek(file, most / 2, SEEK_SET) == 0);
    for (int i = 0; i < bytes; i++) fputc(0x5a, file);
    CHECK(fclose(file) == 0);
}

/* A failure to read must never look like the end. */
static void find_damage(int size, unsigned flags)
{
    tidesdb_x_read_options_t options = {sizeof options, NULL, NULL, flags};
    struct shop shop = open_shop();
    fill(shop.db, shop.cf, 0, 20000);
    OK(tidesdb_x_flush(shop.cf));
    close_db(shop.db);
    damage_a_table("db", size);
    shop.db = open_at("db");
    shop.cf = tidesdb_get_column_family(shop.db, "f");
    tidesdb_x_iter_t *iter = NULL;
    OK(tidesdb_x_iter_new(shop.cf, &options, NULL, 0, NULL, 0, &iter));
    for (int round = 0; round < 2; round++) {
        const uint8_t *bytes;
        const tidesdb_x_row_t *rows;
        size_t count = 0, all = 0;
        int rc;
        while ((rc = tidesdb_x_iter_lend_next(iter, 100, 1 << 20, &bytes, &rows, &count)) == TDB_SUCCESS) all += count;
        CHECK_RC(rc, TDB_ERR_CORRUPTION);
        CHECK(all > 0 && all < 20000);
        for (int i = 0; i < 3; i++) CHECK_RC(tidesdb_x_iter_lend_next(iter, 1, 1, &bytes, &rows, &count), TDB_ERR_CORRUPTION);
        OK(tidesdb_x_iter_seek(iter, NULL, 0));
    }
    OK(tidesdb_x_iter_seek_for_prev(iter, NULL, 0));
    const uint8_t *bytes;
    const tidesdb_x_row_t *rows;
    size_t count = 0;
    OK(tidesdb_x_iter_lend_prev(iter, 1, 1, &bytes, &rows, &count));
    CHECK(memcmp(bytes, "key019999", 9) == 0);
    tidesdb_x_iter_free(iter);
    uint8_t key[1];
    CHECK_RC(tidesdb_x_iter_new(shop.cf, NULL, key, 70000, NULL, 0, &iter), TDB_ERR_INVALID_ARGS);
    tidesdb_x_verified_t verified = {.size = sizeof verified};
    char *faults = NULL;
    OK(tidesdb_x_verify(shop.db, &verified, &faults));
    CHECK(verified.faults >= 1 && strstr(faults, ".klog") != NULL);
    tidesdb_free(faults);
    (void)tidesdb_close(shop.db);
    remove_files("db");
}

static void damage_is_reported_until_the_next_seek(void)
{
    find_damage(64, 0);                  /* of values */
    find_damage(30000, 0);               /* of whole blocks: the iterator cannot move */
    find_damage(30000, TDB_X_KEYS_ONLY); /* with rows before it in the same call */
}

const struct test scan_tests[] = {
    TEST(rows_come_in_both_directions),
    TEST(bounds_and_prefixes_limit_it),
    TEST(a_seek_goes_between_two_rows),
    TEST(it_turns_round_at_any_row),
    TEST(a_row_that_has_no_room_is_not_lost),
    TEST(rows_are_lent),
    TEST(keys_alone_need_no_values),
    TEST(long_walks_are_the_same_as_row_by_row),
    TEST(damage_is_reported_until_the_next_seek),
    END_OF_TESTS,
};
