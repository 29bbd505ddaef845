//! Threads that help one caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidesdb_sync::Mutex;

use super::super::Lane;
use super::*;
use crate::Error;

#[test]
fn results_come_in_the_order_of_the_parts() {
    let (env, _) = world();
    let logs = set(&env, 1, 1 << 20).helped(Arc::clone(&env.threads));
    for parts in [0, 1, 10, 1000] {
        let square = |_, n: usize| {
            std::thread::sleep(Duration::from_millis(20 * u64::from(n == 0))); // helpers overtake the first part
            Ok(n * n)
        };
        let squares = logs.in_parallel(0..parts, square).unwrap();
        assert!(squares.into_iter().eq((0..parts).map(|n| n * n)), "{parts}");
    }
}

#[test]
fn no_part_begins_after_a_failed_one() {
    let (env, _) = world();
    let logs = set(&env, 1, 1 << 20);
    let begun = Mutex::<_>::new(Vec::new());
    let fail_at = |_, n: usize| {
        begun.lock().push(n);
        if n < 3 { Ok(()) } else { Err(Error::Closed) }
    };
    assert!(matches!(logs.in_parallel(0..10, fail_at), Err(Error::Closed)));
    assert_eq!(*begun.lock(), [0, 1, 2, 3]);
}

#[test]
fn one_caller_at_a_time_has_helpers() {
    let (env, _) = world();
    let logs = set(&env, 1, 1 << 20).helped(Arc::clone(&env.threads));
    let alone = |lane: Lane, _: usize| {
        std::thread::sleep(Duration::from_millis(1)); // long enough for a helper to start
        if lane == Lane::Main { Ok(()) } else { Err(Error::Closed) }
    };
    let nested = |_, _: usize| logs.in_parallel(0..10, alone).map(drop);
    logs.in_parallel(0..10, nested).unwrap();
    assert!(!logs.is_helped.load(Ordering::Relaxed), "the next caller has helpers");
}

#[test]
fn a_panic_leaves_the_helpers_to_the_next_caller() {
    let (env, _) = world();
    let logs = set(&env, 1, 1 << 20).helped(Arc::clone(&env.threads));
    let panics = |_, _: usize| -> crate::Result<()> { panic!("a part panics") };
    let caught = catch_unwind(AssertUnwindSafe(|| logs.in_parallel(0..10, panics)));
    assert!(caught.is_err());
    assert!(!logs.is_helped.load(Ordering::Relaxed), "the next caller has helpers");
}
