/*
 * All functions of tidesdb/extended.h, with a counter of the calls of each: see functions.h.
 */
#ifndef KIT_EXTENDED_H
#define KIT_EXTENDED_H

#include <tidesdb/extended.h>

#define ALL_FUNCTIONS(X) \
    X(tidesdb_x_backups_create) \
    X(tidesdb_x_backups_delete) \
    X(tidesdb_x_backups_free) \
    X(tidesdb_x_backups_list) \
    X(tidesdb_x_backups_open) \
    X(tidesdb_x_backups_open_store) \
    X(tidesdb_x_backups_prune) \
    X(tidesdb_x_backups_repair) \
    X(tidesdb_x_backups_restore) \
    X(tidesdb_x_backups_restore_with) \
    X(tidesdb_x_backups_verify) \
    X(tidesdb_x_backups_verify_with) \
    X(tidesdb_x_batch_add) \
    X(tidesdb_x_batch_clear) \
    X(tidesdb_x_batch_delete) \
    X(tidesdb_x_batch_delete_range) \
    X(tidesdb_x_batch_free) \
    X(tidesdb_x_batch_merge) \
    X(tidesdb_x_batch_new) \
    X(tidesdb_x_batch_put) \
    X(tidesdb_x_batch_size) \
    X(tidesdb_x_batch_write) \
    X(tidesdb_x_batch_write_async) \
    X(tidesdb_x_builder_add) \
    X(tidesdb_x_builder_commit) \
    X(tidesdb_x_builder_finish) \
    X(tidesdb_x_builder_free) \
    X(tidesdb_x_builder_new) \
    X(tidesdb_x_builder_put) \
    X(tidesdb_x_compact_range) \
    X(tidesdb_x_compare_and_swap) \
    X(tidesdb_x_contains) \
    X(tidesdb_x_create_family) \
    X(tidesdb_x_delete) \
    X(tidesdb_x_delete_prefix) \
    X(tidesdb_x_delete_range) \
    X(tidesdb_x_destroy) \
    X(tidesdb_x_diagnose) \
    X(tidesdb_x_expiry) \
    X(tidesdb_x_explain) \
    X(tidesdb_x_explain_range) \
    X(tidesdb_x_family_get) \
    X(tidesdb_x_family_set) \
    X(tidesdb_x_figures) \
    X(tidesdb_x_first) \
    X(tidesdb_x_flush) \
    X(tidesdb_x_get) \
    X(tidesdb_x_health) \
    X(tidesdb_x_ingest) \
    X(tidesdb_x_iter_free) \
    X(tidesdb_x_iter_lend_next) \
    X(tidesdb_x_iter_lend_prev) \
    X(tidesdb_x_iter_new) \
    X(tidesdb_x_iter_new_prefix) \
    X(tidesdb_x_iter_next) \
    X(tidesdb_x_iter_prev) \
    X(tidesdb_x_iter_seek) \
    X(tidesdb_x_iter_seek_for_prev) \
    X(tidesdb_x_last) \
    X(tidesdb_x_merge) \
    X(tidesdb_x_metrics) \
    X(tidesdb_x_multi_contains) \
    X(tidesdb_x_multi_get) \
    X(tidesdb_x_open) \
    X(tidesdb_x_pop_first) \
    X(tidesdb_x_pop_last) \
    X(tidesdb_x_put) \
    X(tidesdb_x_reader_close) \
    X(tidesdb_x_reader_open) \
    X(tidesdb_x_reader_refresh) \
    X(tidesdb_x_replace) \
    X(tidesdb_x_resources_free) \
    X(tidesdb_x_resources_new) \
    X(tidesdb_x_resources_set_compaction_rate) \
    X(tidesdb_x_resources_use) \
    X(tidesdb_x_result_append) \
    X(tidesdb_x_set_commit_hook) \
    X(tidesdb_x_set_compaction_rate) \
    X(tidesdb_x_set_filter) \
    X(tidesdb_x_single_delete) \
    X(tidesdb_x_snapshot_at) \
    X(tidesdb_x_snapshot_free) \
    X(tidesdb_x_snapshot_new) \
    X(tidesdb_x_snapshot_seq) \
    X(tidesdb_x_take) \
    X(tidesdb_x_txn_commit) \
    X(tidesdb_x_txn_delete_prefix) \
    X(tidesdb_x_txn_delete_range) \
    X(tidesdb_x_txn_merge) \
    X(tidesdb_x_txn_put) \
    X(tidesdb_x_value_reader_free) \
    X(tidesdb_x_value_reader_new) \
    X(tidesdb_x_value_reader_read) \
    X(tidesdb_x_value_reader_read_at) \
    X(tidesdb_x_value_writer_commit) \
    X(tidesdb_x_value_writer_free) \
    X(tidesdb_x_value_writer_join) \
    X(tidesdb_x_value_writer_new) \
    X(tidesdb_x_value_writer_write) \
    X(tidesdb_x_verify) \
    X(tidesdb_x_writer_diagnose) \
    X(tidesdb_x_writer_figures)

