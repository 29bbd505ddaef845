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
    /// The cursor's range; keys outside of it are not recorded as read.
    scope: Scope,
    /// The end of the span on which the cursor stands. A step outwards from there leaves the span, so no comparison is needed.
    /// `None`: it stands somewhere inside, or outside of the range.
    edge: Option<Side>,
}

/// An end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Low,
    High,
}

impl Track {
    pub(crate) fn new(spans: &Spans, family: &Arc<FamilyCore>) -> Self {
        let (spans, family) = (Arc::clone(spans), Arc::clone(family));
        Self { spans, family, slot: None, scope: Scope::default(), edge: None }
    }

    /// Returns a track for another cursor.
    pub(super) fn sibling(&self) -> Self {
        Self::new(&self.spans, &self.family)
    }

    /// Makes room for the span of a seek, before the seek.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn make_room(&self) -> Result<()> {
        self.spans.lock().make_room(&self.family.memory)
    }

    /// From now on, records only keys within this range as read.
    pub(super) fn clip(&mut self, scope: &Scope) {
        self.scope = scope.clone();
    }

    /// Records a seek towards `side`, from `from` or the other end of the range, to `landed` or that end.
    pub(super) fn seek(&mut self, side: Side, from: Option<&[u8]>, landed: Option<&[u8]>) {
        let (low, high) = match side {
            Side::Low => (landed, from),
            Side::High => (from, landed),
        };
        let (low, high) = (self.within(Side::Low, low), self.within(Side::High, high));
        let reached = if side == Side::Low { low } else { high };
        self.edge = reached.map(|_| side);
        let low = low.map_or_else(|| self.scope.low().map(<[u8]>::to_vec), included);
        let high = high.map_or_else(|| self.scope.high().map(<[u8]>::to_vec), included);
        let span = Span { family: Arc::clone(&self.family), low, high };
        let mut spans = self.spans.lock();
        match self.slot {
            Some(slot) => spans.reopen(slot, span),
            None => self.slot = Some(spans.open(span)),
        }
    }

    /// Records a step towards `side`, to `landed` or to that end of the range.
    pub(super) fn step(&mut self, side: Side, landed: Option<&[u8]>) {
        let Some(slot) = self.slot else { return };
        let landed = self.within(side, landed);
        let was = self.edge.take();
        let mut spans = self.spans.lock();
        let Some(span) = spans.at(slot) else { return };
        let (end, limit) = match side {
            Side::Low => (&mut span.low, self.scope.low()),
            Side::High => (&mut span.high, self.scope.high()),
        };
        let Some(key) = landed else {
            *end = limit.map(<[u8]>::to_vec);
            return;
        };
        let order = &self.family.options.comparator;
        let is_inside = match side {
            _ if was == Some(side) => false,
            Side::Low => is_after(order, key, end),
            Side::High => is_before(order, key, end),
        };
        if !is_inside {
            assign_included(end, key);
            self.edge = Some(side);
        }
    }

    /// Returns `key`, unless it is missing or beyond that end of the range.
    #[inline]
    fn within<'k>(&self, side: Side, key: Option<&'k [u8]>) -> Option<&'k [u8]> {
        let order = &self.family.options.comparator;
        key.filter(|key| match side {
            Side::Low => !self.scope.is_below(order, key),
            Side::High => !self.scope.is_above(order, key),
        })
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.spans.lock().close(slot);
        }
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
