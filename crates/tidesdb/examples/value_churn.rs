//! Overwrites a set of large values again and again with two threads, deletes most of them and then stays idle. Looks at the directory
//! ten times a second and prints the largest ratio between the space that value logs take and the values that are live.
//!
//! Usage: `cargo run --profile dist -p tidesdb-engine --example value_churn -- DIR [MIB] [ROUNDS] [IDLE_SECONDS] [uniform|zipf] [PLOT.csv]`
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::big_endian_bytes,
    reason = "a measurement reads the clock and the directory; keys are in their order"
)]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidesdb::{Db, SyncMode};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WRITERS: u64 = 2;
/// Values take 1, 2, 4, 8 or 16 KiB, and less than twice that: on average about 6 KiB.
const SHORTEST: u64 = 1 << 10;
const SIZES: u64 = 5;
/// Average bytes of a value, to choose the number of keys.
const AVERAGE: u64 = 6348;
/// No ratio is computed while the space is below this: it is that of value logs being written, and of files that no table names yet.
const SMALL: u64 = 64 << 20;
const LOOK: Duration = Duration::from_millis(100);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("DIR is missing")?;
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (mib, rounds, idle) = (number(200)?, number(10)?, number(12)?);
    let is_zipf = arguments.next().is_some_and(|word| word == "zipf");
    let plot = arguments.next();
    let db = Db::options(&dir).sync(SyncMode::None).open()?;
    let set = Set::new((mib << 20) / AVERAGE, is_zipf);
    let look = |seconds: f64| Seen::now(&db, Path::new(&dir), &set, seconds);
    let (done, begun) = (AtomicBool::new(false), Instant::now());
    let mut samples = Vec::new();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let watch = scope.spawn(|| {
            let mut samples = Vec::new();
            while !done.load(Relaxed) {
                samples.push(look(begun.elapsed().as_secs_f64()));
                std::thread::sleep(LOOK);
            }
            samples
        });
        let result = phases(&db, &set, rounds, idle, &look);
        done.store(true, Relaxed);
        samples = watch.join().unwrap_or_default();
        result
    })?;
    let mut file = String::from("seconds,live,files,blocks,metric,directory,named,moved\n");
    for s in &samples {
        let Seen { seconds, live, files, blocks, metric, directory, named, moved } = s;
        writeln!(file, "{seconds:.1},{live},{files},{blocks},{metric},{directory},{named},{moved}")?;
    }
    plot.map_or(Ok(()), |path| std::fs::write(path, file))?;
    set.check(&db)?;
    println!("all values are right; verify: {}", db.verify()?);
    db.close()?;
    Ok(())
}

/// Loads, overwrites, deletes, and prints what each phase took at the most and what it left.
fn phases(
    db: &Db,
    set: &Set,
    rounds: u64,
    idle: u64,
    look: &(impl Fn(f64) -> Seen + Sync),
) -> Result<(), Failure> {
    let run = |name: &str, writes: u64, op: &(dyn Fn(&mut Dice, u64) -> Result<(), Failure> + Sync)| {
        let (begun, peak, done) = (Instant::now(), PeakCell::default(), AtomicBool::new(false));
        let before = db.default_family().stats();
        std::thread::scope(|scope| -> Result<(), Failure> {
            let watch = scope.spawn(|| {
                while !done.load(Relaxed) {
                    peak.note(&look(0.0));
                    std::thread::sleep(LOOK);
                }
            });
            let writer = |n: u64| {
                let mut dice = Dice(n + 1);
                move || (n..writes).step_by(WRITERS as usize).try_for_each(|i| op(&mut dice, i))
            };
            let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(writer(n))).collect();
            let written = writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())));
            done.store(true, Relaxed);
            let _ = watch.join();
            written
        })?;
        let took = begun.elapsed().as_secs_f64();
        let after = db.default_family().stats();
        let mib = |now: u64, then: u64| (now - then) as f64 / f64::from(1 << 20);
        let written = mib(after.value_log_written, before.value_log_written);
        println!(
            "{name}: {took:.1} s, {:.0} MiB/s, moved {:.2}, tables {:.2} of the bytes written; peak {peak}; end {}",
            written / took,
            mib(after.value_bytes_moved, before.value_bytes_moved) / written.max(1.0),
            mib(after.flush_bytes + after.compaction_written, before.flush_bytes + before.compaction_written)
                / written.max(1.0),
            look(0.0),
        );
        Ok::<(), Failure>(())
    };
    run("load", set.keys(), &|dice, key| set.put(db, key, dice))?;
    run("overwrite", set.keys() * rounds, &|dice, _| set.put(db, set.pick(dice), dice))?;
    let calm = |after: u64, of: u64| {
        std::thread::sleep(Duration::from_secs(after - of));
        println!("after {after} s without writes: {}", look(0.0));
    };
    [(1, 0), (5, 1), (idle.max(5), 5)].into_iter().for_each(|(after, of)| calm(after, of));
    run("delete 90 %", set.keys(), &|_, key| set.delete(db, key))?;
    [(1, 0), (5, 1), (idle.max(5), 5)].into_iter().for_each(|(after, of)| calm(after, of));
    Ok(())
}

/// The keys, and what their values are.
struct Set {
    /// Length and seed of each value; 0 for none.
    now: Vec<AtomicU64>,
    live: AtomicU64,
    writes: AtomicU32,
    /// Sums of the frequencies of keys; empty for uniform ones.
    zipf: Vec<f64>,
}

