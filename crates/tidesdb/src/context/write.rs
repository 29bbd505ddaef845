//! The write path: from a commit to a memtable that waits for its flush.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidesdb_io::{Buffer, Env};
use tidesdb_memtable::Memtable;
use tidesdb_sync::{Mutex, RwLock, pin, rank};

use super::{Families, OpenDatabase, ReadCtx};
use crate::callback::comparing;
use crate::events::Events;
use crate::family::{FamilyCore, FamilyIndex, GarbageBudget, MemSlot, ReadView, TakenTables};
use crate::health::Health;
use crate::ingest::Taking;
use crate::jobs::{Call, Calls, Job, JobQueue, Merges, RunningJobs};
use crate::memory::{Memory, Pressure, Use};
use crate::options::DbOptions;
use crate::order;
use crate::pacing::{Admission, GROWTH_PATIENCE, Pacing};
use crate::sst::Table;
use crate::types::{FamilyId, SeqNo};
use crate::waits::StallCause;
use crate::wal::{Commit, Log, Purpose, SpaceReservation, SyncDue};
use crate::{Error, Result};

/// On a full disk, a flush that frees less than this is not worth a table, unless it frees a whole segment of the log.
pub const FLUSH_FOR_SPACE_MIN: u64 = 64 << 10;
/// Bits of [`WriteCtx::barred`]: a background thread writes recovered commits to tables.
const RECOVERING: u8 = 1;
/// The database is being closed.
const CLOSING: u8 = 2;
/// The first write begins the session.
const UNBEGUN: u8 = 4;
/// A writer that waits for the recovery looks at least this often whether it failed.
const RECOVERY_LOOK: Duration = Duration::from_millis(100);
/// Families that are looked at together for the log that they need: mostly the first of them answers.
const PINNING_AT_ONCE: usize = 64;
/// Size from which a memtable is flushed when memory begins to be scarce.
const FLUSH_FOR_MEMORY_MIN: u64 = 1 << 20;
/// While writers wait for memory, small memtables are flushed if all together take the limit divided by this.
const FLUSHED_SMALL_PART: u64 = 64;

/// The log, the memtables of all families, and what limits the writers. It reads tables only through the read views of the families, and changes the
/// manifest only through its [`OpenDatabase`].
#[derive(Debug)]
pub struct WriteCtx {
    /// Decides what a reader sees.
    pub reads: Arc<ReadCtx>,
    /// Disk, clock, threads and entropy.
    pub env: Env,
    /// Settings of the database.
    pub options: DbOptions,
    /// Healthy or poisoned.
    pub health: Arc<Health>,
    /// The write-ahead log.
    pub log: Log,
    /// While recovery replays the log, the log is kept from this number on; `SeqNo::MAX` afterwards.
    pub recovery_pins: AtomicU64,
    /// Why no write may begin: [`RECOVERING`], [`CLOSING`], [`UNBEGUN`]; 0 if writes may begin.
    barred: AtomicU8,
    /// Begins the session, as long as it is [`UNBEGUN`].
    beginning: Mutex<Option<Beginning>, { rank::BEGINNING }>,
    /// The families.
    pub families: RwLock<Families, { rank::FAMILIES }>,
    /// What is known of them without looking at all.
    pub index: Arc<FamilyIndex>,
    /// Families whose value log was written since its last sync.
    pub dirty_vlogs: Mutex<BTreeMap<FamilyId, Arc<FamilyCore>>, { rank::DIRTY_VLOGS }>,
    /// When commits with a sync interval must be durable.
    pub sync_due: SyncDue,
    /// Held by the conditional commit that is being decided.
    pub deciding: Mutex<(), { rank::DECIDING }>,
    /// Held by the thread that holds the tail of the sequencer for a rotation.
    rotating: Mutex<(), { rank::ROTATING }>,
    /// Queue of background work.
    pub jobs: Arc<JobQueue>,
    /// What decides how long writers wait.
    pub pacing: Pacing,
    /// The memory limit, and who uses how much.
    pub memory: Arc<Memory>,
    /// Calls that write files in the threads of their callers, or read all of them.
    pub calls: Calls,
    /// Whether merges start automatically, and how to stop them.
    pub merges: Merges,
    /// Set while there have been no commits for some seconds: work that would only delay commits may run.
    pub idle: AtomicBool,
    /// Flushes and merges that run.
    pub running: RunningJobs,
    /// Records what the background does.
    pub events: Events,
    /// The open database, for handles.
    database: OnceLock<Weak<dyn OpenDatabase>>,
}

