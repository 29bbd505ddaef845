//! Snapshots: a fixed read timestamp, repeatable reads, and release.

use crate::common::{Sim, contents, fill, pairs, small, value};

#[test]
fn a_snapshot_has_one_read_timestamp_for_all_families() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    let f = db.default_family();
    db.put(b"k", b"old").unwrap();
    a.put(b"k", &[1; 3000]).unwrap();
    let before = db.snapshot();
    db.put(b"k", b"new").unwrap();
    a.delete(b"k").unwrap();
    db.put(b"later", b"x").unwrap();
    assert_eq!(before.get(f, b"k").unwrap().unwrap(), b"old");
    assert_eq!(before.get(&a, b"k").unwrap().unwrap(), [1; 3000]);
    assert!(!before.contains(f, b"later").unwrap());
    let many = before.multi_get(f, &[b"later", b"k\0\0\0\0"]).unwrap();
    assert_eq!(many, [None, None]);
    assert_eq!(before.multi_get(f, &[b"k"]).unwrap()[0].as_deref(), Some(&b"old"[..]));
    assert_eq!(pairs(before.iter(f).unwrap()), [(b"k".to_vec(), b"old".to_vec())]);
}

#[test]
fn snapshot_reads_are_repeatable_across_flush_and_compaction() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut taken = Vec::new();
    for round in 0..12u8 {
        for key in 0..30u8 {
            match (key + round) % 5 {
                0 => drop(db.delete(&[key]).unwrap()),
                n => drop(db.put(&[key], &vec![round; usize::from(n) * 300]).unwrap()),
            }
        }
        let snapshot = db.snapshot();
        taken.push((pairs(snapshot.iter(f).unwrap()), snapshot));
        match round % 4 {
            1 => db.flush().unwrap(),
            3 => db.compact().unwrap(),
            _ => {}
        }
    }
    db.compact().unwrap();
    for (round, (expected, snapshot)) in taken.iter().enumerate() {
        assert_eq!(&pairs(snapshot.iter(f).unwrap()), expected, "round {round}");
        let mut back = pairs(snapshot.iter(f).unwrap().rev());
        back.reverse();
        assert_eq!(&back, expected, "round {round}");
        for key in 0..30u8 {
            let got = snapshot.get(f, &[key]).unwrap().map(tidesdb::Slice::into_vec);
            assert_eq!(got, expected.iter().find(|(k, _)| *k == [key]).map(|(_, v)| v.clone()));
        }
    }
}

#[test]
fn versions_are_kept_for_their_readers_and_dropped_without() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut held = Vec::new();
    for i in 0..10u8 {
        db.put(b"k", &[i]).unwrap();
        held.push(db.snapshot());
    }
    db.compact().unwrap();
    assert_eq!(f.stats().table_entries, 10);
    held.retain(|s| s.get(f, b"k").unwrap().unwrap()[0] % 3 == 0);
    db.compact().unwrap();
    // Versions 0, 3, 6 and 9; 9 is also the newest.
    assert_eq!(f.stats().table_entries, 4);
    drop(held);
    db.compact().unwrap();
    assert_eq!(f.stats().table_entries, 1);
    assert_eq!(value(f, b"k").unwrap(), [9]);
}

#[test]
fn a_tombstone_is_kept_while_a_reader_needs_the_version_it_hides() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    db.put(b"k", b"v").unwrap();
    let before = db.snapshot();
    db.delete(b"k").unwrap();
    db.compact().unwrap();
    assert_eq!(before.get(f, b"k").unwrap().unwrap(), b"v");
    assert!(value(f, b"k").is_none());
    drop(before);
    db.compact().unwrap();
    assert_eq!(f.stats().table_entries, 0);
}

#[test]
fn clones_and_iterators_of_a_snapshot_keep_its_versions() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    fill(f, 100, b"old");
    let first = db.snapshot();
    let second = first.clone();
    let iter = first.range(f, "key000050"..).unwrap();
    let cursor = first.cursor(f).unwrap();
    assert_eq!(first.seq(), second.seq());
    drop(first);
    fill(f, 100, b"new");
    db.compact().unwrap();
    assert!(iter.map(Result::unwrap).all(|(_, v)| v == b"old"));
    assert_eq!(second.prefix(f, b"key00009").unwrap().count(), 10);
    assert_eq!(second.get(f, b"key000000").unwrap().unwrap(), b"old");
    assert!(db.stats().snapshots >= 1);
    drop((second, cursor));
    assert_eq!(db.stats().snapshots, 0);
}

#[test]
fn a_snapshot_of_an_empty_database() {
    let sim = Sim::new();
    let db = sim.open();
    let empty = db.snapshot();
    fill(db.default_family(), 10, b"v");
    let late = db.create_family("late", small()).unwrap();
    late.put(b"k", b"v").unwrap();
    db.compact().unwrap();
    assert_eq!(empty.iter(db.default_family()).unwrap().count(), 0);
    assert_eq!(empty.iter(&late).unwrap().count(), 0, "the family was created later");
}

#[test]
fn a_snapshot_taken_just_after_opening_sees_everything() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 10, b"v");
    for after in [sim.killed(), {
        db.close().unwrap();
        sim
    }] {
        let db = after.open();
        let snapshot = db.snapshot();
        db.put(b"key000000", b"w").unwrap();
        db.compact().unwrap();
        assert_eq!(pairs(snapshot.iter(db.default_family()).unwrap()).len(), 10);
        assert_eq!(snapshot.get(db.default_family(), b"key000000").unwrap().unwrap(), b"v");
    }
}

#[test]
fn a_thousand_snapshots() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let all: Vec<_> =
        (0..1000u32).map(|i| (db.put(b"n", &i.to_be_bytes()).unwrap(), db.snapshot())).collect();
    assert_eq!(db.stats().snapshots, 1000);
    db.compact().unwrap();
    for (i, (seq, snapshot)) in all.iter().enumerate() {
        assert!(snapshot.seq() >= *seq);
        assert_eq!(snapshot.get(f, b"n").unwrap().unwrap(), (i as u32).to_be_bytes());
    }
}

#[test]
fn a_snapshot_of_another_database_is_rejected() {
    let (one, two) = (Sim::new(), Sim::new());
    let (db, other) = (one.open(), two.open());
    other.put(b"k", b"v").unwrap();
    let snapshot = db.snapshot();
    let got = snapshot.get(other.default_family(), b"k");
    assert!(matches!(got, Err(tidesdb::Error::InvalidArgument { .. })), "{got:?}");
    assert_eq!(contents(other.default_family()).len(), 1);
}
