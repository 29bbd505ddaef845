//! Statistics and estimates that need no reads: figures per level, estimates of ranges, bounds on the number of keys. Also flushes
//! that run without a waiting caller.

use std::ops::Bound;
use std::time::Duration;

use tidesdb::{Compression, Error, Family, SyncMode};

use crate::common::{Sim, contents, fill, noise, small};

#[test]
fn statistics_per_level() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    fill(f, 100, b"0123456789");
    let stats = f.stats();
    assert_eq!((stats.memtable_entries, stats.flushing, stats.compacting), (100, false, false));
    assert!(stats.level_entries.is_empty() && stats.key_bytes == 0 && stats.value_bytes == 0);
    f.compact().unwrap();
    delete(f, 30);
    f.flush().unwrap();
    let stats = f.stats();
    assert_eq!((&stats.level_entries[..], &stats.level_tombstones[..]), (&[30, 100][..], &[30, 0][..]));
    assert_eq!((stats.memtable_entries, stats.key_bytes, stats.value_bytes), (0, 130 * 9, 1000));
    f.compact().unwrap();
    let stats = f.stats();
    assert_eq!((&stats.level_entries[..], &stats.level_tombstones[..]), (&[0, 70][..], &[0, 0][..]));
}

#[test]
fn values_in_value_logs_count_with_their_size() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().compression(Compression::None)).open().unwrap();
    let f = db.default_family();
    f.put(b"small", &[1; 100]).unwrap();
    f.put(b"large", &noise(1, 5000)).unwrap();
    f.flush().unwrap();
    assert_eq!((f.stats().key_bytes, f.stats().value_bytes), (10, 5100));
}

#[test]
fn the_number_of_cache_entries_is_reported() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 1000, &noise(3, 100));
    db.flush().unwrap();
    assert_eq!(db.stats().cache_entries, 0);
    db.get(b"key000007").unwrap();
    assert!(db.stats().cache_entries >= 1);
}

#[test]
fn start_flush_does_not_wait_for_the_flush() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    f.start_flush().unwrap();
    assert_eq!((f.stats().flushing, f.stats().immutables), (false, 0), "nothing to flush");
    fill(&f, 10, b"v");
    f.start_flush().unwrap();
    f.start_flush().unwrap();
    let stats = f.stats();
    assert_eq!((stats.flushing, stats.immutables, stats.flushes, stats.memtable_entries), (true, 1, 0, 10));
    assert_eq!(contents(&f).len(), 10);
    db.put(b"the next commit", b"does it").unwrap();
    assert_eq!((f.stats().flushing, f.stats().flushes), (false, 1));
    db.drop_family("f").unwrap();
    assert!(matches!(f.start_flush(), Err(Error::NotFound { .. })));
}

#[test]
fn the_background_runs_a_started_flush() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).background_threads(1).open().unwrap();
    let f = db.default_family();
    fill(f, 100, b"v");
    f.start_flush().unwrap();
    for _ in 0..6000 {
        if f.stats().flushes == 1 {
            assert_eq!(f.stats().level_entries, [100]);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never flushed: {:?}", f.stats());
}

/// Deletes the first `n` keys of `fill`.
fn delete(f: &Family, n: u32) {
    for i in 0..n {
        f.delete(format!("key{i:06}").as_bytes()).unwrap();
    }
}

/// Puts ten thousand keys of about fifty bytes.
fn ten_thousand(f: &Family) {
    for i in 0..10_000u32 {
        f.put(format!("key{i:06}").as_bytes(), &noise(i.into(), 40)).unwrap();
    }
}

#[test]
fn ranges_of_tables_are_estimated() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(16 << 20)).open().unwrap();
    let f = db.default_family();
    ten_thousand(f);
    f.flush().unwrap();
    let whole = f.estimate_range(..);
    assert_eq!((whole.entries, whole.sources, whole.memtable_entries), (10_000, 1, 0));
    assert!(whole.blocks > 10 && whole.bytes > 40 * 10_000, "{whole:?}");
    assert!(whole.bytes <= f.stats().level_bytes[0]);
    let block = whole.entries.div_ceil(whole.blocks);
    for (from, to) in [(0, 1), (0, 5000), (2500, 7500), (9999, 10_000), (4000, 4001), (100, 9000)] {
        let part = f.estimate_range(format!("key{from:06}")..format!("key{to:06}"));
        let exact = to - from;
        assert!(part.entries + block >= exact && part.entries <= exact + 3 * block, "{from} {to} {part:?}");
        assert!(part.blocks >= 1 && part.bytes <= whole.bytes && part.sources == 1, "{part:?}");
    }
    for nothing in ["a".."b", "z".."zz", "key000002".."key000001", "key000005".."key000005"] {
        assert_eq!(f.estimate_range(nothing.clone()), tidesdb::RangeEstimate::default(), "{nothing:?}");
    }
    // No file is read.
    let reads = sim.disk.op_count();
    f.estimate_range("key000100"..="key009000");
    assert_eq!(sim.disk.op_count(), reads);
}

#[test]
fn ranges_of_memtables_are_counted_up_to_a_bound() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(16 << 20)).open().unwrap();
    let f = db.default_family();
    ten_thousand(f);
    f.put(b"key000150", b"another version").unwrap();
    let of = |start, end| f.estimate_range((start, end)).memtable_entries;
    let (included, excluded) = (Bound::Included, Bound::Excluded);
    assert_eq!(of(included("key000100"), excluded("key000200")), 101);
    assert_eq!(of(excluded("key000150"), included("key000152")), 2);
    assert_eq!(of(excluded("key009998"), Bound::Unbounded), 1);
    assert_eq!(of(included("key000100"), excluded("key009900")), 10_001, "all keys");
    assert_eq!(of(included("z"), Bound::Unbounded), 0);
    assert_eq!(f.estimate_range("key000100".."key000101").sources, 1);
    f.start_flush().unwrap();
    f.put(b"key000100", b"v").unwrap(); // runs the queued flush afterwards
    f.put(b"key000100", b"v").unwrap();
    let both = f.estimate_range("key000100".."key000101");
    assert_eq!((both.sources, both.tables, both.memtable_entries), (2, 1, 2), "{both:?}");
}

#[test]
fn a_bound_on_the_number_of_keys() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let check = |exact: bool| {
        let (max, live) = (f.key_count_max(), contents(f).len() as u64);
        assert!(max >= live && (!exact || max == live), "{max} for {live}");
    };
    check(true);
    fill(f, 500, b"v");
    check(true);
    fill(f, 100, b"again");
    check(false);
    f.flush().unwrap();
    check(true);
    delete(f, 50);
    check(false);
    f.flush().unwrap();
    check(false);
    assert_eq!(f.key_count_max(), 500, "tombstones do not count as keys");
    f.delete_range("key000100".."key000200").unwrap();
    check(false);
    f.compact().unwrap();
    check(true);
}
