//! Sequence numbers of live cursors, registered without a lock.
//!
//! A cursor writes its number into a free slot; a merge reads all slots. A slot holds the number plus one, or 0 if it is free. Threads
//! begin at different slots, so they rarely touch the same cache line. If all slots are taken, the caller registers the cursor elsewhere.
//!
//! All accesses that decide what a merge sees are SeqCst: see [`Snapshots::register_cursor`](super::Snapshots::register_cursor).

use tidesdb_sync::modelled::{AtomicU64, Ordering};
use tidesdb_sync::{CachePadded, thread_index};

use crate::types::SeqNo;

/// Groups of slots. Few in models and simulations, where each access is a switch point, and where cursors must find no free slot at times.
const GROUPS: usize = if cfg!(any(loom, simulated)) { 1 } else { 16 };
/// Slots of a group.
const SLOTS: usize = if cfg!(loom) {
    1
} else if cfg!(simulated) {
    3
} else {
    8
};
/// Birth of the cursor of a slot that is free or was just taken.
const UNBORN: u64 = u64::MAX;

/// Slots that share cache lines.
#[derive(Debug)]
struct Group {
    seqs: [AtomicU64; SLOTS],
    /// When each cursor was created, in milliseconds. For statistics only.
    born: [AtomicU64; SLOTS],
}

/// All slots of a database.
#[derive(Debug)]
pub(super) struct CursorSlots {
    groups: Box<[CachePadded<Group>]>,
}

/// Number of a slot.
#[derive(Debug)]
pub(super) struct Slot(usize);

impl Default for CursorSlots {
    fn default() -> Self {
        let group = || Group {
            seqs: std::array::from_fn(|_| AtomicU64::new(0)),
            born: std::array::from_fn(|_| AtomicU64::new(UNBORN)),
        };
        Self { groups: (0..GROUPS).map(|_| CachePadded::new(group())).collect() }
    }
}

impl CursorSlots {
    /// Takes a free slot for a cursor at `seq` that was created at `born`; `None` if there is none.
    pub(super) fn take(&self, seq: SeqNo, born: u64) -> Option<Slot> {
        let first = thread_index() % GROUPS;
        for group in (first..GROUPS).chain(0..first) {
            for (n, slot) in self.groups[group].seqs.iter().enumerate() {
                if slot.load(Ordering::Relaxed) == 0
                    && slot.compare_exchange(0, seq + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
                {
                    self.groups[group].born[n].store(born, Ordering::Relaxed);
                    return Some(Slot(group * SLOTS + n));
                }
            }
        }
        None
    }

    /// Sets the number of a slot that was taken.
    pub(super) fn set(&self, slot: &Slot, seq: SeqNo) {
        self.groups[slot.0 / SLOTS].seqs[slot.0 % SLOTS].store(seq + 1, Ordering::SeqCst);
    }

    /// Frees a slot.
    pub(super) fn free(&self, slot: &Slot) {
        let (group, n) = (&self.groups[slot.0 / SLOTS], slot.0 % SLOTS);
        group.born[n].store(UNBORN, Ordering::Relaxed);
        group.seqs[n].store(0, Ordering::Release);
    }

    /// The number of each cursor, and when it was created.
    pub(super) fn all(&self) -> impl Iterator<Item = (SeqNo, u64)> {
        let slots = self.groups.iter().flat_map(|group| group.seqs.iter().zip(&group.born));
        slots.filter_map(|(seq, born)| {
            let seq = seq.load(Ordering::SeqCst).checked_sub(1)?;
            Some((seq, born.load(Ordering::Relaxed)))
        })
    }
}
