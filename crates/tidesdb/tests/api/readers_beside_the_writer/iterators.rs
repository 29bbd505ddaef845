//! Iterators: ranges, prefixes, both directions.

use std::ops::Bound::{Excluded, Included, Unbounded};

use tidesdb::{Db, Iter, Result};

use crate::common::{Sim, fill, keys, keys_back, letters, pairs, small};

/// Creates a database with the letters a to h, spread over two levels and a memtable, with an older version of each.
fn spread(sim: &Sim) -> Db {
    let db = sim.open();
    let f = db.default_family();
    letters(f, "aceg");
    db.compact().unwrap();
    letters(f, "bcfz");
    db.flush().unwrap();
    letters(f, "dh");
    db.delete(b"z").unwrap();
    letters(f, "a");
    db
}

/// Creates a database of 20 rows, whose long values are gone from the disk: reading one of them fails.
fn without_values() -> (Sim, Db) {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 20, &[1; 2000]);
    db.flush().unwrap();
    let vlog = sim.disk.file_names("/db").unwrap().into_iter().find(|n| n.ends_with(".vlog")).unwrap();
    sim.disk.truncate_file(format!("/db/{vlog}"), 0).unwrap();
    (sim, db)
}

fn abc(letters: &str) -> Vec<String> {
    letters.chars().map(String::from).collect()
}

#[test]
fn all_keys_both_ways() {
    let sim = Sim::new();
    let db = spread(&sim);
    assert_eq!(keys(db.iter()), abc("abcdefgh"));
    assert_eq!(keys_back(db.iter()), abc("hgfedcba"));
    let values = pairs(db.iter().unwrap());
    assert!(values.iter().all(|(k, v)| k == v));
}

#[test]
fn every_kind_of_bound() {
    let sim = Sim::new();
    let db = spread(&sim);
    let range = |r: Result<Iter>, r2: Result<Iter>, expected: &str| {
        assert_eq!(keys(r), abc(expected));
        assert_eq!(keys_back(r2), abc(&expected.chars().rev().collect::<String>()));
    };
    range(db.range("b".."e"), db.range("b".."e"), "bcd");
    range(db.range("b"..="e"), db.range("b"..="e"), "bcde");
    range(db.range("c"..), db.range("c"..), "cdefgh");
    range(db.range(.."c"), db.range(.."c"), "ab");
    range(db.range(..="c"), db.range(..="c"), "abc");
    range(db.range(..), db.range(..), "abcdefgh");
    let open = (Excluded("b"), Excluded("e"));
    range(db.range(open), db.range(open), "cd");
    let half = (Excluded("b"), Included("e"));
    range(db.range(half), db.range(half), "cde");
    let below = (Excluded("g"), Unbounded);
    range(db.range(below), db.range(below), "h");
}

#[test]
fn bounds_that_are_not_existing_keys() {
    let sim = Sim::new();
    let db = spread(&sim);
    assert_eq!(keys(db.range("bb".."ee")), abc("cde"));
    assert_eq!(keys_back(db.range("bb"..="ee")), abc("edc"));
    assert_eq!(keys(db.range((Excluded("bb"), Unbounded))), abc("cdefgh"));
    assert_eq!(keys_back(db.range(..="zzz")), abc("hgfedcba"));
    assert_eq!(keys(db.range("A".."Z")), abc(""));
}

#[test]
fn empty_and_inverted_ranges() {
    let sim = Sim::new();
    let db = spread(&sim);
    assert_eq!(keys(db.range("c".."c")), abc(""));
    assert_eq!(keys(db.range("c"..="c")), abc("c"));
    assert_eq!(keys(db.range("e".."b")), abc(""));
    assert_eq!(keys_back(db.range("e".."b")), abc(""));
    assert_eq!(keys(db.range((Excluded("c"), Excluded("c")))), abc(""));
    let empty = Sim::new();
    let db = empty.open();
    assert_eq!((keys(db.iter()), keys_back(db.iter())), (abc(""), abc("")));
}

