//! Models of the slot protocol on one window of two slots:
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-cache --test loom --release`.
//!
//! The epoch is the model of `tidesdb-sync`: it frees once no pin is left. A value is freed by writing to a
//! loom cell, so loom reports any reader that is not ordered before that write. loom's reference counts report
//! leaks.
#![allow(unsafe_code, reason = "a model of a leaf crate")]
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tidesdb_cache::{Cache, CacheKey};

/// Room for two values of 10 bytes, but not for a second window.
const CAPACITY: u64 = 20;

/// Room for a second window once there are two values, and for more values than there are slots.
const GROWING: u64 = 120;

struct Value {
    file: UnsafeCell<u64>,
    alive: Arc<AtomicUsize>,
}

// SAFETY: loom checks every access.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new(file: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Value { file: UnsafeCell::new(file), alive: Arc::clone(alive) }
    }

    fn file(&self) -> u64 {
        // SAFETY: loom checks that no writer runs at the same time.
        self.file.with(|file| unsafe { *file })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: as above.
        self.file.with_mut(|file| unsafe { *file = u64::MAX });
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

fn key(file: u64) -> CacheKey {
    CacheKey { file, database: 0, block: 0, part: 0 }
}

/// Size of a window in bytes.
const WINDOW: u64 = 40;

type Shared = (Arc<Cache<Value>>, Arc<AtomicUsize>);

/// Runs two threads on a full cache prepared by `before`, then checks that all charges and values are returned.
fn model(before: fn(&Shared), one: fn(&Shared), two: fn(&Shared), after: fn(&Shared)) {
    model_of((CAPACITY, usize::MAX), before, one, two, after);
}

/// Like `model`, with another capacity and a limit on preemptions.
fn model_of(
    (capacity, preemptions): (u64, usize),
    before: fn(&Shared),
    one: fn(&Shared),
    two: fn(&Shared),
    after: fn(&Shared),
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.min(preemptions));
    builder.max_branches = 10_000;
    builder.check(move || {
        let shared: Shared = (Arc::new(Cache::new(capacity)), Arc::new(AtomicUsize::new(0)));
        before(&shared);
        let theirs = shared.clone();
        let other = thread::spawn(move || one(&theirs));
        two(&shared);
        other.join().expect("the other thread passed");
        after(&shared);
        let (cache, alive) = shared;
        let stats = cache.stats();
        assert_eq!((stats.used_bytes - 10 * stats.entries) % WINDOW, 0);
        assert!(stats.used_bytes <= capacity);
        assert!(capacity > CAPACITY || stats.used_bytes == 10 * stats.entries);
        assert_eq!(cache.stats().live_bytes, 10 * alive.load(Ordering::Relaxed) as u64);
        drop(cache);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "a value leaked");
    });
}

fn insert((cache, alive): &Shared, file: u64) {
    let handle = cache.insert(key(file), Value::new(file, alive), 10);
    assert_eq!(handle.file(), file);
}

fn read((cache, _): &Shared, file: u64) {
    let guard = tidesdb_sync::pin();
    if let Some(value) = cache.get_pinned(key(file), &guard) {
        assert_eq!(value.file(), file);
        assert_eq!(value.file(), file);
    }
}

fn hold((cache, _): &Shared, file: u64) {
    if let Some(handle) = cache.get(key(file)) {
        assert_eq!(handle.file(), file);
    }
}

#[test]
fn a_reader_sees_a_whole_value_or_none() {
    model(|_| {}, |shared| insert(shared, 1), |shared| read(shared, 1), |_| {});
}

#[test]
fn one_key_inserted_twice_is_cached_once() {
    model(
        |_| {},
        |shared| insert(shared, 1),
        |shared| insert(shared, 1),
        |shared| {
            assert_eq!((shared.0.stats().entries, shared.0.stats().used_bytes), (1, 10));
        },
    );
}

#[test]
fn one_key_inserted_into_different_slots_is_cached_once() {
    // One inserter finds the first slot of the window taken; the other one has just freed it.
    for taken in 2..6 {
        loom::model(move || {
            let shared: Shared = (Arc::new(Cache::new(CAPACITY)), Arc::new(AtomicUsize::new(0)));
            insert(&shared, taken);
            let theirs = shared.clone();
            let other = thread::spawn(move || insert(&theirs, 1));
            shared.0.erase(key(taken));
            insert(&shared, 1);
            other.join().expect("the other thread passed");
            assert_eq!((shared.0.stats().entries, shared.0.stats().used_bytes), (1, 10));
        });
    }
}

#[test]
fn a_pinned_reader_outlives_an_eviction() {
    model(
        |shared| (1..=2).for_each(|file| insert(shared, file)),
        |shared| insert(shared, 3),
        |shared| read(shared, 1),
        |shared| assert_eq!(shared.0.stats().entries, 2),
    );
}

#[test]
fn a_handle_taken_during_an_erase_is_valid() {
    model(
        |shared| insert(shared, 1),
        |shared| shared.0.erase(key(1)),
        |shared| hold(shared, 1),
        |shared| assert_eq!((shared.0.stats().entries, shared.0.stats().used_bytes), (0, 0)),
    );
}

#[test]
fn a_handle_taken_during_an_eviction_is_valid() {
    model(
        |shared| (1..=2).for_each(|file| insert(shared, file)),
        |shared| insert(shared, 3),
        |shared| hold(shared, 1),
        |_| {},
    );
}

#[test]
fn two_evictors_take_an_entry_once() {
    model(
        |shared| (1..=2).for_each(|file| insert(shared, file)),
        |shared| insert(shared, 3),
        |shared| insert(shared, 4),
        |_| {},
    );
}

#[test]
fn an_entry_inserted_while_the_table_grows_is_found_once() {
    // For both possible windows of the second key; the first insert grows the table meanwhile.
    for file in 3..5 {
        loom::model(move || {
            let shared: Shared = (Arc::new(Cache::new(GROWING)), Arc::new(AtomicUsize::new(0)));
            insert(&shared, 1);
            let theirs = shared.clone();
            let other = thread::spawn(move || insert(&theirs, 2));
            insert(&shared, file);
            other.join().expect("the other thread passed");
            let cache = &shared.0;
            let found = [1, 2, file].iter().filter(|file| cache.contains(key(**file))).count() as u64;
            assert_eq!(cache.stats().entries, found, "an entry is in the wrong window, or twice");
        });
    }
}

#[test]
fn a_reader_of_a_window_that_is_split_sees_a_whole_value_or_none() {
    model_of(
        (GROWING, usize::MAX),
        |shared| insert(shared, 1),
        |shared| insert(shared, 2),
        |shared| read(shared, 1),
        |shared| {
            read(shared, 1);
            assert!(shared.0.contains(key(2)));
        },
    );
}

#[test]
fn an_entry_that_is_erased_while_the_table_grows_is_gone() {
    model_of(
        (GROWING, usize::MAX),
        |shared| insert(shared, 1),
        |shared| insert(shared, 2),
        |shared| shared.0.erase(key(1)),
        |shared| assert!(!shared.0.contains(key(1))),
    );
}

#[test]
fn a_shrink_during_an_insert_loses_no_charge() {
    // Two preemptions among the many steps of a shrink would take hours to explore.
    model_of(
        (GROWING, 1),
        |shared| (1..=2).for_each(|file| insert(shared, file)),
        |shared| insert(shared, 3),
        |shared| shared.0.set_capacity(CAPACITY),
        |_| {},
    );
}
