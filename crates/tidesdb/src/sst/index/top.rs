//! The top level of a partitioned index: maps keys to partitions, and partitions to file locations.

use std::ops::Range;

use super::blocks::{BlockIndex, BlockIndexReader};
use super::fences::{Border, FenceReader, Fences};
use crate::Result;
use crate::codec::{Compression, Decoder, longest_raw};
use crate::sst::file::TableFile;
use crate::sst::layout::{CRC_BYTES, Footer};

/// Maximum number of blocks of a table: larger numbers denote partitions in the block cache.
const BLOCKS_MAX: u32 = 1 << 31;
/// Minimum length of an entry, and of a partition: a checksum and a block.
const ENTRY_BYTES_MIN: usize = 5;
const PARTITION_BYTES_MIN: u64 = (CRC_BYTES + 4) as u64;

/// Start of a partition, and of the blocks that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Start {
    /// Offset of the partition.
    at: u64,
    /// Number of its first block.
    block: u32,
    /// Offset of its first block.
    data: u64,
}

/// Location and extent of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sst) struct Partition {
    /// Number of the partition.
    pub(in crate::sst) number: usize,
    /// Offset of the partition.
    pub(in crate::sst) at: u64,
    /// Length of the partition in bytes.
    pub(in crate::sst) len: u64,
    /// Number of its first block.
    pub(in crate::sst) block: usize,
    /// Number of blocks it covers.
    pub(in crate::sst) blocks: usize,
    /// Start and end offset of those blocks.
    pub(in crate::sst) data: (u64, u64),
}

/// The partitions of an index, searchable.
#[derive(Debug)]
pub(in crate::sst) struct TopIndex {
    fences: Fences,
    /// Start of each partition, then the end of the last one.
    starts: Box<[Start]>,
}

impl TopIndex {
    /// Reads the top level of a table with this footer; the first partition starts at offset `at`.
    pub(in crate::sst) fn read(
        d: &mut Decoder<'_>,
        at: u64,
        footer: &Footer,
        (bytewise, compression): (bool, Compression),
    ) -> Result<Self> {
        let count = d.length(d.remaining() / ENTRY_BYTES_MIN)?;
        if count == 0 || footer.blocks > BLOCKS_MAX || at > footer.index_at {
            return Err(d.corrupt("invalid number of partitions"));
        }
        let mut fences = FenceReader::default();
        let mut starts = Vec::with_capacity(count + 1);
        let mut next = Start { at, block: 0, data: 0 };
        for i in 0..count {
            let fence = fences.read_entry(d, i)?;
            let length = d.varint()?;
            let blocks = d.number(1..=u64::from(footer.blocks - next.block), "blocks of a partition")?;
            let data = d.number(1..=footer.filter_at - next.data, "data of a partition")?;
            let (disk, goes_on) = (length >> 1, length & 1 == 1);
            let raw = longest_raw(compression, usize::try_from(data).unwrap_or(usize::MAX));
            if disk < PARTITION_BYTES_MIN || disk > footer.index_at - next.at || fence > raw {
                return Err(d.corrupt("invalid length of a partition"));
            }
            if goes_on {
                fences.read_going_on(d, i)?;
            }
            starts.push(next);
            next = Start { at: next.at + disk, block: next.block + blocks as u32, data: next.data + data };
        }
        starts.push(next);
        if next == (Start { at: footer.index_at, block: footer.blocks, data: footer.filter_at }) {
            Ok(Self { fences: fences.finish(bytewise), starts: starts.into() })
        } else {
            Err(d.corrupt("partitions do not fill the index"))
        }
    }

    /// Decodes the index of the blocks of consecutive partitions, of which `bytes` are the bytes.
    pub(in crate::sst) fn decode(
        &self,
        file: &TableFile,
        numbers: Range<usize>,
        mut bytes: &[u8],
    ) -> Result<BlockIndex> {
        let start = self.starts.get(numbers.start).copied().unwrap_or_default();
        let mut reader = BlockIndexReader::new(start.block as usize, start.data);
        for partition in numbers.filter_map(|n| self.partition(n)) {
            let (section, rest) = bytes.split_at_checked(partition.len as usize).unwrap_or((bytes, &[]));
            let mut d = file.section(partition.at, section, "index")?;
            let border = self.border(partition.number);
            let extent = (partition.blocks, partition.data.1);
            reader.read(&mut d, border.as_ref(), extent, file.meta().compression)?;
            bytes = rest;
        }
        Ok(reader.finish(self.fences.is_bytewise()))
    }

    /// Returns all partitions in order.
    pub(in crate::sst) fn partitions(&self) -> impl Iterator<Item = Partition> {
        (0..self.count()).filter_map(|n| self.partition(n))
    }

    /// Returns the number of partitions.
    pub(in crate::sst) fn count(&self) -> usize {
        self.fences.len() + 1
    }

    /// Returns where the partitions lie in the file.
    pub(in crate::sst) fn range(&self) -> Range<u64> {
        self.starts.first().map_or(0, |start| start.at)..self.end().at
    }

    /// Returns the number of blocks.
    pub(in crate::sst) fn blocks(&self) -> usize {
        self.end().block as usize
    }

    /// Returns the end of the last block.
    pub(in crate::sst) fn data_end(&self) -> u64 {
        self.end().data
    }

    fn end(&self) -> Start {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Returns partition `n`.
    #[inline]
    pub(in crate::sst) fn partition(&self, n: usize) -> Option<Partition> {
        let (start, end) = (self.starts.get(n)?, self.starts.get(n + 1)?);
        Some(Partition {
            number: n,
            at: start.at,
            len: end.at - start.at,
            block: start.block as usize,
            blocks: (end.block - start.block) as usize,
            data: (start.data, end.data),
        })
    }

    /// Returns the partition that covers block `b`.
    #[inline]
    pub(in crate::sst) fn covering(&self, b: usize) -> Option<Partition> {
        let behind = self.starts.partition_point(|start| start.block as usize <= b);
        self.partition(behind.wrapping_sub(1))
    }

    /// Returns the partition that `search` finds among the fences.
    #[inline]
    pub(in crate::sst) fn find(&self, search: impl FnOnce(&Fences) -> usize) -> Option<Partition> {
        self.partition(search(&self.fences))
    }

    /// Returns the border before partition `n`; `None` before the first and after the last.
    pub(in crate::sst) fn border(&self, n: usize) -> Option<Border> {
        self.fences.border(n)
    }

    /// Returns the size in memory, in bytes.
    pub(in crate::sst) fn bytes(&self) -> usize {
        self.fences.bytes() + size_of_val(&*self.starts)
    }
}
