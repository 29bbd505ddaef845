//! How far background work lags behind the writers, and how writers were delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::Event;

use super::pace::Pace;
use crate::stats::Histogram;

/// Rate of flushes assumed before one is measured, in bytes per second.
pub const FLUSH_RATE_ASSUMED: u64 = 200 << 20;
/// Rate of merges assumed before one is measured, in bytes per second.
pub const MERGE_RATE_ASSUMED: u64 = 50 << 20;
/// Rate of collections assumed before one is measured, in bytes of garbage per second: what they free with values in the page cache.
pub const GARBAGE_RATE_ASSUMED: u64 = 200 << 20;

/// Immutable memtables in bytes, and the rate at which they are flushed.
#[derive(Debug, Default)]
pub struct Debt {
    /// Bytes of all immutable memtables.
    pub immutable_bytes: AtomicU64,
    /// Those of them that running flushes have written already.
    pub part_flushed: Arc<AtomicU64>,
    /// Measured rate of flushes, in bytes of memtable per second.
    pub flush_rate: Rate,
    /// Measured rate of merges, in raw bytes of level 1 per second.
    pub merge_rate: Rate,
    /// Schedule of delayed commits.
    pub pace: Pace,
    /// Advances when the debt fell: a memtable was released, or a compaction finished. A job with nothing to do does
    /// not count as progress.
    pub progress: Event,
    /// Advances while a flush or a merge processes entries, so a stopped writer can tell a slow job from a stuck one.
    pub moved: AtomicU64,
    /// Flushes and merges that failed. What they processed was no progress.
    pub failed: AtomicU64,
    /// Writers delayed because immutable memtables must be flushed.
    pub by_memtables: DelayStats,
    /// Writers delayed because level 1 must be compacted.
    pub by_tables: DelayStats,
    /// Writers delayed because memory is scarce.
    pub by_memory: DelayStats,
    /// Measured rate of collections, in bytes of garbage in value logs per second.
    pub garbage_rate: Rate,
    /// Writers delayed because value logs hold much garbage.
    pub by_values: DelayStats,
}

/// A rate in bytes per second: the moving average of what was measured.
#[derive(Debug, Default)]
pub struct Rate(AtomicU64);

/// A new measurement counts as one of this many in the average.
const RATE_WEIGHT: u64 = 4;

impl Rate {
    /// Adds a measurement: `bytes` took `took`.
    pub fn measured(&self, bytes: u64, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-6)) as u64;
        let mixed = |old: u64| match old {
            0 => rate.max(1),
            _ => (old / RATE_WEIGHT * (RATE_WEIGHT - 1)).saturating_add(rate / RATE_WEIGHT).max(1),
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(mixed(old)));
    }

    /// Returns the rate; `assumed` if nothing was measured yet.
    pub fn or(&self, assumed: u64) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => assumed,
            rate => rate,
        }
    }
}

/// How writers were delayed by one cause. Only commits that are delayed write to it.
#[derive(Debug, Default)]
pub struct DelayStats {
    /// Delays, whether of a slowed or a stopped commit.
    pub times: Histogram,
    /// Commits that were slowed down.
    pub slowed: AtomicU64,
    /// Commits that were stopped.
    pub stopped: AtomicU64,
    /// Commits that failed with `Busy` after they were stopped.
    pub gave_up: AtomicU64,
    /// Commits that are delayed at the moment.
    pub delayed_now: AtomicU64,
}

impl DelayStats {
    /// Runs `wait`, which delays a commit from `now` on, and records how long it took.
    pub fn measure<R>(&self, clock: &dyn Clock, now: Duration, wait: impl FnOnce() -> R) -> R {
        self.delayed_now.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        self.times.record(clock.mono().saturating_sub(now));
        self.delayed_now.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Debt {
    /// Returns true if a commit is delayed at the moment.
    pub fn delays_writers(&self) -> bool {
        let causes = [&self.by_memtables, &self.by_tables, &self.by_memory, &self.by_values];
        causes.iter().any(|cause| cause.delayed_now.load(Ordering::Relaxed) > 0)
    }

    /// Bytes of all immutable memtables that are not in tables yet.
    #[inline]
    pub fn unflushed_bytes(&self) -> u64 {
        match self.immutable_bytes.load(Ordering::Relaxed) {
            0 => 0,
            bytes => bytes.saturating_sub(self.part_flushed.load(Ordering::Relaxed)),
        }
    }

    /// Adds bytes of a memtable that became immutable.
    pub fn add(&self, bytes: u64) {
        self.immutable_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Subtracts bytes of a memtable that was flushed or dropped.
    pub fn subtract(&self, bytes: u64) {
        let _ = self
            .immutable_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |b| Some(b.saturating_sub(bytes)));
        self.progress.advance();
    }
}
