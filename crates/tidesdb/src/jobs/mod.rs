//! The queue of background work, and retries after failures. Callers that request work do not know the workers, which
//! live in a higher layer. Which flushes, merges and calls run, and how far they are.

mod calls;
mod merges;
mod retry;
mod running;
mod threads;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use calls::{Call, Calls};
pub use merges::{Merges, RateLimit};
pub use retry::Retry;
pub use running::{JobStart, JobStats, Progress, RunningJob, RunningJobs};
pub use threads::{ThreadKind, WorkerPool};
use tidesdb_sync::{Condvar, Event, Mutex, rank};

use crate::types::FamilyId;
use crate::{Error, Result};

/// Maximum number of merges of one family at a time, whatever the number of workers.
const MERGES_OF_A_FAMILY: usize = 4;
/// With more waiting jobs, all workers start.
const BACKLOG: usize = 4;

/// One piece of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// Prepare files and blocks of the log. It has a thread of its own, because commits may need them soon.
    PrepareLog,
    /// Sync the log, because many of its files are not durable.
    SyncLog,
    /// Write the oldest immutable memtable of a family as a table.
    Flush(FamilyId),
    /// Free memory: rotate large memtables, shrink the block cache.
    Relieve,
    /// Request the work that frees space of the disk, after a commit was refused for lack of it.
    FreeSpace,
    /// Rotate the active memtable of a family if scans have stepped over many deleted keys in it.
    FlushActive(FamilyId),
    /// Compact a family if its planner finds something due.
    Compact(FamilyId),
    /// Take a part of a running merge of a family.
    MergePart(FamilyId),
    /// Seal full value logs of a family and remove dead ones.
    Collect(FamilyId),
    /// Write recorded events to the event log.
    WriteEvents,
    /// Remove files that are no longer needed. It has a thread of its own if there are several workers: on some disks the system frees the
    /// space of a file slowly.
    RemoveObsolete,
    /// Bring the object store up to date. It has a thread of its own, because it waits for the store.
    Upload,
}

impl Job {
    /// Lower rank runs first.
    fn rank(self) -> u8 {
        match self {
            Self::PrepareLog | Self::Relieve | Self::FreeSpace => 0,
            Self::FlushActive(_) | Self::Flush(_) | Self::SyncLog => 1,
            Self::RemoveObsolete => 2, // before merges take more space, where no thread of its own does it
            Self::Compact(_) => 3,
            Self::MergePart(_) => 4,
            Self::Collect(_) | Self::WriteEvents => 5,
            Self::Upload => 6,
        }
    }

    /// True for jobs that may take long and that no thread waits for at once.
    fn is_long(self) -> bool {
        matches!(self, Self::Compact(_) | Self::MergePart(_) | Self::Collect(_))
    }
}

/// Jobs that the same workers take, so that none of them looks at jobs that it does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Flushes, and whatever else is short.
    Short,
    /// Merges of small families, which take no longer than a flush.
    SmallMerges,
    /// Other merges, their parts, and collections of values.
    Long,
    Removals,
    Uploads,
    /// Preparation of the log.
    Log,
}

const LANES: usize = Lane::Log as usize + 1;

impl Lane {
    /// The threads that take its jobs.
    fn takers(self) -> &'static [ThreadKind] {
        match self {
            Self::Short => &[ThreadKind::Short],
            Self::SmallMerges => &[ThreadKind::Short, ThreadKind::Long],
            Self::Long => &[ThreadKind::Long],
            Self::Removals => &[ThreadKind::Removals],
            Self::Uploads => &[ThreadKind::Uploads],
            Self::Log => &[ThreadKind::Log, ThreadKind::Short],
        }
    }
}

/// Which jobs a worker takes.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// All.
    All,
    /// All but uploads.
    Work,
    /// Short ones.
    Short,
    /// Those that may take long.
    Long,
    /// The removal of files.
    Removals,
    /// Uploads.
    Uploads,
    /// Preparation of the log.
    Log,
}

impl Takes {
    fn lanes(self) -> &'static [Lane] {
        match self {
            Self::All => {
                &[Lane::Log, Lane::Short, Lane::SmallMerges, Lane::Long, Lane::Removals, Lane::Uploads]
            }
            Self::Work => &[Lane::Log, Lane::Short, Lane::SmallMerges, Lane::Long, Lane::Removals],
            Self::Short => &[Lane::Log, Lane::Short, Lane::SmallMerges],
            Self::Long => &[Lane::SmallMerges, Lane::Long],
            Self::Removals => &[Lane::Removals],
            Self::Uploads => &[Lane::Uploads],
            Self::Log => &[Lane::Log],
        }
    }
}

