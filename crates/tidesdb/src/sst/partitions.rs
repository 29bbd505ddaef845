//! Searches of the index and the filter of a table, either in memory or through partitions.
//!
//! A partition comes from the block cache, or is read into it. A scan keeps the index partition it used last, so it
//! asks the cache once per partition rather than once per block. A damaged partition is an error of the read that needs
//! it.

use std::ops::Bound;

use tidesdb_cache::{CacheKey, Handle};
use tidesdb_sync::Guard;

use super::Table;
use super::filter::FilterPartition;
use super::gate::{AllowAllReads, ReadGate};
use super::index::{BlockIndex, Border, Fence, Index, Partition, TopIndex};
use super::open::Opening;
use super::reader::CachedPart;
use crate::types::{Comparator, Scope, SeqNo};
use crate::{Error, Result};

/// Offset of partition numbers in cache keys; block numbers are smaller.
const PARTITIONS: u32 = 1 << 31;
/// Kinds of partitions in cache keys.
const INDEX_PART: u8 = 0;
const FILTER_PART: u8 = 1;

/// The index partition that a scan used last.
#[derive(Default)]
pub(super) struct CurrentPartition {
    held: PartitionSource,
    /// If set, partitions are read without the cache.
    bypassing: bool,
}

#[derive(Default)]
enum PartitionSource {
    #[default]
    None,
    Cached(usize, Handle<CachedPart>),
    Own(usize, Box<BlockIndex>),
}

impl CurrentPartition {
    /// For scans of a whole table, which should not fill the block cache.
    pub(super) fn bypassing() -> Self {
        Self { held: PartitionSource::None, bypassing: true }
    }

    fn get(&self, number: usize) -> Option<&BlockIndex> {
        match &self.held {
            PartitionSource::Cached(held, part) if *held == number => part.index(),
            PartitionSource::Own(held, index) if *held == number => Some(index),
            _ => None,
        }
    }
}

impl CachedPart {
    fn index(&self) -> Option<&BlockIndex> {
        match self {
            Self::Index(index) => Some(index),
            _ => None,
        }
    }

    fn filter(&self) -> Option<&FilterPartition> {
        match self {
            Self::Filter(filter) => Some(filter),
            _ => None,
        }
    }
}

/// A partition, kept alive for one lookup.
enum Pinned<'g> {
    Borrowed(&'g CachedPart),
    Cached(Handle<CachedPart>),
}

impl Pinned<'_> {
    fn part(&self) -> &CachedPart {
        match self {
            Self::Borrowed(part) => part,
            Self::Cached(part) => part,
        }
    }
}

/// Blocks of a table that may contain keys of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlocksWithin {
    /// Number of these blocks.
    pub blocks: u64,
    /// Number of all blocks.
    pub all: u64,
    /// Bytes of these blocks on disk.
    pub bytes: u64,
}

