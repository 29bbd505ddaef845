//! Use after close: errors, never a panic, and no acknowledged commit is lost.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Compression, Db, Error, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, OpSet, errno};
use tidesdb_io::{Priority, RealThreads, Threads as _};

use crate::common::{Sim, contents, fill, noise, put_twice, small};

#[test]
fn every_call_after_close_fails_with_closed() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family().clone();
    fill(&f, 10, b"v");
    let snapshot = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.put(&f, b"k", b"v").unwrap();
    let after = db.clone();
    db.close().unwrap();
    let calls = [
        after.put(b"k", b"v").map(drop),
        after.delete(b"k").map(drop),
        after.write(&mut batch).map(drop),
        f.single_delete(b"k").map(drop),
        f.put_with_ttl(b"k", b"v", Duration::from_secs(1)).map(drop),
        after.get(b"k").map(drop),
        after.contains(b"k").map(drop),
        after.multi_get(&[b"k"]).map(drop),
        after.multi_contains(&[b"k"]).map(drop),
        after.replace(b"k", b"v").map(drop),
        after.take(b"k").map(drop),
        after.get_map(b"k", <[u8]>::len).map(drop),
        after.iter().map(drop),
        after.range("a".."b").map(drop),
        after.prefix(b"a").map(drop),
        after.cursor().map(drop),
        snapshot.get(&f, b"k").map(drop),
        snapshot.contains(&f, b"k").map(drop),
        snapshot.multi_get(&f, &[b"k"]).map(drop),
        snapshot.iter(&f).map(drop),
        snapshot.cursor(&f).map(drop),
        after.snapshot().get(&f, b"k").map(drop),
        after.flush(),
        f.flush(),
        after.compact(),
        f.compact(),
        after.sync().map(drop),
        after.checkpoint("/copy"),
        after.verify().map(drop),
        after.family("default").map(drop),
        after.create_family("x", FamilyOptions::default()).map(drop),
        after.family_or_create("x", FamilyOptions::default()).map(drop),
        after.drop_family("x"),
        after.rename_family("x", "y"),
        after.clone_family("default", "y").map(drop),
    ];
    for (i, call) in calls.into_iter().enumerate() {
        assert!(matches!(call, Err(Error::Closed)), "call {i}: {call:?}");
    }
    let _ = (after.stats().to_string(), f.stats(), after.families(), after.recovery_report().to_string());
    assert_eq!(batch.len(), 1, "the batch is kept");
    after.close().unwrap();
}

#[test]
fn handles_of_a_closed_database_do_not_affect_the_next_one() {
    let sim = Sim::new();
    let db = sim.open();
    let old = db.clone();
    db.close().unwrap();
    let db = sim.open();
    assert!(old.put(b"k", b"v").is_err());
    drop(old);
    db.put(b"k", b"v").unwrap();
    assert!(matches!(sim.options().open(), Err(Error::Locked { .. })), "the new database holds the lock");
}

#[test]
fn iterators_outlive_the_close() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 300, &[1; 700]);
    db.flush().unwrap();
    fill(db.default_family(), 400, b"memtable");
    let mut iter = db.iter().unwrap();
    iter.next().unwrap().unwrap();
    db.close().unwrap();
    let reopened = sim.open();
    reopened.compact().unwrap();
    // Its files may be deleted by now: an error is allowed, a panic or a wrong value is not.
    for kv in iter {
        match kv {
            Ok((_, v)) => assert_eq!(v, b"memtable"),
            Err(e) => assert!(!e.is_corruption(), "{e}"),
        }
    }
}

#[test]
fn a_clean_close_leaves_no_log() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 3000, &[1; 100]);
    db.close().unwrap();
    let left = sim.disk.file_names("/db").unwrap();
    assert!(!left.iter().any(|n| n.contains(".wal")), "{left:?}");
    assert_eq!(contents(sim.open().default_family()).len(), 3000);
}

