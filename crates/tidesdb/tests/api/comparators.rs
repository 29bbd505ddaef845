//! Key orders: the built-in ones and one's own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tidesdb::{Comparator, Db, Error, Family, MemtableKind};

use crate::common::{Sim, contents, fill, keys, keys_back, letters, small, value};

fn with(sim: &Sim, order: Comparator) -> (Db, Family) {
    let db = sim.options().comparator(order.clone()).open().unwrap();
    let family = db.create_family("ordered", small().comparator(order)).unwrap();
    (db, family)
}

/// The keys in order, wherever they are.
fn orders(order: &Comparator, keys: &[&[u8]], expected: &[&[u8]]) {
    let sim = Sim::new();
    let (db, f) = with(&sim, order.clone());
    let sorted = |f: &Family| contents(f).into_iter().map(|(k, _)| k).collect::<Vec<_>>();
    for (i, key) in keys.iter().enumerate() {
        f.put(key, b"v").unwrap();
        if i == keys.len() / 2 {
            f.flush().unwrap();
        }
    }
    assert_eq!(sorted(&f), expected, "{}", order.name());
    db.compact().unwrap();
    assert_eq!(sorted(&f), expected, "{}", order.name());
    db.close().unwrap();
    let db = sim.options().comparator(order.clone()).open().unwrap();
    let f = db.family("ordered").unwrap();
    assert_eq!(sorted(&f), expected, "{}", order.name());
    let back: Vec<_> = f.iter().unwrap().rev().map(|kv| kv.unwrap().0.into_vec()).collect();
    assert!(back.iter().rev().eq(expected));
    for key in expected {
        assert!(f.contains(key).unwrap());
    }
}

#[test]
fn the_built_in_orders() {
    let bytes: [&[u8]; 5] = [b"b", b"a", b"\xff", b"aa", b"\0"];
    orders(&Comparator::bytewise(), &bytes, &[b"\0", b"a", b"aa", b"b", b"\xff"]);
    orders(&Comparator::reverse_bytewise(), &bytes, &[b"\xff", b"b", b"aa", b"a", b"\0"]);
    let [one, big, neg] = [1, 256, -1].map(i64::to_le_bytes);
    let strings: [&[u8]; 5] = [b"b", b"ab", b"\xff", b"a", b"\0z"];
    orders(&Comparator::lexicographic(), &strings, &[b"\0z", b"a", b"ab", b"b", b"\xff"]);
    orders(&Comparator::u64_le(), &[&neg, &big, b"odd", &one], &[&one, &big, &neg, b"odd"]);
    orders(&Comparator::i64_le(), &[&big, b"odd", &neg, &one], &[&neg, &one, &big, b"odd"]);
}

#[test]
fn what_follows_a_zero_does_not_count() {
    let sim = Sim::new();
    let order = Comparator::by_name("lexicographic").unwrap();
    let db = sim.open();
    let f = db.create_family("strings", small().comparator(order.clone())).unwrap();
    f.put(b"key\0one", b"1").unwrap();
    f.flush().unwrap();
    f.put(b"key\0two", b"2").unwrap();
    f.put(b"key2", b"3").unwrap();
    assert_eq!((value(&f, b"key"), contents(&f).len()), (Some(b"2".to_vec()), 2));
    f.compact().unwrap();
    assert_eq!((value(&f, b"key\0"), contents(&f).len()), (Some(b"2".to_vec()), 2));
    let mut keys: [&[u8]; 6] = [b"b", b"", b"a\0b", b"a\x01", b"\0x", b"aa"];
    keys.sort_by(|a, b| order.compare(a, b));
    assert_eq!(keys, [&b""[..], b"\0x", b"a\0b", b"a\x01", b"aa", b"b"]);
}

#[test]
fn an_order_of_ones_own() {
    let by_length = Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    orders(&by_length, &[b"ccc", b"bb", b"z", b"aaaa", b"ba"], &[b"z", b"ba", b"bb", b"ccc", b"aaaa"]);
}

