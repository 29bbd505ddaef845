//! What an open reads and writes after a crash, and what works before the recovered commits are in tables.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Db, Error, OpenOptions, RecoveryMode, SyncMode, WriteBatch};
use tidesdb_io::Env;
use tidesdb_io::sim::{Body, Fault, Image, OpKind, OpSet, Starts, errno};

use crate::common::{Pair, Sim, contents, noise, small};

/// Starts the thread that saves recovered commits only when [`Held::release`] is called.
#[derive(Clone, Debug, Default)]
struct Held(Arc<AtomicBool>);

impl Held {
    fn release(&self) {
        self.0.store(true, SeqCst);
    }

    fn env(&self, env: &Env) -> Env {
        let held = self.clone();
        let hold = move |name: &str, body: Body| -> io::Result<Body> {
            if name != "tidesdb-recover" {
                return Ok(body);
            }
            let held = held.clone();
            Ok(Box::new(move || {
                // Not for ever, after a failed assertion.
                for _ in 0..20_000 {
                    if !held.0.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                body();
            }))
        };
        Starts::of(env).on_start(hold).processors(3).env()
    }
}

/// Options for an open that saves in the background, when `held` is released.
fn behind(sim: &Sim, held: &Held) -> OpenOptions {
    sim.options()
        .sync(SyncMode::None)
        .env(held.env(&sim.env))
        .background_threads(1)
        .with(|o| (o.forced.saves_behind, o.event_log) = (true, false))
}

/// Puts 60 rows, some in the value log, deletes a few and a range. Fills several memtables of 64 KiB.
fn rows(db: &Db) {
    for i in 0..60u8 {
        let len = if i % 3 == 0 { 3000 } else { 400 };
        for part in 0..if len == 400 { 8 } else { 1 } {
            db.put(&[i, part], &noise(u64::from(i), len)).unwrap();
        }
    }
    db.delete(&[3, 0]).unwrap();
    db.delete_range(&[10u8][..]..&[13u8][..]).unwrap();
    db.put(&[11, 0], b"later").unwrap();
}

/// A machine whose process was killed after [`rows`].
fn killed() -> (Sim, Vec<Pair>) {
    let sim = Sim::new();
    let settings = small().write_buffer_bytes(64 << 10).l1_tables_trigger(100);
    let db = sim.options().sync(SyncMode::None).default_family(settings).open().unwrap();
    // Nothing is flushed before the kill, and nothing is merged after it.
    let big = db.default_family().current_options().write_buffer_bytes(1 << 30);
    db.default_family().change_options_until_close(big).unwrap();
    rows(&db);
    let expected = contents(db.default_family());
    assert!(expected.len() > 200);
    (sim.killed(), expected)
}

/// Bytes that the calls of `kind` asked for in value logs.
fn value_log_bytes(sim: &Sim, kind: OpKind) -> u64 {
    let ops = sim.disk.ops();
    ops.iter().filter(|op| op.kind == kind && op.path.ends_with(".vlog")).map(|op| op.len).sum()
}

#[test]
fn the_log_is_replayed_without_threads_if_the_system_has_none_left() {
    let sim = Sim::new();
    let options = |sim: &Sim| {
        sim.options().sync(SyncMode::None).background_threads(1).with(|o| o.wal_segment_bytes = 4 << 20)
    };
    let db = options(&sim).open().unwrap();
    let value = noise(9, 400);
    for i in 0..20_000u32 {
        db.put(i.to_be_bytes(), &value).unwrap(); // long enough to be divided
    }
    let after = sim.killed();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let none_for_replay = move |name: &str, body| {
        if name != "tidesdb-replay" {
            return Ok(body);
        }
        count.fetch_add(1, SeqCst);
        Err(io::ErrorKind::WouldBlock.into())
    };
    let env = Starts::of(&after.env).on_start(none_for_replay).processors(3).env();
    let db = options(&after).env(env).open().unwrap();
    assert!(asked.load(SeqCst) > 0, "the log was not divided");
    assert_eq!(db.iter().unwrap().count(), 20_000);
}

#[test]
fn values_written_before_a_kill_are_neither_read_nor_written_again() {
    const VALUE: usize = 20_000;
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    for i in 0..50u8 {
        db.put(&[i], &noise(u64::from(i), VALUE)).unwrap();
    }
    let read = |after: &Sim| {
        after.disk.log_ops(true);
        let db = after.open();
        assert_eq!(db.recovery_report().commits, 50);
        (value_log_bytes(after, OpKind::Read), value_log_bytes(after, OpKind::Write))
    };
    let (from_killed, written) = read(&sim.killed());
    assert!(from_killed < 1000 && written == 0, "{from_killed} bytes were read, {written} written");
    let (after_power_loss, written) = read(&sim.power_lost(&Image::EVERYTHING, 1));
    assert!(after_power_loss > 50 * VALUE as u64, "unsynced values must be checked: {after_power_loss}");
    assert_eq!(written, 0, "what was read after a power loss is on disk");
    // The kernel may have dropped pages.
    let failed = sim.killed();
    failed.disk.write_file("/db/SYNC-FAILED", b"").unwrap();
    let (read, written) = read(&failed);
    assert!(read > 50 * VALUE as u64 && written >= 50 * VALUE as u64, "{read} read, {written} written");
}

/// After a kill the kernel has every byte, so a value that is cut off is damage, and the commits behind it are not given up.
#[test]
fn a_commit_whose_value_is_cut_off_ends_the_log_after_a_power_failure_only() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    for i in 0..20u8 {
        db.put(&[i], &noise(u64::from(i), 2000)).unwrap();
    }
    for after in [sim.killed(), sim.power_lost(&Image::EVERYTHING, 1)] {
        let names = after.disk.file_names("/db").unwrap();
        let vlog = names.iter().find(|name| name.ends_with(".vlog")).unwrap();
        let len = after.disk.read_file(format!("/db/{vlog}")).unwrap().len() as u64;
        after.disk.truncate_file(format!("/db/{vlog}"), len - 3000).unwrap();
        let left = |mode| {
            let db = after.options().recovery(mode).open()?;
            Ok(contents(db.default_family()).iter().map(|(k, _)| k[0]).collect::<Vec<u8>>())
        };
        match left(RecoveryMode::Tail) {
            Err(Error::Corrupt { file, .. }) => assert!(file.ends_with(".wal"), "{file}"),
            other => assert_eq!(other.unwrap(), (0..18).collect::<Vec<u8>>()),
        }
        assert_eq!(left(RecoveryMode::PointInTime).unwrap(), (0..18).collect::<Vec<u8>>());
    }
    let killed = sim.killed();
    let names = killed.disk.file_names("/db").unwrap();
    let vlog = names.iter().find(|name| name.ends_with(".vlog")).unwrap();
    killed.disk.truncate_file(format!("/db/{vlog}"), 3000).unwrap();
    assert!(matches!(killed.options().open(), Err(Error::Corrupt { .. })));
}

