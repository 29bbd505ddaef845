//! Merge operators: operands written without a read, combined by every read and by merges of tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidesdb::{
    Comparator, Db, Error, Family, FamilyOptions, Isolation, MergeOperator, ReadOptions, SyncMode, WriteBatch,
};

use crate::common::{LEVELS, Sim, contents, joined, joins, small, value};

/// Opens with a default family that joins its operands by dots.
fn open(sim: &Sim) -> Db {
    sim.options().default_family(joined()).open().unwrap()
}

/// All ways to read `key` agree. Returns its value.
#[track_caller]
fn read(f: &Family, key: &str) -> Option<String> {
    let got = f.get(key).unwrap().map(|v| v.to_vec());
    assert_eq!(f.get_map(key, <[u8]>::to_vec).unwrap(), got);
    assert_eq!(f.multi_get(&[key, "nothing"]).unwrap()[0].as_deref(), got.as_deref());
    assert_eq!(f.contains(key).unwrap(), got.is_some());
    let all = contents(f);
    let row = all.iter().find(|(k, _)| k == key.as_bytes());
    assert_eq!(row.map(|(_, v)| v), got.as_ref());
    let mut back: Vec<_> = f.iter().unwrap().rev().map(|row| row.unwrap()).collect();
    back.reverse();
    assert!(back.iter().map(|(k, v)| (&**k, &**v)).eq(all.iter().map(|(k, v)| (&**k, &**v))));
    let reader = f.value_reader(key).unwrap().map(|r| std::io::read_to_string(r).unwrap().into_bytes());
    assert_eq!(reader, got);
    let mut keys = f.cursor_with(&ReadOptions::default().keys_only(true)).unwrap();
    keys.seek(key).unwrap();
    assert_eq!(keys.valid() && keys.key() == key.as_bytes(), got.is_some());
    got.map(|v| String::from_utf8(v).unwrap())
}

/// Calls `check` with the database as it is, then after a flush, a merge, a kill and a close.
fn everywhere(write: impl Fn(&Db), check: impl Fn(&Db, &str)) {
    for place in ["memtable", "level 1", "bottom", "killed", "killed later", "closed"] {
        let sim = Sim::new();
        let db = open(&sim);
        write(&db);
        match place {
            "level 1" => db.flush().unwrap(),
            "bottom" => db.compact().unwrap(),
            "killed later" => {
                db.default_family().merge("later", "1").unwrap();
                db.flush().unwrap();
                db.default_family().merge("later", "2").unwrap();
            }
            _ => {}
        }
        check(&db, place);
        let again = match place {
            "killed" | "killed later" => sim.killed(),
            _ => {
                db.close().unwrap();
                sim.killed()
            }
        };
        let db = open(&again);
        check(&db, place);
        db.compact().unwrap();
        check(&db, place);
        assert!(db.verify().unwrap().is_ok(), "{place}");
    }
}

#[test]
fn operands_join_the_value_wherever_it_lies() {
    let write = |db: &Db| {
        let f = db.default_family();
        f.put("base", "a").unwrap();
        f.merge("alone", "x").unwrap();
        f.put("other", "o").unwrap();
        f.merge("base", "b").unwrap();
        f.merge("base", "c").unwrap();
        f.merge("alone", "y").unwrap();
        f.merge("replaced", "gone").unwrap();
        f.put("replaced", "new").unwrap();
        f.merge("deleted", "gone").unwrap();
        f.delete("deleted").unwrap();
        f.merge("anew", "gone").unwrap();
        f.delete("anew").unwrap();
        f.merge("anew", "1").unwrap();
        f.merge("anew", "2").unwrap();
        f.merge("ranged 1", "gone").unwrap();
        f.merge("ranged 2", "gone").unwrap();
        f.delete_prefix("ranged").unwrap();
        f.merge("ranged 2", "3").unwrap();
    };
    everywhere(write, |db, place| {
        let f = db.default_family();
        let expected = [
            ("base", Some("a.b.c")),
            ("alone", Some("x.y")),
            ("other", Some("o")),
            ("replaced", Some("new")),
            ("deleted", None),
            ("anew", Some("1.2")),
            ("ranged 1", None),
            ("ranged 2", Some("3")),
        ];
        for (key, expected) in expected {
            assert_eq!(read(f, key).as_deref(), expected, "{key}, {place}");
        }
    });
}

