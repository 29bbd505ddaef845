//! Long values written by several threads, into both files of a family; failures, full disks, closes, and the space that comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidesdb::{Db, Error, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, Starts, errno};

use crate::common::{DB, Sim, noise, small};
use crate::large_values::streams::{CHUNK, check, content, quiet, shrinks_to, vlog_bytes, vlogs};

/// The shortest value that is stored at once.
const LONG: usize = 8 * CHUNK;
/// A value for which a file is more than twice as long as the files of a small set.
const OVERSIZED: usize = 24 * CHUNK;

/// Returns a machine with so many processors that each long value gets all helpers, and the number of helpers that were started on it.
fn machine() -> (Sim, Arc<AtomicUsize>) {
    let (mut sim, helpers) = (Sim::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&helpers);
    let counted = move |others| {
        count.fetch_add(others, Ordering::Relaxed);
        others
    };
    sim.env = Starts::of(&sim.env).helpers(counted).processors(1000).env();
    (sim, helpers)
}

/// Opens the database with `threads` threads in the background. Only with at least one, helpers write chunks.
fn open(sim: &Sim, threads: usize, mode: SyncMode, family: FamilyOptions) -> Db {
    sim.options().default_family(family).background_threads(threads).sync(mode).open().unwrap()
}

#[test]
fn values_of_helpers_are_read_merged_and_found_by_the_next_open() {
    let (sim, helpers) = machine();
    let db = open(&sim, 1, SyncMode::Full, quiet());
    let f = db.default_family();
    let lengths = [LONG, LONG + 1, 19 * CHUNK + 77];
    let value = |n: usize| content(n as u64, lengths[n]);
    for n in 0..lengths.len() {
        f.put(format!("film{n}"), value(n)).unwrap();
    }
    assert_eq!(helpers.load(Ordering::Relaxed), 9, "three for each value");
    let check_all = |db: &Db| {
        (0..lengths.len()).for_each(|n| check(db.default_family(), &format!("film{n}"), &value(n)));
        assert!(db.verify().unwrap().is_ok());
    };
    check_all(&db);
    f.put("film0", "short").unwrap();
    f.put("film0", value(0)).unwrap();
    db.compact().unwrap();
    check_all(&db);
    check_all(&sim.killed().open_as_stored());
    db.close().unwrap();
    check_all(&sim.open_as_stored());
}

#[test]
fn a_power_failure_while_helpers_write_leaves_all_or_nothing() {
    let (old, new) = (content(1, LONG), content(2, LONG + 3 * CHUNK + 9));
    for mode in [SyncMode::None, SyncMode::Full] {
        let (sim, helpers) = machine();
        let db = open(&sim, 1, mode, quiet());
        let f = db.default_family();
        f.put("film", &old).unwrap();
        db.sync().unwrap();
        let forks: Arc<Mutex<Vec<_>>> = Arc::default();
        let durable = Arc::new(AtomicBool::new(false));
        let (taken, told) = (Arc::clone(&forks), Arc::clone(&durable));
        sim.disk.observe(OpSet::CHANGES, move |op, fork| {
            let what = format!("before {:?} {} #{}", op.kind, op.path, op.index);
            taken.lock().unwrap().push((what, fork, told.load(Ordering::SeqCst)));
        });
        helpers.store(0, Ordering::Relaxed);
        f.put("film", &new).unwrap();
        assert_eq!(helpers.load(Ordering::Relaxed), 3);
        durable.store(mode == SyncMode::Full, Ordering::SeqCst);
        f.put("small", "after").unwrap();
        db.sync().unwrap();
        durable.store(true, Ordering::SeqCst);
        f.put("end", "x").unwrap();
        db.sync().unwrap();
        sim.disk.stop_observing();
        let forks = std::mem::take(&mut *forks.lock().unwrap());
        assert!(forks.len() > 10, "{} crash points", forks.len());
        let (mut seen_old, mut seen_new) = (0, 0);
        for (n, (what, fork, durable)) in forks.iter().enumerate() {
            for image in [Image::EVERYTHING, Image::SYNCED, Image::STANDARD[n % 10]] {
                let left = Sim::on(fork.crash_image(&image, n as u64));
                let db = left.options_as_stored(DB).open();
                let db = db.unwrap_or_else(|e| panic!("{what}, {image:?}: {e}"));
                let found = db.get("film").unwrap().unwrap();
                let is_new = found.len() == new.len();
                assert!(is_new || !durable, "{mode:?}, {what}, {image:?}: a durable commit is lost");
                assert!(is_new || !db.contains("small").unwrap(), "{what}: not a prefix");
                assert!(*found == *if is_new { &new[..] } else { &old }, "{mode:?}, {what}, {image:?}");
                assert!(db.verify().unwrap().is_ok(), "{what}");
                if is_new { seen_new += 1 } else { seen_old += 1 }
            }
        }
        assert!(seen_old > 10 && seen_new > 5, "{mode:?}: {seen_old} {seen_new}");
    }
}

