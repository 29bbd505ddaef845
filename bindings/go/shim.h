/*
 * Functions between Go and the C library.
 *
 * A handle is a number, which Go must keep as one: a pointer that points to nothing would confuse its garbage collector. The text of a failure
 * belongs to the thread, which the next line of Go may have left, so it is copied before the call returns. Results are returned by
 * value, because an out parameter would be memory that Go allocates for each call.
 */
#ifndef TIDESDB_GO_SHIM_H
#define TIDESDB_GO_SHIM_H

#include <stdlib.h>
#include <tidesdb/extended.h>

typedef uintptr_t handle;

/* The results of a call. Go frees text, which is NULL after a success and for answers that need none. */
typedef struct {
    int code;
    char *text;
    uint64_t a, b, c;
} go_result;

/* tidesdb_x_write_options_t without its size; all zero is NULL. */
typedef struct {
    int sync;
    unsigned flags;
    uint64_t interval_us, ttl_ms, expires_ms;
} go_write;

/* Where a read looks: handles of a transaction or a snapshot, or 0. */
typedef struct {
    handle txn, snapshot;
    unsigned flags;
} go_read;

/* The settings of an open. merges are numbers of Go functions, names their names one after the other, each with its zero. */
typedef struct {
    size_t memory_limit, cache_bytes;
    int cache_is_set, flush_threads, compaction_threads, log_level, finish_compactions;
    uint64_t history_bytes;
    unsigned flags;
} go_open;

/* The settings of a family. A string may be NULL. */
typedef struct {
    size_t write_buffer_bytes, value_threshold;
    int compression, sync_mode, bloom_is_off;
    double bloom_fpr;
    uint64_t sync_interval_us, default_ttl_ms;
} go_family;

go_result go_open_db(const char *path, go_open how, const char *names, const uintptr_t *merges, size_t merge_count);
go_result go_open_reader(const char *path, go_open how, const char *names, const uintptr_t *merges, size_t merge_count);
go_result go_close(handle db);
go_result go_refresh(handle reader);
go_result go_close_reader(handle reader);

go_result go_create_family(handle db, const char *name, go_family settings, const char *comparator, const char *merge_operator);
go_result go_family_of(handle db, const char *name);
go_result go_drop_family(handle db, const char *name);
go_result go_rename_family(handle db, const char *from, const char *to);
go_result go_clone_family(handle db, const char *from, const char *to);
go_result go_families(handle db);
go_result go_setting(handle cf, const char *name);
go_result go_set_setting(handle cf, const char *name, uint64_t value, int persist);

go_result go_put(handle cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, go_write how);
go_result go_delete(handle cf, const uint8_t *key, size_t key_size, go_write how);
go_result go_single_delete(handle cf, const uint8_t *key, size_t key_size, go_write how);
go_result go_merge(handle cf, const uint8_t *key, size_t key_size, const uint8_t *operand, size_t operand_size, go_write how);
go_result go_delete_range(handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size, go_write how);
go_result go_delete_prefix(handle cf, const uint8_t *prefix, size_t prefix_size, go_write how);
go_result go_compare_and_swap(handle cf, const uint8_t *key, size_t key_size, const uint8_t *expected, size_t expected_size,
                              const uint8_t *value, size_t value_size, go_write how);
go_result go_replace(handle cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, go_write how, uint8_t *buffer,
                     size_t capacity);
go_result go_take(handle cf, const uint8_t *key, size_t key_size, go_write how, uint8_t *buffer, size_t capacity);
go_result go_pop(handle cf, int last, go_write how, uint8_t *buffer, size_t capacity);

go_result go_batch_new(handle db);
go_result go_batch_add(handle batch, handle cf, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count, go_write how);
go_result go_batch_write(handle batch, go_write how);
go_result go_batch_write_async(handle batch, go_write how, uintptr_t done);
void go_batch_free(handle batch);
go_result go_batch_run(handle db, handle cf, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count, go_write how,
                       go_write commit);

go_result go_get(handle cf, const uint8_t *key, size_t key_size, go_read where, uint8_t *buffer, size_t capacity);
go_result go_has(handle cf, const uint8_t *key, size_t key_size, go_read where);
go_result go_multi_get(handle cf, const uint8_t *keys, const size_t *key_sizes, size_t count, go_read where, uint8_t *buffer,
                       size_t capacity, tidesdb_x_span_t *spans);
