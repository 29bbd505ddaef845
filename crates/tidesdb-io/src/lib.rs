//! The I/O layer of TidesDB: the only place that touches the outside world.
//!
//! The engine reaches files, clocks, threads and randomness through an [`Env`]. Two environments exist:
//! the real one ([`Env::real`]) and a deterministic simulated one ([`sim::SimDisk`]) that can crash at any
//! call, lose, tear, reorder and misdirect writes, fail any call with any errno and rot bits at rest.
//!
//! It runs on Linux, macOS, FreeBSD and Windows: the module `system` has one file for each.
//!
//! # Contract of durability
//!
//! * Bytes written with [`File::write_at`] or through a [`SharedMap`] survive a crash of the process, but not
//!   of the machine. They survive a crash of the machine once a [`File::sync_data`] called *after* them has
//!   returned `Ok`.
//! * A file's name survives once [`Dir::sync`] returned `Ok` after the call that made the name.
//! * After a failed sync, nothing is known about the bytes it covered. Callers must not retry the sync and
//!   trust it.
//! * Reads and writes may be short. [`FileExt`] provides the loops.
#![allow(unsafe_code, reason = "a leaf crate")]

mod surroundings;
mod system;
mod region;
mod buffer;
mod crc;
mod vfs;
mod pool;
mod name;
mod clock;
mod threads;
mod entropy;
mod machine;
mod heap;
mod process;
pub mod program;
mod disk;
mod env;
pub mod sim;

pub use buffer::Buffer;
#[cfg(simulated)]
pub use clock::SimClock;
pub use clock::{Clock, ManualClock, RealClock};
pub use crc::{checksummed_bytes, crc32c, crc32c_joined};
pub use disk::RealDisk;
pub use entropy::{Entropy, OsEntropy, SeededEntropy};
pub use env::Env;
pub use heap::{Heap, anonymous_bytes, trim_heap};
pub use machine::MachineMemory;
pub use pool::{Descriptors, PooledDir, is_out_of_descriptors};
pub use process::{ProcessId, ProcessState};
pub use region::zeroed;
pub use surroundings::{Holder, Mount, Surroundings};
pub use system::boot::Boot;
pub use threads::{JoinHandle, Priority, RealThreads, Threads};
pub use vfs::{Access, Advice, Dir, DirLock, Disk, File, FileExt, SharedMap, Space};

#[cfg(not(simulated))]
use parking_lot as raw;
#[cfg(simulated)]
use tidesdb_sync::scheduler::lock as raw;
