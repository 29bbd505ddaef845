//! What the cursors of a transaction have looked at: intervals of keys, each closed at the key where its cursor stopped.
//!
//! A walk proves that between its first and its last key there is nothing but what it showed. That holds for the
//! gap before the key on which it landed and, at an end, for everything beyond; not for what is behind the bounds of a range.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use crate::family::FamilyCore;
use crate::types::Comparator;

/// An interval of keys that was looked at.
#[derive(Clone, Debug)]
pub struct Span {
    /// Where.
    pub family: Arc<FamilyCore>,
    /// From here.
    pub low: Bound<Vec<u8>>,
    /// To here.
    pub high: Bound<Vec<u8>>,
}

/// The intervals of one transaction. Cursors that are still in use add to theirs.
pub type Spans = Arc<Mutex<Vec<Span>>>;

/// The eye of one cursor.
#[derive(Debug)]
pub(crate) struct Track {
    spans: Spans,
    family: Arc<FamilyCore>,
    current: usize,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
}

impl Track {
    pub(crate) fn new(spans: &Spans, family: &Arc<FamilyCore>) -> Self {
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        Self { spans: Arc::clone(spans), family: Arc::clone(family), current: 0, low, high }
    }

    /// Another one for the same range.
    pub(super) fn sibling(&self) -> Self {
        Self { low: self.low.clone(), high: self.high.clone(), ..Self::new(&self.spans, &self.family) }
    }

    /// Whatever the cursor meets outside of this is not looked at.
    pub(super) fn clip(&mut self, low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) {
        (self.low, self.high) = (low.clone(), high.clone());
    }

    /// The cursor went from `from` forward to `landed`, or to the end.
    pub(super) fn forward(&mut self, from: Bound<&[u8]>, landed: Option<&[u8]>) {
        let low = self.clipped_low(key_of(from));
        let high = self.clipped_high(landed);
        self.begin(low, high);
    }

    /// The cursor went from `from` backward to `landed`, or to the beginning.
    pub(super) fn backward(&mut self, from: Bound<&[u8]>, landed: Option<&[u8]>) {
        let low = self.clipped_low(landed);
        let high = self.clipped_high(key_of(from));
        self.begin(low, high);
    }

    /// The cursor went on forward.
    pub(super) fn next(&mut self, landed: Option<&[u8]>) {
        let high = self.clipped_high(landed);
        if let Some(span) = self.spans.lock().get_mut(self.current) {
            span.high = high;
        }
    }

    /// The cursor went on backward.
    pub(super) fn prev(&mut self, landed: Option<&[u8]>) {
        let low = self.clipped_low(landed);
        if let Some(span) = self.spans.lock().get_mut(self.current) {
            span.low = low;
        }
    }

    fn begin(&mut self, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) {
        let mut spans = self.spans.lock();
        self.current = spans.len();
        spans.push(Span { family: Arc::clone(&self.family), low, high });
    }

    fn clipped_high(&self, landed: Option<&[u8]>) -> Bound<Vec<u8>> {
        match landed {
            Some(key) if is_before(&self.family.options.comparator, key, &self.high) => {
                Bound::Included(key.to_vec())
            }
            _ => self.high.clone(),
        }
    }

    fn clipped_low(&self, landed: Option<&[u8]>) -> Bound<Vec<u8>> {
        match landed {
            Some(key) if is_after(&self.family.options.comparator, key, &self.low) => {
                Bound::Included(key.to_vec())
            }
            _ => self.low.clone(),
        }
    }
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Whether `key` is not behind the upper bound `high`.
pub fn is_before(order: &Comparator, key: &[u8], high: &Bound<Vec<u8>>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(high) => order.compare(key, high) != Ordering::Greater,
        Bound::Excluded(high) => order.compare(key, high) == Ordering::Less,
    }
}

/// Whether `key` is not in front of the lower bound `low`.
fn is_after(order: &Comparator, key: &[u8], low: &Bound<Vec<u8>>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(low) => order.compare(key, low) != Ordering::Less,
        Bound::Excluded(low) => order.compare(key, low) == Ordering::Greater,
    }
}
