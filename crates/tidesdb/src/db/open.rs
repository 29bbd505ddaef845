//! Opening a database. `OpenOptions::open` is a sequence of named steps.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tidesdb_io::{Access, Dir, DirLock, Env, PooledDir, Priority};
use tidesdb_sync::Mutex;

use super::close::Closing;
use super::recover::{self, Rest};
use super::save::Unsaved;
use super::{DEFAULT_FAMILY, Db, Inner, RecoveryReport, Resources, catalog};
use crate::background::Pool;
use crate::context::WriteCtx;
use crate::engine::Engine;
use crate::family::FamilyCore;
use crate::health::Health;
use crate::jobs::{Job, Retry, ThreadKind};
use crate::maintenance::MaintenanceCtx;
use crate::memory::{Memory, Shares};
use crate::options::{DbOptions, FamilyOptions, RecoveryMode, RemoteOptions, SyncMode, check_threads};
use crate::remote::restore::{self, Attached};
use crate::sst::{Table, TableContext};
use crate::types::{Comparator, MergeOperator, WalId, is_segment_bytes, wal_id_max};
use crate::version::{
    Context, Presence, State, VersionEdit, VersionSet, inspect, presence, without_comparator,
};
use crate::vlog::WriteBudget;
use crate::wal::{Log, LogConfig, reader, release_spare_files};
use crate::write::Family;
use crate::{Error, Result, compact, files};

/// Free space, on top of `disk_free_min`, below which an open releases the reserve.
const NEARLY_FULL_BYTES: u64 = 64 << 20;
/// An open looks for merges that are due itself if there are at most so many families, and tables of a family, and removes so many files.
const FEW: usize = 8;
/// Reads cause merges of a family with several sorted runs from this size on, also if nothing is written.
const WATCHED_BYTES_MIN: u64 = 1 << 20;

/// Options for opening a database; created by [`Db::options`].
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(super) path: PathBuf,
    pub(super) options: DbOptions,
    /// `None`: use the stored settings, or the defaults if the family is created now.
    default_family: Option<FamilyOptions>,
    pub(super) default_name: String,
    pub(super) comparators: Vec<Comparator>,
    pub(super) operators: Vec<MergeOperator>,
    allow_unknown: bool,
    pub(super) env: Env,
    resources: Option<Resources>,
    /// The memory that the database has a part of.
    whole: Option<Arc<Memory>>,
}

