//! What the threads of a group commit share: see `sync.rs`.

use tidesdb_sync::{Condvar, Mutex, rank};

use crate::types::SeqNo;

/// Who syncs, and who waits.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Whether somebody leads.
    pub(super) leading: Mutex<bool, { rank::LEADING }>,
    /// A leader finished.
    pub(super) done: Condvar,
    /// First address after the last seal.
    pub(super) sealed: Mutex<SeqNo, { rank::SEALED }>,
}