#[test]
fn a_close_that_fails_loses_nothing() {
    for kind in [OpSet::SYNCS, OpSet::WRITES] {
        let sim = Sim::new();
        let db = sim.open();
        fill(db.default_family(), 100, b"v");
        sim.disk.inject(Fault::errno(errno::EIO).on(kind).forever());
        assert!(db.close().is_err());
        sim.disk.clear_faults();
        assert_eq!(contents(sim.open().default_family()).len(), 100);
    }
}

#[test]
fn two_threads_close_at_once() {
    let sim = Sim::new();
    let db = sim.options().background_threads(2).open().unwrap();
    fill(db.default_family(), 500, &[1; 100]);
    std::thread::scope(|s| {
        for _ in 0..4 {
            let db = db.clone();
            s.spawn(move || db.close().unwrap());
        }
    });
    drop(db);
    assert!(sim.open().recovery_report().clean);
}

/// A close waits for a merge that several threads carry out, and loses nothing.
/// Number of tables that installed merges wrote, from the event log.
fn written_by_merges(sim: &Sim) -> usize {
    let events = String::from_utf8(sim.disk.read_file("/db/EVENTS").unwrap()).unwrap();
    let merges = events.lines().filter(|line| line.contains("\"event\":\"merge\""));
    let outputs = |line: &str| line.split_once("\"outputs\":")?.1.split(',').next()?.parse::<usize>().ok();
    merges.map(|line| outputs(line).unwrap_or_else(|| panic!("{line}"))).sum()
}

#[test]
fn a_close_during_a_divided_merge_loses_nothing() {
    for round in 0..15u64 {
        let sim = Sim::new();
        let family = small().l1_tables_trigger(1000).table_bytes(16 << 10);
        let db = sim.options().sync(SyncMode::None).background_threads(4).default_family(family);
        let db = db.open().unwrap();
        for n in 0..3 {
            fill(db.default_family(), 3000, &[n; 100]);
            db.flush().unwrap();
        }
        let before = contents(db.default_family());
        std::thread::scope(|s| {
            let merging = s.spawn(|| db.compact());
            std::thread::sleep(Duration::from_millis(round));
            db.clone().close().unwrap();
            let merged = merging.join().unwrap();
            assert!(matches!(merged, Ok(()) | Err(Error::Closed)), "{merged:?}");
        });
        drop(db);
        let db = sim.open();
        assert_eq!(contents(db.default_family()), before);
        assert!(db.verify().unwrap().is_ok());
        // Inputs may be left: a view that a thread, perhaps of another test, still holds keeps them beyond the close. These are the three
        // flushed tables and what installed merges wrote.
        let mut unnamed = sim.disk.file_names("/db").unwrap();
        unnamed.retain(|name| name.ends_with(".orphan") && name.as_str() >= "000004");
        let installed = written_by_merges(&sim);
        assert!(
            unnamed.len() <= installed,
            "outputs, neither installed nor removed: {unnamed:?}; merges installed {installed}"
        );
    }
}