#[test]
fn operands_spread_over_memtables_and_levels() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.put("k", "0").unwrap();
    db.compact().unwrap();
    f.merge("k", "1").unwrap();
    db.flush().unwrap();
    f.merge("k", "2").unwrap();
    db.flush().unwrap();
    f.merge("k", "3").unwrap();
    f.put("j", "j").unwrap();
    f.merge("l", "l").unwrap();
    assert_eq!(read(f, "k").as_deref(), Some("0.1.2.3"));
    db.compact().unwrap();
    assert_eq!(f.stats().table_entries, 3, "each key is one put");
    assert_eq!(read(f, "k").as_deref(), Some("0.1.2.3"));
}

#[test]
fn a_batch_applies_its_operations_on_one_key_in_order() {
    let write = |db: &Db| {
        let f = db.default_family();
        f.put("k", "old").unwrap();
        let mut batch = WriteBatch::new();
        batch.merge(f, "k", "1").unwrap();
        batch.merge(f, "k", "2").unwrap();
        batch.put(f, "p", "a").unwrap();
        batch.merge(f, "p", "b").unwrap();
        batch.merge(f, "p", "c").unwrap();
        batch.merge(f, "q", "lost").unwrap();
        batch.put(f, "q", "put").unwrap();
        batch.merge(f, "r", "lost").unwrap();
        batch.delete(f, "r").unwrap();
        batch.delete(f, "s").unwrap();
        batch.merge(f, "s", "1").unwrap();
        batch.merge(f, "t", "lost").unwrap();
        batch.delete_range(f, "t".."u").unwrap();
        batch.merge(f, "t", "kept").unwrap();
        let seq = db.write(&mut batch).unwrap();
        let last = db.snapshot().seq();
        assert!(seq <= last);
    };
    everywhere(write, |db, place| {
        let f = db.default_family();
        let rows = [("k", "old.1.2"), ("p", "a.b.c"), ("q", "put"), ("s", "1"), ("t", "kept")];
        for (key, expected) in rows {
            assert_eq!(read(f, key).as_deref(), Some(expected), "{key}, {place}");
        }
        assert_eq!(read(f, "r"), None);
    });
}

#[test]
fn snapshots_keep_what_they_saw() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let mut snapshots = vec![(db.snapshot(), None)];
    let mut expected = String::new();
    for n in 0..12 {
        if n == 6 {
            f.delete("k").unwrap();
            snapshots.push((db.snapshot(), None));
            expected.clear();
        }
        f.merge("k", n.to_string()).unwrap();
        expected = if expected.is_empty() { n.to_string() } else { format!("{expected}.{n}") };
        if n % 2 == 0 {
            snapshots.push((db.snapshot(), Some(expected.clone())));
        }
        if n % 3 == 0 {
            db.flush().unwrap();
        }
    }
    for merged in [false, true] {
        if merged {
            db.compact().unwrap();
        }
        for (snapshot, expected) in &snapshots {
            let got = snapshot.get(f, "k").unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap());
            assert_eq!(&got, expected);
            let rows: Vec<_> = snapshot.iter(f).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(rows.first().map(|(_, v)| v.to_vec()), expected.clone().map(String::into_bytes));
        }
    }
    drop(snapshots);
    db.compact().unwrap();
    assert_eq!((f.stats().table_entries, read(f, "k")), (1, Some(expected)));
}

#[test]
fn values_in_the_value_log_are_combined_by_reads() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let long = "v".repeat(5000);
    f.put("k", &long).unwrap();
    let mut stream = f.value_writer("s").unwrap();
    std::io::copy(&mut &[b's'; 3 << 20][..], &mut stream).unwrap();
    stream.commit().unwrap();
    for key in ["k", "s"] {
        f.merge(key, "1").unwrap();
        f.merge(key, "2").unwrap();
    }
    let check = || {
        assert_eq!(read(f, "k").unwrap(), format!("{long}.1.2"));
        let value = f.get("s").unwrap().unwrap();
        assert_eq!((value.len(), &value[value.len() - 5..]), ((3 << 20) + 4, &b"s.1.2"[..]));
        assert_eq!(&*f.get_part("s", (3 << 20) - 1..).unwrap().unwrap(), b"s.1.2");
    };
    check();
    db.compact().unwrap();
    check();
    assert_eq!(f.stats().table_entries, 4, "two values, and an operand for each");
    let copy = db.clone_family(tidesdb::DEFAULT_FAMILY, "copy").unwrap();
    assert_eq!(read(&copy, "k").unwrap(), format!("{long}.1.2"));
}

