//! Concurrency primitives of TidesDB: the only source of locks, epochs, counters and wake-ups in the engine.
//!
//! The engine itself contains no `unsafe`; code that needs it is here, behind safe types.
//!
//! * [`pin`], [`Guard`], [`EpochCell`]: read a shared immutable object without a reference count.
//! * [`ShardedCounter`], [`ShardedCounters`]: statistics that do not bounce a cache line between cores.
//! * [`Event`]: waits until something happened; a signal is cheap if no thread waits.
//! * [`Backoff`]: a spin that soon yields the core, for waits that are nearly over already.
//! * [`Mutex`], [`RwLock`], [`Condvar`]: locks that do not poison, and whose order is checked in debug builds: [`rank`].
//! * [`modelled`]: atomics and a lock for protocols of higher crates that are explored by loom models.
//!
//! Under `--cfg loom` the epoch and the event use loom's primitives, so models of this crate and of crates
//! built on it can be explored exhaustively. Under `--cfg simulated`
//! all of them are switch points of a scheduler that runs threads under one seed: `scheduler`.
#![allow(unsafe_code, reason = "a leaf crate")]

#[cfg(simulated)]
pub mod scheduler;
mod facade;
pub mod rank;
mod lock;
pub mod modelled;
mod backoff;
mod counter;
mod prefetch;
#[cfg_attr(loom, path = "epoch_loom.rs")]
mod epoch;
mod cell;
mod event;
mod kept;
#[cfg(all(test, not(loom)))]
mod tests;

pub use backoff::Backoff;
pub use cell::EpochCell;
pub use counter::{ShardedCounter, ShardedCounters, thread_index};
pub use crossbeam_utils::CachePadded;
pub use epoch::{Guard, in_deferred_call, pin, reclaim};
pub use event::Event;
pub use kept::{Kept, release_idle, release_kept};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use prefetch::prefetch_value;
pub use raw::WaitTimeoutResult;
#[cfg(simulated)]
pub use scheduler::point;

#[cfg(not(simulated))]
use parking_lot as raw;
#[cfg(simulated)]
use scheduler::lock as raw;

/// A named switch point of a lock-free protocol in a simulation; nothing in other builds.
#[cfg(not(simulated))]
#[inline(always)]
pub fn point(_what: &'static str) {}
