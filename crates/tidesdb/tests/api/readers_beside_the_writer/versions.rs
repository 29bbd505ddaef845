//! Keys with very many versions: an old version is found without a scan, in memory and in tables, by reads and by cursors.
#![expect(clippy::disallowed_methods, reason = "time is what is measured here")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidesdb::{Comparator, Cursor, Db, Family, Snapshot};

use crate::common::{Sim, small};

const VERSIONS: u64 = 100_000;
/// Versions between two snapshots, of which a table keeps one.
const STRIDE: u64 = 10;

/// Returns the shortest time of one call among several rounds of a few calls.
fn time(mut call: impl FnMut()) -> Duration {
    let mut round = || {
        let start = Instant::now();
        (0..20).for_each(|_| call());
        start.elapsed() / 20
    };
    (0..20).map(|_| round()).min().unwrap_or_default()
}

/// Creates `VERSIONS` versions of one key between two other keys, with snapshots in between.
fn history(sim: &Sim, order: &Comparator) -> (Db, Vec<(u64, Snapshot)>) {
    let family = small().comparator(order.clone()).write_buffer_bytes(64 << 20);
    let db = sim.options().comparator(order.clone()).default_family(family).open().unwrap();
    db.put(b"a", b"first").unwrap();
    db.put(b"z", b"last").unwrap();
    let mut held = Vec::new();
    for i in 0..VERSIONS {
        db.put(b"hot", &i.to_be_bytes()).unwrap();
        if i % STRIDE == 0 {
            held.push((i, db.snapshot()));
        }
    }
    (db, held)
}

/// Checks that all snapshots show the correct version, and that the oldest costs little more than the newest.
fn check(what: &str, family: &Family, held: &[(u64, Snapshot)]) {
    for (i, snapshot) in held.iter().step_by(101) {
        assert_eq!(snapshot.get(family, b"hot").unwrap().unwrap(), i.to_be_bytes());
        let pairs = crate::common::pairs(snapshot.iter(family).unwrap());
        assert_eq!((pairs.len(), &pairs[1].1[..]), (3, &i.to_be_bytes()[..]));
        let mut back = crate::common::pairs(snapshot.iter(family).unwrap().rev());
        back.reverse();
        assert_eq!(back, pairs);
    }
    let (oldest, newest) = (&held[0].1, &held[held.len() - 1].1);
    compare(what, "get", &mut [newest, oldest], |s| drop(s.get(family, b"hot").unwrap()));
    let cursor = |s: &Snapshot| s.cursor(family).unwrap();
    let mut cursors = [newest, oldest].map(cursor);
    let seek = |c: &mut Cursor| c.seek(b"hot").unwrap();
    compare(what, "seek", &mut cursors, seek);
    let mut cursors = [newest, oldest].map(cursor);
    let walk = |c: &mut Cursor| {
        c.seek_to_first().unwrap();
        (0..3).for_each(|_| c.next().unwrap());
        assert!(!c.valid());
    };
    compare(what, "scan", &mut cursors, walk);
    let back = |c: &mut Cursor| {
        c.seek_to_last().unwrap();
        (0..3).for_each(|_| c.prev().unwrap());
        assert!(!c.valid());
    };
    compare(what, "scan back", &mut cursors, back);
}

/// Times `call` on the newest and the oldest snapshot; a scan over the versions would be thousands of times slower.
fn compare<T>(what: &str, call: &str, of: &mut [T; 2], act: impl Fn(&mut T)) {
    let [newest, oldest] = of.each_mut().map(|it| time(|| act(it)));
    println!("{what}: {call} {} ns newest, {} ns oldest", newest.as_nanos(), oldest.as_nanos());
    assert!(oldest < newest * 50 + Duration::from_micros(2), "{what}: {call} {newest:?} and {oldest:?}");
}

#[test]
fn old_versions_in_memory_are_found_without_a_scan() {
    let listed = Comparator::custom("bytes", |a: &[u8], b: &[u8]| a.cmp(b));
    for order in [Comparator::bytewise(), listed] {
        let sim = Sim::new();
        let (db, held) = history(&sim, &order);
        check(order.name(), db.default_family(), &held);
    }
}

#[test]
fn old_versions_in_tables_are_found_without_a_scan() {
    let sim = Sim::new();
    let (db, mut held) = history(&sim, &Comparator::bytewise());
    db.flush().unwrap();
    check("table", db.default_family(), &held);
    // The same in a memtable above the table and in both.
    for i in VERSIONS..2 * VERSIONS {
        db.put(b"hot", &i.to_be_bytes()).unwrap();
        if i % STRIDE == 0 {
            held.push((i, db.snapshot()));
        }
    }
    check("table and memtable", db.default_family(), &held);
    db.compact().unwrap();
    check("compacted", db.default_family(), &held);
}

/// A few keys with thousands of versions each, at random, in every place and with every comparator.
#[test]
fn random_histories_match_the_model() {
    let orders = [Comparator::bytewise(), Comparator::reverse_bytewise(), Comparator::case_insensitive()];
    for (seed, order) in orders.into_iter().enumerate() {
        println!("seed {seed} {}", order.name());
        let mut state = seed as u64 * 2 + 1;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let sim = Sim::new();
        let db = sim.open();
        let f = db.create_family("f", small().comparator(order.clone())).unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut held = Vec::new();
        for step in 0..12_000u64 {
            let key = vec![b'a' + below(5) as u8];
            if below(10) == 0 {
                f.delete(&key).unwrap();
                model.remove(&key);
            } else {
                f.put(&key, &step.to_be_bytes()).unwrap();
                model.insert(key, step.to_be_bytes().to_vec());
            }
            match below(3000) {
                0..120 => held.push((model.clone(), db.snapshot())),
                120 => f.flush().unwrap(),
                _ => {}
            }
        }
        for (model, snapshot) in &held {
            let mut expected: Vec<_> = model.clone().into_iter().collect();
            expected.sort_by(|a, b| order.compare(&a.0, &b.0));
            assert_eq!(crate::common::pairs(snapshot.iter(&f).unwrap()), expected);
            let mut cursor = snapshot.cursor(&f).unwrap();
            for _ in 0..20 {
                check_seek(&mut cursor, &expected, &order, [below(7) as u8, below(2) as u8, below(3) as u8]);
            }
        }
    }
}

/// Seeks to a letter, forward or back, and steps forward or back.
fn check_seek(
    cursor: &mut Cursor,
    expected: &[(Vec<u8>, Vec<u8>)],
    order: &Comparator,
    [letter, seek, way]: [u8; 3],
) {
    let target = [b'a' + letter - 1];
    let mut at = if seek == 0 {
        cursor.seek(&target).unwrap();
        expected.partition_point(|(key, _)| order.compare(key, &target).is_lt())
    } else {
        cursor.seek_for_prev(&target).unwrap();
        expected.partition_point(|(key, _)| order.compare(key, &target).is_le()).wrapping_sub(1)
    };
    while let Some((key, value)) = expected.get(at) {
        assert_eq!(cursor.key(), key);
        assert_eq!(cursor.value().unwrap(), value);
        if way == 0 {
            cursor.next().unwrap();
            at += 1;
        } else {
            cursor.prev().unwrap();
            at = at.wrapping_sub(1);
        }
    }
    assert!(!cursor.valid());
}
