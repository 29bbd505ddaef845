#include "shim.h"

#include <string.h>

#include "_cgo_export.h"

#define DB(h) ((tidesdb_t *)(h))
#define CF(h) ((tidesdb_column_family_t *)(h))
#define TXN(h) ((tidesdb_txn_t *)(h))
#define BATCH(h) ((tidesdb_x_batch_t *)(h))
#define ITER(h) ((tidesdb_x_iter_t *)(h))
#define SNAPSHOT(h) ((tidesdb_x_snapshot_t *)(h))
#define READER(h) ((tidesdb_x_reader_t *)(h))
#define WRITER(h) ((tidesdb_x_value_writer_t *)(h))
#define VALUE(h) ((tidesdb_x_value_reader_t *)(h))
#define BUILDER(h) ((tidesdb_x_builder_t *)(h))
#define BACKUPS(h) ((tidesdb_x_backups_t *)(h))

/* ---- results ---- */

static go_result made(int code, uint64_t a, uint64_t b, uint64_t c) {
    go_result result = {code, NULL, a, b, c};
    if (code != TDB_SUCCESS) result.text = strdup(tidesdb_last_error());
    return result;
}

static go_result told(int code) { return made(code, 0, 0, 0); }

/* For reads: that there is no such key, or that a buffer is short, is an answer which needs no text. */
static inline go_result read_of(int code, uint64_t a, uint64_t b, uint64_t c) {
    if (__builtin_expect(code == TDB_SUCCESS || code == TDB_ERR_NOT_FOUND || code == TDB_ERR_TOO_LARGE, 1)) {
        go_result result = {code, NULL, a, b, c};
        return result;
    }
    return made(code, a, b, c);
}

static inline go_result handle_of(int code, void *made_handle) { return made(code, (uintptr_t)made_handle, 0, 0); }

#define ROW(code, row) read_of(code, (row).offset, (row).key_size, (row).value_size)

/* ---- options ---- */

static inline const tidesdb_x_write_options_t *writing(go_write how, tidesdb_x_write_options_t *to) {
    if (!how.sync && !how.flags && !how.interval_us && !how.ttl_ms && !how.expires_ms) return NULL;
    *to = (tidesdb_x_write_options_t){.size = sizeof *to,
                                      .sync_mode = how.sync,
                                      .flags = how.flags,
                                      .sync_interval_us = how.interval_us,
                                      .ttl_ms = how.ttl_ms,
                                      .expires_at_ms = how.expires_ms};
    return to;
}

static inline const tidesdb_x_read_options_t *reading(go_read where, tidesdb_x_read_options_t *to) {
    if (!where.txn && !where.snapshot && !where.flags) return NULL;
    *to = (tidesdb_x_read_options_t){
        .size = sizeof *to, .txn = TXN(where.txn), .snapshot = SNAPSHOT(where.snapshot), .flags = where.flags};
    return to;
}

#define WRITING(how) writing(how, &(tidesdb_x_write_options_t){0})
#define READING(where) reading(where, &(tidesdb_x_read_options_t){0})

/* ---- callbacks ---- */

static int merge(const uint8_t *value, size_t value_size, const uint8_t *operand, size_t operand_size, void *ctx) {
    return tidesdbGoMerge((uint8_t *)value, value_size, (uint8_t *)operand, operand_size, (uintptr_t)ctx);
}

static int check(const uint8_t *operand, size_t operand_size, void *ctx) {
    return tidesdbGoCheck((uint8_t *)operand, operand_size, (uintptr_t)ctx);
}

static void committed(int code, uint64_t seq, const char *message, void *ctx) {
    tidesdbGoCommitted(code, seq, (char *)message, (uintptr_t)ctx);
}

static void progress(uint64_t done, uint64_t total, void *ctx) { tidesdbGoProgress(done, total, (uintptr_t)ctx); }

static int stop(void *ctx) { return tidesdbGoStop((uintptr_t)ctx); }

/* ---- opening ---- */

typedef struct {
    tidesdb_config_t config;
    tidesdb_x_open_options_t options;
    tidesdb_x_merge_operator_t *operators;
} opening;

