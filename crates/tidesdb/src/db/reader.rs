//! [`Reader`]: a database that another process, or another handle of this one, has open for writing.
//!
//! A reader takes no lock and changes nothing on disk, and the writer does not know of it. Each **view** is a [`Db`] that
//! is open for reading only and never changes: the tables of one state of the manifest, and the gap-free prefix of the
//! log in memtables. `docs/design/0029-reader-beside-the-writer.md` has the reasons.
//!
//! ```text
//! poll the manifest       which tables and value logs exist, and where the log begins
//! open what is new        a file that is open stays readable after the writer has removed its name
//! read the log            from where the previous view ended, into the memtables that all views share
//! poll the manifest       begin again if something failed and the manifest has changed meanwhile, or if the log
//!                         begins above the place reached: its files may have been removed or reused while they were read
//! ```
//!
//! Tables and log that a try has opened and read are kept for the next try, so each try has less to do.

mod replayed;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_io::{Dir, DirLock, PooledDir};
use tidesdb_sync::{Mutex, rank};

use self::replayed::Replayed;
use super::close::Closing;
use super::open::newer_than_flushed;
use super::{Db, Inner, OpenOptions, RecoveryReport, catalog};
use crate::background::Pool;
use crate::engine::Engine;
use crate::memory::{Charge, Memory, Shares, Use};
use crate::options::RecoveryMode;
use crate::sst::{Table, TableContext};
use crate::types::{SeqNo, TableId, WalId};
use crate::version::{Context, ManifestTail, State, VersionSet};
use crate::wal::{LogTail, TailConfig};
use crate::write::Family;
use crate::{Error, Result};

/// Tries of one refresh. A try fails only because the writer has replaced files meanwhile.
const TRIES_MAX: u32 = 1000;

/// Reads a database beside the process that writes it. Cheap to clone and usable from any thread.
///
/// [`Reader::view`] is a [`Db`] for reading only: a consistent state of all families, which never changes.
/// [`Reader::refresh`] makes a newer one. A reader works whether or not a writer is running, across kills and
/// restarts of the writer, and costs the writer nothing. It never sees less than an earlier view did.
///
/// Handles of families, and tables of `tidesdb-typed`, belong to the view that they were opened in: open them again in the next view.
///
/// A view shows every commit that was in the log, without a gap, when the refresh read it. In sync mode `Full` that
/// includes commits that are not durable yet: a failure of the machine may undo them.
///
/// Files that a view uses keep their disk space until the view and the reader are dropped or refreshed. Files that are
/// only in an object store cannot be read.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tidesdb::Db;
/// let db = Db::open(dir.path())?; // in practice, in another process
/// db.put(b"whale", b"blue")?;
///
/// let reader = Db::options(dir.path()).open_reader()?;
/// let before = reader.view();
/// let seq = db.put(b"whale", b"grey")?;
/// let after = reader.refresh()?;
/// assert_eq!(before.get(b"whale")?.as_deref(), Some(&b"blue"[..]));
/// assert_eq!(after.get(b"whale")?.as_deref(), Some(&b"grey"[..]));
/// assert!(reader.seq() >= seq);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Views>,
}

/// Memory of a view, and of each family in it, without memtables and tables.
const VIEW_BYTES: u64 = 96 << 10;
const FAMILY_BYTES: u64 = 16 << 10;

struct Views {
    following: Mutex<Following, { rank::READER }>,
    view: Mutex<Db>,
}

impl OpenOptions {
    /// Opens the database for reading beside a process that writes it: see [`Reader`]. Takes no lock.
    ///
    /// Only options that concern reads are used: the memory limit, the cache, the name of the default family,
    /// comparators. The recovery mode must be `Tail`.
    ///
    /// # Errors
    /// `NotFound` if there is no database, or no family of the default name; `Corrupt`, `FormatTooNew`; `MemoryLimit`
    /// if the log does not fit in memory; `InvalidArgument` for an empty path and for a key order that is not known, unless
    /// [`OpenOptions::allow_unknown`] allows it; `Io`.
    pub fn open_reader(mut self) -> Result<Reader> {
        if self.options.recovery != RecoveryMode::Tail {
            return Err(Error::invalid(
                "a reader beside the writer reads the log in recovery mode Tail only",
            ));
        }
        self.options.read_only = true;
        self.options.remote = None;
        self.share_memory();
        let dir = PooledDir::keeping(self.open_dir()?, &self.env.descriptors);
        let (following, view) = Following::begin(self, dir)?;
        let (following, view) = (Mutex::new(following), Mutex::new(view));
        Ok(Reader { inner: Arc::new(Views { following, view }) })
    }
}

