//! TidesDB: an embeddable, ordered key-value store on a log-structured merge tree.
//!
//! The order of the modules below is the order of the floors: a module uses only those above its own line.
#![forbid(unsafe_code)]

// Ground: words, errors, bytes, settings.
pub mod error;
pub mod types;
pub mod codec;
pub mod store;
pub mod options;
pub mod health;
pub mod clock;
// Files: names, values, tables, log; deletes of whole ranges.
pub mod files;
pub mod ranges;
pub mod vlog;
pub mod sst;
pub mod wal;
// Many sources, one stream; which tables exist; time; asking for work.
pub mod merge;
pub mod version;
pub mod sources;
pub mod mvcc;
pub mod jobs;
// A copy in an object store.
pub mod remote;
// One family; what all floors above share.
pub mod family;
pub mod shared;
// The verbs.
pub mod read;
pub mod write;
pub mod txn;
// The jobs, and who runs them.
pub mod rewrite;
pub mod flush;
pub mod compact;
pub mod upload;
pub mod background;
// The database; its files, seen from outside.
pub mod db;
pub mod inspect;

pub use codec::Compression;
pub use db::{
    DEFAULT_FAMILY, Db, FamilyStats, OpenOptions, RangeEstimate, RecoveryReport, Snapshot, StallStats, Stats,
    VerifyReport,
};
pub use error::{Error, Result};
pub use family::{CommitHook, Committed, CommittedOp};
pub use options::{
    DbOptions, FamilyOptions, Isolation, MemtableKind, ReadOptions, RecoveryMode, RemoteOptions, SettingInfo,
    SyncMode, WriteOptions,
};
pub use read::{Cursor, Iter};
pub use remote::RemoteStats;
pub use shared::Family;
pub use store::{MemoryStore, ObjectStore};
pub use txn::{Savepoint, Transaction};
pub use types::{Comparator, SeqNo, Slice};
pub use write::WriteBatch;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
