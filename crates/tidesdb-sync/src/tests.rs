//! Unit and stress tests of the primitives. Drop counters replace a leak checker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// Runs `reclaim` until `done`, for a generous number of rounds, because pins of other tests may delay the
/// epoch.
fn reclaim_until(done: impl Fn() -> bool) -> bool {
    for _ in 0..100_000 {
        if done() {
            return true;
        }
        reclaim();
        std::thread::yield_now();
    }
    done()
}

struct Counted {
    value: u64,
    check: u64,
    drops: Arc<AtomicU64>,
}

impl Counted {
    fn new(value: u64, drops: &Arc<AtomicU64>) -> Self {
        Counted { value, check: !value, drops: Arc::clone(drops) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.check, !self.value, "dropped twice or torn");
        self.check = 0;
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn cell_shows_the_last_store_and_drops_each_value_once() {
    let drops = Arc::new(AtomicU64::new(0));
    let cell = EpochCell::new(Counted::new(0, &drops));
    for value in 1..=100 {
        cell.store(Counted::new(value, &drops));
        assert_eq!(cell.load(&pin()).value, value);
    }
    drop(cell);
    assert!(reclaim_until(|| drops.load(Ordering::Relaxed) == 101));
}

#[test]
fn cell_keeps_a_replaced_value_while_a_pin_from_before_lives() {
    let drops = Arc::new(AtomicU64::new(0));
    let cell = EpochCell::new(Counted::new(7, &drops));
    let guard = pin();
    let seen = cell.load(&guard);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cell.store(Counted::new(8, &drops));
            (0..50).for_each(|_| reclaim());
        });
    });
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    assert_eq!((seen.value, seen.check), (7, !7));
    drop(guard);
    assert!(reclaim_until(|| drops.load(Ordering::Relaxed) == 1));
}

#[test]
fn cell_drop_is_immediate() {
    let drops = Arc::new(AtomicU64::new(0));
    drop(EpochCell::new(Counted::new(1, &drops)));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn cell_under_stress_frees_all_and_tears_nothing() {
    const STORES: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let drops = Arc::new(AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let cell = EpochCell::new(Counted::new(0, &drops));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let guard = pin();
                    let seen = cell.load(&guard);
                    assert_eq!(seen.check, !seen.value);
                    assert!(seen.value >= last, "went back from {last} to {}", seen.value);
                    last = seen.value;
                }
            });
        }
        for value in 1..=STORES {
            cell.store(Counted::new(value, &drops));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(cell);
    assert!(reclaim_until(|| drops.load(Ordering::Relaxed) == STORES + 1));
}

#[test]
fn garbage_does_not_pile_up_while_pins_are_short() {
    let drops = Arc::new(AtomicU64::new(0));
    let cell = EpochCell::new(Counted::new(0, &drops));
    let mut stored = 0;
    let settled = (0..100_000).any(|_| {
        for _ in 0..100 {
            stored += 1;
            cell.store(Counted::new(stored, &drops));
        }
        std::thread::yield_now();
        stored - drops.load(Ordering::Relaxed) < 100
    });
    assert!(settled, "{} of {stored} values freed", drops.load(Ordering::Relaxed));
}

#[test]
fn counters_sum_over_threads_and_cancel_out() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 10_000 };
    let counters = ShardedCounters::<3>::new();
    let single = ShardedCounter::new();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    counters.add(0, 1);
                    counters.add(1, 5);
                    counters.sub(1, 3);
                    single.add(2);
                }
            });
        }
    });
    counters.sub(2, 9);
    counters.add(2, 10);
    assert_eq!([0, 1, 2].map(|which| counters.sum(which)), [40 * ROUNDS, 80 * ROUNDS, 1]);
    assert_eq!(single.sum(), 80 * ROUNDS);
    single.sub(80 * ROUNDS);
    assert_eq!(single.sum(), 0);
}

#[test]
fn thread_index_is_stable_and_distinct() {
    let mine = thread_index();
    assert_eq!(mine, thread_index());
    let other = std::thread::scope(|scope| scope.spawn(thread_index).join().unwrap());
    assert_ne!(mine, other);
}

#[test]
fn event_does_not_sleep_on_an_old_epoch() {
    let event = Event::new();
    let seen = event.current();
    event.advance();
    assert!(event.wait_while(seen, None));
    assert_eq!(event.current(), seen.wrapping_add(1));
}

#[test]
fn event_times_out_without_a_signal() {
    let event = Event::new();
    assert!(!event.wait_while(event.current(), Some(Duration::from_millis(5))));
    event.advance();
    assert_eq!(event.current(), 1, "the waiter count overflowed into the epoch");
}

