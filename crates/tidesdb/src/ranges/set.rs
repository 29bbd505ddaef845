//! [`RangeSet`]: an immutable set of range tombstones; adding one returns a new set. [`SharedRanges`] publishes it.
//!
//! The set consists of a few indexes, each at most half the size of the previous one, merged like digits in binary
//! addition (the logarithmic method of Bentley and Saxe, 1980). An addition costs O(log n) on average, a lookup O(log^2
//! n).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_sync::{EpochCell, Guard, Mutex, pin, rank};

use super::RangeTombstone;
use super::index::{Around, RangeIndex};
use crate::types::{Comparator, SeqNo};

/// Range tombstones of one memtable or version.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    tiers: Vec<Arc<RangeIndex>>,
}

impl RangeSet {
    /// Creates a set of `tombstones`.
    pub fn new(order: &Comparator, tombstones: Vec<Arc<RangeTombstone>>) -> Self {
        match tombstones.is_empty() {
            true => Self::default(),
            false => Self { tiers: vec![Arc::new(RangeIndex::new(order, tombstones))] },
        }
    }

    /// Returns the set with one more tombstone.
    #[must_use]
    pub fn with(&self, order: &Comparator, tombstone: RangeTombstone) -> Self {
        let mut tiers = self.tiers.clone();
        let mut last = vec![Arc::new(tombstone)];
        while let Some(tier) = tiers.pop_if(|tier| tier.tombstones().len() <= last.len()) {
            last.extend_from_slice(tier.tombstones());
        }
        tiers.push(Arc::new(RangeIndex::new(order, last)));
        Self { tiers }
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// Returns the number of tombstones.
    pub fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.tombstones().len()).sum()
    }

    /// Returns the sequence number of the newest tombstone; 0 = none.
    pub fn max_seq(&self) -> SeqNo {
        self.tiers.iter().map(|tier| tier.max_seq()).max().unwrap_or(0)
    }

    /// Returns all tombstones.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RangeTombstone>> {
        self.tiers.iter().flat_map(|tier| tier.tombstones())
    }

    /// Returns the newest tombstone over `key` that is not newer than `snapshot`; 0 = none.
    pub fn newest(&self, order: &Comparator, key: &[u8], snapshot: SeqNo) -> SeqNo {
        self.tiers.iter().map(|tier| tier.newest(order, key, snapshot)).max().unwrap_or(0)
    }

    /// Returns the oldest tombstone over `key` that is newer than `seq`.
    pub fn oldest_above(&self, order: &Comparator, key: &[u8], seq: SeqNo) -> Option<SeqNo> {
        self.tiers.iter().filter_map(|tier| tier.oldest_above(order, key, seq)).min()
    }

    /// Like [`RangeSet::newest`]; also returns borders around `key` between which the answer is the same.
    pub fn around(&self, order: &Comparator, key: &[u8], snapshot: SeqNo) -> Around<'_> {
        let mut all = Around::default();
        for tier in &self.tiers {
            all.narrow(order, tier.around(order, key, snapshot));
        }
        all
    }
}

/// A set that grows while other threads read it. While it is empty, a read costs one load.
#[derive(Debug)]
pub struct SharedRanges {
    /// Approximate size in memory; 0 until the first tombstone is in `set`.
    bytes: AtomicUsize,
    set: EpochCell<RangeSet>,
    change: Mutex<(), { rank::RANGES }>,
}

impl Default for SharedRanges {
    fn default() -> Self {
        Self { bytes: AtomicUsize::new(0), set: EpochCell::new(RangeSet::default()), change: Mutex::new(()) }
    }
}

impl SharedRanges {
    /// Shares `set`.
    pub fn of(set: RangeSet) -> Self {
        let bytes = set.iter().map(|tombstone| tombstone.bytes()).sum::<usize>();
        Self { set: EpochCell::new(set), bytes: bytes.into(), ..Self::default() }
    }

    /// Adds `tombstone`. Every later lookup sees it.
    pub fn add(&self, order: &Comparator, tombstone: RangeTombstone) {
        let _one_at_a_time = self.change.lock();
        let bytes = tombstone.bytes();
        let grown = self.set.load(&pin()).with(order, tombstone);
        self.set.store_lazily(grown);
        self.bytes.fetch_add(bytes, Ordering::Release);
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    /// Returns the approximate size in memory, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the current set, valid while the guard lives.
    pub fn load<'g>(&'g self, guard: &'g Guard) -> &'g RangeSet {
        self.set.load(guard)
    }

    /// Returns the current set with shared ownership.
    pub fn to_owned(&self) -> RangeSet {
        if self.is_empty() { RangeSet::default() } else { self.set.load(&pin()).clone() }
    }

    /// Returns the newest tombstone over `key` that is not newer than `snapshot`; 0 = none.
    #[inline]
    pub fn newest(&self, order: &Comparator, key: &[u8], snapshot: SeqNo, guard: &Guard) -> SeqNo {
        if self.is_empty() { 0 } else { self.load(guard).newest(order, key, snapshot) }
    }
}

#[cfg(test)]
impl RangeSet {
    pub(super) fn tiers_for_test(&self) -> usize {
        self.tiers.len()
    }
}
