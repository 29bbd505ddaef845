//! The symbols of `tidesdb/extended.h`, which documents each of them.
//!
//! The rules are those of the base interface. Where a buffer of the caller is too short, the call returns `ERR_TOO_LARGE` and writes the size
//! that it needs: the only out parameter that a failure writes.

pub mod open;
pub mod resources;
pub mod writes;
pub mod reads;
pub mod scans;
pub mod snapshots;
pub mod values;
pub mod tables;
pub mod backups;
pub mod figures;
pub mod reader;
