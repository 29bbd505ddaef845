//! What reads and writes need of an open database. A function takes the smaller one that it needs.
//!
//! ```text
//! ReadCtx    get, cursors, snapshots: which commit is visible, what has expired
//! WriteCtx   commits, stalls, rotations: the log, the memtables, the backlog     -> ReadCtx
//! ```
//!
//! Neither reaches the manifest: [`MaintenanceCtx`](crate::maintenance::MaintenanceCtx), which does, is declared in a layer above the
//! write path, and holds these two.

mod families;
mod read;
mod write;

pub use families::Families;
pub use read::{OperationTimes, ReadCtx};
pub use write::{FLUSH_FOR_SPACE_MIN, Flushed, MergeSpace, OwnedLog, WriteCtx};
