//! A place for a value, lent to one at a time.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_sync::{Backoff, BiasedGuard, BiasedLock};

use super::{BUSY, GENERATIONS, STALE};
use crate::failure::Failure;

/// A place for a value. A thread that comes back to it again and again pays for no atomic exchange.
pub(super) struct Slot<T> {
    /// Changed under the lock only.
    generation: AtomicUsize,
    lock: BiasedLock,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached only through `Lent`, which holds the lock. So it moves between threads, which `T: Send` allows, and
// is never shared.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self { generation: AtomicUsize::new(0), lock: BiasedLock::new(), value: UnsafeCell::new(None) }
    }

    #[inline(always)]
    fn is(&self, generation: usize) -> bool {
        generation == self.generation.load(Ordering::Relaxed)
    }

    /// Takes the value if it is of this generation and nobody has it. `None` says neither which: see [`Slot::why_not`].
    ///
    /// All of it is inlined: it is most of what a call through C costs more than one through Rust.
    #[inline(always)]
    pub(super) fn try_take(&self, generation: usize) -> Option<Lent<'_, T>> {
        // Before the lock is tried: a stale handle must not be in the way of the slot's new user.
        if !self.is(generation) {
            return None;
        }
        let lent = Lent { slot: self, generation, _guard: self.lock.try_lock()? };
        if self.is(generation) { Some(lent) } else { None }
    }

    /// Why [`Slot::try_take`] gave nothing.
    #[cold]
    pub(super) fn why_not(&self, generation: usize) -> Failure {
        let empty = self.try_take(generation).is_some_and(|lent| !lent.is_there());
        if self.is(generation) && !empty { BUSY } else { STALE }
    }

    /// Takes the value, whatever its generation, unless somebody has it.
    pub(super) fn try_take_any(&self) -> Option<Lent<'_, T>> {
        let guard = self.lock.try_lock()?;
        Some(Lent { slot: self, generation: self.generation.load(Ordering::Relaxed), _guard: guard })
    }

    /// As [`Slot::try_take`], waiting for who has it: for values that are had for moments only.
    pub(super) fn take(&self, generation: usize) -> Option<Lent<'_, T>> {
        let mut backoff = Backoff::new();
        while self.is(generation) {
            if let Some(lent) = self.try_take(generation) {
                return Some(lent);
            }
            backoff.snooze();
        }
        None
    }

    /// As [`Slot::try_take_any`], waiting likewise.
    pub(super) fn take_any(&self) -> Lent<'_, T> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_take_any() {
                Some(lent) => return lent,
                None => backoff.snooze(),
            }
        }
    }
}

/// A value on loan: nobody else has it. Words only, as padding is slow to copy.
pub(crate) struct Lent<'t, T> {
    slot: &'t Slot<T>,
    /// The generation that the slot has afterwards.
    generation: usize,
    /// Given back last.
    _guard: BiasedGuard<'t>,
}

impl<T> Lent<'_, T> {
    #[inline(always)]
    pub(super) fn place(&mut self) -> &mut Option<T> {
        // SAFETY: `self` holds the slot's lock, so nobody else reaches the value.
        unsafe { &mut *self.slot.value.get() }
    }

    #[inline(always)]
    fn shown(&self) -> Option<&T> {
        // SAFETY: as in `place`; the borrow of `self` keeps it from being changed meanwhile.
        unsafe { &*self.slot.value.get() }.as_ref()
    }

    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        self.shown().is_some()
    }

    #[inline(always)]
    pub(super) fn generation(&self) -> usize {
        self.generation
    }

    /// Makes all handles of the slot stale.
    pub(super) fn end_generation(&mut self) {
        self.generation = (self.generation + 1) % GENERATIONS;
    }

    /// Ends the value's time in the slot.
    pub(super) fn end(mut self) -> Option<T> {
        self.end_generation();
        self.place().take()
    }
}

const THERE: &str = "a value is lent only if it is there";

impl<T> Deref for Lent<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.shown().expect(THERE)
    }
}

impl<T> DerefMut for Lent<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.place().as_mut().expect(THERE)
    }
}

impl<T> Drop for Lent<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // What a panic left half done is never lent again. Its memory is kept: to drop it could panic again.
        if std::thread::panicking() {
            self.end_generation();
        }
        if !self.slot.is(self.generation) {
            self.slot.generation.store(self.generation, Ordering::Relaxed); // the lock publishes it
        }
    }
}
