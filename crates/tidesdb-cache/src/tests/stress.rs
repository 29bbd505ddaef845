//! Many threads on a small cache. Detects wrong answers, lost or repeated drops, exceeded capacity and lost
//! charges.

use std::sync::atomic::AtomicBool;

use super::*;

const THREADS: u64 = 8;
const ROUNDS: u64 = if cfg!(miri) { 30 } else { 40_000 };

#[test]
fn many_threads_stay_within_capacity_and_drop_each_value_once() {
    let seed = 0x57E5_5001;
    println!("seed {seed:#x}");
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(96 << 10);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, alive) = (&cache, &alive);
            scope.spawn(move || work(cache, alive, Random(seed + thread)));
        }
    });
    let stats = cache.stats();
    println!("{stats:?}");
    assert!(stats.hits > 0 && stats.evictions > 0 && stats.entries > 0, "{stats:?}");
    assert_no_duplicates(&cache);
    (0..5).for_each(|file| cache.erase_file(0, file));
    assert_eq!((cache.stats().entries, cache.stats().used_bytes), (0, cache.table_bytes()));
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
    assert_eq!(cache.stats().live_bytes, 0);
}

fn work(cache: &Cache<Value>, alive: &Arc<AtomicU64>, mut random: Random) {
    let mut kept = Vec::new();
    for _ in 0..ROUNDS {
        let key = key(random.below(4), random.below(40) as u32);
        match random.below(100) {
            0..40 => {
                let guard = tidesdb_sync::pin();
                if let Some(value) = cache.get_pinned(key, &guard) {
                    value.verify(key);
                }
            }
            40..60 => {
                if let Some(handle) = cache.get(key) {
                    handle.verify(key);
                    kept.push((key, handle));
                }
            }
            60..97 => cache.insert(key, Value::new(key, alive), random.below(4000)).verify(key),
            97..99 => cache.erase(key),
            _ if random.below(20) == 0 => cache.erase_file(0, key.file),
            _ => kept.drain(..).for_each(|(key, handle)| handle.verify(key)),
        }
        assert!(cache.stats().used_bytes <= 96 << 10);
    }
    kept.drain(..).for_each(|(key, handle)| handle.verify(key));
}

/// After a burst, every key is in the table at most once: erasing each present key once empties the cache.
fn assert_no_duplicates(cache: &Cache<Value>) {
    let keys = (0..4).flat_map(|file| (0..40).map(move |block| key(file, block)));
    let present = keys.filter(|key| cache.get(*key).is_some()).count() as u64;
    assert_eq!(cache.stats().entries, present);
}

#[test]
fn racing_inserts_of_one_key_leave_one_entry() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(1 << 20);
    let barrier = std::sync::Barrier::new(4);
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for block in 0..rounds {
                    barrier.wait();
                    let handle = cache.insert(key(9, block), Value::new(key(9, block), &alive), 10);
                    handle.verify(key(9, block));
                    barrier.wait();
                    assert_eq!(cache.stats().entries, 1, "round {block}");
                    if barrier.wait().is_leader() {
                        cache.erase(key(9, block));
                    }
                }
            });
        }
    });
    drop(cache);
    assert!(reclaim_until(|| alive.load(Ordering::Relaxed) == 0));
}

#[test]
fn resizing_under_load_loses_no_charge() {
    let seed = 0x57E5_5003;
    println!("seed {seed:#x}");
    let (alive, stop) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    let cache = Cache::new(64 << 10);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, alive, stop) = (&cache, &alive, &stop);
            scope.spawn(move || {
                let mut random = Random(seed + thread);
                while !stop.load(Ordering::Relaxed) {
                    let key = key(random.below(4), random.below(100) as u32);
                    cache.insert(key, Value::new(key, alive), random.below(3000)).verify(key);
                    cache.get(key).inspect(|handle| handle.verify(key));
                }
            });
        }
        let mut random = Random(seed);
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            cache.set_capacity(random.below(512 << 10));
        }
        cache.set_capacity(128 << 10);
        stop.store(true, Ordering::Relaxed);
    });
    // Entries stranded in a removed window are uncharged when its chunk is freed.
    (0..4).for_each(|file| cache.erase_file(0, file));
    assert!(
        reclaim_until(
            || cache.stats().used_bytes == cache.table_bytes() && alive.load(Ordering::Relaxed) == 0
        ),
        "{cache:?}"
    );
    assert_eq!(cache.stats().entries, 0);
}

#[test]
fn evicted_memory_is_freed_soon() {
    let alive = Arc::new(AtomicU64::new(0));
    let cache = Cache::new(4 << 20);
    let mut worst = 0;
    for block in 0..if cfg!(miri) { 100 } else { 50_000 } {
        cache.insert(key(1, block), Value::new(key(1, block), &alive), 4000);
        // Other tests pin now and then, so check the level that is reached repeatedly, not a single peak.
        if block % 1000 == 999 {
            std::thread::yield_now();
            worst = cache.stats().live_bytes;
        }
    }
    println!("live at the end {worst}");
    assert!(reclaim_until(|| cache.stats().live_bytes <= cache.stats().used_bytes));
}

/// Regression test: a reader that slept with a pin, for example in a slow read, kept everything evicted
/// meanwhile from being freed.
#[test]
fn memory_to_be_freed_is_bounded_under_a_sleeping_pin() {
    const MIB: u64 = 1 << 20;
    let cache: Cache<Box<[u8]>> = Cache::new(8 * MIB);
    let insert = |block| drop(cache.insert(key(1, block), vec![1; 4096].into(), 4096));
    std::thread::scope(|scope| {
        let (pinned, is_pinned) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let _pin = tidesdb_sync::pin();
            pinned.send(()).unwrap();
            let _ = is_done.recv();
        });
        is_pinned.recv().unwrap();
        (0..20_000).for_each(insert);
        let live = cache.stats().live_bytes;
        assert!((8 * MIB..12 * MIB).contains(&live), "{live} bytes");
        drop(done);
    });
    let before = cache.stats().inserts;
    assert!(reclaim_until(|| {
        insert(u32::try_from(cache.stats().misses).unwrap_or(0) + 30_000);
        cache.get(key(9, 9));
        cache.stats().inserts > before + 100
    }));
}
