//! All parts of one open database: for the catalog, recovery and the background. Its health, the events of changes that only it sees, its
//! statistics, and how they reach other processes.

mod health;
mod publish;
mod report;
mod sampled;
mod stats;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

pub use publish::{FIRST_FIGURES_AFTER, Publisher};
pub use report::{Phase, Report};
pub use stats::{Stats, tree_of};
use tidesdb_sync::{Mutex, rank};
pub use watch::Watch;

use crate::context::{ReadCtx, WriteCtx};
use crate::jobs::Retry;
use crate::maintenance::MaintenanceCtx;
use crate::memory::Charge;
use crate::remote::Remote;
use crate::vlog::WriteBudget;

/// All parts of one open database.
pub struct Engine {
    /// For reads.
    pub reads: Arc<ReadCtx>,
    /// For commits.
    pub write: Arc<WriteCtx>,
    /// For flushes and merges.
    pub maintenance: MaintenanceCtx,
    /// Held while a family is created, dropped or renamed.
    pub catalog: Mutex<(), { rank::CATALOG }>,
    /// Consecutive failures of background work, and when to retry.
    pub retry: Retry,
    /// What the last [`Engine::observe`] saw.
    pub watch: Mutex<Watch, { rank::WATCH }>,
    /// Writes the figures for other processes.
    pub publisher: Mutex<Publisher, { rank::PUBLISHING }>,
    /// Budget of value logs open for writing.
    pub vlog_writes: Arc<WriteBudget>,
    /// The object store with the copy, if there is one.
    pub remote: Option<Arc<Remote>>,
    /// Memory of a view of a reader beside the writer.
    pub view: OnceLock<Charge>,
}

impl Engine {
    /// Called before the directory is unlocked: from then on a file that is missing was removed by another open. The views of a reader beside
    /// the writer share their tables, and others go on.
    pub fn leave_files(&self) {
        if self.view.get().is_none() {
            self.maintenance.tables.closed.store(true, Ordering::SeqCst);
        }
    }

    /// Called when the database is closed: leaves what is shared to the other databases.
    pub fn leave_shared(&self) {
        self.write.memory.leave();
        if self.write.memory.shares_cache() {
            self.maintenance.tables.memory.leave_cache();
        }
    }

    /// The object store, if it gets the log: then it may need value logs that nothing else needs.
    pub fn log_store(&self) -> Option<&Remote> {
        self.remote.as_deref().filter(|remote| remote.options.replicate_log)
    }
}
