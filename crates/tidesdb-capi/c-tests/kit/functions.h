/*
 * All functions of the library, with a counter of the calls of each. At its end, a test program that includes this reports
 * the functions it never called. A name followed by arguments is counted; a name alone is the plain function.
 */
#ifndef KIT_FUNCTIONS_H
#define KIT_FUNCTIONS_H

#include <stdatomic.h>

#include <tidesdb/tidesdb.h>

#ifdef KIT_EXTENDED
/* The program tests tidesdb/extended.h: it counts the calls of those functions only. */
#include "extended.h"
#else

#define ALL_FUNCTIONS(X) \
    X(tidesdb_backup) \
    X(tidesdb_cancel_background_work) \
    X(tidesdb_cf_config_load_from_ini) \
    X(tidesdb_cf_config_save_to_ini) \
    X(tidesdb_cf_estimate_cardinality) \
    X(tidesdb_cf_set_commit_hook) \
    X(tidesdb_cf_update_runtime_config) \
    X(tidesdb_checkpoint) \
    X(tidesdb_clone_column_family) \
    X(tidesdb_close) \
    X(tidesdb_compact) \
    X(tidesdb_compact_range) \
    X(tidesdb_comparator_case_insensitive) \
    X(tidesdb_comparator_int64) \
    X(tidesdb_comparator_lexicographic) \
    X(tidesdb_comparator_memcmp) \
    X(tidesdb_comparator_reverse_memcmp) \
    X(tidesdb_comparator_uint64) \
    X(tidesdb_compression_available) \
    X(tidesdb_create_column_family) \
    X(tidesdb_default_column_family_config) \
    X(tidesdb_default_config) \
    X(tidesdb_delete_column_family) \
    X(tidesdb_drop_column_family) \
    X(tidesdb_ensure_initialized) \
    X(tidesdb_finalize) \
    X(tidesdb_flush_memtable) \
    X(tidesdb_free) \
    X(tidesdb_free_stats) \
    X(tidesdb_get_cache_stats) \
    X(tidesdb_get_column_family) \
    X(tidesdb_get_comparator) \
    X(tidesdb_get_db_stats) \
    X(tidesdb_get_stats) \
    X(tidesdb_init) \
    X(tidesdb_is_compacting) \
    X(tidesdb_is_flushing) \
    X(tidesdb_iter_free) \
    X(tidesdb_iter_key) \
    X(tidesdb_iter_key_value) \
    X(tidesdb_iter_new) \
    X(tidesdb_iter_next) \
    X(tidesdb_iter_prev) \
    X(tidesdb_iter_seek) \
    X(tidesdb_iter_seek_for_prev) \
    X(tidesdb_iter_seek_to_first) \
    X(tidesdb_iter_seek_to_last) \
    X(tidesdb_iter_valid) \
    X(tidesdb_iter_value) \
    X(tidesdb_last_error) \
    X(tidesdb_list_column_families) \
    X(tidesdb_log_write) \
    X(tidesdb_objstore_default_config) \
    X(tidesdb_objstore_fs_create) \
    X(tidesdb_objstore_s3_create) \
    X(tidesdb_objstore_s3_create_config) \
    X(tidesdb_open) \
    X(tidesdb_promote_to_primary) \
    X(tidesdb_purge) \
    X(tidesdb_purge_cf) \
    X(tidesdb_raise_open_file_limit) \
    X(tidesdb_range_cost) \
    X(tidesdb_register_comparator) \
    X(tidesdb_rename_column_family) \
    X(tidesdb_sync_wal) \
    X(tidesdb_txn_begin) \
    X(tidesdb_txn_begin_with_isolation) \
    X(tidesdb_txn_commit) \
    X(tidesdb_txn_contains) \
    X(tidesdb_txn_delete) \
    X(tidesdb_txn_free) \
    X(tidesdb_txn_get) \
    X(tidesdb_txn_get_notrack) \
    X(tidesdb_txn_put) \
    X(tidesdb_txn_release_savepoint) \
    X(tidesdb_txn_reset) \
    X(tidesdb_txn_rollback) \
    X(tidesdb_txn_rollback_to_savepoint) \
    X(tidesdb_txn_savepoint) \
    X(tidesdb_txn_single_delete)

#endif

