//! Which data survives which crash, and the recovery report.

use std::sync::Arc;
use std::time::Duration;

use tidesdb::{Db, Error, MergeOperator, RecoveryMode, SyncMode, WriteBatch, WriteOptions};
use tidesdb_io::Descriptors;
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, errno};

use crate::common::{DB, Sim, contents, fill, noise, small, value};

fn survivors(after: &Sim) -> usize {
    let db = after.open();
    let n = contents(db.default_family()).len();
    assert!(db.verify().unwrap().is_ok());
    n
}

/// Puts keys 0 to 99, some with large values.
fn hundred(db: &Db) {
    for i in 0..100u8 {
        db.put(&[i], &vec![i; if i % 10 == 0 { 2000 } else { 20 }]).unwrap();
    }
}

#[test]
fn a_killed_process_loses_no_commit_in_any_mode() {
    for mode in [SyncMode::None, SyncMode::Interval(Duration::from_secs(60)), SyncMode::Full] {
        let sim = Sim::new();
        let db = sim.options().sync(mode).open().unwrap();
        hundred(&db);
        assert_eq!(survivors(&sim.killed()), 100, "{mode:?}");
    }
}

#[test]
fn full_mode_survives_a_power_failure() {
    let sim = Sim::new();
    let db = sim.open();
    hundred(&db);
    for (i, image) in Image::STANDARD.iter().enumerate() {
        assert_eq!(survivors(&sim.power_lost(image, i as u64)), 100, "{image:?}");
    }
}

#[test]
fn without_sync_a_power_failure_leaves_a_prefix() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    hundred(&db);
    for seed in 0..30 {
        let image = Image::STANDARD[seed % 10];
        let after = sim.power_lost(&image, seed as u64);
        let db = after.open();
        let left = contents(db.default_family());
        for (i, (key, _)) in left.iter().enumerate() {
            assert_eq!(*key, [i as u8], "a gap with {image:?}, seed {seed}");
        }
    }
    assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 0, "nothing was ever synced");
}

#[test]
fn sync_makes_all_commits_so_far_durable() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    hundred(&db);
    let last = db.put(b"last", b"v").unwrap();
    let durable = db.sync().unwrap();
    assert!(durable > last && db.stats().durable_end >= durable);
    db.put(b"unsynced", b"v").unwrap();
    for (i, image) in Image::STANDARD.iter().enumerate() {
        let n = survivors(&sim.power_lost(image, i as u64));
        assert!(n == 101 || n == 102, "{n} with {image:?}");
    }
    assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 101);
}

/// Only `put` and `delete` used to take options.
#[test]
fn each_single_write_takes_options() {
    type Write = fn(&Db, &WriteOptions) -> Result<u64, Error>;
    let writes: [(&str, Write); 12] = [
        ("put", |db, o| db.put_with("c", "v", o)),
        ("put with a TTL", |db, o| {
            let mut batch = WriteBatch::new();
            batch.put_with_ttl(db.default_family(), "c", "v", Duration::from_secs(60))?;
            db.write_with(&mut batch, o)
        }),
        ("merge", |db, o| db.merge_with("a", "v", o)),
        ("delete", |db, o| db.delete_with("a", o)),
        ("delete of a range", |db, o| db.delete_range_with("a".."b", o)),
        ("delete of a prefix", |db, o| db.delete_prefix_with("a", o)),
        ("put of a family", |db, o| db.default_family().put_with("c", "v", o)),
        ("merge of a family", |db, o| db.default_family().merge_with("a", "v", o)),
        ("delete of a family", |db, o| db.default_family().delete_with("a", o)),
        ("single delete of a family", |db, o| db.default_family().single_delete_with("a", o)),
        ("delete of a range of a family", |db, o| db.default_family().delete_range_with("a".."b", o)),
        ("delete of a prefix of a family", |db, o| db.default_family().delete_prefix_with("a", o)),
    ];
    for (name, write) in writes {
        for (mode, lasts) in [(None, false), (Some(SyncMode::None), false), (Some(SyncMode::Full), true)] {
            let sim = Sim::new();
            let family = || small().merge_operator(MergeOperator::append(","));
            let db = sim.options().sync(SyncMode::None).default_family(family()).open().unwrap();
            for key in ["a", "b"] {
                db.put(key, "v").unwrap();
            }
            db.sync().unwrap();
            let before = contents(db.default_family());
            let options = mode.map_or_else(WriteOptions::default, |mode| WriteOptions::default().sync(mode));
            write(&db, &options).unwrap();
            let after = contents(db.default_family());
            assert_ne!(before, after, "{name}");
            let lost = sim.power_lost(&Image::SYNCED, 1);
            let db = lost.options().default_family(family()).open().unwrap();
            let wanted = if lasts { after } else { before };
            assert_eq!(contents(db.default_family()), wanted, "{name} in mode {mode:?}");
        }
    }
}