#[test]
fn a_failed_write_of_any_thread_fails_the_put_and_nothing_else() {
    let (sim, _) = machine();
    // No collection, which would meet the faults in the background.
    let family = FamilyOptions::default().value_garbage_percent(0);
    let db = open(&sim, 1, SyncMode::None, family);
    let f = db.default_family();
    f.put("film", noise(1, LONG)).unwrap();
    let mut failed = 0;
    for skip in 0..14 {
        let new = noise(skip + 10, LONG);
        let fault = Fault::errno(errno::EIO).on(OpKind::Write).path_ends(".vlog").skip(skip);
        let fault = sim.disk.inject(fault);
        let mut batch = WriteBatch::new();
        batch.put(f, "small", [skip as u8]).unwrap();
        let put = batch.put(f, "film", &new);
        let struck = sim.disk.struck(fault) > 0;
        sim.disk.remove_fault(fault);
        assert_eq!(put.is_err(), struck, "{skip}: {put:?}");
        assert_eq!(batch.len(), if struck { 1 } else { 2 });
        db.write(&mut batch).unwrap();
        assert!(*db.get("small").unwrap().unwrap() == [skip as u8]);
        if struck {
            failed += 1;
            f.put("film", &new).unwrap();
        }
        assert!(*db.get("film").unwrap().unwrap() == new[..], "{skip}");
    }
    assert!(failed > 8, "{failed} failed puts");
    assert!(db.verify().unwrap().is_ok());
    check(f, "film", &noise(23, LONG));
}

/// A sync fails, then the power does, and the end of a file is lost in which an earlier value lies.
#[test]
fn a_chunk_that_is_lost_after_a_failed_sync_ends_the_log_there() {
    let sim = Sim::new();
    let db = open(&sim, 0, SyncMode::None, FamilyOptions::default());
    let first = noise(1, LONG);
    db.put("first", &first).unwrap();
    db.sync().unwrap();
    let (shared, durable) = vlogs(&sim).pop().unwrap();
    db.put("second", noise(2, LONG)).unwrap();
    assert!(vlogs(&sim).iter().any(|(name, bytes)| *name == shared && *bytes > durable), "both values");
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS).path_ends(".vlog"));
    assert!(db.sync().is_err());
    drop(db);
    let left = sim.power_lost(&Image::EVERYTHING, 1);
    left.disk.truncate_file(format!("{DB}/{shared}"), durable).unwrap();
    let db = left.options_as_stored(DB).open().unwrap();
    assert!(db.recovery_report().sync_failed);
    assert!(*db.get("first").unwrap().unwrap() == first[..]);
    assert!(!db.contains("second").unwrap());
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn every_image_of_a_power_failure_after_a_failed_sync_can_be_opened() {
    let values = [1, 2].map(|seed| content(seed, LONG));
    for (n, image) in Image::STANDARD.iter().enumerate() {
        let sim = Sim::new();
        let db = open(&sim, 0, SyncMode::None, FamilyOptions::default());
        db.put("film0", &values[0]).unwrap();
        if n % 2 == 0 {
            db.sync().unwrap();
        }
        db.put("film1", &values[1]).unwrap();
        sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS).path_ends(".vlog"));
        assert!(db.sync().is_err());
        drop(db);
        let left = sim.power_lost(image, n as u64);
        let db = left.options_as_stored(DB).open().unwrap_or_else(|e| panic!("{image:?}: {e}"));
        let found = [0, 1].map(|n| db.get(format!("film{n}")).unwrap());
        assert!(n % 2 == 1 || found[0].is_some(), "{image:?}: a durable commit is lost");
        assert!(found[0].is_some() || found[1].is_none(), "{image:?}: not a prefix");
        for (found, value) in found.iter().zip(&values) {
            assert!(found.as_deref().is_none_or(|found| found == &value[..]), "{image:?}");
        }
        assert!(db.verify().unwrap().is_ok(), "{image:?}");
    }
}

