//! State of one open database, in contexts of one purpose each. A function takes the smallest one that it needs.
//!
//! ```text
//! ReadCtx         get, cursors, transactions: which commit is visible, what has expired
//! WriteCtx        commit, stall, rotation: the log, the memtables, the backlog              -> ReadCtx
//! MaintenanceCtx  flush, merge, upload:   the manifest and the tables                       -> ReadCtx, WriteCtx
//! Shared          catalog, recovery, background: owns the three and the rest
//! ```

mod pace;

mod backlog;
mod maintenance;
mod read;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use backlog::{Debt, DelayStats, Merges, SyncDue};
pub use maintenance::MaintenanceCtx;
pub use pace::Pace;
pub use read::ReadCtx;
use tidesdb_sync::{Mutex, rank};
pub use write::WriteCtx;

use crate::family::{FamilyCore, Orders};
use crate::jobs::Retry;
use crate::remote::Remote;
use crate::sst::TableContext;
use crate::types::{FamilyId, SeqNo};
use crate::vlog::WriteBudget;

/// All parts of one open database.
pub struct Shared {
    /// For reads.
    pub reads: Arc<ReadCtx>,
    /// For commits.
    pub write: Arc<WriteCtx>,
    /// For flushes and merges.
    pub maintenance: MaintenanceCtx,
    /// Shared settings and caches for reading tables.
    pub tables: Arc<TableContext>,
    /// Key orders, and unresolved families; those are not in `families`.
    pub orders: Orders,
    /// Held while a family is created, dropped or renamed.
    pub catalog: Mutex<(), { rank::CATALOG }>,
    /// Consecutive failures of background work, and when to retry.
    pub retry: Retry,
    /// Budget of value logs open for writing.
    pub vlog_writes: Arc<WriteBudget>,
    /// The object store with the copy, if there is one.
    pub remote: Option<Arc<Remote>>,
}

impl Shared {
    /// Commits below this are in the object store, with their values. Unlimited if there is none that stores the log.
    pub fn stored_to(&self) -> SeqNo {
        let remote = self.remote.as_ref().filter(|remote| remote.options.replicate_log);
        remote.map_or(SeqNo::MAX, |remote| remote.log_end.load(Ordering::SeqCst))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.maintenance.dir.path();
        f.debug_struct("Shared")
            .field("path", &path)
            .field("visible", &self.reads.visible())
            .finish_non_exhaustive()
    }
}

/// A column family: a cheap handle, cloneable, usable from any thread. It stays valid across a rename; after a drop its
/// calls fail with `NotFound`.
#[derive(Clone, Debug)]
pub struct Family {
    pub(crate) core: Arc<FamilyCore>,
    pub(crate) shared: Arc<Shared>,
}

impl Family {
    /// The id, which is never reused.
    pub fn id(&self) -> FamilyId {
        self.core.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.core.name().to_string()
    }

    /// The current settings.
    pub fn options(&self) -> crate::options::FamilyOptions {
        self.core.options.now()
    }
}
