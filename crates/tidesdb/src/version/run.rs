//! A sorted run: disjoint tables of one level in the order of their keys, and the search for the one that may hold a key.
//!
//! A deeper level holds one or more runs, see `placing.rs`. L1, which holds flushed memtables, is kept as one run whose tables are in
//! order, newest first. Their key ranges may overlap, so every table whose range covers a key is a candidate. In a sorted run there is one
//! candidate, found by binary search. In byte order the search uses the first eight bytes of the largest keys, and reads a table's
//! metadata only to resolve equal prefixes.
//!
//! A run shares its chunks of tables with the run that it was made from: see `chunks.rs`.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::chunks::{Chunks, Position};
use super::obsolete::{FileGuard, ObsoleteFiles};
use crate::files::FileKind;
use crate::sst::{Table, TableMeta};
use crate::types::{Comparator, TableId};

/// A table in a version. Sharing the slot keeps its file alive.
pub struct TableSlot<T = Table> {
    meta: Arc<TableMeta>,
    table: Arc<T>,
    file: FileGuard,
}

impl<T> TableSlot<T> {
    /// The open `table` that `meta` describes. Its file goes to `queue` once it is obsolete.
    pub(super) fn new(meta: Arc<TableMeta>, table: Arc<T>, queue: &Arc<ObsoleteFiles>) -> Self {
        let file = FileGuard::new(FileKind::Table(meta.id), queue);
        Self { meta, table, file }
    }

    pub(super) fn guard(&self) -> &FileGuard {
        &self.file
    }

    /// Returns the description of the table.
    #[inline]
    pub fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Returns the open table.
    #[inline]
    pub fn table(&self) -> &Arc<T> {
        &self.table
    }

    /// Returns the number of the table.
    pub fn id(&self) -> TableId {
        self.meta.id
    }

    /// Returns whether the table's key range contains `key`.
    #[inline]
    pub fn covers(&self, order: &Comparator, key: &[u8]) -> bool {
        order.compare(&self.meta.smallest, key).is_le() && order.compare(key, &self.meta.largest).is_le()
    }

    /// Returns whether the key ranges of two tables overlap.
    pub fn overlaps(&self, order: &Comparator, other: &Self) -> bool {
        self.meets(order, &(&*other.meta.smallest..=&*other.meta.largest))
    }

    /// Returns whether the table's key range overlaps `range`.
    pub fn meets<'k>(&self, order: &Comparator, range: &impl RangeBounds<&'k [u8]>) -> bool {
        let above = |from: &[u8]| order.compare(&self.meta.largest, from);
        let below = |to: &[u8]| order.compare(&self.meta.smallest, to);
        let starts = match range.start_bound() {
            Bound::Included(from) => above(from).is_ge(),
            Bound::Excluded(from) => above(from).is_gt(),
            Bound::Unbounded => true,
        };
        starts
            && match range.end_bound() {
                Bound::Included(to) => below(to).is_le(),
                Bound::Excluded(to) => below(to).is_lt(),
                Bound::Unbounded => true,
            }
    }
}

impl<T> fmt::Debug for TableSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableSlot").field(&self.meta.id.0).finish()
    }
}

/// A table in its run.
struct Place<T> {
    /// First eight bytes of the largest key, as a big-endian number.
    fence: u64,
    slot: Arc<TableSlot<T>>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        Self { fence: self.fence, slot: Arc::clone(&self.slot) }
    }
}

/// The tables of a sorted run, or of L1.
pub struct Run<T = Table> {
    level: u8,
    tables: Chunks<Place<T>>,
    /// Index of the first table of each chunk, and the number of all tables.
    starts: Vec<usize>,
    /// Fence of the last table of each chunk; empty for L1 and for custom key orders.
    fences: Vec<u64>,
    bytes: u128,
    entries: u128,
    /// Tables all of whose rows expire.
    expiring: usize,
}

impl<T> Clone for Run<T> {
    fn clone(&self) -> Self {
        let (starts, fences) = (self.starts.clone(), self.fences.clone());
        Self { tables: self.tables.clone(), starts, fences, ..*self }
    }
}

