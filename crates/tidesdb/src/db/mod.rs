//! The database handle and its public methods. Each method is a few lines and delegates to a lower layer.

mod admin;
mod catalog;
mod checkpoint;
mod cloning;
mod close;
mod destroy;
mod estimate;
mod family;
mod handles;
mod resources;
mod open;
mod recover;
mod replay;
mod save;
mod reader;
mod pinned;
mod snapshot;
mod explain;
mod stats;
mod metrics;
mod writer;
mod diagnose;
mod transact;
mod single;
mod values;
mod ingest;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use admin::VerifyReport;
use close::Closing;
pub use diagnose::{Finding, Severity};
pub use estimate::RangeEstimate;
pub use ingest::{Ingest, SortedWriter};
pub use open::{LockedDb, OpenOptions};
pub use reader::Reader;
pub use recover::RecoveryReport;
pub use resources::{Resources, ResourcesBuilder};
pub use snapshot::Snapshot;
pub use values::ValueWriter;
pub use writer::{WriterFigures, WriterState};

use crate::background::Pool;
use crate::context::WriteCtx;
use crate::engine::Engine;
use crate::options::WriteOptions;
use crate::read::{Cursor, Iter};
use crate::remote::upload;
use crate::types::{KeyBounds, KeyRange, SeqNo, Slice};
use crate::write::{self, Family, WriteBatch};
use crate::{Error, Result};

/// Name of the default family of a database that is opened without [`OpenOptions::default_family_name`]. The name of the default
/// family of any database is `db.default_family().name()`.
pub const DEFAULT_FAMILY: &str = "default";

/// Handle to an open database. Cheap to clone and usable from any thread. Dropping the last `Db` closes the database;
/// call [`Db::close`] to see errors.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tidesdb::Db::open(dir.path())?;
/// db.put(b"whale", b"blue")?;
/// assert_eq!(db.get(b"whale")?.as_deref(), Some(&b"blue"[..]));
/// db.delete(b"whale")?;
/// assert!(!db.contains(b"whale")?);
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What keeps a database open
///
/// A `Db` does, and nothing else. So whoever owns the last `Db` decides when commits are flushed and when another open of the directory
/// succeeds, on which thread, and sees the result. Other handles can be kept anywhere and never delay that:
///
/// | handle | keeps it open | once it is closed, by a call or by the last drop |
/// | --- | --- | --- |
/// | `Db`; a `Table` of `tidesdb-typed`, a `Committer` of `tidesdb-tokio` | yes | calls fail with `Closed` |
/// | [`Family`], [`Snapshot`] | no | calls fail with `Closed`; names, settings and statistics can still be read |
/// | [`Transaction`](crate::Transaction), [`ValueWriter`] | no | reads and the commit fail with `Closed`; nothing of it was committed |
/// | [`Iter`], [`Cursor`], [`ValueReader`](crate::ValueReader) | no | they go on in the state that they read; a file that a later open of the directory has removed is an error |
/// | [`WriteBatch`], [`Slice`] | no | they stay as they are |
///
/// A struct that keeps a [`Family`] keeps a `Db` beside it:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tidesdb::{Db, Error, Family, FamilyOptions};
/// struct Users { rows: Family, db: Db }
///
/// # let path = dir.path();
/// let db = Db::open(path)?;
/// let users = Users { rows: db.family_or_create("users", FamilyOptions::default())?, db };
/// users.rows.put("ann", "1")?; // the database is open as long as `users` lives
/// let Users { rows, db } = users;
/// drop(db); // the last one
/// assert!(matches!(rows.get("ann"), Err(Error::Closed)));
/// assert_eq!(Db::open(path)?.family("users")?.get("ann")?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// That is why a commit hook, a filter or a merge operator may own families: the database that calls it still closes. One that owns a `Db`
/// keeps its own database open until [`Db::close`].
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.closing.state();
        write!(f, "Db {{ path: {:?}, {state} }}", self.path())
    }
}

/// State shared by all handles; dropping the last handle closes the database.
pub(crate) struct Inner {
    path: PathBuf,
    pub(crate) engine: Arc<Engine>,
    default: Family,
    pool: Pool,
    report: RecoveryReport,
    closing: Closing,
}

