//! What the clients of a run share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidesdb::{Db, Error, Family, MemoryStore, Resources, Snapshot};
use tidesdb_io::sim::SimDisk;
use tidesdb_io::{Env, SimClock};
use tidesdb_sync::scheduler;

use super::backups::Shelf;
use super::ledger::{Fate, Found, Ledger, Op, Read, Row, Rows};
use super::plan::{PATH, Plan};
use super::store::Shaky;
use crate::model::{FamilyNo, wall_millis};
use crate::rng::Rng;

/// A family with its number.
pub(super) struct Tracked {
    pub(super) no: FamilyNo,
    pub(super) family: Family,
    pub(super) name: Mutex<String>,
    /// A drop has begun.
    pub(super) dropping: AtomicBool,
    /// A rename or drop is under way: its name is not known.
    pub(super) is_changing: AtomicBool,
}

impl Tracked {
    /// Returns whether the family exists, under the name that is known.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_changing.load(SeqCst) && !self.dropping.load(SeqCst)
    }
}

/// A disk as it was at some time, to be recovered after the run.
pub(super) struct Capture {
    pub(super) disk: SimDisk,
    pub(super) what: String,
    pub(super) path: String,
    /// Families that must exist, with their names.
    pub(super) families: Vec<(FamilyNo, String)>,
    /// Commits up to this sequence number must be there.
    pub(super) least: u64,
    /// Commits that had not returned when the process was killed.
    pub(super) optional: Vec<usize>,
    /// Only the process was killed: what had not reached the device is there, and would be lost with the machine.
    pub(super) was_killed: bool,
    /// The objects of the store at that time.
    pub(super) objects: Option<MemoryStore>,
}

