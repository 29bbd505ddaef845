//! Several databases with the same [`Resources`]: one limit, one cache, one set of threads, and failures that stay where they are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tidesdb::{Db, Error, FamilyOptions, Isolation, OpenOptions, Resources, SyncMode};
use tidesdb_io::Env;
use tidesdb_io::sim::{Body, Fault, OpKind, Starts, errno};

use crate::common::{Sim, noise};

/// A disk of its own, with the clock of the system.
fn machine() -> (Sim, Env) {
    let sim = Sim::new();
    let env = Env { clock: Env::real().clock, ..sim.env.clone() };
    (sim, env)
}

/// Settings with memtables of 64 KiB.
fn options(env: &Env, path: &str, resources: &Resources) -> OpenOptions {
    let family = FamilyOptions::default().write_buffer_bytes(64 << 10).l1_tables_trigger(2);
    Db::options(path).env(env.clone()).sync(SyncMode::None).resources(resources).default_family(family).with(
        |o| {
            o.wal_segment_bytes = 64 << 10;
            o.disk_free_min = 0;
        },
    )
}

fn resources() -> Resources {
    Resources::builder().memory_limit(32 << 20).cache_bytes(1 << 20).background_threads(4).build().unwrap()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Waits at most a minute.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `work` in a thread of its own, which may hang, and fails if that takes a minute.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    is_done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} does not end"))
}

/// The tables of these databases have the same numbers, and their blocks the same places in the cache.
#[test]
fn databases_that_share_a_cache_do_not_see_blocks_of_each_other() {
    let (_sim, env) = machine();
    let resources = resources();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let all: Vec<Db> = (0..4).map(open).collect();
    for (n, db) in all.iter().enumerate() {
        for k in 0..500 {
            db.put(key(k), [n as u8; 64]).unwrap();
        }
        db.compact().unwrap();
    }
    for _ in 0..2 {
        for k in 0..500 {
            for (n, db) in all.iter().enumerate() {
                assert_eq!(
                    db.get(key(k)).unwrap().as_deref(),
                    Some(&[n as u8; 64][..]),
                    "database {n}, key {k}"
                );
            }
        }
    }
    let stats = all[0].stats();
    assert!(stats.cache_hits > 1000 && resources.cache_used() > 10_000, "{} hits", stats.cache_hits);
    all.into_iter().for_each(|db| db.close().unwrap());
    // The next one gets the number of one that is gone.
    let db = options(&env, "/other", &resources).open().unwrap();
    for k in 0..500 {
        db.put(key(k), [9; 64]).unwrap();
    }
    db.compact().unwrap();
    (0..500).for_each(|k| assert_eq!(db.get(key(k)).unwrap().as_deref(), Some(&[9; 64][..]), "key {k}"));
}

#[test]
fn the_limit_is_that_of_all_together() {
    let (_sim, env) = machine();
    let resources = resources();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let all: Vec<Db> = (0..30).map(open).collect();
    assert_eq!((resources.databases(), resources.memory_limit()), (30, 32 << 20));
    let value = noise(1, 4000);
    let mut most = 0;
    for round in 0..80 {
        for db in &all {
            for k in 0..4 {
                db.put(key(round * 4 + k), &value).unwrap();
            }
        }
        most = most.max(resources.memory_used());
    }
    assert!(most > 4 << 20 && most <= 32 << 20, "{most} bytes of 32 MiB");
    for db in &all {
        assert_eq!((db.memory_limit(), db.iter().unwrap().count()), (32 << 20, 320));
    }
    let sum: u64 = all.iter().map(|db| db.stats().memory_memtables_bytes).sum();
    assert!(sum <= resources.memory_used(), "{sum} bytes of memtables");
    drop(all);
    assert_eq!(resources.databases(), 0);
    eventually("what closed databases took", || resources.memory_used() < 5 << 20);
}

/// Threads of the system, counted while they live.
fn counted(env: &Env) -> (Env, Arc<AtomicUsize>) {
    let alive: Arc<AtomicUsize> = Arc::default();
    let counter = Arc::clone(&alive);
    let count = move |_: &str, body: Body| -> std::io::Result<Body> {
        let counter = Arc::clone(&counter);
        counter.fetch_add(1, SeqCst);
        Ok(Box::new(move || {
            body();
            counter.fetch_sub(1, SeqCst);
        }))
    };
    (Starts::of(env).on_start(count).env(), alive)
}

