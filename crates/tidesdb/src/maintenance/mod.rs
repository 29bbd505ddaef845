//! What flushes and merges need of the database.

mod demand;
mod parted;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use demand::ReadDemand;
pub use parted::{PartedJob, PartedJobs};
use tidesdb_io::Dir;
use tidesdb_sync::{Backoff, Mutex};

use crate::Result;
use crate::context::{Flushed, ReadCtx, WriteCtx};
use crate::family::FamilyCore;
use crate::files::FileKind;
use crate::sources::TableVersion;
use crate::sst::{Table, TableContext};
use crate::types::{FamilyId, VlogId, WalId};
use crate::version::{Change, VersionEdit, VersionSet, Versions};

/// Turns memtables into tables and tables into others. It holds no catalog and no threads: a test can run a flush or a merge
/// with this alone.
#[derive(Debug)]
pub struct MaintenanceCtx {
    /// Decides which versions a reader may still need.
    pub reads: Arc<ReadCtx>,
    /// The memtables to flush, and the log that they pin.
    pub write: Arc<WriteCtx>,
    /// The database directory.
    pub dir: Arc<dyn Dir>,
    /// Which tables, value logs and families exist.
    pub versions: VersionSet<Table>,
    /// Shared settings and caches for reading tables.
    pub tables: Arc<TableContext>,
    /// How often what is flushed is read.
    pub demand: ReadDemand,
    /// Running merges whose parts other threads may take.
    pub parted: PartedJobs,
    /// The families of value logs that an edit removes. They close the files when these are unlinked.
    dead_vlogs: Mutex<BTreeMap<VlogId, FamilyId>>,
}

impl MaintenanceCtx {
    /// Maintenance of the tables of `versions` in `dir`, behind the write path `write`.
    pub fn new(
        write: &Arc<WriteCtx>,
        dir: &Arc<dyn Dir>,
        versions: VersionSet<Table>,
        tables: Arc<TableContext>,
    ) -> Self {
        let (reads, write) = (Arc::clone(&write.reads), Arc::clone(write));
        Self {
            reads,
            write,
            dir: Arc::clone(dir),
            versions,
            tables,
            demand: ReadDemand::default(),
            parted: PartedJobs::default(),
            dead_vlogs: Mutex::default(),
        }
    }

    /// Makes `edit` durable, then calls `publish` with the new versions; on failure neither happens.
    ///
    /// # Errors
    /// Errors of [`VersionSet::install`]; an unknown state of the manifest poisons the database.
    pub fn install_with(&self, edit: &VersionEdit, publish: impl FnOnce(&Versions)) -> Result<()> {
        // Before the install, which may make a file obsolete at once.
        self.dead_vlogs.lock().extend(edit.changes.iter().filter_map(|change| match change {
            Change::RemoveVlog { family, vlog } => Some((*vlog, *family)),
            _ => None,
        }));
        self.versions.install(edit, publish).inspect_err(|e| {
            if self.versions.is_poisoned() {
                self.write.poison(e.clone());
            }
        })
    }

    /// Makes `edit` durable, then calls `swap` with the number of each of `families` and its new version; on failure none of it happens.
    ///
    /// # Errors
    /// As [`MaintenanceCtx::install_with`].
    pub fn install_for(
        &self,
        edit: &VersionEdit,
        families: &[&FamilyCore],
        mut swap: impl FnMut(usize, Arc<TableVersion>),
    ) -> Result<()> {
        self.install_with(edit, |versions| {
            for (n, family) in families.iter().enumerate() {
                if let Some(version) = versions.get(&family.id) {
                    swap(n, Arc::clone(version));
                }
            }
        })?;
        for family in families {
            self.write.jobs.set_small(family.id, !family.is_dropped() && family.merges_are_short());
            family.note_values();
        }
        Ok(())
    }

    /// Makes `edit` durable and puts the new versions of `families` into their views; on failure neither happens.
    ///
    /// # Errors
    /// As [`MaintenanceCtx::install_with`].
    pub fn install(&self, edit: &VersionEdit, families: &[&FamilyCore]) -> Result<()> {
        let swap = |n: usize, version| families[n].change_view(|view| view.with_version(version));
        self.install_for(edit, families, swap)
    }

    /// Runs `work`, which frees space in the end. If the disk is full, runs it once more with the space of the reserve.
    ///
    /// # Errors
    /// Errors of `work`.
    pub fn with_reserve<R>(&self, mut work: impl FnMut() -> Result<R>) -> Result<R> {
        match work() {
            // Not if the state of the manifest is unknown: the work may have been done.
            Err(e) if e.is_full() && !self.versions.is_poisoned() && self.write.log.use_reserve() => work(),
            other => other,
        }
    }

    /// Removes files that no version and no reader needs; files that cannot be removed are tried again later.
    pub fn remove_obsolete(&self) {
        if !self.write.options.read_only {
            tidesdb_sync::reclaim(); // a view that was just replaced still keeps its files
            self.versions.unlink_obsolete_after(|file| {
                // An open file keeps its space. No reader opens it again.
                let FileKind::Vlog(id) = file else { return };
                let family = self.dead_vlogs.lock().remove(&id);
                let family = family.and_then(|family| self.write.family(family));
                family.into_iter().for_each(|family| family.vlog.open.close(id));
            });
        }
    }

    /// Like [`Self::remove_obsolete`], at a close: waits up to 20 ms for readers that are about to end, in this database
    /// or another one of the process. A file that is still in use is set aside by the next open.
    pub fn remove_obsolete_at_close(&self) {
        let mut backoff = Backoff::new();
        for _ in 0..500 {
            self.remove_obsolete();
            if self.versions.obsolete().in_use() == 0 {
                break;
            }
            backoff.snooze();
        }
    }

    /// Adds the log's start to `edit`: the first segment that is needed once `flushed` is in tables. Returns that
    /// segment.
    pub fn log_start_edit(&self, edit: &mut VersionEdit, flushed: &Flushed) -> WalId {
        let tail = self.write.log.sequencer().visible_end();
        let first = self.write.log.segment_of(self.write.log_needed_without(flushed));
        edit.push(Change::LogStart { wal: first });
        edit.push(Change::LastSeq { seq: tail - 1 });
        edit.push(Change::DurableMark { seq: self.write.log.sequencer().durable_records() });
        first
    }
}
