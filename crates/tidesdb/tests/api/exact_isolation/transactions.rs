//! Transactions: own writes, savepoints, conflicts, and their end.

use std::time::Duration;

use tidesdb::{
    Comparator, Cursor, Db, Error, FamilyOptions, Isolation, SyncMode, TransactOptions, Transaction,
    WriteOptions,
};
use tidesdb_io::sim::{Fault, OpKind, errno};
use tidesdb_io::{Priority, RealThreads, Threads};

use crate::common::{LEVELS, Sim, contents, fill, keys, keys_back, letters, noise, pairs, small, value};

fn own(tx: &Transaction, db: &Db, key: &[u8]) -> Option<Vec<u8>> {
    tx.get(db.default_family(), key).unwrap().map(tidesdb::Slice::into_vec)
}

#[test]
fn a_commit_is_visible_completely_and_a_rollback_never() {
    for level in LEVELS {
        let sim = Sim::new();
        let db = sim.open();
        let [a, b] = ["a", "b"].map(|name| db.create_family(name, small()).unwrap());
        let mut tx = db.begin(level);
        tx.put(&a, b"k", b"1").unwrap();
        tx.put(&b, b"k", b"2").unwrap();
        tx.delete(&b, b"gone").unwrap();
        assert_eq!((tx.len(), value(&a, b"k")), (3, None), "{level:?}: another reader sees it");
        let seq = tx.commit().unwrap();
        assert_eq!((value(&a, b"k").unwrap(), value(&b, b"k").unwrap()), (b"1".to_vec(), b"2".to_vec()));
        assert!(db.snapshot().seq() >= seq);
        let mut tx = db.begin(level);
        tx.delete(&a, b"k").unwrap();
        tx.rollback();
        drop(db.begin(level));
        assert!(a.contains(b"k").unwrap());
        let after = sim.killed().open();
        assert_eq!(value(&after.family("b").unwrap(), b"k").unwrap(), b"2");
    }
}

/// Enough writes to leave the path for small batches, each checked against a model.
#[test]
fn every_read_sees_own_writes_first() {
    for level in LEVELS {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        let mut model = std::collections::BTreeMap::new();
        for i in 0..60u8 {
            f.put(&[i * 2], &[i]).unwrap();
            model.insert(vec![i * 2], vec![i]);
        }
        f.flush().unwrap();
        let mut tx = db.begin(level);
        for (i, random) in noise(1, 80).into_iter().enumerate() {
            let key = vec![random % 120];
            if random % 3 == 0 {
                tx.delete(f, &key).unwrap();
                model.remove(&key);
            } else {
                tx.put(f, &key, &[i as u8, 7]).unwrap();
                model.insert(key, vec![i as u8, 7]);
            }
            if i % 9 == 0 {
                for key in 0..120u8 {
                    assert_eq!(own(&tx, &db, &[key]).as_ref(), model.get(&vec![key]), "{level:?} {i} {key}");
                    assert_eq!(tx.contains(f, &[key]).unwrap(), model.contains_key(&vec![key]));
                }
            }
            let all: Vec<_> = model.clone().into_iter().collect();
            assert_eq!(pairs(tx.iter(f).unwrap()), all, "{level:?} after {i}");
            let back = pairs(tx.iter(f).unwrap().rev());
            assert!(back.iter().rev().eq(&all), "{level:?} backward after {i}");
            let some: Vec<_> = model.range(vec![30]..vec![60]).map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(pairs(tx.range(f, [30u8]..[60]).unwrap()), some);
        }
        tx.commit().unwrap();
        assert_eq!(contents(f), model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn own_writes_hide_later_commits_of_others() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::ReadCommitted);
    letters(f, "ac");
    tx.put(f, b"a", b"mine").unwrap();
    tx.delete(f, b"c").unwrap();
    f.put(b"a", b"newer").unwrap();
    f.put(b"c", b"newer").unwrap();
    f.put(b"d", b"newer").unwrap();
    assert_eq!((own(&tx, &db, b"a").unwrap(), own(&tx, &db, b"c")), (b"mine".to_vec(), None));
    assert_eq!(keys(tx.iter(f)), ["a", "d"]);
    assert_eq!(keys_back(tx.iter(f)), ["d", "a"]);
    tx.commit().unwrap();
    assert_eq!(value(f, b"a").unwrap(), b"mine");
}

#[test]
fn user_comparators_and_large_values() {
    let sim = Sim::new();
    let order = Comparator::reverse_bytewise();
    let db = sim.options().comparator(order.clone()).open().unwrap();
    let f = db.create_family("reverse", small().comparator(order)).unwrap();
    letters(&f, "ace");
    let mut tx = db.begin(Isolation::Serializable);
    tx.put(&f, b"b", &[9; 5000]).unwrap();
    tx.delete(&f, b"c").unwrap();
    assert_eq!(keys(tx.iter(&f)), ["e", "b", "a"]);
    assert_eq!(tx.get(&f, b"b").unwrap().unwrap().len(), 5000);
    tx.commit().unwrap();
    assert_eq!(
        (keys(f.iter()), value(&f, b"b").unwrap().len()),
        (["e", "b", "a"].map(String::from).to_vec(), 5000)
    );
}

#[test]
fn time_to_live_and_single_deletes() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put(b"once", b"v").unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    tx.put_with_ttl(f, b"short", b"v", Duration::from_secs(10)).unwrap();
    tx.single_delete(f, b"once").unwrap();
    tx.commit().unwrap();
    assert_eq!(keys(f.iter()), ["short"]);
    sim.clock.advance(Duration::from_secs(11));
    assert!(!f.contains(b"short").unwrap());
}

