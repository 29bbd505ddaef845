//! Nanoseconds per hit, with one and more threads: `cargo run --profile dist -p tidesdb-cache --example
//! cache_bench`.
//!
//! Results are wall time times busy cores, divided by operations, so that more threads than cores do not
//! improve them.

use std::hint::black_box;
use std::time::Duration;

use tidesdb_cache::{Cache, CacheKey};
use tidesdb_sync::pin;

const CAPACITY: u64 = 64 << 20;
const BLOCK: usize = 4000;
/// Lookups per thread in each measurement.
const LOOKUPS: u32 = 200_000;

type Block = Box<[u8]>;

fn key(block: u32) -> CacheKey {
    CacheKey { file: 12, database: 0, block, part: 1 }
}

fn new_block(block: u32) -> Block {
    vec![block as u8; BLOCK].into()
}

fn filled(blocks: u32) -> Cache<Block> {
    let cache = Cache::new(CAPACITY);
    for block in 0..blocks {
        cache.insert(key(block), new_block(block), BLOCK as u64);
    }
    cache
}

/// Returns block numbers in a fixed scattered order.
fn scattered(blocks: u32, thread: u32) -> impl FnMut() -> u32 {
    let mut state = u64::from(thread) << 32 | 1;
    move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (((state >> 32) * u64::from(blocks)) >> 32) as u32
    }
}

/// Core time of one `lookup`, run by each of `threads` threads.
fn measure(threads: u32, blocks: u32, lookup: impl Fn(CacheKey) -> u64 + Sync) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let best = (0..3).map(|_| time(|| run(threads, blocks, &lookup))).min().unwrap_or_default();
    let operations = f64::from(threads) * f64::from(LOOKUPS);
    best.as_secs_f64() * 1e9 * f64::from(threads.min(cores)) / operations
}

fn run(threads: u32, blocks: u32, lookup: &(impl Fn(CacheKey) -> u64 + Sync)) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut next = scattered(blocks, thread);
                let sum = (0..LOOKUPS).map(|_| lookup(key(next()))).fold(0u64, u64::wrapping_add);
                black_box(sum);
            });
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn time(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

/// Lookups per pin in the `get_pinned` column.
const PER_PIN: u32 = 16;

fn hits(blocks: u32, threads: u32, cache: &Cache<Block>) {
    let byte = |block: &Block| u64::from(block[0]);
    let floor = measure(threads, blocks, |key| u64::from(key.block));
    let alone = measure(threads, blocks, |first| {
        let guard = pin();
        let keys = (0..PER_PIN).map(|step| key((first.block + step * 7) % blocks));
        keys.map(|key| cache.get_pinned(key, &guard).map_or(0, byte)).sum()
    });
    let pinned = measure(threads, blocks, |key| cache.get_pinned(key, &pin()).map_or(0, byte));
    let shared = measure(threads, blocks, |key| cache.get(key).map_or(0, |block| byte(&block)));
    let alone = alone / f64::from(PER_PIN);
    println!("{blocks:>8} {threads:>8} {alone:>12.1} {pinned:>16.1} {shared:>8.1} {floor:>8.1}");
}

fn inserts() {
    let cache = filled(40_000);
    let fresh = std::sync::atomic::AtomicU32::new(1 << 20);
    for threads in [1, 2] {
        let each = 100_000;
        let taken = time(|| {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for _ in 0..each {
                            let block = fresh.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            cache.insert(key(block), Box::default(), BLOCK as u64);
                        }
                    });
                }
            });
        });
        println!(
            "insert with eviction, {threads} threads: {:.0} ns",
            taken.as_secs_f64() * 1e9 / f64::from(each)
        );
    }
}

fn main() {
    println!("  blocks  threads   get_pinned  pin + get_pinned     get    floor   (ns of a core)");
    for blocks in [64, 1000, 14_000] {
        let cache = filled(blocks);
        for threads in [1, 2, 8] {
            hits(blocks, threads, &cache);
        }
        assert_eq!(cache.stats().misses, 0, "the benchmark measures hits");
    }
    inserts();
}
