/* Values that are written and read piece by piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extended.h"

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 2654435761u >> 13);
}

static tidesdb_x_value_writer_t *write_value(cf_t *cf, const char *key, uint64_t size)
{
    static uint8_t piece[100000];
    tidesdb_x_value_writer_t *writer = NULL;
    OK(tidesdb_x_value_writer_new(cf, B(key), NULL, &writer));
    for (uint64_t at = 0; at < size;) {
        size_t n = size - at < sizeof piece ? (size_t)(size - at) : sizeof piece;
        for (size_t i = 0; i < n; i++) piece[i] = byte_at(at + i);
        OK(tidesdb_x_value_writer_write(writer, piece, n));
        at += n;
    }
    return writer;
}

static void check_value(cf_t *cf, const tidesdb_x_read_options_t *options, const char *key, uint64_t want)
{
    static uint8_t piece[77777];
    tidesdb_x_value_reader_t *reader = NULL;
    uint64_t size = 0, at = 0;
    size_t n = 0;
    OK(tidesdb_x_value_reader_new(cf, B(key), options, &reader, &size));
    CHECK_INT(size, want);
    do {
        OK(tidesdb_x_value_reader_read(reader, piece, sizeof piece, &n));
        CHECK(n == sizeof piece || at + n == want);
        for (size_t i = 0; i < n; i++)
            if (piece[i] != byte_at(at + i)) fail(__FILE__, __LINE__, "byte %llu", (unsigned long long)(at + i));
        at += n;
    } while (n > 0);
    CHECK_INT(at, want);
    OK(tidesdb_x_value_reader_read_at(reader, want / 2, piece, 10, &n));
    CHECK_INT(n, want - want / 2 < 10 ? want - want / 2 : 10);
    for (size_t i = 0; i < n; i++) CHECK_INT(piece[i], byte_at(want / 2 + i));
    OK(tidesdb_x_value_reader_read_at(reader, UINT64_MAX, piece, 10, &n));
    CHECK_INT(n, 0);
    OK(tidesdb_x_value_reader_read(reader, NULL, 0, &n));
    CHECK_INT(n, 0);
    tidesdb_x_value_reader_free(reader);
    CHECK_RC(tidesdb_x_value_reader_read(reader, piece, 1, &n), TDB_ERR_INVALID_ARGS);
}

static void a_long_value_is_written_and_read_in_pieces(void)
{
    struct shop shop = open_shop();
    const uint64_t sizes[] = {0, 1, 999, 1 << 20, (uint64_t)scaled(40, 9) << 20};
    for (int i = 0; i < 5; i++) {
        tidesdb_x_value_writer_t *writer = write_value(shop.cf, "film", sizes[i]);
        CHECK_RC(tidesdb_x_contains(shop.cf, B("film"), NULL), i == 0 ? TDB_ERR_NOT_FOUND : TDB_SUCCESS);
        uint64_t seq = 0;
        OK(tidesdb_x_value_writer_commit(writer, &seq));
        CHECK(seq > 0);
        CHECK_RC(tidesdb_x_value_writer_commit(writer, NULL), TDB_ERR_INVALID_ARGS);
        CHECK_RC(tidesdb_x_value_writer_write(writer, (const uint8_t *)"a", 1), TDB_ERR_INVALID_ARGS);
        tidesdb_x_value_writer_free(writer);
        tidesdb_x_value_writer_free(writer);
        check_value(shop.cf, NULL, "film", sizes[i]);
        flush(shop.cf);
        check_value(shop.cf, NULL, "film", sizes[i]);
    }
    tidesdb_x_value_writer_free(NULL);
    tidesdb_x_value_reader_free(NULL);
    tidesdb_x_value_reader_t *reader = NULL;
    CHECK_RC(tidesdb_x_value_reader_new(shop.cf, B("none"), NULL, &reader, NULL), TDB_ERR_NOT_FOUND);
    CHECK(reader == NULL);
    close_db(shop.db);
}

static void a_value_joins_a_transaction(void)
{
    struct shop shop = open_shop();
    txn_t *txn = begin(shop.db);
    tidesdb_x_value_writer_t *writer = write_value(shop.cf, "film", 9 << 20);
    OK(tidesdb_x_value_writer_join(writer, txn));
    CHECK_RC(tidesdb_x_value_writer_join(writer, txn), TDB_ERR_INVALID_ARGS);
    tidesdb_x_value_writer_free(writer);
    tidesdb_x_read_options_t in = {sizeof in, txn, NULL, 0};
    check_value(shop.cf, &in, "film", 9 << 20);
    CHECK_RC(tidesdb_x_contains(shop.cf, B("film"), NULL), TDB_ERR_NOT_FOUND);
    commit(txn);
    check_value(shop.cf, NULL, "film", 9 << 20);
    /* One that is not committed leaves nothing, and expiry works as for a put. */
    writer = write_value(shop.cf, "draft", 9 << 20);
    tidesdb_x_value_writer_free(writer);
    CHECK_RC(tidesdb_x_contains(shop.cf, B("draft"), NULL), TDB_ERR_NOT_FOUND);
    tidesdb_x_write_options_t at = {sizeof at, TDB_X_SYNC_FULL, 0, 0, 0, UINT64_C(4102444800000)};
    OK(tidesdb_x_value_writer_new(shop.cf, B("late"), &at, &writer));
    OK(tidesdb_x_value_writer_write(writer, (const uint8_t *)"abc", 3));
    OK(tidesdb_x_value_writer_commit(writer, NULL));
    tidesdb_x_value_writer_free(writer);
    uint64_t expiry = 0;
    OK(tidesdb_x_expiry(shop.cf, B("late"), NULL, &expiry));
    CHECK_INT(expiry, at.expires_at_ms);
    X_GET(shop.cf, NULL, "late", "abc");
    close_db(shop.db);
}