#[test]
fn the_number_of_threads_does_not_grow_with_that_of_databases() {
    let (_sim, env) = machine();
    let (env, alive) = counted(&env);
    let resources =
        Resources::builder().memory_limit(64 << 20).background_threads(4).env(env.clone()).build().unwrap();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let all: Vec<Db> = (0..50).map(open).collect();
    assert_eq!(alive.load(SeqCst), resources.threads());
    for round in 0..4 {
        for db in &all {
            for k in 0..30 {
                db.put(key(round * 30 + k), noise(k, 1000)).unwrap();
            }
            db.flush().unwrap();
        }
    }
    eventually("merges", || all.iter().all(|db| db.stats().jobs_pending == 0));
    // Two that flush, three that merge, two each that keep the time, prepare logs, remove files and publish figures. More stand by where a
    // round takes long, as on a machine with other work. With threads of their own they would be 450.
    let threads = resources.threads();
    assert!((5..50).contains(&threads), "{threads} threads");
    drop(resources);
    assert_eq!(
        all[7].get(key(7)).unwrap().as_deref(),
        Some(&noise(7, 1000)[..]),
        "a database keeps its resources"
    );
    all[7].put("key", "value").unwrap();
    all[7].flush().unwrap();
    assert_eq!(alive.load(SeqCst), threads);
    drop(all);
    assert_eq!(alive.load(SeqCst), 0, "they end with the last database");
}

#[test]
fn one_that_closes_ends_its_own_jobs_only() {
    let (_sim, env) = machine();
    let resources = resources();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let (stays, stop) = (open(0), Arc::new(AtomicBool::new(false)));
    let (writer, stops) = (stays.clone(), Arc::clone(&stop));
    let writes = std::thread::spawn(move || {
        let mut n = 0;
        while !stops.load(SeqCst) {
            writer.put(key(n), noise(n, 500)).unwrap();
            n += 1;
        }
        n
    });
    for round in 0..20 {
        let db = open(1 + round % 3);
        for k in 0..200 {
            db.put(key(k), noise(round, 500)).unwrap();
        }
        let other = db.clone();
        db.close().unwrap();
        assert!(matches!(other.put("key", "value"), Err(Error::Closed)));
    }
    stop.store(true, SeqCst);
    let written = writes.join().unwrap();
    let flushes = stays.stats().families.iter().map(|family| family.flushes).sum::<u64>();
    assert!(flushes > 0 && stays.health().causes.is_empty(), "{flushes} flushes: {:?}", stays.health());
    assert_eq!(stays.iter().unwrap().count() as u64, written);
    stays.close().unwrap();
}

