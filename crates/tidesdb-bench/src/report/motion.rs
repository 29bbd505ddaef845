//! Reads and puts while the tree changes: rates of the first seconds after an overwrite, later through the same cursors, and at rest; the
//! slowest put beside the slowest bare sync of a file; and which part of slow puts the waits of the engine and of the scheduler explain.

use crate::run::Results;
use crate::stage::{Outcome, SYNC};
use crate::suite::{motion, unscaled};
use crate::workload::{LOAD, OVERWRITE, Phase};

use super::lines::{Line, OURS};
use super::steady::{Bound, Figure, compared, micros, per_second};
use super::table::rate;
use super::targets::Target;
use super::words::figure;

const HEAD: [&str; 14] = [
    "row",
    "engine",
    "seek at once/s",
    "range",
    "get",
    "seek held/s",
    "range",
    "get",
    "seek at rest/s",
    "range",
    "get",
    "slowest put, p99.99",
    "slowest sync",
    "slow puts, explained",
];
const READS: [&str; 3] = ["SEEK", "RANGE", "GET"];
const PARTS: [&str; 3] = [" AT ONCE", " HELD", ""];
/// What reads at once must reach of those at rest.
const OF_REST: f64 = 2.0 / 3.0;
/// The slowest put is good enough if it takes this many times the slowest bare sync.
const OF_SYNC: f64 = 1.5;

/// Returns the rows of the table, the titles first; `None` if the suite has not run.
pub(super) fn rows(results: &Results) -> Option<Vec<Vec<String>>> {
    let measured = results.outcomes.iter().filter(|o| o.failure.is_none() && phase(o, OVERWRITE).is_some());
    let rows: Vec<Vec<String>> = measured.map(cells).collect();
    (!rows.is_empty()).then(|| [vec![HEAD.map(str::to_owned).to_vec()], rows].concat())
}

fn cells(outcome: &Outcome) -> Vec<String> {
    let mut cells = vec![outcome.spec.name.clone(), outcome.engine.clone()];
    for part in PARTS {
        let of = |read: &str| phase(outcome, &format!("{read}{part}"));
        cells.extend(READS.map(|read| of(read).map_or_else(String::new, |p| rate(p.rate()))));
    }
    let puts = [LOAD, OVERWRITE].map(|put| phase(outcome, put).and_then(|p| p.latency.clone()));
    let most =
        |pick: fn(&crate::measure::Latency) -> f64| puts.iter().flatten().map(pick).fold(0.0, f64::max);
    cells.push(format!("{}, {}", micros(most(|l| l.max)), micros(most(|l| l.p9999))));
    let sync = phase(outcome, SYNC).and_then(|p| p.latency.as_ref());
    cells.push(sync.map_or_else(String::new, |l| micros(l.max)));
    let slow: f64 = puts.iter().flatten().map(|l| l.slow).sum();
    let known: f64 = outcome.causes.iter().map(|cause| cause.seconds).sum();
    cells.push(match slow > 0.0 {
        true => format!("{} s, {:.0} %", figure(slow), 100.0 * (known / slow).min(1.0)),
        false => "none".to_owned(),
    });
    cells
}

fn phase<'a>(outcome: &'a Outcome, operation: &str) -> Option<&'a Phase> {
    outcome.phases.iter().find(|phase| phase.operation == operation)
}

const fn at_least(times: f64) -> [Figure; 1] {
    [("rate", |l| Some(l.rate.median), per_second, Bound::AtLeastTimes(times))]
}

const AT_ONCE: [(&str, [Figure; 1]); 3] =
    [("SEEK AT ONCE", at_least(3.0)), ("RANGE AT ONCE", at_least(2.0)), ("GET AT ONCE", at_least(1.2))];
const SLOWEST: [Figure; 1] = [("slowest", |l| Some(l.max.median), micros, Bound::AtMostTimes(1.0))];

