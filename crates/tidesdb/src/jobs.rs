//! The queue of background work, and retries after failures. Callers that request work do not know the workers, which
//! live in a higher layer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_sync::{Condvar, Mutex, rank};

use crate::types::FamilyId;

/// Most merges of one family at a time.
const MERGES_OF_A_FAMILY: usize = 4;

/// One piece of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// Prepare the next log segment.
    PrepareLog,
    /// Write the oldest immutable memtable of a family as a table.
    Flush(FamilyId),
    /// Rotate the active memtable of a family if scans have stepped over many deleted keys in it.
    FlushActive(FamilyId),
    /// Compact a family if its planner finds something due.
    Compact(FamilyId),
    /// Seal full value logs of a family and remove dead ones.
    Collect(FamilyId),
    /// Remove files that are no longer needed.
    RemoveObsolete,
    /// Bring the object store up to date.
    Upload,
}

impl Job {
    /// Lower rank runs first.
    fn rank(self) -> u8 {
        match self {
            Self::PrepareLog => 0,
            Self::FlushActive(_) | Self::Flush(_) => 1,
            Self::Compact(_) => 2,
            Self::Collect(_) => 3,
            Self::RemoveObsolete => 4,
            Self::Upload => 5,
        }
    }

    /// How many of it may run at the same time. Merges of one family run beside each other as long as they share no table.
    fn limit(self) -> usize {
        if matches!(self, Self::Compact(_)) { MERGES_OF_A_FAMILY } else { 1 }
    }

    /// True for jobs that run on the dedicated upload thread, because they wait for an object store.
    pub fn is_upload(self) -> bool {
        self == Self::Upload
    }

    /// True for jobs that may take long and that no thread waits for at once.
    pub fn is_long(self) -> bool {
        matches!(self, Self::Compact(_) | Self::Collect(_) | Self::RemoveObsolete)
    }
}

/// Queued jobs. Each is queued at most once, no matter how often it is requested, and never runs twice at a time, so
/// that no worker waits for another. Jobs of one kind run in the order of their requests, so no family starves.
#[derive(Debug, Default)]
pub struct JobQueue {
    inner: Mutex<Inner, { rank::JOBS }>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Each with the number of its request.
    waiting: BTreeMap<Job, u64>,
    asked: u64,
    /// How many of each run.
    running: BTreeMap<Job, usize>,
}

impl JobQueue {
    /// Queues `job`, unless it is queued already.
    pub fn push(&self, job: Job) {
        let mut inner = self.inner.lock();
        inner.asked += 1;
        let turn = inner.asked;
        if let Entry::Vacant(place) = inner.waiting.entry(job) {
            place.insert(turn);
            self.changed.notify_all(); // not every worker takes every job
        }
    }

    /// Takes the most urgent job for which `wanted` returns true; waits at most `patience` for one. `None` if there is
    /// none or the queue is closed.
    pub fn pop(&self, patience: Duration, wanted: impl Fn(Job) -> bool) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            let running = |job: &Job| inner.running.get(job).copied().unwrap_or(0);
            let may = |job: &Job| running(job) < job.limit() && wanted(*job);
            let urgency = |(job, turn): (&Job, &u64)| (job.rank(), *turn, *job);
            let next = inner.waiting.iter().filter(|(job, _)| may(job)).map(urgency).min();
            if let Some((_, _, job)) = next {
                inner.waiting.remove(&job);
                *inner.running.entry(job).or_default() += 1;
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

    /// Marks a job from [`JobQueue::pop`] as done.
    pub fn finished(&self, job: Job) {
        let mut inner = self.inner.lock();
        if let Entry::Occupied(mut running) = inner.running.entry(job) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
        self.changed.notify_all();
    }

    /// Nobody asks for `job` any more: it failed, and is asked for again later.
    pub fn withdraw(&self, job: Job) {
        self.inner.lock().waiting.remove(&job);
    }

    /// Returns true if no job is queued or running.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.waiting.is_empty() && inner.running.is_empty()
    }

    /// Number of queued and running jobs.
    pub fn pending(&self) -> usize {
        let inner = self.inner.lock();
        inner.waiting.len() + inner.running.values().sum::<usize>()
    }

    /// Closes the queue: workers end after their current job.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _inner = self.inner.lock();
        self.changed.notify_all();
    }

    /// Returns true if [`JobQueue::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Consecutive failures of some work, and when to try again.
#[derive(Debug, Default)]
pub struct Retry {
    tries: AtomicU32,
    failures: AtomicU32,
    due_nanos: AtomicU64,
}

impl Retry {
    /// Resets all counts after a success.
    pub fn succeeded(&self) {
        if self.tries.load(Ordering::Relaxed) != 0 {
            self.tries.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            self.due_nanos.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failure at `now`. Returns the pause before the next try: twice as long each time, at most `longest`.
    pub fn failed(&self, now: Duration, longest: Duration) -> Duration {
        let n = self.tries.fetch_add(1, Ordering::Relaxed);
        let pause = Duration::from_millis(50 << n.min(16)).min(longest);
        self.due_nanos.store((now + pause).as_nanos() as u64, Ordering::Relaxed);
        pause
    }

    /// Counts a failure that should not repeat; returns how many there were in a row.
    pub fn count_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true if it is too early for the next try.
    pub fn waits(&self, now: Duration) -> bool {
        (now.as_nanos() as u64) < self.due_nanos.load(Ordering::Relaxed)
    }

    /// Returns true once when it is time for the next try.
    pub fn due(&self, now: Duration) -> bool {
        let due = self.due_nanos.load(Ordering::Relaxed);
        due != 0 && now.as_nanos() as u64 >= due && self.due_nanos.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_by_rank_then_by_order_of_requests() {
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
        // A job requested again while it runs is queued after all others.
        queue.push(asked[1]);
        assert_eq!(queue.pop(Duration::ZERO, |_| true), None, "it is still running");
    }

    #[test]
    fn some_merges_of_a_family_run_at_the_same_time() {
        let (queue, job) = (JobQueue::default(), Job::Compact(FamilyId(1)));
        let begins = || {
            queue.push(job);
            queue.pop(Duration::ZERO, |_| true).is_some()
        };
        assert!((0..MERGES_OF_A_FAMILY).all(|_| begins()));
        assert!(!begins());
        queue.finished(job);
        assert!(begins() && !queue.is_idle());
        queue.push(job);
        queue.withdraw(job);
        (0..MERGES_OF_A_FAMILY).for_each(|_| queue.finished(job));
        assert!(queue.is_idle());
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let retry = Retry::default();
        let longest = Duration::from_millis(150);
        let pauses = [0; 3].map(|_| retry.failed(Duration::ZERO, longest).as_millis());
        assert_eq!(pauses, [50, 100, 150]);
        assert!(retry.waits(Duration::from_millis(149)) && !retry.waits(Duration::from_millis(150)));
        assert!(!retry.due(Duration::from_millis(149)));
        assert!(retry.due(Duration::from_millis(150)) && !retry.due(Duration::from_secs(1)), "reported once");
        assert_eq!([retry.count_failure(), retry.count_failure()], [1, 2]);
        retry.succeeded();
        assert_eq!((retry.count_failure(), retry.failed(Duration::ZERO, longest).as_millis()), (1, 50));
    }
}
