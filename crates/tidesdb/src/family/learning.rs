//! Where the background should look for dead ranges: hints only; nothing depends on them for correctness.

use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_sync::Mutex;

/// Maximum number of queued tombstone runs; further ones are discarded.
const WAITING_MAX: usize = 256;

/// A tombstone run: consecutive keys of one memtable that are deleted there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first key, and one of every so many after it. Never empty while the run is queued.
    pub marks: Vec<Vec<u8>>,
    /// The last key.
    pub last: Vec<u8>,
}

/// Dead-range discovery of one family.
#[derive(Debug, Default)]
pub struct Learning {
    waiting: Mutex<Vec<Run>>,
    /// Number of deletes counted when the background was last asked to look at the family.
    asked: AtomicU64,
    /// Held by the thread that looks for dead ranges.
    pub progress: Mutex<Progress>,
    /// Steps of all scans so far.
    pub steps: AtomicU64,
}

/// Progress of dead-range discovery.
#[derive(Debug, Default)]
pub struct Progress {
    /// End of the dead range found last; it may grow from there.
    pub frontier: Option<Vec<u8>>,
    /// Consecutive scans that did not extend the last dead range.
    pub misses: u32,
    /// Number of deletes counted when the memtable was last surveyed.
    pub surveyed: u64,
}

impl Learning {
    /// Queues `runs`.
    pub fn add(&self, runs: impl IntoIterator<Item = Run>) {
        let mut waiting = self.waiting.lock();
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(runs.into_iter().take(room));
    }

    /// Returns true if any run is queued.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Takes all queued runs, the oldest first.
    pub fn take(&self) -> Vec<Run> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Returns true if at least `many` deletes, of `deletes` in total, happened since this last returned true.
    pub fn is_due(&self, deletes: u64, many: u64) -> bool {
        let due = deletes.saturating_sub(self.asked.load(Ordering::Relaxed)) >= many;
        if due {
            self.asked.store(deletes, Ordering::Relaxed);
        }
        due
    }
}