/// The place of a queued job in its lane: its rank, and the number of its request.
type Place = (u8, u64, Job);

/// Queued jobs. Each is queued at most once, no matter how often it is requested, and never runs twice at a time, so
/// that no worker waits for another; only merges of one family may run beside each other, as long as they share no table, and the
/// parts of a merge.
///
/// Jobs of one kind run in the order of their requests. Merges are fair between families: a family with fewer running merges is
/// first; a merge that is requested while another one of its family runs is treated as requested when that one ends; and no family
/// may use the last worker ([`JobQueue::limit_merges`]). So a family waits for at most one merge of each other family. A part of a
/// merge may use the last worker, but only while no merge is queued, and it ends early for a merge of another family
/// ([`JobQueue::another_merge_waits`]). The merge of a small family takes no longer than a flush, so workers that flush take it, too
/// ([`JobQueue::set_small`]).
#[derive(Debug, Default)]
pub struct JobQueue {
    inner: Mutex<Inner, { rank::JOBS }>,
    changed: Condvar,
    closed: AtomicBool,
    /// Advanced when the queue is closed.
    ended: Event,
    /// The threads that take the jobs.
    pub workers: WorkerPool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Each with the number of its request.
    waiting: BTreeMap<Job, u64>,
    /// The same jobs by lane, in the order in which they run.
    lanes: [BTreeSet<Place>; LANES],
    asked: u64,
    /// How many of each run.
    running: BTreeMap<Job, usize>,
    /// Maximum number of merges of one family at a time, if that is less than [`MERGES_OF_A_FAMILY`].
    merges_max: Option<usize>,
    /// Families whose merges are short.
    small: BTreeSet<FamilyId>,
}

impl Inner {
    fn running(&self, job: Job) -> usize {
        self.running.get(&job).copied().unwrap_or(0)
    }

    fn lane(&self, job: Job) -> Lane {
        match job {
            Job::RemoveObsolete => Lane::Removals,
            Job::Upload => Lane::Uploads,
            Job::PrepareLog => Lane::Log,
            Job::Compact(id) if self.small.contains(&id) => Lane::SmallMerges,
            job if job.is_long() => Lane::Long,
            _ => Lane::Short,
        }
    }

    /// Who takes `job`.
    fn kind(&self, job: Job) -> ThreadKind {
        match self.lane(job) {
            Lane::Removals => ThreadKind::Removals,
            Lane::Uploads => ThreadKind::Uploads,
            Lane::Log => ThreadKind::Log,
            Lane::Short | Lane::SmallMerges => ThreadKind::Short,
            Lane::Long => ThreadKind::Long,
        }
    }

    /// Queues `job` with the number `turn`, in place of an earlier request.
    fn put(&mut self, job: Job, turn: u64) {
        self.remove(job);
        self.waiting.insert(job, turn);
        let lane = self.lane(job) as usize;
        self.lanes[lane].insert((job.rank(), turn, job));
    }

    /// Removes `job` from the queue. Returns the number of its request.
    fn remove(&mut self, job: Job) -> Option<u64> {
        let turn = self.waiting.remove(&job)?;
        let lane = self.lane(job) as usize;
        self.lanes[lane].remove(&(job.rank(), turn, job));
        Some(turn)
    }

    /// Returns the most urgent job of `lane` that may run, with its urgency: by rank, then those of which fewer run, then in the order of
    /// requests. Passes over at most as many as there are running jobs.
    fn first(&self, lane: Lane) -> Option<(u8, usize, u64, Job)> {
        let mut best: Option<(u8, usize, u64, Job)> = None;
        for &(rank, turn, job) in &self.lanes[lane as usize] {
            if best.is_some_and(|best| best.0 < rank) {
                break;
            }
            let running = self.running(job);
            if running < self.limit(job) {
                best = best.into_iter().chain([(rank, running, turn, job)]).min();
            }
            if running == 0 {
                break; // no later one of this rank comes before it
            }
        }
        best
    }

    /// How many of `job` may run at the same time.
    fn limit(&self, job: Job) -> usize {
        match job {
            Job::Compact(_) => {
                self.merges_max.map_or(MERGES_OF_A_FAMILY, |max| max.clamp(1, MERGES_OF_A_FAMILY))
            }
            Job::MergePart(_) => MERGES_OF_A_FAMILY,
            _ => 1,
        }
    }
}

