/*
 * Random calls of the extended interface with random arguments: handles that are valid, freed, of another kind or invented; keys, sizes and
 * options that are valid or not. TDB_SEED=n repeats a run, TDB_CALLS=n sets its length.
 */
#include <stdlib.h>

#include "extended.h"

enum { POOL = 16, KINDS = 9 };

static const char kinds[] = "DCTBISVWL";

static void *pools[KINDS][POOL];
/* Every database that was opened: the pool may have lost its last handle. */
static db_t *opened[4096];
static size_t opens;
static uint64_t state;
static uint8_t bytes[70000], buffer[4096];
static long successes, refusals;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(2685821657736338717) >> 16;
}

static int one_in(int n)
{
    return draw() % (uint64_t)n == 0;
}

static void *some(char kind)
{
    if (one_in(50)) kind = kinds[draw() % KINDS];
    if (one_in(100)) return (void *)(uintptr_t)draw();
    void *handle = pools[strchr(kinds, kind) - kinds][draw() % POOL];
    return one_in(100) ? (void *)((uintptr_t)handle ^ (uintptr_t)1 << draw() % 64) : handle;
}

/* Puts a handle into its pool. Returns the one that it takes the place of. */
static void *keep(char kind, void *handle)
{
    void **place = &pools[strchr(kinds, kind) - kinds][draw() % POOL], *old = *place;
    *place = handle;
    return old;
}

static size_t some_size(void)
{
    if (one_in(300)) return SIZE_MAX - draw() % 9;
    if (one_in(100)) return draw() % sizeof bytes;
    return one_in(20) ? 0 : 1 + draw() % 3;
}

static const uint8_t *some_key(void)
{
    return one_in(200) ? NULL : bytes + draw() % 5;
}

static tidesdb_x_read_options_t *some_reading(void)
{
    static tidesdb_x_read_options_t options;
    memset(&options, 0, sizeof options);
    if (one_in(4)) return NULL;
    options.size = one_in(100) ? draw() % 100 : sizeof options;
    if (one_in(3)) options.txn = some('T');
    else if (one_in(3)) options.snapshot = some('S');
    options.flags = one_in(4) ? (unsigned)draw() % 5 : 0;
    return &options;
}

static tidesdb_x_write_options_t *some_writing(void)
{
    static tidesdb_x_write_options_t options;
    memset(&options, 0, sizeof options);
    if (one_in(2)) return NULL;
    options.size = one_in(100) ? draw() % 100 : sizeof options;
    if (one_in(8)) options.sync_mode = (int)(draw() % 6) - 1;
    if (one_in(8)) options.sync_interval_us = draw();
    if (one_in(6)) options.ttl_ms = draw() >> draw() % 60;
    if (one_in(20)) options.expires_at_ms = draw() >> draw() % 60;
    if (one_in(20)) options.flags = (unsigned)draw() % 3;
    return &options;
}

static void judge(const char *name, int rc)
{
    count_check();
    if (rc > 0 || rc == TDB_ERR_UNKNOWN || (rc < TDB_ERR_PRECONDITION && rc != TDB_X_ERR_MERGE))
        fail(__FILE__, __LINE__, "%s returned %d", name, rc);
    if (rc == TDB_SUCCESS) successes++;
    else refusals++;
}

#define CALL(function, ...) judge(#function, function(__VA_ARGS__))

/* Creates an object of a random kind in the place of an older one. */
static void create(void)
{
    void *handle = NULL, *old = NULL;
    switch (draw() % 7) {
    case 0:
        if (tidesdb_txn_begin_with_isolation(some('D'), (tidesdb_isolation_level_t)(draw() % 5), (txn_t **)&handle) == TDB_SUCCESS)
            old = keep('T', handle);
        tidesdb_txn_free(old);
        break;
    case 1:
        CALL(tidesdb_x_batch_new, some('D'), (tidesdb_x_batch_t **)&handle);
        if (handle != NULL) old = keep('B', handle);
        tidesdb_x_batch_free(old);
        break;
    case 2:
        if (one_in(2))
            CALL(tidesdb_x_iter_new, some('C'), some_reading(), some_key(), some_size(), some_key(), some_size(), (tidesdb_x_iter_t **)&handle);
        else CALL(tidesdb_x_iter_new_prefix, some('C'), some_reading(), some_key(), some_size(), (tidesdb_x_iter_t **)&handle);
        if (handle != NULL) old = keep('I', handle);
        tidesdb_x_iter_free(old);
        break;
    case 3:
        if (one_in(2)) CALL(tidesdb_x_snapshot_new, some('D'), (tidesdb_x_snapshot_t **)&handle);
        else CALL(tidesdb_x_snapshot_at, some('D'), draw() >> draw() % 60, (tidesdb_x_snapshot_t **)&handle);
        if (handle != NULL) old = keep('S', handle);
        tidesdb_x_snapshot_free(old);
        break;
    case 4:
        CALL(tidesdb_x_value_reader_new, some('C'), some_key(), some_size(), some_reading(), (tidesdb_x_value_reader_t **)&handle, NULL);
        if (handle != NULL) old = keep('V', handle);
        tidesdb_x_value_reader_free(old);
        break;
    case 5:
        CALL(tidesdb_x_builder_new, some('C'), one_in(4) ? "random" : NULL, (tidesdb_x_builder_t **)&handle);
        if (handle != NULL) old = keep('L', handle);
        tidesdb_x_builder_free(old);
        break;
    default:
        CALL(tidesdb_x_value_writer_new, some('C'), some_key(), some_size(), some_writing(), (tidesdb_x_value_writer_t **)&handle);
        if (handle != NULL) old = keep('W', handle);
        tidesdb_x_value_writer_free(old);
    }
}

