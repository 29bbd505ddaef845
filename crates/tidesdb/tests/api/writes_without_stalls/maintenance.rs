//! Flush and compact: at any time, any number of times, without a change of the contents.

use tidesdb::Compression;
use tidesdb_io::sim::{Fault, OpKind, OpSet, errno};

use crate::common::{DB, Sim, contents, fill, noise, small};

#[test]
fn flush_and_compact_of_an_empty_database_succeed() {
    let sim = Sim::new();
    let db = sim.open();
    for _ in 0..3 {
        db.flush().unwrap();
        db.compact().unwrap();
    }
    assert_eq!(db.default_family().stats().flushes, 0);
    assert!(!sim.disk.file_names("/db").unwrap().iter().any(|n| n.ends_with(".klog")));
}

#[test]
fn repeated_flush_and_compact_change_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    fill(f, 500, &noise(1, 700));
    f.delete(b"key000100").unwrap();
    let expected = contents(f);
    for step in 0..6 {
        if step % 2 == 0 {
            db.flush().unwrap()
        } else {
            db.compact().unwrap()
        }
        assert!(contents(f) == expected, "step {step}");
    }
    let stats = f.stats();
    assert_eq!((stats.flushes, stats.table_entries), (1, 499));
}

#[test]
fn a_family_is_flushed_alone() {
    let sim = Sim::new();
    let db = sim.open();
    let a = db.create_family("a", small()).unwrap();
    a.put(b"k", b"v").unwrap();
    db.put(b"k", b"v").unwrap();
    a.flush().unwrap();
    assert_eq!((a.stats().flushes, db.default_family().stats().flushes), (1, 0));
    assert!(db.default_family().stats().memtable_bytes > 0);
    a.compact().unwrap();
    assert_eq!(contents(sim.killed().open().default_family()).len(), 1, "the log was kept for the other");
}

#[test]
fn compaction_removes_the_files_it_replaced() {
    let sim = Sim::new();
    let db = sim.open();
    for round in 0..5u8 {
        fill(db.default_family(), 100, &[round; 100]);
        db.flush().unwrap();
    }
    sim.eventually(&db, |names| names.iter().filter(|n| n.ends_with(".klog")).count() == 1);
}

/// The views that an open replaces once stayed with the thread that opened, and with them all tables of that time.
#[test]
fn a_thread_that_opens_a_database_and_waits_keeps_no_files() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, &[0; 100]);
    db.flush().unwrap();
    db.close().unwrap();
    let changed = small().l1_tables_trigger(7);
    for options in [small(), changed] {
        let db = sim.options().default_family(options).open().unwrap();
        let other = || {
            fill(db.default_family(), 100, &[1; 100]);
            sim.eventually(&db, |names| names.iter().filter(|n| n.ends_with(".klog")).count() == 1);
        };
        std::thread::scope(|scope| scope.spawn(other).join()).unwrap();
    }
}

#[test]
fn large_results_are_split_into_tables() {
    let sim = Sim::new();
    let options = small().compression(Compression::None).table_bytes(64 << 10);
    let db = sim.options().default_family(options).open().unwrap();
    for i in 0..4000u32 {
        db.put(&i.to_be_bytes(), &noise(u64::from(i), 100)).unwrap();
    }
    db.compact().unwrap();
    let stats = db.default_family().stats();
    assert!(stats.level_tables.iter().sum::<usize>() >= 5, "{:?}", stats.level_tables);
    assert_eq!(contents(db.default_family()).len(), 4000);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn every_compression() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let sim = Sim::new();
        let db = sim.options().default_family(small().compression(compression)).open().unwrap();
        let f = db.default_family();
        fill(f, 1000, b"the same text again and again");
        f.put(b"big", &[7; 50_000]).unwrap();
        f.put(b"noise", &noise(1, 5000)).unwrap();
        let expected = contents(f);
        db.compact().unwrap();
        assert!(contents(f) == expected, "{compression:?}");
        let db = sim.killed().open();
        assert!(contents(db.default_family()) == expected && db.verify().unwrap().is_ok());
    }
}

#[test]
fn memtables_are_flushed_when_full_and_merged_when_many() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().write_buffer_bytes(64 << 10)).open().unwrap();
    for i in 0..20_000u32 {
        db.put(&(i % 5000).to_be_bytes(), &noise(u64::from(i), 60)).unwrap();
    }
    let stats = db.default_family().stats();
    assert!(stats.flushes > 5 && stats.compactions > 1, "{stats:?}");
    assert!(stats.level_tables[0] < 12 && stats.memtable_bytes < 1 << 20, "{stats:?}");
    assert_eq!(contents(db.default_family()).len(), 5000);
}

