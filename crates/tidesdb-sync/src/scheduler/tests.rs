use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Outcome, Settings, Strategy, lock, now, point, run, run_together, sleep, spawn, yield_now};
use crate::{Backoff, Condvar, Event, Mutex, RwLock};

const WALK: Strategy = Strategy::Walk { one_in: 2 };
const STRATEGIES: [Strategy; 3] =
    [WALK, Strategy::Priorities { changes: 3 }, Strategy::Turns { preemptions: 3 }];

/// Settings under which only `strategy` and `seed` decide.
fn settings(strategy: Strategy, seed: u64) -> Settings {
    Settings {
        strategy,
        horizon: 15,
        steps_max: 100_000,
        step_nanos: 10,
        jump_one_in: 0,
        late_one_in: 0,
        stall_one_in: 0,
        ..Settings::drawn(seed)
    }
}

fn go(body: impl FnOnce() + Send + 'static) -> super::JoinHandle {
    spawn("helper", Box::new(body)).unwrap()
}

/// Runs `body` under many seeds of each strategy and returns what was found: by strategy, how many seeds failed.
fn failures<B: FnOnce() + Send + 'static>(body: impl Fn() -> B) -> [usize; 3] {
    STRATEGIES.map(|strategy| {
        let failed = |seed: &u64| {
            let outcome = run(settings(strategy, *seed), body());
            outcome.failure.is_some() || !outcome.panics.is_empty()
        };
        (0..60).filter(failed).count()
    })
}

/// Three threads add to a sum, with locks, conditions and sleeps.
fn busy() {
    let shared = Arc::new((Mutex::<u64>::new(0), Condvar::default(), Event::new()));
    let threads: Vec<_> = (1..=3)
        .map(|n| {
            let shared = Arc::clone(&shared);
            go(move || {
                for _ in 0..5 {
                    *shared.0.lock() += n;
                    sleep(Duration::from_micros(n));
                }
                shared.1.notify_all();
                shared.2.advance();
            })
        })
        .collect();
    let mut sum = shared.0.lock();
    while *sum < 30 {
        shared.1.wait(&mut sum);
    }
    drop(sum);
    assert!(threads.into_iter().all(super::JoinHandle::join));
}

#[test]
fn the_same_seed_makes_the_same_run() {
    let traced = |strategy, seed| {
        let outcome = run(Settings { trace: true, ..settings(strategy, seed) }, busy);
        assert_eq!((outcome.failure, outcome.panics), (None, vec![]));
        (outcome.hash, outcome.trace)
    };
    for strategy in STRATEGIES {
        let first = traced(strategy, 1);
        assert_eq!(first, traced(strategy, 1));
        assert!(first.1.len() > 50, "{:?}", first.1);
        assert!((2..9).any(|seed| traced(strategy, seed) != first), "{strategy:?}: all seeds are equal");
        let silent = run(settings(strategy, 1), busy);
        assert_eq!((silent.hash, silent.trace.len()), (first.0, 0), "a trace changes nothing");
    }
}

#[test]
fn a_deadlock_is_reported_with_what_each_thread_waits_for() {
    let deadly = || {
        || {
            // Without ranks, which would report the order before the deadlock.
            let locks = Arc::new((lock::Mutex::new(()), lock::Mutex::new(())));
            let other = Arc::clone(&locks);
            let thread = go(move || {
                let _second = other.1.lock();
                drop(other.0.lock());
            });
            let first = locks.0.lock();
            drop(locks.1.lock());
            drop(first);
            thread.join();
        }
    };
    let found = failures(deadly);
    assert!(found.iter().all(|n| *n > 0 && *n < 60), "{found:?}");
    let outcomes = (0..60).map(|seed| run(settings(WALK, seed), deadly()));
    let report = outcomes.filter_map(|outcome| outcome.failure).next().unwrap();
    for part in ["deadlock", "thread 0 main: waits in wait for lock for lock ", "helper: waits in"] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
}

