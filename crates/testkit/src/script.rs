//! Scripts: lists of steps generated from a seed, to be run against the engine and the model.

use crate::model::{FamilyNo, Op};
use crate::rng::Rng;

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commits operations.
    Commit {
        /// Operations.
        ops: Vec<Op>,
        /// Whether to override the sync mode with `Full`.
        full: bool,
    },
    /// Creates a family.
    Create(String),
    /// Drops a family.
    Drop(FamilyNo),
    /// Renames a family.
    Rename(FamilyNo, String),
    /// Flushes all memtables.
    Flush,
    /// Flushes the memtables of one family.
    FlushOf(FamilyNo),
    /// Starts a flush of one family; the next commit runs it.
    StartFlush(FamilyNo),
    /// Compacts everything.
    Compact,
    /// Makes everything durable.
    Sync,
    /// Closes and reopens the database.
    Reopen,
    /// Makes a checkpoint in a directory with this number.
    Checkpoint(usize),
}

/// Parameters of a script.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Number of steps.
    pub steps: usize,
    /// Number of distinct keys per family.
    pub keys: u64,
    /// Maximum size of a small value in bytes.
    pub value_bytes: u64,
    /// One commit in this many has values for the value log; 0 means none.
    pub large_one_in: u64,
    /// Whether families are created, dropped and renamed.
    pub families: bool,
    /// One step in this many is maintenance (flush, compact, reopen, ...); 0 means none.
    pub maintenance_one_in: u64,
    /// Maximum number of operations of a commit.
    pub ops_max: u64,
}

/// Number of workloads.
pub const RECIPES: u64 = 14;

impl Recipe {
    /// Commits that are longer than a short segment of the log.
    pub const LONG: Self = Self {
        steps: 30,
        keys: 400,
        value_bytes: 400,
        large_one_in: 0,
        families: false,
        maintenance_one_in: 10,
        ops_max: 200,
    };

    /// Returns one of the workloads.
    pub fn numbered(n: u64) -> Self {
        let base = Self {
            steps: 60,
            keys: 40,
            value_bytes: 60,
            large_one_in: 0,
            families: false,
            maintenance_one_in: 0,
            ops_max: 5,
        };
        match n % RECIPES {
            0 => base,
            1 => Self { maintenance_one_in: 12, ..base },
            2 => Self { large_one_in: 3, maintenance_one_in: 15, ..base },
            3 => Self { families: true, ..base },
            4 => Self { families: true, maintenance_one_in: 10, large_one_in: 6, ..base },
            5 => Self { value_bytes: 900, steps: 120, ..base },
            6 => Self { keys: 3, steps: 150, maintenance_one_in: 20, ..base },
            7 => Self { keys: 4000, value_bytes: 300, steps: 150, ..base },
            8 => Self { value_bytes: 900, large_one_in: 2, steps: 100, maintenance_one_in: 25, ..base },
            9 => Self { families: true, value_bytes: 600, steps: 120, maintenance_one_in: 30, ..base },
            10 => Self { steps: 40, maintenance_one_in: 3, ..base },
            11 => Self { keys: 12, large_one_in: 1, steps: 80, maintenance_one_in: 8, ..base },
            12 => Self { steps: 200, maintenance_one_in: 15, families: true, large_one_in: 10, ..base },
            _ => {
                Self { steps: 100, keys: 200, families: true, maintenance_one_in: 4, large_one_in: 5, ..base }
            }
        }
    }
}

/// Generates a script. Family 0 is the default family and is never dropped or renamed.
pub fn make(recipe: &Recipe, seed: u64, now: u64) -> Vec<Step> {
    make_on(recipe, seed, now, vec![0], 1)
}

/// Generates a script for a database with the families `live`, in which `made` families were created so far.
pub fn make_on(recipe: &Recipe, seed: u64, now: u64, live: Vec<FamilyNo>, made: usize) -> Vec<Step> {
    let (mut rng, mut families) = (Rng::new(seed), Families { live, made });
    (0..recipe.steps).map(|n| step(recipe, &mut rng, now, &mut families, n)).collect()
}

/// The families of a script.
#[derive(Debug)]
pub struct Families {
    /// Those that exist.
    pub live: Vec<FamilyNo>,
    /// Number of those that were ever made.
    pub made: usize,
}

/// Generates step `n` of a script.
pub fn step(recipe: &Recipe, rng: &mut Rng, now: u64, families: &mut Families, n: usize) -> Step {
    if recipe.families && rng.one_in(12) {
        return family_step(rng, &mut families.live, &mut families.made);
    }
    let live = &families.live;
    if recipe.maintenance_one_in == 0 || !rng.one_in(recipe.maintenance_one_in) {
        return commit_step(recipe, rng, live, now);
    }
    match rng.below(12) {
        0 => Step::Flush,
        10 | 11 => Step::StartFlush(*rng.pick(live)),
        1..=4 => Step::FlushOf(*rng.pick(live)),
        5 => Step::Compact,
        6 => Step::Sync,
        7 => Step::Checkpoint(n),
        _ => Step::Reopen,
    }
}

fn family_step(rng: &mut Rng, live: &mut Vec<FamilyNo>, made: &mut usize) -> Step {
    let name = |rng: &mut Rng| {
        ["..", "a/b", "", "CON", "x\n", "family"][rng.below(6) as usize].to_owned()
            + &rng.next_u64().to_string()
    };
    match rng.below(3) {
        0 if live.len() > 1 => Step::Drop(live.remove(1 + rng.below(live.len() as u64 - 1) as usize)),
        1 if live.len() > 1 => Step::Rename(live[1 + rng.below(live.len() as u64 - 1) as usize], name(rng)),
        _ => {
            live.push(*made);
            *made += 1;
            Step::Create(name(rng))
        }
    }
}

fn commit_step(recipe: &Recipe, rng: &mut Rng, live: &[FamilyNo], now: u64) -> Step {
    let mut ops: Vec<Op> = Vec::new();
    for _ in 0..1 + rng.below(recipe.ops_max) {
        let family = *rng.pick(live);
        let key = format!("key{:05}", rng.below(recipe.keys)).into_bytes();
        // A fourth of the operations write the key of the one before, with every pair of kinds.
        let again = ops.last().filter(|_| rng.one_in(4)).map(|last| (last.family, last.key.clone()));
        let (family, key) = again.unwrap_or((family, key));
        let large = recipe.large_one_in != 0 && rng.one_in(recipe.large_one_in);
        let value = match rng.below(5) {
            0 => None,
            _ if large => Some({
                let n = 600 + rng.below(3000) as usize;
                rng.bytes(n)
            }),
            _ => Some({
                let n = rng.below(recipe.value_bytes + 1) as usize;
                rng.bytes(n)
            }),
        };
        let expiry = match rng.below(12) {
            0 => now + 3_600_000 + rng.below(1000),
            1 => now - rng.below(10_000),
            _ => 0,
        };
        let expiry = if value.is_some() { expiry } else { 0 };
        let until = (value.is_none() && rng.one_in(2)).then(|| {
            let to = rng.below(recipe.keys) + 1;
            format!("key{to:05}").into_bytes()
        });
        let merge = value.is_some() && expiry == 0 && rng.one_in(3);
        ops.push(Op { family, key, value, expiry, single: false, until, merge });
    }
    Step::Commit { ops, full: rng.one_in(6) }
}
