//! A deterministic simulated disk for tests: it crashes at any call, loses, tears, reorders and misdirects
//! writes, fails any call with any errno, and rots bits at rest.
//!
//! [`SimDisk`] is a [`Disk`](crate::Disk) in memory. For each file it keeps the bytes that reads see, the bytes
//! that survive a power failure, and every write in between; for each directory, the names and every change not
//! synced. It is strict: a sync of a file does not make its name durable, and a rename is as volatile as a
//! create. [`SimDisk::set_habits`] gives it the habits of macOS or Windows instead of those of Linux.
//!
//! # Crash points
//!
//! Every call has a number, its [`Op::index`]. [`SimDisk::crash_at`] makes call *k* and all later ones fail;
//! [`SimDisk::crash_image`] then builds a disk as it may be found after that crash.
//!
//! ```
//! use std::path::Path;
//! use tidesdb_io::FileExt;
//! use tidesdb_io::sim::{self, Image};
//!
//! let (env, disk, _clock) = sim::env(7);
//! let dir = env.disk.open_dir(Path::new("/db"), true)?;
//! let file = dir.create_new("1.log", 0)?;
//! file.write_all_at(b"lost", 0)?; // never synced
//! disk.crash_now();
//! assert!(sim::is_crash(&file.sync_data().unwrap_err()));
//!
//! let (env, disk, _clock) = sim::env_on(disk.crash_image(&Image::SYNCED, 7), 7);
//! let dir = env.disk.open_dir(Path::new("/db"), false)?;
//! assert!(dir.list()?.is_empty());
//! # let _ = disk;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! To visit all crash points of a script in one run, [`SimDisk::observe`] hands out a snapshot before each call.
//! To continue after a crash of the process alone, with unsynced bytes still at risk, use [`SimDisk::fork`].
//!
//! # Thread rules
//!
//! One mutex guards a disk. Calls are ordered as their threads make them, so a reproducible run needs a single
//! thread, or the scheduler of a build with `--cfg simulated`, for which each call is a switch point.

mod alone;
mod bytes;
mod disk;
mod fault;
mod habits;
mod handle;
mod image;
mod inode;
mod op;
mod raw;
mod rng;
mod starts;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;

pub use alone::alone;
pub use disk::{SimDisk, is_crash};
pub use fault::{Fault, FaultId, SyncModel, errno};
pub use habits::{Habits, OpenFiles};
pub use image::{DataFate, Image, NameFate};
pub use op::{Op, OpKind, OpSet};
pub use starts::{Body, Starts};

pub use crate::system::reach::Reach;
use crate::{Descriptors, Env, ManualClock, RealThreads, SeededEntropy};

/// Wall time at which simulated environments start, in seconds since the UNIX epoch.
const START: u64 = 1_700_000_000;

/// Creates an environment on a new, empty simulated disk, with a clock that stands still and entropy made from
/// `seed`.
pub fn env(seed: u64) -> (Env, Arc<SimDisk>, Arc<ManualClock>) {
    env_on(SimDisk::new(seed), seed)
}

/// Like [`env_on`], for a thread of a simulation: with the virtual time and the threads of the scheduler.
#[cfg(simulated)]
pub fn scheduled_on(disk: SimDisk, seed: u64) -> (Env, Arc<SimDisk>, Arc<crate::SimClock>) {
    let clock = Arc::new(crate::SimClock::new(START));
    let (env, disk, _) = env_on(disk, seed);
    (Env { clock: Arc::<crate::SimClock>::clone(&clock), ..env }, disk, clock)
}

/// Like [`env()`], on the given disk.
pub fn env_on(disk: SimDisk, seed: u64) -> (Env, Arc<SimDisk>, Arc<ManualClock>) {
    let disk = Arc::new(disk);
    let clock = Arc::new(ManualClock::new(START));
    let env = Env {
        disk: Arc::<SimDisk>::clone(&disk),
        descriptors: Arc::new(Descriptors::new(usize::MAX)),
        clock: Arc::<ManualClock>::clone(&clock),
        threads: Arc::new(RealThreads::new()),
        entropy: Arc::new(SeededEntropy::new(seed)),
    };
    (env, disk, clock)
}
