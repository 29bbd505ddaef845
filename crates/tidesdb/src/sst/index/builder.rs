//! Writes the index, one block at a time: partitions, and the top level that finds them.
//!
//! For each block of a partition: the fence as a varint of bytes shared with the fence before and the other bytes with their
//! length; varint(block length * 2 + goes on); varint(length of the key part); and, if versions go on from the
//! block before, varint(first sequence number). The fence of the first block is empty.
//!
//! For each partition in the top level: the border before its first block in the same form, with the length of the
//! partition; varint(number of blocks); varint(length of the blocks); and the sequence number where versions go on.

use crate::codec::{Salt, put_bytes, put_varint};
use crate::sst::block::{BuiltBlock, common_prefix};
use crate::sst::layout::{begin_section, seal_section};
use crate::types::SeqNo;

/// Bytes that close a partition.
pub(in crate::sst) const PARTITION_BYTES: usize = 4 << 10;
/// So many times as many bytes of whole fences close a partition too: in memory they share only what all have in common.
pub(in crate::sst) const WHOLE_FENCES: usize = 4;

/// Fences, each cut by what it shares with the one before.
#[derive(Default)]
struct FenceWriter {
    last: Vec<u8>,
}

impl FenceWriter {
    fn put(&mut self, out: &mut Vec<u8>, fence: &[u8]) {
        let shared = common_prefix(&self.last, fence);
        put_varint(out, shared as u64);
        put_bytes(out, &fence[shared..]);
        self.last.truncate(shared);
        self.last.extend_from_slice(&fence[shared..]);
    }
}

/// A finished partition.
struct Partition {
    section: Vec<u8>,
    fence: Vec<u8>,
    goes_on: Option<SeqNo>,
    blocks: u64,
    data: u64,
    /// Bytes of its fences, whole.
    whole: usize,
}

/// The index under construction.
pub(in crate::sst) struct IndexBuilder {
    bytewise: bool,
    partition_bytes: usize,
    finished: Vec<Partition>,
    /// The partition that is filled, if a block was added since the last one was closed.
    open: Option<Partition>,
    fences: FenceWriter,
    blocks: u32,
    len: usize,
}

impl IndexBuilder {
    /// An empty index with partitions of about `partition_bytes`.
    pub(in crate::sst) fn new(bytewise: bool, partition_bytes: usize) -> Self {
        Self {
            bytewise,
            partition_bytes,
            finished: Vec::new(),
            open: None,
            fences: FenceWriter::default(),
            blocks: 0,
            len: 0,
        }
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
        let begins = self.open.is_none();
        if begins {
            self.fences = FenceWriter::default();
        }
        let partition = self.open.get_or_insert_with(|| Partition {
            section: begin_section(),
            fence: fence.to_vec(),
            goes_on,
            blocks: 0,
            data: 0,
            whole: 0,
        });
        // The top level holds the border before the first block of a partition.
        let (fence, goes_on) = if begins { (&[][..], None) } else { (fence, goes_on) };
        let out = &mut partition.section;
        let before = out.len();
        self.fences.put(out, fence);
        put_varint(out, (block.disk as u64) << 1 | u64::from(goes_on.is_some()));
        put_varint(out, block.key_part as u64);
        if let Some(seq) = goes_on {
            put_varint(out, seq);
        }
        partition.blocks += 1;
        partition.data += block.disk as u64;
        partition.whole += fence.len();
        self.blocks += 1;
        self.len += out.len() - before;
        if out.len() >= self.partition_bytes || partition.whole >= self.partition_bytes * WHOLE_FENCES {
            self.finished.extend(self.open.take());
        }
    }

    /// Number of blocks.
    pub(in crate::sst) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Length so far, about.
    pub(in crate::sst) fn len(&self) -> usize {
        self.len
    }

    /// Appends the partitions to `out`, to be written from `at` on, and their top level to `top`.
    pub(in crate::sst) fn finish(mut self, salt: &Salt, mut at: u64, out: &mut Vec<u8>, top: &mut Vec<u8>) {
        self.finished.extend(self.open.take());
        put_varint(top, self.finished.len() as u64);
        let mut fences = FenceWriter::default();
        for mut partition in self.finished {
            seal_section(salt, at, &mut partition.section);
            let len = partition.section.len() as u64;
            fences.put(top, &partition.fence);
            put_varint(top, len << 1 | u64::from(partition.goes_on.is_some()));
            put_varint(top, partition.blocks);
            put_varint(top, partition.data);
            if let Some(seq) = partition.goes_on {
                put_varint(top, seq);
            }
            out.extend_from_slice(&partition.section);
            at += len;
        }
    }
}
