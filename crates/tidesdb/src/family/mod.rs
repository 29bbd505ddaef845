//! The state of one column family: its read view, its memtables, its value log.
//!
//! The **read view** (active memtable, immutable memtables, version) is one immutable object behind an atomic pointer.
//! Readers load it under an epoch pin, without a reference count and without a lock. Every change replaces the whole
//! view under `change`.
//!
//! A commit's memtable is chosen by its sequence number, not by the time at which it arrives: each memtable begins at a
//! boundary (`from`), set while the tail of the sequencer is held. So all versions in a newer memtable are newer than
//! all in an older one, although no thread waits for slow committers. Once everything below the next boundary is
//! published, a memtable receives nothing more.

mod claims;
mod hook;
mod index;
mod probes;
mod read_view;
mod space;
mod stats;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use claims::{Claim, Claimed, Claims};
pub use hook::{CommitHook, Committed, CommittedOp, HookCell};
use index::MemtableFacts;
pub use index::{Again, FamilyIndex, Sweep};
pub use probes::{GET_CHARGE, Probes, SEEK_CHARGE};
pub use read_view::{MemSlot, ReadView};
pub use space::{Collection, GarbageBudget, SettledFiles, ValueSpace};
pub use stats::{FamilyStats, LevelCounters, Metric};
use tidesdb_memtable::{KeyOrder, Memtable};
use tidesdb_sync::{EpochCell, Guard, Mutex, ShardedCounters, pin, rank};

use crate::memory::{Memory, Use};
use crate::options::{FamilyOptions, LiveOptions};
use crate::pacing::MergeDebt;
use crate::ranges::{RangeSet, RangeTombstone, SharedRanges};
use crate::sources::TableVersion;
use crate::sst::Table;
use crate::types::{CompactionFilter, FamilyId, SeqNo, TableId};
use crate::vlog::VlogSet;
use crate::{Error, Result};

/// A merge of this many bytes takes about as long as the flush of a memtable.
const SHORT_MERGE_BYTES: u64 = 16 << 20;

/// While several memtables of a family wait for their flush, which takes them together, the active one may grow to this many
/// bytes. So a few rows do not become one more memtable that waits. The flush of those that wait makes one table of this size.
const GROWN_BYTES: usize = 16 << 20;

/// The first memtable of a family is at most this share shorter than later ones.
const HEAD_START_MAX: f64 = 0.875;

/// What a commit takes for one family.
#[derive(Debug)]
pub struct TakenTables<'a> {
    /// The open tables, with their sequence numbers; the first are the oldest.
    pub tables: &'a [Arc<Table>],
    /// Its range tombstones.
    pub ranges: Vec<RangeTombstone>,
}

/// State of one family. Lives as long as a handle, a reader or the database refers to it.
#[derive(Debug)]
pub struct FamilyCore {
    /// Its id; never reused.
    pub id: FamilyId,
    /// Its settings.
    pub options: LiveOptions,
    /// Its value log. A reader of a value may outlive the family.
    pub vlog: Arc<VlogSet>,
    name: Mutex<Arc<str>>,
    view: EpochCell<Arc<ReadView>>,
    /// Held while the view is replaced: what the index knows of its memtables.
    change: Mutex<MemtableFacts, { rank::VIEW }>,
    /// Number of changes that a sweep should look at; raised after each. Each new view is one.
    changes: AtomicU64,
    /// The last of them after which an idle database found nothing to merge.
    settled: AtomicU64,
    /// Held by the running flush of this family; at most one runs.
    pub flushing: Mutex<(), { rank::FLUSHING }>,
    /// Held from reading which value logs the version names until an edit that names more is installed.
    pub naming: Mutex<(), { rank::NAMING }>,
    /// The merges of this family that run.
    pub claims: Claims,
    /// Bytes that merges wrote into each level.
    pub merged: LevelCounters,
    /// What they owe.
    pub merge_debt: MergeDebt,
    /// The collection of its value logs.
    pub collection: Collection,
    /// Called with each commit to the family.
    pub hook: HookCell,
    /// Decides about the rows that merges rewrite.
    pub filter: Mutex<Option<CompactionFilter>>,
    dropped: AtomicBool,
    /// Set when the first memtable was created.
    has_begun: AtomicBool,
    /// Operation counters, see [`Metric`].
    pub metrics: ShardedCounters<{ Metric::COUNT }>,
    /// The memory of the database.
    pub memory: Arc<Memory>,
    /// The index of the families of the database.
    index: Arc<FamilyIndex>,
}

