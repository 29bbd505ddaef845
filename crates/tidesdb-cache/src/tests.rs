//! Tests of the cache as a whole: helpers here, groups of tests in the modules.

mod growth;
#[cfg(all(target_os = "linux", not(miri)))]
mod memory;
mod model;
mod policy;
mod ratio;
mod stress;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::entry::Entry;
use crate::table::WINDOW_BYTES;

/// Bytes charged per test value in addition to the test's own charge.
fn overhead() -> u64 {
    Entry::<Value>::OVERHEAD
}

fn key(file: u64, block: u32) -> CacheKey {
    CacheKey { file, database: 0, block, part: 0 }
}

/// A small generator. Tests print its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A value that knows its key, detects tearing, and counts its instances.
struct Value {
    key: CacheKey,
    check: u64,
    alive: Arc<AtomicU64>,
}

impl Value {
    fn new(key: CacheKey, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Value { key, check: !key.file, alive: Arc::clone(alive) }
    }

    fn verify(&self, key: CacheKey) {
        assert_eq!((self.key, self.check), (key, !key.file), "value of another key, or destroyed");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert_eq!(self.check, !self.key.file, "dropped twice");
        self.check = self.key.file;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs the epoch until `done`. Pins of tests on other threads may delay it for a while.
fn reclaim_until(done: impl Fn() -> bool) -> bool {
    for _ in 0..100_000 {
        if done() {
            return true;
        }
        tidesdb_sync::reclaim();
        std::thread::yield_now();
    }
    done()
}
