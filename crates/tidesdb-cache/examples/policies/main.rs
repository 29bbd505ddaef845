//! Hit ratios of replacement policies and of the cache itself, against Belady's optimum:
//! `cargo run --release -p tidesdb-cache --example policies`.

mod belady;
mod policies;
mod trace;

use policies::{Clock, Lru, Policy, S3Fifo, SecondMiss, Sieve, WTinyLfu};
use tidesdb_cache::{Cache, CacheKey};
use trace::{KEYS, LOOKUPS, Trace};

/// Lookups before hits count.
const WARM_UP: usize = LOOKUPS / 5;

struct Real(Cache<()>);

impl Policy for Real {
    fn access(&mut self, key: u32, size: u32) -> bool {
        let key = CacheKey { file: 1, block: key, part: 0 };
        let hit = self.0.get(key).is_some();
        if !hit {
            self.0.insert(key, (), u64::from(size));
        }
        hit
    }
}

fn candidates(capacity: u64, mean: u64) -> Vec<(&'static str, Box<dyn Policy>)> {
    vec![
        ("LRU", Box::new(Lru::new(KEYS, capacity))),
        ("CLOCK", Box::new(Clock::new(KEYS, capacity))),
        ("SIEVE", Box::new(Sieve::new(KEYS, capacity))),
        ("S3-FIFO", Box::new(S3Fifo::new(KEYS, capacity, 0.1, 1.0, 2))),
        ("W-TinyLFU", Box::new(WTinyLfu::new(KEYS, capacity, mean, 0.01))),
        ("W-TinyLFU, 10 %", Box::new(WTinyLfu::new(KEYS, capacity, mean, 0.1))),
        ("second miss", Box::new(SecondMiss(S3Fifo::new(KEYS, capacity, 0.0, 1.0, 2)))),
        ("cache", Box::new(Real(Cache::new(capacity)))),
    ]
}

fn ratio(policy: &mut dyn Policy, trace: &Trace, sizes: &[u32]) -> f64 {
    let mut hits = 0;
    for (at, &key) in trace.keys.iter().enumerate() {
        hits += u64::from(policy.access(key, sizes[key as usize]) && at >= WARM_UP);
    }
    percent(hits)
}

fn percent(hits: u64) -> f64 {
    hits as f64 * 100.0 / (LOOKUPS - WARM_UP) as f64
}

fn main() {
    let sizes = trace::sizes();
    let data: u64 = sizes.iter().copied().map(u64::from).sum();
    let mean = data / u64::from(KEYS);
    print!("trace cache Belady");
    candidates(1 << 20, mean).iter().for_each(|(name, _)| print!(" | {name}"));
    println!();
    for share in [1, 5, 20] {
        let capacity = data * share / 100;
        for trace in trace::all(&sizes, capacity) {
            let best = percent(belady::hits(&trace.keys, &sizes, capacity, WARM_UP));
            print!("{:26} {share:2} % {best:6.1}", trace.name);
            for (_, mut policy) in candidates(capacity, mean) {
                print!(" | {:6.1}", ratio(policy.as_mut(), &trace, &sizes));
            }
            println!();
        }
    }
}
