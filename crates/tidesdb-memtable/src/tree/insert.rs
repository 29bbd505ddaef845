//! Inserting into the tree: descent, splits, and the append hint.
//!
//! Threads: see the tree. A step that meets another writer gives up, holding no lock, and the insert starts
//! again from the root.

use std::cmp::Ordering as Order;

use super::lock::{Locked, Seen, VersionLock};
use super::node::{FANOUT, NodeRef};
use super::{Tree, Way};
use crate::arena::Arena;
use crate::record::{MemtableFull, RecordRef};
use crate::sync::{Ordering, hint, last_place, set_hint, set_last_place};

/// Result of one attempt to insert.
enum Attempt {
    Done,
    /// Another writer was in the way, or the tree changed on the way down: start again.
    Again,
}

/// The parent of a node, or the anchor of the tree for the root.
#[derive(Clone, Copy)]
struct Above<'a> {
    lock: &'a VersionLock,
    seen: Seen,
    parent: Option<NodeRef<'a>>,
}

impl Tree {
    /// Inserts a private record of `arena`. All inserts into a tree must use the same arena.
    #[inline]
    pub(crate) fn insert<'a>(&'a self, arena: &'a Arena, record: RecordRef<'a>) -> Result<(), MemtableFull> {
        if self.try_append(record) {
            return Ok(());
        }
        loop {
            if let Attempt::Done = self.try_insert(arena, record)? {
                return Ok(());
            }
        }
    }

    /// Like [`Self::insert`], by the way to the leaf that [`Self::find_way`] found for the key of the record.
    #[inline]
    pub(crate) fn insert_along<'a>(
        &'a self,
        arena: &'a Arena,
        way: Way<'a>,
        record: RecordRef<'a>,
    ) -> Result<(), MemtableFull> {
        match self.try_insert_along(arena, way, record) {
            Attempt::Done => Ok(()),
            Attempt::Again => self.insert(arena, record),
        }
    }

    #[inline]
    fn try_insert_along<'a>(&'a self, arena: &'a Arena, way: Way<'a>, record: RecordRef<'a>) -> Attempt {
        let leaf_seen = way.leaf.lock.read();
        // If the parent is unchanged, it still leads to this leaf. A full leaf may need a full parent to be split first.
        if !way.parent.lock.validate(way.seen) || way.leaf.meta().count >= FANOUT {
            return Attempt::Again;
        }
        self.try_insert_in_leaf(arena, way.leaf, leaf_seen, record)
    }

    fn try_insert<'a>(&'a self, arena: &'a Arena, record: RecordRef<'a>) -> Result<Attempt, MemtableFull> {
        let anchored = self.anchor.read();
        let Some(mut node) = self.root(anchored) else { return Ok(Attempt::Again) };
        let mut above = Above { lock: &self.anchor, seen: anchored, parent: None };
        let mut seen = node.lock.read();
        if !above.lock.validate(above.seen) {
            return Ok(Attempt::Again);
        }
        loop {
            let meta = node.meta();
            if meta.count >= FANOUT {
                self.try_split(arena, above, (node, seen), record.key())?;
                return Ok(Attempt::Again);
            }
            if meta.level == 0 {
                return Ok(self.try_insert_in_leaf(arena, node, seen, record));
            }
            let Some((child, child_seen)) = step_down(node, seen, record.key()) else {
                return Ok(Attempt::Again);
            };
            above = Above { lock: &node.node().lock, seen, parent: Some(node) };
            (node, seen) = (child, child_seen);
        }
    }

    fn try_insert_in_leaf<'a>(
        &'a self,
        arena: &'a Arena,
        leaf: NodeRef<'a>,
        seen: Seen,
        record: RecordRef<'a>,
    ) -> Attempt {
        let Some(place) = leaf.locate(record.key(), seen) else { return Attempt::Again };
        // If this succeeds, the version is unchanged, so the place is right and the leaf is not full.
        let Some(locked) = leaf.lock.try_lock(seen) else { return Attempt::Again };
        match place.found {
            Some(newest) if newest.seq() > record.seq() => {
                if !self.late.load(Ordering::Relaxed) {
                    self.late.store(true, Ordering::Relaxed);
                }
                if newest.link_older_alone(record) {
                    arena.uncount();
                }
            }
            Some(newest) => {
                // A batch that puts one key a hundred times leaves one version.
                let superseded = record.put_on_alone(newest, arena);
                leaf.replace_key(place.index, record);
                if superseded {
                    arena.uncount();
                }
            }
            None => {
                let last = place.index == leaf.meta().count;
                leaf.insert_key(place.index, record);
                drop(locked);
                set_last_place((leaf.as_ptr().addr(), place.index));
                self.remember(last.then_some(leaf));
            }
        }
        Attempt::Done
    }

    /// Splits a full node, if nothing changed since `above.seen` and `seen` were read.
    #[cold]
    fn try_split<'a>(
        &'a self,
        arena: &'a Arena,
        above: Above<'a>,
        (node, seen): (NodeRef<'a>, Seen),
        key: &[u8],
    ) -> Result<(), MemtableFull> {
        let Some(above_locked) = above.lock.try_lock(above.seen) else { return Ok(()) };
        let Some(node_locked) = node.lock.try_lock(seen) else { return Ok(()) };
        let level = node.meta().level;
        // Allocates all memory before the first change, so that a split happens completely or not at all.
        let right = if level == 0 { NodeRef::leaf(arena)? } else { NodeRef::inner(arena, level)? };
        let parent = match above.parent {
            Some(parent) => parent,
            None => NodeRef::inner(arena, level + 1)?,
        };
        let separator = node.split(right, split_point(node, &node_locked, key));
        if above.parent.is_some() {
            // Its lock is held, so locating cannot fail; the separator is not in the parent yet.
            let place = parent.locate(separator.key(), above_locked.seen());
            parent.insert_child(place.expect("the parent is locked").index, separator, right);
        } else {
            parent.set_first_child(node);
            parent.insert_child(0, separator, right);
            self.root.store(parent.as_ptr(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Appends to the leaf of this thread's last append, if the key belongs at its end.
    #[inline]
    fn try_append<'a>(&'a self, record: RecordRef<'a>) -> bool {
        let (id, address) = hint();
        if id != self.id {
            return false;
        }
        // SAFETY: this thread stored the address together with the id of this tree, so it points to a leaf of
        // the tree that this thread has accessed.
        let leaf = unsafe { NodeRef::from_ptr(address.cast()) };
        leaf.is_some_and(|leaf| append(leaf, record).is_some())
    }

    /// Keeps the hint only while this thread appends, so that it does not slow other loads down.
    #[inline]
    fn remember(&self, appended: Option<NodeRef<'_>>) {
        match appended {
            Some(leaf) => set_hint((self.id, leaf.as_ptr().cast())),
            None if hint().0 == self.id => set_hint((0, std::ptr::null_mut())),
            None => {}
        }
    }
}

/// Appends to `leaf` if it has room and the key is between its last key and its high fence.
#[inline]
fn append<'a>(leaf: NodeRef<'a>, record: RecordRef<'a>) -> Option<()> {
    let seen = leaf.lock.try_read()?;
    let count = leaf.meta().count;
    if count == 0 || count >= FANOUT {
        return None;
    }
    let last = leaf.key(count - 1, seen)?;
    if last.key().cmp(record.key()) != Order::Less {
        return None;
    }
    let below_high = match leaf.high(seen) {
        Ok(Some(high)) => record.key() < high.key(),
        Ok(None) => true,
        Err(()) => false,
    };
    if !below_high {
        return None;
    }
    let _locked = leaf.lock.try_lock(seen)?;
    leaf.insert_key(count, record);
    Some(())
}

/// Returns the child for `key` and its version; `None` if a writer was in the way.
#[inline]
fn step_down<'a>(node: NodeRef<'a>, seen: Seen, key: &[u8]) -> Option<(NodeRef<'a>, Seen)> {
    let place = node.locate(key, seen)?;
    let child = node.child(place.index + usize::from(place.found.is_some()), seen)?;
    if node.meta().level == 1 {
        // The insert likely moves its slots, so all their cache lines are fetched at once, not one after
        // another.
        child.fetch();
    }
    let child_seen = child.lock.read();
    node.lock.validate(seen).then_some((child, child_seen))
}

/// Returns the first slot that moves to the right. This is the middle, but a leaf that grows at an end is split
/// there, so ascending and descending loads leave full leaves. The same holds for a thread that inserts
/// ascending keys between those of other threads: the existing larger keys move to the right, and the thread
/// goes on at the end of its leaf.
fn split_point(node: NodeRef<'_>, locked: &Locked<'_>, key: &[u8]) -> usize {
    if node.meta().level > 0 {
        return FANOUT / 2;
    }
    match node.locate(key, locked.seen()).map(|place| place.index) {
        Some(0) => 1,
        Some(FANOUT) => FANOUT - 1,
        Some(index) if last_place() == (node.as_ptr().addr(), index - 1) => index,
        _ => FANOUT / 2,
    }
}
