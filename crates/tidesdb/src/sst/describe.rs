//! The blocks of a table one by one, for inspection: unlike [`Table::verify`], damage in one does not end the walk.

use super::Table;
use super::block::Block;
use super::index::Fence;
use crate::{Error, Result};

/// A block as the index knows it, and what reading it gave.
#[derive(Debug)]
pub struct BlockInfo {
    /// Its number, from 0.
    pub number: usize,
    /// Where it begins.
    pub at: u64,
    /// Bytes of header, frame table and keys.
    pub key_bytes: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Its content, or its damage.
    pub checked: Result<BlockContent>,
}

/// What a whole block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockContent {
    /// Number of entries.
    pub entries: usize,
    /// Number of frames of values.
    pub frames: usize,
    /// Its first key.
    pub first_key: Vec<u8>,
}

impl Table {
    /// Reads and checks each block and shows it to `visit`.
    ///
    /// # Errors
    /// `Io`. Damage is part of what is shown.
    pub fn inspect_blocks(&self, visit: &mut dyn FnMut(BlockInfo)) -> Result<()> {
        for number in 0..self.index.blocks() {
            let fence = self.fence(number)?;
            let checked = match self.check_block(fence) {
                Err(e) if !e.is_corruption() => return Err(e),
                other => other,
            };
            let (at, key_bytes, bytes) = (fence.at, fence.key_part as u64, fence.disk);
            visit(BlockInfo { number, at, key_bytes, bytes, checked });
        }
        Ok(())
    }

    fn check_block(&self, fence: Fence) -> Result<BlockContent> {
        let len = usize::try_from(fence.disk)
            .map_err(|_| Error::corrupt(&self.name, fence.at, "block too long"))?;
        let (mut disk, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let read = self.source.read(fence.at, len, &mut disk, &self.name)?;
        let shape = self.decode_keys(fence, read, &mut keys)?;
        let block = Block { shape: &shape, bytes: &keys };
        self.decode_values(fence, block, &read[fence.key_part..], &mut values)?;
        let mut first_key = Vec::new();
        block.key_into(0, &mut first_key);
        Ok(BlockContent { entries: block.len(), frames: block.frames().count(), first_key })
    }
}
