//! [`Table`]: an open table. Its blocks, and the partitions of its index and filter, are read and checked when needed.
//!
//! All methods may be called by any number of threads.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use tidesdb_sync::{Guard, pin};

use super::block::Find;
use super::blocks::Blocks;
use super::file::TableFile;
use super::filter::Filter;
use super::gate::{AllowAllReads, ReadGate};
use super::index::{BlocksWithin, Border, CurrentPartition, Index};
use super::layout::Footer;
use super::memory::TableShare;
use super::open::Sections;
use super::parts::Parts;
use super::steps::ReadStep;
use super::{TableContext, TableMeta};
use crate::Result;
use crate::types::{Comparator, Kind, SEQ_MAX, SeqNo};

/// A version of a key, found by a lookup.
#[derive(Clone, Debug)]
pub struct FoundVersion<'g> {
    /// Sequence number of the commit that wrote it.
    pub seq: SeqNo,
    /// Kind of the entry.
    pub kind: Kind,
    /// Expiry in milliseconds since the UNIX epoch; 0 = never.
    pub expiry: u64,
    /// The value as stored, in the cache if it can be used there; empty if it was not requested.
    pub value: Cow<'g, [u8]>,
}

/// An open table.
pub struct Table {
    filter: Filter,
    blocks: Blocks,
    footer: Footer,
    /// Memory of index and filter, taken from the cache.
    _guide: TableShare,
    /// Memory of its description and of this structure.
    _described: TableShare,
}

impl Table {
    /// Opens the table that `meta` describes, and refuses any other file.
    ///
    /// Index and filter are either resident (completely in memory), if there is enough memory now, or partitioned (only the top level is
    /// in memory).
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged or does not match `meta`; `FormatTooNew`; `Io`.
    pub fn open(context: &TableContext, comparator: &Comparator, meta: Arc<TableMeta>) -> Result<Arc<Self>> {
        let file = TableFile::open(context, meta)?;
        let sections = Sections::read(&file, comparator.is_bytewise())?;
        let footer = sections.footer;
        let (index, filter, share) = match Self::resident(context, comparator, &file, &sections)? {
            Some(resident) => resident,
            None => {
                let share = context.memory.take(sections.top.bytes() as u64);
                let filter = Filter::partitioned(sections.filter, footer.filter_at);
                (Index::partitioned(sections.top, comparator.clone()), filter, share)
            }
        };
        let described = context.memory.take(size_of::<Self>() as u64 + file.meta().memory_bytes());
        let blocks = Blocks::new(Parts::new(context, file), index);
        Ok(Arc::new(Self { filter, blocks, footer, _guide: share, _described: described }))
    }

    /// Reads index and filter if they are to be resident.
    fn resident(
        context: &TableContext,
        order: &Comparator,
        file: &TableFile,
        sections: &Sections,
    ) -> Result<Option<(Index, Filter, TableShare)>> {
        let Some(mut share) = context.memory.try_take(sections.resident_estimate()) else { return Ok(None) };
        let filter = Filter::resident(sections.filter, sections.footer.filter_at, file)?;
        let index = Index::resident(&sections.top, file, order.clone())?;
        let bytes = (index.bytes() + filter.bytes()) as u64;
        let has_room = share.try_resize(bytes);
        Ok(has_room.then_some((index, filter, share)))
    }

    /// Gives the rows of a table that was built outside of the database, and that nobody has read yet, their sequence number.
    pub fn number(&mut self, seq: SeqNo) {
        let mut meta = TableMeta::clone(self.meta());
        debug_assert!(meta.taken.is_some(), "other tables have their numbers");
        (meta.min_seq, meta.max_seq) = (seq, seq);
        self.blocks.file_mut().set_meta(Arc::new(meta));
    }

    /// Returns whether the table was built outside of the database and has a value log of its own, which has another number there.
    #[inline]
    pub(super) fn has_own_value_log(&self) -> bool {
        self.meta().taken.is_some_and(|taken| taken.vlog.is_some())
    }

    /// Returns the table's description in the manifest.
    pub fn meta(&self) -> &Arc<TableMeta> {
        self.blocks.file().meta()
    }

