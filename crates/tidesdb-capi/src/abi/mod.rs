//! Structure layouts and constants that C programs were compiled with. None of them may ever change. They are compared with the lists
//! `layout.golden`, for addresses of 64 bits, and `layout32.golden`, for 32, in `c-tests`, and so are the headers.

mod config;
pub mod extended;
mod objstore;
mod stats;

pub use config::{Config, FamilyConfig};
pub use objstore::{
    BACKEND_FS, BACKEND_S3, ETAG_BYTES, ListFn, Objstore, ObjstoreConfig, PUT_IF_MATCH, PUT_IF_NONE_MATCH,
    PUT_OVERWRITE, S3Config,
};
pub use stats::{CacheStats, DbStats, FamilyStats};

use std::ffi::{c_int, c_void};

/// Return value of most functions; 0 is success.
pub type Code = c_int;

/// Success.
pub const SUCCESS: Code = 0;
/// Out of memory, and a few special cases of the interface.
pub const ERR_MEMORY: Code = -1;
/// An invalid argument, or a handle in the wrong state.
pub const ERR_INVALID_ARGS: Code = -2;
/// No such key, family, comparator or savepoint; the end of an iteration.
pub const ERR_NOT_FOUND: Code = -3;
/// The system reported an I/O error.
pub const ERR_IO: Code = -4;
/// Bytes on disk differ from what was written.
pub const ERR_CORRUPTION: Code = -5;
/// The name is already in use.
pub const ERR_EXISTS: Code = -6;
/// Another transaction committed first.
pub const ERR_CONFLICT: Code = -7;
/// Larger than the memory limit allows.
pub const ERR_MEMORY_LIMIT: Code = -9;
/// The database is not open.
pub const ERR_INVALID_DB: Code = -10;
/// Anything else.
pub const ERR_UNKNOWN: Code = -11;
/// Another handle or process has the directory open.
pub const ERR_LOCKED: Code = -12;
/// Not writable.
pub const ERR_READONLY: Code = -13;
/// The call would have to wait too long.
pub const ERR_BUSY: Code = -14;

/// Size of a family's name in bytes, including the terminating zero.
pub const FAMILY_NAME_BYTES: usize = 128;
/// Size of a comparator's name in bytes, including the terminating zero.
pub const COMPARATOR_NAME_BYTES: usize = 64;
/// Size of a comparator's context in bytes, including the terminating zero.
pub const COMPARATOR_CONTEXT_BYTES: usize = 256;

/// No sync at commit.
pub const SYNC_NONE: c_int = 0;
/// Every commit is durable before it returns.
pub const SYNC_FULL: c_int = 1;
/// Durable after an interval.
pub const SYNC_INTERVAL: c_int = 2;

/// Compares two keys: negative, 0 or positive.
pub type CompareFn = unsafe extern "C" fn(*const u8, usize, *const u8, usize, *mut c_void) -> c_int;

/// Receives the operations of a commit on one family.
pub type HookFn = unsafe extern "C" fn(*const CommitOp, c_int, u64, *mut c_void) -> c_int;

/// One operation of a commit, borrowed while the hook runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommitOp {
    /// The key.
    pub key: *const u8,
    /// Size of the key in bytes.
    pub key_size: usize,
    /// The value; null for a delete.
    pub value: *const u8,
    /// Size of the value in bytes.
    pub value_size: usize,
    /// UNIX seconds of expiry; 0 = never.
    pub ttl: i64,
    /// 1 for a delete.
    pub is_delete: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<CommitOp>() == 48);

#[cfg(test)]
mod tests;
