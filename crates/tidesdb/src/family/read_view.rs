//! A consistent view of a family for one reader: memtables and version.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tidesdb_memtable::Memtable;

use super::probes::Probes;
use crate::ranges::SharedRanges;
use crate::sources::{Source, TableSlot, TableVersion};
use crate::types::{Comparator, SeqNo};
use crate::version::VlogSlots;

/// A memtable and its place in the order of commits.
#[derive(Debug)]
pub struct MemSlot {
    /// The map.
    pub map: Arc<Memtable>,
    /// Range tombstones of the memtable.
    pub ranges: SharedRanges,
    /// Lowest sequence number that belongs to this memtable.
    pub from: SeqNo,
    /// The log must be kept from this sequence number on for this memtable.
    pub pins: SeqNo,
    /// Upper limit of its bytes that are debt.
    pub debt_max: usize,
    /// Keys it deletes that scans stepped over, each time they did.
    pub dead_steps: AtomicU64,
    /// The value logs that existed when it was flushed. A reader that still uses the memtable keeps their files.
    pub values: OnceLock<VlogSlots>,
    /// Bytes of value logs that had been filled when it was created.
    pub filled: u64,
    /// Bytes of values that commits had stored when it was created.
    pub stored: u64,
    /// The memtable is treated as full this many bytes before its size limit.
    pub head_start: usize,
    /// Tables that a commit took, in place of entries. They wait for the older memtables of the family to be flushed.
    pub taken: Option<Arc<TableVersion>>,
    /// These tables in the version that got them. A reader that still uses the memtable keeps their files.
    pub installed: OnceLock<Vec<Arc<TableSlot>>>,
}

/// A memtable is flushed when scans have stepped over this many of its deleted keys, and this many more for each of its entries. A
/// step costs 30 to 60 ns; a flush and a merge 1 us for each entry, and some milliseconds.
const DEAD_STEPS_FREE: u64 = 4 << 20;
const DEAD_STEPS_PER_ENTRY: u64 = 16;

/// Memtables of a family that may wait for their flush before the active one grows instead of joining them.
const WAITING_FEW: usize = 4;

impl MemSlot {
    /// Bytes in memory.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.map.allocated_bytes() + self.ranges.bytes()
    }

    /// Returns true if the memtable has reached its size limit, `buffer_bytes`.
    #[inline]
    pub fn is_full(&self, buffer_bytes: usize) -> bool {
        self.bytes() + self.head_start >= buffer_bytes
    }

    /// Bytes that are debt until the memtable is flushed.
    pub fn debt(&self) -> u64 {
        self.bytes().min(self.debt_max) as u64
    }

    /// Notes that a scan stepped over `dead` keys that it deletes. Returns true once scans have spent as much on such keys as a flush costs.
    pub fn charge(&self, dead: u64) -> bool {
        let steps = self.dead_steps.fetch_add(dead, Ordering::Relaxed) + dead;
        steps >= DEAD_STEPS_FREE + DEAD_STEPS_PER_ENTRY * self.map.entries()
    }

    /// Returns true if nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty() && self.ranges.is_empty() && self.taken.is_none()
    }

    /// Number of its entries, and of those of the tables that it stands for.
    pub fn entries(&self) -> u64 {
        let taken = self.taken.iter().flat_map(|version| version.tables()).map(|slot| slot.meta().entries);
        self.map.entries() + taken.sum::<u64>()
    }

    /// Its entries, newest first: those of a memtable, or of the sorted runs of the tables that it stands for.
    pub fn sources(&self, order: &Comparator) -> Vec<Source> {
        match &self.taken {
            None => vec![Source::memtable(&self.map)],
            Some(version) => version.runs().iter().map(|run| Source::run(run, order)).collect(),
        }
    }
}

/// Active memtable, immutable memtables and version of a family. Never changes.
#[derive(Clone, Debug)]
pub struct ReadView {
    /// The memtable being written; `None` until the first commit after a rotation.
    pub active: Option<Arc<MemSlot>>,
    /// Lowest sequence number of the active memtable, whether it exists yet or not.
    pub active_from: SeqNo,
    /// Immutable memtables, newest first, each with its end: the first sequence number above it.
    pub immutables: Vec<(Arc<MemSlot>, SeqNo)>,
    /// The tables.
    pub version: Arc<TableVersion>,
    /// The cost of reads that looked into sorted runs which held nothing for them. All views of a family share it.
    pub probes: Arc<Probes>,
}

impl ReadView {
    /// The memtable of commit `seq`, if it exists.
    #[inline]
    pub fn slot_for(&self, seq: SeqNo) -> Option<&Arc<MemSlot>> {
        if seq >= self.active_from {
            return self.active.as_ref();
        }
        self.immutables.iter().map(|(slot, _)| slot).find(|slot| seq >= slot.from)
    }

    /// Returns true while few memtables wait for their flush. While many do, the active memtable grows beyond its usual size: rotated, it
    /// would only wait with them.
    #[inline]
    pub fn waits_for_few(&self) -> bool {
        self.immutables.len() < WAITING_FEW
    }

    /// All memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemSlot>> {
        self.active.iter().chain(self.immutables.iter().map(|(slot, _)| slot))
    }

    /// The memtables that may hold a version at or below `seq`, newest first.
    pub fn memtables_at(&self, seq: SeqNo) -> impl Iterator<Item = &Arc<MemSlot>> {
        self.memtables().filter(move |slot| slot.from <= seq)
    }

    /// Returns true if a reader at `seq` finds the same tables and memtables in both views.
    pub fn is_same_at(&self, seq: SeqNo, other: &Self) -> bool {
        Arc::ptr_eq(&self.version, &other.version)
            && self.memtables_at(seq).map(Arc::as_ptr).eq(other.memtables_at(seq).map(Arc::as_ptr))
    }

    /// The memtables that may hold a version newer than `since`, newest first.
    pub fn memtables_since(&self, since: SeqNo) -> impl Iterator<Item = &Arc<MemSlot>> {
        let waiting = self.immutables.iter().take_while(move |(_, end)| *end > since + 1);
        self.active.iter().chain(waiting.map(|(slot, _)| slot))
    }

    /// The view after a rotation at `boundary`.
    pub fn rotated(&self, boundary: SeqNo) -> Self {
        debug_assert!(boundary >= self.active_from, "rotation boundaries must not decrease");
        let mut next = self.clone();
        // A memtable that begins at the boundary covers no sequence number: no commit is in it, and none will be.
        if let Some(active) = next.active.take().filter(|active| active.from < boundary) {
            next.immutables.insert(0, (active, boundary));
        }
        next.active_from = boundary;
        next
    }

    /// The view after the oldest immutable memtables, `slots`, became tables of `version`.
    pub fn flushed(&self, slots: &[Arc<MemSlot>], version: Arc<TableVersion>) -> Self {
        let is_flushed = |slot: &Arc<MemSlot>| slots.iter().any(|flushed| Arc::ptr_eq(flushed, slot));
        let kept = self.immutables.iter().take_while(|(slot, _)| !is_flushed(slot)).count();
        debug_assert!(kept < self.immutables.len() || kept == 0, "memtables must be flushed in commit order");
        debug_assert!(
            self.immutables[kept..].iter().all(|(slot, _)| is_flushed(slot)),
            "memtables must be flushed in commit order"
        );
        Self { immutables: self.immutables[..kept].to_vec(), version, ..self.clone() }
    }

    /// The same memtables with the tables of `version`.
    pub fn with_version(&self, version: Arc<TableVersion>) -> Self {
        Self { version, ..self.clone() }
    }
}
