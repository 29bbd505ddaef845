//! Measures durable commits from many async tasks: each waits on a blocking thread, or all go through a committer.
//! docs/how-to/async.md has the figures. Processor time and threads are known on Linux only; elsewhere they are 0.
//!
//! Usage: `cargo run --profile dist -p tidesdb-tokio --example async_commits -- DIR [TASKS] [COMMITS]`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidesdb::{Db, SyncMode, WriteBatch, WriteOptions};
use tidesdb_tokio::Committer;
use tokio::task::spawn_blocking;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs `tasks` tasks of `commits` commits each; returns seconds, processor seconds, syncs and the most threads.
async fn run(db: &Db, committer: Option<Committer>, tasks: u64, commits: u64) -> Result<[f64; 4], Failure> {
    let threads = Arc::new(Mutex::new(0));
    let (start, cpu, syncs) = (Instant::now(), cpu_seconds(), db.stats().syncs.count);
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (db, committer, threads) = (db.clone(), committer.clone(), Arc::clone(&threads));
        running.spawn(async move {
            for commit in 0..commits {
                let mut batch = WriteBatch::new();
                batch.put(db.default_family(), format!("{task:06}:{commit:06}"), [7; 100])?;
                match &committer {
                    Some(committer) => drop(committer.commit(batch).await?),
                    None => {
                        let (db, full) = (db.clone(), WriteOptions::default().sync(SyncMode::Full));
                        spawn_blocking(move || db.write_with(&mut batch, &full)).await??;
                    }
                }
            }
            if task % 100 == 0 {
                let mut most = threads.lock().map_err(|_| "poisoned")?;
                *most = process_threads().max(*most);
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    let most = *threads.lock().map_err(|_| "poisoned")?;
    let seconds = start.elapsed().as_secs_f64();
    Ok([seconds, cpu_seconds() - cpu, (db.stats().syncs.count - syncs) as f64, most as f64])
}

/// Processor time of the process in seconds, as the kernel reports it in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn process_threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = arguments.first().ok_or("DIR is missing")?;
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (tasks, commits) = (number(1, 1000)?, number(2, 1)?);
    let db = Db::open(dir)?;
    let committer = Committer::new(&db)?;
    println!("way               seconds  processor  syncs  threads");
    for _ in 0..9 {
        for (way, committer) in [("spawn_blocking", None), ("Committer", Some(committer.clone()))] {
            let [seconds, cpu, syncs, threads] = run(&db, committer, tasks, commits).await?;
            println!("{way:<16} {seconds:>8.4} {cpu:>10.2} {syncs:>6} {threads:>8}");
        }
    }
    drop(committer);
    db.close()?;
    Ok(())
}
