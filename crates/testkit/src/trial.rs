//! One trial of T09, T10 or T11: runs a script on a disk with a fault, then checks everything that was promised.
//!
//! Requirements, whatever fails:
//! * every error is an error of the system, names its file and operation, and is never reported as damage;
//! * a failed step had no effect, or is in doubt and complete;
//! * after a failed write or sync of the log nothing is acknowledged until the next open;
//! * reads continue and show what was acknowledged; a poisoned database reports it each time;
//! * a reopen, with the current page cache and with what a power loss leaves, keeps the promises of the sync mode;
//! * recovered data is durable: a power loss after the recovery does not lose it.

use std::sync::Arc;

use tidesdb::Error;
use tidesdb_io::Env;
use tidesdb_io::sim::{self, Fault, FaultId, Image, SimDisk, SyncModel};

use crate::check::{self, Demand};
use crate::script::Step;
use crate::world::{Config, PATH, Promises, Shared, World};

/// The fault, and the effects it may have.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// For messages.
    pub what: String,
    /// Faults, injected before the first call.
    pub faults: Vec<Fault>,
    /// What a failed sync leaves in the page cache.
    pub sync_model: SyncModel,
    /// Bytes free on the disk.
    pub space: Option<u64>,
    /// The first failure is at a write or sync of log records: no commit may be acknowledged after it.
    pub on_log: bool,
    /// The fault is at calls that reads need.
    pub on_reads: bool,
    /// The fault must not be noticed at all.
    pub harmless: bool,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of injected failures.
    pub struck: u64,
    /// Steps that failed.
    pub errors: u64,
    /// Commits that were acknowledged.
    pub acked: u64,
    /// Images of the disk that were opened afterwards.
    pub images: u64,
    /// True if the database was poisoned at the end.
    pub poisoned: bool,
    /// True if it continued without a reopen once the fault was removed.
    pub went_on: bool,
}

/// A script and its environment.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Seed of the disk and of all choices.
    pub seed: u64,
    /// Settings of the engine.
    pub config: Config,
    /// Steps of the script.
    pub steps: Vec<Step>,
}

struct Run<'a> {
    trial: &'a Trial,
    plan: &'a Plan,
    env: Env,
    disk: Arc<SimDisk>,
    ids: Vec<FaultId>,
    promises: Shared,
    out: Outcome,
}

impl Trial {
    /// Runs the script under `plan`.
    ///
    /// # Errors
    /// A description of the violated promise.
    pub fn run(&self, plan: &Plan) -> Result<Outcome, String> {
        let (env, disk, _clock) = sim::env(self.seed);
        disk.log_ops(false);
        disk.set_sync_model(plan.sync_model);
        disk.limit_space(plan.space);
        let ids = plan.faults.iter().map(|f| disk.inject(f.clone())).collect();
        let promises = Shared::default();
        let mut run = Run { trial: self, plan, env, disk, ids, promises, out: Outcome::default() };
        match World::open(&run.env, self.config, run.promises.clone()) {
            Ok(mut world) => {
                world.cache_may_revert = plan.sync_model == SyncModel::Btrfs;
                let steps = run.all_steps(&mut world);
                let end = steps.and_then(|()| run.end_of_session(&mut world));
                world.abandon();
                end?;
            }
            Err(e) => run.judge(&e)?,
        }
        run.heal();
        run.reopen_all()?;
        Ok(run.out)
    }
}

