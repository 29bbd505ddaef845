//! [`Memtable`]: the public interface; an arena and one of the maps over it.
//!
//! Invariants: the map holds only records of the arena; neither frees memory before the memtable drops, so
//! everything borrowed from the memtable stays valid.
//! Threads: every method may run on any thread at any time.

mod cursor;
mod entry;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::arena::Arena;
use crate::order::KeyOrder;
use crate::record::{MemtableFull, RecordRef, Version};
use crate::skiplist::SkipList;
use crate::tree::{Tree, Way};

pub use cursor::Cursor;
pub use entry::{Entry, ValueHandle};

/// Memory of an empty memtable outside of its arena, with the structures that refer to it: this matters for thousands of memtables with a
/// row each.
const STATE_BYTES: usize = 2 << 10;

/// The map of a memtable.
enum Map {
    Tree(Tree),
    SkipList(SkipList),
}

/// A concurrent ordered map from (key, sequence number) to a value, in memory that is freed all at once.
///
/// Any number of threads may insert, get and iterate at the same time. An entry is visible to every get and
/// every cursor positioning that begins after its insert returned.
///
/// A get at an old snapshot finds its version in O(log n) steps among the n newer versions of its key.
///
/// ```
/// use tidesdb_memtable::{KeyOrder, Memtable, Version};
///
/// let memtable = Memtable::new(KeyOrder::Bytewise, 64 << 20, 1);
/// memtable.insert(b"key", Version { seq: 7, kind: 0, expiry: 0 }, b"old")?;
/// memtable.insert(b"key", Version { seq: 9, kind: 0, expiry: 0 }, b"new")?;
/// assert_eq!(memtable.get(b"key", u64::MAX).unwrap().value, b"new");
/// assert_eq!(memtable.get(b"key", 8).unwrap().value, b"old");
/// assert!(memtable.get(b"key", 6).is_none());
/// # Ok::<(), tidesdb_memtable::MemtableFull>(())
/// ```
pub struct Memtable {
    map: Map,
    /// Added to the sequence number of every record.
    base: u64,
    arena: Arena,
}

/// Where a key belongs in a memtable, as of a moment ago. See [`Memtable::place`].
#[derive(Clone, Copy)]
pub struct Place<'a> {
    memtable: &'a Memtable,
    key: &'a [u8],
    way: Option<Way<'a>>,
}

