//! T01 and T02: crashes the engine at every call that changes the disk, builds images of the possible disk contents
//! afterwards, recovers each image and compares it with the model. Some of the recovered databases are used further, and the power
//! fails again. T08: the calls of each script obey the rules of `testkit::order`. A case is one script of each recipe beside a reader, which
//! must show what the model has after every step, then one script with crashes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use testkit::check::{self, Demand};
use testkit::disks::{System, machine_on};
use testkit::follower::follow;
use testkit::model::wall_millis;
use testkit::order::{self, Counts};
use testkit::process;
use testkit::report::{Cases, exit, finish, violation};
use testkit::rng::Rng;
use testkit::script::{self, RECIPES, Recipe};
use testkit::world::{Config, PATH, Promises, Shared, World};
use tidesdb_io::sim::{Image, Op, OpSet, SimDisk};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    /// Crash points of all cases together, so also the maximum for one case.
    #[arg(long, default_value_t = 20_000)]
    points: u64,
    /// Threads that run cases.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// The operating system whose habits the file system has.
    #[arg(long, value_enum, default_value_t)]
    disk: System,
}

#[derive(Default)]
struct Totals {
    scripts: AtomicU64,
    points: AtomicU64,
    images: AtomicU64,
    nested: AtomicU64,
    /// Recovered databases that were written to and lost power again.
    second_lives: AtomicU64,
    /// Views of a reader beside the writer.
    views: AtomicU64,
    /// Disks that a reader read before the recovery.
    shown: AtomicU64,
    checkpoints: AtomicU64,
    /// Calls that were checked for their order.
    ordered: Mutex<Counts>,
    /// Bytes of values that were moved while crash points were collected.
    moved: AtomicU64,
    wrong: AtomicU64,
}

/// Maximum number of crash points within one recovery.
const NESTED_MAX: u64 = 40;

pub(crate) fn runner() -> ExitCode {
    let Args { cases, points, threads, disk } = process::arguments();
    let totals = Totals::default();
    let is_done = || totals.points.load(Relaxed) >= points || totals.wrong.load(Relaxed) >= 20;
    cases.run(threads, &[], is_done, |script| one_case(script, disk, points, &totals));
    let n = |a: &AtomicU64| a.load(Relaxed);
    let ordered = *totals.ordered.lock().unwrap_or_else(PoisonError::into_inner);
    let scripts = n(&totals.scripts);
    let figures = [
        ("scripts", scripts),
        ("crash_points", n(&totals.points)),
        ("images", n(&totals.images)),
        ("nested", n(&totals.nested)),
        ("second_lives", n(&totals.second_lives)),
        ("views", n(&totals.views)),
        ("shown", n(&totals.shown)),
        ("checkpoints", n(&totals.checkpoints)),
        ("value_bytes_moved", n(&totals.moved)),
        ("ordered", ordered.ops),
        ("installs", ordered.installs),
        ("removals", ordered.removals),
        ("switches", ordered.switches),
        ("violations", n(&totals.wrong)),
        ("seed", cases.seed),
    ];
    exit(finish(
        "T01",
        &figures,
        cases.floors(&[
            ("crash_points", points),
            ("images", points * 11),
            ("nested", points / 10),
            ("second_lives", points / 40),
            ("views", 500),
            ("shown", points / 8),
            ("ordered", points),
            ("installs", scripts / 4),
            ("removals", scripts / 8),
            ("switches", scripts / 2),
        ]),
    ))
}

/// Runs scripts of all kinds beside a reader, and one on a disk that reports each state a crash could leave.
fn one_case(seed: u64, system: System, enough: u64, totals: &Totals) {
    for n in 0..=RECIPES {
        let recipe = if n == RECIPES { Recipe::LONG } else { Recipe::numbered(n) };
        let work = || follow(&recipe, Config::numbered(seed + n), system, seed);
        match catch_unwind(work).unwrap_or_else(|_| Err("panic".into())) {
            Ok(views) => drop(totals.views.fetch_add(views, Relaxed)),
            Err(e) => return wrong(totals, seed, &format!("workload {n}"), &e),
        }
    }
    one_script(seed, system, enough, totals);
}

