//! Results as lines: one per row, kind of operation and engine. Each figure is a median over the repetitions, with its
//! range.

use crate::device::Device;
use crate::run::Results;
use crate::spec::Spec;
use crate::stage::Outcome;
use crate::timeline::{Period, Second};
use crate::workload::{Overload, Phase, Transacted};

/// Median and range of repeated measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Minimum.
    pub low: f64,
    /// Median; for an even number of figures, the mean of the middle two.
    pub median: f64,
    /// Maximum.
    pub high: f64,
}

impl Spread {
    /// Computes the spread of the figures; zeros if there are none.
    pub fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (figures.first(), figures.last()) else { return Self::default() };
        let n = figures.len();
        Self { low: *low, median: f64::midpoint(figures[(n - 1) / 2], figures[n / 2]), high: *high }
    }

    /// Returns true if there is a figure; every measured figure is above 0.
    pub fn is_there(&self) -> bool {
        self.low > 0.0 && self.high.is_finite()
    }

    /// Applies `change` to all three figures.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), median: change(self.median), high: change(self.high) }
    }
}

/// One kind of operation of one row on one engine, over all repetitions. Figures that were not measured are zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name of the row.
    pub row: String,
    /// Engine name.
    pub engine: String,
    /// Operation; empty if no repetition got that far.
    pub operation: String,
    /// Settings of the row.
    pub spec: Spec,
    /// Operations per second.
    pub rate: Spread,
    /// Median latency in microseconds.
    pub p50: Spread,
    /// 95th percentile of the latency in microseconds.
    pub p95: Spread,
    /// 99th percentile of the latency in microseconds.
    pub p99: Spread,
    /// 99.9th percentile of the latency in microseconds.
    pub p999: Spread,
    /// Maximum latency in microseconds.
    pub max: Spread,
    /// Standard deviation of the latency in percent of its mean.
    pub variation: Spread,
    /// Refused attempts of transactions in percent of all attempts; `None` if nothing could be refused.
    pub conflicts: Option<Spread>,
    /// Processor seconds per million operations, over all kinds in the row except ITER.
    pub processor: Spread,
    /// Peak memory in bytes.
    pub memory: Spread,
    /// Bytes written until all background work was done, per byte of keys and values named by operations.
    pub write_amp: Spread,
    /// Bytes of the files per byte of keys and values in the database.
    pub space_amp: Spread,
    /// Bytes of the files after the close.
    pub size: Spread,
    /// Seconds from the open until all rows were read.
    pub wall: Spread,
    /// Bytes read from the device per operation, over all kinds in the row.
    pub read_per_op: Spread,
    /// Timeline of the first repetition, if the row is watched.
    pub seconds: Vec<Second>,
    /// Periods of the first repetition, if the row does one thing after another.
    pub periods: Vec<Period>,
    /// Rates of the overload of the first repetition, if the row has one.
    pub overload: Option<Overload>,
    /// Seconds of the background work after the operations.
    pub settle: f64,
    /// Random read limit of the device in the first repetition, if it was measured.
    pub device: Option<Device>,
    /// Why the row failed; `None` if no repetition failed.
    pub failure: Option<String>,
    /// Why the engine does not offer the row; `None` if it does.
    pub absent: Option<String>,
}

impl Line {
    /// Returns true if the line has figures that may be shown.
    pub fn is_measured(&self) -> bool {
        self.failure.is_none() && self.absent.is_none()
    }

    /// Returns the part of the timeline in which operations of this kind ran.
    pub(super) fn seconds_of_operation(&self) -> Vec<Second> {
        Period::lines_of(&self.periods, &self.operation, &self.seconds)
    }

    /// Returns true if the operation is the opening of the database, which happens once.
    pub fn is_opening(&self) -> bool {
        OPENINGS.contains(&self.operation.as_str())
    }
}

/// Operations that open the database: after a clean close, and after a kill.
pub(crate) const OPENINGS: [&str; 2] = ["OPEN", "REOPEN"];

