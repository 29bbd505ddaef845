//! [`RangeSet`]: an immutable set of tombstones that grows by making another one; [`SharedRanges`] publishes it.
//!
//! The set is a few indexes whose sizes fall by half at least, merged as numbers are added in binary (the logarithmic method
//! of Bentley and Saxe, 1980): an addition costs O(log n) on average, a question O(log^2 n).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidesdb_sync::{EpochCell, Guard, Mutex, pin, rank};

use super::RangeTombstone;
use super::index::RangeIndex;
use crate::types::{Comparator, SeqNo};

/// Tombstones of one memtable or version.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    tiers: Vec<Arc<RangeIndex>>,
}

impl RangeSet {
    /// A set of these.
    pub fn new(order: &Comparator, tombstones: Vec<Arc<RangeTombstone>>) -> Self {
        match tombstones.is_empty() {
            true => Self::default(),
            false => Self { tiers: vec![Arc::new(RangeIndex::new(order, tombstones))] },
        }
    }

    /// The set with one more.
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

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.tombstones().len()).sum()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RangeTombstone>> {
        self.tiers.iter().flat_map(|tier| tier.tombstones())
    }

    /// Bytes in memory, about.
    pub fn bytes(&self) -> usize {
        self.iter().map(|tombstone| tombstone.bytes()).sum()
    }

    /// Where the tombstones begin that cover every key from there on up to `key`, if any ends at it or covers it and has a first key.
    pub fn first_adjoining(&self, order: &Comparator, key: &[u8]) -> Option<Vec<u8>> {
        let mut first: Option<&[u8]> = None;
        loop {
            let at = first.unwrap_or(key);
            let reaches =
                |t: &&Arc<RangeTombstone>| t.end.as_ref().is_none_or(|end| order.compare(at, end).is_le());
            let starts = self.iter().filter(reaches).filter_map(|t| t.start.as_deref());
            let before = starts.filter(|start| order.compare(start, at).is_lt());
            match before.min_by(|a, b| order.compare(a, b)) {
                Some(start) => first = Some(start),
                None => return first.map(<[u8]>::to_vec),
            }
        }
    }

    /// The newest over `key` that is not newer than `snapshot`; 0 = none.
    pub fn newest(&self, order: &Comparator, key: &[u8], snapshot: SeqNo) -> SeqNo {
        self.tiers.iter().map(|tier| tier.newest(order, key, snapshot)).max().unwrap_or(0)
    }

    /// The oldest over `key` that is newer than `seq`.
    pub fn oldest_above(&self, order: &Comparator, key: &[u8], seq: SeqNo) -> Option<SeqNo> {
        self.tiers.iter().filter_map(|tier| tier.oldest_above(order, key, seq)).min()
    }

    /// As [`RangeSet::newest`], with borders around `key` (the lower inclusive, the upper exclusive) between which the
    /// answer is the same. `None` = no border.
    pub fn around(
        &self,
        order: &Comparator,
        key: &[u8],
        snapshot: SeqNo,
    ) -> (SeqNo, Option<&[u8]>, Option<&[u8]>) {
        let mut all = (0, None, None);
        for tier in &self.tiers {
            let (seq, low, high) = tier.around(order, key, snapshot);
            all.0 = all.0.max(seq);
            all.1 = tighter(all.1, low, |a, b| order.compare(a, b).is_ge());
            all.2 = tighter(all.2, high, |a, b| order.compare(a, b).is_le());
        }
        all
    }
}

/// Of two borders the one nearer to the key.
pub fn tighter<'a>(
    a: Option<&'a [u8]>,
    b: Option<&'a [u8]>,
    nearer: impl Fn(&[u8], &[u8]) -> bool,
) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if nearer(a, b) { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// A set that grows while others read it. Costs a reader one load while it is empty.
#[derive(Debug)]
pub struct SharedRanges {
    used: AtomicBool,
    bytes: AtomicUsize,
    set: EpochCell<RangeSet>,
    change: Mutex<(), { rank::RANGES }>,
}

impl Default for SharedRanges {
    fn default() -> Self {
        Self {
            used: AtomicBool::new(false),
            bytes: AtomicUsize::new(0),
            set: EpochCell::new(RangeSet::default()),
            change: Mutex::new(()),
        }
    }
}

impl SharedRanges {
    /// Adds `tombstone`: whoever asks afterwards finds it.
    pub fn add(&self, order: &Comparator, tombstone: RangeTombstone) {
        let _one_at_a_time = self.change.lock();
        self.bytes.fetch_add(tombstone.bytes(), Ordering::Relaxed);
        let grown = self.set.load(&pin()).with(order, tombstone);
        self.set.store_lazily(grown);
        self.used.store(true, Ordering::Release);
    }

    /// As [`SharedRanges::add`], for what may be forgotten: of those that lie within the new one none stays, of the others the
    /// newest `max`.
    pub fn learn(&self, order: &Comparator, tombstone: RangeTombstone, max: usize) {
        let _one_at_a_time = self.change.lock();
        let guard = pin();
        let known = self.set.load(&guard).iter();
        let mut kept: Vec<_> = known.filter(|old| !tombstone.includes(order, old)).cloned().collect();
        kept.sort_by_key(|old| std::cmp::Reverse(old.seq));
        kept.truncate(max);
        kept.push(Arc::new(tombstone));
        self.set.store_lazily(RangeSet::new(order, kept));
        self.used.store(true, Ordering::Release);
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.used.load(Ordering::Acquire)
    }

    /// Bytes in memory, about.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The set now, while the guard lives.
    pub fn load<'g>(&'g self, guard: &'g Guard) -> &'g RangeSet {
        self.set.load(guard)
    }

    /// The set now, to keep.
    pub fn to_owned(&self) -> RangeSet {
        if self.is_empty() { RangeSet::default() } else { self.set.load(&pin()).clone() }
    }

    /// The newest over `key` that is not newer than `snapshot`; 0 = none.
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
