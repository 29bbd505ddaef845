//! Measures durable commits from many async tasks: each waits on a blocking thread, or each writes at once, and one
//! thread makes them durable and wakes the tasks, with `Db::sync` or with a durable commit of its own. docs/async.md has
//! the figures.
//!
//! Usage: `cargo run --release -p tidesdb-typed --example async_commits -- DIR [TASKS] [COMMITS]`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock and starts threads")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidesdb::{Db, SeqNo, SyncMode, WriteBatch, WriteOptions};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Commits at once and reports when the commit is durable.
#[derive(Clone)]
struct AsyncDb {
    db: Db,
    waiting: Sender<(SeqNo, oneshot::Sender<tidesdb::Result<()>>)>,
}

impl AsyncDb {
    fn new(db: &Db, sync: fn(&Db) -> tidesdb::Result<SeqNo>) -> Self {
        let (waiting, queue) = channel();
        let synced = db.clone();
        std::thread::spawn(move || sync_for_all(&synced, &queue, sync));
        Self { db: db.clone(), waiting }
    }

    /// Commits `batch`; ready when it is durable. The write itself runs in the calling task.
    async fn write(&self, batch: &mut WriteBatch) -> Result<(), Failure> {
        let seq = self.db.write_with(batch, &WriteOptions::default().sync(SyncMode::None))?;
        let (done, durable) = oneshot::channel();
        self.waiting.send((seq, done)).map_err(|_| "the syncing thread has ended")?;
        Ok(durable.await??)
    }
}

/// Syncs while somebody waits, and wakes those whose commits are durable.
fn sync_for_all(
    db: &Db,
    queue: &Receiver<(SeqNo, oneshot::Sender<tidesdb::Result<()>>)>,
    sync: fn(&Db) -> tidesdb::Result<SeqNo>,
) {
    while let Ok(first) = queue.recv() {
        let waiting: Vec<_> = std::iter::once(first).chain(queue.try_iter()).collect();
        let synced = sync(db);
        for (seq, done) in waiting {
            let result = synced.as_ref().map_err(Clone::clone).map(|end| assert!(seq < *end));
            let _ = done.send(result); // the task may have been cancelled
        }
    }
}

/// Runs `tasks` tasks of `commits` commits each; returns seconds, processor seconds, syncs and the most threads.
async fn run(db: &Db, handle: Option<AsyncDb>, tasks: u64, commits: u64) -> Result<[f64; 4], Failure> {
    let threads = Arc::new(Mutex::new(0));
    let (start, cpu, syncs) = (Instant::now(), cpu_seconds()?, db.stats().syncs.count);
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let (db, handle, threads) = (db.clone(), handle.clone(), Arc::clone(&threads));
        running.spawn(async move {
            for commit in 0..commits {
                let mut batch = WriteBatch::new();
                batch.put(db.default_family(), format!("{task:06}:{commit:06}"), [7; 100])?;
                match &handle {
                    Some(handle) => handle.write(&mut batch).await?,
                    None => {
                        let db = db.clone();
                        spawn_blocking(move || db.write_with(&mut batch, &full())).await??;
                    }
                }
            }
            if task % 100 == 0 {
                let mut most = threads.lock().map_err(|_| "poisoned")?;
                *most = process_threads()?.max(*most);
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    let most = *threads.lock().map_err(|_| "poisoned")?;
    let seconds = start.elapsed().as_secs_f64();
    Ok([seconds, cpu_seconds()? - cpu, (db.stats().syncs.count - syncs) as f64, most as f64])
}

fn full() -> WriteOptions {
    WriteOptions::default().sync(SyncMode::Full)
}

/// Processor time of the process in seconds, as the kernel reports it in hundredths.
fn cpu_seconds() -> std::io::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Ok(fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn process_threads() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    Ok(line.and_then(|line| line.trim().parse().ok()).unwrap_or(0))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = arguments.first().ok_or("DIR is missing")?;
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (tasks, commits) = (number(1, 1000)?, number(2, 1)?);
    let db = Db::open(dir)?;
    let by_sync = AsyncDb::new(&db, Db::sync);
    let by_commit = AsyncDb::new(&db, |db| db.default_family().put_with("synced", "", &full()));
    println!("way               seconds  processor  syncs  threads");
    for _ in 0..9 {
        let ways = [("spawn_blocking", None), ("Db::sync", Some(&by_sync)), ("own commit", Some(&by_commit))];
        for (way, handle) in ways {
            let [seconds, cpu, syncs, threads] = run(&db, handle.cloned(), tasks, commits).await?;
            println!("{way:<16} {seconds:>8.4} {cpu:>10.2} {syncs:>6} {threads:>8}");
        }
    }
    drop((by_sync, by_commit));
    db.close()?;
    Ok(())
}