impl OpenOptions {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            options: DbOptions::default(),
            default_family: None,
            default_name: DEFAULT_FAMILY.into(),
            comparators: Vec::new(),
            operators: Vec::new(),
            allow_unknown: false,
            env: Env::real(),
            resources: None,
            whole: None,
        }
    }

    /// Sets the durability of commits; default `Full`.
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.options.sync = mode;
        self
    }

    /// Sets how damage in the log is handled; default `Tail`.
    pub fn recovery(mut self, mode: RecoveryMode) -> Self {
        self.options.recovery = mode;
        self
    }

    /// Sets how much history [`Db::snapshot_at`] can read, in bytes of log written since.
    pub fn history_bytes(mut self, bytes: u64) -> Self {
        self.options.history_bytes = bytes;
        self
    }

    /// Sets the bytes of memory that the database may use. With 0, the default, all databases of the process that set none, and have
    /// no [`Resources`], share half of the memory of the machine or of the control group.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.memory_limit = bytes;
        self
    }

    /// Sets the capacity of the block cache, in bytes of decoded blocks.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.options.cache_bytes = bytes;
        self
    }

    /// Opens for reading only.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.options.read_only = yes;
        self
    }

    /// Creates the database, and the directories above it, if there is none; default true.
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.options.create_if_missing = yes;
        self
    }

    /// Refuses to open a database that exists; default false. The look and the creation are one step: the lock of the directory is held.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tidesdb::{Db, Error};
    /// let path = dir.path().join("db");
    /// Db::options(&path).error_if_exists(true).open()?.close()?;
    /// assert!(matches!(Db::options(&path).error_if_exists(true).open(), Err(Error::Exists { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn error_if_exists(mut self, yes: bool) -> Self {
        self.options.error_if_exists = yes;
        self
    }

    /// Sets the number of threads for flush and compaction, at most 256. With 0, the committing thread does the work.
    pub fn background_threads(mut self, n: usize) -> Self {
        self.options.background_threads = Some(n);
        self
    }

    /// Keeps a copy of the database in an object store and restores a lost folder from it. Opening a folder without a
    /// database for writing fetches what the store holds.
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.options.remote = Some(remote);
        self
    }

    /// Opens the database with memory, a cache, threads and other resources that it shares with other databases: these replace its own
    /// memory limit, cache size and number of background threads.
    pub fn resources(mut self, resources: &Resources) -> Self {
        self.resources = Some(resources.clone());
        self
    }

    /// Takes the memory from `whole`.
    pub(crate) fn within(mut self, whole: &Arc<Memory>) -> Self {
        self.whole = Some(Arc::clone(whole));
        self
    }

    /// Changes any other option.
    pub fn with(mut self, change: impl FnOnce(&mut DbOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Sets the name of [`Db::default_family`], which is created if it does not exist. Default [`DEFAULT_FAMILY`].
    pub fn default_family_name(mut self, name: impl Into<String>) -> Self {
        self.default_name = name.into();
        self
    }

    /// Sets the options of the default family. If it exists, the settings that `options` name ([`FamilyOptions`]) are put in force and
    /// stored, and the others stay. The open fails if a named one cannot change, such as the key order. A custom key order or merge operator
    /// in `options` is registered, too.
    pub fn default_family(mut self, options: FamilyOptions) -> Self {
        self.comparators.extend(Some(options.comparator.clone()).filter(|order| !order.is_unresolved()));
        self.operators.extend(options.merge_operator.clone().filter(|operator| !operator.is_unresolved()));
        self.default_family = Some(options);
        self
    }

    /// Registers a custom key order. Families that use it need it at each open. A program that gets its orders later locks the
    /// database first: see [`OpenOptions::lock`].
    pub fn comparator(mut self, comparator: Comparator) -> Self {
        self.comparators.push(comparator);
        self
    }

    /// Registers a custom merge operator. Families that use it need it at each open. Without it the open fails, unless
    /// [`OpenOptions::allow_unknown`] is set.
    pub fn merge_operator(mut self, operator: MergeOperator) -> Self {
        self.operators.push(operator);
        self
    }

    /// Opens even if code that the families need is not registered; default false. A family whose merge operator is not known can be
    /// used, except that reads of keys with operands and new merges fail with [`Error::Merge`]. A family whose key order is not known is
    /// left out if the database is opened for reading only; opened for writing, it is still an error.
    pub fn allow_unknown(mut self, yes: bool) -> Self {
        self.allow_unknown = yes;
        self
    }

    /// Replaces the environment (disk, clock, threads, randomness); for tests on a simulated disk. [`Env`] and that disk are of the crate
    /// `tidesdb-io`, whose interface may change in any release.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Opens the database.
    ///
    /// # Errors
    /// `Locked` if the database is open elsewhere; `NotFound` if there is no database, or no default family, and none may
    /// be created; `Corrupt`, `FormatTooNew`; `InvalidArgument` for an empty path, and for key orders that are not known, which it names
    /// with their families, unless [`OpenOptions::allow_unknown`] allows them; `Io`. An open that fails leaves the data on disk intact.
    pub fn open(self) -> Result<Db> {
        self.lock()?.open([])
    }

    /// Takes the lock of the directory, and nothing else: a program that gets its key orders one by one can look which are
    /// missing before it opens the database.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tidesdb::{Comparator, Db, FamilyOptions};
    /// let order = Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    /// let db = Db::open(dir.path())?;
    /// db.create_family("words", FamilyOptions::default().comparator(order.clone()))?.put(b"whale", b"1")?;
    /// db.close()?;
    ///
    /// let locked = Db::options(dir.path()).lock()?;
    /// assert_eq!(locked.missing_comparators()?, [("words".to_owned(), "by-length".to_owned())]);
    /// let db = locked.open([order])?;
    /// assert_eq!(db.family("words")?.get(b"whale")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Locked` if the database is open elsewhere; `NotFound` if there is no directory and none may be created; `InvalidArgument` for
    /// an empty path and for options out of their domain; `Io`. With an object store also what a restore of the folder fails with.
    pub fn lock(mut self) -> Result<LockedDb> {
        if self.options.recovery == RecoveryMode::Salvage {
            self.options.read_only = true;
        }
        check_options(&self.options)?;
        self.share_memory();
        if self.options.read_only {
            self.options.remote = None; // neither the folder nor the store may change
        }
        if let Some(resources) = &self.resources {
            self.options.cache_bytes = resources.cache().capacity();
            self.env.descriptors = Arc::clone(resources.descriptors());
        }
        let dir = self.open_dir()?;
        let lock = self.lock_dir(&PooledDir::wrap(dir.clone(), &self.env.descriptors))?;
        let attached = match self.options.remote.as_ref() {
            Some(remote) => Some(restore::attach(remote, dir.clone(), self.options.error_if_exists)?),
            None => None,
        };
        let dir = attached.as_ref().map_or(dir, |attached| Arc::clone(&attached.dir));
        let dir = PooledDir::wrap(dir, &self.env.descriptors);
        Ok(LockedDb { options: self, dir, lock, attached })
    }

    fn open_locked(
        mut self,
        dir: &Arc<dyn Dir>,
        lock: Box<dyn DirLock>,
        attached: Option<Attached>,
    ) -> Result<Db> {
        self.make_room(dir)?;
        let engine = self.build(dir, attached)?;
        let (report, mut rest) = self.recover(&engine).map_err(|e| match e.is_full() {
            true => full(&engine.maintenance, dir, e),
            false => e, // after damage, keep every file: a person may need it
        })?;
        engine.reads.snapshots.begin_at(engine.reads.visible());
        if let Rest::Begin(state) = &rest {
            let (weak, state, report) = (Arc::downgrade(&engine), state.clone(), report.clone());
            let begin = move || Unsaved::begin(&weak.upgrade().ok_or(Error::Closed)?, &state, &report);
            engine.write.begin_late(begin);
        }
        let default = match catalog::by_name(&engine, &self.default_name) {
            Some(family) => family,
            None => self.create_default(&engine, &mut rest)?,
        };
        let workers = match engine.write.options.background_threads {
            _ if engine.write.options.read_only => 0,
            Some(0) => 0,
            Some(n) => n,
            None => engine.write.env.threads.parallelism().clamp(2, 4),
        };
        let default = Family { core: default, ctx: Arc::clone(&engine.write) };
        if let Some(wanted) = self.default_family.take() {
            catalog::put_in_force(&default, wanted)?;
        }
        // This thread may never touch the engine again, and the views that it replaced would keep their files.
        tidesdb_sync::reclaim();
        engine.write.events.record(&report.event());
        engine.write.events.write();
        if matches!(rest, Rest::Unsaved(_)) {
            engine.write.begin_recovery();
        }
        // Last: an open that fails leaves no thread.
        let pool = match &self.resources {
            Some(resources) if workers > 0 => Pool::among(&engine, resources.shared_threads()),
            _ => Pool::new(&engine, workers),
        };
        if let Rest::Unsaved(unsaved) = rest {
            let report = report.clone();
            let body = move || (*unsaved).save_behind(&report);
            pool.spawn(&engine.write, "tidesdb-recover", Priority::Normal, body)?;
        } else if workers > 0 {
            ask_for_due(&engine);
        } else {
            engine.write.ask_for_pending();
            engine.write.jobs.push(Job::RemoveObsolete); // files that recovery replaced
        }
        Ok(Db {
            inner: Arc::new(Inner {
                path: self.path,
                engine,
                default,
                pool,
                report,
                closing: Closing::new(Some(lock)),
            }),
        })
    }

    /// Sets the parts of the memory that have a limit of their own.
    pub(super) fn share_memory(&mut self) {
        self.whole = match &self.resources {
            Some(resources) => Some(Arc::clone(resources.memory())),
            // Without threads nothing would free memory for others.
            None if self.whole.is_none()
                && self.options.memory_limit == 0
                && self.options.background_threads != Some(0) =>
            {
                Some(Memory::of_process())
            }
            None => self.whole.take(),
        };
        let o = &mut self.options;
        let own = self.whole.is_none().then(|| Memory::new(o.memory_limit));
        let Some(memory) = self.whole.as_ref().or(own.as_ref()) else { return };
        o.memory_limit = memory.limit();
        o.cache_bytes = memory.part_max(o.cache_bytes);
        o.memtables_bytes_max = memory.part_max(o.memtables_bytes_max);
    }

    /// Creates the default family. An open for reading creates none.
    fn create_default(&self, engine: &Arc<Engine>, rest: &mut Rest) -> Result<Arc<FamilyCore>> {
        if self.options.read_only {
            return Err(Error::NotFound { what: format!("family {:?}", self.default_name).into() });
        }
        let options = self.default_family.clone().unwrap_or_default();
        let edit = if let Rest::Create(edit) = rest { std::mem::take(edit) } else { VersionEdit::new() };
        catalog::create(engine, &self.default_name, options, edit, None)
    }

    /// Loads the families and replays the log.
    fn recover(&self, engine: &Arc<Engine>) -> Result<(RecoveryReport, Rest)> {
        let writes = !self.options.read_only;
        if writes {
            if self.options.event_log {
                engine.write.events.log_to(&engine.maintenance.dir);
            }
            engine.write.log.note_data(engine.maintenance.versions.state().data_bytes());
            engine.write.log.take_over_reserve()?;
        }
        catalog::load(engine)?;
        catalog::check_compression(engine)?;
        let default = catalog::by_name(engine, &self.default_name);
        if let (Some(family), Some(wanted)) = (default, &self.default_family) {
            let wanted = wanted.clone().over(family.options.now());
            family.options.check_order(&family.name(), &wanted.comparator)?;
        }
        let recovered = recover::run(engine)?;
        if writes {
            engine.write.log.restore_reserve();
        }
        Ok(recovered)
    }

    /// On a nearly full disk, releases the space of the reserve and of spare log segments before opening.
    fn make_room(&self, dir: &Arc<dyn Dir>) -> Result<()> {
        let space = dir.space().map_err(|e| Error::io("read free space", "database directory", e))?;
        if !self.options.read_only
            && space.free < self.options.disk_free_min.saturating_add(NEARLY_FULL_BYTES)
        {
            release_spare_files(dir);
        }
        Ok(())
    }

    pub(super) fn open_dir(&self) -> Result<Arc<dyn Dir>> {
        files::check_path(&self.path)?;
        let create = self.options.create_if_missing && !self.options.read_only;
        let path = self.path.display().to_string();
        // Whoever wrote `CURRENT` has made the name of the directory durable.
        let is_database = |dir: &Arc<dyn Dir>| dir.open(files::CURRENT, Access::Read).is_ok();
        let opened = match self.env.disk.open_dir(&self.path, false) {
            Ok(dir) if is_database(&dir) => Ok(dir),
            Ok(_) if create => self.env.disk.open_dir(&self.path, true),
            Err(e) if create && e.kind() == std::io::ErrorKind::NotFound => {
                self.env.disk.open_dir(&self.path, true)
            }
            other => other,
        };
        match opened {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && create => {
                Err(Error::io("create", &path, e))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::NotFound { what: format!("database {path}").into() })
            }
            Err(e) => Err(Error::io("open", &path, e)),
            Ok(dir) => Ok(dir),
        }
    }

    pub(super) fn lock_dir(&self, dir: &Arc<dyn Dir>) -> Result<Box<dyn DirLock>> {
        dir.lock(files::LOCK, !self.options.read_only).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked {
                dir: self.path.display().to_string().into(),
                what: "another process, or another handle in this process, holds its lock; close it first, or read \
                       beside it with OpenOptions::open_reader"
                    .into(),
            },
            _ => Error::io("lock", files::LOCK, e),
        })
    }

    /// Reads or creates the manifest and assembles the shared state, without families and without a begun log.
    fn build(&self, dir: &Arc<dyn Dir>, attached: Option<Attached>) -> Result<Arc<Engine>> {
        let (memory, tables) = match &self.resources {
            None => self.memory_and_tables(dir, Shares::Limit),
            Some(resources) => {
                let memory = Memory::within(resources.memory(), Shares::Resources);
                let tables = TableContext::sharing(dir, &memory, resources.cache())?;
                (memory, Arc::new(tables))
            }
        };
        let versions = self.versions(dir, &tables)?;
        if let Some(attached) = &attached {
            attached.check(&versions)?;
        }
        let segment_bytes = versions.identity().wal_segment_bytes;
        let first = first_segment(dir, &versions, segment_bytes)?;
        // The manifest may say that nearly all numbers are used.
        if !self.options.read_only && first.0 >= wal_id_max(segment_bytes) {
            return Err(Error::Exhausted { what: "sequence numbers".into() });
        }
        let engine = self.assemble(versions, tables, first, &memory, attached);
        if engine.write.options.remote.as_ref().is_some_and(|remote| remote.replicate_log) {
            engine.write.log.keep_from(WalId(0)); // keep all segments until the first upload is done
        }
        Ok(engine)
    }

    /// Memory with the limit of the database, and what the tables in `dir` have of it, with a cache of their own.
    pub(super) fn memory_and_tables(
        &self,
        dir: &Arc<dyn Dir>,
        shares: Shares,
    ) -> (Arc<Memory>, Arc<TableContext>) {
        let memory = match &self.whole {
            Some(whole) => Memory::within(whole, shares),
            None => Memory::new(self.options.memory_limit),
        };
        let tables = TableContext::new(dir, &memory, self.options.cache_bytes);
        (memory, Arc::new(tables))
    }

    /// Assembles the shared state, without families, with a log that begins at segment `first`.
    pub(super) fn assemble(
        &self,
        versions: VersionSet<Table>,
        tables: Arc<TableContext>,
        first: WalId,
        memory: &Arc<Memory>,
        attached: Option<Attached>,
    ) -> Arc<Engine> {
        let dir = &Arc::clone(versions.dir());
        let health = Arc::new(Health::default());
        let identity = versions.identity();
        let config = LogConfig {
            segment_bytes: identity.wal_segment_bytes,
            db_uuid: identity.uuid,
            boot: dir.boot(),
            mapped: self.options.mmap_wal,
            reserve_bytes: self.options.reserve_bytes(identity.wal_segment_bytes),
            free_min: self.options.disk_free_min,
        };
        let log = Log::new(&self.env, dir, config, &health, first);
        let mut write = WriteCtx::new(&self.env, self.options.clone(), &health, log);
        write.memory = Arc::clone(memory);
        if let Some(resources) = &self.resources {
            write.merges.share_rate(resources.rate());
        }
        let write = Arc::new(write);
        let engine = Engine {
            reads: Arc::clone(&write.reads),
            maintenance: MaintenanceCtx::new(&write, dir, versions, tables),
            write,
            catalog: Mutex::default(),
            retry: Retry::default(),
            watch: Mutex::default(),
            publisher: Mutex::default(),
            vlog_writes: match &self.resources {
                Some(resources) => Arc::clone(resources.vlog_writes()),
                None => WriteBudget::of(self.env.descriptors.max()),
            },
            remote: attached.map(|attached| attached.remote),
            view: OnceLock::new(),
        };
        engine.reads.refresh_clock();
        engine.write.sync_due.tick(engine.write.env.clock.mono());
        let engine = Arc::new(engine);
        let database = Arc::downgrade(&engine);
        engine.write.set_database(database);
        engine
    }

    /// Reads the manifest, or creates the first one.
    fn versions(&self, dir: &Arc<dyn Dir>, tables: &Arc<TableContext>) -> Result<VersionSet<Table>> {
        let context = self.version_context(dir, tables);
        match presence(&**dir)? {
            Presence::Present if self.options.error_if_exists => {
                Err(Error::Exists { what: format!("database {}", self.path.display()).into() })
            }
            Presence::Present => {
                let (versions, report) = VersionSet::open(context, self.options.read_only)?;
                match newer_than_flushed(&versions.state()) {
                    None => Ok(versions),
                    Some(what) => Err(Error::corrupt(&report.file, 0, what)),
                }
            }
            _ if self.options.create_if_missing && !self.options.read_only => {
                VersionSet::create(context, self.options.wal_segment_bytes)
            }
            _ => Err(Error::NotFound { what: format!("database {}", self.path.display()).into() }),
        }
    }

    pub(super) fn version_context(&self, dir: &Arc<dyn Dir>, tables: &Arc<TableContext>) -> Context<Table> {
        let tables = Arc::clone(tables);
        Context {
            dir: Arc::clone(dir),
            entropy: Arc::clone(&self.env.entropy),
            threads: Arc::clone(&self.env.threads),
            comparators: self.comparators.clone(),
            operators: self.operators.clone(),
            lacks_operators: self.allow_unknown,
            leaves_out: self.allow_unknown && self.options.read_only,
            open_table: Arc::new(move |family, meta| {
                Table::open(&tables, &family.options.comparator, meta.clone())
            }),
        }
    }
}

