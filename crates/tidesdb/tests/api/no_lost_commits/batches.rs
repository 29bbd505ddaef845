//! Batches: all or nothing, in order.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use tidesdb::{Error, WriteBatch};
use tidesdb_io::sim::Image;

use crate::common::{Sim, contents, noise, small, value};

#[test]
fn a_batch_is_one_commit_across_families() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.put(&a, b"k", b"1").unwrap();
    batch.put(db.default_family(), b"k", b"2").unwrap();
    let seq = db.write(&mut batch).unwrap();
    assert!(before.seq() < seq && db.snapshot().seq() >= seq);
    assert!(!before.contains(&a, b"k").unwrap() && !before.contains(db.default_family(), b"k").unwrap());
    assert_eq!(
        (value(&a, b"k").unwrap(), value(db.default_family(), b"k").unwrap()),
        (b"1".into(), b"2".into())
    );
}

/// More operations than are inserted under one pin, of families that take turns after 1, 2, 3, ... operations.
#[test]
fn a_long_batch_reaches_all_its_families_in_order() {
    let sim = Sim::new();
    let db = sim.open();
    let families: Vec<_> = ["a", "b", "c"].map(|name| db.create_family(name, small()).unwrap()).into();
    for len in [63, 64, 65, 128, 500] {
        let mut batch = WriteBatch::new();
        let mut expected = vec![BTreeMap::new(); families.len()];
        let (mut turn, mut left) = (0, 0);
        for n in 0..len {
            if left == 0 {
                (turn, left) = (turn + 1, turn % 7 + 1);
            }
            left -= 1;
            let at = turn % families.len();
            let (key, value) = (format!("{:03}", n % 150).into_bytes(), format!("{len} {n}").into_bytes());
            batch.put(&families[at], &key, &value).unwrap();
            expected[at].insert(key, value);
        }
        let clears = [&families[0], &families[1], &families[2]];
        clears.iter().for_each(|family| family.delete_range(..).map(drop).unwrap());
        db.write(&mut batch).unwrap();
        for (family, expected) in families.iter().zip(expected) {
            assert_eq!(contents(family), expected.into_iter().collect::<Vec<_>>(), "{len} operations");
        }
    }
}

/// The same operations in one batch, and in two that are appended: puts, deletes, range deletes, operands and a value that the put stored.
#[test]
fn appended_batches_are_as_one() {
    let sim = Sim::new();
    let db = sim.open();
    let counters = || small().merge_operator(tidesdb::MergeOperator::add());
    let long = noise(7, 9 << 20);
    let fill = |name: &str, cut: usize| {
        let families = [0, 1].map(|n| db.create_family(&format!("{name}-{n}"), counters()).unwrap());
        let mut parts = [WriteBatch::new(), WriteBatch::new()];
        for n in 0..40usize {
            let (batch, family, key) = (&mut parts[usize::from(n >= cut)], &families[n % 2], [(n % 9) as u8]);
            match n % 5 {
                0 => batch.delete(family, key).unwrap(),
                1 if n % 3 == 0 => batch.delete_range(family, [2u8]..[5u8]).unwrap(),
                2 => batch.merge(family, key, (n as u64).to_le_bytes()).unwrap(),
                _ => batch.put(family, key, (n as u64).to_le_bytes()).unwrap(),
            }
        }
        parts[1].put(&families[1], b"long", &long).unwrap();
        (families, parts)
    };
    let mut expected = None;
    for cut in [0, 1, 17, 40] {
        let (families, [mut first, second]) = fill(&format!("at {cut}"), cut);
        first.append(&second).unwrap();
        assert_eq!((first.len(), second.is_empty()), (41, false));
        drop(second);
        db.write(&mut first).unwrap();
        assert_eq!(value(&families[1], b"long").as_ref(), Some(&long));
        let now = families.each_ref().map(contents);
        assert_eq!(expected.get_or_insert_with(|| now.clone()), &now, "cut at {cut}");
    }
    let other = Sim::new();
    let mut foreign = WriteBatch::new();
    foreign.put(other.open().default_family(), b"k", b"v").unwrap();
    let mut batch = WriteBatch::new();
    batch.append(&foreign).unwrap();
    batch.clear();
    batch.put(db.default_family(), b"k", b"v").unwrap();
    assert!(matches!(batch.append(&foreign), Err(Error::InvalidArgument { .. })));
    batch.append(&WriteBatch::new()).unwrap();
    assert_eq!(batch.len(), 1);
}

