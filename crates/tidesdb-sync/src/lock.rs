//! Locks that do not poison and that know their rank: see [`rank`](crate::rank).
//!
//! Without debug assertions they are those of `parking_lot` and nothing else.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::rank::LEAF;
use crate::raw::{self, WaitTimeoutResult};

/// The ranks that this thread holds, checked at each lock.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use crate::rank::name;

    thread_local! {
        /// Ranks, and how many locks of each were taken in a row: a thread may hold one of each of thousands of families.
        static HELD: RefCell<Vec<(u16, usize)>> = const { RefCell::new(Vec::new()) };
    }

    /// A rank that this thread holds.
    pub(super) struct Held(u16);

    impl Held {
        /// Checks that `rank` may be taken now, before it is waited for.
        pub(super) fn check(rank: u16, equal: bool) {
            let highest =
                HELD.try_with(|held| held.borrow().iter().map(|(rank, _)| *rank).max()).ok().flatten();
            if let Some(highest) = highest
                && (highest > rank || (highest == rank && !equal))
            {
                panic!("lock {} ({rank}) is taken under lock {} ({highest})", name(rank), name(highest));
            }
        }

        /// Records that `rank` was taken.
        pub(super) fn taken(rank: u16) -> Self {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                match held.last_mut() {
                    Some((last, count)) if *last == rank => *count += 1,
                    _ => held.push((rank, 1)),
                }
            });
            Self(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|(rank, _)| *rank == self.0) {
                    held[at].1 -= 1;
                    if held[at].1 == 0 {
                        held.remove(at);
                    }
                }
            });
        }
    }
}

/// Nothing is checked.
#[cfg(not(debug_assertions))]
mod held {
    pub(super) struct Held;

    impl Held {
        #[inline(always)]
        pub(super) fn check(_rank: u16, _equal: bool) {}

        #[inline(always)]
        pub(super) fn taken(_rank: u16) -> Self {
            Self
        }
    }
}

use held::Held;

/// A lock for one thread at a time.
#[derive(Default)]
pub struct Mutex<T: ?Sized, const RANK: u16 = LEAF> {
    inner: raw::Mutex<T>,
}

/// Holds a [`Mutex`].
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: raw::MutexGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u16> Mutex<T, RANK> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: raw::Mutex::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized, const RANK: u16> Mutex<T, RANK> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of this rank or a higher one.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        Held::check(RANK, false);
        let inner = self.inner.lock();
        MutexGuard { inner, _held: Held::taken(RANK) }
    }

    /// As [`Mutex::lock`], for several locks of one rank that all threads take in the same order.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of a higher rank.
    #[inline]
    pub fn lock_in_order(&self) -> MutexGuard<'_, T> {
        Held::check(RANK, true);
        let inner = self.inner.lock();
        MutexGuard { inner, _held: Held::taken(RANK) }
    }

    /// Takes the lock if it is free; never waits, so its rank does not matter.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _held: Held::taken(RANK) })
    }

    /// Returns the value; the exclusive borrow makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug, const RANK: u16> fmt::Debug for Mutex<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T: ?Sized, const RANK: u16 = LEAF> {
    inner: raw::RwLock<T>,
}

/// Holds an [`RwLock`] for reading.
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: raw::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Holds an [`RwLock`] for writing.
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: raw::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u16> RwLock<T, RANK> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: raw::RwLock::new(value) }
    }
}

impl<T: ?Sized, const RANK: u16> RwLock<T, RANK> {
    /// Waits until no writer holds the lock.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of this rank or a higher one.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        Held::check(RANK, false);
        let inner = self.inner.read();
        RwLockReadGuard { inner, _held: Held::taken(RANK) }
    }

    /// Waits until no thread holds the lock.
    ///
    /// # Panics
    /// As [`RwLock::read`].
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        Held::check(RANK, false);
        let inner = self.inner.write();
        RwLockWriteGuard { inner, _held: Held::taken(RANK) }
    }

    /// Returns the value; the exclusive borrow makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug, const RANK: u16> fmt::Debug for RwLock<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable for use with a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(raw::Condvar);

impl Condvar {
    /// Releases the lock and sleeps until woken.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// As [`Condvar::wait`], at most for `limit`.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        self.0.wait_for(&mut guard.inner, limit)
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{Condvar, Mutex, RwLock};
    use crate::rank::{CATALOG, FAMILIES, FLUSHING};

    fn message(work: impl FnOnce()) -> Option<String> {
        let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
        Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn a_lower_rank_under_a_higher_one_panics() {
        let (outer, inner) = (Mutex::<(), CATALOG>::default(), RwLock::<(), FAMILIES>::default());
        assert_eq!(message(|| drop((outer.lock(), inner.read()))), None);
        let wrong = message(|| {
            let _inner = inner.write();
            drop(outer.lock());
        });
        assert_eq!(wrong.as_deref(), Some("lock CATALOG (130) is taken under lock FAMILIES (250)"));
        assert_eq!(message(|| drop((outer.lock(), inner.read()))), None, "a panic lets go of what was held");
    }

    #[test]
    fn equal_ranks_need_an_order() {
        let (a, b) = (Mutex::<(), FLUSHING>::default(), Mutex::<(), FLUSHING>::default());
        assert_eq!(message(|| drop((a.lock_in_order(), b.lock_in_order()))), None);
        assert!(message(|| drop((a.lock(), b.lock()))).is_some());
        let leaf = Mutex::<()>::default();
        assert!(message(|| drop((leaf.lock(), a.lock()))).is_some(), "nothing is taken under a leaf");
    }

    #[test]
    fn locks_may_be_let_go_in_any_order_and_tried_in_any() {
        let (outer, inner) = (Mutex::<(), CATALOG>::default(), Mutex::<(), FLUSHING>::default());
        let (first, second) = (outer.lock(), inner.lock());
        drop(first);
        assert!(outer.try_lock().is_some(), "a try does not wait");
        assert!(message(|| drop(outer.lock())).is_some());
        drop(second);
        assert_eq!(message(|| drop(outer.lock())), None);
    }

    #[test]
    fn a_wait_keeps_the_rank() {
        let (lock, condition) = (Mutex::<(), FLUSHING>::default(), Condvar::default());
        let mut held = lock.lock();
        assert!(condition.wait_for(&mut held, std::time::Duration::from_millis(1)).timed_out());
        let outer = Mutex::<(), CATALOG>::default();
        assert!(message(|| drop(outer.lock())).is_some());
    }

    /// The page is the only list of what each lock guards.
    #[test]
    fn the_page_of_locks_lists_every_rank() {
        let page = include_str!("../../../docs/internals/locks.md");
        for (name, rank) in crate::rank::ALL.iter().filter(|(name, _)| *name != "LEAF") {
            assert!(
                page.contains(&format!("| {rank} | `{name}` |")),
                "{name} is not in docs/internals/locks.md"
            );
        }
    }
}