/// A database that is locked and not open yet; made by [`OpenOptions::lock`]. Dropping it gives the lock back and changes nothing on
/// disk.
#[derive(Debug)]
pub struct LockedDb {
    options: OpenOptions,
    dir: Arc<dyn Dir>,
    lock: Box<dyn DirLock>,
    attached: Option<Attached>,
}

impl LockedDb {
    /// Returns the families whose key order is neither built in nor registered, each with the name of the order. Reads the manifest.
    ///
    /// # Errors
    /// `Corrupt`, `FormatTooNew`, `Io`.
    pub fn missing_comparators(&self) -> Result<Vec<(String, String)>> {
        if presence(&*self.dir)? == Presence::Absent {
            return Ok(Vec::new());
        }
        let (state, _) = inspect(&*self.dir, &mut |_, _| {})?;
        let missing = without_comparator(&state, &self.options.comparators);
        Ok(missing.map(|f| (f.name.to_string(), f.options.comparator.name().to_owned())).collect())
    }

    /// Bytes of memory that the database may use, once it is open.
    pub fn memory_limit(&self) -> u64 {
        self.options.options.memory_limit
    }

    /// Opens the database, with `comparators` beside those of the options. A failure gives the lock back.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(self, comparators: impl IntoIterator<Item = Comparator>) -> Result<Db> {
        let Self { mut options, dir, lock, attached } = self;
        options.comparators.extend(comparators);
        options.open_locked(&dir, lock, attached)
    }
}