#define tidesdb_x_backups_create(...) \
    (COUNTED(tidesdb_x_backups_create), tidesdb_x_backups_create(__VA_ARGS__))
#define tidesdb_x_backups_delete(...) \
    (COUNTED(tidesdb_x_backups_delete), tidesdb_x_backups_delete(__VA_ARGS__))
#define tidesdb_x_backups_free(...) \
    (COUNTED(tidesdb_x_backups_free), tidesdb_x_backups_free(__VA_ARGS__))
#define tidesdb_x_backups_list(...) \
    (COUNTED(tidesdb_x_backups_list), tidesdb_x_backups_list(__VA_ARGS__))
#define tidesdb_x_backups_open(...) \
    (COUNTED(tidesdb_x_backups_open), tidesdb_x_backups_open(__VA_ARGS__))
#define tidesdb_x_backups_open_store(...) \
    (COUNTED(tidesdb_x_backups_open_store), tidesdb_x_backups_open_store(__VA_ARGS__))
#define tidesdb_x_backups_prune(...) \
    (COUNTED(tidesdb_x_backups_prune), tidesdb_x_backups_prune(__VA_ARGS__))
#define tidesdb_x_backups_repair(...) \
    (COUNTED(tidesdb_x_backups_repair), tidesdb_x_backups_repair(__VA_ARGS__))
#define tidesdb_x_backups_restore(...) \
    (COUNTED(tidesdb_x_backups_restore), tidesdb_x_backups_restore(__VA_ARGS__))
#define tidesdb_x_backups_restore_with(...) \
    (COUNTED(tidesdb_x_backups_restore_with), tidesdb_x_backups_restore_with(__VA_ARGS__))
#define tidesdb_x_backups_verify(...) \
    (COUNTED(tidesdb_x_backups_verify), tidesdb_x_backups_verify(__VA_ARGS__))
#define tidesdb_x_backups_verify_with(...) \
    (COUNTED(tidesdb_x_backups_verify_with), tidesdb_x_backups_verify_with(__VA_ARGS__))
#define tidesdb_x_batch_add(...) (COUNTED(tidesdb_x_batch_add), tidesdb_x_batch_add(__VA_ARGS__))
#define tidesdb_x_batch_clear(...) \
    (COUNTED(tidesdb_x_batch_clear), tidesdb_x_batch_clear(__VA_ARGS__))
#define tidesdb_x_batch_delete(...) \
    (COUNTED(tidesdb_x_batch_delete), tidesdb_x_batch_delete(__VA_ARGS__))
#define tidesdb_x_batch_delete_range(...) \
    (COUNTED(tidesdb_x_batch_delete_range), tidesdb_x_batch_delete_range(__VA_ARGS__))
#define tidesdb_x_batch_free(...) (COUNTED(tidesdb_x_batch_free), tidesdb_x_batch_free(__VA_ARGS__))
#define tidesdb_x_batch_merge(...) \
    (COUNTED(tidesdb_x_batch_merge), tidesdb_x_batch_merge(__VA_ARGS__))
#define tidesdb_x_batch_new(...) (COUNTED(tidesdb_x_batch_new), tidesdb_x_batch_new(__VA_ARGS__))
#define tidesdb_x_batch_put(...) (COUNTED(tidesdb_x_batch_put), tidesdb_x_batch_put(__VA_ARGS__))
#define tidesdb_x_batch_size(...) (COUNTED(tidesdb_x_batch_size), tidesdb_x_batch_size(__VA_ARGS__))
#define tidesdb_x_batch_write(...) \
    (COUNTED(tidesdb_x_batch_write), tidesdb_x_batch_write(__VA_ARGS__))