#[test]
fn a_value_that_expires_leaves_the_operands() {
    for merged in [false, true] {
        let sim = Sim::new();
        let db = open(&sim);
        let f = db.default_family();
        f.put_with_ttl("k", "base", Duration::from_secs(10)).unwrap();
        f.merge("k", "1").unwrap();
        f.merge("k", "2").unwrap();
        let merge = || {
            if merged {
                db.compact().unwrap()
            }
        };
        merge();
        assert_eq!(read(f, "k").as_deref(), Some("base.1.2"));
        sim.clock.advance(Duration::from_secs(10));
        assert_eq!(read(f, "k").as_deref(), Some("1.2"));
        merge();
        assert_eq!(read(f, "k").as_deref(), Some("1.2"));
        f.merge("k", "3").unwrap();
        merge();
        assert_eq!(read(f, "k").as_deref(), Some("1.2.3"));
    }
}

#[test]
fn transactions_read_their_own_operands() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.put("k", "0").unwrap();
    f.put("z", "z").unwrap();
    for filler in [0, 40] {
        for isolation in LEVELS {
            let mut tx = db.begin(isolation);
            for n in 0..filler {
                tx.put(f, format!("m{n}"), "m").unwrap();
            }
            tx.merge(f, "k", "1").unwrap();
            tx.merge(f, "k", "2").unwrap();
            tx.merge(f, "new", "a").unwrap();
            tx.delete(f, "z").unwrap();
            tx.merge(f, "z", "b").unwrap();
            let get = |key: &str| tx.get(f, key).unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap());
            let want = [("k", "0.1.2"), ("new", "a"), ("z", "b")];
            for (key, value) in want {
                assert_eq!(get(key).as_deref(), Some(value), "{isolation:?}");
                assert!(tx.contains(f, key).unwrap());
                assert_eq!(tx.get_map(f, key, <[u8]>::len).unwrap(), Some(value.len()));
                assert_eq!(tx.multi_get(f, &[key]).unwrap()[0].as_deref(), Some(value.as_bytes()));
            }
            for backward in [false, true] {
                let iter = tx.iter(f).unwrap();
                let rows: Vec<_> = if backward { iter.rev().collect() } else { iter.collect() };
                for (key, value) in want {
                    let row =
                        rows.iter().map(|row| row.as_ref().unwrap()).find(|(k, _)| **k == *key.as_bytes());
                    assert_eq!(&*row.unwrap().1, value.as_bytes(), "{isolation:?}");
                }
            }
            tx.delete_range(f, "a".."l").unwrap();
            tx.merge(f, "k", "3").unwrap();
            assert_eq!(tx.get(f, "k").unwrap().as_deref(), Some(&b"3"[..]));
            tx.rollback();
        }
    }
    let mut tx = db.begin(Isolation::Serializable);
    tx.merge(f, "k", "1").unwrap();
    let mark = tx.savepoint();
    tx.merge(f, "k", "lost").unwrap();
    tx.rollback_to(mark).unwrap();
    tx.merge(f, "k", "2").unwrap();
    assert_eq!(tx.get(f, "k").unwrap().as_deref(), Some(&b"0.1.2"[..]));
    tx.commit().unwrap();
    assert_eq!(read(f, "k").as_deref(), Some("0.1.2"));
}

#[test]
fn an_operand_is_a_write_for_conflicts() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.merge("k", "0").unwrap();
    for (isolation, reads, conflicts) in [
        (Isolation::Serializable, true, true),
        (Isolation::RepeatableRead, true, true),
        (Isolation::Snapshot, false, true),
        (Isolation::Serializable, false, false),
        (Isolation::ReadCommitted, true, false),
    ] {
        for compacted in [false, true] {
            let mut tx = db.begin(isolation);
            if reads {
                tx.get(f, "k").unwrap();
            }
            tx.merge(f, "k", "mine").unwrap();
            f.merge("k", "theirs").unwrap();
            if compacted {
                db.compact().unwrap();
            }
            let refused = matches!(tx.commit(), Err(Error::Conflict { .. }));
            assert_eq!(refused, conflicts, "{isolation:?}, reads: {reads}, compacted: {compacted}");
        }
    }
}

