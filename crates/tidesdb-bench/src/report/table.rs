//! The table for the terminal: one line per row, kind of operation and engine; medians over the repetitions, with ranges.

use std::fmt::Write;

use crate::run::Results;
use crate::stage::Outcome;

/// A median and the smallest and largest that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub low: f64,
    /// The median; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The largest.
    pub high: f64,
}

impl Spread {
    /// Of these figures; zeros if there are none.
    pub fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (figures.first(), figures.last()) else { return Self::default() };
        let n = figures.len();
        Self { low: *low, median: f64::midpoint(figures[(n - 1) / 2], figures[n / 2]), high: *high }
    }
}

/// One kind of operation of one row on one engine, over all repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name of the row.
    pub row: String,
    /// The engine.
    pub engine: String,
    /// The operation; empty if no repetition got that far.
    pub operation: String,
    /// Operations a second.
    pub rate: Spread,
    /// Latencies in microseconds.
    pub p50: Spread,
    /// Latencies in microseconds.
    pub p99: Spread,
    /// Latencies in microseconds.
    pub p999: Spread,
    /// Processor seconds for a million operations, of all kinds in the row together but ITER.
    pub processor: Spread,
    /// Most bytes of memory.
    pub memory: Spread,
    /// Why it failed, if any repetition did.
    pub failure: Option<String>,
}

/// The lines of a report, in the order of the suite.
pub fn lines(results: &Results) -> Vec<Line> {
    let mut groups: Vec<(&str, &str, Vec<&Outcome>)> = Vec::new();
    for outcome in &results.outcomes {
        let (row, engine) = (outcome.spec.name.as_str(), outcome.engine.as_str());
        match groups.iter_mut().find(|g| (g.0, g.1) == (row, engine)) {
            Some(group) => group.2.push(outcome),
            None => groups.push((row, engine, vec![outcome])),
        }
    }
    let place = |row: &str| results.rows.iter().position(|r| r == row);
    groups.sort_by_key(|(row, engine, _)| (place(row), *engine));
    groups.into_iter().flat_map(|(row, engine, outcomes)| group(row, engine, &outcomes)).collect()
}

fn group(row: &str, engine: &str, outcomes: &[&Outcome]) -> Vec<Line> {
    let failure = outcomes.iter().find_map(|o| o.failure.clone());
    let good: Vec<&Outcome> = outcomes.iter().copied().filter(|o| o.failure.is_none()).collect();
    let operations: Vec<&str> =
        good.first().map_or(Vec::new(), |o| o.phases.iter().map(|p| p.operation.as_str()).collect());
    let line = |operation: &str| {
        let phases = || good.iter().flat_map(|o| o.phases.iter()).filter(|p| p.operation == operation);
        let latency = |pick: fn(&crate::measure::Latency) -> f64| {
            Spread::of(phases().filter_map(|p| p.latency.as_ref()).map(pick).collect())
        };
        Line {
            row: row.to_owned(),
            engine: engine.to_owned(),
            operation: operation.to_owned(),
            rate: Spread::of(phases().map(|p| p.rate()).collect()),
            p50: latency(|l| l.p50),
            p99: latency(|l| l.p99),
            p999: latency(|l| l.p999),
            processor: Spread::of(good.iter().map(|o| o.processor_per_million()).collect()),
            memory: Spread::of(good.iter().map(|o| o.peak_memory as f64).collect()),
            failure: failure.clone(),
        }
    };
    match (&failure, operations.is_empty()) {
        (Some(_), _) | (None, true) => vec![line("")],
        (None, false) => operations.into_iter().map(line).collect(),
    }
}

const HEAD: [&str; 10] =
    ["row", "engine", "operation", "ops/s", "range", "p50 us", "p99 us", "p99.9 us", "CPU s/M", "RSS MiB"];
/// Columns that are words, not figures.
const WORDS: usize = 3;

/// The table.
pub fn table(results: &Results) -> String {
    let mut rows: Vec<[String; 10]> = vec![HEAD.map(str::to_owned)];
    let mut failures = String::new();
    for line in lines(results) {
        match &line.failure {
            Some(failure) => {
                let _ = writeln!(failures, "FAILED {} on {}: {failure}", line.row, line.engine);
                let mut cells = [const { String::new() }; 10];
                (cells[0], cells[1], cells[2]) = (line.row.clone(), line.engine.clone(), "FAILED".to_owned());
                rows.push(cells);
            }
            None => rows.push(cells(&line)),
        }
    }
    let mut widths = [0; 10];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.len().max(*width));
    }
    let mut out = header(results);
    for row in rows {
        let mut text = String::new();
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ =
                if i < WORDS { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out + &failures
}

fn header(results: &Results) -> String {
    let m = &results.machine;
    let mut settings: Vec<&str> = results
        .outcomes
        .iter()
        .map(|o| o.settings.as_str())
        .filter(|s| !s.is_empty() && *s != "none")
        .collect();
    settings.sort_unstable();
    settings.dedup();
    let mut out = format!(
        "suite {}, seed {}, version {} ({})\n{} x {}, {:.1} GiB, Linux {}, {}, load {:.2} at the start\n",
        results.suite,
        results.seed,
        results.version,
        m.build,
        m.processors,
        m.processor,
        m.memory as f64 / f64::from(1 << 30),
        m.kernel,
        m.file_system,
        m.load,
    );
    settings.iter().for_each(|s| out.extend([*s, "\n"]));
    out.push('\n');
    out
}

fn cells(line: &Line) -> [String; 10] {
    let micros = |s: &Spread| if s.high > 0.0 { figure(s.median) } else { String::new() };
    [
        line.row.clone(),
        line.engine.clone(),
        line.operation.clone(),
        rate(line.rate.median),
        if line.rate.low == line.rate.high {
            String::new()
        } else {
            format!("{}..{}", rate(line.rate.low), rate(line.rate.high))
        },
        micros(&line.p50),
        micros(&line.p99),
        micros(&line.p999),
        format!("{:.2}", line.processor.median),
        format!("{:.0}", line.memory.median / f64::from(1 << 20)),
    ]
}

/// Three digits and a unit.
pub(crate) fn rate(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{} G", figure(n / 1e9)),
        n if n >= 1e6 => format!("{} M", figure(n / 1e6)),
        n if n >= 1e3 => format!("{} K", figure(n / 1e3)),
        0.0 => String::new(),
        n => figure(n),
    }
}

/// Three digits.
fn figure(n: f64) -> String {
    match n {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}