fn one_script(seed: u64, system: System, enough: u64, totals: &Totals) {
    let config = Config::numbered(seed);
    let recipe = if seed % 4 == 3 { Recipe::LONG } else { Recipe::numbered(seed / 7) };
    let (env, disk, _clock) = system.machine(seed);
    let steps = script::make(&recipe, seed, wall_millis(&*env.clock));
    let promises = Shared::default();
    let seen = promises.clone();
    let mut rng = Rng::new(seed);
    // The states are checked after the step, not inside the call: the observer locks the disk, and dropping parts of
    // the engine uses it.
    let points: Arc<Mutex<Vec<Case>>> = Arc::default();
    let collected = Arc::clone(&points);
    disk.observe(OpSet::CHANGES, move |op: &Op, disk: SimDisk| {
        let case = Case { seed, config, what: format!("{op:?}"), disk, promises: seen.lock().clone() };
        collected.lock().unwrap_or_else(PoisonError::into_inner).push(case);
    });
    let mut check_points = || {
        for case in std::mem::take(&mut *points.lock().unwrap_or_else(PoisonError::into_inner)) {
            totals.points.fetch_add(1, Relaxed);
            every_image(&case, &mut rng, totals);
        }
    };
    let mut world = match World::open(&env, config, promises.clone()) {
        Ok(world) => world,
        Err(e) => return wrong(totals, seed, "open", &e.to_string()),
    };
    check_points();
    for step in steps.iter().take_while(|_| totals.points.load(Relaxed) < enough) {
        let result = world.run(step);
        check_points();
        if let Err(e) = result {
            wrong(totals, seed, "a step on a healthy disk failed", &format!("{step:?}: {e}"));
            break;
        }
    }
    disk.stop_observing();
    totals.moved.fetch_add(world.value_bytes_moved(), Relaxed);
    match order::check(PATH, &disk.ops()) {
        Ok(counts) => totals.ordered.lock().unwrap_or_else(PoisonError::into_inner).add(counts),
        Err(e) => wrong(totals, seed, "order of calls", &e),
    }
    world.abandon();
    match check::checkpoints(&env, &config, &promises.lock()) {
        Ok(n) => drop(totals.checkpoints.fetch_add(n as u64, Relaxed)),
        Err(e) => wrong(totals, seed, "checkpoint", &e),
    }
    totals.scripts.fetch_add(1, Relaxed);
}

/// A disk to recover, and its expected contents.
struct Case {
    seed: u64,
    config: Config,
    what: String,
    disk: SimDisk,
    promises: Promises,
}

impl Case {
    /// Returns a case with the same promises on another disk.
    fn on(&self, what: String, disk: SimDisk) -> Self {
        Self { what, disk, promises: self.promises.clone(), ..*self }
    }

    /// Recovers a copy of the disk and compares it with the promises.
    fn recover(&self, seed: u64, demand: Demand) -> Result<(), String> {
        let (env, disk, _clock) = machine_on(self.disk.fork(), seed);
        disk.log_ops(false);
        let recover = AssertUnwindSafe(|| check::recovered(&env, &self.config, &self.promises, demand));
        catch_unwind(recover).unwrap_or_else(|_| Err("panic".into())).map(drop)
    }
}

fn every_image(case: &Case, rng: &mut Rng, totals: &Totals) {
    for image in &Image::STANDARD {
        let image_seed = rng.next_u64();
        let disk = case.disk.crash_image(image, image_seed);
        let what = format!("{} image {image:?} seed {image_seed}", case.what);
        let demand = Demand { everything: false, thorough: rng.one_in(10) };
        let image = case.on(what, disk);
        if rng.one_in(20) {
            reader_before_recovery(&image, totals);
        }
        if rng.one_in(60) {
            second_life(&image, image_seed, totals);
        }
        one_image(&image, demand, rng.one_in(20), totals);
    }
    let demand = Demand { everything: true, thorough: rng.one_in(10) };
    one_image(&case.on(format!("{} killed", case.what), case.disk.fork()), demand, rng.one_in(20), totals);
}

fn one_image(case: &Case, demand: Demand, nested: bool, totals: &Totals) {
    totals.images.fetch_add(1, Relaxed);
    if nested {
        crash_in_recovery(case, demand, totals);
    }
    if let Err(e) = case.recover(case.seed ^ 0xABCD, demand) {
        wrong(totals, case.seed, &case.what, &e);
    }
}

