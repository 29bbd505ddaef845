//! A run from the open to the last recovery.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidesdb::backup::Backups;
use tidesdb::{Db, Error, Family, Isolation, MemoryStore, ObjectStore, SyncMode, Transaction, WriteOptions};
use tidesdb_io::sim::{Habits, Image, SimDisk, Starts, scheduled_on};
use tidesdb_io::{Env, SimClock};
use tidesdb_sync::scheduler;

use super::Figures;
use super::backups::{self, Shelf, Shelved};
use super::client::Client;
use super::ledger::{Change, Op, Row, Rows};
use super::plan::{PATH, Plan};
use super::store::Shaky;
use super::tables::{self, Part, Turn};
use super::world::{Capture, World, lock, rows};
use super::{admin, ledger, neighbour};
use crate::isolation::{self, Record, Writes};
use crate::model::{FamilyNo, wall_millis};
use crate::rng::Rng;

/// Names of the families of the transactions of all levels, and the numbers of their settings.
const ISOLATED: [(&str, usize); 2] = [("left", 0), ("right", 3)];

type Done<T> = Result<T, String>;

/// Runs a plan on a thread of the scheduler.
pub(super) fn run(plan: &Plan, figures: &mut Figures) -> Done<()> {
    let (env, disk, clock) = scheduled_on(SimDisk::new(plan.seed), plan.seed);
    disk.log_ops(false);
    disk.set_habits(plan.habits);
    let env = plan.with_descriptors(env, &disk);
    // The threads of the clients are started by `env`, which never fails.
    let starts_fail = Arc::new(AtomicBool::new(false));
    let db_env = scarce(&env, plan.seed, &starts_fail);
    let store = plan.copying.map(|_| Arc::new(Shaky::new(MemoryStore::default(), Arc::clone(&env.clock))));
    let resources = plan.resources(&db_env).map_err(|e| format!("resources: {e}"))?;
    let db = plan.open_with(&db_env, PATH, as_store(&store), resources.as_ref());
    let db = db.map_err(|e| format!("the first open: {e}"))?;
    starts_fail.store(plan.starts_fail, SeqCst);
    let mut world = World::new(plan, db, env, (disk, clock, store));
    world.resources = resources;
    world.shelf = plan.backing.map(|_| {
        let store = Shaky::new(MemoryStore::default(), Arc::clone(&world.env.clock));
        Shelf::new(store, &world.env)
    });
    for n in 0..plan.families as usize {
        let name = format!("f{n}");
        let family = world.db.create_family(&name, plan.family(n)).map_err(|e| format!("a create: {e}"))?;
        world.add(family, name, Rows::new());
    }
    for (name, n) in ISOLATED.into_iter().filter(|_| plan.isolated > 0) {
        let family = world.db.create_family(name, plan.family(n)).map_err(|e| format!("a create: {e}"))?;
        world.add_isolated(family, name.to_owned());
    }
    let records = work(&world);
    if let Some(wrong) = world.wrong() {
        return Err(wrong);
    }
    judge(&world, records, figures)?;
    starts_fail.store(false, SeqCst); // a close with a timeout needs a thread
    end(world, figures)
}

fn as_store(store: &Option<Arc<Shaky>>) -> Option<Arc<dyn ObjectStore>> {
    store.clone().map(|store| store as Arc<dyn ObjectStore>)
}