#[test]
fn a_full_disk_fails_only_the_flush() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    fill(f, 100, &[1; 100]);
    sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    for _ in 0..5 {
        assert!(db.flush().is_err());
    }
    assert_eq!(contents(f).len(), 100);
    db.put(b"more", b"v").unwrap();
    sim.disk.clear_faults();
    db.flush().unwrap();
    assert_eq!(contents(f).len(), 101);
    assert_eq!(contents(sim.killed().open().default_family()).len(), 101);
}

#[test]
fn the_minimum_of_free_disk_space_is_respected() {
    let sim = Sim::new();
    let db = sim.options().with(|o| o.disk_free_min = 10 << 20).open().unwrap();
    let f = db.default_family();
    fill(f, 10, b"v");
    sim.disk.limit_space(Some(5 << 20));
    // Memtables are flushed and deletes succeed. No data is stored beyond the allocated log.
    db.flush().unwrap();
    let e = (0..1000u32)
        .find_map(|i| db.put(&i.to_be_bytes(), &[7; 400]).err())
        .expect("the log accepted every put");
    assert!(matches!(e, tidesdb::Error::NoSpace { .. }) && e.is_retryable(), "{e}");
    let e = db.compact().unwrap_err();
    assert!(matches!(e, tidesdb::Error::NoSpace { .. }), "{e}");
    db.delete_range(..).unwrap();
    assert_eq!(contents(f).len(), 0);
    sim.disk.limit_space(None);
    fill(f, 10, b"v");
    db.compact().unwrap();
    assert_eq!(contents(f).len(), 10);
}

#[test]
fn a_flush_that_fails_half_way_leaves_no_files() {
    for kind in [OpSet::WRITES, OpSet::SYNCS] {
        let sim = Sim::new();
        let db = sim.open();
        fill(db.default_family(), 100, b"v");
        let before = sim.disk.file_names("/db").unwrap();
        sim.disk.inject(Fault::errno(errno::EIO).on(kind).path_ends(".klog"));
        assert!(db.flush().is_err());
        assert_eq!(sim.disk.file_names("/db").unwrap(), before);
        db.flush().unwrap();
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn a_flush_on_a_full_disk_uses_the_reserve() {
    for kind in [OpSet::WRITES, OpSet::SYNCS] {
        let sim = Sim::new();
        let db = sim.open();
        fill(db.default_family(), 100, b"v");
        let reserve = || sim.disk.file_names("/db").unwrap().contains(&"RESERVE".to_owned());
        assert!(reserve());
        sim.disk.inject(Fault::errno(errno::ENOSPC).on(kind).path_ends(".klog"));
        db.flush().unwrap();
        assert!(!reserve());
        db.put(b"k", b"v").unwrap(); // the disk now has room for the reserve
        assert!(reserve());
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn overwritten_values_free_their_file_at_the_next_open() {
    let sim = Sim::new();
    for round in 0..4u64 {
        let db = sim.open();
        fill(db.default_family(), 100, &noise(round, 2000));
        db.compact().unwrap();
        db.close().unwrap();
    }
    sim.open().close().unwrap();
    let db = sim.open();
    sim.eventually(&db, |names| names.iter().filter(|n| n.ends_with(".vlog")).count() == 1);
    assert_eq!(contents(db.default_family())[0].1, noise(3, 2000));
}

#[test]
fn files_are_removed_after_their_last_reader() {
    let sim = Sim::new();
    let db = sim.options().background_threads(1).open().unwrap();
    let tables = || sim.disk.file_names(DB).unwrap().iter().filter(|n| n.ends_with(".klog")).count();
    fill(db.default_family(), 100, b"v");
    db.flush().unwrap();
    let reader = db.iter().unwrap();
    fill(db.default_family(), 100, b"w");
    db.compact().unwrap();
    // Readers of other tests may delay the removal of a file that nothing uses.
    let falls_to = |number: usize| {
        (0..6000).any(|_| {
            sim.clock.advance(std::time::Duration::from_millis(100));
            std::thread::sleep(std::time::Duration::from_millis(5));
            tables() == number
        })
    };
    assert!(falls_to(2), "the reader uses one that is in no version; the other one is removed");
    sim.clock.advance(std::time::Duration::from_secs(60));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(tables(), 2, "the file of the reader stays");
    drop(reader);
    assert!(falls_to(1), "the file was not removed after the reader ended");
}
