//! Opens many databases in one process, which share `Resources` or have what they need for themselves. One of them is written to as fast as
//! possible, the others a few times a second each. Prints what they take, and the waits of the quiet ones.
//!
//! Usage: `cargo run --release -p tidesdb-engine --example many_databases -- DIR [DATABASES] [MIB] [SECONDS] [shared|own|idle]`
#![allow(
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    reason = "a measurement looks at the process and at the time; keys are in their order"
)]

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidesdb::{Db, Resources, SyncMode};

/// Threads that write to the quiet databases.
const WRITERS: usize = 4;
/// Pause of each quiet database between two puts.
const PAUSE: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("DIR is missing")?);
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (count, mib, seconds) = (number(100)?.max(1), number(256)?, number(60)?);
    let how = arguments.next().unwrap_or_else(|| "shared".to_owned());
    let resources = Resources::builder().memory_limit(mib << 20).build()?;
    let open = |n: u64| {
        let options = Db::options(dir.join(n.to_string())).sync(SyncMode::None);
        if how == "own" { options.memory_limit((mib << 20) / count) } else { options.resources(&resources) }
            .open()
    };
    let begun = Instant::now();
    let all = (0..count).map(open).collect::<Result<Vec<Db>, _>>()?;
    for (n, db) in all.iter().enumerate() {
        db.put("first", n.to_string())?;
    }
    println!("{count} databases opened and written to in {:.2} s", begun.elapsed().as_secs_f64());
    show("open", &resources);
    if how == "idle" {
        let before = processor_seconds();
        sleep(Duration::from_secs(seconds));
        let used = processor_seconds() - before;
        println!("idle: {:.2} % of a processor", 100.0 * used / seconds as f64);
    } else {
        load(&all, seconds, &resources)?;
    }
    let begun = Instant::now();
    all.into_iter().try_for_each(Db::close)?;
    println!("closed in {:.2} s", begun.elapsed().as_secs_f64());
    show("closed", &resources);
    Ok(())
}

/// Writes to one database as fast as possible, and to each of the others now and then.
fn load(all: &[Db], seconds: u64, resources: &Resources) -> Result<(), Box<dyn Error>> {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let (hot, quiet) = all.split_first().ok_or("no database")?;
    let mut waits = std::thread::scope(|scope| -> Result<Vec<Duration>, Box<dyn Error>> {
        let is_over = &is_over;
        let hot_writer = scope.spawn(|| overwrite(hot, is_over, &done));
        let step = quiet.len().div_ceil(WRITERS).max(1);
        let writers: Vec<_> =
            quiet.chunks(step).map(|some| scope.spawn(move || visit(some, is_over))).collect();
        for _ in 0..seconds.div_ceil(10) {
            sleep(Duration::from_secs(10));
            show(&format!("{:.1} million puts", done.load(Relaxed) as f64 / 1e6), resources);
        }
        is_over.store(true, Relaxed);
        let refused = hot_writer.join().map_err(|_| "the hot writer panicked")??;
        println!("hot: {:.0} K puts/s, {refused} refused", done.load(Relaxed) as f64 / seconds as f64 / 1e3);
        let mut waits = Vec::new();
        for writer in writers {
            waits.append(&mut writer.join().map_err(|_| "a writer panicked")??);
        }
        Ok(waits)
    })?;
    waits.sort_unstable();
    let at = |share: f64| waits.get((waits.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!(
        "quiet: {} puts, median {:.1} us, p99 {:.2} ms, p99.9 {:.2} ms, slowest {:.2} ms",
        waits.len(),
        at(0.5).as_secs_f64() * 1e6,
        at(0.99).as_secs_f64() * 1e3,
        at(0.999).as_secs_f64() * 1e3,
        waits.last().copied().unwrap_or_default().as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Puts random rows until it is over. Returns how many were refused.
fn overwrite(db: &Db, is_over: &AtomicBool, done: &AtomicU64) -> tidesdb::Result<u64> {
    let (mut state, mut refused) = (7_u64, 0);
    let mut value = [0; 100];
    while !is_over.load(Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value[..8].copy_from_slice(&state.to_be_bytes());
        match db.put(((state >> 33) % 20_000_000).to_be_bytes(), value) {
            Ok(_) => done.fetch_add(1, Relaxed),
            Err(tidesdb::Error::Busy { .. }) => {
                refused += 1;
                continue;
            }
            Err(e) => return Err(e),
        };
    }
    Ok(refused)
}

/// Puts a row in each of `some` databases, again and again. Returns how long each put took.
fn visit(some: &[Db], is_over: &AtomicBool) -> tidesdb::Result<Vec<Duration>> {
    let (mut waits, mut n) = (Vec::new(), 0_u64);
    while !is_over.load(Relaxed) {
        let round = Instant::now();
        for db in some {
            let begun = Instant::now();
            db.put(n.to_be_bytes(), [7; 100])?;
            waits.push(begun.elapsed());
        }
        n += 1;
        sleep(PAUSE.saturating_sub(round.elapsed()));
    }
    Ok(waits)
}

/// Prints what the process and the databases take.
fn show(when: &str, resources: &Resources) {
    println!(
        "{when}: anonymous {} MiB, counted {} of {} MiB, cache and tables {} MiB, threads {} of {}, descriptors {}",
        status("RssAnon:") >> 10,
        resources.memory_used() >> 20,
        resources.memory_limit() >> 20,
        resources.cache_used() >> 20,
        resources.threads(),
        status("Threads:"),
        std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
    );
}

/// A number in `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Processor time of the process.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
