//! T09, T10 and T11 on the simulated disk: every call of a script fails in turn, in each possible way, once and
//! permanently.

use std::collections::BTreeSet;

use tidesdb_io::sim::{Fault, Op, OpKind, OpSet, SyncModel, errno};

use crate::report::violation;
use crate::rng::Rng;
use crate::script::{self, Recipe};
use crate::trial::{Outcome, Plan, Trial, rehearse};
use crate::world::Config;

/// Size of a segment header in bytes; log records follow it.
const SEGMENT_HEADER_BYTES: u64 = 4096;

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of scripts.
    pub scripts: u64,
    /// Number of calls that were made to fail.
    pub points: u64,
    /// Number of trials.
    pub cases: u64,
    /// Number of injected failures.
    pub struck: u64,
    /// Number of steps that failed.
    pub errors: u64,
    /// Number of trials that ended with a poisoned database.
    pub poisoned: u64,
    /// Number of trials that went on without a reopen.
    pub went_on: u64,
    /// Number of crash images opened.
    pub images: u64,
    /// Number of broken promises.
    pub violations: u64,
}

impl Totals {
    fn add(&mut self, out: &Outcome) {
        self.cases += 1;
        self.struck += out.struck;
        self.errors += out.errors;
        self.poisoned += u64::from(out.poisoned);
        self.went_on += u64::from(out.went_on);
        self.images += out.images;
    }

    /// Returns the figures for a report line.
    pub fn figures(&self, seed: u64) -> [(&'static str, u64); 10] {
        [
            ("scripts", self.scripts),
            ("fault_points", self.points),
            ("cases", self.cases),
            ("struck", self.struck),
            ("errors", self.errors),
            ("poisoned", self.poisoned),
            ("went_on", self.went_on),
            ("images", self.images),
            ("violations", self.violations),
            ("seed", seed),
        ]
    }

    /// Adds the figures of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.scripts += other.scripts;
        self.points += other.points;
        self.cases += other.cases;
        self.struck += other.struck;
        self.errors += other.errors;
        self.poisoned += other.poisoned;
        self.went_on += other.went_on;
        self.images += other.images;
        self.violations += other.violations;
    }
}

/// Returns the trial with the script of number `seed`.
pub fn trial(seed: u64) -> Trial {
    let recipe = Recipe { steps: 40, ..Recipe::numbered(seed) };
    let mut config = Config::numbered(seed / 2);
    config.write_buffer = config.write_buffer.min(32 << 10);
    Trial { seed, config, steps: script::make(&recipe, seed, 1_700_000_000_000) }
}

/// Returns the errors with which a call of `kind` can fail.
fn errnos(kind: OpKind) -> &'static [i32] {
    match kind {
        OpKind::Create => &[errno::EIO, errno::ENOSPC, errno::EMFILE],
        OpKind::Open | OpKind::OpenDir | OpKind::Lock | OpKind::List => &[errno::EIO, errno::EMFILE],
        OpKind::Write
        | OpKind::Allocate
        | OpKind::Rename
        | OpKind::Link
        | OpKind::MakeDir
        | OpKind::SyncData
        | OpKind::SyncAll
        | OpKind::SyncDir => &[errno::EIO, errno::ENOSPC],
        _ => &[errno::EIO],
    }
}

fn on_log(op: &Op) -> bool {
    let record = OpSet::WRITES.has(op.kind) && op.offset >= SEGMENT_HEADER_BYTES;
    op.path.contains(".wal") && (record || op.kind == OpKind::SyncData)
}

fn on_reads(kind: OpKind) -> bool {
    matches!(kind, OpKind::Open | OpKind::Read | OpKind::Len | OpKind::MapRead | OpKind::OpenDir)
}

/// Returns the suffix of the file name of `op`: its extensions, or the whole name if it has none.
fn ending(op: &Op) -> &str {
    let name = op.path.rsplit_once('/').map_or(&*op.path, |(_, name)| name);
    name.find('.').map_or(name, |dot| &name[dot..])
}

/// Returns plans that make call `k` of `ops` fail: once, or together with all later calls of its kind.
///
/// Calls are counted by kind and file suffix. Obsolete files are removed when the last reader in the process has
/// released them, so removals occur slightly earlier or later in each run.
fn plans(ops: &[Op], k: usize) -> Vec<Plan> {
    let op = &ops[k];
    let earlier = ops[..k].iter().filter(|other| other.kind == op.kind).count() as u64;
    let alike = ops[..k].iter().filter(|other| other.kind == op.kind && ending(other) == ending(op)).count();
    let mut plans = Vec::new();
    for &errno in errnos(op.kind) {
        let once = Fault::errno(errno).on(op.kind).path_ends(ending(op)).skip(alike as u64);
        let for_ever = Fault::errno(errno).on(op.kind).skip(earlier).forever();
        for (how, fault) in [("once", once), ("permanently", for_ever)] {
            plans.push(Plan {
                what: format!(
                    "errno {errno} {how} from call {k}: {:?} {} at {}",
                    op.kind, op.path, op.offset
                ),
                faults: vec![fault],
                sync_model: [SyncModel::Linux, SyncModel::Bsd][k % 2],
                on_log: on_log(op),
                on_reads: on_reads(op.kind),
                ..Plan::default()
            });
        }
    }
    plans
}

/// Chooses the calls to fail: about `limit` at most, including every kind of call on every kind of file.
fn choose(ops: &[Op], limit: usize, rng: &mut Rng) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (k, op) in ops.iter().enumerate() {
        let ext = op.path.split_once('.').map_or("", |(_, ext)| ext);
        if seen.insert((op.kind, ext.to_owned())) {
            chosen.insert(k);
        }
    }
    if ops.len() <= limit {
        return (0..ops.len()).collect();
    }
    while chosen.len() < limit {
        chosen.insert(rng.below(ops.len() as u64) as usize);
    }
    chosen
}

