//! Comparators: the built-in ones and user-defined ones.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidesdb::{Comparator, Db, Error, Family, Isolation, SyncMode};

use crate::common::{Sim, contents, fill, keys, keys_back, letters, small, value};

fn with(sim: &Sim, order: Comparator) -> (Db, Family) {
    let db = sim.options().comparator(order.clone()).open().unwrap();
    let family = db.create_family("ordered", small().comparator(order)).unwrap();
    (db, family)
}

/// Checks the order of the keys in memtables and in tables.
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
    orders(&Comparator::c_string(), &strings, &[b"\0z", b"a", b"ab", b"b", b"\xff"]);
    orders(&Comparator::u64_le(), &[&neg, &big, b"odd", &one], &[&one, &big, &neg, b"odd"]);
    orders(&Comparator::i64_le(), &[&big, b"odd", &neg, &one], &[&neg, &one, &big, b"odd"]);
}

#[test]
fn bytes_after_a_zero_are_ignored() {
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
fn a_user_defined_comparator() {
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
fn an_open_without_a_comparator_fails_and_names_it() {
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
fn both_kinds_of_memtable_show_the_same_rows() {
    let sim = Sim::new();
    let listed = Comparator::custom("bytes", |a: &[u8], b: &[u8]| a.cmp(b));
    let db = sim.options().comparator(listed.clone()).open().unwrap();
    let list = db.create_family("list", small().comparator(listed)).unwrap();
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
fn a_panicking_comparator_poisons_the_database_and_blocks_no_thread() {
    static ANGRY: AtomicBool = AtomicBool::new(false);
    let order = Comparator::custom("moody", |a, b| {
        assert!(!ANGRY.load(SeqCst), "the comparator panics");
        a.cmp(b)
    });
    let sim = Sim::new();
    let (db, f) = with(&sim, order.clone());
    letters(&f, "ac");
    ANGRY.store(true, SeqCst);
    assert!(matches!(f.put(b"b", b"v"), Err(Error::CommitUnknown { .. })));
    ANGRY.store(false, SeqCst);
    // No thread waits for the commit.
    assert!(matches!(db.put(b"other", b"v"), Err(Error::Poisoned { .. })));
    assert_eq!(keys(f.iter()), ["a", "c"]);
    drop((db, f));
    let db = sim.options().comparator(order).open().unwrap();
    let found = keys(db.family("ordered").unwrap().iter());
    assert!(found == ["a", "b", "c"] || found == ["a", "c"], "{found:?}");
}

/// In reverse byte order `prefix` found nothing, and in a user-defined order one key of five: it used the byte-order range of
/// keys with the prefix. Then it read all keys of a user-defined order, where `delete_prefix` failed.
#[test]
fn a_prefix_is_a_range_in_byte_order_and_its_reverse_and_refused_in_other_orders() {
    let by_last_byte = Comparator::custom("by-last-byte", |a, b| (a.last(), a).cmp(&(b.last(), b)));
    let built_in = ["bytewise", "reverse-bytewise", "case-insensitive", "u64", "i64", "lexicographic"];
    let orders = built_in.into_iter().filter_map(Comparator::by_name).chain([by_last_byte]);
    for order in orders {
        let sim = Sim::new();
        let (db, f) = with(&sim, order.clone());
        let parts: [&[u8]; 6] = [b"a", b"B", b"ab", b"\xff", b"\xff\xff", b"z"];
        for (i, first) in parts.iter().enumerate() {
            for second in parts {
                f.put(&[*first, second].concat(), b"v").unwrap();
            }
            if i == 3 {
                f.flush().unwrap();
            }
        }
        let tx = db.begin(Isolation::Serializable);
        let snapshot = db.snapshot();
        let has_prefixes = order.name().ends_with("bytewise");
        for prefix in parts.into_iter().chain([&b""[..], b"aa", b"q", b"\xff\xff\xff"]) {
            let all = contents(&f).into_iter().map(|(key, _)| key);
            let wanted: Vec<_> = all.filter(|key| key.starts_with(prefix)).collect();
            if !has_prefixes && !prefix.is_empty() {
                let mut batch = tidesdb::WriteBatch::new();
                for refused in [
                    f.prefix(prefix).map(drop),
                    snapshot.prefix(&f, prefix).map(drop),
                    tx.prefix(&f, prefix).map(drop),
                    f.prefix_range(prefix).map(drop),
                    batch.delete_prefix(&f, prefix),
                ] {
                    let error = refused.unwrap_err();
                    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
                    assert!(error.to_string().contains(order.name()), "{error}");
                }
                continue;
            }
            let found = |iter: tidesdb::Result<tidesdb::Iter>| -> Vec<Vec<u8>> {
                iter.unwrap().map(|kv| kv.unwrap().0.into_vec()).collect()
            };
            assert_eq!(
                found(f.range(f.prefix_range(prefix).unwrap())),
                wanted,
                "{} {prefix:?}",
                order.name()
            );
            let mut own = db.begin(Isolation::Snapshot);
            own.delete_prefix(&f, prefix).unwrap();
            assert_eq!(own.iter(&f).unwrap().count() + wanted.len(), contents(&f).len());
            assert!(found(own.prefix(&f, prefix)).is_empty());
            assert_eq!(found(f.prefix(prefix)), wanted, "{} {prefix:?}", order.name());
            assert_eq!(found(snapshot.prefix(&f, prefix)), wanted);
            assert_eq!(found(tx.prefix(&f, prefix)), wanted);
            let back: Vec<_> = f.prefix(prefix).unwrap().rev().map(|kv| kv.unwrap().0.into_vec()).collect();
            assert!(back.iter().rev().eq(&wanted), "{} {prefix:?} backwards", order.name());
            // From both ends at once, each key is returned once.
            let (mut iter, mut both) = (f.prefix(prefix).unwrap(), Vec::new());
            while let Some(kv) = iter.next() {
                both.push(kv.unwrap().0.into_vec());
                both.extend(iter.next_back().map(|kv| kv.unwrap().0.into_vec()));
            }
            both.sort();
            let mut sorted = wanted.clone();
            sorted.sort();
            assert_eq!(both, sorted);
        }
    }
}

#[test]
fn a_comparator_other_than_the_stored_one_is_rejected_with_both_names() {
    let sim = Sim::new();
    let (db, f) = with(&sim, Comparator::reverse_bytewise());
    let other = small().comparator(Comparator::u64_le());
    let e = db.family_or_create("ordered", other.clone()).unwrap_err().to_string();
    assert!(e.contains("reverse-bytewise") && e.contains("u64") && e.contains("ordered"), "{e}");
    let same = small().comparator(Comparator::reverse_bytewise());
    assert_eq!(db.family_or_create("ordered", same).unwrap().id(), f.id());
    drop((db, f));
    let e = sim.options().default_family(other).open().unwrap_err().to_string();
    assert!(e.contains("bytewise") && e.contains("u64") && e.contains("default"), "{e}");
    sim.open().close().unwrap();
}

/// Action that a test's comparator runs when it is called.
type Action = Arc<Mutex<Option<Arc<dyn Fn() + Send + Sync>>>>;

/// Creates a database whose family `ordered` has a comparator that runs an action.
fn acting(sync: SyncMode) -> (tempfile::TempDir, Db, Family, Action) {
    let action = Action::default();
    let act = Arc::clone(&action);
    let order = Comparator::custom("acting", move |a, b| {
        let act = act.lock().unwrap().clone();
        if let Some(act) = act {
            act();
        }
        a.cmp(b)
    });
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).sync(sync).comparator(order.clone()).open().unwrap();
    let family = db.create_family("ordered", small().comparator(order)).unwrap();
    (dir, db, family, action)
}

/// A comparator that read the database during an insert waited for that same insert, once a later commit of another thread had
/// returned, and every other reader waited with it. A comparator may read; its reads do not wait for the running commit.
#[test]
fn a_comparator_may_read_while_others_commit() {
    for sync in [SyncMode::None, SyncMode::Full] {
        let (_dir, db, family, action) = acting(sync);
        db.put(b"collation", b"1").unwrap();
        let reads = Arc::new(AtomicU32::new(0));
        let (reader, counted) = (db.clone(), Arc::clone(&reads));
        *action.lock().unwrap() = Some(Arc::new(move || {
            let before = counted.fetch_add(1, SeqCst);
            assert!(reader.get(b"collation").unwrap().is_some());
            match before % 4 {
                0 => drop(reader.snapshot()),
                1 => assert!(reader.iter().unwrap().next().is_some()),
                2 => drop(reader.begin(Isolation::Serializable)),
                _ => drop(reader.family("default").unwrap()),
            }
        }));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let others = [0u8, 1].map(|n| {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    while !stop.load(SeqCst) {
                        db.put(&[n], b"v").unwrap();
                        assert!(db.get(&[n]).unwrap().is_some());
                        drop(db.snapshot());
                    }
                })
            });
            for i in 0..200u32 {
                if i % 3 == 0 {
                    let mut tx = db.begin(Isolation::Serializable);
                    tx.get(&family, b"k").unwrap();
                    tx.put(&family, &i.to_be_bytes(), b"v").unwrap();
                    tx.commit().unwrap();
                } else {
                    family.put(&i.to_be_bytes(), b"v").unwrap();
                }
            }
            stop.store(true, SeqCst);
            others.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert!(reads.load(SeqCst) > 1000);
        *action.lock().unwrap() = None;
        assert_eq!(contents(&family).len(), 200);
        family.flush().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_write_inside_a_comparator_fails_at_once() {
    let (_dir, db, family, action) = acting(SyncMode::None);
    family.put(b"a", b"v").unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let (writer, seen) = (db.clone(), Arc::clone(&errors));
    let once = AtomicBool::new(false);
    *action.lock().unwrap() = Some(Arc::new(move || {
        if !once.swap(true, SeqCst) {
            seen.lock().unwrap().push(writer.put(b"from inside", b"v").map(drop));
        }
    }));
    family.put(b"b", b"v").unwrap();
    *action.lock().unwrap() = None;
    let errors = std::mem::take(&mut *errors.lock().unwrap());
    assert!(matches!(errors[..], [Err(Error::InvalidArgument { .. })]), "{errors:?}");
    assert_eq!(contents(&family).len(), 2);
    assert!(!db.contains(b"from inside").unwrap());
    db.put(b"outside", b"v").unwrap();
}

/// Comparators run while a block is decoded, and under locks: of range tombstones, of what a transaction read, of a merge and of the
/// manifest. Their reads load blocks and values in the same thread. They once panicked, on a buffer in use or on the order of locks.
#[test]
fn a_comparator_may_read_from_tables_in_every_operation() {
    let action = Action::default();
    let act = Arc::clone(&action);
    let busy = Arc::new(AtomicBool::new(false));
    let order = Comparator::custom("acting", move |a, b| {
        let act = act.lock().unwrap().clone();
        if let Some(act) = act
            && !busy.swap(true, SeqCst)
        {
            act();
            busy.store(false, SeqCst);
        }
        a.cmp(b)
    });
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        Db::options(dir.path())
            .sync(SyncMode::None)
            .cache_bytes(0)
            .comparator(order.clone())
            .background_threads(0)
            .open()
            .unwrap()
    };
    let db = open();
    for i in 0..200u32 {
        db.put(format!("collation{i:04}").as_bytes(), &[1; 300]).unwrap();
        db.put(format!("long{i:04}").as_bytes(), &[1; 5000]).unwrap();
    }
    db.flush().unwrap();
    let family = db.create_family("ordered", small().comparator(order.clone())).unwrap();
    for i in 0..500u32 {
        family.put(&i.to_be_bytes(), &[2; 300]).unwrap();
    }
    db.flush().unwrap();
    let (reader, calls) = (db.clone(), AtomicU32::new(0));
    *action.lock().unwrap() = Some(Arc::new(move || {
        let n = calls.fetch_add(1, SeqCst);
        assert!(reader.get(format!("collation{:04}", n % 200).as_bytes()).unwrap().is_some());
        assert!(reader.get(format!("long{:04}", n % 200).as_bytes()).unwrap().is_some());
        drop(reader.snapshot());
        drop(reader.family("default").unwrap());
    }));
    for i in 0..50u32 {
        assert!(family.get(&i.to_be_bytes()).unwrap().is_some());
    }
    assert_eq!(family.iter().unwrap().count(), 500);
    family.delete_range(3u32.to_be_bytes()..9u32.to_be_bytes()).unwrap();
    family.delete_range(5u32.to_be_bytes()..12u32.to_be_bytes()).unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    assert_eq!(tx.iter(&family).unwrap().count(), 491);
    tx.delete_range(&family, 30u32.to_be_bytes()..40u32.to_be_bytes()).unwrap();
    tx.put(&family, &2u32.to_be_bytes(), b"v").unwrap();
    tx.commit().unwrap();
    for i in 0..500u32 {
        family.put(&(i * 3).to_be_bytes(), &[2; 300]).unwrap();
    }
    family.flush().unwrap();
    family.compact_range(2u32.to_be_bytes()..90u32.to_be_bytes()).unwrap();
    family.compact().unwrap();
    assert!(db.verify().unwrap().is_ok());
    *action.lock().unwrap() = None;
}
