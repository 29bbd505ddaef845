//! [`UndoMap`]: the writes of a transaction in key order, of which the latest can be undone.
//!
//! Nothing is ever removed from a memtable. To undo the writes of a key, a record of kind [`UNDONE`] is added on top of them. It says
//! which older version of the key is in force again, or that none is. So an undone write costs one more record, and a reader passes
//! any number of undone versions of a key by one jump. The owner counts what was undone and builds a new map in time.
//!
//! Every version has a [stamp](stamp): the number of rollbacks before it, then the number of its operation in the batch. Stamps only
//! grow. The operations that a rollback removes are those whose number is too large. Range deletes have stamps, too, and hide the versions
//! with smaller ones from a cursor; they are not in the map.
//!
//! Threads: the transaction changes the map; cursors on other threads may read it meanwhile. They see each key as it was before
//! or after a change.

use std::sync::Arc;

use tidesdb_memtable::{Cursor, Entry, Memtable, MemtableFull, Version};

use crate::ranges::{Cover, Covered};
use crate::types::{Comparator, Kind, SEQ_MAX};

/// Kind of a record that undoes versions of its key. Its value is the stamp of the version that is in force again, or empty.
const UNDONE: u8 = 0;
/// Bits of a stamp for the number of the operation.
const OP_BITS: u32 = u32::BITS;
/// Number of rollbacks that stamps can count.
pub const ROLLBACKS_MAX: u64 = SEQ_MAX >> OP_BITS;
/// Memory of a record and of its place in the map, besides its key and value, about.
pub const RECORD_BYTES: usize = 64;

/// Returns the stamp of operation `op` after `rollbacks` rollbacks.
pub fn stamp(rollbacks: u64, op: u32) -> u64 {
    rollbacks << OP_BITS | u64::from(op)
}

fn op_of(stamp: u64) -> u32 {
    stamp as u32
}

/// The version that is in force again, according to a record that undoes others; `None` = no version is.
fn restored(undone: &Entry<'_>) -> Option<u64> {
    undone.value.try_into().ok().map(u64::from_le_bytes)
}

/// Versions of keys by stamp. Clones share the memtable.
#[derive(Clone, Debug)]
pub struct UndoMap(Arc<Memtable>);

impl UndoMap {
    /// Creates a map in `memtable`, which must be empty.
    pub fn new(memtable: Arc<Memtable>) -> Self {
        Self(memtable)
    }

    /// Adds a version of `key`, newer than all others.
    ///
    /// # Errors
    /// `MemtableFull`.
    pub fn insert(
        &self,
        key: &[u8],
        (stamp, kind, expiry): (u64, Kind, u64),
        value: &[u8],
    ) -> Result<(), MemtableFull> {
        self.0.insert(key, Version { seq: stamp, kind: kind as u8, expiry }, value)
    }

    /// Returns the newest version of `key` that was not undone.
    pub fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.live(key, SEQ_MAX)
    }

    /// Returns the newest version of `key` up to `stamp` that was not undone.
    fn live(&self, key: &[u8], stamp: u64) -> Option<Entry<'_>> {
        match self.0.get(key, stamp)? {
            undone if undone.kind == UNDONE => self.0.get(key, restored(&undone)?),
            live => Some(live),
        }
    }

    /// Undoes what the operations after number `kept` wrote to `key`. `stamp` is a new one.
    ///
    /// # Errors
    /// `MemtableFull`; nothing was undone.
    pub fn undo(&self, key: &[u8], kept: u32, stamp: u64) -> Result<(), MemtableFull> {
        let newest = self.get(key);
        let mut version = newest;
        while let Some(undone) = version.filter(|version| op_of(version.seq) > kept) {
            version = self.live(key, undone.seq - 1);
        }
        if newest.map(|newest| newest.seq) == version.map(|version| version.seq) {
            return Ok(());
        }
        let restored = version.map(|version| version.seq.to_le_bytes());
        let record = Version { seq: stamp, kind: UNDONE, expiry: 0 };
        self.0.insert(key, record, restored.as_ref().map_or(&[], <[u8; 8]>::as_slice))
    }

    /// Returns a cursor over the versions that were not undone and that no range delete of `deleted` hides, not yet positioned. The
    /// numbers of range deletes are stamps, too.
    pub fn cursor(&self, order: &Comparator, deleted: &Cover) -> UndoCursor {
        UndoCursor { inner: self.0.cursor(), deleted: Covered::new(order, deleted) }
    }
}

/// Iterates over the versions that are in force: forward as a memtable's cursor, backward over the newest version of each key.
pub struct UndoCursor {
    inner: Cursor,
    deleted: Option<Box<Covered>>,
}

impl UndoCursor {
    /// Moves to the newest version of the first key at or after `target`.
    pub fn seek(&mut self, target: &[u8]) {
        self.inner.seek(target);
        self.forward();
    }

    /// Moves to the newest version of the first key after `target`.
    pub fn seek_after(&mut self, target: &[u8]) {
        self.inner.seek_version(target, 0);
        self.forward();
    }

    /// Moves to the newest version of the last key at or before `target`.
    pub fn seek_for_prev(&mut self, target: &[u8]) {
        self.inner.seek_for_prev(target);
        self.backward();
    }

    /// Moves to the newest version of the first key.
    pub fn seek_to_first(&mut self) {
        self.inner.seek_to_first();
        self.forward();
    }

    /// Moves to the newest version of the last key.
    pub fn seek_to_last(&mut self) {
        self.inner.seek_to_last();
        self.backward();
    }

    /// Moves to the next older version of the key, or to the newest version of the next key.
    #[inline]
    pub fn next(&mut self) {
        self.inner.next();
        self.forward();
    }

    /// Moves to the newest version of the next key.
    #[inline]
    pub fn next_key(&mut self) {
        self.inner.next_key();
        self.forward();
    }

    /// Moves to the newest version of the previous key.
    pub fn prev_key(&mut self) {
        self.inner.newest();
        self.inner.prev();
        self.backward();
    }

    /// Returns true if the cursor is on a version.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// Returns the version.
    #[inline]
    pub fn entry(&self) -> Entry<'_> {
        self.inner.entry()
    }

    /// Returns whether a range delete hides the version on which the cursor stands, and with it the older ones of the key.
    #[inline]
    fn is_deleted(&mut self) -> bool {
        let Some(deleted) = &mut self.deleted else { return false };
        let version = self.inner.entry();
        deleted.hides(version.key, version.seq)
    }

    /// Moves from a version of any kind to the first one that is in force.
    #[inline]
    fn forward(&mut self) {
        while self.inner.valid() {
            let version = self.inner.entry();
            if version.kind == UNDONE {
                // No version has stamp 0, so 0 leads to the next key.
                self.inner.older(restored(&version).unwrap_or(0));
            } else if self.is_deleted() {
                self.inner.next_key();
            } else {
                return;
            }
        }
    }

    /// Moves from a version of any age to the newest one of its key that is in force, or of an earlier key.
    fn backward(&mut self) {
        while self.inner.valid() {
            self.inner.newest();
            let newest = self.inner.entry();
            let is_undone = newest.kind == UNDONE;
            let in_force = if is_undone { restored(&newest) } else { Some(newest.seq) };
            if let Some(stamp) = in_force {
                if is_undone {
                    self.inner.older(stamp);
                }
                if !self.is_deleted() {
                    return;
                }
                self.inner.newest();
            }
            self.inner.prev();
        }
    }
}
