//! All parts of one open database: for the catalog, recovery and the background. Its health, and the events of changes that only it sees.

mod health;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use tidesdb_sync::{Mutex, rank};
pub use watch::Watch;

use crate::context::{ReadCtx, WriteCtx};
use crate::jobs::Retry;
use crate::maintenance::MaintenanceCtx;
use crate::memory::Charge;
use crate::remote::Remote;
use crate::sst::TableContext;
use crate::types::{Comparator, FamilyId, SeqNo};
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
    /// Comparators that were given at open or registered since; built-in ones are not listed.
    pub comparators: Mutex<Vec<Comparator>, { rank::COMPARATORS }>,
    /// Operations of unresolved families that recovery read from the log and could not store, because the database is
    /// open read-only.
    pub deferred: Mutex<BTreeMap<FamilyId, Vec<u8>>, { rank::DEFERRED }>,
    /// Held while a family is created, dropped or renamed.
    pub catalog: Mutex<(), { rank::CATALOG }>,
    /// Consecutive failures of background work, and when to retry.
    pub retry: Retry,
    /// What the last [`Shared::observe`] saw.
    pub watch: Mutex<Watch, { rank::WATCH }>,
    /// Budget of value logs open for writing.
    pub vlog_writes: Arc<WriteBudget>,
    /// The object store with the copy, if there is one.
    pub remote: Option<Arc<Remote>>,
    /// Memory of a view of a reader beside the writer.
    pub view: OnceLock<Charge>,
}

impl Shared {
    /// Commits below this are in the object store, with their values. Unlimited if there is none that stores the log.
    pub fn stored_to(&self) -> SeqNo {
        let remote = self.remote.as_ref().filter(|remote| remote.options.replicate_log);
        remote.map_or(SeqNo::MAX, |remote| remote.log_end.load(Ordering::SeqCst))
    }

    /// Returns the comparator of this name, if it is built in, was given or was registered.
    pub fn comparator(&self, name: &str) -> Option<Comparator> {
        let given = || self.comparators.lock().iter().find(|order| order.name() == name).cloned();
        Comparator::by_name(name).or_else(given)
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