/// Requests the work that an open finds. What little there may be in a small database is looked for and done here: no thread starts to
/// find nothing.
fn ask_for_due(engine: &Arc<Engine>) {
    let write = &engine.write;
    // Files that recovery replaced, at least the old manifest.
    match engine.maintenance.versions.obsolete().len() {
        0..=FEW => engine.maintenance.remove_obsolete(),
        _ => write.jobs.push(Job::RemoveObsolete),
    }
    let families = write.all_families();
    for family in &families {
        let version = Arc::clone(&family.owned_view().version);
        let is_small = families.len() <= FEW && version.tables().take(FEW + 1).count() <= FEW;
        if !is_small || compact::is_due(&engine.maintenance, family) {
            write.jobs.push(Job::Compact(family.id));
        }
        // These become due with time or with reads, without a commit.
        let may_become_due = version.runs().iter().any(|run| run.has_expiring())
            || !version.ranges().is_empty()
            || !version.vlogs().is_empty()
            || version.runs().len() > 1 && version.bytes() >= WATCHED_BYTES_MIN;
        if may_become_due {
            write.jobs.want(ThreadKind::Clock);
        }
    }
    if engine.remote.is_some() {
        write.jobs.want(ThreadKind::Clock);
    }
}

/// Handles a full disk during open: removes the files this open wrote and returns an error with the space needed. The
/// estimate is the size of the log, an upper bound for the tables written from it.
#[cold]
fn full(ctx: &MaintenanceCtx, dir: &Arc<dyn Dir>, e: Error) -> Error {
    ctx.remove_obsolete();
    if matches!(e, Error::NoSpace { .. }) {
        return e;
    }
    let first = ctx.versions.state().log_start;
    let segment_bytes = ctx.versions.identity().wal_segment_bytes;
    let ids = reader::segment_files(dir, first, segment_bytes);
    let len = |id: &WalId| reader::span_of(dir, *id, segment_bytes) * segment_bytes;
    ctx.write.log.no_space(ids.unwrap_or_default().iter().map(len).sum())
}

