//! Commits without operations: they promise about earlier commits what every commit of their sync mode promises.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidesdb::{Db, Error, Isolation, Result, SeqNo, SyncMode, TransactOptions, WriteBatch, WriteOptions};
use tidesdb_io::sim::{Fault, Image, OpSet, errno};

use crate::common::{LEVELS, Random, Sim, contents, keys};

/// Commits nothing, in one of many ways.
type Nothing = fn(&Db, &WriteOptions) -> Result<SeqNo>;

const NOTHINGS: [(&str, Nothing); 7] = [
    ("a new batch", |db, o| db.write_with(&mut WriteBatch::new(), o)),
    ("a cleared batch", |db, o| {
        let mut batch = WriteBatch::new();
        batch.put(db.default_family(), "never", "v")?;
        batch.clear();
        db.write_with(&mut batch, o)
    }),
    ("a committed batch again", |db, o| {
        let mut batch = WriteBatch::new();
        batch.delete(db.default_family(), "never")?;
        db.write_with(&mut batch, &WriteOptions::default().sync(SyncMode::None))?;
        db.write_with(&mut batch, o)
    }),
    ("new transactions", |db, o| LEVELS.into_iter().try_fold(0, |_, level| db.begin(level).commit_with(o))),
    ("transactions that read", |db, o| {
        LEVELS.into_iter().try_fold(0, |_, level| {
            let mut tx = db.begin(level);
            tx.get(db.default_family(), "a")?;
            assert!(tx.iter(db.default_family())?.all(|row| row.is_ok()));
            tx.commit_with(o)
        })
    }),
    ("a transaction whose writes were rolled back", |db, o| {
        let mut tx = db.begin(Isolation::Serializable);
        let start = tx.savepoint();
        tx.put(db.default_family(), "never", "v")?;
        tx.rollback_to(start)?;
        tx.commit_with(o)
    }),
    ("a body of transact that reads", |db, o| {
        let options = TransactOptions::default().write(*o);
        db.transact_with(&options, |tx| tx.get(db.default_family(), "a")).map(|_| 0)
    }),
];

fn relaxed() -> WriteOptions {
    WriteOptions::default().sync(SyncMode::None)
}

/// Returns the keys that a power failure leaves of the synced bytes only.
fn kept(sim: &Sim) -> Vec<String> {
    let lost = sim.power_lost(&Image::SYNCED, 1);
    let db = lost.open();
    keys(db.default_family().iter())
}

/// An empty commit in mode `Full` used to return at once, and the power failure took what was committed before it.
#[test]
fn an_empty_commit_in_mode_full_makes_all_earlier_commits_durable() {
    for (name, commit) in NOTHINGS {
        for own_mode in [true, false] {
            let sim = Sim::new();
            let default = if own_mode { SyncMode::None } else { SyncMode::Full };
            let db = sim.options().sync(default).open().unwrap();
            for key in ["a", "b", "c"] {
                db.put_with(key, "v", &relaxed()).unwrap();
            }
            assert!(kept(&sim).is_empty(), "{name}: durable too early");
            let options = WriteOptions::default();
            commit(&db, &if own_mode { options.sync(SyncMode::Full) } else { options }).unwrap();
            assert_eq!(kept(&sim), ["a", "b", "c"], "{name}, own mode: {own_mode}");
        }
    }
}

#[test]
fn a_call_that_finds_nothing_to_write_makes_earlier_commits_durable_in_mode_full() {
    type Call = fn(&Db) -> Result<()>;
    let calls: [(&str, Call); 3] = [
        ("compare_and_swap", |db| db.compare_and_swap("a", Some(b"other"), None).map(drop)),
        ("pop_first", |db| db.family("empty")?.pop_first().map(drop)),
        ("pop_last", |db| db.family("empty")?.pop_last().map(drop)),
    ];
    for (name, call) in calls {
        let sim = Sim::new();
        let db = sim.open();
        db.create_family("empty", crate::common::small()).unwrap();
        db.put_with("a", "v", &relaxed()).unwrap();
        assert!(kept(&sim).is_empty(), "{name}: durable too early");
        call(&db).unwrap();
        assert_eq!(kept(&sim), ["a"], "{name}");
    }
}

#[test]
fn an_empty_commit_syncs_only_what_is_not_durable() {
    let sim = Sim::new();
    let db = sim.open();
    db.put("a", "v").unwrap();
    let syncs = || db.stats().syncs.count;
    let before = syncs();
    for (_, commit) in NOTHINGS.iter().filter(|(name, _)| *name != "a committed batch again") {
        commit(&db, &WriteOptions::default()).unwrap();
    }
    assert_eq!(syncs(), before, "everything was durable");
    db.put_with("b", "v", &relaxed()).unwrap();
    db.write_with(&mut WriteBatch::new(), &relaxed()).unwrap();
    assert_eq!(syncs(), before, "mode None");
    for _ in 0..3 {
        db.write(&mut WriteBatch::new()).unwrap();
    }
    assert_eq!(syncs(), before + 1);
}

