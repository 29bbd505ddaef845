//! Snapshots: which versions a reader sees, and which must be kept.
//!
//! A reader at sequence number `s` sees, of each key, the newest version with `seq <= s`. Readers that register no number
//! take the read view first and `s` second: in the other order, a flush or compaction between the two could drop the
//! very version that `s` needs. A [`Snapshots`] entry is registered and `s` is read under one lock. A job that drops
//! versions reads the list under the same lock, so it misses no snapshot. A cursor registers its number without the lock,
//! before it takes its view: [`Snapshots::register_cursor`] says why no merge misses it.

mod cursors;
mod snapshots;
#[cfg(test)]
mod tests;

pub use snapshots::{CursorPlace, SnapshotPin, Snapshots, TimePin};