#[test]
fn a_durable_write_makes_all_earlier_commits_durable() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    hundred(&db);
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), b"last", &[1; 3000]).unwrap();
    db.write_with(&mut batch, &WriteOptions::default().sync(SyncMode::Full)).unwrap();
    assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 101);
}

#[test]
fn an_unsynced_write_between_durable_ones() {
    let sim = Sim::new();
    let db = sim.open();
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), b"lazy", b"v").unwrap();
    db.write_with(&mut batch, &WriteOptions::default().sync(SyncMode::None)).unwrap();
    assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 0);
    db.put(b"k", b"v").unwrap();
    assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 2);
}

#[test]
fn flush_close_and_checkpoint_are_durable_in_every_mode() {
    for how in ["flush", "close", "checkpoint"] {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        hundred(&db);
        match how {
            "flush" => db.flush().unwrap(),
            "close" => db.close().unwrap(),
            _ => db.checkpoint("/copy").unwrap(),
        }
        assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 100, "{how}");
    }
}

#[test]
fn the_background_syncs_within_the_interval() {
    let sim = Sim::new();
    let mode = SyncMode::Interval(Duration::from_millis(50));
    let db = sim.options().sync(mode).background_threads(1).open().unwrap();
    let seq = db.put(b"k", b"v").unwrap();
    for _ in 0..500 {
        sim.clock.advance(Duration::from_millis(60));
        std::thread::sleep(Duration::from_millis(10));
        if db.stats().durable_end > seq {
            assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), 1);
            return;
        }
    }
    panic!("the commit was never synced");
}

/// A close ends the thread that syncs, and a flush does not sync the log.
#[test]
fn a_close_that_fails_has_synced_what_an_interval_promised() {
    let sim = Sim::new();
    let day = Duration::from_secs(86_400);
    let db = sim.options().sync(SyncMode::Interval(day)).background_threads(1).open().unwrap();
    // Commits sync by themselves until the thread has started.
    let mut puts = 0;
    while survivors(&sim.power_lost(&Image::SYNCED, 1)) == puts {
        assert!(puts < 10_000, "the thread does not start");
        db.put(puts.to_string(), "v").unwrap();
        puts += 1;
    }
    sim.disk
        .inject(Fault::errno(errno::EIO).on(OpSet::WRITES).path_if(|path| path.ends_with(".klog")).forever());
    assert!(db.close().is_err());
    sim.clock.advance(2 * day);
    sim.disk.clear_faults();
    assert_eq!(survivors(&sim.power_lost(&Image::SYNCED, 1)), puts);
}

#[test]
fn the_report_describes_the_recovery() {
    let sim = Sim::new();
    let db = sim.open();
    assert!(db.recovery_report().clean, "a new database");
    hundred(&db);
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), b"x", b"1").unwrap();
    batch.delete(db.default_family(), b"y").unwrap();
    db.write(&mut batch).unwrap();
    let killed = sim.killed();
    let db2 = killed.open();
    let report = db2.recovery_report();
    assert_eq!((report.clean, report.commits, report.operations), (false, 101, 102));
    assert_eq!((report.discarded, report.unfinished, report.cut), (0, 0, None));
    assert!(report.damage.is_none() && report.to_string().contains("101 commits"), "{report}");
    db2.close().unwrap();
    let again = killed.open();
    assert!(again.recovery_report().clean && again.recovery_report().to_string().contains("clean"));
}

#[test]
fn recovered_data_is_not_recovered_twice() {
    let sim = Sim::new();
    hundred(&sim.open());
    let mut machine = sim.killed();
    for round in 0..3 {
        let db = machine.open();
        assert_eq!(contents(db.default_family()).len(), 100, "round {round}");
        db.abandon();
        machine = machine.killed();
    }
    let db = machine.open();
    assert_eq!(db.recovery_report().commits, 0);
    db.delete(&[3]).unwrap();
    assert_eq!(survivors(&machine.killed()), 99);
}

