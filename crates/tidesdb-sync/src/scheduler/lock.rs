//! Locks and conditions with the methods of `parking_lot` that the crates use. In a simulation they wait through the scheduler.
//!
//! A lock of the real kind holds the state. A simulated thread only tries to take it, so it never waits for real, and tells the scheduler
//! when it is free again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::state::{Place, Wait};
use super::{Me, Number, me, nanos};

/// Wakes those that wait for a lock once it is free: dropped after the guard of the real lock.
struct Released<'a>(&'a Number);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        if let Some(me) = me() {
            free(me, self.0.get(me));
            me.point(&Place { what: "unlock", number: self.0.get(me), name: "" });
        }
    }
}

fn free(me: Me, number: u64) {
    me.wake(Wait::Read(number), true);
    me.wake(Wait::Write(number), true);
}

/// Takes a lock by `take`; until that succeeds, waits for it as a reader or writer.
fn acquire<G>(
    number: &Number,
    writes: bool,
    mut take: impl FnMut(Me, u64) -> Option<G>,
    real: impl FnOnce() -> G,
) -> G {
    let Some(me) = me() else { return real() };
    let number = number.get(me);
    me.point(&Place { what: if writes { "lock" } else { "read lock" }, number, name: "" });
    loop {
        if let Some(guard) = take(me, number) {
            return guard;
        }
        let wait = if writes { Wait::Write(number) } else { Wait::Read(number) };
        me.block(wait, "", None);
    }
}

/// A lock for one thread at a time.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    number: Number,
    real: parking_lot::Mutex<T>,
}

/// Holds a [`Mutex`].
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    real: parking_lot::MutexGuard<'a, T>,
    released: Released<'a>,
}

impl<T> Mutex<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { number: Number::new(), real: parking_lot::Mutex::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.real.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let real = acquire(&self.number, true, |_, _| self.real.try_lock(), || self.real.lock());
        MutexGuard { real, released: Released(&self.number) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        super::point("try lock");
        let real = self.real.try_lock()?;
        Some(MutexGuard { real, released: Released(&self.number) })
    }

    /// Returns the value.
    pub fn get_mut(&mut self) -> &mut T {
        self.real.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.real
    }
}

/// A lock for many readers or one writer. As with the real one, a reader waits behind a writer that waits.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    number: Number,
    real: parking_lot::RwLock<T>,
}

/// Holds an [`RwLock`] for reading.
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    real: parking_lot::RwLockReadGuard<'a, T>,
    _released: Released<'a>,
}

/// Holds an [`RwLock`] for writing.
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    real: parking_lot::RwLockWriteGuard<'a, T>,
    _released: Released<'a>,
}

impl<T> RwLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { number: Number::new(), real: parking_lot::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let take = |me: Me, number| {
            let writer_waits = me.world.state().is_waited_for(Wait::Write(number));
            if writer_waits { None } else { self.real.try_read() }
        };
        let real = acquire(&self.number, false, take, || self.real.read());
        RwLockReadGuard { real, _released: Released(&self.number) }
    }

    /// Waits until no thread holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let real = acquire(&self.number, true, |_, _| self.real.try_write(), || self.real.write());
        RwLockWriteGuard { real, _released: Released(&self.number) }
    }

    /// Returns the value.
    pub fn get_mut(&mut self) -> &mut T {
        self.real.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.real
    }
}

/// The result of a wait with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if the time was over before a wake-up.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition variable for use with a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    number: Number,
    real: parking_lot::Condvar,
}

impl Condvar {
    /// Releases the lock and sleeps until woken.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match me() {
            None => self.real.wait(&mut guard.real),
            Some(me) => {
                self.wait_simulated(me, guard, None);
            }
        }
    }

    /// As [`Condvar::wait`], at most for `limit`.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        match me() {
            None => WaitTimeoutResult(self.real.wait_for(&mut guard.real, limit).timed_out()),
            Some(me) => WaitTimeoutResult(!self.wait_simulated(me, guard, Some(nanos(limit)))),
        }
    }

    /// Returns true if the thread was woken. No switch lies between the unlock and the begin of the wait.
    fn wait_simulated<T: ?Sized>(&self, me: Me, guard: &mut MutexGuard<'_, T>, limit: Option<u64>) -> bool {
        let (lock, number) = (guard.released.0.get(me), self.number.get(me));
        let mutex = parking_lot::MutexGuard::mutex(&guard.real);
        parking_lot::MutexGuard::unlocked(&mut guard.real, || {
            free(me, lock);
            let woken = me.block(Wait::Condition(number), "", limit);
            while mutex.is_locked() {
                me.block(Wait::Write(lock), "", None);
            }
            woken
        })
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.notify(true);
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.notify(false);
    }

    fn notify(&self, all: bool) {
        let Some(me) = me() else {
            let _woken = if all { self.real.notify_all() } else { usize::from(self.real.notify_one()) };
            return;
        };
        let number = self.number.get(me);
        me.point(&Place { what: "notify", number, name: "" });
        me.wake(Wait::Condition(number), all);
    }
}
