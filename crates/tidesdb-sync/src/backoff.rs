//! [`Backoff`]: spin a little, then give the core away.
//!
//! For waits on another *running* thread only (a lock word held for tens of nanoseconds). Whatever may take
//! longer sleeps on an [`Event`](crate::Event). With few cores the awaited thread may well be off its core,
//! so a wait that spins without yielding can burn a whole time slice.

/// Counts the rounds of one wait; a new one for each wait.
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
}

/// Pause instructions of one wait before it begins to yield.
const MAX_PAUSES: u32 = 64;

impl Backoff {
    /// A wait that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits a moment: 1, 2, 4, ... pauses, 64 in all; from then on yields the core each time.
    #[inline]
    pub fn snooze(&mut self) {
        if cfg!(loom) || self.pauses >= MAX_PAUSES {
            yield_core();
            return;
        }
        let round = (self.pauses + 1).min(MAX_PAUSES - self.pauses);
        for _ in 0..round {
            std::hint::spin_loop();
        }
        self.pauses += round;
    }

    /// Whether the cheap part is over, so that the caller had better sleep on something.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.pauses >= MAX_PAUSES
    }
}

#[cold]
fn yield_core() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