impl<T> Run<T> {
    /// Returns the table that `meta` describes.
    pub(super) fn table(&self, order: &Comparator, meta: &TableMeta) -> Option<&Arc<TableSlot<T>>> {
        let slot = &self.tables.get(self.position(order, meta))?.slot;
        (slot.id() == meta.id).then_some(slot)
    }

    /// An empty run of `level`.
    pub(super) fn empty(level: u8) -> Self {
        let (starts, fences) = (vec![0], Vec::new());
        Self { level, tables: Chunks::default(), starts, fences, bytes: 0, entries: 0, expiring: 0 }
    }

    /// Removes the table that `meta` describes. Returns false if it is not here. Call [`Run::index`] afterwards.
    pub(super) fn remove(&mut self, order: &Comparator, meta: &TableMeta) -> bool {
        let position = self.position(order, meta);
        if self.tables.get(position).is_none_or(|place| place.slot.id() != meta.id) {
            return false;
        }
        self.tables.remove(position);
        self.starts.clear();
        self.fences.clear(); // the search goes without them until they are right again
        self.bytes -= u128::from(meta.file_bytes);
        self.entries -= u128::from(meta.entries);
        self.expiring -= usize::from(meta.expires().is_some());
        true
    }

    /// Adds a table. Call [`Run::index`] afterwards.
    pub(super) fn insert(&mut self, order: &Comparator, slot: Arc<TableSlot<T>>) {
        self.bytes += u128::from(slot.meta.file_bytes);
        self.entries += u128::from(slot.meta.entries);
        self.expiring += usize::from(slot.meta.expires().is_some());
        let position = self.position(order, slot.meta());
        self.tables.insert(position, Place { fence: fence(&slot.meta.largest), slot });
        self.starts.clear();
        self.fences.clear(); // the search goes without them until they are right again
    }