#[test]
fn an_operator_that_fails_loses_nothing() {
    for panics in [false, true] {
        let broken = Arc::new(AtomicBool::new(true));
        let fails = Arc::clone(&broken);
        let operator =
            MergeOperator::custom("mine", move |value, operand| match fails.load(Ordering::SeqCst) {
                true if panics => panic!("planted"),
                true => Err("out of order".into()),
                false => joins(value, operand),
            });
        let sim = Sim::new();
        let db = sim.options().default_family(small().merge_operator(operator)).open().unwrap();
        let f = db.default_family();
        f.put("a", "1").unwrap();
        f.put("k", "1").unwrap();
        f.merge("k", "2").unwrap();
        f.merge("k", "3").unwrap();
        f.put("z", "1").unwrap();
        for merged in [false, true] {
            if merged {
                db.compact().unwrap();
            }
            let error = f.get("k").unwrap_err();
            assert!(matches!(&error, Error::Merge { .. }), "{error:?}");
            let text = error.to_string();
            let why = if panics { "it panicked" } else { "out of order" };
            assert!(
                text.contains("\"mine\"") && text.contains("\"default\"") && text.contains(why),
                "{text}"
            );
            assert!(f.contains("k").unwrap());
            assert!(matches!(f.multi_get(&["k"]), Err(Error::Merge { .. })));
            let mut cursor = f.cursor().unwrap();
            cursor.seek("k").unwrap();
            assert!(matches!(cursor.value(), Err(Error::Merge { .. })));
            cursor.next().unwrap();
            assert_eq!(cursor.entry().unwrap(), (&b"z"[..], &b"1"[..]));
            cursor.prev().unwrap();
            assert!(cursor.key() == b"k" && cursor.value().is_err());
            cursor.prev().unwrap();
            assert_eq!(cursor.key(), b"a");
            assert!(db.verify().unwrap().is_ok());
        }
        assert_eq!(f.stats().table_entries, 5, "the merge kept the operands");
        broken.store(false, Ordering::SeqCst);
        assert_eq!(&*f.get("k").unwrap().unwrap(), b"123");
        db.compact().unwrap();
        assert_eq!((&*f.get("k").unwrap().unwrap(), f.stats().table_entries), (&b"123"[..], 3));
    }
}

#[test]
fn the_operator_is_part_of_the_family() {
    let mine = || MergeOperator::custom("mine", joins);
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(mine())).open().unwrap();
    db.merge("k", "a").unwrap();
    db.merge("k", "b").unwrap();
    db.close().unwrap();

    let error = sim.options().default_family(small()).open().unwrap_err().to_string();
    assert!(error.contains("\"mine\"") && error.contains("OpenOptions::merge_operator"), "{error}");
    let options = || sim.options().merge_operator(mine());
    let error = options().default_family(joined()).open().unwrap_err().to_string();
    assert!(error.contains("\"mine\"") && error.contains("tidesdb.append:."), "{error}");
    options().default_family(small()).open().unwrap().close().unwrap(); // it stays if none is named

    let db = options().default_family(small().merge_operator(mine())).open().unwrap();
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"ab");
    let plain = db.create_family("plain", small()).unwrap();
    assert!(matches!(plain.merge("k", "1"), Err(Error::InvalidArgument { .. })));
    let bad = small().merge_operator(MergeOperator::custom("", |_, _| Ok(())));
    assert!(matches!(db.create_family("bad", bad), Err(Error::InvalidArgument { .. })));
    db.merge("l", "1").unwrap();
    db.merge("l", "2").unwrap();
    let sim = sim.killed();

    // Tools open without it: everything works except what needs the operator.
    let db = Db::options(crate::common::DB)
        .env(sim.env.clone())
        .background_threads(0)
        .allow_unknown(true)
        .open()
        .unwrap();
    let f = db.default_family();
    for _ in 0..2 {
        assert!(matches!(f.get("l"), Err(Error::Merge { .. })));
        assert_eq!(value(f, b"k").unwrap(), b"ab");
        db.compact().unwrap();
    }
    assert!(matches!(f.merge("l", "3"), Err(Error::Merge { .. })));
    f.put("m", "1").unwrap();
    assert!(db.verify().unwrap().is_ok());
    db.close().unwrap();
    let options = || sim.options().merge_operator(mine());
    let db = options().default_family(small().merge_operator(mine())).open().unwrap();
    let rows =
        [("k", "ab"), ("l", "12"), ("m", "1")].map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
    assert_eq!(contents(db.default_family()), rows);
}

