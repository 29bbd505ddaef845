//! T10 with group commit: one to eight threads commit concurrently in sync mode `Full`, and one sync or write fails.
//!
//! Requirements: every commit in the failed group returns an error. No commit that began after that is acknowledged.
//! Commits that were acknowledged, or seen by a reader, exist after the next open and after a power loss. Every commit
//! is atomic. Refused commits do not exist.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tidesdb::{Db, Error, Family, WriteBatch};
use tidesdb_io::Env;
use tidesdb_io::sim::{self, Fault, Image, OpKind, OpSet, SimDisk, SyncModel, errno};

use crate::faults::Totals;
use crate::report::violation;
use crate::rng::Rng;
use crate::trial::Outcome;
use crate::world::{Config, PATH};

const COMMITS_EACH: u64 = 30;
const SECOND: &str = "second";

/// Results of one committing thread.
#[derive(Clone, Debug, Default)]
struct Seen {
    acked: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    late: Vec<u64>,
    errors: u64,
}

/// Runs `cases` cases, starting from `seed`.
pub fn many(seed: u64, cases: u64, mut begin: impl FnMut(&str)) -> Totals {
    let mut totals = Totals::default();
    for n in 0..cases {
        let seed = seed.wrapping_mul(1000) + n;
        begin(&format!("group seed {seed}"));
        let result = std::panic::catch_unwind(|| one(seed));
        totals.cases += 1;
        match result.unwrap_or_else(|_| Err("panic".into())) {
            Ok(out) => {
                totals.struck += out.struck;
                totals.errors += out.errors;
                totals.poisoned += u64::from(out.poisoned);
                totals.images += out.images;
            }
            Err(e) => {
                totals.violations += 1;
                violation(format_args!("group seed {seed}: {e}"));
            }
        }
    }
    totals
}

fn fault(rng: &mut Rng) -> Fault {
    let late = rng.below(60);
    let sync = || Fault::errno(errno::EIO).on(OpSet::SYNCS);
    match rng.below(8) {
        0 => sync().path_ends(".klog").skip(late % 4),
        1 => sync().path_ends(".vlog").skip(late),
        2 => sync().path_ends(".manifest").skip(late % 8),
        3 => Fault::errno(errno::EIO).on(OpKind::SyncDir).skip(late % 16),
        4 => Fault::errno(errno::EIO).on(OpSet::WRITES).path_if(|p| p.contains(".wal")).skip(late * 3),
        _ => sync().path_if(|p| p.contains(".wal")).skip(late),
    }
}

fn config(seed: u64) -> Config {
    Config { sync: tidesdb::SyncMode::Full, write_buffer: 16 << 10, ..Config::numbered(seed) }
}

fn one(seed: u64) -> Result<Outcome, String> {
    let mut rng = Rng::new(seed);
    let (env, disk, _clock) = sim::env(seed);
    disk.log_ops(false);
    disk.set_sync_model([SyncModel::Linux, SyncModel::Btrfs, SyncModel::Bsd][(seed % 3) as usize]);
    let config = config(seed);
    let db = config.open(&env, PATH.as_ref()).map_err(|e| e.to_string())?;
    let second = db.create_family(SECOND, config.family()).map_err(|e| e.to_string())?;
    let fault = disk.inject(fault(&mut rng));
    let failed = AtomicBool::new(false);
    let committers = 1 + seed % 8;
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let run = |i| {
            let (db, second, failed) = (&db, &second, &failed);
            scope.spawn(move || commit_all(db, second, i, failed))
        };
        let threads: Vec<_> = (0..committers).map(run).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_default()).collect()
    });
    let struck = disk.struck(fault);
    if let Some(late) = seen.iter().find_map(|s| s.late.first()) {
        return Err(format!("commit {late} was acknowledged after another commit had reported a failure"));
    }
    disk.clear_faults();
    let mut seen = seen;
    look(&db, &second, &seen).map_err(|e| format!("live: {e}"))?;
    // A commit with an unknown result may be visible, but then it must be durable.
    show(&db, &mut seen)?;
    let poisoned = failed.load(SeqCst);
    drop(second);
    db.abandon();
    let errors = seen.iter().map(|s| s.errors).sum();
    let mut images = 0;
    let mut left = vec![disk.fork()];
    left.extend(Image::STANDARD.iter().map(|image| disk.crash_image(image, seed)));
    for (n, disk) in left.into_iter().enumerate() {
        images += 1;
        reopened(disk, &config, seed, &seen).map_err(|e| format!("image {n}: {e}"))?;
    }
    Ok(Outcome { struck, errors, poisoned, images, ..Outcome::default() })
}

