//! [`SkipList`]: a lock-free sorted list of keys with a chain of versions each.
//!
//! Each key has one tower, linked at `height` levels; its versions hang off `newest`. Nothing is ever unlinked,
//! so an insert is one compare-exchange per level, from the bottom up. After a lost race, the insert continues
//! the search from the same predecessor.
//!
//! Invariants: the keys of each level ascend strictly; a tower linked at a level is linked at every level
//! below; a linked tower has at least one version.
//! Threads: all methods may run concurrently. Towers and records are published by Release and reached by
//! Acquire.
//!
//! The height of a tower is a keyed hash of its key. So it needs no thread state and no shared generator, the
//! same keys and seed give the same list, and users who choose keys cannot predict heights without the seed.

mod cursor;
#[cfg(all(test, not(loom)))]
mod tests;
mod tower;

use std::cmp::Ordering as Order;
use std::ptr;
use std::sync::Arc;

use crate::arena::Arena;
use crate::order::CompareFn;
use crate::record::{MemtableFull, RecordRef};
use crate::sync::{AtomicPtr, Ordering};
pub(crate) use cursor::SkipListCursor;
use tower::{Tower, TowerRef};

/// Number of levels: enough for 4^20 keys. A model needs one level above the bottom.
const MAX_HEIGHT: usize = if cfg!(loom) { 2 } else { 20 };

/// See the module documentation.
pub(crate) struct SkipList {
    /// The first tower of each level.
    heads: [AtomicPtr<Tower>; MAX_HEIGHT],
    compare: Arc<CompareFn>,
    seed: u64,
}

/// The position of a missing key: its neighbours at each level. `None` is an end of the list.
struct Splice<'a> {
    before: [Option<TowerRef<'a>>; MAX_HEIGHT],
    after: [Option<TowerRef<'a>>; MAX_HEIGHT],
}

impl SkipList {
    pub(crate) fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        (self.compare)(a, b).is_lt()
    }

    pub(crate) fn new(compare: Arc<CompareFn>, seed: u64) -> Self {
        SkipList { heads: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())), compare, seed }
    }

    /// Inserts a private record of `arena`.
    pub(crate) fn insert<'a>(&'a self, arena: &'a Arena, record: RecordRef<'a>) -> Result<(), MemtableFull> {
        let mut splice = Splice { before: [None; MAX_HEIGHT], after: [None; MAX_HEIGHT] };
        if let Some(tower) = self.locate(record.key(), &mut splice) {
            tower.add_version(record, arena);
            return Ok(());
        }
        let height = self.height_of(record.key());
        let tower = TowerRef::create(arena, record, height)?;
        for level in 0..height {
            if let Some(same) = self.link(tower, level, &mut splice) {
                // Another thread inserted the key in between; the new tower stays unused.
                same.add_version(record, arena);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the newest version of `key` at or below `snapshot`.
    pub(crate) fn get(&self, key: &[u8], snapshot: u64) -> Option<RecordRef<'_>> {
        match self.search(key) {
            (_, Some(tower), true) => tower.newest().visible_at(snapshot),
            _ => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next(None, 0).is_none()
    }

    /// Links `tower` at `level` between its neighbours. At the bottom level, returns the tower that already has
    /// its key, if any.
    fn link<'a>(
        &'a self,
        tower: TowerRef<'a>,
        level: usize,
        splice: &mut Splice<'a>,
    ) -> Option<TowerRef<'a>> {
        loop {
            let (before, after) = (splice.before[level], splice.after[level]);
            let expected = after.map_or(ptr::null_mut(), TowerRef::as_ptr);
            tower.set_next(level, expected);
            let link = self.link_of(before, level);
            // Release: publishes the tower and its record.
            if link.compare_exchange(expected, tower.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok() {
                return None;
            }
            let (before, after, same) = self.walk_level(before, level, tower.key());
            if same {
                debug_assert_eq!(level, 0, "only one tower of a key passes the bottom");
                return after;
            }
            (splice.before[level], splice.after[level]) = (before, after);
        }
    }

    /// Returns the tower of `key`. If there is none, `splice` holds the position where it belongs.
    fn locate<'a>(&'a self, key: &[u8], splice: &mut Splice<'a>) -> Option<TowerRef<'a>> {
        let mut before = None;
        for level in (0..MAX_HEIGHT).rev() {
            let (left, right, same) = self.walk_level(before, level, key);
            if same {
                return right;
            }
            (splice.before[level], splice.after[level]) = (left, right);
            before = left;
        }
        None
    }

    /// Returns the last tower whose key is before `key`, the next one, and whether the latter has `key` itself.
    fn search(&self, key: &[u8]) -> (Option<TowerRef<'_>>, Option<TowerRef<'_>>, bool) {
        let mut before = None;
        for level in (1..MAX_HEIGHT).rev() {
            before = self.walk_level(before, level, key).0;
        }
        self.walk_level(before, 0, key)
    }

    /// Scans one level from `before`, whose key is less. Returns the last tower with a lesser key, the next
    /// one, and whether the latter has `key` itself.
    fn walk_level<'a>(
        &'a self,
        mut before: Option<TowerRef<'a>>,
        level: usize,
        key: &[u8],
    ) -> (Option<TowerRef<'a>>, Option<TowerRef<'a>>, bool) {
        loop {
            let Some(next) = self.next(before, level) else { return (before, None, false) };
            match (self.compare)(next.key(), key) {
                Order::Less => before = Some(next),
                order => return (before, Some(next), order.is_eq()),
            }
        }
    }

    /// Returns the last tower of the list.
    fn last(&self) -> Option<TowerRef<'_>> {
        let mut last = None;
        for level in (0..MAX_HEIGHT).rev() {
            while let Some(next) = self.next(last, level) {
                last = Some(next);
            }
        }
        last
    }

    /// Returns the tower after `before` at `level`; the first one if `before` is `None`.
    #[inline]
    fn next<'a>(&'a self, before: Option<TowerRef<'a>>, level: usize) -> Option<TowerRef<'a>> {
        let next = self.link_of(before, level).load(Ordering::Acquire);
        // SAFETY: links hold towers created by `insert` in an arena that outlives the list's users; Acquire
        // pairs with the Release that linked them.
        unsafe { TowerRef::from_ptr(next) }
    }

    #[inline]
    fn link_of<'a>(&'a self, before: Option<TowerRef<'a>>, level: usize) -> &'a AtomicPtr<Tower> {
        before.map_or(&self.heads[level], |tower| tower.link(level))
    }

    /// Returns height 1 with probability 3/4, 2 with 3/16, and so on.
    fn height_of(&self, key: &[u8]) -> usize {
        let mut hash = self.seed ^ (key.len() as u64);
        for part in key.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            hash = fold(hash ^ u64::from_le_bytes(word));
        }
        let hash = fold(hash ^ 0x9E37_79B9_7F4A_7C15);
        (1 + hash.trailing_zeros() as usize / 2).min(MAX_HEIGHT)
    }
}

/// Mixes the two halves of a 128-bit product: after two rounds, every input bit affects every output bit.
fn fold(x: u64) -> u64 {
    let product = u128::from(x ^ 0xA076_1D64_78BD_642F) * 0xE703_7ED1_A0B4_28DB;
    (product as u64) ^ ((product >> 64) as u64)
}
