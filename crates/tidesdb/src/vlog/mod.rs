//! The value log: large values, written once, stored outside the tables and addressed by 24-byte pointers.
//!
//! All tables of a family share its value log files, which are append-only. `docs/formats/vlog.md` describes the layout
//! and what its checksums detect.
//!
//! Invariants:
//!
//! * A value is written completely before anything refers to it.
//! * [`VlogSet::sync`] makes durable every value whose append returned before the call.
//! * A file of an earlier session is never written again, so its length does not change.

mod budget;
mod file;
mod format;
mod pointer;
mod groups;
mod chunks;
mod scan;
mod scratch;
mod facts;
mod set;
mod loads;
mod ahead;
mod mover;
mod parallel;
mod whole;
mod copy;
#[cfg(test)]
mod tests;

pub use ahead::LoadAhead;
pub use budget::WriteBudget;
pub use chunks::{CHUNK_BYTES, CHUNKED_BYTES_MAX, ChunkIndex, ChunkedPlace, Part, ValuePlace};
pub use facts::{Appended, BegunFile, VlogInfo};
pub use file::Lease;
pub use format::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES};
pub use loads::ValueLoads;
pub use mover::ValueMover;
pub use pointer::VlogPointer;
pub use scan::{RecordInfo, VlogReport};
pub use set::{Lane, VlogSet};
