//! Ticks driven by hand, on a simulated disk whose power fails.

use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::sim::{self, Image, SimDisk};
use tidesdb_io::{Clock as _, Env, ManualClock, Priority};

use super::Ticks;
use crate::family::Sweep;
use crate::jobs::Job;
use crate::options::{Isolation, SyncMode, WriteOptions};
use crate::types::TableId;
use crate::wal::Purpose;
use crate::{Db, Error, Family, OpenOptions, WriteBatch};

const SEED: u64 = 7;

struct Machine {
    disk: Arc<SimDisk>,
    clock: Arc<ManualClock>,
    db: Db,
    ticks: Ticks,
}

fn options(env: Env) -> OpenOptions {
    Db::options("/db").env(env).background_threads(0).with(|o| {
        o.wal_segment_bytes = 64 << 10;
        o.disk_free_min = 0;
    })
}

impl Machine {
    fn new(mode: SyncMode) -> Self {
        let (env, disk, clock) = sim::env_on(SimDisk::new(SEED), SEED);
        let db = options(env).sync(mode).open().unwrap();
        Self { disk, clock, db, ticks: Ticks::default() }
    }

    /// A machine for tests of minutes, whose disk keeps no list of calls.
    fn resting(set: impl FnOnce(&mut crate::DbOptions)) -> Self {
        let (env, disk, clock) = sim::env_on(SimDisk::new(SEED), SEED);
        disk.log_ops(false);
        let db = options(env).with(set).open().unwrap();
        Self { disk, clock, db, ticks: Ticks::default() }
    }

    fn put(&self, key: &[u8], mode: SyncMode) {
        let mut batch = WriteBatch::new();
        batch.put(self.db.default_family(), key, &[7; 2000]).unwrap();
        self.db.write_with(&mut batch, &WriteOptions::default().sync(mode)).unwrap();
    }

    /// Advances the clock tick by tick.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.clock.advance(Duration::from_millis(10));
            self.ticks.tick(&self.db.inner.engine);
        }
    }

    /// Lets time pass, and does what becomes due each second. Returns the number of entries in the tables of the default family.
    fn rest(&mut self, seconds: u64) -> u64 {
        for _ in 0..seconds {
            self.pass(1000);
            super::run_queued(&self.db.inner.engine).unwrap();
        }
        self.db.default_family().stats().table_entries
    }

    /// Number of commits that a power failure would leave.
    fn durable(&self) -> usize {
        let (env, ..) = sim::env_on(self.disk.crash_image(&Image::SYNCED, SEED), SEED);
        options(env).open().unwrap().iter().unwrap().count()
    }
}

const SECOND: SyncMode = SyncMode::Interval(Duration::from_secs(1));

#[test]
fn a_commit_is_durable_after_its_interval_but_not_before() {
    let mut m = Machine::new(SyncMode::None);
    m.pass(500);
    m.put(b"none", SyncMode::None);
    m.put(b"a", SECOND);
    m.pass(600);
    m.put(b"later", SECOND);
    m.pass(390);
    assert_eq!(m.durable(), 0);
    m.pass(20);
    assert_eq!(m.durable(), 3, "with all earlier commits");
    m.put(b"none again", SyncMode::None);
    m.pass(5000);
    assert_eq!(m.durable(), 3, "no commit asked for another sync");
    m.put(b"b", SECOND);
    m.pass(980);
    assert_eq!(m.durable(), 3);
    m.pass(30);
    assert_eq!(m.durable(), 5);
}

#[test]
fn the_shortest_interval_counts() {
    let mut m = Machine::new(SECOND);
    m.db.put(b"as the database", b"v").unwrap();
    m.put(b"soon", SyncMode::Interval(Duration::from_millis(50)));
    m.db.put(b"as the database again", b"v").unwrap();
    m.pass(40);
    assert_eq!(m.durable(), 0);
    m.pass(20);
    assert_eq!(m.durable(), 3);
    // The deadlines of commits that were synced early are met without another sync.
    let syncs = m.db.stats().durable_end;
    m.pass(3000);
    assert_eq!(m.db.stats().durable_end, syncs);
    m.put(b"never, as good as", SyncMode::Interval(Duration::MAX));
    m.pass(3000);
    assert_eq!(m.durable(), 3);
}

