//! The write-ahead log: one for the whole database, shared by all families.
//!
//! ```text
//! log address space, in bytes:  | segment 0 unused | segment 1 | segment 2 | ...      each `segment_bytes` long
//! a segment file:               | header 4096 | record | record | ... | pad record |
//! ```
//!
//! * The **sequence number** of a commit is the address of its record divided by eight, so log order and version order
//!   are the same. [`Sequencer`] hands out addresses with one compare-and-swap and publishes commits in order.
//! * A segment never changes its length while it is in use. Its header is durable before the file gets its
//!   name. A record gets a place only where blocks are allocated. Old segments are reused under a new salt, so that
//!   stale records never verify.
//! * Each record says how far the log was **complete** and how far it was **synced** when the record was built. With
//!   that, and the boot identity in the segment header, recovery distinguishes an unfinished commit, a torn tail and
//!   damage: see [`reader`]. [`LogTail`] reads a log that another process writes.
//! * The first failed write or sync poisons the log: nothing is acknowledged afterwards.
//!
//! Layouts: `docs/formats/wal.md`.

pub mod layout;
mod piece;
mod candidates;
mod window;
pub mod reader;
mod tail;
mod segment;
mod sequencer;
mod reserve;
mod log;
mod ahead;
mod space;
mod sync;
mod due;

#[cfg(test)]
mod tests;

pub use candidates::PartInMemory;
pub use due::SyncDue;
pub use log::{Log, LogConfig};
pub use piece::{LargeCommit, LoggedCommit, Piece, Taken};
pub use sequencer::{Commit, Purpose, Refusal, Sequencer, Unpublished};
pub use space::{SpaceReservation, release_spare_files, remove_spare_segments};
pub use tail::{LogTail, TailConfig};
