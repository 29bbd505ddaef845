//! What all stores of one group share: the committed index on its way to the disk, the snapshots that are received and installed, and whether
//! the group was removed.

use crate::keys::Group;
use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use tidesdb::{Error, Result};
use tokio::sync::watch;

/// The snapshots of other nodes that a state machine takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Installs {
    /// Snapshots that are received or installed.
    pub(crate) running: usize,
    /// True from the first received snapshot on.
    pub(crate) any: bool,
    /// The state machine has failed since the newest snapshot began to arrive.
    pub(crate) failed: bool,
    /// Number of the state machine that may write. An earlier one changes nothing here.
    machine: u64,
}

/// A commit of the committed index that may not be durable yet.
struct Saving(Pin<Box<dyn Future<Output = Result<()>> + Send>>);

impl Debug for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saving").finish_non_exhaustive()
    }
}

/// State of a group in this process.
#[derive(Debug)]
pub(crate) struct Life {
    installs: watch::Sender<Installs>,
    /// Number of the log that may write.
    log: AtomicU64,
    /// The newest committed index that nothing was applied by. The locked calls of a log and a state machine check that they are the last ones.
    saving: Mutex<Option<Saving>>,
    /// Held for reading by writes of state machines, which their successors and a removal wait for.
    writes: RwLock<()>,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            installs: watch::Sender::new(Installs::default()),
            log: AtomicU64::new(0),
            saving: Mutex::default(),
            writes: RwLock::new(()),
        }
    }

    /// Refuses all writes of stores that were made before. Waits for those of a state machine that run.
    pub(crate) fn end(&self) {
        self.begin(Part::Log);
        self.begin(Part::Machine);
        self.wait();
    }

    /// Refuses all writes of this part that was made before. Returns the number of the next one.
    fn begin(&self, part: Part) -> u64 {
        let number = match part {
            Part::Log => self.log.fetch_add(1, Ordering::SeqCst) + 1,
            Part::Machine => {
                let mut number = 0;
                self.installs.send_modify(|installs| {
                    number = installs.machine + 1;
                    *installs = Installs { machine: number, ..Installs::default() };
                });
                number
            }
        };
        *self.saving() = None;
        number
    }

    fn saving(&self) -> MutexGuard<'_, Option<Saving>> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        drop(self.writes.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The stores of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Log,
    Machine,
}

/// A group as one of its stores sees it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) group: Group,
    life: Arc<Life>,
    part: Part,
    number: u64,
}

impl Member {
    /// From now on an earlier store of this part cannot write.
    pub(crate) fn new(group: Group, life: Arc<Life>, part: Part) -> Self {
        let number = life.begin(part);
        Self { group, life, part, number }
    }

    fn is_last(&self) -> bool {
        let last = match self.part {
            Part::Log => self.life.log.load(Ordering::SeqCst),
            Part::Machine => self.life.installs.borrow().machine,
        };
        last == self.number
    }

    /// Returns an error if the group was removed, or got another store of this part, after the store was made.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_last() {
            true => Ok(()),
            false => {
                let what = format!("the store of Raft group {}, removed or made again since,", self.group.0);
                Err(Error::NotFound { what: what.into() })
            }
        }
    }

    /// As [`Member::check`]. A removal and the next state machine wait until the result is dropped.
    pub(crate) fn writing(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.life.writes.read().unwrap_or_else(PoisonError::into_inner);
        self.check().map(|()| guard)
    }

    /// Waits for the writes of earlier state machines that run.
    pub(crate) fn wait_for_earlier(&self) {
        self.life.wait();
    }

    /// Begins the commit of a committed index, which takes the place of an older one. An error if this log may not write.
    pub(crate) fn save_committed<F>(&self, save: impl FnOnce() -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut newest = self.life.saving();
        self.check()?;
        *newest = Some(Saving(Box::pin(save())));
        Ok(())
    }

    /// Waits until the newest committed index is durable. An error if this state machine may not write: the index may be that of another one.
    pub(crate) async fn committed(&self) -> Result<()> {
        let newest = {
            let mut newest = self.life.saving();
            self.check()?;
            newest.take()
        };
        match newest {
            Some(Saving(saved)) => saved.await,
            None => Ok(()),
        }
    }

    /// Returns what tells of changes of the snapshots.
    pub(crate) fn installs(&self) -> watch::Receiver<Installs> {
        self.life.installs.subscribe()
    }

    /// Changes what is known of the snapshots, if this is the state machine that may write.
    fn change(&self, change: impl FnOnce(&mut Installs)) {
        self.life.installs.send_if_modified(|installs| {
            let is_last = installs.machine == self.number;
            if is_last {
                change(installs);
            }
            is_last
        });
    }

    /// Begins to receive a snapshot.
    pub(crate) fn receive(&self) -> Receiving {
        self.change(|installs| installs.failed = false);
        Receiving::begin(self)
    }

    /// Begins to install a snapshot.
    pub(crate) fn install(&self) -> Installing {
        Installing { _running: Receiving::begin(self), member: self.clone(), done: false }
    }

    /// Records that the state machine has failed: what openraft waits for will not be applied.
    pub(crate) fn failed(&self) {
        self.change(|installs| installs.failed = true);
    }
}

/// A received snapshot, from its beginning to the end of its install.
#[derive(Debug)]
pub(crate) struct Receiving(Member);

impl Receiving {
    fn begin(member: &Member) -> Self {
        member.change(|installs| {
            installs.running += 1;
            installs.any = true;
        });
        Self(member.clone())
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.change(|installs| installs.running -= 1);
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
