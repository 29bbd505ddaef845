//! `multi_get` of cold keys: its answers, and that the disk gets all its reads at once.

use tidesdb::{Db, Error, Family, Isolation, Result, Slice};
use tidesdb_io::sim::{Fault, Op, OpKind};

use crate::common::{Sim, noise, small};

const KEYS: u64 = 6000;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Opens a database with an empty block cache: tables of both levels, newer versions, tombstones, and values in value logs.
fn cold(sim: &Sim, cache_bytes: u64, filter_bits: u32) -> Db {
    let mut family = small().filter_bits_per_key(filter_bits);
    family.l1_tables_trigger = 100;
    let options = || sim.options().default_family(family.clone()).cache_bytes(cache_bytes);
    let db = options().open().unwrap();
    let f = db.default_family();
    for i in 0..KEYS {
        f.put(&key(i), &noise(i, if i % 10 == 0 { 1500 } else { 100 })).unwrap();
    }
    db.compact().unwrap();
    for i in (0..KEYS).step_by(7) {
        f.put(&key(i), &noise(i + 1, if i % 3 == 0 { 900 } else { 120 })).unwrap();
    }
    db.flush().unwrap();
    for i in (0..KEYS).step_by(11) {
        f.delete(&key(i)).unwrap();
    }
    db.close().unwrap();
    sim.disk.log_ops(true);
    options().open().unwrap()
}

/// Returns the operations on tables and value logs that `call` causes.
fn ops_of(sim: &Sim, call: impl FnOnce()) -> Vec<Op> {
    sim.disk.log_ops(true);
    call();
    let ops = sim.disk.ops();
    ops.into_iter().filter(|op| op.path.ends_with(".klog") || op.path.ends_with(".vlog")).collect()
}

fn one_by_one(family: &Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Slice>>> {
    keys.iter().map(|key| family.get(key)).collect()
}

#[test]
fn the_blocks_of_all_keys_are_requested_before_the_first_is_read() {
    let sim = Sim::new();
    let db = cold(&sim, 1 << 20, 10);
    // In random order, spread over the tables. Another test covers values in value logs.
    let keys: Vec<Vec<u8>> = (0..32).map(|i| key(1 + (i * 4711 % 590) * 10)).collect();
    let mut got = Vec::new();
    let mut ops = ops_of(&sim, || got = db.multi_get(&keys).unwrap());
    ops.retain(|op| op.path.ends_with(".klog"));
    let first_read = ops.iter().position(|op| op.kind == OpKind::Read).unwrap();
    let (ahead, reads) = ops.split_at(first_read);
    assert!(ahead.iter().all(|op| op.kind == OpKind::Advise));
    assert!((20..=32).contains(&ahead.len()), "{} blocks requested", ahead.len());
    // Filters have occasional false positives: then another block is read, in a separate round.
    assert!(reads.len() <= ahead.len() + 4, "{} reads", reads.len());
    let bytes: u64 = reads.iter().filter(|op| op.kind == OpKind::Read).map(|op| op.len).sum();
    assert!(bytes < 36 * 8192, "{bytes} bytes read");
    assert_eq!(got, one_by_one(db.default_family(), &keys).unwrap());
    // Everything is cached now.
    let again = ops_of(&sim, || drop(db.multi_get(&keys).unwrap()));
    assert!(again.iter().all(|op| op.path.ends_with(".vlog")), "{again:?}");
}

#[test]
fn values_in_value_logs_are_requested_together() {
    let sim = Sim::new();
    let db = cold(&sim, 1 << 20, 10);
    let keys: Vec<Vec<u8>> = (0..32).map(|i| key(i * 130)).collect();
    let mut got = Vec::new();
    let ops = ops_of(&sim, || got = db.multi_get(&keys).unwrap());
    let long = got.iter().flatten().filter(|value| value.len() > 512).count();
    assert!(long > 20);
    let vlog: Vec<OpKind> = ops
        .iter()
        .filter(|op| {
            op.path.ends_with(".vlog") && [OpKind::Advise, OpKind::Read].contains(&op.kind) && op.len > 64
        })
        .map(|op| op.kind)
        .collect();
    let want = [vec![OpKind::Advise; long], vec![OpKind::Read; long]].concat();
    assert_eq!(vlog, want);
}

#[test]
fn values_that_lie_together_are_requested_and_read_together() {
    let sim = Sim::new();
    let db = cold(&sim, 1 << 20, 10);
    // Neighbours, last ones first. A tenth of the values was replaced or deleted later.
    let keys: Vec<Vec<u8>> = (0..32).rev().map(|i| key(1000 + i * 10)).collect();
    let mut got = Vec::new();
    let ops = ops_of(&sim, || got = db.multi_get(&keys).unwrap());
    assert!(got.iter().flatten().filter(|value| value.len() > 512).count() > 20);
    let count =
        |kind| ops.iter().filter(|op| op.path.ends_with(".vlog") && op.kind == kind && op.len > 64).count();
    let (ahead, reads) = (count(OpKind::Advise), count(OpKind::Read));
    assert!(reads <= 4 && ahead == reads, "{ahead} requests, {reads} reads");
    assert_eq!(got, one_by_one(db.default_family(), &keys).unwrap());
}

#[test]
fn a_single_key_is_read_at_once() {
    let sim = Sim::new();
    let db = cold(&sim, 1 << 20, 10);
    let ops = ops_of(&sim, || drop(db.multi_get(&[key(1)]).unwrap()));
    assert_eq!(ops.iter().map(|op| op.kind).collect::<Vec<_>>(), [OpKind::Read]);
}

#[test]
fn the_answers_are_those_of_single_reads() {
    for (cache_bytes, filter_bits) in [(1 << 20, 10), (0, 10), (64 << 10, 0)] {
        let sim = Sim::new();
        let db = cold(&sim, cache_bytes, filter_bits);
        let f = db.default_family();
        let mut x = 17u64;
        let mut random = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % n
        };
        for round in 0..60 {
            let keys: Vec<Vec<u8>> = (0..random(400)).map(|_| key(random(KEYS + 100))).collect();
            let snapshot = db.snapshot();
            let want = one_by_one(f, &keys).unwrap();
            assert_eq!(f.multi_get(&keys).unwrap(), want, "round {round}");
            if random(3) == 0 {
                f.put(&key(random(KEYS)), b"since then").unwrap();
                f.delete(&key(random(KEYS))).unwrap();
            }
            assert_eq!(snapshot.multi_get(f, &keys).unwrap(), want, "round {round}");
        }
    }
}

