//! Asking for background work, and asking again after a failure. Whoever asks never sees who works: workers live on a
//! floor above.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_sync::{Condvar, Mutex, rank};

use crate::types::FamilyId;

/// One piece of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// Make the next log segment ready.
    PrepareLog,
    /// Write the oldest immutable memtable of a family as a table.
    Flush(FamilyId),
    /// Learn what was deleted in a family.
    Learn(FamilyId),
    /// Compact a family if its planner finds something due.
    Compact(FamilyId),
    /// Remove files that nobody needs.
    RemoveObsolete,
    /// Bring the object store up to date.
    Upload,
}

impl Job {
    /// What is urgent has a low one.
    fn rank(self) -> u8 {
        match self {
            Self::PrepareLog => 0,
            Self::Flush(_) => 1,
            Self::Learn(_) => 2,
            Self::Compact(_) => 3,
            Self::RemoveObsolete => 4,
            Self::Upload => 5,
        }
    }

    /// Whether it has a thread of its own: nobody waits for it, and what it is for is worth most at once.
    pub fn is_learning(self) -> bool {
        matches!(self, Self::Learn(_))
    }

    /// Whether it runs on a thread of its own, because it waits for an object store.
    pub fn is_upload(self) -> bool {
        self == Self::Upload
    }

    /// Whether it may take long and nobody waits for it at once.
    pub fn is_long(self) -> bool {
        matches!(self, Self::Compact(_) | Self::RemoveObsolete)
    }
}

/// Jobs waiting to be done: each at most once, no matter how often it is asked for, and never twice at a time, so that no
/// worker waits for another. Among those of one kind the one asked for first is done first: no family starves.
#[derive(Debug, Default)]
pub struct JobQueue {
    inner: Mutex<Inner, { rank::JOBS }>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Each with the number of its asking.
    waiting: BTreeMap<Job, u64>,
    asked: u64,
    running: BTreeSet<Job>,
}

impl JobQueue {
    /// Asks for `job`.
    pub fn push(&self, job: Job) {
        let mut inner = self.inner.lock();
        inner.asked += 1;
        let turn = inner.asked;
        if let Entry::Vacant(place) = inner.waiting.entry(job) {
            place.insert(turn);
            self.changed.notify_all(); // not every worker takes every job
        }
    }

    /// The most urgent job of those that `wanted` names, waiting at most `patience` for one; `None` when there is none or the
    /// queue is closed.
    pub fn pop(&self, patience: Duration, wanted: impl Fn(Job) -> bool) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            let may = |job: &Job| !inner.running.contains(job) && wanted(*job);
            let urgency = |(job, turn): (&Job, &u64)| (job.rank(), *turn, *job);
            let next = inner.waiting.iter().filter(|(job, _)| may(job)).map(urgency).min();
            if let Some((_, _, job)) = next {
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

/// Failures of some work in a row, and when to try again.
#[derive(Debug, Default)]
pub struct Retry {
    tries: AtomicU32,
    failures: AtomicU32,
    due_nanos: AtomicU64,
}

impl Retry {
    /// The work succeeded.
    pub fn succeeded(&self) {
        if self.tries.load(Ordering::Relaxed) != 0 {
            self.tries.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            self.due_nanos.store(0, Ordering::Relaxed);
        }
    }

    /// The work failed at `now`; returns how long to wait before the next try: twice as long each time, at most `longest`.
    pub fn failed(&self, now: Duration, longest: Duration) -> Duration {
        let n = self.tries.fetch_add(1, Ordering::Relaxed);
        let pause = Duration::from_millis(50 << n.min(16)).min(longest);
        self.due_nanos.store((now + pause).as_nanos() as u64, Ordering::Relaxed);
        pause
    }

    /// A failure that should not repeat; returns how many there were in a row.
    pub fn count_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether it is too early for the next try.
    pub fn waits(&self, now: Duration) -> bool {
        (now.as_nanos() as u64) < self.due_nanos.load(Ordering::Relaxed)
    }

    /// Whether it is time for the next try; says so once.
    pub fn due(&self, now: Duration) -> bool {
        let due = self.due_nanos.load(Ordering::Relaxed);
        due != 0 && now.as_nanos() as u64 >= due && self.due_nanos.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_kinds_first_then_who_asked_first() {
        let queue = JobQueue::default();
        let asked = [
            Job::Compact(FamilyId(9)),
            Job::Flush(FamilyId(7)),
            Job::Compact(FamilyId(1)),
            Job::Flush(FamilyId(2)),
            Job::PrepareLog,
        ];
        asked.iter().chain(&asked).for_each(|job| queue.push(*job));
        let next = || queue.pop(Duration::ZERO, |_| true);
        let order: Vec<Job> = std::iter::from_fn(next).collect();
        let wanted = [4, 1, 3, 0, 2].map(|i: usize| asked[i]);
        assert_eq!(order, wanted);
        // Who asks again while it runs is done after all who waited.
        queue.push(asked[0]);
        assert_eq!(queue.pop(Duration::ZERO, |_| true), None, "it runs");
    }

    #[test]
    fn pauses_double_and_end() {
        let retry = Retry::default();
        let longest = Duration::from_millis(150);
        let pauses = [0; 3].map(|_| retry.failed(Duration::ZERO, longest).as_millis());
        assert_eq!(pauses, [50, 100, 150]);
        assert!(retry.waits(Duration::from_millis(149)) && !retry.waits(Duration::from_millis(150)));
        assert!(!retry.due(Duration::from_millis(149)));
        assert!(retry.due(Duration::from_millis(150)) && !retry.due(Duration::from_secs(1)), "said once");
        assert_eq!([retry.count_failure(), retry.count_failure()], [1, 2]);
        retry.succeeded();
        assert_eq!((retry.count_failure(), retry.failed(Duration::ZERO, longest).as_millis()), (1, 50));
    }
}
