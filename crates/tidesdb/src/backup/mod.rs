//! Backups in an object store, by generations: each can be restored on its own, and what several of them have in common is stored once.
//!
//! ```text
//! codec, names   the bytes and the names of objects     index      which generations count
//! contents       what a generation consists of          fetch      reads objects and checks them
//! writer         one writer per store, and its changes  pace       a limited rate, progress, an early end
//! create         a new generation of an open database   restore    a generation as a folder
//! prove          restores, opens and compares           remove     deletes generations, and objects that nothing names
//! ```
//!
//! `docs/design/0042-backup-generations.md` has the reasons, `docs/formats/backups.md` the bytes.
//!
//! ```
//! # let temp = tempfile::tempdir()?;
//! use std::sync::Arc;
//! use tidesdb::Db;
//! use tidesdb::backup::{Backups, CreateOptions};
//! use tidesdb::store::DirectoryStore;
//!
//! # let (path, at, scratch) = (temp.path().join("db"), temp.path().join("backups"), temp.path().join("scratch"));
//! let db = Db::open(path)?;
//! db.put("apple", "3")?;
//! let backups = Backups::new(Arc::new(DirectoryStore::open(at)?));
//! let first = backups.create(&db)?;
//! db.put("apple", "4")?;
//! let second = backups.create_with(&db, &CreateOptions::default().prove(scratch))?; // copies what is new, restores it and compares
//! assert!(second.proof.is_some_and(|proof| proof.passed));
//!
//! backups.restore(first.number, temp.path().join("restored"))?;
//! assert_eq!(Db::open(temp.path().join("restored"))?.get("apple")?.as_deref(), Some(&b"3"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod names;
mod codec;
mod index;
mod contents;
mod fetch;
mod writer;
mod pace;
mod create;
mod restore;
mod prove;
mod remove;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use tidesdb_io::Env;
use tidesdb_sync::{Mutex, rank};

use self::index::Entry;
use self::pace::Pace;
use self::writer::Writer;
use crate::codec::hex;
use crate::db::{Db, OpenOptions};
use crate::store::{ObjectStore, contain};
use crate::types::moment_of;
use crate::{Error, Result};

/// Called after each piece that was copied or read, and now and then while a proof compares rows. A panic in it ends the call with an error.
pub type ProgressFn = Arc<dyn Fn(&Progress) + Send + Sync>;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes copied or read so far.
    pub bytes_done: u64,
    /// Bytes to copy or read in all. A generation that is proven when it is made is copied, and then read.
    pub bytes_total: u64,
}

/// Backups of databases in an object store. Cheap to clone and usable from any thread.
///
/// A store has one writer: the `Backups` that last changed something. It takes the store over with its first change, and whatever the writer
/// before it does then fails with [`Error::Locked`]. Listing, verifying and restoring take nothing over. Several databases may share a store
/// if one program makes their backups.
///
/// The store needs conditional puts ([`ObjectStore::put_if`]); one that ignores the condition is refused. Other objects in it are left
/// alone.
#[derive(Clone)]
pub struct Backups {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn ObjectStore>,
    env: Env,
    writer: Mutex<Writing, { rank::BACKUP }>,
}

/// Whether this handle is the writer of the store.
enum Writing {
    NotYet,
    Yes(Box<Writer>),
    /// Another writer has taken the store over.
    NoMore(Error),
}

/// A backup that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generation {
    /// Its number. Later generations have higher numbers; none is used again.
    pub number: u64,
    /// When it was made.
    pub created: SystemTime,
    /// The database, by the random number that it got when it was made, as 32 hexadecimal digits. A restored database has another one.
    pub database: String,
    /// The last commit that it has.
    pub sequence: u64,
    /// Number of tables and value logs.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that the store did not have yet.
    pub bytes_copied: u64,
    /// The last proof; `None` if nobody has tried to restore it.
    pub proof: Option<Proof>,
}

/// What became of a try to restore a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// When it was tried.
    pub at: SystemTime,
    /// Whether the restored database had the rows that it should have.
    pub passed: bool,
}

/// Settings of [`Backups::create_with`].
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Bytes copied per second, at most; 0 = no limit.
    pub bytes_per_second: u64,
    /// Called with each piece that was copied, and several times a second while the call waits for its rate.
    pub progress: Option<ProgressFn>,
    /// A new or empty folder in which the generation is proven as soon as it is made: see [`Backups::prove`].
    pub scratch: Option<PathBuf>,
    /// Ends the call soon after it is set: see [`CreateOptions::stop`].
    pub stop: Option<Arc<AtomicBool>>,
}

