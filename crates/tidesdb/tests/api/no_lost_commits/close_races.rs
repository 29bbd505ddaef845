//! `Db::close_timeout` beside everything else: no acknowledged commit is lost, and a close that was begun ends.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidesdb::{Db, Error, Family, FamilyOptions, Isolation, SyncMode, WriteOptions};
use tidesdb_io::Env;
use tidesdb_io::sim::{OpSet, Starts};

use crate::common::{Sim, contents, fill};
use crate::no_lost_commits::close_timeouts::{Gate, LONG};

/// An environment whose `before` runs before the thread that closes is started.
fn hooked(before: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Env {
    let hook = move |name: &str, body| match name {
        "tidesdb-close" => before().map(|()| body),
        _ => Ok(body),
    };
    Starts::of(&Env::real()).on_start(hook).env()
}

/// A call that found a close begun waited for it in vain if the thread of that close could not be started.
#[test]
fn a_close_whose_thread_cannot_start_is_begun_by_the_call_that_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (starting, fails) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(true)));
    let (gate, once) = (Arc::clone(&starting), Arc::clone(&fails));
    let before = move || {
        if !once.swap(false, SeqCst) {
            return Ok(());
        }
        gate.pass();
        Err(io::ErrorKind::WouldBlock.into())
    };
    let env = hooked(before);
    let db = Db::options(dir.path()).env(env).open().unwrap();
    db.put("k", "v").unwrap();
    std::thread::scope(|s| {
        let first = s.spawn(|| db.close_timeout(LONG));
        starting.wait_until_reached();
        let second = s.spawn(|| db.close_timeout(Duration::from_secs(20)));
        while !matches!(db.put("late", "v"), Err(Error::Closed)) {
            std::thread::yield_now(); // the second call has not begun
        }
        starting.open();
        let _ = first.join().unwrap();
        second.join().unwrap().unwrap();
    });
    drop(db);
    assert!(Db::open(dir.path()).unwrap().recovery_report().clean);
}

/// Without a thread nothing is done, and the drop closes the database.
#[test]
fn a_close_that_cannot_start_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let env = hooked(|| Err(io::ErrorKind::WouldBlock.into()));
    let db = Db::options(dir.path()).env(env).open().unwrap();
    assert!(matches!(db.close_timeout(LONG), Err(Error::Io { .. })));
    db.put("k", "v").unwrap();
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    assert!(db.recovery_report().clean && db.contains("k").unwrap());
}

/// A close that ended in a panic used to be reported as a success.
#[test]
fn a_close_that_panics_is_no_success() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 100, b"v");
    sim.disk.observe(OpSet::SYNCS, |_, _| panic!("a panic of the test"));
    let first = db.close_timeout(LONG).unwrap_err();
    sim.disk.stop_observing();
    assert!(matches!(first, Error::Internal { .. }), "{first:?}");
    assert!(db.clone().close().is_err());
    assert!(matches!(db.put("k", "v"), Err(Error::Closed)));
    drop(db);
    assert_eq!(contents(sim.open().default_family()).len(), 100);
}