    #[inline]
    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(super) fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns whether the table may contain a key with this hash ([`codec::key_hash`](crate::codec::key_hash)); false
    /// is certain. Use it only for byte order: tables in other orders have no filter, because equal keys may differ in
    /// bytes. Returns true if the filter cannot be read; a lookup will return the error.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash) && (self.blocks.is_resident() || self.partition_may_contain(hash))
    }

    /// Returns whether the table has a filter.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.filter.shape().partitions() > 0
    }

    /// Like [`Table::may_contain`], but tells `gate` what it reads.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn may_contain_through(&self, hash: u64, guard: &Guard, gate: &mut impl ReadGate) -> Result<bool> {
        let (filter, parts) = (&self.filter, self.blocks.parts());
        Ok(filter.may_contain(hash)
            && (self.blocks.is_resident() || filter.partition_may_contain(hash, parts, guard, gate)?))
    }

    fn partition_may_contain(&self, hash: u64) -> bool {
        let parts = self.blocks.parts();
        self.filter.partition_may_contain(hash, parts, &pin(), &mut AllowAllReads).unwrap_or(true)
    }

    /// Starts loading the filter line that [`Table::get`] reads first, so that the filters of several tables load in
    /// parallel.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Returns the bytes of index and filter that stay in memory while the table is open.
    pub fn resident_bytes(&self) -> u64 {
        (self.blocks.resident_bytes() + self.filter.bytes()) as u64
    }

    /// Returns the newest version of `key` at or below `snapshot`; `hash` must be the hash of `key`. With `want_value`
    /// false, the value is neither read nor decoded, and is empty.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    #[inline]
    pub fn get<'g>(
        &'g self,
        key: &[u8],
        hash: u64,
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
    ) -> Result<Option<FoundVersion<'g>>> {
        self.get_through((key, hash), snapshot, want_value, guard, &mut AllowAllReads)
    }

    /// Like [`Table::get`], but asks `gate` before each read. If the gate is shut afterwards, the result is
    /// meaningless.
    ///
    /// # Errors
    /// As [`Table::get`].
    #[inline]
    pub fn get_through<'g>(
        &'g self,
        (key, hash): (&[u8], u64),
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<FoundVersion<'g>>> {
        gate.note(|| ReadStep::Table(self.meta().id));
        if self.filter.may_contain(hash) {
            self.find((key, hash), snapshot, want_value, guard, gate)
        } else {
            gate.note(|| ReadStep::Filter { passes: false });
            Ok(None)
        }
    }

    /// Not inlined, so that it does not slow down a lookup that the filter ends.
    #[inline(never)]
    fn find<'g>(
        &'g self,
        (key, hash): (&[u8], u64),
        snapshot: SeqNo,
        want_value: bool,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<FoundVersion<'g>>> {
        let (blocks, index) = (&self.blocks, self.blocks.index());
        if !blocks.is_resident() && !self.filter.partition_may_contain(hash, blocks.parts(), guard, gate)? {
            gate.note(|| ReadStep::Filter { passes: false });
            return Ok(None);
        }
        if self.has_filter() {
            gate.note(|| ReadStep::Filter { passes: true });
        }
        let Some(mut b) = index.look_up(key, snapshot, guard, gate)? else { return Ok(None) };
        gate.note(|| ReadStep::Index { block: b as u64, of: blocks.count() as u64 });
        let explains = gate.explains();
        loop {
            let Some(keys) = blocks.keys(b, guard, gate)? else { return Ok(None) };
            let block = keys.block().ok_or_else(|| blocks.wrong_part(b))?;
            match block.find(blocks.order(), key, snapshot) {
                Find::At(i) => {
                    let value = match want_value {
                        true => blocks.value(b, &keys, i, guard, gate)?,
                        false => Cow::Borrowed(&[][..]),
                    };
                    let (seq, kind, expiry) = (block.seq(i), block.kind(i), block.expiry(i));
                    let value = match self.meta().place_of(kind, &value) {
                        None => value,
                        Some(place) => Cow::Owned(place.into_vec()),
                    };
                    gate.note(|| ReadStep::Answer { found: Some(seq) });
                    return Ok(Some(FoundVersion { seq, kind, expiry, value }));
                }
                Find::Beyond
                    if index.goes_on(&mut CurrentPartition::of_lookup(explains), b + 1)?.is_some() =>
                {
                    b += 1
                }
                Find::Beyond | Find::Absent => {
                    // A key of which the snapshot shows no version is there, so the filter was right.
                    if !explains && !matches!(block.find(blocks.order(), key, SEQ_MAX), Find::At(_)) {
                        blocks.parts().count_in_vain();
                    }
                    gate.note(|| ReadStep::Answer { found: None });
                    return Ok(None);
                }
            }
        }
    }

    /// Returns whether at least half of the blocks lie between these keys (`None` means no bound). Returns false if the
    /// index cannot be read; a read of the table will return the error.
    pub fn is_half_of(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        let (order, index, near) =
            (self.blocks.order(), self.blocks.index(), &mut CurrentPartition::default());
        let all = self.blocks.count();
        let first = start.map_or(Ok(0), |key| index.first_block(near, key));
        let last = end.map_or(Ok(all), |key| index.first_block(near, key));
        let (Ok(first), Ok(last)) = (first, last) else { return false };
        let inside = |key: &[u8]| {
            start.is_none_or(|start| order.compare(start, key).is_le())
                && end.is_none_or(|end| order.compare(key, end).is_lt())
        };
        let (covered, meta) = (last.saturating_sub(first) * 2 >= all, self.meta());
        covered && (inside(&meta.smallest) || inside(&meta.largest) || last > first + 1)
    }

    /// Returns the blocks that may contain keys between these bounds. If the part of the index for a bound cannot be read, that bound
    /// is treated as the end of the table.
    pub fn blocks_within(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> BlocksWithin {
        self.blocks.index().blocks_within(start, end)
    }

    /// Divides the table into at most `pieces` stretches of about equal length and reads nothing for it. Returns the first key of
    /// each, or a key between that and the one before, and its bytes.
    pub fn stretches(&self, pieces: usize) -> Vec<(Vec<u8>, u64)> {
        let key = |border: Option<Border>| {
            border.map_or_else(|| self.meta().smallest.clone(), |b| b.fence.into_vec())
        };
        self.blocks
            .index()
            .stretches(pieces)
            .into_iter()
            .map(|(border, bytes)| (key(border), bytes))
            .collect()
    }

    /// Returns whether most of the file is in the system's page cache, according to a sample.
    pub fn is_in_page_cache(&self) -> bool {
        self.blocks.file().is_in_page_cache(self.footer.filter_at)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.blocks.file().name())
            .field("entries", &self.meta().entries)
            .finish_non_exhaustive()
    }
}
