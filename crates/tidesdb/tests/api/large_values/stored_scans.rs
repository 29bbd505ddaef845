//! Scans over values in value logs: what they read, counted on the simulated disk.

use tidesdb::{Cursor, Db, ReadOptions};
use tidesdb_io::sim::{Op, OpKind};

use crate::common::{Pair, Sim, contents, noise, small};

const KEYS: u64 = 2000;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// A database of short rows, values in value logs, and chunked values. With `shuffled`, neighbouring keys were written far apart.
fn sample(sim: &Sim, shuffled: bool) -> Db {
    let options = || sim.options().default_family(small()).cache_bytes(16 << 20);
    let db = options().open().unwrap();
    for n in 0..KEYS {
        let i = if shuffled { n * 1237 % KEYS } else { n };
        let len = if i % 10 == 3 { 50 } else { 600 + i as usize % 1000 };
        db.put(key(i), noise(i, len)).unwrap();
    }
    for i in [500, 1500] {
        db.put_stream(key(i), &noise(i, (1 << 20) + 9)[..]).unwrap();
    }
    db.compact().unwrap();
    for i in (0..KEYS).step_by(9) {
        db.put(key(i), noise(i + 7, 700)).unwrap();
    }
    db.delete_range(key(700)..key(750)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    options().open().unwrap()
}

/// Returns the operations on value logs that `call` causes.
fn ops_of(sim: &Sim, call: impl FnOnce()) -> Vec<Op> {
    sim.disk.log_ops(true);
    call();
    let ops = sim.disk.ops();
    sim.disk.log_ops(false);
    ops.into_iter().filter(|op| op.path.ends_with(".vlog")).collect()
}

fn count(ops: &[Op], kind: OpKind) -> usize {
    ops.iter().filter(|op| op.kind == kind).count()
}

#[test]
fn scans_of_keys_never_touch_a_value_log() {
    let sim = Sim::new();
    let db = sample(&sim, true);
    let keys = |db: &Db| db.iter().unwrap().keys().count();
    let ops = ops_of(&sim, || {
        let n = keys(&db);
        assert_eq!(n, 1950);
        assert_eq!(db.iter().unwrap().keys().rev().count(), n);
        assert_eq!(db.range(key(100)..key(900)).unwrap().keys().rev().count(), 750);
        let mut cursor = db.default_family().cursor_with(&ReadOptions::default().keys_only(true)).unwrap();
        cursor.seek_to_last().unwrap();
        while cursor.valid() {
            assert!(cursor.value().is_err());
            cursor.prev().unwrap();
        }
        // A cursor reads a value only when it is asked for.
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
        assert!(db.contains(key(500)).unwrap());
    });
    assert!(ops.is_empty(), "{ops:?}");
    assert!(!ops_of(&sim, || drop(db.get(key(4)).unwrap())).is_empty(), "a value log is read for a value");
}

fn walk(db: &Db, backwards: bool) -> Vec<Pair> {
    let mut cursor = db.cursor().unwrap();
    let mut rows = Vec::new();
    let mut note = |cursor: &mut Cursor| rows.push((cursor.key().to_vec(), cursor.value().unwrap().to_vec()));
    if backwards {
        cursor.seek_to_last().unwrap();
    } else {
        cursor.seek_to_first().unwrap();
    }
    while cursor.valid() {
        note(&mut cursor);
        if backwards {
            cursor.prev().unwrap();
        } else {
            cursor.next().unwrap();
        }
    }
    rows
}

fn one_by_one(db: &Db) -> Vec<Pair> {
    let keys = db.iter().unwrap().keys().map(|key| key.unwrap().into_vec());
    keys.map(|key| (key.clone(), db.get(key).unwrap().unwrap().into_vec())).collect()
}

/// Scans all rows, which must be `want`, and returns the calls that this took.
fn scanned(sim: &Sim, db: &Db, want: &[Pair], backwards: bool) -> Vec<Op> {
    let mut rows = Vec::new();
    let ops = ops_of(sim, || rows = walk(db, backwards));
    if backwards {
        rows.reverse();
    }
    assert!(rows == want);
    ops
}

#[test]
fn a_scan_reads_values_that_lie_together_with_one_call() {
    let sim = Sim::new();
    let db = sample(&sim, false);
    let want = one_by_one(&db);
    for backwards in [false, true] {
        let ops = scanned(&sim, &db, &want, backwards);
        let reads = count(&ops, OpKind::Read);
        assert!(reads < want.len() / 4, "{reads} reads for {} values, backwards: {backwards}", want.len());
    }
}

#[test]
fn a_scan_reads_scattered_values_in_the_order_of_the_file() {
    let sim = Sim::new();
    let db = sample(&sim, true);
    let want = one_by_one(&db);
    for backwards in [false, true] {
        let ops = scanned(&sim, &db, &want, backwards);
        // Most reads are ahead of the one before, although the keys were written in another order.
        let reads: Vec<&Op> = ops.iter().filter(|op| op.kind == OpKind::Read).collect();
        let ordered =
            reads.windows(2).filter(|w| w[0].path == w[1].path && w[0].offset < w[1].offset).count();
        assert!(ordered * 10 > reads.len() * 8, "{ordered} of {} reads in order", reads.len());
        assert!(count(&ops, OpKind::Advise) > 0, "the disk is told of all reads of a group");
    }
}

/// The device works on the next values while the scan works on the current ones.
#[test]
fn a_long_scan_asks_for_values_before_it_reads_those_before_them() {
    let sim = Sim::new();
    let db = sample(&sim, true);
    let want = one_by_one(&db);
    for backwards in [false, true] {
        let ops = scanned(&sim, &db, &want, backwards);
        let covers =
            |a: &Op, b: &Op| a.path == b.path && a.offset <= b.offset && b.offset + b.len <= a.offset + a.len;
        // Ranges that were asked for, and after how many reads.
        let mut asked: Vec<(&Op, u32)> = Vec::new();
        let (mut reads, mut early) = (0u32, 0u32);
        for op in &ops {
            if op.kind == OpKind::Advise {
                asked.push((op, reads));
                continue;
            }
            reads += 1;
            early += u32::from(asked.iter().any(|(a, at)| at + 16 <= reads && covers(a, op)));
        }
        assert!(early * 10 > reads * 8, "{early} of {reads} reads, backwards: {backwards}");
    }
}

#[test]
fn a_scan_of_most_values_loads_whole_blocks_once_each() {
    let sim = Sim::new();
    let db = sample(&sim, true);
    let want = one_by_one(&db);
    for backwards in [false, true] {
        let ops = scanned(&sim, &db, &want, backwards);
        let asked: Vec<&Op> = ops.iter().filter(|op| op.kind == OpKind::Advise).collect();
        assert!(asked.len() * 5 < want.len(), "{} requests for {} values", asked.len(), want.len());
        let blocks: Vec<_> =
            asked.iter().filter(|op| op.len == 64 << 10).map(|op| (&op.path, op.offset)).collect();
        let different: std::collections::BTreeSet<_> = blocks.iter().collect();
        assert!(blocks.len() > 10 && different.len() == blocks.len(), "{blocks:?}");
    }
}

#[test]
fn short_scans_read_only_the_values_that_are_asked_for() {
    let sim = Sim::new();
    let db = sample(&sim, true);
    let mut cursor = db.cursor().unwrap();
    let ops = ops_of(&sim, || {
        for start in (0..KEYS).step_by(211) {
            cursor.seek(key(start)).unwrap();
            for _ in 0..8 {
                cursor.value().unwrap();
                cursor.next().unwrap();
            }
        }
    });
    assert!(count(&ops, OpKind::Read) <= 8 * 10 && count(&ops, OpKind::Advise) == 0);
}

#[test]
fn turns_seeks_and_skipped_values_do_not_confuse_the_read_ahead() {
    let sim = Sim::new();
    let db = sample(&sim, true);
    let want = contents(db.default_family());
    let mut cursor = db.cursor().unwrap();
    let mut at = 0usize;
    cursor.seek_to_first().unwrap();
    for (n, draw) in noise(5, 30_000).into_iter().enumerate() {
        match draw {
            0 => {
                at = n * 4711 % want.len();
                cursor.seek(&want[at].0).unwrap();
            }
            1 => {
                at = n * 1009 % want.len();
                cursor.seek_for_prev(&want[at].0).unwrap();
            }
            // Long stretches in each direction.
            _ if n / 300 % 2 == 0 && at + 1 < want.len() => {
                at += 1;
                cursor.next().unwrap();
            }
            _ if n / 300 % 2 == 1 && at > 0 => {
                at -= 1;
                cursor.prev().unwrap();
            }
            _ => {}
        }
        assert_eq!(cursor.key(), want[at].0);
        if draw % 5 != 0 {
            assert!(cursor.value().unwrap() == want[at].1, "row {at}");
        }
    }
}

#[test]
fn damage_is_reported_at_the_row_that_it_concerns() {
    let sim = Sim::new();
    let db = sample(&sim, false);
    let want = one_by_one(&db);
    let names = sim.disk.file_names(crate::common::DB).unwrap();
    let log = names.iter().find(|name| name.ends_with(".vlog")).unwrap();
    sim.disk.corrupt(format!("{}/{log}", crate::common::DB), 200_000, |byte| byte ^ 1).unwrap();
    let mut cursor = db.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let mut damaged = Vec::new();
    for (key, value) in &want {
        assert_eq!(cursor.key(), key);
        match cursor.value() {
            Ok(found) => assert!(found == value),
            Err(e) => damaged.push(e.to_string()),
        }
        cursor.next().unwrap();
    }
    assert!(damaged.len() == 1 && damaged[0].contains(log.as_str()), "{damaged:?}");
}

#[test]
fn damage_ahead_of_a_scan_does_not_hide_the_rows_before_it() {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..400u32 {
        db.put(noise(u64::from(i) + 1, 40), noise(u64::from(i), 66 << 10)).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    let names = sim.disk.file_names("/db").unwrap();
    let table = format!("/db/{}", names.iter().find(|name| name.ends_with(".klog")).unwrap());
    let middle = sim.disk.read_file(&table).unwrap().len() as u64 / 2;
    sim.disk.corrupt(&table, middle, |byte| byte ^ 1).unwrap();
    let db = sim.open();
    let mut keys: Vec<Vec<u8>> = (1..=400).map(|i| noise(i, 40)).collect();
    keys.sort();
    let whole = keys.iter().take_while(|key| db.get(key).is_ok()).count();
    assert!((70..400).contains(&whole), "{whole}");
    let mut cursor = db.cursor().unwrap();
    let mut read = 0;
    let mut step = cursor.seek_to_first();
    while step.is_ok() && cursor.value().is_ok() {
        read += 1;
        step = cursor.next();
    }
    assert_eq!(read, whole);
}
