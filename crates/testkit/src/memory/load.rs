//! The load: puts, batches with large values, transactions as large as they may be, gets, scans and merges over many families.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb::{Db, Error, Family, Isolation, StatValue, SyncMode, WriteBatch};
use tidesdb_io::{Clock, RealClock};

use super::Plan;
use super::group::memory_of;
use crate::process::processor_time;
use crate::rng::Rng;

/// Keys of each family.
const KEYS: u64 = 20_000;
/// Length of the values that the transactions write.
const ROW_BYTES: usize = 300;
/// A process that commits no large transaction ends with this many times the bytes of its goal.
const GOALS_MAX: u64 = 10;
/// How long an idle database is watched.
const IDLE: Duration = Duration::from_secs(3);

/// One step of a thread of the load.
type Step<'l> = fn(&Load<'l>, &mut Rng) -> Result<(), Error>;

/// What the threads of the load share.
struct Load<'a> {
    db: &'a Db,
    families: Vec<Family>,
    plan: Plan,
    /// Bytes to write in this process.
    goal: u64,
    bytes: AtomicU64,
    rows: AtomicU64,
    transactions: AtomicU64,
    refused: AtomicU64,
    failed: AtomicBool,
}

/// Runs the load in this process. `last`: it ends by itself; otherwise it says `half` and goes on until it is killed.
///
/// # Errors
/// A failure of the database other than a refusal, or a row that is not what was written.
pub fn run(dir: &Path, plan: Plan, last: bool) -> Result<(), String> {
    let options = Db::options(dir).sync(SyncMode::None).with(|o| o.memory_limit = plan.limit);
    let db = options.open().map_err(|e| format!("open: {e}"))?;
    println!("opened anon_mib={} {}", anonymous() >> 20, db.recovery_report());
    let families = (0..plan.families).map(|n| db.family_or_create(&format!("family{n}"), Default::default()));
    let families = families.collect::<Result<Vec<_>, _>>().map_err(|e| format!("create: {e}"))?;
    let load = Load {
        db: &db,
        families,
        plan,
        goal: plan.bytes / (plan.kills + 1),
        bytes: AtomicU64::new(0),
        rows: AtomicU64::new(0),
        transactions: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let work: [Step<'_>; 5] = [Load::put, Load::write_batch, Load::transact, Load::get, Load::scan];
        for (n, step) in work.into_iter().enumerate() {
            let load = &load;
            scope.spawn(move || load.repeat(step, plan.seed + n as u64, last));
        }
        load.report(last);
    });
    if load.failed.load(Ordering::Relaxed) {
        return Err("the load failed".into());
    }
    db.compact().map_err(|e| format!("compact: {e}"))?;
    print("compacted", &[load.sample()]);
    let idle_ppm = load.idle();
    load.total(idle_ppm);
    drop(load);
    db.close().map_err(|e| format!("close: {e}"))?;
    println!("done");
    Ok(())
}

/// A look at the memory.
struct Sample {
    /// How much the breakdown differs from the memory, in percent of the limit.
    apart: u64,
    parts: String,
}

/// Prints the last of `samples`, and how much each of them was apart.
fn print(what: &str, samples: &[Sample]) {
    let apart: Vec<String> = samples.iter().map(|sample| sample.apart.to_string()).collect();
    let parts = samples.last().map_or("", |sample| &sample.parts);
    println!("sample {what} {parts} apart={}", apart.join(","));
}

