//! Crashes the engine at every call that changes the disk, builds images of what the disk may hold afterwards, recovers each
//! and holds it against the model. `crash [--points N] [--seed S] [--threads T]`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use testkit::check::{self, Demand};
use testkit::report::{argument, line};
use testkit::rng::Rng;
use testkit::script::{self, Recipe};
use testkit::world::{Config, Promises, Shared, World};
use tidesdb_io::sim::{self, Image, Op, OpSet, SimDisk};

#[derive(Default)]
struct Totals {
    scripts: AtomicU64,
    points: AtomicU64,
    images: AtomicU64,
    nested: AtomicU64,
    checkpoints: AtomicU64,
    wrong: AtomicU64,
}

/// Points of recovery to crash at, for each image that is looked into.
const NESTED_MAX: u64 = 40;

fn main() {
    let points = argument("points").unwrap_or(20_000);
    let seed = argument("seed").unwrap_or(1);
    let threads = argument("threads").unwrap_or(2);
    let totals = Arc::new(Totals::default());
    let next = Arc::new(AtomicU64::new(seed * 1_000_000));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (totals, next) = (Arc::clone(&totals), Arc::clone(&next));
            scope.spawn(move || {
                while totals.points.load(Relaxed) < points && totals.wrong.load(Relaxed) < 20 {
                    one_script(next.fetch_add(1, Relaxed), &totals);
                }
            });
        }
    });
    let n = |a: &AtomicU64| a.load(Relaxed);
    let figures = [
        ("scripts", n(&totals.scripts)),
        ("crash_points", n(&totals.points)),
        ("images", n(&totals.images)),
        ("nested", n(&totals.nested)),
        ("checkpoints", n(&totals.checkpoints)),
        ("violations", n(&totals.wrong)),
        ("seed", seed),
    ];
    println!("{}", line("T01", &figures));
    std::process::exit(i32::from(n(&totals.wrong) > 0));
}

/// Runs one script on a disk that shows each state a crash could leave.
fn one_script(seed: u64, totals: &Arc<Totals>) {
    let config = Config::numbered(seed);
    let recipe = Recipe::numbered(seed / 7);
    let (env, disk, _clock) = sim::env(seed);
    disk.log_ops(false);
    let steps = script::make(&recipe, seed, env.clock.wall_secs() as u32);
    let promises = Shared::default();
    let seen = promises.clone();
    let shared_totals = Arc::clone(totals);
    let mut rng = Rng::new(seed);
    // Checked after the step, not inside the call: the observer holds the disk, and dropping parts of the engine uses it.
    let points: Arc<Mutex<Vec<(Op, SimDisk, Promises)>>> = Arc::default();
    let collected = Arc::clone(&points);
    disk.observe(OpSet::CHANGES, move |op: &Op, fork: SimDisk| {
        collected.lock().unwrap_or_else(PoisonError::into_inner).push((op.clone(), fork, seen.lock().clone()));
    });
    let mut check_points = || {
        for (op, fork, promises) in std::mem::take(&mut *points.lock().unwrap_or_else(PoisonError::into_inner)) {
            shared_totals.points.fetch_add(1, Relaxed);
            every_image(seed, &op, &fork, &config, &promises, &mut rng, &shared_totals);
        }
    };
    let mut world = match World::open(&env, config, promises.clone()) {
        Ok(world) => world,
        Err(e) => return wrong(totals, seed, "open", &e.to_string()),
    };
    check_points();
    for step in &steps {
        let result = world.run(step);
        check_points();
        if let Err(e) = result {
            wrong(totals, seed, "a step on a healthy disk failed", &format!("{step:?}: {e}"));
            break;
        }
    }
    disk.stop_observing();
    world.abandon();
    match check::checkpoints(&env, &config, &promises.lock()) {
        Ok(n) => drop(totals.checkpoints.fetch_add(n as u64, Relaxed)),
        Err(e) => wrong(totals, seed, "checkpoint", &e),
    }
    totals.scripts.fetch_add(1, Relaxed);
}

fn every_image(seed: u64, op: &Op, fork: &SimDisk, config: &Config, promises: &Promises, rng: &mut Rng, totals: &Totals) {
    let kinds = &Image::STANDARD;
    for i in 0..kinds.len() {
        let image_seed = rng.next_u64();
        let disk = fork.crash_image(&kinds[i], image_seed);
        let what = format!("{op:?} image {:?} seed {image_seed}", kinds[i]);
        let nested = rng.one_in(20);
        one_image(seed, &what, disk, config, promises, Demand { everything: false, thorough: rng.one_in(10) }, nested, totals);
    }
    let demand = Demand { everything: true, thorough: rng.one_in(10) };
    one_image(seed, &format!("{op:?} killed"), fork.fork(), config, promises, demand, rng.one_in(20), totals);
}

#[expect(clippy::too_many_arguments, reason = "all of it is one case")]
fn one_image(
    seed: u64,
    what: &str,
    disk: SimDisk,
    config: &Config,
    promises: &Promises,
    demand: Demand,
    nested: bool,
    totals: &Totals,
) {
    totals.images.fetch_add(1, Relaxed);
    if nested {
        crash_in_recovery(seed, what, &disk, config, promises, demand, totals);
    }
    let (env, disk, _clock) = sim::env_on(disk, seed ^ 0xABCD);
    disk.log_ops(false);
    let result = catch_unwind(AssertUnwindSafe(|| check::recovered(&env, config, promises, demand)));
    match result {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => wrong(totals, seed, what, &e),
        Err(_) => wrong(totals, seed, what, "panic"),
    }
}

/// T02: crashes while recovering from a crash; the second recovery must keep the same promises.
fn crash_in_recovery(
    seed: u64,
    what: &str,
    image: &SimDisk,
    config: &Config,
    promises: &Promises,
    demand: Demand,
    totals: &Totals,
) {
    let total = {
        let (env, disk, _clock) = sim::env_on(image.fork(), seed);
        disk.log_ops(false);
        let Ok(db) = config.open(&env, std::path::Path::new(testkit::world::PATH)) else {
            return; // told by the caller
        };
        db.abandon();
        disk.op_count()
    };
    let stride = (total / NESTED_MAX).max(1);
    for k in (0..total).step_by(stride as usize) {
        let (env, disk, _clock) = sim::env_on(image.fork(), seed);
        disk.log_ops(false);
        disk.crash_at(k);
        drop(config.open(&env, std::path::Path::new(testkit::world::PATH)).map(tidesdb::Db::abandon));
        totals.nested.fetch_add(1, Relaxed);
        let kind = &Image::STANDARD[(k % Image::STANDARD.len() as u64) as usize];
        let (second, machine_lived) = if k % 3 == 0 { (disk.fork(), true) } else { (disk.crash_image(kind, k), false) };
        let (env, disk, _clock) = sim::env_on(second, seed + k);
        disk.log_ops(false);
        let demand = Demand { everything: demand.everything && machine_lived, thorough: false };
        let result = catch_unwind(AssertUnwindSafe(|| check::recovered(&env, config, promises, demand)));
        if let Err(e) = result.unwrap_or_else(|_| Err("panic".into())) {
            wrong(totals, seed, &format!("{what}, then a crash at call {k} of the recovery"), &e);
            return;
        }
    }
}

fn wrong(totals: &Totals, seed: u64, what: &str, e: &str) {
    if totals.wrong.fetch_add(1, Relaxed) < 10 {
        eprintln!("VIOLATION seed {seed}: {what}: {e}");
    }
}
