//! Threads: started by name, joined by handle.

use std::fmt::Debug;
use std::io;

/// The niceness of a low priority: about a tenth of a busy processor beside one normal thread.
const LOW_NICE: i32 = 10;

/// Starts threads.
pub trait Threads: Send + Sync + Debug {
    /// Starts a named thread that runs `body` to its end.
    ///
    /// # Errors
    /// That of the system when it has no room for another thread.
    fn spawn(&self, name: &str, priority: Priority, body: Box<dyn FnOnce() + Send>)
    -> io::Result<JoinHandle>;
    /// How many threads can run at once.
    fn parallelism(&self) -> usize;
}

/// How a thread shares processors that are all busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// As every other thread.
    Normal,
    /// Gives way to normal threads, without ever starving.
    Low,
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
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<JoinHandle> {
        let run = move || {
            if priority == Priority::Low {
                // For the calling thread alone. Where it is forbidden, the thread runs as any other.
                let _ = rustix::process::setpriority_process(None, LOW_NICE);
            }
            body();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(JoinHandle)
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}