static void a_reader_keeps_its_value(void)
{
    struct shop shop = open_shop();
    tidesdb_x_value_writer_t *writer = write_value(shop.cf, "film", 9 << 20), *open = NULL;
    OK(tidesdb_x_value_writer_commit(writer, NULL));
    tidesdb_x_value_writer_free(writer);
    tidesdb_x_value_reader_t *reader = NULL;
    uint64_t size = 0;
    OK(tidesdb_x_value_reader_new(shop.cf, B("film"), NULL, &reader, &size));
    x_put(shop.cf, "film", "short");
    flush(shop.cf);
    OK(tidesdb_compact(shop.cf));
    uint8_t piece[16];
    size_t n = 0;
    OK(tidesdb_x_value_reader_read_at(reader, size - 5, piece, sizeof piece, &n));
    CHECK_INT(n, 5);
    for (size_t i = 0; i < n; i++) CHECK_INT(piece[i], byte_at(size - 5 + i));
    OK(tidesdb_x_value_writer_new(shop.cf, B("open"), NULL, &open));
    OK(tidesdb_x_value_writer_write(open, piece, sizeof piece));
    close_db(shop.db);
    CHECK_RC(tidesdb_x_value_reader_read(reader, piece, 1, &n), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_value_writer_write(open, piece, 1), TDB_ERR_INVALID_ARGS);
    CHECK_RC(tidesdb_x_value_writer_commit(open, NULL), TDB_ERR_INVALID_ARGS);
    tidesdb_x_value_reader_free(reader);
    tidesdb_x_value_writer_free(open);
}

