//! Records which keys a cursor of a transaction has read since it was last positioned: one span, from the smallest to
//! the largest key it reached.
//!
//! A scan proves that between its first and its last key there is nothing but what it showed. That includes the gap
//! before the key on which a seek landed and, at an end, everything beyond the last key. It excludes keys outside the
//! bounds of a range. A span only widens: a cursor that changes direction has still read the earlier keys.

use std::ops::Bound;
use std::sync::Arc;

use super::spans::{Span, Spans, is_after, is_before};
use crate::Result;
use crate::family::FamilyCore;
use crate::types::Scope;

/// Records the key span that one cursor has read.
#[derive(Debug)]
pub(crate) struct Track {
    spans: Spans,
    family: Arc<FamilyCore>,
    /// Slot of the open span in `spans`; `None` before the first seek.
    slot: Option<usize>,
    /// Bounds of the cursor's range; keys outside them do not count as read.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    edge: Edge,
}

/// Position of the cursor in its span. A step outwards from an end of the span leaves the span, so no comparison is
/// needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Low,
    High,
    /// Somewhere inside, or outside of the cursor's range.
    Elsewhere,
}

impl Track {
    pub(crate) fn new(spans: &Spans, family: &Arc<FamilyCore>) -> Self {
        Self {
            spans: Arc::clone(spans),
            family: Arc::clone(family),
            slot: None,
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            edge: Edge::Elsewhere,
        }
    }

    /// Returns a track for another cursor of the same range.
    pub(super) fn sibling(&self) -> Self {
        let (low, high) = (self.low.clone(), self.high.clone());
        let (spans, family) = (Arc::clone(&self.spans), Arc::clone(&self.family));
        Self { spans, family, slot: None, low, high, edge: Edge::Elsewhere }
    }

    /// Makes room for the span of a seek, before the seek.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn make_room(&self) -> Result<()> {
        self.spans.lock().make_room(&self.family.memory)
    }

    /// Restricts what counts as read to these bounds from now on.
    pub(super) fn clip(&mut self, scope: &Scope) {
        (self.low, self.high) = (scope.low().map(<[u8]>::to_vec), scope.high().map(<[u8]>::to_vec));
    }

    /// Records a seek forward from `from` to `landed`, or to the end.
    pub(super) fn forward(&mut self, from: Bound<&[u8]>, landed: Option<&[u8]>) {
        let low = self.low_of(key_of(from)).map_or_else(|| self.low.clone(), included);
        let high = self.high_of(landed).map(included);
        self.edge = if high.is_some() { Edge::High } else { Edge::Elsewhere };
        let high = high.unwrap_or_else(|| self.high.clone());
        self.begin(low, high);
    }

    /// Records a seek backward from `from` to `landed`, or to the beginning.
    pub(super) fn backward(&mut self, from: Bound<&[u8]>, landed: Option<&[u8]>) {
        let low = self.low_of(landed).map(included);
        let high = self.high_of(key_of(from)).map_or_else(|| self.high.clone(), included);
        self.edge = if low.is_some() { Edge::Low } else { Edge::Elsewhere };
        let low = low.unwrap_or_else(|| self.low.clone());
        self.begin(low, high);
    }

    /// Records a step forward.
    pub(super) fn next(&mut self, landed: Option<&[u8]>) {
        let Some(slot) = self.slot else { return };
        let landed = self.high_of(landed);
        let was = std::mem::replace(&mut self.edge, Edge::Elsewhere);
        let mut spans = self.spans.lock();
        let Some(span) = spans.at(slot) else { return };
        match landed {
            None => span.high.clone_from(&self.high),
            Some(key)
                if was == Edge::High || !is_before(&self.family.options.comparator, key, &span.high) =>
            {
                assign_included(&mut span.high, key);
                self.edge = Edge::High;
            }
            Some(_) => {}
        }
    }

    /// Records a step backward.
    pub(super) fn prev(&mut self, landed: Option<&[u8]>) {
        let Some(slot) = self.slot else { return };
        let landed = self.low_of(landed);
        let was = std::mem::replace(&mut self.edge, Edge::Elsewhere);
        let mut spans = self.spans.lock();
        let Some(span) = spans.at(slot) else { return };
        match landed {
            None => span.low.clone_from(&self.low),
            Some(key) if was == Edge::Low || !is_after(&self.family.options.comparator, key, &span.low) => {
                assign_included(&mut span.low, key);
                self.edge = Edge::Low;
            }
            Some(_) => {}
        }
    }

    fn begin(&mut self, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) {
        let span = Span { family: Arc::clone(&self.family), low, high };
        let mut spans = self.spans.lock();
        match self.slot {
            Some(slot) => spans.reopen(slot, span),
            None => self.slot = Some(spans.open(span)),
        }
    }

    /// Returns `key`, unless it is missing or exceeds the upper bound of the range.
    #[inline]
    fn high_of<'k>(&self, key: Option<&'k [u8]>) -> Option<&'k [u8]> {
        key.filter(|key| is_before(&self.family.options.comparator, key, &self.high))
    }

    /// Returns `key`, unless it is missing or below the lower bound of the range.
    #[inline]
    fn low_of<'k>(&self, key: Option<&'k [u8]>) -> Option<&'k [u8]> {
        key.filter(|key| is_after(&self.family.options.comparator, key, &self.low))
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.spans.lock().close(slot);
        }
    }
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

fn included(key: &[u8]) -> Bound<Vec<u8>> {
    Bound::Included(key.to_vec())
}

/// Sets `end` to `key`, reusing the buffer of the old end.
#[inline]
fn assign_included(end: &mut Bound<Vec<u8>>, key: &[u8]) {
    if let Bound::Included(bytes) = end {
        bytes.clear();
        bytes.extend_from_slice(key);
    } else {
        *end = included(key);
    }
}
