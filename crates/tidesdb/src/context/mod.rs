//! What reads and writes need of an open database. A function takes the smaller one that it needs.
//!
//! ```text
//! ReadCtx    get, cursors, snapshots: which commit is visible, what has expired
//! WriteCtx   commits, stalls, rotations: the log, the memtables, the backlog     -> ReadCtx
//! ```
//!
//! Neither reaches the manifest: [`MaintenanceCtx`](crate::maintenance::MaintenanceCtx), which does, is declared in a layer above the
//! write path, and holds these two. A handle that needs more asks the [`OpenDatabase`], which the last layer implements.

mod families;
mod open;
mod read;
mod write;

pub use families::Families;
pub use open::OpenDatabase;
pub use read::{OperationTimes, ReadCtx};
pub(crate) use write::StagedTables;
pub use write::{FLUSH_FOR_SPACE_MIN, Flushed, MergeSpace, OwnedLog, WriteCtx};