impl Place<'_> {
    /// Inserts one version of the key. Like [`Memtable::insert`], whatever was inserted meanwhile.
    ///
    /// # Errors
    /// As [`Memtable::insert`].
    #[inline]
    pub fn insert(self, version: Version, value: &[u8]) -> Result<(), MemtableFull> {
        self.memtable.insert_along(self.way, self.key, version, value)
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Memtable {
    /// Creates an empty memtable that expects about `capacity_hint_bytes`. It may grow beyond that, up to 32
    /// GiB.
    ///
    /// It takes little memory until something is inserted. `seed` randomizes the shape of a skip list.
    #[must_use]
    pub fn new(order: KeyOrder, capacity_hint_bytes: usize, seed: u64) -> Arc<Memtable> {
        Self::with_arena(order, Arena::new(capacity_hint_bytes), seed)
    }

    /// Like [`new`](Self::new); adds the bytes it keeps resident to each of `sums` until it is dropped: 2 KiB at once, and later some once per 4 to
    /// 64 KiB of entries, not with each insert.
    #[must_use]
    pub fn charged(
        order: KeyOrder,
        capacity_hint_bytes: usize,
        seed: u64,
        sums: &[Arc<AtomicU64>],
    ) -> Arc<Memtable> {
        let memtable = Self::with_arena(order, Arena::charged(capacity_hint_bytes, sums), seed);
        memtable.arena.charge(STATE_BYTES);
        memtable
    }

    pub(crate) fn with_arena(order: KeyOrder, arena: Arena, seed: u64) -> Arc<Memtable> {
        let map = match order {
            KeyOrder::Bytewise => Map::Tree(Tree::new()),
            KeyOrder::Custom(compare) => Map::SkipList(SkipList::new(compare, seed)),
        };
        Arc::new(Memtable { map, base: 0, arena })
    }

    /// Adds `base` to the sequence numbers of all entries. Later inserts must use sequence numbers from `base`
    /// on. Used to fill a memtable before its sequence numbers are known. Takes constant time.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidesdb_memtable::{KeyOrder, Memtable, Version};
    ///
    /// let mut memtable = Memtable::new(KeyOrder::Bytewise, 64 << 20, 1);
    /// memtable.insert(b"key", Version { seq: 0, kind: 0, expiry: 0 }, b"value")?;
    /// Arc::get_mut(&mut memtable).unwrap().rebase(100);
    /// assert_eq!(memtable.get(b"key", 100).unwrap().seq, 100);
    /// assert!(memtable.get(b"key", 99).is_none());
    /// # Ok::<(), tidesdb_memtable::MemtableFull>(())
    /// ```
    pub fn rebase(&mut self, base: u64) {
        self.base += base;
    }

    /// Inserts one version of `key`.
    ///
    /// The versions of a key are ordered by `seq`, newest first, whatever the order of inserts. If two versions
    /// have the same `seq`, the one inserted later is first; the other may be dropped if the kinds are equal
    /// too.
    ///
    /// # Errors
    ///
    /// [`MemtableFull`] if the memtable has no memory or address space left, or if the key is longer than 256
    /// KiB or the value longer than 4 GiB. Nothing is inserted then.
    #[inline]
    pub fn insert(&self, key: &[u8], version: Version, value: &[u8]) -> Result<(), MemtableFull> {
        self.insert_along(None, key, version, value)
    }

    /// Inserts the versions of `source` that are newer than `seq`, in the order that `source` has: also versions of one key with the same
    /// sequence number, as a batch makes them that writes a key twice. Passes each version to `each`.
    ///
    /// This is the only way to copy versions from one memtable to another. A loop over a cursor that inserts what it meets reverses the
    /// versions with equal numbers, because the cursor yields the newest first.
    ///
    /// ```
    /// use tidesdb_memtable::{KeyOrder, Memtable, Version};
    ///
    /// let new = || Memtable::new(KeyOrder::Bytewise, 64 << 20, 1);
    /// let (source, copy) = (new(), new());
    /// for (seq, value) in [(1, b"a"), (2, b"b"), (2, b"c")] {
    ///     source.insert(b"key", Version { seq, kind: 0, expiry: 0 }, value)?;
    /// }
    /// copy.copy_newer(&source, 1, |_| ())?;
    /// assert_eq!(copy.get(b"key", 2).unwrap().value, b"c");
    /// assert!(copy.get(b"key", 1).is_none());
    /// # Ok::<(), tidesdb_memtable::MemtableFull>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MemtableFull`]; a part may have been inserted.
    pub fn copy_newer(
        &self,
        source: &Arc<Self>,
        seq: u64,
        mut each: impl FnMut(&Entry<'_>),
    ) -> Result<(), MemtableFull> {
        let mut cursor = source.cursor();
        cursor.seek_to_last();
        while cursor.valid() {
            let e = cursor.entry();
            if e.seq > seq {
                self.insert(e.key, Version { seq: e.seq, kind: e.kind, expiry: e.expiry }, e.value)?;
                each(&e);
            }
            cursor.prev();
        }
        Ok(())
    }

    #[inline]
    fn insert_along<'a>(
        &'a self,
        way: Option<Way<'a>>,
        key: &[u8],
        version: Version,
        value: &[u8],
    ) -> Result<(), MemtableFull> {
        debug_assert!(version.seq >= self.base, "the sequence number is below the base");
        let version = Version { seq: version.seq - self.base, ..version };
        let record = RecordRef::create(&self.arena, key, version, value)?;
        let inserted = match &self.map {
            Map::Tree(tree) => match way {
                Some(way) => tree.insert_along(&self.arena, way, record),
                None => tree.insert(&self.arena, record),
            },
            Map::SkipList(list) => list.insert(&self.arena, record),
        };
        if inserted.is_err() {
            self.arena.uncount();
        }
        inserted
    }

    /// Finds where `key` belongs, and starts to fetch what an insert there reads into the processor's cache. Worth it for several keys,
    /// before the first of them is inserted.
    ///
    /// ```
    /// use tidesdb_memtable::{KeyOrder, Memtable, Version};
    ///
    /// let memtable = Memtable::new(KeyOrder::Bytewise, 64 << 20, 1);
    /// let places = [b"ann", b"bob"].map(|key| memtable.place(key));
    /// for (place, seq) in places.into_iter().zip(1..) {
    ///     place.insert(Version { seq, kind: 0, expiry: 0 }, b"value")?;
    /// }
    /// assert_eq!(memtable.get(b"bob", u64::MAX).unwrap().seq, 2);
    /// # Ok::<(), tidesdb_memtable::MemtableFull>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn place<'a>(&'a self, key: &'a [u8]) -> Place<'a> {
        let way = match &self.map {
            Map::Tree(tree) => tree.find_way(key),
            Map::SkipList(_) => None,
        };
        Place { memtable: self, key, way }
    }

    /// Returns the newest version of `key` with a sequence number at or below `snapshot`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8], snapshot: u64) -> Option<Entry<'_>> {
        let snapshot = snapshot.checked_sub(self.base)?;
        let record = match &self.map {
            Map::Tree(tree) => tree.get(key, snapshot),
            Map::SkipList(list) => list.get(key, snapshot),
        };
        record.map(|record| Entry::new(record, self))
    }

    /// Returns a cursor over all versions, not yet positioned.
    #[must_use]
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self))
    }

    /// Returns a handle to the value of `entry` that keeps this memtable alive.
    ///
    /// # Panics
    ///
    /// If the entry does not belong to this memtable.
    #[must_use]
    pub fn value_handle(self: &Arc<Self>, entry: &Entry<'_>) -> ValueHandle {
        entry.handle(self)
    }

    #[inline]
    fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        match &self.map {
            Map::Tree(_) => a < b,
            Map::SkipList(list) => list.is_before(a, b),
        }
    }

    /// Bytes of memory used by entries and index. This is the number to charge to a memory budget.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.arena.allocated_bytes()
    }

    /// Number of versions inserted. Exact while no thread inserts, otherwise approximate. Takes a lock briefly.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.arena.entries()
    }

    /// Returns true if nothing was inserted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.map {
            Map::Tree(tree) => tree.is_empty(),
            Map::SkipList(list) => list.is_empty(),
        }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("is_tree", &matches!(self.map, Map::Tree(_)))
            .field("entries", &self.entries())
            .field("allocated_bytes", &self.allocated_bytes())
            .finish()
    }
}
