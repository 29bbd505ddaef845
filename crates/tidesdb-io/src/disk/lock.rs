//! The lock of a directory: `flock` against other processes, a registry against the own one.
//!
//! Invariant: a directory in the registry is held by at least one live [`RealLock`], and by one only if it is
//! exclusive. The registry is needed where `flock` is emulated per process (network file systems).

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::FlockOperation;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Pid;

use crate::DirLock;

/// Device and inode of a locked directory.
type Key = (u64, u64);

/// How a directory is held by this process.
#[derive(Debug)]
enum Holders {
    Exclusive,
    Shared(usize),
}

static HELD: Mutex<BTreeMap<Key, Holders>> = Mutex::new(BTreeMap::new());

/// A held lock.
#[derive(Debug)]
pub(super) struct RealLock {
    key: Key,
    file: OwnedFd,
    owner: Pid,
}

impl RealLock {
    /// Locks the open lock file `file` of directory `key`, without waiting.
    pub(super) fn acquire(key: Key, file: OwnedFd, exclusive: bool) -> io::Result<Self> {
        let mut held = HELD.lock();
        let next = match (held.get(&key), exclusive) {
            (None, true) => Holders::Exclusive,
            (None, false) => Holders::Shared(1),
            (Some(Holders::Shared(n)), false) => Holders::Shared(n + 1),
            _ => return Err(Errno::WOULDBLOCK.into()),
        };
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        retry_on_intr(|| rustix::fs::flock(&file, operation))?;
        held.insert(key, next);
        Ok(Self { key, file, owner: rustix::process::getpid() })
    }
}

impl DirLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent and must not take it away.
        if rustix::process::getpid() != self.owner {
            return;
        }
        let mut held = HELD.lock();
        match held.get_mut(&self.key) {
            Some(Holders::Shared(n)) if *n > 1 => *n -= 1,
            _ => {
                held.remove(&self.key);
            }
        }
        // Closing would unlock too, but not while a child that was just forked holds a copy of the descriptor.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
