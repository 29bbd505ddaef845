//! How far background work lags behind the writers: memtables that wait for a flush, merges that are stopped, syncs that are due.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_sync::Event;

use crate::{Error, Result};

/// Immutable memtables in bytes, and how fast they go.
#[derive(Debug, Default)]
pub struct Debt {
    /// Bytes of all immutable memtables.
    pub immutable_bytes: AtomicU64,
    /// Measured flush rate in bytes per second; 0 = not measured yet.
    pub drain_rate: AtomicU64,
    /// Advances when the debt fell: a memtable went, or a compaction is done. A job with nothing to do is no progress.
    pub progress: Event,
    /// Writers held up because memtables wait for their flush.
    pub by_memtables: HeldUp,
    /// Writers held up because level 1 waits for its compaction.
    pub by_tables: HeldUp,
}

/// How writers were held up for one cause.
#[derive(Debug, Default)]
pub struct HeldUp {
    /// Nanoseconds, all threads together.
    pub nanos: AtomicU64,
    /// Commits that were slowed down.
    pub slowed: AtomicU64,
    /// Commits that had to stop.
    pub stopped: AtomicU64,
}

/// Stopping merges. Those that run look here now and then.
#[derive(Debug, Default)]
pub struct Merges {
    off: AtomicBool,
    /// The last one failed because the disk has no room for its output.
    starved: AtomicBool,
    stops: AtomicU64,
}

impl Merges {
    /// Stops those that run; none begins by itself any more.
    pub fn stop(&self) {
        self.off.store(true, Ordering::SeqCst);
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether none begins by itself.
    pub fn are_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Notes whether the disk had room for the last one.
    pub fn set_starved(&self, yes: bool) {
        self.starved.store(yes, Ordering::Relaxed);
    }

    /// Whether writers would wait for merges that do not come.
    pub fn are_stuck(&self) -> bool {
        self.are_off() || self.starved.load(Ordering::Relaxed)
    }

    /// How often they were stopped so far.
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::SeqCst)
    }

    /// Fails if they were stopped since there were `seen` stops.
    ///
    /// # Errors
    /// `Busy`.
    pub fn check(&self, seen: Option<u64>) -> Result<()> {
        match seen {
            Some(seen) if seen != self.stops() => {
                Err(Error::Busy { cause: "the merge was stopped; nothing changed" })
            }
            _ => Ok(()),
        }
    }
}

/// When the log must be synced for commits that were promised to be durable within some time. Time is that of the last tick: a
/// promise is kept a little too early rather than too late.
#[derive(Debug)]
pub struct SyncDue {
    tick_nanos: AtomicU64,
    /// `u64::MAX` = no commit waits.
    due_nanos: AtomicU64,
}

impl Default for SyncDue {
    fn default() -> Self {
        Self { tick_nanos: AtomicU64::new(0), due_nanos: AtomicU64::new(u64::MAX) }
    }
}

impl SyncDue {
    /// A commit that has its place in the log is to be durable within `period`. Of many such commits only the first after a
    /// sync writes here.
    pub fn within(&self, period: Duration) {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let due = self.tick_nanos.load(Ordering::Relaxed).saturating_add(period);
        if due < self.due_nanos.load(Ordering::SeqCst) {
            self.due_nanos.fetch_min(due, Ordering::SeqCst);
        }
    }

    /// It is `now`; whether a sync is due. If so it is said once, and the tail of the log read afterwards is behind every commit
    /// that relied on it: their places were drawn before they looked here.
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
    /// A flush freed `bytes` of memtable in `took`.
    pub fn flushed(&self, bytes: u64, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-6)) as u64;
        let old = self.drain_rate.load(Ordering::Relaxed);
        self.drain_rate.store(if old == 0 { rate } else { (old * 3 + rate) / 4 }, Ordering::Relaxed);
    }

    /// Memory went to wait for a flush.
    pub fn add(&self, bytes: u64) {
        self.immutable_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Memory no longer waits.
    pub fn subtract(&self, bytes: u64) {
        let _ = self
            .immutable_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |b| Some(b.saturating_sub(bytes)));
        self.progress.advance();
    }
}
