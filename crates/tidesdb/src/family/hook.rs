//! Commit hooks: user functions that are called with what was committed to a family.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tidesdb_sync::Mutex;

use crate::types::SeqNo;

/// Called after a commit is visible, in the thread that committed. A panic of it changes nothing.
pub type CommitHook = dyn Fn(&Committed<'_>) + Send + Sync;

/// The operations of one commit on one family.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Committed<'a> {
    /// The commit's sequence number: higher than those of all earlier commits.
    pub seq: SeqNo,
    /// Its operations on the family, in the order in which they were added to the batch.
    pub ops: &'a [CommittedOp<'a>],
}

impl<'a> Committed<'a> {
    /// Commit `seq` with these operations.
    pub fn new(seq: SeqNo, ops: &'a [CommittedOp<'a>]) -> Self {
        Self { seq, ops }
    }
}

/// One operation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommittedOp<'a> {
    /// A put.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
        /// When it expires; `None` = never.
        expiry: Option<SystemTime>,
    },
    /// A put of a value that was written through a [`ValueWriter`](crate::ValueWriter) and stored in chunks, or of one of 8 MiB or more
    /// that was put before the hook was set.
    PutStream {
        /// The key.
        key: &'a [u8],
        /// Length of its new value.
        len: u64,
        /// When it expires; `None` = never.
        expiry: Option<SystemTime>,
    },
    /// A merge of an operand.
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// A delete of one key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// A delete of all keys of a range.
    DeleteRange {
        /// First key deleted; empty = from the first key of all.
        start: &'a [u8],
        /// First key not deleted; empty = to the last key of all.
        end: &'a [u8],
    },
}

/// Holds a family's hook. While no hook is set it costs a commit one atomic load.
#[derive(Default)]
pub struct HookCell {
    used: AtomicBool,
    hook: Mutex<Option<Arc<CommitHook>>>,
}

impl HookCell {
    /// Sets or removes the hook.
    pub fn set(&self, hook: Option<Arc<CommitHook>>) {
        let mut cell = self.hook.lock();
        self.used.store(hook.is_some(), Ordering::Release);
        *cell = hook;
    }

    /// Returns true if a hook is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// The hook, for a call without holding any lock.
    pub fn get(&self) -> Option<Arc<CommitHook>> {
        if self.is_set() { self.hook.lock().clone() } else { None }
    }
}

impl fmt::Debug for HookCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCell").field("set", &self.is_set()).finish()
    }
}
