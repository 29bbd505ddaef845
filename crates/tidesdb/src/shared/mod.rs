//! State of one open database, in contexts of one purpose each. A function takes the smallest one that it needs.
//!
//! ```text
//! ReadCtx         get, cursors, transactions: which commit is visible, what has expired
//! WriteCtx        commit, stall, rotation: the log, the memtables, the backlog              -> ReadCtx
//! MaintenanceCtx  flush, merge, upload:   the manifest and the tables                       -> ReadCtx, WriteCtx
//! Shared          catalog, recovery, background: owns the three and the rest
//! ```

mod parted;
mod maintenance;
mod read;
mod write;
mod condition;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

pub use condition::{HealthReport, HealthState};
pub use maintenance::MaintenanceCtx;
pub use parted::{PartedJob, PartedJobs, PartedWork};
pub use read::{OperationTimes, ReadCtx};
use tidesdb_sync::{Mutex, rank};
pub use watch::Watch;
pub use write::{FLUSH_FOR_SPACE_MIN, Flushed, MergeSpace, OwnedLog, SCARCE, WriteCtx};

use crate::Result;
use crate::family::FamilyCore;
use crate::jobs::Retry;
use crate::memory::Charge;
use crate::remote::Remote;
use crate::sst::TableContext;
use crate::types::{Comparator, EXPIRY_MAX, FamilyId, SeqNo, moment_of};
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

/// A column family: a cheap handle, cloneable, usable from any thread. It stays valid across a rename; after a drop its
/// calls fail with `NotFound`.
#[derive(Clone)]
pub struct Family {
    pub(crate) core: Arc<FamilyCore>,
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.core.name()).finish_non_exhaustive()
    }
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

    /// Returns the moment at which a row expires that is put now without an expiry: the end of the family's default TTL, or `None`
    /// if it has none. At the latest in the year 10889.
    ///
    /// # Errors
    /// None: a default that ends too late ends in that year.
    pub fn default_expiry(&self) -> Result<Option<SystemTime>> {
        self.stored_default_expiry().map(moment_of)
    }

    /// As [`Family::default_expiry`], as it is stored.
    #[inline]
    pub(crate) fn stored_default_expiry(&self) -> Result<u64> {
        match self.core.options.default_ttl_millis() {
            0 => Ok(0),
            // A default that ends after the last moment that a row can store ends there: its puts did not ask for it.
            millis => Ok(self.stored_expiry_after(Duration::from_millis(millis)).unwrap_or(EXPIRY_MAX)),
        }
    }

    #[cold]
    fn stored_expiry_after(&self, ttl: Duration) -> Result<u64> {
        self.shared.reads.expiry_after(ttl)
    }

    /// Returns the moment at which a row expires that is put with `ttl` now, in whole milliseconds, rounded up. Rows that are put with the
    /// same expiry ([`Family::put_expiring`]) expire together.
    ///
    /// # Errors
    /// `InvalidArgument` if `ttl` ends after the year 10889.
    pub fn expiry_after(&self, ttl: Duration) -> Result<SystemTime> {
        self.stored_expiry_after(ttl).map(|expiry| moment_of(expiry).unwrap_or(SystemTime::UNIX_EPOCH))
    }

    /// Returns the current settings.
    pub fn current_options(&self) -> crate::options::FamilyOptions {
        self.core.options.now()
    }
}