/// One is poisoned, one has a full disk, and in one each write of a table hangs. The others go on: they flush and merge.
#[test]
fn a_failing_disk_is_a_matter_of_its_database() {
    let machines: Vec<(Sim, Env)> = (0..4).map(|_| machine()).collect();
    let resources = resources();
    let open = |n: usize| options(&machines[n].1, "/db", &resources).open().unwrap();
    let [poisoned, full, stuck] = [0, 1, 2].map(open);
    let interval = SyncMode::Interval(Duration::from_millis(5));
    let well = options(&machines[3].1, "/db", &resources).sync(interval).open().unwrap();
    machines[0].0.disk.inject(Fault::errno(errno::EIO).on(OpKind::SyncData).forever());
    machines[1].0.disk.inject(Fault::errno(errno::ENOSPC).on(OpKind::Create).path_ends(".klog").forever());
    let (is_stuck, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (told, until) = (Arc::clone(&is_stuck), Arc::clone(&goes_on));
    let hangs = move |path: &str| {
        while (path.ends_with(".klog") || path.contains("wal")) && !until.load(SeqCst) {
            told.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let hangs_at_sync = hangs.clone();
    machines[2].0.disk.before_calls(OpKind::Write.into(), move |path| {
        if path.ends_with(".klog") {
            hangs(path);
        }
    });
    machines[2].0.disk.before_syncs(hangs_at_sync);
    let write = |db: &Db| (0..400).try_for_each(|k| db.put(key(k), noise(k, 500)).map(drop));
    let stuck_writer = stuck.clone();
    let writes = std::thread::spawn(move || write(&stuck_writer)); // it waits for the log
    for db in [&poisoned, &full] {
        let _ = write(db); // it fails in the end
    }
    let _ = poisoned.sync();
    eventually("the stuck write", || is_stuck.load(SeqCst));
    eventually("the full disk", || !full.health().causes.is_empty());
    assert!(poisoned.health().first_failure.is_some(), "{:?}", poisoned.health());
    let db = well.clone();
    soon("work of the database that is well", move || {
        for round in 0..4 {
            for k in 0..300 {
                db.put(key(k), noise(round, 500)).unwrap();
            }
            db.flush().unwrap();
        }
        db.compact().unwrap();
    });
    assert!(well.health().causes.is_empty(), "{:?}", well.health());
    // Somebody keeps the time, although its last round for the stuck database has not ended.
    let seq = well.put("key", "value").unwrap();
    eventually("the sync of an interval", || well.stats().durable_end > seq);
    soon("a close of the database that is well", move || well.close()).unwrap();
    assert!(poisoned.close().is_err());
    goes_on.store(true, SeqCst);
    writes.join().unwrap().unwrap();
    soon("the close of the one that was stuck", move || stuck.close()).unwrap();
    drop(full);
}

/// Merges that may write next to nothing hold their threads for hours. A flush has other threads, and so has a merge of another database.
#[test]
fn merges_of_one_delay_neither_flushes_nor_merges_of_another() {
    let (_sim, env) = machine();
    let resources = resources();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let (busy, other) = (open(0), open(1));
    busy.set_compaction_rate(1000);
    for round in 0..6 {
        for k in 0..200 {
            busy.put(key(k * 7 + round), noise(k, 400)).unwrap();
        }
        busy.flush().unwrap();
    }
    eventually("slow merges", || busy.stats().jobs.iter().any(|job| job.kind != "flush"));
    soon("flushes and merges of another", move || {
        for round in 0..4 {
            for k in 0..200 {
                other.put(key(k), noise(round, 400)).unwrap();
            }
            other.flush().unwrap();
        }
        other.compact().unwrap();
        other.close().unwrap();
    });
    soon("a close, which lifts the rate", move || busy.close()).unwrap();
}

#[test]
fn the_rate_of_merges_is_that_of_all_together() {
    let (_sim, env) = machine();
    let rate = 200_000;
    let resources =
        Resources::builder().memory_limit(32 << 20).compaction_bytes_per_second(rate).build().unwrap();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let all: Vec<Db> = (0..3).map(open).collect();
    for db in &all {
        for k in 0..600 {
            db.put(key(k), noise(k, 200)).unwrap();
        }
        db.flush().unwrap();
    }
    let begun = Instant::now();
    std::thread::scope(|s| {
        all.iter().for_each(|db| {
            s.spawn(|| db.compact().unwrap());
        });
    });
    // 360 KB of values that do not compress, in three databases.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(1), "{took:?}");
    resources.set_compaction_rate(0);
    let begun = Instant::now();
    for db in &all {
        for k in 0..600 {
            db.put(key(k), noise(k + 1, 200)).unwrap();
        }
        db.compact().unwrap();
    }
    assert!(begun.elapsed() < took * 20, "without a limit");
}

/// One that writes as fast as it can takes the memory to its limit. Writers of the others, which take little, are not slowed down.
#[test]
fn a_hot_database_leaves_the_others_their_part() {
    let (_sim, env) = machine();
    let resources = Resources::builder().memory_limit(16 << 20).cache_bytes(1 << 20).build().unwrap();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let (hot, quiet): (Db, Vec<Db>) = (open(0), (1..8).map(open).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let (writer, stops) = (hot.clone(), Arc::clone(&stop));
    let writes = std::thread::spawn(move || {
        let value = noise(3, 100_000);
        let mut n = 0;
        while !stops.load(SeqCst) {
            match writer.put(key(n % 200), &value) {
                Ok(_) | Err(Error::Busy { .. }) => n += 1,
                Err(e) => panic!("{e}"),
            }
        }
    });
    for round in 0..100 {
        for db in &quiet {
            db.put(key(round), noise(round, 100)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(resources.memory_used() <= 20 << 20, "{} bytes", resources.memory_used());
    }
    stop.store(true, SeqCst);
    writes.join().unwrap();
    for db in &quiet {
        let stats = db.stats();
        let waited = stats.stalled_by(tidesdb::StallCause::Memory);
        assert_eq!((waited.slowed, waited.stopped), (0, 0), "a quiet database waited for memory");
        assert_eq!(db.iter().unwrap().count(), 100);
    }
}

/// Transactions and iterators that are left open take memory from which nothing can be won back, so much that writers of their database
/// would stop. Those of another one go on.
#[test]
fn one_that_takes_little_does_not_wait_for_another() {
    let (_sim, env) = machine();
    let resources = Resources::builder().memory_limit(32 << 20).cache_bytes(1 << 20).build().unwrap();
    let open = |n: u64| options(&env, &format!("/db{n}"), &resources).open().unwrap();
    let (hot, quiet) = (open(0), open(1));
    let rows = hot.default_family();
    let most = resources.memory_limit();
    let held = hot.create_family("held", FamilyOptions::default().write_buffer_bytes(8 << 20)).unwrap();
    (0..3500).for_each(|n| assert!(held.put(key(n), [1; 300]).is_ok()));
    let mut iterators = vec![held.iter().unwrap()]; // keeps the memtable
    let mut transactions: Vec<_> = (0..60).map(|_| hot.begin(Isolation::Snapshot)).collect();
    for txn in &mut transactions {
        for n in 0..5_000 {
            txn.put(rows, key(n), [0; 8]).unwrap();
        }
    }
    for txn in &transactions {
        let _ = txn.iter(rows); // sorts what was written, as long as that is admitted
    }
    while resources.memory_used() < most / 1000 * 955 {
        iterators.push(hot.iter().unwrap());
    }
    for n in 0..50 {
        quiet.put(key(n), [1; 8]).unwrap();
    }
    assert!((most / 100 * 95..most).contains(&resources.memory_used()), "{} bytes", resources.memory_used());
    let waited = quiet.stats();
    let waited = waited.stalled_by(tidesdb::StallCause::Memory);
    assert_eq!((waited.slowed, waited.stopped), (0, 0));
    drop((transactions, iterators));
    eventually("memory", || resources.memory_used() < most / 2);
}

#[test]
fn opens_and_closes_leave_nothing() {
    let (_sim, env) = machine();
    let resources = resources();
    for n in 0..2000 {
        let db = options(&env, &format!("/db{}", n % 7), &resources).open().unwrap();
        if n % 10 == 0 {
            db.put(key(n), [1; 100]).unwrap();
        }
        db.close().unwrap();
    }
    assert_eq!(resources.databases(), 0);
    eventually("memory of closed databases", || resources.memory_used() < 5 << 20);
    assert!(resources.threads() < 20);
}

#[test]
fn settings_out_of_their_domain_are_refused() {
    assert!(matches!(
        Resources::builder().background_threads(257).build(),
        Err(Error::InvalidArgument { .. })
    ));
    let least = Resources::builder()
        .memory_limit(1)
        .cache_bytes(u64::MAX)
        .background_threads(0)
        .descriptors(0)
        .build()
        .unwrap();
    assert_eq!(least.memory_limit(), 16 << 20);
    let (_sim, env) = machine();
    let db = options(&env, "/db", &least).open().unwrap();
    for k in 0..2000 {
        db.put(key(k), noise(k, 300)).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.iter().unwrap().count(), 2000);
    let most =
        Resources::builder().memory_limit(u64::MAX).compaction_bytes_per_second(u64::MAX).build().unwrap();
    let db = options(&env, "/most", &most).open().unwrap();
    for k in 0..2000 {
        db.put(key(k), noise(k, 300)).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.iter().unwrap().count(), 2000);
}