impl FamilyCore {
    /// A family with these tables and no memtable.
    pub fn new(
        id: FamilyId,
        name: &str,
        options: FamilyOptions,
        vlog: VlogSet,
        version: Arc<TableVersion>,
        (memory, index): (&Arc<Memory>, &Arc<FamilyIndex>),
    ) -> Self {
        memory.family_begins();
        version.ranges().iter().for_each(|range| range.charge_to(memory));
        let probes = Arc::new(Probes::new(id, index));
        let view = ReadView { active: None, active_from: 0, immutables: Vec::new(), version, probes };
        let this = Self {
            id,
            options: LiveOptions::new(options),
            vlog: Arc::new(vlog),
            name: Mutex::new(name.into()),
            view: EpochCell::new(Arc::new(view)),
            change: Mutex::default(),
            changes: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            flushing: Mutex::new(()),
            naming: Mutex::new(()),
            claims: Claims::default(),
            merged: LevelCounters::default(),
            merge_debt: MergeDebt::default(),
            collection: Collection::default(),
            hook: HookCell::default(),
            filter: Mutex::default(),
            dropped: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            metrics: ShardedCounters::new(),
            memory: Arc::clone(memory),
            index: Arc::clone(index),
        };
        this.note_values();
        this.merge_debt.set_level_1(this.owned_view().version.flushed_runs());
        this
    }

