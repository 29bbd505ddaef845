//! Settings as data: each with its default, unit and reason. Few matter; the rest have good defaults.

mod db;
mod setting;
mod family;
mod per_call;
mod remote;
mod changed;
#[cfg(test)]
mod tests;

pub use changed::ChangedSetting;
pub(crate) use db::check_threads;
pub use db::{DbOptions, Forced, RecoveryMode, SyncMode};
pub use family::FamilyOptions;
pub(crate) use family::{COMPARATOR_NAME_BYTES_MAX, LiveOptions, check_operator_change};
pub use per_call::{Isolation, ReadOptions, TransactOptions, WriteOptions};
pub use remote::RemoteOptions;
pub use setting::SettingInfo;
