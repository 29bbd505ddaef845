//! Models of the slot protocol on one window of two slots:
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-cache --test loom --release`.
//!
//! The epoch is the model of `tidesdb-sync`: it frees once no pin is left. A value is freed by writing to a loom
//! cell, so loom reports any reader that it is not ordered after; loom's reference counts report leaks.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tidesdb_cache::{Cache, CacheKey};

/// Bytes of the slot array.
const ARRAY: u64 = 16;

/// Room for two values of 10 bytes.
const CAPACITY: u64 = ARRAY + 20;

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
    CacheKey { file, block: 0, part: 0 }
}

type Shared = (Arc<Cache<Value>>, Arc<AtomicUsize>);

/// Runs two threads on a cache prepared by `before`, then checks that all books are closed.
fn model(before: fn(&Shared), one: fn(&Shared), two: fn(&Shared), after: fn(&Shared)) {
    loom::model(move || {
        let shared: Shared = (Arc::new(Cache::new(CAPACITY)), Arc::new(AtomicUsize::new(0)));
        before(&shared);
        let theirs = shared.clone();
        let other = thread::spawn(move || one(&theirs));
        two(&shared);
        other.join().expect("the other thread passed");
        after(&shared);
        let (cache, alive) = shared;
        let stats = cache.stats();
        assert_eq!(stats.used_bytes, ARRAY + 10 * stats.entries);
        assert!(stats.used_bytes <= CAPACITY);
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
            assert_eq!((shared.0.stats().entries, shared.0.stats().used_bytes), (1, 26));
        },
    );
}

#[test]
fn one_key_inserted_into_different_slots_is_cached_once() {
    // One inserter finds the first slot of the window taken, the other has just freed it.
    for taken in 2..6 {
        loom::model(move || {
            let shared: Shared = (Arc::new(Cache::new(CAPACITY)), Arc::new(AtomicUsize::new(0)));
            insert(&shared, taken);
            let theirs = shared.clone();
            let other = thread::spawn(move || insert(&theirs, 1));
            shared.0.erase(key(taken));
            insert(&shared, 1);
            other.join().expect("the other thread passed");
            assert_eq!((shared.0.stats().entries, shared.0.stats().used_bytes), (1, ARRAY + 10));
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
fn a_handle_taken_during_an_erase_is_good() {
    model(
        |shared| insert(shared, 1),
        |shared| shared.0.erase(key(1)),
        |shared| hold(shared, 1),
        |shared| assert_eq!((shared.0.stats().entries, shared.0.stats().used_bytes), (0, 16)),
    );
}

#[test]
fn a_handle_taken_during_an_eviction_is_good() {
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
