//! Tests of the list of read timestamps in use.

use std::sync::Arc;

use super::*;
use crate::types::ReadPoint;

fn all() -> Arc<Snapshots> {
    Arc::default()
}

#[test]
fn readers_are_the_live_snapshots_and_the_current_timestamp() {
    let all = all();
    assert_eq!(all.readers(|| 7), [7]);
    let pins = [5, 3, 9].map(|seq| all.register(0, || seq));
    assert_eq!(all.readers(|| 12), [3, 5, 9, 12]);
    drop(pins);
    assert_eq!(all.readers(|| 12), [12]);
}

#[test]
fn a_snapshot_at_the_current_timestamp_is_listed_once() {
    let all = all();
    let _pin = all.register(0, || 4);
    assert_eq!(all.readers(|| 4), [4]);
}

#[test]
fn a_timestamp_is_listed_until_its_last_pin_is_dropped() {
    let all = all();
    let a = all.register(0, || 4);
    let b = all.register(0, || 4);
    let c = b.clone();
    assert_eq!((all.count(), c.seq()), (3, 4));
    drop(a);
    drop(b);
    assert_eq!(all.readers(|| 9), [4, 9]);
    drop(c);
    assert_eq!((all.count(), all.readers(|| 9)), (0, vec![9]));
}

/// A snapshot that is registered while a compaction lists the readers is either in the list or newer than the list.
#[test]
fn concurrent_registrations_are_never_missed() {
    let all = all();
    let now = std::sync::atomic::AtomicU64::new(1);
    let load = || now.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..20_000 {
                    now.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let pin = all.register(0, load);
                    let readers = all.readers(load);
                    assert!(readers.contains(&pin.seq()), "a live snapshot is missing in the list");
                    assert!(readers.is_sorted());
                }
            });
        }
    });
    assert_eq!(all.count(), 0);
}

#[test]
fn any_number_of_cursors_is_listed_until_each_is_released() {
    let all = all();
    let places: Vec<_> = (1..=1000).map(|seq| all.register_cursor(seq, || seq).0).collect();
    let snapshot = all.register(0, || 500);
    assert_eq!(all.readers(|| 2000), (1..=1000).chain([2000]).collect::<Vec<_>>());
    assert_eq!((all.cursors(), all.newest(), all.count()), ((1000, Some(1)), Some(1000), 1));
    places.iter().step_by(2).for_each(|place| all.release_cursor(place));
    assert_eq!(all.readers(|| 11), [2, 4, 6, 8, 10, 11]);
    assert_eq!((all.cursors(), all.newest()), ((500, Some(2)), Some(1000)));
    places.iter().skip(1).step_by(2).for_each(|place| all.release_cursor(place));
    assert_eq!((all.readers(|| 2000), all.cursors()), (vec![500, 2000], (0, None)));
    drop(snapshot);
}

#[test]
fn a_cursor_below_the_floor_of_a_merge_takes_a_newer_number() {
    let all = all();
    all.readers(|| 7);
    let numbers = std::cell::RefCell::new(vec![9, 6, 5]);
    let (place, seq) = all.register_cursor(0, || numbers.borrow_mut().pop().unwrap());
    assert_eq!((seq, all.readers(|| 20)), (9, vec![9, 20]));
    all.release_cursor(&place);
}

#[test]
fn what_a_transaction_saw_stays_for_its_cursors() {
    let all = all();
    let oldest = || all.oldest_validating();
    let transaction = all.register_validating(|| ReadPoint { seq: 4, now: 100 });
    assert_eq!(oldest(), (Some(4), Some(100)));
    let time = transaction.keep_time();
    assert!(time.is_some() && all.register(0, || 4).keep_time().is_none());
    drop(transaction);
    assert_eq!((oldest(), all.count()), ((None, Some(100)), 0), "its conflicts no longer matter");
    drop(time);
    assert_eq!((oldest(), all.readers(|| 9)), ((None, None), vec![9]));
}

/// Each list of readers was made before a cursor stored its number, and has a floor at or below it, or contains it.
#[test]
fn concurrent_cursors_are_never_missed() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    let (all, now, ended) = (all(), AtomicU64::new(1), AtomicBool::new(false));
    let newest = std::sync::Mutex::new(vec![0]);
    let load = || now.load(SeqCst);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !ended.load(SeqCst) {
                now.fetch_add(1, SeqCst);
                let list = all.readers(load);
                *newest.lock().unwrap() = list;
            }
        });
        let cursors = |_| {
            s.spawn(|| {
                for _ in 0..2_000 {
                    let (place, seq) = all.register_cursor(0, load);
                    for _ in 0..2 {
                        let list = newest.lock().unwrap().clone();
                        assert!(list.last() <= Some(&seq) || list.contains(&seq), "{seq} is not in {list:?}");
                        std::thread::yield_now();
                    }
                    all.release_cursor(&place);
                }
            })
        };
        let cursors: [_; 2] = std::array::from_fn(cursors);
        cursors.into_iter().for_each(|thread| thread.join().unwrap());
        ended.store(true, SeqCst);
    });
    assert_eq!(all.cursors().0, 0);
}
