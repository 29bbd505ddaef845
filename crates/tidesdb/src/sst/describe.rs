//! Reports the blocks of a table one by one, for inspection. Unlike [`Table::verify`], it continues after a damaged
//! block.

use super::Table;
use super::block::Block;
use super::index::Fence;
use super::partitions::CurrentPartition;
use crate::{Error, Result};

/// A block as described by the index, and the result of reading it.
#[derive(Debug)]
pub struct BlockInfo {
    /// Number of the block, from 0.
    pub number: usize,
    /// Offset of the block.
    pub at: u64,
    /// Length of header, frame table and key section in bytes.
    pub key_bytes: u64,
    /// Length of the whole block in bytes.
    pub bytes: u64,
    /// The content, or the damage found.
    pub checked: Result<BlockContent>,
}

/// Summary of a valid block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockContent {
    /// Number of entries.
    pub entries: usize,
    /// Number of frames of values.
    pub frames: usize,
    /// The first key.
    pub first_key: Vec<u8>,
}

impl Table {
    /// Reads and checks each block and passes the result to `visit`.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the index is damaged. Damage in a block is reported to `visit` instead.
    pub fn inspect_blocks(&self, visit: &mut dyn FnMut(BlockInfo)) -> Result<()> {
        let mut near = CurrentPartition::bypassing();
        for number in 0..self.blocks() {
            let fence = self.fence(&mut near, number)?;
            let checked = match self.check_block(fence, &mut near) {
                Err(e) if !e.is_corruption() => return Err(e),
                other => other,
            };
            let (at, key_bytes, bytes) = (fence.at, fence.key_part as u64, fence.disk);
            visit(BlockInfo { number, at, key_bytes, bytes, checked });
        }
        Ok(())
    }

    fn check_block(&self, fence: Fence, near: &mut CurrentPartition) -> Result<BlockContent> {
        let len = usize::try_from(fence.disk)
            .map_err(|_| Error::corrupt(&self.name, fence.at, "block too long"))?;
        let (mut disk, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let read = self.source.read(fence.at, len, &mut disk, &self.name)?;
        let shape = self.decode_keys(fence, near, read, &mut keys)?;
        let block = Block { shape: &shape, bytes: &keys };
        let end = self.decode_values(fence, block, &read[fence.key_part..], &mut values)?;
        self.check_padding(fence, end, &read[fence.key_part..])?;
        let first_key = block.key_at(0).into_vec();
        Ok(BlockContent { entries: block.len(), frames: block.frames().count(), first_key })
    }
}