#[test]
fn transactions_become_durable_after_their_interval() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let mut m = Machine::new(SyncMode::None);
        let mut tx = m.db.begin(isolation);
        tx.get(m.db.default_family(), b"k").unwrap();
        tx.put(m.db.default_family(), b"k", b"v").unwrap();
        tx.commit_with(&WriteOptions::default().sync(SECOND)).unwrap();
        m.pass(980);
        assert_eq!(m.durable(), 0);
        m.pass(30);
        assert_eq!(m.durable(), 1);
    }
}

/// A memtable was once counted as debt only after it had been added to the list of immutable memtables. A faster flush
/// or drop subtracted it first, and its bytes stayed: writers were delayed by memtables that no longer existed.
#[test]
fn the_debt_is_zero_after_all_memtables_are_flushed_or_dropped() {
    let memory = std::path::Path::new("/dev/shm"); // each round makes tables: syncs must be free
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let db = Db::options(dir.path()).sync(SyncMode::None).with(|o| o.disk_free_min = 0).open().unwrap();
    let waiting = |db: &Db| db.inner.engine.write.pacing.flush_debt();
    for round in 0..40 {
        let family = db.create_family("dropped", crate::FamilyOptions::default()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| while family.put(b"key", &[7; 300]).and_then(|_| family.start_flush()).is_ok() {});
            scope.spawn(|| db.drop_family("dropped").unwrap());
        });
        db.flush().unwrap();
        // A flush in the background may be about to subtract its bytes.
        let settles = || {
            std::thread::sleep(Duration::from_millis(2));
            waiting(&db) == 0
        };
        assert!((0..500).any(|_| settles()), "round {round}: {} bytes of debt are left", waiting(&db));
    }
}

/// A changed limit of garbage once counted only from the next flush or merge on, which slowed writers may reach late.
#[test]
fn writers_are_not_slowed_for_garbage_that_a_new_setting_allows() {
    let m = Machine::new(SyncMode::None);
    let family = m.db.default_family();
    m.db.cancel_compactions().unwrap(); // no garbage is collected
    let uncompressed = family.current_options().compression(crate::Compression::None).vlog_file_bytes(4096);
    let setting = |percent| uncompressed.clone().value_garbage_percent(percent);
    for change in [Family::change_options, Family::change_options_until_close] {
        change(family, setting(25)).unwrap();
        for _ in 0..8 {
            m.put(b"key", SyncMode::None);
            family.flush().unwrap();
        }
        assert!(family.core.garbage_fullness() > 0.0, "{}", family.core.garbage_fullness());
        change(family, setting(0)).unwrap();
        assert!(family.core.garbage_fullness() == 0.0, "{}", family.core.garbage_fullness());
        change(family, setting(25)).unwrap();
        assert!(family.core.garbage_fullness() > 0.0, "{}", family.core.garbage_fullness());
    }
}

#[test]
fn writers_are_not_slowed_for_garbage_that_cannot_be_collected() {
    let m = Machine::new(SyncMode::None);
    let family = m.db.default_family();
    let core = &family.core;
    m.db.cancel_compactions().unwrap();
    let uncompressed = family.current_options().compression(crate::Compression::None).vlog_file_bytes(4096);
    family.change_options_until_close(uncompressed).unwrap();
    for _ in 0..8 {
        m.put(b"key", SyncMode::None);
        family.flush().unwrap();
    }
    let is_slowed = || core.garbage_fullness() > 0.0;
    assert!(is_slowed());
    core.quarantine(&[TableId(1)], m.clock.mono());
    assert!(!is_slowed(), "a table is damaged");
    core.end_quarantine([TableId(1)]);
    core.collection.retry.failed(m.clock.mono(), Duration::MAX);
    assert!(!is_slowed(), "the last collection failed");
    core.collection.retry.succeeded();
    assert!(is_slowed());
}

