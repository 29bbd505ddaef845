//! Flushes and merges that run, with their progress, and the durations of those that are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::Mutex;

use crate::pacing::RunningReduction;
use crate::stats::{Histogram, statistics};
use crate::{Error, Result};

/// What a flush or a merge reads.
#[derive(Clone, Debug)]
pub struct JobStart {
    /// `flush`, or how tables are merged: see `PlanKind`.
    pub kind: &'static str,
    /// Name of the family.
    pub family: Arc<str>,
    /// Level of the outputs.
    pub target: u8,
    /// Bytes of all inputs.
    pub bytes: u64,
    /// Entries of all inputs.
    pub entries: u64,
    /// What it takes off the debt while it runs.
    pub reduces: RunningReduction,
}

/// A flush or merge that runs.
#[derive(Debug)]
pub struct Progress {
    start: JobStart,
    started: Duration,
    entries_done: AtomicU64,
    aborted: AtomicBool,
}

impl Progress {
    /// Adds `entries` to what was read.
    pub fn advance(&self, entries: u64) {
        let before = self.entries_done.fetch_add(entries, Ordering::Relaxed);
        self.start.reduces.change(self.share(before), self.share(before + entries));
    }

    /// The share of the job that is done after its first `entries` entries.
    fn share(&self, entries: u64) -> f64 {
        (entries as f64 / self.start.entries.max(1) as f64).min(1.0)
    }

    /// The share of the job that is done.
    fn share_done(&self) -> f64 {
        self.share(self.entries_done.load(Ordering::Relaxed))
    }

    /// Asks all threads that work on the job to stop.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// Fails if the job was aborted.
    ///
    /// # Errors
    /// `Busy`.
    pub fn check(&self) -> Result<()> {
        match self.aborted.load(Ordering::Relaxed) {
            true => Err(Error::Busy { cause: "another part of the merge failed" }),
            false => Ok(()),
        }
    }
}

/// The flushes and merges that run.
#[derive(Debug)]
pub struct RunningJobs {
    clock: Arc<dyn Clock>,
    jobs: Mutex<Vec<Arc<Progress>>>,
    /// Durations of flushes.
    pub flushes: Histogram,
    /// Durations of merges.
    pub merges: Histogram,
}

impl RunningJobs {
    /// None runs.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            jobs: Mutex::default(),
            flushes: Histogram::default(),
            merges: Histogram::default(),
        }
    }

    /// Registers a job until the result is dropped.
    pub fn begin(&self, start: JobStart) -> RunningJob<'_> {
        let progress = Arc::new(Progress {
            start,
            started: self.clock.mono(),
            entries_done: AtomicU64::new(0),
            aborted: AtomicBool::new(false),
        });
        self.jobs.lock().push(Arc::clone(&progress));
        RunningJob { of: self, progress }
    }

    /// Returns the running jobs, oldest first.
    pub fn now(&self) -> Vec<JobStats> {
        let now = self.clock.mono();
        self.jobs.lock().iter().map(|job| JobStats::of(&Seen { job, now })).collect()
    }
}

/// Keeps a job registered.
#[derive(Debug)]
pub struct RunningJob<'a> {
    of: &'a RunningJobs,
    /// How far it is.
    pub progress: Arc<Progress>,
}

impl RunningJob<'_> {
    /// Time since the job began.
    pub fn took(&self) -> Duration {
        self.of.clock.mono().saturating_sub(self.progress.started)
    }
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.progress.start.reduces.change(self.progress.share_done(), 0.0);
        self.of.jobs.lock().retain(|job| !Arc::ptr_eq(job, &self.progress));
    }
}

struct Seen<'a> {
    job: &'a Progress,
    now: Duration,
}

statistics! {
    /// A flush or merge that runs.
    #[derive(Clone, Debug, Default)]
    JobStats of seen: &Seen<'_>;

    plain {
        "`flush`, or how tables are merged: `Full`, `Tiered` or `Partitioned`."
        kind: &'static str = seen.job.start.kind;
        "Name of the family." family: String = seen.job.start.family.to_string();
    }
    figures {
        Gauge Count target: usize = usize::from(seen.job.start.target), "Level of the outputs.";
        Gauge Bytes bytes: u64 = seen.job.start.bytes, "Bytes of all inputs.";
        Gauge Bytes bytes_done: u64 = (seen.job.start.bytes as f64 * seen.job.share_done()) as u64,
            "Bytes of inputs that were processed, estimated from the number of entries.";
        Gauge Seconds time: Duration = seen.now.saturating_sub(seen.job.started), "Time since it began.";
    }
}

impl JobStats {
    /// The kind `name`, as [`JobStats::kind`] has it; `merge` for one that this version does not know.
    pub(crate) fn kind_named(name: &str) -> &'static str {
        ["flush", "Move", "Drop", "Full", "Tiered", "Partitioned"]
            .into_iter()
            .find(|kind| *kind == name)
            .unwrap_or("merge")
    }
}

#[cfg(test)]
mod tests {
    use tidesdb_io::ManualClock;

    use super::*;
    use crate::pacing::Pacing;

    #[test]
    fn running_jobs_count_what_they_have_done_and_take_it_back() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
        let (jobs, pacing) = (RunningJobs::new(&clock), Pacing::default());
        pacing.add_flush_debt(2000);
        let done = || 2000 - pacing.unflushed_bytes();
        let begin = |total, entries| {
            let (family, bytes, reduces) = ("f".into(), 0, pacing.reduced_by(total));
            jobs.begin(JobStart { kind: "flush", family, target: 1, bytes, entries, reduces })
        };
        let (first, second) = (begin(1000, 7), begin(90, 3));
        first.progress.advance(3);
        assert_eq!(done(), 428);
        second.progress.advance(1);
        first.progress.advance(3);
        assert_eq!(done(), 857 + 30);
        first.progress.advance(4096); // entries are counted in steps
        assert_eq!(done(), 1000 + 30);
        drop(first);
        assert_eq!(done(), 30);
        drop(second);
        assert_eq!(done(), 0);
    }
}
