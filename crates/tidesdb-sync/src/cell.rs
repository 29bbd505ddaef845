//! [`EpochCell`]: an atomic pointer to an immutable value, read without a reference count or a lock.
//!
//! Invariants: the pointer is never null and always owns its value; a replaced value is destroyed only after
//! every pin that could have loaded it has ended. Any thread may load and store.

use std::fmt;
use std::marker::PhantomData;

use crate::facade::{AtomicPtr, Ordering};
use crate::{Guard, pin};

/// A shared slot that holds one immutable `T` at a time.
///
/// ```
/// use tidesdb_sync::{EpochCell, pin};
///
/// let view = EpochCell::new(vec![1, 2, 3]);
/// let guard = pin();
/// let seen = view.load(&guard);
/// view.store(vec![4]);
/// assert_eq!(seen, &[1, 2, 3]); // the old value lives until the pin ends
/// assert_eq!(view.load(&guard), &[4]);
/// ```
pub struct EpochCell<T: Send + Sync + 'static> {
    current: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    /// A cell that holds `value`.
    pub fn new(value: T) -> Self {
        EpochCell { current: AtomicPtr::new(Box::into_raw(Box::new(value))), owns: PhantomData }
    }

    /// The current value. What was written before it was stored is visible (Acquire).
    ///
    /// The reference ends with the guard or with the cell, whichever is first: dropping the cell destroys its
    /// value at once.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Box::into_raw` and is never null. It is freed either by `store`, after
        // all guards that live at the exchange, hence after `_guard`, have ended; or by `drop`, which needs the
        // cell unborrowed, hence after `'g`. Nobody writes to the value while it can be reached.
        unsafe { &*current }
    }

    /// Puts `value` in place; the former one is destroyed once every pin that lives now has ended.
    pub fn store(&self, value: T) {
        self.store_lazily(value);
        // Stores are rare and their values heavy (memtables, table versions): do not leave them in the buffer.
        pin().flush();
    }

    /// As [`EpochCell::store`], but destroys nothing now: for callers that hold what others wait for. They call
    /// [`reclaim`](crate::reclaim) afterwards, or the former value waits in a buffer of this thread.
    pub fn store_lazily(&self, value: T) {
        let guard = pin();
        let former = self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        let former = Retired(former);
        guard.defer(move || drop(former));
    }
}

impl<T: Send + Sync + 'static> Drop for EpochCell<T> {
    fn drop(&mut self) {
        // loom has no `get_mut`; the exclusive borrow makes the load exact either way.
        drop(Retired(self.current.load(Ordering::Relaxed)));
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for EpochCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EpochCell").field(self.load(&pin())).finish()
    }
}

/// A value taken out of its cell: dropping this destroys it. It stays a raw pointer until then, because readers
/// may still look at the value and a `Box` would claim it alone.
struct Retired<T>(*mut T);

// SAFETY: a `Retired` owns its value as a `Box` does, and `T: Send`.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` and left its cell exactly once, into this `Retired`.
        // `EpochCell` drops it after every guard that could have read it, or while it borrows the cell alone.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
