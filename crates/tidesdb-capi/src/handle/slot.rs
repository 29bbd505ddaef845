//! A place for a value, lent to one at a time.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_sync::Backoff;

use super::{BUSY, Front, Handle, STALE};
use crate::failure::Failure;

/// A place for a value, and who may touch it. Two lines of the cache for itself, at least: what one thread writes here must not slow the
/// thread that uses the next place.
#[repr(C, align(128))]
pub(super) struct Slot<T, F> {
    /// The handle that the place has now, and in its lowest bits, which are 0 in handles, the two below. So one comparison says
    /// that a handle is of this kind, not stale, and that its value is there and not in use.
    state: AtomicUsize,
    /// The handle of what the value belongs to, for who looks for all of it.
    owner: AtomicUsize,
    /// What the value shows to who has its handle, without being taken.
    front: F,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached only through `Taken`, of which there is one at a time: it is made by who sets `TAKEN` in `state`,
// which is cleared when it goes. So the value moves between threads, which `T: Send` allows, and is never shared. What is shared is `F: Sync`.
unsafe impl<T: Send, F: Sync> Sync for Slot<T, F> {}

/// Somebody has the place.
const TAKEN: usize = 1;
/// The handle stands for nothing yet, or nothing any more. Without it there is a value.
const WITHHELD: usize = 2;

impl<T, F: Front> Slot<T, F> {
    /// An empty place that has no handle yet.
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicUsize::new(WITHHELD),
            owner: AtomicUsize::new(0),
            front: F::NOTHING,
            value: UnsafeCell::new(None),
        }
    }

    /// Names the first handle that the place will have. Nobody else looks at it yet.
    pub(super) fn begin(&self, handle: Handle) {
        self.state.store(handle.0 | WITHHELD, Ordering::Relaxed);
    }

    /// Takes the place if it is in this state, which is one without `TAKEN`. `None` does not say why not: see [`Slot::why_not`].
    ///
    /// All of it is inlined: it is most of what a call through C costs more than one through Rust.
    #[inline(always)]
    fn try_take(&self, state: usize) -> Option<Taken<'_, T, F>> {
        // Looked at before anything is written: a stale handle must not be in the way of the place's new user.
        if self.state.load(Ordering::Relaxed) != state {
            return None;
        }
        // Acquire: what the one before did to the value is seen.
        let taken = self.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() { Some(Taken { slot: self, after: state, borrowed: PhantomData }) } else { None }
    }

    /// What the value of `handle` shows, if it is there and nobody has it.
    #[inline(always)]
    pub(super) fn front(&self, handle: Handle) -> Option<&F> {
        // Acquire: what the last one who had the value shows of it is seen.
        (self.state.load(Ordering::Acquire) == handle.0).then_some(&self.front)
    }

    /// Lends the value if `handle` stands for it and nobody has it.
    #[inline(always)]
    pub(super) fn try_lend(&self, handle: Handle) -> Option<Lent<'_, T, F>> {
        self.try_take(handle.0).map(Lent)
    }

    /// As [`Slot::try_lend`], waiting for who has it: for values that are had for moments only.
    pub(super) fn lend(&self, handle: Handle) -> Option<Lent<'_, T, F>> {
        let mut backoff = Backoff::new();
        while self.state() & !TAKEN == handle.0 {
            if let Some(lent) = self.try_lend(handle) {
                return Some(lent);
            }
            backoff.snooze();
        }
        None
    }

    /// Why [`Slot::try_lend`] gave nothing.
    #[cold]
    pub(super) fn why_not(&self, handle: Handle) -> Failure {
        if self.state() & !TAKEN == handle.0 { BUSY } else { STALE }
    }

    fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    /// Lends what was parked or shut under `handle`, which stands for it again.
    pub(super) fn wake(&self, handle: Handle) -> Option<Lent<'_, T, F>> {
        let mut backoff = Backoff::new();
        // Whoever closes the database may have it for a moment, to find out what it belongs to.
        while self.state() & !TAKEN == handle.0 | WITHHELD {
            if let Some(mut taken) = self.try_take(handle.0 | WITHHELD) {
                // Always so, unless the generations have come round to this one since it was parked.
                return taken.place().is_some().then(|| {
                    taken.after = handle.0;
                    Lent(taken)
                });
            }
            backoff.snooze();
        }
        None
    }

    /// Takes the place if what is in it, or was last, belongs to `owner` and nobody has it. Places of others are not touched.
    pub(super) fn try_take_of(&self, owner: Handle) -> Option<Taken<'_, T, F>> {
        // The owner is of this state or of a later one; of a later one the place is not taken, as each value has a state of its own.
        let state = self.state.load(Ordering::Acquire);
        if state & TAKEN != 0 || self.owner.load(Ordering::Acquire) != owner.0 {
            return None;
        }
        self.try_take(state)
    }

    /// As [`Slot::try_take_of`] for a value that is parked: one that its thread may use at any moment is not taken from it.
    pub(super) fn try_take_parked_of(&self, owner: Handle) -> Option<Taken<'_, T, F>> {
        let state = self.state.load(Ordering::Acquire);
        let parked = state & (TAKEN | WITHHELD) == WITHHELD;
        if parked && self.owner.load(Ordering::Acquire) == owner.0 { self.try_take(state) } else { None }
    }

    /// Shuts the place if its value belongs to `owner`, is lent to nobody and is not parked: its handle is refused from now on, and the
    /// value stays until [`Slot::wake`]. One exchange, so a caller who frees the value at this moment finds it before or after.
    pub(super) fn shut_of(&self, owner: Handle) {
        // As in `try_take_of`: a place of another owner is not touched.
        let state = self.state.load(Ordering::Acquire);
        if state & (TAKEN | WITHHELD) == 0 && self.owner.load(Ordering::Acquire) == owner.0 {
            // A failure means that somebody has taken the place meanwhile: the caller looks a second time at the end.
            let shut = state | WITHHELD;
            let _ = self.state.compare_exchange(state, shut, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Takes the place, with whatever is in it, waiting for who has it.
    pub(super) fn take_any(&self) -> Taken<'_, T, F> {
        let mut backoff = Backoff::new();
        loop {
            let state = self.state();
            if state & TAKEN == 0
                && let Some(taken) = self.try_take(state)
            {
                return taken;
            }
            backoff.snooze();
        }
    }
}

/// A place that nobody else has, with or without a value.
pub(super) struct Taken<'t, T, F: Front> {
    slot: &'t Slot<T, F>,
    /// The state of the place afterwards.
    after: usize,
    /// It is what a borrow of the value is: only `T: Sync` may be shared through it.
    borrowed: PhantomData<&'t mut T>,
}