static int prepare(opening *to, const char *path, go_open how, const char *names, const uintptr_t *merges, size_t count) {
    to->config = tidesdb_default_config();
    to->config.db_path = path;
    to->config.log_level = how.log_level;
    if (how.memory_limit) to->config.max_memory_usage = how.memory_limit;
    if (how.cache_is_set) to->config.block_cache_size = how.cache_bytes;
    if (how.flush_threads) to->config.num_flush_threads = how.flush_threads;
    if (how.compaction_threads) to->config.num_compaction_threads = how.compaction_threads;
    to->config.finish_compactions_on_close = how.finish_compactions;
    to->operators = calloc(count + 1, sizeof *to->operators);
    if (to->operators == NULL) return TDB_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        to->operators[i] = (tidesdb_x_merge_operator_t){
            .size = sizeof *to->operators, .name = names, .merge = merge, .check = check, .ctx = (void *)merges[i]};
        names += strlen(names) + 1;
    }
    to->options = (tidesdb_x_open_options_t){.size = sizeof to->options,
                                             .config = &to->config,
                                             .merge_operators = to->operators,
                                             .merge_operator_count = count,
                                             .history_bytes = how.history_bytes,
                                             .flags = how.flags};
    return TDB_SUCCESS;
}

go_result go_open_db(const char *path, go_open how, const char *names, const uintptr_t *merges, size_t count) {
    opening to;
    int code = prepare(&to, path, how, names, merges, count);
    if (code != TDB_SUCCESS) return (go_result){.code = code};
    tidesdb_t *db = NULL;
    code = tidesdb_x_open(&to.options, &db);
    go_result result = handle_of(code, db);
    if (result.code != TDB_SUCCESS && db != NULL) tidesdb_close(db);
    free(to.operators);
    return result;
}

go_result go_open_reader(const char *path, go_open how, const char *names, const uintptr_t *merges, size_t count) {
    opening to;
    int code = prepare(&to, path, how, names, merges, count);
    if (code != TDB_SUCCESS) return (go_result){.code = code};
    tidesdb_x_reader_t *reader = NULL;
    code = tidesdb_x_reader_open(&to.options, &reader);
    go_result result = handle_of(code, reader);
    free(to.operators);
    return result;
}

go_result go_close(handle db) { return told(tidesdb_close(DB(db))); }

go_result go_refresh(handle reader) {
    tidesdb_t *view = NULL;
    int code = tidesdb_x_reader_refresh(READER(reader), &view);
    return handle_of(code, view);
}

go_result go_destroy(const char *path) { return told(tidesdb_x_destroy(path)); }

go_result go_close_reader(handle reader) { return told(tidesdb_x_reader_close(READER(reader))); }

/* ---- families ---- */

go_result go_create_family(handle db, const char *name, go_family settings, const char *comparator, const char *merge_operator) {
    tidesdb_column_family_config_t config = tidesdb_default_column_family_config();
    if (settings.write_buffer_bytes) config.write_buffer_size = settings.write_buffer_bytes;
    if (settings.value_threshold) config.klog_value_threshold = settings.value_threshold;
    if (settings.bloom_fpr > 0) config.bloom_fpr = settings.bloom_fpr;
    if (settings.bloom_is_off) config.enable_bloom_filter = 0;
    config.compression_algorithm = (tidesdb_compression_t)settings.compression;
    config.sync_mode = settings.sync_mode;
    config.sync_interval_us = settings.sync_interval_us;
    if (comparator != NULL) {
        if (strlen(comparator) >= sizeof config.comparator_name) return (go_result){.code = TDB_ERR_NOT_FOUND};
        strcpy(config.comparator_name, comparator);
    }
    tidesdb_x_family_options_t options = {.size = sizeof options,
                                          .config = &config,
                                          .merge_operator = merge_operator,
                                          .default_ttl_ms = settings.default_ttl_ms};
    tidesdb_column_family_t *cf = NULL;
    int code = tidesdb_x_create_family(DB(db), name, &options, &cf);
    return handle_of(code, cf);
}

