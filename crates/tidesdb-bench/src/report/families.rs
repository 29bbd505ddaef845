//! Families that are loaded together against the same families alone: latency of puts, and how long due merges waited.

use crate::run::Results;
use crate::stage::Outcome;
use crate::suite::{families, unscaled};
use crate::workload::Phase;

use super::lines::OURS;
use super::words::{Unit, figure};

/// A family may wait this many times as long together as alone.
const TIMES: f64 = 2.0;

const HEAD: [&str; 10] = [
    "family",
    "puts/s",
    "p99.9",
    "slowest put",
    "alone",
    "ratio",
    "longest wait of a merge",
    "alone",
    "ratio",
    "<= 2x",
];

/// Returns the rows of the table, the titles first; `None` if the suite did not run.
pub(super) fn rows(results: &Results) -> Option<Vec<Vec<String>>> {
    let find = |row: &str| {
        let is = |o: &&Outcome| o.engine == OURS && o.failure.is_none() && unscaled(&o.spec.name) == row;
        results.outcomes.iter().find(is)
    };
    let (together, large, small) =
        (find(families::TOGETHER)?, find(families::LARGE)?, find(families::SMALL)?);
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for (family, phase) in together.phases.iter().enumerate() {
        let alone = if family == 0 { large } else { small };
        rows.push(cells((together, phase, family), alone)?);
    }
    Some(rows)
}

fn cells((together, phase, family): (&Outcome, &Phase, usize), alone: &Outcome) -> Option<Vec<String>> {
    let (here, there) = (phase.latency.as_ref()?, alone.phases.first()?.latency.as_ref()?);
    let wait =
        |outcome: &Outcome, family: usize| outcome.waits.get(family).map_or(0.0, |wait| wait.longest * 1e6);
    let micros = |n: f64| Unit::Micros.show(n).replace('\u{b5}', "u");
    let waits = (wait(together, family), wait(alone, 0));
    let ratios = [here.max / there.max.max(1e-3), waits.0 / waits.1.max(1e-3)];
    // A merge that starts at the next look did not wait.
    let waited = waits.0 > LOOK_MICROS && ratios[1] > TIMES;
    Some(vec![
        phase.operation.clone(),
        figure(phase.rate()),
        micros(here.p999),
        micros(here.max),
        micros(there.max),
        format!("{}x", figure(ratios[0])),
        micros(waits.0),
        micros(waits.1),
        if waits.1 > 0.0 { format!("{}x", figure(ratios[1])) } else { String::new() },
        if ratios[0] <= TIMES && !waited { "met" } else { "not met" }.to_owned(),
    ])
}

/// Waits are measured in steps of this many microseconds.
const LOOK_MICROS: f64 = 20_000.0;
