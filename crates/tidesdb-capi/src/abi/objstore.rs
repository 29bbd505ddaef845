//! Connectors to object stores, and their settings in a database.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::null;

/// `tidesdb_objstore_config_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct ObjstoreConfig {
    pub local_cache_path: *const c_char,
    pub local_cache_max_bytes: usize,
    pub cache_on_read: c_int,
    pub cache_on_write: c_int,
    pub max_concurrent_uploads: c_int,
    pub max_concurrent_downloads: c_int,
    pub multipart_threshold: usize,
    pub multipart_part_size: usize,
    pub sync_manifest_to_object: c_int,
    pub replicate_wal: c_int,
    pub wal_upload_sync: c_int,
    pub wal_sync_threshold_bytes: usize,
    pub wal_sync_on_commit: c_int,
    pub replica_mode: c_int,
    pub replica_sync_interval_us: u64,
    pub replica_replay_wal: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ObjstoreConfig>() == 96);
    assert!(offset_of!(ObjstoreConfig, wal_sync_threshold_bytes) == 64);
    assert!(offset_of!(ObjstoreConfig, replica_replay_wal) == 88);
};

impl Default for ObjstoreConfig {
    fn default() -> Self {
        Self {
            local_cache_path: null(),
            local_cache_max_bytes: 0,
            cache_on_read: 1,
            cache_on_write: 1,
            max_concurrent_uploads: 4,
            max_concurrent_downloads: 8,
            multipart_threshold: 64 << 20,
            multipart_part_size: 8 << 20,
            sync_manifest_to_object: 1,
            replicate_wal: 1,
            wal_upload_sync: 0,
            wal_sync_threshold_bytes: 1 << 20,
            wal_sync_on_commit: 0,
            replica_mode: 0,
            replica_sync_interval_us: 5_000_000,
            replica_replay_wal: 1,
        }
    }
}

/// `tidesdb_objstore_s3_config_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct S3Config {
    pub endpoint: *const c_char,
    pub bucket: *const c_char,
    pub prefix: *const c_char,
    pub access_key: *const c_char,
    pub secret_key: *const c_char,
    pub region: *const c_char,
    pub use_ssl: c_int,
    pub use_path_style: c_int,
    pub tls_ca_path: *const c_char,
    pub tls_insecure_skip_verify: c_int,
    pub multipart_threshold: usize,
    pub multipart_part_size: usize,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<S3Config>() == 88);

/// Backend of a connector: a directory.
pub const BACKEND_FS: c_int = 0;
/// Backend of a connector: S3.
pub const BACKEND_S3: c_int = 1;

/// Size of a buffer for an entity tag in bytes, including the terminating zero.
pub const ETAG_BYTES: usize = 128;
/// A put without a condition.
pub const PUT_OVERWRITE: c_int = 0;
/// A put of an object that does not exist.
pub const PUT_IF_NONE_MATCH: c_int = 1;
/// A put of an object that has a tag.
pub const PUT_IF_MATCH: c_int = 2;

/// Called for each object of a listing.
pub type ListFn = unsafe extern "C" fn(*const c_char, usize, *mut c_void);

type KeyFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;
type PathFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> c_int;
type RangeFn = unsafe extern "C" fn(*mut c_void, *const c_char, u64, *mut c_void, usize) -> isize;
type SizeFn = unsafe extern "C" fn(*mut c_void, *const c_char, *mut usize) -> c_int;
type ListAllFn = unsafe extern "C" fn(*mut c_void, *const c_char, Option<ListFn>, *mut c_void) -> c_int;
type PutIfFn = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    *const c_void,
    usize,
    c_int,
    *const c_char,
    *mut c_char,
) -> c_int;
type HeadFn = unsafe extern "C" fn(*mut c_void, *const c_char, *mut usize, *mut c_char) -> c_int;

/// `tidesdb_objstore_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header explains the fields")]
pub struct Objstore {
    pub backend: c_int,
    pub put: Option<PathFn>,
    pub get: Option<PathFn>,
    pub range_get: Option<RangeFn>,
    pub delete_object: Option<KeyFn>,
    pub exists: Option<SizeFn>,
    pub list: Option<ListAllFn>,
    pub put_if: Option<PutIfFn>,
    pub head: Option<HeadFn>,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub ctx: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Objstore>() == 88);
    assert!(offset_of!(Objstore, put) == 8);
    assert!(offset_of!(Objstore, ctx) == 80);
};