/// A close while recovered commits are still written to tables.
#[test]
fn a_timed_close_during_the_recovery_loses_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    for n in 0..3000u32 {
        db.put([&n.to_le_bytes()[..], b"!"].concat(), [7; 200]).unwrap();
        db.put_with_ttl(n.to_le_bytes(), "v", Duration::from_secs(1 << 20)).unwrap();
    }
    let before = contents(db.default_family());
    for round in 0..20u64 {
        let killed = sim.killed();
        let options = || killed.options().background_threads(2).with(|o| o.forced.saves_behind = true);
        let db = options().open().unwrap();
        let writer = db.clone();
        std::thread::scope(|s| {
            s.spawn(move || while writer.put("k", "v").is_ok() {});
            let mut ended = db.close_timeout(Duration::from_micros(mix(round) % 2000));
            if round.is_multiple_of(2) {
                while matches!(ended, Err(Error::Closing { .. })) {
                    ended = db.close_timeout(Duration::from_millis(1));
                }
                ended.unwrap();
            }
            drop(db);
        });
        let db = loop {
            match options().open() {
                Err(Error::Locked { .. }) => std::thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        let mut after = contents(db.default_family());
        after.retain(|(key, _)| key != b"k");
        assert!(after == before, "round {round}");
        db.close().unwrap();
    }
}

/// Random work of several threads beside closes with random timeouts. Afterwards the database has what was acknowledged, and nothing that
/// was refused.
#[test]
fn everything_beside_a_timed_close() {
    for round in 0..6 {
        let seed = random_seed().wrapping_add(round);
        println!("seed {seed}");
        beside_a_close(seed);
    }
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Keys that were acknowledged, and those that were refused with `Closed`.
#[derive(Default)]
struct Outcome {
    acknowledged: BTreeSet<String>,
    refused: BTreeSet<String>,
}

/// One database, and what its threads do until it is closed.
struct Beside {
    seed: u64,
    dir: tempfile::TempDir,
    copies: tempfile::TempDir,
    db: Db,
    family: Family,
    written: AtomicU32,
    outcome: Mutex<Outcome>,
}

impl Beside {
    fn open(seed: u64) -> Self {
        let (dir, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = FamilyOptions::default().write_buffer_bytes(1 << 20).l1_tables_trigger(2);
        let interval = SyncMode::Interval(Duration::from_millis(20));
        let sync = if seed.is_multiple_of(2) { SyncMode::None } else { interval };
        let db = Db::options(dir.path()).sync(sync).background_threads(2).open().unwrap();
        let family = db.create_family("f", options).unwrap();
        Self { seed, dir, copies, db, family, written: AtomicU32::new(0), outcome: Mutex::default() }
    }

    /// Writes until the database is closed.
    fn write(&self, thread: u64) {
        for n in 0u64.. {
            let key = format!("{thread} {n:06}");
            let result = self.write_one(thread, n, &key);
            let mut outcome = self.outcome.lock().unwrap();
            match result {
                Ok(()) => {
                    outcome.acknowledged.insert(key);
                    self.written.fetch_add(1, SeqCst);
                }
                Err(Error::Closed) => {
                    outcome.refused.insert(key);
                    return;
                }
                Err(Error::Busy { .. }) => {} // a merge was stopped
                Err(e) => panic!("seed {}, thread {thread}: {e}", self.seed),
            }
        }
    }

    fn write_one(&self, thread: u64, n: u64, key: &str) -> tidesdb::Result<()> {
        let (db, family) = (&self.db, &self.family);
        let dice = mix(self.seed ^ thread << 40 ^ n);
        let value = vec![dice as u8; (dice >> 8) as usize % 1500];
        match (thread, dice % 8) {
            (0, _) => return family.put(key, &value).map(drop),
            (1, _) => {
                let durable = WriteOptions::default().sync(SyncMode::Full);
                return family.put_with(key, &value, &durable).map(drop);
            }
            (2, _) => return increment(db, family, key, &value),
            (3, 0) => return family.put_stream(key, &vec![7; 300_000][..]).map(drop),
            (3, _) => return family.put_stream(key, &value[..]).map(drop),
            (4, 0) => db.flush()?,
            (4, 1) if n % 64 == 1 => db.compact()?,
            (5, 0) => {
                let to = self.copies.path().join(n.to_string());
                db.checkpoint(&to)?;
                drop(Db::open(&to).unwrap());
                let _ = std::fs::remove_dir_all(&to); // makes room; the database has files of the copy open
            }
            _ => {}
        }
        family.put_with_ttl(key, &value, Duration::from_secs(1 << 20)).map(drop)
    }

    /// Closes the database in many short attempts.
    fn close(&self, caller: u64) {
        for n in 0.. {
            let timeout = Duration::from_micros(mix(self.seed ^ caller << 32 ^ n) % 3000);
            match self.db.close_timeout(timeout) {
                Ok(()) => return,
                Err(Error::Closing { .. }) => {}
                Err(e) => panic!("seed {}: {e}", self.seed),
            }
        }
    }

    /// Opens the database again and compares it with what the threads were told.
    fn check(self) {
        let Self { seed, dir, db, family, outcome, .. } = self;
        drop(family);
        db.close().unwrap();
        let db = Db::open(dir.path()).unwrap();
        assert!(db.recovery_report().clean, "seed {seed}");
        let rows = contents(&db.family("f").unwrap());
        let stored: BTreeSet<_> = rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect();
        let outcome = outcome.into_inner().unwrap();
        assert!(outcome.refused.is_disjoint(&stored), "seed {seed}: a refused write had an effect");
        let lost: Vec<_> = outcome.acknowledged.difference(&stored).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
    }
}

fn beside_a_close(seed: u64) {
    let run = Beside::open(seed);
    std::thread::scope(|s| {
        let run = &run;
        for thread in 0..6 {
            s.spawn(move || run.write(thread));
        }
        while u64::from(run.written.load(SeqCst)) < 100 + mix(seed) % 2000 {
            std::thread::yield_now();
        }
        for caller in 0..2 {
            s.spawn(move || run.close(caller));
        }
    });
    run.check();
}

/// Puts `key` beside a counter of all such keys, if nobody else changed the counter.
fn increment(db: &Db, family: &Family, key: &str, value: &[u8]) -> tidesdb::Result<()> {
    let mut tx = db.begin(Isolation::Serializable);
    let savepoint = tx.savepoint();
    tx.put(family, "gone", "v")?;
    tx.rollback_to(savepoint)?;
    let n = tx.get(family, "counter")?.map_or(0, |n| n.len());
    tx.put(family, "counter", vec![1; n % 1000 + 1])?;
    tx.put(family, key, value)?;
    tx.commit().map(drop)
}