impl Reader {
    /// Returns the newest view that [`Reader::refresh`] made, or the first one.
    pub fn view(&self) -> Db {
        self.inner.view.lock().clone()
    }

    /// Returns the newest sequence number that [`Reader::view`] shows.
    pub fn seq(&self) -> SeqNo {
        self.view().inner.engine.reads.visible()
    }

    /// The directory, the identity of the database, and the wall time.
    pub(super) fn place(&self) -> (Arc<dyn Dir>, [u8; 16], Duration) {
        let following = self.inner.following.lock();
        let now = following.options.env.clock.wall();
        (Arc::clone(&following.dir), following.manifest.identity().uuid, now)
    }

    /// Makes a view of the database as it is now, and returns it. If nothing has changed, that is the previous one, unless
    /// it was closed, and the call costs 11 system calls.
    ///
    /// # Errors
    /// `Corrupt`, `FormatTooNew`, `Io`; `MemoryLimit` if what the writer has not flushed does not fit in memory beside the views that are
    /// alive; `Busy` if the writer replaces files faster than they can be opened, or if the views that are alive hold their share of
    /// `memory_limit`. The previous view stays, and the call may be repeated.
    pub fn refresh(&self) -> Result<Db> {
        let mut following = self.inner.following.lock();
        let was_closed = self.view().inner.engine.reads.closed.load(Ordering::SeqCst);
        let Some(view) = following.refresh(was_closed)? else { return Ok(self.view()) };
        let before = std::mem::replace(&mut *self.inner.view.lock(), view.clone());
        drop(before);
        tidesdb_sync::reclaim();
        tidesdb_sync::release_idle(view.inner.engine.write.env.clock.mono()); // a reader has no timekeeper
        Ok(view)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("Reader").field("path", &view.path()).field("seq", &self.seq()).finish_non_exhaustive()
    }
}

/// Tables that tries have opened and that no view has yet.
type Opened = Arc<Mutex<BTreeMap<TableId, Arc<Table>>>>;

/// How far the files of the writer were read.
struct Following {
    options: OpenOptions,
    dir: Arc<dyn Dir>,
    tables: Arc<TableContext>,
    memory: Arc<Memory>,
    manifest: ManifestTail,
    log: LogTail,
    replayed: Replayed,
    opened: Opened,
    /// The engine of the last try that opened all tables, with the state that it was made of.
    last: Option<(Arc<Engine>, State)>,
    /// Whether the last try made a view.
    settled: bool,
}

impl Following {
    /// Makes the first view.
    fn begin(options: OpenOptions, dir: Arc<dyn Dir>) -> Result<(Self, Db)> {
        let manifest = ManifestTail::open(&*dir)?;
        let identity = manifest.identity();
        let config = TailConfig {
            segment_bytes: identity.wal_segment_bytes,
            db_uuid: identity.uuid,
            boot_id: dir.boot().id,
        };
        let (memory, tables) = options.memory_and_tables(&dir, Shares::View);
        let mut this = Self {
            tables,
            memory,
            log: LogTail::new(config, first_segment(manifest.state())),
            replayed: Replayed::default(),
            opened: Opened::default(),
            last: None,
            settled: false,
            options,
            dir,
            manifest,
        };
        let view = this.follow()?;
        Ok((this, view))
    }

    /// Makes a new view; `None` if nothing has changed, unless one is `needed` all the same.
    fn refresh(&mut self, needed: bool) -> Result<Option<Db>> {
        // The log is looked at first: a segment that the writer removes or reuses meanwhile has changed the manifest. A
        // segment that cannot be read is left to the read of the log.
        let more = self.log.has_more(&*self.dir).unwrap_or(true);
        let changed = self.manifest.poll(&*self.dir)?;
        if self.settled && !changed && !needed && !more {
            return Ok(None);
        }
        self.follow().map(Some)
    }

    /// Tries to make a view until one is consistent, or an error is not due to a change by the writer.
    fn follow(&mut self) -> Result<Db> {
        self.settled = false;
        for _ in 0..TRIES_MAX {
            let tried = self.try_once();
            let changed = self.manifest.poll(&*self.dir)?;
            // The writer may have removed the value with its family; then the log goes on after it.
            let is_cut = changed && self.replayed.lacks_value;
            match tried {
                // Segments that the writer has removed or reused meanwhile are below the place reached.
                Ok(view) if self.manifest.state().log_start <= self.log.segment() && !is_cut => {
                    self.settled = true;
                    self.opened.lock().clear();
                    return Ok(view);
                }
                Err(e) if !changed => return Err(e),
                _ => {}
            }
        }
        Err(Error::Busy { cause: "the writer replaces files faster than the reader can open them" })
    }

