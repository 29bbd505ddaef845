//! The samples of the book as doc tests: `cargo test --doc -p testkit`. Each page of `docs` with samples in Rust has a line here.

use tempfile::TempDir;

/// An empty folder, in which a sample runs. It is removed in the end.
#[derive(Debug)]
pub struct Folder(TempDir);

/// Makes an empty folder the current one of this process: samples name their database as a program of a user would. Each doc test is a
/// process of its own.
///
/// # Panics
/// If the system cannot make one.
pub fn folder() -> Folder {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::env::set_current_dir(dir.path()).expect("the folder is there");
    Folder(dir)
}

impl Drop for Folder {
    /// Leaves the folder: some systems keep the current one.
    fn drop(&mut self) {
        let _ = std::env::set_current_dir(self.0.path().parent().unwrap_or(self.0.path()));
    }
}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from/lmdb.md")]
struct ComingFromLmdb;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from/redb.md")]
struct ComingFromRedb;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from/rocksdb.md")]
struct ComingFromRocksdb;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from/sqlite.md")]
struct ComingFromSqlite;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/concepts/deletes.md")]
struct ConceptsDeletes;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/concepts/families.md")]
struct ConceptsFamilies;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/concepts/merge-operators.md")]
struct ConceptsMergeOperators;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/concepts/snapshots.md")]
struct ConceptsSnapshots;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/async.md")]
struct HowToAsync;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/backup.md")]
struct HowToBackup;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/bulk-load.md")]
struct HowToBulkLoad;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/cache.md")]
struct HowToCache;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/counters.md")]
struct HowToCounters;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/secondary-index.md")]
struct HowToSecondaryIndex;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/large-files.md")]
struct HowToLargeFiles;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/many-databases.md")]
struct HowToManyDatabases;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/migrate.md")]
struct HowToMigrate;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/queue.md")]
struct HowToQueue;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/reader.md")]
struct HowToReader;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/time-series.md")]
struct HowToTimeSeries;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/operate/look-inside.md")]
struct OperateLookInside;
