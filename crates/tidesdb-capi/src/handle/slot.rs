//! A slot for a value, lent to one thread at a time.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_sync::Backoff;

use super::{BUSY, Front, Handle, STALE};
use crate::failure::Failure;

/// A slot for a value, and its lock state. Aligned to two cache lines, so that writes here do not slow a thread
/// that uses the next slot.
#[repr(C, align(128))]
pub(super) struct Slot<T, F> {
    /// The current handle of the slot, plus the two flag bits below in its lowest bits, which are 0 in handles.
    /// So one comparison checks that a handle has the right kind, is not stale, and that its value exists and
    /// is not lent.
    state: AtomicUsize,
    /// The handle of the object that the value belongs to, for scans over all values of an owner.
    owner: AtomicUsize,
    /// Data of the value that can be read without lending it.
    front: F,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached only through `Taken`. There is one at a time: it is created by the thread that
// sets `TAKEN` in `state`, and `TAKEN` is cleared when it drops. So the value moves between threads, which `T:
// Send` allows, and is never shared. Only `F: Sync` is shared.
unsafe impl<T: Send, F: Sync> Sync for Slot<T, F> {}

/// The slot is in use by a thread.
const TAKEN: usize = 1;
/// The handle is not valid (yet, or any more). Without this bit, there is a value.
const WITHHELD: usize = 2;

impl<T, F: Front> Slot<T, F> {
    /// Creates an empty slot that has no handle yet.
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicUsize::new(WITHHELD),
            owner: AtomicUsize::new(0),
            front: F::NOTHING,
            value: UnsafeCell::new(None),
        }
    }

    /// Sets the first handle of the slot. No other thread uses the slot yet.
    pub(super) fn begin(&self, handle: Handle) {
        self.state.store(handle.0 | WITHHELD, Ordering::Relaxed);
    }

    /// Takes the slot if it is in this state, which must not include `TAKEN`. For the reason of a failure, see
    /// [`Slot::why_not`].
    ///
    /// All of it is inlined: it is most of the extra cost of a call through C compared with Rust.
    #[inline(always)]
    fn try_take(&self, state: usize) -> Option<Taken<'_, T, F>> {
        // Checked before anything is written, so that a stale handle does not get in the way of the slot's new
        // user.
        if self.state.load(Ordering::Relaxed) != state {
            return None;
        }
        // Acquire: sees the previous user's changes to the value.
        let taken = self.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() { Some(Taken { slot: self, after: state, borrowed: PhantomData }) } else { None }
    }

    /// Returns the front of the value of `handle`, if the value exists and is not lent.
    #[inline(always)]
    pub(super) fn front(&self, handle: Handle) -> Option<&F> {
        // Acquire: sees what the last user of the value wrote to the front.
        (self.state.load(Ordering::Acquire) == handle.0).then_some(&self.front)
    }

    /// Lends the value if `handle` is valid and the value is not lent.
    #[inline(always)]
    pub(super) fn try_lend(&self, handle: Handle) -> Option<Lent<'_, T, F>> {
        self.try_take(handle.0).map(Lent)
    }

    /// Like [`Slot::try_lend`], but waits while the value is lent. For values that are lent only briefly.
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

    /// Returns the reason why [`Slot::try_lend`] failed.
    #[cold]
    pub(super) fn why_not(&self, handle: Handle) -> Failure {
        if self.state() & !TAKEN == handle.0 { BUSY } else { STALE }
    }

    fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    /// Lends the value that was parked or shut under `handle`, and makes the handle valid again.
    pub(super) fn wake(&self, handle: Handle) -> Option<Lent<'_, T, F>> {
        let mut backoff = Backoff::new();
        // A thread that closes the database may hold the slot briefly, to check the owner.
        while self.state() & !TAKEN == handle.0 | WITHHELD {
            if let Some(mut taken) = self.try_take(handle.0 | WITHHELD) {
                // Always true, unless the generations have wrapped around to this one since the value was
                // parked.
                return taken.place().is_some().then(|| {
                    taken.after = handle.0;
                    Lent(taken)
                });
            }
            backoff.snooze();
        }
        None
    }

    /// Takes the slot if its current or last value belongs to `owner` and it is not in use. Slots of other
    /// owners are not touched.
    pub(super) fn try_take_of(&self, owner: Handle) -> Option<Taken<'_, T, F>> {
        // The owner word belongs to this state or to a later one. In the latter case `try_take` fails, because each
        // value has its own state.
        let state = self.state.load(Ordering::Acquire);
        if state & TAKEN != 0 || self.owner.load(Ordering::Acquire) != owner.0 {
            return None;
        }
        self.try_take(state)
    }

    /// Like [`Slot::try_take_of`], but waits while the slot is in use for a value of `owner`.
    pub(super) fn take_of(&self, owner: Handle) -> Option<Taken<'_, T, F>> {
        let mut backoff = Backoff::new();
        loop {
            // As in `try_take_of`. The owner of a slot that is in use changes only when another value is stored in it.
            let state = self.state.load(Ordering::Acquire);
            if self.owner.load(Ordering::Acquire) != owner.0 {
                return None;
            }
            if state & TAKEN == 0
                && let Some(taken) = self.try_take(state)
            {
                return Some(taken);
            }
            backoff.snooze();
        }
    }

    /// Like [`Slot::try_take_of`], for a parked value only: a value that its thread may use at any time is not
    /// taken.
    pub(super) fn try_take_parked_of(&self, owner: Handle) -> Option<Taken<'_, T, F>> {
        let state = self.state.load(Ordering::Acquire);
        let parked = state & (TAKEN | WITHHELD) == WITHHELD;
        if parked && self.owner.load(Ordering::Acquire) == owner.0 { self.try_take(state) } else { None }
    }

    /// Shuts the slot if its value belongs to `owner`, is not lent and is not parked: its handle is invalid
    /// from now on, and the value stays until [`Slot::wake`]. This is one exchange, so a caller who frees the
    /// value concurrently finds it either before or after.
    pub(super) fn shut_of(&self, owner: Handle) {
        // As in `try_take_of`: a slot of another owner is not touched.
        let state = self.state.load(Ordering::Acquire);
        if state & (TAKEN | WITHHELD) == 0 && self.owner.load(Ordering::Acquire) == owner.0 {
            // On failure, another thread has taken the slot meanwhile. The caller waits for such slots later.
            let shut = state | WITHHELD;
            let _ = self.state.compare_exchange(state, shut, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Takes the slot with its content, if any. Waits while it is in use.
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

/// Exclusive access to a slot, with or without a value.
pub(super) struct Taken<'t, T, F: Front> {
    slot: &'t Slot<T, F>,
    /// The state of the slot afterwards.
    after: usize,
    /// Makes this behave like a borrow of the value: only `T: Sync` may be shared through it.
    borrowed: PhantomData<&'t mut T>,
}

impl<T, F: Front> Taken<'_, T, F> {
    /// Returns the content of the slot.
    pub(super) fn value(&mut self) -> Option<&mut T> {
        self.place().as_mut()
    }

    #[inline(always)]
    fn place(&mut self) -> &mut Option<T> {
        // SAFETY: the creator of `self` set `TAKEN` in the slot's state, so there is no other `Taken` of this
        // slot.
        unsafe { &mut *self.slot.value.get() }
    }

    /// Stores a value that belongs to `owner`. Returns its handle.
    pub(super) fn fill(mut self, value: T, owner: Handle) -> Handle {
        self.slot.front.clear();
        *self.place() = Some(value);
        self.slot.owner.store(owner.0, Ordering::Release);
        self.after &= !WITHHELD;
        Handle(self.after)
    }

    /// Makes the current handle stale. Returns the next one.
    fn end_generation(&mut self) -> Handle {
        let next = Handle(self.after & !WITHHELD).next();
        self.after = next.0 | WITHHELD;
        next
    }

    /// Makes the current handle invalid and keeps the value, as [`Slot::shut_of`] does.
    pub(super) fn shut(mut self) {
        self.after |= WITHHELD;
    }

    /// Removes the value and ends its generation.
    pub(super) fn end(mut self) -> Option<T> {
        self.end_generation();
        self.place().take()
    }
}

impl<T, F: Front> Drop for Taken<'_, T, F> {
    #[inline(always)]
    fn drop(&mut self) {
        // A value that a panic left half changed is never lent again. Its memory is leaked, because dropping it
        // could panic again.
        if std::thread::panicking() {
            self.end_generation();
            self.slot.owner.store(0, Ordering::Release);
        }
        // Release: the next user sees the changes to the value. A plain store is enough, because only the
        // thread that took the slot writes.
        self.slot.state.store(self.after, Ordering::Release);
    }
}

