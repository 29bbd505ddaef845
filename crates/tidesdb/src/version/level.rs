//! One level of a family: its tables in order, and the search for tables that may hold a key.
//!
//! L1 holds flushed memtables, newest first. Their key ranges may overlap, so every table whose range covers a key is a
//! candidate. Deeper levels are sorted by key and disjoint, so there is one candidate, found by binary search. In byte
//! order the search uses an array of the first eight bytes of the largest keys, and reads a table's metadata only to
//! resolve equal prefixes.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::obsolete::FileGuard;
use crate::sst::{Table, TableMeta};
use crate::types::{Comparator, TableId};

/// A table in a version. Sharing the slot keeps its file alive.
pub struct TableSlot<T = Table> {
    meta: Arc<TableMeta>,
    table: Arc<T>,
    file: Arc<FileGuard>,
}

impl<T> TableSlot<T> {
    pub(super) fn new(meta: Arc<TableMeta>, table: Arc<T>, file: Arc<FileGuard>) -> Self {
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

/// The tables of one level.
pub struct Level<T = Table> {
    tables: Arc<[Arc<TableSlot<T>>]>,
    bytes: u64,
    /// First eight bytes of each largest key, as big-endian numbers; empty for L1 and for custom key orders.
    fences: Vec<u64>,
    overlapping: bool,
}

impl<T> Level<T> {
    /// Orders the tables: newest first for L1 (`overlapping`), by smallest key for deeper levels.
    pub(super) fn new(mut tables: Vec<Arc<TableSlot<T>>>, order: &Comparator, overlapping: bool) -> Self {
        if overlapping {
            tables.sort_by_key(|t| std::cmp::Reverse((t.meta.max_seq, t.meta.id)));
        } else {
            tables.sort_by(|a, b| order.compare(&a.meta.smallest, &b.meta.smallest));
        }
        let fenced = !overlapping && order.is_bytewise();
        let fences =
            if fenced { tables.iter().map(|t| fence(&t.meta.largest)).collect() } else { Vec::new() };
        let bytes = tables.iter().map(|t| t.meta.file_bytes).fold(0, u64::saturating_add);
        Self { tables: tables.into(), bytes, fences, overlapping }
    }

    /// Returns the tables: newest first in L1, by key in deeper levels.
    pub fn tables(&self) -> &[Arc<TableSlot<T>>] {
        &self.tables
    }

    /// Like [`Level::tables`], but returns shared ownership.
    pub fn tables_arc(&self) -> Arc<[Arc<TableSlot<T>>]> {
        Arc::clone(&self.tables)
    }

    /// Returns the number of tables.
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Returns whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the total file size of all tables, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether key ranges may overlap: true for L1.
    pub fn is_overlapping(&self) -> bool {
        self.overlapping
    }

    /// Returns the one table of a deeper level that may hold `key`.
    #[inline]
    pub fn find(&self, order: &Comparator, key: &[u8]) -> Option<&Arc<TableSlot<T>>> {
        debug_assert!(!self.overlapping, "L1 has no order by key");
        let slot = self.tables.get(self.lower_bound(order, key))?;
        order.compare(&slot.meta.smallest, key).is_le().then_some(slot)
    }

    /// Returns the index of the first table of a deeper level whose largest key is at or after `key`: where a seek
    /// begins.
    #[inline]
    pub fn lower_bound(&self, order: &Comparator, key: &[u8]) -> usize {
        let before = |t: &Arc<TableSlot<T>>| order.compare(&t.meta.largest, key) == Ordering::Less;
        if self.fences.is_empty() {
            return self.tables.partition_point(before);
        }
        let probe = fence(key);
        let from = self.fences.partition_point(|f| *f < probe);
        let equal = self.fences.get(from..).unwrap_or_default().partition_point(|f| *f == probe);
        from + self.tables.get(from..from + equal).unwrap_or_default().partition_point(before)
    }

    /// Calls `each` with all tables that may hold `key`, newest first.
    #[inline]
    pub fn covering<'a>(&'a self, order: &Comparator, key: &[u8], each: &mut impl FnMut(&'a TableSlot<T>)) {
        if !self.overlapping {
            if let Some(slot) = self.find(order, key) {
                each(slot);
            }
            return;
        }
        for slot in self.tables.iter().filter(|t| t.covers(order, key)) {
            each(slot);
        }
    }

    /// Returns all tables whose key range overlaps `range`, in the order of [`Level::tables`].
    pub fn meeting<'k>(
        &self,
        order: &Comparator,
        range: &impl RangeBounds<&'k [u8]>,
    ) -> Vec<Arc<TableSlot<T>>> {
        let from = match (self.overlapping, range.start_bound()) {
            (false, Bound::Included(key) | Bound::Excluded(key)) => self.lower_bound(order, key),
            _ => 0,
        };
        let rest = self.tables.get(from..).unwrap_or_default();
        if self.overlapping {
            return rest.iter().filter(|t| t.meets(order, range)).cloned().collect();
        }
        let skipped = rest.iter().skip_while(|t| !t.meets(order, range));
        skipped.take_while(|t| t.meets(order, range)).cloned().collect()
    }
}

impl<T> fmt::Debug for Level<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tables.iter()).finish()
    }
}

#[inline]
fn fence(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(front) => u64::from_le_bytes(*front).swap_bytes(),
        None => (0..8).fold(0, |n, i| n << 8 | u64::from(key.get(i).copied().unwrap_or(0))),
    }
}
