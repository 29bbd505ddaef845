//! The table has the size of its content, whatever the capacity.

use super::*;

fn windows<V: Send + Sync + 'static>(cache: &Cache<V>) -> u64 {
    cache.table_bytes() / WINDOW_BYTES + 1
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn the_table_grows_with_its_entries_and_loses_none() {
    let cache = Cache::new(1 << 40);
    let mut most = 0;
    for block in 0..100_000u32 {
        assert_eq!(*cache.insert(key(1, block), block, 1000), block);
        assert!(windows(&cache) >= most, "the table shrank");
        most = windows(&cache);
        let entries = u64::from(block) + 1;
        assert!(cache.table_bytes() <= entries.div_ceil(4) * WINDOW_BYTES, "{most} windows for {entries}");
        let probe = block / 2;
        assert!(cache.get(key(1, probe)).is_none_or(|handle| *handle == probe));
    }
    assert!(most >= 24_900, "{most} windows");
    // A window that is not split yet may overflow.
    let kept = (0..100_000).filter(|block| cache.contains(key(1, *block))).count();
    assert!(kept > 99_500, "{kept} of 100000 are left");
    assert_eq!(cache.stats().entries, kept as u64);
}

#[test]
fn small_values_do_not_let_the_table_fill_the_capacity() {
    let cache = Cache::new(64 << 10);
    for block in 0..if cfg!(miri) { 200 } else { 20_000 } {
        cache.insert(key(1, block), (), 0);
        assert!(cache.stats().used_bytes <= 64 << 10);
    }
    assert!(cache.table_bytes() <= (64 << 10) / 5, "{} bytes of windows", cache.table_bytes());
}

#[test]
fn the_largest_capacities_neither_overflow_nor_refuse() {
    for capacity in [1 << 40, u64::MAX / 2, u64::MAX] {
        let cache = Cache::new(capacity);
        for block in 0..200 {
            // Evicted entries must be freed before more are evicted.
            let cached = reclaim_until(|| {
                cache.insert(key(1, block), block, capacity / 32);
                assert!(cache.stats().used_bytes <= capacity);
                cache.contains(key(1, block))
            });
            assert!(cached, "{block} was refused");
        }
        assert_eq!(*cache.insert(key(2, 0), 7, u64::MAX), 7);
        assert!(!cache.contains(key(2, 0)), "larger than an eighth of the cache");
        let stats = cache.stats();
        assert!(stats.entries >= 30 && stats.evictions >= 160, "{stats:?}");
        cache.set_capacity(1 << 20);
        assert_eq!(cache.stats().entries, 0);
        cache.set_capacity(u64::MAX);
        cache.insert(key(1, 1), 1, 10);
        assert!(cache.contains(key(1, 1)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn a_shrunk_cache_frees_its_table() {
    let cache = Cache::new(64 << 20);
    (0..40_000).for_each(|block| drop(cache.insert(key(1, block), (), 1000)));
    assert!(windows(&cache) > 9000);
    cache.set_capacity(1 << 20);
    assert!(windows(&cache) < 300, "{} windows for {:?}", windows(&cache), cache.stats());
    let found = (0..40_000).filter(|block| cache.contains(key(1, *block))).count() as u64;
    assert_eq!(cache.stats().entries, found);
    assert!(found > 800, "{found} left");
    cache.set_capacity(64 << 20);
    (0..40_000).for_each(|block| drop(cache.insert(key(1, block), (), 1000)));
    let found = (0..40_000).filter(|block| cache.contains(key(1, *block))).count();
    assert!(found > 39_700, "{found} left");
}

#[test]
fn threads_that_grow_the_table_find_what_they_inserted() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(1 << 40);
    let rounds = if cfg!(miri) { 40 } else { 20_000 };
    std::thread::scope(|scope| {
        for file in 0..4 {
            let (cache, alive) = (&cache, &alive);
            scope.spawn(move || {
                for block in 0..rounds {
                    let key = key(file, block);
                    cache.insert(key, Value::new(key, alive), 100).verify(key);
                    // The key of a neighbouring thread, so that threads insert the same keys.
                    let other = super::key((file + 1) % 4, block);
                    cache.insert(other, Value::new(other, alive), 100).verify(other);
                }
            });
        }
    });
    let keys = (0..4).flat_map(|file| (0..rounds).map(move |block| key(file, block)));
    let found = keys.filter(|key| cache.contains(*key)).count() as u64;
    assert!(found > 4 * u64::from(rounds) * 99 / 100, "{found} of {rounds} times 4");
    assert_eq!(cache.stats().entries, found, "an entry is in the wrong window, or twice");
    (0..4).for_each(|file| cache.erase_file(0, file));
    assert_eq!((cache.stats().entries, cache.stats().used_bytes), (0, cache.table_bytes()));
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
}