#define FUNCTION_NUMBER(name) N_##name,
enum function_number { ALL_FUNCTIONS(FUNCTION_NUMBER) FUNCTION_COUNT };

/* Shared between a test program and its children. The last element counts checks. */
extern atomic_uint *function_calls;

#define COUNTED(name) atomic_fetch_add_explicit(&function_calls[N_##name], 1, memory_order_relaxed)

#ifndef KIT_EXTENDED
#define tidesdb_backup(...) (COUNTED(tidesdb_backup), tidesdb_backup(__VA_ARGS__))
#define tidesdb_cancel_background_work(...) \
    (COUNTED(tidesdb_cancel_background_work), tidesdb_cancel_background_work(__VA_ARGS__))
#define tidesdb_cf_config_load_from_ini(...) \
    (COUNTED(tidesdb_cf_config_load_from_ini), tidesdb_cf_config_load_from_ini(__VA_ARGS__))
#define tidesdb_cf_config_save_to_ini(...) \
    (COUNTED(tidesdb_cf_config_save_to_ini), tidesdb_cf_config_save_to_ini(__VA_ARGS__))
#define tidesdb_cf_estimate_cardinality(...) \
    (COUNTED(tidesdb_cf_estimate_cardinality), tidesdb_cf_estimate_cardinality(__VA_ARGS__))
#define tidesdb_cf_set_commit_hook(...) \
    (COUNTED(tidesdb_cf_set_commit_hook), tidesdb_cf_set_commit_hook(__VA_ARGS__))
#define tidesdb_cf_update_runtime_config(...) \
    (COUNTED(tidesdb_cf_update_runtime_config), tidesdb_cf_update_runtime_config(__VA_ARGS__))
#define tidesdb_checkpoint(...) (COUNTED(tidesdb_checkpoint), tidesdb_checkpoint(__VA_ARGS__))
#define tidesdb_clone_column_family(...) \
    (COUNTED(tidesdb_clone_column_family), tidesdb_clone_column_family(__VA_ARGS__))
#define tidesdb_close(...) (COUNTED(tidesdb_close), tidesdb_close(__VA_ARGS__))
#define tidesdb_compact(...) (COUNTED(tidesdb_compact), tidesdb_compact(__VA_ARGS__))
#define tidesdb_compact_range(...) \
    (COUNTED(tidesdb_compact_range), tidesdb_compact_range(__VA_ARGS__))
#define tidesdb_comparator_case_insensitive(...) \
    (COUNTED(tidesdb_comparator_case_insensitive), tidesdb_comparator_case_insensitive(__VA_ARGS__))
#define tidesdb_comparator_int64(...) \
    (COUNTED(tidesdb_comparator_int64), tidesdb_comparator_int64(__VA_ARGS__))
#define tidesdb_comparator_lexicographic(...) \
    (COUNTED(tidesdb_comparator_lexicographic), tidesdb_comparator_lexicographic(__VA_ARGS__))
#define tidesdb_comparator_memcmp(...) \
    (COUNTED(tidesdb_comparator_memcmp), tidesdb_comparator_memcmp(__VA_ARGS__))
#define tidesdb_comparator_reverse_memcmp(...) \
    (COUNTED(tidesdb_comparator_reverse_memcmp), tidesdb_comparator_reverse_memcmp(__VA_ARGS__))
#define tidesdb_comparator_uint64(...) \
    (COUNTED(tidesdb_comparator_uint64), tidesdb_comparator_uint64(__VA_ARGS__))
#define tidesdb_compression_available(...) \
    (COUNTED(tidesdb_compression_available), tidesdb_compression_available(__VA_ARGS__))
#define tidesdb_create_column_family(...) \
    (COUNTED(tidesdb_create_column_family), tidesdb_create_column_family(__VA_ARGS__))
#define tidesdb_default_column_family_config(...) \
    (COUNTED(tidesdb_default_column_family_config), tidesdb_default_column_family_config(__VA_ARGS__))
#define tidesdb_default_config(...) \
    (COUNTED(tidesdb_default_config), tidesdb_default_config(__VA_ARGS__))
#define tidesdb_delete_column_family(...) \
    (COUNTED(tidesdb_delete_column_family), tidesdb_delete_column_family(__VA_ARGS__))
#define tidesdb_drop_column_family(...) \
    (COUNTED(tidesdb_drop_column_family), tidesdb_drop_column_family(__VA_ARGS__))
