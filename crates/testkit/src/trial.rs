//! One trial of T09, T10 or T11: a script runs on a disk with a fault, then all promises are checked.
//!
//! Requirements, whatever fails:
//! * every error is a system error that names file and operation, and is never reported as damage;
//! * a failed step has no effect, or its result is unknown, but it is atomic;
//! * after a failed write or sync of the log, nothing is acknowledged until the next open;
//! * reads continue and return what was acknowledged; a poisoned database reports its state each time;
//! * a reopen keeps the promises of the sync mode, both with the page cache as it is and after a power loss;
//! * recovered data is durable: a power loss after the recovery does not lose it.

use std::sync::Arc;

use tidesdb::Error;
use tidesdb_io::Env;
use tidesdb_io::sim::{self, Fault, FaultId, Image, SimDisk, SyncModel};

use crate::check::{self, Demand};
use crate::model::wall_millis;
use crate::script::Step;
use crate::world::{Config, PATH, Promises, Shared, World};

/// A fault, and the deviations that it excuses.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Description for messages.
    pub what: String,
    /// Faults, injected before the first call.
    pub faults: Vec<Fault>,
    /// Contents of the page cache after a failed sync.
    pub sync_model: SyncModel,
    /// Free space of the disk in bytes.
    pub space: Option<u64>,
    /// Set if the fault first strikes at a write or sync of log records: no commit may be acknowledged after it.
    pub on_log: bool,
    /// Set if the fault affects calls that reads need.
    pub on_reads: bool,
    /// Set if the fault must have no visible effect.
    pub harmless: bool,
}

/// Figures of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of calls that the faults made fail.
    pub struck: u64,
    /// Number of failed steps.
    pub errors: u64,
    /// Number of acknowledged commits.
    pub acked: u64,
    /// Number of disk images opened afterwards.
    pub images: u64,
    /// Whether the database was poisoned at the end.
    pub poisoned: bool,
    /// Whether the database continued without a reopen after the fault was removed.
    pub went_on: bool,
}

/// A script and its settings.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Seed of the disk and of all random choices.
    pub seed: u64,
    /// Settings of the engine.
    pub config: Config,
    /// Steps to run.
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
    /// Returns a description of the first broken promise.
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

    /// Returns the number of strikes so far; 0 after the disk is healed.
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

    /// A failed step on families had no effect, unless the state of the manifest is now unknown.
    fn undo(&self, world: &mut World, step: &Step, e: &Error) {
        let families = matches!(step, Step::Create(_) | Step::Drop(_) | Step::Rename(..));
        if families && !matches!(e, Error::Poisoned { .. }) && !is_poisoned(world) {
            world.undo_families();
        }
    }

    /// Checks that `e` may result from the fault.
    fn judge(&mut self, e: &Error) -> Result<(), String> {
        self.out.errors += 1;
        if self.plan.harmless {
            return Err(format!("a harmless fault caused an error: {e}"));
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

    /// Checks that reads continue, that the health is reported correctly, and that a healthy database continues after
    /// the fault is removed.
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
            (Ok(()), true) => return Err("a poisoned database accepted a commit".into()),
            (Err(e), _) => return Err(format!("a healthy database fails after the fault: {e}")),
        }
        self.live(world).map_err(|e| format!("after the fault: {e}"))
    }

    /// Checks that readers see exactly what was acknowledged.
    fn live(&self, world: &World) -> Result<(), String> {
        let contents = match check::dump(world.db()) {
            // The cache lost bytes that were not durable. This is reported, so it is allowed.
            Err(e) if self.cache_reverted() && e.contains("corruption") => return Ok(()),
            other => other?,
        };
        let p = self.promises.lock();
        let now = wall_millis(&*self.env.clock);
        let expected = p.model.contents(&p.families_after, p.acked, now);
        if contents == expected || contents == p.model.contents(&p.families_before, p.acked, now) {
            return Ok(());
        }
        Err(format!("readers do not see what was acknowledged: {}", check::difference(&contents, &expected)))
    }

    /// Returns true if a failed sync may have reverted bytes that were acknowledged but not durable.
    fn cache_reverted(&self) -> bool {
        self.plan.sync_model == SyncModel::Btrfs && self.out.struck.max(self.struck()) > 0
    }

    /// Opens the disk as it is, and each image that a power loss may leave.
    fn reopen_all(&mut self) -> Result<(), String> {
        let promises = self.promises.lock().clone();
        let demand =
            Demand { everything: !self.cache_reverted(), thorough: self.trial.seed.is_multiple_of(4) };
        let after = self.disk.fork();
        let recovered = self.open(&after, &promises, demand).map_err(|e| format!("after a reopen: {e}"))?;
        if !demand.thorough {
            // The recovery must not rely on the page cache.
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

/// Checks by a call that is always refused and changes nothing.
fn is_poisoned(world: &World) -> bool {
    matches!(world.db().drop_family(tidesdb::DEFAULT_FAMILY), Err(Error::Poisoned { .. }))
}

fn kind(step: &Step) -> String {
    let text = format!("{step:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// Runs the script without faults; returns its calls and checks their order.
///
/// # Errors
/// Returns the failed step, or a violated rule of [`crate::order`].
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