/// Searches for scans.
impl Table {
    /// Returns the number of blocks.
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        self.footer.blocks as usize
    }

    /// Returns the first block that can contain `target` or a later key.
    #[inline(always)]
    pub(super) fn first_block(&self, near: &mut CurrentPartition, target: &[u8]) -> Result<usize> {
        match &self.guide.index {
            Index::Resident(index) => Ok(index.first_block(&self.comparator, target)),
            Index::Partitioned(top) => {
                self.search(near, top, TopIndex::first, target, BlockIndex::first_block)
            }
        }
    }

    /// Returns the last block that can contain `target` or an earlier key.
    pub(super) fn last_block(&self, near: &mut CurrentPartition, target: &[u8]) -> Result<usize> {
        match &self.guide.index {
            Index::Resident(index) => Ok(index.last_block(&self.comparator, target)),
            Index::Partitioned(top) => self.search(near, top, TopIndex::last, target, BlockIndex::last_block),
        }
    }

    /// Returns the block that contains the newest version of `target` at or below `snapshot`, if any block does.
    pub(super) fn block_of(
        &self,
        near: &mut CurrentPartition,
        target: &[u8],
        snapshot: SeqNo,
    ) -> Result<usize> {
        let order = &self.comparator;
        match &self.guide.index {
            Index::Resident(index) => Ok(index.block_of(order, target, snapshot)),
            Index::Partitioned(top) => {
                let index = self.near(near, top, top.of(order, target, snapshot))?;
                Ok(index.block_of(order, target, snapshot))
            }
        }
    }

    /// Searches the top level, then the partition.
    #[inline(never)]
    fn search(
        &self,
        near: &mut CurrentPartition,
        top: &TopIndex,
        partition: fn(&TopIndex, &Comparator, &[u8]) -> Option<Partition>,
        target: &[u8],
        block: fn(&BlockIndex, &Comparator, &[u8]) -> usize,
    ) -> Result<usize> {
        let order = &self.comparator;
        let index = self.near(near, top, partition(top, order, target))?;
        Ok(block(index, order, target))
    }

    /// Returns the location of block `b`.
    #[inline(always)]
    pub(super) fn fence(&self, near: &mut CurrentPartition, b: usize) -> Result<Fence> {
        match &self.guide.index {
            Index::Resident(index) => index.place(b).ok_or_else(|| self.wrong_part(b)),
            Index::Partitioned(top) => self.partition_fence(near, top, b),
        }
    }

    #[inline(never)]
    fn partition_fence(&self, near: &mut CurrentPartition, top: &TopIndex, b: usize) -> Result<Fence> {
        self.near(near, top, top.covering(b))?.place(b).ok_or_else(|| self.wrong_part(b))
    }

    /// Returns the first sequence number of block `b` if versions of a key continue into it from the previous block.
    #[inline(always)]
    pub(super) fn goes_on(&self, near: &mut CurrentPartition, b: usize) -> Result<Option<SeqNo>> {
        match &self.guide.index {
            Index::Resident(index) => Ok(index.goes_on(b)),
            Index::Partitioned(top) => {
                Ok(self.partition_border(near, top, b)?.and_then(|border| border.goes_on))
            }
        }
    }

    /// Returns the border before block `b`; `None` before the first and after the last.
    pub(super) fn border(&self, near: &mut CurrentPartition, b: usize) -> Result<Option<Border>> {
        match &self.guide.index {
            Index::Resident(index) => Ok(index.border(b)),
            Index::Partitioned(top) => self.partition_border(near, top, b),
        }
    }

    /// Whether a walk that comes to block `b` may still find keys in `scope`, there or behind it. A walk backwards may begin above the scope.
    pub(super) fn is_in_scope(
        &self,
        near: &mut CurrentPartition,
        b: usize,
        scope: &Scope,
        backwards: bool,
    ) -> Result<bool> {
        let order = &self.comparator;
        let is_beyond = |border: Border| match backwards {
            false => scope.is_above(order, &border.fence),
            true => border.goes_on.is_none() && scope.is_below_until(order, &border.fence),
        };
        Ok(!self.border(near, b + usize::from(backwards))?.is_some_and(is_beyond))
    }

    #[inline(never)]
    fn partition_border(
        &self,
        near: &mut CurrentPartition,
        top: &TopIndex,
        b: usize,
    ) -> Result<Option<Border>> {
        match top.covering(b) {
            Some(partition) if partition.block == b => Ok(top.border(partition.number)),
            Some(partition) => Ok(self.near(near, top, Some(partition))?.border(b)),
            None => Ok(None),
        }
    }

    /// Returns whether at least half of the blocks lie between these keys (`None` means no bound). Returns false if the
    /// index cannot be read; a read of the table will return the error.
    pub fn is_half_of(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        let (order, near) = (&self.comparator, &mut CurrentPartition::default());
        let first = start.map_or(Ok(0), |key| self.first_block(near, key));
        let last = end.map_or(Ok(self.blocks()), |key| self.first_block(near, key));
        let (Ok(first), Ok(last)) = (first, last) else { return false };
        let inside = |key: &[u8]| {
            start.is_none_or(|start| order.compare(start, key).is_le())
                && end.is_none_or(|end| order.compare(key, end).is_lt())
        };
        let covered = last.saturating_sub(first) * 2 >= self.blocks();
        covered && (inside(&self.meta.smallest) || inside(&self.meta.largest) || last > first + 1)
    }

    /// Returns the blocks that may contain keys between these bounds. If the part of the index for a bound cannot be read, that bound counts as the end of the table.
    pub fn blocks_within(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> BlocksWithin {
        let near = &mut CurrentPartition::default();
        let all = self.blocks();
        let first = match start {
            Bound::Included(key) | Bound::Excluded(key) => self.first_block(near, key).unwrap_or(0),
            Bound::Unbounded => 0,
        };
        let last = match end {
            Bound::Included(key) | Bound::Excluded(key) => self.last_block(near, key).unwrap_or(all),
            Bound::Unbounded => all,
        };
        let within = first..(last.saturating_add(1)).min(all);
        if within.is_empty() {
            return BlocksWithin { blocks: 0, all: all as u64, bytes: 0 };
        }
        // Blocks are contiguous.
        let begin = self.fence(near, first).map_or(0, |fence| fence.at);
        let end =
            self.fence(near, within.end - 1).map_or(self.footer.filter_at, |fence| fence.at + fence.disk);
        BlocksWithin { blocks: within.len() as u64, all: all as u64, bytes: end.saturating_sub(begin) }
    }

    /// Divides the table into at most `pieces` stretches of about equal length and reads nothing for it. Returns the first key of
    /// each, or a key between that and the one before, and its bytes.
    pub fn stretches(&self, pieces: usize) -> Vec<(Vec<u8>, u64)> {
        let step = |of: usize| of.div_ceil(pieces.max(1)).max(1);
        let mut starts: Vec<(Option<Border>, u64)> = match &self.guide.index {
            Index::Resident(index) => {
                let start = |b| Some((index.border(b), index.place(b)?.at));
                (0..self.blocks()).step_by(step(self.blocks())).filter_map(start).collect()
            }
            Index::Partitioned(top) => {
                let partitions = top.partitions().step_by(step(top.partitions().count()));
                partitions.map(|p| (top.border(p.number), p.data.0)).collect()
            }
        };
        starts.push((None, self.footer.filter_at));
        let key =
            |border: &Option<Border>| border.as_ref().map_or(&*self.meta.smallest, |b| &b.fence).to_vec();
        starts.windows(2).map(|w| (key(&w[0].0), w[1].1.saturating_sub(w[0].1))).collect()
    }

    /// Returns a partition of the index, which `near` keeps.
    fn near<'n>(
        &self,
        near: &'n mut CurrentPartition,
        top: &TopIndex,
        partition: Option<Partition>,
    ) -> Result<&'n BlockIndex> {
        let partition = partition.ok_or_else(|| self.no_partition())?;
        let number = partition.number;
        if near.get(number).is_none() {
            near.held = match near.bypassing {
                true => {
                    PartitionSource::Own(number, Box::new(self.opening().partition_index(top, partition)?))
                }
                false => {
                    let cached = self.cache.get(self.partition_key(number, INDEX_PART));
                    let part = cached.map_or_else(|| self.load_index(top, partition), Ok)?;
                    PartitionSource::Cached(number, part)
                }
            };
        }
        near.get(number).ok_or_else(|| self.no_partition())
    }
}