static void write_something(void)
{
    static const uint8_t kinds_of_operations[] = {0, 1, 2, 3, 4, 5, 0, 6};
    static size_t sizes[8];
    for (int i = 0; i < 8; i++) sizes[i] = one_in(50) ? some_size() : draw() % 3;
    int swapped;
    tidesdb_x_span_t span;
    tidesdb_x_row_t row;
    size_t size;
    switch (draw() % 16) {
    case 0: CALL(tidesdb_x_delete, some('C'), some_key(), some_size(), some_writing(), NULL); break;
    case 1: CALL(tidesdb_x_merge, some('C'), some_key(), some_size(), some_key(), some_size(), some_writing(), NULL); break;
    case 2: CALL(tidesdb_x_delete_range, some('C'), some_key(), some_size(), some_key(), some_size(), some_writing(), NULL); break;
    case 3: CALL(tidesdb_x_delete_prefix, some('C'), some_key(), some_size(), some_writing(), NULL); break;
    case 4: CALL(tidesdb_x_txn_put, some('T'), some('C'), some_key(), some_size(), some_key(), some_size(), some_writing()); break;
    case 5: CALL(tidesdb_x_txn_merge, some('T'), some('C'), some_key(), some_size(), some_key(), some_size()); break;
    case 6: CALL(tidesdb_x_txn_delete_range, some('T'), some('C'), some_key(), some_size(), some_key(), some_size()); break;
    case 7: CALL(tidesdb_x_txn_commit, some('T'), some_writing(), NULL); break;
    case 8:
        CALL(tidesdb_x_batch_add, some('B'), some('C'), one_in(2) ? NULL : kinds_of_operations + draw() % 4, some_key(), sizes, draw() % 5,
             some_writing());
        break;
    case 9: CALL(tidesdb_x_batch_write, some('B'), some_writing(), NULL); break;
    case 10: CALL(tidesdb_x_batch_clear, some('B')); break;
    case 11:
        CALL(tidesdb_x_compare_and_swap, some('C'), some_key(), some_size(), some_key(), some_size(), some_key(), some_size(),
             some_writing(), &swapped);
        break;
    case 12:
        CALL(tidesdb_x_replace, some('C'), some_key(), some_size(), some_key(), some_size(), some_writing(), buffer, draw() % 5, &span);
        break;
    case 13: CALL(tidesdb_x_take, some('C'), some_key(), some_size(), some_writing(), buffer, draw() % 5, &size); break;
    case 14: CALL(tidesdb_x_pop_last, some('C'), some_writing(), buffer, draw() % 9, &row); break;
    default: CALL(tidesdb_x_put, some('C'), some_key(), some_size(), some_key(), some_size(), some_writing(), NULL);
    }
}

