//! Single-threaded tests: answers compared with a map, capacity, charges, handles, resizing, hashing.

use std::collections::HashMap;

use super::*;

#[test]
fn answers_are_never_wrong_whatever_is_evicted() {
    let seed = 0x7157_0001;
    println!("seed {seed:#x}");
    for capacity in [0, 100, 1 << 10, 16 << 10, 1 << 20] {
        let mut random = Random(seed ^ capacity);
        let cache: Cache<u64> = Cache::new(capacity);
        let mut model: HashMap<(u64, u32), u64> = HashMap::new();
        for round in 0..if cfg!(miri) { 60 } else { 30_000 } {
            let (file, block) = (random.below(5), random.below(60) as u32);
            let known = model.get(&(file, block)).copied();
            match random.below(20) {
                0..8 => {
                    let got = cache.insert(key(file, block), round, random.below(200));
                    if let Some(known) = known.filter(|known| *known == *got) {
                        assert_ne!(known, round);
                    } else {
                        assert_eq!(*got, round);
                        model.insert((file, block), round);
                    }
                }
                8..18 => {
                    let guard = tidesdb_sync::pin();
                    let pinned = cache.get_pinned(key(file, block), &guard).copied();
                    assert_eq!(pinned, cache.get(key(file, block)).map(|handle| *handle));
                    assert!(pinned.is_none() || pinned == known, "{pinned:?} for {known:?}");
                }
                18 => {
                    cache.erase(key(file, block));
                    model.remove(&(file, block));
                    assert!(cache.get(key(file, block)).is_none());
                }
                _ if random.below(20) == 0 => {
                    cache.erase_file(0, file);
                    model.retain(|name, _| name.0 != file);
                    assert!((0..60).all(|block| cache.get(key(file, block)).is_none()));
                }
                _ => {}
            }
            assert!(cache.stats().used_bytes <= capacity);
        }
        let stats = cache.stats();
        assert_eq!(stats.inserts > 0, capacity >= 1 << 10, "{stats:?}");
        assert!(cfg!(miri) || (stats.entries > 150) == (capacity == 1 << 20), "{stats:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn used_bytes_approach_but_never_exceed_the_capacity() {
    let alive = Arc::new(AtomicU64::new(0));
    for (capacity, charge) in [(1u64 << 20, 1000), (1 << 20, 4000), (8 << 20, 16_000), (64 << 10, 2000)] {
        let cache = Cache::new(capacity);
        for block in 0..20_000 {
            let before = cache.stats().inserts;
            // Pins of other tests delay the freeing of evicted values. A full cache takes no value meanwhile.
            let taken = reclaim_until(|| {
                cache.insert(key(1, block), Value::new(key(1, block), &alive), charge);
                assert!(cache.stats().used_bytes <= capacity);
                cache.stats().inserts > before
            });
            assert!(taken, "value {block} was not cached");
        }
        let stats = cache.stats();
        assert!(stats.used_bytes > capacity * 85 / 100, "{charge}: {stats:?}");
        assert_eq!(stats.inserts, 20_000);
        assert_eq!(stats.entries + stats.evictions, 20_000);
    }
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
}

#[test]
fn all_charges_are_returned() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(1 << 20);
    assert_eq!(cache.stats().used_bytes, 0);
    for block in 0..100 {
        let handle = cache.insert(key(3, block), Value::new(key(3, block), &alive), 500);
        assert_eq!(handle.charge(), 500 + overhead());
        assert_eq!(handle.key(), key(3, block));
    }
    let (stats, table) = (cache.stats(), cache.table_bytes());
    assert!(table >= 24 * WINDOW_BYTES, "100 entries in {table} bytes of windows");
    assert_eq!((stats.entries, stats.used_bytes), (100, table + 100 * (500 + overhead())));
    assert_eq!(stats.live_bytes, 100 * (500 + overhead()));
    (0..50).for_each(|block| cache.erase(key(3, block)));
    assert_eq!(cache.stats().entries, 50);
    cache.erase_file(0, 3);
    assert_eq!((cache.stats().entries, cache.stats().used_bytes), (0, table));
    assert_eq!(cache.stats().evictions, 0);
    assert!(reclaim_until(|| cache.stats().live_bytes == 0 && alive.load(Ordering::Relaxed) == 0));
}

#[test]
fn the_first_value_of_a_key_wins() {
    let cache = Cache::new(1 << 20);
    assert_eq!(*cache.insert(key(1, 1), "first", 10), "first");
    assert_eq!(*cache.insert(key(1, 1), "second", 10), "first");
    assert_eq!(cache.stats().entries, 1);
    cache.erase(key(1, 1));
    assert_eq!(*cache.insert(key(1, 1), "third", 10), "third");
}

#[test]
fn large_values_and_a_cache_of_capacity_0_return_uncached_handles() {
    let cache = Cache::new(1 << 20);
    assert_eq!(*cache.insert(key(1, 1), 5, (1 << 17) + 1), 5);
    assert_eq!(*cache.insert(key(1, 2), 6, u64::MAX), 6);
    assert!(cache.get(key(1, 1)).is_none() && cache.get(key(1, 2)).is_none());
    let nothing = Cache::new(0);
    assert_eq!(*nothing.insert(key(1, 1), 5, 0), 5);
    assert!(nothing.get(key(1, 1)).is_none());
    assert_eq!((nothing.stats().used_bytes, nothing.stats().misses), (0, 1));
}

#[test]
fn handles_outlive_eviction_and_the_cache() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(64 << 10);
    let handles: Vec<_> =
        (0..500).map(|block| cache.insert(key(1, block), Value::new(key(1, block), &alive), 1000)).collect();
    let (first, stats) = (handles[0].clone(), cache.stats());
    assert!(stats.evictions > 400 && stats.live_bytes == 500 * (1000 + overhead()), "{stats:?}");
    drop(cache);
    for (block, handle) in handles.iter().enumerate() {
        handle.verify(key(1, block as u32));
    }
    drop(handles);
    first.verify(key(1, 0));
    drop(first);
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
}