/// An environment that starts only some threads while `fails`.
fn scarce(env: &Env, seed: u64, fails: &Arc<AtomicBool>) -> Env {
    let rng = Arc::new(Mutex::new(Rng::new(seed)));
    let (some, few) = (Arc::clone(fails), Arc::clone(fails));
    let of_helpers = Arc::clone(&rng);
    let on_start = move |name: &str, body| {
        if some.load(SeqCst) && lock(&rng).one_in(2) {
            scheduler::note("a thread is not started", 0, name);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(body)
    };
    let helpers = move |others| match few.load(SeqCst) {
        true => lock(&of_helpers).below(others as u64 + 1) as usize,
        false => others,
    };
    Starts::of(env).on_start(on_start).helpers(helpers).env()
}

/// Runs all threads to their ends. Returns the records of the transactions, unless they met an error.
fn work(world: &World) -> Option<Vec<Record>> {
    let plan = &world.plan;
    let records = Mutex::new(Some(Vec::new()));
    let (clients, isolated) = (plan.clients, plan.isolated);
    world.working.store((clients + isolated) as usize, SeqCst);
    let roles = clients + isolated + 6;
    world.env.threads.run_together("client", roles as usize, &|n| {
        let n = n as u64;
        match n {
            0 => admin::control(world),
            1 if plan.has("maintenance") => admin::maintain(world),
            1 => {}
            2 if plan.has("catalog") => admin::change_catalog(world),
            2 => {}
            3 if plan.has_readers() => admin::follow(world),
            3 => {}
            4 | 5 => match &world.shelf {
                Some(shelf) if n == 4 => backups::back_up(world, shelf),
                Some(shelf) => backups::clear_up(world, shelf),
                None => {}
            },
            6 => {
                if let Some(resources) = &world.resources {
                    neighbour::live(world, resources);
                }
            }
            _ if n < 7 + clients => {
                let _working = Working(world);
                Client::new(world, n).run();
            }
            _ => {
                let _working = Working(world);
                match run_isolated(world, n) {
                    Ok(more) => {
                        if let Some(all) = &mut *lock(&records) {
                            all.extend(more);
                        }
                    }
                    Err(e) => {
                        *lock(&records) = None;
                        world.failed("a transaction of any level", &e, &[]);
                    }
                }
            }
        }
    });
    let records = lock(&records).take();
    records.filter(|_| !world.is_stormy())
}

/// Runs transactions of all levels as thread `n`. Their commits are also in the ledger, for the recovered disks.
fn run_isolated(world: &World, n: u64) -> tidesdb::Result<Vec<Record>> {
    let plan = &world.plan;
    let rng = RefCell::new(Rng::new(plan.seed << 8 | n));
    let [left, right] = &world.isolated[..] else { return Ok(Vec::new()) };
    let families = [left.family.clone(), right.family.clone()];
    let commit = |tx: &mut Transaction, writes: &Writes| {
        if writes.is_empty() {
            return tx.commit();
        }
        let op = |(key, value): (&isolation::Key, &Option<u64>)| {
            let row = |value| Change::Put(Row { value: isolation::encode(value).into(), expiry: 0 });
            let family = world.isolated[isolation::family_of(*key)].no;
            Op { family, key: isolation::bytes(*key).into(), change: value.map_or(Change::Delete, row) }
        };
        let is_full = rng.borrow_mut().one_in(5);
        let options = WriteOptions::default();
        let options = if is_full { options.sync(SyncMode::Full) } else { options };
        let ops: Vec<Op> = writes.iter().map(op).collect();
        // Such a commit depends on nothing that was read, so tables with its puts may take its place. A delete may have been one of a range.
        let is_free = matches!(tx.isolation(), Isolation::ReadUncommitted | Isolation::ReadCommitted);
        if plan.has("ingest")
            && is_free
            && writes.values().all(Option::is_some)
            && rng.borrow_mut().one_in(3)
            && let Some(_turn) = Turn::of(world)
        {
            let of = |t| Part::new(t, ops.iter().filter(|op| op.family == t.no).cloned().collect());
            let parts: Vec<Part> = world.isolated.iter().filter_map(of).collect();
            let stem = format!("t{n}-{:x}", rng.borrow_mut().next_u64());
            let take = || tables::take(world, &mut rng.borrow_mut(), &stem, &parts, options);
            return world.record("an ingest of a transaction", ops.clone(), is_full, take);
        }
        world.record("a transaction of any level", ops, is_full, || tx.commit_with(&options))
    };
    // Others commit while a transaction pauses. Then it may see a merge of what it has read and written.
    let pause = || {
        world.env.clock.sleep(Duration::from_micros(1 << rng.borrow_mut().below(18)));
        let what = rng.borrow_mut().below(6);
        let n = rng.borrow_mut().below(2) as usize;
        let done = match what {
            0 | 1 => families[n].compact(),
            2 => families[n].flush(),
            _ => Ok(()),
        };
        if let Err(e) = done {
            world.failed("a merge during a transaction", &e, &[]);
        }
    };
    let shared = isolation::Shared { db: &world.db, families: &families, commit: &commit, pause: &pause };
    isolation::client(&shared, n as usize, plan.seed, plan.steps / 2)
}

/// A client that works. The other threads end when there is none.
struct Working<'a>(&'a World);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, SeqCst);
    }
}

