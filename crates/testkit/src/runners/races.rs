//! T17, races of the catalog: writers commit to several families with write buffers of 4 KiB. Meanwhile other threads
//! drop, create, rename and clone families at random, flush and merge. No assertion of the engine may fail. Each
//! remaining family must hold exactly what was acknowledged. A clone must hold the contents of its source at a single
//! point in time. A case is a round.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Parser;
use testkit::home::in_memory;
use testkit::model::listed;
use testkit::process;
use testkit::report::{self, Cases, exit, finish, violation};
use testkit::rng::Rng;
use testkit::watch::Watch;
use tidesdb::{Db, Error, Family, FamilyOptions, Isolation, SyncMode, WriteBatch};
use tidesdb_io::{Clock, RealClock};

/// Keys per writer and family.
const KEYS: u64 = 48;
/// Maximum number of families of one admin thread.
const NAMES: u64 = 5;
/// Duration of a round.
const ROUND: Duration = Duration::from_millis(700);

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The part of a writer's commit that changes one family.
#[derive(Clone)]
struct Commit {
    changes: Vec<Change>,
    /// Whether the commit has returned; if not, the family may or may not hold it.
    acked: bool,
}

/// One operation on keys of one writer.
#[derive(Clone, Copy)]
enum Change {
    Put {
        key: u64,
        value: u64,
        bytes: u64,
    },
    Delete {
        key: u64,
    },
    /// Deletes the keys from `from`, inclusive, to `to`, exclusive.
    DeleteRange {
        from: u64,
        to: u64,
    },
}

/// A family and its expected contents.
struct Tracked {
    family: Family,
    name: Mutex<String>,
    /// Contents at its creation.
    base: Rows,
    /// Commits of each writer since then. A refused commit is removed again.
    logs: Vec<Mutex<Vec<Commit>>>,
    /// Set when the drop has begun.
    dropping: AtomicBool,
    /// Set when the drop has returned.
    gone: AtomicBool,
}

/// Figures of all rounds.
#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    refused: AtomicU64,
    drops: AtomicU64,
    clones: AtomicU64,
    renames: AtomicU64,
    merges: AtomicU64,
}

/// State shared by the threads of a round.
struct World<'a> {
    db: &'a Db,
    plan: Plan,
    families: Mutex<Vec<Arc<Tracked>>>,
    counts: &'a Counts,
    stop: AtomicBool,
    wrong: Mutex<Option<String>>,
}

/// Settings that differ between rounds.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    writers: u64,
    admins: u64,
    threads: usize,
    sync: SyncMode,
    /// Whether values are stored in value logs.
    separate: bool,
}

impl Plan {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            writers: [8, 3, 5][(seed % 3) as usize],
            admins: 1 + seed % 2,
            threads: [2, 4, 0][(seed / 2 % 3) as usize],
            sync: [SyncMode::None, SyncMode::Interval(Duration::from_millis(5)), SyncMode::Full]
                [(seed / 3 % 3) as usize],
            separate: seed % 4 == 1,
        }
    }

    fn family(&self, n: u64) -> FamilyOptions {
        let mut options = FamilyOptions::default().write_buffer_bytes(4096);
        if n % 2 == 1 {
            options = options.comparator(listed());
        }
        options.value_threshold = if self.separate { 100 } else { usize::MAX };
        options.vlog_file_bytes = 64 << 10;
        options.table_bytes = 32 << 10;
        options
    }

    fn open(&self, path: &Path) -> Result<Db, Error> {
        Db::options(path)
            .sync(self.sync)
            .background_threads(self.threads)
            .comparator(listed())
            .with(|o| {
                o.wal_segment_bytes = 1 << 20;
                o.memtables_bytes_max = 1 << 20;
                o.disk_free_min = 0;
            })
            .open()
    }
}

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    #[arg(long, default_value_t = 600)]
    rounds: u64,
}

