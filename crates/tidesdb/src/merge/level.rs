//! The disjoint, sorted tables of a level as one source. Tables are opened one at a time, when iteration reaches them.
//!
//! Invariant: when valid, the child stands on an entry of table `open`. No key has versions in two tables, so the
//! versions of a key are never spread over neighbouring tables.

use std::ops::Bound;
use std::sync::Arc;

use super::MergeSource;
use crate::Result;
use crate::types::{Comparator, EntryCursor, EntryMeta, Rows, SEQ_MAX, Scope, SeqNo, Stored, Visibility};

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
    /// Whether the table may hold a version of exactly `key`; see [`MergeSource::may_contain`].
    fn may_contain(&self, key: &[u8]) -> bool {
        let _ = key;
        true
    }
}

/// Iterates over the tables of one level.
pub struct LevelCursor<T: LevelTable> {
    compare: Comparator,
    tables: Arc<[T]>,
    /// Cursor of the last opened table, kept for the next seek into it.
    child: Option<T::Cursor>,
    /// Index of that table; meaningless without a child.
    open: usize,
    /// Whether the child stands on the current entry.
    valid: bool,
    scope: Scope,
}

impl<T: LevelTable> LevelCursor<T> {
    /// Creates a cursor over `tables`, which must be sorted by key and disjoint. Opens none of them.
    pub fn new(compare: Comparator, tables: Arc<[T]>) -> Self {
        debug_assert!(
            tables
                .iter()
                .zip(tables.iter().skip(1))
                .all(|(a, b)| compare.compare(a.largest(), b.smallest()).is_lt())
        );
        Self { compare, tables, child: None, open: 0, valid: false, scope: Scope::default() }
    }

    /// Returns the index of the first table whose last key is at or after `target`, or the number of tables.
    #[inline]
    fn table_at(&self, target: &[u8]) -> usize {
        if self.child.is_some() && self.covers(self.open, target) {
            return self.open;
        }
        self.tables.partition_point(|t| self.compare.compare(t.largest(), target).is_lt())
    }

    #[inline]
    fn covers(&self, table: usize, key: &[u8]) -> bool {
        let table = &self.tables[table];
        self.compare.compare(table.smallest(), key).is_le()
            && self.compare.compare(key, table.largest()).is_le()
    }

    /// Returns the cursor of table `i`, opening it if needed.
    #[inline]
    fn open(&mut self, i: usize) -> &mut T::Cursor {
        if self.open != i {
            self.child = None;
            self.open = i;
        }
        self.child.get_or_insert_with(|| {
            let mut child = self.tables[i].cursor();
            child.set_scope(&self.scope);
            child
        })
    }

    #[inline]
    fn child(&self) -> &T::Cursor {
        self.child.as_ref().expect("a valid cursor has a child")
    }

    #[inline]
    fn child_mut(&mut self) -> &mut T::Cursor {
        self.child.as_mut().expect("a valid cursor has a child")
    }

    /// Moves to the first entry of table `i` or, if it has none, of a later table.
    fn enter_first(&mut self, mut i: usize) -> Result<()> {
        self.valid = false;
        while self.tables.get(i).is_some_and(|table| !self.scope.is_above(&self.compare, table.smallest())) {
            let child = self.open(i);
            child.seek_to_first()?;
            if child.valid() {
                self.valid = true;
                break;
            }
            i += 1;
        }
        Ok(())
    }

    /// Has the cursor of the first table that can hold `target` or something after it `seek`.
    #[inline]
    fn seek_by(&mut self, target: &[u8], seek: impl FnOnce(&mut T::Cursor) -> Result<()>) -> Result<()> {
        self.valid = false;
        let i = self.table_at(target);
        if self.tables.get(i).is_none_or(|table| self.scope.is_above(&self.compare, table.smallest())) {
            return Ok(());
        }
        let child = self.open(i);
        seek(child)?;
        if child.valid() {
            self.valid = true;
            return Ok(());
        }
        self.enter_first(i + 1)
    }

    /// Goes to the last entry of the last table before index `end` that has one, as far as they are in scope.
    fn enter_last(&mut self, mut end: usize) -> Result<()> {
        self.valid = false;
        while end > 0 && !self.scope.is_below(&self.compare, self.tables[end - 1].largest()) {
            end -= 1;
            let child = self.open(end);
            child.seek_to_last()?;
            if child.valid() {
                self.valid = true;
                break;
            }
        }
        Ok(())
    }
}

impl<T: LevelTable> MergeSource for LevelCursor<T> {
    fn may_contain(&self, key: &[u8]) -> bool {
        let i = self.table_at(key);
        i < self.tables.len() && self.covers(i, key) && self.tables[i].may_contain(key)
    }
}

impl<T: LevelTable> EntryCursor for LevelCursor<T> {
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        while self.valid && self.tables[self.open].max_seq() < below {
            let table = &self.tables[self.open];
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
            child.set_scope(scope);
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
            Bound::Unbounded => self.enter_last(self.tables.len()),
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
        if i == self.tables.len() || self.compare.compare(target, self.tables[i].smallest()).is_lt() {
            return self.enter_last(i);
        }
        let child = self.open(i);
        child.seek_for_prev(target)?;
        if child.valid() {
            self.valid = true;
            return Ok(());
        }
        self.enter_last(i)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        self.valid = false;
        let child = self.child_mut();
        child.next()?;
        if child.valid() {
            self.valid = true;
            return Ok(());
        }
        self.enter_first(self.open + 1)
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        self.valid = false;
        let child = self.child_mut();
        child.next_key()?;
        if child.valid() {
            self.valid = true;
            return Ok(());
        }
        self.enter_first(self.open + 1)
    }

    fn copy_rows(&mut self, visibility: Visibility, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        while self.valid && !rows.is_full() {
            self.valid = false;
            let child = self.child_mut();
            child.copy_rows(visibility, until, rows)?;
            if child.valid() {
                self.valid = true;
                break;
            }
            self.enter_first(self.open + 1)?;
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        self.valid = false;
        let child = self.child_mut();
        child.prev()?;
        if child.valid() {
            self.valid = true;
            return Ok(());
        }
        self.enter_last(self.open)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.child().key()
    }

    #[inline(always)]
    fn entry_meta(&self) -> EntryMeta {
        self.child().entry_meta()
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        self.child_mut().entry()
    }
}

impl<T: LevelTable> std::fmt::Debug for LevelCursor<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LevelCursor")
            .field("tables", &self.tables.len())
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
