//! The disjoint, sorted tables of a sorted run as one source. Tables are opened one at a time, when iteration reaches them.
//!
//! Invariant: when valid, the child stands on an entry of table `open`. No key has versions in two tables, so the
//! versions of a key are never spread over neighbouring tables.

use std::ops::Bound;
use std::sync::Arc;

use crate::Result;
use crate::types::{Comparator, EntryCursor, EntryMeta, ReadPoint, Rows, SEQ_MAX, Scope, SeqNo, Stored};

/// A table of a level.
pub trait LevelTable: Send + Sync {
    /// Cursor over the table.
    type Cursor: EntryCursor;
    /// Upper bound for the sequence numbers in the table.
    fn max_seq(&self) -> SeqNo {
        SEQ_MAX
    }
    /// The first key.
    fn smallest(&self) -> &[u8];
    /// The last key.
    fn largest(&self) -> &[u8];
    /// Returns a new cursor over the table, not positioned.
    fn cursor(&self) -> Self::Cursor;
}

/// Disjoint tables in key order.
pub trait SortedTables: Send + Sync {
    /// A table.
    type Table: LevelTable + Clone;
    /// Returns the number of tables.
    fn count(&self) -> usize;
    /// Returns the table at `index`.
    fn get(&self, index: usize) -> Option<&Self::Table>;
    /// Returns the index of the first table whose last key is at or after `key`, or the number of tables.
    fn lower_bound(&self, order: &Comparator, key: &[u8]) -> usize;
}

impl<T: LevelTable + Clone> SortedTables for Arc<[T]> {
    type Table = T;

    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&T> {
        (**self).get(index)
    }

    #[inline]
    fn lower_bound(&self, order: &Comparator, key: &[u8]) -> usize {
        self.partition_point(|t| order.compare(t.largest(), key).is_lt())
    }
}

/// Iterates over the tables of one level.
pub struct LevelCursor<L: SortedTables> {
    compare: Comparator,
    tables: L,
    /// The last opened table and its cursor, kept for the next seek into it.
    child: Option<Child<L::Table>>,
    /// Index of that table; meaningless without a child.
    open: usize,
    /// Whether the child stands on the current entry.
    valid: bool,
    scope: Scope,
}

struct Child<T: LevelTable> {
    table: T,
    cursor: T::Cursor,
}

impl<L: SortedTables> LevelCursor<L> {
    /// Creates a cursor over `tables`, which must be sorted by key and disjoint. Opens none of them.
    pub fn new(compare: Comparator, tables: L) -> Self {
        debug_assert!((1..tables.count()).all(|i| {
            let pair = [i - 1, i].map(|i| tables.get(i).expect("an index below the number of tables"));
            compare.compare(pair[0].largest(), pair[1].smallest()).is_lt()
        }));
        Self { compare, tables, child: None, open: 0, valid: false, scope: Scope::default() }
    }

    /// Returns the index of the first table whose last key is at or after `target`, or the number of tables.
    #[inline]
    fn table_at(&self, target: &[u8]) -> usize {
        if self.child.as_ref().is_some_and(|child| self.covers(&child.table, target)) {
            return self.open;
        }
        self.tables.lower_bound(&self.compare, target)
    }

    #[inline]
    fn covers(&self, table: &L::Table, key: &[u8]) -> bool {
        self.compare.compare(table.smallest(), key).is_le()
            && self.compare.compare(key, table.largest()).is_le()
    }

    /// Makes the cursor of table `i`, which exists, the child.
    #[inline]
    fn open(&mut self, i: usize) {
        if self.open != i {
            self.child = None;
            self.open = i;
        }
        self.child.get_or_insert_with(|| {
            let table = self.tables.get(i).expect("an index below the number of tables").clone();
            let mut cursor = table.cursor();
            cursor.set_scope(&self.scope);
            Child { table, cursor }
        });
    }

    #[inline]
    fn child(&self) -> &<L::Table as LevelTable>::Cursor {
        &self.child.as_ref().expect("a valid cursor has a child").cursor
    }