impl CreateOptions {
    /// Sets the bytes copied per second, at most; 0, the default, is no limit.
    #[must_use]
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = bytes;
        self
    }

    /// Sets a function that is called with each piece that was copied.
    #[must_use]
    pub fn progress(mut self, show: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(show));
        self
    }

    /// Proves the generation in `scratch`, a new or empty folder with room for the database, whose files are removed again.
    #[must_use]
    pub fn prove(mut self, scratch: impl AsRef<Path>) -> Self {
        self.scratch = Some(scratch.as_ref().to_owned());
        self
    }

    /// Sets a flag that ends the call with `Busy` soon after it is true, also within one long file and during the proof. The progress, another
    /// thread, or a handler of signals may set it.
    ///
    /// ```
    /// # let temp = tempfile::tempdir()?;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use tidesdb::backup::{Backups, CreateOptions};
    /// use tidesdb::{Db, Error, MemoryStore};
    ///
    /// let db = Db::open(temp.path())?;
    /// db.put("apple", "3")?;
    /// let backups = Backups::new(Arc::new(MemoryStore::default()));
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let setter = Arc::clone(&stop);
    /// let options = CreateOptions::default().stop(&stop).progress(move |_| setter.store(true, Ordering::Relaxed));
    /// assert!(matches!(backups.create_with(&db, &options), Err(Error::Busy { .. })));
    /// assert!(backups.list()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stop(mut self, stop: &Arc<AtomicBool>) -> Self {
        self.stop = Some(Arc::clone(stop));
        self
    }
}

impl fmt::Debug for CreateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_per_second, progress, scratch, stop } = self;
        f.debug_struct("CreateOptions")
            .field("bytes_per_second", bytes_per_second)
            .field("progress", &progress.is_some())
            .field("scratch", scratch)
            .field("stop", stop)
            .finish()
    }
}

/// Settings of [`Backups::restore_with`], [`Backups::verify_with`] and [`Backups::prove_with`].
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// Bytes read from the store per second, at most; 0 = no limit.
    pub bytes_per_second: u64,
    /// Called with each piece that was read, and several times a second while the call waits for its rate.
    pub progress: Option<ProgressFn>,
    /// Ends the call soon after it is set: see [`RestoreOptions::stop`].
    pub stop: Option<Arc<AtomicBool>>,
}

impl RestoreOptions {
    /// Sets the bytes read from the store per second, at most; 0, the default, is no limit.
    #[must_use]
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = bytes;
        self
    }

    /// Sets a function that is called with each piece that was read.
    #[must_use]
    pub fn progress(mut self, show: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(show));
        self
    }

    /// Sets a flag that ends the call with `Busy` soon after it is true, also within one long object. The progress, another thread, or a
    /// handler of signals may set it. A restore that ends so leaves no file in the folder.
    #[must_use]
    pub fn stop(mut self, stop: &Arc<AtomicBool>) -> Self {
        self.stop = Some(Arc::clone(stop));
        self
    }
}

impl fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_per_second, progress, stop } = self;
        f.debug_struct("RestoreOptions")
            .field("bytes_per_second", bytes_per_second)
            .field("progress", &progress.is_some())
            .field("stop", stop)
            .finish()
    }
}

/// Which generations stay. One that matches any rule stays, and of each database the newest that was proven stays in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrunePolicy {
    /// The last so many of each database stay.
    pub keep_last: u64,
    /// Those younger than this stay.
    pub keep_younger: Duration,
}

impl PrunePolicy {
    /// Keeps the last `count` generations of each database.
    #[must_use]
    pub fn keep_last(mut self, count: u64) -> Self {
        self.keep_last = count;
        self
    }

    /// Keeps generations that are younger than `age`.
    #[must_use]
    pub fn keep_younger(mut self, age: Duration) -> Self {
        self.keep_younger = age;
        self
    }
}

/// What [`Backups::prune`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Numbers of the generations.
    pub generations: Vec<u64>,
    /// How many objects were removed, also those that copies which never ended had left.
    pub objects: u64,
}

/// What [`Backups::verify`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifiedGeneration {
    /// Objects that were read.
    pub objects: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong with them.
    pub damage: Vec<Error>,
}

impl VerifiedGeneration {
    /// Returns true if no damage was found.
    pub fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

impl fmt::Debug for Backups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backups").field("store", &self.shared.store).finish_non_exhaustive()
    }
}

impl Entry {
    fn generation(&self) -> Generation {
        let moment = |millis| moment_of(millis).unwrap_or(SystemTime::UNIX_EPOCH);
        let at = self.proven.max(self.failed);
        Generation {
            number: self.number,
            created: moment(self.created),
            database: hex(&self.uuid),
            sequence: self.sequence,
            files: self.files,
            bytes: self.bytes,
            bytes_copied: self.copied,
            proof: (at != 0).then(|| Proof { at: moment(at), passed: self.failed == 0 }),
        }
    }
}

