//! The atomics and locks of this crate's own protocols: the standard ones, or loom's in a model.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A lock with a condition variable, reduced to what [`Event`](crate::Event) needs.
#[cfg(not(loom))]
#[derive(Default)]
pub(crate) struct Gate {
    lock: crate::raw::Mutex<()>,
    cond: crate::raw::Condvar,
}

#[cfg(not(loom))]
impl Gate {
    /// Sleeps until `done()` is true. A timed wait sleeps only once and may return early. `done` runs under the
    /// lock.
    pub(crate) fn wait(&self, timeout: Option<std::time::Duration>, mut done: impl FnMut() -> bool) {
        let mut held = self.lock.lock();
        while !done() {
            match timeout {
                None => self.cond.wait(&mut held),
                Some(limit) => {
                    self.cond.wait_for(&mut held, limit);
                    return;
                }
            }
        }
    }

    /// Wakes every sleeper. Taking the lock first ensures that a waiter which has decided to sleep is asleep.
    pub(crate) fn wake_all(&self) {
        drop(self.lock.lock());
        self.cond.notify_all();
    }
}

#[cfg(loom)]
#[derive(Default)]
pub(crate) struct Gate {
    lock: loom::sync::Mutex<()>,
    cond: loom::sync::Condvar,
}

#[cfg(loom)]
impl Gate {
    /// Like the real one, but loom has no clock, so a timed wait never times out.
    pub(crate) fn wait(&self, _timeout: Option<std::time::Duration>, mut done: impl FnMut() -> bool) {
        let mut held = self.lock.lock().expect("no model panics under the lock");
        while !done() {
            held = self.cond.wait(held).expect("no model panics under the lock");
        }
    }

    pub(crate) fn wake_all(&self) {
        drop(self.lock.lock().expect("no model panics under the lock"));
        self.cond.notify_all();
    }
}