#[test]
fn a_failed_read_fails_the_call_but_not_later_calls() {
    let sim = Sim::new();
    let db = cold(&sim, 0, 10);
    let f = db.default_family();
    let keys: Vec<Vec<u8>> = (0..64).map(|i| key(i * 93)).collect();
    let want = one_by_one(f, &keys).unwrap();
    let mut failed = 0;
    for skip in 0..70 {
        sim.disk.inject(Fault::errno(5).on(OpKind::Read).skip(skip));
        match f.multi_get(&keys) {
            Ok(got) => assert_eq!(got, want, "after {skip} reads"),
            Err(e) => {
                failed += 1;
                assert!(e.to_string().contains("klog") || e.to_string().contains("vlog"), "{e}");
            }
        }
        sim.disk.clear_faults();
        assert_eq!(f.multi_get(&keys).unwrap(), want);
    }
    assert!(failed >= 60, "{failed}");
    // Failed advice changes nothing.
    sim.disk.inject(Fault::errno(5).on(OpKind::Advise).forever());
    sim.disk.inject(Fault::short().on(OpKind::Read).forever());
    assert_eq!(f.multi_get(&keys).unwrap(), want);
}

/// `multi_contains` answers as `contains` does, and reads no value.
#[test]
fn many_keys_exist_or_not_and_no_value_is_read() {
    let sim = Sim::new();
    let db = cold(&sim, 1 << 20, 10);
    let f = db.default_family();
    f.put_with_ttl("soon", "v", std::time::Duration::from_secs(1)).unwrap();
    f.put("in a memtable", [1; 900]).unwrap();
    sim.clock.advance(std::time::Duration::from_secs(2));
    let mut keys: Vec<Vec<u8>> = (0..400).map(|i| key(i * 17)).collect();
    keys.extend(["soon", "in a memtable", "never", ""].map(|key| key.as_bytes().to_vec()));
    let want: Vec<bool> = keys.iter().map(|key| f.contains(key).unwrap()).collect();
    assert!(want.iter().filter(|yes| **yes).count() > 100 && want.iter().filter(|yes| !**yes).count() > 30);
    let mut got = Vec::new();
    let ops = ops_of(&sim, || got = f.multi_contains(&keys).unwrap());
    assert_eq!(got, want);
    assert!(ops.iter().all(|op| !op.path.ends_with(".vlog")), "{ops:?}");

    let snapshot = db.snapshot();
    let mut tx = db.begin(Isolation::Serializable);
    tx.delete(f, key(0)).unwrap();
    tx.put(f, "never", "v").unwrap();
    let own: Vec<bool> = keys.iter().map(|key| tx.contains(f, key).unwrap()).collect();
    assert_eq!(tx.multi_contains(f, &keys).unwrap(), own);
    assert_ne!(own, want);
    f.delete_range(..).unwrap();
    assert_eq!(db.multi_contains(&keys).unwrap(), vec![false; keys.len()]);
    assert_eq!(snapshot.multi_contains(f, &keys).unwrap(), want);
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    let mut tx = db.begin(Isolation::Serializable);
    assert_eq!(tx.multi_contains(f, &["a", "b"]).unwrap(), [false, false]);
    tx.put(f, "c", "v").unwrap();
    f.put("b", "v").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "it counts as read");
}

#[test]
fn a_snapshot_passes_values_without_a_copy() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put("k", "old").unwrap();
    let snapshot = db.snapshot();
    f.put("k", "newer").unwrap();
    assert_eq!(snapshot.get_map(f, "k", <[u8]>::len).unwrap(), Some(3));
    assert_eq!(snapshot.get_map(f, "l", <[u8]>::len).unwrap(), None);
}
