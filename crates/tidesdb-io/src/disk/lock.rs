//! The directory lock: `flock` excludes other processes, a registry excludes other openers in this process.
//!
//! Invariant: a directory in the registry is held by at least one live [`RealLock`], and by exactly one if the
//! lock is exclusive. The registry is needed where `flock` is emulated per process (network file systems).

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

/// How this process holds a directory.
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
    /// Locks directory `key` through its open lock file `file`, without waiting.
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
        // A forked child shares the lock with its parent and must not release it.
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
        // Closing the file would unlock it too, but not while a child that was just forked holds a copy of the
        // descriptor.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