/// A reader that opens the disk before the recovery shows a prefix of the commits that the recovery finds: it does not read a manifest
/// record that was written and not marked, which may name tables of a flush while the log before it is lost.
fn reader_before_recovery(case: &Case, totals: &Totals) {
    if case.promises.families_before.is_empty() {
        return; // the database may not exist yet
    }
    totals.shown.fetch_add(1, Relaxed);
    let (env, disk, _clock) = machine_on(case.disk.fork(), case.seed);
    disk.log_ops(false);
    let compare = || -> Result<(), String> {
        let shown = check::shown(&env, &case.promises)?;
        let demand = Demand { everything: false, thorough: false };
        let found = check::recovered(&env, &case.config, &case.promises, demand)?;
        if shown <= found {
            Ok(())
        } else {
            Err(format!("a reader shows {shown} commits, {found} are recovered"))
        }
    };
    let result = catch_unwind(AssertUnwindSafe(compare)).unwrap_or_else(|_| Err("panic".into()));
    if let Err(e) = result {
        wrong(totals, case.seed, &case.what, &e);
    }
}

/// Steps of a database that was recovered, before the power fails again.
const SECOND_STEPS: usize = 12;

/// Recovers a copy of the disk, goes on with it, and lets the power fail once more at a random call.
fn second_life(case: &Case, seed: u64, totals: &Totals) {
    if !case.promises.opened || case.promises.families_before.is_empty() {
        return;
    }
    totals.second_lives.fetch_add(1, Relaxed);
    let lives = || -> Result<(), String> {
        let (env, disk, _clock) = machine_on(case.disk.fork(), seed);
        disk.log_ops(false);
        let promises = Shared::default();
        *promises.lock() = case.promises.clone();
        let resumed = World::resume(&env, case.config, promises.clone());
        let mut world = resumed.map_err(|e| format!("going on: {e}"))?;
        let (live, made) = {
            let p = promises.lock();
            (p.families_after.keys().copied().collect(), p.model.families_made)
        };
        let recipe =
            Recipe { steps: SECOND_STEPS, families: false, maintenance_one_in: 3, ..Recipe::numbered(seed) };
        let mut rng = Rng::new(seed);
        for step in script::make_on(&recipe, seed, wall_millis(&*env.clock), live, made) {
            if matches!(step, script::Step::Checkpoint(_)) {
                continue; // one of this number may exist
            }
            world.run(&step).map_err(|e| format!("going on, {step:?}: {e}"))?;
            if rng.one_in(4) {
                let image = *rng.pick(&Image::STANDARD);
                let disk = disk.crash_image(&image, rng.next_u64());
                let again = Case { what: String::new(), disk, promises: promises.lock().clone(), ..*case };
                let demand = Demand { everything: false, thorough: rng.one_in(4) };
                again.recover(seed, demand).map_err(|e| format!("after {step:?} and {image:?}: {e}"))?;
            }
        }
        world.abandon();
        Ok(())
    };
    let result = catch_unwind(AssertUnwindSafe(lives)).unwrap_or_else(|_| Err("panic".into()));
    if let Err(e) = result {
        wrong(totals, case.seed, &format!("{}, a second life with seed {seed}", case.what), &e);
    }
}

/// T02: crashes during the recovery from a crash. The second recovery must keep the same promises.
fn crash_in_recovery(case: &Case, demand: Demand, totals: &Totals) {
    let seed = case.seed;
    let open = |disk: &SimDisk, crash_at: Option<u64>| {
        let (env, disk, _clock) = machine_on(disk.fork(), seed);
        disk.log_ops(false);
        crash_at.into_iter().for_each(|k| disk.crash_at(k));
        let db = case.config.open(&env, PATH.as_ref()).map(tidesdb::Db::abandon);
        (db.is_ok(), disk)
    };
    let (opened, whole) = open(&case.disk, None);
    let total = whole.op_count();
    if !opened {
        return; // reported by the caller
    }
    let stride = (total / NESTED_MAX).max(1);
    for k in (0..total).step_by(stride as usize) {
        let (_, disk) = open(&case.disk, Some(k));
        totals.nested.fetch_add(1, Relaxed);
        let kind = &Image::STANDARD[(k % Image::STANDARD.len() as u64) as usize];
        let machine_lived = k.is_multiple_of(3);
        let second = if machine_lived { disk.fork() } else { disk.crash_image(kind, k) };
        let second = case.on(format!("{}, then a crash at call {k} of the recovery", case.what), second);
        let demand = Demand { everything: demand.everything && machine_lived, thorough: false };
        if let Err(e) = second.recover(seed + k, demand) {
            wrong(totals, seed, &second.what, &e);
            return;
        }
    }
}

fn wrong(totals: &Totals, seed: u64, what: &str, e: &str) {
    if totals.wrong.fetch_add(1, Relaxed) < 10 {
        violation(format_args!("script {seed}: {what}: {e}"));
    }
}
