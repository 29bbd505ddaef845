//! What a merge requires of its children beyond iteration.

use crate::types::EntryCursor;

/// A child of a [`MergeCursor`](super::MergeCursor).
pub trait MergeSource: EntryCursor {
    /// Returns whether the source may hold a version of exactly `key`. `false` is reliable, `true` is not. Costs no I/O
    /// (a filter in memory). Lets a seek skip older sources if a newer one holds the key. Called only if keys are
    /// ordered bytewise, so a filter over key bytes is sufficient.
    fn may_contain(&self, key: &[u8]) -> bool {
        let _ = key;
        true
    }
}
