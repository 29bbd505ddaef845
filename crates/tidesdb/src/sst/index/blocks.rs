//! Which block a key belongs to, and where the block lies: of a whole table, or of one partition of its index.

use super::fences::{Border, FenceReader, Fences};
use super::places::{Places, PlacesBuilder};
use crate::Result;
use crate::codec::{Compression, Decoder, longest_raw};
use crate::sst::block::HEADER_BYTES;
use crate::types::{Comparator, SeqNo};

/// Where a block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sst) struct Fence {
    /// Number of the block.
    pub(in crate::sst) block: usize,
    /// Offset in the file.
    pub(in crate::sst) at: u64,
    /// Length of header, frame table and key section.
    pub(in crate::sst) key_part: usize,
    /// Length of all.
    pub(in crate::sst) disk: u64,
}

/// The index of consecutive blocks.
#[derive(Debug)]
pub struct BlockIndex {
    /// Number of the first block.
    base: usize,
    fences: Fences,
    places: Places,
    /// End of the last block.
    data_end: u64,
}

impl BlockIndex {
    /// Where block `b` lies.
    #[inline]
    pub(in crate::sst) fn place(&self, b: usize) -> Option<Fence> {
        let i = b.wrapping_sub(self.base);
        let (at, key_part) = self.places.get(i)?;
        let end = self.places.get(i + 1).map_or(self.data_end, |next| next.0);
        Some(Fence { block: b, at, key_part: key_part as usize, disk: end - at })
    }

    /// The first block that can hold `target` or something after it.
    #[inline]
    pub(in crate::sst) fn first_block(&self, order: &Comparator, target: &[u8]) -> usize {
        self.base + self.fences.first(order, target)
    }

    /// The last block that can hold `target` or something before it.
    pub(in crate::sst) fn last_block(&self, order: &Comparator, target: &[u8]) -> usize {
        self.base + self.fences.last(order, target)
    }

    /// The block that holds the newest version of `target` at or below `snapshot`, if any does.
    #[inline]
    pub(in crate::sst) fn block_of(&self, order: &Comparator, target: &[u8], snapshot: SeqNo) -> usize {
        self.base + self.fences.of(order, target, snapshot)
    }

    /// If versions go on from the block before into block `b`, both of this index: its first sequence number.
    pub(in crate::sst) fn goes_on(&self, b: usize) -> Option<SeqNo> {
        self.fences.goes_on(b.wrapping_sub(self.base))
    }

    /// The border before block `b`, if both blocks beside it are of this index.
    pub(in crate::sst) fn border(&self, b: usize) -> Option<Border> {
        self.fences.border(b.wrapping_sub(self.base))
    }

    /// Bytes in memory.
    pub(in crate::sst) fn bytes(&self) -> usize {
        self.fences.bytes() + self.places.bytes()
    }
}

/// Reads consecutive partitions, or the only one of format 1, into one index.
pub(in crate::sst) struct BlockIndexReader {
    base: usize,
    fences: FenceReader,
    places: PlacesBuilder,
    /// End of the blocks so far.
    at: u64,
}

impl BlockIndexReader {
    /// An index of blocks from number `base` on, the first of which begins at offset `at`.
    pub(in crate::sst) fn new(base: usize, at: u64) -> Self {
        Self { base, fences: FenceReader::default(), places: PlacesBuilder::default(), at }
    }

    /// Reads a partition of `blocks` blocks that fill the file up to `end`. `border` lies before it; it counts if the partition
    /// before was read too.
    pub(in crate::sst) fn read(
        &mut self,
        d: &mut Decoder<'_>,
        border: Option<&Border>,
        (blocks, end): (usize, u64),
        compression: Compression,
    ) -> Result<()> {
        // Each block takes four bytes at least, which bounds the allocations by the bytes at hand.
        if blocks == 0 || blocks > d.remaining() / 4 {
            return Err(d.corrupt("number of blocks"));
        }
        if let Some(border) = border.filter(|_| !self.places.is_empty()) {
            self.fences.push_border(border);
        }
        self.places.reserve(blocks);
        for i in 0..blocks {
            let fence = self.fences.read_entry(d, i)?;
            let length = d.varint()?;
            let key_part = d.length(u32::MAX as usize)?;
            let disk = length >> 1;
            // A fence is no longer than the first key behind it, which bounds what sharing can make of few bytes.
            let too_long = fence > longest_raw(compression, key_part);
            if key_part < HEADER_BYTES || disk < key_part as u64 || disk > end - self.at || too_long {
                return Err(d.corrupt("length of a block"));
            }
            if length & 1 == 1 {
                self.fences.read_going_on(d, i)?;
            }
            self.places.push(self.at, key_part as u32);
            self.at += disk;
        }
        d.finish()?;
        if self.at == end { Ok(()) } else { Err(d.corrupt("blocks do not fill the data")) }
    }

    /// The index.
    pub(in crate::sst) fn finish(self, bytewise: bool) -> BlockIndex {
        BlockIndex {
            base: self.base,
            fences: self.fences.finish(bytewise),
            places: self.places.finish(),
            data_end: self.at,
        }
    }
}
