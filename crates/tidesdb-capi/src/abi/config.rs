//! Settings structures of a database and of a family, with their defaults.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;

use super::{
    COMPARATOR_CONTEXT_BYTES, COMPARATOR_NAME_BYTES, CompareFn, FAMILY_NAME_BYTES, HookFn, Objstore,
    ObjstoreConfig, SYNC_NONE,
};

/// `tidesdb_config_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct Config {
    pub db_path: *const c_char,
    pub num_flush_threads: c_int,
    pub num_compaction_threads: c_int,
    pub log_level: c_int,
    pub block_cache_size: usize,
    pub max_open_sstables: usize,
    pub log_to_file: c_int,
    pub log_truncation_at: usize,
    pub max_memory_usage: usize,
    pub unified_memtable: c_int,
    pub unified_memtable_write_buffer_size: usize,
    pub unified_memtable_skip_list_max_level: c_int,
    pub unified_memtable_skip_list_probability: f32,
    pub unified_memtable_sync_mode: c_int,
    pub unified_memtable_sync_interval_us: u64,
    pub object_store: *mut Objstore,
    pub object_store_config: *mut ObjstoreConfig,
    pub max_concurrent_flushes: c_int,
    pub finish_compactions_on_close: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Config>() == 128);
    assert!(offset_of!(Config, block_cache_size) == 24);
    assert!(offset_of!(Config, log_truncation_at) == 48);
    assert!(offset_of!(Config, unified_memtable_sync_interval_us) == 96);
    assert!(offset_of!(Config, finish_compactions_on_close) == 124);
};

impl Default for Config {
    fn default() -> Self {
        Self {
            db_path: c"./tidesdb".as_ptr(),
            num_flush_threads: 0,
            num_compaction_threads: 2,
            log_level: 1,
            block_cache_size: 64 << 20,
            max_open_sstables: 256,
            log_to_file: 0,
            log_truncation_at: 24 << 20,
            max_memory_usage: 0,
            unified_memtable: 0,
            unified_memtable_write_buffer_size: 0,
            unified_memtable_skip_list_max_level: 12,
            unified_memtable_skip_list_probability: 0.25,
            unified_memtable_sync_mode: SYNC_NONE,
            unified_memtable_sync_interval_us: 0,
            object_store: null_mut(),
            object_store_config: null_mut(),
            max_concurrent_flushes: 0,
            finish_compactions_on_close: 0,
        }
    }
}

/// `tidesdb_column_family_config_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct FamilyConfig {
    pub name: [c_char; FAMILY_NAME_BYTES],
    pub write_buffer_size: usize,
    pub level_size_ratio: usize,
    pub min_levels: c_int,
    pub dividing_level_offset: c_int,
    pub klog_value_threshold: usize,
    pub compression_algorithm: c_int,
    pub enable_bloom_filter: c_int,
    pub bloom_fpr: f64,
    pub enable_block_indexes: c_int,
    pub index_sample_ratio: c_int,
    pub block_index_prefix_len: c_int,
    pub sync_mode: c_int,
    pub sync_interval_us: u64,
    pub comparator_name: [c_char; COMPARATOR_NAME_BYTES],
    pub comparator_ctx_str: [c_char; COMPARATOR_CONTEXT_BYTES],
    pub comparator_fn_cached: Option<CompareFn>,
    pub comparator_ctx_cached: *mut c_void,
    pub skip_list_max_level: c_int,
    pub skip_list_probability: f32,
    pub default_isolation_level: c_int,
    pub min_disk_space: u64,
    pub l1_file_count_trigger: c_int,
    pub l0_queue_stall_threshold: c_int,
    pub tombstone_density_trigger: f64,
    pub tombstone_density_min_entries: u64,
    pub use_btree: c_int,
    pub commit_hook_fn: Option<HookFn>,
    pub commit_hook_ctx: *mut c_void,
    pub object_target_file_size: usize,
    pub object_lazy_compaction: c_int,
    pub object_prefetch_compaction: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<FamilyConfig>() == 624);
    assert!(offset_of!(FamilyConfig, klog_value_threshold) == 152);
    assert!(offset_of!(FamilyConfig, sync_interval_us) == 192);
    assert!(offset_of!(FamilyConfig, comparator_fn_cached) == 520);
    assert!(offset_of!(FamilyConfig, min_disk_space) == 552);
    assert!(offset_of!(FamilyConfig, commit_hook_fn) == 592);
    assert!(offset_of!(FamilyConfig, object_prefetch_compaction) == 620);
};

impl Default for FamilyConfig {
    fn default() -> Self {
        Self {
            name: [0; FAMILY_NAME_BYTES],
            write_buffer_size: 64 << 20,
            level_size_ratio: 10,
            min_levels: 1,
            dividing_level_offset: 1,
            klog_value_threshold: 512,
            compression_algorithm: 2,
            enable_bloom_filter: 1,
            bloom_fpr: 0.01,
            enable_block_indexes: 1,
            index_sample_ratio: 1,
            block_index_prefix_len: 16,
            sync_mode: SYNC_NONE,
            sync_interval_us: 128_000,
            comparator_name: [0; COMPARATOR_NAME_BYTES],
            comparator_ctx_str: [0; COMPARATOR_CONTEXT_BYTES],
            comparator_fn_cached: None,
            comparator_ctx_cached: null_mut(),
            skip_list_max_level: 12,
            skip_list_probability: 0.25,
            default_isolation_level: 1,
            min_disk_space: 100 << 20,
            l1_file_count_trigger: 4,
            l0_queue_stall_threshold: 10,
            tombstone_density_trigger: 0.0,
            tombstone_density_min_entries: 1024,
            use_btree: 0,
            commit_hook_fn: None,
            commit_hook_ctx: null_mut(),
            object_target_file_size: 0,
            object_lazy_compaction: 0,
            object_prefetch_compaction: 1,
        }
    }
}