/// What begins a session at its first write.
struct Beginning(Box<dyn Fn() -> Result<()> + Send + Sync>);

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beginning")
    }
}

/// The log of a write path that this keeps alive.
#[derive(Clone, Debug)]
pub struct OwnedLog(pub Arc<WriteCtx>);

impl Deref for OwnedLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0.log
    }
}

/// Memtables that a flush has written: of each family, those below a boundary. Sorted by family.
#[derive(Debug, Default)]
pub struct Flushed(pub Vec<(FamilyId, SeqNo)>);

impl Flushed {
    /// Returns whether `family` has some of them.
    fn has(&self, family: FamilyId) -> bool {
        self.0.binary_search_by_key(&family, |(id, _)| *id).is_ok()
    }

    /// Returns whether `slot`, a memtable of `family`, is one of them.
    pub fn holds(&self, family: FamilyId, slot: &MemSlot) -> bool {
        let at = self.0.binary_search_by_key(&family, |(id, _)| *id);
        at.is_ok_and(|at| slot.from < self.0[at].1)
    }
}

/// What a commit takes for one family, before it has its sequence number.
#[derive(Debug)]
pub(crate) struct StagedTables {
    /// The family.
    pub(crate) family: Arc<FamilyCore>,
    /// Its tables, oldest first.
    pub(crate) tables: Vec<Arc<Table>>,
    /// The position of each table in the record.
    pub(crate) positions: Vec<u64>,
    /// Range tombstones with their positions in the record.
    pub(crate) ranges: Vec<(u64, Taking)>,
}

/// Disk space reserved for a merge, which all threads that work on the merge share.
pub type MergeSpace = SpaceReservation<OwnedLog>;

impl WriteCtx {
    /// The write path to `log`, with no family.
    pub fn new(env: &Env, options: DbOptions, health: &Arc<Health>, log: Log) -> Self {
        let reads = Arc::new(ReadCtx::new(&log, &env.clock));
        let (merges, pacing) = (Merges::default(), Pacing::counting(log.waits()));
        merges.set_rate(options.compaction_bytes_per_second);
        log.sync_times().set_slow_from(Some(options.slow_sync));
        reads.set_slow_from(options.slow_operation);
        Self {
            jobs: Arc::clone(&reads.jobs),
            reads,
            env: env.clone(),
            health: Arc::clone(health),
            log,
            recovery_pins: AtomicU64::new(u64::MAX),
            barred: AtomicU8::new(0),
            beginning: Mutex::default(),
            families: RwLock::default(),
            index: Arc::default(),
            dirty_vlogs: Mutex::default(),
            sync_due: SyncDue::default(),
            deciding: Mutex::default(),
            rotating: Mutex::default(),
            pacing,
            memory: Memory::new(options.memory_limit),
            merges,
            calls: Calls::default(),
            idle: AtomicBool::new(false),
            running: RunningJobs::new(&env.clock),
            events: Events::new(&env.clock),
            database: OnceLock::new(),
            options,
        }
    }

    /// Sets the open database that the write path belongs to.
    pub fn set_database(&self, database: Weak<dyn OpenDatabase>) {
        let _ = self.database.set(database);
    }

    /// The open database, for calls of handles that need more than the write path.
    ///
    /// # Errors
    /// `Closed` if it is gone.
    pub fn database(&self) -> Result<Arc<dyn OpenDatabase>> {
        self.database.get().and_then(Weak::upgrade).ok_or(Error::Closed)
    }

