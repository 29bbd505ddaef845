//! Settings as data: each with its default, unit and reason. Few matter; the rest have good defaults.

mod db;
mod family;
mod live;
mod per_call;
mod remote;

pub use db::{DbOptions, RecoveryMode, SyncMode};
pub use family::{FamilyOptions, MemtableKind};
pub(crate) use live::LiveOptions;
pub use per_call::{Isolation, ReadOptions, WriteOptions};
pub use remote::RemoteOptions;
