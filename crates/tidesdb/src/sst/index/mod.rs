//! The fence index: for each block after the first, a key that separates it from its predecessor, and the location of
//! every block. The index is split into partitions of consecutive blocks. A top level of the same structure finds the
//! partition.
//!
//! In byte order a fence is the shortest string above the last key before it and not above the first key after it. In
//! other orders it is that first key. If versions of one key continue from one block to the next, the fence is that
//! key, is marked, and has the sequence number of the first entry after it.
//!
//! Searching the top level and then the partition gives the same result as searching all fences: the top level has the
//! fences between partitions, and each search counts the fences before its target.

mod blocks;
mod builder;
mod fences;
mod places;
mod top;
mod tree;

use std::ops::Bound;

use tidesdb_cache::Handle;
use tidesdb_sync::Guard;

use super::file::TableFile;
use super::gate::ReadGate;
use super::parts::{CachedPart, PartitionPlace, Parts};
use super::steps::ReadStep;
use crate::types::{Comparator, Scope, SeqNo};
use crate::{Error, Result};

pub(super) use blocks::{BlockIndex, Fence};
#[cfg(test)]
pub(super) use builder::WHOLE_FENCES;
pub(super) use builder::{IndexBuilder, PARTITION_BYTES};
pub(super) use fences::{Border, Fences, VersionKey, encloses};
pub(super) use top::{Partition, TopIndex};
#[cfg(test)]
pub(super) use tree::Tree;

/// The index of an open table.
pub(super) struct Index {
    order: Comparator,
    levels: Levels,
    /// Number of blocks.
    blocks: usize,
    /// End of the last block.
    data_end: u64,
}

enum Levels {
    /// The whole index is in memory.
    Resident(BlockIndex),
    /// Only the top level is in memory; partitions are read when needed.
    Partitioned(Box<TopIndex>),
}

/// The index partition that a scan used last, so it asks the cache once per partition rather than once per block.
#[derive(Default)]
pub(super) struct CurrentPartition {
    number: usize,
    held: HeldPartition,
    /// If set, partitions are read without the cache.
    bypassing: bool,
}

#[derive(Default)]
enum HeldPartition {
    #[default]
    None,
    Cached(Handle<CachedPart>),
    Own(Box<BlockIndex>),
}

impl CurrentPartition {
    /// For scans of a whole table, which should not fill the block cache.
    pub(super) fn bypassing() -> Self {
        Self { bypassing: true, ..Self::default() }
    }

    /// For a lookup, which fills the block cache unless it explains itself.
    #[inline]
    pub(super) fn of_lookup(explains: bool) -> Self {
        if explains { Self::bypassing() } else { Self::default() }
    }

    fn get(&self) -> Option<&BlockIndex> {
        match &self.held {
            HeldPartition::Cached(part) => index_of(part),
            HeldPartition::Own(index) => Some(index),
            HeldPartition::None => None,
        }
    }
}

