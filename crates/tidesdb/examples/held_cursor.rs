//! Holds a cursor while two threads overwrite random rows, and prints for each minute what it costs: files, memory, and the rate of its seeks.
//!
//! Usage: `cargo run --release -p tidesdb-engine --example held_cursor -- DIR [MINUTES] [MILLIONS_OF_ROWS] [PUTS_PER_SECOND_AND_THREAD]`
#![allow(
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    reason = "a measurement looks at the directory and at the time; keys are in their order"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidesdb::{Db, SyncMode};

const MINUTE: Duration = Duration::from_secs(60);
/// Part of each minute in which the cursor seeks.
const SEEKING: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("DIR is missing")?);
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (minutes, rows, rate) = (number(60)?, number(10)? * 1_000_000, number(100_000)?.max(1));
    let db = Db::options(&dir).sync(SyncMode::None).open()?;
    let family = db.default_family();
    family.ingest_sorted((0..rows).map(|n| (n.to_be_bytes(), value(n))))?;
    let mut cursor = family.cursor()?;
    cursor.seek_to_first()?;
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    println!(
        "minute, million puts, files MiB (most since the last line), resident MiB, seeks/s, slowest seek us"
    );
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for thread in 0..2 {
            let (db, done, is_over) = (&db, &done, &is_over);
            scope.spawn(move || overwrite(db, (thread, rows, rate), done, is_over));
        }
        let (mut draws, mut peak) = (draws(3, rows), size(&dir));
        for minute in 0..=minutes {
            let (begun, mut seeks, mut slowest) = (Instant::now(), 0_u64, Duration::ZERO);
            while begun.elapsed() < SEEKING {
                let (n, one) = (draws.next().unwrap_or(0), Instant::now());
                cursor.seek(n.to_be_bytes())?;
                // The cursor shows the rows of its birth, whatever was written since.
                assert_eq!(cursor.entry()?, (&n.to_be_bytes()[..], &value(n)[..]));
                slowest = slowest.max(one.elapsed());
                seeks += 1;
            }
            println!(
                "{minute}, {:.1}, {}, {}, {:.0}, {}",
                done.load(Relaxed) as f64 / 1e6,
                peak >> 20,
                resident_kib() >> 10,
                seeks as f64 / SEEKING.as_secs_f64(),
                slowest.as_micros(),
            );
            peak = 0;
            while minute < minutes && begun.elapsed() < MINUTE {
                peak = peak.max(size(&dir));
                sleep(Duration::from_millis(500));
            }
        }
        is_over.store(true, Relaxed);
        Ok(())
    })?;
    drop(cursor);
    db.flush()?;
    while db.stats().jobs_pending > 0 {
        sleep(Duration::from_millis(20));
    }
    println!("without the cursor, at rest: files {} MiB", size(&dir) >> 20);
    db.close()?;
    Ok(())
}

fn overwrite(db: &Db, (thread, rows, rate): (u64, u64, u64), done: &AtomicU64, is_over: &AtomicBool) {
    let (mut due, pace) = (Instant::now(), Duration::from_secs(1) / 10);
    let mut draws = draws(thread + 1, rows);
    while !is_over.load(Relaxed) {
        for n in draws.by_ref().take((rate / 10) as usize) {
            let put = db.put(n.to_be_bytes(), value(n + 1));
            assert!(put.is_ok(), "{put:?}");
            done.fetch_add(1, Relaxed);
        }
        due += pace;
        sleep(due.saturating_duration_since(Instant::now()));
    }
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

fn size(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Memory of this process; 0 if the system does not say.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn draws(seed: u64, below: u64) -> impl Iterator<Item = u64> {
    let mut random = seed;
    std::iter::repeat_with(move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 32).wrapping_mul(below) >> 32
    })
}
