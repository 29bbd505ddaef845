//! Values of 8 MiB and more, which a put writes to the value log at once.

use std::sync::{Arc, Mutex};

use tidesdb::{CommittedOp, Error, FamilyOptions, Isolation, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, errno};

use crate::common::{DB, Sim, noise};
use crate::large_values::streams::{CHUNK, check, content, open, quiet, shrinks_to, vlog_bytes, vlogs};

/// The shortest value that is stored at once.
const LONG: usize = 8 * CHUNK;

#[test]
fn a_long_value_takes_no_memory_of_the_batch_and_is_visible_with_its_commit() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    for (key, len) in [("shortest", LONG), ("odd", LONG + 1), ("film", 11 * CHUNK + 77)] {
        let (before, value) = (vlog_bytes(&sim), content(1, len));
        let mut batch = WriteBatch::new();
        batch.put(f, key, &value).unwrap();
        batch.put(f, "title", key).unwrap();
        assert!(batch.bytes() < 8 << 10, "{}", batch.bytes());
        assert!(vlog_bytes(&sim) - before > len as u64 / 2);
        assert!(!f.contains(key).unwrap());
        db.write(&mut batch).unwrap();
        check(f, key, &value);
        check(f, "title", key.as_bytes());
    }
    let mut batch = WriteBatch::new();
    batch.put(f, "short", content(1, LONG - 1)).unwrap();
    assert!(batch.bytes() > LONG - 1, "it is in the batch");
    drop(batch);
    db.compact().unwrap();
    for (key, len) in [("shortest", LONG), ("odd", LONG + 1), ("film", 11 * CHUNK + 77)] {
        check(f, key, &content(1, len));
    }
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{report:?}");
    drop(db);
    check(open(&sim).default_family(), "film", &content(1, 11 * CHUNK + 77));
}

#[test]
fn what_is_not_committed_or_overwritten_gives_its_space_back() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let mut dropped = WriteBatch::new();
    dropped.put(f, "film", noise(1, LONG)).unwrap();
    drop(dropped);
    for seed in 0..3 {
        f.put("film", noise(seed, LONG)).unwrap();
    }
    shrinks_to(&sim, &db, LONG as u64 * 3 / 2);
    check(f, "film", &noise(2, LONG));
    f.delete("film").unwrap();
    shrinks_to(&sim, &db, 1 << 20);
}

#[test]
fn a_transaction_reads_takes_back_and_commits_long_values() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.put("film", "old").unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    tx.put(f, "film", content(1, LONG)).unwrap();
    let before = tx.savepoint();
    tx.put(f, "film", content(2, LONG + 5)).unwrap();
    assert!(tx.get(f, "film").unwrap().as_deref() == Some(&content(2, LONG + 5)[..]));
    tx.rollback_to(before).unwrap();
    assert!(tx.get(f, "film").unwrap().as_deref() == Some(&content(1, LONG)[..]));
    check(f, "film", b"old");
    tx.commit().unwrap();
    check(f, "film", &content(1, LONG));
}

#[test]
fn a_commit_hook_sees_a_long_value_and_a_family_without_value_logs_keeps_it() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    let seen = Arc::new(Mutex::new(0));
    let told = Arc::clone(&seen);
    f.set_commit_hook(Some(Arc::new(move |commit: &tidesdb::Committed<'_>| {
        for op in commit.ops {
            if let CommittedOp::Put { value, .. } = op {
                *told.lock().unwrap() = value.len();
            }
        }
    })));
    f.put("film", content(1, LONG)).unwrap();
    assert_eq!(*seen.lock().unwrap(), LONG);
    check(f, "film", &content(1, LONG));
    let inline = db.create_family("inline", quiet().value_threshold(LONG + 1)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&inline, "film", content(1, LONG)).unwrap();
    assert!(batch.bytes() > LONG);
    db.write(&mut batch).unwrap();
    check(&inline, "film", &content(1, LONG));
}