/// A commit that returned before or during a close is there after the next open.
#[test]
fn a_close_during_writes_loses_no_acknowledged_commit() {
    for round in 0..40u32 {
        let sim = Sim::new();
        let mode = if round % 2 == 0 { SyncMode::None } else { SyncMode::Full };
        let db = sim.options().sync(mode).background_threads(1).default_family(small()).open().unwrap();
        let begun = AtomicBool::new(false);
        let acknowledged: Vec<u32> = std::thread::scope(|s| {
            let write = |thread: u32| {
                let (db, begun) = (db.clone(), &begun);
                move || {
                    let mut n = 0;
                    while db.put(&(thread << 24 | n).to_be_bytes(), b"v").is_ok() {
                        n += 1;
                        begun.store(n > 50, SeqCst);
                    }
                    n
                }
            };
            let writers: Vec<_> = (0..3).map(|t| s.spawn(write(t))).collect();
            while !begun.load(SeqCst) {
                std::thread::yield_now();
            }
            db.clone().close().unwrap();
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        drop(db);
        let db = sim.open();
        for (thread, n) in (0u32..).zip(acknowledged) {
            for i in 0..n {
                let there = db.contains(&(thread << 24 | i).to_be_bytes()).unwrap();
                assert!(
                    there,
                    "round {round}, {mode:?}: {i} of {n} of thread {thread} was acknowledged and is lost"
                );
            }
        }
    }
}

/// A close finishes every commit that has begun to be written and refuses the others: no writer is left in doubt. Every tenth close
/// is one of a database on a real disk.
#[test]
fn a_close_beside_64_writers_leaves_no_commit_unknown() {
    const MODES: [SyncMode; 3] =
        [SyncMode::None, SyncMode::Full, SyncMode::Interval(Duration::from_millis(1))];
    let mut total = 0;
    for round in 0..100u32 {
        let (sim, dir) = (Sim::new(), tempfile::tempdir().unwrap());
        let options = || match round % 10 {
            9 => Db::options(dir.path()).default_family(small()),
            _ => sim.options(),
        };
        let mode = MODES[round as usize % 3];
        let db = options().sync(mode).background_threads(1 + round as usize % 2).open().unwrap();
        let (begun, start) = (AtomicU32::new(0), std::sync::Barrier::new(65));
        let acknowledged: u32 = std::thread::scope(|s| {
            let write = |thread: u32| {
                let (db, begun, start) = (db.clone(), &begun, &start);
                move || {
                    start.wait();
                    for n in 0.. {
                        let key = (thread << 24 | n).to_be_bytes();
                        let done = match n % 4 {
                            3 => db.transact(|tx| tx.put(db.default_family(), key, b"v")),
                            _ => db.put(key, b"v").map(drop),
                        };
                        match done {
                            Ok(()) => begun.fetch_add(1, SeqCst),
                            Err(Error::Closed) => return n,
                            Err(e) => panic!("round {round}, {mode:?}: {e}"),
                        };
                    }
                    0
                }
            };
            let writers: Vec<_> = (0..64).map(|t| s.spawn(write(t))).collect();
            start.wait();
            while begun.load(SeqCst) < round * 4 {
                std::thread::yield_now();
            }
            db.clone().close().unwrap();
            writers.into_iter().map(|w| w.join().unwrap()).sum()
        });
        drop(db);
        let db = options().open().unwrap();
        assert!(db.recovery_report().clean);
        let kept = contents(db.default_family()).len() as u32;
        assert_eq!(kept, acknowledged, "round {round}: acknowledged commits, and no others");
        total += acknowledged;
    }
    println!("100 closes beside 64 writers each: {total} commits acknowledged and kept, 0 unknown");
}

/// A close that fails gives the directory back, too: a commit that returned after it would be lost.
#[test]
fn a_close_that_fails_during_writes_loses_no_acknowledged_commit() {
    let mut failed = 0;
    for round in 0..30u64 {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).background_threads(1).open().unwrap();
        db.put(b"first", b"v").unwrap();
        let begun = AtomicU32::new(0);
        std::thread::scope(|s| {
            let write = |thread: u64| {
                let (db, begun) = (db.clone(), &begun);
                move || {
                    let value = noise(thread + 1, 300_000);
                    let put = |n: &u64| db.put((thread << 24 | n).to_be_bytes(), &value).is_ok();
                    let counted = |n: &u64| put(n) && begun.fetch_add(1, SeqCst) < u32::MAX;
                    (0..).take_while(counted).count() as u64
                }
            };
            let writers: Vec<_> = (0..3).map(|t| s.spawn(write(t))).collect();
            while begun.load(SeqCst) < 6 {
                std::thread::yield_now();
            }
            let is_table = |path: &str| path.ends_with(".klog");
            sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::WRITES).path_if(is_table).forever());
            failed += u32::from(db.clone().close().is_err()); // all may be in tables by chance
            sim.disk.clear_faults();
            let again = sim.open();
            for (thread, writer) in (0u64..).zip(writers) {
                for n in 0..writer.join().unwrap() {
                    let there = again.contains((thread << 24 | n).to_be_bytes()).unwrap();
                    assert!(there, "round {round}: {n} of thread {thread} was acknowledged and is lost");
                }
            }
        });
    }
    assert!(failed > 10, "{failed} of 30 closes failed");
}

