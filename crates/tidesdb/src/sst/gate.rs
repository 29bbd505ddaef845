//! Whether a lookup may wait for the disk.
//!
//! A single lookup reads what it misses. The lookups of a batch take turns: one that misses a block only has it loaded
//! ahead, and is repeated after all others had their turn. So the disk works on the misses of all of them at once.

/// Asked by a lookup before each read.
pub trait ReadGate {
    /// Whether to read the bytes at `place`, a number of a table and an offset, now. Otherwise the gate is shut, and the lookup
    /// ends without an answer. `load_ahead` begins to load the bytes.
    fn admits(&mut self, place: (u64, u64), load_ahead: impl FnOnce()) -> bool;
    /// Whether a read was refused: that nothing was found means nothing.
    fn is_shut(&self) -> bool;
}

/// Admits all reads.
#[derive(Debug)]
pub struct OpenGate;

impl ReadGate for OpenGate {
    #[inline(always)]
    fn admits(&mut self, _place: (u64, u64), _load_ahead: impl FnOnce()) -> bool {
        true
    }

    #[inline(always)]
    fn is_shut(&self) -> bool {
        false
    }
}

/// Admits so many reads of each lookup, and has the next one loaded ahead.
#[derive(Debug)]
pub struct TurnGate {
    reads_per_lookup: u32,
    left: u32,
    shut: bool,
    /// Loaded ahead last: neighbours in key order often miss the same block.
    loading: Option<(u64, u64)>,
}

impl TurnGate {
    /// A gate that admits `reads_per_lookup` reads after each [`TurnGate::begin`].
    pub fn new(reads_per_lookup: u32) -> Self {
        Self { reads_per_lookup, left: 0, shut: false, loading: None }
    }

    /// Opens the gate for the next lookup.
    pub fn begin(&mut self) {
        (self.left, self.shut) = (self.reads_per_lookup, false);
    }
}

impl ReadGate for TurnGate {
    fn admits(&mut self, place: (u64, u64), load_ahead: impl FnOnce()) -> bool {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return true;
        }
        self.shut = true;
        if self.loading.replace(place) != Some(place) {
            load_ahead();
        }
        false
    }

    #[inline]
    fn is_shut(&self) -> bool {
        self.shut
    }
}
