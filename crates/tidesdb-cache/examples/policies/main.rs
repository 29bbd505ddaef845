//! Compares hit ratios of replacement policies, the cache itself and Belady's optimum, as a Markdown table:
//! `cargo run --release -p tidesdb-cache --example policies`.
//!
//! The policies are models that run in one thread. The cache is the real one, used by one, two and eight
//! threads that divide the trace among them.

mod belady;
mod policies;
mod trace;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use policies::{Clock, Lru, Policy, S3Fifo, SecondMiss, Sieve, WTinyLfu};
use tidesdb_cache::{Cache, CacheKey};
use trace::{KEYS, LOOKUPS, Trace};

/// Lookups at the beginning whose hits are not counted.
const WARM_UP: usize = LOOKUPS / 5;

/// Number of lookups that a thread takes from the trace at a time.
const SHARE: usize = 16;

fn models(capacity: u64, mean_size: u64) -> Vec<(&'static str, Box<dyn Policy>)> {
    vec![
        ("LRU", Box::new(Lru::new(KEYS, capacity))),
        ("CLOCK", Box::new(Clock::new(KEYS, capacity))),
        ("SIEVE", Box::new(Sieve::new(KEYS, capacity))),
        ("W-TinyLFU 1 %", Box::new(WTinyLfu::new(KEYS, capacity, mean_size, 0.01))),
        ("W-TinyLFU 10 %", Box::new(WTinyLfu::new(KEYS, capacity, mean_size, 0.1))),
        ("second miss", Box::new(SecondMiss::new(KEYS, capacity))),
        ("S3-FIFO", Box::new(S3Fifo::new(KEYS, capacity))),
    ]
}

fn model_ratio(policy: &mut dyn Policy, trace: &Trace, sizes: &[u32]) -> f64 {
    let mut hits = 0;
    for (at, &key) in trace.keys.iter().enumerate() {
        hits += u64::from(policy.access(key, sizes[key as usize]) && at >= WARM_UP);
    }
    percent(hits)
}

/// Hit ratio of the cache. Its table and the fields of its entries take a part of the same capacity.
fn cache_ratio(capacity: u64, trace: &Trace, sizes: &[u32], threads: usize) -> f64 {
    let (cache, next, hits) = (Cache::new(capacity), AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let start = next.fetch_add(SHARE, Ordering::Relaxed);
            if start >= LOOKUPS {
                return;
            }
            for at in start..LOOKUPS.min(start + SHARE) {
                let block = trace.keys[at];
                let key = CacheKey { file: 1, database: 0, block, part: 0 };
                if cache.get(key).is_none() {
                    cache.insert(key, (), u64::from(sizes[block as usize]));
                } else if at >= WARM_UP {
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    percent(hits.into_inner())
}

fn percent(hits: u64) -> f64 {
    hits as f64 * 100.0 / (LOOKUPS - WARM_UP) as f64
}

fn main() {
    let sizes = trace::sizes();
    let data: u64 = sizes.iter().copied().map(u64::from).sum();
    let mean_size = data / u64::from(KEYS);
    print!("| trace | cache | Belady |");
    models(1 << 20, mean_size).iter().for_each(|(name, _)| print!(" {name} |"));
    println!(" **this cache** | 2 threads | 8 threads |");
    println!("| --- | {}", "---: | ".repeat(12).trim_end());
    for share in [1, 5, 20] {
        let capacity = data * share / 100;
        for trace in trace::all(&sizes, capacity) {
            let best = percent(belady::hits(&trace.keys, &sizes, capacity, WARM_UP));
            print!("| {} | {share} % | {best:.1} |", trace.name);
            for (_, mut policy) in models(capacity, mean_size) {
                print!(" {:.1} |", model_ratio(policy.as_mut(), &trace, &sizes));
            }
            let ours = [1, 2, 8].map(|threads| cache_ratio(capacity, &trace, &sizes, threads));
            println!(" **{:.1}** | {:.1} | {:.1} |", ours[0], ours[1], ours[2]);
        }
    }
}