impl JobQueue {
    /// Queues `job`, unless it is queued already. Starts the threads that take it, if they have not started.
    pub fn push(&self, job: Job) {
        let mut inner = self.inner.lock();
        inner.asked += 1;
        let turn = inner.asked;
        if !inner.waiting.contains_key(&job) {
            inner.put(job, turn);
            self.changed.notify_all(); // not every worker takes every job
        }
        let (kind, is_backlog) = (inner.kind(job), inner.waiting.len() > BACKLOG);
        drop(inner);
        self.want(kind);
        self.announce(job);
        if is_backlog {
            [ThreadKind::Short, ThreadKind::Long].into_iter().for_each(|kind| self.want(kind));
        }
    }

    /// Starts the threads of `kind`, unless they have started or the queue is closed.
    pub fn want(&self, kind: ThreadKind) {
        if !self.workers.has(kind) && !self.is_closed() {
            self.workers.start(kind);
        }
    }

    /// Tells threads that serve several databases that `job`, or one like it, may run now.
    fn announce(&self, job: Job) {
        if self.workers.is_shared() && !self.is_closed() {
            let inner = self.inner.lock();
            let lane = inner.lane(job);
            let has_one = inner.first(lane).is_some();
            drop(inner);
            if has_one {
                lane.takers().iter().for_each(|kind| self.workers.start(*kind));
            }
        }
    }

    /// Returns whether a job waits that `takes` names and that may run.
    pub fn has_one_of(&self, takes: Takes) -> bool {
        let inner = self.inner.lock();
        takes.lanes().iter().any(|lane| inner.first(*lane).is_some())
    }

    /// Limits the merges of one family that run at the same time.
    pub fn limit_merges(&self, max: usize) {
        self.inner.lock().merges_max = Some(max);
    }

    /// Sets whether the merges of `family` are short.
    pub fn set_small(&self, family: FamilyId, is_small: bool) {
        let mut inner = self.inner.lock();
        if inner.small.contains(&family) == is_small {
            return;
        }
        let merge = Job::Compact(family);
        let turn = inner.remove(merge);
        if is_small {
            inner.small.insert(family)
        } else {
            inner.small.remove(&family)
        };
        if let Some(turn) = turn {
            inner.put(merge, turn);
            self.changed.notify_all(); // a worker that waits may take it now
            drop(inner);
            if !is_small {
                self.want(ThreadKind::Long); // those that it was left to do not take it any more
            }
            self.announce(merge);
        }
    }

    /// Number of threads that merge; 1 without workers.
    pub fn mergers(&self) -> usize {
        self.inner.lock().merges_max.map_or(1, |max| max + 1)
    }

    /// Returns true if a merge of a family other than `family` is queued and waits for a worker.
    pub fn another_merge_waits(&self, family: FamilyId) -> bool {
        let inner = self.inner.lock();
        let rank = Job::Compact(family).rank();
        let merges = |lane: Lane| {
            let lane = &inner.lanes[lane as usize];
            lane.range((rank, 0, Job::PrepareLog)..).take_while(move |(other, ..)| *other == rank)
        };
        let mut merges = [Lane::SmallMerges, Lane::Long].into_iter().flat_map(merges);
        merges.any(|&(.., job)| job != Job::Compact(family) && inner.running(job) < inner.limit(job))
    }