#[test]
fn counters_survive_any_order_of_flushes_and_merges() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(MergeOperator::add())).open().unwrap();
    let f = db.default_family();
    let mut expected = [0i64; 7];
    for n in 0..2000i64 {
        let (key, delta) = ((n * 31 % 7) as usize, n % 11 - 3);
        f.merge([key as u8], delta.to_le_bytes()).unwrap();
        expected[key] += delta;
        match n % 97 {
            13 => db.flush().unwrap(),
            90 => db.compact().unwrap(),
            _ => {}
        }
        let got = f.get([key as u8]).unwrap().unwrap();
        assert_eq!(i64::from_le_bytes(got[..].try_into().unwrap()), expected[key]);
    }
}

#[test]
fn copies_keep_the_operator_and_its_operands() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.merge("k", "1").unwrap();
    db.flush().unwrap();
    f.merge("k", "2").unwrap();
    db.checkpoint("/copy").unwrap();
    let copy = sim.options_at("/copy").default_family(joined()).open().unwrap();
    copy.merge("k", "3").unwrap();
    assert_eq!(read(copy.default_family(), "k").as_deref(), Some("1.2.3"));
    assert_eq!(read(f, "k").as_deref(), Some("1.2"));
    let clone = db.clone_family(tidesdb::DEFAULT_FAMILY, "clone").unwrap();
    clone.merge("k", "4").unwrap();
    assert_eq!(read(&clone, "k").as_deref(), Some("1.2.4"));
}

#[test]
fn threads_lose_no_operand() {
    const THREADS: u64 = 4;
    const EACH: u64 = 3000;
    let temp = tempfile::tempdir().unwrap();
    let options = || {
        let family =
            FamilyOptions::default().write_buffer_bytes(16 << 10).merge_operator(MergeOperator::add());
        Db::options(temp.path()).sync(SyncMode::None).background_threads(2).default_family(family)
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let db = options().open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let f = db.default_family();
                for n in 0..EACH {
                    f.merge([(n % 5) as u8], 1u64.to_le_bytes()).unwrap();
                    f.put(format!("filler {thread} {n}"), [7; 30]).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while last < THREADS * EACH / 5 {
                let now = db.get_map([0], number).unwrap().unwrap_or(0);
                assert!(now >= last, "a counter went back from {last} to {now}");
                last = now;
            }
        });
    });
    let check = |db: &Db| {
        for key in 0..5u8 {
            assert_eq!(db.get_map([key], number).unwrap(), Some(THREADS * EACH / 5));
        }
    };
    check(&db);
    db.abandon();
    let db = options().open().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_commit_hook_is_told_of_merges() {
    let sim = Sim::new();
    let db = open(&sim);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    db.default_family().set_commit_hook(Some(Arc::new(move |commit: &tidesdb::Committed<'_>| {
        log.lock().unwrap().extend(commit.ops.iter().map(|op| format!("{op:?}")));
    })));
    db.merge("k", "1").unwrap();
    assert_eq!(*told.lock().unwrap(), ["Merge { key: [107], operand: [49] }"]);
}

#[test]
fn operands_are_recovered_in_a_custom_order() {
    let order = || Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    let sim = Sim::new();
    let db = sim.open();
    let words = db.create_family("words", joined().comparator(order())).unwrap();
    let mut batch = WriteBatch::new();
    db.default_family().put("plain", "1").unwrap();
    for (key, operand) in [("whale", "a"), ("cod", "x"), ("whale", "b")] {
        batch.delete_range(db.default_family(), "x".."y").unwrap();
        batch.merge(&words, key, operand).unwrap();
    }
    db.write(&mut batch).unwrap();
    words.merge("whale", "c").unwrap();
    let sim = sim.killed();
    assert!(sim.options().open().is_err());
    let db = sim.options().comparator(order()).open().unwrap();
    let words = db.family("words").unwrap();
    for _ in 0..2 {
        assert_eq!(
            (read(&words, "whale").as_deref(), read(&words, "cod").as_deref()),
            (Some("a.b.c"), Some("x"))
        );
        db.compact().unwrap();
    }
}
