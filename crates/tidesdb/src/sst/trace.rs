//! The gate that takes note of the steps of a lookup: for an explanation, or for a profile. One type for both: each more is another copy of the
//! code of a lookup.

use super::gate::{ReadGate, ReadPlace, TurnGate};
use super::steps::ReadStep;
use crate::stats::counts::{self, Counter};

/// Takes note of each step.
#[derive(Debug)]
pub struct WatchingGate {
    /// Decides about reads; `None` allows all.
    turn: Option<TurnGate>,
    /// The steps so far; `None` counts them for the profile of this thread.
    steps: Option<Vec<ReadStep>>,
}

impl WatchingGate {
    /// Creates a gate that collects the steps of a lookup that explains itself.
    pub fn collecting() -> Self {
        Self { turn: None, steps: Some(Vec::new()) }
    }

    /// Creates a gate that counts the steps.
    pub fn counting(turn: Option<TurnGate>) -> Self {
        Self { turn, steps: None }
    }

    /// Opens the gate for the next lookup.
    pub fn begin(&mut self) {
        self.turn.iter_mut().for_each(TurnGate::begin);
    }

    /// Returns the steps that it has collected.
    pub fn into_steps(self) -> Vec<ReadStep> {
        self.steps.unwrap_or_default()
    }
}

impl ReadGate for WatchingGate {
    fn admits(&mut self, place: ReadPlace, load_ahead: impl FnOnce() -> bool) -> bool {
        self.turn.as_mut().is_none_or(|turn| turn.admits(place, load_ahead))
    }

    fn is_shut(&self) -> bool {
        self.turn.as_ref().is_some_and(TurnGate::is_shut)
    }

    fn explains(&self) -> bool {
        self.steps.is_some()
    }

    fn note(&mut self, step: impl FnOnce() -> ReadStep) {
        let step = step();
        match &mut self.steps {
            Some(steps) => steps.push(step),
            None => count(step),
        }
    }
}

fn count(step: ReadStep) {
    match step {
        ReadStep::Memtable { .. } | ReadStep::Table(_) => counts::add(Counter::Sources, 1),
        ReadStep::Filter { passes } => {
            counts::add(Counter::FiltersAsked, 1);
            counts::add(Counter::FiltersExcluded, u64::from(!passes));
        }
        ReadStep::Index { .. } => counts::add(Counter::IndexSearches, 1),
        // A read of the file is counted where it is made.
        ReadStep::Block { from, .. } | ReadStep::Values { from, .. } if !from.is_read() => {
            counts::add(Counter::BlocksInMemory, 1);
        }
        _ => {}
    }
}
