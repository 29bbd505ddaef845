//! Threads: started by name, joined by handle.

use std::fmt::Debug;
use std::io;

#[cfg(simulated)]
use tidesdb_sync::scheduler;

use crate::system;

/// Threads that can run at once in a simulation, whatever the machine.
#[cfg(simulated)]
const SIMULATED_PROCESSORS: usize = 4;

/// Starts threads.
pub trait Threads: Send + Sync + Debug {
    /// Starts a named thread that runs `body` to its end.
    ///
    /// # Errors
    /// Returns the error of the system if it cannot start another thread.
    fn spawn(&self, name: &str, priority: Priority, body: Box<dyn FnOnce() + Send>)
    -> io::Result<JoinHandle>;
    /// Returns how many threads can run at once.
    fn parallelism(&self) -> usize;

    /// Calls `body` with 0 on the calling thread and, at the same time, with 1 to `others` on further threads named `name`, as many as
    /// the system starts. Returns once all calls have returned.
    ///
    /// # Panics
    /// If a call panicked.
    fn run_together(&self, name: &str, others: usize, body: &(dyn Fn(usize) + Sync)) {
        #[cfg(simulated)]
        if scheduler::is_active() {
            return scheduler::run_together(name, others, body);
        }
        std::thread::scope(|scope| {
            let start = |n| {
                let thread = std::thread::Builder::new().name(name.to_owned());
                thread.spawn_scoped(scope, move || body(n)).is_ok()
            };
            (1..=others).all(start);
            body(0);
        });
    }
}

/// How a thread competes when all processors are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Like every other thread.
    Normal,
    /// Yields to normal threads, but never starves. On FreeBSD, where a program cannot lower the priority of one thread so, like
    /// [`Priority::Normal`].
    Low,
}

/// A handle to wait for a thread started by [`Threads::spawn`].
#[cfg(not(simulated))]
#[derive(Debug)]
pub struct JoinHandle(std::thread::JoinHandle<()>);

#[cfg(simulated)]
pub use scheduler::JoinHandle;

#[cfg(not(simulated))]
impl JoinHandle {
    /// Waits for the thread to end. Returns false if it panicked.
    pub fn join(self) -> bool {
        self.0.join().is_ok()
    }
}

/// Threads of the operating system.
#[derive(Debug, Default)]
pub struct RealThreads(());

impl RealThreads {
    /// Creates a handle to the system's threads.
    pub fn new() -> Self {
        Self(())
    }
}

impl Threads for RealThreads {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<JoinHandle> {
        #[cfg(simulated)]
        if scheduler::is_active() {
            return scheduler::spawn(name, body); // all priorities are alike
        }
        let run = move || {
            if priority == Priority::Low {
                system::lower_priority();
            }
            body();
        };
        #[cfg(simulated)]
        return scheduler::spawn(name, Box::new(run));
        #[cfg(not(simulated))]
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(JoinHandle)
    }

    fn parallelism(&self) -> usize {
        #[cfg(simulated)]
        if scheduler::is_active() {
            return SIMULATED_PROCESSORS;
        }
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}
