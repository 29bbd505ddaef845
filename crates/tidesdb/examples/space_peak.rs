//! Loads random rows and overwrites each once, or a share of them, and prints for each phase what the directory held when it was largest,
//! by kind of file.
//!
//! Usage: `cargo run --release -p tidesdb-engine --example space_peak -- DIR [THOUSANDS_OF_ROWS] [MEMTABLE_KIB] [COMPRESSIBLE_PERCENT] [SEGMENT_KIB] [VALUE_BYTES]
//! [OVERWRITTEN_PERCENT]`
#![allow(
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    reason = "a measurement looks at the directory; keys are in their order"
)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidesdb::{Db, FamilyOptions, SyncMode, WriteBatch};

const BATCH: u64 = 100;
const WRITERS: u64 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("DIR is missing")?;
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (rows, memtable, percent) = (number(4000)? * 1000, number(64 << 10)? << 10, number(50)?);
    let family = FamilyOptions::default()
        .value_threshold(usize::MAX)
        .table_bytes(2 * memtable)
        .write_buffer_bytes(usize::try_from(memtable)?);
    let segment = number(memtable >> 11)? << 10;
    let value_bytes = usize::try_from(number(100)?)?;
    let overwritten = rows * number(100)?.min(100) / 100;
    let options = Db::options(&dir).sync(SyncMode::None).default_family(family);
    let settings = |o: &mut tidesdb::DbOptions| {
        (o.memtables_bytes_max, o.wal_segment_bytes) = (memtable * 5 / 2, segment);
    };
    let db = options.with(settings).open()?;
    for (version, (phase, puts)) in [("load", rows), ("overwrite", overwritten)].into_iter().enumerate() {
        let (begun, before) = (Instant::now(), db.default_family().stats());
        let done = AtomicBool::new(false);
        let peak = std::thread::scope(|scope| -> Result<Seen, tidesdb::Error> {
            let watch = scope.spawn(|| watch(&db, Path::new(&dir), &done));
            let writer = |n| {
                let db = &db;
                scope.spawn(move || {
                    write(db, n, (rows, puts), version as u64, (value_bytes, percent as usize))
                })
            };
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            let written = writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())));
            done.store(true, Ordering::Relaxed);
            let peak = watch.join().unwrap_or_default();
            written.map(|()| peak)
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        db.flush()?;
        while db.stats().jobs_pending > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = db.default_family().stats();
        let tables =
            (after.flush_bytes + after.compaction_written) - (before.flush_bytes + before.compaction_written);
        let raw = puts * (8 + 8 + value_bytes as u64);
        let settled = after.level_bytes.iter().sum::<u64>();
        println!(
            "{phase}: {:.0} K rows/s, tables written / raw {:.2}, settled {} MiB, peak {} MiB after {:.1} s = {:.2} x settled",
            puts as f64 / seconds / 1000.0,
            tables as f64 / raw as f64,
            settled >> 20,
            peak.all() >> 20,
            peak.at.as_secs_f64(),
            peak.all() as f64 / settled as f64,
        );
        println!("  {peak}");
    }
    db.close()?;
    Ok(())
}

/// Bytes of the directory at one moment.
#[derive(Clone, Debug, Default)]
struct Seen {
    at: Duration,
    log: u64,
    spare_log: u64,
    tables: u64,
    levels: Vec<u64>,
    flushed: u64,
    other: u64,
    needed_log: u64,
    immutable: u64,
}

impl Seen {
    fn all(&self) -> u64 {
        self.log + self.spare_log + self.tables + self.other
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let levels: Vec<u64> = self.levels.iter().map(|bytes| mib(*bytes)).collect();
        write!(
            f,
            "log {} MiB of which {} needed, spare segments {}, levels {levels:?} with {} tables in level 1, other tables {}, rest {}, \
             immutable memtables {}",
            mib(self.log),
            mib(self.needed_log),
            mib(self.spare_log),
            self.flushed,
            mib(self.tables.saturating_sub(self.levels.iter().sum())),
            mib(self.other),
            mib(self.immutable),
        )
    }
}

/// Looks at the directory until `done`; returns the moment when it was largest.
fn watch(db: &Db, dir: &Path, done: &AtomicBool) -> Seen {
    let (begun, mut peak) = (Instant::now(), Seen::default());
    while !done.load(Ordering::Relaxed) {
        let mut seen = Seen { at: begun.elapsed(), ..Seen::default() };
        for file in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let bytes = file.metadata().map_or(0, |meta| meta.len());
            match file.path().extension().and_then(|end| end.to_str()) {
                Some("wal") => seen.log += bytes,
                Some("free") => seen.spare_log += bytes,
                Some("klog") => seen.tables += bytes,
                _ => seen.other += bytes,
            }
        }
        if seen.all() > peak.all() {
            let stats = db.stats();
            seen.levels.clone_from(&stats.families[0].level_bytes);
            seen.flushed = stats.families[0].level_tables.first().copied().unwrap_or(0) as u64;
            (seen.needed_log, seen.immutable) = (stats.wal_live_bytes, stats.flush_debt_bytes);
            peak = seen;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}

/// Makes its share of `puts` puts of different rows: of every `WRITERS`-th row, in an order of its own. A share of `percent` of each value
/// compresses.
fn write(
    db: &Db,
    writer: u64,
    (rows, puts): (u64, u64),
    version: u64,
    (value_bytes, percent): (usize, usize),
) -> Result<(), tidesdb::Error> {
    let family = db.default_family();
    let mut batch = WriteBatch::new();
    let mut value = vec![b'v'; value_bytes];
    let mine = rows / WRITERS;
    for i in 0..puts / WRITERS {
        let n = (i * [2_654_435_761, 2_246_822_519][version as usize % 2] % mine) * WRITERS + writer;
        let key = [n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), n.to_be_bytes()].concat();
        let mut x = (n << 8 | version).wrapping_mul(0xD1B5_4A32_D192_ED03) | 1;
        for byte in &mut value[..value_bytes - value_bytes * percent / 100] {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *byte = (x >> 32) as u8;
        }
        batch.put(family, &key, &value)?;
        if i % BATCH == BATCH - 1 {
            db.write(&mut batch)?;
        }
    }
    db.write(&mut batch).map(drop)
}