#[test]
fn keys_that_compare_equal_are_one_key() {
    let sim = Sim::new();
    let (db, f) = with(&sim, Comparator::case_insensitive());
    f.put(b"Key", b"1").unwrap();
    f.flush().unwrap();
    assert_eq!(value(&f, b"KEY").unwrap(), b"1", "in a table, past the filter");
    f.put(b"kEY", b"2").unwrap();
    assert_eq!(value(&f, b"key").unwrap(), b"2");
    assert_eq!(contents(&f).len(), 1);
    f.delete(b"KeY").unwrap();
    f.flush().unwrap();
    assert!(value(&f, b"Key").is_none() && contents(&f).is_empty());
    db.compact().unwrap();
    assert_eq!(f.stats().table_entries, 0);
}

#[test]
fn ranges_follow_the_order() {
    let sim = Sim::new();
    let (db, f) = with(&sim, Comparator::reverse_bytewise());
    for key in ["a", "b", "c", "d"] {
        f.put(key.as_bytes(), b"v").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(keys(f.range("d".."b")), ["d", "c"]);
    assert_eq!(keys_back(f.range("c"..)), ["a", "b", "c"]);
    assert!(keys(f.range("b".."d")).is_empty());
    let mut c = f.cursor().unwrap();
    c.seek(b"cc").unwrap();
    assert_eq!(c.key(), b"c");
    c.seek_for_prev(b"bb").unwrap();
    assert_eq!(c.key(), b"c");
}

#[test]
fn an_order_that_is_not_given_is_refused_by_name() {
    let sim = Sim::new();
    let order = Comparator::custom("mine", |a, b| b.cmp(a));
    let (db, f) = with(&sim, order.clone());
    f.put(b"k", b"v").unwrap();
    db.close().unwrap();
    let e = sim.options().open().unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { .. }) && e.to_string().contains("mine"), "{e}");
    let other = Comparator::custom("another", |a, b| a.cmp(b));
    assert!(sim.options().comparator(other).open().is_err());
    let db = sim.options().comparator(order).open().unwrap();
    assert_eq!(value(&db.family("ordered").unwrap(), b"k").unwrap(), b"v");
}

#[test]
fn names_of_built_in_orders_are_found() {
    for name in ["bytewise", "reverse-bytewise", "case-insensitive", "u64", "i64"] {
        assert_eq!(Comparator::by_name(name).unwrap().name(), name);
    }
    assert!(Comparator::by_name("none").is_none());
}

#[test]
fn both_kinds_of_memtable_show_the_same() {
    let sim = Sim::new();
    let db = sim.open();
    let list = db.create_family("list", small().memtable(MemtableKind::SkipList)).unwrap();
    for f in [&list, db.default_family()] {
        fill(f, 1000, b"v");
        for i in (0..1000).step_by(3) {
            f.delete(format!("key{i:06}").as_bytes()).unwrap();
        }
    }
    assert_eq!(contents(&list), contents(db.default_family()));
    assert_eq!(
        keys_back(list.range("key000100".."key000200")),
        keys_back(db.range("key000100".."key000200"))
    );
}

#[test]
fn a_comparator_that_panics_harms_nobody_else() {
    static ANGRY: AtomicBool = AtomicBool::new(false);
    let order = Comparator::custom("moody", |a, b| {
        assert!(!ANGRY.load(SeqCst), "in a bad mood");
        a.cmp(b)
    });
    let sim = Sim::new();
    let (db, f) = with(&sim, order.clone());
    letters(&f, "ac");
    ANGRY.store(true, SeqCst);
    let panicked = catch_unwind(AssertUnwindSafe(|| f.put(b"b", b"v")));
    assert!(panicked.is_err());
    ANGRY.store(false, SeqCst);
    // Whether it is in the log is unknown to who wrote it: the database says so and nobody waits.
    assert!(matches!(db.put(b"other", b"v"), Err(Error::Poisoned { .. })));
    assert_eq!(keys(f.iter()), ["a", "c"]);
    drop((db, f));
    let db = sim.options().comparator(order).open().unwrap();
    let found = keys(db.family("ordered").unwrap().iter());
    assert!(found == ["a", "b", "c"] || found == ["a", "c"], "{found:?}");
}