/// The flag is read before the lock is taken, so a wake-up in between is lost.
#[test]
fn a_lost_wake_up_is_found() {
    let waits = |is_right: bool| {
        move || {
            let shared = Arc::new((AtomicBool::new(false), Mutex::<()>::default(), Condvar::default()));
            let other = Arc::clone(&shared);
            let thread = go(move || {
                other.0.store(true, Relaxed);
                let held = is_right.then(|| other.1.lock());
                other.2.notify_all();
                drop(held);
            });
            let mut held = is_right.then(|| shared.1.lock());
            while !shared.0.load(Relaxed) {
                shared.2.wait(held.get_or_insert_with(|| shared.1.lock()));
            }
            drop(held);
            thread.join();
        }
    };
    let found = failures(|| waits(false));
    assert!(found.iter().all(|n| *n > 0), "{found:?}");
    assert_eq!(failures(|| waits(true)), [0; 3]);
}

#[test]
fn a_race_is_found() {
    let counts = |is_right: bool| {
        move || {
            let sum = Arc::new(AtomicU64::new(0));
            let add = move |sum: &AtomicU64| {
                point("add");
                if is_right {
                    sum.fetch_add(1, Relaxed);
                } else {
                    let before = sum.load(Relaxed);
                    point("between");
                    sum.store(before + 1, Relaxed);
                }
            };
            let other = Arc::clone(&sum);
            let thread = go(move || add(&other));
            add(&sum);
            thread.join();
            assert_eq!(sum.load(Relaxed), 2);
        }
    };
    let found = failures(|| counts(false));
    assert!(found.iter().all(|n| *n > 0), "{found:?}");
    assert_eq!(failures(|| counts(true)), [0; 3]);
}

#[test]
fn time_is_virtual_and_passes_in_order() {
    for strategy in STRATEGIES {
        let woken: Arc<std::sync::Mutex<Vec<u64>>> = Arc::default();
        let seen = Arc::clone(&woken);
        let outcome = run(settings(strategy, 3), move || {
            let threads: Vec<_> = [30, 10, 20]
                .map(|hours| {
                    let seen = Arc::clone(&seen);
                    go(move || {
                        sleep(Duration::from_secs(hours * 3600));
                        assert!(now() >= Duration::from_secs(hours * 3600));
                        seen.lock().unwrap().push(hours);
                    })
                })
                .into();
            assert!(threads.into_iter().all(super::JoinHandle::join));
            let (lock, condition) = (Mutex::<()>::default(), Condvar::default());
            assert!(condition.wait_for(&mut lock.lock(), Duration::from_secs(3600)).timed_out());
        });
        assert_eq!((outcome.failure, outcome.panics), (None, vec![]));
        assert_eq!(*woken.lock().unwrap(), [10, 20, 30]);
        assert_eq!(outcome.time.as_secs() / 3600, 31);
    }
}

/// What a thread-local frees when its thread ends is part of the run.
#[test]
fn destructors_of_thread_locals_belong_to_the_run() {
    struct Frees(Arc<Mutex<u64>>);
    impl Drop for Frees {
        fn drop(&mut self) {
            for _ in 0..3 {
                *self.0.lock() += 1;
            }
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Frees>> = const { RefCell::new(None) };
    }
    let traced = |seed| -> Outcome {
        run(Settings { trace: true, ..settings(WALK, seed) }, || {
            let sum = Arc::new(Mutex::new(0));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let sum = Arc::clone(&sum);
                    go(move || KEPT.set(Some(Frees(sum))))
                })
                .collect();
            assert!(threads.into_iter().all(super::JoinHandle::join));
            assert_eq!(*sum.lock(), 9);
        })
    };
    for seed in 0..30 {
        let (first, second) = (traced(seed), traced(seed));
        assert_eq!((&first.failure, &first.panics), (&None, &vec![]));
        assert_eq!(first.trace, second.trace);
    }
}

#[test]
fn readers_share_a_lock_and_writers_do_not() {
    let outcome = run(settings(WALK, 9), || {
        let lock = Arc::new(RwLock::<(u64, u64)>::default());
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let lock = Arc::clone(&lock);
                go(move || {
                    for _ in 0..10 {
                        if n < 2 {
                            let mut held = lock.write();
                            held.0 += 1;
                            point("between");
                            held.1 += 1;
                        } else {
                            let held = lock.read();
                            let first = held.0;
                            point("between");
                            assert_eq!(first, held.1);
                        }
                    }
                })
            })
            .collect();
        assert!(threads.into_iter().all(super::JoinHandle::join));
        assert_eq!(*lock.read(), (20, 20));
    });
    assert_eq!((outcome.failure, outcome.panics), (None, vec![]));
}

