//! Takes tables while one thread gets random rows and another puts some, and prints what both notice, and what the disk holds.
//!
//! Usage: `cargo run --release -p tidesdb-engine --example ingest_beside -- DIR [MILLIONS_OF_ROWS] [EXISTING_PERCENT] [PUTS_PER_SECOND] [SECONDS]`
//!
//! As many rows are taken as the database has. Of these so many percent replace existing rows; the others lie between existing rows or, with 0,
//! behind all of them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::big_endian_bytes,
    reason = "a measurement looks at the directory and at the time; keys are in their order"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidesdb::{Db, Ingest, SyncMode};

/// Room for other keys between two rows.
const GAP: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("DIR is missing")?);
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (rows, existing) = (number(30)? * 1_000_000, number(100)?.min(100));
    let (puts, calm) = (number(10_000)?.max(1), Duration::from_secs(number(60)?));

    let db = Db::options(dir.join("db")).sync(SyncMode::None).open()?;
    let family = db.default_family();
    family.ingest_sorted((0..rows).map(|n| ((n * GAP).to_be_bytes(), value(n))))?;
    let key = |n: u64| match existing {
        0 => (rows + n) * GAP,
        _ if n % 100 < existing => n * GAP,
        _ => n * GAP + GAP / 2,
    };
    let begun = Instant::now();
    let mut builder = family.table_builder(dir.join("more"))?;
    for n in 0..rows {
        builder.put(key(n).to_be_bytes(), value(n + 1))?;
    }
    let tables = builder.finish()?;
    println!("{} tables built in {:.1} s", tables.len(), begun.elapsed().as_secs_f64());
    settle(&db);
    let raw = rows * (8 + value(0).len() as u64);
    println!("files before: {:.2} of the bytes of the rows", size(&dir.join("db")) as f64 / raw as f64);

    let beside = Beside::default();
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| beside.get(&db, rows));
        scope.spawn(|| beside.put(&db, rows, Duration::from_secs(1) / puts as u32));
        scope.spawn(|| beside.watch(&dir.join("db")));
        sleep(Duration::from_secs(2)); // the first gets load blocks
        beside.take();
        sleep(calm);
        beside.report("before", calm);
        let begun = Instant::now();
        let taken = db.ingest(&Ingest::new().tables(family, &tables));
        beside.report("the ingest", begun.elapsed());
        sleep(calm);
        beside.report("after it", calm);
        beside.is_over.store(true, Relaxed);
        println!("{:?}", taken?);
        Ok(())
    })?;
    settle(&db);
    let stats = family.stats();
    println!(
        "settled: files at the peak {:.2}, at the end {:.2}, merged {:.2} of the bytes of the rows",
        beside.peak.load(Relaxed) as f64 / raw as f64,
        size(&dir.join("db")) as f64 / raw as f64,
        stats.compaction_written as f64 / raw as f64,
    );
    db.close()?;
    Ok(())
}

/// A value of 100 bytes, of which one half does not compress.
fn value(n: u64) -> [u8; 100] {
    let (mut value, mut random) = ([b'.'; 100], n | 1);
    for eight in value[..50].chunks_mut(8) {
        random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        eight.copy_from_slice(&random.to_be_bytes()[..eight.len()]);
    }
    value
}

fn settle(db: &Db) {
    db.flush().unwrap_or_else(|error| panic!("{error}"));
    while db.stats().jobs_pending > 0 {
        sleep(Duration::from_millis(20));
    }
}

fn size(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// What two threads did meanwhile.
#[derive(Default)]
struct Beside {
    gets: AtomicU64,
    /// How long puts took, in microseconds.
    puts: std::sync::Mutex<Vec<u32>>,
    peak: AtomicU64,
    is_over: AtomicBool,
}

impl Beside {
    fn get(&self, db: &Db, rows: u64) {
        for n in draws(1, rows).take_while(|_| !self.is_over.load(Relaxed)) {
            let found = db.get((n * GAP).to_be_bytes());
            assert!(matches!(found, Ok(Some(_))), "{found:?}");
            self.gets.fetch_add(1, Relaxed);
        }
    }

    /// Puts at a fixed rate: a put that is late because of the one before counts from when it was due.
    fn put(&self, db: &Db, rows: u64, pace: Duration) {
        let mut due = Instant::now();
        for n in draws(2, rows).take_while(|_| !self.is_over.load(Relaxed)) {
            due += pace;
            sleep(due.saturating_duration_since(Instant::now()));
            let put = db.put((n * GAP).to_be_bytes(), value(n));
            assert!(put.is_ok(), "{put:?}");
            let took = due.elapsed().as_micros() as u32;
            self.puts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(took);
        }
    }

    fn watch(&self, dir: &Path) {
        while !self.is_over.load(Relaxed) {
            self.peak.fetch_max(size(dir), Relaxed);
            sleep(Duration::from_millis(100));
        }
    }

    fn take(&self) -> (u64, Vec<u32>) {
        let mut puts =
            std::mem::take(&mut *self.puts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        puts.sort_unstable();
        (self.gets.swap(0, Relaxed), puts)
    }

    fn report(&self, when: &str, time: Duration) {
        let (gets, puts) = self.take();
        let at = |share: f64| puts.get((puts.len() as f64 * share) as usize).copied().unwrap_or(0);
        let slowest = puts.last().copied().unwrap_or(0);
        println!(
            "{when}, {:.1} s: {:.0} K gets/s; {} puts: median {} us, p99 {}, p99.9 {}, slowest {slowest}",
            time.as_secs_f64(),
            gets as f64 / time.as_secs_f64() / 1000.0,
            puts.len(),
            at(0.5),
            at(0.99),
            at(0.999),
        );
    }
}

fn draws(seed: u64, below: u64) -> impl Iterator<Item = u64> {
    let mut random = seed;
    std::iter::repeat_with(move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 32).wrapping_mul(below) >> 32
    })
}
