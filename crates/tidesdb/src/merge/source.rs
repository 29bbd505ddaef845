//! What a merge asks of its children beyond walking.

use crate::types::EntryCursor;

/// A child of a [`MergeCursor`](super::MergeCursor).
pub trait MergeSource: EntryCursor {
    /// Whether the source may hold a version of exactly `key`; `false` is a promise, `true` is none. Costs no I/O (a
    /// filter in memory). Lets a seek leave a source alone when a newer one holds the key. Asked only
    /// where keys are ordered bytewise, so a filter over the bytes of keys is an answer.
    fn may_contain(&self, key: &[u8]) -> bool {
        let _ = key;
        true
    }
}