#[test]
fn recovered_commits_are_readable_before_they_are_in_tables_and_writers_wait() {
    let (sim, expected) = killed();
    let held = Held::default();
    let db = behind(&sim, &held).open().unwrap();
    assert_eq!(contents(db.default_family()), expected);
    assert_eq!(db.default_family().stats().level_tables.iter().sum::<usize>(), 0, "nothing is saved yet");
    let old = db.iter().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (db, finished) = (&db, Arc::clone(&done));
        scope.spawn(move || {
            db.put(b"new", b"row").unwrap();
            finished.store(true, SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!done.load(SeqCst), "a commit does not wait for the recovered ones");
        // A kill meanwhile changes nothing.
        assert_eq!(contents(sim.killed().open().default_family()), expected);
        held.release();
    });
    assert_eq!(contents(db.default_family()).len(), expected.len() + 1);
    assert!(
        db.default_family().stats().level_tables.iter().sum::<usize>() > 1,
        "one table for each memtable"
    );
    assert_eq!(crate::common::pairs(old), expected, "an iterator from before");
    db.delete(b"new").unwrap();
    assert_eq!(contents(sim.killed().open().default_family()), expected);
    db.close().unwrap();
    let db = sim.open();
    assert!(db.recovery_report().clean && db.verify().unwrap().is_ok());
    assert_eq!(contents(db.default_family()), expected);
}

#[test]
fn a_close_waits_until_recovered_commits_are_saved() {
    let (sim, expected) = killed();
    let held = Held::default();
    let db = behind(&sim, &held).open().unwrap();
    held.release();
    db.close().unwrap();
    let db = sim.open();
    assert!(db.recovery_report().clean);
    assert_eq!(contents(db.default_family()), expected);
}

#[test]
fn a_failed_save_refuses_writes_and_loses_nothing() {
    let (sim, expected) = killed();
    let held = Held::default();
    let db = behind(&sim, &held).open().unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::OPENS).path_ends(".klog").forever());
    held.release();
    let refused = db.put(b"new", b"row");
    assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    assert_eq!(contents(db.default_family()), expected, "reads continue");
    assert!(db.close().is_err());
    sim.disk.clear_faults();
    let db = sim.open();
    assert_eq!(contents(db.default_family()), expected);
    assert!(db.verify().unwrap().is_ok());
}