    /// Takes the most urgent job that `takes` names; waits at most `patience` for one. `None` if there is none or the queue is closed.
    pub fn pop(&self, patience: Duration, takes: Takes) -> Option<Job> {
        let mut inner = self.inner.lock();
        loop {
            if let Some((.., job)) = takes.lanes().iter().filter_map(|lane| inner.first(*lane)).min() {
                inner.remove(job);
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
        inner.asked += 1;
        let turn = inner.asked;
        if inner.waiting.contains_key(&job) {
            inner.put(job, turn);
        }
        if let Entry::Occupied(mut running) = inner.running.entry(job) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
        self.changed.notify_all();
        drop(inner);
        self.announce(job); // what waited for its end
    }

    /// Queues the short `job`. Returns whether a thread takes it.
    pub fn push_to_thread(&self, job: Job) -> bool {
        self.push(job);
        let kind = self.inner.lock().kind(job);
        if !self.workers.has(kind) {
            self.want(ThreadKind::Short); // it takes the job, too
        }
        (self.workers.has(kind) || self.workers.has(ThreadKind::Short)) && !self.is_closed()
    }

    /// Withdraws the request for `job`, which failed and is requested again later.
    pub fn withdraw(&self, job: Job) {
        self.inner.lock().remove(job);
    }

    /// Number of queued and running jobs.
    pub fn pending(&self) -> usize {
        let inner = self.inner.lock();
        inner.waiting.len() + inner.running.values().sum::<usize>()
    }

    /// Number of requests so far.
    #[cfg(test)]
    pub fn asked(&self) -> u64 {
        self.inner.lock().asked
    }

    /// Closes the queue: workers end after their current job.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ended.advance();
        let _inner = self.inner.lock();
        self.changed.notify_all();
    }

    /// Waits until the queue is closed or [`JobQueue::wake`] is called, for about `patience` at most.
    pub fn wait_for_close(&self, patience: Duration) {
        self.wait_for_wake(self.wakes(), patience);
    }

    /// Waits as [`JobQueue::wait_for_close`], unless that has happened since [`JobQueue::wakes`] returned `seen`.
    pub fn wait_for_wake(&self, seen: u32, patience: Duration) {
        if !self.is_closed() {
            self.ended.wait_while(seen, Some(patience));
        }
    }

    /// How often threads were woken.
    pub fn wakes(&self) -> u32 {
        self.ended.current()
    }

    /// Has the threads that keep the time and publish the figures do their next round now.
    pub fn wake(&self) {
        self.ended.advance();
        if self.workers.is_shared() && !self.is_closed() {
            [ThreadKind::Clock, ThreadKind::Figures].into_iter().for_each(|kind| self.workers.start(kind));
        }
    }

    /// Ends a call that may take long when a close has begun, which waits for it.
    ///
    /// # Errors
    /// `Closed` if [`JobQueue::close`] was called.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns true if [`JobQueue::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
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
        let next = || queue.pop(Duration::ZERO, Takes::All);
        let order: Vec<Job> = std::iter::from_fn(next).collect();
        let wanted = [4, 1, 3, 0, 2].map(|i: usize| asked[i]);
        assert_eq!(order, wanted);
        // A job requested again while it runs is queued after all others.
        queue.push(asked[1]);
        assert_eq!(queue.pop(Duration::ZERO, Takes::All), None, "it is still running");
    }

    #[test]
    fn some_merges_of_a_family_run_at_the_same_time() {
        let (queue, job) = (JobQueue::default(), Job::Compact(FamilyId(1)));
        let begins = || {
            queue.push(job);
            queue.pop(Duration::ZERO, Takes::All).is_some()
        };
        assert!((0..MERGES_OF_A_FAMILY).all(|_| begins()));
        assert!(!begins());
        queue.finished(job);
        assert!(begins() && queue.pending() > 0);
        queue.push(job);
        queue.withdraw(job);
        (0..MERGES_OF_A_FAMILY).for_each(|_| queue.finished(job));
        assert_eq!(queue.pending(), 0);
    }