    #[inline]
    fn child_mut(&mut self) -> &mut <L::Table as LevelTable>::Cursor {
        &mut self.child.as_mut().expect("a valid cursor has a child").cursor
    }

    /// Has the child move by `go`. Returns whether it then stands on an entry.
    #[inline]
    fn step(&mut self, go: impl FnOnce(&mut <L::Table as LevelTable>::Cursor) -> Result<()>) -> Result<bool> {
        self.valid = false;
        let child = self.child_mut();
        go(child)?;
        self.valid = child.valid();
        Ok(self.valid)
    }

    /// Moves to the first entry of table `i` or, if it has none, of a later table.
    fn enter_first(&mut self, mut i: usize) -> Result<()> {
        self.valid = false;
        while self.tables.get(i).is_some_and(|table| !self.scope.is_above(&self.compare, table.smallest())) {
            self.open(i);
            if self.step(|child| child.seek_to_first())? {
                break;
            }
            i += 1;
        }
        Ok(())
    }

    /// Has the cursor of the first table that can hold `target` or something after it `seek`.
    #[inline]
    fn seek_by(
        &mut self,
        target: &[u8],
        seek: impl FnOnce(&mut <L::Table as LevelTable>::Cursor) -> Result<()>,
    ) -> Result<()> {
        self.valid = false;
        let i = self.table_at(target);
        if self.tables.get(i).is_none_or(|table| self.scope.is_above(&self.compare, table.smallest())) {
            return Ok(());
        }
        self.open(i);
        if self.step(seek)? { Ok(()) } else { self.enter_first(i + 1) }
    }

    /// Goes to the last entry of the last table before index `end` that has one, as far as they are in scope.
    fn enter_last(&mut self, mut end: usize) -> Result<()> {
        self.valid = false;
        while let Some(table) = end.checked_sub(1).and_then(|last| self.tables.get(last))
            && !self.scope.is_below(&self.compare, table.largest())
        {
            end -= 1;
            self.open(end);
            if self.step(|child| child.seek_to_last())? {
                break;
            }
        }
        Ok(())
    }
}

impl<L: SortedTables> EntryCursor for LevelCursor<L> {
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        while self.valid
            && let Some(Child { table, .. }) = &self.child
            && table.max_seq() < below
        {
            match until {
                Some(key) if self.compare.compare(self.key(), key).is_ge() => break,
                Some(key) if self.compare.compare(key, table.largest()).is_le() => return self.seek(key),
                _ => self.enter_first(self.open + 1)?,
            }
        }
        Ok(())
    }

    fn set_scope(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.valid = false;
        if let Some(child) = &mut self.child {
            child.cursor.set_scope(scope);
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.enter_first(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        match self.scope.clone().high() {
            Bound::Unbounded => self.enter_last(self.tables.count()),
            Bound::Included(high) | Bound::Excluded(high) => self.seek_for_prev(high),
        }
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.seek_by(target, |child| child.seek(target))
    }

    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.seek_by(target, |child| child.seek_version(target, seq))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.valid = false;
        let i = self.table_at(target);
        if self.tables.get(i).is_none_or(|table| self.compare.compare(target, table.smallest()).is_lt()) {
            return self.enter_last(i);
        }
        self.open(i);
        if self.step(|child| child.seek_for_prev(target))? { Ok(()) } else { self.enter_last(i) }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        if self.step(|child| child.next())? { Ok(()) } else { self.enter_first(self.open + 1) }
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        if self.step(|child| child.next_key())? { Ok(()) } else { self.enter_first(self.open + 1) }
    }

    fn copy_rows(&mut self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        while self.valid && !rows.is_full() {
            if self.step(|child| child.copy_rows(reader, until, rows))? {
                break;
            }
            self.enter_first(self.open + 1)?;
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        if self.step(|child| child.prev())? { Ok(()) } else { self.enter_last(self.open) }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.child().key()
    }

    #[inline(always)]
    fn entry_meta(&self) -> EntryMeta {
        self.child().entry_meta()
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.child().value_len()
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        self.child_mut().entry()
    }
}
