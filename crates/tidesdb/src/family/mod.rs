//! One column family's state: its read view, its memtables, its value log.
//!
//! The **read view** (active memtable, immutables, version) is one immutable object behind an atomic pointer; readers reach it
//! under an epoch pin, without a count and without a lock. Every change replaces the whole view under `change`.
//!
//! Which memtable a commit goes to is decided by its sequence number, not by the moment it arrives: each memtable begins
//! at a boundary (`from`), set while the order of commits is held. So all versions in a newer memtable are newer than all
//! in an older one, although nobody waits for slow committers; and once everything below the next boundary is
//! published, nothing more can come to a memtable.

mod claims;
mod hook;
mod learning;
mod read_view;
mod stats;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use claims::{Claim, Claimed, Claims};
pub use hook::{CommitHook, Committed, CommittedOp, HookCell};
pub use learning::{Learning, Progress, Run};
pub use read_view::{MemSlot, ReadView};
pub use stats::{FamilyStats, Metric};
use tidesdb_memtable::{KeyOrder, MapKind, Memtable};
use tidesdb_sync::{EpochCell, Guard, Mutex, ShardedCounters, pin};
pub use waiting::{Orders, WaitingFamily};

use crate::jobs::Retry;
use crate::options::{FamilyOptions, LiveOptions, MemtableKind};
use crate::ranges::{RangeTombstone, SharedRanges};
use crate::sources::TableVersion;
use crate::types::{FamilyId, SeqNo};
use crate::vlog::VlogSet;

/// Deserts that a family remembers.
const DESERTS_MAX: usize = 256;

/// State of one family. Lives as long as a handle, a reader or the database refers to it.
#[derive(Debug)]
pub struct FamilyCore {
    /// Its number; never reused.
    pub id: FamilyId,
    /// Its settings.
    pub options: LiveOptions,
    /// Its value log.
    pub vlog: VlogSet,
    name: Mutex<Arc<str>>,
    view: EpochCell<Arc<ReadView>>,
    /// Held while the view is replaced.
    change: Mutex<()>,
    /// Held by the one flush of this family that runs.
    pub flushing: Mutex<()>,
    /// The merges of this family that run.
    pub claims: Claims,
    /// After a compaction met damage.
    pub compaction_retry: Retry,
    /// Intervals in which readers at some number found deleted keys only: for those at that number or a later one, what is
    /// older than it is as good as covered by a range tombstone. Known in memory alone, and never relied on by a merge.
    pub deserts: SharedRanges,
    /// Where the background is to look for more of them.
    pub learning: Learning,
    /// Told of each commit to the family.
    pub hook: HookCell,
    dropped: AtomicBool,
    /// Counters of what was done, see [`Metric`].
    pub metrics: ShardedCounters<{ Metric::COUNT }>,
}

impl FamilyCore {
    /// A family with these tables and no memtable.
    pub fn new(
        id: FamilyId,
        name: &str,
        options: FamilyOptions,
        vlog: VlogSet,
        version: Arc<TableVersion>,
    ) -> Self {
        let view = ReadView { active: None, active_from: 0, immutables: Vec::new(), version };
        Self {
            id,
            options: LiveOptions::new(options),
            vlog,
            name: Mutex::new(name.into()),
            view: EpochCell::new(Arc::new(view)),
            change: Mutex::new(()),
            flushing: Mutex::new(()),
            claims: Claims::default(),
            compaction_retry: Retry::default(),
            deserts: SharedRanges::default(),
            learning: Learning::default(),
            hook: HookCell::default(),
            dropped: AtomicBool::new(false),
            metrics: ShardedCounters::new(),
        }
    }