    /// Returns false if tables were added or removed since the last call of [`Run::index`].
    pub(super) fn is_indexed(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Counts the tables of each chunk, and notes where it ends.
    pub(super) fn index(&mut self, order: &Comparator) {
        self.starts.clear();
        self.starts.push(0);
        for chunk in self.tables.chunks() {
            self.starts.push(self.len() + chunk.len());
        }
        self.fences.clear();
        if !self.is_overlapping() && order.is_bytewise() {
            self.fences
                .extend(self.tables.chunks().iter().filter_map(|chunk| chunk.last()).map(|last| last.fence));
        }
    }

    /// Position of a table, or the one where it belongs.
    fn position(&self, order: &Comparator, meta: &TableMeta) -> Position {
        let age = |meta: &TableMeta| (meta.max_seq, meta.id);
        match self.is_overlapping() {
            true => self.tables.find(|place| age(&place.slot.meta) > age(meta)),
            false => {
                self.tables.find(|place| order.compare(&place.slot.meta.smallest, &meta.smallest).is_lt())
            }
        }
    }

    /// Returns the tables: newest first in L1, by key in a sorted run.
    pub fn tables(&self) -> impl DoubleEndedIterator<Item = &Arc<TableSlot<T>>> + Clone {
        self.tables.iter().map(|place| &place.slot)
    }

    /// Returns the table at `index` of [`Run::tables`].
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Arc<TableSlot<T>>> {
        let chunk = self.starts.partition_point(|start| *start <= index).checked_sub(1)?;
        Some(&self.tables.get(Position { chunk, at: index - self.starts[chunk] })?.slot)
    }

    /// Returns the number of tables.
    #[inline]
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the total file size of all tables, in bytes.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// Returns the number of entries of all tables.
    pub fn entries(&self) -> u64 {
        u64::try_from(self.entries).unwrap_or(u64::MAX)
    }

    /// Returns true if a table has nothing but rows that expire.
    pub fn has_expiring(&self) -> bool {
        self.expiring > 0
    }

    /// Returns the level.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns whether key ranges may overlap: true for L1.
    #[inline]
    pub fn is_overlapping(&self) -> bool {
        self.level == 1
    }

    /// Returns the one table of a sorted run that may hold `key`.
    #[inline]
    pub fn find(&self, order: &Comparator, key: &[u8]) -> Option<&Arc<TableSlot<T>>> {
        debug_assert!(!self.is_overlapping(), "L1 has no order by key");
        if self.len() == 1 {
            let slot = &self.tables.get(Position { chunk: 0, at: 0 })?.slot;
            return slot.covers(order, key).then_some(slot);
        }
        let slot = &self.tables.get(self.seek(order, key))?.slot;
        order.compare(&slot.meta.smallest, key).is_le().then_some(slot)
    }

    /// Returns the index of the first table of a sorted run whose largest key is at or after `key`: where a seek
    /// begins.
    #[inline]
    pub fn lower_bound(&self, order: &Comparator, key: &[u8]) -> usize {
        let Position { chunk, at } = self.seek(order, key);
        self.starts[chunk] + at
    }

    /// As [`Run::lower_bound`].
    #[inline]
    fn seek(&self, order: &Comparator, key: &[u8]) -> Position {
        let before = |place: &Place<T>| order.compare(&place.slot.meta.largest, key) == Ordering::Less;
        if self.fences.is_empty() {
            return self.tables.find(before);
        }
        let (probe, chunks) = (fence(key), self.tables.chunks());
        let mut chunk = 0;
        if self.fences.len() > 1 {
            chunk = self.fences.partition_point(|f| *f < probe);
            // If several chunks end with the same eight bytes, takes the first whose last key is not before `key`, or the last one.
            let equal = self.fences[chunk..].partition_point(|f| *f == probe);
            let but_last = &chunks[chunk..chunk + equal.saturating_sub(1)];
            chunk += but_last.partition_point(|c| c.last().is_some_and(before));
        }
        while let Some(tables) = chunks.get(chunk) {
            let from = tables.partition_point(|place| place.fence < probe);
            let equal = tables[from..].partition_point(|place| place.fence == probe);
            let at = from + tables[from..from + equal].partition_point(before);
            if at < tables.len() {
                return Position { chunk, at };
            }
            chunk += 1;
        }
        Position { chunk, at: 0 }
    }

    /// Returns whether a table of a sorted run overlaps the key range of `meta`.
    pub(super) fn overlaps(&self, order: &Comparator, meta: &TableMeta) -> bool {
        let first = self.tables.get(self.seek(order, &meta.smallest));
        first.is_some_and(|place| order.compare(&place.slot.meta.smallest, &meta.largest).is_le())
    }

    /// Calls `each` with all tables that may hold `key`, newest first.
    #[inline]
    pub fn covering<'a>(&'a self, order: &Comparator, key: &[u8], each: &mut impl FnMut(&'a TableSlot<T>)) {
        if !self.is_overlapping() {
            if let Some(slot) = self.find(order, key) {
                each(slot);
            }
            return;
        }
        for slot in self.tables().filter(|t| t.covers(order, key)) {
            each(slot);
        }
    }

    /// Returns all tables whose key range overlaps `range`, in the order of [`Run::tables`].
    pub fn meeting<'k>(
        &self,
        order: &Comparator,
        range: &impl RangeBounds<&'k [u8]>,
    ) -> Vec<Arc<TableSlot<T>>> {
        let from = match (self.is_overlapping(), range.start_bound()) {
            (true, _) => return self.tables().filter(|t| t.meets(order, range)).cloned().collect(),
            (false, Bound::Included(key) | Bound::Excluded(key)) => self.seek(order, key),
            (false, Bound::Unbounded) => Position { chunk: 0, at: 0 },
        };
        let rest = self.tables.iter_from(from).map(|place| &place.slot);
        rest.skip_while(|t| !t.meets(order, range)).take_while(|t| t.meets(order, range)).cloned().collect()
    }
}

impl<T> fmt::Debug for Run<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tables()).finish()
    }
}

#[inline]
fn fence(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(front) => u64::from_le_bytes(*front).swap_bytes(),
        None => (0..8).fold(0, |n, i| n << 8 | u64::from(key.get(i).copied().unwrap_or(0))),
    }
}