#[test]
fn savepoints_nest() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let other = db.create_family("other", small()).unwrap();
    let mut tx = db.begin(Isolation::Snapshot);
    tx.put(f, b"a", b"1").unwrap();
    let outer = tx.savepoint();
    tx.put(f, b"b", b"1").unwrap();
    let inner = tx.savepoint();
    tx.put(&other, b"c", b"1").unwrap();
    tx.delete(f, b"a").unwrap();
    assert_eq!(keys(tx.iter(f)), ["b"]);
    tx.rollback_to(inner).unwrap();
    assert_eq!((keys(tx.iter(f)), keys(tx.iter(&other))), (vec!["a".into(), "b".into()], vec![]));
    tx.put(f, b"d", b"1").unwrap();
    tx.rollback_to(inner).unwrap();
    tx.rollback_to(outer).unwrap();
    assert_eq!(keys(tx.iter(f)), ["a"]);
    assert!(matches!(tx.rollback_to(inner), Err(Error::NotFound { .. })), "it was set after the outer one");
    tx.put(f, b"e", b"1").unwrap();
    tx.release(outer).unwrap();
    assert!(matches!(tx.rollback_to(outer), Err(Error::NotFound { .. })));
    tx.commit().unwrap();
    assert_eq!((keys(f.iter()), other.iter().unwrap().count()), (vec!["a".into(), "e".into()], 0));
}

#[test]
fn a_finished_transaction_fails_until_a_reset() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::Serializable);
    tx.put(f, b"a", b"1").unwrap();
    tx.commit().unwrap();
    let calls = [
        tx.put(f, b"b", b"1"),
        tx.delete(f, b"b"),
        tx.get(f, b"a").map(drop),
        tx.iter(f).map(drop),
        tx.commit().map(drop),
    ];
    assert!(calls.iter().all(|r| matches!(r, Err(Error::InvalidArgument { .. }))), "{calls:?}");
    tx.reset();
    assert_eq!((tx.len(), own(&tx, &db, b"a").unwrap()), (0, b"1".to_vec()));
    tx.put(f, b"b", b"1").unwrap();
    tx.commit_with(&WriteOptions::default().sync(SyncMode::Full)).unwrap();
    assert_eq!(keys(f.iter()), ["a", "b"]);
    let elsewhere = Sim::new();
    let stranger = elsewhere.open();
    tx.reset();
    assert!(matches!(tx.put(stranger.default_family(), b"k", b"v"), Err(Error::InvalidArgument { .. })));
    assert!(matches!(tx.get(stranger.default_family(), b"k"), Err(Error::InvalidArgument { .. })));
}

#[test]
fn a_conflicting_commit_has_no_effect_even_after_a_crash() {
    for sync in [SyncMode::None, SyncMode::Full] {
        let sim = Sim::new();
        let db = sim.options().sync(sync).open().unwrap();
        let f = db.default_family();
        letters(f, "abc");
        let mut tx = db.begin(Isolation::Snapshot);
        tx.put(f, b"a", b"lost").unwrap();
        tx.put(f, b"z", &[1; 3000]).unwrap();
        f.put(b"a", b"won").unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
        f.put(b"later", b"v").unwrap();
        assert_eq!(
            (value(f, b"a").unwrap(), keys(f.iter())),
            (b"won".to_vec(), ["a", "b", "c", "later"].map(String::from).to_vec())
        );
        let after = sim.killed().open();
        assert_eq!(contents(after.default_family()), contents(f));
        tx.reset();
        tx.put(f, b"a", b"again").unwrap();
        tx.commit().unwrap();
        assert_eq!(value(f, b"a").unwrap(), b"again");
    }
}