/// State shared by the threads of a run. Its locks are never held during a call of the engine.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) db: Db,
    pub(super) env: Env,
    pub(super) disk: Arc<SimDisk>,
    pub(super) clock: Arc<SimClock>,
    /// The store of the copy.
    pub(super) store: Option<Arc<Shaky>>,
    /// What the database shares with another one.
    pub(super) resources: Option<Resources>,
    /// Generations of backups.
    pub(super) shelf: Option<Shelf>,
    pub(super) families: Mutex<Vec<Arc<Tracked>>>,
    /// Families of the transactions of all levels. No other thread writes to them or changes them.
    pub(super) isolated: Vec<Arc<Tracked>>,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) captures: Mutex<Vec<Capture>>,
    /// Milliseconds by which the wall clock was ever ahead.
    pub(super) ahead: Mutex<u64>,
    pub(super) next_no: AtomicUsize,
    /// Calls of the disk may have failed.
    pub(super) is_stormy: AtomicBool,
    /// The close has begun.
    pub(super) is_closing: AtomicBool,
    /// Somebody builds tables.
    pub(super) is_building: AtomicBool,
    /// Clients and others that still work.
    pub(super) working: AtomicUsize,
    stop: AtomicBool,
    wrong: Mutex<Option<String>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(super) fn new(
        plan: &Plan,
        db: Db,
        env: Env,
        (disk, clock, store): (Arc<SimDisk>, Arc<SimClock>, Option<Arc<Shaky>>),
    ) -> Self {
        Self {
            plan: plan.clone(),
            db,
            env,
            disk,
            clock,
            store,
            resources: None,
            shelf: None,
            families: Mutex::default(),
            isolated: Vec::new(),
            ledger: Mutex::default(),
            captures: Mutex::default(),
            ahead: Mutex::default(),
            next_no: AtomicUsize::new(0),
            is_stormy: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_building: AtomicBool::new(false),
            working: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            wrong: Mutex::default(),
        }
    }

    pub(super) fn fail(&self, what: String) {
        lock(&self.wrong).get_or_insert(what);
        self.stop.store(true, SeqCst);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub(super) fn wrong(&self) -> Option<String> {
        lock(&self.wrong).clone()
    }

    pub(super) fn is_stormy(&self) -> bool {
        self.is_stormy.load(SeqCst)
    }

    /// Wall time in milliseconds, and the latest that the engine may take it for.
    pub(super) fn time(&self) -> (u64, u64) {
        let now = wall_millis(&*self.clock);
        (now, now + *lock(&self.ahead))
    }

    /// The objects of the store as they are now.
    pub(super) fn objects(&self) -> Option<MemoryStore> {
        self.store.as_ref().map(|store| store.fork())
    }

    pub(super) fn families(&self) -> Vec<Arc<Tracked>> {
        lock(&self.families).clone()
    }

    /// The families that clients use, and those of the transactions of all levels.
    pub(super) fn all_families(&self) -> Vec<Arc<Tracked>> {
        let families = lock(&self.families);
        families.iter().chain(&self.isolated).cloned().collect()
    }

    /// Returns one of the families that clients use, if there is one.
    pub(super) fn pick(&self, rng: &mut Rng) -> Option<Arc<Tracked>> {
        let families = lock(&self.families);
        (!families.is_empty()).then(|| Arc::clone(rng.pick(&families)))
    }

    /// Returns the families that exist, with their names.
    pub(super) fn settled(&self) -> Vec<(FamilyNo, String)> {
        let families = self.all_families();
        families.iter().filter(|t| t.is_settled()).map(|t| (t.no, lock(&t.name).clone())).collect()
    }

    /// Adds a family that holds `rows`, for the clients.
    pub(super) fn add(&self, family: Family, name: String, rows: Rows) -> FamilyNo {
        let tracked = self.track(family, name, rows);
        let no = tracked.no;
        lock(&self.families).push(tracked);
        no
    }

    /// Adds a family for the transactions of all levels.
    pub(super) fn add_isolated(&mut self, family: Family, name: String) {
        let tracked = self.track(family, name, Rows::new());
        self.isolated.push(tracked);
    }

    fn track(&self, family: Family, name: String, rows: Rows) -> Arc<Tracked> {
        let no = self.next_no.fetch_add(1, SeqCst);
        scheduler::note(
            "family",
            no as u64,
            &format!("{name} has number {:?} and {} rows", family.id(), rows.len()),
        );
        lock(&self.ledger).add_family(no, rows);
        let (dropping, is_changing) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Tracked { no, family, name: Mutex::new(name), dropping, is_changing })
    }

    /// Judges the error of a call that concerns `families`. Ends the run if the error has no cause, and if the disk has failed so that
    /// nothing more will succeed. A disk that fails is no cause of damage.
    pub(super) fn failed(&self, what: &str, error: &Error, families: &[Arc<Tracked>]) {
        match error {
            Error::Busy { .. } | Error::Conflict { .. } => {}
            Error::Closed if self.is_closing.load(SeqCst) => {}
            Error::MemoryLimit { .. } if self.plan.is_memory_little() => {}
            Error::NotFound { .. } if families.iter().any(|t| t.dropping.load(SeqCst)) => {}
            Error::Poisoned { .. } | Error::CommitUnknown { .. } | Error::Io { .. } | Error::Closed
                if self.is_stormy() =>
            {
                self.stop();
            }
            _ if self.is_stormy() && !matches!(error, Error::Corrupt { .. }) => {}
            _ => self.fail(format!("{what} failed without a cause: {error} ({error:?})")),
        }
    }

    /// Runs a commit, records it and judges its error. Returns its sequence number if it was acknowledged.
    pub(super) fn commit(
        &self,
        what: &str,
        ops: Vec<Op>,
        families: &[Arc<Tracked>],
        durable: bool,
        commit: impl FnOnce() -> tidesdb::Result<u64>,
    ) -> Option<u64> {
        self.record(what, ops, durable, commit).inspect_err(|e| self.failed(what, e, families)).ok()
    }

    /// Runs a commit and records it.
    pub(super) fn record(
        &self,
        what: &str,
        ops: Vec<Op>,
        durable: bool,
        commit: impl FnOnce() -> tidesdb::Result<u64>,
    ) -> tidesdb::Result<u64> {
        let is_empty = ops.is_empty();
        let told: Vec<String> = ops.iter().map(ToString::to_string).collect();
        let (number, before) = {
            let mut ledger = lock(&self.ledger);
            (ledger.begin(ops), ledger.acked)
        };
        let durable = durable || self.plan.is_durable();
        scheduler::note("commit begins", number as u64, &format!("{what}: {}", told.join(", ")));
        let result = commit();
        let now = self.env.clock.mono();
        let fate = match &result {
            // An empty commit has no place in the order.
            Ok(_) if is_empty => Fate::Refused,
            Ok(seq) => Fate::Acked(*seq),
            Err(Error::CommitUnknown { seq, .. }) => Fate::Unknown(*seq),
            Err(_) => Fate::Refused,
        };
        scheduler::note("commit ends", number as u64, &format!("{fate:?}"));
        let mut ledger = lock(&self.ledger);
        ledger.end(number, fate, durable);
        if let Fate::Acked(seq) = fate {
            ledger.note_return(now, seq);
        }
        if is_empty && result.is_ok() && durable {
            ledger.durable = ledger.durable.max(before);
        }
        result
    }

    /// Commits up to this sequence number are durable now, after a call or because enough time has passed.
    pub(super) fn durable_now(&self) -> u64 {
        let now = self.env.clock.mono();
        let mut ledger = lock(&self.ledger);
        if let Some(within) = self.plan.durable_within().filter(|_| !self.is_stormy()) {
            ledger.durable = ledger.durable.max(ledger.returned_by(now.saturating_sub(within)));
        }
        ledger.durable
    }

    /// Everything that was acknowledged before `before` is durable.
    pub(super) fn durable(&self, before: u64) {
        let mut ledger = lock(&self.ledger);
        ledger.durable = ledger.durable.max(before);
    }

    pub(super) fn acked(&self) -> u64 {
        lock(&self.ledger).acked
    }

    /// Takes a snapshot. It must show all commits that were acknowledged before.
    pub(super) fn snapshot(&self) -> Snapshot {
        let acked = self.acked();
        let snapshot = self.db.snapshot();
        if self.plan.is_durable() {
            self.durable(snapshot.seq()); // such a commit is durable before it is visible
        }
        // Once the order of commits was stopped, readers do not wait for commits that will never be published.
        if snapshot.seq() < acked && !self.is_stormy() {
            self.fail(format!(
                "a snapshot at {} misses commit {acked}, which was acknowledged",
                snapshot.seq()
            ));
        }
        snapshot
    }

    pub(super) fn read(&self, who: &str, family: FamilyNo, between: (u64, u64), from: u64, found: Found) {
        let time = (from, self.time().1);
        lock(&self.ledger).read(Read { who: who.to_owned(), family, between, time, found });
    }

    /// Captures the disk, which the machine or the process would leave.
    pub(super) fn capture(&self, disk: SimDisk, what: String, least: u64, is_kill: bool) {
        scheduler::note("capture", least, &what);
        let families = self.settled();
        let optional = if is_kill { lock(&self.ledger).flying() } else { Vec::new() };
        if let Some(shelf) = &self.shelf {
            shelf.capture(&what); // last: other threads go on meanwhile
        }
        lock(&self.captures).push(Capture {
            disk,
            what,
            path: PATH.to_owned(),
            families,
            least,
            optional,
            was_killed: is_kill,
            objects: self.objects(),
        });
    }
}

/// Reads all rows of a family.
pub(super) fn rows(family: &Family) -> tidesdb::Result<Rows> {
    let mut rows = BTreeMap::new();
    let mut cursor = family.cursor()?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        let expiry = cursor.expiry().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let expiry = expiry.map_or(0, |since| since.as_millis() as u64);
        let (key, value) = cursor.entry()?;
        rows.insert(key.to_vec(), Row { value: value.into(), expiry });
        cursor.next()?;
    }
    Ok(rows)
}
