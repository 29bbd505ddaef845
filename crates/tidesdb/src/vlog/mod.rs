//! The value log: large values, written once, outside the tables, named by 24-byte pointers.
//!
//! The files of a family are shared by all its tables and only ever appended to. `docs/formats/vlog.md` draws the bytes
//! and says what their checksums detect.
//!
//! Laws: a value is written whole before anything refers to it. [`VlogSet::sync`] makes every value durable whose
//! append returned before. A file of an earlier session is never written again, so its length does not change.

mod budget;
mod file;
mod format;
mod pointer;
mod scan;
mod scratch;
mod set;
#[cfg(test)]
mod tests;

pub use budget::WriteBudget;
pub use pointer::VlogPointer;
pub use scan::{RecordInfo, VlogReport};
pub use set::{VlogInfo, VlogSet};