/// Point lookups.
impl Table {
    /// Returns the block that contains the newest version of `key` at or below `snapshot`, if any block does. Returns
    /// `None` if the filter rejects the key or `gate` refuses a read.
    #[inline(never)]
    pub(super) fn find_block(
        &self,
        top: &TopIndex,
        (key, hash): (&[u8], u64),
        snapshot: SeqNo,
        guard: &Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<usize>> {
        if !self.filter_passes(hash, guard, gate)? {
            return Ok(None);
        }
        let order = &self.comparator;
        let partition = top.of(order, key, snapshot).ok_or_else(|| self.no_partition())?;
        let held = match self.cache.get_pinned(self.partition_key(partition.number, INDEX_PART), guard) {
            Some(part) => Pinned::Borrowed(part),
            None if !self.admits(gate, partition.at, partition.len as usize) => return Ok(None),
            None => self.load_index(top, partition).map(Pinned::Cached)?,
        };
        let index = held.part().index().ok_or_else(|| self.no_partition())?;
        Ok(Some(index.block_of(order, key, snapshot)))
    }

    /// Returns whether a partitioned filter accepts a hash. Returns true if it cannot be read; the lookup will return
    /// the error.
    pub(super) fn partition_may_contain(&self, hash: u64) -> bool {
        match self.guide.index {
            Index::Resident(_) => true,
            Index::Partitioned(_) => {
                self.filter_passes(hash, &tidesdb_sync::pin(), &mut AllowAllReads).unwrap_or(true)
            }
        }
    }

    /// Returns whether the filter accepts a hash. Returns false if `gate` refuses a read.
    fn filter_passes(&self, hash: u64, guard: &Guard, gate: &mut impl ReadGate) -> Result<bool> {
        let shape = self.guide.shape;
        let Some(n) = shape.partition_of(hash) else { return Ok(true) };
        let held = match self.cache.get_pinned(self.partition_key(n, FILTER_PART), guard) {
            Some(part) => Pinned::Borrowed(part),
            None => {
                let (offset, len) = shape.place(n);
                if !self.admits(gate, self.footer.filter_at + offset, len) {
                    return Ok(false);
                }
                self.load_filter(n).map(Pinned::Cached)?
            }
        };
        let partition = held.part().filter().ok_or_else(|| self.no_partition())?;
        Ok(shape.may_contain(partition, hash))
    }

    /// Reads a partition of the index into the cache.
    #[cold]
    fn load_index(&self, top: &TopIndex, partition: Partition) -> Result<Handle<CachedPart>> {
        let index = Box::new(self.opening().partition_index(top, partition)?);
        self.count_read(partition.len as usize);
        let charge = (size_of::<CachedPart>() + size_of::<BlockIndex>() + index.bytes()) as u64;
        let key = self.partition_key(partition.number, INDEX_PART);
        Ok(self.cache.insert(key, CachedPart::Index(index), charge))
    }

    /// Reads a partition of the filter into the cache.
    #[cold]
    fn load_filter(&self, n: usize) -> Result<Handle<CachedPart>> {
        let (offset, len) = self.guide.shape.place(n);
        let at = self.footer.filter_at + offset;
        let section = self.opening().read(at, at + len as u64)?;
        self.count_read(len);
        let filter = FilterPartition::decode(&section, &self.meta.salt, &self.name, at)?;
        let charge = (size_of::<CachedPart>() + filter.bytes()) as u64;
        Ok(self.cache.insert(self.partition_key(n, FILTER_PART), CachedPart::Filter(filter), charge))
    }

    /// Returns the file in the form that opening a table uses.
    pub(super) fn opening(&self) -> Opening<'_> {
        let bytewise = self.comparator.is_bytewise();
        Opening { source: &self.source, meta: &self.meta, name: &self.name, bytewise }
    }

    fn partition_key(&self, number: usize, part: u8) -> CacheKey {
        self.cache_key(number | PARTITIONS as usize, part)
    }

    #[cold]
    fn no_partition(&self) -> Error {
        Error::internal(format!("no such partition of {}", self.name))
    }
}
