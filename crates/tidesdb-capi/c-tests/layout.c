/*
 * Prints the size of every public structure, the offset of every field, and every constant. What it prints must be
 * layout.golden, which was written from the description of the ABI and is never made by running this.
 */
#include <stddef.h>
#include <stdio.h>

#include <tidesdb/tidesdb.h>

#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define VALUE(name) printf("%s %d\n", #name, (int)(name))

static void allocator(void)
{
    STRUCT(tidesdb_allocator_t);
    FIELD(tidesdb_allocator_t, malloc_fn);
    FIELD(tidesdb_allocator_t, calloc_fn);
    FIELD(tidesdb_allocator_t, realloc_fn);
    FIELD(tidesdb_allocator_t, free_fn);
}

static void column_family_config(void)
{
    STRUCT(tidesdb_column_family_config_t);
    FIELD(tidesdb_column_family_config_t, name);
    FIELD(tidesdb_column_family_config_t, write_buffer_size);
    FIELD(tidesdb_column_family_config_t, level_size_ratio);
    FIELD(tidesdb_column_family_config_t, min_levels);
    FIELD(tidesdb_column_family_config_t, dividing_level_offset);
    FIELD(tidesdb_column_family_config_t, klog_value_threshold);
    FIELD(tidesdb_column_family_config_t, compression_algorithm);
    FIELD(tidesdb_column_family_config_t, enable_bloom_filter);
    FIELD(tidesdb_column_family_config_t, bloom_fpr);
    FIELD(tidesdb_column_family_config_t, enable_block_indexes);
    FIELD(tidesdb_column_family_config_t, index_sample_ratio);
    FIELD(tidesdb_column_family_config_t, block_index_prefix_len);
    FIELD(tidesdb_column_family_config_t, sync_mode);
    FIELD(tidesdb_column_family_config_t, sync_interval_us);
    FIELD(tidesdb_column_family_config_t, comparator_name);
    FIELD(tidesdb_column_family_config_t, comparator_ctx_str);
    FIELD(tidesdb_column_family_config_t, comparator_fn_cached);
    FIELD(tidesdb_column_family_config_t, comparator_ctx_cached);
    FIELD(tidesdb_column_family_config_t, skip_list_max_level);
    FIELD(tidesdb_column_family_config_t, skip_list_probability);
    FIELD(tidesdb_column_family_config_t, default_isolation_level);
    FIELD(tidesdb_column_family_config_t, min_disk_space);
    FIELD(tidesdb_column_family_config_t, l1_file_count_trigger);
    FIELD(tidesdb_column_family_config_t, l0_queue_stall_threshold);
    FIELD(tidesdb_column_family_config_t, tombstone_density_trigger);
    FIELD(tidesdb_column_family_config_t, tombstone_density_min_entries);
    FIELD(tidesdb_column_family_config_t, use_btree);
    FIELD(tidesdb_column_family_config_t, commit_hook_fn);
    FIELD(tidesdb_column_family_config_t, commit_hook_ctx);
    FIELD(tidesdb_column_family_config_t, object_target_file_size);
    FIELD(tidesdb_column_family_config_t, object_lazy_compaction);
    FIELD(tidesdb_column_family_config_t, object_prefetch_compaction);
}

static void config(void)
{
    STRUCT(tidesdb_config_t);
    FIELD(tidesdb_config_t, db_path);
    FIELD(tidesdb_config_t, num_flush_threads);
    FIELD(tidesdb_config_t, num_compaction_threads);
    FIELD(tidesdb_config_t, log_level);
    FIELD(tidesdb_config_t, block_cache_size);
    FIELD(tidesdb_config_t, max_open_sstables);
    FIELD(tidesdb_config_t, log_to_file);
    FIELD(tidesdb_config_t, log_truncation_at);
    FIELD(tidesdb_config_t, max_memory_usage);
    FIELD(tidesdb_config_t, unified_memtable);
    FIELD(tidesdb_config_t, unified_memtable_write_buffer_size);
    FIELD(tidesdb_config_t, unified_memtable_skip_list_max_level);
    FIELD(tidesdb_config_t, unified_memtable_skip_list_probability);
    FIELD(tidesdb_config_t, unified_memtable_sync_mode);
    FIELD(tidesdb_config_t, unified_memtable_sync_interval_us);
    FIELD(tidesdb_config_t, object_store);
    FIELD(tidesdb_config_t, object_store_config);
    FIELD(tidesdb_config_t, max_concurrent_flushes);
    FIELD(tidesdb_config_t, finish_compactions_on_close);
}

