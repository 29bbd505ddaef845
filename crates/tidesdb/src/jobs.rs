//! Asking for background work. Whoever asks never sees who works: workers live on a floor above.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidesdb_sync::{Condvar, Mutex};

use crate::types::FamilyId;

/// One piece of background work. The order is the priority: the first is done first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// Make the next log segment ready.
    PrepareLog,
    /// Write the oldest immutable memtable of a family as a table.
    Flush(FamilyId),
    /// Compact a family if its planner finds something due.
    Compact(FamilyId),
    /// Remove files that nobody needs.
    RemoveObsolete,
}

impl Job {
    /// Whether it may take long and nobody waits for it at once.
    pub fn is_long(self) -> bool {
        matches!(self, Self::Compact(_) | Self::RemoveObsolete)
    }
}

/// Jobs waiting to be done: each at most once, no matter how often it is asked for, and never twice at a time, so that no
/// worker waits for another.
#[derive(Debug, Default)]
pub struct JobQueue {
    inner: Mutex<Inner>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeSet<Job>,
    running: BTreeSet<Job>,
}

impl JobQueue {
    /// Asks for `job`.
    pub fn push(&self, job: Job) {
        if self.inner.lock().waiting.insert(job) {
            self.changed.notify_all(); // not every worker takes every job
        }
    }

    /// The most urgent job of those that `wanted` names, waiting at most `patience` for one; `None` when there is none or the
    /// queue is closed.
    pub fn pop(&self, patience: Duration, wanted: impl Fn(Job) -> bool) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            let may = |job: &Job| !inner.running.contains(job) && wanted(*job);
            if let Some(job) = inner.waiting.iter().copied().find(may) {
                inner.waiting.remove(&job);
                inner.running.insert(job);
                return Some(job);
            }
            if self.is_closed()
                || patience.is_zero()
                || self.changed.wait_for(&mut inner, patience).timed_out()
            {
                return None;
            }
        }
    }

    /// A job from [`JobQueue::pop`] is done.
    pub fn finished(&self, job: Job) {
        let mut inner = self.inner.lock();
        inner.running.remove(&job);
        self.changed.notify_all();
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.waiting.is_empty() && inner.running.is_empty()
    }

    /// Number of jobs that wait or run.
    pub fn pending(&self) -> usize {
        let inner = self.inner.lock();
        inner.waiting.len() + inner.running.len()
    }

    /// Workers end after their current job.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _inner = self.inner.lock();
        self.changed.notify_all();
    }

    /// Whether [`JobQueue::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}
