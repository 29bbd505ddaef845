//! Tests of the list of read timestamps in use.

use std::sync::Arc;

use super::*;

fn all() -> Arc<Snapshots> {
    Arc::default()
}

#[test]
fn readers_are_the_live_snapshots_and_the_current_timestamp() {
    let all = all();
    assert_eq!(all.readers(|| 7), [7]);
    let pins = [5, 3, 9].map(|seq| all.register(|| seq));
    assert_eq!(all.readers(|| 12), [3, 5, 9, 12]);
    drop(pins);
    assert_eq!(all.readers(|| 12), [12]);
}

#[test]
fn a_snapshot_at_the_current_timestamp_is_listed_once() {
    let all = all();
    let _pin = all.register(|| 4);
    assert_eq!(all.readers(|| 4), [4]);
}

#[test]
fn a_timestamp_is_listed_until_its_last_pin_is_dropped() {
    let all = all();
    let a = all.register(|| 4);
    let b = all.register(|| 4);
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
                    let pin = all.register(load);
                    let readers = all.readers(load);
                    assert!(readers.contains(&pin.seq()), "a live snapshot is missing in the list");
                    assert!(readers.is_sorted());
                }
            });
        }
    });
    assert_eq!(all.count(), 0);
}
