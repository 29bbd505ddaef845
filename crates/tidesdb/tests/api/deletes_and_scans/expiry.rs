//! Expiry: every read hides an expired key, and the next compaction drops its bytes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::{Db, Error, Family, Isolation, SyncMode, Transaction, WriteBatch};
use tidesdb_io::Clock as _;
use tidesdb_io::sim::{Fault, OpSet, errno};

use crate::common::{Sim, contents, keys, value};

const TEN: Duration = Duration::from_secs(10);

#[test]
fn a_key_expires_at_its_expiry() {
    for place in ["memtable", "level 1", "bottom"] {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        f.put_with_ttl(b"k", b"v", TEN).unwrap();
        db.put(b"keeps", b"v").unwrap();
        match place {
            "level 1" => db.flush().unwrap(),
            "bottom" => db.compact().unwrap(),
            _ => {}
        }
        sim.clock.advance(Duration::from_secs(9));
        assert_eq!(value(f, b"k").unwrap(), b"v", "{place}");
        assert_eq!(contents(f).len(), 2);
        sim.clock.advance(Duration::from_secs(1));
        assert!(value(f, b"k").is_none() && !f.contains(b"k").unwrap(), "{place}");
        assert_eq!(f.multi_get(&[b"k"]).unwrap(), [None]);
        assert_eq!(f.get_map(b"k", <[u8]>::len).unwrap(), None);
        assert_eq!(contents(f).len(), 1);
        assert_eq!(f.iter().unwrap().rev().count(), 1);
        db.compact().unwrap();
        assert_eq!(f.stats().table_entries, 1, "{place}: its bytes are dropped");
    }
}

#[test]
fn an_expired_version_never_makes_an_older_one_visible() {
    for compacted in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        db.put(b"k", b"older").unwrap();
        db.compact().unwrap();
        f.put_with_ttl(b"k", b"newer", TEN).unwrap();
        sim.clock.advance(TEN);
        if compacted {
            db.compact().unwrap();
        } else {
            db.flush().unwrap();
        }
        assert!(value(f, b"k").is_none() && contents(f).is_empty(), "compacted: {compacted}");
        db.compact().unwrap();
        assert!(value(f, b"k").is_none() && contents(f).is_empty());
    }
}

#[test]
fn a_put_without_expiry_ends_the_expiry() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"k", b"short", TEN).unwrap();
    db.put(b"k", b"for ever").unwrap();
    sim.clock.advance(100 * TEN);
    assert_eq!(value(f, b"k").unwrap(), b"for ever");
}

#[test]
fn a_new_expiry_replaces_the_old() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"k", b"1", TEN).unwrap();
    sim.clock.advance(TEN / 2);
    f.put_with_ttl(b"k", b"2", TEN).unwrap();
    sim.clock.advance(TEN / 2 + TEN / 5);
    assert_eq!(value(f, b"k").unwrap(), b"2");
    sim.clock.advance(TEN);
    assert!(value(f, b"k").is_none());
}

#[test]
fn large_values_expire_too_and_survive_until_then() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"k", &[1; 5000], TEN).unwrap();
    db.flush().unwrap();
    let killed = sim.killed();
    let db = killed.open();
    assert_eq!(value(db.default_family(), b"k").unwrap(), [1; 5000]);
    killed.clock.advance(TEN);
    assert!(value(db.default_family(), b"k").is_none());
}

#[test]
fn the_expiry_is_kept_in_the_log() {
    let sim = Sim::new();
    let db = sim.open();
    db.default_family().put_with_ttl(b"k", b"v", TEN).unwrap();
    let killed = sim.killed();
    let db = killed.open();
    assert!(db.contains(b"k").unwrap());
    killed.clock.advance(TEN);
    assert!(!db.contains(b"k").unwrap());
}

#[test]
fn an_expiry_in_the_past_takes_effect_at_once() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    db.put(b"k", b"old").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_expiring(f, b"k", b"v", UNIX_EPOCH).unwrap();
    batch.put_expiring(f, b"before 1970", b"v", UNIX_EPOCH - TEN).unwrap();
    batch.put_expiring(f, b"for ever", b"v", None).unwrap();
    batch.put_expiring(f, b"last", b"v", last_moment()).unwrap();
    db.write(&mut batch).unwrap();
    assert_eq!(contents(f).into_iter().map(|(k, _)| k).collect::<Vec<_>>(), [&b"for ever"[..], b"last"]);
}

