//! How steady watched rows run: the slowest second against the median one, the slowest put, refused commits, and what
//! was written and stored. Also the targets of the suites `steady` and `amplification`.

use crate::stage::Outcome;
use crate::suite::{amplification, steady, unscaled};
use crate::timeline::{Part, Second};

use super::lines::{Line, OURS};
use super::table::rate;
use super::targets::{Target, shown};
use super::words::{Unit, figure};

/// Minimum length in seconds of a timeline line that counts as a second.
pub(super) const LONG_ENOUGH: f64 = 0.5;

/// Figures of one kind of operation, second by second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steadiness {
    /// Number of seconds while operations ran.
    pub seconds: usize,
    /// Operations per second in the median second.
    pub median: f64,
    /// Operations per second in the slowest second.
    pub slowest: f64,
    /// Number of seconds with less than a third of the median.
    pub slow: usize,
}

impl Steadiness {
    /// Computes the figures of `operation`; `None` without a full second.
    pub fn of(timeline: &[Second], operation: &str) -> Option<Self> {
        let run = timeline.iter().filter(|s| s.part == Part::Run && s.length >= LONG_ENOUGH);
        let mut rates: Vec<f64> = run.map(|s| s.rate(operation).unwrap_or(0.0)).collect();
        rates.sort_by(f64::total_cmp);
        let (slowest, median) = (*rates.first()?, rates[rates.len() / 2]);
        let slow = rates.iter().filter(|rate| **rate < median / 3.0).count();
        Some(Self { seconds: rates.len(), median, slowest, slow })
    }

    /// Returns the slowest second as a share of the median one.
    pub fn share(&self) -> f64 {
        if self.median > 0.0 { self.slowest / self.median } else { 0.0 }
    }
}

pub(super) const HEAD: [&str; 16] = [
    "row",
    "engine",
    "operation",
    "ops/s",
    "median second",
    "slowest second",
    "of median",
    "below 1/3",
    "slowest",
    "Busy",
    "stalls",
    "written/raw",
    "tables/raw",
    "peak MiB",
    "settled MiB",
    "levels MiB",
];

/// Returns the cells of one line of the table.
pub(super) fn cells(line: &Line, outcome: &Outcome) -> Option<Vec<String>> {
    let steady = steadiness(line)?;
    let mib = |n: u64| format!("{:.0}", n as f64 / f64::from(1 << 20));
    let raw = outcome.payload().written;
    let per = |n: u64| if raw == 0 || n == 0 { String::new() } else { figure(n as f64 / raw as f64) };
    let stalls: Vec<String> = outcome.causes.iter().map(|c| stall(&c.cause, c.count, c.seconds)).collect();
    let levels: Vec<String> = outcome.levels.iter().map(|n| mib(*n)).collect();
    Some(vec![
        line.row.clone(),
        line.engine.clone(),
        line.operation.clone(),
        rate(line.rate.median),
        rate(steady.median),
        rate(steady.slowest),
        figure(steady.share()),
        format!("{} of {}", steady.slow, steady.seconds),
        micros(line.max.median),
        outcome.stats.busy.to_string(),
        stalls.join(", "),
        per(outcome.settled_written),
        per(outcome.stats.tables_written),
        mib(peak_in(&outcome.timeline) as u64),
        mib(outcome.db_bytes),
        levels.join(" "),
    ])
}

/// Formats the stalls of one cause.
pub(super) fn stall(cause: &str, count: u64, seconds: f64) -> String {
    if seconds > 0.0 {
        format!("{cause}: {count} in {} s", figure(seconds))
    } else {
        format!("{cause}: {count}")
    }
}

pub(super) fn micros(n: f64) -> String {
    if n > 0.0 { Unit::Micros.show(n).replace('\u{b5}', "u") } else { String::new() }
}

pub(super) fn peak_in(timeline: &[Second]) -> f64 {
    timeline.iter().map(|s| s.files).max().unwrap_or(0) as f64
}

/// A bound for a figure of this engine.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    /// At least this many times the rival's figure.
    AtLeastTimes(f64),
    /// At most this many times the rival's figure.
    AtMostTimes(f64),
    /// At least this figure.
    AtLeast(f64),
    /// At most this figure.
    AtMost(f64),
    /// None: the figure is only shown.
    Free,
}