/// Each call returns after the database is closed, not while another thread still closes it.
#[test]
fn a_second_close_waits_for_the_first() {
    for _ in 0..20 {
        let sim = Sim::new();
        let db = sim.options().background_threads(1).open().unwrap();
        fill(db.default_family(), 2000, &[1; 100]);
        std::thread::scope(|s| {
            for _ in 0..2 {
                let (db, sim) = (db.clone(), &sim);
                s.spawn(move || {
                    db.close().unwrap();
                    assert!(sim.killed().open().recovery_report().clean);
                });
            }
        });
    }
}

/// A commit during the close is completely there or not at all, in all its families.
#[test]
fn a_commit_during_the_close_is_complete_or_absent() {
    for round in 0..8 {
        let sim = Sim::new();
        let options = || sim.options().sync(SyncMode::None).background_threads(2);
        let db = options().open().unwrap();
        let families = ["a", "b"].map(|name| db.create_family(name, small()).unwrap());
        std::thread::scope(|s| {
            for thread in 0..3 {
                let (db, [a, b]) = (db.clone(), families.clone());
                s.spawn(move || {
                    let writes = (0..).map(|i| put_twice(&db, [&a, &b], thread, i));
                    writes.take_while(|done| done.is_ok()).count()
                });
            }
            std::thread::sleep(Duration::from_millis(round));
            db.clone().close().unwrap();
        });
        drop((db, families));
        let db = options().open().unwrap();
        let [a, b] = ["a", "b"].map(|name| contents(&db.family(name).unwrap()));
        assert!(a == b, "round {round}: {} and {} keys, or other values", a.len(), b.len());
    }
}

/// A commit that raced with a close could still append to value logs, or start one, in a directory that another process may
/// already have locked.
#[test]
fn after_a_close_no_file_changes() {
    let listing = |dir: &std::path::Path| -> Vec<(String, u64)> {
        let files = std::fs::read_dir(dir).unwrap().flatten();
        let mut all: Vec<_> = files
            .map(|f| (f.file_name().to_string_lossy().into_owned(), f.metadata().map_or(0, |m| m.len())))
            .collect();
        all.sort();
        all
    };
    for _ in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let mut options = small().value_threshold(100);
        options.vlog_file_bytes = 16 << 10;
        let db = Db::options(dir.path()).sync(SyncMode::None).default_family(options).open().unwrap();
        std::thread::scope(|scope| {
            for n in 0..3u8 {
                let db = db.clone();
                scope.spawn(move || while db.put(&[n], &noise(u64::from(n), 9000)).is_ok() {});
            }
            std::thread::sleep(Duration::from_millis(3));
            db.clone().close().unwrap();
            let closed = listing(dir.path());
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(listing(dir.path()), closed);
        });
    }
}

#[test]
fn a_close_does_not_wait_for_the_rate_of_merges() {
    let dir = tempfile::tempdir().unwrap();
    let options = small().l1_tables_trigger(1);
    let db = Db::options(dir.path()).default_family(options).background_threads(2).open().unwrap();
    db.set_compaction_rate(1);
    for n in 0..3u64 {
        db.put(b"k", noise(n, 100)).unwrap();
        db.flush().unwrap();
    }
    while db.stats().jobs.iter().all(|job| job.kind == "flush") {
        std::thread::yield_now();
    }
    let (tell, told) = std::sync::mpsc::channel();
    let close = Box::new(move || tell.send(db.close()).unwrap());
    RealThreads::new().spawn("close", Priority::Normal, close).unwrap();
    told.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
}

