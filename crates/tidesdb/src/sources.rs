//! Sources of entries: a memtable, a table, or a sorted run of disjoint tables, as one cursor type without dynamic dispatch.

use std::sync::Arc;

use tidesdb_memtable::Memtable;

use crate::Result;
use crate::codec::key_hash;
use crate::merge::{LevelCursor, LevelTable, SortedTables};
use crate::ranges::Cover;
use crate::sst::{Table, TableCursor};
use crate::types::{Comparator, EntryCursor, EntryMeta, Kind, ReadPoint, Rows, Scope, SeqNo, Stored};
use crate::undo_map::{UndoCursor, UndoMap};
use crate::version;

/// A table in a version.
pub type TableSlot = version::TableSlot<Table>;
/// The tables of a sorted run, or of level 1, as of one version.
pub type TableRun = version::Run<Table>;
/// All tables of a family, as of one version.
pub type TableVersion = version::FamilyVersion<Table>;

/// One source of entries.
pub enum Source {
    /// A memtable.
    Memtable(tidesdb_memtable::Cursor),
    /// A transaction's own writes. Their reader treats them as newer than anything else: as entries of the given
    /// sequence number, at which it reads and which no commit has, but perhaps the rows of a clone. Those that its later range deletes hide are
    /// left out. Backward, it shows only the newest version of each key.
    Own(UndoCursor, SeqNo),
    /// A table of level 1.
    Table(TableCursor),
    /// A sorted run of a deeper level.
    Level(LevelCursor<Arc<TableRun>>),
    /// A sorted run of a deeper level, as input of a merge.
    Run(LevelCursor<Arc<[MergeInput]>>),
}

/// A table that a merge reads. It is opened when the merge reaches it. Pages of a table that was not in the page cache are dropped once
/// the merge has read them.
#[derive(Clone, Debug)]
pub struct MergeInput {
    slot: Arc<TableSlot>,
    /// True for an explanation of a scan, which reads as a scan does.
    is_peeked: bool,
}

/// Maximum number of tables that [`MergeInput::are_cold`] looks at.
const COLD_SAMPLES: usize = 16;

impl MergeInput {
    /// An input that will be read soon.
    pub fn new(slot: &Arc<TableSlot>) -> Self {
        Self { slot: Arc::clone(slot), is_peeked: false }
    }

    /// Returns true if the table may have keys from `start` on and before `end`.
    pub fn meets(&self, order: &Comparator, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        let meta = self.slot.meta();
        start.is_none_or(|start| order.compare(&meta.largest, start).is_ge())
            && end.is_none_or(|end| order.compare(&meta.smallest, end).is_lt())
    }

    /// Returns true if most of `tables`, by bytes, are not in the page cache, according to a sample.
    pub fn are_cold(tables: &[&Arc<TableSlot>]) -> bool {
        let (mut cold, mut all) = (0, 0);
        for slot in tables.iter().step_by(tables.len().div_ceil(COLD_SAMPLES).max(1)) {
            let bytes = slot.meta().file_bytes;
            all += bytes;
            cold += if slot.table().is_in_page_cache() { 0 } else { bytes };
        }
        cold * 2 > all
    }
}

impl LevelTable for MergeInput {
    type Cursor = TableCursor;

    fn max_seq(&self) -> SeqNo {
        self.slot.meta().max_seq
    }

    fn smallest(&self) -> &[u8] {
        &self.slot.meta().smallest
    }

    fn largest(&self) -> &[u8] {
        &self.slot.meta().largest
    }

    fn cursor(&self) -> TableCursor {
        let table = self.slot.table();
        if self.is_peeked {
            return TableCursor::peeking(Arc::clone(table));
        }
        let cursor = TableCursor::bypassing_cache(Arc::clone(table));
        if table.is_in_page_cache() { cursor } else { cursor.dropping_pages() }
    }
}

impl LevelTable for Arc<TableSlot> {
    type Cursor = TableCursor;

    fn max_seq(&self) -> SeqNo {
        self.meta().max_seq
    }