#[test]
fn from_both_ends_at_once() {
    let sim = Sim::new();
    let db = spread(&sim);
    let key = |kv: Option<Result<(tidesdb::Slice, tidesdb::Slice)>>| kv.map(|kv| kv.unwrap().0.into_vec());
    let mut iter = db.iter().unwrap();
    let mut got = Vec::new();
    for i in 0..8 {
        got.extend(key(if i % 3 == 2 { iter.next_back() } else { iter.next() }).unwrap());
    }
    assert_eq!(got, b"abhcdgef");
    assert!(iter.next().is_none() && iter.next_back().is_none());
    for front in 0..=8 {
        let mut iter = db.range("a"..="h").unwrap();
        let head: Vec<_> = (0..front).filter_map(|_| key(iter.next())).collect();
        let tail: Vec<_> = iter.rev().map(|kv| kv.unwrap().0.into_vec()).collect();
        assert_eq!(head.len() + tail.len(), 8, "each key once");
        assert!(tail.iter().all(|k| head.iter().all(|h| h < k)));
    }
}

#[test]
fn one_key_from_either_end_is_yielded_once() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"k", b"v").unwrap();
    let mut iter = db.iter().unwrap();
    assert!(iter.next_back().is_some());
    assert!(iter.next().is_none() && iter.next_back().is_none());
    let mut iter = db.iter().unwrap();
    assert!(iter.next().is_some());
    assert!(iter.next_back().is_none() && iter.next().is_none());
}

#[test]
fn an_exhausted_iterator_stays_exhausted() {
    let sim = Sim::new();
    let db = spread(&sim);
    let mut iter = db.range("b".."c").unwrap();
    assert!(iter.next().is_some());
    for _ in 0..3 {
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }
}

#[test]
fn prefixes() {
    let sim = Sim::new();
    let db = sim.open();
    for key in ["a", "ab", "ab1", "ab2", "ac", "b"] {
        db.put(key.as_bytes(), b"v").unwrap();
    }
    assert_eq!(keys(db.prefix(b"ab")), ["ab", "ab1", "ab2"]);
    assert_eq!(keys_back(db.prefix(b"ab")), ["ab2", "ab1", "ab"]);
    assert_eq!(keys(db.prefix(b"")).len(), 6);
    assert!(keys(db.prefix(b"abx")).is_empty());
}

#[test]
fn prefixes_of_the_highest_bytes() {
    let sim = Sim::new();
    let db = sim.open();
    let all: [&[u8]; 6] = [b"\xfe", b"\xfe\xff", b"\xff", b"\xff\0", b"\xff\xff", b"\xff\xff\xff"];
    for key in all {
        db.put(key, b"v").unwrap();
    }
    let prefix = |p: &[u8]| pairs(db.prefix(p).unwrap()).into_iter().map(|(k, _)| k).collect::<Vec<_>>();
    let back = |p: &[u8]| pairs(db.prefix(p).unwrap().rev()).into_iter().map(|(k, _)| k).collect::<Vec<_>>();
    assert_eq!(prefix(b"\xff\xff"), all[4..]);
    assert_eq!(prefix(b"\xff"), all[2..]);
    assert_eq!(prefix(b"\xfe"), all[..2]);
    assert_eq!(prefix(b"\xfe\xff"), all[1..2]);
    assert_eq!(back(b"\xff\xff"), [all[5], all[4]]);
    assert_eq!(back(b"\xfe"), [all[1], all[0]]);
}

#[test]
fn keys_alone_read_no_value() {
    let (_sim, db) = without_values();
    let got: Vec<_> = db.iter().unwrap().keys().map(Result::unwrap).collect();
    assert!(got.len() == 20 && got.iter().is_sorted() && got[3] == b"key000003", "{got:?}");
    assert_eq!(db.prefix(b"key").unwrap().keys().rev().count(), 20);
    let mut with_values = db.iter().unwrap();
    assert!(with_values.next().unwrap().is_err());
    assert!(with_values.next().is_none(), "an error ends it");
}