/// The kernel marks the pages as clean: another sync would succeed and write nothing.
#[test]
fn a_failed_sync_of_recovered_values_makes_the_next_open_write_them_again() {
    let (sim, expected) = killed();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS).path_ends(".vlog"));
    assert!(sim.options().open().is_err());
    sim.disk.log_ops(true);
    let db = sim.open();
    assert!(db.recovery_report().sync_failed);
    assert!(value_log_bytes(&sim, OpKind::Write) > 10 * 3000);
    assert_eq!(contents(db.default_family()), expected);
    drop(db);
    assert_eq!(contents(sim.power_lost(&Image::SYNCED, 1).open().default_family()), expected);
}

#[test]
fn a_nearly_full_disk_is_reported_by_the_open() {
    let (sim, _) = killed();
    sim.disk.limit_space(Some(1 << 20));
    let db = behind(&sim, &Held::default()).open().unwrap();
    assert!(db.default_family().stats().level_tables.iter().sum::<usize>() > 0, "saved before the return");
}

/// The crash matrix of a save in the background: at each change of the disk the process dies, or the power fails.
#[test]
fn a_crash_at_any_call_of_a_save_keeps_a_prefix() {
    let (sim, expected) = killed();
    let held = Held::default();
    let db = behind(&sim, &held).open().unwrap();
    let points = sim.before_each_change(|| {
        held.release();
        db.put(b"zz", b"new").unwrap();
    });
    db.abandon();
    assert!(points.len() > 15, "{} points", points.len());
    let mut whole = expected.clone();
    whole.push((b"zz".to_vec(), b"new".to_vec()));
    for (n, fork) in points.into_iter().enumerate() {
        for (i, image) in Image::STANDARD.iter().enumerate() {
            let after = Sim::on(fork.crash_image(image, (n + i) as u64));
            let Ok(db) = after.options().open() else {
                panic!("point {n}, {image:?}: the database does not open");
            };
            // Without a sync, any prefix may be left: rows are put in the order of their keys.
            let left = contents(db.default_family());
            if left.len() < 2 || left == expected || left == whole {
                continue;
            }
            let first = &left[..left.len().min(40)];
            assert!(first.windows(2).all(|w| w[0].0 < w[1].0), "point {n}, {image:?}");
            let last = left[left.len() - 1].0[0];
            assert!(
                (0..=last)
                    .filter(|i| !(10..13).contains(i) && *i != 3)
                    .all(|i| { left.iter().any(|(key, _)| key[0] == i) }),
                "a gap at point {n}, {image:?}"
            );
        }
        let killed = contents(Sim::on(fork).open().default_family());
        assert!(killed == expected || killed == whole, "point {n}: a kill loses a row");
    }
}

#[test]
fn many_threads_replay_a_long_log() {
    let sim = Sim::new();
    let options = |sim: &Sim| {
        let held = Held::default();
        held.release();
        behind(sim, &held).with(|o| o.wal_segment_bytes = 4 << 20)
    };
    let db = options(&sim).default_family(small().write_buffer_bytes(8 << 20)).open().unwrap();
    let other = db.create_family("other", small().write_buffer_bytes(8 << 20)).unwrap();
    for i in 0..30_000u32 {
        let mut batch = WriteBatch::new();
        let key = (i % 7000).to_be_bytes();
        batch.put(db.default_family(), &key, &i.to_le_bytes().repeat(10)).unwrap();
        if i % 3 == 0 {
            batch.delete(&other, &key).unwrap();
        } else {
            batch.put(&other, &key, &i.to_le_bytes()).unwrap();
        }
        if i % 5000 == 4999 {
            batch.delete_range(&other, &6000u32.to_be_bytes()[..]..&6500u32.to_be_bytes()[..]).unwrap();
        }
        db.write(&mut batch).unwrap();
    }
    let expected = (contents(db.default_family()), contents(&other));
    let killed = sim.killed();
    let again = options(&killed).default_family(small().write_buffer_bytes(8 << 20)).open().unwrap();
    let report = again.recovery_report();
    assert_eq!(report.commits, 30_000);
    assert_eq!(report.operations, 60_006);
    let other = again.family("other").unwrap();
    assert!((contents(again.default_family()), contents(&other)) == expected);
}
