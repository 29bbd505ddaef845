//! Deletes and single deletes: the key is gone everywhere, and finally so is the tombstone.

use std::collections::BTreeMap;

use tidesdb::{Family, Isolation, SyncMode, WriteBatch};

use crate::common::{Sim, contents, fill, noise, pairs, small, value};

fn assert_gone(f: &Family, key: &[u8], place: &str) {
    assert!(value(f, key).is_none(), "get, {place}");
    assert!(!f.contains(key).unwrap(), "contains, {place}");
    assert_eq!(f.multi_get(&[key]).unwrap(), [None], "multi_get, {place}");
    assert!(contents(f).iter().all(|(k, _)| k != key), "scan, {place}");
    assert!(f.iter().unwrap().rev().all(|kv| *kv.unwrap().0 != *key), "backward scan, {place}");
}

#[test]
fn a_deleted_key_is_gone_at_every_level() {
    type Delete = fn(&Family, &[u8]) -> tidesdb::Result<u64>;
    let deletes: [Delete; 2] = [|f, key| f.delete(key), |f, key| f.single_delete(key)];
    for delete in deletes {
        for flushed in [false, true] {
            let sim = Sim::new();
            let db = sim.open();
            let f = db.default_family();
            fill(f, 10, &[1; 600]);
            if flushed {
                db.compact().unwrap();
            }
            delete(f, b"key000004").unwrap();
            assert_gone(f, b"key000004", "memtable");
            db.flush().unwrap();
            assert_gone(f, b"key000004", "level 1");
            db.compact().unwrap();
            assert_gone(f, b"key000004", "bottom");
            assert_eq!((f.stats().table_entries, f.stats().tombstones), (9, 0), "the key has no entry left");
            let killed = sim.killed().open();
            assert_gone(killed.default_family(), b"key000004", "reopened");
        }
    }
}

#[test]
fn a_key_can_come_back() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for round in 0..6u8 {
        db.put(b"k", &[round; 700]).unwrap();
        assert_eq!(value(f, b"k").unwrap(), [round; 700]);
        if round % 2 == 0 {
            db.flush().unwrap()
        } else {
            db.compact().unwrap()
        }
        assert_eq!(value(f, b"k").unwrap(), [round; 700]);
        if round % 3 == 0 {
            f.single_delete(b"k").unwrap()
        } else {
            f.delete(b"k").unwrap()
        };
        assert_gone(f, b"k", "between");
    }
}

#[test]
fn deleting_a_missing_key_succeeds() {
    let sim = Sim::new();
    let db = sim.open();
    db.delete(b"k").unwrap();
    db.default_family().single_delete(b"l").unwrap();
    db.delete(b"k").unwrap();
    db.compact().unwrap();
    assert_eq!(db.default_family().stats().table_entries, 0);
    db.put(b"k", b"v").unwrap();
    assert!(db.contains(b"k").unwrap());
}

#[test]
fn a_put_and_its_single_delete_vanish_together_in_a_flush() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    db.put(b"k", b"v").unwrap();
    f.single_delete(b"k").unwrap();
    db.put(b"other", b"v").unwrap();
    db.flush().unwrap();
    assert_eq!(f.stats().table_entries, 1, "neither is in a table");
}

#[test]
fn a_tombstone_in_level_1_hides_what_lies_below() {
    let sim = Sim::new();
    let db = sim.options().default_family(small()).open().unwrap();
    let f = db.default_family();
    fill(f, 100, b"v");
    db.compact().unwrap();
    for i in (0..100).step_by(2) {
        f.delete(format!("key{i:06}").as_bytes()).unwrap();
    }
    db.flush().unwrap();
    assert_eq!((contents(f).len(), f.stats().tombstones), (50, 50));
    assert_gone(f, b"key000010", "below");
    assert!(f.contains(b"key000011").unwrap());
}

#[test]
fn everything_deleted_leaves_nothing() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(64 << 10)).open().unwrap();
    let f = db.default_family();
    fill(f, 2000, &[3; 100]);
    for i in 0..2000 {
        f.delete(format!("key{i:06}").as_bytes()).unwrap();
    }
    db.compact().unwrap();
    let stats = f.stats();
    assert_eq!((stats.table_entries, stats.level_tables.iter().sum::<usize>()), (0, 0));
    assert!(contents(f).is_empty());
    sim.eventually(&db, |names| !names.iter().any(|n| n.ends_with(".klog")));
}

