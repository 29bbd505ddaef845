//! Quick measurement: the engine alone, eight threads, 16-byte keys, 100-byte values that are half compressible.
//!
//! `cargo run --profile dist -p tidesdb-engine --example speed -- [--runs N] [--only NAME] [--scale PERCENT]`. Each run of each workload is a
//! separate process in a new directory; medians and ranges are printed. `--keep` leaves the process in the
//! foreground for a profiler: `speed --child NAME`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark panics at the first error and reads the clock"
)]

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidesdb::{Db, FamilyOptions, SyncMode, WriteBatch};

const THREADS: u64 = 8;
const BATCH: u64 = 1000;
const VALUE_BYTES: usize = 100;
const READ_KEYS: u64 = 2_000_000;

type Workload = (&'static str, &'static str, fn(&Path, u64) -> f64);

const WORKLOADS: [Workload; 9] = [
    ("put-batch-sequential", "puts/s, batches of 1000", |dir, scale| batched(dir, scale, false)),
    ("put-batch-random", "puts/s, batches of 1000", |dir, scale| batched(dir, scale, true)),
    ("put-single", "puts/s, no sync", singles),
    ("get-random", "gets/s over 2 M keys, 64 MiB cache", |dir, scale| reads(dir, scale, get)),
    ("get-missing", "gets/s of absent keys", |dir, scale| reads(dir, scale, miss)),
    ("seek-random", "seeks/s over 2 M keys", |dir, scale| reads(dir, scale, seek)),
    ("scan", "keys/s with values", |dir, scale| reads(dir, scale, scan)),
    ("sync-1", "durable puts/s, 1 thread", |dir, scale| synced(dir, scale, 1)),
    ("sync-16", "durable puts/s, 16 threads", |dir, scale| synced(dir, scale, 16)),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).cloned();
    let scale: u64 = value("--scale").map_or(100, |s| s.parse().unwrap());
    if let Some(name) = value("--child") {
        let (_, _, run) = WORKLOADS.iter().find(|w| w.0 == name).unwrap();
        let dir = std::env::temp_dir().join(format!("tidesdb-speed-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let rate = run(&dir, scale);
        let _ = std::fs::remove_dir_all(&dir);
        println!(
            "{rate} {} {}",
            peak_rss_kib(),
            CPU_NANOS.load(Relaxed) as f64 * 1e9 / rate / WALL_NANOS.load(Relaxed) as f64
        );
        return;
    }
    let runs: usize = value("--runs").map_or(5, |s| s.parse().unwrap());
    let only = value("--only");
    println!(
        "{:<22} {:>12} {:>25} {:>10} {:>10}  unit",
        "workload", "median", "range", "CPU ns/op", "RSS MiB"
    );
    for (name, unit, _) in WORKLOADS.iter().filter(|w| only.as_ref().is_none_or(|o| w.0.contains(o.as_str())))
    {
        let mut results: Vec<(f64, u64, f64)> = (0..runs).map(|_| child(name, scale)).collect();
        results.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = results[runs / 2].0;
        let mut cpu: Vec<f64> = results.iter().map(|r| r.2).collect();
        cpu.sort_by(f64::total_cmp);
        let cpu = cpu[runs / 2];
        let rss = results.iter().map(|r| r.1).max().unwrap_or(0) / 1024;
        println!(
            "{name:<22} {median:>12.0} {:>12.0}..{:>11.0} {cpu:>10.0} {rss:>10}  {unit}",
            results[0].0,
            results[runs - 1].0
        );
    }
}

fn child(name: &str, scale: u64) -> (f64, u64, f64) {
    let exe = std::env::current_exe().unwrap();
    let out = Command::new(exe).args(["--child", name, "--scale", &scale.to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut words = text.split_whitespace();
    let mut number = || words.next().and_then(|w| w.parse::<f64>().ok());
    match (number(), number(), number()) {
        (Some(rate), Some(rss), Some(cpu)) => (rate, rss as u64, cpu),
        _ => panic!("{name} failed: {}", String::from_utf8_lossy(&out.stderr)),
    }
}

/// Processor time of the measured phase over all threads, and its duration.
static CPU_NANOS: AtomicU64 = AtomicU64::new(0);
static WALL_NANOS: AtomicU64 = AtomicU64::new(0);

/// Returns the processor time of this process so far.
fn cpu_nanos() -> u64 {
    const NANOS_PER_TICK: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |i: usize| fields.split_whitespace().nth(i).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * NANOS_PER_TICK
}

fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn open(dir: &Path, sync: SyncMode) -> Db {
    Db::options(dir).sync(sync).cache_bytes(64 << 20).default_family(FamilyOptions::default()).open().unwrap()
}

/// Returns a 16-byte key: sequential decimal digits, or a number spread over the whole key space.
fn key(n: u64, random: bool) -> [u8; 16] {
    if random { digits::<16>(mix(n)) } else { digits::<10>(n) }
}

fn digits<const BASE: u64>(mut n: u64) -> [u8; 16] {
    let mut out = [b'0'; 16];
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(n % BASE) as usize];
        n /= BASE;
    }
    out
}

fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Fills a value: half of the bytes are random, half repeat.
fn fill(value: &mut [u8; VALUE_BYTES], n: u64) {
    let mut x = mix(n ^ 0x5555);
    for chunk in value[..VALUE_BYTES / 2].chunks_mut(8) {
        x = x.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(23) ^ 0x1234_5678;
        let bytes = x.to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    value[VALUE_BYTES / 2..].fill(b'v');
}

/// Runs `body(thread)` on `threads` threads; returns the time from the common start to the end of the last thread.
fn timed(threads: u64, body: impl Fn(u64) + Sync) -> Duration {
    let barrier = Barrier::new(threads as usize + 1);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|t| {
                let (barrier, body) = (&barrier, &body);
                scope.spawn(move || {
                    barrier.wait();
                    body(t);
                })
            })
            .collect();
        barrier.wait();
        let (start, cpu) = (Instant::now(), cpu_nanos());
        handles.into_iter().for_each(|h| h.join().unwrap());
        let took = start.elapsed();
        CPU_NANOS.store(cpu_nanos() - cpu, Relaxed);
        WALL_NANOS.store(took.as_nanos() as u64, Relaxed);
        took
    })
}