#[test]
fn strict_mode_accepts_only_a_log_that_ends_in_a_seal() {
    let sim = Sim::new();
    let db = sim.open();
    hundred(&db);
    let strict = |sim: &Sim| sim.options().recovery(RecoveryMode::Strict).open();
    assert!(strict(&sim.killed()).unwrap_err().is_corruption());
    db.sync().unwrap();
    assert_eq!(contents(strict(&sim.killed()).unwrap().default_family()).len(), 100);
}

#[test]
fn an_idle_log_is_sealed() {
    let sim = Sim::new();
    let db = sim.options().background_threads(1).open().unwrap();
    hundred(&db);
    for _ in 0..3000 {
        let killed = sim.killed();
        if let Ok(sealed) = killed.options().recovery(RecoveryMode::Strict).open() {
            assert_eq!(contents(sealed.default_family()).len(), 100);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the log was never sealed");
}

/// Flips a bit in the value of key 5, which is in the log.
fn damaged() -> Sim {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..10u8 {
        db.put(&[i], format!("value number {i}").as_bytes()).unwrap();
    }
    db.sync().unwrap();
    let killed = sim.killed();
    let names = killed.disk.file_names("/db").unwrap();
    for name in names.iter().filter(|n| n.ends_with(".wal")) {
        let path = format!("/db/{name}");
        let bytes = killed.disk.read_file(&path).unwrap();
        if let Some(at) = bytes.windows(14).position(|w| w == b"value number 5") {
            killed.disk.corrupt(&path, at as u64, |b| b ^ 1).unwrap();
            return killed;
        }
    }
    panic!("the value is not in the log");
}

#[test]
fn damage_in_the_log_fails_the_open_and_changes_nothing() {
    let sim = damaged();
    let files = |sim: &Sim| {
        let names = sim.disk.file_names("/db").unwrap();
        let data = names.into_iter().filter(|n| !n.ends_with(".manifest") && n != "CURRENT");
        data.map(|n| (sim.disk.read_file(format!("/db/{n}")).unwrap(), n)).collect::<Vec<_>>()
    };
    let before = files(&sim);
    for _ in 0..2 {
        let e = sim.options().open().unwrap_err();
        assert!(e.is_corruption() && e.to_string().contains(".wal at byte"), "{e}");
    }
    assert!(files(&sim) == before);
}

#[test]
fn point_in_time_keeps_the_prefix_and_sets_the_rest_aside() {
    let sim = damaged();
    let db = sim.options().recovery(RecoveryMode::PointInTime).open().unwrap();
    assert_eq!(contents(db.default_family()).len(), 5);
    let report = db.recovery_report();
    assert_eq!((report.commits, report.discarded, report.damage.is_some()), (5, 4, true), "{report}");
    assert!(sim.disk.file_names("/db").unwrap().iter().any(|n| n.ends_with(".wal.lost")));
    db.put(&[5], b"again").unwrap();
    drop(db);
    assert_eq!(contents(sim.open().default_family()).len(), 6, "an ordinary open works again");
}

/// Discarded segments stay on disk even if the machine stops while the rest is recovered.
#[test]
fn point_in_time_loses_no_file_in_a_crash() {
    let all = damaged().disk;
    let lost = all.file_names("/db").unwrap().into_iter().filter(|n| n.ends_with(".wal")).max().unwrap();
    let bytes = all.read_file(format!("/db/{lost}")).unwrap();
    for step in 0.. {
        let sim = Sim::on(all.fork());
        let fault = sim.disk.inject(Fault::errno(errno::EIO).skip(step).forever());
        let opened = sim.options().recovery(RecoveryMode::PointInTime).open();
        let done = opened.is_ok() && sim.disk.struck(fault) == 0;
        drop(opened);
        let after = sim.power_lost(&Image::STANDARD[0], step);
        let names = after.disk.file_names("/db").unwrap();
        let kept = names.iter().filter(|n| n.starts_with(&lost));
        assert!(
            kept.clone().any(|n| after.disk.read_file(format!("/db/{n}")).unwrap() == bytes),
            "after step {step}: {names:?}"
        );
        let again = after.options().recovery(RecoveryMode::PointInTime).open().unwrap();
        assert_eq!(contents(again.default_family()).len(), 5, "step {step}");
        drop(again);
        let names = after.disk.file_names("/db").unwrap();
        assert!(names.contains(&format!("{lost}.lost")), "after step {step} and another open: {names:?}");
        if done {
            return;
        }
    }
}

#[test]
fn point_in_time_opens_with_a_damaged_header() {
    let sim = Sim::new();
    let db = sim.open();
    for i in 0..200u8 {
        db.put(&[i], &noise(u64::from(i), 500)).unwrap();
    }
    let after = sim.killed();
    let segments = |sim: &Sim| {
        let mut all = sim.disk.file_names("/db").unwrap();
        all.retain(|n| n.ends_with(".wal"));
        all.sort();
        all
    };
    let second = format!("/db/{}", segments(&after)[1]);
    let mut bytes = after.disk.read_file(&second).unwrap();
    bytes[20] ^= 1;
    after.disk.write_file(&second, &bytes).unwrap();
    assert!(after.options().open().unwrap_err().is_corruption());
    let db = after.options().recovery(RecoveryMode::PointInTime).open().unwrap();
    let found = contents(db.default_family());
    assert!(!found.is_empty() && found.len() < 200, "{} keys", found.len());
    assert!(found.iter().enumerate().all(|(i, (k, _))| k[0] as usize == i), "a prefix");
    assert!(db.recovery_report().damage.is_some());
}

#[test]
fn files_with_similar_names_are_ignored() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    drop(db);
    let names = ["18446744073709551615.wal", "7.wal", "0000009.klog", "999999999999999999.wal", "-1.vlog"];
    for name in names {
        sim.disk.write_file(format!("/db/{name}"), b"not ours").unwrap();
    }
    for mode in [RecoveryMode::Tail, RecoveryMode::Strict, RecoveryMode::PointInTime] {
        let db = sim.options().recovery(mode).open().unwrap();
        assert_eq!(contents(db.default_family()).len(), 100);
        db.compact().unwrap();
        db.close().unwrap();
    }
    let left = sim.disk.file_names("/db").unwrap();
    assert!(names.iter().all(|n| left.contains(&(*n).to_owned())), "{left:?}");
}

#[test]
fn salvage_shows_all_readable_commits() {
    let sim = damaged();
    let db = sim.options().recovery(RecoveryMode::Salvage).open().unwrap();
    let keys: Vec<u8> = contents(db.default_family()).iter().map(|(k, _)| k[0]).collect();
    assert_eq!(keys, [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    assert!(db.recovery_report().damage.is_some());
}

#[test]
fn a_failed_sync_is_never_followed_by_success() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"before", b"v").unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
    let e = db.put(b"doubtful", b"v").unwrap_err();
    assert!(matches!(e, Error::CommitUnknown { .. }), "{e}");
    for _ in 0..3 {
        assert!(matches!(db.put(b"k", b"v"), Err(Error::Poisoned { .. })));
        assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
        assert!(db.flush().is_err());
    }
    assert_eq!(value(db.default_family(), b"before").unwrap(), b"v", "reads continue");
    assert!(!db.contains(b"doubtful").unwrap());
    assert!(db.close().is_err());
    let db = sim.open();
    assert!(db.recovery_report().sync_failed);
    assert!(db.contains(b"before").unwrap());
    db.put(b"after", b"v").unwrap();
}

#[test]
fn records_longer_than_a_segment_survive_with_later_commits() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().value_threshold(1 << 20)).open().unwrap();
    let big = noise(1, 300_000);
    for i in 0..5u8 {
        db.put(&[i], &big).unwrap();
        db.put(&[100 + i], b"small").unwrap();
    }
    for after in [sim.killed(), sim.power_lost(&Image::SYNCED, 1)] {
        let db = after.open();
        assert_eq!(contents(db.default_family()).len(), 10);
        assert!(value(db.default_family(), &[4]).unwrap() == big);
    }
}

