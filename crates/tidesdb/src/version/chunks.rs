//! A sequence in chunks that its successors share.
//!
//! A clone copies one pointer per chunk. A change copies the chunk that it changes. So a version of 40,000 tables costs its successor
//! some hundreds of pointers, and not 40,000.

use std::sync::Arc;

/// Maximum number of elements of a chunk.
const CHUNK_MAX: usize = 128;

/// Elements in an order that the caller keeps.
#[derive(Clone, Debug)]
pub(super) struct Chunks<V>(Vec<Arc<Vec<V>>>);

/// Position of an element, or of the end of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) chunk: usize,
    pub(super) at: usize,
}

impl<V> Default for Chunks<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> Chunks<V> {
    /// The chunks; none is empty.
    #[inline]
    pub(super) fn chunks(&self) -> &[Arc<Vec<V>>] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.0.iter().flat_map(|chunk| chunk.iter())
    }

    /// The elements from `from` on.
    pub(super) fn iter_from(&self, from: Position) -> impl Iterator<Item = &V> {
        let chunks = self.0.get(from.chunk..).unwrap_or_default();
        chunks.iter().flat_map(|chunk| chunk.iter()).skip(from.at)
    }

    #[inline]
    pub(super) fn get(&self, position: Position) -> Option<&V> {
        self.0.get(position.chunk)?.get(position.at)
    }

    /// Position of the first element for which `is_before` is false; it must be true for those in front of it only.
    pub(super) fn find(&self, is_before: impl Fn(&V) -> bool) -> Position {
        let chunk = self.0.partition_point(|chunk| chunk.last().is_some_and(&is_before));
        let at = self.0.get(chunk).map_or(0, |chunk| chunk.partition_point(&is_before));
        Position { chunk, at }
    }
}

impl<V: Clone> Chunks<V> {
    /// Inserts `element` at `position`, as [`Chunks::find`] returns it.
    pub(super) fn insert(&mut self, mut position: Position, element: V) {
        if position.chunk == self.0.len() {
            match self.0.last() {
                Some(last) => position = Position { chunk: position.chunk - 1, at: last.len() },
                None => self.0.push(Arc::default()),
            }
        }
        let chunk = Arc::make_mut(&mut self.0[position.chunk]);
        chunk.insert(position.at, element);
        if chunk.len() > CHUNK_MAX {
            // Elements that are added in order leave full chunks.
            let is_last = position.at + 1 == chunk.len();
            let rest = chunk.split_off(if is_last { position.at } else { chunk.len() / 2 });
            self.0.insert(position.chunk + 1, Arc::new(rest));
        }
    }

    /// Removes and returns the element at `position`.
    pub(super) fn remove(&mut self, position: Position) -> V {
        let Position { chunk, at } = position;
        let changed = Arc::make_mut(&mut self.0[chunk]);
        let element = changed.remove(at);
        let left = changed.len();
        if left == 0 {
            self.0.remove(chunk);
        } else if left < CHUNK_MAX / 4 {
            self.join(chunk);
            self.join(chunk.wrapping_sub(1));
        }
        element
    }

    /// Joins the chunk with the next one if they are small.
    fn join(&mut self, chunk: usize) {
        let (Some(a), Some(b)) = (self.0.get(chunk), self.0.get(chunk.wrapping_add(1))) else { return };
        if a.len() + b.len() <= CHUNK_MAX / 2 {
            let next = self.0.remove(chunk + 1);
            Arc::make_mut(&mut self.0[chunk]).extend(next.iter().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(n: u32) -> Chunks<u32> {
        let mut all = Chunks::default();
        (0..n).for_each(|i| all.insert(all.find(|v| *v < i), i));
        all
    }

    /// Number of chunks of `new` that `old` lacks.
    fn fresh(old: &Chunks<u32>, new: &Chunks<u32>) -> usize {
        let known = |chunk: &&Arc<Vec<u32>>| !old.0.iter().any(|o| Arc::ptr_eq(o, chunk));
        new.0.iter().filter(known).count()
    }

    #[test]
    fn a_change_shares_all_other_chunks() {
        let old = numbers(10_000);
        assert_eq!((old.iter().count(), old.0.len()), (10_000, 10_000_usize.div_ceil(CHUNK_MAX)));
        let mut new = old.clone();
        assert_eq!(new.remove(new.find(|v| *v < 5000)), 5000);
        assert_eq!((fresh(&old, &new), new.iter().count(), old.iter().count()), (1, 9999, 10_000));
        new.insert(new.find(|v| *v < 5000), 5000);
        assert!(new.iter().eq(old.iter()) && fresh(&old, &new) == 1);
        new.insert(new.find(|v| *v < 20_000), 20_000);
        assert_eq!(fresh(&old, &new), 2);
    }

    proptest! {
        #[test]
        fn like_a_sorted_vector(
            changes in prop::collection::vec(0..400_u32, 1..1500),
            probe in 0..400_u32,
        ) {
            let (mut chunks, mut sorted) = (numbers(300), (0..300).collect::<Vec<u32>>());
            for n in &changes {
                let (position, at) = (chunks.find(|v| v < n), sorted.partition_point(|v| v < n));
                if sorted.get(at) == Some(n) {
                    prop_assert_eq!(chunks.remove(position), sorted.remove(at));
                } else {
                    chunks.insert(position, *n);
                    sorted.insert(at, *n);
                }
            }
            prop_assert!(chunks.iter().eq(&sorted) && chunks.iter().rev().eq(sorted.iter().rev()));
            prop_assert_eq!(chunks.is_empty(), sorted.is_empty());
            prop_assert!(chunks.0.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_MAX));
            prop_assert!(chunks.0.len() <= 2 + sorted.len() / (CHUNK_MAX / 8));
            let (position, at) = (chunks.find(|v| *v < probe), sorted.partition_point(|v| *v < probe));
            prop_assert_eq!(chunks.get(position), sorted.get(at));
            prop_assert!(chunks.iter_from(position).eq(&sorted[at..]));
        }
    }
}