#define tidesdb_x_batch_write_async(...) \
    (COUNTED(tidesdb_x_batch_write_async), tidesdb_x_batch_write_async(__VA_ARGS__))
#define tidesdb_x_builder_add(...) \
    (COUNTED(tidesdb_x_builder_add), tidesdb_x_builder_add(__VA_ARGS__))
#define tidesdb_x_builder_commit(...) \
    (COUNTED(tidesdb_x_builder_commit), tidesdb_x_builder_commit(__VA_ARGS__))
#define tidesdb_x_builder_finish(...) \
    (COUNTED(tidesdb_x_builder_finish), tidesdb_x_builder_finish(__VA_ARGS__))
#define tidesdb_x_builder_free(...) \
    (COUNTED(tidesdb_x_builder_free), tidesdb_x_builder_free(__VA_ARGS__))
#define tidesdb_x_builder_new(...) \
    (COUNTED(tidesdb_x_builder_new), tidesdb_x_builder_new(__VA_ARGS__))
#define tidesdb_x_builder_put(...) \
    (COUNTED(tidesdb_x_builder_put), tidesdb_x_builder_put(__VA_ARGS__))
#define tidesdb_x_compact_range(...) \
    (COUNTED(tidesdb_x_compact_range), tidesdb_x_compact_range(__VA_ARGS__))
#define tidesdb_x_compare_and_swap(...) \
    (COUNTED(tidesdb_x_compare_and_swap), tidesdb_x_compare_and_swap(__VA_ARGS__))
#define tidesdb_x_contains(...) (COUNTED(tidesdb_x_contains), tidesdb_x_contains(__VA_ARGS__))
#define tidesdb_x_create_family(...) \
    (COUNTED(tidesdb_x_create_family), tidesdb_x_create_family(__VA_ARGS__))
#define tidesdb_x_delete(...) (COUNTED(tidesdb_x_delete), tidesdb_x_delete(__VA_ARGS__))
#define tidesdb_x_delete_prefix(...) \
    (COUNTED(tidesdb_x_delete_prefix), tidesdb_x_delete_prefix(__VA_ARGS__))
#define tidesdb_x_delete_range(...) \
    (COUNTED(tidesdb_x_delete_range), tidesdb_x_delete_range(__VA_ARGS__))
#define tidesdb_x_destroy(...) (COUNTED(tidesdb_x_destroy), tidesdb_x_destroy(__VA_ARGS__))
#define tidesdb_x_diagnose(...) (COUNTED(tidesdb_x_diagnose), tidesdb_x_diagnose(__VA_ARGS__))
#define tidesdb_x_expiry(...) (COUNTED(tidesdb_x_expiry), tidesdb_x_expiry(__VA_ARGS__))
#define tidesdb_x_explain(...) (COUNTED(tidesdb_x_explain), tidesdb_x_explain(__VA_ARGS__))
#define tidesdb_x_explain_range(...) \
    (COUNTED(tidesdb_x_explain_range), tidesdb_x_explain_range(__VA_ARGS__))
#define tidesdb_x_family_get(...) (COUNTED(tidesdb_x_family_get), tidesdb_x_family_get(__VA_ARGS__))
#define tidesdb_x_family_set(...) (COUNTED(tidesdb_x_family_set), tidesdb_x_family_set(__VA_ARGS__))
#define tidesdb_x_figures(...) (COUNTED(tidesdb_x_figures), tidesdb_x_figures(__VA_ARGS__))
#define tidesdb_x_first(...) (COUNTED(tidesdb_x_first), tidesdb_x_first(__VA_ARGS__))
#define tidesdb_x_flush(...) (COUNTED(tidesdb_x_flush), tidesdb_x_flush(__VA_ARGS__))
#define tidesdb_x_get(...) (COUNTED(tidesdb_x_get), tidesdb_x_get(__VA_ARGS__))
#define tidesdb_x_health(...) (COUNTED(tidesdb_x_health), tidesdb_x_health(__VA_ARGS__))
#define tidesdb_x_ingest(...) (COUNTED(tidesdb_x_ingest), tidesdb_x_ingest(__VA_ARGS__))
#define tidesdb_x_iter_free(...) (COUNTED(tidesdb_x_iter_free), tidesdb_x_iter_free(__VA_ARGS__))
#define tidesdb_x_iter_lend_next(...) \
    (COUNTED(tidesdb_x_iter_lend_next), tidesdb_x_iter_lend_next(__VA_ARGS__))
