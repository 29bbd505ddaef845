//! Stretches of keys in which a reader has found no row: it passes them once.
//!
//! What is deleted, has expired or is newer than a reader stays so for it, and a merge removes it only once no older reader is left. A
//! cursor that is held over many such keys passed all of them at each seek. So it notes now and then, at least once in [`LOOK_EVERY`] keys
//! that it passes in a row, the key that it has just passed: between two such keys of one walk there is no row. A later walk that has passed
//! as many keys looks for its place among the stretches, and goes on at the end of the one that it is in.

use std::cmp::Ordering;

use crate::types::Comparator;

/// Keys passed in a row before a walk looks for its place. Few in tests, which have few keys.
const LOOK_EVERY: u32 = if cfg!(any(test, simulated)) { 4 } else { 64 };
/// Maximum number of stretches, and bytes that they take.
const STRETCHES_MAX: usize = 64;
const BYTES_MAX: usize = 64 << 10;

/// The keys that one walk has passed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed(u32);

impl Passed {
    /// Counts a key. Returns true if it is time to [look](DeadStretches::look) for the place.
    #[inline]
    pub(super) fn count(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(LOOK_EVERY)
    }

    /// Counts keys up to the next look.
    pub(super) fn count_many(&mut self) {
        self.0 = (self.0 / LOOK_EVERY + 1).wrapping_mul(LOOK_EVERY);
    }

    fn is_first_look(self) -> bool {
        self.0 == LOOK_EVERY
    }
}

/// Between `low` and `high`, without either, there is no row.
#[derive(Debug, Default)]
struct Stretch {
    low: Vec<u8>,
    high: Vec<u8>,
    /// Looks of the walks that have passed it.
    looks: u32,
}

impl Stretch {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.low.capacity() + self.high.capacity()
    }
}

/// What a reader at one sequence number has found out. Its time may only go on: what has expired stays so.
#[derive(Debug, Default)]
pub(super) struct DeadStretches {
    /// In order; none overlaps another one.
    all: Vec<Stretch>,
    /// What the last walk has passed, which is added when the next one begins.
    walk: Stretch,
    bytes: usize,
}

impl DeadStretches {
    /// Bytes that the stretches take.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that a walk, of which `passed` is the count, has just passed `key`, in which there is no row. Returns the key at which it can go
    /// on; a walk backwards at keys up to there.
    #[cold]
    #[inline(never)]
    pub(super) fn look(
        &mut self,
        order: &Comparator,
        key: &[u8],
        passed: Passed,
        backwards: bool,
    ) -> Option<&[u8]> {
        if passed.is_first_look() {
            self.end_walk(order);
            self.walk.low.extend_from_slice(key);
            self.walk.high.extend_from_slice(key);
        } else {
            let end = if backwards { &mut self.walk.low } else { &mut self.walk.high };
            end.clear();
            end.extend_from_slice(key);
        }
        self.walk.looks += 1;
        self.count_bytes();
        let at = self.all.partition_point(|stretch| order.compare(&stretch.high, key).is_le());
        let stretch =
            self.all.get(at).filter(|stretch| order.compare(&stretch.low, key) == Ordering::Less)?;
        Some(if backwards { &stretch.low } else { &stretch.high })
    }

    /// Notes that the walk forward of the last look has passed all keys before `key`.
    pub(super) fn pass_up_to(&mut self, key: &[u8]) {
        self.walk.high.clear();
        self.walk.high.extend_from_slice(key);
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        self.bytes = self.walk.bytes() + self.all.iter().map(Stretch::bytes).sum::<usize>();
    }

    /// Adds what the last walk has passed.
    fn end_walk(&mut self, order: &Comparator) {
        let mut walk = std::mem::take(&mut self.walk);
        if walk.looks > 0 && order.compare(&walk.low, &walk.high).is_lt() {
            // Where two of them only meet, there may be a row: the end of the one and, in an older version, the beginning of the other.
            let from = self.all.partition_point(|stretch| order.compare(&stretch.high, &walk.low).is_le());
            let rest = &self.all[from..];
            let to = from + rest.partition_point(|stretch| order.compare(&stretch.low, &walk.high).is_lt());
            for stretch in self.all.drain(from..to) {
                if order.compare(&stretch.low, &walk.low).is_lt() {
                    walk.low = stretch.low;
                }
                if order.compare(&stretch.high, &walk.high).is_gt() {
                    walk.high = stretch.high;
                }
                walk.looks = walk.looks.saturating_add(stretch.looks);
            }
            if walk.bytes() <= BYTES_MAX {
                self.all.insert(from, walk);
            }
            self.make_room();
        }
    }

    /// Forgets the stretches that were passed fastest, if there are too many. What was passed long ago counts less and less.
    fn make_room(&mut self) {
        let mut bytes: usize = self.all.iter().map(Stretch::bytes).sum();
        while self.all.len() > STRETCHES_MAX || bytes > BYTES_MAX {
            let least = self.all.iter().enumerate().min_by_key(|(_, stretch)| stretch.looks);
            let Some((least, _)) = least else { return };
            bytes -= self.all.remove(least).bytes();
            self.all.iter_mut().for_each(|stretch| stretch.looks /= 2);
        }
    }
}
