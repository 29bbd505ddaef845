//! Epoch pins: a call passed to [`Guard::defer`] does not run while any [`Guard`] from before it exists.
//!
//! A pin costs a few nanoseconds and no shared write. Pins nest. A pin delays the freeing of garbage in the
//! whole process. So it is never held during a wait, and during I/O at most for the reads of one lookup.
//!
//! No thread keeps deferred calls to itself: it may stop calling at any time. They wait in places that all threads share, from
//! where [`Guard::flush`] and [`reclaim`], called by any thread, hand them to the epoch.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;

use crate::raw::Mutex;
use crate::{point, thread_index};

/// A place hands its calls to the epoch when it has this many.
const CALLS_MAX: usize = 64;
/// Number of places: threads that defer calls at the same time rarely wait for each other.
const PLACES: usize = 16;
/// Number of times that [`reclaim`] tries again after it ran nothing.
const IDLE_ROUNDS_MAX: u32 = 8;

type Call = Box<dyn FnOnce() + Send>;

/// Calls that were not handed to the epoch yet.
static WAITING: [CachePadded<Mutex<Vec<Call>>>; PLACES] =
    [const { CachePadded::new(Mutex::new(Vec::new())) }; PLACES];

thread_local! {
    /// Whether the thread runs a deferred call.
    static DEFERRED: Cell<bool> = const { Cell::new(false) };
    /// Number of times that the thread ran deferred calls.
    static RUNS: Cell<u64> = const { Cell::new(0) };
}

/// Marks the thread as one that runs a deferred call, until this is dropped.
struct Running {
    before: bool,
}

impl Running {
    fn begin() -> Self {
        let _ = RUNS.try_with(|runs| runs.set(runs.get() + 1));
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
    /// The time and the thread are not specified: `f` waits until [`flush`](Self::flush) or [`reclaim`] is called by any thread, or
    /// until a few dozen calls wait. After that, later pins of any thread run it.
    pub fn defer(&self, f: impl FnOnce() + Send + 'static) {
        let waiting = &WAITING[thread_index() % PLACES];
        let calls = {
            let mut calls = waiting.lock();
            calls.push(Box::new(f));
            if calls.len() < CALLS_MAX {
                return;
            }
            std::mem::take(&mut *calls)
        };
        self.hand_over(calls);
    }

    /// Hands all calls that were deferred, by any thread, to the epoch, and runs some that are due.
    pub fn flush(&self) {
        point("epoch");
        self.hand_over(take_waiting());
    }

    /// Hands `calls` to the epoch and runs some calls that are due. The epoch would keep `calls` in a buffer of this thread if its
    /// own flush did not follow.
    fn hand_over(&self, calls: Vec<Call>) {
        if !calls.is_empty() {
            self.inner.defer(move || {
                let _running = Running::begin();
                calls.into_iter().for_each(|call| call());
            });
        }
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
    point("pin");
    Guard { inner: crossbeam_epoch::pin() }
}

/// Takes the calls of all threads that were not handed to the epoch yet.
fn take_waiting() -> Vec<Call> {
    WAITING.iter().flat_map(|waiting| std::mem::take(&mut *waiting.lock())).collect()
}

/// Runs the deferred calls, of all threads, that may run.
///
/// Use it after a burst of garbage (a dropped table version, a shrunk cache), and now and then: a call that a pin delayed waits for
/// it. If no pin is held anywhere, everything that was deferred before has run when this returns, or is being run by another thread.
pub fn reclaim() {
    let all_ran = Arc::new(AtomicBool::new(false));
    let last = Arc::clone(&all_ran);
    let mut calls = take_waiting();
    calls.push(Box::new(move || last.store(true, Ordering::Release)));
    pin().hand_over(calls);
    // The epoch runs calls in order, eight batches at a time, once it has advanced twice since they were handed over.
    let mut idle = 0;
    while idle < IDLE_ROUNDS_MAX && !all_ran.load(Ordering::Acquire) {
        let before = RUNS.try_with(Cell::get);
        pin().inner.flush();
        idle = if RUNS.try_with(Cell::get) == before { idle + 1 } else { 0 };
    }
}
