//! Overwrites a set of large values again and again, deletes most of them and then stays idle. Prints once a second what
//! the value logs take on disk and what is live.
//!
//! Usage: `cargo run --release -p tidesdb-engine --example value_churn -- DIR [MIB] [ROUNDS] [IDLE_SECONDS]`
#![allow(
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    reason = "a measurement reads the clock; keys are in their order"
)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidesdb::{Db, FamilyOptions, SyncMode};

const VALUE_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("DIR is missing")?;
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (mib, rounds, idle) = (number(256)?, number(10)?, number(60)?);
    let keys = mib * (1 << 20) / VALUE_BYTES as u64;
    let family = FamilyOptions::default().vlog_file_bytes((mib << 20) / 16);
    let db = Db::options(&dir).sync(SyncMode::None).default_family(family).open()?;
    let (live, done) = (AtomicU64::new(0), AtomicBool::new(false));
    println!("second,phase,live_mib,disk_mib,metric_mib,moved_mib,removed_files,written_mib");
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        scope.spawn(|| watch(&db, Path::new(&dir), &live, &done));
        let result = churn(&db, keys, rounds, &live);
        std::thread::sleep(Duration::from_secs(idle));
        done.store(true, Ordering::Relaxed);
        result
    })?;
    for key in (0..keys).step_by(10) {
        let found = db.get(&name(key))?.ok_or("a value is missing")?;
        if *found != *value(key, rounds - 1) {
            return Err(format!("the value of key {key} is wrong").into());
        }
    }
    println!("# all values are right; verify: {}", db.verify()?);
    db.close()?;
    Ok(())
}

fn churn(db: &Db, keys: u64, rounds: u64, live: &AtomicU64) -> Result<(), Box<dyn std::error::Error>> {
    for round in 0..rounds {
        for i in 0..keys {
            // Another order in each round, so that each value log mixes values that die at different times.
            let key = if round % 2 == 0 { i } else { i.wrapping_mul(0x9E37_79B1) % keys };
            db.put(&name(key), &value(key, round))?;
            if round == 0 {
                live.fetch_add(VALUE_BYTES as u64, Ordering::Relaxed);
            }
        }
        for key in 0..keys {
            if round % 2 == 1 {
                db.put(&name(key), &value(key, round))?;
            }
        }
    }
    for key in (0..keys).filter(|key| key % 10 != 0) {
        db.delete(&name(key))?;
        live.fetch_sub(VALUE_BYTES as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Prints a line each second until `done`.
fn watch(db: &Db, dir: &Path, live: &AtomicU64, done: &AtomicBool) {
    let begun = Instant::now();
    let mib = |bytes: u64| bytes >> 20;
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1));
        let stats = db.default_family().stats();
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "vlog"));
        let disk: u64 = logs.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum();
        println!(
            "{},{},{},{},{},{},{},{}",
            begun.elapsed().as_secs(),
            if db.stats().jobs_pending > 0 { "busy" } else { "quiet" },
            mib(live.load(Ordering::Relaxed)),
            mib(disk),
            mib(stats.value_log_file_bytes),
            mib(stats.value_bytes_moved),
            stats.value_files_removed,
            mib(stats.user_bytes),
        );
    }
}

fn name(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Incompressible bytes, the same for the same key and round.
fn value(key: u64, round: u64) -> Vec<u8> {
    let mut x = (key << 8 | round).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    (0..VALUE_BYTES / 8).flat_map(|_| next()).collect()
}