/// Runs `plan` and prints a violation.
pub fn case(trial: &Trial, plan: &Plan, totals: &mut Totals) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial.run(plan)));
    match result.unwrap_or_else(|_| Err("panic".into())) {
        Ok(out) => totals.add(&out),
        Err(e) => {
            totals.cases += 1;
            totals.violations += 1;
            violation(format_args!("script {} ({}, {:?}): {e}", trial.seed, plan.what, trial.config));
        }
    }
}

/// T09: makes every call of a script fail, but about `limit` calls at most.
pub fn every_call(seed: u64, limit: usize, mut begin: impl FnMut(&str)) -> Totals {
    let mut totals = Totals { scripts: 1, ..Totals::default() };
    let trial = trial(seed);
    begin(&format!("seed {seed} rehearsal"));
    let ops = match rehearse(&trial) {
        Ok((ops, _)) => ops,
        Err(e) => {
            violation(format_args!("script {seed}: {e}"));
            totals.violations = 1;
            return totals;
        }
    };
    let mut rng = Rng::new(seed);
    for k in choose(&ops, limit, &mut rng) {
        totals.points += 1;
        for plan in plans(&ops, k) {
            begin(&format!("seed {seed} {}", plan.what));
            case(&trial, &plan, &mut totals);
        }
    }
    for plan in harmless_plans(seed) {
        begin(&format!("seed {seed} {}", plan.what));
        case(&trial, &plan, &mut totals);
    }
    totals
}

/// Returns plans with short reads and writes and interrupted calls, which must have no visible effect.
fn harmless_plans(seed: u64) -> Vec<Plan> {
    let io = OpKind::Read | OpKind::Write;
    let faults = [
        ("every read and write is short", vec![Fault::short().on(io).forever()]),
        (
            "every other read and write is interrupted",
            vec![Fault::errno(errno::EINTR).on(io).every(2).forever()],
        ),
        (
            "some are short, some interrupted",
            vec![
                Fault::errno(errno::EINTR).on(io).chance(0.3).forever(),
                Fault::short().on(io).chance(0.5 + 0.1 * (seed % 4) as f64).forever(),
            ],
        ),
    ];
    let plan = |(what, faults): (&str, Vec<Fault>)| Plan {
        what: what.into(),
        faults,
        harmless: true,
        ..Plan::default()
    };
    faults.into_iter().map(plan).collect()
}

/// T10: makes each sync of a script fail, by each model of the page cache contents afterwards; at most `limit` syncs
/// per kind of file.
pub fn every_sync(seed: u64, limit: usize, mut begin: impl FnMut(&str)) -> Totals {
    let mut totals = Totals { scripts: 1, ..Totals::default() };
    let trial = trial(seed);
    begin(&format!("seed {seed} rehearsal"));
    let Ok((ops, _)) = rehearse(&trial) else {
        return totals; // reported by T09
    };
    let mut rng = Rng::new(seed);
    for ext in [".wal", ".klog", ".vlog", ".manifest", "CURRENT", ""] {
        let of_kind = |op: &Op| match ext {
            "" => op.kind == OpKind::SyncDir,
            _ => OpSet::SYNCS.has(op.kind) && op.path.contains(ext),
        };
        let all: Vec<usize> = (0..ops.len()).filter(|k| of_kind(&ops[*k])).collect();
        let mut wanted: BTreeSet<usize> = all.iter().copied().filter(|_| all.len() <= limit).collect();
        if all.len() > limit {
            wanted.extend((0..limit).map(|_| *rng.pick(&all)));
        }
        for k in wanted {
            totals.points += 1;
            for model in [SyncModel::Linux, SyncModel::Btrfs, SyncModel::Bsd] {
                for plan in plans(&ops, k).into_iter().take(2) {
                    let plan = Plan { sync_model: model, what: format!("{model:?}: {}", plan.what), ..plan };
                    begin(&format!("seed {seed} {}", plan.what));
                    case(&trial, &plan, &mut totals);
                }
            }
        }
    }
    totals
}

/// T11: lets the disk become full after a number of further bytes, for `cases` different numbers.
pub fn every_budget(seed: u64, cases: u64, mut begin: impl FnMut(&str)) -> Totals {
    let mut totals = Totals { scripts: 1, ..Totals::default() };
    let trial = trial(seed);
    begin(&format!("seed {seed} rehearsal"));
    let Ok((ops, _)) = rehearse(&trial) else {
        return totals; // reported by T09
    };
    let bytes = |ops: &[Op]| -> u64 {
        ops.iter().filter(|op| matches!(op.kind, OpKind::Create | OpKind::Allocate)).map(|op| op.len).sum()
    };
    let first = ops.iter().position(on_log).unwrap_or(ops.len());
    let (least, most) = (bytes(&ops[..first]), bytes(&ops) + 64 * 1024);
    let mut rng = Rng::new(seed);
    for n in 0..cases {
        totals.points += 1;
        // Some budgets are too small even for an empty database. Among the others, small budgets are the interesting
        // ones.
        let part = 1 << rng.below(4);
        let space =
            if n.is_multiple_of(8) { rng.below(least) } else { least + rng.below((most - least) / part + 1) };
        let plan = Plan { what: format!("a disk of {space} bytes"), space: Some(space), ..Plan::default() };
        begin(&format!("seed {seed} {}", plan.what));
        case(&trial, &plan, &mut totals);
    }
    totals
}
