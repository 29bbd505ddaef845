//! What the background is to look at, to learn deserts from: hints, which nobody relies on.

use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_sync::{Mutex, rank};

/// Runs that wait at most; more are forgotten.
const WAITING_MAX: usize = 256;

/// Keys of one memtable in a row that it deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first of them, and one of every so many after it. One that waits has some.
    pub marks: Vec<Vec<u8>>,
    /// The last of them.
    pub last: Vec<u8>,
}

/// Of one family.
#[derive(Debug, Default)]
pub struct Learning {
    waiting: Mutex<Vec<Run>>,
    /// Deletes counted when the background was asked to look at the family.
    asked: AtomicU64,
    /// Held by the one who learns.
    pub progress: Mutex<Progress, { rank::LEARNING }>,
    /// Steps of walks so far.
    pub steps: AtomicU64,
}

/// How far the learning has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// Where the desert ends that was learned last: that is where it may grow.
    pub frontier: Option<Vec<u8>>,
    /// How often in a row it had not grown.
    pub misses: u32,
    /// Deletes counted when the memtable was looked at.
    pub surveyed: u64,
}

impl Learning {
    /// `runs` are to be looked at.
    pub fn add(&self, runs: impl IntoIterator<Item = Run>) {
        let mut waiting = self.waiting.lock();
        let room = WAITING_MAX.saturating_sub(waiting.len());
        waiting.extend(runs.into_iter().take(room));
    }

    /// Whether any is.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// All that are, the oldest first, once.
    pub fn take(&self) -> Vec<Run> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Whether there were `many` deletes, of `deletes` in all, since this last said so.
    pub fn is_due(&self, deletes: u64, many: u64) -> bool {
        let due = deletes.saturating_sub(self.asked.load(Ordering::Relaxed)) >= many;
        if due {
            self.asked.store(deletes, Ordering::Relaxed);
        }
        due
    }
}