/// A lent value: exclusive access. Its slot has a value, because `WITHHELD` was not set or the value was
/// checked.
pub(crate) struct Lent<'t, T, F: Front = ()>(Taken<'t, T, F>);

impl<'t, T, F: Front> Lent<'t, T, F> {
    /// Ends the loan, when no panic is in progress.
    #[inline(always)]
    pub(crate) fn give_back(self) {
        let taken = ManuallyDrop::new(self.0);
        taken.slot.state.store(taken.after, Ordering::Release); // as in `Taken::drop`
    }

    /// Returns the front of the value.
    pub(crate) fn front(&self) -> &'t F {
        &self.0.slot.front
    }

    /// Parks the value: its handle becomes stale. Returns the handle under which the value can be woken.
    pub(super) fn park(mut self) -> Handle {
        self.0.end_generation()
    }

    /// Removes the value from its slot.
    pub(super) fn end(self) -> Option<T> {
        self.0.end()
    }

    /// Returns the handle of the value.
    pub(super) fn handle(&self) -> Handle {
        Handle(self.0.after)
    }
}

impl<T, F: Front> Deref for Lent<'_, T, F> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: no other thread has the slot, as in `Taken::place`, and the borrow of `self` prevents changes
        // meanwhile. The slot of a `Lent` has a value: only `Taken::end` and `Lent::end` remove it, and both
        // consume `self`.
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
