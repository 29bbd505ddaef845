//! Measures one merge: `TABLES` flushed tables and the sorted run below them, with two fifths of its rows overwritten.
//!
//! Usage: `cargo run --profile dist -p tidesdb-engine --example merge_speed -- DIR [THOUSANDS_OF_ROWS] [TABLES] [VALUE_BYTES] [COMPRESSIBLE_PERCENT] [RUNS]`
//! prints for each run the time per entry read, in one thread.
#![allow(clippy::disallowed_methods, clippy::big_endian_bytes, reason = "a measurement reads the clock")]

use std::path::Path;
use std::time::Instant;

use tidesdb::{Db, DbOptions, FamilyOptions, SyncMode, WriteBatch};

const BATCH: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("DIR is missing")?;
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (rows, tables) = (number(1000)? * 1000, number(4)?);
    let (value_bytes, compressible, runs) = (number(100)? as usize, number(0)? as usize, number(5)?);
    for run in 0..runs {
        let dir = Path::new(&dir).join(run.to_string());
        let family = FamilyOptions::default().value_threshold(usize::MAX).write_buffer_bytes(256 << 20);
        let options = Db::options(&dir).sync(SyncMode::None).default_family(family);
        let db = options.with(|o: &mut DbOptions| o.merge_parts = Some(1)).open()?;
        db.cancel_compactions()?;
        let load = |from: u64, to: u64, version: u64| -> Result<(), tidesdb::Error> {
            for first in (from..to).step_by(BATCH as usize) {
                let mut batch = WriteBatch::new();
                for row in first..(first + BATCH).min(to) {
                    batch.put(
                        db.default_family(),
                        key(row),
                        value(row + (version << 40), value_bytes, compressible),
                    )?;
                }
                db.write(&mut batch)?;
            }
            db.flush()
        };
        load(0, rows, 0)?;
        db.compact()?;
        let share = rows * 2 / 5 / tables;
        for table in 0..tables {
            load(table * share, (table + 1) * share, 1 + table)?;
        }
        let (begun, ran) = (Instant::now(), ran()?);
        db.compact()?;
        let (elapsed, ran) = (begun.elapsed().as_nanos(), self::ran()? - ran);
        let per_entry = |nanos: f64| nanos / (rows + share * tables) as f64;
        println!(
            "run {run}: {:.0} ns of processor time per entry read, {:.0} ns elapsed",
            per_entry(ran as f64),
            per_entry(elapsed as f64)
        );
        db.close()?;
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Returns the processor time of this thread in nanoseconds; `merge_parts` = 1 keeps the merge in it.
fn ran() -> Result<u64, Box<dyn std::error::Error>> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")
        .map_err(|e| format!("only Linux tells the time of a thread: {e}"))?;
    Ok(times.split(' ').next().ok_or("no times of this thread")?.parse()?)
}

/// Spreads the rows over all keys.
fn key(row: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(row).to_be_bytes());
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

fn value(seed: u64, bytes: usize, compressible: usize) -> Vec<u8> {
    let random = bytes - bytes * compressible / 100;
    let numbers =
        (0..random.div_ceil(8) as u64).flat_map(|i| mix(seed.wrapping_mul(31).wrapping_add(i)).to_le_bytes());
    let mut value: Vec<u8> = numbers.take(random).collect();
    value.resize(bytes, b'v');
    value
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}
