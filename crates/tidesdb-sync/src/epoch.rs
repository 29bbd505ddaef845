//! Epoch pins: while a [`Guard`] lives, nothing handed to [`Guard::defer`] after it began is run.
//!
//! A pin costs a few nanoseconds and no shared write. Pins nest. A pin holds back the freeing of garbage of
//! the whole process, so it is never held across a wait, and across I/O at most for the reads of one lookup.

use std::fmt;

/// Keeps what the current thread reads through epoch-protected pointers alive. Made by [`pin`].
pub struct Guard {
    inner: crossbeam_epoch::Guard,
}

impl Guard {
    /// Runs `f` once every guard that lives now, on any thread, has been dropped.
    ///
    /// When, and on which thread, is not promised: `f` waits in a buffer of this thread until the buffer fills
    /// or [`flush`](Self::flush) is called, then for later pins to run it.
    pub fn defer(&self, f: impl FnOnce() + Send + 'static) {
        self.inner.defer(f);
    }

    /// Hands this thread's deferred calls to the common queue and runs some that are due.
    pub fn flush(&self) {
        self.inner.flush();
    }

    /// Ends this pin and begins a new one, unless the thread holds another pin. References read through this
    /// guard are given up, which the exclusive borrow proves.
    pub fn repin(&mut self) {
        self.inner.repin();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// Pins the current thread until the guard is dropped.
///
/// ```
/// let guard = tidesdb_sync::pin();
/// guard.defer(|| println!("nobody can see the old value any more"));
/// ```
#[inline]
#[must_use]
pub fn pin() -> Guard {
    Guard { inner: crossbeam_epoch::pin() }
}

/// Runs what can be run of the deferred calls of this thread and of the common queue.
///
/// For the end of a burst of garbage (a table version dropped, a cache shrunk): with no pin held anywhere,
/// everything this thread deferred before the call has run when it returns, unless other threads filled the
/// queue with more than a few dozen batches before it.
pub fn reclaim() {
    // A bag is due two epochs after it was sealed; each flush advances the epoch once and runs eight bags.
    for _ in 0..8 {
        pin().flush();
    }
}
