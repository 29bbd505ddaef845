//! Intervals of keys, and the set of them that a transaction has read.
//!
//! The set holds one open span for each cursor in use, which only that cursor widens, and the closed spans of earlier
//! seeks and dropped cursors. Closed spans that overlap or touch are merged each time their number has doubled, so
//! memory depends on what was read, not on how often. Merging is exact: a merged span covers the keys of its parts and
//! no others.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use tidesdb_sync::{Mutex, rank};

use crate::Result;
use crate::family::FamilyCore;
use crate::memory::{Charge, Memory, Use, block_bytes};
use crate::types::Comparator;

/// An interval of keys that was read.
#[derive(Clone, Debug)]
pub struct Span {
    /// The family of the keys.
    pub family: Arc<FamilyCore>,
    /// Lower end.
    pub low: Bound<Vec<u8>>,
    /// Upper end.
    pub high: Bound<Vec<u8>>,
}

impl Span {
    /// Bytes that its keys take.
    fn key_bytes(&self) -> usize {
        let end = |end: &Bound<Vec<u8>>| match end {
            Bound::Included(key) | Bound::Excluded(key) => block_bytes(key.capacity()),
            Bound::Unbounded => 0,
        };
        end(&self.low) + end(&self.high)
    }

    /// Returns whether the span can contain no key.
    fn is_empty(&self) -> bool {
        let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) =
            (&self.low, &self.high)
        else {
            return false;
        };
        let both_included = matches!((&self.low, &self.high), (Bound::Included(_), Bound::Included(_)));
        match self.order().compare(low, high) {
            Ordering::Less => false,
            Ordering::Equal => !both_included,
            Ordering::Greater => true,
        }
    }

    fn order(&self) -> &Comparator {
        &self.family.options.comparator
    }

    /// Merge order: by family, then by lower end.
    fn compare(&self, other: &Self) -> Ordering {
        let by_low = || compare_ends(self.order(), (&self.low, Ordering::Less), (&other.low, Ordering::Less));
        self.family.id.cmp(&other.family.id).then_with(by_low)
    }

    /// Extends this span by `next` if no key lies between the two. `next` must not begin before this span.
    fn absorb(&mut self, next: &mut Self) -> bool {
        if self.family.id != next.family.id || !touch(self.order(), &self.high, &next.low) {
            return false;
        }
        let greater = Ordering::Greater;
        if compare_ends(self.order(), (&next.high, greater), (&self.high, greater)).is_gt() {
            std::mem::swap(&mut self.high, &mut next.high);
        }
        true
    }
}

/// Compares two lower ends (`Less`: unbounded and included come first) or two upper ends (`Greater`: they come last).
fn compare_ends(
    order: &Comparator,
    (a, a_side): (&Bound<Vec<u8>>, Ordering),
    (b, b_side): (&Bound<Vec<u8>>, Ordering),
) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => a_side,
        (_, Bound::Unbounded) => b_side.reverse(),
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) => {
            order.compare(x, y).then(match (a, b) {
                (Bound::Included(_), Bound::Excluded(_)) => a_side,
                (Bound::Excluded(_), Bound::Included(_)) => b_side.reverse(),
                _ => Ordering::Equal,
            })
        }
    }
}

/// Returns whether no key lies between an upper end and the lower end of a later span.
fn touch(order: &Comparator, high: &Bound<Vec<u8>>, low: &Bound<Vec<u8>>) -> bool {
    let (Bound::Included(h) | Bound::Excluded(h), Bound::Included(l) | Bound::Excluded(l)) = (high, low)
    else {
        return true;
    };
    match (order.compare(h, l), high, low) {
        (Ordering::Greater, _, _) => true,
        (Ordering::Equal, high, low) => !matches!((high, low), (Bound::Excluded(_), Bound::Excluded(_))),
        // In byte order, the successor of a key is the key followed by a zero byte.
        (Ordering::Less, Bound::Included(_), Bound::Included(_)) => {
            order.is_bytewise() && l.split_last().is_some_and(|(last, start)| *last == 0 && start == &h[..])
        }
        (Ordering::Less, _, _) => false,
    }
}

/// Returns whether `key` does not exceed the upper bound `high`.
pub fn is_before(order: &Comparator, key: &[u8], high: &Bound<Vec<u8>>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(high) => order.compare(key, high) != Ordering::Greater,
        Bound::Excluded(high) => order.compare(key, high) == Ordering::Less,
    }
}

