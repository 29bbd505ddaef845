//! Overload: the rate of an engine that is offered twice what it sustains, against the rate at which it flushes and
//! merges, and the latency of puts.

use crate::spec::Workload;
use crate::suite::overload::OVERLOAD;

use super::lines::Line;
use super::steady::{Bound, Figure, compared, number, steadiness, times};
use super::table::rate;
use super::targets::Target;
use super::words::Unit;

const PUT: &str = "PUT";
/// The throughput may differ from the drain rate by this factor.
const APART: f64 = 1.1;

const HEAD: [&str; 14] = [
    "row",
    "engine",
    "sustained/s",
    "offered/s",
    "put/s",
    "of sustained",
    "drained/s",
    "put / drained",
    "within 10 %",
    "p99.9",
    "slowest",
    "p99.9 since due",
    "slowest second",
    "without progress",
];

/// Returns the puts per second when the time of the background work that was left over is included.
fn drained(line: &Line) -> f64 {
    let seconds = duration(line) + line.settle;
    if seconds > 0.0 { line.rate.median * duration(line) / seconds } else { 0.0 }
}

/// Returns the seconds of the overload.
fn duration(line: &Line) -> f64 {
    let period = line.periods.iter().find(|p| p.operations.iter().any(|o| o == PUT));
    period.map_or(0.0, |p| p.to - p.from)
}

fn apart(line: &Line) -> Option<f64> {
    Some(line.rate.median / drained(line)).filter(|n| n.is_finite())
}

/// Returns the number of seconds in which no put ended.
fn without_progress(line: &Line) -> Option<f64> {
    let seconds = line.seconds_of_operation();
    let long = seconds.iter().filter(|s| s.length >= super::steady::LONG_ENOUGH);
    Some(long.filter(|s| s.rate(PUT).unwrap_or(0.0) <= 0.0).count() as f64)
}

/// Returns the rows of the table, the titles first; `None` if no row is an overload.
pub(super) fn rows(lines: &[Line]) -> Option<Vec<Vec<String>>> {
    let of = |l: &&Line| l.is_measured() && l.spec.workload == Workload::Overload && l.operation == PUT;
    let rows: Vec<Vec<String>> = lines.iter().filter(of).filter_map(cells).collect();
    (!rows.is_empty()).then(|| [vec![HEAD.map(str::to_owned).to_vec()], rows].concat())
}

fn cells(line: &Line) -> Option<Vec<String>> {
    let overload = line.overload.as_ref()?;
    let micros = |n: f64| Unit::Micros.show(n).replace('\u{b5}', "u");
    let apart = apart(line).unwrap_or(0.0);
    let slowest = steadiness(line).map_or(0.0, |s| s.slowest);
    Some(vec![
        line.row.clone(),
        line.engine.clone(),
        rate(overload.found),
        rate(overload.offered),
        rate(line.rate.median),
        times(line.rate.median / overload.found.max(1.0)),
        rate(drained(line)),
        times(apart),
        if apart <= APART { "met" } else { "not met" }.to_owned(),
        micros(line.p999.median),
        micros(line.max.median),
        micros(overload.since_due.p999),
        if slowest > 0.0 { rate(slowest) } else { "0".to_owned() },
        without_progress(line).map_or_else(String::new, number),
    ])
}

const FIGURES: [Figure; 6] = [
    ("put", |l| Some(l.rate.median), super::steady::per_second, Bound::Free),
    ("put / drained", apart, times, Bound::AtMost(APART)),
    ("p99.9 of a put", |l| Some(l.p999.median), super::steady::micros, Bound::AtMostTimes(1.0)),
    ("slowest put", |l| Some(l.max.median), super::steady::micros, Bound::AtMostTimes(1.0)),
    ("seconds without progress", without_progress, number, Bound::AtMost(0.0)),
    ("Busy", |l| Some(l.seconds.iter().map(|s| s.busy).sum::<u64>() as f64), number, Bound::AtMost(0.0)),
];

/// Returns the targets against a rival; empty if the suite has not run.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    compared(lines, (OVERLOAD, PUT), rival, &FIGURES)
}

#[cfg(test)]
mod tests {
    use super::super::lines::{OURS, Spread};
    use super::*;
    use crate::spec::Spec;
    use crate::timeline::{Beat, Period, Second};
    use crate::workload::Overload;

    fn second(at: u32, operation: &str, ops: u64) -> Second {
        let beats = vec![Beat { operation: operation.to_owned(), ops, ..Beat::default() }];
        Second { at: f64::from(at), length: 1.0, beats, ..Second::default() }
    }

    #[test]
    fn the_drain_rate_includes_the_background_work_that_was_left() {
        let operations = vec![PUT.to_owned()];
        let mean = Spread { low: 1000.0, median: 1000.0, high: 1000.0 };
        let mut line = Line {
            engine: OURS.to_owned(),
            operation: PUT.to_owned(),
            spec: Spec { workload: Workload::Overload, ..Spec::default() },
            rate: mean,
            settle: 0.5,
            // The second of the search has no put, and is not counted as a second without progress.
            seconds: vec![
                second(1, "SEARCH", 900),
                second(2, PUT, 1500),
                second(3, PUT, 0),
                second(4, PUT, 1500),
            ],
            periods: vec![Period { name: "put".to_owned(), operations, from: 1.0, to: 4.0 }],
            overload: Some(Overload { found: 800.0, offered: 1600.0, ..Overload::default() }),
            ..Line::default()
        };
        let cells = |line: &Line| rows(std::slice::from_ref(line)).unwrap()[1][2..].to_vec();
        let found = cells(&line);
        assert_eq!(found[..7], ["800", "1.60 K", "1.00 K", "1.25x", "857", "1.17x", "not met"]);
        assert_eq!(found[10..], ["0", "1"]);
        line.settle = 0.1;
        assert_eq!(cells(&line)[6], "met");
        assert_eq!(without_progress(&line), Some(1.0));
    }
}