#[test]
fn a_power_failure_at_any_point_leaves_all_or_nothing() {
    for mode in [SyncMode::None, SyncMode::Full] {
        let sim = Sim::new();
        let db = sim.options().default_family(quiet()).sync(mode).open().unwrap();
        let f = db.default_family();
        f.put("film", content(1, LONG)).unwrap();
        db.sync().unwrap();
        let forks: Arc<Mutex<Vec<_>>> = Arc::default();
        let (taken, done) = (Arc::clone(&forks), Arc::new(Mutex::new(false)));
        let told = Arc::clone(&done);
        sim.disk.observe(OpSet::CHANGES, move |op, fork| {
            let mut taken = taken.lock().unwrap();
            taken.push((
                format!("before {:?} {} #{}", op.kind, op.path, op.index),
                fork,
                *told.lock().unwrap(),
            ));
        });
        f.put("film", content(2, LONG + 9)).unwrap();
        *done.lock().unwrap() = mode == SyncMode::Full;
        f.put("small", "after").unwrap();
        db.sync().unwrap();
        sim.disk.stop_observing();
        let forks = std::mem::take(&mut *forks.lock().unwrap());
        assert!(forks.len() > 10, "{} crash points", forks.len());
        let (mut old, mut new) = (0, 0);
        for (n, (what, fork, durable)) in forks.iter().enumerate() {
            // Before the sync the record is in the log, and any part of the chunks may be lost.
            let some = [Image::EVERYTHING, Image::SYNCED, Image::STANDARD[n % 10]];
            let images = if what.contains("Sync") { &Image::STANDARD[..] } else { &some };
            for image in images {
                let left = Sim::on(fork.crash_image(image, n as u64));
                let db = left.options().open().unwrap_or_else(|e| panic!("{what}, {image:?}: {e}"));
                let f = db.default_family();
                let is_new = f.value_reader("film").unwrap().unwrap().len() > LONG as u64;
                assert!(is_new || !durable, "{mode:?}, {what}, {image:?}: a durable commit is lost");
                assert!(is_new || !f.contains("small").unwrap(), "{what}: not a prefix");
                check(f, "film", &if is_new { content(2, LONG + 9) } else { content(1, LONG) });
                assert!(db.verify().unwrap().is_ok(), "{what}");
                if is_new { new += 1 } else { old += 1 }
            }
        }
        assert!(old > 10 && new > 0, "{mode:?}: {old} {new}");
    }
}

/// A failed sync leaves pages that the kernel takes for clean: the next open writes them again, chunks too.
#[test]
fn a_failed_sync_loses_no_chunk() {
    let sim = Sim::new();
    let db = sim.options().default_family(quiet()).sync(SyncMode::None).open().unwrap();
    db.put("film", content(1, LONG)).unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS).path_ends(".vlog"));
    assert!(db.sync().is_err());
    drop(db);
    let db = sim.open();
    assert!(db.recovery_report().sync_failed);
    check(db.default_family(), "film", &content(1, LONG));
    drop(db);
    check(sim.power_lost(&Image::SYNCED, 1).open().default_family(), "film", &content(1, LONG));
}

#[test]
fn a_full_disk_refuses_the_put_and_leaves_the_batch_as_it_was() {
    let sim = Sim::new();
    let db = open(&sim);
    let f = db.default_family();
    f.put("film", content(1, LONG)).unwrap();
    for (skip, kind) in (0..10).flat_map(|skip| [(skip, OpKind::Write), (skip, OpKind::Create)]) {
        let mut batch = WriteBatch::new();
        batch.put(f, "small", [skip as u8]).unwrap();
        let full = Fault::errno(errno::ENOSPC).on(kind).path_ends(".vlog").skip(skip).forever();
        let full = sim.disk.inject(full);
        let result = batch.put(f, "film", noise(skip, LONG));
        let struck = sim.disk.struck(full) > 0;
        sim.disk.remove_fault(full);
        assert_eq!(matches!(result, Err(Error::NoSpace { .. })), struck, "{kind:?} {skip}: {result:?}");
        assert_eq!(batch.len(), if struck { 1 } else { 2 });
        db.write(&mut batch).unwrap();
        check(f, "small", &[skip as u8]);
        check(f, "film", &if struck { content(1, LONG) } else { noise(skip, LONG) });
        f.put("film", content(1, LONG)).unwrap();
    }
}

