//! TidesDB: an embeddable, ordered key-value store on a log-structured merge tree.
//!
//! The order of the modules below is the order of the layers: a module uses only modules declared above its own line.
#![forbid(unsafe_code)]

// Ground: errors, basic types, codecs, settings.
pub mod error;
pub mod types;
pub mod codec;
pub mod store;
pub mod options;
pub mod health;
pub mod clock;
pub mod stats;
pub mod memory;
// Files: names, events, range deletes, values, tables, log.
pub mod files;
pub mod events;
pub mod ranges;
pub mod vlog;
pub mod sst;
pub mod wal;
// Merging many sources into one stream, which tables exist, snapshots, the job queue.
pub mod merge;
pub mod version;
pub mod sources;
pub mod mvcc;
pub mod jobs;
// The copy in an object store.
pub mod remote;
// One family; the state that the layers on top of it share.
pub mod family;
pub mod shared;
// Reads, writes, transactions.
pub mod read;
pub mod write;
pub mod txn;
// The jobs, and the threads that run them.
pub mod rewrite;
pub mod flush;
pub mod compact;
pub mod collect;
pub mod upload;
pub mod background;
// The database; its files, inspected without opening it.
pub mod db;
pub mod inspect;

pub use codec::Compression;
pub use compact::{LevelStats, TreeStats};
pub use db::{
    DEFAULT_FAMILY, Db, OpenOptions, RangeEstimate, Reader, RecoveryReport, Snapshot, StallStats, Stats,
    ValueWriter, VerifyReport,
};
pub use error::{Error, Result};
pub use events::{Event, EventInfo, LevelPart};
pub use family::{CommitHook, Committed, CommittedOp, FamilyStats};
pub use options::{
    DbOptions, FamilyOptions, Isolation, MemtableKind, ReadOptions, RecoveryMode, RemoteOptions, SettingInfo,
    SyncMode, TransactOptions, WriteOptions,
};
pub use read::{Cursor, Iter, ValueReader};
pub use remote::RemoteStats;
pub use shared::{Family, HealthReport, HealthState, JobStats};
pub use stats::{Durations, StatInfo, StatKind, StatUnit, StatValue, TimeStats};
pub use store::{MemoryStore, ObjectStore};
pub use txn::{Savepoint, Transaction};
pub use types::{Comparator, KeyRange, SeqNo, Slice};
pub use write::WriteBatch;

pub use tidesdb_io::MachineMemory;

/// Compiles the examples of the README as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