go_result go_family_of(handle db, const char *name) {
    tidesdb_column_family_t *cf = tidesdb_get_column_family(DB(db), name);
    if (cf != NULL) return handle_of(TDB_SUCCESS, cf);
    char **names = NULL;
    int count = 0, exists = 0, code = tidesdb_list_column_families(DB(db), &names, &count);
    if (code != TDB_SUCCESS) return told(code);
    for (int i = 0; i < count; i++) {
        exists |= strcmp(names[i], name) == 0;
        tidesdb_free(names[i]);
    }
    tidesdb_free(names);
    if (!exists) return (go_result){.code = TDB_ERR_NOT_FOUND};
    /* NULL has no code. A rename to the same name changes nothing, and fails for the same reason. */
    code = tidesdb_rename_column_family(DB(db), name, name);
    if (code != TDB_SUCCESS) return told(code);
    cf = tidesdb_get_column_family(DB(db), name); /* it was created meanwhile */
    return handle_of(cf == NULL ? TDB_ERR_UNKNOWN : TDB_SUCCESS, cf);
}

go_result go_drop_family(handle db, const char *name) { return told(tidesdb_drop_column_family(DB(db), name)); }

go_result go_rename_family(handle db, const char *from, const char *to) {
    return told(tidesdb_rename_column_family(DB(db), from, to));
}

go_result go_clone_family(handle db, const char *from, const char *to) { return told(tidesdb_clone_column_family(DB(db), from, to)); }

go_result go_families(handle db) {
    char **names = NULL;
    int count = 0;
    int code = tidesdb_list_column_families(DB(db), &names, &count);
    return made(code, (uintptr_t)names, (uint64_t)count, 0);
}

go_result go_setting(handle cf, const char *name) {
    uint64_t value = 0;
    int code = tidesdb_x_family_get(CF(cf), name, &value);
    return made(code, value, 0, 0);
}

go_result go_set_setting(handle cf, const char *name, uint64_t value, int persist) {
    return told(tidesdb_x_family_set(CF(cf), name, value, persist));
}

/* ---- writes ---- */