/// Returns the targets against a rival; empty if the suite has not run.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    let mut all = Vec::new();
    for row in [motion::NAME, motion::SMALL] {
        for (read, figures) in &AT_ONCE {
            let named = |t: Target| Target { what: t.what.replace(": rate", &format!(": {read}")), ..t };
            all.extend(compared(lines, (row, read), rival, figures).into_iter().map(named));
        }
        for put in [LOAD, OVERWRITE] {
            let named =
                |t: Target| Target { what: t.what.replace(": slowest", &format!(": slowest {put}")), ..t };
            let found = compared(lines, (row, put), rival, &SLOWEST).into_iter().map(named);
            all.extend(found.map(|target| or_like_a_sync(target, lines, (row, put))));
        }
        all.extend(READS.into_iter().filter_map(|read| beside_rest(lines, row, read)));
    }
    all
}

fn ours<'a>(lines: &'a [Line], row: &str, operation: &str) -> Option<&'a Line> {
    let of = |l: &&Line| {
        l.is_measured() && l.engine == OURS && unscaled(&l.row) == row && l.operation == operation
    };
    lines.iter().find(of)
}

/// Returns a target of the slowest put as met if the put took little longer than a bare sync of the same run.
fn or_like_a_sync(target: Target, lines: &[Line], (row, put): (&str, &str)) -> Target {
    let most = |operation| ours(lines, row, operation).map(|l| l.max.median);
    let is_like = most(put).zip(most(SYNC)).is_some_and(|(put, sync)| put <= OF_SYNC * sync);
    let wanted = format!("{} or {OF_SYNC}x the slowest sync", target.wanted);
    Target { met: target.met.map(|met| met || is_like), wanted, ..target }
}

/// Returns the target of reads at once beside the same reads at rest.
fn beside_rest(lines: &[Line], row: &str, read: &str) -> Option<Target> {
    let [at_once, rest] =
        [format!("{read} AT ONCE"), read.to_owned()].map(|operation| ours(lines, row, &operation));
    let ratio = at_once?.rate.median / rest?.rate.median;
    Some(Target {
        what: format!("{row}: {read} at once, of that at rest"),
        ours: per_second(at_once?.rate.median),
        rival: per_second(rest?.rate.median),
        stands: format!("{}x", figure(ratio)),
        wanted: format!(">= {}x", figure(OF_REST)),
        met: Some(ratio >= OF_REST),
    })
}

#[cfg(test)]
mod tests {
    use super::super::lines::Spread;
    use super::*;

    fn line(engine: &str, operation: &str, rate: f64, max: f64) -> Line {
        let spread = |n: f64| Spread { low: n, median: n, high: n };
        Line {
            row: motion::NAME.to_owned(),
            engine: engine.to_owned(),
            operation: operation.to_owned(),
            rate: spread(rate),
            max: spread(max),
            ..Line::default()
        }
    }

    fn verdict(lines: &[Line], what: &str) -> (String, &'static str) {
        let found = targets(lines, "rocksdb");
        let target = found.iter().find(|t| t.what.contains(what)).unwrap();
        (target.stands.clone(), target.verdict())
    }

    #[test]
    fn reads_at_once_are_compared_with_the_rival_and_with_those_at_rest() {
        let lines = [
            line(OURS, "SEEK AT ONCE", 8e3, 9.0),
            line(OURS, "SEEK", 76e3, 9.0),
            line("rocksdb", "SEEK AT ONCE", 2e3, 9.0),
        ];
        assert_eq!(verdict(&lines, "motion: SEEK AT ONCE"), ("4.00x".to_owned(), "met"));
        assert_eq!(verdict(&lines, "SEEK at once, of").1, "not met");
    }

    #[test]
    fn a_slow_put_is_excused_by_a_sync_that_was_as_slow() {
        let lines = |sync: f64| {
            let ours = [line(OURS, LOAD, 7e5, 3e5), line(OURS, SYNC, 10.0, sync)];
            [&ours[..], &[line("rocksdb", LOAD, 2e5, 1e5)]].concat()
        };
        assert_eq!(verdict(&lines(1e5), "slowest PUT").1, "not met");
        assert_eq!(verdict(&lines(2.5e5), "slowest PUT").1, "met");
    }
}