#[test]
fn a_failed_put_leaves_nothing_to_the_next_one() {
    let sim = Sim::new();
    let db = sim.open();
    let gone = db.create_family("gone", small()).unwrap();
    db.drop_family("gone").unwrap();
    for _ in 0..2 {
        assert!(matches!(db.put(b"", b"no key"), Err(Error::InvalidArgument { .. })));
        assert!(matches!(gone.put(b"lost", b"v"), Err(Error::NotFound { .. })));
        db.put(b"k", b"v").unwrap();
        assert_eq!(contents(db.default_family()), [(b"k".to_vec(), b"v".to_vec())]);
    }
}

#[test]
fn the_last_operation_on_a_key_wins() {
    for flush in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        let mut batch = WriteBatch::new();
        batch.put(f, b"a", b"1").unwrap();
        batch.put(f, b"a", b"2").unwrap();
        batch.put(f, b"b", b"1").unwrap();
        batch.delete(f, b"b").unwrap();
        batch.delete(f, b"c").unwrap();
        batch.put(f, b"c", b"3").unwrap();
        batch.put(f, b"d", &[4; 2000]).unwrap();
        batch.put(f, b"d", b"small").unwrap();
        db.write(&mut batch).unwrap();
        if flush {
            db.flush().unwrap();
        }
        let expected = [("a", "2"), ("c", "3"), ("d", "small")];
        let expected: Vec<_> = expected.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).into();
        assert_eq!(contents(f), expected, "flushed: {flush}");
        assert_eq!(contents(sim.killed().open().default_family()), expected, "replayed");
    }
}

#[test]
fn an_empty_batch_is_no_commit() {
    let sim = Sim::new();
    let db = sim.open();
    let seq = db.put(b"k", b"v").unwrap();
    let mut batch = WriteBatch::new();
    assert!(batch.is_empty());
    let got = db.write(&mut batch).unwrap();
    assert!(got >= seq);
    assert_eq!(db.stats().wal_bytes, {
        db.write(&mut batch).unwrap();
        db.stats().wal_bytes
    });
}

#[test]
fn a_batch_is_empty_after_its_commit_and_can_be_used_again() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut batch = WriteBatch::new();
    for i in 0..10u8 {
        batch.put(f, &[i], &[i; 2000]).unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (1, false));
        db.write(&mut batch).unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (0, true));
    }
    assert_eq!(contents(f).len(), 10);
    let db = sim.killed().open();
    assert_eq!(contents(db.default_family()).len(), 10);
}

#[test]
fn clear_removes_all_operations() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    let mut batch = WriteBatch::new();
    let empty = batch.bytes();
    batch.put(&a, b"k", &[1; 2000]).unwrap();
    assert!(batch.bytes() > 2000);
    batch.clear();
    assert_eq!((batch.len(), batch.bytes()), (0, empty));
    db.drop_family("a").unwrap();
    batch.put(db.default_family(), b"k", b"v").unwrap();
    db.write(&mut batch).unwrap(); // the cleared operation named a dropped family
}

#[test]
fn keys_out_of_bounds_are_rejected() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let longest = vec![b'k'; 64 << 10];
    let mut batch = WriteBatch::new();
    for bad in [&b""[..], &[&longest[..], b"k"].concat()] {
        assert!(matches!(batch.put(f, bad, b"v"), Err(Error::InvalidArgument { .. })));
        assert!(matches!(batch.delete(f, bad), Err(Error::InvalidArgument { .. })));
        assert!(matches!(batch.single_delete(f, bad), Err(Error::InvalidArgument { .. })));
        assert!(matches!(db.put(bad, b"v"), Err(Error::InvalidArgument { .. })));
    }
    assert!(batch.is_empty(), "the batch is unchanged");
    db.put(&longest, b"v").unwrap();
    db.flush().unwrap();
    assert_eq!(value(f, &longest).unwrap(), b"v");
    assert_eq!(contents(f).len(), 1);
}

