//! A writer faster than the disk: memory stays bounded, writers wait, and no writer waits forever.

use std::time::Duration;

use tidesdb::{Db, Error, Family, StallCause, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, OpKind, errno};

use crate::common::{Sim, contents, noise, small};

const LIMIT: u64 = 4 << 20;
const BUFFER: usize = 512 << 10;

fn limited(sim: &Sim) -> Db {
    let options = sim.options().background_threads(1).sync(SyncMode::None);
    // Merges are never due: only memtables delay writers.
    let family = small().write_buffer_bytes(BUFFER).value_threshold(1 << 20).l1_tables_trigger(1000);
    let options = options.default_family(family);
    options
        .with(|o| {
            o.memtables_bytes_max = LIMIT;
            o.wal_segment_bytes = 1 << 20;
        })
        .open()
        .unwrap()
}

#[test]
fn memtables_stay_under_their_limit_on_a_slow_disk() {
    let sim = Sim::new();
    let db = limited(&sim);
    // Each sync of a table takes a while, so flushes fall far behind.
    sim.disk.observe(OpKind::SyncData, |op, _| {
        if op.path.ends_with(".klog") {
            std::thread::sleep(Duration::from_millis(15));
        }
    });
    let (mut highest, mut rows) = (0, 0u32);
    let waited = || {
        let stall = db.stats().stalled_by(StallCause::Memtables);
        stall.slowed + stall.stopped > 0
    };
    // A writer that gets little of a busy machine is no faster than the disk at first.
    while rows == 0 || (!waited() && rows < 600_000) {
        for _ in 0..30_000 {
            db.put(&rows.to_be_bytes(), &[1; 900]).unwrap();
            if rows % 16 == 0 {
                highest = highest.max(db.default_family().stats().memtable_bytes);
            }
            rows += 1;
        }
    }
    // Immutable memtables are limited; the active one, and one that fills when the limit is reached, are added to that.
    assert!(highest <= LIMIT + 3 * BUFFER as u64, "{highest} bytes of memtables");
    let stats = db.stats();
    assert!(stats.stall_time() > Duration::ZERO || stats.stalls() > 0, "no writer waited: {stats}");
    let (memtables, tables) = (stats.stalled_by(StallCause::Memtables), stats.stalled_by(StallCause::Tables));
    assert!(memtables.slowed + memtables.stopped > 0 && tables.time == Duration::ZERO, "{stats}");
    assert_eq!(db.iter().unwrap().keys().count(), rows as usize);
}

