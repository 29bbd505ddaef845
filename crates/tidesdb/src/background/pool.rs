//! The worker threads, and the timekeeper thread.

use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::{JoinHandle, Priority};
use tidesdb_sync::{Mutex, rank};

use super::{Ticks, finished, run};
use crate::context::WriteCtx;
use crate::engine::Engine;
use crate::jobs::Job;
use crate::{Error, Result};

/// The running threads of one database.
#[derive(Default)]
pub struct Pool {
    threads: Mutex<Vec<JoinHandle>, { rank::THREADS }>,
}

impl Pool {
    /// Starts `workers` workers, one for merges of further families, the one that removes files, the timekeeper and, with an object
    /// store, the uploader.
    /// 0 workers = no threads.
    ///
    /// # Errors
    /// `Io` if a thread cannot be started; the threads already started are stopped.
    pub fn start(engine: &Arc<Engine>, workers: usize) -> Result<Self> {
        let pool = Self::default();
        if workers == 0 {
            return Ok(pool);
        }
        // One more than asked for, so that the merges of one family never use all threads for long jobs.
        let threads = if workers > 1 { workers + 1 } else { workers };
        engine.write.jobs.limit_merges(workers / 2);
        let spawn = |name, priority, takes| {
            let worker = Arc::clone(engine);
            pool.spawn(&engine.write, name, priority, move || work(&worker, takes))
        };
        for i in 0..threads {
            // One half of several workers takes only short jobs, merges of small families among them, so these never wait for a long
            // one. The other half takes the long jobs at low priority: it yields to the threads of the user. If merges fall behind, their
            // debt delays the writers.
            let (name, priority, takes) = match i * 2 < workers {
                _ if workers == 1 => ("tidesdb-worker", Priority::Normal, Takes::All),
                true => ("tidesdb-flush", Priority::Normal, Takes::Short),
                false => ("tidesdb-compact", Priority::Low, Takes::Long),
            };
            spawn(name, priority, takes)?;
        }
        if workers > 1 {
            spawn("tidesdb-remove", Priority::Low, Takes::Removals)?;
        }
        if engine.remote.is_some() {
            spawn("tidesdb-upload", Priority::Normal, Takes::Uploads)?;
        }
        let timekeeper = Arc::clone(engine);
        pool.spawn(&engine.write, "tidesdb-clock", Priority::Normal, move || {
            let mut ticks = Ticks::default();
            while !timekeeper.write.jobs.is_closed() {
                timekeeper.write.env.clock.sleep(ticks.pause(&timekeeper));
                ticks.tick(&timekeeper);
            }
        })?;
        Ok(pool)
    }

    /// Starts a thread that ends by itself.
    ///
    /// # Errors
    /// `Io` if it cannot be started; the threads already started are stopped.
    pub fn spawn(
        &self,
        ctx: &WriteCtx,
        name: &str,
        priority: Priority,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        match ctx.env.threads.spawn(name, priority, Box::new(body)) {
            Ok(handle) => {
                self.threads.lock().push(handle);
                Ok(())
            }
            Err(e) => {
                self.stop(ctx);
                Err(Error::io("start", name, e))
            }
        }
    }

    /// Stops all threads after their current job. Lifts the rate of merges, so that they end soon.
    pub fn stop(&self, ctx: &WriteCtx) {
        ctx.jobs.close();
        ctx.merges.set_rate(0);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join();
        }
    }
}

/// Which jobs a worker takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    All,
    Short,
    Long,
    Removals,
    Uploads,
}

fn work(engine: &Arc<Engine>, takes: Takes) {
    const PATIENCE: Duration = Duration::from_millis(500);
    let jobs = &engine.write.jobs;
    let next = || match takes {
        Takes::All => jobs.pop(PATIENCE, |job| job != Job::Upload),
        Takes::Short => jobs.pop_short(PATIENCE),
        Takes::Long => jobs.pop(PATIENCE, Job::is_long),
        Takes::Removals => jobs.pop(PATIENCE, |job| job == Job::RemoveObsolete),
        Takes::Uploads => jobs.pop(PATIENCE, |job| job == Job::Upload),
    };
    while !engine.write.jobs.is_closed() {
        engine.reads.refresh_clock(); // in case the timekeeper waits for a slow disk
        if engine.write.is_recovering() {
            let seen = engine.write.pacing.progress.current();
            engine.write.pacing.progress.wait_while(seen, Some(Ticks::PERIOD));
            continue;
        }
        if let Some(job) = next() {
            let _ = run(engine, job); // failures are handled inside
            // An idle thread would keep the views that it replaced, and with them files that are no longer needed.
            tidesdb_sync::reclaim();
            finished(engine, job);
        }
    }
}