go_result go_multi_has(handle cf, const uint8_t *keys, const size_t *key_sizes, size_t count, go_read where, uint8_t *found);
go_result go_end_row(handle cf, int last, go_read where, uint8_t *buffer, size_t capacity);
go_result go_expiry(handle cf, const uint8_t *key, size_t key_size, go_read where);
go_result go_explain(handle cf, const uint8_t *key, size_t key_size, go_read where);
go_result go_explain_range(handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size, size_t rows_max,
                           go_read where);

go_result go_iter_new(handle cf, go_read where, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size);
go_result go_iter_new_prefix(handle cf, go_read where, const uint8_t *prefix, size_t prefix_size);
go_result go_iter_rows(handle iter, int backwards, uint8_t *buffer, size_t capacity, tidesdb_x_row_t *rows, size_t rows_max);
go_result go_iter_seek_rows(handle iter, int seek_back, int backwards, const uint8_t *key, size_t key_size, uint8_t *buffer, size_t capacity,
                            tidesdb_x_row_t *rows, size_t rows_max);
void go_iter_free(handle iter);

go_result go_begin(handle db, int isolation);
go_result go_txn_put(handle txn, handle cf, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size, go_write how);
go_result go_txn_delete(handle txn, handle cf, const uint8_t *key, size_t key_size);
go_result go_txn_merge(handle txn, handle cf, const uint8_t *key, size_t key_size, const uint8_t *operand, size_t operand_size);
go_result go_txn_delete_range(handle txn, handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size);
go_result go_txn_delete_prefix(handle txn, handle cf, const uint8_t *prefix, size_t prefix_size);
go_result go_txn_savepoint(handle txn, const char *name);
go_result go_txn_rollback_to(handle txn, const char *name);
go_result go_txn_release(handle txn, const char *name);
go_result go_txn_commit(handle txn, go_write how);
void go_txn_free(handle txn);

go_result go_snapshot(handle db, int at, uint64_t seq);
void go_snapshot_free(handle snapshot);

go_result go_value_writer(handle cf, const uint8_t *key, size_t key_size, go_write how);
go_result go_value_write(handle writer, const uint8_t *bytes, size_t size);
go_result go_value_commit(handle writer, handle txn);
void go_value_writer_free(handle writer);
go_result go_value_reader(handle cf, const uint8_t *key, size_t key_size, go_read where);
go_result go_value_read(handle reader, uint8_t *buffer, size_t capacity);
go_result go_value_read_at(handle reader, uint64_t offset, uint8_t *buffer, size_t capacity);
void go_value_reader_free(handle reader);

go_result go_flush(handle cf);
go_result go_compact(handle cf);
go_result go_compact_range(handle cf, const uint8_t *start, size_t start_size, const uint8_t *end, size_t end_size);
go_result go_sync(handle cf);
go_result go_compaction_rate(handle db, uint64_t bytes_per_second);
go_result go_cancel(handle db);
go_result go_checkpoint(handle db, const char *path, int copy);

go_result go_figures(handle db);
go_result go_diagnose(handle db);
go_result go_metrics(handle db);
go_result go_health(handle db, tidesdb_x_health_t *health);
go_result go_verify(handle db, tidesdb_x_verified_t *verified);
go_result go_writer_figures(const char *path, tidesdb_x_writer_t *writer);
go_result go_writer_diagnose(const char *path);

go_result go_builder_new(handle cf, const char *stem);
go_result go_builder_add(handle builder, const uint8_t *kinds, const uint8_t *bytes, const size_t *sizes, size_t count, go_write how);
go_result go_builder_finish(handle builder);
go_result go_builder_commit(handle builder, go_write how, tidesdb_x_ingested_t *taken);
void go_builder_free(handle builder);
go_result go_ingest(handle db, const handle *families, const size_t *counts, size_t count, const char *paths, size_t path_count,
                    int transfer, go_write how, tidesdb_x_ingested_t *taken);

go_result go_destroy(const char *path);
go_result go_backups_open(const char *path);
go_result go_backups_create(handle backups, handle db, const char *scratch, uint64_t bytes_per_second, uintptr_t watcher);
go_result go_backups_list(handle backups);
go_result go_backups_verify(handle backups, uint64_t number, uintptr_t watcher);
go_result go_backups_restore(handle backups, uint64_t number, const char *path, uintptr_t watcher);
go_result go_backups_delete(handle backups, uint64_t number);
go_result go_backups_prune(handle backups, uint64_t keep_last, uint64_t keep_younger_ms);
go_result go_backups_repair(handle backups);
void go_backups_free(handle backups);

#endif
