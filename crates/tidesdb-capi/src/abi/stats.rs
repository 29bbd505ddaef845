//! Statistics structures of the C interface.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;

use super::FamilyConfig;

/// `tidesdb_stats_t`: created by `tidesdb_get_stats`, freed by `tidesdb_free_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct FamilyStats {
    pub num_levels: c_int,
    pub memtable_size: usize,
    pub level_sizes: *mut usize,
    pub level_num_sstables: *mut c_int,
    pub config: *mut FamilyConfig,
    pub total_keys: u64,
    pub total_data_size: u64,
    pub avg_key_size: f64,
    pub avg_value_size: f64,
    pub level_key_counts: *mut u64,
    pub read_amp: f64,
    pub hit_rate: f64,
    pub use_btree: c_int,
    pub btree_total_nodes: u64,
    pub btree_max_height: u32,
    pub btree_avg_height: f64,
    pub total_tombstones: u64,
    pub tombstone_ratio: f64,
    pub level_tombstone_counts: *mut u64,
    pub max_sst_density: f64,
    pub max_sst_density_level: c_int,
    pub wal_bytes_written: u64,
    pub flush_bytes_written: u64,
    pub compaction_bytes_written: u64,
    pub compaction_bytes_read: u64,
    pub user_bytes_written: u64,
    pub flush_count: u64,
    pub compaction_count: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<FamilyStats>() == 224);
    assert!(offset_of!(FamilyStats, level_key_counts) == 72);
    assert!(offset_of!(FamilyStats, btree_avg_height) == 120);
    assert!(offset_of!(FamilyStats, wal_bytes_written) == 168);
};

/// `tidesdb_cache_stats_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct CacheStats {
    pub enabled: c_int,
    pub total_entries: usize,
    pub total_bytes: usize,
    pub hits: u64,
    pub misses: u64,
    pub hit_rate: f64,
    pub num_partitions: usize,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<CacheStats>() == 56);

/// `tidesdb_db_stats_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct DbStats {
    pub num_column_families: c_int,
    pub total_memory: u64,
    pub available_memory: u64,
    pub resolved_memory_limit: usize,
    pub memory_pressure_level: c_int,
    pub flush_pending_count: c_int,
    pub total_memtable_bytes: i64,
    pub total_immutable_count: c_int,
    pub total_sstable_count: c_int,
    pub total_data_size_bytes: u64,
    pub num_open_sstables: c_int,
    pub global_seq: u64,
    pub txn_memory_bytes: i64,
    pub compaction_queue_size: usize,
    pub flush_queue_size: usize,
    pub unified_memtable_enabled: c_int,
    pub unified_memtable_bytes: i64,
    pub unified_immutable_count: c_int,
    pub unified_is_flushing: c_int,
    pub unified_next_cf_index: u32,
    pub unified_wal_generation: u64,
    pub object_store_enabled: c_int,
    pub object_store_connector: *const c_char,
    pub local_cache_bytes_used: usize,
    pub local_cache_bytes_max: usize,
    pub local_cache_num_files: c_int,
    pub last_uploaded_generation: u64,
    pub upload_queue_depth: usize,
    pub total_uploads: u64,
    pub total_upload_failures: u64,
    pub replica_mode: c_int,
    pub primary_epoch: u64,
    pub seen_epoch: u64,
    pub uwal_bytes_written: u64,
    pub wal_bytes_written: u64,
    pub flush_bytes_written: u64,
    pub compaction_bytes_written: u64,
    pub compaction_bytes_read: u64,
    pub user_bytes_written: u64,
    pub flush_count: u64,
    pub compaction_count: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DbStats>() == 304);
    assert!(offset_of!(DbStats, total_data_size_bytes) == 56);
    assert!(offset_of!(DbStats, unified_next_cf_index) == 128);
    assert!(offset_of!(DbStats, object_store_connector) == 152);
    assert!(offset_of!(DbStats, replica_mode) == 216);
    assert!(offset_of!(DbStats, compaction_count) == 296);
};
