//! Decides whether a lookup may wait for the disk.
//!
//! A single lookup reads the blocks it misses. The lookups of a batch take turns: a lookup that misses a block only
//! starts loading it, and is repeated after all others had their turn. So the disk works on the misses of all lookups
//! at the same time. A block that is in the system's page cache is read at once.
//!
//! A gate also sees each [`ReadStep`] of its lookup. The gates of ordinary lookups look at none, so the steps cost them nothing; those of
//! an explanation and of a profile take note of them (`trace.rs`).

use super::steps::ReadStep;
use crate::types::TableId;

/// Where a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlace {
    /// The table.
    pub table: TableId,
    /// Offset in its file.
    pub offset: u64,
}

/// A check that a lookup makes before each read.
pub trait ReadGate {
    /// Returns whether the lookup may read the bytes at `place` now. If not, the gate is shut
    /// and the lookup ends without a result. `load_ahead` starts loading the bytes; it returns true if it could read them without
    /// waiting, and then the lookup goes on.
    fn admits(&mut self, place: ReadPlace, load_ahead: impl FnOnce() -> bool) -> bool;
    /// Returns whether a read was refused. Then the result of the lookup is meaningless.
    fn is_shut(&self) -> bool;
    /// Returns true if the lookup explains itself: it leaves the block cache and the charges of merges as they are, and asks the system where
    /// the bytes that it reads come from.
    #[inline(always)]
    fn explains(&self) -> bool {
        false
    }
    /// Takes note of a step of the lookup.
    #[inline(always)]
    fn note(&mut self, step: impl FnOnce() -> ReadStep) {
        let _ = step;
    }
}

/// Allows all reads.
#[derive(Debug)]
pub struct AllowAllReads;

impl ReadGate for AllowAllReads {
    #[inline(always)]
    fn admits(&mut self, _place: ReadPlace, _load_ahead: impl FnOnce() -> bool) -> bool {
        true
    }

    #[inline(always)]
    fn is_shut(&self) -> bool {
        false
    }
}

/// Allows a fixed number of reads per lookup, and starts loading the next one.
#[derive(Clone, Debug)]
pub struct TurnGate {
    reads_per_lookup: u32,
    left: u32,
    shut: bool,
    /// Location of the last prefetch. Neighbours in key order often miss the same block.
    loading: Option<ReadPlace>,
}

impl TurnGate {
    /// Creates a gate that allows `reads_per_lookup` reads after each [`TurnGate::begin`].
    pub fn new(reads_per_lookup: u32) -> Self {
        Self { reads_per_lookup, left: 0, shut: false, loading: None }
    }

    /// Opens the gate for the next lookup.
    pub fn begin(&mut self) {
        (self.left, self.shut) = (self.reads_per_lookup, false);
    }
}

impl ReadGate for TurnGate {
    fn admits(&mut self, place: ReadPlace, load_ahead: impl FnOnce() -> bool) -> bool {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return true;
        }
        if self.loading.replace(place) != Some(place) && load_ahead() {
            self.loading = None;
            return true;
        }
        self.shut = true;
        false
    }

    #[inline]
    fn is_shut(&self) -> bool {
        self.shut
    }
}
