//! Models of the event, the epoch cell and the biased lock:
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-sync --test loom --release`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tidesdb_sync::{BiasedLock, EpochCell, Event, pin};

#[test]
fn event_loses_no_wake_up() {
    loom::model(|| {
        let shared = Arc::new((AtomicUsize::new(0), Event::new()));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    loop {
                        let seen = shared.1.current();
                        if shared.0.load(Ordering::Acquire) == 1 {
                            break;
                        }
                        shared.1.wait_while(seen, None);
                    }
                })
            })
            .collect();
        shared.0.store(1, Ordering::Release);
        shared.1.advance();
        waiters.into_iter().for_each(|waiter| waiter.join().expect("the waiter passed"));
    });
}

#[test]
fn event_publishes_what_was_written_before() {
    loom::model(|| {
        let shared = Arc::new((AtomicUsize::new(0), Event::new()));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            other.0.store(1, Ordering::Relaxed);
            other.1.advance();
        });
        shared.1.wait_while(0, None);
        assert_eq!(shared.0.load(Ordering::Relaxed), 1);
        writer.join().expect("the writer passed");
    });
}

/// loom reports a read that races with the write of the destructor.
struct Tracked(UnsafeCell<u64>);

impl Tracked {
    fn new(value: u64) -> Self {
        Tracked(UnsafeCell::new(value))
    }

    fn get(&self) -> u64 {
        // SAFETY: loom checks that no writer runs at the same time.
        self.0.with(|value| unsafe { *value })
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value = u64::MAX });
    }
}

// SAFETY: loom checks every access.
unsafe impl Sync for Tracked {}

#[test]
fn cell_readers_see_whole_values_that_outlive_their_pin() {
    loom::model(|| {
        let cell = Arc::new(EpochCell::new(Tracked::new(1)));
        let other = Arc::clone(&cell);
        let writer = thread::spawn(move || other.store(Tracked::new(2)));
        let guard = pin();
        let (first, again) = (cell.load(&guard), cell.load(&guard));
        assert!(first.get() <= again.get() && again.get() <= 2);
        drop(guard);
        writer.join().expect("the writer passed");
        assert_eq!(cell.load(&pin()).get(), 2);
    });
}

/// A number behind a biased lock; loom reports two that hold it at once.
struct Guarded {
    lock: BiasedLock,
    number: UnsafeCell<u64>,
}

// SAFETY: the number is reached under the lock only, which is what the models check.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Adds one, if it gets the lock.
    fn try_add(&self) -> u64 {
        let Some(_held) = self.lock.try_lock() else { return 0 };
        // SAFETY: the lock is held.
        self.number.with_mut(|number| unsafe { *number += 1 });
        1
    }

    /// Biased to the calling thread, which has come twice.
    fn biased() -> Arc<Self> {
        let this = Self { lock: BiasedLock::new(), number: UnsafeCell::new(0) };
        assert_eq!(this.try_add() + this.try_add(), 2);
        Arc::new(this)
    }

    fn number(&self) -> u64 {
        let _held = self.lock.try_lock().expect("nobody else is left");
        // SAFETY: the lock is held.
        self.number.with(|number| unsafe { *number })
    }
}

#[test]
fn the_owner_of_a_biased_lock_and_a_revoker_exclude_each_other() {
    loom::model(|| {
        let shared = Guarded::biased();
        let other = Arc::clone(&shared);
        let revoker = thread::spawn(move || other.try_add() + other.try_add());
        let added = shared.try_add() + shared.try_add();
        let added = added + revoker.join().expect("the revoker passed");
        assert_eq!(shared.number(), 2 + added);
    });
}

#[test]
fn two_revokers_of_a_biased_lock_exclude_each_other() {
    loom::model(|| {
        let shared = Guarded::biased();
        let revokers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.try_add())
            })
            .collect();
        let added = shared.try_add();
        let added = added + revokers.into_iter().map(|r| r.join().expect("it passed")).sum::<u64>();
        assert_eq!(shared.number(), 2 + added);
    });
}

#[test]
fn a_bias_that_moves_takes_everything_with_it() {
    loom::model(|| {
        let shared = Guarded::biased();
        let other = Arc::clone(&shared);
        // Long enough to become the owner itself.
        let taker = thread::spawn(move || (0..3).map(|_| other.try_add()).sum::<u64>());
        let added = shared.try_add();
        let added = added + taker.join().expect("the taker passed");
        assert_eq!(shared.number(), 2 + added);
    });
}