#define tidesdb_x_iter_lend_prev(...) \
    (COUNTED(tidesdb_x_iter_lend_prev), tidesdb_x_iter_lend_prev(__VA_ARGS__))
#define tidesdb_x_iter_new(...) (COUNTED(tidesdb_x_iter_new), tidesdb_x_iter_new(__VA_ARGS__))
#define tidesdb_x_iter_new_prefix(...) \
    (COUNTED(tidesdb_x_iter_new_prefix), tidesdb_x_iter_new_prefix(__VA_ARGS__))
#define tidesdb_x_iter_next(...) (COUNTED(tidesdb_x_iter_next), tidesdb_x_iter_next(__VA_ARGS__))
#define tidesdb_x_iter_prev(...) (COUNTED(tidesdb_x_iter_prev), tidesdb_x_iter_prev(__VA_ARGS__))
#define tidesdb_x_iter_seek(...) (COUNTED(tidesdb_x_iter_seek), tidesdb_x_iter_seek(__VA_ARGS__))
#define tidesdb_x_iter_seek_for_prev(...) \
    (COUNTED(tidesdb_x_iter_seek_for_prev), tidesdb_x_iter_seek_for_prev(__VA_ARGS__))
#define tidesdb_x_last(...) (COUNTED(tidesdb_x_last), tidesdb_x_last(__VA_ARGS__))
#define tidesdb_x_merge(...) (COUNTED(tidesdb_x_merge), tidesdb_x_merge(__VA_ARGS__))
#define tidesdb_x_metrics(...) (COUNTED(tidesdb_x_metrics), tidesdb_x_metrics(__VA_ARGS__))
#define tidesdb_x_multi_contains(...) \
    (COUNTED(tidesdb_x_multi_contains), tidesdb_x_multi_contains(__VA_ARGS__))
#define tidesdb_x_multi_get(...) (COUNTED(tidesdb_x_multi_get), tidesdb_x_multi_get(__VA_ARGS__))
#define tidesdb_x_open(...) (COUNTED(tidesdb_x_open), tidesdb_x_open(__VA_ARGS__))
#define tidesdb_x_pop_first(...) (COUNTED(tidesdb_x_pop_first), tidesdb_x_pop_first(__VA_ARGS__))
#define tidesdb_x_pop_last(...) (COUNTED(tidesdb_x_pop_last), tidesdb_x_pop_last(__VA_ARGS__))
#define tidesdb_x_put(...) (COUNTED(tidesdb_x_put), tidesdb_x_put(__VA_ARGS__))
#define tidesdb_x_reader_close(...) \
    (COUNTED(tidesdb_x_reader_close), tidesdb_x_reader_close(__VA_ARGS__))
#define tidesdb_x_reader_open(...) \
    (COUNTED(tidesdb_x_reader_open), tidesdb_x_reader_open(__VA_ARGS__))
#define tidesdb_x_reader_refresh(...) \
    (COUNTED(tidesdb_x_reader_refresh), tidesdb_x_reader_refresh(__VA_ARGS__))
#define tidesdb_x_replace(...) (COUNTED(tidesdb_x_replace), tidesdb_x_replace(__VA_ARGS__))
#define tidesdb_x_resources_free(...) \
    (COUNTED(tidesdb_x_resources_free), tidesdb_x_resources_free(__VA_ARGS__))
#define tidesdb_x_resources_new(...) \
    (COUNTED(tidesdb_x_resources_new), tidesdb_x_resources_new(__VA_ARGS__))
#define tidesdb_x_resources_set_compaction_rate(...) \
    (COUNTED(tidesdb_x_resources_set_compaction_rate), tidesdb_x_resources_set_compaction_rate(__VA_ARGS__))
#define tidesdb_x_resources_use(...) \
    (COUNTED(tidesdb_x_resources_use), tidesdb_x_resources_use(__VA_ARGS__))
#define tidesdb_x_result_append(...) \
    (COUNTED(tidesdb_x_result_append), tidesdb_x_result_append(__VA_ARGS__))
#define tidesdb_x_set_commit_hook(...) \
    (COUNTED(tidesdb_x_set_commit_hook), tidesdb_x_set_commit_hook(__VA_ARGS__))
