//! What a set of value logs says about its files, and about values that were appended.

use super::VlogPointer;
use super::file::{Lease, VlogFile};
use crate::codec::Salt;
use crate::types::VlogId;

/// A file of this session that may be sealed or named in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunFile {
    /// Number of the file.
    pub id: VlogId,
    /// Salt of the file.
    pub salt: Salt,
    /// True if its name and header are durable: only then the manifest may name it.
    pub is_durable: bool,
    /// Its length, if the file is complete and durable and no lease on it is left: every commit that refers to it has
    /// its sequence number.
    pub sealable: Option<u64>,
}

/// Values that were appended: a pointer to each, and leases on their files.
#[derive(Debug, Default)]
pub struct Appended {
    /// Pointers in the order of the values.
    pub pointers: Vec<VlogPointer>,
    /// Leases to hold until the pointers are in the log or in installed tables, or are discarded.
    pub leases: Vec<Lease>,
}

/// Facts about one value log of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlogInfo {
    /// Number of the file.
    pub id: VlogId,
    /// Salt of the file.
    pub salt: Salt,
    /// Bytes written, file header included. For a sealed file: its length.
    pub bytes: u64,
    /// True if nothing will be written to the file any more.
    pub sealed: bool,
}

impl VlogInfo {
    /// The facts about `file` as it is now.
    pub(super) fn of(file: &VlogFile) -> Self {
        let sealed = file.sealed_len();
        Self {
            id: file.id,
            salt: file.salt,
            bytes: sealed.unwrap_or_else(|| file.settled_len()),
            sealed: sealed.is_some(),
        }
    }
}
