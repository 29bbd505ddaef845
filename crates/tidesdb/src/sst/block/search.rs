//! Finds a key in a block. In byte order: a branchless search of the heads, then full comparisons of the keys with the
//! same head, usually one. In other orders: binary search over whole keys.

use std::cmp::Ordering;

use super::{Block, HEADS};
use crate::types::{Comparator, SeqNo, head_of};

/// Result of a point lookup in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sst) enum Find {
    /// This entry is the newest version of the key that the snapshot sees.
    At(usize),
    /// The block proves that the snapshot sees no version of the key.
    Absent,
    /// All versions in this block are too new, and the block ends with them. The next block may contain older versions.
    Beyond,
}

impl Block<'_> {
    /// Returns the first entry whose key is at or after `target` (after it, with `after_equal`), and whether that key
    /// equals `target`. Returns the number of entries if there is no such entry.
    #[inline]
    pub(in crate::sst) fn search(
        &self,
        order: &Comparator,
        target: &[u8],
        after_equal: bool,
    ) -> (usize, bool) {
        if order.is_bytewise() && self.shape.has(HEADS) {
            self.search_heads(target, after_equal)
        } else {
            self.search_keys(order, target, after_equal)
        }
    }

    /// Finds the newest version of `target` at or below `snapshot`. Always inlined: it is called in one place, which has a copy for each gate.
    #[inline(always)]
    pub(in crate::sst) fn find(&self, order: &Comparator, target: &[u8], snapshot: SeqNo) -> Find {
        let (first, equal) = self.search(order, target, false);
        if !equal {
            return Find::Absent;
        }
        if self.seq(first) <= snapshot {
            return Find::At(first);
        }
        let (end, _) = self.search(order, target, true);
        let older = partition(first, end, |i| self.seq(i) > snapshot);
        match older {
            i if i < end => Find::At(i),
            _ if end == self.len() => Find::Beyond,
            _ => Find::Absent,
        }
    }

    /// Returns the first entry at or after version `snapshot` of `target`: the newest version of `target` at or below
    /// `snapshot`, or the next key. Returns the number of entries if there is no such entry.
    pub(in crate::sst) fn search_version(&self, order: &Comparator, target: &[u8], snapshot: SeqNo) -> usize {
        let (first, equal) = self.search(order, target, false);
        if !equal {
            return first;
        }
        let (end, _) = self.search(order, target, true);
        partition(first, end, |i| self.seq(i) > snapshot)
    }

    /// Returns whether `target` is after the first key and at or before the last one, so that it belongs to this block.
    #[inline]
    pub(in crate::sst) fn covers(&self, order: &Comparator, target: &[u8]) -> bool {
        let last = self.len() - 1;
        if !(order.is_bytewise() && self.shape.has(HEADS)) {
            return order.compare(self.tail(0), target).is_lt()
                && order.compare(target, self.tail(last)).is_le();
        }
        let Some(suffix) = target.strip_prefix(self.prefix()) else { return false };
        let head = head_of(suffix);
        let (low, high) = (self.head(0), self.head(last));
        (head > low || (head == low && self.compare_suffix(0, suffix).is_lt()))
            && (head < high || (head == high && self.compare_suffix(last, suffix).is_ge()))
    }

    /// Returns whether entry `i` is another version of the previous entry's key.
    #[inline]
    pub(in crate::sst) fn goes_on(&self, order: &Comparator, i: usize) -> bool {
        let Some(before) = i.checked_sub(1) else { return false };
        if !self.shape.has(HEADS) {
            return order.compare(self.tail(before), self.tail(i)).is_eq();
        }
        let heads = self.heads();
        heads.get(before) == heads.get(i)
            && self.head_len(before) == self.head_len(i)
            && self.tail(before) == self.tail(i)
    }

    #[inline]
    fn search_heads(&self, target: &[u8], after_equal: bool) -> (usize, bool) {
        let prefix = self.prefix();
        let Some(suffix) = target.strip_prefix(prefix) else {
            return (if target < prefix { 0 } else { self.len() }, false);
        };
        let heads = self.heads();
        let head = head_of(suffix);
        let first = heads_below(heads, head);
        if heads.get(first).is_none_or(|h| u64::from_le_bytes(*h) != head) {
            return (first, false);
        }
        if !after_equal && heads.get(first + 1).is_none_or(|h| u64::from_le_bytes(*h) != head) {
            return match self.compare_suffix(first, suffix) {
                Ordering::Less => (first + 1, false),
                order => (first, order.is_eq()),
            };
        }
        let end = partition(first, heads.len(), |i| u64::from_le_bytes(heads[i]) == head);
        let at = partition(first, end, |i| match self.compare_suffix(i, suffix) {
            Ordering::Less => true,
            Ordering::Equal => after_equal,
            Ordering::Greater => false,
        });
        (at, at < end && self.compare_suffix(at, suffix).is_eq())
    }

    fn search_keys(&self, order: &Comparator, target: &[u8], after_equal: bool) -> (usize, bool) {
        let mut equal = false;
        let at = partition(0, self.len(), |i| match order.compare(self.tail(i), target) {
            Ordering::Less => true,
            Ordering::Equal => {
                equal |= !after_equal;
                after_equal
            }
            Ordering::Greater => false,
        });
        (at, equal)
    }

    /// Compares key `i` with a key of the same prefix and head, passed without the prefix.
    #[inline]
    fn compare_suffix(&self, i: usize, suffix: &[u8]) -> Ordering {
        // Heads are padded with zeros: of two keys with equal heads, the one that ends within the head is shorter and
        // smaller.
        let head_len = suffix.len().min(8);
        let tail = suffix.get(8..).unwrap_or_default();
        self.head_len(i).cmp(&head_len).then_with(|| self.tail(i).cmp(tail))
    }
}

/// Returns how many of the sorted `heads` are smaller than `head`. No branch depends on the data: half of such branches
/// would be mispredicted.
#[inline]
fn heads_below(heads: &[[u8; 8]], head: u64) -> usize {
    // All ones if the head at `i` is smaller: the borrow of a subtraction, which no compiler turns into a branch.
    let less = |i: usize| {
        let at = heads.get(i).map_or(u64::MAX, |h| u64::from_le_bytes(*h));
        (u128::from(at).wrapping_sub(u128::from(head)) >> 64) as usize
    };
    let (mut start, mut len) = (0, heads.len());
    // Seven independent loads, which wait for memory together, narrow the position to an eighth.
    let eighth = len / 8;
    if eighth > 1 {
        start = eighth * (1..8).map(|i| 1 & less(i * eighth - 1)).sum::<usize>();
        len -= 7 * eighth;
    }
    while len > 1 {
        let half = len / 2;
        start += half & less(start + half - 1);
        len -= half;
    }
    start + (1 & less(start))
}

/// Returns the first of `start..end` for which `before` is false. `before` must be true for a prefix of the range.
#[inline]
pub(in crate::sst) fn partition(
    mut start: usize,
    mut end: usize,
    mut before: impl FnMut(usize) -> bool,
) -> usize {
    while start < end {
        let middle = start.midpoint(end);
        if before(middle) { start = middle + 1 } else { end = middle }
    }
    start
}
