//! Writes the index, one block at a time.
//!
//! For each block: the fence as a varint of bytes shared with the fence before and the other bytes with their
//! length; varint(block length * 2 + goes on); varint(length of the key part); and, if versions go on
//! from the block before, varint(first sequence number). The fence of the first block is empty.

use crate::codec::{Salt, put_bytes, put_varint};
use crate::sst::block::{BuiltBlock, common_prefix};
use crate::sst::layout::{begin_section, seal_section};
use crate::types::SeqNo;

/// The index under construction.
pub(in crate::sst) struct IndexBuilder {
    bytewise: bool,
    out: Vec<u8>,
    fence: Vec<u8>,
    blocks: u32,
}

impl IndexBuilder {
    /// An empty index.
    pub(in crate::sst) fn new(bytewise: bool) -> Self {
        Self { bytewise, out: begin_section(), fence: Vec::new(), blocks: 0 }
    }

    /// Adds a block that begins with `first`, after a block that ended with `last` (None for the first block).
    /// `goes_on` is the sequence number it begins with, if `first` and `last` are the same key.
    pub(in crate::sst) fn add(
        &mut self,
        last: Option<&[u8]>,
        first: &[u8],
        goes_on: Option<SeqNo>,
        block: BuiltBlock,
    ) {
        let fence = match last {
            None => &[],
            Some(last) if self.bytewise && goes_on.is_none() => &first[..common_prefix(last, first) + 1],
            Some(_) => first,
        };
        let shared = common_prefix(&self.fence, fence);
        put_varint(&mut self.out, shared as u64);
        put_bytes(&mut self.out, &fence[shared..]);
        put_varint(&mut self.out, (block.disk as u64) << 1 | u64::from(goes_on.is_some()));
        put_varint(&mut self.out, block.key_part as u64);
        if let Some(seq) = goes_on {
            put_varint(&mut self.out, seq);
        }
        self.fence.truncate(shared);
        self.fence.extend_from_slice(&fence[shared..]);
        self.blocks += 1;
    }

    /// Number of blocks.
    pub(in crate::sst) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Length so far.
    pub(in crate::sst) fn len(&self) -> usize {
        self.out.len()
    }

    /// The section, to be written at `at`.
    pub(in crate::sst) fn finish(mut self, salt: &Salt, at: u64) -> Vec<u8> {
        seal_section(salt, at, &mut self.out);
        self.out
    }
}
