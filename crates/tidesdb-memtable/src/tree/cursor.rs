//! [`TreeCursor`]: a position in the tree, moved key by key over a copy of one leaf's slots.
//!
//! Copying a leaf costs about a nanosecond per entry. After that, a step needs no validation, and the next
//! records can be prefetched. Forwards, the next leaf is the one linked when the copy was made: a leaf's low
//! fence never changes, so it begins where the copy ended, whatever was split since. Backwards, the walk
//! descends from the root once per leaf.

use super::node::{FANOUT, NodeRef};
use super::{LeafTarget, Tree};
use crate::record::RecordRef;
use crate::walk::KeyCursor;

/// How many slots ahead the heads of records are prefetched: a cache miss takes as long as a dozen steps.
const AHEAD: usize = 12;
/// How many slots ahead the rest of records is prefetched; the head has its length.
const AHEAD_REST: usize = 5;

/// A position on a key or past an end.
pub(crate) struct TreeCursor<'a> {
    tree: &'a Tree,
    /// The newest versions of the leaf's keys when it was copied.
    slots: [Option<RecordRef<'a>>; FANOUT],
    count: usize,
    /// Index of the current slot; below `count` while the position is on a key.
    at: usize,
    /// The leaf after the copied one.
    next: Option<NodeRef<'a>>,
}

impl<'a> TreeCursor<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        TreeCursor { tree, slots: [None; FANOUT], count: 0, at: 0, next: None }
    }

    /// Copies the leaf for `target`. Returns the slot of `key` in it and whether that slot holds the key
    /// itself.
    fn enter(&mut self, target: LeafTarget<'_>, key: &[u8]) -> (usize, bool) {
        loop {
            let Some((leaf, seen)) = self.tree.try_descend(target) else { continue };
            let Some(place) = leaf.locate(key, seen) else { continue };
            let next = leaf.next_leaf(seen);
            if let Some(count) = leaf.copy_keys(&mut self.slots, seen) {
                (self.count, self.next) = (count, next);
                return (place.index, place.found.is_some());
            }
        }
    }

    /// Copies the current content of `leaf`.
    fn load(&mut self, leaf: NodeRef<'a>) {
        loop {
            let seen = leaf.lock.read();
            let next = leaf.next_leaf(seen);
            if let Some(count) = leaf.copy_keys(&mut self.slots, seen) {
                (self.count, self.next, self.at) = (count, next, 0);
                return;
            }
        }
    }

    /// Moves to slot `at`, or to the first key of the following leaves.
    fn settle_forwards(&mut self, at: usize) {
        self.at = at;
        while self.at >= self.count {
            let Some(next) = self.next else {
                self.count = 0;
                return;
            };
            self.load(next);
            // Their heads were prefetched from the leaf before. After a seek they were not, so a prefetch here would only wait
            // for them.
            (0..=AHEAD_REST).for_each(|i| self.fetch_rest(i));
        }
        self.fetch_first();
    }

    /// Moves to the slot before `end`. There is one unless the copied leaf is the first.
    fn settle_backwards(&mut self, end: usize) {
        match end.checked_sub(1) {
            Some(at) => self.at = at,
            None => self.count = 0,
        }
    }

    /// Prefetches the first records of a forward iteration, and the next leaf.
    fn fetch_first(&self) {
        for i in self.at + 1..=self.at + AHEAD {
            self.fetch_slot(i);
        }
        if let Some(next) = self.next {
            next.fetch();
        }
    }

    /// Prefetches the record in slot `i`, which may be in the next leaf.
    #[inline]
    fn fetch_slot(&self, i: usize) {
        if i < self.count {
            if let Some(Some(record)) = self.slots.get(i) {
                RecordRef::fetch_head(record.as_ptr());
            }
        } else if let Some(next) = self.next {
            RecordRef::fetch_head(next.hint_of_key(i - self.count));
        }
    }

    /// Prefetches the rest of the record in slot `i`, if that is in this leaf.
    #[inline]
    fn fetch_rest(&self, i: usize) {
        if let Some(Some(record)) = self.slots[..self.count].get(i) {
            record.fetch_rest();
        }
    }
}

impl<'a> KeyCursor<'a> for TreeCursor<'a> {
    fn first(&mut self) {
        self.load(self.tree.first_leaf());
        self.settle_forwards(0);
    }

    fn last(&mut self) {
        loop {
            let Some((leaf, seen)) = self.tree.try_descend(LeafTarget::Last) else { continue };
            if let Some(count) = leaf.copy_keys(&mut self.slots, seen) {
                (self.count, self.next) = (count, None);
                return self.settle_backwards(count);
            }
        }
    }

    fn at_or_after(&mut self, key: &[u8]) -> bool {
        let (index, found) = self.enter(LeafTarget::Key(key), key);
        self.settle_forwards(index);
        found
    }

    fn at_or_before(&mut self, key: &[u8]) -> bool {
        let (index, found) = self.enter(LeafTarget::Key(key), key);
        self.settle_backwards(index + usize::from(found));
        found
    }

    #[inline]
    fn after(&mut self) {
        let at = self.at + 1;
        if at >= self.count {
            return self.settle_forwards(at);
        }
        self.at = at;
        self.fetch_slot(at + AHEAD);
        self.fetch_rest(at + AHEAD_REST);
    }

    fn before(&mut self) {
        if self.at > 0 {
            self.at -= 1;
            return;
        }
        let Some(first) = self.newest() else { return };
        let (index, _) = self.enter(LeafTarget::Before(first.key()), first.key());
        self.settle_backwards(index);
    }

    #[inline]
    fn newest(&self) -> Option<RecordRef<'a>> {
        self.slots[..self.count].get(self.at).copied().flatten()
    }
}
