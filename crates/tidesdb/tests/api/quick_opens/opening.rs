//! Open, create, read-only, open twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tidesdb::{Comparator, Db, Error, FamilyOptions, Isolation, MergeOperator, RecoveryMode};
use tidesdb_io::sim::{DataFate, Image, NameFate, OpSet, Starts};

use crate::common::{DB, Sim, contents, noise, small, value};

#[test]
fn a_database_is_created_and_reopened_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/db");
    let db = Db::open(&path).unwrap();
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(db.recovery_report().clean);
}

/// The name `CURRENT` was lost when the power failed, and files of the log were kept: they looked like the rest of a database.
#[test]
fn a_kill_while_a_database_is_created_and_a_power_failure_at_the_next_open_leave_one_that_can_be_opened() {
    let image = Image { data: DataFate::All, names: NameFate::Subset };
    let first = Sim::new();
    for killed in first.before_each_change(|| drop(first.open())) {
        let second = Sim::on(killed);
        for lost in second.before_each_change(|| drop(second.open())) {
            for seed in 0..6 {
                drop(Sim::on(lost.crash_image(&image, seed)).open());
            }
        }
    }
}

#[test]
fn a_missing_database_is_created_only_if_allowed() {
    let sim = Sim::new();
    for options in [sim.options().create_if_missing(false), sim.options().read_only(true)] {
        assert!(matches!(options.open(), Err(Error::NotFound { .. })));
    }
    assert!(sim.disk.file_names("/db").is_err(), "not even the directory");
}

/// The message was "database  does not exist", or that of the system for a folder without a name.
#[test]
fn an_empty_path_is_refused_by_its_name() {
    let sim = Sim::new();
    let db = sim.open();
    let refused = [
        Db::open("").map(drop),
        Db::options("").read_only(true).open().map(drop),
        Db::options("").open_reader().map(drop),
        db.checkpoint(""),
        db.backup(""),
        tidesdb::inspect::trees("").map(drop),
    ];
    for result in refused {
        let error = result.expect_err("no folder has this name");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains("the path of a folder is empty"), "{error}");
    }
}

#[test]
fn an_empty_directory_is_not_a_database() {
    let sim = Sim::new();
    sim.env.disk.open_dir("/db".as_ref(), true).unwrap();
    assert!(matches!(sim.options().create_if_missing(false).open(), Err(Error::NotFound { .. })));
    sim.open().put(b"k", b"v").unwrap();
}

#[test]
fn a_second_open_fails_and_changes_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"k", b"v").unwrap();
    for _ in 0..2 {
        assert!(matches!(sim.options().open(), Err(Error::Locked { .. })));
        assert!(matches!(sim.options().read_only(true).open(), Err(Error::Locked { .. })));
    }
    db.put(b"k", b"w").unwrap();
    db.close().unwrap();
    assert_eq!(value(sim.open().default_family(), b"k").unwrap(), b"w");
}

#[test]
fn clones_keep_the_database_open_and_the_last_closes_it() {
    let sim = Sim::new();
    let db = sim.open();
    let clone = db.clone();
    drop(db);
    clone.put(b"k", b"v").unwrap();
    assert!(matches!(sim.options().open(), Err(Error::Locked { .. })));
    drop(clone);
    assert!(sim.open().recovery_report().clean, "closed by the last drop");
}

#[test]
fn families_of_a_dropped_database_fail_with_closed() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family().clone();
    drop(db);
    assert!(matches!(family.put(b"k", b"v"), Err(Error::Closed)));
    assert!(matches!(family.get(b"k"), Err(Error::Closed)));
    drop(sim.open());
}

#[test]
fn two_readers_and_no_writer() {
    let sim = Sim::new();
    sim.open().put(b"k", b"v").unwrap();
    let read = || sim.options().read_only(true).open();
    let (a, b) = (read().unwrap(), read().unwrap());
    assert!(matches!(sim.options().open(), Err(Error::Locked { .. })));
    assert_eq!(value(a.default_family(), b"k"), value(b.default_family(), b"k"));
}

