//! Requested merges: of a range, and cancelled.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::thread;
use std::time::Duration;

use tidesdb::{Db, Error, Family, FamilyOptions, Snapshot, StallCause, SyncMode};
use tidesdb_io::sim::{self, OpKind};

use crate::common::{Sim, contents, fill, keys, noise, pairs, small};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Settings without automatic merges, and with tables of a few blocks.
fn quiet() -> FamilyOptions {
    small().l1_tables_trigger(1000).table_bytes(16 << 10)
}

fn tables(sim: &Sim) -> Vec<String> {
    let mut names = sim.disk.file_names("/db").unwrap();
    names.retain(|name| name.ends_with(".klog"));
    names.sort();
    names
}

fn put(f: &Family, keys: std::ops::Range<u32>, round: u64) {
    for i in keys {
        f.put(format!("key{i:06}").as_bytes(), &noise(u64::from(i) + round, 100)).unwrap();
    }
}

#[test]
fn only_the_range_is_rewritten() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    put(f, 0..3000, 0);
    f.compact().unwrap();
    let before = tables(&sim);
    assert!(before.len() > 10, "{before:?}");
    put(f, 1000..1100, 1);
    f.delete_range("key001050".."key001060").unwrap();
    f.delete(b"key001070").unwrap();
    f.compact_range("key001000".."key001100").unwrap();
    let kept = |names: &[String]| before.iter().filter(|name| names.contains(name)).count();
    assert!(kept(&tables(&sim)) + 4 >= before.len());
    // A reader in another thread may keep a file alive briefly.
    let gone = (0..6000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        f.compact_range("a".."b").unwrap();
        kept(&tables(&sim)) < before.len()
    });
    assert!(gone, "nothing was rewritten");
    let stats = f.stats();
    assert_eq!((stats.level_tables[0], stats.tombstones, stats.range_tombstones), (0, 0, 0));
    assert_eq!((stats.table_entries, contents(f).len()), (3000 - 11, 3000 - 11));
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn tables_outside_the_range_stay() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    for (i, letter) in ["a", "b", "c"].into_iter().enumerate() {
        f.put(letter.as_bytes(), b"1").unwrap();
        f.flush().unwrap();
        f.delete(letter.as_bytes()).unwrap();
        f.put(format!("{letter}{letter}").as_bytes(), b"2").unwrap();
        f.flush().unwrap();
        assert_eq!(f.stats().level_tables[0], 2 * (i + 1));
    }
    for nothing in [(Bound::Included("x"), Bound::Unbounded), (Bound::Included("bz"), Bound::Included("bb"))]
    {
        f.compact_range(nothing).unwrap();
    }
    assert_eq!(f.stats().level_tables, [6]);
    f.compact_range("b"..="bb").unwrap();
    assert_eq!((f.stats().level_tables, f.stats().tombstones), (vec![4, 1], 2));
    f.compact_range("bb"..).unwrap();
    assert_eq!((f.stats().level_tables, f.stats().tombstones), (vec![2, 1], 1));
    f.compact_range(..).unwrap();
    assert_eq!((f.stats().level_tables, f.stats().tombstones), (vec![0, 1], 0));
    assert_eq!(keys(f.iter()), ["aa", "bb", "cc"]);
    assert!(db.verify().unwrap().is_ok());
}

/// A newer table over the range includes the older overlapping tables below it.
#[test]
fn the_order_of_level_1_stays_correct() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    for (keys, value) in [("az", "oldest"), ("mz", "older"), ("cm", "newer")] {
        for key in keys.bytes() {
            f.put(&[key], value.as_bytes()).unwrap();
        }
        f.flush().unwrap();
    }
    // The newest table overlaps both others; the range intersects the oldest and the newest.
    f.compact_range("c".."d").unwrap();
    let expected = [("a", "oldest"), ("c", "newer"), ("m", "newer"), ("z", "older")];
    let expected = expected.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
    assert_eq!(contents(f), expected);
    assert!(db.verify().unwrap().is_ok());
    drop(db);
    assert_eq!(contents(sim.open().default_family()), expected);
}

#[test]
fn random_histories_match_the_model() {
    for seed in 0..20u64 {
        let sim = Sim::new();
        let db = sim.options().default_family(quiet().table_bytes(4 << 10)).open().unwrap();
        let f = db.default_family();
        let mut model = Model::new();
        let mut old: Vec<(Snapshot, Model)> = Vec::new();
        let dice = noise(seed, 4000);
        for (step, roll) in dice.chunks_exact(4).enumerate() {
            let [from, to] = [roll[1].min(roll[2]), roll[1].max(roll[2])].map(|n| vec![b'k', n]);
            match roll[0] % 16 {
                0..8 => {
                    let value = vec![roll[3]; 1 + usize::from(roll[3])];
                    f.put(&from, &value).unwrap();
                    model.insert(from, value);
                }
                8..10 => {
                    f.delete(&from).unwrap();
                    model.remove(&from);
                }
                10 => {
                    f.delete_range(from.clone()..to.clone()).unwrap();
                    model.retain(|key, _| *key < from || *key >= to);
                }
                11..13 => f.flush().unwrap(),
                13..15 => f.compact_range(from.clone()..to.clone()).unwrap(),
                _ if old.len() < 3 => old.push((db.snapshot(), model.clone())),
                _ => drop(old.remove(usize::from(roll[3] % 3))),
            }
            let all: Model = contents(f).into_iter().collect();
            assert!(all == model, "seed {seed}, step {step}");
        }
        for (snapshot, then) in &old {
            let all: Model = pairs(snapshot.iter(f).unwrap()).into_iter().collect();
            assert!(all == *then, "seed {seed}");
        }
        drop(old);
        assert!(db.verify().unwrap().is_ok(), "seed {seed}");
        f.compact_range(..).unwrap();
        let stats = f.stats();
        let left = (stats.table_entries, stats.tombstones, stats.range_tombstones);
        assert_eq!(left, (model.len() as u64, 0, 0), "seed {seed}");
        drop(db);
        let all: Model = contents(sim.open().default_family()).into_iter().collect();
        assert!(all == model, "seed {seed}, opened again");
    }
}