fn batched(dir: &Path, scale: u64, random: bool) -> f64 {
    let total = 8_000_000 * scale / 100;
    let db = open(dir, SyncMode::None);
    let took = load(&db, total, random);
    let check = db.get(&key(total / 2, random)).unwrap();
    assert!(check.is_some(), "a written key is missing");
    db.close().unwrap();
    total as f64 / took.as_secs_f64()
}

fn load(db: &Db, total: u64, random: bool) -> Duration {
    let family = db.default_family();
    timed(THREADS, |t| {
        let mut batch = WriteBatch::new();
        let mut value = [0; VALUE_BYTES];
        let share = total / THREADS;
        for start in (t * share..(t + 1) * share).step_by(BATCH as usize) {
            for n in start..(start + BATCH).min((t + 1) * share) {
                fill(&mut value, n);
                batch.put(family, &key(n, random), &value).unwrap();
            }
            db.write(&mut batch).unwrap();
        }
    })
}

fn singles(dir: &Path, scale: u64) -> f64 {
    let total = 3_000_000 * scale / 100;
    let db = open(dir, SyncMode::None);
    let took = timed(THREADS, |t| {
        let mut value = [0; VALUE_BYTES];
        for n in t * total / THREADS..(t + 1) * total / THREADS {
            fill(&mut value, n);
            db.put(&key(n, true), &value).unwrap();
        }
    });
    db.close().unwrap();
    total as f64 / took.as_secs_f64()
}

fn synced(dir: &Path, scale: u64, threads: u64) -> f64 {
    let millis = 2000 * scale.clamp(10, 200) / 100;
    let db = open(dir, SyncMode::Full);
    let done = AtomicU64::new(0);
    let took = timed(threads, |t| {
        let start = Instant::now();
        let mut n = t << 40;
        while start.elapsed() < Duration::from_millis(millis) {
            db.put(&key(n, true), &[b'v'; VALUE_BYTES]).unwrap();
            n += 1;
            done.fetch_add(1, Relaxed);
        }
    });
    db.close().unwrap();
    done.load(Relaxed) as f64 / took.as_secs_f64()
}

/// Loads 2 M random keys, reopens, warms up, then measures `read(db, keys, share of the thread, random start)`.
fn reads(dir: &Path, scale: u64, read: fn(&Db, u64, u64) -> u64) -> f64 {
    let db = open(dir, SyncMode::None);
    load(&db, READ_KEYS, true);
    db.close().unwrap();
    let db = open(dir, SyncMode::None);
    while db.stats().jobs_pending > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let share = 400_000 * scale / 100;
    read(&db, share, 99);
    let done = AtomicU64::new(0);
    let took = timed(THREADS, |t| {
        done.fetch_add(read(&db, share, t + 1), Relaxed);
    });
    db.close().unwrap();
    done.load(Relaxed) as f64 / took.as_secs_f64()
}

fn get(db: &Db, share: u64, seed: u64) -> u64 {
    let mut x = mix(seed);
    for _ in 0..share {
        x = mix(x);
        let value = db.get(&key(x % READ_KEYS, true)).unwrap();
        assert_eq!(value.map(|v| v.len()), Some(VALUE_BYTES), "a key is missing");
    }
    share
}

fn miss(db: &Db, share: u64, seed: u64) -> u64 {
    let mut x = mix(seed);
    for _ in 0..share {
        x = mix(x);
        assert!(db.get(&key(READ_KEYS + x % READ_KEYS, true)).unwrap().is_none());
    }
    share
}

fn seek(db: &Db, share: u64, seed: u64) -> u64 {
    let mut cursor = db.cursor().unwrap();
    let mut x = mix(seed);
    for _ in 0..share {
        x = mix(x);
        let key = key(x % READ_KEYS, true);
        cursor.seek(&key).unwrap();
        assert!(cursor.valid() && cursor.key() == key, "a key is missing");
    }
    share
}

fn scan(db: &Db, share: u64, _seed: u64) -> u64 {
    let mut cursor = db.cursor().unwrap();
    let (mut n, mut bytes) = (0, 0);
    cursor.seek_to_first().unwrap();
    while cursor.valid() && n < share * 5 {
        bytes += cursor.value().unwrap().len();
        n += 1;
        cursor.next().unwrap();
    }
    assert_eq!(bytes as u64, n * VALUE_BYTES as u64);
    n
}