static void read_something(void)
{
    static tidesdb_x_row_t rows[8];
    static tidesdb_x_span_t spans[4];
    static size_t sizes[4];
    for (int i = 0; i < 4; i++) sizes[i] = one_in(50) ? some_size() : 1 + draw() % 2;
    size_t count, needed;
    uint64_t number;
    switch (draw() % 12) {
    case 0: CALL(tidesdb_x_contains, some('C'), some_key(), some_size(), some_reading()); break;
    case 1: CALL(tidesdb_x_multi_get, some('C'), some_key(), sizes, draw() % 5, some_reading(), buffer, draw() % 50, spans, &needed); break;
    case 2: CALL(tidesdb_x_first, some('C'), some_reading(), buffer, draw() % 9, rows); break;
    case 3: CALL(tidesdb_x_expiry, some('C'), some_key(), some_size(), some_reading(), &number); break;
    case 4: CALL(tidesdb_x_iter_seek, some('I'), some_key(), some_size()); break;
    case 5: CALL(tidesdb_x_iter_seek_for_prev, some('I'), some_key(), some_size()); break;
    case 6:
    case 7: CALL(tidesdb_x_iter_next, some('I'), buffer, draw() % 50, rows, draw() % 9, &count, &needed); break;
    case 8: CALL(tidesdb_x_iter_prev, some('I'), buffer, draw() % 50, rows, draw() % 9, &count, &needed); break;
    case 9: CALL(tidesdb_x_value_reader_read_at, some('V'), draw() >> draw() % 62, buffer, draw() % 9, &count); break;
    case 10: CALL(tidesdb_x_snapshot_seq, some('S'), &number); break;
    default: CALL(tidesdb_x_get, some('C'), some_key(), some_size(), some_reading(), buffer, draw() % 9, &count);
    }
}

static void stream_something(void)
{
    static const uint8_t kinds_of_operations[] = {0, 1, 3, 4, 0, 2};
    static size_t sizes[6];
    for (int i = 0; i < 6; i++) sizes[i] = one_in(50) ? some_size() : draw() % 3;
    switch (draw() % 6) {
    case 0: CALL(tidesdb_x_value_writer_commit, some('W'), NULL); break;
    case 1: CALL(tidesdb_x_value_writer_join, some('W'), some('T')); break;
    case 2: CALL(tidesdb_x_builder_put, some('L'), some_key(), some_size(), some_key(), some_size(), some_writing()); break;
    case 3:
        CALL(tidesdb_x_builder_add, some('L'), one_in(2) ? NULL : kinds_of_operations + draw() % 4, some_key(), sizes, draw() % 3,
             some_writing());
        break;
    default: CALL(tidesdb_x_value_writer_write, some('W'), some_key(), some_size());
    }
}

static void open_one(void)
{
    db_t *db = NULL;
    tidesdb_config_t config = quiet(one_in(3) ? "other" : "db");
    int rc = tidesdb_open(&config, &db);
    CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_LOCKED);
    if (rc != TDB_SUCCESS) return;
    opened[opens++ % 4096] = db;
    for (int i = 0; i < POOL / 2; i++) (void)keep('D', db);
    const char *names[] = {"f", "g"}, *operators[] = {NULL, "tidesdb.max"};
    for (int i = 0; i < 2; i++) {
        tidesdb_x_family_options_t options = {.size = sizeof options, .merge_operator = operators[i]};
        rc = tidesdb_x_create_family(db, names[i], &options, NULL);
        CHECK(rc == TDB_SUCCESS || rc == TDB_ERR_EXISTS);
        for (int k = 0; k < 4; k++) (void)keep('C', tidesdb_get_column_family(db, names[i]));
    }
}

static void free_all(void)
{
    for (size_t i = 0; i < opens && i < 4096; i++) (void)tidesdb_close(opened[i]);
    for (int i = 0; i < POOL; i++) {
        tidesdb_txn_free(pools[2][i]);
        tidesdb_x_batch_free(pools[3][i]);
        tidesdb_x_iter_free(pools[4][i]);
        tidesdb_x_snapshot_free(pools[5][i]);
        tidesdb_x_value_reader_free(pools[6][i]);
        tidesdb_x_value_writer_free(pools[7][i]);
        tidesdb_x_builder_free(pools[8][i]);
    }
}

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text == NULL ? otherwise : atol(text);
}

static void random_calls(void)
{
    long seed = number_of("TDB_SEED", 1), calls = number_of("TDB_CALLS", scaled(150000, 3000));
    state = (uint64_t)seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(draw() % 3);
    printf("(seed %ld) ", seed);
    fflush(stdout);
    for (int i = 0; i < 4; i++) open_one();
    for (long i = 0; i < calls; i++) {
        switch (draw() % 8) {
        case 0: create(); break;
        case 1:
        case 2: write_something(); break;
        case 3: stream_something(); break;
        default: read_something();
        }
        if (one_in(500)) open_one();
        if (one_in(10000)) (void)tidesdb_close(some('D'));
        if (one_in(500)) CALL(tidesdb_x_builder_commit, some('L'), some_writing(), NULL); /* it syncs */
        if (one_in(5000)) (void)tidesdb_x_flush(some('C'));
        if (one_in(20000)) (void)tidesdb_drop_column_family(some('D'), "g");
    }
    free_all();
    CHECK(successes > calls / 8 && refusals > calls / 20);
}

const struct test random_tests[] = {
    TEST(random_calls),
    END_OF_TESTS,
};