impl Run<'_> {
    /// Removes the fault.
    fn heal(&mut self) {
        self.out.struck = self.out.struck.max(self.struck());
        self.disk.clear_faults();
        self.disk.limit_space(None);
    }

    /// Returns the number of failures so far; zero once the fault is removed.
    fn struck(&self) -> u64 {
        self.ids.iter().map(|id| self.disk.struck(*id)).sum()
    }

    fn all_steps(&mut self, world: &mut World) -> Result<(), String> {
        let mut log_failed = self.plan.on_log && self.struck() > 0;
        for (i, step) in self.trial.steps.iter().enumerate() {
            let struck_before = self.struck();
            let result = world.run(step);
            if matches!(step, Step::Reopen) {
                log_failed = false;
            }
            match result {
                Ok(()) if log_failed && matches!(step, Step::Commit { .. } | Step::Sync) => {
                    return Err(format!("step {i} was acknowledged after the log had failed"));
                }
                Ok(()) => {}
                Err(e) => {
                    self.judge(&e).map_err(|what| format!("step {i} {}: {what}", kind(step)))?;
                    if world.is_down() {
                        return Ok(());
                    }
                    self.undo(world, step, &e);
                }
            }
            log_failed |= self.plan.on_log && self.struck() > struck_before && !matches!(step, Step::Reopen);
        }
        Ok(())
    }

    /// Records that a failed step on families had no effect, unless the manifest is in doubt now.
    fn undo(&self, world: &mut World, step: &Step, e: &Error) {
        let families = matches!(step, Step::Create(_) | Step::Drop(_) | Step::Rename(..));
        if families && !matches!(e, Error::Poisoned { .. }) && !is_poisoned(world) {
            world.undo_families();
        }
    }

    /// Checks that `e` may come from the fault.
    fn judge(&mut self, e: &Error) -> Result<(), String> {
        self.out.errors += 1;
        if self.plan.harmless {
            return Err(format!("a harmless fault was noticed: {e}"));
        }
        let mut root = e;
        while let Error::Poisoned { cause } | Error::CommitUnknown { cause, .. } = root {
            root = cause;
        }
        match root {
            Error::Io { op, file, .. } if !op.is_empty() && !file.is_empty() => Ok(()),
            Error::NoSpace { .. } => Ok(()),
            _ => Err(format!("a failed call was reported as: {e}")),
        }
    }

    /// Checks that reads continue, that the health is correct, and that a healthy database continues once the fault is removed.
    fn end_of_session(&mut self, world: &mut World) -> Result<(), String> {
        if world.is_down() {
            return Ok(());
        }
        if self.plan.on_reads {
            self.heal();
        }
        self.out.acked = self.promises.lock().acked as u64;
        self.live(world).map_err(|e| format!("while the fault lasts: {e}"))?;
        self.out.poisoned = is_poisoned(world);
        self.heal();
        let goes_on =
            world.run(&Step::Flush).and_then(|()| world.run(&Step::Commit { ops: Vec::new(), full: true }));
        match (&goes_on, self.out.poisoned) {
            (Ok(()), false) => self.out.went_on = true,
            (Err(Error::Poisoned { .. }), true) => {}
            (Ok(()), true) => return Err("a poisoned database took a commit".into()),
            (Err(e), _) => return Err(format!("healthy, but it does not continue after the fault: {e}")),
        }
        self.live(world).map_err(|e| format!("after the fault: {e}"))
    }

    /// Checks that readers see what was acknowledged.
    fn live(&self, world: &World) -> Result<(), String> {
        let contents = match check::dump(world.db()) {
            // The cache lost bytes that were not durable: reported, not hidden.
            Err(e) if self.cache_reverted() && e.contains("corruption") => return Ok(()),
            other => other?,
        };
        let p = self.promises.lock();
        let now = u32::try_from(self.env.clock.wall_secs()).unwrap_or(u32::MAX);
        let expected = p.model.contents(&p.families_after, p.acked, now);
        if contents == expected || contents == p.model.contents(&p.families_before, p.acked, now) {
            return Ok(());
        }
        Err(format!("readers do not see what was acknowledged: {}", check::difference(&contents, &expected)))
    }

    /// Returns whether a failed sync may have reverted bytes that were acknowledged and not durable.
    fn cache_reverted(&self) -> bool {
        self.plan.sync_model == SyncModel::Btrfs && self.out.struck.max(self.struck()) > 0
    }

    /// Opens the remaining files, in every possible state.
    fn reopen_all(&mut self) -> Result<(), String> {
        let promises = self.promises.lock().clone();
        let demand =
            Demand { everything: !self.cache_reverted(), thorough: self.trial.seed.is_multiple_of(4) };
        let after = self.disk.fork();
        let recovered = self.open(&after, &promises, demand).map_err(|e| format!("opened again: {e}"))?;
        if !demand.thorough {
            // The recovery must not have relied on the page cache.
            let certain = Promises { durable: recovered, ..promises.clone() };
            let lost_power = after.crash_image(&Image::SYNCED, self.trial.seed);
            let demand = Demand { everything: false, thorough: false };
            self.open(&lost_power, &certain, demand)
                .map_err(|e| format!("a power loss after the recovery: {e}"))?;
        }
        for (i, image) in Image::STANDARD.iter().enumerate() {
            let disk = self.disk.crash_image(image, self.trial.seed + i as u64);
            let demand = Demand { everything: false, thorough: false };
            self.open(&disk, &promises, demand).map_err(|e| format!("after a power loss, {image:?}: {e}"))?;
        }
        Ok(())
    }

    fn open(&mut self, disk: &SimDisk, promises: &Promises, demand: Demand) -> Result<usize, String> {
        self.out.images += 1;
        let (env, disk, _clock) = sim::env_on(disk.clone(), self.trial.seed ^ 0x5EED);
        disk.log_ops(false);
        check::recovered(&env, &self.trial.config, promises, demand)
    }
}

/// Checks with a call that fails in any case and has no effect.
fn is_poisoned(world: &World) -> bool {
    matches!(world.db().drop_family(tidesdb::DEFAULT_FAMILY), Err(Error::Poisoned { .. }))
}

fn kind(step: &Step) -> String {
    let text = format!("{step:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// Returns the calls of a run without faults, after checking their order.
///
/// # Errors
/// A step that failed on a healthy disk, or a violated rule of [`crate::order`].
pub fn rehearse(trial: &Trial) -> Result<(Vec<sim::Op>, crate::order::Counts), String> {
    let (env, disk, _clock) = sim::env(trial.seed);
    let mut world = World::open(&env, trial.config, Shared::default()).map_err(|e| format!("open: {e}"))?;
    for (i, step) in trial.steps.iter().enumerate() {
        world.run(step).map_err(|e| format!("step {i} {} on a healthy disk: {e}", kind(step)))?;
    }
    let ops = disk.ops();
    world.abandon();
    let counts = crate::order::check(PATH, &ops)?;
    Ok((ops, counts))
}
