//! [`EpochCell`]: an atomic pointer to an immutable value, read without a reference count or a lock.
//!
//! Invariants: the pointer is never null and always owns its value; a replaced value is destroyed only after
//! every epoch pin that could have loaded it has ended. Any thread may load and store.

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
/// assert_eq!(seen, &[1, 2, 3]); // the old value lives until the guard is dropped
/// assert_eq!(view.load(&guard), &[4]);
/// ```
pub struct EpochCell<T: Send + Sync + 'static> {
    current: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

impl<T: Send + Sync + 'static> EpochCell<T> {
    /// Creates a cell that holds `value`.
    pub fn new(value: T) -> Self {
        EpochCell { current: AtomicPtr::new(Box::into_raw(Box::new(value))), owns: PhantomData }
    }

    /// Returns the current value. Everything written before it was stored is visible (Acquire).
    ///
    /// The reference ends with the guard or with the cell, whichever is first, because dropping the cell
    /// destroys its value at once.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Box::into_raw` and is never null. It is freed either by `store`, after
        // all guards that live at the exchange, and so `_guard`, have ended; or by `drop`, which needs the cell
        // unborrowed, and so runs after `'g`. The value is not modified while it can be reached.
        unsafe { &*current }
    }

    /// Replaces the value. The old value is destroyed once every pin that exists now has ended.
    pub fn store(&self, value: T) {
        self.store_lazily(value);
        // Stores are rare and their values large (memtables, table versions): do not let them wait for more.
        pin().flush();
    }

    /// Like [`EpochCell::store`], but leaves the old value to a later call of [`reclaim`](crate::reclaim) by any thread, or to the pins
    /// after some dozen more. For callers that hold a lock other threads wait for.
    pub fn store_lazily(&self, value: T) {
        let guard = pin();
        let former = self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        let former = Retired(former);
        guard.defer(move || drop(former));
    }
}

impl<T: Send + Sync + 'static> Drop for EpochCell<T> {
    fn drop(&mut self) {
        // loom has no `get_mut`. With the exclusive borrow, the load is exact either way.
        drop(Retired(self.current.load(Ordering::Relaxed)));
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for EpochCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EpochCell").field(self.load(&pin())).finish()
    }
}

/// A value removed from its cell; dropping this destroys it. It is a raw pointer until then, because readers
/// may still use the value and a `Box` would assert exclusive access.
struct Retired<T>(*mut T);

// SAFETY: a `Retired` owns its value like a `Box`, and `T: Send`.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` and left its cell exactly once, into this `Retired`.
        // `EpochCell` drops it after every guard that could have read it, or while it has exclusive access to
        // the cell.
        drop(unsafe { Box::from_raw(self.0) });
    }
}