fn index_of(part: &CachedPart) -> Option<&BlockIndex> {
    match part {
        CachedPart::Index(index) => Some(index),
        _ => None,
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

impl Index {
    /// Reads all partitions below `top` with one read.
    pub(super) fn resident(top: &TopIndex, file: &TableFile, order: Comparator) -> Result<Self> {
        let index = top.decode(file, 0..top.count(), &file.read_range(top.range())?)?;
        Ok(Self { order, levels: Levels::Resident(index), blocks: top.blocks(), data_end: top.data_end() })
    }

    /// Creates an index that reads the partitions below `top` when it needs them.
    pub(super) fn partitioned(top: TopIndex, order: Comparator) -> Self {
        let (blocks, data_end) = (top.blocks(), top.data_end());
        Self { order, levels: Levels::Partitioned(Box::new(top)), blocks, data_end }
    }

    /// Returns the order of keys.
    #[inline]
    pub(super) fn order(&self) -> &Comparator {
        &self.order
    }

    /// Returns the number of blocks.
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns whether the whole index is in memory.
    pub(super) fn is_resident(&self) -> bool {
        matches!(self.levels, Levels::Resident(_))
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.levels {
            Levels::Resident(index) => index.bytes(),
            Levels::Partitioned(top) => top.bytes(),
        }
    }
}

/// An index, and the table file that its partitions are read from. A damaged partition is an error of the search that needs it.
#[derive(Clone, Copy)]
pub(super) struct IndexReader<'a> {
    pub(super) index: &'a Index,
    pub(super) parts: &'a Parts,
}

impl<'a> IndexReader<'a> {
    /// Returns the block that contains the newest version of `key` at or below `snapshot`, if any does, for one lookup. Returns `None`
    /// if `gate` refuses a read.
    #[inline]
    pub(super) fn look_up(
        self,
        key: &[u8],
        snapshot: SeqNo,
        guard: &Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<usize>> {
        match &self.index.levels {
            Levels::Resident(index) => {
                Ok(Some(index.find(|fences| fences.of(&self.index.order, key, snapshot))))
            }
            Levels::Partitioned(top) => self.look_up_partition(top, key, snapshot, guard, gate),
        }
    }

    #[inline(never)]
    fn look_up_partition(
        self,
        top: &TopIndex,
        key: &[u8],
        snapshot: SeqNo,
        guard: &Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Option<usize>> {
        let search = |fences: &Fences| fences.of(&self.index.order, key, snapshot);
        let partition = top.find(search).ok_or_else(|| self.no_partition())?;
        let decode = |bytes: &[u8]| self.decode(top, partition, bytes).map(CachedPart::Index);
        let note = |from, bytes| ReadStep::IndexPart { from, bytes };
        let Some(part) = self.parts.partition(self.place(partition), guard, gate, (decode, note))? else {
            return Ok(None);
        };
        let index = index_of(part.part()).ok_or_else(|| self.no_partition())?;
        Ok(Some(index.find(search)))
    }

    /// Returns the first block that can contain `target` or a later key.
    #[inline(always)]
    pub(super) fn first_block(self, near: &mut CurrentPartition, target: &[u8]) -> Result<usize> {
        self.find(near, |fences| fences.first(&self.index.order, target))
    }

    /// Returns the last block that can contain `target` or an earlier key.
    pub(super) fn last_block(self, near: &mut CurrentPartition, target: &[u8]) -> Result<usize> {
        self.find(near, |fences| fences.last(&self.index.order, target))
    }

    /// Returns the block that contains the newest version of `target` at or below `snapshot`, if any block does.
    pub(super) fn block_of(
        self,
        near: &mut CurrentPartition,
        target: &[u8],
        snapshot: SeqNo,
    ) -> Result<usize> {
        self.find(near, |fences| fences.of(&self.index.order, target, snapshot))
    }

    /// Returns the block that `search` finds among the fences of the top level and then among those of its partition.
    #[inline(always)]
    fn find(self, near: &mut CurrentPartition, search: impl Fn(&Fences) -> usize) -> Result<usize> {
        Ok(self.at(near, |top| top.find(&search))?.find(&search))
    }

    /// Returns the location of block `b`.
    #[inline(always)]
    pub(super) fn fence(self, near: &mut CurrentPartition, b: usize) -> Result<Fence> {
        self.at(near, |top| top.covering(b))?.place(b).ok_or_else(|| self.no_partition())
    }

    /// Returns the first sequence number of block `b` if versions of a key continue into it from the previous block.
    #[inline(always)]
    pub(super) fn goes_on(self, near: &mut CurrentPartition, b: usize) -> Result<Option<SeqNo>> {
        match &self.index.levels {
            Levels::Resident(index) => Ok(index.goes_on(b)),
            Levels::Partitioned(_) => Ok(self.border(near, b)?.and_then(|border| border.goes_on)),
        }
    }

    /// Returns the border before block `b`; `None` before the first and after the last.
    #[inline(never)]
    pub(super) fn border(self, near: &mut CurrentPartition, b: usize) -> Result<Option<Border>> {
        match &self.index.levels {
            Levels::Resident(index) => Ok(index.border(b)),
            Levels::Partitioned(top) => match top.covering(b) {
                Some(partition) if partition.block == b => Ok(top.border(partition.number)),
                Some(partition) => Ok(self.load(near, top, Some(partition))?.border(b)),
                None => Ok(None),
            },
        }
    }

    /// Whether a walk that reaches block `b` may still find keys in `scope`, there or behind it. A walk backwards may begin above the scope.
    pub(super) fn is_in_scope(
        self,
        near: &mut CurrentPartition,
        b: usize,
        scope: &Scope,
        backwards: bool,
    ) -> Result<bool> {
        let order = &self.index.order;
        let is_beyond = |border: Border| match backwards {
            false => scope.is_above(order, &border.fence),
            true => border.goes_on.is_none() && scope.is_below_until(order, &border.fence),
        };
        Ok(!self.border(near, b + usize::from(backwards))?.is_some_and(is_beyond))
    }

    /// Returns the blocks that may contain keys between these bounds. If the part of the index for a bound cannot be read, that bound is
    /// treated as the end of the table.
    pub(super) fn blocks_within(self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> BlocksWithin {
        let near = &mut CurrentPartition::default();
        let all = self.index.blocks;
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
        let end = self.fence(near, within.end - 1).map_or(self.index.data_end, |fence| fence.at + fence.disk);
        BlocksWithin { blocks: within.len() as u64, all: all as u64, bytes: end.saturating_sub(begin) }
    }

    /// Divides the table into at most `pieces` stretches of about equal length and reads nothing for it. Returns the border before each,
    /// and its bytes.
    pub(super) fn stretches(self, pieces: usize) -> Vec<(Option<Border>, u64)> {
        let step = |of: usize| of.div_ceil(pieces.max(1)).max(1);
        let starts: Vec<(Option<Border>, u64)> = match &self.index.levels {
            Levels::Resident(index) => {
                let start = |b| Some((index.border(b), index.place(b)?.at));
                (0..self.index.blocks).step_by(step(self.index.blocks)).filter_map(start).collect()
            }
            Levels::Partitioned(top) => {
                let partitions = top.partitions().step_by(step(top.count()));
                partitions.map(|p| (top.border(p.number), p.data.0)).collect()
            }
        };
        let ends: Vec<u64> =
            starts.iter().skip(1).map(|start| start.1).chain([self.index.data_end]).collect();
        starts.into_iter().zip(ends).map(|((border, at), end)| (border, end.saturating_sub(at))).collect()
    }

    /// Returns the resident index, or the partition that `pick` chooses, which `near` keeps.
    #[inline(always)]
    fn at<'n>(
        self,
        near: &'n mut CurrentPartition,
        pick: impl FnOnce(&TopIndex) -> Option<Partition>,
    ) -> Result<&'n BlockIndex>
    where
        'a: 'n,
    {
        match &self.index.levels {
            Levels::Resident(index) => Ok(index),
            Levels::Partitioned(top) => self.load(near, top, pick(top)),
        }
    }

    /// Returns a partition, which `near` keeps.
    #[inline(never)]
    fn load<'n>(
        self,
        near: &'n mut CurrentPartition,
        top: &TopIndex,
        partition: Option<Partition>,
    ) -> Result<&'n BlockIndex> {
        let partition = partition.ok_or_else(|| self.no_partition())?;
        if near.number != partition.number || near.get().is_none() {
            let place = self.place(partition);
            let decode = |bytes: &[u8]| self.decode(top, partition, bytes);
            near.held = match near.bypassing {
                true => {
                    let bytes = self.parts.file().read_range(place.at..place.at + partition.len)?;
                    HeldPartition::Own(decode(&bytes)?)
                }
                false => HeldPartition::Cached(match self.parts.cache().get(place.key) {
                    Some(part) => part,
                    None => self.parts.load(place, |bytes| decode(bytes).map(CachedPart::Index))?,
                }),
            };
            near.number = partition.number;
        }
        near.get().ok_or_else(|| self.no_partition())
    }

    fn decode(self, top: &TopIndex, partition: Partition, bytes: &[u8]) -> Result<Box<BlockIndex>> {
        let numbers = partition.number..partition.number + 1;
        top.decode(self.parts.file(), numbers, bytes).map(Box::new)
    }

    fn place(self, partition: Partition) -> PartitionPlace {
        let key = self.parts.index_key(partition.number);
        PartitionPlace { key, at: partition.at, len: partition.len as usize }
    }

    #[cold]
    fn no_partition(self) -> Error {
        Error::internal(format!("no such block or partition of {}", self.parts.file().name()))
    }
}
