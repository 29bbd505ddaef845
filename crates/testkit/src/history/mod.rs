//! T14: long histories of random operations; each answer is compared with a model that keeps versions.
//!
//! A history runs on the simulated disk with a manual clock and without threads, or on a real directory with background
//! threads. A failing history is shrunk: operations are removed as long as it still fails.

mod ops;
mod reads;
mod run;
mod store;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidesdb_io::{Clock, RealClock};

pub use ops::{Op, make};
pub use run::Place;

use crate::report::violation;
use crate::rng::Rng;

/// Number of operations by kind and outcome.
pub type Coverage = BTreeMap<(&'static str, &'static str), u64>;

/// Pairs of operation and outcome that a run must meet. Otherwise it has not tested what it should test.
pub const REQUIRED: &[(&str, &str)] = &[
    ("put", "ok"),
    ("put_ttl", "ok"),
    ("merge", "ok"),
    ("delete", "ok"),
    ("single_delete", "ok"),
    ("delete_range", "ok"),
    ("batch", "ok"),
    ("batch", "durable"),
    ("get", "found"),
    ("get", "none"),
    ("get", "snapshot"),
    ("get_map", "found"),
    ("get_map", "none"),
    ("contains", "found"),
    ("contains", "none"),
    ("multi_get", "ok"),
    ("multi_get", "snapshot"),
    ("cursor", "valid"),
    ("cursor", "past an end"),
    ("cursor", "kept"),
    ("cursor", "moved later"),
    ("cursor", "snapshot"),
    ("cursor", "family dropped"),
    ("range", "both ends"),
    ("range", "exhausted"),
    ("range", "empty"),
    ("range", "upside down"),
    ("range", "snapshot"),
    ("prefix", "found"),
    ("prefix", "reversed"),
    ("prefix", "refused"),
    ("keys_only", "ok"),
    ("snapshot", "ok"),
    ("snapshot", "dropped"),
    ("snapshot", "family dropped"),
    ("snapshot", "newer family"),
    ("create", "ok"),
    ("create", "exists"),
    ("drop", "ok"),
    ("rename", "ok"),
    ("rename", "exists"),
    ("clone", "ok"),
    ("flush", "ok"),
    ("flush", "one"),
    ("compact", "ok"),
    ("compact", "one"),
    ("sync", "ok"),
    ("reopen", "closed"),
    ("reopen", "died"),
    ("checkpoint", "ok"),
    ("verify", "ok"),
];

/// Further required pairs on the simulated disk, where the clock can be advanced.
pub const REQUIRED_SIM: &[(&str, &str)] = &[("get", "expired"), ("clock", "advanced")];

/// Figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of histories.
    pub histories: u64,
    /// Number of operations.
    pub ops: u64,
    /// Operations by kind and outcome.
    pub coverage: Coverage,
    /// Number of failed histories.
    pub violations: u64,
}

impl Totals {
    /// Adds the figures of another worker.
    pub fn merge(&mut self, other: Self) {
        self.histories += other.histories;
        self.ops += other.ops;
        self.violations += other.violations;
        for (what, n) in other.coverage {
            *self.coverage.entry(what).or_default() += n;
        }
    }

    /// Lists the pairs of `required` that did not happen.
    pub fn missing(&self, required: &[(&'static str, &'static str)]) -> Vec<String> {
        let absent = required.iter().filter(|pair| self.coverage.get(*pair).is_none_or(|n| *n == 0));
        absent.map(|(op, outcome)| format!("{op}: {outcome}")).collect()
    }
}

/// Runs the history of `seed`, with `count` operations; shrinks and prints a failing one.
pub fn history(seed: u64, count: usize, place: Place) -> Totals {
    let ops = make(&mut Rng::new(seed), count);
    let mut coverage = Coverage::new();
    let result = attempt(seed, &ops, place, &mut coverage);
    let mut totals = Totals { histories: 1, ops: count as u64, coverage, violations: 0 };
    if let Err(e) = result {
        totals.violations = 1;
        violation(format_args!("history {seed} ({place:?}, {count} operations): {e}"));
        let (ops, e) = shrink(seed, ops, e, place);
        eprintln!("  shrunk to {} operations: {e}", ops.len());
        ops.iter().take(60).for_each(|op| eprintln!("    {op:?}"));
    }
    totals
}

fn attempt(seed: u64, ops: &[Op], place: Place, coverage: &mut Coverage) -> Result<(), String> {
    let run = AssertUnwindSafe(|| run::run(seed, ops, place, coverage));
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Removes parts, from halves to single operations, as long as the rest still fails.
fn shrink(seed: u64, mut ops: Vec<Op>, mut error: String, place: Place) -> (Vec<Op>, String) {
    let clock = RealClock::new();
    let mut part = ops.len() / 2;
    while part > 0 && clock.mono() < Duration::from_secs(30) {
        let mut at = 0;
        let mut shorter = false;
        while at < ops.len() && clock.mono() < Duration::from_secs(30) {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + part).min(ops.len()));
            match attempt(seed, &fewer, place, &mut Coverage::new()) {
                Err(e) => (ops, error, shorter) = (fewer, e, true),
                Ok(()) => at += part,
            }
        }
        if !shorter || part > ops.len() {
            part = (part / 2).min(ops.len() / 2);
        }
    }
    (ops, error)
}