#[test]
fn a_row_lives_for_its_ttl_and_at_most_a_millisecond_longer() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let start = Duration::from_secs(sim.clock.wall_secs() + 10);
    // Nanoseconds after the start, the TTL in nanoseconds, and the expiry in milliseconds after the start.
    for (at, ttl, expiry) in [
        (0, 0, 0),
        (0, 1, 1),
        (0, 250_000_000, 250),
        (1, 0, 1),
        (1, 999_999, 1),
        (1, 1_000_000, 2),
        (999_999, 1, 1),
        (999_999, 2, 2),
        (500_600_000, 1_600_000_000, 2101),
    ] {
        sim.clock.set_wall(start + Duration::from_nanos(at));
        let ttl = Duration::from_nanos(ttl);
        f.put_with_ttl("row", "v", ttl).unwrap();
        let mut batch = WriteBatch::new();
        batch.put_with_ttl(f, "batch", "v", ttl).unwrap();
        db.write(&mut batch).unwrap();
        db.transact(|tx| tx.put_with_ttl(f, "tx", "v", ttl)).unwrap();
        f.value_writer("stream").unwrap().ttl(ttl).commit().unwrap();
        let end = UNIX_EPOCH + start + Duration::from_millis(expiry);
        assert_eq!(f.expiry_after(ttl).unwrap(), end, "{at} {ttl:?}");
        let shown = (expiry > at / 1_000_000).then_some(end);
        for key in ["row", "batch", "tx", "stream"] {
            let mut cursor = f.cursor().unwrap();
            cursor.seek(key).unwrap();
            let found = (cursor.valid() && cursor.key() == key.as_bytes()).then(|| cursor.expiry().unwrap());
            assert_eq!(found, shown, "{key}: {at} {ttl:?}");
        }
    }
}

/// The clock of the simulation stands still, so a row is there until its last millisecond and gone at its expiry, wherever it lies.
#[test]
fn milliseconds_are_kept_in_memory_log_and_tables() {
    for place in ["memtable", "log", "level 1", "bottom", "reopened"] {
        let mut sim = Sim::new();
        let start = Duration::from_secs(sim.clock.wall_secs() + 10) + Duration::from_millis(7);
        sim.clock.set_wall(start);
        let mut db = sim.open();
        for (key, ttl) in [("a", 250), ("b", 300), ("c", 301), ("d", 70_000), ("e", 5_000_000_000)] {
            db.put_with_ttl(key, place, Duration::from_millis(ttl)).unwrap();
        }
        db.put("never", "v").unwrap();
        match place {
            "log" => {
                drop(db);
                sim = sim.killed();
                db = sim.open();
            }
            "level 1" => db.flush().unwrap(),
            "bottom" => {
                db.flush().unwrap();
                db.put("b2", "v").unwrap();
                db.compact().unwrap();
            }
            "reopened" => {
                db.flush().unwrap();
                db.close().unwrap();
                db = sim.open();
            }
            _ => {}
        }
        let shown = |at: u64| {
            sim.clock.set_wall(start + Duration::from_millis(at));
            let keys = keys(db.iter()).into_iter().filter(|key| key.len() == 1).collect::<String>();
            for key in ["a", "b", "c", "d", "e"] {
                assert_eq!(db.contains(key).unwrap(), keys.contains(key), "{key} at {at}, {place}");
            }
            keys
        };
        assert_eq!(shown(249), "abcde", "{place}");
        assert_eq!(shown(250), "bcde", "{place}");
        assert_eq!(shown(299), "bcde", "{place}");
        assert_eq!(shown(300), "cde", "{place}");
        assert_eq!(shown(301), "de", "{place}");
        let mut cursor = db.cursor().unwrap();
        cursor.seek("e").unwrap();
        let end = UNIX_EPOCH + start + Duration::from_millis(5_000_000_000);
        assert_eq!(cursor.expiry(), Some(end), "{place}");
        assert_eq!(shown(70_000), "e", "{place}");
        drop(cursor);
        db.compact().unwrap();
        assert_eq!(db.default_family().stats().table_entries, keys(db.iter()).len() as u64, "{place}");
        assert_eq!(shown(5_000_000_000), "", "{place}");
    }
}

fn last_moment() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis((1 << 48) - 1)
}

#[test]
fn an_expiry_after_the_year_10889_is_refused() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let left = last_moment().duration_since(UNIX_EPOCH).unwrap() - Duration::from_secs(sim.clock.wall_secs());
    db.put_with_ttl("k", "v", left).unwrap();
    let refused = |result: tidesdb::Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains("10889"), "{error}");
    };
    for ttl in [left + Duration::from_nanos(1), left + Duration::from_millis(1), Duration::MAX] {
        refused(db.put_with_ttl("k", "w", ttl).map(drop));
        refused(WriteBatch::new().put_with_ttl(f, "k", "w", ttl));
        refused(db.transact(|tx| tx.put_with_ttl(f, "k", "w", ttl)));
        refused(f.value_writer("k").unwrap().ttl(ttl).commit().map(drop));
        refused(f.expiry_after(ttl).map(drop));
    }
    let late = last_moment() + Duration::from_nanos(100); // the clock of Windows has no shorter step
    refused(db.put_expiring("k", "w", late).map(drop));
    refused(f.value_writer("k").unwrap().expires_at(late).commit().map(drop));
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    let options = tidesdb::FamilyOptions::default().default_ttl(Duration::MAX);
    assert!(matches!(db.create_family("f", options), Err(Error::InvalidArgument { .. })));
}

