//! When the log must be synced for commits that rely on a later sync.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// When the log must be synced for commits with a sync interval. Time is that of the last tick, so a deadline is met
/// slightly too early rather than too late.
#[derive(Debug)]
pub struct SyncDue {
    tick_nanos: AtomicU64,
    /// `u64::MAX` = no commit waits.
    due_nanos: AtomicU64,
    /// While the database is idle: the time from one tick to the next; else 0.
    idle_nanos: AtomicU64,
    /// Set once a commit relied on a tick.
    used: AtomicBool,
    /// Set when the database is being closed: there are no more ticks.
    ended: AtomicBool,
    /// Set while the thread that ticks has not started.
    silent: AtomicBool,
}

impl Default for SyncDue {
    fn default() -> Self {
        let [tick_nanos, due_nanos, idle_nanos] = [0, u64::MAX, 0].map(AtomicU64::new);
        let [used, ended, silent] = [false; 3].map(AtomicBool::new);
        Self { tick_nanos, due_nanos, idle_nanos, used, ended, silent }
    }
}

impl SyncDue {
    /// Time between two ticks of an idle database, unless there are many.
    pub const IDLE_PERIOD: Duration = Duration::from_millis(100);
    /// Time between two ticks of an idle database at the most.
    pub const IDLE_PERIOD_MAX: Duration = Duration::from_secs(1);

    /// Requests that a commit, which has its place in the log, is durable within `period`. If there are many such commits, only the
    /// first after a sync writes to shared memory. Returns false if no thread ticks yet, or the database is idle and the next tick may be
    /// too late, or is being closed: then the caller must sync.
    #[must_use]
    pub fn within(&self, period: Duration) -> bool {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let due = self.tick_nanos.load(Ordering::Relaxed).saturating_add(period);
        if due < self.due_nanos.load(Ordering::SeqCst) {
            self.used.store(true, Ordering::SeqCst);
            self.due_nanos.fetch_min(due, Ordering::SeqCst);
        }
        let is_late = period < self.idle_nanos.load(Ordering::SeqCst);
        !(is_late || self.ended.load(Ordering::SeqCst) || self.silent.load(Ordering::SeqCst))
    }

    /// Records whether a thread ticks, or will never and callers know that.
    pub fn set_ticking(&self, yes: bool) {
        self.silent.store(!yes, Ordering::SeqCst);
    }

    /// Notes that there will be no more ticks. Returns whether commits may rely on one: then the caller must sync. The tail of the log
    /// read after that covers them, as in [`SyncDue::tick`].
    #[must_use]
    pub fn end(&self) -> bool {
        self.ended.store(true, Ordering::SeqCst);
        // A commit that has not seen the flag has set this one before.
        self.used.load(Ordering::SeqCst)
    }

    /// Records that the next tick comes only after `period`; 0 = soon. Returns false if that must not be, because a commit waits for a sync.
    pub fn set_idle(&self, period: Duration) -> bool {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        self.idle_nanos.store(nanos, Ordering::SeqCst);
        // A commit that has not seen it has set its deadline before.
        let is_idle = nanos > 0 && self.due_nanos.load(Ordering::SeqCst) == u64::MAX;
        if nanos > 0 && !is_idle {
            self.idle_nanos.store(0, Ordering::SeqCst);
        }
        is_idle
    }

    /// Returns true once when a sync is due at `now`. The tail of the log read after that covers every commit that
    /// relied on this sync: such commits get their places before they call [`SyncDue::within`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_sync_interval_does_not_rely_on_the_late_tick_of_an_idle_database() {
        let (due, short, idle) = (SyncDue::default(), Duration::from_millis(5), SyncDue::IDLE_PERIOD);
        due.tick(Duration::from_secs(1));
        assert!(due.within(short), "ticks come often");
        assert!(!due.set_idle(idle), "a commit waits for a tick");
        assert!(due.tick(Duration::from_secs(2)) && due.set_idle(idle));
        assert!(due.within(idle) && !due.within(short));
        assert!(!due.set_idle(idle) && due.within(short));
        assert!(due.tick(Duration::from_secs(3)) && due.set_idle(SyncDue::IDLE_PERIOD_MAX));
        assert!(!due.within(idle), "with many databases its tick is later");
        assert!(!due.set_idle(Duration::ZERO) && due.within(short));
    }

    #[test]
    fn no_commit_relies_on_a_thread_that_has_not_started() {
        let (due, second) = (SyncDue::default(), Duration::from_secs(1));
        due.set_ticking(false);
        assert!(!due.within(second));
        due.set_ticking(true);
        assert!(due.within(second));
        assert!(due.end());
        due.set_ticking(true);
        assert!(!due.within(second), "a thread that starts during a close does not tick");
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
