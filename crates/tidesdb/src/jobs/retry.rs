//! When failed work is tried again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

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

    /// Returns true if the last try failed.
    pub fn is_failing(&self) -> bool {
        self.tries.load(Ordering::Relaxed) != 0
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
