//! [`Segment`]: a run of windows, each with the names of the keys that lately left it.
//!
//! Memory of a segment is zeroed by the system when it is first touched, so a large segment costs only what is used.

use crate::slot::{Slot, empty_windows, zeroed_words};
use crate::sync::{HintU64, Ordering};

/// Slots of a window: 128 bytes.
pub(crate) const WIDTH: usize = if cfg!(loom) { 2 } else { 16 };

/// A key can live in the slots of one window only.
pub(crate) type Window<V> = [Slot<V>; WIDTH];

pub(crate) struct Segment<V: Send + Sync + 'static> {
    /// Number of the first window.
    first: usize,
    windows: Box<[Window<V>]>,
    ghosts: Box<[HintU64]>,
}

impl<V: Send + Sync + 'static> Segment<V> {
    /// Windows `first..first + windows`, all empty.
    pub(crate) fn new(first: usize, windows: usize) -> Self {
        Segment { first, windows: empty_windows(windows), ghosts: zeroed_words(windows) }
    }

    /// Window `index`, if it is in this segment.
    #[inline]
    pub(crate) fn window(&self, index: usize) -> Option<&Window<V>> {
        self.windows.get(index.wrapping_sub(self.first))
    }

    /// The ghosts of window `index`.
    pub(crate) fn ghosts(&self, index: usize) -> Option<Ghosts<'_>> {
        self.ghosts.get(index.wrapping_sub(self.first)).map(Ghosts)
    }
}

impl<V: Send + Sync + 'static> Drop for Segment<V> {
    fn drop(&mut self) {
        // Nobody can look at the segment any more; a pin of our own costs nothing and keeps one way to look.
        let guard = tidesdb_sync::pin();
        for found in self.windows.iter().flatten().filter_map(|slot| slot.load(&guard)) {
            found.entry().depart();
        }
    }
}

/// Fingerprints of the last four keys that left a window unused, the newest in the lowest bits. A lost update is harmless,
/// as are equal fingerprints of distinct keys.
pub(crate) struct Ghosts<'a>(&'a HintU64);

const LANE_BITS: u32 = 16;

impl Ghosts<'_> {
    fn lane(&self, hash: u64) -> Option<u32> {
        let word = self.0.load(Ordering::Relaxed);
        let print = fingerprint(hash);
        (0..u64::BITS).step_by(LANE_BITS as usize).find(|lane| (word >> lane) as u16 == print)
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.lane(hash).is_some()
    }

    /// Adds a key in place of the oldest.
    pub(crate) fn add(&self, hash: u64) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word << LANE_BITS | u64::from(fingerprint(hash)), Ordering::Relaxed);
    }

    /// Removes a key. Returns whether it was there.
    pub(crate) fn remove(&self, hash: u64) -> bool {
        let Some(lane) = self.lane(hash) else { return false };
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word & !(u64::from(u16::MAX) << lane), Ordering::Relaxed);
        true
    }

    /// Takes over the keys of another window.
    pub(crate) fn copy_from(&self, other: &Ghosts<'_>) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Bits of a hash that name no window. Never 0, which is an empty lane.
fn fingerprint(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}
