//! Settings as data: each with its default, unit and reason. Few matter; the rest have good defaults.

mod db;
mod family;
mod per_call;

pub use db::{DbOptions, RecoveryMode, SyncMode};
pub use family::{FamilyOptions, MemtableKind};
pub use per_call::{Isolation, ReadOptions, WriteOptions};