pub(super) type Figure = (&'static str, fn(&Line) -> Option<f64>, fn(f64) -> String, Bound);

pub(super) fn times(n: f64) -> String {
    format!("{}x", figure(n))
}

pub(super) fn number(n: f64) -> String {
    format!("{n:.0}")
}

pub(super) fn bytes(n: f64) -> String {
    Unit::Bytes.show(n)
}

pub(super) fn per_second(n: f64) -> String {
    format!("{}/s", Unit::Rate.show(n))
}

pub(super) fn steadiness(line: &Line) -> Option<Steadiness> {
    Steadiness::of(&line.seconds_of_operation(), &line.operation)
}

/// Size of the keys and values in the database.
fn live(line: &Line) -> f64 {
    (line.spec.population() * line.spec.entry_bytes()) as f64
}

const MEAN: fn(&Line) -> Option<f64> = |l| Some(l.rate.median);
const WRITTEN: fn(&Line) -> Option<f64> = |l| Some(l.write_amp.median);
const SETTLED: fn(&Line) -> Option<f64> = |l| Some(l.size.median);
const SLOWEST: fn(&Line) -> Option<f64> = |l| Some(l.max.median);

/// Figures of each row of the suite `steady`.
const STEADY: [Figure; 8] = [
    ("mean", MEAN, per_second, Bound::AtLeastTimes(2.5)),
    (
        "slowest second / median second",
        |l| steadiness(l).map(|s| s.share()),
        figure,
        Bound::AtLeast(1.0 / 3.0),
    ),
    (
        "seconds below a third of the median",
        |l| steadiness(l).map(|s| s.slow as f64),
        number,
        Bound::AtMost(0.0),
    ),
    ("slowest put", SLOWEST, micros, Bound::AtMostTimes(1.0)),
    ("Busy", |l| Some(l.seconds.iter().map(|s| s.busy).sum::<u64>() as f64), number, Bound::AtMost(0.0)),
    ("written / raw", WRITTEN, times, Bound::Free),
    ("files at the peak", |l| Some(peak_in(&l.seconds)), bytes, Bound::AtMostTimes(1.0)),
    ("files when settled", SETTLED, bytes, Bound::Free),
];

/// Figures of the overwrites of the suite `amplification`.
const MERGING: [Figure; 7] = [
    ("put", MEAN, per_second, Bound::AtLeastTimes(2.5)),
    ("slowest put", SLOWEST, micros, Bound::Free),
    (
        "slowest second / median second",
        |l| steadiness(l).map(|s| s.share()),
        figure,
        Bound::AtLeast(1.0 / 3.0),
    ),
    ("written / raw", WRITTEN, times, Bound::AtMostTimes(0.8)),
    ("files at the peak / live", |l| Some(peak_in(&l.seconds) / live(l)), times, Bound::AtMost(1.35)),
    ("files when settled / live", |l| Some(l.size.median / live(l)), times, Bound::AtMostTimes(1.0)),
    ("Busy", |l| Some(l.seconds.iter().map(|s| s.busy).sum::<u64>() as f64), number, Bound::AtMost(0.0)),
];

/// Figures of the gets meanwhile.
const fn reading(wanted: Bound) -> [Figure; 2] {
    [("get", MEAN, per_second, wanted), ("slowest get", SLOWEST, micros, Bound::Free)]
}

const READING: [Figure; 2] = reading(Bound::AtLeastTimes(2.0));
/// At a fixed rate, which is asked of both engines: a ratio of 1 says that both serve it.
const READING_AT: [Figure; 2] = reading(Bound::Free);

/// Returns the targets of the two suites against a rival; empty if neither has run.
pub(super) fn targets(lines: &[Line], rival: &str) -> Vec<Target> {
    let mut all = Vec::new();
    for row in [steady::LOAD, steady::OVERWRITE] {
        all.extend(compared(lines, (row, "PUT"), rival, &STEADY));
    }
    for (row, reading) in [
        (amplification::UNIFORM, &READING),
        (amplification::UNIFORM_AT, &READING_AT),
        (amplification::ZIPF, &READING),
        (amplification::ZIPF_AT, &READING_AT),
    ] {
        all.extend(compared(lines, (row, "PUT"), rival, &MERGING));
        all.extend(compared(lines, (row, "GET"), rival, reading));
    }
    all
}

pub(super) fn compared(
    lines: &[Line],
    (row, operation): (&str, &str),
    rival: &str,
    figures: &[Figure],
) -> Vec<Target> {
    let find = |engine: &str| {
        let of = |l: &&Line| l.is_measured() && unscaled(&l.row) == row && l.engine == engine;
        lines.iter().filter(of).find(|l| l.operation == operation)
    };
    let both = [find(OURS), find(rival)];
    let Some(named) = both.into_iter().flatten().next() else { return Vec::new() };
    let target = |(what, pick, words, bound): &Figure| {
        let figures = both.map(|line| line.and_then(pick));
        let ratio = figures[0].zip(figures[1]).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
        let (wanted, met) = judge(*bound, figures[0], ratio);
        let stands = ratio.map_or_else(String::new, times);
        Target { stands, wanted, met, ..shown(format!("{}: {what}", named.row), figures, *words) }
    };
    figures.iter().map(target).collect()
}

fn judge(bound: Bound, ours: Option<f64>, ratio: Option<f64>) -> (String, Option<bool>) {
    match bound {
        Bound::AtLeastTimes(n) => (format!(">= {n}x"), ratio.map(|ratio| ratio >= n)),
        Bound::AtMostTimes(n) => (format!("<= {n}x"), ratio.map(|ratio| ratio <= n)),
        Bound::AtLeast(n) => (format!(">= {}", figure(n)), ours.map(|ours| ours >= n)),
        Bound::AtMost(n) => (format!("<= {n}"), ours.map(|ours| ours <= n)),
        Bound::Free => (String::new(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Beat;

    fn second(part: Part, ops: u64, files: u64) -> Second {
        let beats = vec![Beat { operation: "PUT".to_owned(), ops, ..Beat::default() }];
        Second { length: 1.0, part, beats, files, ..Second::default() }
    }

    #[test]
    fn slow_seconds_are_counted_while_operations_run() {
        let mut timeline: Vec<Second> = [90, 100, 110, 33, 34].map(|n| second(Part::Run, n, n)).to_vec();
        // A stall: no operation ended, and the line has no kinds.
        timeline.push(Second { length: 1.0, ..Second::default() });
        timeline.push(Second { length: 0.1, ..Second::default() });
        timeline.push(second(Part::Settle, 0, 0));
        let steady = Steadiness::of(&timeline, "PUT").unwrap();
        assert_eq!(steady, Steadiness { seconds: 6, median: 90.0, slowest: 0.0, slow: 1 });
        assert_eq!(steady.share(), 0.0);
        assert_eq!(Steadiness::of(&timeline[..3], "PUT").unwrap().share(), 0.9);
        assert_eq!(Steadiness::of(&[], "PUT"), None);
    }

    #[test]
    fn targets_name_the_row_with_its_scale() {
        let line = |engine: &str, rate: f64| {
            let rates = [rate * 0.3, rate];
            let seconds = rates.map(|n| second(Part::Run, n as u64, 1000)).to_vec();
            let rate = super::super::lines::Spread { low: rate, median: rate, high: rate };
            let (row, operation, engine) =
                ("steady_load@0.5".to_owned(), "PUT".to_owned(), engine.to_owned());
            Line { row, operation, engine, rate, seconds, ..Line::default() }
        };
        let lines = [line(OURS, 3000.0), line("rocksdb", 1000.0)];
        let found = targets(&lines, "rocksdb");
        let verdict = |what: &str| {
            let target = found.iter().find(|t| t.what == format!("steady_load@0.5: {what}")).unwrap();
            (target.verdict(), target.stands.clone())
        };
        assert_eq!(found.len(), STEADY.len());
        assert_eq!(verdict("mean"), ("met", "3.00x".to_owned()));
        assert_eq!(verdict("slowest second / median second"), ("not met", "1.00x".to_owned()));
        assert_eq!(verdict("files at the peak"), ("met", "1.00x".to_owned()));
        assert_eq!(verdict("written / raw"), ("", String::new()));
        assert!(targets(&[], "rocksdb").is_empty());
    }
}