impl Db {
    /// Opens the database in `path` with default options; creates it, and the directories above it, if there is none.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere; `Corrupt`, `FormatTooNew`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options(path).open()
    }

    /// Options for opening the database in `path`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tidesdb::{Db, SyncMode};
    /// let db = Db::options(dir.path()).sync(SyncMode::None).cache_bytes(16 << 20).open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options(path: impl AsRef<Path>) -> OpenOptions {
        OpenOptions::new(path.as_ref())
    }

    /// Returns the directory of the database, as it was given to the open.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Returns the family that the methods without a family argument use.
    pub fn default_family(&self) -> &Family {
        &self.inner.default
    }

    /// Sets `key` to `value`; returns the commit's sequence number.
    ///
    /// Keys have 1 byte to 64 KiB ([`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX)), values at most 4 GiB
    /// ([`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX)); [`Db::value_writer`] takes values of any length.
    ///
    /// # Errors
    /// As [`WriteBatch::put`] and [`Db::write`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.inner.default.put(key, value)
    }

    /// Like [`Db::put`], with options for this commit: see [`Family::put_with`].
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<SeqNo> {
        self.inner.default.put_with(key, value, options)
    }

    /// Sets `key` to `value` for `ttl`: see [`WriteBatch::put_with_ttl`].
    ///
    /// # Errors
    /// As [`Family::put_with_ttl`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SeqNo> {
        self.inner.default.put_with_ttl(key, value, ttl)
    }

    /// Sets `key` to `value` until `expiry` (`None` = forever): see [`WriteBatch::put_expiring`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Option<SystemTime>>,
    ) -> Result<SeqNo> {
        self.inner.default.put_expiring(key, value, expiry)
    }

    /// Combines `operand` with the value of `key`: see [`WriteBatch::merge`].
    ///
    /// # Errors
    /// As [`Family::merge`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.inner.default.merge(key, operand)
    }

    /// Like [`Db::merge`], with options for this commit.
    ///
    /// # Errors
    /// As [`Family::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<SeqNo> {
        self.inner.default.merge_with(key, operand, options)
    }

    /// Deletes `key`, whether it exists or not.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.inner.default.delete(key)
    }

    /// Like [`Db::delete`], with options for this commit.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<SeqNo> {
        self.inner.default.delete_with(key, options)
    }

    /// Deletes all keys in `range` at the cost of one put: see [`Family::delete_range`].
    ///
    /// # Errors
    /// As [`Family::delete_range`].
    pub fn delete_range(&self, range: impl KeyRange) -> Result<SeqNo> {
        self.inner.default.delete_range(range)
    }

    /// Like [`Db::delete_range`], with options for this commit.
    ///
    /// # Errors
    /// As [`Family::delete_range`].
    pub fn delete_range_with(&self, range: impl KeyRange, options: &WriteOptions) -> Result<SeqNo> {
        self.inner.default.delete_range_with(range, options)
    }

    /// Deletes all keys that begin with `prefix` at the cost of one put.
    ///
    /// # Errors
    /// As [`Family::delete_prefix`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.inner.default.delete_prefix(prefix)
    }

    /// Like [`Db::delete_prefix`], with options for this commit.
    ///
    /// # Errors
    /// As [`Family::delete_prefix`].
    pub fn delete_prefix_with(&self, prefix: impl AsRef<[u8]>, options: &WriteOptions) -> Result<SeqNo> {
        self.inner.default.delete_prefix_with(prefix, options)
    }

    /// Commits `batch` atomically and clears it. Reads that begin after the call see it, whatever its mode. An empty batch is a commit,
    /// too: in mode [`SyncMode::Full`](crate::SyncMode::Full) the call returns once all commits before it are durable, which needs no sync
    /// if they are already.
    ///
    /// # Errors
    /// `Busy`, `NoSpace`, `NotFound` (dropped family), `ReadOnly`, `Closed`, `Poisoned`: nothing was written.
    /// `CommitUnknown`: after reopening, the commit is there as a whole or not at all.
    pub fn write(&self, batch: &mut WriteBatch) -> Result<SeqNo> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// Like [`Db::write`], with options for this commit.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_with(&self, batch: &mut WriteBatch, options: &WriteOptions) -> Result<SeqNo> {
        let reads = &self.inner.engine.reads;
        let _timer = if batch.is_empty() { None } else { reads.sample(&reads.times.commits) };
        write(&self.inner.engine.write, batch, options)
    }

    /// Makes all previous commits durable. Returns the first sequence number that is not durable.
    ///
    /// # Errors
    /// Returns the failure that poisoned the database.
    pub fn sync(&self) -> Result<SeqNo> {
        let engine = &self.inner.engine;
        engine.write.check_writable()?;
        engine.write.log.seal(&|| engine.write.sync_values())
    }

    /// Uploads to the object store everything committed before the call. Does nothing if no object store is configured.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidesdb::{Db, MemoryStore, RemoteOptions};
    ///
    /// let store = Arc::new(MemoryStore::default());
    /// # let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    /// let db = Db::options(first.path()).remote(RemoteOptions::new(store.clone())).open()?;
    /// db.put(b"whale", b"blue")?;
    /// db.upload()?;
    /// let copy = Db::options(second.path()).remote(RemoteOptions::new(Arc::new(store.fork()))).open()?;
    /// assert_eq!(copy.get(b"whale")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Io` from the store, and the errors of a flush. No data is lost; the background retries the upload.
    pub fn upload(&self) -> Result<()> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        let Some(remote) = &engine.remote else { return Ok(()) };
        upload::run(&engine.maintenance, remote, &engine.catalog)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `Closed`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.inner.default.get(key)
    }

    /// Returns the result of `read` for the value of `key`, which is not copied: `get(key)?.map(read)` without the copy.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get_map<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.inner.default.get_map(key, read)
    }

    /// Returns the values of many keys, all at one read timestamp.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.inner.default.multi_get(keys)
    }

    /// Returns whether each of many keys exists: see [`Family::multi_contains`].
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        self.inner.default.multi_contains(keys)
    }

    /// Returns whether `key` exists, without reading its value.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.inner.default.contains(key)
    }

    /// Iterates over all keys and values in order, as of now.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn iter(&self) -> Result<Iter> {
        self.inner.default.iter()
    }

    /// Iterates over the keys in `range` and their values, as of now.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
        self.inner.default.range(range)
    }

    /// Iterates over the keys that begin with `prefix` and their values, as of now.
    ///
    /// # Errors
    /// As [`Family::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.inner.default.prefix(prefix)
    }

    /// Returns the range of the keys that begin with `prefix`: see [`Family::prefix_range`].
    ///
    /// # Errors
    /// As [`Family::prefix_range`].
    pub fn prefix_range(&self, prefix: impl AsRef<[u8]>) -> Result<KeyBounds> {
        self.inner.default.prefix_range(prefix)
    }

    /// Returns a cursor over the keys as of now.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn cursor(&self) -> Result<Cursor> {
        self.inner.default.cursor()
    }

    /// Takes a snapshot: a view of all families as of now, independent of later commits.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.inner.engine.reads)
    }

    /// Returns a view of all families as of the commit with sequence number `seq`. Expiry is still judged by the
    /// current time of each read. A batch with merges or range deletes has several numbers: use the one that its commit
    /// returned, or that of a snapshot, because smaller ones show a part of the batch.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tidesdb::Db::options(dir.path()).history_bytes(64 << 20).open()?;
    /// let first = db.put(b"k", b"old")?;
    /// db.put(b"k", b"new")?;
    /// db.default_family().compact()?;
    /// assert_eq!(db.snapshot_at(first)?.get(db.default_family(), b"k")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if `seq` lies in the future or is no longer retained. History starts at this opening of the
    /// database and is limited by [`OpenOptions::history_bytes`]. `Closed`.
    pub fn snapshot_at(&self, seq: SeqNo) -> Result<Snapshot> {
        Snapshot::at(&self.inner.engine.reads, seq)
    }

    /// Abandons the database as a dying process would: nothing more is written, not even what a close would write.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.inner.abandon();
    }

    /// Bytes of memory that the database may use; see [`OpenOptions::memory_limit`].
    pub fn memory_limit(&self) -> u64 {
        self.inner.engine.write.memory.limit()
    }

    /// Reports what the open did.
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.report
    }
}

/// Commits `batch`. Without background threads, then runs the queued jobs in this thread.
pub(crate) fn write(ctx: &WriteCtx, batch: &mut WriteBatch, options: &WriteOptions) -> Result<SeqNo> {
    let committed = write::commit(ctx, batch, options);
    work_here(ctx, &committed);
    committed
}

/// Runs the queued jobs in this thread after a write, if there are no background threads, or not all of them could be started.
fn work_here<T>(ctx: &WriteCtx, written: &Result<T>) {
    let work = match written {
        Ok(_) => true,
        Err(e) => e.is_full() || matches!(e, Error::Busy { .. }), // the queued jobs may free space or memory
    };
    if work
        && ctx.works_alone()
        && ctx.jobs.pending() > 0
        && let Ok(database) = ctx.database()
    {
        // A close that has begun does what is left. The commit stands even if a job fails.
        if let Ok(_call) = ctx.calls.begin() {
            database.run_queued();
        }
    }
}
