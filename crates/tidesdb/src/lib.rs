//! TidesDB: an embeddable, ordered key-value store on a log-structured merge tree.
//!
//! The order of the modules below is the order of the floors: a module uses only those above its own line.
#![forbid(unsafe_code)]

// Ground: words, errors, bytes.
pub mod error;
pub mod types;
pub mod codec;
pub mod options;
// Files: names, log, values, tables.
pub mod files;
pub mod vlog;
pub mod sst;
pub mod wal;
// Many sources, one stream; which tables exist.
pub mod merge;
pub mod version;

pub use codec::Compression;
pub use error::{Error, Result};
pub use options::{DbOptions, FamilyOptions, MemtableKind, ReadOptions, RecoveryMode, SyncMode, WriteOptions};
