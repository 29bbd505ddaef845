//! Threads: started by name, joined by handle.

use std::fmt::Debug;
use std::io;

/// Starts threads.
pub trait Threads: Send + Sync + Debug {
    /// Starts a named thread that runs `body` to its end.
    ///
    /// # Errors
    /// That of the system when it has no room for another thread.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle>;
    /// How many threads can run at once.
    fn parallelism(&self) -> usize;
}

/// Waits for a thread started by [`Threads::spawn`].
#[derive(Debug)]
pub struct JoinHandle(std::thread::JoinHandle<()>);

impl JoinHandle {
    /// Waits for the end of the thread; `false` if it panicked.
    pub fn join(self) -> bool {
        self.0.join().is_ok()
    }
}

/// Threads of the operating system.
#[derive(Debug, Default)]
pub struct RealThreads(());

impl RealThreads {
    /// The system's threads.
    pub fn new() -> Self {
        Self(())
    }
}

impl Threads for RealThreads {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body).map(JoinHandle)
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}
