//! [`Cursor`]: iterates over all versions of a memtable in the order (key, newest first), in both directions.
//!
//! A map iterates over keys only ([`KeyCursor`]). The cursor adds the versions of each key.
//!
//! Visibility: a positioning call sees every entry whose insert returned before the call began, and so does a
//! step that leaves the part of the map that the cursor has copied. It may or may not see later inserts. That
//! is enough for snapshots: an entry visible to a snapshot was inserted before the snapshot was taken, so
//! before the cursor moved.
//!
//! Threads: a cursor belongs to one thread at a time and may move between threads.

use std::sync::Arc;

use super::{Entry, Map, Memtable};
use crate::record::RecordRef;
use crate::skiplist::SkipListCursor;
use crate::tree::TreeCursor;
use crate::walk::KeyCursor;

#[expect(
    clippy::large_enum_variant,
    reason = "the tree's variant is the usual one, and a box would cost an allocation per cursor"
)]
enum MapCursor<'a> {
    Tree(TreeCursor<'a>),
    SkipList(SkipListCursor<'a>),
}

macro_rules! each_walk {
    ($walk:expr, $w:ident => $body:expr) => {
        match $walk {
            MapCursor::Tree($w) => $body,
            MapCursor::SkipList($w) => $body,
        }
    };
}

/// A cursor over all versions: keys in the memtable's order, the versions of a key newest first.
///
/// It keeps the memtable alive. A new cursor is not valid until positioned; a step from an invalid cursor does
/// nothing. Among n versions of a key, it finds any one in O(log n) steps, including the oldest. A step back
/// costs O(log n) too.
///
/// ```
/// use tidesdb_memtable::{KeyOrder, Memtable, Version};
///
/// let memtable = Memtable::new(KeyOrder::Bytewise, 1 << 20, 1);
/// for (seq, key) in [(1, b"a"), (2, b"b"), (3, b"a")] {
///     memtable.insert(key, Version { seq, kind: 0, expiry: 0 }, b"value").unwrap();
/// }
/// let mut cursor = memtable.cursor();
/// cursor.seek_to_first();
/// let mut seen = Vec::new();
/// while cursor.valid() {
///     seen.push((cursor.entry().key.to_vec(), cursor.entry().seq));
///     cursor.next();
/// }
/// assert_eq!(seen, [(b"a".to_vec(), 3), (b"a".to_vec(), 1), (b"b".to_vec(), 2)]);
/// ```
pub struct Cursor {
    /// Borrows from `memtable`, which the `Arc` below keeps alive. Never handed out as `'static`.
    walk: MapCursor<'static>,
    /// The current version. Its key is the current key of `walk`.
    record: Option<RecordRef<'static>>,
    memtable: Arc<Memtable>,
}

// SAFETY: all pointers of a cursor lead into its memtable, which is Sync and kept alive by the Arc.
unsafe impl Send for Cursor {}

impl Cursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        // SAFETY: 1. the Arc in this cursor keeps the memtable at its address as long as `walk` exists; 2. no
        // method returns anything with the extended lifetime.
        let pinned: &'static Memtable = unsafe { &*Arc::as_ptr(&memtable) };
        let walk = match &pinned.map {
            Map::Tree(tree) => MapCursor::Tree(TreeCursor::new(tree)),
            Map::SkipList(list) => MapCursor::SkipList(SkipListCursor::new(list)),
        };
        Cursor { walk, record: None, memtable }
    }

    /// Moves to the newest version of the first key at or after `target`.
    pub fn seek(&mut self, target: &[u8]) {
        self.walk_to(target);
        self.stand_on_newest();
    }

    /// Moves to the newest version of `target` at or below `seq`. If there is none, moves to the newest version
    /// of the next key.
    pub fn seek_version(&mut self, target: &[u8], seq: u64) {
        let found = self.walk_to(target);
        self.stand_on_newest();
        if let Some(newest) = self.record.filter(|_| found) {
            match seq.checked_sub(self.memtable.base).and_then(|seq| newest.visible_at(seq)) {
                Some(record) => self.record = Some(record),
                None => self.next_key(),
            }
        }
    }

    /// Moves the walk to the first key at or after `target`. Returns whether that is `target` itself.
    #[inline]
    fn walk_to(&mut self, target: &[u8]) -> bool {
        each_walk!(&mut self.walk, walk => walk.at_or_after(target))
    }

    /// Moves to the oldest version of the last key at or before `target`.
    pub fn seek_for_prev(&mut self, target: &[u8]) {
        each_walk!(&mut self.walk, walk => walk.at_or_before(target));
        self.stand_on_oldest();
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        each_walk!(&mut self.walk, walk => walk.first());
        self.stand_on_newest();
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        each_walk!(&mut self.walk, walk => walk.last());
        self.stand_on_oldest();
    }

    /// Moves to the next entry: the next older version of the key, or the newest version of the next key.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "the usual name of a cursor step; it returns nothing")]
    pub fn next(&mut self) {
        let Some(record) = self.record else { return };
        match record.older() {
            Some(older) => self.record = Some(older),
            None => self.next_key(),
        }
    }

    /// Moves to the newest version of the next key and skips the remaining versions of this one.
    #[inline]
    pub fn next_key(&mut self) {
        if self.record.is_none() {
            return;
        }
        each_walk!(&mut self.walk, walk => walk.after());
        self.stand_on_newest();
    }

    /// Moves to the newest version of this key at or below `seq`, counted from the current version on. If there is none, moves to the
    /// newest version of the next key.
    ///
    /// ```
    /// use tidesdb_memtable::{KeyOrder, Memtable, Version};
    ///
    /// let memtable = Memtable::new(KeyOrder::Bytewise, 1 << 20, 1);
    /// for (seq, key) in [(1, b"a"), (2, b"a"), (3, b"a"), (4, b"b")] {
    ///     memtable.insert(key, Version { seq, kind: 0, expiry: 0 }, b"value").unwrap();
    /// }
    /// let mut cursor = memtable.cursor();
    /// cursor.seek_to_first();
    /// cursor.older(1);
    /// assert_eq!((cursor.entry().key, cursor.entry().seq), (&b"a"[..], 1));
    /// cursor.newest();
    /// assert_eq!((cursor.entry().key, cursor.entry().seq), (&b"a"[..], 3));
    /// cursor.older(0);
    /// assert_eq!((cursor.entry().key, cursor.entry().seq), (&b"b"[..], 4));
    /// ```
    pub fn older(&mut self, seq: u64) {
        let Some(record) = self.record else { return };
        match seq.checked_sub(self.memtable.base).and_then(|seq| record.visible_at(seq)) {
            Some(older) => self.record = Some(older),
            None => self.next_key(),
        }
    }

    /// Moves to the newest version of this key.
    pub fn newest(&mut self) {
        if self.record.is_some() {
            self.stand_on_newest();
        }
    }

    /// Moves to the next key as [`Cursor::next_key`] does, if the map knows without a look at each that all older versions of this key have
    /// its kind and that none of these versions expires. Returns the number of versions that it passed, without the current one; `None`
    /// if the cursor did not move. The number is exact if nothing is inserted meanwhile.
    ///
    /// ```
    /// use tidesdb_memtable::{KeyOrder, Memtable, Version};
    ///
    /// let memtable = Memtable::new(KeyOrder::Bytewise, 1 << 20, 1);
    /// for seq in 1..=1000 {
    ///     memtable.insert(b"hot", Version { seq, kind: 0, expiry: 0 }, b"value").unwrap();
    /// }
    /// let mut cursor = memtable.cursor();
    /// cursor.seek_to_first();
    /// assert_eq!((cursor.next_key_past_alike(), cursor.valid()), (Some(999), false));
    /// ```
    pub fn next_key_past_alike(&mut self) -> Option<u64> {
        let passed = match &self.memtable.map {
            Map::Tree(tree) if !tree.has_late_versions() => self.record?.older_alike()?,
            _ => return None,
        };
        self.next_key();
        Some(passed)
    }

    /// Moves from key to key while the newest version of the key is older than `below` and the key is before
    /// `until` (`None`: no limit). Each key costs a few nanoseconds.
    pub fn skip_older(&mut self, below: u64, until: Option<&[u8]>) {
        let below = below.saturating_sub(self.memtable.base);
        while let Some(record) = self.record
            && record.seq() < below
            && until.is_none_or(|until| self.memtable.is_before(record.key(), until))
        {
            self.next_key();
        }
    }

    /// Moves to the previous entry: the next newer version of the key, or the oldest version of the previous
    /// key.
    pub fn prev(&mut self) {
        let Some(record) = self.record else { return };
        let newest = each_walk!(&self.walk, walk => walk.newest());
        if let Some(newer) = newest.and_then(|newest| newest.newer_than(record)) {
            self.record = Some(newer);
            return;
        }
        each_walk!(&mut self.walk, walk => walk.before());
        self.stand_on_oldest();
    }

    /// Returns true if the cursor is on an entry.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.record.is_some()
    }

    /// Returns the current entry.
    ///
    /// # Panics
    ///
    /// If the cursor is not [`valid`](Self::valid).
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Entry<'_> {
        let record = self.record.expect("the cursor is on an entry");
        Entry::new(record, &self.memtable)
    }

    #[inline]
    fn stand_on_newest(&mut self) {
        self.record = each_walk!(&self.walk, walk => walk.newest());
    }

    fn stand_on_oldest(&mut self) {
        self.stand_on_newest();
        self.record = self.record.map(RecordRef::oldest);
    }
}
