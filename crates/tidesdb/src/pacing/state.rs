//! The debt of flushes, the rates at which debt falls, and whether it falls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_sync::Event;

use super::Pace;
use crate::waits::{Delays, StallCause, Waits};

/// What decides how long the writers of a database wait.
#[derive(Debug, Default)]
pub struct Pacing {
    /// Bytes of all immutable memtables.
    immutable: AtomicU64,
    /// Those of them that running flushes have written already.
    flushed: Arc<AtomicU64>,
    /// Rate of flushes, in bytes of memtable.
    pub flush_rate: Rate<{ 200 << 20 }>,
    /// Rate of merges, in raw bytes of level 1.
    pub merge_rate: MergeRate,
    /// Rate of collections, in bytes of garbage in value logs. The assumed rate is that with values in the page cache.
    pub garbage_rate: Rate<{ 200 << 20 }>,
    /// Schedule of delayed commits.
    pub(super) pace: Pace,
    /// Advances when debt fell: a memtable was released, or a compaction finished. A job with nothing to do is no progress.
    pub progress: Event,
    /// Advances while a flush or a merge processes entries, so a stopped writer can tell a slow job from a stuck one.
    pub(super) steps: AtomicU64,
    /// Flushes and merges that failed. The entries that they processed are no progress.
    pub(super) failures: AtomicU64,
    /// What commits wait for, on purpose or not.
    waits: Arc<Waits>,
}

impl Pacing {
    /// Pacing that counts the delays of commits in `waits`.
    pub fn counting(waits: &Arc<Waits>) -> Self {
        Self { waits: Arc::clone(waits), ..Self::default() }
    }

    /// Rate of the work that ends delays for `cause`, in bytes per second.
    pub fn rate(&self, cause: StallCause) -> f64 {
        match cause {
            StallCause::Tables => self.merge_rate.get(),
            StallCause::Values => self.garbage_rate.get(),
            _ => self.flush_rate.get(),
        }
    }

    /// How writers were delayed by `cause`.
    pub fn delays(&self, cause: StallCause) -> &Delays {
        self.waits.of(cause)
    }

    /// Returns true if a commit is delayed at the moment.
    pub fn delays_writers(&self) -> bool {
        self.waits.any_now()
    }

    /// Bytes of all immutable memtables.
    pub fn flush_debt(&self) -> u64 {
        self.immutable.load(Ordering::Relaxed)
    }

    /// Bytes of all immutable memtables that are not in tables yet.
    #[inline]
    pub fn unflushed_bytes(&self) -> u64 {
        match self.flush_debt() {
            0 => 0,
            bytes => bytes.saturating_sub(self.flushed.load(Ordering::Relaxed)),
        }
    }

    /// Adds bytes of a memtable that became immutable.
    pub fn add_flush_debt(&self, bytes: u64) {
        self.immutable.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Subtracts bytes of a memtable that was flushed or dropped.
    pub fn subtract_flush_debt(&self, bytes: u64) {
        let less = |before: u64| Some(before.saturating_sub(bytes));
        let _ = self.immutable.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.progress.advance();
    }

    /// Returns what a flush of `bytes` bytes takes off the debt while it runs.
    pub fn reduced_by(&self, bytes: u64) -> RunningReduction {
        RunningReduction::of([(&self.flushed, bytes)])
    }

    /// Notes that a flush or a merge has processed entries.
    pub fn note_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a flush or a merge has failed.
    pub fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// A rate in bytes per second: the moving average of what was measured, or `ASSUMED` before.
#[derive(Debug, Default)]
pub struct Rate<const ASSUMED: u64>(AtomicU64);

/// Rate of merges.
pub type MergeRate = Rate<{ 50 << 20 }>;

/// A new measurement has the weight of one of this many in the average.
const RATE_WEIGHT: u64 = 4;

impl<const ASSUMED: u64> Rate<ASSUMED> {
    /// Adds a measurement: `bytes` took `took`.
    pub fn note(&self, bytes: u64, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-6)) as u64;
        let mixed = |old: u64| match old {
            0 => rate.max(1),
            _ => (old / RATE_WEIGHT * (RATE_WEIGHT - 1)).saturating_add(rate / RATE_WEIGHT).max(1),
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(mixed(old)));
    }

    /// Returns the rate.
    pub fn get(&self) -> f64 {
        match self.0.load(Ordering::Relaxed) {
            0 => ASSUMED as f64,
            rate => rate as f64,
        }
    }
}

/// What a job takes off the debt while it runs: it adds to each of these sums, in proportion to its progress, and subtracts that when it
/// ends, because the debt itself is less then.
#[derive(Clone, Debug, Default)]
pub struct RunningReduction(Vec<(Arc<AtomicU64>, u64)>);

impl RunningReduction {
    pub(super) fn of<'a>(sums: impl IntoIterator<Item = (&'a Arc<AtomicU64>, u64)>) -> Self {
        let used = sums.into_iter().filter(|(_, total)| *total > 0);
        Self(used.map(|(sum, total)| (Arc::clone(sum), total)).collect())
    }

    /// Changes the share of the job that is done, from `before` to `now`.
    pub fn change(&self, before: f64, now: f64) {
        for (sum, total) in &self.0 {
            let part = |share: f64| (*total as f64 * share) as u64;
            sum.fetch_add(part(now).wrapping_sub(part(before)), Ordering::Relaxed);
        }
    }
}
