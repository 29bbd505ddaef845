//! Snapshots of a state machine, between nodes: `format.rs` has their bytes, `source.rs` makes them from a snapshot of the database while
//! they are sent, `data.rs` is what openraft reads and writes, `install.rs` takes them.

mod data;
mod format;
mod install;
mod source;

pub use data::SnapshotData;
pub(crate) use install::install;
pub(crate) use source::Source;
