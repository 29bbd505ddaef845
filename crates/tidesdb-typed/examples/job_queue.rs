//! A queue of jobs that survives crashes: a worker leases a job, does it, and removes it. The lease of a worker that died
//! runs out, and another worker takes the job.
//!
//! `cargo run -p tidesdb-typed --example job_queue`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};
use tidesdb::Db;
use tidesdb_typed::{IndexDefinition, Postcard, Result, Table, TableDefinition};

const LEASE_SECONDS: u64 = 30;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Job {
    task: String,
    /// Second from which a worker may take the job: when it was added, or when the lease ends.
    due: u64,
    attempts: u32,
}

const BY_DUE: IndexDefinition<Postcard<Job>, u64> =
    IndexDefinition::new("due", |job, keys| keys.add(job.due));
const JOBS: TableDefinition<u64, Postcard<Job>> = TableDefinition::new("jobs").indexes(&[&BY_DUE]);

#[derive(Clone)]
struct Queue {
    db: Db,
    jobs: Table<u64, Postcard<Job>>,
}

impl Queue {
    fn open(db: &Db) -> Result<Self> {
        Ok(Self { db: db.clone(), jobs: JOBS.open(db)? })
    }

    fn add(&self, now: u64, task: &str) -> Result<u64> {
        self.db.transact(|tx| {
            let jobs = self.jobs.within(tx);
            let id = jobs.last()?.map_or(1, |(last, _)| last + 1);
            jobs.put(id, &Job { task: task.to_owned(), due: now, attempts: 0 })?;
            Ok(id)
        })
    }

    /// Leases the job that has waited longest. Several workers get different jobs.
    fn take(&self, now: u64) -> Result<Option<(u64, Job)>> {
        self.db.transact(|tx| {
            let jobs = self.jobs.within(tx);
            let Some((_, id, job)) = jobs.by(&BY_DUE).range(..=now)?.next().transpose()? else {
                return Ok(None);
            };
            let leased = Job { due: now + LEASE_SECONDS, attempts: job.attempts + 1, ..job };
            jobs.put(id, &leased)?; // moves the job in the index too
            Ok(Some((id, leased)))
        })
    }

    fn finish(&self, id: u64) -> Result<()> {
        self.jobs.delete(id)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let queue = Queue::open(&db)?;
    let now = 1000; // a real program reads the clock
    for n in 0..100 {
        queue.add(now, &format!("send letter {n}"))?;
    }

    let lost = queue.take(now)?.ok_or("no job")?;
    println!("a worker dies with job {}: {}", lost.0, lost.1.task);

    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        let worker = || -> Result<()> {
            while let Some((id, _job)) = queue.take(now)? {
                queue.finish(id)?; // after the work: a job may be done twice, but is never lost
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;
    println!("four workers did {} jobs", done.load(Ordering::Relaxed));
    if done.load(Ordering::Relaxed) != 99 {
        return Err("a job was done twice or not at all".into());
    }

    let (id, job) = queue.take(now + LEASE_SECONDS)?.ok_or("the lost job did not come back")?;
    println!("job {id} again, attempt {}: {}", job.attempts, job.task);
    queue.finish(id)?;
    if (id, job.attempts) != (lost.0, 2) || queue.jobs.first()?.is_some() {
        return Err("the queue should be empty".into());
    }
    db.close()?;
    Ok(())
}