go_result go_put(handle cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_put(CF(cf), key, key_size, value, value_size, WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_delete(handle cf, const uint8_t *key, size_t key_size, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_delete(CF(cf), key, key_size, WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_single_delete(handle cf, const uint8_t *key, size_t key_size, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_single_delete(CF(cf), key, key_size, WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_merge(handle cf, const uint8_t *key, size_t key_size, const uint8_t *operand, size_t operand_size, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_merge(CF(cf), key, key_size, operand, operand_size, WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_delete_range(handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_delete_range(CF(cf), start, start_size, end, end_size, WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_delete_prefix(handle cf, const uint8_t *prefix, size_t prefix_size, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_delete_prefix(CF(cf), prefix, prefix_size, WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_compare_and_swap(handle cf, const uint8_t *key, size_t key_size, const uint8_t *expected, size_t expected_size,
                              const uint8_t *value, size_t value_size, go_write how) {
    int swapped = 0;
    int code = tidesdb_x_compare_and_swap(CF(cf), key, key_size, expected, expected_size, value, value_size, WRITING(how), &swapped);
    return made(code, (uint64_t)swapped, 0, 0);
}

go_result go_replace(handle cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, go_write how, uint8_t *buffer,
                     size_t capacity) {
    tidesdb_x_span_t old = {0};
    int code = tidesdb_x_replace(CF(cf), key, key_size, value, value_size, WRITING(how), buffer, capacity, &old);
    return read_of(code, old.offset != TDB_X_NONE, old.size, 0);
}

go_result go_take(handle cf, const uint8_t *key, size_t key_size, go_write how, uint8_t *buffer, size_t capacity) {
    size_t size = 0;
    int code = tidesdb_x_take(CF(cf), key, key_size, WRITING(how), buffer, capacity, &size);
    return read_of(code, size, 0, 0);
}

go_result go_pop(handle cf, int last, go_write how, uint8_t *buffer, size_t capacity) {
    tidesdb_x_row_t row = {0};
    int code = (last ? tidesdb_x_pop_last : tidesdb_x_pop_first)(CF(cf), WRITING(how), buffer, capacity, &row);
    return ROW(code, row);
}

/* ---- batches ---- */

go_result go_batch_new(handle db) {
    tidesdb_x_batch_t *batch = NULL;
    int code = tidesdb_x_batch_new(DB(db), &batch);
    return handle_of(code, batch);
}

go_result go_batch_add(handle batch, handle cf, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count,
                       go_write how) {
    return told(tidesdb_x_batch_add(BATCH(batch), CF(cf), kinds, bytes, sizes, count, WRITING(how)));
}

go_result go_batch_write(handle batch, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_batch_write(BATCH(batch), WRITING(how), &seq);
    return made(code, seq, 0, 0);
}

go_result go_batch_write_async(handle batch, go_write how, uintptr_t done) {
    return told(tidesdb_x_batch_write_async(BATCH(batch), WRITING(how), committed, (void *)done));
}

void go_batch_free(handle batch) { tidesdb_x_batch_free(BATCH(batch)); }

go_result go_batch_run(handle db, handle cf, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count, go_write how,
                       go_write commit) {
    go_result result = go_batch_new(db);
    if (result.code != TDB_SUCCESS) return result;
    handle batch = (handle)result.a;
    result = go_batch_add(batch, cf, kinds, bytes, sizes, count, how);
    if (result.code == TDB_SUCCESS) result = go_batch_write(batch, commit);
    go_batch_free(batch);
    return result;
}

/* ---- reads ---- */

go_result go_get(handle cf, const uint8_t *key, size_t key_size, go_read where, uint8_t *buffer, size_t capacity) {
    size_t size = 0;
    int code = tidesdb_x_get(CF(cf), key, key_size, READING(where), buffer, capacity, &size);
    return read_of(code, size, 0, 0);
}

go_result go_has(handle cf, const uint8_t *key, size_t key_size, go_read where) {
    return read_of(tidesdb_x_contains(CF(cf), key, key_size, READING(where)), 0, 0, 0);
}

go_result go_multi_get(handle cf, const uint8_t *keys, const size_t *key_sizes, size_t count, go_read where, uint8_t *buffer,
                       size_t capacity, tidesdb_x_span_t *spans) {
    size_t needed = 0;
    int code = tidesdb_x_multi_get(CF(cf), keys, key_sizes, count, READING(where), buffer, capacity, spans, &needed);
    return read_of(code, needed, 0, 0);
}

go_result go_multi_has(handle cf, const uint8_t *keys, const size_t *key_sizes, size_t count, go_read where, uint8_t *found) {
    return read_of(tidesdb_x_multi_contains(CF(cf), keys, key_sizes, count, READING(where), found), 0, 0, 0);
}

go_result go_end_row(handle cf, int last, go_read where, uint8_t *buffer, size_t capacity) {
    tidesdb_x_row_t row = {0};
    int code = (last ? tidesdb_x_last : tidesdb_x_first)(CF(cf), READING(where), buffer, capacity, &row);
    return ROW(code, row);
}

go_result go_expiry(handle cf, const uint8_t *key, size_t key_size, go_read where) {
    uint64_t at = 0;
    int code = tidesdb_x_expiry(CF(cf), key, key_size, READING(where), &at);
    return read_of(code, at, 0, 0);
}

go_result go_explain(handle cf, const uint8_t *key, size_t key_size, go_read where) {
    char *text = NULL;
    int code = tidesdb_x_explain(CF(cf), key, key_size, READING(where), &text);
    return made(code, (uintptr_t)text, 0, 0);
}

go_result go_explain_range(handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size, size_t rows_max,
                           go_read where) {
    char *text = NULL;
    int code = tidesdb_x_explain_range(CF(cf), start, start_size, end, end_size, rows_max, READING(where), &text);
    return made(code, (uintptr_t)text, 0, 0);
}

/* ---- iterators ---- */

go_result go_iter_new(handle cf, go_read where, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size) {
    tidesdb_x_iter_t *iter = NULL;
    int code = tidesdb_x_iter_new(CF(cf), READING(where), start, start_size, end, end_size, &iter);
    return handle_of(code, iter);
}

go_result go_iter_new_prefix(handle cf, go_read where, const uint8_t *prefix, size_t prefix_size) {
    tidesdb_x_iter_t *iter = NULL;
    int code = tidesdb_x_iter_new_prefix(CF(cf), READING(where), prefix, prefix_size, &iter);
    return handle_of(code, iter);
}

go_result go_iter_rows(handle iter, int backwards, uint8_t *buffer, size_t capacity, tidesdb_x_row_t *rows, size_t rows_max) {
    size_t count = 0, needed = 0;
    int code = (backwards ? tidesdb_x_iter_prev : tidesdb_x_iter_next)(ITER(iter), buffer, capacity, rows, rows_max, &count, &needed);
    return read_of(code, count, needed, 0);
}

go_result go_iter_seek_rows(handle iter, int seek_back, int backwards, const uint8_t *key, size_t key_size, uint8_t *buffer, size_t capacity,
                            tidesdb_x_row_t *rows, size_t rows_max) {
    int code = (seek_back ? tidesdb_x_iter_seek_for_prev : tidesdb_x_iter_seek)(ITER(iter), key, key_size);
    if (code != TDB_SUCCESS) return read_of(code, 0, 0, 0);
    return go_iter_rows(iter, backwards, buffer, capacity, rows, rows_max);
}

void go_iter_free(handle iter) { tidesdb_x_iter_free(ITER(iter)); }

/* ---- transactions ---- */

go_result go_begin(handle db, int isolation) {
    tidesdb_txn_t *txn = NULL;
    int code = tidesdb_txn_begin_with_isolation(DB(db), (tidesdb_isolation_level_t)isolation, &txn);
    return handle_of(code, txn);
}

go_result go_txn_put(handle txn, handle cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, go_write how) {
    return told(tidesdb_x_txn_put(TXN(txn), CF(cf), key, key_size, value, value_size, WRITING(how)));
}

go_result go_txn_delete(handle txn, handle cf, const uint8_t *key, size_t key_size) {
    return told(tidesdb_txn_delete(TXN(txn), CF(cf), key, key_size));
}

go_result go_txn_merge(handle txn, handle cf, const uint8_t *key, size_t key_size, const uint8_t *operand, size_t operand_size) {
    return told(tidesdb_x_txn_merge(TXN(txn), CF(cf), key, key_size, operand, operand_size));
}

go_result go_txn_delete_range(handle txn, handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size) {
    return told(tidesdb_x_txn_delete_range(TXN(txn), CF(cf), start, start_size, end, end_size));
}

go_result go_txn_delete_prefix(handle txn, handle cf, const uint8_t *prefix, size_t prefix_size) {
    return told(tidesdb_x_txn_delete_prefix(TXN(txn), CF(cf), prefix, prefix_size));
}

go_result go_txn_savepoint(handle txn, const char *name) { return told(tidesdb_txn_savepoint(TXN(txn), name)); }

go_result go_txn_rollback_to(handle txn, const char *name) { return told(tidesdb_txn_rollback_to_savepoint(TXN(txn), name)); }

go_result go_txn_release(handle txn, const char *name) { return told(tidesdb_txn_release_savepoint(TXN(txn), name)); }

go_result go_txn_commit(handle txn, go_write how) {
    uint64_t seq = 0;
    int code = tidesdb_x_txn_commit(TXN(txn), WRITING(how), &seq);
    go_result result = made(code, seq, 0, 0);
    tidesdb_txn_free(TXN(txn));
    return result;
}

void go_txn_free(handle txn) { tidesdb_txn_free(TXN(txn)); }

/* ---- snapshots ---- */

go_result go_snapshot(handle db, int at, uint64_t seq) {
    tidesdb_x_snapshot_t *snapshot = NULL;
    int code = at ? tidesdb_x_snapshot_at(DB(db), seq, &snapshot) : tidesdb_x_snapshot_new(DB(db), &snapshot);
    if (code != TDB_SUCCESS) return told(code);
    code = tidesdb_x_snapshot_seq(snapshot, &seq);
    return made(code, (uintptr_t)snapshot, seq, 0);
}

void go_snapshot_free(handle snapshot) { tidesdb_x_snapshot_free(SNAPSHOT(snapshot)); }

/* ---- values piece by piece ---- */

go_result go_value_writer(handle cf, const uint8_t *key, size_t key_size, go_write how) {
    tidesdb_x_value_writer_t *writer = NULL;
    int code = tidesdb_x_value_writer_new(CF(cf), key, key_size, WRITING(how), &writer);
    return handle_of(code, writer);
}

go_result go_value_write(handle writer, const uint8_t *bytes, size_t size) {
    return told(tidesdb_x_value_writer_write(WRITER(writer), bytes, size));
}

go_result go_value_commit(handle writer, handle txn) {
    uint64_t seq = 0;
    int code = txn ? tidesdb_x_value_writer_join(WRITER(writer), TXN(txn)) : tidesdb_x_value_writer_commit(WRITER(writer), &seq);
    go_result result = made(code, seq, 0, 0);
    tidesdb_x_value_writer_free(WRITER(writer));
    return result;
}

void go_value_writer_free(handle writer) { tidesdb_x_value_writer_free(WRITER(writer)); }

go_result go_value_reader(handle cf, const uint8_t *key, size_t key_size, go_read where) {
    tidesdb_x_value_reader_t *reader = NULL;
    uint64_t size = 0;
    int code = tidesdb_x_value_reader_new(CF(cf), key, key_size, READING(where), &reader, &size);
    return read_of(code, (uintptr_t)reader, size, 0);
}

go_result go_value_read(handle reader, uint8_t *buffer, size_t capacity) {
    size_t size = 0;
    int code = tidesdb_x_value_reader_read(VALUE(reader), buffer, capacity, &size);
    return made(code, size, 0, 0);
}

go_result go_value_read_at(handle reader, uint64_t offset, uint8_t *buffer, size_t capacity) {
    size_t size = 0;
    int code = tidesdb_x_value_reader_read_at(VALUE(reader), offset, buffer, capacity, &size);
    return made(code, size, 0, 0);
}

void go_value_reader_free(handle reader) { tidesdb_x_value_reader_free(VALUE(reader)); }

/* ---- maintenance ---- */

go_result go_flush(handle cf) { return told(tidesdb_x_flush(CF(cf))); }

go_result go_compact(handle cf) { return told(tidesdb_compact(CF(cf))); }

go_result go_compact_range(handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size) {
    return told(tidesdb_x_compact_range(CF(cf), start, start_size, end, end_size));
}

go_result go_sync(handle cf) { return told(tidesdb_sync_wal(CF(cf))); }

go_result go_compaction_rate(handle db, uint64_t bytes_per_second) {
    return told(tidesdb_x_set_compaction_rate(DB(db), bytes_per_second));
}

go_result go_cancel(handle db) { return told(tidesdb_cancel_background_work(DB(db))); }

go_result go_checkpoint(handle db, const char *path, int copy) {
    return told((copy ? tidesdb_backup : tidesdb_checkpoint)(DB(db), path));
}

/* ---- figures ---- */

go_result go_figures(handle db) {
    tidesdb_x_figure_t *figures = NULL;
    size_t count = 0;
    int code = tidesdb_x_figures(DB(db), &figures, &count);
    return made(code, (uintptr_t)figures, count, 0);
}

go_result go_diagnose(handle db) {
    tidesdb_x_finding_t *findings = NULL;
    size_t count = 0;
    int code = tidesdb_x_diagnose(DB(db), &findings, &count);
    return made(code, (uintptr_t)findings, count, 0);
}

go_result go_metrics(handle db) {
    char *text = NULL;
    int code = tidesdb_x_metrics(DB(db), &text);
    return made(code, (uintptr_t)text, 0, 0);
}

go_result go_health(handle db, tidesdb_x_health_t *health) {
    char *causes = NULL;
    health->size = sizeof *health;
    int code = tidesdb_x_health(DB(db), health, &causes);
    return made(code, (uintptr_t)causes, 0, 0);
}

go_result go_verify(handle db, tidesdb_x_verified_t *verified) {
    char *faults = NULL;
    verified->size = sizeof *verified;
    int code = tidesdb_x_verify(DB(db), verified, &faults);
    return made(code, (uintptr_t)faults, 0, 0);
}

go_result go_writer_figures(const char *path, tidesdb_x_writer_t *writer) {
    tidesdb_x_figure_t *figures = NULL;
    size_t count = 0;
    writer->size = sizeof *writer;
    int code = tidesdb_x_writer_figures(path, writer, &figures, &count);
    return made(code, (uintptr_t)figures, count, 0);
}

go_result go_writer_diagnose(const char *path) {
    tidesdb_x_finding_t *findings = NULL;
    size_t count = 0;
    int code = tidesdb_x_writer_diagnose(path, &findings, &count);
    return made(code, (uintptr_t)findings, count, 0);
}

/* ---- tables ---- */

go_result go_builder_new(handle cf, const char *stem) {
    tidesdb_x_builder_t *builder = NULL;
    int code = tidesdb_x_builder_new(CF(cf), stem, &builder);
    return handle_of(code, builder);
}

go_result go_builder_add(handle builder, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count, go_write how) {
    return told(tidesdb_x_builder_add(BUILDER(builder), kinds, bytes, sizes, count, WRITING(how)));
}

go_result go_builder_finish(handle builder) {
    const char **paths = NULL;
    size_t count = 0;
    int code = tidesdb_x_builder_finish(BUILDER(builder), &paths, &count);
    return made(code, (uintptr_t)paths, count, 0);
}

go_result go_builder_commit(handle builder, go_write how, tidesdb_x_ingested_t *taken) {
    taken->size = sizeof *taken;
    return told(tidesdb_x_builder_commit(BUILDER(builder), WRITING(how), taken));
}

void go_builder_free(handle builder) { tidesdb_x_builder_free(BUILDER(builder)); }

go_result go_ingest(handle db, const handle *families, const size_t *counts, size_t count, const char *paths, size_t path_count,
                    int transfer, go_write how, tidesdb_x_ingested_t *taken) {
    const char **list = calloc(path_count + 1, sizeof *list);
    tidesdb_x_tables_t *tables = calloc(count + 1, sizeof *tables);
    go_result result = {.code = TDB_ERR_MEMORY};
    if (list != NULL && tables != NULL) {
        for (size_t i = 0; i < path_count; i++) {
            list[i] = paths;
            paths += strlen(paths) + 1;
        }
        const char **next = list;
        for (size_t i = 0; i < count; i++) {
            tables[i] = (tidesdb_x_tables_t){CF(families[i]), next, counts[i]};
            next += counts[i];
        }
        taken->size = sizeof *taken;
        result = told(tidesdb_x_ingest(DB(db), tables, count, transfer, WRITING(how), taken));
    }
    free(list);
    free(tables);
    return result;
}

/* ---- backups ---- */

go_result go_backups_open(const char *path) {
    tidesdb_x_backups_t *backups = NULL;
    int code = tidesdb_x_backups_open(path, &backups);
    return handle_of(code, backups);
}

static tidesdb_x_backup_options_t watched_by(uintptr_t watcher) {
    tidesdb_x_backup_options_t options = {
        .size = sizeof options, .progress = progress, .stop = stop, .ctx = (void *)watcher};
    return options;
}

go_result go_backups_create(handle backups, handle db, const char *scratch, uint64_t bytes_per_second, uintptr_t watcher) {
    tidesdb_x_backup_options_t options = watched_by(watcher);
    options.scratch = scratch;
    options.bytes_per_second = bytes_per_second;
    uint64_t number = 0;
    int code = tidesdb_x_backups_create(BACKUPS(backups), DB(db), &options, &number);
    return made(code, number, 0, 0);
}

go_result go_backups_list(handle backups) {
    tidesdb_x_generation_t *generations = NULL;
    size_t count = 0;
    int code = tidesdb_x_backups_list(BACKUPS(backups), &generations, &count);
    return made(code, (uintptr_t)generations, count, 0);
}

go_result go_backups_verify(handle backups, uint64_t number, uintptr_t watcher) {
    tidesdb_x_backup_options_t options = watched_by(watcher);
    uint64_t faults = 0;
    char *text = NULL;
    int code = tidesdb_x_backups_verify_with(BACKUPS(backups), number, &options, &faults, &text);
    return made(code, (uintptr_t)text, faults, 0);
}

go_result go_backups_restore(handle backups, uint64_t number, const char *path, uintptr_t watcher) {
    tidesdb_x_backup_options_t options = watched_by(watcher);
    return told(tidesdb_x_backups_restore_with(BACKUPS(backups), number, path, &options));
}

go_result go_backups_delete(handle backups, uint64_t number) { return told(tidesdb_x_backups_delete(BACKUPS(backups), number)); }

go_result go_backups_prune(handle backups, uint64_t keep_last, uint64_t keep_younger_ms) {
    size_t removed = 0;
    int code = tidesdb_x_backups_prune(BACKUPS(backups), keep_last, keep_younger_ms, &removed);
    return made(code, removed, 0, 0);
}

go_result go_backups_repair(handle backups) {
    size_t found = 0;
    int code = tidesdb_x_backups_repair(BACKUPS(backups), &found);
    return made(code, found, 0, 0);
}

void go_backups_free(handle backups) { tidesdb_x_backups_free(BACKUPS(backups)); }