#define tidesdb_ensure_initialized(...) \
    (COUNTED(tidesdb_ensure_initialized), tidesdb_ensure_initialized(__VA_ARGS__))
#define tidesdb_finalize(...) (COUNTED(tidesdb_finalize), tidesdb_finalize(__VA_ARGS__))
#define tidesdb_flush_memtable(...) \
    (COUNTED(tidesdb_flush_memtable), tidesdb_flush_memtable(__VA_ARGS__))
#define tidesdb_free(...) (COUNTED(tidesdb_free), tidesdb_free(__VA_ARGS__))
#define tidesdb_free_stats(...) (COUNTED(tidesdb_free_stats), tidesdb_free_stats(__VA_ARGS__))
#define tidesdb_get_cache_stats(...) \
    (COUNTED(tidesdb_get_cache_stats), tidesdb_get_cache_stats(__VA_ARGS__))
#define tidesdb_get_column_family(...) \
    (COUNTED(tidesdb_get_column_family), tidesdb_get_column_family(__VA_ARGS__))
#define tidesdb_get_comparator(...) \
    (COUNTED(tidesdb_get_comparator), tidesdb_get_comparator(__VA_ARGS__))
#define tidesdb_get_db_stats(...) (COUNTED(tidesdb_get_db_stats), tidesdb_get_db_stats(__VA_ARGS__))
#define tidesdb_get_stats(...) (COUNTED(tidesdb_get_stats), tidesdb_get_stats(__VA_ARGS__))
#define tidesdb_init(...) (COUNTED(tidesdb_init), tidesdb_init(__VA_ARGS__))
#define tidesdb_is_compacting(...) \
    (COUNTED(tidesdb_is_compacting), tidesdb_is_compacting(__VA_ARGS__))
#define tidesdb_is_flushing(...) (COUNTED(tidesdb_is_flushing), tidesdb_is_flushing(__VA_ARGS__))
#define tidesdb_iter_free(...) (COUNTED(tidesdb_iter_free), tidesdb_iter_free(__VA_ARGS__))
#define tidesdb_iter_key(...) (COUNTED(tidesdb_iter_key), tidesdb_iter_key(__VA_ARGS__))
#define tidesdb_iter_key_value(...) \
    (COUNTED(tidesdb_iter_key_value), tidesdb_iter_key_value(__VA_ARGS__))
#define tidesdb_iter_new(...) (COUNTED(tidesdb_iter_new), tidesdb_iter_new(__VA_ARGS__))
#define tidesdb_iter_next(...) (COUNTED(tidesdb_iter_next), tidesdb_iter_next(__VA_ARGS__))
#define tidesdb_iter_prev(...) (COUNTED(tidesdb_iter_prev), tidesdb_iter_prev(__VA_ARGS__))
#define tidesdb_iter_seek(...) (COUNTED(tidesdb_iter_seek), tidesdb_iter_seek(__VA_ARGS__))
#define tidesdb_iter_seek_for_prev(...) \
    (COUNTED(tidesdb_iter_seek_for_prev), tidesdb_iter_seek_for_prev(__VA_ARGS__))
#define tidesdb_iter_seek_to_first(...) \
    (COUNTED(tidesdb_iter_seek_to_first), tidesdb_iter_seek_to_first(__VA_ARGS__))
#define tidesdb_iter_seek_to_last(...) \
    (COUNTED(tidesdb_iter_seek_to_last), tidesdb_iter_seek_to_last(__VA_ARGS__))
#define tidesdb_iter_valid(...) (COUNTED(tidesdb_iter_valid), tidesdb_iter_valid(__VA_ARGS__))
#define tidesdb_iter_value(...) (COUNTED(tidesdb_iter_value), tidesdb_iter_value(__VA_ARGS__))
#define tidesdb_last_error(...) (COUNTED(tidesdb_last_error), tidesdb_last_error(__VA_ARGS__))
#define tidesdb_list_column_families(...) \
    (COUNTED(tidesdb_list_column_families), tidesdb_list_column_families(__VA_ARGS__))
#define tidesdb_log_write(...) (COUNTED(tidesdb_log_write), tidesdb_log_write(__VA_ARGS__))
#define tidesdb_objstore_default_config(...) \
    (COUNTED(tidesdb_objstore_default_config), tidesdb_objstore_default_config(__VA_ARGS__))