    /// Fails unless a write may begin. Waits until recovered commits are in tables. The first write of a session that begins late begins it.
    ///
    /// # Errors
    /// `Poisoned`, `ReadOnly`, `Closed`; `NoSpace` and `Io` if the session cannot begin: the next write tries again.
    pub fn check_writable(&self) -> Result<()> {
        self.health.check()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.reads.check_open()?;
        if self.barred.load(Ordering::Acquire) == 0 { Ok(()) } else { self.wait_to_begin() }
    }

    /// Begins a call that writes files in this thread: a close waits until the result is dropped.
    ///
    /// # Errors
    /// As [`WriteCtx::check_writable`].
    pub fn begin_call(&self) -> Result<Call<'_>> {
        self.check_writable()?;
        self.calls.begin()
    }

    #[cold]
    fn wait_to_begin(&self) -> Result<()> {
        loop {
            let seen = self.pacing.progress.current();
            match self.barred.load(Ordering::Acquire) {
                0 => return self.health.check(),
                UNBEGUN => self.begin()?,
                RECOVERING => {
                    self.pacing.progress.wait_while(seen, Some(RECOVERY_LOOK));
                }
                _ => return Err(Error::Closed),
            }
            self.health.check()?;
            self.reads.check_open()?;
        }
    }

    /// Has the first write call `begin`, again after a failure, before it does anything.
    pub fn begin_late(&self, begin: impl Fn() -> Result<()> + Send + Sync + 'static) {
        *self.beginning.lock() = Some(Beginning(Box::new(begin)));
        self.barred.fetch_or(UNBEGUN, Ordering::SeqCst);
    }

    fn begin(&self) -> Result<()> {
        self.log.waits().of(StallCause::Log).time(&*self.env.clock, || self.begin_once())
    }

    fn begin_once(&self) -> Result<()> {
        let mut beginning = self.beginning.lock();
        if let Some(Beginning(begin)) = &*beginning {
            begin()?;
            *beginning = None;
            self.barred.fetch_and(!UNBEGUN, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Returns true if nothing was written since the open, and the log has not begun.
    pub fn is_unbegun(&self) -> bool {
        self.barred.load(Ordering::Acquire) & UNBEGUN != 0
    }

    /// Lets writes wait until [`WriteCtx::end_recovery`]: reads find recovered commits in memtables, and the log of this session has not
    /// begun.
    pub fn begin_recovery(&self) {
        self.barred.fetch_or(RECOVERING, Ordering::SeqCst);
    }

    /// Returns true while a background thread writes recovered commits to tables.
    pub fn is_recovering(&self) -> bool {
        self.barred.load(Ordering::Acquire) & RECOVERING != 0
    }

    /// Lets writers that wait for the recovery continue.
    pub fn end_recovery(&self) {
        self.barred.fetch_and(!RECOVERING, Ordering::SeqCst);
        self.pacing.progress.advance();
    }

    /// Refuses all writes that begin from now on, and those that wait before they get a sequence number, with `Closed`.
    pub fn stop_admitting(&self) {
        self.barred.fetch_or(CLOSING, Ordering::SeqCst);
        self.pacing.progress.advance();
    }

    /// Notes that values were appended to the value logs of `families`. Nobody needs those of a dropped family after a crash, and the
    /// list would keep the family and its files until the next sync.
    pub fn note_dirty_values<'a>(&self, families: impl IntoIterator<Item = &'a Arc<FamilyCore>>) {
        let mut dirty = self.dirty_vlogs.lock();
        for family in families {
            // A drop sets the mark before it clears the list.
            if !family.is_dropped() {
                dirty.entry(family.id).or_insert_with(|| Arc::clone(family));
            }
        }
    }

    /// Makes every value durable that a record in the log refers to.
    ///
    /// # Errors
    /// `Io`; the caller poisons.
    pub fn sync_values(&self) -> Result<()> {
        let dirty = std::mem::take(&mut *self.dirty_vlogs.lock());
        dirty.values().try_for_each(|family| family.vlog.sync())
    }

    /// Returns true if commits run the jobs themselves: the database has no threads, or the system has no room for them.
    #[inline]
    pub fn works_alone(&self) -> bool {
        self.options.background_threads == Some(0) || self.jobs.workers.lacks_workers()
    }

    /// Makes the log and the values durable up to `end`.
    ///
    /// # Errors
    /// The failure that poisoned the database.
    pub fn sync_to(&self, end: SeqNo) -> Result<()> {
        self.log.sync_to(end, &|| self.sync_values())
    }

    /// Returns the family with the number `id`, unless it was dropped.
    pub fn family(&self, id: FamilyId) -> Option<Arc<FamilyCore>> {
        self.families.read().get(&id).cloned()
    }

    /// All families.
    pub fn all_families(&self) -> Vec<Arc<FamilyCore>> {
        self.families.read().values().cloned().collect()
    }

    /// Families other than `family` with memtables that wait for their flush; at most `max`.
    pub fn families_with_immutables(&self, family: FamilyId, max: usize) -> Vec<Arc<FamilyCore>> {
        let waiting = self.index.waiting(max + 1).into_iter().filter(|id| *id != family);
        self.families.read().all_of(waiting).take(max).cloned().collect()
    }

    /// Calls `wanted` with the families that have memtables which need the log below `end`, until it returns true for one, and returns whether
    /// it did.
    pub fn any_pins_log(&self, end: SeqNo, mut wanted: impl FnMut(&FamilyCore) -> bool) -> bool {
        let mut after = None;
        loop {
            let pinning = self.index.pinning(end, after, PINNING_AT_ONCE);
            let Some(last) = pinning.last().copied() else { return false };
            after = Some(last);
            let families: Vec<_> =
                self.families.read().all_of(pinning.into_iter().map(|(_, id)| id)).cloned().collect();
            if families.iter().any(|family| wanted(family)) {
                return true;
            }
        }
    }

    /// Lowest sequence number whose log is still needed: by a memtable, by an unfinished commit, or by recovery.
    pub fn log_needed_from(&self) -> SeqNo {
        self.log_needed_without(&Flushed::default())
    }

    /// As [`WriteCtx::log_needed_from`], once `flushed` is in tables.
    pub fn log_needed_without(&self, flushed: &Flushed) -> SeqNo {
        // Read the published end first: a memtable created after this line retains the log from there or above.
        let published = self.log.sequencer().visible_end().min(self.recovery_pins.load(Ordering::SeqCst));
        let others = self.index.lowest_pin(|id| !flushed.has(id));
        let rest = |family: &Arc<FamilyCore>| {
            let view = family.owned_view();
            view.memtables().filter(|slot| !flushed.holds(family.id, slot)).map(|slot| slot.pins).min()
        };
        let families = self.families.read();
        let rests = families.all_of(flushed.0.iter().map(|(id, _)| *id)).filter_map(rest);
        rests.chain(others).fold(published, SeqNo::min)
    }

    /// Refuses writes from now on; all waiting threads are woken and get the error.
    pub fn poison(&self, e: Error) -> Arc<Error> {
        let cause = match e {
            Error::Poisoned { cause } | Error::CommitUnknown { cause, .. } => {
                self.health.poison((*cause).clone())
            }
            e => self.health.poison(e),
        };
        self.log.sequencer().stop();
        self.log.wake_waiters();
        self.pacing.progress.advance();
        cause
    }

    /// Handles the failure of a write of `bytes` bytes. If the disk has no room for them, health says so from now on, and everything that
    /// frees space is asked for. Returns the error to report.
    #[cold]
    pub fn refused(&self, bytes: u64, e: Error) -> Error {
        let e = match e {
            Error::NoSpace { .. } => e,
            e if e.is_full() => self.log.no_space(bytes),
            e => return e,
        };
        self.log.note_refusal(&e, bytes);
        self.jobs.push(Job::FreeSpace);
        e
    }

    /// Returns true if the flush of `slot` frees log space that is worth a table.
    pub fn pins_log(&self, slot: &MemSlot) -> bool {
        self.log.segment_of(slot.pins) < self.log.segment_of(self.log.sequencer().tail())
            || self.log.bytes_since(slot.pins) >= FLUSH_FOR_SPACE_MIN
    }

    /// How much garbage value logs may hold now.
    pub fn budget(&self) -> GarbageBudget {
        match self.idle.load(Ordering::Relaxed) {
            _ if self.log.lacks_space() => GarbageBudget::Short,
            true => GarbageBudget::Idle,
            false => GarbageBudget::Busy,
        }
    }

    /// Requests all due work again: after a failure, jobs are no longer in the queue.
    pub fn ask_for_pending(&self) {
        for family in self.all_families() {
            if !family.owned_view().immutables.is_empty() {
                self.jobs.push(Job::Flush(family.id));
            }
            self.jobs.push(Job::Compact(family.id));
        }
    }

    /// Waits until memory is within the limit, while flushes and the cache free some.
    ///
    /// # Errors
    /// `Busy` after [`GROWTH_PATIENCE`]; `Closed`; the failure that poisoned the database.
    pub fn wait_for_memory(&self) -> Result<()> {
        if self.memory.is_within_limit() {
            return Ok(());
        }
        self.ask_for_relief();
        if self.works_alone() {
            return Ok(()); // the next commit runs the job
        }
        let admission = || match self.memory.is_within_limit() {
            true => Admission::Go,
            false => Admission::Stop(StallCause::Memory),
        };
        let patience = (GROWTH_PATIENCE, self.memory.databases() > 1);
        self.pacing.stop(&*self.env.clock, StallCause::Memory, patience, admission, |_| {
            self.health.check()?;
            self.reads.check_open()?;
            self.ask_for_relief();
            Ok(())
        })
    }

    /// Has range tombstones applied: flushes the memtables that hold some, and asks for merges.
    pub fn apply_ranges(&self) {
        self.flush_ranges(0);
        for family in self.all_families() {
            if !family.owned_view().version.ranges().is_empty() {
                self.jobs.push(Job::Compact(family.id));
            }
        }
    }

    /// Makes the active memtables that hold more than `least` bytes of range tombstones immutable and requests their flush.
    pub fn flush_ranges(&self, least: usize) {
        let holds = |family: &Arc<FamilyCore>| {
            family.owned_view().active.as_ref().is_some_and(|slot| slot.ranges.bytes() > least)
        };
        let full: Vec<_> = self.all_families().into_iter().filter(holds).collect();
        self.rotate_used(&full);
    }

    /// Requests a job that frees memory, unless one is queued.
    pub fn ask_for_relief(&self) {
        if self.memory.ask_for_relief() {
            self.jobs.push(Job::Relieve);
        }
    }

    /// Under pressure, rotates the largest active memtables until their flushes bring memory below the level at which pressure
    /// begins. The scarcer memory is, the smaller the memtables that are flushed: in the end all of them, since the flush of one takes
    /// small ones of other families with it.
    pub fn flush_for_memory(&self) {
        let is_worth = self.memory.is_in_memtables();
        let least = match self.memory.level() {
            Pressure::Normal => return,
            Pressure::Elevated | Pressure::High if !is_worth => return,
            Pressure::Elevated => FLUSH_FOR_MEMORY_MIN,
            Pressure::High => FLUSH_FOR_MEMORY_MIN / 8,
            Pressure::Critical => 1,
        };
        let active = |family: Arc<FamilyCore>| {
            let bytes = family.owned_view().active.as_ref().map_or(0, |slot| slot.bytes() as u64);
            (bytes >= least).then_some((bytes, family))
        };
        let mut largest: Vec<_> = self.all_families().into_iter().filter_map(active).collect();
        if !is_worth
            && largest.iter().map(|(bytes, _)| bytes).sum::<u64>() < self.memory.limit() / FLUSHED_SMALL_PART
        {
            return;
        }
        order::sort_by_key(&mut largest, |(bytes, _)| std::cmp::Reverse(*bytes));
        // The memory of immutable memtables will be free soon.
        let freed = self.pacing.flush_debt().min(self.memory.used_for(Use::Memtables));
        let wanted = self.memory.wanted().saturating_sub(self.memory.begin_of(Pressure::Elevated));
        let mut missing = wanted.saturating_sub(freed);
        let all = self.memory.whole().used_for(Use::Memtables);
        if self.memory.databases() > 1 && all > 0 && self.memory.is_within_limit() {
            // Each database that shares the limit gives up its part, and small ones nothing.
            let part = self.memory.used_for(Use::Memtables) as f64 / all as f64;
            let is_small = self.memory.own_wanted() < self.memory.fair_bytes() / 2;
            missing = if is_small { 0 } else { (missing as f64 * part.min(1.0)) as u64 };
        }
        let mut chosen = Vec::new();
        for (bytes, family) in largest {
            if missing == 0 {
                break;
            }
            chosen.push(family);
            missing = missing.saturating_sub(bytes);
        }
        self.rotate_used(&chosen);
    }

    /// Makes the active memtable of `family` immutable and requests its flush. Does nothing if there is none.
    pub fn rotate(&self, family: &Arc<FamilyCore>) {
        self.rotate_where(std::slice::from_ref(family), |_| true);
    }

    /// As [`WriteCtx::rotate`], if the active memtable has reached its size.
    pub fn rotate_if_full(&self, family: &Arc<FamilyCore>) {
        self.rotate_where(std::slice::from_ref(family), |view| family.is_full(view));
    }

    /// As [`WriteCtx::rotate`], for all `families` at one boundary.
    pub fn rotate_used(&self, families: &[Arc<FamilyCore>]) {
        self.rotate_where(families, |_| true);
    }

    /// Makes the active memtables of all families immutable if they have reached their common limit.
    #[cold]
    pub fn rotate_if_large_together(&self) {
        let max = self.options.active_memtables_bytes_max;
        if self.memory.used_for(Use::Memtables) < max {
            return; // a sum over more than these
        }
        let active = |family: &&Arc<FamilyCore>| {
            let guard = pin();
            let view = family.view(&guard);
            let bytes = view.active.as_ref().filter(|_| view.waits_for_few()).map(|slot| slot.bytes() as u64);
            bytes.map(|bytes| (bytes, Arc::clone(family)))
        };
        let (sizes, families): (Vec<u64>, Vec<_>) =
            self.families.read().values().filter_map(|f| active(&f)).unzip();
        if sizes.iter().sum::<u64>() >= max {
            self.rotate_used(&families);
        }
    }

    /// Like [`WriteCtx::rotate`], but only if scans have cost as much as the flush of the active memtable: see [`MemSlot::charge`].
    pub fn rotate_if_scanned(&self, family: &Arc<FamilyCore>) {
        let has_paid = |view: &ReadView| view.active.as_ref().is_some_and(|slot| slot.charge(0));
        self.rotate_where(std::slice::from_ref(family), has_paid);
    }

    /// Rotates all `families` at one boundary and returns it: their immutable memtables then hold the same prefix of
    /// the commits.
    pub fn rotate_all(&self, families: &[Arc<FamilyCore>]) -> SeqNo {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(families);
        self.rotate_now(families)
    }

    /// Gives each of `families` an active memtable. A commit may have its number but not yet its memtable: it must find
    /// one that ends at the boundary of a rotation.
    fn make_slots<'f>(&self, families: impl IntoIterator<Item = &'f Arc<FamilyCore>>) {
        let sequencer = self.log.sequencer();
        for family in families {
            family.make_slot(sequencer.tail(), self.env.entropy.next_u64(), || sequencer.visible_end());
        }
    }

    /// Reserves a place for `record`, a commit whose entries are all in the memtables `staged`. Puts these into the
    /// read views before another commit is ordered.
    ///
    /// # Errors
    /// As [`Log::reserve`]; nothing happened.
    pub fn reserve_staged(
        &self,
        record: &mut Buffer,
        purpose: Purpose,
        mut staged: Vec<(Arc<FamilyCore>, Arc<Memtable>)>,
    ) -> Result<Commit> {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(staged.iter().map(|(family, _)| family));
        let ids: Vec<FamilyId> = staged.iter().map(|(family, _)| family.id).collect();
        let place = self.log.reserve_holding(record, purpose, |commit| {
            for (family, map) in staged.drain(..) {
                let active = family.owned_view().active.as_ref().map_or(0, |slot| slot.debt());
                let debt = active + map.allocated_bytes().min(family.buffer_bytes()) as u64;
                self.pacing.add_flush_debt(debt); // add first: a flush may subtract it as soon as the memtable is in the view
                if !family.rotate_around(map, commit.seq, commit.end) {
                    self.pacing.subtract_flush_debt(debt);
                }
            }
        })?;
        tidesdb_sync::reclaim();
        ids.into_iter().for_each(|id| self.jobs.push(Job::Flush(id)));
        Ok(place)
    }

    /// Reserves a place for `record`, a commit that takes the tables of `staged`, and puts these into the read views before another commit is
    /// ordered. `within` is called meanwhile.
    ///
    /// # Errors
    /// As [`Log::reserve`]: nothing happened. If the second result is an error, the place is reserved, and the caller poisons.
    pub(crate) fn reserve_taken(
        &self,
        record: &mut Buffer,
        staged: &mut [StagedTables],
        within: impl Fn(),
    ) -> Result<(Commit, Result<()>)> {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(staged.iter().map(|part| &part.family));
        let mut taken = Ok(());
        let place = self.log.reserve_holding(record, Purpose::Store, |commit| {
            within();
            // A comparator may panic: then nobody else can tell where the tables belong.
            taken = comparing(|| staged.iter_mut().try_for_each(|part| self.take(part, commit)));
        })?;
        tidesdb_sync::reclaim();
        staged.iter().for_each(|part| self.jobs.push(Job::Flush(part.family.id)));
        Ok((place, taken))
    }

    fn take(&self, part: &mut StagedTables, commit: &Commit) -> Result<()> {
        for (position, table) in part.positions.iter().zip(&mut part.tables) {
            let table = Arc::get_mut(table);
            table.expect("a table that is taken is not shared").number(commit.seq + position);
        }
        let ranges = std::mem::take(&mut part.ranges).into_iter();
        let ranges = ranges.filter_map(|(position, range)| range.range(commit.seq + position)).collect();
        let debt = part.family.owned_view().active.as_ref().map_or(0, |slot| slot.debt());
        self.pacing.add_flush_debt(debt); // add first: a flush may subtract it as soon as the memtable is in the view
        let taken = TakenTables { tables: &part.tables, ranges };
        if !part.family.rotate_around_tables(taken, (commit.seq, commit.end))? {
            self.pacing.subtract_flush_debt(debt);
        }
        Ok(())
    }

    /// Rotates those of `families` at one boundary that have an active memtable and a view that is `wanted`.
    fn rotate_where(&self, families: &[Arc<FamilyCore>], wanted: impl Fn(&ReadView) -> bool) {
        let _one_at_a_time = self.rotating.lock();
        let is_wanted = |family: &&Arc<FamilyCore>| {
            let guard = pin();
            let view = family.view(&guard);
            view.active.is_some() && wanted(view)
        };
        let chosen: Vec<_> = families.iter().filter(is_wanted).cloned().collect();
        if !chosen.is_empty() {
            self.rotate_now(&chosen);
        }
    }

    /// The caller holds `rotating`.
    fn rotate_now(&self, families: &[Arc<FamilyCore>]) -> SeqNo {
        let held = self.log.sequencer().hold();
        let boundary = held.boundary;
        for family in families {
            // Add first: a flush or a drop may subtract it as soon as the memtable is immutable.
            let bytes = family.owned_view().active.as_ref().map_or(0, |slot| slot.bytes() as u64);
            self.pacing.add_flush_debt(bytes);
            if family.rotate(boundary) == 0 {
                self.pacing.subtract_flush_debt(bytes); // a drop came first, or it covers no commit
            }
        }
        drop(held);
        tidesdb_sync::reclaim(); // not while the tail is held: it may free whole memtables
        families.iter().for_each(|f| self.jobs.push(Job::Flush(f.id)));
        boundary
    }
}
