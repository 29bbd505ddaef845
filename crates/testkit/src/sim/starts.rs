//! Threads of a system that does not start some of them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tidesdb_io::{JoinHandle, Priority, Threads};
use tidesdb_sync::scheduler;

use crate::rng::Rng;

/// Starts the threads of clients, and of others unless it is told to fail.
#[derive(Debug)]
pub(super) struct Starts {
    inner: Arc<dyn Threads>,
    rng: Mutex<Rng>,
    fails: AtomicBool,
}

impl Starts {
    pub(super) fn new(inner: Arc<dyn Threads>, seed: u64) -> Self {
        Self { inner, rng: Mutex::new(Rng::new(seed)), fails: AtomicBool::new(false) }
    }

    /// From now on half of the starts fail, or none.
    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, SeqCst);
    }

    fn drawn(&self, below: u64) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(below)
    }
}

impl Threads for Starts {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<JoinHandle> {
        if self.fails.load(SeqCst) && self.drawn(2) == 0 {
            scheduler::note("a thread is not started", 0, name);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.inner.spawn(name, priority, body)
    }

    fn parallelism(&self) -> usize {
        self.inner.parallelism()
    }

    fn run_together(&self, name: &str, others: usize, body: &(dyn Fn(usize) + Sync)) {
        let others = if self.fails.load(SeqCst) { self.drawn(others as u64 + 1) as usize } else { others };
        self.inner.run_together(name, others, body);
    }
}