pub(crate) fn runner() -> ExitCode {
    let Args { cases, rounds } = process::arguments();
    let watch = Watch::start(Duration::from_secs(60));
    let counts = Counts::default();
    let mut violations = 0;
    for n in cases.numbers(10_000, rounds) {
        report::begin(&[], n);
        watch.begin(&format!("round {n}"));
        let done = in_memory().and_then(|temp| round(temp.path(), Plan::new(n), &counts));
        if let Err(e) = done {
            violation(e);
            violations += 1;
            if violations == 10 {
                break;
            }
        }
    }
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    let figures = [
        ("rounds", rounds),
        ("commits", count(&counts.commits)),
        ("refused", count(&counts.refused)),
        ("drops", count(&counts.drops)),
        ("clones", count(&counts.clones)),
        ("renames", count(&counts.renames)),
        ("merges", count(&counts.merges)),
        ("violations", violations),
        ("seed", cases.seed),
    ];
    let floors = [
        ("commits", rounds * 50),
        ("refused", rounds / 2),
        ("drops", rounds),
        ("clones", rounds / 2),
        ("renames", rounds / 2),
        ("merges", rounds / 2),
    ];
    exit(finish("T17", &figures, cases.floors(&floors)))
}

fn round(path: &Path, plan: Plan, counts: &Counts) -> Result<(), String> {
    let db = plan.open(path).map_err(|e| format!("open: {e}"))?;
    let world = World {
        db: &db,
        plan,
        families: Mutex::default(),
        counts,
        stop: AtomicBool::new(false),
        wrong: Mutex::default(),
    };
    for admin in 0..plan.admins {
        (0..3).try_for_each(|n| world.create(admin, n).map(drop))?;
    }
    std::thread::scope(|scope| {
        let world = &world;
        for w in 0..plan.writers {
            scope.spawn(move || world.run(1 + w, |rng, n| world.write(w, rng, n)));
        }
        for a in 0..plan.admins {
            scope.spawn(move || world.run(100 + a, |rng, _| world.change_catalog(a, rng)));
        }
        scope.spawn(move || world.run(200, |rng, _| world.maintain(rng)));
        RealClock::new().sleep(ROUND);
        world.stop.store(true, Ordering::SeqCst);
    });
    if let Some(wrong) = lock(&world.wrong).take() {
        return Err(wrong);
    }
    let families = std::mem::take(&mut *lock(&world.families));
    check_all(&db, plan, &families).map_err(|e| format!("at the end: {e}"))?;
    let expected: Vec<(String, Rows)> =
        families.iter().map(|t| (lock(&t.name).clone(), t.rows(plan.writers))).collect();
    drop(families);
    match plan.seed % 2 {
        0 => db.close().map_err(|e| format!("close: {e}"))?,
        _ => db.abandon(),
    }
    check_reopened(path, plan, &expected).map_err(|e| format!("after opening again: {e}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn prefix(writer: u64) -> Vec<u8> {
    format!("w{writer}-").into_bytes()
}

/// The range of the keys of a writer: some families have an order of their own, in which prefixes are refused.
fn keys_of(writer: u64) -> std::ops::Range<String> {
    format!("w{writer}-")..format!("w{writer}.") // the next byte
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("w{writer}-{n:03}").into_bytes()
}

fn value(n: u64, bytes: u64) -> Vec<u8> {
    let mut value = format!("{n}:").into_bytes();
    value.resize(bytes.max(12) as usize, b'a' + (n % 26) as u8);
    value
}

impl Change {
    fn random(rng: &mut Rng, n: u64) -> Self {
        let key = rng.below(KEYS);
        match rng.below(16) {
            0 | 1 => Self::Delete { key },
            2 => Self::DeleteRange { from: key, to: key + 1 + rng.below(6) },
            3 => Self::Put { key, value: n, bytes: 20_000 }, // takes long to write, so other commits overtake it
            _ => Self::Put { key, value: n, bytes: 12 + rng.below(400) },
        }
    }

    fn apply(self, writer: u64, rows: &mut Rows) {
        match self {
            Self::Put { key: k, value: n, bytes } => drop(rows.insert(key(writer, k), value(n, bytes))),
            Self::Delete { key: k } => drop(rows.remove(&key(writer, k))),
            Self::DeleteRange { from, to } => {
                (from..to).for_each(|k| drop(rows.remove(&key(writer, k))));
            }
        }
    }
}

impl Tracked {
    fn is_dropping(&self) -> bool {
        self.dropping.load(Ordering::SeqCst)
    }

    /// Returns the rows of `writer` after `commits`.
    fn rows_of(&self, writer: u64, commits: &[Commit]) -> Rows {
        let prefix = prefix(writer);
        let mut rows: Rows = self
            .base
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        commits.iter().flat_map(|c| &c.changes).for_each(|change| change.apply(writer, &mut rows));
        rows
    }

    fn log(&self, writer: u64) -> Vec<Commit> {
        lock(&self.logs[writer as usize]).clone()
    }

    /// Returns all rows; no writer may be in a commit.
    fn rows(&self, writers: u64) -> Rows {
        (0..writers).flat_map(|w| self.rows_of(w, &self.log(w))).collect()
    }
}

fn read_all(rows: tidesdb::Iter) -> Result<Rows, Error> {
    rows.map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
}

/// Compares rows. The error does not contain whole values.
fn same(found: &Rows, expected: &Rows) -> Result<(), String> {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    for (key, value) in expected {
        match found.get(key) {
            None => return Err(format!("acknowledged row {} is missing", text(key))),
            Some(v) if v != value => {
                let part = |v: &[u8]| text(&v[..v.len().min(12)]);
                return Err(format!("row {} is {} and not {}", text(key), part(v), part(value)));
            }
            Some(_) => {}
        }
    }
    match found.keys().find(|key| !expected.contains_key(*key)) {
        Some(key) => Err(format!("row {} is not expected", text(key))),
        None => Ok(()),
    }
}

impl World<'_> {
    /// Runs `step` with random numbers until the round ends or a step fails.
    fn run(&self, who: u64, mut step: impl FnMut(&mut Rng, u64) -> Result<(), String>) {
        let mut rng = Rng::new(self.plan.seed * 1000 + who);
        let mut n = 0;
        while !self.stop.load(Ordering::SeqCst) {
            n += 1;
            if let Err(e) = step(&mut rng, n) {
                lock(&self.wrong).get_or_insert(e);
                self.stop.store(true, Ordering::SeqCst);
            }
        }
    }

    fn families(&self) -> Vec<Arc<Tracked>> {
        lock(&self.families).clone()
    }

    fn pick(&self, rng: &mut Rng) -> Option<Arc<Tracked>> {
        let families = lock(&self.families);
        match families.len() as u64 {
            0 => None,
            len => Some(Arc::clone(&families[rng.below(len) as usize])),
        }
    }

    fn add(&self, family: Family, name: String, base: Rows) {
        let tracked = Tracked {
            family,
            name: Mutex::new(name),
            base,
            logs: (0..self.plan.writers).map(|_| Mutex::default()).collect(),
            dropping: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        };
        lock(&self.families).push(Arc::new(tracked));
    }

    /// Makes one commit to some families and checks its effects.
    fn write(&self, writer: u64, rng: &mut Rng, n: u64) -> Result<(), String> {
        let mut targets: Vec<Arc<Tracked>> = Vec::new();
        for _ in 0..1 + rng.below(3) {
            targets.extend(self.pick(rng).filter(|t| !targets.iter().any(|o| Arc::ptr_eq(o, t))));
        }
        if targets.is_empty() {
            return Ok(());
        }
        let mut plan = Vec::new();
        for t in &targets {
            let changes: Vec<Change> = (0..1 + rng.below(4)).map(|_| Change::random(rng, n)).collect();
            lock(&t.logs[writer as usize]).push(Commit { changes: changes.clone(), acked: false });
            plan.push((Arc::clone(t), changes));
        }
        let was_gone = targets.iter().any(|t| t.gone.load(Ordering::SeqCst));
        let done = if rng.one_in(4) { self.transact(writer, &plan) } else { self.batch(writer, &plan) };
        for t in &targets {
            let mut log = lock(&t.logs[writer as usize]);
            match (&done, log.last_mut()) {
                (Ok(()), Some(last)) => last.acked = true,
                _ => drop(log.pop()),
            }
        }
        match done {
            Ok(()) if was_gone => return Err("a commit to a dropped family succeeded".to_owned()),
            Ok(()) => self.counts.commits.fetch_add(1, Ordering::Relaxed),
            Err(Error::NotFound { .. }) if targets.iter().any(|t| t.is_dropping()) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed)
            }
            Err(Error::Busy { .. }) => 0, // the commit had no effect: flushes are far behind
            Err(e) => return Err(format!("commit: {e}")),
        };
        targets.iter().try_for_each(|t| self.look(writer, t, rng.below(KEYS)))
    }

    fn batch(&self, writer: u64, plan: &[(Arc<Tracked>, Vec<Change>)]) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for (t, changes) in plan {
            for change in changes {
                match *change {
                    Change::Put { key: k, value: n, bytes } => {
                        batch.put(&t.family, &key(writer, k), &value(n, bytes))
                    }
                    Change::Delete { key: k } => batch.delete(&t.family, &key(writer, k)),
                    Change::DeleteRange { from, to } => {
                        batch.delete_range(&t.family, key(writer, from)..key(writer, to))
                    }
                }?;
            }
        }
        self.db.write(&mut batch).map(drop)
    }

    fn transact(&self, writer: u64, plan: &[(Arc<Tracked>, Vec<Change>)]) -> Result<(), Error> {
        let mut txn = self.db.begin(Isolation::Snapshot);
        for (t, changes) in plan {
            for change in changes {
                match *change {
                    Change::Put { key: k, value: n, bytes } => {
                        txn.put(&t.family, &key(writer, k), &value(n, bytes))
                    }
                    Change::Delete { key: k } => txn.delete(&t.family, &key(writer, k)),
                    Change::DeleteRange { from, to } => {
                        txn.delete_range(&t.family, key(writer, from)..key(writer, to))
                    }
                }?;
            }
        }
        txn.commit().map(drop)
    }

    /// Checks that the writer sees all of its own rows, which no other thread changes.
    fn look(&self, writer: u64, t: &Tracked, k: u64) -> Result<(), String> {
        let expected = t.rows_of(writer, &t.log(writer));
        let found = t.family.range(keys_of(writer)).and_then(read_all);
        match found {
            Ok(found) => same(&found, &expected).map_err(|e| {
                format!("scan by writer {writer} (family dropped meanwhile: {}): {e}", t.is_dropping())
            })?,
            Err(Error::NotFound { .. }) if t.is_dropping() => {}
            Err(e) => return Err(format!("scan: {e}")),
        }
        match t.family.get(&key(writer, k)) {
            Ok(v) if v.as_deref() == expected.get(&key(writer, k)).map(Vec::as_slice) => Ok(()),
            Ok(_) => Err(format!("a get is wrong (family dropped meanwhile: {})", t.is_dropping())),
            Err(Error::NotFound { .. }) if t.is_dropping() => Ok(()),
            Err(e) => Err(format!("get: {e}")),
        }
    }

    /// Drops, creates, renames or clones one of the families of `admin`.
    fn change_catalog(&self, admin: u64, rng: &mut Rng) -> Result<(), String> {
        let own = format!("a{admin}-");
        let mine: Vec<_> = self.families().into_iter().filter(|t| lock(&t.name).starts_with(&own)).collect();
        let free = (0..NAMES).find(|n| !mine.iter().any(|t| *lock(&t.name) == format!("{own}{n}")));
        let one = (!mine.is_empty()).then(|| Arc::clone(rng.pick(&mine)));
        match (rng.below(7), one, free) {
            (0..=2, Some(t), _) => self.drop_one(&t),
            (3, _, Some(n)) => self.create(admin, n),
            (4, Some(t), Some(n)) => self.rename(&t, format!("{own}{n}")),
            (5 | 6, Some(t), Some(n)) => self.clone_one(&t, format!("{own}{n}")),
            (_, None, Some(n)) => self.create(admin, n),
            _ => Ok(()),
        }
    }

    fn create(&self, admin: u64, n: u64) -> Result<(), String> {
        let name = format!("a{admin}-{n}");
        let made = self.db.create_family(&name, self.plan.family(admin + n));
        self.add(made.map_err(|e| format!("create: {e}"))?, name, Rows::new());
        Ok(())
    }

    fn drop_one(&self, t: &Arc<Tracked>) -> Result<(), String> {
        let name = lock(&t.name).clone();
        t.dropping.store(true, Ordering::SeqCst);
        self.db.drop_family(&name).map_err(|e| format!("drop: {e}"))?;
        t.gone.store(true, Ordering::SeqCst);
        lock(&self.families).retain(|other| !Arc::ptr_eq(other, t));
        self.counts.drops.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn rename(&self, t: &Tracked, new: String) -> Result<(), String> {
        let old = std::mem::replace(&mut *lock(&t.name), new.clone());
        self.db.rename_family(&old, &new).map_err(|e| format!("rename: {e}"))?;
        self.counts.renames.fetch_add(1, Ordering::Relaxed);
        match (self.db.family(&old), self.db.family(&new)) {
            (Err(Error::NotFound { .. }), Ok(_)) => Ok(()),
            _ => Err("after a rename the old name exists, or the new one does not".to_owned()),
        }
    }

    /// Clones a family and checks that the clone holds, for each writer, the commits up to some point during the call.
    fn clone_one(&self, t: &Tracked, new: String) -> Result<(), String> {
        let name = lock(&t.name).clone();
        let returned = |w: u64| t.log(w).iter().filter(|c| c.acked).count();
        let before: Vec<usize> = (0..self.plan.writers).map(returned).collect();
        let clone = self.db.clone_family(&name, &new).map_err(|e| format!("clone: {e}"))?;
        let after: Vec<Vec<Commit>> = (0..self.plan.writers).map(|w| t.log(w)).collect();
        for w in 0..self.plan.writers {
            let found = clone.range(keys_of(w)).and_then(read_all).map_err(|e| format!("clone: {e}"))?;
            let log = &after[w as usize];
            let mut moments = before[w as usize]..=log.len();
            if !moments.any(|n| same(&found, &t.rows_of(w, &log[..n])).is_ok()) {
                let e = same(&found, &t.rows_of(w, &log[..before[w as usize]]));
                return Err(format!("a clone matches no state of writer {w}: {e:?}"));
            }
        }
        let base = clone.iter().and_then(read_all).map_err(|e| format!("clone: {e}"))?;
        self.add(clone, new, base);
        self.counts.clones.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Flushes or merges.
    fn maintain(&self, rng: &mut Rng) -> Result<(), String> {
        let Some(t) = self.pick(rng) else { return Ok(()) };
        let done = match rng.below(6) {
            0 => t.family.start_flush(),
            1 | 2 => t.family.flush(),
            3 => t.family.compact(),
            4 => t.family.compact_range(key(rng.below(self.plan.writers), 0)..),
            _ => self.db.flush(),
        };
        match done {
            Ok(()) => self.counts.merges.fetch_add(1, Ordering::Relaxed),
            Err(Error::NotFound { .. }) if t.is_dropping() => 0,
            Err(Error::Busy { .. }) => 0,
            Err(e) => return Err(format!("flush or merge: {e}")),
        };
        Ok(())
    }
}

/// Checks that every remaining family holds what was acknowledged, and nothing else.
fn check_all(db: &Db, plan: Plan, families: &[Arc<Tracked>]) -> Result<(), String> {
    for t in families {
        let found = t.family.iter().and_then(read_all).map_err(|e| e.to_string())?;
        same(&found, &t.rows(plan.writers)).map_err(|e| format!("family {}: {e}", lock(&t.name)))?;
    }
    verify(db)
}

fn verify(db: &Db) -> Result<(), String> {
    let report = db.verify().map_err(|e| format!("verify: {e}"))?;
    if report.is_ok() { Ok(()) } else { Err(format!("verify: {report}")) }
}

fn check_reopened(path: &Path, plan: Plan, expected: &[(String, Rows)]) -> Result<(), String> {
    let db = plan.open(path).map_err(|e| e.to_string())?;
    let mut names: Vec<_> = expected.iter().map(|(name, _)| name.clone()).collect();
    names.push(db.default_family().name().to_string());
    names.sort();
    let mut there = db.families();
    there.sort();
    if there != names {
        return Err(format!("families {there:?} and not {names:?}"));
    }
    for (name, rows) in expected {
        let found = db.family(name).and_then(|f| f.iter()).and_then(read_all).map_err(|e| e.to_string())?;
        same(&found, rows).map_err(|e| format!("family {name}: {e}"))?;
    }
    verify(&db)?;
    db.close().map_err(|e| format!("close: {e}"))
}
