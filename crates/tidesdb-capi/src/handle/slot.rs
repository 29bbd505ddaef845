//! A slot for a value, lent to one thread at a time.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_sync::Backoff;

use super::{BUSY, Front, Handle, STALE, Table};
use crate::failure::Failure;

/// A slot for a value, and its lock state. Aligned to two cache lines, so that writes here do not slow a thread
/// that uses the next slot.
#[repr(C, align(128))]
pub(super) struct Slot<T, F> {
    /// The current handle of the slot, plus the flag bits below in its lowest bits, which are 0 in handles.
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
/// The slot is in use, and its value ends when the thread that uses it gives it back. Its handle is not valid any more.
const ENDING: usize = 4;

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

    /// Returns the front of the value of `handle`, if the value exists and is not lent.
    #[inline(always)]
    pub(super) fn front(&self, handle: Handle) -> Option<&F> {
        // Acquire: sees what the last user of the value wrote to the front.
        (self.state.load(Ordering::Acquire) == handle.0).then_some(&self.front)
    }

    /// Returns the front of the value of `handle`, if `handle` is valid, whether or not the value is lent.
    pub(super) fn front_even_lent(&self, handle: Handle) -> Option<&F> {
        (self.state.load(Ordering::Acquire) & !TAKEN == handle.0).then_some(&self.front)
    }

    /// Returns the reason why a value could not be lent.
    #[cold]
    pub(super) fn why_not(&self, handle: Handle) -> Failure {
        if self.state() & !TAKEN == handle.0 { BUSY } else { STALE }
    }

    fn state(&self) -> usize {
        self.state.load(Ordering::Relaxed)
    }

    /// Makes the value of `handle` end when it is given back, if it is lent now. `handle` is stale from then on.
    pub(super) fn end_when_given_back(&self, handle: Handle) -> bool {
        let lent = handle.0 | TAKEN;
        // Release: the value ends after what its caller did before this call.
        self.state.compare_exchange(lent, lent | ENDING, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Shuts the slot if its value belongs to `owner`, is not lent and is not parked: its handle is invalid
    /// from now on, and the value stays until [`Place::wake`]. This is one exchange, so a caller who frees the
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
}

/// A slot of a table.
pub(super) struct Place<'t, T, F = ()> {
    pub(super) slot: &'t Slot<T, F>,
    pub(super) table: &'t Table<T, F>,
}

impl<T, F> Clone for Place<'_, T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, F> Copy for Place<'_, T, F> {}

impl<'t, T, F: Front> Place<'t, T, F> {
    /// Takes the slot if it is in this state, which must not include `TAKEN`. For the reason of a failure, see
    /// [`Slot::why_not`].
    ///
    /// All of it is inlined: it is most of the extra cost of a call through C compared with Rust.
    #[inline(always)]
    fn try_take(self, state: usize) -> Option<Taken<'t, T, F>> {
        // Checked before anything is written, so that a stale handle does not get in the way of the slot's new
        // user.
        if self.slot.state.load(Ordering::Relaxed) != state {
            return None;
        }
        // Acquire: sees the previous user's changes to the value.
        let taken =
            self.slot.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() { Some(Taken { at: self, after: state, borrowed: PhantomData }) } else { None }
    }