    /// The current name.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.lock())
    }

    /// Sets the name after a rename.
    pub fn set_name(&self, name: &str) {
        *self.name.lock() = name.into();
    }

    /// Checks that `operand` may be written.
    ///
    /// # Errors
    /// `InvalidArgument` without a merge operator, or if it refuses the operand; `Merge` if it is not known here.
    #[inline]
    pub fn check_merge(&self, operand: &[u8]) -> Result<()> {
        match self.options.merge_operator() {
            Some(operator) if !operator.is_unresolved() => operator.check(operand).map_err(|what| {
                Error::invalid(format!(
                    "the merge operator {:?} of family {:?} refuses an operand of {} bytes: {what}",
                    operator.name(),
                    self.name(),
                    operand.len()
                ))
            }),
            _ => Err(self.merge_failed("it is not known here; register it with OpenOptions::merge_operator")),
        }
    }

    /// The error of a merge operator that failed for the reason `what`.
    #[cold]
    pub fn merge_failed(&self, what: impl Into<Arc<str>>) -> Error {
        match self.options.merge_operator() {
            Some(operator) => {
                Error::Merge { family: self.name(), operator: operator.name().into(), what: what.into() }
            }
            None => Error::invalid(format!("family {:?} has no merge operator", self.name())),
        }
    }

    /// Returns true if the family was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Returns true if a job may have failed with `error` because the family was dropped meanwhile: the manifest no longer names it, and its
    /// files may be gone, which looks like damage. Where a removed file keeps its name while it is open, no other call may use the name.
    pub fn was_lost(&self, error: &Error) -> bool {
        let is_file_gone =
            || matches!(error.io_kind(), Some(ErrorKind::NotFound | ErrorKind::PermissionDenied));
        let is_gone = matches!(error, Error::NotFound { .. } | Error::Corrupt { .. }) || is_file_gone();
        self.is_dropped() && is_gone
    }

    /// The error for a use of a family that was dropped.
    #[cold]
    pub fn unusable(&self) -> Error {
        Error::no_family(&self.name())
    }

    /// Checks that the family can be used.
    ///
    /// # Errors
    /// `NotFound` if it was dropped, `InvalidArgument` if it is refused.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        if self.is_dropped() { Err(self.unusable()) } else { Ok(()) }
    }

    /// Marks the family as dropped: new commits and reads are refused.
    pub fn set_dropped(&self) {
        self.dropped.store(true, Ordering::SeqCst);
        self.vlog.doom();
    }

    /// Adds `n` to `metric`.
    pub fn count(&self, metric: Metric, n: u64) {
        self.metrics.add(metric as usize, n);
    }

    /// The sum of `metric`.
    pub fn total(&self, metric: Metric) -> u64 {
        self.metrics.sum(metric as usize)
    }

    /// The current view, for as long as the guard lives.
    #[inline]
    pub fn view<'g>(&'g self, guard: &'g Guard) -> &'g Arc<ReadView> {
        self.view.load(guard)
    }

    /// The current view, to keep.
    pub fn owned_view(&self) -> Arc<ReadView> {
        Arc::clone(self.view.load(&pin()))
    }

    /// Replaces the view by the result of `change`. The old view is freed at some later time, or by
    /// [`tidesdb_sync::reclaim`].
    pub fn change_view(&self, change: impl FnOnce(&ReadView) -> ReadView) {
        let mut told = self.change.lock();
        let new = change(self.view.load(&pin()));
        self.merge_debt.set_level_1(new.version.flushed_runs());
        self.tell_around(&mut told, new, |view| self.view.store_lazily(view));
    }

    /// Calls `store` with `view`, and tells the index of its memtables: before, if they need more of the log, so that none is in use
    /// of which the index does not know.
    fn tell_around(&self, told: &mut MemtableFacts, view: ReadView, store: impl FnOnce(Arc<ReadView>)) {
        let pins = view.memtables().map(|slot| slot.pins).min();
        let (old, new) = (*told, MemtableFacts { pins, waits: !view.immutables.is_empty() });
        let tell = || {
            if old != new {
                self.index.set_memtables(self.id, old, new);
            }
        };
        if new.pins.unwrap_or(SeqNo::MAX) < old.pins.unwrap_or(SeqNo::MAX) {
            tell();
            store(Arc::new(view));
        } else {
            store(Arc::new(view));
            tell();
        }
        *told = new;
        self.ask_for_sweep();
    }

    /// Has the next sweep look at the family, which has changed.
    pub fn ask_for_sweep(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.index.sweep_next(self.id);
    }

    /// Returns the number of changes so far. A view that is taken afterwards is at least as new as the last of them.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Notes that an idle database found nothing to merge after `changes` changes.
    pub fn set_settled(&self, changes: u64) {
        self.settled.store(changes, Ordering::SeqCst);
    }

    /// Returns true if nothing has changed since an idle database found nothing to merge.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst) == self.changes()
    }

    /// Quarantines damaged `tables` that failed a merge at `now`.
    pub fn quarantine(&self, tables: &[TableId], now: Duration) {
        self.claims.quarantine(tables, now);
        self.note_quarantine();
    }

    /// Ends the quarantine of `tables`, which are no longer in use.
    pub fn end_quarantine(&self, tables: impl IntoIterator<Item = TableId>) {
        if self.claims.has_quarantined() {
            self.claims.forget(tables);
            self.note_quarantine();
        }
    }

    fn note_quarantine(&self) {
        self.index.note_damage(self.id, || self.claims.has_quarantined());
        self.ask_for_sweep();
    }

    /// Size of the memtable at which it is flushed: the setting of the family, as far as the memory limit allows.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        self.memory.buffer_max(self.options.write_buffer_bytes())
    }

    /// Size at which the active memtable of `view` is flushed.
    #[inline]
    pub fn buffer_bytes_of(&self, view: &ReadView) -> usize {
        match view.waits_for_few() {
            true => self.buffer_bytes(),
            false => self.buffer_bytes().max(self.memory.buffer_max(GROWN_BYTES)),
        }
    }

    /// Returns true if the active memtable of `view` is due to be flushed.
    #[inline]
    pub fn is_full(&self, view: &ReadView) -> bool {
        view.active.as_ref().is_some_and(|active| active.is_full(self.buffer_bytes_of(view)))
    }

    /// Returns true if a merge of the family takes no longer than a flush: all its tables are small together, and it moves no values.
    pub fn merges_are_short(&self) -> bool {
        let version = &self.owned_view().version;
        version.vlogs().is_empty() && version.bytes() <= SHORT_MERGE_BYTES
    }

    /// Makes the active memtable, if there is one, immutable; it ends at `boundary`. Returns its bytes; 0 if it covers no sequence number.
    pub fn rotate(&self, boundary: SeqNo) -> u64 {
        let mut bytes = 0;
        self.change_view(|view| {
            let used = view.active.as_ref().filter(|slot| slot.from < boundary);
            bytes = used.map_or(0, |slot| slot.bytes() as u64);
            view.rotated(boundary)
        });
        bytes
    }

    /// Removes the oldest immutable memtables, `slots`: they are in the tables of `version`, or no longer needed. Returns the debt of
    /// those that were in the view.
    pub fn release(&self, slots: &[Arc<MemSlot>], version: Option<Arc<TableVersion>>) -> u64 {
        let mut debt = 0;
        self.change_view(|view| {
            let version = version.unwrap_or_else(|| Arc::clone(&view.version));
            keep_files(slots.iter(), &version);
            let next = view.flushed(slots, version);
            debt = view.immutables[next.immutables.len()..].iter().map(|(slot, _)| slot.debt()).sum();
            next
        });
        debt
    }

    /// Creates the memtable of commit `seq` if it is missing. `published` is read under the lock: every commit below it
    /// has already arrived, so the memtable retains the log only from there. A dropped family gets no memtable: the
    /// operations of a commit that got its number before the drop are discarded, and no reader could see them.
    pub fn make_slot(&self, seq: SeqNo, seed: u64, published: impl FnOnce() -> SeqNo) {
        let mut told = self.change.lock();
        let view = self.owned_view();
        if view.slot_for(seq).is_some() || self.is_dropped() {
            return;
        }
        debug_assert!(seq >= view.active_from, "an immutable memtable is missing");
        let slot = self.new_slot(seed, view.active_from, published().min(seq));
        let next = ReadView { active: Some(slot), ..(*view).clone() };
        self.tell_around(&mut told, next, |view| self.view.store(view));
    }

    /// An empty memtable for commits from `from` on, not part of the read view. It needs the log from `pins` on.
    pub fn new_slot(&self, seed: u64, from: SeqNo, pins: SeqNo) -> Arc<MemSlot> {
        let slot = self.slot_of(self.memtable(seed, Use::Memtables), from, pins);
        Arc::new(MemSlot { head_start: self.head_start(), ..slot })
    }

    fn slot_of(&self, map: Arc<Memtable>, from: SeqNo, pins: SeqNo) -> MemSlot {
        MemSlot {
            map,
            ranges: SharedRanges::default(),
            from,
            pins,
            debt_max: usize::MAX,
            dead_steps: Default::default(),
            values: Default::default(),
            filled: self.vlog.sizes.filled(),
            stored: self.total(Metric::ValueLogWritten),
            head_start: 0,
            taken: None,
            installed: Default::default(),
        }
    }

    /// Returns how many bytes before its limit the memtable that is created now is treated as full. Families that are written alike
    /// would fill all their memtables at the same time and wait for each other's flushes and merges. So the first memtable of each
    /// family is shorter than later ones, by a different share for each family; multiples of the golden ratio spread evenly,
    /// however many they are. The first family of a database has no head start.
    fn head_start(&self) -> usize {
        const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;
        if self.has_begun.swap(true, Ordering::Relaxed) {
            return 0;
        }
        let share = (f64::from(self.id.0.saturating_sub(1)) * GOLDEN_RATIO).fract();
        (self.buffer_bytes() as f64 * share * HEAD_START_MAX) as usize
    }

    /// Inserts `map`, which holds only commit `seq`, at its place: the active memtable ends at `seq`, the next one
    /// begins at `end`. The caller holds the tail of the sequencer and owns `map`. Returns `false` if the family was
    /// dropped.
    pub fn rotate_around(&self, mut map: Arc<Memtable>, seq: SeqNo, end: SeqNo) -> bool {
        Arc::get_mut(&mut map).expect("a staged memtable is not shared").rebase(seq);
        self.place_around(MemSlot { debt_max: self.buffer_bytes(), ..self.slot_of(map, seq, seq) }, end)
    }

    /// Puts `slot` between the memtables of earlier and of later commits, from `end` on. Returns `false` if the family was dropped.
    fn place_around(&self, slot: MemSlot, end: SeqNo) -> bool {
        let (seq, slot, mut placed) = (slot.from, Arc::new(slot), false);
        self.change_view(|view| {
            if self.is_dropped() {
                return view.clone();
            }
            placed = true;
            let mut next = view.rotated(seq);
            next.immutables.insert(0, (slot, end));
            ReadView { active_from: end, ..next }
        });
        placed
    }

    /// Puts `tables`, which commit `seq` takes, and its range tombstones in the place of a memtable, as [`FamilyCore::rotate_around`] does. The
    /// caller holds the tail of the sequencer. Returns `false` if the family was dropped.
    ///
    /// # Errors
    /// `Internal`; nothing happened.
    pub fn rotate_around_tables(&self, taken: TakenTables<'_>, (seq, end): (SeqNo, SeqNo)) -> Result<bool> {
        let slot = self.taken_slot(taken, seq)?;
        let tables = slot.taken.clone();
        let placed = self.place_around(slot, end);
        if !placed {
            tables.iter().for_each(|tables| tables.give_up()); // nobody will name them
        }
        Ok(placed)
    }

    /// What stands for the tables that commit `seq` takes, in the place of a memtable; not part of the read view.
    ///
    /// # Errors
    /// `Internal`.
    pub fn taken_slot(&self, TakenTables { tables, ranges }: TakenTables<'_>, seq: SeqNo) -> Result<MemSlot> {
        let taken = Arc::new(self.owned_view().version.of_taken(tables)?);
        ranges.iter().for_each(|range| range.charge_to(&self.memory));
        let ranges = RangeSet::new(&self.options.comparator, ranges.into_iter().map(Arc::new).collect());
        let slot = self.slot_of(self.memtable(0, Use::Memtables), seq, seq);
        Ok(MemSlot { debt_max: 0, taken: Some(taken), ranges: SharedRanges::of(ranges), ..slot })
    }

    /// Gives the files of taken tables up that no manifest will name, because the family was dropped.
    pub fn give_up_taken(&self) {
        let view = self.owned_view();
        view.memtables().filter_map(|slot| slot.taken.as_ref()).for_each(|taken| taken.give_up());
    }

    /// Replaces all memtables by the tables of `version`, which hold their entries.
    pub fn replace_memtables(&self, version: &Arc<TableVersion>) {
        self.change_view(|view| {
            keep_files(view.memtables(), version);
            ReadView { active: None, immutables: Vec::new(), ..view.with_version(Arc::clone(version)) }
        });
    }

    /// Drops all memtables. Returns the debt of the immutable ones.
    pub fn forget_memtables(&self) -> u64 {
        let mut bytes = 0;
        self.change_view(|view| {
            keep_files(view.memtables(), &view.version);
            bytes = view.immutables.iter().map(|(slot, _)| slot.debt()).sum();
            ReadView { active: None, immutables: Vec::new(), ..view.clone() }
        });
        bytes
    }

    /// Called after a drop: releases all tables, which handles of the family would otherwise keep. Cursors have a view
    /// of their own.
    pub fn forget_tables(&self) {
        self.change_view(|view| view.with_version(Arc::new(view.version.emptied())));
        self.index.forget(self.id);
    }

    /// A memtable in this family's key order, not part of the read view: to sort entries, or the own writes of a transaction.
    pub fn memtable(&self, seed: u64, of: Use) -> Arc<Memtable> {
        let order = match self.options.comparator.custom_compare() {
            None => KeyOrder::Bytewise,
            Some(compare) => KeyOrder::Custom(compare),
        };
        Memtable::charged(order, self.buffer_bytes(), seed, &self.memory.sums(of))
    }
}