    fn smallest(&self) -> &[u8] {
        &self.meta().smallest
    }

    fn largest(&self) -> &[u8] {
        &self.meta().largest
    }

    fn cursor(&self) -> TableCursor {
        TableCursor::new(Arc::clone(self.table()))
    }
}

impl SortedTables for Arc<TableRun> {
    type Table = Arc<TableSlot>;

    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&Arc<TableSlot>> {
        (**self).get(index)
    }

    #[inline]
    fn lower_bound(&self, order: &Comparator, key: &[u8]) -> usize {
        (**self).lower_bound(order, key)
    }
}

impl Source {
    /// A cursor over a memtable.
    pub fn memtable(map: &Arc<Memtable>) -> Self {
        Self::Memtable(map.cursor())
    }

    /// A cursor over a transaction's own writes and range deletes, for a reader at `seq`.
    pub fn own(map: &UndoMap, deleted: &Cover, order: &Comparator, seq: SeqNo) -> Self {
        Self::Own(map.cursor(order, deleted), seq)
    }

    /// A cursor over one table.
    pub fn table(slot: &Arc<TableSlot>) -> Self {
        Self::Table(slot.cursor())
    }

    /// Cursors over the inputs of a merge. They read by system calls and bypass the block cache, so that a merge
    /// neither fills the cache nor keeps whole tables mapped. If `run` is true, the inputs are a sorted run (disjoint
    /// and in key order) and make one cursor. All of them are of one kind, so the processor predicts the branch.
    pub fn for_merge(comparator: &Comparator, inputs: Vec<MergeInput>, run: bool) -> Vec<Self> {
        let runs = if run { vec![inputs] } else { inputs.into_iter().map(|input| vec![input]).collect() };
        let runs = runs.into_iter().filter(|run| !run.is_empty());
        runs.map(|run| Self::Run(LevelCursor::new(comparator.clone(), Arc::from(run)))).collect()
    }

    /// A cursor over one table that leaves the block cache as it is.
    pub fn peeking(slot: &TableSlot) -> Self {
        Self::Table(TableCursor::peeking(Arc::clone(slot.table())))
    }

    /// A cursor over a sorted run of a deeper level that leaves the block cache as it is.
    pub fn peeking_run(run: &TableRun, comparator: &Comparator) -> Self {
        let inputs = run.tables().map(|slot| MergeInput { slot: Arc::clone(slot), is_peeked: true });
        Self::Run(LevelCursor::new(comparator.clone(), inputs.collect()))
    }

    /// A cursor over a sorted run of a deeper level.
    pub fn run(run: &Arc<TableRun>, comparator: &Comparator) -> Self {
        Self::Level(LevelCursor::new(comparator.clone(), Arc::clone(run)))
    }
}

macro_rules! each {
    ($self:ident, $m:ident => $memtable:expr, $c:ident => $other:expr) => {
        match $self {
            Source::Memtable($m) => $memtable,
            Source::Own($m, _) => $memtable,
            Source::Table($c) => $other,
            Source::Level($c) => $other,
            Source::Run($c) => $other,
        }
    };
}

impl EntryCursor for Source {
    fn skip_older(&mut self, below: SeqNo, until: Option<&[u8]>) -> Result<()> {
        match self {
            Self::Memtable(m) => {
                m.skip_older(below, until);
                Ok(())
            }
            Self::Own(..) => Ok(()), // its sequence numbers are not comparable
            Self::Table(c) => c.skip_older(below, until),
            Self::Level(c) => c.skip_older(below, until),
            Self::Run(c) => c.skip_older(below, until),
        }
    }