/// Flushes after puts of short values seal the files of a long one, although no other value fills them.
#[test]
fn a_deleted_long_value_gives_its_space_back_while_others_are_written() {
    for threads in [0, 1] {
        let (sim, _) = machine();
        let db = open(&sim, threads, SyncMode::None, small());
        db.put("film", content(1, OVERSIZED)).unwrap();
        db.delete("film").unwrap();
        let shrank = (0..600).any(|n: u64| {
            db.put("tick", n.to_le_bytes()).unwrap();
            db.flush().unwrap();
            if threads > 0 || n > 10 {
                std::thread::sleep(std::time::Duration::from_millis(5)); // for threads that may keep a file
            }
            vlog_bytes(&sim) < 1 << 20
        });
        assert!(shrank, "{threads}: {:?}", vlogs(&sim));
    }
}

/// In mode `None` nothing syncs the files of a batch that is dropped, unless they are found to be garbage.
#[test]
fn a_dropped_long_value_gives_its_space_back_without_other_writes() {
    for threads in [0, 1] {
        let (sim, _) = machine();
        let db = open(&sim, threads, SyncMode::None, small());
        WriteBatch::new().put(db.default_family(), "film", content(1, OVERSIZED)).unwrap();
        // A quarter of a file is allowed. A collection during the put may have ended files, so that the last ones are shorter.
        shrinks_to(&sim, &db, 3 << 20);
    }
}

/// A database on a disk with 24 MiB left.
fn on_a_small_disk(sim: &Sim) -> Db {
    let options = sim.options().default_family(small()).background_threads(0).sync(SyncMode::None);
    let db = options.with(|o| o.disk_reserve_bytes = Some(1 << 20)).open().unwrap();
    db.put("a", vec![1; 600]).unwrap();
    sim.disk.limit_space(Some(24 << 20));
    db
}

#[test]
fn a_long_put_that_does_not_fit_leaves_the_disk_to_others() {
    let sim = Sim::new();
    let db = on_a_small_disk(&sim);
    let before = vlogs(&sim);
    let mut batch = WriteBatch::new();
    let refused = batch.put(db.default_family(), "film", noise(1, 32 * CHUNK));
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    assert_eq!(vlogs(&sim), before, "nothing was written");
    for n in 0..1000u64 {
        db.put(n.to_le_bytes(), noise(n, 2000)).unwrap();
    }
    batch.put(db.default_family(), "film", noise(1, LONG)).unwrap();
    db.write(&mut batch).unwrap();
    check(db.default_family(), "film", &noise(1, LONG));
}

#[test]
fn long_puts_at_the_same_time_do_not_share_the_same_space() {
    let sim = Sim::new();
    let db = on_a_small_disk(&sim);
    let (before, value) = (vlog_bytes(&sim), noise(1, 14 * CHUNK));
    let put = || {
        let mut batch = WriteBatch::new();
        batch.put(db.default_family(), "film", &value).map(|()| batch)
    };
    let results = std::thread::scope(|s| [s.spawn(put), s.spawn(put)].map(|put| put.join().unwrap()));
    let stored = results.iter().filter(|put| put.is_ok()).count();
    assert!(results.iter().all(|put| matches!(put, Ok(_) | Err(Error::NoSpace { .. }))), "{results:?}");
    assert!(stored <= 1, "both fit");
    assert!(vlog_bytes(&sim) - before <= (stored * 15 * CHUNK) as u64, "a refused put has written");
}

#[test]
fn a_clean_close_leaves_no_file_without_a_name() {
    for (threads, keeps) in [(0, false), (0, true), (1, false), (1, true)] {
        let (sim, _) = machine();
        let db = open(&sim, threads, SyncMode::None, small());
        db.put("kept", "short").unwrap();
        db.flush().unwrap(); // the close has nothing to flush, which would name the files
        let mut batch = WriteBatch::new();
        batch.put(db.default_family(), "film", noise(1, LONG)).unwrap();
        let batch = keeps.then_some(batch);
        db.close().unwrap();
        drop(batch);
        let db = sim.open_as_stored();
        let report = db.recovery_report();
        assert!(report.clean && report.orphans == 0, "{threads} {keeps}: {report:?}");
        shrinks_to(&sim, &db, 1 << 20);
        check(db.default_family(), "kept", b"short");
    }
}