fn commit_all(db: &Db, second: &Family, thread: u64, failed: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    for n in 0..COMMITS_EACH {
        let key = key(thread, n);
        let value = value(thread, n);
        let late = failed.load(SeqCst);
        let mut batch = WriteBatch::new();
        let filled =
            batch.put(db.default_family(), &key, &value).and_then(|()| batch.put(second, &key, &value));
        match filled.and_then(|()| db.write(&mut batch)) {
            Ok(_) => {
                seen.acked.insert(n);
                if late {
                    seen.late.push(n);
                }
            }
            Err(e) => {
                seen.errors += 1;
                if matches!(e, Error::CommitUnknown { .. }) {
                    seen.unknown.insert(n);
                }
                if matches!(e, Error::CommitUnknown { .. } | Error::Poisoned { .. }) {
                    failed.store(true, SeqCst);
                }
            }
        }
    }
    seen
}

fn key(thread: u64, n: u64) -> Vec<u8> {
    format!("{thread}:{n:05}").into_bytes()
}

fn value(thread: u64, n: u64) -> Vec<u8> {
    let len = if (thread + n).is_multiple_of(5) { 900 } else { 40 };
    Rng::new(thread * 1000 + n).bytes(len)
}

fn reopened(disk: SimDisk, config: &Config, seed: u64, seen: &[Seen]) -> Result<(), String> {
    let (env, disk, _clock): (Env, _, _) = sim::env_on(disk, seed ^ 1);
    disk.log_ops(false);
    let db = config.open(&env, PATH.as_ref()).map_err(|e| format!("refused open: {e}"))?;
    let second = db.family(SECOND).map_err(|e| e.to_string())?;
    let result = look(&db, &second, seen);
    drop(second);
    db.abandon();
    result
}

/// Treats visible commits with an unknown result as acknowledged from now on.
fn show(db: &Db, seen: &mut [Seen]) -> Result<(), String> {
    for (thread, seen) in seen.iter_mut().enumerate() {
        for n in std::mem::take(&mut seen.unknown) {
            let visible = db.get(&key(thread as u64, n)).map_err(|e| e.to_string())?.is_some();
            if visible {
                seen.acked.insert(n)
            } else {
                seen.unknown.insert(n)
            };
        }
    }
    Ok(())
}

/// Checks that every commit is atomic, that acknowledged ones exist and that refused ones do not. Commits with an
/// unknown result may exist.
fn look(db: &Db, second: &Family, seen: &[Seen]) -> Result<(), String> {
    for (thread, seen) in seen.iter().enumerate() {
        for n in 0..COMMITS_EACH {
            let (key, value) = (key(thread as u64, n), value(thread as u64, n));
            let a = db.get(&key).map_err(|e| e.to_string())?;
            let b = second.get(&key).map_err(|e| e.to_string())?;
            let whole = a.as_deref() == b.as_deref() && a.as_deref().is_none_or(|v| v == value);
            let may = seen.acked.contains(&n) || seen.unknown.contains(&n);
            if !whole {
                return Err(format!("commit {n} of thread {thread} is torn"));
            }
            if a.is_none() && seen.acked.contains(&n) {
                return Err(format!("acknowledged commit {n} of thread {thread} is missing"));
            }
            if a.is_some() && !may {
                return Err(format!("commit {n} of thread {thread} exists, but was refused"));
            }
        }
    }
    Ok(())
}
