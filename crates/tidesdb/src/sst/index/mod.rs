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

pub(super) use blocks::{BlockIndex, BlockIndexReader, Fence};
#[cfg(test)]
pub(super) use builder::WHOLE_FENCES;
pub(super) use builder::{IndexBuilder, PARTITION_BYTES};
pub(super) use fences::{Border, VersionKey, encloses};
pub(super) use top::{Partition, TopIndex};
#[cfg(test)]
pub(super) use tree::Tree;

/// The index of an open table.
#[derive(Debug)]
pub(super) enum Index {
    /// The whole index is in memory.
    Resident(BlockIndex),
    /// Only the top level is in memory; partitions are read when needed.
    Partitioned(Box<TopIndex>),
}
