//! What all floors above share: one value of this for each open database.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::{Dir, Env};
use tidesdb_memtable::Memtable;
use tidesdb_sync::{Event, Mutex, RwLock};

use crate::clock::ExpiryClock;
use crate::family::{FamilyCore, MemSlot, Orders};
use crate::health::Health;
use crate::jobs::{Job, JobQueue, Retry};
use crate::mvcc::{SnapshotPin, Snapshots};
use crate::options::DbOptions;
use crate::remote::Remote;
use crate::sources::TableVersion;
use crate::sst::{Table, TableContext};
use crate::types::{FamilyId, SeqNo};
use crate::version::{Change, VersionEdit, VersionSet};
use crate::vlog::WriteBudget;
use crate::wal::{Log, Place, Purpose};
use crate::{Error, Result};

/// On a full disk, less of the log than this is not worth a table, unless a whole segment comes back.
const FLUSH_FOR_SPACE_MIN: u64 = 64 << 10;

/// The parts of one open database.
pub struct Shared {
    /// The outside.
    pub env: Env,
    /// The database directory.
    pub dir: Arc<dyn Dir>,
    /// Its settings.
    pub options: DbOptions,
    /// Healthy or poisoned.
    pub health: Arc<Health>,
    /// The write-ahead log.
    pub log: Log,
    /// Which tables, value logs and families exist.
    pub versions: VersionSet<Table>,
    /// How tables are read.
    pub tables: Arc<TableContext>,
    /// Who reads at which point in time.
    pub snapshots: Arc<Snapshots>,
    /// Work for the background.
    pub jobs: JobQueue,
    /// Families by number; dropped ones leave.
    pub families: RwLock<BTreeMap<FamilyId, Arc<FamilyCore>>>,
    /// Key orders, and families that wait for theirs; those are not among the others.
    pub orders: Orders,
    /// Held while a family is made, dropped or renamed.
    pub catalog: Mutex<()>,
    /// Held by the commit with a condition that is being decided.
    pub deciding: Mutex<()>,
    /// Held while the order of commits is held.
    pub rotating: Mutex<()>,
    /// Memory that waits to be flushed, and who waits for it.
    pub debt: Debt,
    /// Whether merges begin by themselves, and how to stop them.
    pub merges: Merges,
    /// Commits that are to be durable within some time.
    pub sync_due: SyncDue,
    /// Failures of background work in a row, and when to try again.
    pub retry: Retry,
    /// Families whose value log was written since its last sync.
    pub dirty_vlogs: Mutex<Vec<Arc<FamilyCore>>>,
    /// Value logs that may be open for writing.
    pub vlog_writes: Arc<WriteBudget>,
    /// The log is kept from here while recovery replays it; `SeqNo::MAX` afterwards.
    pub recovery_pins: AtomicU64,
    /// The object store that holds a copy, if there is one.
    pub remote: Option<Arc<Remote>>,
    /// The time that decides expiry, refreshed by the background.
    pub expiry_clock: ExpiryClock,
    /// Whether `close` was called.
    pub closed: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.dir.path();
        f.debug_struct("Shared")
            .field("path", &path)
            .field("visible", &self.visible())
            .finish_non_exhaustive()
    }
}

/// Immutable memtables in bytes, and how fast they go.
#[derive(Debug, Default)]
pub struct Debt {
    /// Bytes of all immutable memtables.
    pub immutable_bytes: AtomicU64,
    /// Measured flush rate in bytes per second; 0 = not measured yet.
    pub drain_rate: AtomicU64,
    /// Advances when the debt fell: a memtable went, or a compaction is done. A job with nothing to do is no progress.
    pub progress: Event,
    /// Writers held up because memtables wait for their flush.
    pub by_memtables: HeldUp,
    /// Writers held up because level 1 waits for its compaction.
    pub by_tables: HeldUp,
}