/* Changes a byte in the last third of the largest value log. */
static void damage_values(void)
{
    char path[64], largest[64] = "";
    long most = 0;
    for (int n = 0; n < 100; n++) {
        snprintf(path, sizeof path, "db/%06d.vlog", n);
        FILE *file = fopen(path, "rb");
        if (file == NULL) continue;
        CHECK(fseek(file, 0, SEEK_END) == 0);
        if (ftell(file) > most) {
            most = ftell(file);
            strcpy(largest, path);
        }
        fclose(file);
    }
    CHECK(most > 0);
    FILE *file = fopen(largest, "r+b");
    CHECK(file != NULL && fseek(file, most / 3 * 2, SEEK_SET) == 0);
    int byte = fgetc(file);
    CHECK(fseek(file, most / 3 * 2, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF);
    CHECK(fclose(file) == 0);
}

/* Opens a database whose value "film" has `size` bytes and is damaged. */
static db_t *open_damaged(size_t size)
{
    struct shop shop = open_shop();
    tidesdb_x_value_writer_t *writer = write_value(shop.cf, "film", size);
    OK(tidesdb_x_value_writer_commit(writer, NULL));
    tidesdb_x_value_writer_free(writer);
    close_db(shop.db);
    damage_values();
    return open_at("db");
}

/* Regression test: a read that failed in the middle returned what it had, as at the end of the value. */
static void a_read_that_fails_is_no_short_one(void)
{
    const size_t size = 6 << 20;
    db_t *db = open_damaged(size);
    cf_t *cf = family(db, "f");
    tidesdb_x_value_reader_t *reader = NULL;
    uint8_t *all = malloc(size), piece[16];
    size_t n = 0;
    CHECK(all != NULL);
    OK(tidesdb_x_value_reader_new(cf, B("film"), NULL, &reader, NULL));
    OK(tidesdb_x_value_reader_read(reader, piece, sizeof piece, &n));
    for (int i = 0; i < 2; i++) CHECK_RC(tidesdb_x_value_reader_read(reader, all, size, &n), TDB_ERR_CORRUPTION);
    CHECK_RC(tidesdb_x_value_reader_read_at(reader, 5, all, size, &n), TDB_ERR_CORRUPTION);
    OK(tidesdb_x_value_reader_read(reader, piece, sizeof piece, &n)); /* where the read began that has failed */
    CHECK_INT(n, sizeof piece);
    for (size_t i = 0; i < n; i++) CHECK_INT(piece[i], byte_at(5 + i));
    tidesdb_x_value_reader_free(reader);
    free(all);
    close_db(db);
}

/* Regression test: a read that ended with a piece of the value loaded the next one, and failed if that was damaged. */
static void a_full_buffer_needs_no_further_piece(void)
{
    const size_t size = 6 << 20, piece = 1 << 20;
    db_t *db = open_damaged(size);
    tidesdb_x_value_reader_t *reader = NULL;
    uint8_t *all = malloc(size);
    size_t n = 0, whole = 0;
    CHECK(all != NULL);
    OK(tidesdb_x_value_reader_new(family(db, "f"), B("film"), NULL, &reader, NULL));
    while (whole < size && tidesdb_x_value_reader_read_at(reader, whole, all, 1, &n) == TDB_SUCCESS) whole += piece;
    CHECK(whole >= piece && whole < size);
    OK(tidesdb_x_value_reader_read_at(reader, whole - 10, all, 10, &n));
    CHECK_INT(n, 10);
    OK(tidesdb_x_value_reader_read_at(reader, 0, all, whole, &n));
    CHECK_INT(n, whole);
    for (size_t i = 0; i < n; i++) CHECK_INT(all[i], byte_at(i));
    OK(tidesdb_x_value_reader_read(reader, NULL, 0, &n));
    CHECK_INT(n, 0);
    CHECK_RC(tidesdb_x_value_reader_read(reader, all, 1, &n), TDB_ERR_CORRUPTION);
    tidesdb_x_value_reader_free(reader);
    free(all);
    close_db(db);
}

const struct test value_tests[] = {
    TEST(a_long_value_is_written_and_read_in_pieces),
    TEST(a_value_joins_a_transaction),
    TEST(a_reader_keeps_its_value),
    TEST(a_read_that_fails_is_no_short_one),
    TEST(a_full_buffer_needs_no_further_piece),
    END_OF_TESTS,
};