/// The next sequence number is then after the header of a segment that does not exist yet.
#[test]
fn a_segment_filled_to_its_end_and_flushed_opens_again() {
    for len in 61_380..61_410 {
        let sim = Sim::new();
        let db = sim.options().default_family(small().value_threshold(1 << 20)).open().unwrap();
        db.put(b"k", &vec![1; len]).unwrap();
        db.flush().unwrap();
        assert_eq!(survivors(&sim.killed()), 1, "value of {len} bytes");
        db.put(b"l", b"v").unwrap();
        assert_eq!(survivors(&sim.killed()), 2, "value of {len} bytes");
    }
}

#[test]
fn recovery_does_not_depend_on_how_the_log_was_written() {
    for mmap in [false, true] {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).with(|o| o.mmap_wal = mmap).open().unwrap();
        fill(db.default_family(), 2000, &[7; 100]);
        assert_eq!(survivors(&sim.killed()), 2000, "mapped: {mmap}");
    }
}

/// Number of syncs of log segments during `work`, without those of headers.
fn log_syncs(sim: &Sim, work: impl FnOnce()) -> usize {
    sim.disk.log_ops(true);
    let before = sim.disk.ops().len();
    work();
    let ops = sim.disk.ops().split_off(before);
    sim.disk.log_ops(false);
    ops.iter().filter(|op| op.kind == OpKind::SyncData && op.path.contains(".wal")).count()
}