/// Conflicts are found wherever the newer version is stored by then.
#[test]
fn conflicts_are_found_in_tables_too() {
    for steps in 0..4 {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        fill(f, 200, b"v");
        let begin = || {
            let mut writer = db.begin(Isolation::Snapshot);
            writer.put(f, b"key000100", b"w").unwrap();
            let mut reader = db.begin(Isolation::Serializable);
            assert!(reader.get(f, b"key000100").unwrap().is_some());
            reader.put(f, b"other", b"w").unwrap();
            let mut walker = db.begin(Isolation::Serializable);
            assert_eq!(walker.range(f, "key000090".."key000110").unwrap().count(), 20);
            walker.put(f, b"other2", b"w").unwrap();
            let mut stranger = db.begin(Isolation::Serializable);
            assert_eq!(stranger.range(f, "key000000".."key000050").unwrap().count(), 50);
            stranger.put(f, b"key000150", b"w").unwrap();
            [writer, reader, walker, stranger]
        };
        let mut all = begin();
        f.delete(b"key000100").unwrap();
        match steps {
            0 => {}
            1 => db.flush().unwrap(),
            2 => db.compact().unwrap(),
            _ => {
                db.compact().unwrap();
                f.put(b"more", b"v").unwrap();
                db.compact().unwrap();
            }
        }
        let refused: Vec<bool> =
            all.iter_mut().map(|tx| matches!(tx.commit(), Err(Error::Conflict { .. }))).collect();
        assert_eq!(refused, [true, true, true, false], "{steps}");
    }
}

fn stands(tx: &Transaction, db: &Db, seek: impl FnOnce(&mut Cursor) -> tidesdb::Result<()>) -> usize {
    let mut cursor = tx.cursor(db.default_family()).unwrap();
    seek(&mut cursor).unwrap();
    usize::from(cursor.valid())
}

#[test]
fn read_intervals_end_where_the_scan_ended() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    letters(f, "bdfhj");
    // A scan, keys outside of its interval, and keys inside.
    type Walk = fn(&Transaction, &Db) -> usize;
    let walks: [(Walk, &str, &str); 7] = [
        (|tx, db| tx.range(db.default_family(), "c".."g").unwrap().count(), "abghz", "cdef"),
        (|tx, db| tx.iter(db.default_family()).unwrap().take(1).count(), "cdez", "ab"),
        (|tx, db| tx.iter(db.default_family()).unwrap().rev().take(1).count(), "abghi", "jkz"),
        (|tx, db| tx.range(db.default_family(), "c"..).unwrap().take(2).count(), "abghz", "cdef"),
        (|tx, db| stands(tx, db, |cursor| cursor.seek(b"e")), "adgz", "ef"),
        (|tx, db| stands(tx, db, |cursor| cursor.seek_for_prev(b"e")), "abcfz", "de"),
        (|tx, db| stands(tx, db, |cursor| cursor.seek(b"x")), "abjkw", "xyz"),
    ];
    for (i, (walk, beside, inside)) in walks.iter().enumerate() {
        for (keys, refused) in [(beside, false), (inside, true)] {
            for key in keys.bytes() {
                let mut tx = db.begin(Isolation::Serializable);
                walk(&tx, &db);
                tx.put(f, b"result", b"v").unwrap();
                let existed = f.contains(&[key]).unwrap();
                f.put(&[key], b"other").unwrap();
                let done = tx.commit();
                assert_eq!(
                    matches!(done, Err(Error::Conflict { .. })),
                    refused,
                    "scan {i}, {}: {done:?}",
                    key as char
                );
                db.delete(b"result").unwrap();
                if !existed {
                    f.delete(&[key]).unwrap();
                }
            }
        }
    }
}