    fn set_scope(&mut self, scope: &Scope) {
        match self {
            // In memory, a step costs no more than a check whether the step is worth it.
            Self::Memtable(_) | Self::Own(..) => {}
            Self::Table(c) => c.set_scope(scope),
            Self::Level(c) => c.set_scope(scope),
            Self::Run(c) => c.set_scope(scope),
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        each!(self, m => m.valid(), c => c.valid())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, m => { m.seek_to_first(); Ok(()) }, c => c.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, m => { m.seek_to_last(); Ok(()) }, c => c.seek_to_last())
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        each!(self, m => { m.seek(target); Ok(()) }, c => c.seek(target))
    }

    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        match self {
            // For the reader all own writes have one sequence number.
            Self::Own(m, own) if seq < *own => m.seek_after(target),
            Self::Own(m, _) => m.seek(target),
            Self::Memtable(m) => m.seek_version(target, seq),
            Self::Table(c) => return c.seek_version(target, seq),
            Self::Level(c) => return c.seek_version(target, seq),
            Self::Run(c) => return c.seek_version(target, seq),
        }
        Ok(())
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        each!(self, m => { m.seek_for_prev(target); Ok(()) }, c => c.seek_for_prev(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, m => { m.next(); Ok(()) }, c => c.next())
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        each!(self, m => { m.next_key(); Ok(()) }, c => c.next_key())
    }

    #[inline]
    fn next_key_past_alike(&mut self) -> Option<u64> {
        match self {
            Self::Memtable(m) => m.next_key_past_alike(),
            Self::Own(..) | Self::Table(_) | Self::Level(_) | Self::Run(_) => None,
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match self {
            Self::Memtable(m) => m.prev(),
            Self::Own(m, _) => m.prev_key(),
            Self::Table(c) => return c.prev(),
            Self::Level(c) => return c.prev(),
            Self::Run(c) => return c.prev(),
        }
        Ok(())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, m => m.entry().key, c => c.key())
    }

    #[inline]
    fn entry_meta(&self) -> EntryMeta {
        match self {
            Self::Memtable(m) => meta_in_memory(&m.entry()),
            Self::Own(m, seq) => meta_in_memory(&m.entry()).at(*seq),
            Self::Table(c) => c.entry_meta(),
            Self::Level(c) => c.entry_meta(),
            Self::Run(c) => c.entry_meta(),
        }
    }

    fn copy_rows(&mut self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        match self {
            Self::Memtable(m) => {
                copy_from_memory(m, reader, until, rows);
                Ok(())
            }
            Self::Own(..) => Ok(()),
            Self::Table(c) => c.copy_rows(reader, until, rows),
            Self::Level(c) => c.copy_rows(reader, until, rows),
            Self::Run(c) => c.copy_rows(reader, until, rows),
        }
    }

    fn is_own(&self) -> bool {
        matches!(self, Self::Own(..))
    }

    #[inline]
    fn value_len(&self) -> usize {
        each!(self, m => m.entry().value.len(), c => c.value_len())
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        each!(self, m => {
            let e = m.entry();
            Ok((e.key, kind(e.kind), e.value))
        }, c => c.entry())
    }

    fn may_contain(&self, key: &[u8]) -> bool {
        match self {
            Self::Table(c) => c.table().may_contain(key_hash(key)),
            Self::Memtable(_) | Self::Own(..) | Self::Level(_) | Self::Run(_) => true,
        }
    }
}

fn copy_from_memory(
    memtable: &mut tidesdb_memtable::Cursor,
    reader: ReadPoint,
    until: Option<&[u8]>,
    rows: &mut Rows,
) {
    while !rows.is_full() && memtable.valid() {
        let e = memtable.entry();
        let entry_meta = EntryMeta::new(e.seq, kind(e.kind), e.expiry);
        if !reader.shows(entry_meta)
            || until.is_some_and(|until| e.key >= until)
            || !rows.push(e.key, e.value, entry_meta)
        {
            return;
        }
        memtable.next_key();
    }
}

#[inline(always)]
fn meta_in_memory(e: &tidesdb_memtable::Entry<'_>) -> EntryMeta {
    EntryMeta::new(e.seq, kind(e.kind), e.expiry)
}

/// A memtable holds only kinds that a batch encoded.
#[inline(always)]
fn kind(byte: u8) -> Kind {
    Kind::of_checked(byte)
}