fn three_rounds(f: &Family) {
    for round in 0..3 {
        put(f, 0..20_000, round);
        f.flush().unwrap();
    }
}

#[test]
fn a_cancelled_merge_changes_nothing() {
    let sim = Sim::new();
    let options = quiet().write_buffer_bytes(64 << 20);
    let db = sim.options().default_family(options).open().unwrap();
    let f = db.default_family();
    three_rounds(f);
    let (levels, files) = (f.stats().level_tables, tables(&sim));
    let stopped = (0..100).any(|_| {
        thread::scope(|s| {
            let merge = s.spawn(|| f.compact_range("key000000".."key000001"));
            while !f.stats().compacting && !merge.is_finished() {
                thread::yield_now();
            }
            db.cancel_compactions().unwrap();
            assert!(!f.stats().compacting || merge.is_finished());
            matches!(merge.join().unwrap(), Err(Error::Busy { .. }))
        })
    });
    assert!(stopped, "no merge was cancelled in time");
    if f.stats().level_tables == levels {
        assert_eq!(tables(&sim), files, "the unfinished output was not removed");
    }
    assert!(db.verify().unwrap().is_ok());
    db.put(b"the database", b"is well").unwrap();
    f.compact().unwrap();
    assert_eq!(f.stats().level_tables[0], 0, "a requested merge still runs");
    assert_eq!(contents(f).len(), 20_001);
}

#[test]
fn after_a_cancel_no_merge_starts_automatically_until_the_next_open() {
    let sim = Sim::new();
    let open = || {
        let options = sim.options().sync(SyncMode::None).background_threads(2);
        options.default_family(small().l1_tables_trigger(2)).open().unwrap()
    };
    let level1 = |db: &Db| db.default_family().stats().level_tables[0];
    let db = open();
    db.cancel_compactions().unwrap();
    // Far more than the number at which writers stop.
    for i in 0..60u8 {
        db.put(&[i], b"v").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(level1(&db), 60);
    fill(db.default_family(), 1000, b"v");
    let stats = db.stats();
    assert_eq!(
        (stats.stalled_by(StallCause::Tables).stopped, stats.stalled_by(StallCause::Tables).slowed),
        (0, 0)
    );
    thread::sleep(Duration::from_millis(50));
    assert_eq!(level1(&db), 60);
    db.default_family().compact().unwrap();
    assert_eq!(level1(&db), 0);
    for i in 0..10u8 {
        db.put(&[i], b"v").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(level1(&db), 10);
    db.close().unwrap();
    assert!(matches!(
        sim.options().read_only(true).open().unwrap().cancel_compactions(),
        Err(Error::ReadOnly)
    ));
    let db = open();
    for _ in 0..6000 {
        if level1(&db) < 2 {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("no merge started after the open");
}

#[test]
fn merges_are_divided_if_several_threads_merge() {
    for (threads, divided) in [(0, false), (1, false), (2, true), (4, true)] {
        let sim = Sim::new();
        let options = sim.options().sync(SyncMode::None).background_threads(threads);
        let db = options.default_family(quiet()).open().unwrap();
        let f = db.default_family();
        for round in 0..3 {
            put(f, 0..2000, round);
            f.flush().unwrap();
        }
        f.compact().unwrap();
        let stats = f.stats();
        assert_eq!(stats.merge_parts > stats.compactions, divided, "{stats:?}");
        assert_eq!((stats.table_entries, stats.level_tables[0]), (2000, 0));
        assert_eq!(contents(f).len(), 2000);
        assert!(db.verify().unwrap().is_ok());
    }
}

/// A merge opened each of its inputs a second time: index and filter were read again, into memory that no statistics counted.
#[test]
fn a_merge_does_not_reopen_open_tables() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).open().unwrap();
    let f = db.default_family();
    for round in 0..3 {
        put(f, 0..500, round);
        f.flush().unwrap();
    }
    sim.disk.log_ops(true);
    f.compact().unwrap();
    let opened = |op: &&sim::Op| op.kind == OpKind::Open && op.path.ends_with(".klog");
    // Each output is opened once.
    let outputs = f.stats().level_tables.iter().sum::<usize>();
    assert_eq!(sim.disk.ops().iter().filter(opened).count(), outputs);
}
