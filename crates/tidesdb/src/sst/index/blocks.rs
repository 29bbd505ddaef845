//! Maps keys to blocks and blocks to file locations, for a whole table or for one partition of its index.

use super::fences::{Border, FenceReader, Fences};
use super::places::BlockLocations;
use crate::Result;
use crate::codec::{Compression, Decoder, longest_raw};
use crate::sst::block::HEADER_BYTES;
use crate::types::SeqNo;

/// Location of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sst) struct Fence {
    /// Number of the block.
    pub(in crate::sst) block: usize,
    /// Offset in the file.
    pub(in crate::sst) at: u64,
    /// Length of header, frame table and key section in bytes.
    pub(in crate::sst) key_part: usize,
    /// Length of the whole block in bytes.
    pub(in crate::sst) disk: u64,
}

/// The index of a sequence of consecutive blocks.
#[derive(Debug)]
pub struct BlockIndex {
    /// Number of the first block.
    base: usize,
    fences: Fences,
    places: BlockLocations,
    /// End of the last block.
    data_end: u64,
}

impl BlockIndex {
    /// Returns the location of block `b`.
    #[inline]
    pub(in crate::sst) fn place(&self, b: usize) -> Option<Fence> {
        let i = b.wrapping_sub(self.base);
        let (at, key_part) = self.places.get(i)?;
        let end = self.places.get(i + 1).map_or(self.data_end, |next| next.0);
        Some(Fence { block: b, at, key_part: key_part as usize, disk: end - at })
    }

    /// Returns the block that `search` finds among the fences.
    #[inline]
    pub(in crate::sst) fn find(&self, search: impl FnOnce(&Fences) -> usize) -> usize {
        self.base + search(&self.fences)
    }

    /// Returns the first sequence number of block `b` if versions of a key continue into it from the previous block.
    /// Both blocks must belong to this index.
    pub(in crate::sst) fn goes_on(&self, b: usize) -> Option<SeqNo> {
        self.fences.goes_on(b.wrapping_sub(self.base))
    }

    /// Returns the border before block `b`, if the blocks on both sides belong to this index.
    pub(in crate::sst) fn border(&self, b: usize) -> Option<Border> {
        self.fences.border(b.wrapping_sub(self.base))
    }

    /// Returns the size in memory, in bytes.
    pub(in crate::sst) fn bytes(&self) -> usize {
        self.fences.bytes() + self.places.bytes()
    }
}

/// Reads consecutive partitions into one index.
pub(super) struct BlockIndexReader {
    base: usize,
    fences: FenceReader,
    places: BlockLocations,
    /// End of the blocks so far.
    at: u64,
}

impl BlockIndexReader {
    /// Starts an index with block `base`, which starts at offset `at`.
    pub(super) fn new(base: usize, at: u64) -> Self {
        Self { base, fences: FenceReader::default(), places: BlockLocations::default(), at }
    }

    /// Reads a partition of `blocks` blocks that extend up to offset `end` of the file. `border` is the border before
    /// the partition; it is used only if the previous partition was read too.
    pub(super) fn read(
        &mut self,
        d: &mut Decoder<'_>,
        border: Option<&Border>,
        (blocks, end): (usize, u64),
        compression: Compression,
    ) -> Result<()> {
        // Each block takes at least four bytes, so the remaining bytes bound the allocations.
        if blocks == 0 || blocks > d.remaining() / 4 {
            return Err(d.corrupt("invalid number of blocks"));
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
            // A fence is at most as long as the first key after it. That bounds what shared prefixes can expand to.
            let too_long = fence > longest_raw(compression, key_part);
            if key_part < HEADER_BYTES || disk < key_part as u64 || disk > end - self.at || too_long {
                return Err(d.corrupt("invalid length of a block"));
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

    /// Builds the index.
    pub(super) fn finish(self, bytewise: bool) -> BlockIndex {
        BlockIndex {
            base: self.base,
            fences: self.fences.finish(bytewise),
            places: self.places,
            data_end: self.at,
        }
    }
}
