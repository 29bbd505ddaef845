//! [`Event`]: waits until something happened. A signal is one atomic addition if no thread waits.
//!
//! The word holds the epoch in its upper half and the number of waiters in its lower half. A waiter registers
//! and a signaller advances by a read-modify-write of the *same* word, so one of them is first. Either the
//! waiter sees the new epoch, or the signaller sees the waiter. So no wake-up is lost.

use std::fmt;
use std::time::Duration;

use crate::facade::{AtomicU64, Gate, Ordering};
use crate::point;

const ONE_EPOCH: u64 = 1 << 32;

/// A counter of events that threads can sleep on.
///
/// The waiter reads [`current`](Self::current), checks its condition, and sleeps with
/// [`wait_while`](Self::wait_while) on the epoch it read. The thread that makes the condition true calls
/// [`advance`](Self::advance) afterwards.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use tidesdb_sync::Event;
///
/// let (ready, event) = (AtomicBool::new(false), Event::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         ready.store(true, Ordering::Release);
///         event.advance();
///     });
///     loop {
///         let seen = event.current();
///         if ready.load(Ordering::Acquire) {
///             break;
///         }
///         event.wait_while(seen, None);
///     }
/// });
/// ```
#[derive(Default)]
pub struct Event {
    word: AtomicU64,
    gate: Gate,
}

impl Event {
    /// Creates an event at epoch zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the epoch. Everything that signallers wrote before they advanced to it is visible.
    #[inline]
    #[must_use]
    pub fn current(&self) -> u32 {
        epoch_of(self.word.load(Ordering::Acquire))
    }

    /// Sleeps while the epoch is `seen`, for about `timeout` at most (no limit if `None`). Returns whether the
    /// epoch has changed.
    ///
    /// A timed wait may return `false` early, if a late wake-up of an older `advance` reaches it.
    pub fn wait_while(&self, seen: u32, timeout: Option<Duration>) -> bool {
        if self.current() != seen {
            return true;
        }
        point("event wait");
        let mut registered = false;
        self.gate.wait(timeout, || {
            let word = if registered {
                self.word.load(Ordering::Acquire)
            } else {
                registered = true;
                self.word.fetch_add(1, Ordering::AcqRel)
            };
            epoch_of(word) != seen
        });
        epoch_of(self.word.fetch_sub(1, Ordering::AcqRel)) != seen
    }

    /// Moves to the next epoch and wakes every waiter. Everything that the caller wrote before is visible to
    /// them.
    #[inline]
    pub fn advance(&self) {
        point("event advance");
        let before = self.word.fetch_add(ONE_EPOCH, Ordering::AcqRel);
        if waiters_of(before) != 0 {
            self.gate.wake_all();
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("epoch", &self.current()).finish_non_exhaustive()
    }
}

fn epoch_of(word: u64) -> u32 {
    (word >> 32) as u32
}

fn waiters_of(word: u64) -> u32 {
    word as u32
}