#[test]
fn a_write_without_flush_progress_fails_with_busy_and_has_no_effect() {
    let sim = Sim::new();
    let db = limited(&sim);
    sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    let ticking = std::sync::atomic::AtomicBool::new(true);
    let (written, e) = std::thread::scope(|s| {
        // Advances the clock: the timeout is measured on the clock of the environment.
        s.spawn(|| {
            while ticking.load(std::sync::atomic::Ordering::SeqCst) {
                sim.clock.advance(Duration::from_millis(500));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut written = 0u32;
        let e = loop {
            match db.put(&written.to_be_bytes(), &[1; 20_000]) {
                Ok(_) => written += 1,
                Err(e) => break e,
            }
            assert!(written < 2000, "memory is not bounded");
        };
        ticking.store(false, std::sync::atomic::Ordering::SeqCst);
        (written, e)
    });
    assert!(matches!(e, Error::Busy { .. }) && e.is_retryable(), "{e}");
    assert_eq!(contents(db.default_family()).len(), written as usize);
    sim.disk.clear_faults();
    db.flush().unwrap();
    db.put(b"again", b"v").unwrap();
}

#[test]
fn waiting_writers_do_not_block_readers() {
    let sim = Sim::new();
    let db = limited(&sim);
    db.put(b"k", b"v").unwrap();
    sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            // Fills up to the limit and waits there.
            for i in 0..400u32 {
                if db.put(&i.to_be_bytes(), &[1; 20_000]).is_err() {
                    break;
                }
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while db.stats().stalls() == 0 && !done.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!done.load(std::sync::atomic::Ordering::SeqCst), "the writer never had to wait");
        for _ in 0..100 {
            assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
            assert!(db.iter().unwrap().next().unwrap().is_ok());
        }
        sim.disk.clear_faults();
        sim.clock.advance(Duration::from_secs(6)); // the retry is due
    });
    assert_eq!(contents(db.default_family()).len(), 401, "the writer continued");
}

#[test]
fn a_full_disk_rejects_writes_until_there_is_space() {
    for sync in [SyncMode::None, SyncMode::Full] {
        let sim = Sim::new();
        let db = sim.options().sync(sync).open().unwrap();
        sim.disk.limit_space(Some(0));
        let mut written = 0u32;
        let e = loop {
            match db.put(&written.to_be_bytes(), &[1; 3000]) {
                Ok(_) => written += 1,
                Err(e) => break e,
            }
            assert!(written < 1000, "a full disk accepted every write");
        };
        assert!(matches!(e, Error::NoSpace { .. }) && e.is_retryable(), "{e}");
        let mut large = WriteBatch::new();
        large.put(db.default_family(), b"large", &[1; 200_000]).unwrap();
        assert!(matches!(db.write(&mut large), Err(Error::NoSpace { .. })));
        assert_eq!(contents(db.default_family()).len(), written as usize);
        sim.disk.limit_space(None);
        db.write(&mut large).unwrap();
        db.put(b"again", b"v").unwrap();
        db.close().unwrap();
        assert_eq!(contents(sim.open().default_family()).len(), written as usize + 2);
    }
}

/// On a slow machine the simulated time may pass so fast that the database counts as idle and merges; then it is tried again.
#[test]
fn writers_do_not_stop_before_a_compaction_is_due() {
    let reached = (0..20).any(|_| {
        let sim = Sim::new();
        let db = sim.options().background_threads(1).open().unwrap();
        let f = db.create_family("late", small().l1_tables_trigger(40)).unwrap();
        for i in 0..35u32 {
            f.put(&i.to_be_bytes(), b"v").unwrap();
            f.flush().unwrap();
        }
        f.put(b"k", b"v").unwrap();
        assert_eq!(db.stats().stalls(), 0);
        f.stats().level_tables[0] == 35
    });
    assert!(reached, "35 tables were never there");
}

/// Settings that mean "everything": sums of bytes overflowed, and the limit had no effect.
#[test]
fn huge_limits_of_disk_space_reject_only_commits() {
    type Change = fn(&mut tidesdb::DbOptions);
    let changes: [Change; 3] = [
        |o| o.disk_free_min = u64::MAX,
        |o| o.disk_free_min = u64::MAX - (64 << 20),
        |o| o.disk_reserve_bytes = Some(u64::MAX),
    ];
    for change in changes {
        for threads in [0, 1] {
            let sim = Sim::new();
            let db = sim.open();
            db.put(b"old", b"v").unwrap();
            db.close().unwrap();
            let db = sim.options().background_threads(threads).with(change).open().unwrap();
            let e = db.put(b"k", b"v").unwrap_err();
            assert!(matches!(e, Error::NoSpace { .. }), "{e}");
            assert!(matches!(db.put(b"k", &[1; 200_000]), Err(Error::NoSpace { .. })));
            assert!(matches!(db.put(b"k", &[1; 600]), Err(Error::NoSpace { .. })));
            db.delete(b"old").unwrap();
            db.flush().unwrap();
            let _ = db.compact();
            assert!(contents(db.default_family()).is_empty());
            db.close().unwrap();
        }
    }
}

/// Each rejected commit requests a flush. Between deletes, which a full disk accepts, that must not create a memtable for each delete.
#[test]
fn rejected_commits_do_not_accumulate_memtables() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"a", b"v").unwrap();
    sim.disk.limit_space(Some(400 << 10));
    sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    for i in 0..500u32 {
        let _ = db.delete(&i.to_be_bytes());
        assert!(matches!(db.put(b"large", &[1; 2_000_000]), Err(Error::NoSpace { .. })));
    }
    let waiting = db.default_family().stats().immutables;
    assert!(waiting < 10, "{waiting} immutable memtables");
}

