//! [`Hidden`]: what range tombstones hide from one reader, for scans from key to key. [`Covered`]: what the range deletes of a transaction
//! hide of its own writes.
//!
//! Both remember the piece of the key space around the last key, so a step within the piece costs one or two comparisons.

use super::index::Around;
use super::{Cover, RangeSet};
use crate::types::{Comparator, KeyBorder, SeqNo};

/// A piece of the key space in which the newest range tombstone is the same.
#[derive(Debug, Default)]
struct Piece {
    /// Versions below this are hidden in the piece; 0 = none.
    below: SeqNo,
    low: KeyBorder,
    high: KeyBorder,
}

impl Piece {
    fn contains(&self, order: &Comparator, key: &[u8]) -> bool {
        self.low.get().is_none_or(|low| order.compare(low, key).is_le())
            && self.high.get().is_none_or(|high| order.compare(key, high).is_lt())
    }

    fn assign(&mut self, around: Around<'_>) {
        self.low.assign(around.from);
        self.high.assign(around.to);
        self.below = around.seq;
    }
}

/// All range tombstones that concern a reader at one sequence number.
#[derive(Debug)]
pub struct Hidden {
    sets: Vec<RangeSet>,
    /// The range deletes of the reader's transaction: they hide everything but its own writes.
    own: Cover,
    snapshot: SeqNo,
    piece: Piece,
    /// Number of pieces looked up so far; 0 = there is no current one.
    pieces: u64,
}

impl Hidden {
    /// Creates the state for a reader at `snapshot`; `None` if there are no tombstones.
    pub fn new(sets: Vec<RangeSet>, snapshot: SeqNo) -> Option<Self> {
        Self::in_transaction(sets, Cover::default(), snapshot)
    }

    /// Like [`Hidden::new`], in a transaction with the range deletes `own`.
    pub fn in_transaction(sets: Vec<RangeSet>, own: Cover, snapshot: SeqNo) -> Option<Self> {
        let sets: Vec<RangeSet> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        let is_needed = !sets.is_empty() || !own.is_empty();
        is_needed.then(|| Self { sets, own, snapshot, piece: Piece::default(), pieces: 0 })
    }

    /// Returns whether version `seq` of `key` is deleted.
    pub fn covers(&mut self, order: &Comparator, key: &[u8], seq: SeqNo) -> bool {
        if self.pieces == 0 || !self.piece.contains(order, key) {
            self.look(order, key);
        }
        seq < self.piece.below
    }

    fn look(&mut self, order: &Comparator, key: &[u8]) {
        let mut all = self.own.around(order, key);
        if all.seq > 0 {
            all.seq = self.snapshot + 1; // hides all that the reader sees of others
        }
        for set in &self.sets {
            all.narrow(order, set.around(order, key, self.snapshot));
        }
        self.piece.assign(all);
        self.pieces += 1;
    }

    /// Returns the number of the piece of the last [`Hidden::covers`] call.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Returns the sequence number below which versions are hidden in the piece of the last [`Hidden::covers`] call,
    /// from `low` to `high`.
    pub fn below(&self) -> SeqNo {
        self.piece.below
    }

    /// Returns the first key after the piece of the last call; `None` = the piece has no upper bound.
    pub fn high(&self) -> Option<&[u8]> {
        self.piece.high.get()
    }
}

/// Which of the own writes of a transaction its later range deletes hide.
#[derive(Debug)]
pub struct Covered {
    cover: Cover,
    order: Comparator,
    /// The piece around the last key; `None` before the first.
    piece: Option<Piece>,
}

impl Covered {
    /// Creates the state for a cursor; `None` if there are no range deletes.
    pub fn new(order: &Comparator, cover: &Cover) -> Option<Box<Self>> {
        let this = || Box::new(Self { cover: cover.clone(), order: order.clone(), piece: None });
        (!cover.is_empty()).then(this)
    }

    /// Returns whether the write with number `stamp` to `key` is deleted.
    pub fn hides(&mut self, key: &[u8], stamp: u64) -> bool {
        let Self { cover, order, piece } = self;
        let is_inside = piece.as_ref().is_some_and(|piece| piece.contains(order, key));
        let piece = piece.get_or_insert_default();
        if !is_inside {
            piece.assign(cover.around(order, key));
        }
        stamp < piece.below
    }
}
