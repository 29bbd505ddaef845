//! TidesDB: an embeddable, ordered key-value store on a log-structured merge tree.
//!
//! A [`Db`] is a folder. It has column families ([`Family`]), each with its own key order and settings ([`FamilyOptions`]). All handles are
//! `Clone`, `Send` and `'static`; every call takes `&self`.
//!
//! ```
//! use tidesdb::{Db, FamilyOptions, WriteBatch};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path();
//! let db = Db::open(path)?;
//! db.put("apple", "red")?; // durable when it returns
//! assert_eq!(db.get("apple")?.as_deref(), Some(&b"red"[..]));
//!
//! // Families, and batches that are atomic over all of them.
//! let stock = db.family_or_create("stock", FamilyOptions::default())?;
//! let mut batch = WriteBatch::new();
//! batch.put(&stock, "apple", "3")?;
//! batch.delete(db.default_family(), "apple")?;
//! db.write(&mut batch)?;
//!
//! // Ranges, forwards and backwards; a snapshot keeps what it saw.
//! let before = db.snapshot();
//! stock.put("banana", "7")?;
//! let keys: Vec<_> = stock.range("a"..)?.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
//! assert_eq!(keys, [b"apple".as_slice(), b"banana"]);
//! assert!(before.get(&stock, "banana")?.is_none());
//!
//! // A transaction, repeated on a conflict.
//! db.transact(|tx| {
//!     let count = tx.get(&stock, "apple")?.map_or(0, |count| count.len());
//!     tx.put(&stock, "size", count.to_string())
//! })?;
//! db.close()?;
//! # Ok::<(), tidesdb::Error>(())
//! ```
//!
//! | for | see |
//! | --- | --- |
//! | opening: durability, memory, cache, recovery | [`Db::options`], [`OpenOptions`], [`DbOptions`], [`SyncMode`] |
//! | many databases in one process, under one limit | [`Resources`] |
//! | closing, with a time limit | [`Db::close`], [`Db::close_timeout`] |
//! | one row | [`Db::put`], [`Db::get`], [`Db::delete`], [`Db::replace`], [`Db::take`], [`Db::update`], [`Db::compare_and_swap`], [`Db::pop_first`], [`Db::pop_last`] |
//! | many rows | [`WriteBatch`], [`Family::range`], [`Family::prefix`], [`Cursor`], [`Family::delete_range`] |
//! | much data, in the order of the keys | [`Family::ingest_sorted`], [`SortedWriter`], [`TableBuilder`], [`Db::ingest`] |
//! | values too long for memory | [`Family::value_writer`], [`Family::value_reader`], [`ValueWriter`], [`ValueReader`] |
//! | consistency | [`Snapshot`], [`Db::snapshot_at`], [`Db::transact`], [`Transaction`], [`Isolation`] |
//! | expiry | [`Db::put_with_ttl`], [`FamilyOptions::default_ttl`] |
//! | counters and lists without reads | [`Family::merge`], [`MergeOperator`] |
//! | rows that merges of tables remove or change | [`CompactionFilter`] |
//! | what happens inside | [`Db::health`], [`Db::stats`], [`Family::stats`], [`Event`]; for Prometheus [`Db::metrics_text`] |
//! | reading beside the process that writes | [`OpenOptions::open_reader`], [`Reader`] |
//! | what one read does, and why it shows what it shows | [`Family::explain`], [`Family::explain_range`], [`Snapshot::explain`] |
//! | what a piece of a program reads and writes | [`profile()`] |
//! | figures of a process that writes, from another | [`OpenOptions::writer_figures`], [`WriterFigures`] |
//! | copies | [`Db::checkpoint`], [`Db::backup`], [`backup`], [`RemoteOptions`] |
//! | damaged files | [`inspect`], [`RecoveryMode`], [`Db::verify`] |
//!
//! Keys have 1 to [`KEY_BYTES_MAX`] bytes (64 KiB), values of one call at most [`VALUE_BYTES_MAX`] (4 GiB); values of any length go
//! through a [`ValueWriter`]. The empty key is none: as a bound of a range delete, in the log and for a [`CommitHook`], it means that there is
//! no bound, and in a custom order it could lie between other keys. A write of an empty or too long key is refused, a read finds nothing. The features `lz4` (default), `snappy` and `zstd` are compression algorithms: [`Compression`].
//!
//! The crate `tidesdb-typed` adds tables with typed keys and values and secondary indexes. Async programs:
//! `docs/how-to/async.md` in the repository.
//!
//! Examples of this crate (`crates/tidesdb/examples`), each with the command that runs it:
//! `quick_start`, `batches_and_families`, `snapshots_and_scans`, `durability`, `ttl_cache`, `counter`, `stream`, `backup`; and some that
//! measure: `speed`, `deletes`, `space_peak`, `ingest_beside`, `held_cursor`, `many_databases`, `four_levels`, `compaction`, `gate`.
//! Whole programs on typed tables (`crates/tidesdb-typed/examples`): `job_queue`, `time_series`,
//! `documents`, `web`.
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test may use threads and files")
)]
#![forbid(unsafe_code)]