fn check_options(options: &DbOptions) -> Result<()> {
    if !is_segment_bytes(options.wal_segment_bytes) {
        return Err(Error::invalid("wal_segment_bytes must be a multiple of 4096 from 16 KiB to 1 GiB"));
    }
    options.background_threads.map_or(Ok(()), |n| check_threads(n).map(drop))
}

/// Checks that all tables and range tombstones come from flushed commits (`max_seq <= flushed_to`). Returns a
/// description of the first violation.
pub(super) fn newer_than_flushed(state: &State) -> Option<String> {
    state.families.values().find_map(|family| {
        let table = family.tables.iter().find(|table| table.meta.max_seq > family.flushed_to);
        let range = family.ranges.keys().find(|seq| **seq > family.flushed_to);
        let id = family.id.0;
        table
            .map(|table| format!("table {} is above the flush mark of family {id}", table.meta.id.0))
            .or_else(|| {
                range.map(|seq| format!("range tombstone {seq} is above the flush mark of family {id}"))
            })
    })
}

/// Returns a segment number above every existing segment and every sequence number already assigned.
fn first_segment(dir: &Arc<dyn Dir>, versions: &VersionSet<Table>, segment_bytes: u64) -> Result<WalId> {
    let state = versions.state();
    let files = reader::segment_files(dir, WalId(0), segment_bytes)?;
    let on_disk =
        files.iter().map(|id| id.0 + reader::span_of(dir, *id, segment_bytes) - 1).max().unwrap_or(0);
    let used = state.newest_seq() * crate::wal::layout::UNIT / segment_bytes;
    Ok(WalId(on_disk.max(used).max(state.log_start.0) + 1))
}