#define tidesdb_x_set_compaction_rate(...) \
    (COUNTED(tidesdb_x_set_compaction_rate), tidesdb_x_set_compaction_rate(__VA_ARGS__))
#define tidesdb_x_set_filter(...) (COUNTED(tidesdb_x_set_filter), tidesdb_x_set_filter(__VA_ARGS__))
#define tidesdb_x_single_delete(...) \
    (COUNTED(tidesdb_x_single_delete), tidesdb_x_single_delete(__VA_ARGS__))
#define tidesdb_x_snapshot_at(...) \
    (COUNTED(tidesdb_x_snapshot_at), tidesdb_x_snapshot_at(__VA_ARGS__))
#define tidesdb_x_snapshot_free(...) \
    (COUNTED(tidesdb_x_snapshot_free), tidesdb_x_snapshot_free(__VA_ARGS__))
#define tidesdb_x_snapshot_new(...) \
    (COUNTED(tidesdb_x_snapshot_new), tidesdb_x_snapshot_new(__VA_ARGS__))
#define tidesdb_x_snapshot_seq(...) \
    (COUNTED(tidesdb_x_snapshot_seq), tidesdb_x_snapshot_seq(__VA_ARGS__))
#define tidesdb_x_take(...) (COUNTED(tidesdb_x_take), tidesdb_x_take(__VA_ARGS__))
#define tidesdb_x_txn_commit(...) (COUNTED(tidesdb_x_txn_commit), tidesdb_x_txn_commit(__VA_ARGS__))
#define tidesdb_x_txn_delete_prefix(...) \
    (COUNTED(tidesdb_x_txn_delete_prefix), tidesdb_x_txn_delete_prefix(__VA_ARGS__))
#define tidesdb_x_txn_delete_range(...) \
    (COUNTED(tidesdb_x_txn_delete_range), tidesdb_x_txn_delete_range(__VA_ARGS__))
#define tidesdb_x_txn_merge(...) (COUNTED(tidesdb_x_txn_merge), tidesdb_x_txn_merge(__VA_ARGS__))
#define tidesdb_x_txn_put(...) (COUNTED(tidesdb_x_txn_put), tidesdb_x_txn_put(__VA_ARGS__))
#define tidesdb_x_value_reader_free(...) \
    (COUNTED(tidesdb_x_value_reader_free), tidesdb_x_value_reader_free(__VA_ARGS__))
#define tidesdb_x_value_reader_new(...) \
    (COUNTED(tidesdb_x_value_reader_new), tidesdb_x_value_reader_new(__VA_ARGS__))
#define tidesdb_x_value_reader_read(...) \
    (COUNTED(tidesdb_x_value_reader_read), tidesdb_x_value_reader_read(__VA_ARGS__))
#define tidesdb_x_value_reader_read_at(...) \
    (COUNTED(tidesdb_x_value_reader_read_at), tidesdb_x_value_reader_read_at(__VA_ARGS__))
#define tidesdb_x_value_writer_commit(...) \
    (COUNTED(tidesdb_x_value_writer_commit), tidesdb_x_value_writer_commit(__VA_ARGS__))
#define tidesdb_x_value_writer_free(...) \
    (COUNTED(tidesdb_x_value_writer_free), tidesdb_x_value_writer_free(__VA_ARGS__))
#define tidesdb_x_value_writer_join(...) \
    (COUNTED(tidesdb_x_value_writer_join), tidesdb_x_value_writer_join(__VA_ARGS__))
#define tidesdb_x_value_writer_new(...) \
    (COUNTED(tidesdb_x_value_writer_new), tidesdb_x_value_writer_new(__VA_ARGS__))
#define tidesdb_x_value_writer_write(...) \
    (COUNTED(tidesdb_x_value_writer_write), tidesdb_x_value_writer_write(__VA_ARGS__))
#define tidesdb_x_verify(...) (COUNTED(tidesdb_x_verify), tidesdb_x_verify(__VA_ARGS__))
#define tidesdb_x_writer_diagnose(...) \
    (COUNTED(tidesdb_x_writer_diagnose), tidesdb_x_writer_diagnose(__VA_ARGS__))
#define tidesdb_x_writer_figures(...) \
    (COUNTED(tidesdb_x_writer_figures), tidesdb_x_writer_figures(__VA_ARGS__))

#endif