#[test]
fn an_open_cursor_has_read_up_to_its_position() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    letters(f, "abcdef");
    for (steps, refused) in [(1, false), (3, true)] {
        let mut tx = db.begin(Isolation::Serializable);
        let mut cursor = tx.cursor(f).unwrap();
        cursor.seek_to_first().unwrap();
        for _ in 0..steps {
            cursor.next().unwrap();
        }
        tx.put(f, b"z", b"v").unwrap();
        f.put(b"d", b"other").unwrap();
        assert_eq!(matches!(tx.commit(), Err(Error::Conflict { .. })), refused, "{steps} steps");
        drop(cursor);
    }
}

#[test]
fn untracked_reads_and_own_writes_do_not_conflict() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    letters(f, "ab");
    let mut tx = db.begin(Isolation::Serializable);
    assert!(tx.get_untracked(f, b"a").unwrap().is_some());
    tx.put(f, b"c", b"v").unwrap();
    assert!(tx.get(f, b"c").unwrap().is_some(), "its own write");
    assert_eq!(tx.reads_tracked(), 0);
    f.put(b"a", b"other").unwrap();
    f.put(b"c", b"other").unwrap();
    tx.commit().unwrap();
    let mut only_reads = db.begin(Isolation::Serializable);
    assert!(only_reads.get(f, b"a").unwrap().is_some());
    f.put(b"a", b"another").unwrap();
    only_reads.commit().unwrap();
}

#[test]
fn repeated_reads_of_few_keys_are_tracked_once() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut tx = db.begin(Isolation::Serializable);
    for i in 0..40_000u32 {
        tx.get(f, &(i % 700).to_be_bytes()).unwrap();
    }
    assert!(tx.reads_tracked() < 10_000, "{}", tx.reads_tracked());
    f.put(&699u32.to_be_bytes(), b"v").unwrap();
    tx.put(f, b"k", b"v").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "a tracked read was lost");
}

#[test]
fn transact_retries_after_a_conflict() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let f = db.default_family();
    f.put(b"n", &0u64.to_le_bytes()).unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..250 {
                    db.transact(|tx| {
                        let n = tx.get(f, b"n")?.map_or(0, |v| u64::from_le_bytes(v[..].try_into().unwrap()));
                        tx.put(f, b"n", &(n + 1).to_le_bytes())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(value(f, b"n").unwrap(), 1000u64.to_le_bytes());
    let failed = db.transact(|tx| {
        tx.put(f, b"n", b"x")?;
        Err::<(), _>(Error::Busy { cause: "returned by the closure" })
    });
    assert!(matches!(failed, Err(Error::Busy { .. })));
    assert_eq!(value(f, b"n").unwrap(), 1000u64.to_le_bytes());
}

/// Commits another value of `key` while a transaction that reads it is open.
fn disturb(db: &Db, tx: &Transaction, key: &[u8]) {
    tx.get(db.default_family(), key).unwrap();
    db.put(key, b"disturbed").unwrap();
}

#[test]
fn a_conflict_names_the_family_and_the_key() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("letters", FamilyOptions::default()).unwrap();
    f.put(b"b", b"1").unwrap();
    let refused = |isolation, touch: &dyn Fn(&mut Transaction)| {
        let mut tx = db.begin(isolation);
        touch(&mut tx);
        tx.put(&f, b"own", b"v").unwrap();
        f.put(b"b", b"2").unwrap();
        match tx.commit().unwrap_err() {
            Error::Conflict { family, key } => (family.to_string(), key.to_vec()),
            e => panic!("{e}"),
        }
    };
    let at_b = ("letters".to_owned(), b"b".to_vec());
    assert_eq!(refused(Isolation::Serializable, &|tx| drop(tx.get(&f, b"b").unwrap())), at_b);
    assert_eq!(
        refused(Isolation::Serializable, &|tx| assert_eq!(tx.range(&f, "a".."c").unwrap().count(), 1)),
        at_b
    );
    assert_eq!(refused(Isolation::Snapshot, &|tx| tx.put(&f, b"b", b"mine").unwrap()), at_b);
    assert_eq!(refused(Isolation::Snapshot, &|tx| tx.delete_range(&f, "a".."c").unwrap()), at_b);
    let e = Error::Conflict { family: "letters".into(), key: b"secret"[..].into() }.to_string();
    assert!(e.contains("letters") && !e.contains("secret"), "{e}");
}

#[test]
fn transact_is_bounded_and_never_repeats_a_body_that_ended_the_transaction() {
    #[derive(Debug)]
    enum Mine {
        Store(Error),
        Own,
    }
    impl From<Error> for Mine {
        fn from(e: Error) -> Self {
            Self::Store(e)
        }
    }
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let mut runs = 0;
    let options = TransactOptions::default().attempts(3);
    let refused: Result<(), Mine> = db.transact_with(&options, |tx| {
        runs += 1;
        disturb(&db, tx, b"k");
        tx.put(f, b"k", b"mine")?;
        Ok(())
    });
    assert!(matches!(refused, Err(Mine::Store(Error::Conflict { .. }))) && runs == 3, "{runs} runs");
    let failed: Result<(), Mine> = db.transact(|_| Err(Mine::Own));
    assert!(matches!(failed, Err(Mine::Own)));

    runs = 0;
    let itself: Result<u32, Mine> = db.transact(|tx| {
        runs += 1;
        disturb(&db, tx, b"k");
        tx.put(f, b"k", b"mine")?;
        tx.commit()?;
        Ok(runs)
    });
    assert!(matches!(itself, Err(Mine::Store(Error::Conflict { .. }))) && runs == 1, "{runs} runs");
    let done: Result<(), Mine> = db.transact(|tx| {
        tx.put(f, b"twice", b"v")?;
        tx.commit()?;
        Ok(())
    });
    done.unwrap();
    assert!(db.contains(b"twice").unwrap());
    let undone = db.transact(|tx| {
        tx.put(f, b"undone", b"v")?;
        tx.rollback();
        Ok::<_, Mine>("no error")
    });
    assert_eq!(undone.unwrap(), "no error");
    assert!(!db.contains(b"undone").unwrap());
}

/// A body that committed and then began again was repeated after a conflict of its second part, and its first part committed twice.
#[test]
fn a_body_that_has_committed_is_not_repeated() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let begin_again: [fn(&Db, &mut Transaction); 3] = [
        |_, tx| tx.reset(),
        |_, tx| tx.reset_at(Isolation::Serializable),
        |db, tx| *tx = db.begin(Isolation::Serializable),
    ];
    for (way, begin_again) in begin_again.into_iter().enumerate() {
        let mut runs = 0u8;
        let refused = db.transact(|tx| {
            runs += 1;
            tx.put(f, [b'a', runs], b"v")?;
            tx.commit()?;
            begin_again(&db, tx);
            disturb(&db, tx, b"k");
            tx.put(f, b"b", b"v")
        });
        assert!(matches!(refused, Err(Error::Conflict { .. })), "way {way}: {refused:?}");
        assert_eq!(runs, 1, "way {way}");
        assert!(db.contains(b"a\x01").unwrap() && !db.contains(b"b").unwrap());
    }
}