static void stats(void)
{
    STRUCT(tidesdb_stats_t);
    FIELD(tidesdb_stats_t, num_levels);
    FIELD(tidesdb_stats_t, memtable_size);
    FIELD(tidesdb_stats_t, level_sizes);
    FIELD(tidesdb_stats_t, level_num_sstables);
    FIELD(tidesdb_stats_t, config);
    FIELD(tidesdb_stats_t, total_keys);
    FIELD(tidesdb_stats_t, total_data_size);
    FIELD(tidesdb_stats_t, avg_key_size);
    FIELD(tidesdb_stats_t, avg_value_size);
    FIELD(tidesdb_stats_t, level_key_counts);
    FIELD(tidesdb_stats_t, read_amp);
    FIELD(tidesdb_stats_t, hit_rate);
    FIELD(tidesdb_stats_t, use_btree);
    FIELD(tidesdb_stats_t, btree_total_nodes);
    FIELD(tidesdb_stats_t, btree_max_height);
    FIELD(tidesdb_stats_t, btree_avg_height);
    FIELD(tidesdb_stats_t, total_tombstones);
    FIELD(tidesdb_stats_t, tombstone_ratio);
    FIELD(tidesdb_stats_t, level_tombstone_counts);
    FIELD(tidesdb_stats_t, max_sst_density);
    FIELD(tidesdb_stats_t, max_sst_density_level);
    FIELD(tidesdb_stats_t, wal_bytes_written);
    FIELD(tidesdb_stats_t, flush_bytes_written);
    FIELD(tidesdb_stats_t, compaction_bytes_written);
    FIELD(tidesdb_stats_t, compaction_bytes_read);
    FIELD(tidesdb_stats_t, user_bytes_written);
    FIELD(tidesdb_stats_t, flush_count);
    FIELD(tidesdb_stats_t, compaction_count);
}

static void cache_stats(void)
{
    STRUCT(tidesdb_cache_stats_t);
    FIELD(tidesdb_cache_stats_t, enabled);
    FIELD(tidesdb_cache_stats_t, total_entries);
    FIELD(tidesdb_cache_stats_t, total_bytes);
    FIELD(tidesdb_cache_stats_t, hits);
    FIELD(tidesdb_cache_stats_t, misses);
    FIELD(tidesdb_cache_stats_t, hit_rate);
    FIELD(tidesdb_cache_stats_t, num_partitions);
}

