//! The fence index: for each block after the first a key that separates it from its predecessor, and where every
//! block lies. It is cut into partitions of consecutive blocks, which a top level of the same kind finds.
//!
//! In byte order a fence is the shortest string above the last key before it and not above the first key
//! after it; in other orders it is that first key. Where versions of one key go on from one block to the next, the
//! fence is that key, marked, with the sequence number the block begins with.
//!
//! A search of the top level and then of the partition gives what a search of all fences gives: the top level holds the
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
pub(super) use fences::{Border, encloses};
pub(super) use top::{Partition, TopIndex};
#[cfg(test)]
pub(super) use tree::Tree;

/// The index of an open table.
#[derive(Debug)]
pub(super) enum Index {
    /// All of it is in memory.
    Resident(BlockIndex),
    /// The top level is in memory; partitions are read when they are needed.
    Partitioned(Box<TopIndex>),
}
