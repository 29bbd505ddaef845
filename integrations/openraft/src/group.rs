//! What all stores of one group share: the snapshots that are received and installed, and whether the group was removed.

use crate::keys::Group;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tidesdb::{Error, Result};
use tokio::sync::watch;

/// The snapshots of other nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Installs {
    /// Snapshots that are received or installed.
    pub(crate) running: usize,
    /// True from the first received snapshot on.
    pub(crate) any: bool,
    /// The state machine has failed since the newest snapshot began to arrive.
    pub(crate) failed: bool,
}

/// State of a group in this process.
#[derive(Debug)]
pub(crate) struct Life {
    installs: watch::Sender<Installs>,
    /// How often the group was removed.
    removals: AtomicU64,
    /// Held for reading by writes of the state machine, which a removal waits for.
    writes: RwLock<()>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            installs: watch::Sender::new(Installs::default()),
            removals: AtomicU64::new(0),
            writes: RwLock::new(()),
        }
    }

    /// Refuses all writes of stores that were made before. Waits for those of the state machine that run.
    pub(crate) fn end(&self) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        drop(self.writes.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A group as one of its stores sees it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) group: Group,
    life: Arc<Life>,
    /// Removals of the group before the store was made.
    removals: u64,
}

impl Member {
    pub(crate) fn new(group: Group, life: Arc<Life>) -> Self {
        let removals = life.removals.load(Ordering::SeqCst);
        Self { group, life, removals }
    }

    /// Returns an error if the group was removed after the store was made.
    pub(crate) fn check(&self) -> Result<()> {
        match self.life.removals.load(Ordering::SeqCst) == self.removals {
            true => Ok(()),
            false => Err(Error::NotFound { what: format!("Raft group {}, removed,", self.group.0).into() }),
        }
    }

    /// As [`Member::check`]. A removal waits until the result is dropped.
    pub(crate) fn writing(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.life.writes.read().unwrap_or_else(PoisonError::into_inner);
        self.check().map(|()| guard)
    }

    /// Returns what tells of changes of the snapshots.
    pub(crate) fn installs(&self) -> watch::Receiver<Installs> {
        self.life.installs.subscribe()
    }

    /// Begins to receive a snapshot.
    pub(crate) fn receive(&self) -> Receiving {
        self.life.installs.send_modify(|installs| installs.failed = false);
        Receiving::begin(&self.life)
    }

    /// Begins to install a snapshot.
    pub(crate) fn install(&self) -> Installing {
        Installing { member: self.clone(), _running: Receiving::begin(&self.life), done: false }
    }

    /// Records that the state machine has failed: what openraft waits for will not be applied.
    pub(crate) fn failed(&self) {
        self.life.installs.send_modify(|installs| installs.failed = true);
    }
}

/// A received snapshot, from its beginning to the end of its install.
#[derive(Debug)]
pub(crate) struct Receiving(Arc<Life>);

impl Receiving {
    fn begin(life: &Arc<Life>) -> Self {
        life.installs.send_modify(|installs| {
            installs.running += 1;
            installs.any = true;
        });
        Self(Arc::clone(life))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.installs.send_modify(|installs| installs.running -= 1);
    }
}

/// An install. It has failed if this is dropped before it is [done](Installing::done).
#[derive(Debug)]
pub(crate) struct Installing {
    // Dropped after the failure is recorded.
    _running: Receiving,
    member: Member,
    done: bool,
}

impl Installing {
    /// Records that the snapshot is the state.
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Installing {
    fn drop(&mut self) {
        if !self.done {
            self.member.failed();
        }
    }
}
