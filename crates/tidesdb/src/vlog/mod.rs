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
mod chunks;
mod scan;
mod scratch;
mod facts;
mod sizes;
mod open;
mod begun;
mod current;
mod set;
mod loads;
mod mover;
mod parallel;
mod whole;
mod copy;
mod foreign;
#[cfg(test)]
mod tests;

pub use budget::WriteBudget;
pub use chunks::{CHUNK_BYTES, CHUNKED_BYTES_MAX, ChunkIndex, ChunkedPlace, Part, PlaceBytes, ValuePlace};
pub use current::Lane;
pub use facts::{Appended, BegunFile, VlogInfo};
pub use file::Lease;
pub use foreign::ForeignValues;
pub use format::{FILE_HEADER_BYTES, RECORD_HEADER_BYTES};
pub use loads::{LoadAhead, ValueLoads};
pub use mover::ValueMover;
pub use pointer::VlogPointer;
pub use scan::{RecordInfo, VlogReport};
pub use set::VlogSet;