    /// Lends the value if `handle` is valid and the value is not lent.
    #[inline(always)]
    pub(super) fn try_lend(self, handle: Handle) -> Option<Lent<'t, T, F>> {
        self.try_take(handle.0).map(Lent)
    }

    /// Like [`Place::try_lend`], but waits while the value is lent. For values that are lent only briefly.
    pub(super) fn lend(self, handle: Handle) -> Option<Lent<'t, T, F>> {
        let mut backoff = Backoff::new();
        while self.slot.state() & !TAKEN == handle.0 {
            if let Some(lent) = self.try_lend(handle) {
                return Some(lent);
            }
            backoff.snooze();
        }
        None
    }

    /// Lends the value that was parked or shut under `handle`, and makes the handle valid again.
    pub(super) fn wake(self, handle: Handle) -> Option<Lent<'t, T, F>> {
        let mut backoff = Backoff::new();
        // A thread that closes the database may hold the slot briefly, to check the owner.
        while self.slot.state() & !TAKEN == handle.0 | WITHHELD {
            if let Some(mut taken) = self.try_take(handle.0 | WITHHELD) {
                // Always true, unless the generations have wrapped around to this one since the value was
                // parked.
                if taken.place().is_none() {
                    return None;
                }
                taken.after = handle.0;
                // No other thread writes the state while the handle is not valid.
                self.slot.state.store(handle.0 | TAKEN, Ordering::Relaxed);
                return Some(Lent(taken));
            }
            backoff.snooze();
        }
        None
    }

    /// Takes the slot if its current or last value belongs to `owner` and it is not in use. Slots of other
    /// owners are not touched.
    pub(super) fn try_take_of(self, owner: Handle) -> Option<Taken<'t, T, F>> {
        // The owner word belongs to this state or to a later one. In the latter case `try_take` fails, because each
        // value has its own state.
        let state = self.slot.state.load(Ordering::Acquire);
        if state & TAKEN != 0 || self.slot.owner.load(Ordering::Acquire) != owner.0 {
            return None;
        }
        self.try_take(state)
    }

    /// Like [`Place::try_take_of`], but waits while the slot is in use for a value of `owner`.
    pub(super) fn take_of(self, owner: Handle) -> Option<Taken<'t, T, F>> {
        let mut backoff = Backoff::new();
        loop {
            // As in `try_take_of`. The owner of a slot that is in use changes only when another value is stored in it.
            let state = self.slot.state.load(Ordering::Acquire);
            if self.slot.owner.load(Ordering::Acquire) != owner.0 {
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

    /// Like [`Place::try_take_of`], for a parked value only: a value that its thread may use at any time is not
    /// taken.
    pub(super) fn try_take_parked_of(self, owner: Handle) -> Option<Taken<'t, T, F>> {
        let state = self.slot.state.load(Ordering::Acquire);
        let parked = state & (TAKEN | WITHHELD) == WITHHELD;
        if parked && self.slot.owner.load(Ordering::Acquire) == owner.0 { self.try_take(state) } else { None }
    }

    /// Takes the slot with its content, if any. Waits while it is in use.
    pub(super) fn take_any(self) -> Taken<'t, T, F> {
        let mut backoff = Backoff::new();
        loop {
            let state = self.slot.state();
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
    at: Place<'t, T, F>,
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
        // SAFETY: the creator of `self` set `TAKEN` in the slot's state, so no other `Taken` of this slot is used.
        unsafe { &mut *self.at.slot.value.get() }
    }

    /// Stores a value that belongs to `owner`. Returns its handle.
    pub(super) fn fill(mut self, value: T, owner: Handle, show: impl FnOnce(&F)) -> Handle {
        let slot = self.at.slot;
        slot.front.clear();
        show(&slot.front);
        *self.place() = Some(value);
        slot.owner.store(owner.0, Ordering::Release);
        self.after &= !WITHHELD;
        let handle = Handle(self.after);
        self.leave();
        handle
    }

    /// Makes the current handle stale. Returns the next one.
    fn end_generation(&mut self) -> Handle {
        let next = Handle(self.after & !WITHHELD).next();
        self.after = next.0 | WITHHELD;
        next
    }

    /// Makes the current handle invalid and keeps the value, as [`Slot::shut_of`] does. If another thread has freed the value meanwhile,
    /// it ends.
    pub(super) fn shut(self) {
        ManuallyDrop::new(self).give_back_as(WITHHELD);
    }

    /// Removes the value and ends its generation.
    pub(super) fn end(mut self) -> Option<T> {
        self.end_generation();
        let value = self.place().take();
        self.leave();
        value
    }

    /// Sets the state of the slot, whose handle no other thread has: it is new.
    fn leave(self) {
        let this = ManuallyDrop::new(self);
        // Release: the next user sees the changes to the value.
        this.at.slot.state.store(this.after, Ordering::Release);
    }

    /// Gives the slot back under its handle, with these flags. If the value is to end, it ends now. `self` is not used afterwards.
    #[inline(always)]
    fn give_back_as(&self, flags: usize) {
        // Release: the next user sees the changes to the value. Only a thread that sets `ENDING` can have changed the state.
        let (lent, free) = (self.after | TAKEN, self.after | flags);
        let given = self.at.slot.state.compare_exchange(lent, free, Ordering::Release, Ordering::Acquire);
        if given.is_err() {
            self.end_as_asked();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_as_asked(&self) {
        let mut taken = Taken { at: self.at, after: self.after, borrowed: PhantomData };
        drop(taken.place().take()); // first: a close that waits for the slot waits for this, too
        drop(self.at.table.end(Lent(taken)));
    }
}

impl<T, F: Front> Drop for Taken<'_, T, F> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A value that a panic left half changed is never lent again. Its memory is leaked, because dropping it
            // could panic again.
            self.end_generation();
            self.at.slot.owner.store(0, Ordering::Release);
            self.at.slot.state.store(self.after, Ordering::Release);
        } else {
            self.give_back_as(0);
        }
    }
}

/// A lent value: exclusive access. Its slot has a value, because `WITHHELD` was not set or the value was
/// checked.
pub(crate) struct Lent<'t, T, F: Front = ()>(Taken<'t, T, F>);

impl<'t, T, F: Front> Lent<'t, T, F> {
    /// Ends the loan, when no panic is in progress.
    #[inline(always)]
    pub(crate) fn give_back(self) {
        ManuallyDrop::new(self.0).give_back_as(0);
    }

    /// Ends the loan of a value that never ends when it is given back, in fewer instructions.
    #[inline(always)]
    pub(super) fn give_back_shared(self) {
        self.0.leave();
    }

    /// Returns the front of the value.
    pub(crate) fn front(&self) -> &'t F {
        &self.0.at.slot.front
    }

    /// Parks the value: its handle becomes stale. Returns the handle under which the value can be woken.
    pub(super) fn park(mut self) -> Handle {
        let next = self.0.end_generation();
        self.0.leave();
        next
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
        // meanwhile. The slot of a `Lent` has a value: `Taken::end` and `Lent::end` remove it, which
        // consume `self`, and `Taken::end_as_asked`, after the last use of `self`.
        unsafe { (*self.0.at.slot.value.get()).as_ref().unwrap_unchecked() }
    }
}

impl<T, F: Front> DerefMut for Lent<'_, T, F> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { self.0.place().as_mut().unwrap_unchecked() }
    }
}