/// How writers were held up for one cause.
#[derive(Debug, Default)]
pub struct HeldUp {
    /// Nanoseconds, all threads together.
    pub nanos: AtomicU64,
    /// Commits that were slowed down.
    pub slowed: AtomicU64,
    /// Commits that had to stop.
    pub stopped: AtomicU64,
}

/// Stopping merges. Those that run look here now and then.
#[derive(Debug, Default)]
pub struct Merges {
    off: AtomicBool,
    /// The last one failed because the disk has no room for its output.
    starved: AtomicBool,
    stops: AtomicU64,
}

impl Merges {
    /// Stops those that run; none begins by itself any more.
    pub fn stop(&self) {
        self.off.store(true, Ordering::SeqCst);
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether none begins by itself.
    pub fn are_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Notes whether the disk had room for the last one.
    pub fn set_starved(&self, yes: bool) {
        self.starved.store(yes, Ordering::Relaxed);
    }

    /// Whether writers would wait for merges that do not come.
    pub fn are_stuck(&self) -> bool {
        self.are_off() || self.starved.load(Ordering::Relaxed)
    }

    /// How often they were stopped so far.
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::SeqCst)
    }

    /// Fails if they were stopped since there were `seen` stops.
    ///
    /// # Errors
    /// `Busy`.
    pub fn check(&self, seen: Option<u64>) -> Result<()> {
        match seen {
            Some(seen) if seen != self.stops() => {
                Err(Error::Busy { cause: "the merge was stopped; nothing changed" })
            }
            _ => Ok(()),
        }
    }
}

/// When the log must be synced for commits that were promised to be durable within some time. Time is that of the last tick: a
/// promise is kept a little too early rather than too late.
#[derive(Debug)]
pub struct SyncDue {
    tick_nanos: AtomicU64,
    /// `u64::MAX` = no commit waits.
    due_nanos: AtomicU64,
}

impl Default for SyncDue {
    fn default() -> Self {
        Self { tick_nanos: AtomicU64::new(0), due_nanos: AtomicU64::new(u64::MAX) }
    }
}

impl SyncDue {
    /// A commit that has its place in the log is to be durable within `period`. Of many such commits only the first after a
    /// sync writes here.
    pub fn within(&self, period: Duration) {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let due = self.tick_nanos.load(Ordering::Relaxed).saturating_add(period);
        if due < self.due_nanos.load(Ordering::SeqCst) {
            self.due_nanos.fetch_min(due, Ordering::SeqCst);
        }
    }

    /// It is `now`; whether a sync is due. If so it is said once, and the tail of the log read afterwards is behind every commit
    /// that relied on it: their places were drawn before they looked here.
    pub fn tick(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.tick_nanos.store(now, Ordering::Relaxed);
        let due = now >= self.due_nanos.load(Ordering::SeqCst);
        if due {
            self.due_nanos.swap(u64::MAX, Ordering::SeqCst);
        }
        due
    }
}

impl Debt {
    /// A flush freed `bytes` of memtable in `took`.
    pub fn flushed(&self, bytes: u64, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-6)) as u64;
        let old = self.drain_rate.load(Ordering::Relaxed);
        self.drain_rate.store(if old == 0 { rate } else { (old * 3 + rate) / 4 }, Ordering::Relaxed);
    }

    /// Memory went to wait for a flush.
    pub fn add(&self, bytes: u64) {
        self.immutable_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Memory no longer waits.
    pub fn subtract(&self, bytes: u64) {
        let _ = self
            .immutable_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |b| Some(b.saturating_sub(bytes)));
        self.progress.advance();
    }
}

impl Shared {
    /// Fails unless writes are possible.
    ///
    /// # Errors
    /// `Poisoned`, `ReadOnly`, `Closed`.
    pub fn check_writable(&self) -> Result<()> {
        self.health.check()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_open()
    }

