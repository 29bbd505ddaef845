//! [`Tree`]: a B+tree of keys whose nodes are locked optimistically.
//!
//! A reader checks each node's version before and after reading it (`lock.rs`), child after parent, and starts
//! again if a writer was in the way; it writes nothing. A writer descends the same way, splits full nodes on
//! its path (so a parent always has room), and locks one leaf to insert. Nodes are never merged or freed.
//!
//! Invariants: besides those of a node, all leaves are at level 0 and linked from `first` in key order; a
//! child's fences are the separators around it in its parent.
//! Threads: all methods may run concurrently. Locks are taken parent before child. No thread waits for a lock
//! while it holds another (it fails instead), so there is no deadlock.

mod lock;
mod words;
mod node;
mod search;
mod insert;
mod cursor;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ptr::NonNull;

use crate::record::RecordRef;
use crate::sync::{AtomicBool, AtomicPtr, Ordering, hint, unique_id};
pub(crate) use cursor::TreeCursor;
use lock::{Seen, VersionLock};
use node::{Node, NodeRef};

/// The B+tree; see the module documentation.
pub(crate) struct Tree {
    /// Guards `root`, as a parent's lock guards its children.
    anchor: VersionLock,
    root: AtomicPtr<Node>,
    /// The leftmost leaf; never changes. Owned, so that an empty tree needs no arena.
    first: NonNull<Node>,
    /// Whether a version was inserted after a newer one of its key: then no skip tells how many versions are older.
    late: AtomicBool,
    /// Distinguishes the append hints of different trees.
    id: u64,
}

// SAFETY: the pointers lead to nodes, which are Sync; `first` is owned and freed once.
unsafe impl Send for Tree {}
// SAFETY: shared access goes through atomics and version locks.
unsafe impl Sync for Tree {}

/// Selects the leaf to which a descent leads.
#[derive(Clone, Copy)]
enum LeafTarget<'k> {
    /// The leaf that holds this key, or would hold it.
    Key(&'k [u8]),
    /// The leaf that holds the greatest key less than this one.
    Before(&'k [u8]),
    /// The last leaf.
    Last,
}

/// The way to the leaf of a key: it leads there as long as the parent of the leaf does not change.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    parent: NodeRef<'a>,
    /// The version of the parent, at which it held the key.
    seen: Seen,
    /// Not read yet.
    leaf: NodeRef<'a>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let first = NonNull::from(Box::leak(Box::new(Node::new(0))));
        Tree {
            anchor: VersionLock::new(),
            root: AtomicPtr::new(first.as_ptr()),
            first,
            late: AtomicBool::new(false),
            id: unique_id(),
        }
    }

    /// Returns the newest version of `key` at or below `snapshot`.
    pub(crate) fn get(&self, key: &[u8], snapshot: u64) -> Option<RecordRef<'_>> {
        loop {
            let Some((leaf, seen)) = self.try_descend(LeafTarget::Key(key)) else { continue };
            let Some(place) = leaf.locate(key, seen) else { continue };
            match place.found {
                // The key was validated when it was found; versions that arrive later are above the snapshot.
                Some(newest) => return newest.visible_at(snapshot),
                None if leaf.lock.validate(seen) => return None,
                None => {}
            }
        }
    }

    /// Returns whether a version was inserted after a newer one of its key.
    pub(crate) fn has_late_versions(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first_leaf().meta().count == 0
    }

    fn first_leaf(&self) -> NodeRef<'_> {
        // SAFETY: created in `new` and freed in `drop`.
        unsafe { NodeRef::from_ptr(self.first.as_ptr()) }.expect("not null")
    }

    /// Returns the leaf for `target`, with the version at which that was true; `None` if a writer was in the
    /// way.
    #[inline]
    fn try_descend(&self, target: LeafTarget<'_>) -> Option<(NodeRef<'_>, Seen)> {
        let anchored = self.anchor.read();
        let mut node = self.root(anchored)?;
        let mut seen = node.lock.read();
        if !self.anchor.validate(anchored) {
            return None;
        }
        while node.meta().level > 0 {
            let index = match target {
                LeafTarget::Key(key) => {
                    let place = node.locate(key, seen)?;
                    place.index + usize::from(place.found.is_some())
                }
                LeafTarget::Before(key) => node.locate(key, seen)?.index,
                LeafTarget::Last => node.meta().count,
            };
            let child = node.child(index, seen)?;
            let child_seen = child.lock.read();
            if !node.lock.validate(seen) {
                return None;
            }
            (node, seen) = (child, child_seen);
        }
        Some((node, seen))
    }

    /// Finds the way to the leaf of `key` and prefetches that leaf, without waiting for it. `None` while this thread appends, because that
    /// needs no search, if the leaf is the root, or if a writer was in the way.
    pub(crate) fn find_way(&self, key: &[u8]) -> Option<Way<'_>> {
        if hint().0 == self.id {
            return None;
        }
        let anchored = self.anchor.read();
        let mut node = self.root(anchored)?;
        let (mut seen, mut level) = (node.lock.read(), node.meta().level);
        if level == 0 || !self.anchor.validate(anchored) {
            return None;
        }
        loop {
            let place = node.locate(key, seen)?;
            let child = node.child(place.index + usize::from(place.found.is_some()), seen)?;
            if level == 1 {
                child.fetch();
                return Some(Way { parent: node, seen, leaf: child });
            }
            let child_seen = child.lock.read();
            if !node.lock.validate(seen) {
                return None;
            }
            (node, seen) = (child, child_seen);
            level = node.meta().level;
        }
    }

    fn root(&self, anchored: Seen) -> Option<NodeRef<'_>> {
        let root = self.root.load(Ordering::Relaxed);
        if !self.anchor.validate(anchored) {
            return None;
        }
        // SAFETY: the version did not change, so this is a node that a writer stored here, initialized before it was stored.
        unsafe { NodeRef::from_ptr(root) }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: leaked from a Box in `new`; nothing borrows the tree any more. All other nodes belong to the
        // arena.
        drop(unsafe { Box::from_raw(self.first.as_ptr()) });
    }
}
