//! Writes the index, one block at a time: partitions, and the top level that locates them.
//!
//! An entry of a partition, for each block: the fence, as a varint of bytes shared with the previous fence and the
//! remaining bytes with their length; varint(block length * 2 + continues); varint(length of the key part); and, if
//! versions of a key continue from the previous block, varint(first sequence number). The fence of the first block is
//! empty.
//!
//! An entry of the top level, for each partition: the border before its first block in the same form, with the length
//! of the partition; varint(number of blocks); varint(length of the blocks); and the first sequence number if versions
//! of a key continue.

use crate::codec::{Salt, put_bytes, put_varint};
use crate::sst::block::{BuiltBlock, common_prefix};
use crate::sst::layout::{begin_section, seal_section};
use crate::types::SeqNo;

/// Length in bytes that closes a partition.
pub(in crate::sst) const PARTITION_BYTES: usize = 4 << 10;
/// A partition is also closed when its full fences reach this multiple of its length limit: in memory, fences share
/// only the prefix common to all of them.
pub(in crate::sst) const WHOLE_FENCES: usize = 4;

/// Writes fences, each without the prefix that it shares with the previous one.
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
    /// Total bytes of its full fences.
    whole: usize,
}

/// The index under construction.
#[derive(Default)]
pub(in crate::sst) struct IndexBuilder {
    bytewise: bool,
    partition_bytes: usize,
    finished: Vec<Partition>,
    /// The partition being filled, if a block was added since the last one was closed.
    open: Option<Partition>,
    fences: FenceWriter,
    blocks: u32,
    len: usize,
}

impl IndexBuilder {
    /// Creates an empty index with partitions of about `partition_bytes`.
    pub(in crate::sst) fn new(bytewise: bool, partition_bytes: usize) -> Self {
        Self { bytewise, partition_bytes, ..Self::default() }
    }

    /// Adds a block whose first key is `first`, after a block whose last key was `last` (`None` for the first block).
    /// If `first` and `last` are the same key, `goes_on` is the first sequence number of the block.
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
        // The border before the first block of a partition is stored in the top level.
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

    /// Returns the number of blocks.
    pub(in crate::sst) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the approximate length so far.
    pub(in crate::sst) fn len(&self) -> usize {
        self.len
    }

    /// Appends the partitions to `out`, to be written at offset `at`, and their top level to `top`.
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
