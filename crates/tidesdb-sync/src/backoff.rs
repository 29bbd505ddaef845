//! [`Backoff`]: spin for a short time, then yield the core, then sleep.
//!
//! For waits on another *running* thread (a lock word held for tens of nanoseconds). Waits that usually take
//! longer use an [`Event`](crate::Event). With few cores the awaited thread may be off its core. So a wait that
//! spins without yielding can burn a whole time slice, and one that only yields burns a core while another
//! thread inserts a batch of a million keys.

#[cfg(loom)]
use loom::thread::yield_now;
#[cfg(not(any(loom, simulated)))]
use std::thread::{sleep, yield_now};
use std::time::Duration;

#[cfg(simulated)]
use crate::scheduler::sleep;

/// Counts the rounds of one wait. Create a new one for each wait.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let locked = AtomicBool::new(false);
/// let mut backoff = tidesdb_sync::Backoff::new();
/// while locked.load(Ordering::Acquire) {
///     backoff.snooze();
/// }
/// ```
#[derive(Debug, Default)]
pub struct Backoff {
    pauses: u32,
    yields: u32,
}

/// Pause instructions per wait before it begins to yield.
const MAX_PAUSES: u32 = 64;
/// Yields per wait before it begins to sleep.
const MAX_YIELDS: u32 = if cfg!(any(loom, simulated)) { 2 } else { 64 };
/// Length of a sleep: system timers are not much finer.
const SLEEP: Duration = Duration::from_micros(50);

impl Backoff {
    /// Creates the state of a wait that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits briefly: 1, 2, 4, ... pause instructions, 64 in total; then yields the core, 64 times; after that
    /// sleeps.
    #[inline]
    pub fn snooze(&mut self) {
        if cfg!(any(loom, simulated)) || self.pauses >= MAX_PAUSES {
            self.yield_or_sleep();
            return;
        }
        let round = (self.pauses + 1).min(MAX_PAUSES - self.pauses);
        for _ in 0..round {
            std::hint::spin_loop();
        }
        self.pauses += round;
    }

    #[cold]
    fn yield_or_sleep(&mut self) {
        if self.yields < MAX_YIELDS {
            self.yields += 1;
            yield_now();
        } else {
            sleep(SLEEP);
        }
    }

    /// Returns true once the spinning is over, so that the caller should rather sleep on something.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.pauses >= MAX_PAUSES || (cfg!(simulated) && self.yields >= MAX_YIELDS)
    }
}

#[cfg(simulated)]
fn yield_now() {
    crate::scheduler::yield_now("spin");
}

/// Prunes the schedule: two waiting threads would yield to each other in ever more orders, none of which shows
/// anything new. The rest of such a schedule runs in one order only.
#[cfg(loom)]
fn sleep(_time: Duration) {
    loom::skip_branch();
    yield_now();
}