impl Backups {
    /// The backups in `store`. Nothing is read or written yet.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self::with_env(store, Env::real())
    }

    /// Like [`Backups::new`], with another environment for restored folders and the time; for tests on a simulated disk.
    pub fn with_env(store: Arc<dyn ObjectStore>, env: Env) -> Self {
        let writer = Mutex::new(Writing::NotYet);
        Self { shared: Arc::new(Shared { store: contain(&store), env, writer }) }
    }

    /// All generations, by number.
    ///
    /// # Errors
    /// `Corrupt` if the index of the store is damaged, which [`Backups::repair`] makes again; `FormatTooNew`; `InvalidArgument` for a store
    /// without conditional puts; `Io`.
    pub fn list(&self) -> Result<Vec<Generation>> {
        let index = writer::read_index(&*self.shared.store)?;
        Ok(index.iter().flat_map(|(index, _)| &index.generations).map(Entry::generation).collect())
    }

    /// Makes a generation of `db` as of now: see [`Backups::create_with`].
    ///
    /// # Errors
    /// As [`Backups::create_with`].
    pub fn create(&self, db: &Db) -> Result<Generation> {
        self.create_with(db, &CreateOptions::default())
    }

    /// Makes a generation of `db`: all families at one moment. Commits, flushes and merges continue meanwhile. Copies the tables, and the
    /// bytes of value logs, that the store does not have from an earlier generation of the same database.
    ///
    /// The generation counts, and is durable, when this returns. If the call fails or the process ends before, the store has the
    /// generations that it had; objects that were copied in vain are removed by the next change. A close of the database ends the call. If
    /// only the proof fails or is stopped, the generation stays and its [`Generation::proof`] says so.
    ///
    /// # Errors
    /// `Closed` if the database is closed meanwhile; `Locked` if another writer has taken the store over; `Busy` if this handle is making a
    /// generation already, or [`CreateOptions::stop`] has ended the call; `InvalidArgument` for a store whose conditional puts are missing or do not work; `Corrupt` for a damaged index, or
    /// if the proof finds damage; `NoSpace`, `Io`, `Poisoned`.
    pub fn create_with(&self, db: &Db, options: &CreateOptions) -> Result<Generation> {
        let check = || db.inner.engine.write.jobs.check_open();
        let mut pace = Pace::new(&*self.shared.env.clock, &check);
        pace.bytes_per_second = options.bytes_per_second;
        pace.progress = options.progress.as_ref();
        pace.stop = options.stop.as_deref();
        let (made, scratch) = create::run(&self.shared, db, options, &pace)?;
        match scratch {
            Some(scratch) => {
                pace.bytes_per_second = 0; // a limit of what the copy takes from the writers
                prove::run(&self.shared, made.number, scratch, &pace)
            }
            None => Ok(made),
        }
    }

    /// Reads all bytes of a generation and compares them with their checksums. Damage is in the report, not an error.
    ///
    /// # Errors
    /// `NotFound` if there is no such generation; `Corrupt` for a damaged index; `Io`.
    pub fn verify(&self, number: u64) -> Result<VerifiedGeneration> {
        self.verify_with(number, &RestoreOptions::default())
    }

    /// Like [`Backups::verify`], with a rate, progress, and a way to end it.
    ///
    /// # Errors
    /// As [`Backups::verify`]; `Busy` if [`RestoreOptions::stop`] has ended the call, which returns nothing of what it has found.
    pub fn verify_with(&self, number: u64, options: &RestoreOptions) -> Result<VerifiedGeneration> {
        restore::verify(&self.shared, number, &self.pace(options))
    }

    /// Restores a generation to `path`, a new or empty folder. All bytes are compared with their checksums. The folder cannot be opened
    /// as a database before it is whole and durable. The database gets an identity of its own, so that its backups never take files of the
    /// original for theirs: its first generation copies everything.
    ///
    /// After a crash the same call removes what is there and begins again.
    ///
    /// # Errors
    /// `NotFound` if there is no such generation; `Exists` if the folder is not empty; `Corrupt` if an object is damaged or missing; `NoSpace`,
    /// `Io`. A call that fails leaves no file in the folder.
    pub fn restore(&self, number: u64, path: impl AsRef<Path>) -> Result<()> {
        self.restore_with(number, path, &RestoreOptions::default())
    }

    /// Like [`Backups::restore`], with a rate, progress, and a way to end it.
    ///
    /// ```
    /// # let temp = tempfile::tempdir()?;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use tidesdb::backup::{Backups, RestoreOptions};
    /// use tidesdb::{Db, Error, MemoryStore};
    ///
    /// # let (path, restored) = (temp.path().join("db"), temp.path().join("restored"));
    /// let db = Db::open(path)?;
    /// db.put("apple", "3")?;
    /// let backups = Backups::new(Arc::new(MemoryStore::default()));
    /// let made = backups.create(&db)?;
    /// let stop = Arc::new(AtomicBool::new(true)); // a handler of Ctrl-C may set it
    /// let options = RestoreOptions::default()
    ///     .stop(&stop)
    ///     .progress(|p| println!("{} of {} bytes", p.bytes_done, p.bytes_total));
    /// assert!(matches!(backups.restore_with(made.number, &restored, &options), Err(Error::Busy { .. })));
    /// stop.store(false, Ordering::Relaxed);
    /// backups.restore_with(made.number, &restored, &options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Backups::restore`]; `Busy` if [`RestoreOptions::stop`] has ended the call.
    pub fn restore_with(&self, number: u64, path: impl AsRef<Path>, options: &RestoreOptions) -> Result<()> {
        restore::run(&self.shared, number, path.as_ref(), &self.pace(options))
    }

    /// Proves a generation: restores it to the new or empty folder of `scratch`, opens it with these options, and reads each row of each
    /// family. If rows were counted when it was made, which [`CreateOptions::prove`] asks for, their number and checksum must be the same. Rows
    /// that have expired since count as they did. The result is in [`Generation::proof`] from then on. The files in the folder are removed.
    ///
    /// The options need the comparators and merge operators of the database.
    ///
    /// # Errors
    /// As [`Backups::restore`] and [`OpenOptions::open`]; `Corrupt` if a row is missing or wrong; `Locked` if another writer has taken the store
    /// over.
    pub fn prove(&self, number: u64, scratch: OpenOptions) -> Result<Generation> {
        self.prove_with(number, scratch, &RestoreOptions::default())
    }

    /// Like [`Backups::prove`], with a rate at which objects are read, progress, and a way to end it.
    ///
    /// # Errors
    /// As [`Backups::prove`]; `Busy` if [`RestoreOptions::stop`] has ended the call, which says nothing about the generation.
    pub fn prove_with(
        &self,
        number: u64,
        scratch: OpenOptions,
        options: &RestoreOptions,
    ) -> Result<Generation> {
        prove::run(&self.shared, number, scratch, &self.pace(options))
    }

    fn pace<'a>(&'a self, options: &'a RestoreOptions) -> Pace<'a> {
        let mut pace = Pace::new(&*self.shared.env.clock, &|| Ok(()));
        pace.bytes_per_second = options.bytes_per_second;
        pace.progress = options.progress.as_ref();
        pace.stop = options.stop.as_deref();
        pace
    }

    /// Deletes a generation, and the objects that no other one needs. One that is damaged can be deleted, too.
    ///
    /// # Errors
    /// `NotFound`; `Locked` if another writer has taken the store over; `Corrupt` if the index or the description of another generation is
    /// damaged: then the generation is deleted, and its objects are not; `Io`.
    pub fn delete(&self, number: u64) -> Result<()> {
        remove::delete(&self.shared, number)
    }

    /// Deletes the generations that `policy` does not keep, and all objects that nothing needs. May run while a generation is made.
    ///
    /// # Errors
    /// `InvalidArgument` for a policy that keeps nothing; otherwise as [`Backups::delete`].
    pub fn prune(&self, policy: &PrunePolicy) -> Result<Pruned> {
        remove::prune(&self.shared, policy)
    }

    /// Makes the index of the store again, from the descriptions of the generations, if it is damaged or missing. Returns the generations whose
    /// objects are all there. One that was deleted, or that was not finished, may be among them; none counts as proven.
    ///
    /// # Errors
    /// `Exists` if the index is intact; `Busy` while this handle makes a generation; `InvalidArgument` for a store without conditional puts; `Io`.
    pub fn repair(&self) -> Result<Vec<Generation>> {
        remove::repair(&self.shared)
    }
}

impl Shared {
    /// Milliseconds since the UNIX epoch.
    fn now(&self) -> u64 {
        let millis = u64::try_from(self.env.clock.wall().as_millis()).unwrap_or(u64::MAX);
        millis.clamp(1, crate::types::EXPIRY_MAX)
    }

    /// Calls `work` with the writer of the store, which this handle becomes if it has not been before.
    fn with_writer<R>(&self, work: impl FnOnce(&mut Writer) -> Result<R>) -> Result<R> {
        let mut writing = self.writer.lock();
        if let Writing::NotYet = *writing {
            *writing = Writing::Yes(Box::new(Writer::take_over(&self.store, &self.env, None)?));
        }
        let result = match &mut *writing {
            Writing::Yes(writer) => work(writer),
            Writing::NoMore(e) => return Err(e.clone()),
            Writing::NotYet => unreachable!("it was made"),
        };
        if let Err(e @ Error::Locked { .. }) = &result {
            *writing = Writing::NoMore(e.clone());
        }
        result
    }
}