impl<'l> Load<'l> {
    fn repeat(&self, step: Step<'l>, seed: u64, last: bool) {
        let mut rng = Rng::new(seed);
        let ends = || self.failed.load(Ordering::Relaxed) || last && self.is_done();
        while !ends() {
            match step(self, &mut rng) {
                Ok(()) => {}
                Err(Error::Busy { .. } | Error::MemoryLimit { .. }) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(e) => {
                    println!("failed: {e}");
                    self.failed.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns whether the goal is reached, with a large transaction: other threads may reach it before the first of them is committed.
    fn is_done(&self) -> bool {
        let (bytes, goal) = (self.bytes.load(Ordering::Relaxed), self.goal);
        bytes >= goal && (self.transactions.load(Ordering::Relaxed) > 0 || bytes >= GOALS_MAX * goal)
    }

    /// Samples ten times a second, prints a line each second, and `half` once the goal is reached if the process shall be killed then.
    fn report(&self, last: bool) {
        let clock = RealClock::new();
        loop {
            let mut samples = Vec::new();
            for _ in 0..10 {
                clock.sleep(Duration::from_millis(100));
                samples.push(self.sample());
                if self.is_done() || self.failed.load(Ordering::Relaxed) {
                    print("last", &samples);
                    if !last && self.is_done() {
                        self.total(0);
                        println!("half");
                    }
                    return;
                }
            }
            print("now", &samples);
        }
    }

    /// Compares the resident memory with the breakdown. Other threads free hundreds of MiB in between, so the resident memory is read
    /// before and after the breakdown, which is compared with the nearer of the two, or lies between them.
    fn sample(&self) -> Sample {
        let before = anonymous();
        let stats = self.db.stats();
        let after = anonymous();
        let parts: Vec<(&str, u64)> = stats
            .figures()
            .filter_map(|(info, value)| match value {
                StatValue::Number(n) => Some((info.name.strip_prefix("memory_")?.strip_suffix("_bytes")?, n)),
                _ => None,
            })
            .filter(|(name, _)| !["limit", "shared"].contains(name))
            .collect();
        let sum = parts.iter().map(|(_, n)| n).sum::<u64>();
        let anon = sum.clamp(before.min(after), before.max(after));
        let apart = anon.abs_diff(sum) * 100 / self.plan.limit;
        let shown: Vec<String> = parts.iter().map(|(name, n)| format!("{name}={}", n >> 20)).collect();
        let written = self.bytes.load(Ordering::Relaxed) >> 20;
        let parts = format!("anon={} sum={} written={written} {}", anon >> 20, sum >> 20, shown.join(" "));
        Sample { apart, parts }
    }

    fn total(&self, idle_ppm: u64) {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        println!(
            "total mib={} rows={} transactions={} refused={} idle_ppm={idle_ppm}",
            get(&self.bytes) >> 20,
            get(&self.rows),
            get(&self.transactions),
            get(&self.refused),
        );
    }

    /// Returns the processor time that the database takes while it is not used, in millionths of one core.
    fn idle(&self) -> u64 {
        let clock = RealClock::new();
        clock.sleep(Duration::from_secs(6)); // it collects space after five quiet seconds
        let (before, begun) = (processor_time(), clock.mono());
        clock.sleep(IDLE);
        let share = (processor_time() - before).as_secs_f64() / (clock.mono() - begun).as_secs_f64();
        (share * 1e6) as u64
    }

    fn pick(&self, rng: &mut Rng) -> &Family {
        rng.pick(&self.families)
    }

    fn wrote(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn put(&self, rng: &mut Rng) -> Result<(), Error> {
        let key = key(rng.below(KEYS));
        let value = value(&key, 100 + rng.below(900) as usize);
        self.pick(rng).put(&key, &value)?;
        self.wrote(key.len() + value.len());
        Ok(())
    }

    fn write_batch(&self, rng: &mut Rng) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        let family = self.pick(rng);
        let mut bytes = 0;
        for _ in 0..100 {
            let key = key(rng.below(KEYS));
            let value = value(&key, 4096);
            bytes += key.len() + value.len();
            batch.put(family, &key, &value)?;
        }
        self.db.write(&mut batch)?;
        self.wrote(bytes);
        Ok(())
    }

    fn transact(&self, rng: &mut Rng) -> Result<(), Error> {
        let levels = [Isolation::Snapshot, Isolation::ReadCommitted];
        let mut tx = self.db.begin(levels[rng.below(2) as usize]);
        let mut bytes = 0;
        while bytes < self.plan.transaction as usize && !self.failed.load(Ordering::Relaxed) {
            let key = key(KEYS + rng.below(KEYS * 50)); // keys of its own: no conflict
            let value = value(&key, ROW_BYTES);
            tx.put(self.pick(rng), &key, &value)?;
            bytes += key.len() + value.len();
        }
        tx.commit()?;
        self.wrote(bytes);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        RealClock::new().sleep(Duration::from_secs(1));
        Ok(())
    }

    fn get(&self, rng: &mut Rng) -> Result<(), Error> {
        let key = key(rng.below(KEYS));
        if let Some(found) = self.pick(rng).get(&key)? {
            self.check(&key, &found);
        }
        Ok(())
    }

    fn scan(&self, rng: &mut Rng) -> Result<(), Error> {
        let from = key(rng.below(KEYS));
        for row in self.pick(rng).range(from..)?.take(1000) {
            let (key, found) = row?;
            self.check(&key, &found);
        }
        Ok(())
    }

    fn check(&self, key: &[u8], found: &[u8]) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        if found != value(key, found.len()) {
            println!("failed: a row is not what was written");
            self.failed.store(true, Ordering::Relaxed);
        }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:010}").into_bytes()
}

/// A value that depends on its key and length alone, and does not compress well.
fn value(key: &[u8], len: usize) -> Vec<u8> {
    let seed = key.iter().fold(len as u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    Rng::new(seed).bytes(len)
}

fn anonymous() -> u64 {
    memory_of(std::process::id()).map_or(0, |(anonymous, _)| anonymous)
}
