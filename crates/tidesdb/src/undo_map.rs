//! [`UndoMap`]: the writes of a transaction in key order, of which the latest can be undone.
//!
//! Nothing is ever removed from a memtable. To undo the writes of a key, a record of kind [`UNDONE`] is added on top of them. It says
//! which older version of the key is in force again, or that none is. So an undone write costs one more record, and a reader passes
//! any number of undone versions of a key by one jump. The owner counts what was undone and builds a new map in time.
//!
//! Every version has a [stamp](stamp): the number of rollbacks before it, then the number of its operation in the batch. Stamps only
//! grow. The operations that a rollback removes are those whose number is too large.
//!
//! Threads: the transaction changes the map; cursors on other threads may read it meanwhile. They see each key as it was before
//! or after a change.

use std::sync::Arc;

use tidesdb_memtable::{Cursor, Entry, Memtable, MemtableFull, Version};

use crate::types::{Kind, SEQ_MAX};

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

    /// Undoes what the operations after number `kept` wrote to `key`. `stamp` is a new one. Returns whether they wrote to it.
    ///
    /// # Errors
    /// `MemtableFull`; nothing was undone.
    pub fn undo(&self, key: &[u8], kept: u32, stamp: u64) -> Result<bool, MemtableFull> {
        let newest = self.get(key);
        let mut version = newest;
        while let Some(undone) = version.filter(|version| op_of(version.seq) > kept) {
            version = self.live(key, undone.seq - 1);
        }
        let is_undone = newest.map(|newest| newest.seq) != version.map(|version| version.seq);
        if is_undone {
            let restored = version.map(|version| version.seq.to_le_bytes());
            let record = Version { seq: stamp, kind: UNDONE, expiry: 0 };
            self.0.insert(key, record, restored.as_ref().map_or(&[], <[u8; 8]>::as_slice))?;
        }
        Ok(is_undone)
    }

    /// Returns a cursor over the versions that were not undone, not yet positioned.
    pub fn cursor(&self) -> UndoCursor {
        UndoCursor(self.0.cursor())
    }
}

/// Iterates over the versions that were not undone: forward as a memtable's cursor, backward over the newest version of each key.
pub struct UndoCursor(Cursor);

impl UndoCursor {
    /// Moves to the newest version of the first key at or after `target`.
    pub fn seek(&mut self, target: &[u8]) {
        self.0.seek(target);
        self.forward();
    }

    /// Moves to the newest version of the first key after `target`.
    pub fn seek_after(&mut self, target: &[u8]) {
        self.0.seek_version(target, 0);
        self.forward();
    }

    /// Moves to the newest version of the last key at or before `target`.
    pub fn seek_for_prev(&mut self, target: &[u8]) {
        self.0.seek_for_prev(target);
        self.backward();
    }

    /// Moves to the newest version of the first key.
    pub fn seek_to_first(&mut self) {
        self.0.seek_to_first();
        self.forward();
    }

    /// Moves to the newest version of the last key.
    pub fn seek_to_last(&mut self) {
        self.0.seek_to_last();
        self.backward();
    }

    /// Moves to the next older version of the key, or to the newest version of the next key.
    #[inline]
    pub fn next(&mut self) {
        self.0.next();
        self.forward();
    }

    /// Moves to the newest version of the next key.
    #[inline]
    pub fn next_key(&mut self) {
        self.0.next_key();
        self.forward();
    }

    /// Moves to the newest version of the previous key.
    pub fn prev_key(&mut self) {
        self.0.newest();
        self.0.prev();
        self.backward();
    }

    /// Returns true if the cursor is on a version.
    #[inline]
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// Returns the version.
    #[inline]
    pub fn entry(&self) -> Entry<'_> {
        self.0.entry()
    }

    /// Moves from a record that undoes others to the version that is in force again.
    #[inline]
    fn forward(&mut self) {
        while self.0.valid() && self.0.entry().kind == UNDONE {
            // No version has stamp 0, so 0 leads to the next key.
            self.0.older(restored(&self.0.entry()).unwrap_or(0));
        }
    }

    /// Moves from a version of any age to the newest one of its key that is in force, or of an earlier key.
    fn backward(&mut self) {
        while self.0.valid() {
            self.0.newest();
            if self.0.entry().kind != UNDONE {
                return;
            }
            if let Some(stamp) = restored(&self.0.entry()) {
                return self.0.older(stamp);
            }
            self.0.prev();
        }
    }
}
