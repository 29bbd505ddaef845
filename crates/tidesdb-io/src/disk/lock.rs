//! The directory lock: a lock of a file excludes other processes, a registry excludes other openers in this process. The directory is
//! locked too, where it can be: somebody may remove the file, and then the next opener makes another one.
//!
//! Invariant: a directory in the registry is held by at least one live [`RealLock`], and by exactly one if the
//! lock is exclusive. The registry is needed where `flock` is emulated per process (network file systems).

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex;

use crate::DirLock;
use crate::system::{self, Errno, Folder, Handle};

/// Identity of a locked directory, see [`system::Folder::id`].
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
    /// The file of the lock, and the directory.
    locked: [Option<Handle>; 2],
    /// The process that locked it.
    owner: u32,
}

impl RealLock {
    /// Locks `folder` and its open lock file `file`, without waiting.
    pub(super) fn acquire(folder: &Folder, file: Option<Handle>, exclusive: bool) -> io::Result<Self> {
        let key = folder.id()?;
        let mut held = HELD.lock();
        let next = match (held.get(&key), exclusive) {
            (None, true) => Holders::Exclusive,
            (None, false) => Holders::Shared(1),
            (Some(Holders::Shared(n)), false) => Holders::Shared(n + 1),
            _ => return Err(Errno::WOULDBLOCK.into()),
        };
        if let Some(file) = &file {
            system::try_lock(file, exclusive)?;
        }
        let locked = [file, folder.lock(exclusive)?];
        held.insert(key, next);
        Ok(Self { key, locked, owner: std::process::id() })
    }
}

impl DirLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent and must not release it.
        if std::process::id() != self.owner {
            return;
        }
        let mut held = HELD.lock();
        match held.get_mut(&self.key) {
            Some(Holders::Shared(n)) if *n > 1 => *n -= 1,
            _ => {
                held.remove(&self.key);
            }
        }
        self.locked.iter().flatten().for_each(|file| drop(system::unlock(file)));
    }
}
