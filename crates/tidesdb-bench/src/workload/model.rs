//! The expected contents of the database, computed from the row alone after the timed part.

use super::Bench;
use super::transaction::Counted;
use crate::keys::{Pattern, Stream};
use crate::verify::Summary;

/// Expected contents of the database, in a form that is evaluated after the timed part.
#[derive(Clone, Debug)]
pub enum Model {
    /// The initial contents.
    Filled,
    /// The keys written by this many puts of each thread.
    Written(Vec<u64>),
    /// The initial contents without the keys deleted by this many deletes of each thread.
    Deleted(Vec<u64>),
    /// The initial contents and this many new keys of each thread.
    Inserted(Vec<u64>),
    /// The initial contents, each key with its counter.
    Counted(Counted),
    /// The initial contents, with each key overwritten this many times, and once more those keys that each thread
    /// reached in this many steps of its sweep.
    Rewritten(u32, Vec<u64>),
    /// The initial contents, overwritten by this many drawn puts of each thread, whose versions are their positions.
    Drawn(Vec<u64>),
    /// The contents of each family after this many puts; compared by [`Bench::verify_families`].
    Families(Vec<u64>),
    /// Contents that are known already.
    Known(Summary),
}

/// What is known about the order of keys.
pub(super) enum Order {
    /// Only that keys ascend.
    Unknown,
    /// Identities are consecutive, up to this last one.
    Consecutive(u64),
    /// All identities, sorted.
    Sorted(Vec<u64>),
}

impl Order {
    /// Returns how many rows a range of `limit` rows has from the key `id` on, if known.
    pub(super) fn rows(&self, id: u64, limit: u64) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Consecutive(last) => Some((last + 1).saturating_sub(id).min(limit)),
            Self::Sorted(ids) => Some(((ids.len() - ids.partition_point(|i| *i < id)) as u64).min(limit)),
        }
    }

    /// Returns true if `next` may be the next row after `id`.
    pub(super) fn follows(&self, id: u64, next: u64) -> bool {
        match self {
            Self::Unknown => next > id,
            Self::Consecutive(_) => next == id + 1,
            Self::Sorted(ids) => ids.get(ids.partition_point(|i| *i <= id)) == Some(&next),
        }
    }
}

/// A set of indexes.
struct Bits(Vec<u64>);

impl Bits {
    fn new(n: u64) -> Self {
        Self(vec![0; n.div_ceil(64) as usize])
    }

    fn set(&mut self, index: u64) {
        self.0[(index / 64) as usize] |= 1 << (index % 64);
    }

    fn clear(&mut self, index: u64) {
        self.0[(index / 64) as usize] &= !(1 << (index % 64));
    }

    fn has(&self, index: u64) -> bool {
        self.0.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.0.len() as u64 * 64).filter(|index| self.has(*index))
    }
}

impl Bench<'_> {
    /// Returns the order of keys in a filled database.
    pub(super) fn order(&self) -> Order {
        match self.spec.pattern {
            Pattern::Seq => Order::Consecutive(self.spec.population() - 1),
            Pattern::Reverse => Order::Consecutive(self.spec.population()),
            _ if self.spec.verify => {
                let mut ids: Vec<u64> = self.filled().iter().map(|i| self.keys.item(i).id).collect();
                ids.sort_unstable();
                ids.dedup();
                Order::Sorted(ids)
            }
            _ => Order::Unknown,
        }
    }

    /// Returns the indexes in a filled database.
    fn filled(&self) -> Bits {
        let share = self.spec.share();
        self.met(&vec![share; self.spec.threads], |thread| self.filling(thread))
    }

    /// Returns the indexes that the threads reached in this many steps.
    fn met(&self, steps: &[u64], stream: impl Fn(u64) -> Stream) -> Bits {
        let mut bits = Bits::new(self.spec.population());
        for (thread, steps) in steps.iter().enumerate() {
            let mut stream = stream(thread as u64);
            (0..*steps).for_each(|_| bits.set(stream.advance()));
        }
        bits
    }

    fn sum(&self, bits: &Bits) -> Summary {
        let mut all = Summary::default();
        for index in bits.iter().filter(|i| !self.keys.twin(*i).is_some_and(|twin| bits.has(twin))) {
            all.add(self.keys.item(index).id, self.spec.version);
        }
        all
    }

    /// Returns a summary of the expected contents.
    pub fn expected(&self, model: &Model) -> Summary {
        match model {
            Model::Filled => self.sum(&self.filled()),
            Model::Written(puts) => self.written(puts),
            Model::Deleted(deletes) => self.left(deletes),
            Model::Inserted(inserts) => {
                let mut all = self.sum(&self.filled());
                for (thread, inserts) in inserts.iter().enumerate() {
                    for n in 0..*inserts {
                        all.add(self.keys.item(self.inserted(thread as u64, n)).id, 0);
                    }
                }
                all
            }
            Model::Counted(counted) => {
                let mut all = Summary::default();
                for (index, version) in (0..).zip(counted.versions()) {
                    all.add(self.keys.item(index).id, version);
                }
                all
            }
            Model::Rewritten(times, steps) => {
                let again = self.met(steps, |thread| self.sweeping(thread));
                let mut all = Summary::default();
                for index in self.filled().iter() {
                    let version = self.spec.version + times + u32::from(again.has(index));
                    all.add(self.keys.item(index).id, version);
                }
                all
            }
            Model::Drawn(puts) => self.drawn(puts),
            Model::Families(_) => Summary::default(),
            Model::Known(all) => *all,
        }
    }

    /// Returns the index of the `n`th key inserted by a thread.
    pub(super) fn inserted(&self, thread: u64, n: u64) -> u64 {
        self.spec.population() + thread + n * self.spec.threads as u64
    }

    /// Returns the keys written by this many puts of each thread.
    fn written(&self, puts: &[u64]) -> Summary {
        if self.spec.pattern.is_drawn() {
            return self.sum(&self.met(puts, |thread| self.writing(thread)));
        }
        let share = self.spec.share();
        let has = |index: u64| puts.get((index / share) as usize).is_some_and(|puts| index % share < *puts);
        let mut all = Summary::default();
        for (thread, puts) in puts.iter().enumerate() {
            let first = thread as u64 * share;
            let indexes = first..first + puts.min(&share);
            for index in indexes.filter(|i| !self.keys.twin(*i).is_some_and(has)) {
                all.add(self.keys.item(index).id, 0);
            }
        }
        all
    }

    /// Returns the keys of a filled database that remain after this many deletes of each thread.
    fn left(&self, deletes: &[u64]) -> Summary {
        let mut bits = self.filled();
        let gone = self.met(deletes, |thread| self.writing(thread));
        gone.iter().for_each(|index| bits.clear(index));
        self.sum(&bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_return_row_counts_and_successors() {
        let sorted = Order::Sorted(vec![2, 5, 9]);
        assert_eq!((sorted.rows(5, 10), sorted.rows(2, 2), sorted.rows(10, 2)), (Some(2), Some(2), Some(0)));
        assert!(sorted.follows(2, 5) && !sorted.follows(2, 9) && !sorted.follows(9, 10));
        let row = Order::Consecutive(9);
        assert_eq!((row.rows(5, 10), row.rows(5, 3), row.rows(10, 3)), (Some(5), Some(3), Some(0)));
        assert!(row.follows(5, 6) && !row.follows(5, 7));
        assert!(Order::Unknown.follows(1, 7) && !Order::Unknown.follows(7, 7));
    }
}
