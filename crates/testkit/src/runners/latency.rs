//! T20, reads during a huge commit: one thread commits a batch of 200 MiB to one family. Meanwhile another thread
//! writes small rows to a second family, and readers get from it, take snapshots and create iterators. No read may wait
//! for the commit. A case is a commit.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use testkit::process;
use testkit::report::{self, exit, finish, violation};
use testkit::rng::Rng;
use testkit::watch::Watch;
use tidesdb::{Db, Error, Family, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::{Clock, RealClock};

/// Rows that the readers read.
const ROWS: u64 = 10_000;
/// So small that the commit takes long: inserting the rows takes more time than writing the bytes.
const VALUE_BYTES: u64 = 80;

/// Longest duration of each operation in nanoseconds, and the number of operations.
#[derive(Default)]
struct Slowest {
    get: AtomicU64,
    snapshot: AtomicU64,
    iterator: AtomicU64,
    put: AtomicU64,
    reads: AtomicU64,
    puts: AtomicU64,
}

#[derive(Parser)]
struct Args {
    /// Size of a commit.
    #[arg(long, default_value_t = 220)]
    mib: u64,
    /// Longest read in milliseconds.
    #[arg(long, default_value_t = 250)]
    limit: u64,
    #[arg(long, default_value_t = 3)]
    commits: u64,
    /// Runs this commit alone.
    #[arg(long)]
    case: Option<u64>,
}

pub(crate) fn runner() -> ExitCode {
    let Args { mib, limit, commits, case } = process::arguments();
    let commits = case.map_or(0..commits, |n| n..n.saturating_add(1));
    let watch = Watch::start(Duration::from_secs(120));
    watch.begin("the commits");
    let slowest = Slowest::default();
    let took = run(mib, commits, &slowest);
    let mut violations = u64::from(took.is_err());
    let took = took.unwrap_or_else(|e| {
        violation(e);
        Duration::ZERO
    });
    let millis = |of: &AtomicU64| of.load(Ordering::Relaxed) / 1_000_000;
    for (what, time) in
        [("get", &slowest.get), ("snapshot", &slowest.snapshot), ("iterator", &slowest.iterator)]
    {
        if millis(time) > limit {
            violation(format_args!("a {what} took {} ms during a commit of {mib} MiB", millis(time)));
            violations += 1;
        }
    }
    let figures = [
        ("mib", mib),
        ("commit_ms", took.as_millis() as u64),
        ("get_max_ms", millis(&slowest.get)),
        ("snapshot_max_ms", millis(&slowest.snapshot)),
        ("iterator_max_ms", millis(&slowest.iterator)),
        ("put_max_ms", millis(&slowest.put)),
        ("reads", slowest.reads.load(Ordering::Relaxed)),
        ("puts", slowest.puts.load(Ordering::Relaxed)),
        ("violations", violations),
    ];
    // A commit that takes less time than the limit proves nothing.
    exit(finish("T20", &figures, &[("commit_ms", limit), ("reads", 1000), ("puts", 10)]))
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

/// Runs the commits, one after the other, and returns the duration of the fastest.
fn run(mib: u64, commits: Range<u64>, slowest: &Slowest) -> Result<Duration, String> {
    let temp = tempfile::tempdir().map_err(|e| e.to_string())?;
    let family = FamilyOptions::default().value_threshold(usize::MAX);
    let db = Db::options(temp.path()).sync(SyncMode::None).default_family(family.clone()).open();
    let db = db.map_err(|e| format!("open: {e}"))?;
    let side = db.create_family("side", family).map_err(|e| format!("create: {e}"))?;
    (0..ROWS).try_for_each(|n| side.put(&key(n), b"first").map(drop)).map_err(|e| format!("put: {e}"))?;
    let mut fastest = Duration::MAX;
    for commit in commits {
        report::begin(&[], commit);
        fastest = fastest.min(one(&db, &side, mib, commit, slowest)?);
        db.flush().map_err(|e| format!("flush: {e}"))?;
    }
    db.close().map_err(|e| format!("close: {e}"))?;
    Ok(fastest)
}

/// Runs one huge commit with concurrent readers and a concurrent writer.
fn one(db: &Db, side: &Family, mib: u64, commit: u64, slowest: &Slowest) -> Result<Duration, String> {
    let clock = RealClock::new();
    let mut batch = WriteBatch::new();
    let mut rng = Rng::new(commit + 1);
    for n in 0..(mib << 20) / (VALUE_BYTES + 16) {
        let mut value = vec![0; VALUE_BYTES as usize];
        value[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        // Keys are not sorted, so each insert must search for its position.
        let name = key(n.wrapping_mul(2_654_435_761) % (1 << 31));
        batch.put(db.default_family(), &name, &value).map_err(|e| format!("batch: {e}"))?;
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let readers: Vec<_> =
            (0..2).map(|reader| scope.spawn(move || read(db, side, reader, done, slowest))).collect();
        let writer = scope.spawn(move || write(side, done, slowest));
        clock.sleep(Duration::from_millis(100));
        let begin = clock.mono();
        let written = db.write(&mut batch);
        let took = clock.mono() - begin;
        done.store(true, Ordering::SeqCst);
        for thread in readers.into_iter().chain([writer]) {
            thread.join().map_err(|_| "a thread panicked".to_owned())?.map_err(|e| e.to_string())?;
        }
        written.map_err(|e| format!("the commit: {e}"))?;
        Ok(took)
    })
}

/// Puts small rows into the second family, every 200 us.
fn write(side: &Family, done: &AtomicBool, slowest: &Slowest) -> Result<(), Error> {
    let clock = RealClock::new();
    let mut rng = Rng::new(99);
    while !done.load(Ordering::SeqCst) {
        let begin = clock.mono();
        side.put(&key(rng.below(ROWS)), b"later")?;
        note(&slowest.put, clock.mono() - begin);
        slowest.puts.fetch_add(1, Ordering::Relaxed);
        clock.sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn read(db: &Db, side: &Family, reader: u64, done: &AtomicBool, slowest: &Slowest) -> Result<(), Error> {
    let clock = RealClock::new();
    let mut rng = Rng::new(reader + 7);
    while !done.load(Ordering::SeqCst) {
        let key = key(rng.below(ROWS));
        let begin = clock.mono();
        let found = side.get(&key)?.is_some();
        let got = clock.mono();
        let snapshot = db.snapshot();
        let taken = clock.mono();
        let iter = side.range(&key[..]..)?;
        let made = clock.mono();
        note(&slowest.get, got - begin);
        note(&slowest.snapshot, taken - got);
        note(&slowest.iterator, made - taken);
        drop((snapshot, iter));
        if !found {
            return Err(Error::NotFound { what: "a row that was put".into() });
        }
        slowest.reads.fetch_add(1, Ordering::Relaxed);
        clock.sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn note(slowest: &AtomicU64, took: Duration) {
    slowest.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
}