#[test]
fn an_iterator_keeps_its_read_timestamp() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    fill(&a, 500, b"before");
    let mut forth = a.iter().unwrap();
    let mut back = a.iter().unwrap().rev();
    let first: Vec<_> = forth.by_ref().take(100).map(Result::unwrap).collect();
    let last: Vec<_> = back.by_ref().take(100).map(Result::unwrap).collect();
    fill(&a, 700, b"after");
    a.flush().unwrap();
    for i in 0..500 {
        a.delete(format!("key{i:06}").as_bytes()).unwrap();
    }
    db.compact().unwrap();
    fill(&a, 10, &[7; 2000]);
    db.compact().unwrap();
    db.drop_family("a").unwrap();
    let rest: Vec<_> = forth.map(Result::unwrap).collect();
    let rest_back: Vec<_> = back.map(Result::unwrap).collect();
    assert_eq!((first.len() + rest.len(), last.len() + rest_back.len()), (500, 500));
    let all = first.iter().chain(&rest).chain(&last).chain(&rest_back);
    assert!(all.into_iter().all(|(_, v)| *v == b"before"));
}

#[test]
fn an_iterator_moves_to_another_thread() {
    let sim = Sim::new();
    let db = spread(&sim);
    let iter = db.iter().unwrap();
    let counted = std::thread::scope(|s| s.spawn(move || iter.count()).join().unwrap());
    assert_eq!(counted, 8);
}

#[test]
fn long_tombstone_runs_and_old_versions() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(128 << 10)).open().unwrap();
    let f = db.default_family();
    db.put(b"a", b"first").unwrap();
    for _ in 0..3 {
        fill(f, 2000, b"x");
        for i in 0..2000 {
            f.delete(format!("key{i:06}").as_bytes()).unwrap();
        }
    }
    db.put(b"z", b"last").unwrap();
    assert_eq!(keys(db.iter()), ["a", "z"]);
    assert_eq!(keys_back(db.iter()), ["z", "a"]);
}

/// Rows that are lent are those that are copied, from either end, and mixed with those.
#[test]
fn rows_are_lent_or_copied() {
    let sim = Sim::new();
    let db = spread(&sim);
    let (mut rows, mut keys) = (db.range("b".."h").unwrap(), db.range("b".."h").unwrap().keys());
    let mut got: Vec<u8> = Vec::new();
    while let Some((key, value)) = rows.next_ref().unwrap() {
        assert_eq!((key, key), (value, keys.next_ref().unwrap().unwrap()));
        got.extend(key);
        if let Some((key, value)) = rows.next_back_ref().unwrap() {
            assert_eq!((key, key), (value, keys.next_back_ref().unwrap().unwrap()));
            got.extend(key);
        }
    }
    assert_eq!(got, b"bgcfde");
    for _ in 0..3 {
        assert!(rows.next_ref().unwrap().is_none() && rows.next_back_ref().unwrap().is_none());
        assert!(rows.next().is_none() && keys.next().is_none() && keys.next_back().is_none());
        assert!(keys.next_ref().unwrap().is_none() && keys.next_back_ref().unwrap().is_none());
    }
    let mut mixed = db.iter().unwrap();
    assert_eq!(mixed.next().unwrap().unwrap().0, b"a");
    assert_eq!(mixed.next_ref().unwrap().unwrap().0, b"b");
    assert_eq!(mixed.next_back().unwrap().unwrap().0, b"h");
    assert_eq!(mixed.keys().map(Result::unwrap).collect::<Vec<_>>(), ["c", "d", "e", "f", "g"]);
}

/// An error ends what lends as it ends what copies, and a key whose operands cannot be combined does not.
#[test]
fn an_error_ends_what_is_lent() {
    let sim = Sim::new();
    let failing = tidesdb::MergeOperator::custom("failing", |_, operand| match operand {
        b"bad" => Err("planted".into()),
        _ => Ok(()),
    });
    let db = sim.options().default_family(small().merge_operator(failing)).open().unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "v").unwrap();
    }
    db.merge("b", "bad").unwrap();
    let mut rows = db.iter().unwrap();
    assert_eq!(rows.next_ref().unwrap().unwrap().0, b"a");
    assert!(matches!(rows.next_ref(), Err(tidesdb::Error::Merge { .. })));
    assert_eq!(rows.next_ref().unwrap().unwrap().0, b"c");
    assert_eq!(rows.next_ref().unwrap(), None);
    assert_eq!(db.iter().unwrap().keys().count(), 3);

    let (_sim, db) = without_values();
    let mut rows = db.iter().unwrap();
    assert!(rows.next_back_ref().is_err());
    assert!(rows.next_ref().unwrap().is_none() && rows.next_back_ref().unwrap().is_none());
}