/// Judges all that was read.
fn judge(world: &World, records: Option<Vec<Record>>, figures: &mut Figures) -> Done<()> {
    let ledger = lock(&world.ledger);
    (figures.commits, figures.reads) = ledger.counts();
    ledger.judge()?;
    drop(ledger);
    if let Some(records) = records {
        figures.transactions = records.len() as u64;
        let found = isolation::check(&records, &BTreeMap::new());
        if let Some(wrong) = found.violations.first() {
            return Err(format!("isolation: {wrong}"));
        }
    }
    let stats = world.db.stats();
    for family in &stats.families {
        figures.flushes += family.flushes;
        figures.merges += family.compactions;
        figures.moved += family.value_bytes_moved;
    }
    if !world.is_stormy() {
        let held = [
            ("transactions", stats.memory_transactions_bytes),
            ("the memory of cursors", stats.memory_cursors_bytes),
            ("snapshots", stats.snapshots as u64),
            ("cursors", stats.cursors as u64),
        ];
        if let Some((what, n)) = held.iter().find(|(_, n)| *n > 0) {
            return Err(format!(
                "{n} bytes of memory or handles of {what} are counted although none is left"
            ));
        }
        if let Some(failure) = world.db.health().first_failure {
            return Err(format!("poisoned without a cause: {failure}"));
        }
    }
    Ok(())
}

/// Ends the database, and recovers it and all captured disks.
fn end(world: World, figures: &mut Figures) -> Done<()> {
    let mut rng = Rng::new(world.plan.seed ^ 0xE4D);
    let is_calm = !world.is_stormy();
    if is_calm {
        let acked = world.acked();
        let found = read_families(
            &world.all_families().iter().map(|t| (t.no, t.family.clone())).collect::<Vec<_>>(),
        )?;
        let explained = lock(&world.ledger).explain(&found, acked, world.time(), &[]);
        explained.map_err(|e| format!("at the end: {e}"))?;
        let report = world.db.verify().map_err(|e| format!("verify: {e}"))?;
        if !report.is_ok() {
            return Err(format!("verify at the end: {report}"));
        }
    }
    let known = world.settled();
    let closed = close(&world, &mut rng);
    if let Some(wrong) = world.wrong() {
        return Err(wrong);
    }
    if is_calm && let Err(e) = &closed {
        return Err(format!("a close failed without a cause: {e}"));
    }
    let (acked, durable, objects) = (world.acked(), lock(&world.ledger).durable, world.objects());
    if let Some(shelf) = &world.shelf {
        backups::settle_last(&world, shelf);
        shelf.capture("the end");
    }
    let World { plan, db, disk, clock, families, isolated, ledger, captures, ahead, shelf, .. } = world;
    let captures = captures.into_inner().unwrap_or_default();
    drop((families, isolated, db));
    disk.clear_faults();
    disk.limit_space(None);
    // A close puts all into tables, so a power failure afterwards loses nothing, in each mode.
    let lost = disk.crashed() || (is_calm && closed.is_ok() && rng.one_in(2));
    let last = match lost {
        true => disk.crash_image(rng.pick(&Image::STANDARD), rng.next_u64()),
        false => disk.fork(),
    };
    let least = if closed.is_ok() && is_calm { acked } else { durable };
    let what = if lost { "a power failure at the end" } else { "the end" };
    let last = Capture {
        disk: last,
        what: what.to_owned(),
        path: PATH.to_owned(),
        families: known,
        least,
        optional: vec![],
        was_killed: false,
        objects,
    };
    let oracle =
        Oracle { plan, ledger: ledger.into_inner().unwrap_or_default(), clock, ahead: *lock(&ahead) };
    for capture in captures {
        oracle.recover(capture, false)?;
        figures.recoveries += 1;
    }
    let mut shelves = shelf.map(Shelf::captured).unwrap_or_default();
    let at_the_end = shelves.pop();
    for (shelved, most) in shelves.iter().map(|s| (s, 1)).chain(at_the_end.iter().map(|s| (s, usize::MAX))) {
        let restored = oracle.restore(shelved, most);
        figures.generations += restored.map_err(|e| format!("the store at {}: {e}", shelved.what))?;
    }
    oracle.recover(last, is_calm && !lost)?;
    figures.recoveries += 1;
    Ok(())
}

