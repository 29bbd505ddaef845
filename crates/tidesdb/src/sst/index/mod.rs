//! The fence index: for each block after the first a key that separates it from its predecessor, and where every
//! block lies. Small enough to stay in memory while the table is open.
//!
//! In byte order a fence is the shortest string above the last key before it and not above the first key
//! after it; in other orders it is that first key. Where versions of one key go on from one block to the next, the
//! fence is that key, marked, with the sequence number the block begins with.

mod builder;
mod search;
mod tree;

pub(super) use builder::IndexBuilder;
pub(super) use search::{Fence, Index};
#[cfg(test)]
pub(super) use tree::Tree;