#[test]
fn a_flush_syncs_the_log_only_for_older_commits_of_other_families() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let other = db.create_family("other", small()).unwrap();
    hundred(&db);
    assert_eq!(log_syncs(&sim, || db.flush().unwrap()), 0, "tables hold every commit");
    other.put("a", "1").unwrap();
    hundred(&db);
    assert!(log_syncs(&sim, || db.default_family().flush().unwrap()) > 0, "a crash would leave a hole");
    let after = sim.power_lost(&Image::SYNCED, 1).open();
    assert_eq!(value(&after.family("other").unwrap(), b"a").as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_log_that_is_lost_below_a_flush_loses_nothing_of_it() {
    let mut torn = 0;
    for seed in 0..60u64 {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        let other = db.create_family("other", small()).unwrap();
        hundred(&db);
        db.flush().unwrap();
        other.put("late", noise(seed, 3000)).unwrap();
        for i in 100..130u8 {
            db.put([i], "late").unwrap();
        }
        let after = sim.power_lost(&Image::STANDARD[seed as usize % 10], seed);
        let reader = after.options().open_reader().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let shown = contents(reader.view().default_family());
        let db = after.open();
        let found = contents(db.default_family());
        assert!(found.len() >= 100, "seed {seed}: {}", found.len());
        torn += usize::from(found.len() < 130);
        assert_eq!(found[..shown.len()], shown, "seed {seed}");
        let late = contents(&db.family("other").unwrap()).len();
        assert!(late == 1 || found.len() == 100, "seed {seed}: a gap before the last commits");
        // What is written now is newer than all that was lost.
        db.put([0], "new").unwrap();
        db.flush().unwrap();
        assert_eq!(value(db.default_family(), &[0]).as_deref(), Some(&b"new"[..]), "seed {seed}");
        assert!(db.verify().unwrap().is_ok());
        assert_eq!(contents(reader.refresh().unwrap().default_family()), contents(db.default_family()));
    }
    assert!(torn > 10, "only {torn} of 60 lost commits");
}

/// Found by a simulation: each segment of the log kept its descriptor until a flush released it.
#[test]
fn a_long_log_keeps_few_files_open() {
    let modes = [SyncMode::None, SyncMode::Interval(Duration::from_secs(60)), SyncMode::Full];
    // A record of more than half a segment begins each segment; a long one takes a file of its own.
    let lengths = [15_000, 33_000, 60_000, 90_000, 200_000];
    for (mode, bytes) in modes.iter().flat_map(|mode| lengths.map(|bytes| (*mode, bytes))) {
        let mut sim = Sim::new();
        sim.env.descriptors = Arc::new(Descriptors::new(20));
        sim.disk.limit_open_files(40);
        let mut family = small().write_buffer_bytes(256 << 20);
        family.value_threshold = usize::MAX;
        let options = sim.options().sync(mode).default_family(family).with(|o| o.wal_bytes_max = 1 << 30);
        let db = options.open().unwrap();
        for i in 0..200u8 {
            let bytes = if i % 50 == 7 { 90_000 } else { bytes };
            db.put([i], noise(i.into(), bytes)).unwrap();
        }
        let segments = sim.disk.file_names(DB).unwrap().iter().filter(|name| name.ends_with(".wal")).count();
        assert!(segments > 45, "{segments} segments in {mode:?}");
        for image in Image::STANDARD.iter().filter(|_| mode == SyncMode::Full) {
            assert_eq!(survivors(&sim.power_lost(image, 1)), 200);
        }
        assert_eq!(survivors(&sim.killed()), 200, "{mode:?}");
        db.close().unwrap();
        assert_eq!(survivors(&sim.killed()), 200, "{mode:?}");
    }
}