/// A worker span while a family was dropped: each step did nothing, and asked for another one.
#[test]
fn a_collection_has_nothing_to_do_in_a_family_whose_drop_has_begun() {
    let m = Machine::new(SyncMode::None);
    let engine = &m.db.inner.engine;
    let steps = |name, is_dropped| {
        let options =
            crate::FamilyOptions::default().compression(crate::Compression::None).vlog_file_bytes(4096);
        let family = m.db.create_family(name, options).unwrap();
        family.core.collection.retry.failed(m.clock.mono(), Duration::MAX); // no job collects before
        for round in 0..3u8 {
            for key in 0..8u8 {
                family.put([key], [round; 2000]).unwrap();
            }
            family.flush().unwrap();
        }
        if is_dropped {
            family.core.set_dropped();
        }
        (0..100)
            .take_while(|_| super::collect::step(&engine.maintenance, &family.core, None).unwrap())
            .count()
    };
    let stays = steps("stays", false);
    assert!((1..100).contains(&stays), "there is garbage: {stays} steps");
    assert_eq!(steps("goes", true), 0);
}

/// A collection may take seconds to move values. Full value logs were not sealed meanwhile, so their garbage did not count.
#[test]
fn a_flush_seals_value_logs_without_the_collection() {
    let family = crate::FamilyOptions {
        vlog_file_bytes: 32 << 10,
        compression: crate::Compression::None,
        ..Default::default()
    };
    let (env, ..) = sim::env_on(SimDisk::new(SEED), SEED);
    let db = options(env).default_family(family).open().unwrap();
    let (family, engine) = (db.default_family(), &db.inner.engine);
    for _ in 0..4 {
        for key in 0..20u8 {
            db.put([key], [7; 2000]).unwrap();
        }
        engine.write.rotate(&family.core);
        super::run(engine, Job::Flush(family.core.id)).unwrap();
    }
    let version = Arc::clone(&family.core.owned_view().version);
    let sealed = version.vlogs().values().filter(|vlog| vlog.sealed_at.is_some()).count();
    assert!(sealed >= 2, "{sealed} of {} value logs are sealed", version.vlogs().len());
}

/// The timekeeper once waited for the tail of the log. One commit that took long to write then delayed every earlier
/// deadline, and the clock used for expiry.
#[test]
fn a_slow_commit_does_not_delay_earlier_deadlines() {
    let mut m = Machine::new(SyncMode::None);
    m.put(b"early", SECOND);
    let engine = Arc::clone(&m.db.inner.engine);
    let (done, seen) = std::sync::mpsc::channel();
    let _slow = engine.write.log.sequencer().reserve(4096, Purpose::Store).unwrap(); // never written
    let body = move || {
        m.pass(1100);
        let durable = m.durable();
        let before = m.db.inner.engine.reads.expiry_clock.seen();
        m.clock.set_wall(Duration::from_millis(before + 5000));
        m.pass(100);
        done.send((durable, m.db.inner.engine.reads.expiry_clock.seen() - before)).unwrap();
        m.db.inner.engine.write.log.sequencer().stop();
        m.db.abandon();
    };
    let ticker = Env::real().threads.spawn("ticker", Priority::Normal, Box::new(body)).unwrap();
    let answer = seen.recv_timeout(Duration::from_secs(20));
    assert_eq!(answer, Ok((1, 5000)), "the timekeeper waits for a commit");
    ticker.join();
}

