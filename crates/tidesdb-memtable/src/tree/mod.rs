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
use crate::sync::{AtomicPtr, Ordering, hint, unique_id};
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

impl Tree {
    pub(crate) fn new() -> Tree {
        let first = NonNull::from(Box::leak(Box::new(Node::new(0))));
        Tree { anchor: VersionLock::new(), root: AtomicPtr::new(first.as_ptr()), first, id: unique_id() }
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

    /// Prefetches the leaf to which `key` belongs. Does nothing while this thread appends, because that needs no search.
    pub(crate) fn fetch_leaf(&self, key: &[u8]) {
        if hint().0 != self.id
            && let Some(leaf) = self.try_find_leaf(key)
        {
            leaf.fetch();
        }
    }

    /// Returns the leaf to which `key` belonged a moment ago, unread; `None` if it is the root or a writer was in the way.
    fn try_find_leaf(&self, key: &[u8]) -> Option<NodeRef<'_>> {
        let mut node = self.root(self.anchor.read())?;
        loop {
            let (seen, level) = (node.lock.read(), node.meta().level);
            if level == 0 {
                return None;
            }
            let place = node.locate(key, seen)?;
            let child = node.child(place.index + usize::from(place.found.is_some()), seen)?;
            if level == 1 {
                return Some(child);
            }
            node = child;
        }
    }

    fn root(&self, anchored: Seen) -> Option<NodeRef<'_>> {
        let root = self.root.load(Ordering::Relaxed);
        if !self.anchor.validate(anchored) {
            return None;
        }
        // SAFETY: validated, so this is a node that a writer stored here, created before that.
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