/// Groups results into the lines of a report, in the order of the suite.
pub fn lines(results: &Results) -> Vec<Line> {
    let mut groups: Vec<(&str, &str, Vec<&Outcome>)> = Vec::new();
    for outcome in &results.outcomes {
        let (row, engine) = (outcome.spec.name.as_str(), outcome.engine.as_str());
        match groups.iter_mut().find(|g| (g.0, g.1) == (row, engine)) {
            Some(group) => group.2.push(outcome),
            None => groups.push((row, engine, vec![outcome])),
        }
    }
    let engines = engines(results);
    let place = |row: &str| results.rows.iter().position(|r| r == row);
    groups.sort_by_key(|(row, engine, _)| (place(row), engines.iter().position(|e| e == engine)));
    groups.into_iter().flat_map(|(row, engine, outcomes)| group(row, engine, &outcomes)).collect()
}

/// Name of this engine.
pub(crate) const OURS: &str = "tidesdb";
/// The engine that stores nothing: a yardstick, not a rival.
pub(crate) const YARDSTICK: &str = "null";

/// Lists the engines: this one first, the yardstick last, the others between them by name.
pub fn engines(results: &Results) -> Vec<String> {
    in_order(results.outcomes.iter().map(|o| o.engine.clone()).collect())
}

/// Removes duplicates and sorts: this engine first, the yardstick last.
pub(crate) fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| (name != OURS, name == YARDSTICK, name.clone()));
    names.dedup();
    names
}

fn group(row: &str, engine: &str, outcomes: &[&Outcome]) -> Vec<Line> {
    let failure = outcomes.iter().find_map(|o| o.failure.clone());
    let good: Vec<&Outcome> = outcomes.iter().copied().filter(|o| o.failure.is_none()).collect();
    let operations: Vec<&str> =
        good.first().map_or(Vec::new(), |o| o.phases.iter().map(|p| p.operation.as_str()).collect());
    let shared = Line {
        row: row.to_owned(),
        engine: engine.to_owned(),
        spec: outcomes.first().map_or_else(Spec::default, |o| o.spec.clone()),
        failure: failure.clone(),
        absent: outcomes.iter().find_map(|o| o.absent.clone()),
        ..of_row(&good)
    };
    match (&failure, operations.is_empty()) {
        (Some(_), _) | (None, true) => vec![shared],
        (None, false) => operations.into_iter().map(|o| of_operation(&shared, o, &good)).collect(),
    }
}

/// Computes the figures that all operations of a row share.
fn of_row(good: &[&Outcome]) -> Line {
    let spread = |pick: &dyn Fn(&Outcome) -> f64| Spread::of(good.iter().map(|o| pick(o)).collect());
    let refused: Vec<f64> =
        good.iter().filter_map(|o| o.transacted.as_ref()).map(Transacted::conflict_rate).collect();
    let per = |n: u64, by: u64| if by == 0 { 0.0 } else { n as f64 / by as f64 };
    Line {
        conflicts: (!refused.is_empty()).then(|| Spread::of(refused)),
        processor: spread(&Outcome::processor_per_million),
        memory: spread(&|o| o.peak_memory as f64),
        write_amp: spread(&|o| per(o.settled_written, o.payload().written)),
        space_amp: spread(&|o| per(o.db_bytes, o.keys * o.spec.entry_bytes())),
        size: spread(&|o| o.db_bytes as f64),
        wall: spread(&|o| o.wall),
        read_per_op: spread(&|o| per(o.usage.read, o.phases.iter().map(|p| p.ops).sum())),
        seconds: good.first().map_or_else(Vec::new, |o| o.timeline.clone()),
        periods: good.first().map_or_else(Vec::new, |o| o.periods.clone()),
        overload: good.first().and_then(|o| o.overload.clone()),
        settle: spread(&|o| o.settle).median,
        device: good.first().and_then(|o| o.device.clone()),
        ..Line::default()
    }
}

fn of_operation(shared: &Line, operation: &str, good: &[&Outcome]) -> Line {
    let phases = || good.iter().flat_map(|o| o.phases.iter()).filter(|p| p.operation == operation);
    let latency = |pick: fn(&crate::measure::Latency) -> f64| {
        Spread::of(phases().filter_map(|p| p.latency.as_ref()).map(pick).collect())
    };
    Line {
        operation: operation.to_owned(),
        rate: Spread::of(phases().map(Phase::rate).collect()),
        p50: latency(|l| l.p50),
        p95: latency(|l| l.p95),
        p99: latency(|l| l.p99),
        p999: latency(|l| l.p999),
        max: latency(|l| l.max),
        variation: latency(|l| l.variation),
        conflicts: shared.conflicts.filter(|_| operation == "TX"),
        ..shared.clone()
    }
}
