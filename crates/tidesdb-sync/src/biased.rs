//! [`BiasedLock`]: a lock that nobody waits for, nearly free to the thread that uses it all the time.
//!
//! An ordinary lock costs an atomic exchange each time, some twenty cycles, even if only one thread ever comes. This one becomes
//! *biased* to a thread that comes again and again: that thread then takes it with plain stores and loads. Another thread first
//! revokes the bias, which costs a system call, and takes an ordinary lock.
//!
//! ```text
//!   owner:    busy = true;  light fence;  owner == me ?      revoker (under `slow`):  owner = 0;  heavy fence;  busy ?
//! ```
//!
//! It is Dekker's protocol with one fence for both sides: `membarrier(2)` makes every running thread of the process pass a full
//! fence, so the owner needs none of its own and only tells the compiler not to reorder. One of the two sees the other's
//! store. If the system has no such call, no bias is ever given.
//!
//! The idea of locks with a bias is from Kawachiya, Koseki and Onodera, "Lock Reservation", OOPSLA 2002; that of the asymmetric
//! fence from Dice, Huang and Yang, "Asymmetric Dekker Synchronization", 2001.

use std::marker::PhantomData;

use crate::asymmetric::{has_heavy_fence, heavy_fence, light_fence, me};
use crate::facade::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// After so many revocations no bias is given any more: the threads that come do take turns.
const REVOCATIONS_MAX: u32 = 4;
/// No thread.
const NOBODY: usize = 0;

/// Whether somebody has it, and who takes it how.
///
/// ```
/// use tidesdb_sync::BiasedLock;
/// let lock = BiasedLock::new();
/// let held = lock.try_lock();
/// assert!(held.is_some() && lock.try_lock().is_none());
/// drop(held);
/// assert!(lock.try_lock().is_some());
/// ```
#[derive(Debug)]
pub struct BiasedLock {
    /// Somebody holds it, or looks whether it can, the ordinary way. All but `busy` is written under it.
    slow: AtomicBool,
    /// The thread it is biased to.
    owner: AtomicUsize,
    /// The owner holds it, or looks whether it can. Written by the owner only.
    busy: AtomicBool,
    /// The thread that held it the ordinary way before.
    last: AtomicUsize,
    revocations: AtomicU32,
}

impl Default for BiasedLock {
    fn default() -> Self {
        Self::new()
    }
}

impl BiasedLock {
    /// One that nobody has.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slow: AtomicBool::new(false),
            owner: AtomicUsize::new(NOBODY),
            busy: AtomicBool::new(false),
            last: AtomicUsize::new(NOBODY),
            revocations: AtomicU32::new(0),
        }
    }

    /// Takes it; `None` if somebody has it, this thread included, or tries at this moment.
    #[inline(always)]
    #[must_use]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_>> {
        let me = me();
        if self.owner.load(Ordering::Relaxed) != me {
            return self.try_lock_slowly(me);
        }
        // Only this thread writes `busy` while it is the owner, so it reads what it wrote last.
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        self.busy.store(true, Ordering::Relaxed);
        light_fence();
        if self.owner.load(Ordering::Relaxed) == me {
            return Some(self.guard(Way::Fast));
        }
        self.busy.store(false, Ordering::Release);
        self.try_lock_slowly(me)
    }

    #[inline(always)]
    fn guard(&self, way: Way) -> BiasedGuard<'_> {
        BiasedGuard { lock: self, way, of_this_thread: PhantomData }
    }

    #[cold]
    fn try_lock_slowly(&self, me: usize) -> Option<BiasedGuard<'_>> {
        // Acquire: what the holder before did is seen.
        self.slow.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == NOBODY || owner == me || self.revoke(owner) {
            return Some(self.guard(Way::Slow));
        }
        self.slow.store(false, Ordering::Release);
        None
    }

    /// Takes the bias from `owner`, unless that is inside.
    fn revoke(&self, owner: usize) -> bool {
        self.owner.store(NOBODY, Ordering::Relaxed);
        let passed = heavy_fence();
        // The owner passed the fence too. If it had stored `busy` before, that is seen here; if it does so later, it sees that it is
        // the owner no more. Acquire: what it did is seen.
        if !passed || self.busy.load(Ordering::Acquire) {
            self.owner.store(owner, Ordering::Relaxed);
            return false;
        }
        self.revocations.store(self.revocations.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        true
    }

    /// Gives it back, biased to who comes a second time in a row.
    #[cold]
    fn unlock_slowly(&self) {
        let me = me();
        if self.last.load(Ordering::Relaxed) != me {
            self.last.store(me, Ordering::Relaxed);
        } else if self.revocations.load(Ordering::Relaxed) < REVOCATIONS_MAX && has_heavy_fence() {
            self.owner.store(me, Ordering::Relaxed);
        }
        self.slow.store(false, Ordering::Release);
    }
}

/// How it was taken. A word wide, so that a guard has no padding: copies of padding are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Way {
    Fast,
    Slow,
}

/// The lock, held.
#[derive(Debug)]
#[must_use = "the lock is given back when this is dropped"]
pub struct BiasedGuard<'a> {
    lock: &'a BiasedLock,
    way: Way,
    /// Stays in its thread: only the owner may write `busy`.
    of_this_thread: PhantomData<*mut ()>,
}

impl Drop for BiasedGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.way == Way::Fast {
            self.lock.busy.store(false, Ordering::Release);
        } else {
            self.lock.unlock_slowly();
        }
    }
}
