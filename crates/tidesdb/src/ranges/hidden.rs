//! [`Hidden`]: what range tombstones hide from one reader, for a walk from key to key.
//!
//! The piece of the key space around the last key asked for is remembered, so that a step inside it costs a compare or two.

use super::RangeSet;
use super::set::tighter;
use crate::types::{Comparator, KeyBorder, SeqNo};

/// The tombstones of all that a reader at one sequence number looks at.
#[derive(Debug)]
pub struct Hidden {
    sets: Vec<RangeSet>,
    snapshot: SeqNo,
    /// Versions below this are hidden in the piece that is remembered; 0 = none.
    below: SeqNo,
    known: bool,
    /// How many pieces were looked at so far.
    pieces: u64,
    low: KeyBorder,
    high: KeyBorder,
}

impl Hidden {
    /// For a reader at `snapshot`; `None` if there is no tombstone at all.
    pub fn new(sets: Vec<RangeSet>, snapshot: SeqNo) -> Option<Self> {
        let sets: Vec<RangeSet> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        let (low, high) = (KeyBorder::default(), KeyBorder::default());
        (!sets.is_empty()).then_some(Self { sets, snapshot, below: 0, known: false, pieces: 0, low, high })
    }

    /// Whether the version `seq` of `key` is deleted.
    pub fn covers(&mut self, order: &Comparator, key: &[u8], seq: SeqNo) -> bool {
        let inside = self.known
            && self.low.get().is_none_or(|low| order.compare(low, key).is_le())
            && self.high.get().is_none_or(|high| order.compare(key, high).is_lt());
        if !inside {
            self.look(order, key);
        }
        seq < self.below
    }

    fn look(&mut self, order: &Comparator, key: &[u8]) {
        let (mut below, mut low, mut high) = (0, None, None);
        for set in &self.sets {
            let (seq, from, to) = set.around(order, key, self.snapshot);
            below = below.max(seq);
            low = tighter(low, from, |a, b| order.compare(a, b).is_ge());
            high = tighter(high, to, |a, b| order.compare(a, b).is_le());
        }
        self.low.assign(low);
        self.high.assign(high);
        (self.below, self.known) = (below, true);
        self.pieces += 1;
    }

    /// After [`Hidden::covers`]: the number of the piece of the last question.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// After [`Hidden::covers`]: versions below this are hidden up to [`Hidden::high`] and down to [`Hidden::low`].
    pub fn below(&self) -> SeqNo {
        self.below
    }

    /// The first key after the piece of the last question; `None` = it goes on to the end.
    pub fn high(&self) -> Option<&[u8]> {
        self.high.get()
    }

    /// The first key of the piece of the last question; `None` = it begins at the first key of all.
    pub fn low(&self) -> Option<&[u8]> {
        self.low.get()
    }
}