/// Keeps the value logs of `version`, and those of its tables for which memtables stood, for as long as older views show memtables that leave
/// the view: the versions of these views may not name them yet.
fn keep_files<'a>(slots: impl Iterator<Item = &'a Arc<MemSlot>>, version: &TableVersion) {
    for slot in slots {
        slot.values.get_or_init(|| version.vlog_slots());
        if let Some(taken) = &slot.taken {
            let tables = taken.tables().filter_map(|table| version.table(table.id()).cloned());
            slot.installed.get_or_init(|| tables.collect());
        }
    }
}

impl Drop for FamilyCore {
    fn drop(&mut self) {
        self.memory.family_ends();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use crate::{Db, Error};

    #[test]
    fn only_a_dropped_family_excuses_files_that_are_gone() {
        let (env, _, _) = tidesdb_io::sim::env(1);
        let db = Db::options("/db").env(env).background_threads(0).open().unwrap();
        let core = db.create_family("f", Default::default()).unwrap().core;
        let failed = |kind: io::ErrorKind| Error::io("open", "000002.vlog", kind.into());
        let (gone, pending) = (failed(io::ErrorKind::NotFound), failed(io::ErrorKind::PermissionDenied));
        let errors = [
            gone,
            pending,
            Error::no_family("f"),
            Error::corrupt("000002.vlog", 0, "the value log is missing"),
        ];
        assert!(!errors.iter().any(|e| core.was_lost(e)), "the family is there");
        db.drop_family("f").unwrap();
        assert!(errors.iter().all(|e| core.was_lost(e)));
        assert!(!core.was_lost(&failed(io::ErrorKind::Other)), "a device that fails is no excuse");
    }
}
