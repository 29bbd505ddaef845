//! Merging of many sources into one stream: merge cursor, levels, visibility, and garbage collection of versions.
//!
//! [`MergeCursor`] merges memtables, tables and sorted runs into one ordered sequence. [`LevelCursor`] presents the disjoint
//! tables of a sorted run as one source. [`VisibleCursor`] shows what a reader at a sequence number sees. [`Retain`] is the
//! only place that decides which versions a flush or compaction may drop. All are single-threaded values that may move
//! between threads.

mod dead;
mod fold;
mod heap;
mod hide;
mod level;
mod purge;
mod retain;
mod stream;
#[cfg(test)]
mod tests;
mod visible;

pub use heap::MergeCursor;
pub use hide::HidingCursor;
pub use level::{LevelCursor, LevelTable, SortedTables};
pub use purge::CoveringRanges;
pub use retain::{Action, Reason, Retain, RetainCounts, RetainRules};
pub use stream::{CHECK_EVERY, RetainStream};
pub use visible::{Combine, VisibleCursor};