#[test]
fn a_failed_read_in_the_conflict_check_fails_only_the_commit() {
    let sim = Sim::new();
    let db = sim.options().cache_bytes(0).open().unwrap();
    let f = db.default_family();
    fill(f, 100, b"v");
    let mut tx = db.begin(Isolation::Serializable);
    tx.get(f, b"key000050").unwrap();
    tx.put(f, b"k", b"v").unwrap();
    f.put(b"key000050x", b"v").unwrap();
    f.put(b"key000049x", b"v").unwrap();
    db.compact().unwrap();
    let fault = sim.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).path_ends(".klog").forever());
    let done = tx.commit();
    assert!(matches!(done, Err(Error::Io { .. })), "{done:?}");
    assert!(sim.disk.struck(fault) > 0);
    sim.disk.clear_faults();
    f.put(b"after", b"v").unwrap();
    assert!(!f.contains(b"k").unwrap());
    assert_eq!(contents(sim.killed().open().default_family()), contents(f));
}

/// A cursor of a transaction that moved backward over one of its own keys looped forever if others had committed dozens of
/// versions of that key since.
#[test]
fn a_cursor_moves_back_over_an_own_write_with_newer_commits() {
    for level in LEVELS {
        for (versions, flushed) in [(1, false), (31, false), (33, false), (100, false), (1000, true)] {
            let (done, finished) = std::sync::mpsc::channel();
            // In a separate thread: an endless loop must not block the test.
            let walk = move || {
                let sim = Sim::new();
                let db = sim.open();
                let f = db.default_family();
                letters(f, "akz");
                if flushed {
                    db.flush().unwrap();
                }
                letters(f, "k");
                let mut tx = db.begin(level);
                for value in [b"1", b"2", b"3"] {
                    tx.put(f, b"k", value).unwrap();
                }
                let mut cursor = tx.cursor(f).unwrap();
                cursor.seek_to_last().unwrap();
                for _ in 0..versions {
                    f.put(b"k", b"theirs").unwrap();
                }
                for _ in 0..3 {
                    cursor.prev().unwrap();
                    assert_eq!(cursor.entry().unwrap(), (&b"k"[..], &b"3"[..]));
                    cursor.prev().unwrap();
                    assert_eq!(cursor.key(), b"a");
                    cursor.next().unwrap();
                    assert_eq!(cursor.entry().unwrap(), (&b"k"[..], &b"3"[..]));
                    cursor.seek(b"k").unwrap();
                    assert_eq!(cursor.entry().unwrap(), (&b"k"[..], &b"3"[..]));
                    cursor.prev().unwrap();
                    assert_eq!(cursor.key(), b"a");
                    cursor.next().unwrap();
                    cursor.next().unwrap();
                    assert_eq!(cursor.key(), b"z");
                }
                done.send(()).unwrap();
            };
            let thread = RealThreads::new().spawn("walk", Priority::Normal, Box::new(walk));
            assert!(thread.is_ok());
            let end = finished.recv_timeout(Duration::from_secs(60));
            assert!(end.is_ok(), "{level:?}, {versions} versions: {end:?}");
        }
    }
}