/// The interval of a commit covers all earlier ones, whatever it holds. A close that fails syncs for intervals only.
#[test]
fn an_empty_commit_in_mode_interval_covers_earlier_commits() {
    let day = Duration::from_secs(86_400);
    for (name, commit) in NOTHINGS {
        for (mode, wanted) in [(SyncMode::None, 0), (SyncMode::Interval(day), 3)] {
            let sim = Sim::new();
            let db = sim.options().sync(SyncMode::None).background_threads(1).open().unwrap();
            for key in ["a", "b", "c"] {
                db.put(key, "v").unwrap();
            }
            commit(&db, &WriteOptions::default().sync(mode)).unwrap();
            sim.disk.inject(
                Fault::errno(errno::EIO).on(OpSet::WRITES).path_if(|path| path.ends_with(".klog")).forever(),
            );
            assert!(db.close().is_err());
            sim.disk.clear_faults();
            assert_eq!(kept(&sim).len(), wanted, "{name}, {mode:?}");
        }
    }
}

#[test]
fn an_empty_commit_is_refused_as_any_other() {
    let full = WriteOptions::default().sync(SyncMode::Full);
    for (name, commit) in NOTHINGS {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        db.put("a", "v").unwrap();
        sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS));
        if name == "a committed batch again" {
            continue; // needs a first commit
        }
        for _ in 0..2 {
            assert!(matches!(commit(&db, &full), Err(Error::Poisoned { .. })), "{name}");
            assert!(matches!(db.put("b", "v"), Err(Error::Poisoned { .. })), "{name}");
        }
        assert_eq!(keys(db.iter()), ["a"]);
        drop(db);
        sim.disk.clear_faults();
        let db = sim.open();
        let other = db.clone();
        db.close().unwrap();
        if !name.contains("read") {
            assert!(matches!(commit(&other, &full), Err(Error::Closed)), "{name}");
        }
        drop(other);
        let db = sim.options().read_only(true).open().unwrap();
        assert!(matches!(db.write_with(&mut WriteBatch::new(), &full), Err(Error::ReadOnly)));
    }
}

/// Random commits, empty and not, in every mode; the power fails before each change of the disk.
#[test]
fn what_a_full_commit_covered_survives_a_power_failure_at_every_point() {
    for seed in 0..6 {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        let covered = Arc::new(AtomicU64::new(0));
        let points = Arc::new(Mutex::new(Vec::new()));
        let (floor, taken) = (Arc::clone(&covered), Arc::clone(&points));
        sim.disk
            .observe(OpSet::CHANGES, move |_, fork| taken.lock().unwrap().push((floor.load(SeqCst), fork)));
        let mut random = Random::new(seed);
        let mut written = 0u64;
        for _ in 0..120 {
            let mode = match random.below(4) {
                0 => SyncMode::Full,
                1 => SyncMode::Interval(Duration::from_secs(1)),
                _ => SyncMode::None,
            };
            let options = WriteOptions::default().sync(mode);
            if random.below(3) == 0 {
                let (name, commit) = NOTHINGS[random.below(NOTHINGS.len() as u64) as usize];
                commit(&db, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            } else {
                let value = vec![1; if random.below(8) == 0 { 3000 } else { 10 }];
                db.put_with(written.to_be_bytes(), value, &options).unwrap();
                written += 1;
            }
            if random.below(20) == 0 {
                db.default_family().flush().unwrap();
            }
            if mode == SyncMode::Full {
                covered.store(written, SeqCst);
            }
        }
        sim.disk.stop_observing();
        drop(db);
        for (n, (covered, disk)) in std::mem::take(&mut *points.lock().unwrap()).into_iter().enumerate() {
            let image = if n % 2 == 0 { Image::SYNCED } else { Image::STANDARD[n / 2 % 10] };
            let after = Sim::on(disk.crash_image(&image, n as u64));
            let db = after.open();
            let left = contents(db.default_family());
            assert!(
                left.len() as u64 >= covered,
                "seed {seed}, point {n}, {image:?}: {} < {covered}",
                left.len()
            );
            assert!(
                (0u64..).zip(&left).all(|(i, (key, _))| *key == i.to_be_bytes()),
                "seed {seed}, point {n}: a gap"
            );
        }
    }
}