#[test]
fn batches_larger_than_a_segment_and_a_memtable() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(64 << 10)).open().unwrap();
    let f = db.default_family();
    let mut batch = WriteBatch::new();
    for i in 0..5000u32 {
        batch.put(f, &i.to_be_bytes(), &noise(u64::from(i), 60)).unwrap();
    }
    assert!(batch.bytes() > 3 * (64 << 10));
    db.write(&mut batch).unwrap();
    assert_eq!(contents(f).len(), 5000);
    for after in [sim.killed(), sim.power_lost(&Image::SYNCED, 1)] {
        let db = after.open();
        assert_eq!(contents(db.default_family()), contents(f));
    }
}

#[test]
fn after_a_crash_a_batch_is_complete_or_absent() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    db.sync().unwrap();
    let count = |after: &Sim| {
        let db = after.open();
        let n = contents(db.default_family()).len() + contents(&db.family("a").unwrap()).len();
        db.abandon();
        n
    };
    let mut seen = std::collections::BTreeSet::new();
    let mut batch = WriteBatch::new();
    for i in 0..100u8 {
        batch.put(if i % 2 == 0 { &a } else { db.default_family() }, &[i], &[i; 600]).unwrap();
    }
    let forks = sim.before_each_change(|| {
        db.write(&mut batch).unwrap();
    });
    for (i, fork) in forks.into_iter().enumerate() {
        for image in Image::STANDARD {
            let n = count(&Sim::on(fork.crash_image(&image, i as u64)));
            assert!(n == 0 || n == 100, "{n} of 100 operations at crash {i}, {image:?}");
            seen.insert(n);
        }
    }
    seen.insert(count(&sim.killed()));
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 100]);
}

#[test]
fn every_kind_of_operation_in_one_batch() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for key in [b"a", b"b", b"c"] {
        db.put(key, b"old").unwrap();
    }
    let mut batch = WriteBatch::new();
    batch.put(f, b"a", b"new").unwrap();
    batch.delete(f, b"b").unwrap();
    batch.single_delete(f, b"c").unwrap();
    batch.put_with_ttl(f, b"d", b"ttl", Duration::from_secs(60)).unwrap();
    batch.put_expiring(f, b"e", b"past", UNIX_EPOCH).unwrap();
    assert_eq!(batch.len(), 5);
    db.write(&mut batch).unwrap();
    let keys = |f| contents(f).into_iter().map(|(k, _)| k).collect::<Vec<_>>();
    assert_eq!(keys(f), [b"a", b"d"]);
    assert_eq!(keys(sim.killed().open().default_family()), [b"a", b"d"]);
}

#[test]
fn sequence_numbers_grow() {
    let sim = Sim::new();
    let db = sim.open();
    let mut last = 0;
    for i in 0..2000u32 {
        let seq = db.put(&i.to_be_bytes(), &[0; 100]).unwrap();
        assert!(seq > last);
        last = seq;
    }
    db.close().unwrap();
    assert!(sim.open().put(b"k", b"v").unwrap() > last, "across opens too");
}

#[test]
fn a_family_of_another_database_is_refused() {
    let (one, two) = (Sim::new(), Sim::new());
    let (db, other) = (one.open(), two.open());
    let mut batch = WriteBatch::new();
    let refused = batch.put(other.default_family(), b"k", b"v").and_then(|()| db.write(&mut batch).map(drop));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    assert!(value(db.default_family(), b"k").is_none() && value(other.default_family(), b"k").is_none());
}

#[test]
fn a_batch_with_families_of_two_databases_is_refused() {
    let (one, two) = (Sim::new(), Sim::new());
    let (db, other) = (one.open(), two.open());
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), b"k", b"here").unwrap();
    let refused =
        batch.put(other.default_family(), b"k", b"there").and_then(|()| db.write(&mut batch).map(drop));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    assert!(value(other.default_family(), b"k").is_none());
}