    /// The name now.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.lock())
    }

    /// After a rename.
    pub fn set_name(&self, name: &str) {
        *self.name.lock() = name.into();
    }

    /// Whether the family was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// After a drop: new commits and reads are refused.
    pub fn set_dropped(&self) {
        self.dropped.store(true, Ordering::SeqCst);
        self.vlog.doom();
    }

    /// Counts `n` more of `metric`.
    pub fn count(&self, metric: Metric, n: u64) {
        self.metrics.add(metric as usize, n);
    }

    /// The sum of `metric`.
    pub fn total(&self, metric: Metric) -> u64 {
        self.metrics.sum(metric as usize)
    }

    /// The view now, for as long as the guard lives.
    #[inline]
    pub fn view<'g>(&'g self, guard: &'g Guard) -> &'g Arc<ReadView> {
        self.view.load(guard)
    }

    /// The view now, to keep.
    pub fn owned_view(&self) -> Arc<ReadView> {
        Arc::clone(self.view.load(&pin()))
    }

    /// Whether commits still go to the active memtable of `view`, the same as when it was taken.
    pub fn is_written_in(&self, view: &ReadView) -> bool {
        let guard = pin();
        let now = self.view(&guard);
        match (&now.active, &view.active) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, None) => now.active_from == view.active_from,
            _ => false,
        }
    }

    /// Remembers that readers at `found.seq`, or later, need not look at what is older in its interval.
    pub fn learn_desert(&self, found: RangeTombstone) {
        self.deserts.learn(&self.options.comparator, found, DESERTS_MAX);
    }

    /// Replaces the view by what `change` makes of it. The former one is freed at some later time, or by
    /// [`tidesdb_sync::reclaim`].
    pub fn change_view(&self, change: impl FnOnce(&ReadView) -> ReadView) {
        let _one_at_a_time = self.change.lock();
        let new = change(self.view.load(&pin()));
        self.view.store_lazily(Arc::new(new));
    }

    /// Makes the active memtable, if there is one, immutable: it ends at `boundary`. Returns its bytes.
    pub fn rotate(&self, boundary: SeqNo) -> u64 {
        let mut bytes = 0;
        self.change_view(|view| {
            bytes = view.active.as_ref().map_or(0, |slot| slot.bytes() as u64);
            view.rotated(boundary)
        });
        bytes
    }

    /// The immutable `slot` is in the tables of `version`, or not needed any more. Returns its debt if it was there.
    pub fn release(&self, slot: &Arc<MemSlot>, version: Option<Arc<TableVersion>>) -> u64 {
        let mut bytes = 0;
        self.change_view(|view| {
            if view.immutables.iter().any(|(s, _)| Arc::ptr_eq(s, slot)) {
                bytes = slot.debt();
            }
            view.flushed(slot, version.unwrap_or_else(|| Arc::clone(&view.version)))
        });
        bytes
    }

    /// Makes the memtable that commit `seq` belongs to, if it is missing. `published` is read under the lock: every
    /// commit below it has arrived already, so the memtable pins the log from there. A dropped family gets none: a commit
    /// that drew its number before the drop has nowhere to go, and nobody could read it.
    pub fn make_slot(&self, seq: SeqNo, seed: u64, published: impl FnOnce() -> SeqNo) {
        let _one_at_a_time = self.change.lock();
        let view = self.owned_view();
        if view.slot_for(seq).is_some() || self.is_dropped() {
            return;
        }
        debug_assert!(seq >= view.active_from, "an immutable memtable is never missing");
        let slot = Arc::new(MemSlot {
            map: self.new_map(seed),
            ranges: SharedRanges::default(),
            from: view.active_from,
            pins: published().min(seq),
            debt_max: usize::MAX,
        });
        self.view.store(Arc::new(ReadView { active: Some(slot), ..(*view).clone() }));
    }

    /// Puts `map`, which holds commit `seq` alone, at its place: the active memtable ends at `seq`, the next one begins at `end`.
    /// The caller holds the order of commits and owns `map`. `false` if the family was dropped.
    pub fn rotate_around(&self, mut map: Arc<Memtable>, seq: SeqNo, end: SeqNo) -> bool {
        Arc::get_mut(&mut map).expect("no other thread knows a staged memtable").rebase(seq);
        let debt_max = self.options.write_buffer_bytes();
        let slot = Arc::new(MemSlot { map, ranges: SharedRanges::default(), from: seq, pins: seq, debt_max });
        let mut placed = false;
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

    /// A memtable of this family's order that is not part of it, to sort entries in.
    pub fn staging_memtable(&self, seed: u64) -> Arc<Memtable> {
        self.new_map(seed)
    }

    /// Lets go of all memtables. Returns the debt of those that waited for a flush.
    pub fn forget_memtables(&self) -> u64 {
        let mut bytes = 0;
        self.change_view(|view| {
            bytes = view.immutables.iter().map(|(slot, _)| slot.debt()).sum();
            let version = Arc::clone(&view.version);
            ReadView { active: None, active_from: view.active_from, immutables: Vec::new(), version }
        });
        bytes
    }

    /// After a drop: lets go of all tables, which handles of the family would keep else. Cursors have a view of their own.
    pub fn forget_tables(&self) {
        self.change_view(|view| view.with_version(Arc::new(view.version.emptied())));
    }

    fn new_map(&self, seed: u64) -> Arc<Memtable> {
        let order = match self.options.comparator.custom_compare() {
            None => KeyOrder::Bytewise,
            Some(compare) => KeyOrder::Custom(compare),
        };
        let kind = match self.options.memtable() {
            MemtableKind::Auto => MapKind::Tree,
            MemtableKind::SkipList => MapKind::SkipList,
        };
        Memtable::new(order, kind, self.options.write_buffer_bytes(), seed)
    }
}
