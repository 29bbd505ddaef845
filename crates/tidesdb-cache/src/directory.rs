//! [`Directory`]: the chunks of a table, and [`Ghosts`]: fingerprints of the keys that recently left a window.

use crate::slot::{CHUNK, Chunk, Window};
use crate::sync::{HintU64, Ordering, PlainArc};

/// The chunks of a table, in order.
pub(crate) struct Directory<V: Send + Sync + 'static>(Box<[PlainArc<Chunk<V>>]>);

impl<V: Send + Sync + 'static> Directory<V> {
    /// Creates a directory of one chunk.
    pub(crate) fn new() -> Self {
        Directory(Box::new([Chunk::empty()]))
    }

    pub(crate) fn windows(&self) -> usize {
        self.0.len() * CHUNK
    }

    /// Returns window `index`, or `None` if there is none.
    #[inline]
    pub(crate) fn window(&self, index: usize) -> Option<&Window<V>> {
        self.0.get(index / CHUNK).map(|chunk| &chunk.windows[index % CHUNK])
    }

    /// Returns the ghosts of window `index`.
    pub(crate) fn ghosts(&self, index: usize) -> Option<Ghosts<'_>> {
        self.0.get(index / CHUNK).map(|chunk| Ghosts(&chunk.ghosts[index % CHUNK]))
    }

    /// Returns a directory of `chunks` chunks: the existing ones, followed by new empty ones.
    pub(crate) fn resized(&self, chunks: usize) -> Self {
        let known = self.0.iter().take(chunks).cloned();
        Directory(known.chain(std::iter::repeat_with(Chunk::empty)).take(chunks).collect())
    }
}

/// Fingerprints of the last four keys that left a window without enough hits, the newest in the lowest bits.
/// Lost updates and equal fingerprints of distinct keys are harmless.
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

    /// Adds a key in place of the oldest one.
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

    /// Copies the keys of another window.
    pub(crate) fn copy_from(&self, other: &Ghosts<'_>) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Hash bits that are not used to select a window. Never 0, which marks an empty lane.
fn fingerprint(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}
