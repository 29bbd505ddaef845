//! Expiry: every read hides an expired key, and the next compaction drops its bytes.

use std::time::Duration;

use tidesdb::{Isolation, Transaction};
use tidesdb_io::Clock as _;

use crate::common::{Sim, contents, value};

const TEN: Duration = Duration::from_secs(10);

#[test]
fn a_key_expires_at_its_expiry_second() {
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
    let mut batch = db.batch();
    batch.put_expiring(f, b"k", b"v", 1).unwrap();
    batch.put_expiring(f, b"for ever", b"v", 0).unwrap();
    batch.put_expiring(f, b"last", b"v", u32::MAX).unwrap();
    db.write(&mut batch).unwrap();
    assert_eq!(contents(f).into_iter().map(|(k, _)| k).collect::<Vec<_>>(), [&b"for ever"[..], b"last"]);
}

#[test]
fn a_row_lives_for_its_ttl_and_at_most_a_second_longer() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let expiry = |key: &str| {
        let mut cursor = f.cursor().unwrap();
        cursor.seek(key).unwrap();
        assert_eq!(cursor.key(), key.as_bytes());
        u64::from(cursor.expiry())
    };
    let start = sim.clock.wall_secs() + 10;
    for (fraction, ttl, secs) in
        [(0, 1, 1), (0, 1000, 1), (1, 1000, 2), (999, 1, 1), (999, 2, 2), (500, 1600, 3)]
    {
        sim.clock.set_wall(Duration::from_secs(start) + Duration::from_millis(fraction));
        let ttl = Duration::from_millis(ttl);
        f.put_with_ttl("row", "v", ttl).unwrap();
        assert_eq!(expiry("row"), start + secs, "{fraction} {ttl:?}");
        let mut batch = db.batch();
        batch.put_with_ttl(f, "batch", "v", ttl).unwrap();
        db.write(&mut batch).unwrap();
        db.transact(|tx| tx.put_with_ttl(f, "tx", "v", ttl)).unwrap();
        f.value_writer("stream").unwrap().ttl(ttl).commit().unwrap();
        assert!(["batch", "tx", "stream"].iter().all(|key| expiry(key) == start + secs));
    }
}

/// The last second that a row can store is `u32::MAX - 1`.
#[test]
fn a_ttl_that_ends_after_2106_is_refused() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let left = Duration::from_secs(u64::from(u32::MAX - 1) - sim.clock.wall_secs());
    db.put_with_ttl("k", "v", left).unwrap();
    for ttl in [left + Duration::from_millis(1), Duration::MAX] {
        let refused = |result: tidesdb::Result<()>| {
            let error = result.unwrap_err();
            assert!(matches!(error, tidesdb::Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains("2106"), "{error}");
        };
        refused(db.put_with_ttl("k", "w", ttl).map(drop));
        refused(db.batch().put_with_ttl(f, "k", "w", ttl));
        refused(db.transact(|tx| tx.put_with_ttl(f, "k", "w", ttl)));
        refused(f.value_writer("k").unwrap().ttl(ttl).commit().map(drop));
    }
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_family_has_a_default_ttl_for_rows_without_one() {
    let sim = Sim::new();
    let db = sim.open();
    let options = tidesdb::FamilyOptions::default().default_ttl(Duration::from_millis(9001));
    assert_eq!(options.default_ttl_secs, 10);
    let f = db.family_or_create("sessions", options.clone()).unwrap();
    f.put("put", "v").unwrap();
    db.transact(|tx| tx.put(&f, "tx", "v")).unwrap();
    f.value_writer("stream").unwrap().commit().unwrap();
    f.update("update", |_| Some(b"v".to_vec())).unwrap();
    f.put_with_ttl("shorter", "v", Duration::from_secs(1)).unwrap();
    f.put_expiring("forever", "v", 0).unwrap();
    f.value_writer("stream forever").unwrap().expires_at(0).commit().unwrap();
    sim.clock.advance(Duration::from_secs(9));
    assert_eq!(f.iter().unwrap().count(), 6);
    sim.clock.advance(Duration::from_secs(1));
    assert_eq!(f.iter().unwrap().count(), 2);
    f.change_options(options.default_ttl(Duration::ZERO), true).unwrap();
    f.put("put", "v").unwrap();
    sim.clock.advance(Duration::from_secs(1000));
    assert_eq!(f.iter().unwrap().count(), 3);
}

#[test]
fn with_threads_the_clock_is_read_in_the_background() {
    let sim = Sim::new();
    let db = sim.options().background_threads(1).open().unwrap();
    let f = db.default_family();
    f.put_with_ttl(b"k", b"v", TEN).unwrap();
    assert!(f.contains(b"k").unwrap());
    sim.clock.advance(TEN);
    for _ in 0..500 {
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
        tx.put_expiring(f, b"a", b"own", 1).unwrap();
        tx.put_with_ttl(f, b"b", b"own", TEN).unwrap();
        tx.put_expiring(f, b"new", b"own", 1).unwrap();
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
        tx.put_expiring(f, b"a", b"own", 0).unwrap();
        agree(&tx, &[b"a", b"c"]);
    }
}
