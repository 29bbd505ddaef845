//! A cache takes no memory, not even address space, before something is cached.

use super::*;

/// Returns the address space of the process.
fn virtual_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm exists on Linux");
    let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn an_empty_cache_of_any_capacity_is_small() {
    tidesdb_io::sim::alone(|| {
        drop(Cache::<Vec<u8>>::new(1 << 20));
        for capacity in [64 << 30, 1 << 40, u64::MAX] {
            let before = virtual_bytes();
            let caches: Vec<_> = (0..16).map(|_| Cache::<Vec<u8>>::new(capacity)).collect();
            let taken = virtual_bytes() - before;
            assert!(taken < 16 << 20, "16 caches of {capacity} bytes take {taken} bytes");
            for cache in &caches {
                let key = CacheKey { file: 1, database: 0, block: 2, part: 3 };
                cache.insert(key, vec![7; 100], 100);
                assert!(cache.contains(key));
                assert!(cache.stats().used_bytes < 1000);
            }
        }
    });
}