/// A disk or a merge operator may own the last handle. It is dropped when memory is freed, which can be under a lock. The close used to
/// begin there.
#[test]
fn the_last_handle_may_be_dropped_under_a_lock() {
    struct Owned(Option<Db>, std::sync::Arc<AtomicBool>);
    impl Drop for Owned {
        fn drop(&mut self) {
            self.0 = None;
            self.1.store(true, SeqCst);
        }
    }
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    let dropped = std::sync::Arc::new(AtomicBool::new(false));
    let owned = Owned(Some(db), std::sync::Arc::clone(&dropped));
    let highest: tidesdb_sync::Mutex<()> = tidesdb_sync::Mutex::new(());
    {
        let _held = highest.lock();
        tidesdb_sync::pin().defer(move || drop(owned));
        // Pins of other tests delay it.
        let gone = (0..30_000).any(|_| {
            tidesdb_sync::reclaim();
            std::thread::sleep(Duration::from_millis(1));
            dropped.load(SeqCst)
        });
        assert!(gone, "the handle was not dropped");
    }
    let db = (0..3000).find_map(|_| match sim.options().open() {
        Err(Error::Locked { .. }) => {
            std::thread::sleep(Duration::from_millis(10));
            None
        }
        opened => Some(opened.unwrap()),
    });
    let db = db.expect("the database was not closed");
    assert!(db.recovery_report().clean);
    assert_eq!(contents(db.default_family()).len(), 100);
}

/// A sync that comes too late does not disturb the close.
#[test]
fn a_close_beside_syncs_is_clean() {
    for round in 0..300u32 {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).background_threads(1).open().unwrap();
        let begun = AtomicU32::new(0);
        std::thread::scope(|s| {
            for thread in 0..3u32 {
                let (db, begun) = (db.clone(), &begun);
                s.spawn(move || {
                    let put_and_sync =
                        |n: u32| db.put((thread << 24 | n).to_be_bytes(), b"v").and_then(|_| db.sync());
                    for n in 0.. {
                        match put_and_sync(n) {
                            Ok(_) => begun.fetch_add(1, SeqCst),
                            Err(Error::Closed) => return,
                            Err(e) => panic!("round {round}: {e}"),
                        };
                    }
                });
            }
            while begun.load(SeqCst) < round % 30 {
                std::thread::yield_now();
            }
            db.clone().close().unwrap();
        });
        assert!(sim.killed().open().recovery_report().clean);
    }
}

#[test]
fn a_close_does_not_wait_for_all_merges_of_a_collection() {
    let sim = Sim::new();
    let quiet = small()
        .vlog_file_bytes(16 << 10)
        .table_bytes(4 << 10)
        .l1_tables_trigger(1000)
        .level_size_ratio(2)
        .min_levels(3)
        .value_garbage_percent(0);
    let db = sim.options().default_family(quiet.clone()).background_threads(1).open().unwrap();
    let f = db.default_family().clone();
    fill(&f, 3000, &noise(1, 600));
    f.compact().unwrap();
    let _reader = db.snapshot(); // keeps the idle database from merging by itself
    fill(&f, 3000, &noise(2, 600));
    f.flush().unwrap();
    db.set_compaction_rate(400);
    let before = f.stats().compactions;
    f.change_options_until_close(quiet.value_garbage_percent(1)).unwrap();
    while f.stats().compactions <= before {
        std::thread::yield_now();
    }
    let begun = f.stats().compactions;
    db.close().unwrap();
    assert!(
        f.stats().compactions <= begun + 2,
        "{begun} of {} merges before the close",
        f.stats().compactions
    );
}

/// A merge that writes more than was expected does not go on in a directory that another process may have locked.
#[test]
fn a_close_waits_for_a_merge_that_takes_more_space_than_it_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let tables = || -> Vec<(std::ffi::OsString, u64)> {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap());
        let all = files.map(|f| (f.file_name(), f.metadata().map_or(0, |m| m.len())));
        let mut tables: Vec<_> = all.filter(|(name, _)| name.to_string_lossy().ends_with(".klog")).collect();
        tables.sort();
        tables
    };
    let db = Db::options(dir.path()).sync(SyncMode::None).background_threads(1).open().unwrap();
    let f = db.default_family().clone();
    fill(&f, 60_000, &[0; 400]);
    f.flush().unwrap();
    let expected = 2 * tables()[0].1;
    f.change_options_until_close(f.current_options().compression(Compression::None)).unwrap();
    std::thread::scope(|s| {
        let merge = s.spawn(|| f.compact());
        while tables().iter().all(|(_, bytes)| *bytes < expected) && !merge.is_finished() {
            std::thread::yield_now();
        }
        db.close().unwrap();
        let before = tables();
        let _ = merge.join().unwrap();
        assert_eq!(tables(), before);
    });
}
