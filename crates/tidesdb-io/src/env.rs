//! An [`Env`] bundles disk, clock, threads and entropy. The engine reaches the outside world only through it.

use std::sync::Arc;

use crate::{Clock, Descriptors, Disk, Entropy, OsEntropy, RealClock, RealDisk, RealThreads, Threads};

/// Everything outside the process that the engine may touch. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files and directories.
    pub disk: Arc<dyn Disk>,
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The files that all databases of the process have open for reading.
    pub descriptors: Arc<Descriptors>,
    /// Background threads.
    pub threads: Arc<dyn Threads>,
    /// Salts and seeds.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// The real operating system.
    pub fn real() -> Self {
        Self {
            disk: Arc::new(RealDisk::new()),
            descriptors: Descriptors::of_process(),
            clock: Arc::new(RealClock::new()),
            threads: Arc::new(RealThreads::new()),
            entropy: Arc::new(OsEntropy::new()),
        }
    }
}