#[test]
fn a_reader_sees_the_log_and_changes_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let other = db.create_family("other", small()).unwrap();
    db.put(b"flushed", &[1; 2000]).unwrap();
    db.flush().unwrap();
    db.put(b"logged", &[2; 2000]).unwrap();
    other.put(b"x", b"y").unwrap();
    let after = sim.killed();
    after.disk.log_ops(true);
    let db = after.options().read_only(true).open().unwrap();
    assert_eq!(value(db.default_family(), b"flushed").unwrap(), [1; 2000]);
    assert_eq!(value(db.default_family(), b"logged").unwrap(), [2; 2000]);
    assert_eq!(value(&db.family("other").unwrap(), b"x").unwrap(), b"y");
    assert!(db.verify().unwrap().is_ok());
    assert_eq!(db.stats().jobs_pending, 0, "jobs that nothing will run");
    assert_eq!(*db.first().unwrap().unwrap().0, *b"flushed");
    assert_eq!(*db.snapshot().last(db.default_family()).unwrap().unwrap().0, *b"logged");
    drop(db);
    let changes: Vec<_> = after.disk.ops().into_iter().filter(|op| OpSet::CHANGES.has(op.kind)).collect();
    let lock = tidesdb_io::sim::OpKind::Lock;
    assert!(changes.iter().all(|op| op.kind == lock), "{changes:?}");
}

/// A medium that cannot be written, such as a snapshot of a volume, has no place for the file of a lock.
#[test]
fn a_database_on_a_read_only_medium_is_read_without_a_lock_file() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"flushed", b"1").unwrap();
    db.flush().unwrap();
    db.put(b"logged", b"2").unwrap();
    let after = sim.killed();
    after.disk.remove_file(format!("{DB}/LOCK")).unwrap();
    after.disk.set_read_only(true);
    let expected = [(b"flushed".to_vec(), b"1".to_vec()), (b"logged".to_vec(), b"2".to_vec())];
    let modes = [RecoveryMode::Tail, RecoveryMode::Strict, RecoveryMode::PointInTime, RecoveryMode::Salvage];
    for mode in modes {
        let read = || after.options().read_only(mode != RecoveryMode::Salvage).recovery(mode).open();
        if mode == RecoveryMode::Strict {
            assert!(read().unwrap_err().is_corruption(), "the log does not end in a seal");
            continue;
        }
        let (db, beside) = (read().unwrap(), read().unwrap());
        assert_eq!(contents(db.default_family()), expected, "{mode:?}");
        assert_eq!(contents(beside.default_family()), expected, "{mode:?}");
        assert!(db.verify().unwrap().is_ok());
    }
    let reader = after.options().open_reader().unwrap();
    assert_eq!(contents(reader.view().default_family()), expected);
    let refused = after.options().open().unwrap_err();
    assert!(matches!(&refused, Error::Io { .. }), "{refused}");
}

#[test]
fn a_read_only_database_rejects_every_change() {
    let sim = Sim::new();
    sim.open().put(b"k", b"v").unwrap();
    let db = sim.options().read_only(true).open().unwrap();
    let refusals = [
        db.put(b"k", b"w").map(drop),
        db.delete(b"k").map(drop),
        db.default_family().single_delete(b"k").map(drop),
        db.flush(),
        db.compact(),
        db.sync().map(drop),
        db.checkpoint("/copy"),
        db.create_family("x", FamilyOptions::default()).map(drop),
        db.drop_family("x"),
        db.rename_family("x", "y"),
        db.clone_family("default", "y").map(drop),
    ];
    for (i, refusal) in refusals.into_iter().enumerate() {
        assert!(matches!(refusal, Err(Error::ReadOnly)), "call {i}: {refusal:?}");
    }
    assert_eq!(contents(db.default_family()), [(b"k".to_vec(), b"v".to_vec())]);
}

#[test]
fn bad_segment_lengths_are_rejected_before_anything_is_created() {
    for bytes in [0, 4096, (16 << 10) + 1, (1 << 30) + 4096] {
        let sim = Sim::new();
        let opened = sim.options().with(|o| o.wal_segment_bytes = bytes).open();
        assert!(matches!(opened, Err(Error::InvalidArgument { .. })), "{bytes}");
        assert!(sim.disk.file_names("/db").is_err());
    }
}

/// An open with the same options failed the second time: the merge operator was stored and had to be registered as well.
#[test]
fn what_the_default_family_uses_need_not_be_registered() {
    let sim = Sim::new();
    let order = Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let last = MergeOperator::custom("last", |value, operand| {
        value.clear();
        value.extend_from_slice(operand);
        Ok(())
    });
    let options = FamilyOptions::default().comparator(order).merge_operator(last);
    for n in 0..3 {
        let db = sim.options().default_family(options.clone()).open().unwrap();
        db.merge("key", n.to_string()).unwrap();
        db.merge("k", "v").unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), n.to_string());
        assert_eq!(db.first().unwrap().unwrap().0, b"k");
        db.close().unwrap();
    }
    assert!(sim.options_as_stored("/db").open().is_err(), "without them the family cannot be read");
}

