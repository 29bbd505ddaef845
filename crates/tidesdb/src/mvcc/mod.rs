//! Time: which versions a reader sees, and which must be kept for whom.
//!
//! A reader at sequence number `s` sees, of each key, the newest version with `seq <= s`. Readers without a snapshot take
//! the read view first and `s` second: the other way round, a flush or compaction between the two could drop the
//! very version that `s` needs. A [`Snapshots`] entry is made under one lock with the reading of `s`, and whoever
//! drops versions takes the list under the same lock, so no snapshot falls into a gap.

mod snapshots;
#[cfg(test)]
mod tests;

pub use snapshots::{SnapshotPin, Snapshots};