#define tidesdb_objstore_fs_create(...) \
    (COUNTED(tidesdb_objstore_fs_create), tidesdb_objstore_fs_create(__VA_ARGS__))
#define tidesdb_objstore_s3_create(...) \
    (COUNTED(tidesdb_objstore_s3_create), tidesdb_objstore_s3_create(__VA_ARGS__))
#define tidesdb_objstore_s3_create_config(...) \
    (COUNTED(tidesdb_objstore_s3_create_config), tidesdb_objstore_s3_create_config(__VA_ARGS__))
#define tidesdb_open(...) (COUNTED(tidesdb_open), tidesdb_open(__VA_ARGS__))
#define tidesdb_promote_to_primary(...) \
    (COUNTED(tidesdb_promote_to_primary), tidesdb_promote_to_primary(__VA_ARGS__))
#define tidesdb_purge(...) (COUNTED(tidesdb_purge), tidesdb_purge(__VA_ARGS__))
#define tidesdb_purge_cf(...) (COUNTED(tidesdb_purge_cf), tidesdb_purge_cf(__VA_ARGS__))
#define tidesdb_raise_open_file_limit(...) \
    (COUNTED(tidesdb_raise_open_file_limit), tidesdb_raise_open_file_limit(__VA_ARGS__))
#define tidesdb_range_cost(...) (COUNTED(tidesdb_range_cost), tidesdb_range_cost(__VA_ARGS__))
#define tidesdb_register_comparator(...) \
    (COUNTED(tidesdb_register_comparator), tidesdb_register_comparator(__VA_ARGS__))
#define tidesdb_rename_column_family(...) \
    (COUNTED(tidesdb_rename_column_family), tidesdb_rename_column_family(__VA_ARGS__))
#define tidesdb_sync_wal(...) (COUNTED(tidesdb_sync_wal), tidesdb_sync_wal(__VA_ARGS__))
#define tidesdb_txn_begin(...) (COUNTED(tidesdb_txn_begin), tidesdb_txn_begin(__VA_ARGS__))
#define tidesdb_txn_begin_with_isolation(...) \
    (COUNTED(tidesdb_txn_begin_with_isolation), tidesdb_txn_begin_with_isolation(__VA_ARGS__))
#define tidesdb_txn_commit(...) (COUNTED(tidesdb_txn_commit), tidesdb_txn_commit(__VA_ARGS__))
#define tidesdb_txn_contains(...) (COUNTED(tidesdb_txn_contains), tidesdb_txn_contains(__VA_ARGS__))
#define tidesdb_txn_delete(...) (COUNTED(tidesdb_txn_delete), tidesdb_txn_delete(__VA_ARGS__))
#define tidesdb_txn_free(...) (COUNTED(tidesdb_txn_free), tidesdb_txn_free(__VA_ARGS__))
#define tidesdb_txn_get(...) (COUNTED(tidesdb_txn_get), tidesdb_txn_get(__VA_ARGS__))
#define tidesdb_txn_get_notrack(...) \
    (COUNTED(tidesdb_txn_get_notrack), tidesdb_txn_get_notrack(__VA_ARGS__))
#define tidesdb_txn_put(...) (COUNTED(tidesdb_txn_put), tidesdb_txn_put(__VA_ARGS__))
#define tidesdb_txn_release_savepoint(...) \
    (COUNTED(tidesdb_txn_release_savepoint), tidesdb_txn_release_savepoint(__VA_ARGS__))
#define tidesdb_txn_reset(...) (COUNTED(tidesdb_txn_reset), tidesdb_txn_reset(__VA_ARGS__))
#define tidesdb_txn_rollback(...) (COUNTED(tidesdb_txn_rollback), tidesdb_txn_rollback(__VA_ARGS__))
#define tidesdb_txn_rollback_to_savepoint(...) \
    (COUNTED(tidesdb_txn_rollback_to_savepoint), tidesdb_txn_rollback_to_savepoint(__VA_ARGS__))
#define tidesdb_txn_savepoint(...) \
    (COUNTED(tidesdb_txn_savepoint), tidesdb_txn_savepoint(__VA_ARGS__))
#define tidesdb_txn_single_delete(...) \
    (COUNTED(tidesdb_txn_single_delete), tidesdb_txn_single_delete(__VA_ARGS__))

#endif

#endif
