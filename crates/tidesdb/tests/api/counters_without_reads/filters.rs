//! Compaction filters: merges decide about rows that no snapshot sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb::{CompactionFilter, Db, Decision, Isolation, MergeOperator};
use tidesdb_io::sim::Image;

use crate::common::{Sim, contents, noise, small, value};

/// Removes "bad" values, and raises "old" ones to "new".
fn filter() -> CompactionFilter {
    CompactionFilter::new("test", |row| match row.value {
        Some(b"bad") => Decision::Remove,
        Some(b"old") => Decision::Change(b"new".to_vec()),
        Some(b"panics") => panic!("planted"),
        _ => Decision::Keep,
    })
}

fn open(sim: &Sim) -> Db {
    let db = sim.open();
    db.default_family().set_compaction_filter(Some(filter()));
    db
}

fn rows(db: &Db) -> Vec<String> {
    let row = |(k, v): (Vec<u8>, Vec<u8>)| format!("{}={}", k.escape_ascii(), v.escape_ascii());
    contents(db.default_family()).into_iter().map(row).collect()
}

#[test]
fn merges_apply_the_filter_and_flushes_do_not() {
    let sim = Sim::new();
    let db = open(&sim);
    for (key, value) in [("a", "bad"), ("b", "old"), ("c", "good"), ("d", "panics"), ("e", "bad")] {
        db.put(key, value).unwrap();
    }
    let long = vec![b'v'; 5000];
    db.put("f", &long).unwrap();
    db.flush().unwrap();
    assert_eq!(rows(&db).len(), 6);
    db.compact().unwrap();
    assert_eq!(rows(&db)[..3], ["b=new", "c=good", "d=panics"]);
    assert_eq!(value(db.default_family(), b"f").unwrap(), long);
    assert_eq!(db.default_family().stats().table_entries, 4, "nothing is left of removed rows");
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn an_older_version_does_not_come_back() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    db.put("k", "older").unwrap();
    db.compact().unwrap();
    let snapshot = db.snapshot();
    db.put("k", "bad").unwrap();
    db.put("other", "x").unwrap();
    f.set_compaction_filter(Some(filter()));
    db.compact().unwrap();
    assert_eq!(rows(&db), ["other=x"]);
    assert_eq!(&*snapshot.get(f, "k").unwrap().unwrap(), b"older");
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(rows(&db), ["other=x"]);
}

#[test]
fn a_live_snapshot_sees_no_change() {
    for keeper in ["snapshot", "transaction", "snapshot after the flush"] {
        let sim = Sim::new();
        let db = open(&sim);
        let f = db.default_family();
        db.put("k", "bad").unwrap();
        db.put("l", "old").unwrap();
        let early = (keeper == "snapshot").then(|| db.snapshot());
        let tx = (keeper == "transaction").then(|| db.begin(Isolation::Snapshot));
        db.flush().unwrap();
        let late = db.snapshot();
        for _ in 0..2 {
            db.put("filler", "x").unwrap();
            db.compact().unwrap();
            for snapshot in early.iter().chain([&late]) {
                assert_eq!(&*snapshot.get(f, "k").unwrap().unwrap(), b"bad", "{keeper}");
                assert_eq!(&*snapshot.get(f, "l").unwrap().unwrap(), b"old", "{keeper}");
            }
            if let Some(tx) = &tx {
                assert_eq!(&*tx.get(f, "k").unwrap().unwrap(), b"bad");
            }
        }
        drop((early, late, tx));
        db.put("filler", "y").unwrap();
        db.compact().unwrap();
        assert_eq!(rows(&db), ["filler=y", "l=new"], "{keeper}");
    }
}

#[test]
fn after_a_crash_a_row_is_as_before_or_filtered() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for n in 0..40 {
        db.put(format!("k{n:02}"), if n % 2 == 0 { "bad" } else { "old" }).unwrap();
        db.put(format!("k{n:02}v"), noise(n, 600)).unwrap();
    }
    db.compact().unwrap();
    f.set_compaction_filter(Some(filter()));
    db.put("k", "good").unwrap();
    db.flush().unwrap();
    let images = sim.before_each_change(|| db.compact().unwrap());
    assert!(images.len() > 5, "{}", images.len());
    let mut outcomes = [0; 2];
    for (n, image) in images.into_iter().enumerate() {
        let after = Sim::on(if n % 2 == 0 { image } else { image.crash_image(&Image::SYNCED, n as u64) });
        let again = after.open();
        let rows: Vec<String> = rows(&again).into_iter().filter(|row| row.len() < 20).collect();
        let count = |end: &str| rows.iter().filter(|row| row.ends_with(end)).count();
        let found = (count("=bad"), count("=old"), count("=new"), count("=good"));
        assert!(found == (20, 20, 0, 1) || found == (0, 0, 20, 1), "image {n}: {found:?}");
        outcomes[usize::from(found.0 == 0)] += 1;
        assert!(again.verify().unwrap().is_ok(), "image {n}");
    }
    assert!(outcomes[0] > 0, "{outcomes:?}");
    assert_eq!(rows(&db).iter().filter(|row| row.ends_with("=new")).count(), 20);
}

#[test]
fn combined_operands_are_filtered_and_expiry_stays() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().merge_operator(MergeOperator::append(""))).open().unwrap();
    let f = db.default_family();
    f.set_compaction_filter(Some(filter()));
    f.merge("k", "ba").unwrap();
    f.merge("k", "d").unwrap();
    f.put_with_ttl("l", "old", Duration::from_secs(10)).unwrap();
    db.compact().unwrap();
    assert_eq!(rows(&db), ["l=new"]);
    sim.clock.advance(Duration::from_secs(10));
    assert!(rows(&db).is_empty());
}

#[test]
fn a_filter_sees_each_row_that_a_merge_rewrites() {
    let sim = Sim::new();
    let db = sim.open();
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let counting = CompactionFilter::new("counting", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Decision::Keep
    });
    assert_eq!(format!("{counting:?}"), "CompactionFilter(\"counting\")");
    db.default_family().set_compaction_filter(Some(counting));
    for n in 0..100u32 {
        db.put(n.to_be_bytes(), "v").unwrap();
        db.put(n.to_be_bytes(), "v").unwrap();
    }
    db.compact().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 100);
    db.default_family().set_compaction_filter(None);
    db.put("x", "y").unwrap();
    db.compact().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 100);
}
