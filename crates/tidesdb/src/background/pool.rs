//! The threads that run jobs, and the one that keeps time.

use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::{JoinHandle, Priority};
use tidesdb_sync::Mutex;

use super::{Ticks, run};
use crate::jobs::Job;
use crate::shared::Shared;
use crate::{Error, Result};

/// Running threads of one database.
#[derive(Debug, Default)]
pub struct Pool {
    threads: Mutex<Vec<JoinHandle>>,
}

impl Pool {
    /// Starts `workers` workers and the timekeeper. None at all for 0 workers.
    ///
    /// # Errors
    /// `Io` if a thread cannot be started; those that were are stopped.
    pub fn start(shared: &Arc<Shared>, workers: usize) -> Result<Self> {
        let pool = Self::default();
        if workers == 0 {
            return Ok(pool);
        }
        for i in 0..workers {
            let shared = Arc::clone(shared);
            // Of several workers one half takes short jobs and never waits behind a long one. The other half takes the long
            // ones and gives way to the threads of the user, until their debt makes those wait.
            let (name, priority, takes) = match i * 2 < workers {
                _ if workers == 1 => ("tidesdb-worker", Priority::Normal, Takes::All),
                true => ("tidesdb-flush", Priority::Normal, Takes::Short),
                false => ("tidesdb-compact", Priority::Low, Takes::Long),
            };
            pool.spawn(&shared.clone(), name, priority, move || work(&shared, takes))?;
        }
        if shared.remote.is_some() {
            let uploader = Arc::clone(shared);
            let body = move || work(&uploader, Takes::Uploads);
            pool.spawn(shared, "tidesdb-upload", Priority::Normal, body)?;
        }
        let timekeeper = Arc::clone(shared);
        pool.spawn(shared, "tidesdb-clock", Priority::Normal, move || {
            let mut ticks = Ticks::default();
            while !timekeeper.jobs.is_closed() {
                timekeeper.env.clock.sleep(Ticks::PERIOD);
                ticks.tick(&timekeeper);
            }
        })?;
        Ok(pool)
    }

    fn spawn(
        &self,
        shared: &Arc<Shared>,
        name: &str,
        priority: Priority,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        match shared.env.threads.spawn(name, priority, Box::new(body)) {
            Ok(handle) => {
                self.threads.lock().push(handle);
                Ok(())
            }
            Err(e) => {
                self.stop(shared);
                Err(Error::io("start", name, e))
            }
        }
    }

    /// Ends all threads after their current job.
    pub fn stop(&self, shared: &Shared) {
        shared.jobs.close();
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
    Uploads,
}

fn work(shared: &Arc<Shared>, takes: Takes) {
    let wanted = |job: Job| match takes {
        Takes::All => !job.is_upload(),
        Takes::Short => !job.is_long() && !job.is_upload(),
        Takes::Long => job.is_long(),
        Takes::Uploads => job.is_upload(),
    };
    while !shared.jobs.is_closed() {
        shared.refresh_clock(); // while the thread that keeps time waits for a slow disk
        if let Some(job) = shared.jobs.pop(Duration::from_millis(200), wanted) {
            let _ = run(shared, job); // failures are dealt with inside
            shared.jobs.finished(job);
        }
    }
}
