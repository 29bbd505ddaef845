//! Epoch pins: a call passed to [`Guard::defer`] does not run while any [`Guard`] from before it exists.
//!
//! A pin costs a few nanoseconds and no shared write. Pins nest. A pin delays the freeing of garbage in the
//! whole process. So it is never held during a wait, and during I/O at most for the reads of one lookup.

use std::cell::Cell;
use std::fmt;

thread_local! {
    /// Whether the thread runs a deferred call.
    static DEFERRED: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as one that runs a deferred call, until this is dropped.
struct Running {
    before: bool,
}

impl Running {
    fn begin() -> Self {
        Self { before: DEFERRED.try_with(|deferred| deferred.replace(true)).unwrap_or(true) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = DEFERRED.try_with(|deferred| deferred.set(self.before));
    }
}

/// Returns true within a call passed to [`Guard::defer`]. The thread may hold any lock then, because every pin can run deferred calls.
#[must_use]
pub fn in_deferred_call() -> bool {
    DEFERRED.try_with(Cell::get).unwrap_or(true)
}

/// Keeps everything alive that the current thread reads through epoch-protected pointers. Created by [`pin`].
pub struct Guard {
    inner: crossbeam_epoch::Guard,
}

impl Guard {
    /// Runs `f` once every guard that exists now, on any thread, has been dropped.
    ///
    /// The time and the thread are not specified: `f` stays in a buffer of this thread until the buffer fills
    /// or [`flush`](Self::flush) is called. After that, later pins run it.
    pub fn defer(&self, f: impl FnOnce() + Send + 'static) {
        self.inner.defer(move || {
            let _running = Running::begin();
            f();
        });
    }

    /// Moves this thread's deferred calls to the global queue and runs some that are due.
    pub fn flush(&self) {
        self.inner.flush();
    }

    /// Ends this pin and begins a new one, unless the thread holds another pin. The exclusive borrow proves
    /// that no reference read through this guard is left.
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
/// guard.defer(|| println!("no thread can see the old value any more"));
/// ```
#[inline]
#[must_use]
pub fn pin() -> Guard {
    Guard { inner: crossbeam_epoch::pin() }
}

/// Runs the deferred calls of this thread and of the global queue that may run.
///
/// Use it after a burst of garbage (a dropped table version, a shrunk cache). If no pin is held anywhere,
/// everything this thread deferred before the call has run when it returns, unless other threads queued more
/// than a few dozen batches before it.
pub fn reclaim() {
    // A bag is due two epochs after it was sealed. Each flush advances the epoch once and runs eight bags.
    for _ in 0..8 {
        pin().flush();
    }
}