#[test]
fn event_hands_a_token_back_and_forth_without_losing_a_wake_up() {
    const TURNS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let (turn, event) = (AtomicUsize::new(0), Event::new());
    let play = |parity: usize| {
        for mine in (parity..TURNS).step_by(2) {
            loop {
                let seen = event.current();
                if turn.load(Ordering::Acquire) == mine {
                    break;
                }
                event.wait_while(seen, None);
            }
            turn.store(mine + 1, Ordering::Release);
            event.advance();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    assert_eq!(turn.load(Ordering::Relaxed), TURNS);
}

#[test]
fn backoff_spins_a_bounded_while() {
    let mut backoff = Backoff::new();
    let rounds = (0..1000).take_while(|_| {
        backoff.snooze();
        !backoff.is_exhausted()
    });
    assert!(rounds.count() < 10);
}

#[test]
fn a_deferred_call_is_known_as_one() {
    let (ran, known) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (done, inside) = (Arc::clone(&ran), Arc::clone(&known));
    pin().defer(move || {
        inside.store(in_deferred_call(), Ordering::SeqCst);
        done.store(true, Ordering::SeqCst);
    });
    assert!(reclaim_until(|| ran.load(Ordering::SeqCst)));
    assert!(known.load(Ordering::SeqCst) && !in_deferred_call());
}

/// What a thread defers once waited in a buffer of that thread until it made more calls.
#[test]
fn an_idle_thread_keeps_nothing_that_it_deferred() {
    let drops = Arc::new(AtomicU64::new(0));
    let cell = EpochCell::new(Counted::new(0, &drops));
    let (deferred, is_deferred) = std::sync::mpsc::channel();
    let (end, is_end) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (cell, drops) = (&cell, &drops);
        scope.spawn(move || {
            cell.store_lazily(Counted::new(1, drops));
            let also = Counted::new(2, drops);
            pin().defer(move || drop(also));
            deferred.send(()).unwrap();
            let _ = is_end.recv(); // idle, but alive
        });
        is_deferred.recv().unwrap();
        assert!(reclaim_until(|| drops.load(Ordering::Relaxed) == 2));
        drop(end);
    });
}

/// A call once freed at most 64 values that had each been stored, however many waited.
#[test]
fn reclaiming_goes_on_until_nothing_is_left() {
    const VALUES: u64 = if cfg!(miri) { 300 } else { 50_000 };
    const CALLS: u64 = if cfg!(miri) { 1000 } else { VALUES / 100 };
    let drops = Arc::new(AtomicU64::new(0));
    let cell = EpochCell::new(Counted::new(0, &drops));
    let guard = pin();
    for value in 1..=VALUES {
        cell.store(Counted::new(value, &drops));
    }
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(guard);
    // Most calls are delayed by pins of other tests.
    let all_dropped = (0..CALLS).any(|_| {
        reclaim();
        std::thread::sleep(Duration::from_millis(1));
        drops.load(Ordering::Relaxed) == VALUES
    });
    assert!(all_dropped, "{} of {VALUES} values freed", drops.load(Ordering::Relaxed));
}

#[test]
fn what_an_idle_thread_keeps_is_freed() {
    thread_local! {
        static KEPT: Kept<Counted> = Kept::new();
    }
    let drops = Arc::new(AtomicU64::new(0));
    let dropped = |n| (drops.load(Ordering::Relaxed) == n).then_some(());
    let (kept, is_kept) = std::sync::mpsc::channel();
    let (end, is_end) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let counted = Counted::new(1, &drops);
        scope.spawn(move || {
            Kept::put(&KEPT, Box::new(counted));
            kept.send(()).unwrap();
            let _ = is_end.recv(); // idle, but alive
        });
        is_kept.recv().unwrap();
        let past = |seconds| release_idle(Duration::from_secs(seconds));
        [10, 11].into_iter().for_each(past);
        dropped(1).expect("it was not used since the last call");
        Kept::put(&KEPT, Box::new(Counted::new(2, &drops)));
        // Another test may free it first.
        assert!(Kept::take(&KEPT).is_none_or(|value| value.value == 2));
        Kept::put(&KEPT, Box::new(Counted::new(3, &drops)));
        release_kept();
        dropped(3).expect("all that is kept and not in use");
        assert!(Kept::take(&KEPT).is_none());
        drop(end);
    });
    let counted = Counted::new(4, &drops);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || Kept::put(&KEPT, Box::new(counted)));
        thread.join().unwrap(); // its places are gone, too
    });
    dropped(4).expect("its thread ended");
}

#[test]
fn kept_values_are_freed_once_while_threads_use_them() {
    thread_local! {
        static KEPT: Kept<Counted> = Kept::new();
    }
    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 50_000 };
    let (made, drops) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                release_kept();
            }
        });
        let users: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let value = Kept::take(&KEPT).unwrap_or_else(|| {
                            made.fetch_add(1, Ordering::Relaxed);
                            Box::new(Counted::new(5, &drops))
                        });
                        assert_eq!(value.check, !5);
                        Kept::put(&KEPT, value);
                    }
                })
            })
            .collect();
        users.into_iter().for_each(|user| user.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    release_kept();
    assert_eq!(drops.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
}