/// Returns whether `key` is not below the lower bound `low`.
pub(super) fn is_after(order: &Comparator, key: &[u8], low: &Bound<Vec<u8>>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(low) => order.compare(key, low) != Ordering::Less,
        Bound::Excluded(low) => order.compare(key, low) == Ordering::Greater,
    }
}

/// The spans of one transaction, shared with its cursors.
pub type Spans = Arc<Mutex<SpanSet, { rank::SPANS }>>;

/// Number of closed spans that triggers the first merge.
const MERGE_MIN: usize = 64;

/// Bytes charged for an open span. The cursor that widens it has at most as many open ones as the program has cursors.
const OPEN_BYTES: usize = 256;

/// Key spans that the cursors of one transaction have read.
#[derive(Debug)]
pub struct SpanSet {
    /// The span of each cursor in use, by slot.
    open: Vec<Option<Span>>,
    /// Slots of `open` without a cursor.
    free: Vec<usize>,
    closed: Vec<Span>,
    /// Number of closed spans that triggers the next merge, if not below `MERGE_MIN`.
    merge_at: usize,
    /// Bytes of the keys of the closed spans.
    closed_bytes: usize,
    charge: Charge,
}

impl Default for SpanSet {
    fn default() -> Self {
        let charge = Charge::new(Use::Transactions);
        Self { open: Vec::new(), free: Vec::new(), closed: Vec::new(), merge_at: 0, closed_bytes: 0, charge }
    }
}

impl SpanSet {
    /// Makes room for one more span, before a seek. Its keys are counted by the next call.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn make_room(&mut self, memory: &Arc<Memory>) -> Result<()> {
        if self.bytes() <= self.charge.bytes() {
            return Ok(());
        }
        let ample = self.bytes() + self.bytes() / 4;
        if self.charge.grow(memory, ample).is_err() {
            self.merge(); // few may be left
            self.charge.grow(memory, self.bytes())?;
        }
        Ok(())
    }

    /// Bytes that all spans take, and one more.
    fn bytes(&self) -> u64 {
        let spans = self.closed.capacity() * size_of::<Span>();
        (spans + self.closed_bytes + (self.open.len() + 1) * OPEN_BYTES) as u64
    }

    fn merge(&mut self) {
        merge(&mut self.closed);
        self.merge_at = 2 * self.closed.len();
        self.closed_bytes = self.closed.iter().map(Span::key_bytes).sum();
    }

    /// Opens `span` in a free slot and returns the slot.
    pub(super) fn open(&mut self, span: Span) -> usize {
        if let Some(slot) = self.free.pop() {
            self.open[slot] = Some(span);
            return slot;
        }
        self.open.push(Some(span));
        self.open.len() - 1
    }

    /// Closes the span of `slot` and opens `span` there.
    pub(super) fn reopen(&mut self, slot: usize, span: Span) {
        let old = self.open[slot].replace(span);
        self.add_closed(old);
    }

    /// Closes the span of `slot`, whose cursor is gone.
    pub(super) fn close(&mut self, slot: usize) {
        let old = self.open[slot].take();
        self.free.push(slot);
        self.add_closed(old);
    }

    /// Returns the open span of `slot`.
    pub(super) fn at(&mut self, slot: usize) -> Option<&mut Span> {
        self.open.get_mut(slot)?.as_mut()
    }

    fn add_closed(&mut self, span: Option<Span>) {
        self.closed_bytes += span.as_ref().map_or(0, Span::key_bytes);
        self.closed.extend(span);
        if self.closed.len() >= self.merge_at.max(MERGE_MIN) {
            self.merge();
        }
    }

    /// Returns the number of spans, open ones included. Overlapping spans may be counted more than once until they are
    /// merged.
    pub fn len(&self) -> usize {
        self.closed.len() + self.open.len() - self.free.len()
    }

    /// Takes the closed spans and copies of the open spans, and returns them merged.
    pub fn take_merged(&mut self) -> Vec<Span> {
        self.closed_bytes = 0;
        let mut all = std::mem::take(&mut self.closed);
        all.extend(self.open.iter().flatten().cloned());
        merge(&mut all);
        all
    }
}

/// Sorts `spans` and merges those that overlap or touch.
fn merge(spans: &mut Vec<Span>) {
    spans.retain(|span| !span.is_empty());
    spans.sort_by(Span::compare); // stable: fast where a part is sorted already
    spans.dedup_by(|next, last| last.absorb(next));
}