impl Set {
    fn new(keys: u64, is_zipf: bool) -> Self {
        let mut sum = 0.0;
        let mut add = |n: u64| {
            sum += (n as f64 + 1.0).powf(-0.99);
            sum
        };
        let zipf = if is_zipf { (0..keys).map(&mut add).collect() } else { Vec::new() };
        let now = (0..keys).map(|_| AtomicU64::new(0)).collect();
        Self { now, live: AtomicU64::new(0), writes: AtomicU32::new(0), zipf }
    }

    fn keys(&self) -> u64 {
        self.now.len() as u64
    }

    fn pick(&self, dice: &mut Dice) -> u64 {
        let Some(sum) = self.zipf.last() else { return dice.next() % self.keys() };
        let at = (dice.next() >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let rank = self.zipf.partition_point(|end| *end < at) as u64;
        rank.wrapping_mul(2_654_435_761) % self.keys() // frequent keys are not neighbours
    }

    /// Puts a new value. Two threads may meet at a key: one of them waits for the other.
    fn put(&self, db: &Db, key: u64, dice: &mut Dice) -> Result<(), Failure> {
        let length = (SHORTEST << (dice.next() % SIZES)) + dice.next() % SHORTEST;
        let value = length << 32 | u64::from(self.writes.fetch_add(1, Relaxed));
        let old = self.lock(key);
        let done = db.put(&name(key), &bytes(value));
        self.now[key as usize].store(value, Relaxed);
        self.live.fetch_add(length, Relaxed);
        self.live.fetch_sub(old >> 32, Relaxed);
        Ok(done.map(drop)?)
    }

    fn delete(&self, db: &Db, key: u64) -> Result<(), Failure> {
        if key.is_multiple_of(10) {
            return Ok(());
        }
        let old = self.lock(key);
        let done = db.delete(&name(key));
        self.now[key as usize].store(0, Relaxed);
        self.live.fetch_sub(old >> 32, Relaxed);
        Ok(done.map(drop)?)
    }

    /// Returns the value of a key that no other thread writes until the next one is stored.
    fn lock(&self, key: u64) -> u64 {
        loop {
            let old = self.now[key as usize].swap(u64::MAX, Relaxed);
            if old != u64::MAX {
                return old;
            }
            std::thread::yield_now();
        }
    }

    fn check(&self, db: &Db) -> Result<(), Failure> {
        for (key, value) in self.now.iter().enumerate() {
            let wanted = Some(value.load(Relaxed)).filter(|value| *value != 0).map(bytes);
            if db.get(&name(key as u64))?.as_deref() != wanted.as_deref() {
                return Err(format!("the value of key {key} is wrong").into());
            }
        }
        Ok(())
    }
}

/// What the directory holds at one moment, in bytes.
#[derive(Clone, Debug, Default)]
struct Seen {
    seconds: f64,
    live: u64,
    /// Lengths of the value logs.
    files: u64,
    /// Bytes that the file system has allocated for the value logs.
    blocks: u64,
    /// Bytes of the value logs according to the statistics.
    metric: u64,
    /// Lengths of all files.
    directory: u64,
    /// Bytes of values that tables refer to, values that other tables overwrite included.
    named: u64,
    moved: u64,
}

#[cfg(unix)]
fn allocated(file: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(file) * 512
}

#[cfg(not(unix))]
fn allocated(file: &std::fs::Metadata) -> u64 {
    file.len() // NTFS gives a file clusters for its length
}

impl Seen {
    fn now(db: &Db, dir: &Path, set: &Set, seconds: f64) -> Self {
        let stats = db.default_family().stats();
        let (metric, moved) = (stats.value_log_file_bytes, stats.value_bytes_moved);
        let named = stats.value_log_live_bytes;
        let mut seen =
            Self { seconds, metric, named, moved, live: set.live.load(Relaxed), ..Self::default() };
        for file in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(meta) = file.metadata() else { continue };
            seen.directory += meta.len();
            if file.path().extension().is_some_and(|end| end == "vlog") {
                seen.files += meta.len();
                seen.blocks += allocated(&meta);
            }
        }
        seen
    }

    fn ratio(&self) -> f64 {
        self.files.saturating_sub(SMALL) as f64 / self.live.max(1) as f64
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.0} MiB live, value logs {:.0} ({:.2}x, without {} MiB {:.2}x), allocated {:.0}, metric {:.0}, directory {:.0}",
            mib(self.live),
            mib(self.files),
            self.files as f64 / self.live.max(1) as f64,
            SMALL >> 20,
            self.ratio(),
            mib(self.blocks),
            mib(self.metric),
            mib(self.directory),
        )
    }
}

/// The moment with the largest ratio.
#[derive(Default)]
struct PeakCell(std::sync::Mutex<Seen>);

impl PeakCell {
    fn note(&self, seen: &Seen) {
        if let Ok(mut peak) = self.0.lock()
            && seen.files >= peak.files
        {
            *peak = seen.clone();
        }
    }
}

impl std::fmt::Display for PeakCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.lock().map_or(Ok(()), |peak| peak.fmt(f))
    }
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

fn name(key: u64) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&Dice(key).next().to_be_bytes());
    name[8..].copy_from_slice(&key.to_be_bytes());
    name
}

/// Incompressible bytes: those of a value of this length and seed.
fn bytes(value: u64) -> Vec<u8> {
    let mut dice = Dice(value);
    let length = (value >> 32) as usize;
    let words = std::iter::repeat_with(|| dice.next().to_le_bytes());
    words.flatten().take(length).collect()
}