    /// Eight families, of which one always has merges to do. Whatever the number of workers, the others wait for at most one
    /// merge of each family, and a worker is left for them.
    #[test]
    fn a_busy_family_does_not_delay_the_others() {
        for workers in 2..6 {
            let queue = JobQueue::default();
            queue.limit_merges(workers - 1);
            let mut dice = 7u64;
            let mut below = move |n: u64| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (dice >> 33) % n
            };
            let mut running: Vec<(u64, Job)> = Vec::new();
            let mut passed: BTreeMap<Job, BTreeMap<Job, usize>> = BTreeMap::new();
            let mut served = [0; 8];
            let ask = |job: Job, passed: &mut BTreeMap<_, _>| {
                queue.push(job);
                passed.entry(job).or_insert_with(BTreeMap::new);
            };
            for now in 0..20_000 {
                ask(Job::Compact(FamilyId(0)), &mut passed);
                if below(10) == 0 {
                    ask(Job::Compact(FamilyId(1 + below(7) as u32)), &mut passed);
                }
                let ended = running.extract_if(.., |(end, _)| *end <= now);
                ended.for_each(|(_, job)| queue.finished(job));
                while running.len() < workers
                    && let Some(job) = queue.pop(Duration::ZERO, Takes::All)
                {
                    let Job::Compact(FamilyId(family)) = job else { unreachable!() };
                    served[family as usize] += 1;
                    passed.remove(&job);
                    passed.values_mut().for_each(|by| *by.entry(job).or_default() += 1);
                    let others = passed.iter().filter(|(job, _)| **job != Job::Compact(FamilyId(0)));
                    let most = others.flat_map(|(_, by)| by.values()).max();
                    assert!(most <= Some(&1), "{workers} workers: {passed:?}");
                    running.push((now + if family == 0 { 100 } else { 5 }, job));
                }
                let of_busy = running.iter().filter(|(_, job)| *job == Job::Compact(FamilyId(0))).count();
                assert!(of_busy < workers, "no worker is left");
            }
            assert!(served.iter().all(|n| *n > 100), "{served:?}");
        }
    }

    /// One worker for short jobs and two for long ones, as with two background threads. Family 0 merges all the time, in parts of 20
    /// ticks, which a helper takes too; seven others flush every 100 ticks, one after the other if they take turns, and then each want a
    /// merge of 5 ticks. Returns the most ticks between the request of such a merge and its start.
    fn others_first(small: bool, in_turn: bool) -> usize {
        let queue = JobQueue::default();
        queue.limit_merges(1);
        (1..8).for_each(|n| queue.set_small(FamilyId(n), small));
        let mut running: Vec<Option<(usize, Job)>> = vec![None; 3];
        let (mut asked, mut most) = (BTreeMap::new(), 0);
        for now in 0..20_000 {
            queue.push(Job::Compact(FamilyId(0)));
            queue.push(Job::MergePart(FamilyId(0)));
            let is_due = |n: &u32| now % 100 == if in_turn { *n as usize * 14 } else { 0 };
            (1..8).filter(is_due).for_each(|n| queue.push(Job::Flush(FamilyId(n))));
            for (worker, slot) in running.iter_mut().enumerate() {
                if let Some((_, job)) = slot.take_if(|(end, _)| *end <= now) {
                    queue.finished(job);
                    if let Job::Flush(id) = job {
                        queue.push(Job::Compact(id));
                        asked.entry(id).or_insert(now);
                    }
                }
                if slot.is_none() {
                    let next = match worker {
                        0 => queue.pop(Duration::ZERO, Takes::Short),
                        _ => queue.pop(Duration::ZERO, Takes::Long),
                    };
                    let Some(job) = next else { continue };
                    let ticks = match job {
                        Job::Flush(_) => 1,
                        Job::Compact(id) if id != FamilyId(0) => {
                            most = most.max(asked.remove(&id).map_or(0, |since| now - since));
                            5
                        }
                        Job::Compact(_) => 100,
                        _ => 20,
                    };
                    *slot = Some((now + ticks, job));
                }
            }
        }
        most
    }

    #[test]
    fn merges_of_small_families_do_not_wait_for_those_of_a_large_one() {
        let (small, large) = (others_first(true, false), others_first(false, false));
        assert!(small * 4 <= large * 3, "{small} and {large} ticks");
        assert!(
            small <= 7 + 6 * 5,
            "no longer than the flushes and merges of the other six on one worker: {small}"
        );
        assert_eq!(others_first(true, true), 0, "families that take turns to flush do not wait at all");
    }

    #[test]
    fn parts_of_a_merge_come_after_merges_and_notice_those_of_other_families() {
        let queue = JobQueue::default();
        assert_eq!(queue.mergers(), 1);
        queue.limit_merges(1);
        assert_eq!(queue.mergers(), 2);
        let [(merge, part), (other, _)] =
            [1, 2].map(|n| (Job::Compact(FamilyId(n)), Job::MergePart(FamilyId(n))));
        let next = || queue.pop(Duration::ZERO, Takes::Long);
        queue.push(merge);
        assert_eq!(next(), Some(merge));
        let collect = Job::Collect(FamilyId(1));
        [part, Job::RemoveObsolete, collect, merge].into_iter().for_each(|job| queue.push(job));
        assert!(!queue.another_merge_waits(FamilyId(1)), "its own merge does not count");
        assert_eq!(next(), Some(part), "the family may not merge more, but its merge may be helped");
        queue.push(part);
        queue.push(other);
        assert!(queue.another_merge_waits(FamilyId(1)) && !queue.another_merge_waits(FamilyId(2)));
        assert_eq!((next(), next()), (Some(other), Some(part)));
        queue.push(other);
        assert!(!queue.another_merge_waits(FamilyId(1)), "it may not run now");
        queue.finished(merge);
        assert_eq!((next(), next()), (Some(merge), Some(collect)));
        assert_eq!((next(), queue.pop(Duration::ZERO, Takes::Short)), (None, None));
        assert_eq!(
            queue.pop(Duration::ZERO, Takes::Removals),
            Some(Job::RemoveObsolete),
            "on its own thread"
        );
        [merge, Job::RemoveObsolete].into_iter().for_each(|job| queue.push(job));
        [merge, Job::RemoveObsolete].into_iter().for_each(|job| queue.finished(job));
        let first = queue.pop(Duration::ZERO, Takes::All);
        assert_eq!(
            first,
            Some(Job::RemoveObsolete),
            "a thread for all jobs frees space before it takes more"
        );
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