#[test]
fn a_family_has_a_default_ttl_for_rows_without_one() {
    let sim = Sim::new();
    let start = Duration::from_secs(sim.clock.wall_secs() + 10);
    sim.clock.set_wall(start);
    let db = sim.open();
    let options = tidesdb::FamilyOptions::default().default_ttl(Duration::from_millis(9001));
    let f = db.family_or_create("sessions", options.clone()).unwrap();
    f.put("put", "v").unwrap();
    db.transact(|tx| tx.put(&f, "tx", "v")).unwrap();
    f.value_writer("stream").unwrap().commit().unwrap();
    f.update("update", |_| Some(b"v".to_vec())).unwrap();
    f.put_with_ttl("shorter", "v", Duration::from_secs(1)).unwrap();
    f.put_expiring("forever", "v", None).unwrap();
    f.value_writer("stream forever").unwrap().expires_at(None).commit().unwrap();
    assert_eq!(f.default_expiry().unwrap(), Some(UNIX_EPOCH + start + Duration::from_millis(9001)));
    sim.clock.set_wall(start + Duration::from_millis(9000));
    assert_eq!(f.iter().unwrap().count(), 6);
    sim.clock.set_wall(start + Duration::from_millis(9001));
    assert_eq!(f.iter().unwrap().count(), 2);
    f.change_options(options.default_ttl(Duration::ZERO)).unwrap();
    f.put("put", "v").unwrap();
    assert_eq!(f.default_expiry().unwrap(), None);
    sim.clock.set_wall(start + Duration::from_secs(1000));
    assert_eq!(f.iter().unwrap().count(), 3);
}

/// The first put with a TTL used to install an edit of the manifest, with two syncs, although puts wait for nothing.
#[test]
fn a_row_that_expires_is_put_without_a_sync() {
    type Write = fn(&Db, &Family) -> tidesdb::Result<()>;
    let writes: [(&str, Write); 4] = [
        ("put", |_, f| f.put_with_ttl("k", "v", TEN).map(drop)),
        ("default TTL", |_, f| f.put("k", "v").map(drop)),
        ("batch", |db, f| {
            let mut batch = WriteBatch::new();
            batch.put_with_ttl(f, "k", "v", TEN)?;
            db.write(&mut batch).map(drop)
        }),
        ("transaction", |db, f| db.transact(|tx| tx.put_with_ttl(f, "k", "v", TEN))),
    ];
    for (name, write) in writes {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        let options = tidesdb::FamilyOptions::default().default_ttl(TEN);
        let f = db.create_family("sessions", options).unwrap();
        let before = sim.disk.op_count();
        write(&db, &f).unwrap();
        let ops = sim.disk.ops().into_iter().filter(|op| op.index >= before);
        assert_eq!(ops.filter(|op| OpSet::SYNCS.has(op.kind)).count(), 0, "{name}");
    }
}

/// A crash or a failure at any step of the first put that expires: the row is there or not, and nothing else is lost.
#[test]
fn the_first_row_that_expires_survives_crashes_and_failures_at_every_step() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("before", "v").unwrap();
    let disks = sim.before_each_change(|| {
        db.put_with_ttl("k", "v", TEN).unwrap();
        db.put_with_ttl("l", "v", TEN).unwrap();
    });
    assert!(disks.len() > 3, "{}", disks.len());
    let mut seen = [0; 3];
    for disk in disks {
        let sim = Sim::on(disk);
        let db = sim.open();
        let rows = keys(db.iter());
        assert!(["before", "before k", "before k l"].contains(&rows.join(" ").as_str()), "{rows:?}");
        seen[rows.len() - 1] += 1;
        db.put_with_ttl("m", "v", TEN).unwrap();
        let db = sim.killed().open();
        assert!(db.contains("m").unwrap());
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    for ops in [OpSet::WRITES, OpSet::SYNCS, OpSet::CHANGES] {
        for skipped in 0..8 {
            let sim = Sim::new();
            let db = sim.open();
            db.put("before", "v").unwrap();
            sim.disk.inject(Fault::errno(errno::EIO).on(ops).skip(skipped));
            let first = db.put_with_ttl("k", "v", TEN);
            sim.disk.clear_faults();
            let second = db.put_with_ttl("l", "v", TEN);
            assert!(
                second.is_ok() || matches!(second, Err(Error::Poisoned { .. })),
                "{second:?} after {first:?}"
            );
            let rows = keys(db.iter());
            assert!(first.is_err() || rows.contains(&"k".to_owned()), "{first:?}");
            drop(db);
            let db = sim.killed().open();
            let rows = keys(db.iter());
            for (key, put) in [("before", true), ("k", first.is_ok()), ("l", second.is_ok())] {
                assert!(!put || rows.contains(&key.to_owned()), "{key} is lost: {first:?} {second:?}");
            }
        }
    }
}