    fn try_once(&mut self) -> Result<Db> {
        let state = self.manifest.state().clone();
        if first_segment(&state) > self.log.segment() {
            self.log.restart(first_segment(&state)); // all that was read is in tables
        }
        self.replayed.begin_again_if_passed(&mut self.log, &state);
        let engine = self.open_files(&state)?;
        self.replayed.drop_flushed(&engine, &state)?;
        self.replayed.read_log(&mut self.log, &*self.dir, &engine, &state)?;
        self.view(engine, &state)
    }

    /// Opens the tables and value logs of `state`.
    fn open_files(&mut self, state: &State) -> Result<Arc<Engine>> {
        if let Some(what) = newer_than_flushed(state) {
            return Err(Error::corrupt(self.manifest.name(), 0, what));
        }
        let prev = self.last.as_ref().map(|(last, _)| &last.maintenance.versions);
        let before = |id| self.last.as_ref().and_then(|(_, before)| before.families.get(&id));
        let is_same = |id| match (before(id), state.families.get(&id)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let mut held = Charge::new(Use::Cursors);
        held.grow(&self.memory, VIEW_BYTES + state.families.len() as u64 * FAMILY_BYTES)?;
        let identity = self.manifest.identity();
        let versions = VersionSet::view(self.context(), identity, state.clone(), prev, is_same)?;
        let tables = Arc::clone(&self.tables);
        let engine = self.options.assemble(versions, tables, first_segment(state), &self.memory, None);
        engine.view.get_or_init(|| held);
        catalog::load(&engine)?;
        // A try that fails here leaves the files of the last one open: memtables may refer to them.
        self.replayed.open_values(&engine, self.last.as_ref().map(|(last, _)| &**last), state)?;
        self.last = Some((Arc::clone(&engine), state.clone()));
        Ok(engine)
    }

    /// The context of a version set, which opens each table only once.
    fn context(&self) -> Context<Table> {
        let context = self.options.version_context(&self.dir, &self.tables);
        let (opened, open) = (Arc::clone(&self.opened), context.open_table);
        Context {
            open_table: Arc::new(move |family, meta| {
                if let Some(table) = opened.lock().get(&meta.id) {
                    return Ok(Arc::clone(table));
                }
                let table = open(family, meta)?;
                opened.lock().insert(meta.id, Arc::clone(&table));
                Ok(table)
            }),
            ..context
        }
    }

    /// First sequence number above all that was read. A log that the machine lost may end below a flush, which syncs the log only if other
    /// families need it: then the tables hold every commit up to the flush.
    fn end_of(&self, state: &State) -> Result<SeqNo> {
        let end = self.log.end();
        match state.families.values().max_by_key(|family| family.flushed_to) {
            Some(newest) if newest.flushed_to >= end && self.log.may_have_lost_records() => {
                Ok(newest.flushed_to + 1)
            }
            Some(newest) if newest.flushed_to >= end => {
                let what =
                    format!("the log ends at {end}, below what family {:?} has in tables", newest.name);
                Err(Error::corrupt(self.manifest.name(), 0, what))
            }
            _ => Ok(end),
        }
    }

    /// Makes the view of all that was read.
    fn view(&self, engine: Arc<Engine>, state: &State) -> Result<Db> {
        let end = self.end_of(state)?;
        self.replayed.publish(&engine, end);
        engine.write.log.sequencer().stand_at(end, state.durable_mark.min(end));
        engine.reads.snapshots.begin_at(engine.reads.visible());
        let name = &self.options.default_name;
        let core = catalog::by_name(&engine, name).ok_or_else(|| Error::no_family(name))?;
        let read = &self.replayed.report;
        let report = RecoveryReport { end, clean: read.commits == 0, ..read.clone() };
        Ok(Db {
            inner: Arc::new(Inner {
                path: self.options.path.clone(),
                default: Family { core, ctx: Arc::clone(&engine.write) },
                pool: Pool::default(),
                engine,
                report,
                closing: Closing::new(Some(Box::new(NoLock))),
            }),
        })
    }
}

/// The segment in which the log begins.
fn first_segment(state: &State) -> WalId {
    state.log_start.max(WalId(1))
}

/// Stands for the lock of the directory, which a reader beside the writer does not take.
#[derive(Debug)]
pub(super) struct NoLock;

impl DirLock for NoLock {}