#[test]
fn damage_of_any_chunk_is_an_error_that_names_the_file() {
    let sim = Sim::new();
    let db = sim.options().default_family(FamilyOptions::default()).open().unwrap();
    db.put("film", noise(1, LONG)).unwrap();
    db.flush().unwrap();
    let mut seen = 0;
    for (log, bytes) in vlogs(&sim) {
        let path = format!("{DB}/{log}");
        for place in (CHUNK as u64 / 2..bytes).step_by(CHUNK) {
            sim.disk.corrupt(&path, place, |byte| byte ^ 1).unwrap();
            let error = db.get("film").unwrap_err();
            assert!(matches!(&error, Error::Corrupt { file, .. } if **file == *log), "{error}");
            sim.disk.corrupt(&path, place, |byte| byte ^ 1).unwrap();
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen} chunks");
    check(db.default_family(), "film", &noise(1, LONG));
}

#[test]
fn a_put_after_the_family_was_dropped_or_the_database_closed_is_refused() {
    let sim = Sim::new();
    let db = open(&sim);
    let gone = db.create_family("gone", quiet()).unwrap();
    db.drop_family("gone").unwrap();
    let mut batch = WriteBatch::new();
    assert!(matches!(batch.put(&gone, "film", noise(1, LONG)), Err(Error::NotFound { .. })));
    let f = db.default_family().clone();
    db.close().unwrap();
    assert!(matches!(batch.put(&f, "film", noise(1, LONG)), Err(Error::Closed)));
    assert!(batch.is_empty());
}

/// A cursor uses the memory of a long value for the next one, whatever their lengths.
#[test]
fn scans_return_long_values_of_all_lengths() {
    let sim = Sim::new();
    let db = open(&sim);
    let lengths = [LONG, LONG + CHUNK, 900, LONG + 3, 5, LONG + 2 * CHUNK + 1, LONG, LONG];
    let value = |n: usize| content(n as u64, lengths[n]);
    for n in 0..lengths.len() {
        db.put([n as u8], value(n)).unwrap();
    }
    db.flush().unwrap();
    let mut cursor = db.cursor().unwrap();
    for forward in [true, false, true] {
        if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
        let mut seen = 0;
        while cursor.valid() {
            let n = usize::from(cursor.key()[0]);
            assert!(cursor.value().unwrap() == value(n), "row {n}");
            assert!(cursor.entry().unwrap().1 == value(n), "row {n} again");
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
            seen += 1;
        }
        assert_eq!(seen, lengths.len());
    }
    cursor.seek([3]).unwrap();
    assert!(cursor.value().unwrap() == value(3));
    cursor.seek([0]).unwrap();
    assert!(cursor.value().unwrap() == value(0));
    let rows: Vec<_> = db.iter().unwrap().collect::<Result<_, _>>().unwrap();
    assert!(rows.iter().enumerate().all(|(n, row)| *row.1 == value(n)));
}

#[test]
fn a_comparator_cannot_put_a_long_value() {
    let sim = Sim::new();
    let db = open(&sim);
    let told = Arc::new(Mutex::new(None));
    let reach = Arc::new(Mutex::new(Some(db.default_family().clone())));
    let (tell, within) = (Arc::clone(&told), Arc::clone(&reach));
    let comparator = tidesdb::Comparator::custom("meddling", move |a, b| {
        if let Some(f) = within.lock().unwrap().take() {
            let put = WriteBatch::new().put(&f, "film", vec![7; LONG]);
            *tell.lock().unwrap() = Some(put.map_err(|e| e.to_string()));
        }
        a.cmp(b)
    });
    let odd = db.create_family("odd", quiet().comparator(comparator)).unwrap();
    let mut batch = WriteBatch::new();
    for key in ["a", "b", "c"] {
        batch.put(&odd, key, "v").unwrap();
    }
    db.write(&mut batch).unwrap();
    let refused = told.lock().unwrap().take().expect("the comparator ran").unwrap_err();
    assert!(refused.contains("a comparator may read the database"), "{refused}");
}
