//! Which entries stay and which are evicted.

use super::*;

const CAPACITY: u64 = 4 << 20;

fn insert(cache: &Cache<()>, key: CacheKey) {
    cache.insert(key, (), 4000);
}

/// Looks `key` up and caches it if it was missing. Returns whether it was a hit.
fn access(cache: &Cache<()>, key: CacheKey) -> bool {
    let hit = cache.get(key).is_some();
    if !hit {
        insert(cache, key);
    }
    hit
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn a_scan_of_ten_caches_does_not_touch_the_hot_set() {
    // A hot set of three quarters of the cache is looked up at random during a scan, with ten blocks of the
    // scan for each lookup of a hot one. So a hot entry must survive about eight thousand arrivals, eight times
    // the number that fits.
    let seed = 0x5CA7_0001;
    println!("seed {seed:#x}");
    let cache = Cache::new(CAPACITY);
    let mut random = Random(seed);
    for _ in 0..8 {
        (0..760).for_each(|block| assert!(access(&cache, key(1, block)) || cache.contains(key(1, block))));
    }
    let mut hits = 0;
    for scanned in 0..10_000 {
        insert(&cache, key(2, scanned));
        if scanned % 10 == 0 {
            hits += u64::from(access(&cache, key(1, random.below(760) as u32)));
        }
    }
    assert!(hits > 980, "{hits} of 1000 lookups of the hot set hit");
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn a_loop_larger_than_the_cache_still_hits() {
    let cache = Cache::new(CAPACITY);
    let mut hits = 0;
    for round in 0..40 {
        for block in 0..1280 {
            hits += u64::from(access(&cache, key(1, block)) && round >= 20);
        }
    }
    let percent = hits * 100 / (20 * 1280);
    assert!(percent > 50, "{percent} % of a loop of 1.25 caches");
}

#[test]
fn two_hits_end_probation() {
    let cache = Cache::new(CAPACITY);
    let full = if cfg!(miri) { 1010 } else { 1100 };
    (0..full).for_each(|block| insert(&cache, key(1, block)));
    assert!(cache.stats().evictions > 0);
    for (block, hits) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
        insert(&cache, key(2, block));
        (0..hits).for_each(|_| assert!(cache.get(key(2, block)).is_some()));
    }
    // A tenth of the cache is about a hundred entries.
    (0..300).for_each(|block| insert(&cache, key(3, block)));
    assert_eq!([0, 1, 2, 3].map(|block| cache.contains(key(2, block))), [false, false, true, true]);
}

#[test]
fn a_key_evicted_lately_skips_probation_when_reinserted() {
    let cache = Cache::new(CAPACITY);
    let full = if cfg!(miri) { 1010 } else { 1100 };
    (0..full).for_each(|block| insert(&cache, key(1, block)));
    let scan = |file| (0..200).for_each(|block| insert(&cache, key(file, block)));
    insert(&cache, key(2, 0));
    scan(3);
    assert!(!cache.contains(key(2, 0)), "evicted on probation");
    insert(&cache, key(2, 0));
    insert(&cache, key(2, 1));
    scan(4);
    assert!(cache.contains(key(2, 0)), "was looked up twice");
    assert!(!cache.contains(key(2, 1)));
}

#[test]
fn a_full_cache_admits_a_key_on_its_second_lookup() {
    let cache = Cache::new(CAPACITY);
    assert!(cache.admits(key(1, 0)) && cache.admits(key(1, 0)), "there is room");
    (0..1000).for_each(|block| insert(&cache, key(1, block)));
    assert!(cache.is_full());
    let news = (0..100).filter(|block| cache.admits(key(2, *block))).count();
    assert!(news <= 1, "{news} of 100 admitted at the first lookup");
    let known = (0..100).filter(|block| cache.admits(key(2, *block))).count();
    assert!(known >= 95, "{known} of 100 admitted at the second lookup");
    insert(&cache, key(2, 7));
    (0..300).for_each(|block| insert(&cache, key(3, block)));
    assert!(cache.contains(key(2, 7)), "the admitted key is cached");
    assert!(!Cache::<()>::new(0).admits(key(1, 1)), "a cache of capacity 0 admits nothing");
}