/// Bytes of the value logs on disk.
fn value_log_bytes(disk: &SimDisk) -> u64 {
    let names = disk.file_names("/db").unwrap();
    let logs = names.iter().filter(|name| name.ends_with(".vlog"));
    logs.map(|name| disk.read_file(format!("/db/{name}")).unwrap().len() as u64).sum()
}

#[test]
fn an_idle_database_frees_the_space_of_dead_values_within_a_minute() {
    const FILE: u64 = 32 << 10;
    let family = crate::FamilyOptions {
        vlog_file_bytes: FILE,
        compression: crate::Compression::None,
        ..Default::default()
    };
    let (env, disk, clock) = sim::env_on(SimDisk::new(SEED), SEED);
    disk.log_ops(false);
    let db = options(env).default_family(family).open().unwrap();
    let mut m = Machine { disk, clock, db, ticks: Ticks::default() };
    let value = |i: u32, round: u32| [round.to_le_bytes(), i.to_le_bytes()].concat().repeat(250);
    for round in 0..10 {
        for i in 0..500u32 {
            m.db.put(&i.to_le_bytes(), &value(i, round)).unwrap();
        }
    }
    for i in (0..500u32).filter(|i| i % 10 != 0) {
        m.db.delete(&i.to_le_bytes()).unwrap();
    }
    assert!(value_log_bytes(&m.disk) > 9_000_000, "all in one memtable");
    for _ in 0..60 {
        m.pass(1000);
        super::run_queued(&m.db.inner.engine).unwrap();
    }
    // Other tests of this process pin epochs, and so keep old views and their files for a moment.
    let bound = 50 * 2018 * 135 / 100 + 2 * FILE;
    let settles = |m: &mut Machine| {
        std::thread::sleep(Duration::from_millis(5));
        m.pass(1000);
        super::run_queued(&m.db.inner.engine).unwrap();
        let used = value_log_bytes(&m.disk);
        used <= bound && m.db.default_family().stats().value_log_file_bytes == used
    };
    assert!((0..1000).any(|_| settles(&mut m)), "{} bytes", value_log_bytes(&m.disk));
    let moved = m.db.default_family().stats().value_bytes_moved;
    m.pass(60_000);
    super::run_queued(&m.db.inner.engine).unwrap();
    assert_eq!(m.db.default_family().stats().value_bytes_moved, moved, "there is nothing more to gain");
    for i in (0..500).step_by(10) {
        assert_eq!(*m.db.get(&u32::to_le_bytes(i)).unwrap().unwrap(), value(i, 9));
    }
    assert!(m.db.verify().unwrap().is_ok());
}

#[test]
fn an_idle_database_merges_what_hides_old_versions() {
    const ROWS: u32 = 4000;
    let (env, disk, clock) = sim::env_on(SimDisk::new(SEED), SEED);
    disk.log_ops(false);
    let family = crate::FamilyOptions {
        write_buffer_bytes: 64 << 10,
        table_bytes: 64 << 10,
        compression: crate::Compression::None,
        ..Default::default()
    };
    let db = options(env).default_family(family).open().unwrap();
    let mut m = Machine { disk, clock, db, ticks: Ticks::default() };
    let put = |m: &Machine, n: u32, round: u8| {
        let n = n * 1609 % ROWS; // each row once, in another order
        m.db.put(&n.to_le_bytes(), &[round; 100]).unwrap();
    };
    let rest = |m: &mut Machine, millis| {
        m.db.flush().unwrap();
        super::run_queued(&m.db.inner.engine).unwrap();
        m.pass(millis);
        super::run_queued(&m.db.inner.engine).unwrap();
        m.db.default_family().stats()
    };
    (0..ROWS).for_each(|n| put(&m, n, 0));
    (0..ROWS / 8).for_each(|n| put(&m, n, 1));
    let busy = rest(&mut m, 1000);
    assert!(busy.table_entries > u64::from(ROWS), "{busy:?}");
    let idle = rest(&mut m, 6000);
    assert_eq!((idle.table_entries, idle.level_tables.iter().filter(|n| **n > 0).count()), (ROWS.into(), 1));
    assert!(idle.merges_idle > 0);
    assert_eq!(rest(&mut m, 60_000).merges_idle, idle.merges_idle, "there is nothing more to gain");

    // A trickle of writes with pauses: not each pause rewrites the largest level.
    for round in 0..60 {
        (0..ROWS / 100).for_each(|n| put(&m, n + round * 71, 2));
        rest(&mut m, 7000);
    }
    let trickle = rest(&mut m, 7000);
    let (flushed, merged) =
        (trickle.flush_bytes - idle.flush_bytes, trickle.compaction_written - idle.compaction_written);
    assert!(trickle.merges_idle > idle.merges_idle && merged < 25 * flushed, "{merged} for {flushed} bytes");
    assert!(trickle.table_entries < u64::from(ROWS) * 110 / 100, "{trickle:?}");
}

