//! The write path: from a commit to a memtable that waits for its flush.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_io::Env;
use tidesdb_memtable::Memtable;
use tidesdb_sync::{Mutex, RwLock, rank};

use super::{Debt, Merges, ReadCtx, SyncDue};
use crate::family::{FamilyCore, MemSlot};
use crate::health::Health;
use crate::jobs::{Job, JobQueue};
use crate::options::DbOptions;
use crate::types::{FamilyId, SeqNo};
use crate::wal::{Log, Place, Purpose};
use crate::{Error, Result};

/// On a full disk, less of the log than this is not worth a table, unless a whole segment comes back.
const FLUSH_FOR_SPACE_MIN: u64 = 64 << 10;

/// The log, the memtables of all families, and what limits the writers. It cannot reach tables or the manifest.
#[derive(Debug)]
pub struct WriteCtx {
    /// Decides what a reader sees.
    pub reads: Arc<ReadCtx>,
    /// The outside.
    pub env: Env,
    /// Settings of the database.
    pub options: DbOptions,
    /// Healthy or poisoned.
    pub health: Arc<Health>,
    /// The write-ahead log.
    pub log: Log,
    /// The log is kept from here while recovery replays it; `SeqNo::MAX` afterwards.
    pub recovery_pins: AtomicU64,
    /// Families by number; dropped ones leave.
    pub families: RwLock<BTreeMap<FamilyId, Arc<FamilyCore>>, { rank::FAMILIES }>,
    /// Families whose value log was written since its last sync.
    pub dirty_vlogs: Mutex<Vec<Arc<FamilyCore>>, { rank::DIRTY_VLOGS }>,
    /// Commits that are to be durable within some time.
    pub sync_due: SyncDue,
    /// Held by the commit with a condition that is being decided.
    pub deciding: Mutex<(), { rank::DECIDING }>,
    /// Held while the order of commits is held.
    rotating: Mutex<(), { rank::ROTATING }>,
    /// Work for the background.
    pub jobs: JobQueue,
    /// Memory that waits to be flushed, and who waits for it.
    pub debt: Debt,
    /// Whether merges begin by themselves, and how to stop them.
    pub merges: Merges,
}

impl WriteCtx {
    /// The write path to `log`, with no family.
    pub fn new(env: &Env, options: DbOptions, health: &Arc<Health>, log: Log) -> Self {
        let ticking = options.background_threads != Some(0) && !options.read_only;
        Self {
            reads: Arc::new(ReadCtx::new(&log, &env.clock, ticking)),
            env: env.clone(),
            options,
            health: Arc::clone(health),
            log,
            recovery_pins: AtomicU64::new(u64::MAX),
            families: RwLock::default(),
            dirty_vlogs: Mutex::default(),
            sync_due: SyncDue::default(),
            deciding: Mutex::default(),
            rotating: Mutex::default(),
            jobs: JobQueue::default(),
            debt: Debt::default(),
            merges: Merges::default(),
        }
    }

    /// Fails unless writes are possible.
    ///
    /// # Errors
    /// `Poisoned`, `ReadOnly`, `Closed`.
    pub fn check_writable(&self) -> Result<()> {
        self.health.check()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.reads.check_open()
    }

    /// Makes durable every value that a record in the log refers to.
    ///
    /// # Errors
    /// `Io`; the caller poisons.
    pub fn sync_values(&self) -> Result<()> {
        let dirty = std::mem::take(&mut *self.dirty_vlogs.lock());
        dirty.iter().try_for_each(|family| family.vlog.sync())
    }

    /// Makes the log and the values durable up to `end`.
    ///
    /// # Errors
    /// The failure that poisoned the database.
    pub fn sync_to(&self, end: SeqNo) -> Result<()> {
        self.log.sync_to(end, &|| self.sync_values())
    }

    /// All families.
    pub fn all_families(&self) -> Vec<Arc<FamilyCore>> {
        self.families.read().values().cloned().collect()
    }

    /// First sequence number whose log is still needed: by a memtable, by a commit on its way, or by recovery.
    pub fn log_needed_from(&self) -> SeqNo {
        self.log_needed_without(None)
    }

    /// As [`WriteCtx::log_needed_from`], once `flushed` is in tables.
    pub fn log_needed_without(&self, flushed: Option<&Arc<MemSlot>>) -> SeqNo {
        // The published end first: a memtable made after this line pins from there or above.
        let published = self.log.sequencer().visible_end().min(self.recovery_pins.load(Ordering::SeqCst));
        let pins = |f: &Arc<FamilyCore>| {
            let view = f.owned_view();
            view.memtables()
                .filter(|m| flushed.is_none_or(|gone| !Arc::ptr_eq(m, gone)))
                .map(|m| m.pins)
                .min()
        };
        self.all_families().iter().filter_map(pins).min().map_or(published, |p| p.min(published))
    }

