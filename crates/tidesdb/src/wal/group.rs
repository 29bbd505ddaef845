//! State shared by the threads of a group commit: see `sync.rs`.

use std::sync::atomic::AtomicU64;

use tidesdb_sync::{Condvar, Mutex, rank};

use crate::stats::Histogram;
use crate::types::SeqNo;

/// The leader flag and the condition variable of the waiters.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// True while a thread leads.
    pub(super) leading: Mutex<bool, { rank::LEADING }>,
    /// Notified when a leader has finished.
    pub(super) done: Condvar,
    /// First address after the last seal.
    pub(super) sealed: Mutex<SeqNo, { rank::SEALED }>,
    /// Durations of syncs, of the log with the value logs.
    pub(super) syncs: Histogram,
    /// Slow syncs that [`super::Log::take_slow_syncs`] has not returned.
    pub(super) slow: AtomicU64,
}