/// Commits beside a close are flushed after the order of commits has ended. The manifest then claimed the empty place at its end, and an
/// open after a kill took the log for damaged.
#[test]
fn a_kill_after_the_end_of_the_order_of_commits_is_recovered() {
    let m = Machine::new(SyncMode::Full);
    m.put(b"k", SyncMode::Full);
    let engine = &m.db.inner.engine;
    engine.write.log.close().unwrap();
    engine.write.sync_to(engine.write.log.sequencer().tail()).unwrap();
    let families = engine.write.all_families();
    let boundary = engine.write.rotate_all(&families);
    let flushing: Vec<_> = families.iter().map(|family| family.flushing.lock_in_order()).collect();
    crate::flush::up_to(&engine.maintenance, &families, boundary).unwrap();
    drop(flushing);
    let (env, ..) = sim::env_on(m.disk.fork(), SEED);
    assert_eq!(options(env).open().unwrap().iter().unwrap().count(), 1);
    assert_eq!(m.durable(), 1); // after a power failure
}

/// A close waits for calls that read or write files; they end early.
#[test]
fn long_calls_end_when_a_close_has_begun() {
    let m = Machine::new(SyncMode::None);
    m.put(b"k", SyncMode::None);
    let (db, closed) = (&m.db, |result: crate::Result<()>| assert!(matches!(result, Err(Error::Closed))));
    db.inner.engine.write.jobs.close();
    closed(db.compact());
    closed(db.default_family().compact_range(..));
    closed(db.backup("/copy"));
    closed(db.checkpoint("/copy"));
    closed(db.clone_family("default", "copy").map(drop));
    closed(db.verify().map(drop));
    assert_eq!(db.families().len(), 1);
    assert!(m.disk.file_names("/copy").unwrap().is_empty());
}