static void db_stats(void)
{
    STRUCT(tidesdb_db_stats_t);
    FIELD(tidesdb_db_stats_t, num_column_families);
    FIELD(tidesdb_db_stats_t, total_memory);
    FIELD(tidesdb_db_stats_t, available_memory);
    FIELD(tidesdb_db_stats_t, resolved_memory_limit);
    FIELD(tidesdb_db_stats_t, memory_pressure_level);
    FIELD(tidesdb_db_stats_t, flush_pending_count);
    FIELD(tidesdb_db_stats_t, total_memtable_bytes);
    FIELD(tidesdb_db_stats_t, total_immutable_count);
    FIELD(tidesdb_db_stats_t, total_sstable_count);
    FIELD(tidesdb_db_stats_t, total_data_size_bytes);
    FIELD(tidesdb_db_stats_t, num_open_sstables);
    FIELD(tidesdb_db_stats_t, global_seq);
    FIELD(tidesdb_db_stats_t, txn_memory_bytes);
    FIELD(tidesdb_db_stats_t, compaction_queue_size);
    FIELD(tidesdb_db_stats_t, flush_queue_size);
    FIELD(tidesdb_db_stats_t, unified_memtable_enabled);
    FIELD(tidesdb_db_stats_t, unified_memtable_bytes);
    FIELD(tidesdb_db_stats_t, unified_immutable_count);
    FIELD(tidesdb_db_stats_t, unified_is_flushing);
    FIELD(tidesdb_db_stats_t, unified_next_cf_index);
    FIELD(tidesdb_db_stats_t, unified_wal_generation);
    FIELD(tidesdb_db_stats_t, object_store_enabled);
    FIELD(tidesdb_db_stats_t, object_store_connector);
    FIELD(tidesdb_db_stats_t, local_cache_bytes_used);
    FIELD(tidesdb_db_stats_t, local_cache_bytes_max);
    FIELD(tidesdb_db_stats_t, local_cache_num_files);
    FIELD(tidesdb_db_stats_t, last_uploaded_generation);
    FIELD(tidesdb_db_stats_t, upload_queue_depth);
    FIELD(tidesdb_db_stats_t, total_uploads);
    FIELD(tidesdb_db_stats_t, total_upload_failures);
    FIELD(tidesdb_db_stats_t, replica_mode);
    FIELD(tidesdb_db_stats_t, primary_epoch);
    FIELD(tidesdb_db_stats_t, seen_epoch);
    FIELD(tidesdb_db_stats_t, uwal_bytes_written);
    FIELD(tidesdb_db_stats_t, wal_bytes_written);
    FIELD(tidesdb_db_stats_t, flush_bytes_written);
    FIELD(tidesdb_db_stats_t, compaction_bytes_written);
    FIELD(tidesdb_db_stats_t, compaction_bytes_read);
    FIELD(tidesdb_db_stats_t, user_bytes_written);
    FIELD(tidesdb_db_stats_t, flush_count);
    FIELD(tidesdb_db_stats_t, compaction_count);
}

static void commit_op(void)
{
    STRUCT(tidesdb_commit_op_t);
    FIELD(tidesdb_commit_op_t, key);
    FIELD(tidesdb_commit_op_t, key_size);
    FIELD(tidesdb_commit_op_t, value);
    FIELD(tidesdb_commit_op_t, value_size);
    FIELD(tidesdb_commit_op_t, ttl);
    FIELD(tidesdb_commit_op_t, is_delete);
}

static void objstore_config(void)
{
    STRUCT(tidesdb_objstore_config_t);
    FIELD(tidesdb_objstore_config_t, local_cache_path);
    FIELD(tidesdb_objstore_config_t, local_cache_max_bytes);
    FIELD(tidesdb_objstore_config_t, cache_on_read);
    FIELD(tidesdb_objstore_config_t, cache_on_write);
    FIELD(tidesdb_objstore_config_t, max_concurrent_uploads);
    FIELD(tidesdb_objstore_config_t, max_concurrent_downloads);
    FIELD(tidesdb_objstore_config_t, multipart_threshold);
    FIELD(tidesdb_objstore_config_t, multipart_part_size);
    FIELD(tidesdb_objstore_config_t, sync_manifest_to_object);
    FIELD(tidesdb_objstore_config_t, replicate_wal);
    FIELD(tidesdb_objstore_config_t, wal_upload_sync);
    FIELD(tidesdb_objstore_config_t, wal_sync_threshold_bytes);
    FIELD(tidesdb_objstore_config_t, wal_sync_on_commit);
    FIELD(tidesdb_objstore_config_t, replica_mode);
    FIELD(tidesdb_objstore_config_t, replica_sync_interval_us);
    FIELD(tidesdb_objstore_config_t, replica_replay_wal);
}

static void objstore_s3_config(void)
{
    STRUCT(tidesdb_objstore_s3_config_t);
    FIELD(tidesdb_objstore_s3_config_t, endpoint);
    FIELD(tidesdb_objstore_s3_config_t, bucket);
    FIELD(tidesdb_objstore_s3_config_t, prefix);
    FIELD(tidesdb_objstore_s3_config_t, access_key);
    FIELD(tidesdb_objstore_s3_config_t, secret_key);
    FIELD(tidesdb_objstore_s3_config_t, region);
    FIELD(tidesdb_objstore_s3_config_t, use_ssl);
    FIELD(tidesdb_objstore_s3_config_t, use_path_style);
    FIELD(tidesdb_objstore_s3_config_t, tls_ca_path);
    FIELD(tidesdb_objstore_s3_config_t, tls_insecure_skip_verify);
    FIELD(tidesdb_objstore_s3_config_t, multipart_threshold);
    FIELD(tidesdb_objstore_s3_config_t, multipart_part_size);
}