#[test]
fn a_spin_lets_others_run_and_one_without_end_is_reported() {
    for strategy in STRATEGIES {
        let outcome = run(settings(strategy, 5), || {
            let flag = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&flag);
            let thread = go(move || {
                sleep(Duration::from_millis(1));
                other.store(true, Relaxed);
            });
            let mut backoff = Backoff::new();
            while !flag.load(Relaxed) {
                backoff.snooze();
            }
            thread.join();
        });
        assert_eq!((outcome.failure, outcome.panics), (None, vec![]));
        let outcome = run(settings(strategy, 5), || {
            loop {
                yield_now("for ever");
                point("in vain");
            }
        });
        assert!(outcome.failure.unwrap().contains("the run does not end: 100000 steps"));
    }
}

/// Threads that look now and then whether another one is done keep it from running for ever if they keep their priorities.
#[test]
fn threads_that_sleep_in_turn_let_another_one_run() {
    for seed in 0..40 {
        let coarse = Settings { step_nanos: 20_000, ..settings(Strategy::Priorities { changes: 0 }, seed) };
        let outcome = run(coarse, || {
            let done = Arc::new(AtomicBool::new(false));
            let looks = |done: &Arc<AtomicBool>| {
                let done = Arc::clone(done);
                go(move || {
                    while !done.load(Relaxed) {
                        (0..8).for_each(|_| point("looks"));
                        sleep(Duration::from_micros(50));
                    }
                })
            };
            let looking: Vec<_> = (0..4).map(|_| looks(&done)).collect();
            let works = go(move || {
                (0..100).for_each(|_| point("works"));
                done.store(true, Relaxed);
            });
            assert!(works.join() && looking.into_iter().all(super::JoinHandle::join));
        });
        assert_eq!((outcome.failure, outcome.panics), (None, vec![]), "seed {seed}");
    }
}

#[test]
fn a_panic_of_a_thread_is_reported_and_ends_that_thread_only() {
    let outcome = run(settings(WALK, 1), || {
        let lock = Arc::new(Mutex::<u64>::new(1));
        let other = Arc::clone(&lock);
        assert!(
            !go(move || {
                let _held = other.lock();
                panic!("under a lock");
            })
            .join()
        );
        assert_eq!(*lock.lock(), 1, "the lock is free");
    });
    assert_eq!((outcome.failure, outcome.panics), (None, vec!["helper: under a lock".to_owned()]));
}

#[test]
fn threads_run_together_and_the_caller_waits_for_all() {
    let outcome = run(settings(WALK, 1), || {
        let calls = Mutex::<Vec<usize>>::default();
        run_together("part", 3, &|n| {
            sleep(Duration::from_millis(n as u64));
            calls.lock().push(n);
        });
        assert_eq!(*calls.lock(), [0, 1, 2, 3]);
    });
    assert_eq!((outcome.failure, outcome.panics, outcome.threads), (None, vec![], 4));
}

#[test]
fn threads_outside_of_a_simulation_use_the_real_locks() {
    let lock = Arc::new(Mutex::<u64>::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(*lock.lock(), 4000);
}

/// Other threads make hundreds of steps between two steps of one.
#[test]
fn a_thread_stands_still_while_others_go_on() {
    let falls_behind = || {
        let done = Arc::new(AtomicU64::new(0));
        let others = Arc::clone(&done);
        let worker = go(move || {
            for _ in 0..4000 {
                point("work");
                others.fetch_add(1, Relaxed);
            }
        });
        let mut most = 0;
        for _ in 0..400 {
            let before = done.load(Relaxed);
            point("look");
            most = most.max(done.load(Relaxed) - before);
        }
        worker.join();
        assert!(most < 200, "{most} steps of another thread");
    };
    let fails = |stall_one_in, seed| {
        let settings =
            Settings { stall_one_in, stall_steps_max: 3000, step_nanos: 10, ..settings(WALK, seed) };
        let outcome = run(settings, falls_behind);
        assert_eq!(outcome.failure, None);
        !outcome.panics.is_empty()
    };
    assert!((0..20).all(|seed| !fails(0, seed)), "a walk that is fair");
    assert!((0..20).filter(|seed| fails(400, *seed)).count() > 5);
}
