//! The structures of Rust have the layouts of those of C: see `c-tests/layout.c`.

use std::mem::offset_of;

use super::*;

/// The lists that the headers are compared with, for addresses of 64 bits and of 32, in which Linux on x86 aligns 64-bit numbers to 4 bytes.
const GOLDEN: Option<&str> = if cfg!(target_pointer_width = "64") {
    Some(include_str!("../../c-tests/layout.golden"))
} else if cfg!(all(target_arch = "x86", target_os = "linux")) {
    Some(include_str!("../../c-tests/layout32.golden"))
} else {
    None
};

/// Returns the lines of the list for structures of Rust.
macro_rules! layouts {
    ($($name:literal $type:ty: $($field:ident)*;)*) => {
        [$(
            format!("{} {}", $name, size_of::<$type>()),
            $(format!("{}.{} {}", $name, stringify!($field), offset_of!($type, $field)),)*
        )*]
    };
}

fn base() -> Vec<String> {
    layouts! {
        "tidesdb_column_family_config_t" FamilyConfig: name write_buffer_size level_size_ratio min_levels
            dividing_level_offset klog_value_threshold compression_algorithm enable_bloom_filter bloom_fpr
            enable_block_indexes index_sample_ratio block_index_prefix_len sync_mode sync_interval_us
            comparator_name comparator_ctx_str comparator_fn_cached comparator_ctx_cached skip_list_max_level
            skip_list_probability default_isolation_level min_disk_space l1_file_count_trigger
            l0_queue_stall_threshold tombstone_density_trigger tombstone_density_min_entries use_btree
            commit_hook_fn commit_hook_ctx object_target_file_size object_lazy_compaction
            object_prefetch_compaction;
        "tidesdb_config_t" Config: db_path num_flush_threads num_compaction_threads log_level block_cache_size
            max_open_sstables log_to_file log_truncation_at max_memory_usage unified_memtable
            unified_memtable_write_buffer_size unified_memtable_skip_list_max_level
            unified_memtable_skip_list_probability unified_memtable_sync_mode
            unified_memtable_sync_interval_us object_store object_store_config max_concurrent_flushes
            finish_compactions_on_close;
        "tidesdb_stats_t" FamilyStats: num_levels memtable_size level_sizes level_num_sstables config
            total_keys total_data_size avg_key_size avg_value_size level_key_counts read_amp hit_rate
            use_btree btree_total_nodes btree_max_height btree_avg_height total_tombstones tombstone_ratio
            level_tombstone_counts max_sst_density max_sst_density_level wal_bytes_written flush_bytes_written
            compaction_bytes_written compaction_bytes_read user_bytes_written flush_count compaction_count;
        "tidesdb_cache_stats_t" CacheStats: enabled total_entries total_bytes hits misses hit_rate
            num_partitions;
        "tidesdb_db_stats_t" DbStats: num_column_families total_memory available_memory resolved_memory_limit
            memory_pressure_level flush_pending_count total_memtable_bytes total_immutable_count
            total_sstable_count total_data_size_bytes num_open_sstables global_seq txn_memory_bytes
            compaction_queue_size flush_queue_size unified_memtable_enabled unified_memtable_bytes
            unified_immutable_count unified_is_flushing unified_next_cf_index unified_wal_generation
            object_store_enabled object_store_connector local_cache_bytes_used local_cache_bytes_max
            local_cache_num_files last_uploaded_generation upload_queue_depth total_uploads
            total_upload_failures replica_mode primary_epoch seen_epoch uwal_bytes_written wal_bytes_written
            flush_bytes_written compaction_bytes_written compaction_bytes_read user_bytes_written flush_count
            compaction_count;
        "tidesdb_commit_op_t" CommitOp: key key_size value value_size ttl is_delete;
        "tidesdb_objstore_config_t" ObjstoreConfig: local_cache_path local_cache_max_bytes cache_on_read
            cache_on_write max_concurrent_uploads max_concurrent_downloads multipart_threshold
            multipart_part_size sync_manifest_to_object replicate_wal wal_upload_sync wal_sync_threshold_bytes
            wal_sync_on_commit replica_mode replica_sync_interval_us replica_replay_wal;
        "tidesdb_objstore_s3_config_t" S3Config: endpoint bucket prefix access_key secret_key region use_ssl
            use_path_style tls_ca_path tls_insecure_skip_verify multipart_threshold multipart_part_size;
        "tidesdb_objstore_t" Objstore: backend put get range_get delete_object exists list put_if head destroy
            ctx;
    }
    .to_vec()
}

fn extended() -> Vec<String> {
    layouts! {
        "tidesdb_x_commit_op_t" extended::CommitOp: kind key key_size value value_size expires_at_ms;
        "tidesdb_x_read_options_t" extended::ReadOptions: size txn snapshot flags;
        "tidesdb_x_write_options_t" extended::WriteOptions: size sync_mode flags sync_interval_us ttl_ms
            expires_at_ms;
        "tidesdb_x_span_t" extended::Span: offset size;
        "tidesdb_x_row_t" extended::Row: offset key_size value_size;
        "tidesdb_x_merge_operator_t" extended::MergeOperator: size name merge check ctx;
        "tidesdb_x_comparator_t" extended::OrderOf: size name compare ctx;
        "tidesdb_x_open_options_t" extended::OpenOptions: size config comparators comparator_count
            merge_operators merge_operator_count history_bytes flags resources;
        "tidesdb_x_resources_options_t" extended::ResourcesOptions: size memory_limit cache_bytes descriptors
            compaction_bytes_per_second threads;
        "tidesdb_x_resources_use_t" extended::ResourcesUse: size memory_limit memory_used cache_used databases
            threads;
        "tidesdb_x_family_options_t" extended::FamilyOptions: size config merge_operator default_ttl_ms;
        "tidesdb_x_figure_t" extended::Figure: group of name unit level is_counter number real;
        "tidesdb_x_health_t" extended::Health: size state was_closed recovered_commits recovered_log_bytes
            discarded_commits;
        "tidesdb_x_verified_t" extended::Verified: size tables value_logs entries unflushed faults;
        "tidesdb_x_writer_t" extended::Writer: size state process age_ms open_for_ms written_ms;
        "tidesdb_x_finding_t" extended::Finding: severity rule what evidence cause advice price;
        "tidesdb_x_ingested_t" extended::Ingested: size seq tables rows bytes;
        "tidesdb_x_tables_t" extended::Tables: cf paths count;
        "tidesdb_x_generation_t" extended::Generation: number created_ms seq files bytes bytes_copied
            proven_ms is_proven database;
        "tidesdb_x_backup_options_t" extended::BackupOptions: size scratch bytes_per_second progress ctx stop;
    }
    .to_vec()
}

#[test]
fn structures_have_the_layouts_of_the_headers() {
    let Some(golden) = GOLDEN else { return };
    let ours = [base(), extended()].concat();
    let of_structures = |line: &&str| {
        line.split_once(' ').is_some_and(|(name, _)| name.contains('.') || name.ends_with("_t"))
    };
    let listed: Vec<&str> = golden
        .lines()
        .filter(of_structures)
        .filter(|line| !line.starts_with("tidesdb_allocator_t"))
        .collect();
    assert_eq!(ours.len(), listed.len(), "a structure is missing");
    for line in &ours {
        assert!(listed.contains(&line.as_str()), "{line}");
    }
}