static void objstore(void)
{
    STRUCT(tidesdb_objstore_t);
    FIELD(tidesdb_objstore_t, backend);
    FIELD(tidesdb_objstore_t, put);
    FIELD(tidesdb_objstore_t, get);
    FIELD(tidesdb_objstore_t, range_get);
    FIELD(tidesdb_objstore_t, delete_object);
    FIELD(tidesdb_objstore_t, exists);
    FIELD(tidesdb_objstore_t, list);
    FIELD(tidesdb_objstore_t, put_if);
    FIELD(tidesdb_objstore_t, head);
    FIELD(tidesdb_objstore_t, destroy);
    FIELD(tidesdb_objstore_t, ctx);
}

static void constants(void)
{
    VALUE(TDB_SUCCESS);
    VALUE(TDB_ERR_MEMORY);
    VALUE(TDB_ERR_INVALID_ARGS);
    VALUE(TDB_ERR_NOT_FOUND);
    VALUE(TDB_ERR_IO);
    VALUE(TDB_ERR_CORRUPTION);
    VALUE(TDB_ERR_EXISTS);
    VALUE(TDB_ERR_CONFLICT);
    VALUE(TDB_ERR_TOO_LARGE);
    VALUE(TDB_ERR_MEMORY_LIMIT);
    VALUE(TDB_ERR_INVALID_DB);
    VALUE(TDB_ERR_UNKNOWN);
    VALUE(TDB_ERR_LOCKED);
    VALUE(TDB_ERR_READONLY);
    VALUE(TDB_ERR_BUSY);
    VALUE(TDB_ERR_PRECONDITION);
    VALUE(TDB_BACKEND_FS);
    VALUE(TDB_BACKEND_S3);
    VALUE(TDB_BACKEND_UNKNOWN);
    VALUE(TDB_PUT_OVERWRITE);
    VALUE(TDB_PUT_IF_NONE_MATCH);
    VALUE(TDB_PUT_IF_MATCH);
    VALUE(TDB_LOG_DEBUG);
    VALUE(TDB_LOG_INFO);
    VALUE(TDB_LOG_WARN);
    VALUE(TDB_LOG_ERROR);
    VALUE(TDB_LOG_FATAL);
    VALUE(TDB_LOG_NONE);
    VALUE(TDB_ISOLATION_READ_UNCOMMITTED);
    VALUE(TDB_ISOLATION_READ_COMMITTED);
    VALUE(TDB_ISOLATION_REPEATABLE_READ);
    VALUE(TDB_ISOLATION_SNAPSHOT);
    VALUE(TDB_ISOLATION_SERIALIZABLE);
    VALUE(TDB_COMPRESS_NONE);
    VALUE(TDB_COMPRESS_SNAPPY);
    VALUE(TDB_COMPRESS_LZ4);
    VALUE(TDB_COMPRESS_ZSTD);
    VALUE(TDB_COMPRESS_LZ4_FAST);
    VALUE(TDB_SYNC_NONE);
    VALUE(TDB_SYNC_FULL);
    VALUE(TDB_SYNC_INTERVAL);
    VALUE(TDB_MAX_COMPARATOR_NAME);
    VALUE(TDB_MAX_COMPARATOR_CTX);
    VALUE(TDB_MAX_CF_NAME_LEN);
    VALUE(TDB_OBJSTORE_ETAG_SIZE);
    VALUE(TIDESDB_VERSION_MAJOR);
}

int main(void)
{
    allocator();
    column_family_config();
    config();
    stats();
    cache_stats();
    db_stats();
    commit_op();
    objstore_config();
    objstore_s3_config();
    objstore();
    constants();
    return 0;
}
