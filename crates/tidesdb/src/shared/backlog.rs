//! How far background work lags behind the writers: memtables that wait for a flush, merges that are stopped, syncs that are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::Event;

use super::pace::Pace;
use crate::stats::Histogram;
use crate::{Error, Result};

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

/// Controls merges. Running merges check it now and then.
#[derive(Debug, Default)]
pub struct Merges {
    off: AtomicBool,
    /// The last merge failed because the disk had no space for its output.
    starved: AtomicBool,
    stops: AtomicU64,
    /// Most bytes that all merges write per second; 0 = no limit.
    rate: AtomicU64,
    /// Schedule of their writes.
    pace: Pace,
}

/// The writes of limited merges are scheduled at most this far ahead.
const MERGE_LEAD_MAX: Duration = Duration::from_secs(600);
/// A limited merge looks after this time whether it shall stop.
const MERGE_SLICE: Duration = Duration::from_millis(50);

impl Merges {
    /// Stops running merges; from now on none starts automatically.
    pub fn stop(&self) {
        self.off.store(true, Ordering::SeqCst);
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns true if merges do not start automatically.
    pub fn are_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Records whether the disk lacked space for the last merge.
    pub fn set_starved(&self, yes: bool) {
        self.starved.store(yes, Ordering::Relaxed);
    }

    /// Returns true if the disk lacked space for the last merge.
    pub fn are_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Returns true if writers would wait for merges that do not run.
    pub fn are_stuck(&self) -> bool {
        self.are_off() || self.are_starved()
    }

    /// Limits what all merges write, in bytes per second; 0 = no limit.
    pub fn set_rate(&self, bytes: u64) {
        self.rate.store(bytes, Ordering::Relaxed);
        self.pace.forget();
    }

    /// Waits as long as the rate of merges demands after `bytes` were written, and while `goes_on` returns true.
    pub fn throttle(&self, clock: &dyn Clock, bytes: u64, goes_on: impl Fn() -> bool) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let cost = Duration::from_secs_f64((bytes as f64 / rate as f64).min(MERGE_LEAD_MAX.as_secs_f64()));
        let now = clock.mono();
        let end = now + self.pace.reserve_up_to(now, cost, MERGE_LEAD_MAX);
        // A limit that was changed applies at once.
        while goes_on() && self.rate.load(Ordering::Relaxed) == rate {
            let left = end.saturating_sub(clock.mono());
            if left.is_zero() {
                return;
            }
            clock.sleep(left.min(MERGE_SLICE));
        }
    }

    /// Number of stops so far.
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::SeqCst)
    }

    /// Fails if merges were stopped since `seen` stops were counted.
    ///
    /// # Errors
    /// `Busy`.
    pub fn check(&self, seen: Option<u64>) -> Result<()> {
        match seen {
            Some(seen) if seen != self.stops() => {
                Err(Error::Busy { cause: "the merge was stopped; what it had installed stays" })
            }
            _ => Ok(()),
        }
    }
}

/// When the log must be synced for commits with a sync interval. Time is that of the last tick, so a deadline is met
/// slightly too early rather than too late.
#[derive(Debug)]
pub struct SyncDue {
    tick_nanos: AtomicU64,
    /// `u64::MAX` = no commit waits.
    due_nanos: AtomicU64,
    /// Set while the database is idle: the next tick comes after [`SyncDue::IDLE_PERIOD`].
    idle: AtomicBool,
    /// Set once a commit relied on a tick.
    used: AtomicBool,
    /// Set when the database is being closed: there are no more ticks.
    ended: AtomicBool,
}

impl Default for SyncDue {
    fn default() -> Self {
        let (tick_nanos, due_nanos) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let [idle, used, ended] = [false; 3].map(AtomicBool::new);
        Self { tick_nanos, due_nanos, idle, used, ended }
    }
}

impl SyncDue {
    /// Time between two ticks of an idle database.
    pub const IDLE_PERIOD: Duration = Duration::from_millis(100);

    /// Requests that a commit, which has its place in the log, is durable within `period`. Of many such commits only
    /// the first after a sync writes to shared memory. Returns false if the database is idle and the next tick may come too late, or is
    /// being closed: then the caller must sync.
    #[must_use]
    pub fn within(&self, period: Duration) -> bool {
        let is_short = period < Self::IDLE_PERIOD;
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let due = self.tick_nanos.load(Ordering::Relaxed).saturating_add(period);
        if due < self.due_nanos.load(Ordering::SeqCst) {
            self.used.store(true, Ordering::SeqCst);
            self.due_nanos.fetch_min(due, Ordering::SeqCst);
        }
        let is_late = is_short && self.idle.load(Ordering::SeqCst);
        !(is_late || self.ended.load(Ordering::SeqCst))
    }

    /// Notes that there will be no more ticks. Returns whether commits may rely on one: then the caller must sync. The tail of the log
    /// read after that covers them, as in [`SyncDue::tick`].
    #[must_use]
    pub fn end(&self) -> bool {
        self.ended.store(true, Ordering::SeqCst);
        // A commit that has not seen the flag has set this one before.
        self.used.load(Ordering::SeqCst)
    }

    /// Notes whether the next tick comes late. Returns false if a commit waits for a sync: then it must not.
    pub fn set_idle(&self, yes: bool) -> bool {
        self.idle.store(yes, Ordering::SeqCst);
        // A commit that has not seen the flag has set its deadline before.
        let is_idle = yes && self.due_nanos.load(Ordering::SeqCst) == u64::MAX;
        if yes && !is_idle {
            self.idle.store(false, Ordering::SeqCst);
        }
        is_idle
    }

    /// Returns true once when a sync is due at `now`. The tail of the log read after that covers every commit that
    /// relied on this sync: such commits draw their places before they call [`SyncDue::within`].
    pub fn tick(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.tick_nanos.store(now, Ordering::Relaxed);
        let due = now >= self.due_nanos.load(Ordering::SeqCst);
        if due {
            self.due_nanos.swap(u64::MAX, Ordering::SeqCst);
        }
        due
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_sync_interval_does_not_rely_on_the_late_tick_of_an_idle_database() {
        let (due, short, long) = (SyncDue::default(), Duration::from_millis(5), SyncDue::IDLE_PERIOD * 2);
        due.tick(Duration::from_secs(1));
        assert!(due.within(short), "ticks come often");
        assert!(!due.set_idle(true), "a commit waits for a tick");
        assert!(due.tick(Duration::from_secs(2)) && due.set_idle(true));
        assert!(due.within(long) && !due.within(short));
        assert!(!due.set_idle(true) && due.within(short));
    }

    #[test]
    fn no_commit_relies_on_a_tick_of_a_database_that_is_being_closed() {
        let (unused, second) = (SyncDue::default(), Duration::from_secs(1));
        assert!(!unused.end() && !unused.within(second));
        let due = SyncDue::default();
        assert!(due.within(second) && due.tick(second));
        assert!(due.end() && !due.within(second), "the sync of that tick may not have come to an end");
    }
}