/// A million threads ended the process.
#[test]
fn too_many_threads_are_refused() {
    let sim = Sim::new();
    let error = sim.options().background_threads(1_000_000).open().unwrap_err();
    assert_eq!(error.to_string(), "invalid argument: background_threads is 1000000, outside 0 to 256");
    assert!(sim.disk.file_names("/db").is_err(), "nothing was created");
}

#[test]
fn the_length_of_segments_is_fixed_at_creation() {
    let sim = Sim::new();
    sim.options().with(|o| o.wal_segment_bytes = 32 << 10).open().unwrap().put(b"k", b"v").unwrap();
    let db = sim.options().with(|o| o.wal_segment_bytes = 1 << 20).open().unwrap();
    db.put(b"k", b"w").unwrap();
    let lens: Vec<u64> = sim
        .disk
        .file_names("/db")
        .unwrap()
        .iter()
        .filter(|n| n.ends_with(".wal"))
        .map(|n| sim.disk.read_file(format!("/db/{n}")).unwrap().len() as u64)
        .collect();
    assert!(!lens.is_empty() && lens.iter().all(|n| *n == 32 << 10), "{lens:?}");
}

#[test]
fn settings_of_the_default_family_are_stored() {
    let sim = Sim::new();
    drop(sim.options().default_family(small().value_threshold(77)).open().unwrap());
    assert_eq!(sim.open_as_stored().default_family().current_options().value_threshold, 77);
}

/// Options that differ from what is stored are applied, or refused with both values named.
#[test]
fn options_of_an_existing_family_are_applied_or_refused() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().value_threshold(77)).open().unwrap();
    db.create_family("f", small()).unwrap();
    drop(db);
    let db = sim.options().default_family(small().value_threshold(99)).open().unwrap();
    assert_eq!(db.default_family().current_options().value_threshold, 99);
    assert_eq!(
        db.family_or_create("f", small().value_threshold(5)).unwrap().current_options().value_threshold,
        5
    );
    let e = db.family_or_create("f", small().comparator(Comparator::u64_le())).unwrap_err().to_string();
    assert!(e.contains("bytewise") && e.contains("u64"), "{e}");
    let zero = small().write_buffer_bytes(0);
    assert!(db.family_or_create("f", zero).is_err());
    drop(db);
    let db = sim.open_as_stored();
    assert_eq!(db.default_family().current_options().value_threshold, 99, "it was stored");
    assert_eq!(db.family("f").unwrap().current_options().value_threshold, 5);
    drop(db);
    let db = sim.options().default_family(FamilyOptions::default().min_levels(2)).open().unwrap();
    let f = db.family_or_create("f", FamilyOptions::default()).unwrap();
    assert_eq!(f.current_options().value_threshold, 5, "what is not named stays");
    let now = db.default_family().current_options();
    assert_eq!((now.value_threshold, now.min_levels, now.write_buffer_bytes), (99, 2, 1 << 20));
    drop((db, f));
    let refused = sim.options().default_family(small().comparator(Comparator::u64_le())).open();
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    let reader = sim.options().with(|o| o.read_only = true).default_family(small()).open().unwrap();
    assert_eq!(reader.default_family().current_options().value_threshold, 99, "a reader changes nothing");
}

#[test]
fn salvage_opens_for_reading_only() {
    let sim = Sim::new();
    sim.open().put(b"k", b"v").unwrap();
    let db = sim.options().recovery(RecoveryMode::Salvage).open().unwrap();
    assert_eq!(value(db.default_family(), b"k").unwrap(), b"v");
    assert!(matches!(db.put(b"k", b"w"), Err(Error::ReadOnly)));
}

#[test]
fn many_opens_leave_no_files_behind() {
    let sim = Sim::new();
    for i in 0..6 {
        let db = sim.open();
        db.put(b"k", &[i]).unwrap();
        db.close().unwrap();
    }
    let db = sim.open();
    // LOCK, CURRENT, RESERVE, EVENTS, one manifest, one table, one log.
    sim.eventually(&db, |names| names.len() == 7);
    db.close().unwrap();
    let left = sim.disk.file_names("/db").unwrap();
    assert!(left.len() <= 6, "{left:?}");
}