/// Operations on one row lose nothing when threads compete.
#[test]
fn operations_on_one_row_are_atomic() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let f = db.default_family();
    let swaps = std::sync::atomic::AtomicU32::new(0);
    let taken = std::sync::Mutex::new(Vec::new());
    for n in 0..300u32 {
        f.put(n.to_be_bytes(), "job").unwrap();
    }
    std::thread::scope(|s| {
        for thread in 0..4u8 {
            let (swaps, taken) = (&swaps, &taken);
            s.spawn(move || {
                for n in 0..100u8 {
                    f.update(b"~count", |v| Some(vec![v.map_or(0, |v| v[0]).wrapping_add(1)])).unwrap();
                    if f.compare_and_swap([b'~', n], None, Some(&[thread])).unwrap() {
                        swaps.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
                for _ in 0..75 {
                    let (key, _) = f.pop_first().unwrap().unwrap();
                    taken.lock().unwrap().push(key);
                }
            });
        }
    });
    assert_eq!(value(f, b"~count").unwrap(), [400u32 as u8]);
    assert_eq!(swaps.into_inner(), 100, "each key was free for one thread");
    let mut taken = taken.into_inner().unwrap();
    taken.sort();
    assert!(taken.iter().map(|k| k.to_vec()).eq((0..300u32).map(|n| n.to_be_bytes().to_vec())));
    assert_eq!(f.first().unwrap().unwrap().0, [b'~', 0]);
    assert_eq!(f.last().unwrap().unwrap().0, b"~count");
    assert!(f.update("~count", |_| None).unwrap().is_none() && !f.contains("~count").unwrap());
}

/// Threads take rows from both ends until none is left.
#[test]
fn rows_popped_from_both_ends_are_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).sync(SyncMode::None).open().unwrap();
    for n in 0..200u32 {
        db.put(n.to_be_bytes(), "job").unwrap();
    }
    let (db, mut taken) = (&db, Vec::new());
    std::thread::scope(|scope| {
        let take = |from_end: bool| {
            move || {
                let pop = || if from_end { db.pop_last() } else { db.pop_first() };
                std::iter::from_fn(|| pop().unwrap().map(|(key, _)| key.to_vec())).collect::<Vec<_>>()
            }
        };
        let threads = [true, false, true, false].map(|from_end| scope.spawn(take(from_end)));
        for thread in threads {
            let own = thread.join().unwrap();
            assert!(own.is_sorted() || own.is_sorted_by(|a, b| a > b), "one end: {own:?}");
            taken.extend(own);
        }
    });
    taken.sort();
    assert!(taken.into_iter().eq((0..200u32).map(|n| n.to_be_bytes().to_vec())));
}

#[test]
fn a_transaction_knows_its_first_and_last_row() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    db.put("m", "1").unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    assert_eq!(tx.first(f).unwrap(), tx.last(f).unwrap());
    tx.put(f, "a", "2").unwrap();
    tx.put(f, "z", "3").unwrap();
    let keys = (tx.first(f).unwrap().unwrap().0, tx.last(f).unwrap().unwrap().0);
    assert_eq!((&*keys.0, &*keys.1), (&b"a"[..], &b"z"[..]));
    tx.delete_range(f, ..).unwrap();
    assert!(tx.first(f).unwrap().is_none() && tx.last(f).unwrap().is_none());
}