// The order of the modules is the order of the layers: a module uses only modules above its own line.

// Ground: errors, basic types, codecs, settings.
mod error;
mod callback;
mod types;
mod codec;
mod order;
pub mod store;
mod health;
mod clock;
mod stats;
mod options;
mod waits;
mod memory;
// Files: names, events, figures for other processes, range deletes, values, tables, log.
mod files;
mod events;
mod figures;
mod ranges;
mod vlog;
mod sst;
mod wal;
mod ingest;
// Merging many sources into one stream, which tables exist, snapshots, the pace of writers, the job queue.
mod merge;
mod version;
mod undo_map;
mod sources;
mod mvcc;
mod pacing;
mod jobs;
// One family; what reads and writes need of an open database.
mod family;
mod context;
// Reads, writes, transactions.
mod read;
mod write;
mod txn;
// The jobs with what they need of an open database, the copy in an object store, all parts together, and the threads that run the jobs.
mod maintenance;
mod rewrite;
mod compact;
mod flush;
mod remote;
mod collect;
mod engine;
mod background;
// The database; its backups; its files, inspected without opening it.
mod db;
pub mod backup;
pub mod inspect;

pub use codec::Compression;
pub use compact::{LevelStats, TreeStats};
pub use db::{
    DEFAULT_FAMILY, Db, Finding, Ingest, LockedDb, OpenOptions, RangeEstimate, Reader, RecoveryReport,
    Resources, ResourcesBuilder, Severity, Snapshot, SortedWriter, ValueWriter, VerifyReport, WriterFigures,
    WriterState,
};
pub use engine::Stats;
pub use error::{Error, Result};
pub use events::{Event, EventInfo, LevelPart};
pub use family::{CommitHook, Committed, CommittedOp, FamilyStats};
pub use figures::{History, Sample};
pub use health::{HealthReport, HealthState};
pub use ingest::{Ingested, TableBuilder};
pub use jobs::JobStats;
pub use options::{
    ChangedSetting, DbOptions, FamilyOptions, Isolation, ReadOptions, RecoveryMode, RemoteOptions,
    SettingInfo, SyncMode, TransactOptions, WriteOptions,
};
pub use read::{
    Cursor, ExplainedLevel, ExplainedRangeTombstone, ExplainedSource, ExplainedVersion, Explanation,
    FilterAnswer, Iter, Keys, Outcome, RangeExplanation, ReadWork, ScannedSource, SourceName, ValueReader,
    Verdict, VersionKind,
};
pub use remote::RemoteStats;
pub use sst::{ReadOrigin, ReadStep};
pub use stats::{Durations, Profile, StatInfo, StatKind, StatUnit, StatValue, TimeStats, profile};
pub use store::{MemoryStore, ObjectStore};
pub use txn::{Savepoint, Transaction};
pub use types::{
    CompactionFilter, Comparator, Decision, FAMILY_NAME_BYTES_MAX, FamilyId, FilterRow, KEY_BYTES_MAX,
    KeyBounds, KeyRange, MergeOperator, RowSpan, SEQ_MAX, SeqNo, Slice, VALUE_BYTES_MAX,
};
pub use waits::{StallCause, StallStats};
pub use write::{Family, WriteBatch};

pub use tidesdb_io::MachineMemory;

/// The layers of the engine, for the project's own tests and tools. Not part of the interface: anything here may change in any release.
#[doc(hidden)]
pub mod internals {
    macro_rules! layers {
        ($($layer:ident)*) => { $(pub mod $layer { pub use crate::$layer::*; })* };
    }
    layers! {
        error types codec options health clock stats memory files events figures ranges vlog sst wal merge version undo_map sources mvcc pacing jobs family context read write txn maintenance rewrite flush compact remote collect engine background db
    }
}

/// Compiles the examples of the README as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
