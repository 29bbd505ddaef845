//! T47: transactions maintain a bank and a ring of nodes on a simulated disk. The invariants are checked on
//! every image that a crash at any disk-changing call may leave. A case is a play.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use testkit::disks::{CrashArgs, System, machine_on};
use testkit::invariants::{Counts, Demand, Player, Promises, Shared, Work, recovered};
use testkit::process;
use testkit::report::{Cases, exit, finish, violation};
use testkit::rng::Rng;
use testkit::watch::Watch;
use testkit::world::{Config, PATH};
use tidesdb_io::sim::{Image, Op, OpSet, SimDisk};

/// Turns per play.
const TURNS: u64 = 400;
/// One in this many images is also tested with a second crash during its recovery.
const NESTED_ONE_IN: u64 = 15;
/// Maximum number of violations to print.
const SHOWN: u64 = 10;

/// Figures of all plays.
#[derive(Default)]
struct Totals {
    plays: u64,
    points: u64,
    images: u64,
    nested: u64,
    counts: Counts,
    violations: u64,
}

type Common = Arc<Mutex<Totals>>;

pub(crate) fn runner() -> ExitCode {
    let CrashArgs { cases, points, threads, disk } = process::arguments();
    let watch = Watch::start(Duration::from_secs(120));
    let totals = Common::default();
    let is_done = || with(&totals, |t| t.points >= points || t.violations >= 20);
    cases.run(threads, &[], is_done, |number| {
        watch.begin(&format!("play {number}"));
        play(number, disk, points, &totals);
        watch.end();
    });
    exit(with(&totals, |t| report(t, points, &cases)))
}

fn report(totals: &Totals, points: u64, cases: &Cases) -> bool {
    let figures = [
        ("plays", totals.plays),
        ("crash_points", totals.points),
        ("images", totals.images),
        ("nested", totals.nested),
        ("commits", totals.counts.commits),
        ("conflicts", totals.counts.conflicts),
        ("rolled_back", totals.counts.rolled_back),
        ("undone_parts", totals.counts.undone),
        ("views", totals.counts.views),
        ("violations", totals.violations),
        ("seed", cases.seed),
    ];
    let floors = [
        ("crash_points", points),
        ("images", points * 11),
        ("nested", points / 10),
        ("commits", points / 20),
        ("conflicts", points / 200),
        ("undone_parts", points / 200),
        ("views", points / 200),
    ];
    finish("T47", &figures, cases.floors(&floors))
}

fn with<T, R>(shared: &Mutex<T>, work: impl FnOnce(&mut T) -> R) -> R {
    work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

fn wrong(totals: &Common, seed: u64, what: &str, e: &str) {
    let count = with(totals, |t| {
        t.violations += 1;
        t.violations
    });
    if count <= SHOWN {
        violation(format_args!("play {seed}: {what}: {e}"));
    }
}

/// A disk after a crash, and its expected contents.
struct Case {
    seed: u64,
    config: Config,
    work: Work,
    what: String,
    disk: SimDisk,
    promises: Promises,
}

/// Plays one workload on a disk that reports each state a crash could leave.
fn play(seed: u64, system: System, enough: u64, totals: &Common) {
    let work = [Work::Bank, Work::Ring][(seed % 2) as usize];
    let config = Config::numbered(seed / 2);
    let (env, disk, _clock) = system.machine(seed);
    disk.log_ops(false);
    let promises = Shared::default();
    let seen = promises.clone();
    // The states are checked after the turn, because the observer locks the disk.
    let cases: Arc<Mutex<Vec<Case>>> = Arc::default();
    let collected = Arc::clone(&cases);
    disk.observe(OpSet::CHANGES, move |op: &Op, disk: SimDisk| {
        let what = format!("{work:?}, {op:?}");
        let case = Case { seed, config, work, what, disk, promises: seen.lock().clone() };
        with(&collected, |cases| cases.push(case));
    });
    let mut rng = Rng::new(seed ^ 0x0C1A_54ED);
    let mut check = || {
        for case in with(&cases, std::mem::take) {
            with(totals, |t| t.points += 1);
            every_image(&case, &mut rng, totals);
        }
    };
    let mut player = match Player::start(&env, config, work, seed, promises) {
        Ok(player) => player,
        Err(e) => return wrong(totals, seed, "start on a healthy disk", &e.to_string()),
    };
    check();
    for turn in 0..TURNS {
        let result = player.turn();
        check();
        if let Err(e) = result {
            return wrong(totals, seed, &format!("{work:?}, turn {turn} on a healthy disk"), &e);
        }
        if with(totals, |t| t.points >= enough) {
            break;
        }
    }
    disk.stop_observing();
    match player.end() {
        Ok(counts) => with(totals, |t| {
            t.plays += 1;
            t.counts.add(counts);
        }),
        Err(e) => wrong(totals, seed, "the end on a healthy disk", &e),
    }
}

/// Checks the images that a power loss may leave, and the disk after a kill of the process.
fn every_image(case: &Case, rng: &mut Rng, totals: &Common) {
    for image in &Image::STANDARD {
        let image_seed = rng.next_u64();
        let disk = case.disk.crash_image(image, image_seed);
        one_image(case, (&format!("image {image:?} seed {image_seed}"), &disk, false), rng, totals);
    }
    one_image(case, ("killed", &case.disk, true), rng, totals);
}

fn one_image(case: &Case, (image, disk, everything): (&str, &SimDisk, bool), rng: &mut Rng, totals: &Common) {
    with(totals, |t| t.images += 1);
    if rng.one_in(NESTED_ONE_IN) {
        nested(case, (image, disk), rng.next_u64(), totals);
    }
    let demand = Demand { everything, thorough: rng.one_in(10) };
    if let Err(e) = case.recover(disk, case.seed ^ 0xABCD, demand) {
        wrong(totals, case.seed, &format!("{}, {image}", case.what), &e);
    }
}

/// Tests a second crash during the recovery from the first one.
fn nested(case: &Case, (image, disk): (&str, &SimDisk), seed: u64, totals: &Common) {
    let open = |crash_at: Option<u64>| {
        let (env, disk, _clock) = machine_on(disk.fork(), case.seed);
        disk.log_ops(false);
        crash_at.into_iter().for_each(|at| disk.crash_at(at));
        let opened = case.config.open(&env, PATH.as_ref()).map(tidesdb::Db::abandon);
        (opened.is_ok(), disk)
    };
    let (opened, whole) = open(None);
    if !opened {
        return; // reported by the caller
    }
    let at = seed % whole.op_count().max(1);
    let (_, disk) = open(Some(at));
    with(totals, |t| t.nested += 1);
    let kind = &Image::STANDARD[(seed / 7 % Image::STANDARD.len() as u64) as usize];
    let demand = Demand { everything: false, thorough: false };
    if let Err(e) = case.recover(&disk.crash_image(kind, seed), seed, demand) {
        wrong(totals, case.seed, &format!("{}, {image}, crash at call {at} of its recovery", case.what), &e);
    }
}

impl Case {
    /// Recovers a copy of `disk` and checks it.
    fn recover(&self, disk: &SimDisk, seed: u64, demand: Demand) -> Result<(), String> {
        let (env, disk, _clock) = machine_on(disk.fork(), seed);
        disk.log_ops(false);
        let judge = AssertUnwindSafe(|| recovered(&env, &self.config, (self.work, &self.promises), demand));
        catch_unwind(judge).unwrap_or_else(|_| Err("panic".into())).map(drop)
    }
}