/// Closes the database, perhaps while clients write and files are read. Then another process may take the folder over meanwhile.
fn close(world: &World, rng: &mut Rng) -> tidesdb::Result<()> {
    let others = if world.plan.has("closes") && !world.stops() { rng.below(5) } else { 0 };
    let is_timed = rng.one_in(3) && !world.is_stormy();
    let is_taken_over = rng.one_in(2) && !world.is_stormy();
    let (first, pause) = (rng.next_u64() >> 32, Duration::from_micros(rng.below(2000)));
    let result = Mutex::new(Ok(()));
    world.env.threads.run_together("closer", others as usize + 1, &|n| {
        match n {
            0 => {}
            1 => return admin::control_close(world),
            2 => return admin::look_beside_close(world),
            _ => return Client::new(world, first + n as u64).write_until_closed(),
        }
        world.env.clock.sleep(pause);
        world.is_closing.store(true, SeqCst);
        let db = world.db.clone();
        let closed = match is_timed {
            true => db.close_timeout(Duration::from_secs(600)).and_then(|()| db.close()),
            false => db.close(),
        };
        if closed.is_ok() && is_taken_over {
            take_over(world);
        }
        *lock(&result) = closed;
    });
    result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Opens the closed database as another process would, replaces its files and closes it.
fn take_over(world: &World) {
    for tries_left in (0..100).rev() {
        let merged = world.plan.open(&world.env, PATH, as_store(&world.store)).and_then(|db| {
            db.compact()?;
            db.close()
        });
        let Err(e) = merged else { return };
        // Windows without POSIX semantics refuses to replace a file that somebody reads just now: who looks beside the close reads `CURRENT`.
        let is_in_use = matches!(&e, Error::Io { op: "rename", file, cause, .. }
            if &**file == "CURRENT" && cause.kind() == io::ErrorKind::PermissionDenied);
        if tries_left == 0 || !is_in_use || world.plan.habits != Habits::WINDOWS {
            return world.fail(format!("an open after a close, a merge and a close: {e}"));
        }
        world.env.clock.sleep(Duration::from_millis(1));
    }
}

fn read_families(families: &[(FamilyNo, Family)]) -> Done<BTreeMap<FamilyNo, Rows>> {
    let read = |(no, family): &(FamilyNo, Family)| {
        Ok((*no, rows(family).map_err(|e| format!("a scan of family {no}: {e}"))?))
    };
    families.iter().map(read).collect()
}

/// What a crash has left of the published figures is theirs, is an older state of it, or is damage that is noticed.
fn figures_are_of_the_writer(env: &Env, path: &str) -> Done<()> {
    let options = || Db::options(path).env(env.clone());
    let noticed = |e: Error| match e {
        Error::Corrupt { .. } | Error::NotFound { .. } => Ok(()),
        e => Err(format!("the figures of the writer: {e}")),
    };
    match options().writer_figures() {
        Ok(Some(figures)) if figures.process != 1 => return Err(format!("figures of nobody: {figures:?}")),
        Ok(_) => {}
        Err(e) => noticed(e)?,
    }
    options().writer_history().map(drop).or_else(noticed)
}

/// Judges recovered disks.
struct Oracle {
    plan: Plan,
    ledger: ledger::Ledger,
    clock: Arc<SimClock>,
    ahead: u64,
}

impl Oracle {
    /// Opens a disk, compares it with the commits, writes to it, and opens it again.
    fn recover(&self, capture: Capture, was_closed: bool) -> Done<()> {
        let Capture { mut disk, mut what, path, families, least, optional, was_killed, mut objects } =
            capture;
        let mut rng = Rng::new(self.plan.seed ^ least);
        let mut was_closed = was_closed;
        while self.plan.cuts_recoveries() && rng.one_in(2) {
            let is_kill = was_killed || rng.one_in(2);
            (disk, was_closed) = (self.cut_short(disk, (&path, &mut objects), is_kill, &mut rng), false);
            what +=
                if is_kill { " and a kill of the recovery" } else { " and a power failure in the recovery" };
        }
        let (env, _) = self.machine(disk, self.plan.seed ^ least);
        let told = |e: String| format!("after {what}: {e}");
        figures_are_of_the_writer(&env, &path).map_err(told)?;
        let store = objects.map(|objects| Arc::new(Shaky::new(objects, Arc::clone(&env.clock))));
        let db = self.open(&env, &path, &store).map_err(told)?;
        if was_closed && (db.recovery_report().orphans > 0 || !db.recovery_report().clean) {
            return Err(told(format!("a clean close left something: {}", db.recovery_report())));
        }
        self.compare(&db, (&families, least, &optional)).map_err(told)?;
        let marked = db.put("mark", "after").map_err(|e| told(format!("a put after the recovery: {e}")))?;
        db.sync().map_err(|e| told(format!("a sync after the recovery: {e}")))?;
        db.flush().map_err(|e| told(format!("a flush after the recovery: {e}")))?;
        let mut families = families;
        for _ in 0..rng.below(3) {
            if !families.is_empty() {
                let (_, name) = families.remove(rng.below(families.len() as u64) as usize);
                db.drop_family(&name).map_err(|e| told(format!("a drop after the recovery: {e}")))?;
            }
        }
        db.close().map_err(|e| told(format!("a close after the recovery: {e}")))?;
        let db = self.open(&env, &path, &store).map_err(told)?;
        if db.recovery_report().orphans > 0 || !db.recovery_report().clean {
            return Err(told(format!("the close after it left something: {}", db.recovery_report())));
        }
        self.compare(&db, (&families, least, &optional)).map_err(|e| told(format!("opened again: {e}")))?;
        let mark = db.get("mark").map_err(|e| told(e.to_string()))?;
        if mark.as_deref() != Some(b"after".as_slice()) {
            return Err(told(format!("commit {marked} after the recovery is lost")));
        }
        let report = db.verify().map_err(|e| told(format!("verify: {e}")))?;
        if !report.is_ok() {
            return Err(told(format!("verify: {report}")));
        }
        db.close().map_err(|e| told(format!("the last close: {e}")))
    }

    /// Restores up to `most` generations of a store, and compares them with the commits. Returns how many.
    fn restore(&self, shelved: &Shelved, most: usize) -> Done<u64> {
        let Shelved { objects, known, .. } = shelved;
        let mut rng = Rng::new(self.plan.seed ^ known.len() as u64);
        let (env, _) = self.machine(SimDisk::new(self.plan.seed), rng.next_u64());
        let store = Arc::new(objects.fork()) as Arc<dyn ObjectStore>;
        let listed = Backups::with_env(Arc::clone(&store), env).list();
        let mut left = listed.map_err(|e| format!("the generations cannot be listed: {e}"))?;
        if let Some(lost) = known.keys().find(|number| !left.iter().any(|listed| listed.number == **number)) {
            return Err(format!("generation {lost} is lost"));
        }
        let mut restored = 0;
        while restored < most as u64 && !left.is_empty() {
            let number = left.swap_remove(rng.below(left.len() as u64) as usize).number;
            let told = |e: Error| format!("a restore of generation {number}: {e}");
            let mut disk = SimDisk::new(self.plan.seed);
            if rng.one_in(3) {
                let (env, cut) = self.machine(disk, rng.next_u64());
                let within = 1 << rng.below(8);
                cut.crash_at(rng.below(within));
                let _ = Backups::with_env(Arc::clone(&store), env).restore(number, PATH); // it may have ended before
                disk = cut.crash_image(rng.pick(&Image::STANDARD), rng.next_u64());
            }
            let (env, disk) = self.machine(disk, rng.next_u64());
            let backups = Backups::with_env(Arc::clone(&store), env);
            let verified = backups.verify(number).map_err(told)?;
            if !verified.is_ok() {
                return Err(format!("generation {number} is damaged: {:?}", verified.damage));
            }
            match backups.restore(number, PATH) {
                Err(Error::Exists { .. }) => {} // the restore that was cut had ended
                done => done.map_err(told)?,
            }
            let made = known.get(&number).cloned();
            let (families, least) = made.map_or_else(Default::default, |made| (made.families, made.least));
            let capture = Capture {
                disk: disk.fork(),
                what: format!("a restore of generation {number}"),
                path: PATH.to_owned(),
                families,
                least,
                optional: vec![],
                was_killed: false,
                objects: None,
            };
            self.recover(capture, false)?;
            restored += 1;
        }
        Ok(restored)
    }

    fn machine(&self, disk: SimDisk, seed: u64) -> (Env, Arc<SimDisk>) {
        let (env, disk, _) = scheduled_on(disk, seed);
        disk.log_ops(false);
        let env = Env { clock: Arc::<SimClock>::clone(&self.clock), ..env };
        (self.plan.with_descriptors(env, &disk), disk)
    }

    /// Begins a recovery that a kill or a power failure ends. Returns the disk that it leaves.
    fn cut_short(
        &self,
        disk: SimDisk,
        (path, objects): (&str, &mut Option<MemoryStore>),
        is_kill: bool,
        rng: &mut Rng,
    ) -> SimDisk {
        let (env, disk) = self.machine(disk, rng.next_u64());
        let within = 1 << rng.below(9);
        disk.crash_at(rng.below(within));
        // It may have ended before.
        let store = objects.take().map(|objects| Arc::new(Shaky::new(objects, Arc::clone(&env.clock))));
        if let Ok(db) = self.plan.open(&env, path, as_store(&store)) {
            db.abandon();
        }
        *objects = store.map(|store| store.fork());
        if is_kill { disk.fork() } else { disk.crash_image(rng.pick(&Image::STANDARD), rng.next_u64()) }
    }

    fn open(&self, env: &Env, path: &str, store: &Option<Arc<Shaky>>) -> Done<Db> {
        self.plan.open(env, path, as_store(store)).map_err(|e| format!("the open failed: {e}"))
    }

    fn compare(
        &self,
        db: &Db,
        (families, least, optional): (&[(FamilyNo, String)], u64, &[usize]),
    ) -> Done<()> {
        let now = wall_millis(&*self.clock);
        let open = |(no, name): &(FamilyNo, String)| {
            let family = db.family(name).map_err(|e| format!("family {no}, {name}, is lost: {e}"))?;
            Ok((*no, family))
        };
        let families = families.iter().map(open).collect::<Done<Vec<_>>>()?;
        let found = read_families(&families)?;
        self.ledger.explain(&found, least, (now, now + self.ahead + 60_000), optional).map(drop)
    }
}
