//! Models of the event and the epoch cell:
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-sync --test loom --release`.
#![allow(unsafe_code, reason = "a model of a leaf crate")]
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tidesdb_sync::{EpochCell, Event, pin};

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
fn event_publishes_earlier_writes() {
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