    /// Refuses writes from now on; whoever waits is woken and sees it.
    pub fn poison(&self, e: Error) -> Arc<Error> {
        let cause = match e {
            Error::Poisoned { cause } | Error::CommitUnknown { cause, .. } => {
                self.health.poison((*cause).clone())
            }
            e => self.health.poison(e),
        };
        self.log.sequencer().stop();
        self.log.wake_waiters();
        self.debt.progress.advance();
        cause
    }

    /// Asks for the flush of what is only in the log: the disk is full, and the log's space comes back with it. Left alone is
    /// what gives no space back, and what waits for a flush already: else refused commits would make a memtable and a table of
    /// each small commit among them.
    pub fn flush_for_space(&self) {
        let tail = self.log.sequencer().tail();
        let gives_space = |pins| {
            self.log.segment_of(pins) < self.log.segment_of(tail)
                || self.log.bytes_since(pins) >= FLUSH_FOR_SPACE_MIN
        };
        for family in self.all_families() {
            let view = family.owned_view();
            if !view.immutables.is_empty() {
                self.jobs.push(Job::Flush(family.id));
            } else if view.active.as_ref().is_some_and(|slot| gives_space(slot.pins)) {
                self.rotate(&family);
            }
        }
    }

    /// Asks for everything that is due: after a failure, jobs are not in the queue any more.
    pub fn ask_for_pending(&self) {
        for family in self.all_families() {
            if !family.owned_view().immutables.is_empty() {
                self.jobs.push(Job::Flush(family.id));
            }
            self.jobs.push(Job::Compact(family.id));
        }
    }

    /// Makes the active memtable of `family` immutable and asks for its flush. Does nothing if it is empty.
    pub fn rotate(&self, family: &Arc<FamilyCore>) {
        self.rotate_if(family, |_| true);
    }

    /// As [`WriteCtx::rotate`], if the active memtable has reached its size.
    pub fn rotate_if_full(&self, family: &Arc<FamilyCore>) {
        let limit = family.options.write_buffer_bytes();
        self.rotate_if(family, |bytes| bytes >= limit);
    }

    /// Rotates all `families` at one boundary and returns it: their immutables then hold the same prefix of the commits.
    pub fn rotate_all(&self, families: &[Arc<FamilyCore>]) -> SeqNo {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(families);
        self.rotate_now(families)
    }

    /// Gives each of `families` an active memtable. A commit may have its number and not yet its memtable: it must find one
    /// that ends at the boundary of a rotation.
    fn make_slots<'f>(&self, families: impl IntoIterator<Item = &'f Arc<FamilyCore>>) {
        let sequencer = self.log.sequencer();
        for family in families {
            family.make_slot(sequencer.tail(), self.env.entropy.next_u64(), || sequencer.visible_end());
        }
    }

    /// Reserves a place for `record`, a commit whose entries are all in the memtables `staged`, and puts these into the read
    /// views before another commit is ordered.
    ///
    /// # Errors
    /// As [`Log::reserve`]; nothing happened.
    pub fn reserve_staged(
        &self,
        record: &mut Vec<u8>,
        purpose: Purpose,
        staged: Vec<(Arc<FamilyCore>, Arc<Memtable>)>,
    ) -> Result<Place> {
        let _one_at_a_time = self.rotating.lock();
        self.make_slots(staged.iter().map(|(family, _)| family));
        let ids: Vec<FamilyId> = staged.iter().map(|(family, _)| family.id).collect();
        let place = self.log.reserve_holding(record, purpose, |commit| {
            for (family, map) in staged {
                let active = family.owned_view().active.as_ref().map_or(0, |slot| slot.debt());
                let debt = active + map.allocated_bytes().min(family.options.write_buffer_bytes()) as u64;
                self.debt.add(debt); // first: a flush may take it off as soon as it is on the list
                if !family.rotate_around(map, commit.seq, commit.end) {
                    self.debt.subtract(debt);
                }
            }
        })?;
        tidesdb_sync::reclaim();
        ids.into_iter().for_each(|id| self.jobs.push(Job::Flush(id)));
        Ok(place)
    }

    fn rotate_if(&self, family: &Arc<FamilyCore>, wanted: impl Fn(usize) -> bool) {
        let _one_at_a_time = self.rotating.lock();
        let active = family.owned_view().active.as_ref().map(|a| a.bytes());
        if active.is_some_and(wanted) {
            self.rotate_now(std::slice::from_ref(family));
        }
    }

    /// The caller holds `rotating`.
    fn rotate_now(&self, families: &[Arc<FamilyCore>]) -> SeqNo {
        let held = self.log.sequencer().hold();
        let boundary = held.boundary;
        for family in families {
            // First: a flush or a drop may take it off as soon as it is on the list.
            let bytes = family.owned_view().active.as_ref().map_or(0, |slot| slot.bytes() as u64);
            self.debt.add(bytes);
            if family.rotate(boundary) == 0 {
                self.debt.subtract(bytes); // a drop was faster
            }
        }
        drop(held);
        tidesdb_sync::reclaim(); // not while the order of commits was held: it may free whole memtables
        families.iter().for_each(|f| self.jobs.push(Job::Flush(f.id)));
        boundary
    }
}
