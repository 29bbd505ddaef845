//! A place for a value, lent to one at a time.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_sync::Backoff;

use super::{BUSY, GENERATIONS, STALE};
use crate::failure::Failure;

/// A place for a value, and who may touch it.
pub(super) struct Slot<T> {
    /// The generation, and in the lowest bit whether somebody has the value.
    state: AtomicUsize,
    /// The handle of what the value belongs to, for who looks for all of it.
    owner: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached only through `Lent`, of which there is one at a time: it is made by who sets the lowest bit of
// `state`, and clears it when it goes. So the value moves between threads, which `T: Send` allows, and is never shared.
unsafe impl<T: Send> Sync for Slot<T> {}

const TAKEN: usize = 1;

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self { state: AtomicUsize::new(0), owner: AtomicUsize::new(0), value: UnsafeCell::new(None) }
    }

    /// Takes the value if it is of this generation and nobody has it. `None` says neither which: see [`Slot::why_not`].
    ///
    /// All of it is inlined: it is most of what a call through C costs more than one through Rust.
    #[inline(always)]
    pub(super) fn try_take(&self, generation: usize) -> Option<Lent<'_, T>> {
        let state = generation << 1;
        // Looked at before anything is written: a stale handle must not be in the way of the slot's new user.
        if self.state.load(Ordering::Relaxed) != state {
            return None;
        }
        // Acquire: what the one before did to the value is seen.
        let taken = self.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() { Some(Lent { slot: self, generation }) } else { None }
    }

    /// Why [`Slot::try_take`] gave nothing, or a place without a value.
    #[cold]
    pub(super) fn why_not(&self, generation: usize) -> Failure {
        match self.try_take(generation) {
            Some(lent) if !lent.is_there() => STALE,
            None if self.generation() != generation => STALE,
            _ => BUSY,
        }
    }

    fn generation(&self) -> usize {
        self.state.load(Ordering::Relaxed) >> 1
    }

    /// Takes the value, whatever its generation, unless somebody has it.
    pub(super) fn try_take_any(&self) -> Option<Lent<'_, T>> {
        self.try_take(self.generation())
    }

    /// What the value belongs to, if there is one.
    pub(super) fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }

    /// As [`Slot::try_take`], waiting for who has it: for values that are had for moments only.
    pub(super) fn take(&self, generation: usize) -> Option<Lent<'_, T>> {
        let mut backoff = Backoff::new();
        while self.generation() == generation {
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
}

impl<T> Lent<'_, T> {
    #[inline(always)]
    pub(super) fn place(&mut self) -> &mut Option<T> {
        // SAFETY: who made `self` set the lowest bit of the slot's state: there is no other `Lent` of it.
        unsafe { &mut *self.slot.value.get() }
    }

    #[inline(always)]
    fn shown(&self) -> Option<&T> {
        // SAFETY: as in `place`; the borrow of `self` keeps it from being changed meanwhile.
        unsafe { &*self.slot.value.get() }.as_ref()
    }

    /// Puts in a value that belongs to `owner`.
    pub(super) fn fill(&mut self, value: T, owner: usize) {
        *self.place() = Some(value);
        self.slot.owner.store(owner, Ordering::Release);
    }

    pub(super) fn owner(&self) -> usize {
        self.slot.owner()
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
        // Release: what was done to the value is seen by the next one. A plain store is enough: only who has the value writes.
        self.slot.state.store(self.generation << 1, Ordering::Release);
    }
}