/// Repeated scans over deleted keys give the same result; other readers still see what they should.
#[test]
fn repeated_scans_over_deleted_keys_agree() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    fill(&f, 6000, b"v");
    f.flush().unwrap();
    let before = db.snapshot();
    for i in 10..5000u32 {
        f.delete(format!("key{i:06}").as_bytes()).unwrap();
    }
    f.flush().unwrap();
    let uncommitted = db.begin(Isolation::ReadUncommitted);
    let mut own = db.begin(Isolation::Snapshot);
    own.delete_range(&f, "key005000".."key005990").unwrap();
    for round in 0..3 {
        assert_eq!(f.iter().unwrap().count(), 1010, "round {round}");
        assert_eq!(f.iter().unwrap().rev().count(), 1010);
        assert_eq!(f.range("key004000"..).unwrap().count(), 1000);
        assert_eq!(before.iter(&f).unwrap().count(), 6000, "an older reader sees what was deleted later");
        assert_eq!(uncommitted.iter(&f).unwrap().count(), 1010);
        assert_eq!(own.iter(&f).unwrap().count(), 20);
    }
    f.put(b"key002000", b"again").unwrap();
    assert_eq!(f.iter().unwrap().count(), 1011, "a later put is visible");
    assert_eq!(f.range("key001000".."key003000").unwrap().count(), 1);
    f.put_with_ttl(b"key002001", b"dies", std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(f.iter().unwrap().count(), 1012);
    sim.clock.advance(std::time::Duration::from_secs(10));
    drop((before, own, uncommitted));
    f.compact().unwrap();
    assert_eq!(f.iter().unwrap().count(), 1011);
}

/// A scan over deleted keys does not make a later put invisible, however much the log has grown since.
#[test]
fn a_later_put_among_deleted_keys_stays_visible() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    fill(&f, 3000, b"v");
    for i in 0..3000u32 {
        f.delete(format!("key{i:06}").as_bytes()).unwrap();
    }
    assert_eq!(f.iter().unwrap().count(), 0);
    f.put(b"key001500", b"later").unwrap();
    for i in 0..200u32 {
        f.put(format!("z{i:06}").as_bytes(), &[0; 400]).unwrap();
        assert_eq!(f.range("key".."l").unwrap().count(), 1, "after {i} more commits");
    }
}

/// A transaction that deletes thousands of keys scans over them; no other reader treats them as deleted.
#[test]
fn uncommitted_deletes_affect_no_other_reader() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", small()).unwrap();
    fill(&f, 3000, b"v");
    let mut tx = db.begin(Isolation::Snapshot);
    for i in 0..2990u32 {
        tx.delete(&f, format!("key{i:06}").as_bytes()).unwrap();
    }
    assert_eq!(tx.iter(&f).unwrap().count(), 10);
    assert_eq!(f.iter().unwrap().count(), 3000);
    tx.rollback();
    assert_eq!(f.iter().unwrap().count(), 3000);
}

/// Threads delete intervals of their own keys and put some back, while the background flushes and merges. Each thread always sees what a
/// plain map of its keys contains.
#[test]
fn deletes_of_several_threads_leave_all_live_keys() {
    const KEYS: u64 = 12_000;
    let sim = Sim::new();
    let family = small().write_buffer_bytes(1 << 20);
    let options = sim.options().sync(SyncMode::None).background_threads(2).default_family(family);
    let db = options.open().unwrap();
    let key = |thread: u64, n: u64| format!("{thread}-{n:06}").into_bytes();
    std::thread::scope(|s| {
        for thread in 0..3u64 {
            let db = &db;
            s.spawn(move || {
                let f = db.default_family();
                let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
                let mut batch = WriteBatch::new();
                for round in 0..12u64 {
                    let random = noise(thread << 32 | round, 4);
                    let from = u64::from(random[0]) * 8;
                    let to = (from + 5000 + u64::from(random[1]) * 16).min(KEYS);
                    for n in (0..KEYS).filter(|n| round == 0 || n % 97 == u64::from(random[2] % 97)) {
                        batch.put(f, &key(thread, n), &round.to_le_bytes()).unwrap();
                        model.insert(key(thread, n), round.to_le_bytes().to_vec());
                    }
                    db.write(&mut batch).unwrap();
                    let before = (db.snapshot(), model.len());
                    for n in from..to {
                        batch.delete(f, &key(thread, n)).unwrap();
                        model.remove(&key(thread, n));
                        if n % 500 == 0 {
                            db.write(&mut batch).unwrap();
                        }
                        if n % 2500 == 0 && round % 2 == 1 {
                            // Into the middle of the keys that are deleted.
                            let back = key(thread, from + (n - from) / 2);
                            f.put(&back, b"back").unwrap();
                            model.insert(back, b"back".to_vec());
                            let mine = || f.prefix(thread.to_string().as_bytes()).unwrap();
                            assert_eq!(
                                mine().count(),
                                model.len(),
                                "thread {thread}, round {round}, key {n}"
                            );
                        }
                    }
                    db.write(&mut batch).unwrap();
                    if random[3].is_multiple_of(4) {
                        f.flush().unwrap();
                    }
                    let expected: Vec<_> = model.clone().into_iter().collect();
                    let prefix = thread.to_string();
                    assert_eq!(
                        pairs(f.prefix(prefix.as_bytes()).unwrap()),
                        expected,
                        "thread {thread}, round {round}"
                    );
                    let old = before.0.range(f, key(thread, 0)..key(thread, KEYS)).unwrap().count();
                    assert_eq!(old, before.1, "an older reader, thread {thread}, round {round}");
                }
            });
        }
    });
}