/// Without threads, the committing thread runs the queued jobs, also when it commits a transaction.
#[test]
fn without_threads_the_commit_of_a_transaction_runs_queued_jobs() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for i in 0..64u32 {
        let mut tx = db.begin(tidesdb::Isolation::Snapshot);
        for j in 0..200u32 {
            tx.put(f, &(i * 1000 + j).to_be_bytes(), &[1; 400]).unwrap();
        }
        tx.commit().unwrap();
    }
    let stats = f.stats();
    assert!(stats.memtable_bytes < 4 << 20, "{} bytes of memtables", stats.memtable_bytes);
}

/// Three writers that write rows to `family` until a call fails; returns the number of rows of each, and the error. Waits until all of
/// them are stopped, and calls `end`.
fn stopped_writers(db: &Db, family: &Family, end: impl FnOnce()) -> Vec<(u32, Error)> {
    let write = |thread: u32| {
        let put = |n: u32| family.put([thread.to_be_bytes(), n.to_be_bytes()].concat(), [1; 20_000]);
        (0..2000).find_map(|n| put(n).err().map(|e| (n, e))).expect("memory is bounded")
    };
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..3).map(|thread| s.spawn(move || write(thread))).collect();
        while db.stats().stalled_by(StallCause::Memtables).delayed_now < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        end();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

/// The clock stands still, so no writer gives up by itself.
#[test]
fn a_close_ends_the_wait_of_stopped_writers() {
    let sim = Sim::new();
    let db = limited(&sim);
    sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    let ended = stopped_writers(&db, db.default_family(), || assert!(db.clone().close().is_err()));
    assert!(ended.iter().all(|(_, e)| matches!(e, Error::Closed)), "{ended:?}");
    drop(db);
    sim.disk.clear_faults();
    let written: u32 = ended.iter().map(|(rows, _)| rows).sum();
    assert_eq!(contents(sim.open().default_family()).len(), written as usize);
}

/// What only the dropped family owed is owed no more.
#[test]
fn a_drop_ends_the_wait_of_stopped_writers() {
    let sim = Sim::new();
    let db = limited(&sim);
    let family = db.create_family("f", db.default_family().current_options()).unwrap();
    sim.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    let ended = stopped_writers(&db, &family, || db.drop_family("f").unwrap());
    assert!(ended.iter().all(|(_, e)| matches!(e, Error::NotFound { .. })), "{ended:?}");
    let stops = db.stats().stalls();
    for n in 0..100u32 {
        db.put(n.to_be_bytes(), [1; 20_000]).unwrap();
    }
    assert_eq!(db.stats().stalls(), stops);
}

/// The active memtables of all families of a batch once counted as debt while one of them was flushed: batches of many families waited for
/// each flush.
#[test]
fn a_batch_of_many_families_does_not_wait_for_the_flush_of_one() {
    let sim = Sim::new();
    let db = limited(&sim);
    let options = small().write_buffer_bytes(BUFFER).value_threshold(1 << 20);
    let families: Vec<_> =
        (0..16).map(|n| db.create_family(&format!("f{n}"), options.clone()).unwrap()).collect();
    let put_in_all = |i: u64, bytes: usize| {
        let mut batch = WriteBatch::new();
        families.iter().for_each(|f| batch.put(f, &i.to_be_bytes(), &noise(i, bytes)).unwrap());
        db.write(&mut batch).unwrap();
    };
    put_in_all(0, 10);
    db.flush().unwrap(); // the first memtables are shorter than later ones
    (0..300).for_each(|i| put_in_all(i, 900));
    sim.disk.observe(OpKind::Create, |op, _| {
        if op.path.ends_with(".klog") {
            std::thread::sleep(Duration::from_millis(300)); // nothing is written yet
        }
    });
    families[0].start_flush().unwrap();
    put_in_all(1000, 900);
    let stats = db.stats();
    let memtables: u64 = families.iter().map(|f| f.stats().memtable_bytes).sum();
    assert!(memtables > LIMIT, "{memtables}: {stats}");
    assert_eq!(
        (stats.stalled_by(StallCause::Memtables).slowed, stats.stalled_by(StallCause::Memtables).stopped),
        (0, 0),
        "{stats}"
    );
}