impl<T, F: Front> Taken<'_, T, F> {
    /// What is in the place.
    pub(super) fn value(&mut self) -> Option<&mut T> {
        self.place().as_mut()
    }

    #[inline(always)]
    fn place(&mut self) -> &mut Option<T> {
        // SAFETY: who made `self` set `TAKEN` in the slot's state: there is no other `Taken` of it.
        unsafe { &mut *self.slot.value.get() }
    }

    /// Puts in a value that belongs to `owner`, and tells its handle.
    pub(super) fn fill(mut self, value: T, owner: Handle) -> Handle {
        self.slot.front.clear();
        *self.place() = Some(value);
        self.slot.owner.store(owner.0, Ordering::Release);
        self.after &= !WITHHELD;
        Handle(self.after)
    }

    /// The handle of now is stale from now on; tells the next one.
    fn end_generation(&mut self) -> Handle {
        let next = Handle(self.after & !WITHHELD).next();
        self.after = next.0 | WITHHELD;
        next
    }

    /// Ends the value's time in the place.
    pub(super) fn end(mut self) -> Option<T> {
        self.end_generation();
        self.place().take()
    }
}

impl<T, F: Front> Drop for Taken<'_, T, F> {
    #[inline(always)]
    fn drop(&mut self) {
        // What a panic left half done is never lent again. Its memory is kept: to drop it could panic again.
        if std::thread::panicking() {
            self.end_generation();
            self.slot.owner.store(0, Ordering::Release);
        }
        // Release: what was done to the value is seen by the next one. A plain store is enough: only who has the place writes.
        self.slot.state.store(self.after, Ordering::Release);
    }
}

/// A value on loan: nobody else has it. `WITHHELD` was not set when it was made, or there was a look: the place has a value.
pub(crate) struct Lent<'t, T, F: Front = ()>(Taken<'t, T, F>);

impl<'t, T, F: Front> Lent<'t, T, F> {
    /// Gives it back where no panic goes on.
    #[inline(always)]
    pub(crate) fn give_back(self) {
        let taken = ManuallyDrop::new(self.0);
        taken.slot.state.store(taken.after, Ordering::Release); // as in `Taken::drop`
    }

    /// What it shows when it is given back.
    pub(crate) fn front(&self) -> &'t F {
        &self.0.slot.front
    }

    /// Withholds the value: its handle is stale; tells the handle under which it can be had again.
    pub(super) fn park(mut self) -> Handle {
        self.0.end_generation()
    }

    /// Ends the value's time in its place.
    pub(super) fn end(self) -> Option<T> {
        self.0.end()
    }

    /// The handle it has.
    pub(super) fn handle(&self) -> Handle {
        Handle(self.0.after)
    }
}

impl<T, F: Front> Deref for Lent<'_, T, F> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: nobody else has the place, as in `Taken::place`, and the borrow of `self` keeps it from being changed meanwhile;
        // the place of a `Lent` has a value: only `Taken::end` and `Lent::end` take it out, and both take `self`.
        unsafe { (*self.0.slot.value.get()).as_ref().unwrap_unchecked() }
    }
}

impl<T, F: Front> DerefMut for Lent<'_, T, F> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { self.0.place().as_mut().unwrap_unchecked() }
    }
}
