//! Where a key lies in a block. In byte order: a branchless search of the heads, then full compares among the keys of
//! equal head, mostly one. In other orders: bisection over whole keys.

use std::cmp::Ordering;

use super::{Block, HEADS};
use crate::types::{Comparator, SeqNo};

/// What a point lookup met in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sst) enum Find {
    /// This entry is the newest version of the key that the snapshot sees.
    At(usize),
    /// The block proves that there is none.
    Absent,
    /// All versions here are too new, and the block ends with them: the next block may go on with the key.
    Beyond,
}

impl Block<'_> {
    /// The first entry whose key is not before `target` (after it, with `after_equal`), and whether that entry's key
    /// equals `target`. The number of entries if there is none.
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

    /// The newest version of `target` at or below `snapshot`.
    #[inline]
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

    /// The first entry at or after version `snapshot` of `target`: its newest version at or below `snapshot`, or the next key.
    /// The number of entries if there is none.
    pub(in crate::sst) fn search_version(&self, order: &Comparator, target: &[u8], snapshot: SeqNo) -> usize {
        let (first, equal) = self.search(order, target, false);
        if !equal {
            return first;
        }
        let (end, _) = self.search(order, target, true);
        partition(first, end, |i| self.seq(i) > snapshot)
    }

    /// Whether `target` lies after the first key and not after the last one, so that its place is in this block.
    #[inline]
    pub(in crate::sst) fn covers(&self, order: &Comparator, target: &[u8]) -> bool {
        let last = self.len() - 1;
        if !(order.is_bytewise() && self.shape.has(HEADS)) {
            return order.compare(self.tail(0), target).is_lt()
                && order.compare(target, self.tail(last)).is_le();
        }
        let Some(suffix) = target.strip_prefix(self.prefix()) else { return false };
        let head = head_of(suffix);
        let heads = self.heads();
        let at = |i: usize| heads.get(i).map_or(0, |h| u64::from_le_bytes(*h));
        (head > at(0) || (head == at(0) && self.compare_suffix(0, suffix).is_lt()))
            && (head < at(last) || (head == at(last) && self.compare_suffix(last, suffix).is_ge()))
    }

    /// Whether entry `i` is another version of the key of the entry before it.
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

    /// Compares key `i` with a key of the same prefix and head, given without the prefix.
    #[inline]
    fn compare_suffix(&self, i: usize, suffix: &[u8]) -> Ordering {
        // Heads are padded with zeros: of two equal ones the key that ends in it is the shorter, hence the smaller.
        let head_len = suffix.len().min(8);
        let tail = suffix.get(8..).unwrap_or_default();
        self.head_len(i).cmp(&head_len).then_with(|| self.tail(i).cmp(tail))
    }
}

/// The first eight bytes as a number that orders like them, zero-padded.
#[inline]
pub(in crate::sst) fn head_of(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(head) => u64::from_le_bytes(*head).swap_bytes(),
        None => short_head_of(suffix),
    }
}

fn short_head_of(suffix: &[u8]) -> u64 {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(suffix) {
        *to = *from;
    }
    u64::from_le_bytes(head).swap_bytes()
}

/// How many of the sorted `heads` are smaller than `head`. No jump depends on the data: half of them would be
/// mispredicted.
#[inline]
fn heads_below(heads: &[[u8; 8]], head: u64) -> usize {
    // All ones if the head at `i` is smaller: the borrow of a subtraction, which no compiler makes a jump of.
    let less = |i: usize| {
        let at = heads.get(i).map_or(u64::MAX, |h| u64::from_le_bytes(*h));
        (u128::from(at).wrapping_sub(u128::from(head)) >> 64) as usize
    };
    let (mut start, mut len) = (0, heads.len());
    // Seven loads at once, which wait for memory together, bound the place to an eighth.
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

/// The first of `start..end` for which `before` does not hold; it holds for a front part.
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
