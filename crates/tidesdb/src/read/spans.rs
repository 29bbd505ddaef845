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
        match (cut(&self.low, false), cut(&self.high, true)) {
            (Some(low), Some(high)) => compare_cuts(self.order(), low, high).is_ge(),
            _ => false,
        }
    }

    fn order(&self) -> &Comparator {
        &self.family.options.comparator
    }

    /// Merge order: by family, then by lower end.
    fn compare(&self, other: &Self) -> Ordering {
        let by_low = || match (cut(&self.low, false), cut(&other.low, false)) {
            (Some(a), Some(b)) => compare_cuts(self.order(), a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        self.family.id.cmp(&other.family.id).then_with(by_low)
    }

    /// Extends this span by `next` if no key lies between the two. `next` must not begin before this span.
    fn absorb(&mut self, next: &mut Self) -> bool {
        if self.family.id != next.family.id || !touch(self.order(), &self.high, &next.low) {
            return false;
        }
        let is_longer =
            |high| cut(&next.high, true).is_none_or(|n| compare_cuts(self.order(), n, high).is_gt());
        if cut(&self.high, true).is_some_and(is_longer) {
            std::mem::swap(&mut self.high, &mut next.high);
        }
        true
    }
}

/// A place between two neighbouring keys: before a key, or (true) after it.
type Cut<'a> = (&'a [u8], bool);

/// Returns where an interval with this lower or upper end is cut off; `None` = nowhere.
fn cut(end: &Bound<Vec<u8>>, is_high: bool) -> Option<Cut<'_>> {
    match end {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key, is_high)),
        Bound::Excluded(key) => Some((key, !is_high)),
    }
}

fn compare_cuts(order: &Comparator, a: Cut<'_>, b: Cut<'_>) -> Ordering {
    order.compare(a.0, b.0).then(a.1.cmp(&b.1))
}

/// Returns whether no key lies between an upper end and the lower end of a later span.
fn touch(order: &Comparator, high: &Bound<Vec<u8>>, low: &Bound<Vec<u8>>) -> bool {
    let (Some(high), Some(low)) = (cut(high, true), cut(low, false)) else { return true };
    // In byte order, the successor of a key is the key followed by a zero byte.
    let is_next = || order.is_bytewise() && high.1 && !low.1 && low.0.strip_prefix(high.0) == Some(&[0]);
    compare_cuts(order, high, low).is_ge() || is_next()
}

/// Returns whether `key` does not exceed the upper bound `high`.
pub fn is_before(order: &Comparator, key: &[u8], high: &Bound<Vec<u8>>) -> bool {
    cut(high, true).is_none_or(|high| compare_cuts(order, (key, false), high).is_lt())
}

/// Returns whether `key` is not below the lower bound `low`.
pub(super) fn is_after(order: &Comparator, key: &[u8], low: &Bound<Vec<u8>>) -> bool {
    cut(low, false).is_none_or(|low| compare_cuts(order, (key, false), low).is_ge())
}

/// The spans of one transaction, shared with its cursors.
pub type Spans = Arc<Mutex<SpanSet, { rank::SPANS }>>;

/// Number of closed spans that triggers the first merge.
const MERGE_MIN: usize = 64;

/// Bytes charged for an open span, whatever its keys are. There are at most as many open spans as the program has
/// cursors.
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

    /// Returns the bytes of all spans and of one more open span.
    fn bytes(&self) -> u64 {
        let spans = self.closed.capacity() * size_of::<Span>();
        (spans + self.closed_bytes + (self.open.len() + 1) * OPEN_BYTES) as u64
    }

    fn merge(&mut self) {
        merge_spans(&mut self.closed);
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
        merge_spans(&mut all);
        all
    }
}

/// Sorts `spans` by family and key, and merges those that overlap or touch.
pub fn merge_spans(spans: &mut Vec<Span>) {
    spans.retain(|span| !span.is_empty());
    spans.sort_by(Span::compare); // stable: fast where a part is sorted already
    spans.dedup_by(|next, last| last.absorb(next));
}