/// Each second, a database looked at all its families, and asked for the merge of each that had tables: with thousands of families a third of a
/// processor, while nothing was used.
#[test]
fn families_that_do_not_change_are_not_looked_at() {
    const FAMILIES: u32 = 40;
    let mut m = Machine::resting(|_| ());
    let small = || crate::FamilyOptions::default().value_threshold(100).compression(crate::Compression::None);
    // A table; a table whose rows expire; values; values that only a memtable knows; deleted ranges.
    for n in 0..FAMILIES {
        let family = m.db.create_family(&n.to_string(), small()).unwrap();
        let len = if n % 5 == 2 || n % 5 == 3 { 3000 } else { 20 };
        let ttl = if n % 5 == 1 { Duration::from_secs(3600) } else { Duration::from_secs(1 << 30) };
        (0..20u8).for_each(|key| assert!(family.put_with_ttl([key], vec![key; len], ttl).is_ok()));
        if n % 5 == 4 {
            family.delete_range([3]..[9]).unwrap();
        }
        if n % 5 != 3 {
            family.flush().unwrap();
        }
    }
    m.rest(60);
    let (index, jobs) =
        (Arc::clone(&m.db.inner.engine.write.index), Arc::clone(&m.db.inner.engine.write.jobs));
    let (expiring, unflushed) = (FAMILIES as usize / 5, FAMILIES as usize / 5);
    assert!(index.to_sweep() <= FAMILIES as usize + unflushed, "{index:?}");
    let soon = |index: &crate::family::FamilyIndex| index.take_swept(&Sweep::default()).0.len();
    assert_eq!(soon(&index), 0, "{index:?}");
    let asked = jobs.asked();
    m.rest(120);
    assert_eq!(jobs.asked(), asked, "nothing was asked for in two minutes: {index:?}");
    // One of them changes, and is looked at.
    m.db.family("0").unwrap().put([1], [1]).unwrap();
    m.db.family("0").unwrap().flush().unwrap();
    m.rest(1);
    assert!(jobs.asked() > asked);
    m.rest(60);
    // The rows of some expire.
    let (asked, now) = (jobs.asked(), m.db.inner.engine.reads.expiry_clock.seen());
    m.clock.set_wall(Duration::from_millis(now + 3_601_000));
    m.rest(30);
    let expired = |n: u32| m.db.family(&n.to_string()).unwrap().stats().table_entries == 0;
    assert!(jobs.asked() >= asked + expiring as u64, "{} after {asked}", jobs.asked());
    let left: Vec<u32> = (0..FAMILIES).filter(|n| n % 5 == 1 && !expired(*n)).collect();
    assert_eq!(left, [0; 0], "families with expired rows; {index:?}");
}

/// While nothing is written, the history that can be read does not get shorter, so no family need be looked at for it.
#[test]
fn families_with_history_are_looked_at_when_it_has_passed() {
    let mut m = Machine::resting(|o| o.history_bytes = 1 << 20);
    (0..200u8).for_each(|key| m.put(&[key], SyncMode::None));
    m.db.flush().unwrap();
    m.db.delete_range(..).unwrap();
    m.db.flush().unwrap();
    assert_eq!(m.rest(60), 200, "the history has the rows");
    let jobs = Arc::clone(&m.db.inner.engine.write.jobs);
    let asked = jobs.asked();
    assert_eq!((m.rest(60), jobs.asked()), (200, asked), "nothing was asked for in a minute");
    let in_the_log = crate::FamilyOptions::default().value_threshold(1 << 20);
    let other = m.db.create_family("other", in_the_log).unwrap();
    (0..20u8).for_each(|key| assert!(other.put([key], vec![key; 100_000]).is_ok()));
    assert_eq!(m.rest(60), 0, "the rows are gone");
}

/// What a reader keeps can be merged when the reader ends, however quiet the database is.
#[test]
fn the_end_of_a_reader_makes_idle_families_mergeable() {
    type Begin = fn(&Db) -> Box<dyn std::any::Any>;
    let readers: [(&str, Begin); 2] =
        [("a snapshot", |db| Box::new(db.snapshot())), ("a cursor", |db| Box::new(db.cursor().unwrap()))];
    for (what, begin) in readers {
        let mut m = Machine::resting(|_| ());
        (0..200u8).for_each(|key| m.put(&[key], SyncMode::None));
        m.db.flush().unwrap();
        let reader = begin(&m.db);
        m.db.delete_range(..).unwrap();
        m.db.flush().unwrap();
        assert_eq!(m.rest(100), 200, "{what} needs the rows");
        drop(reader);
        assert_eq!(m.rest(3), 0, "the rows are gone after {what}");
    }
}

#[test]
fn a_thousand_idle_databases_are_looked_at_no_more_often_than_a_hundred() {
    let period = |databases| Ticks::idle_period(databases).as_millis();
    assert_eq!([1, 100, 101, 1000, 100_000, u64::MAX].map(period), [100, 100, 200, 1000, 1000, 1000]);
}