/// Handles showed the state that they share with all others: 70 KB for a snapshot.
#[test]
fn handles_print_on_one_short_line() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    let snapshot = db.snapshot();
    let seq = snapshot.seq();
    assert_eq!(format!("{f:?}"), "Family { name: \"default\", .. }");
    assert_eq!(format!("{snapshot:?}"), format!("Snapshot {{ seq: {seq}, .. }}"));
    let mut tx = db.begin(Isolation::Snapshot);
    tx.put(f, b"k", b"w").unwrap();
    let shown = format!("Transaction {{ isolation: Snapshot, open: true, seq: Some({seq}), writes: 1, .. }}");
    assert_eq!(format!("{tx:?}"), shown);
}

#[test]
fn another_family_can_be_the_default_one() {
    let sim = Sim::new();
    sim.open().put(b"k", b"of default").unwrap();
    let open = || sim.options().default_family(small().value_threshold(77)).default_family_name("main");
    for round in 0..2u8 {
        let db = open().open().unwrap();
        assert_eq!(db.default_family().name(), "main");
        assert_eq!(db.default_family().current_options().value_threshold, 77);
        assert_eq!(value(db.default_family(), b"k"), (round > 0).then(|| b"of main".to_vec()));
        db.put(b"k", b"of main").unwrap();
        assert!(matches!(db.drop_family("main"), Err(Error::InvalidArgument { .. })));
        assert!(matches!(db.rename_family("main", "x"), Err(Error::InvalidArgument { .. })));
        assert_eq!(value(&db.family("default").unwrap(), b"k").unwrap(), b"of default");
    }
    let db = open().open().unwrap();
    // The protection does not depend on the name.
    db.rename_family("default", "other").unwrap();
    db.create_family("default", small()).unwrap();
    db.drop_family("default").unwrap();
    db.drop_family("other").unwrap();
    assert_eq!(db.families(), ["main"]);
    db.close().unwrap();
    let e = sim.options().read_only(true).open().unwrap_err();
    assert_eq!(e.to_string(), "family \"default\" does not exist", "and a read-only open creates none");
    assert_eq!(sim.open().families(), ["default", "main"]);
}

/// Recovery checked its memtables every 64 commits, whatever their size: a log of a few large commits was replayed into one
/// memtable. Without the memory for all of them, tables are written during the replay.
#[test]
fn the_replay_of_large_commits_fills_many_memtables() {
    let sim = Sim::new();
    let inline = || FamilyOptions::default().value_threshold(usize::MAX).write_buffer_bytes(256 << 10);
    let options = |sim: &Sim, memory: u64| {
        sim.options().default_family(inline()).with(|o| {
            o.wal_segment_bytes = 1 << 20;
            o.memtables_bytes_max = memory;
            o.wal_bytes_max = memory;
        })
    };
    let db = options(&sim, 1 << 30).open().unwrap();
    let big = db.default_family().current_options().write_buffer_bytes(1 << 30);
    db.default_family().change_options_until_close(big).unwrap(); // nothing is flushed before the kill
    for i in 0..40u8 {
        db.put(&[i], &noise(i.into(), 500 << 10)).unwrap();
    }
    for memory in [1 << 20, 1 << 30] {
        let db = options(&sim.killed(), memory).open().unwrap();
        let tables = db.default_family().stats().level_tables;
        assert!(tables.iter().sum::<usize>() >= 20, "each of some commits fills a memtable: {tables:?}");
        assert_eq!(contents(db.default_family()).len(), 40);
    }
}

/// Threads that ran on would change a directory that another open may have locked.
#[test]
fn an_open_that_fails_leaves_no_thread() {
    let sim = Sim::new();
    sim.open().close().unwrap();
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let counted = move |_: &str, body| {
        count.fetch_add(1, SeqCst);
        Ok(body)
    };
    let env = Starts::of(&sim.env).on_start(counted).processors(2).env();
    let options = || sim.options().env(env.clone()).background_threads(2);
    let fails = options().default_family(small().comparator(Comparator::u64_le())).open();
    assert!(matches!(fails, Err(Error::InvalidArgument { .. })), "{fails:?}");
    assert_eq!(started.load(SeqCst), 0);
    let db = options().open().unwrap();
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    assert!(started.load(SeqCst) > 0);
}