/// Many threads put the first rows that expire.
#[test]
fn the_first_rows_that_expire_may_come_from_many_threads() {
    for _ in 0..10 {
        let sim = Sim::new();
        let db = sim.options().background_threads(2).open().unwrap();
        let f = db.default_family();
        std::thread::scope(|s| {
            for thread in 0..8u8 {
                s.spawn(move || {
                    for n in 0..20u8 {
                        f.put_with_ttl([thread, n], "v", TEN).unwrap();
                    }
                });
            }
        });
        let db = sim.killed().open();
        assert_eq!(contents(db.default_family()).len(), 160);
    }
}

#[test]
fn a_row_that_expires_is_refused_by_a_read_only_database_and_by_one_that_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path()).unwrap().close().unwrap();
    let db = Db::options(dir.path()).read_only(true).open().unwrap();
    let refused = db.put_with_ttl("k", "v", TEN);
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family().clone();
    db.close().unwrap();
    assert!(matches!(family.put_with_ttl("k", "v", TEN), Err(Error::Closed)));
}

#[test]
fn with_threads_the_clock_is_read_in_the_background() {
    let sim = Sim::new();
    let db = sim.options().background_threads(1).open().unwrap();
    let f = db.default_family();
    f.put_with_ttl(b"k", b"v", TEN).unwrap();
    assert!(f.contains(b"k").unwrap());
    sim.clock.advance(TEN);
    for _ in 0..3000 {
        if !f.contains(b"k").unwrap() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the key has not expired");
}

#[test]
fn a_deleted_key_with_an_expiry_stays_deleted() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put_with_ttl(b"k", b"v", TEN).unwrap();
    db.delete(b"k").unwrap();
    sim.clock.advance(TEN);
    db.compact().unwrap();
    assert!(value(f, b"k").is_none());
    assert_eq!(f.stats().table_entries, 0);
}

/// Reads by key used to show the transaction's own put although it had expired, before or during the transaction; iterators hid it.
#[test]
fn an_own_put_that_has_expired_is_hidden_from_every_read() {
    for sorted in [false, true] {
        let sim = Sim::new();
        let db = sim.open();
        let f = db.default_family();
        for key in [b"a", b"b", b"c"] {
            f.put(key, b"committed").unwrap();
        }
        let mut tx = db.begin(Isolation::Serializable);
        tx.put_expiring(f, b"a", b"own", UNIX_EPOCH).unwrap();
        tx.put_with_ttl(f, b"b", b"own", TEN).unwrap();
        tx.put_expiring(f, b"new", b"own", UNIX_EPOCH).unwrap();
        if sorted {
            // A longer batch is read through a sorted copy.
            for n in 0..40u8 {
                tx.put(f, &[b'x', n], b"v").unwrap();
            }
        }
        let agree = |tx: &Transaction, shown: &[&[u8]]| {
            for key in [&b"a"[..], b"b", b"c", b"new"] {
                let expected = shown.contains(&key);
                assert_eq!(tx.contains(f, key).unwrap(), expected, "{key:?}, sorted: {sorted}");
                assert_eq!(tx.contains_untracked(f, key).unwrap(), expected, "{key:?}");
                assert_eq!(tx.get(f, key).unwrap().is_some(), expected, "{key:?}");
                assert_eq!(tx.get_untracked(f, key).unwrap().is_some(), expected, "{key:?}");
                assert_eq!(tx.get_map(f, key, |_| ()).unwrap().is_some(), expected, "{key:?}");
                assert_eq!(tx.multi_get(f, &[key]).unwrap()[0].is_some(), expected, "{key:?}");
            }
            let keys = tx.range(f, &b"a"[..]..b"o").unwrap().map(|row| row.unwrap().0.into_vec());
            assert_eq!(keys.collect::<Vec<_>>(), shown, "sorted: {sorted}");
        };
        agree(&tx, &[b"b", b"c"]);
        sim.clock.advance(TEN);
        agree(&tx, &[b"c"]);
        tx.put_expiring(f, b"a", b"own", None).unwrap();
        agree(&tx, &[b"a", b"c"]);
    }
}