#[test]
fn a_pin_keeps_a_found_value_alive() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(64 << 10);
    cache.insert(key(1, 0), Value::new(key(1, 0), &alive), 100);
    let guard = tidesdb_sync::pin();
    let seen = cache.get_pinned(key(1, 0), &guard).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cache.erase(key(1, 0));
            (0..50).for_each(|_| tidesdb_sync::reclaim());
        });
    });
    seen.verify(key(1, 0));
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    drop(guard);
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn shrinking_is_immediate_and_growing_keeps_the_contents() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(1 << 20);
    let fill = |blocks: u32| {
        for block in 0..blocks {
            cache.insert(key(1, block), Value::new(key(1, block), &alive), 1000);
        }
    };
    let present = || (0..20_000).filter(|block| cache.get(key(1, *block)).is_some()).count() as u64;
    fill(800);
    let before = present();
    assert!(before > 760, "{before}");
    cache.set_capacity(16 << 20);
    assert_eq!(present(), before, "growing lost entries");
    fill(12_000);
    assert!(cache.stats().entries > 11_500, "{:?}", cache.stats());
    for capacity in [2 << 20, 1 << 20, 100_000, 1000, 0] {
        cache.set_capacity(capacity);
        let stats = cache.stats();
        assert!(stats.used_bytes <= capacity && stats.capacity == capacity, "{stats:?}");
        assert!(capacity < 100_000 || stats.used_bytes > capacity * 3 / 4 - 1000, "{stats:?}");
        assert_eq!(stats.entries, present());
    }
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
    cache.set_capacity(1 << 20);
    fill(10);
    assert_eq!(present(), 10);
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn hashes_spread_over_windows_and_tags() {
    let mut windows = vec![0u32; 4096];
    for file in 1000..1032 {
        for block in 0..1024 {
            let hash = key(file, block).hash();
            windows[hash as usize % 4096] += 1;
        }
    }
    // 32768 keys in 4096 windows: 8 each; a fair spread stays within 8 +- 6 deviations.
    let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
    assert!(*most <= 26, "{least}..{most}");
    let over = windows.iter().filter(|count| **count > 16).count();
    assert!(over < 40, "{over} windows hold more than 16 keys; about 15 are expected");
    let part = |part| CacheKey { file: 1, database: 0, block: 1, part }.hash();
    assert!((1..=255).all(|other| part(other) != part(0)));
}

#[test]
#[cfg_attr(miri, ignore = "the search for equal hashes is too slow under Miri")]
fn equal_hashes_do_not_mix_up_keys() {
    // The hash starts from `file * c ^ within`, so keys whose `within` compensates for the file's part collide
    // in all 64 bits. `within` has 40 bits, so search for files whose products agree in the other 24.
    let product = |file: u64| file.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut by_top = HashMap::new();
    let (one, two) =
        (0u64..).find_map(|file| Some((by_top.insert(product(file) >> 40, file)?, file))).unwrap();
    let within = product(one) ^ product(two);
    let a = key(one, 0);
    let b = CacheKey { file: two, database: 0, block: (within >> 8) as u32, part: within as u8 };
    assert_eq!(a.hash(), b.hash());

    let cache = Cache::new(1 << 20);
    cache.insert(a, "a", 10);
    assert!(cache.get(b).is_none());
    cache.insert(b, "b", 10);
    assert_eq!((*cache.get(a).unwrap(), *cache.get(b).unwrap()), ("a", "b"));
    cache.erase(a);
    assert_eq!((cache.get(a).is_none(), *cache.get(b).unwrap()), (true, "b"));
}

#[test]
fn caches_and_handles_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Cache<Vec<u8>>>();
    crosses::<Handle<Vec<u8>>>();
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn hot_windows_still_admit_new_entries() {
    // One window of 16 slots, all hot: new keys must neither starve nor replace all the others.
    let cache = Cache::new(2047);
    (0..16).for_each(|block| drop(cache.insert(key(1, block), (), 10)));
    for _ in 0..4 {
        (0..16).for_each(|block| assert!(cache.get(key(1, block)).is_some()));
    }
    cache.insert(key(2, 0), (), 10);
    assert!(cache.get(key(2, 0)).is_some());
    assert_eq!(cache.stats().entries, 16);
    let kept = || (0..16).filter(|block| cache.contains(key(1, *block))).count();
    (1..20).for_each(|block| drop(cache.insert(key(2, block), (), 10)));
    assert!(kept() >= 12, "{} hot entries kept", kept());
    (20..300).for_each(|block| drop(cache.insert(key(2, block), (), 10)));
    assert!(kept() <= 2, "{} hot entries were not evicted", kept());
}
