//! The threads that run jobs, and the one that keeps time.

use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::JoinHandle;
use tidesdb_sync::Mutex;

use super::{Ticks, run};
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
            // The first of several workers never takes a long job, so that flushes never wait behind one.
            let short_only = i == 0 && workers > 1;
            pool.spawn(&shared.clone(), "tidesdb-worker", move || work(&shared, short_only))?;
        }
        let timekeeper = Arc::clone(shared);
        pool.spawn(shared, "tidesdb-clock", move || {
            let mut ticks = Ticks::default();
            while !timekeeper.jobs.is_closed() {
                timekeeper.env.clock.sleep(Ticks::PERIOD);
                ticks.tick(&timekeeper);
            }
        })?;
        Ok(pool)
    }

    fn spawn(&self, shared: &Arc<Shared>, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        match shared.env.threads.spawn(name, Box::new(body)) {
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

fn work(shared: &Arc<Shared>, short_only: bool) {
    while !shared.jobs.is_closed() {
        if let Some(job) = shared.jobs.pop(Duration::from_millis(200), short_only) {
            let _ = run(shared, job); // failures are dealt with inside
            shared.jobs.finished(job);
        }
    }
}
