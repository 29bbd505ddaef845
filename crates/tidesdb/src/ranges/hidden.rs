//! [`Hidden`]: what range tombstones hide from one reader, for scans from key to key.
//!
//! Remembers the piece of the key space around the last key, so a step within the piece costs one or two comparisons.

use super::RangeSet;
use super::index::Around;
use crate::types::{Comparator, KeyBorder, SeqNo};

/// All range tombstones that concern a reader at one sequence number.
#[derive(Debug)]
pub struct Hidden {
    sets: Vec<RangeSet>,
    snapshot: SeqNo,
    /// Versions below this are hidden in the current piece; 0 = none.
    below: SeqNo,
    /// Number of pieces looked up so far; 0 = there is no current one.
    pieces: u64,
    low: KeyBorder,
    high: KeyBorder,
}

impl Hidden {
    /// Creates the state for a reader at `snapshot`; `None` if there are no tombstones.
    pub fn new(sets: Vec<RangeSet>, snapshot: SeqNo) -> Option<Self> {
        let sets: Vec<RangeSet> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        let (low, high) = (KeyBorder::default(), KeyBorder::default());
        (!sets.is_empty()).then_some(Self { sets, snapshot, below: 0, pieces: 0, low, high })
    }

    /// Returns whether version `seq` of `key` is deleted.
    pub fn covers(&mut self, order: &Comparator, key: &[u8], seq: SeqNo) -> bool {
        let inside = self.pieces > 0
            && self.low.get().is_none_or(|low| order.compare(low, key).is_le())
            && self.high.get().is_none_or(|high| order.compare(key, high).is_lt());
        if !inside {
            self.look(order, key);
        }
        seq < self.below
    }

    fn look(&mut self, order: &Comparator, key: &[u8]) {
        let mut all = Around::default();
        for set in &self.sets {
            all.narrow(order, set.around(order, key, self.snapshot));
        }
        self.low.assign(all.from);
        self.high.assign(all.to);
        self.below = all.seq;
        self.pieces += 1;
    }

    /// Returns the number of the piece of the last [`Hidden::covers`] call.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Returns the sequence number below which versions are hidden in the piece of the last [`Hidden::covers`] call,
    /// from `low` to `high`.
    pub fn below(&self) -> SeqNo {
        self.below
    }

    /// Returns the first key after the piece of the last call; `None` = the piece has no upper bound.
    pub fn high(&self) -> Option<&[u8]> {
        self.high.get()
    }
}