    /// Fails after close.
    ///
    /// # Errors
    /// `Closed`.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Newest sequence number a reader may see.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        self.log.sequencer().snapshot()
    }

    /// Registers a snapshot of the newest visible commit. Waits, before it takes the lock of the snapshots, for what has returned:
    /// a commit that is waited for may need that lock in a key order that reads.
    pub fn register_snapshot(&self) -> SnapshotPin {
        self.visible();
        self.snapshots.register(|| self.log.sequencer().visible_end() - 1)
    }

    /// As [`Shared::register_snapshot`], for a transaction that began at the second `began` and whose commit looks for conflicts.
    pub fn register_validating(&self, began: u32) -> SnapshotPin {
        self.visible();
        self.snapshots.register_validating(began, || self.log.sequencer().visible_end() - 1)
    }

    /// Time for expiry in seconds, as of the last refresh; as of now if there is no thread that refreshes it. Never goes back.
    #[inline]
    pub fn now_secs(&self) -> u32 {
        if self.options.background_threads == Some(0) || self.options.read_only {
            return self.refresh_clock();
        }
        self.expiry_clock.seen()
    }

    /// Whether a version with this expiry is expired now; 0 = never.
    #[inline]
    pub fn is_expired(&self, expiry: u32) -> bool {
        expiry != 0 && expiry <= self.now_secs()
    }

    /// Reads the clock again; returns the time.
    pub fn refresh_clock(&self) -> u32 {
        self.expiry_clock.read(&*self.env.clock)
    }

    /// Makes durable every value that a record in the log refers to.
    ///
    /// # Errors
    /// `Io`; the caller poisons.
    pub fn sync_values(&self) -> Result<()> {
        let dirty = std::mem::take(&mut *self.dirty_vlogs.lock());
        dirty.iter().try_for_each(|family| family.vlog.sync())
    }

    /// Makes the log and the values durable up to `end`.
    ///
    /// # Errors
    /// The failure that poisoned the database.
    pub fn sync_to(&self, end: SeqNo) -> Result<()> {
        self.log.sync_to(end, &|| self.sync_values())
    }

    /// All families.
    pub fn all_families(&self) -> Vec<Arc<FamilyCore>> {
        self.families.read().values().cloned().collect()
    }

    /// First sequence number whose log is still needed: by a memtable, by a commit on its way, or by recovery.
    pub fn log_needed_from(&self) -> SeqNo {
        self.log_needed_without(None)
    }

    /// As [`Shared::log_needed_from`], once `flushed` is in tables.
    pub fn log_needed_without(&self, flushed: Option<&Arc<MemSlot>>) -> SeqNo {
        // The published end first: a memtable made after this line pins from there or above.
        let published = self.log.sequencer().visible_end().min(self.recovery_pins.load(Ordering::SeqCst));
        let pins = |f: &Arc<FamilyCore>| {
            let view = f.owned_view();
            view.memtables()
                .filter(|m| flushed.is_none_or(|gone| !Arc::ptr_eq(m, gone)))
                .map(|m| m.pins)
                .min()
        };
        self.all_families().iter().filter_map(pins).min().map_or(published, |p| p.min(published))
    }

    /// Makes `edit` durable and then has the read view of `family` swapped, both or none.
    ///
    /// # Errors
    /// Those of [`VersionSet::install`]; an unknown state of the manifest poisons the database.
    pub fn install(
        &self,
        edit: &VersionEdit,
        family: &FamilyCore,
        swap: impl FnOnce(Arc<TableVersion>),
    ) -> Result<()> {
        let publish = |installed: &crate::version::Installed<'_, Table>| {
            if let Some(version) = installed.versions.get(&family.id) {
                swap(Arc::clone(version));
            }
        };
        self.versions.install(edit, publish).inspect_err(|e| self.poison_if_unknown(e))
    }

    /// Makes `edit` durable and gives every family its new version.
    ///
    /// # Errors
    /// As [`Shared::install`].
    pub fn install_for_all(&self, edit: &VersionEdit) -> Result<()> {
        let families = self.all_families();
        let publish = |installed: &crate::version::Installed<'_, Table>| {
            for family in &families {
                if let Some(version) = installed.versions.get(&family.id) {
                    family.change_view(|view| view.with_version(Arc::clone(version)));
                }
            }
        };
        self.versions.install(edit, publish).inspect_err(|e| self.poison_if_unknown(e))
    }

    /// Poisons the database if `e` leaves the manifest in doubt.
    pub fn poison_if_unknown(&self, e: &Error) {
        if self.versions.is_poisoned() {
            self.poison(e.clone());
        }
    }

    /// Refuses writes from now on; whoever waits is woken and sees it.
    pub fn poison(&self, e: Error) -> Arc<Error> {
        let cause = match e {
            Error::Poisoned { cause } | Error::CommitUnknown { cause, .. } => {
                self.health.poison((*cause).clone())
            }
            e => self.health.poison(e),
        };
        self.log.sequencer().stop();
        self.log.wake_waiters();
        self.debt.progress.advance();
        cause
    }

    /// Does `work`, which makes space in the end, once more with the space of the reserve if the disk is full.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_reserve<R>(&self, mut work: impl FnMut() -> Result<R>) -> Result<R> {
        match work() {
            // Not if the manifest is in doubt: the work may be done.
            Err(e) if e.is_full() && !self.versions.is_poisoned() && self.log.use_reserve() => work(),
            other => other,
        }
    }

    /// Asks for the flush of what is only in the log: the disk is full, and the log's space comes back with it. Left alone is
    /// what gives no space back, and what waits for a flush already: else refused commits would make a memtable and a table of
    /// each small commit among them.
    pub fn flush_for_space(&self) {
        let tail = self.log.sequencer().tail();
        let gives_space = |pins| {
            self.log.segment_of(pins) < self.log.segment_of(tail)
                || self.log.bytes_since(pins) >= FLUSH_FOR_SPACE_MIN
        };
        for family in self.all_families() {
            let view = family.owned_view();
            if !view.immutables.is_empty() {
                self.jobs.push(Job::Flush(family.id));
            } else if view.active.as_ref().is_some_and(|slot| gives_space(slot.pins)) {
                self.rotate(&family);
            }
        }
    }

    /// Removes files that no version and no reader needs; those that resist are tried again later.
    pub fn remove_obsolete(&self) {
        if !self.options.read_only {
            tidesdb_sync::reclaim(); // a view that was just replaced still owns its files
            self.versions.unlink_obsolete();
        }
    }

    /// Asks for everything that is due: after a failure, jobs are not in the queue any more.
    pub fn ask_for_pending(&self) {
        for family in self.all_families() {
            if !family.owned_view().immutables.is_empty() {
                self.jobs.push(Job::Flush(family.id));
            }
            self.jobs.push(Job::Compact(family.id));
        }
    }

    /// An edit that says where the log begins: at the first segment that is needed, without `flushed`.
    pub fn log_start_edit(
        &self,
        edit: &mut VersionEdit,
        flushed: Option<&Arc<MemSlot>>,
    ) -> crate::types::WalId {
        let tail = self.log.sequencer().visible_end();
        let first = self.log.segment_of(self.log_needed_without(flushed));
        edit.push(Change::LogStart { wal: first });
        edit.push(Change::LastSeq { seq: tail - 1 });
        edit.push(Change::DurableMark { seq: self.log.sequencer().durable() });
        first
    }

    /// Makes the active memtable of `family` immutable and asks for its flush. Does nothing if it is empty.
    pub fn rotate(&self, family: &Arc<FamilyCore>) {
        self.rotate_if(family, |_| true);
    }

    /// As [`Shared::rotate`], if `slot` is the active memtable still and no other thread rotates at the moment: for readers, which do not wait.
    pub fn try_rotate(&self, family: &Arc<FamilyCore>, slot: &Arc<MemSlot>) {
        let Some(_one_at_a_time) = self.rotating.try_lock() else { return };
        if family.owned_view().active.as_ref().is_some_and(|active| Arc::ptr_eq(active, slot)) {
            self.rotate_now(std::slice::from_ref(family));
        }
    }

    /// As [`Shared::rotate`], if the active memtable has reached its size.
    pub fn rotate_if_full(&self, family: &Arc<FamilyCore>) {
        let limit = family.options.write_buffer_bytes();
        self.rotate_if(family, |bytes| bytes >= limit);
    }

    /// Rotates all `families` at one boundary and returns it: their immutables then hold the same prefix of the commits.
    pub fn rotate_all(&self, families: &[Arc<FamilyCore>]) -> SeqNo {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(families);
        self.rotate_now(families)
    }

    /// Gives each of `families` an active memtable. A commit may have its number and not yet its memtable: it must find one
    /// that ends at the boundary of a rotation.
    fn make_slots<'f>(&self, families: impl IntoIterator<Item = &'f Arc<FamilyCore>>) {
        let sequencer = self.log.sequencer();
        for family in families {
            family.make_slot(sequencer.tail(), self.env.entropy.next_u64(), || sequencer.visible_end());
        }
    }

    /// Reserves a place for `record`, a commit whose entries are all in the memtables `staged`, and puts these into the read
    /// views before another commit is ordered.
    ///
    /// # Errors
    /// As [`Log::reserve`]; nothing happened.
    pub fn reserve_staged(
        &self,
        record: &mut Vec<u8>,
        purpose: Purpose,
        staged: Vec<(Arc<FamilyCore>, Arc<Memtable>)>,
    ) -> Result<Place> {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(staged.iter().map(|(family, _)| family));
        let ids: Vec<FamilyId> = staged.iter().map(|(family, _)| family.id).collect();
        let place = self.log.reserve_holding(record, purpose, |commit| {
            for (family, map) in staged {
                let active = family.owned_view().active.as_ref().map_or(0, |slot| slot.debt());
                let debt = active + map.allocated_bytes().min(family.options.write_buffer_bytes()) as u64;
                self.debt.add(debt); // first: a flush may take it off as soon as it is on the list
                if !family.rotate_around(map, commit.seq, commit.end) {
                    self.debt.subtract(debt);
                }
            }
        })?;
        tidesdb_sync::reclaim();
        ids.into_iter().for_each(|id| self.jobs.push(Job::Flush(id)));
        Ok(place)
    }

    fn rotate_if(&self, family: &Arc<FamilyCore>, wanted: impl Fn(usize) -> bool) {
        let _one_at_a_time = self.rotating.lock();
        let active = family.owned_view().active.as_ref().map(|a| a.bytes());
        if active.is_some_and(wanted) {
            self.rotate_now(std::slice::from_ref(family));
        }
    }

    /// The caller holds `rotating`.
    fn rotate_now(&self, families: &[Arc<FamilyCore>]) -> SeqNo {
        let held = self.log.sequencer().hold();
        let boundary = held.boundary;
        for family in families {
            // First: a flush or a drop may take it off as soon as it is on the list.
            let bytes = family.owned_view().active.as_ref().map_or(0, |slot| slot.bytes() as u64);
            self.debt.add(bytes);
            if family.rotate(boundary) == 0 {
                self.debt.subtract(bytes); // a drop was faster
            }
        }
        drop(held);
        tidesdb_sync::reclaim(); // not while the order of commits was held: it may free whole memtables
        families.iter().for_each(|f| self.jobs.push(Job::Flush(f.id)));
        boundary
    }
}

/// A column family: a cheap handle, cloneable, usable from any thread. It stays valid across a rename; after
/// a drop its calls fail with `NotFound`.
#[derive(Clone, Debug)]
pub struct Family {
    pub(crate) core: Arc<FamilyCore>,
    pub(crate) shared: Arc<Shared>,
}

impl Family {
    /// Its number, which is never reused.
    pub fn id(&self) -> FamilyId {
        self.core.id
    }

    /// Its name now.
    pub fn name(&self) -> String {
        self.core.name().to_string()
    }

    /// Its settings now.
    pub fn options(&self) -> crate::options::FamilyOptions {
        self.core.options.now()
    }
}
