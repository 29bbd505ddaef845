//! Text reports of watched rows: bytes read and written, memory, steadiness, the targets, and the whole timeline as
//! CSV.

use std::fmt::Write;

use crate::run::Results;
use crate::stage::Outcome;
use crate::timeline::{Beat, Part, Second, is_write};

use super::lines::{Line, OURS, YARDSTICK, lines};
use super::table::{aligned, lines_table, rate};
use super::targets::{self, Target};
use super::words::Unit;
use super::{churn, families, motion, overload, probes, queue, steady, values};

const HEAD: [&str; 14] = [
    "row",
    "engine",
    "operation",
    "ops/s",
    "slowest",
    "slowest second",
    "read/op",
    "calls/op",
    "written/op",
    "RSS MiB",
    "anon MiB",
    "cache MiB",
    "files, peak and end",
    "device reads/s",
];

/// Formats the table for the terminal: all lines, then the summary of watched rows with the targets.
pub fn table(results: &Results) -> String {
    let all = lines(results);
    lines_table(results, &all) + &summary(results, &all)
}

/// Formats further figures of watched rows, and the targets; empty if there is no such row.
fn summary(results: &Results, lines: &[Line]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut steadiness = vec![steady::HEAD.map(str::to_owned).to_vec()];
    for line in lines.iter().filter(|l| l.is_measured()) {
        let of = |o: &&Outcome| o.engine == line.engine && o.spec.name == line.row && !o.timeline.is_empty();
        let Some(outcome) = results.outcomes.iter().find(of) else { continue };
        if probes::is_probe(line) {
            continue;
        }
        rows.push(cells(line, outcome));
        steadiness.extend(steady::cells(line, outcome));
    }
    if rows.len() == 1 {
        return String::new();
    }
    let mut out = String::from("\n");
    out += &aligned(&rows, &[0, 1, 2]);
    out += "read/op: bytes from the device per operation of the row; calls/op: bytes that read calls returned; written/op: \
            bytes to the device per put, background work included\n\n";
    out += &aligned(&steadiness, &[0, 1, 2, 10]);
    out += "below 1/3: seconds with less than a third of the median second; raw: keys and values of the puts; written: all \
            bytes to the device, background work included; tables: those of flushes and merges\n";
    for outcome in &results.outcomes {
        if let Some(failure) = outcome.device.as_ref().and_then(|device| device.failure.as_ref()) {
            let _ =
                writeln!(out, "{}: the limit of the device was not measured: {failure}", outcome.spec.name);
        }
    }
    let tables = [
        queue::rows(results),
        families::rows(results),
        churn::rows(lines),
        overload::rows(lines),
        probes::rows(lines),
        motion::rows(results),
    ];
    for rows in tables.into_iter().flatten() {
        let _ = write!(out, "\n{}", aligned(&rows, &[0, 1]));
    }
    let all = targets(lines);
    if all.is_empty() {
        out += "\ntargets: no rival was measured\n";
    }
    for (rival, targets) in all {
        let head = ["target", OURS, &rival, "ratio", "wanted", "verdict"].map(str::to_owned).to_vec();
        let row = |t: Target| {
            let verdict = t.verdict().to_owned();
            vec![t.what, t.ours, t.rival, t.stands, t.wanted, verdict]
        };
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(targets.into_iter().map(row)).collect();
        let _ = write!(out, "\n{}", aligned(&rows, &[0, 5]));
    }
    out
}

fn cells(line: &Line, outcome: &Outcome) -> Vec<String> {
    let mib = |n: u64| format!("{:.0}", n as f64 / f64::from(1 << 20));
    let most = |pick: fn(&Second) -> u64| outcome.timeline.iter().map(pick).max().unwrap_or(0);
    let (ops, puts) = (operations(outcome), puts(outcome));
    let per = |n: u64, by: u64| if by == 0 { String::new() } else { format!("{:.0}", n as f64 / by as f64) };
    let slowest = slowest_second(line);
    let micros = |n: f64| Unit::Micros.show(n).replace('\u{b5}', "u");
    vec![
        line.row.clone(),
        line.engine.clone(),
        line.operation.clone(),
        rate(line.rate.median),
        if line.max.is_there() { micros(line.max.median) } else { String::new() },
        slowest.map_or_else(String::new, |n| if n > 0.0 { rate(n) } else { "0".to_owned() }),
        per(outcome.usage.read, ops),
        per(outcome.usage.read_calls, ops),
        per(outcome.settled_written, puts),
        mib(outcome.peak_memory),
        mib(most(|s| s.charged.anonymous)),
        mib(most(|s| s.charged.cache)),
        format!("{} {}", mib(most(|s| s.files)), mib(outcome.db_bytes)),
        outcome.device.as_ref().filter(|d| d.rate > 0.0).map_or_else(String::new, |device| {
            format!("{} at depth {}, slowest {}", rate(device.rate), device.depth, micros(device.max))
        }),
    ]
}

/// Returns the rivals of a suite with targets, each with all targets; empty for other suites.
pub fn targets(lines: &[Line]) -> Vec<(String, Vec<Target>)> {
    let mut rivals: Vec<&str> = lines.iter().map(|l| l.engine.as_str()).collect();
    rivals.retain(|name| ![OURS, YARDSTICK].contains(name));
    rivals.sort_unstable();
    rivals.dedup();
    let of = |rival: &str| {
        let mut all = targets::targets(lines, rival);
        all.extend(steady::targets(lines, rival));
        all.extend(probes::targets(lines, rival));
        all.extend(motion::targets(lines, rival));
        all.extend(churn::targets(lines, rival));
        all.extend(overload::targets(lines, rival));
        all.extend(values::targets(lines, rival));
        (!all.is_empty()).then(|| (rival.to_owned(), all))
    };
    rivals.into_iter().filter_map(of).collect()
}

/// Returns the number of operations of the row, over all kinds.
fn operations(outcome: &Outcome) -> u64 {
    outcome.phases.iter().map(|p| p.ops).sum()
}

fn puts(outcome: &Outcome) -> u64 {
    outcome.phases.iter().filter(|p| is_write(&p.operation)).map(|p| p.ops).sum()
}

/// Minimum length in seconds of a timeline line for the slowest second.
const LONG_ENOUGH: f64 = 0.5;

/// Returns the lowest rate in a timeline line that is long enough.
fn slowest_second(line: &Line) -> Option<f64> {
    let seconds = line.seconds_of_operation();
    let long = seconds.iter().filter(|s| s.length >= LONG_ENOUGH);
    let run = long.filter(|s| s.part == Part::Run);
    run.filter_map(|s| s.rate(&line.operation)).reduce(f64::min)
}

/// Column names of [`seconds_csv`].
pub const SECONDS: [&str; 27] = [
    "engine",
    "row",
    "repetition",
    "at_sec",
    "length_sec",
    "part",
    "puts",
    "reads",
    "slowest_put_us",
    "slowest_read_us",
    "puts_per_sec",
    "reads_per_sec",
    "device_read_bytes",
    "call_read_bytes",
    "device_written_bytes",
    "device_read_per_op",
    "call_read_per_op",
    "device_written_per_op",
    "rss_bytes",
    "group_anon_bytes",
    "group_cache_bytes",
    "file_bytes",
    "allocated_bytes",
    "live_bytes",
    "debt_bytes",
    "busy",
    "stalls",
];

/// Formats the timelines as comma-separated values; puts are all operations that write, reads are all others.
///
/// # Errors
/// Returns an error if the writer fails, which does not happen in memory.
pub fn seconds_csv(results: &Results) -> Result<String, String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(SECONDS).map_err(|e| e.to_string())?;
    for outcome in &results.outcomes {
        for second in &outcome.timeline {
            writer.write_record(record(outcome, second)).map_err(|e| e.to_string())?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

fn record(outcome: &Outcome, second: &Second) -> Vec<String> {
    let (puts, reads): (Vec<&Beat>, Vec<&Beat>) = second.beats.iter().partition(|b| is_write(&b.operation));
    let count = |beats: &[&Beat]| beats.iter().map(|b| b.ops).sum::<u64>();
    let slowest = |beats: &[&Beat]| beats.iter().map(|b| b.slowest).fold(0.0, f64::max);
    let (put, read) = (count(&puts), count(&reads));
    let rate = |n: u64| if second.length > 0.0 { n as f64 / second.length } else { 0.0 };
    let per = |n: u64| match second.ops() {
        0 => String::new(),
        ops => format!("{:.1}", n as f64 / ops as f64),
    };
    let mut out = vec![outcome.engine.clone(), outcome.spec.name.clone(), outcome.repetition.to_string()];
    out.extend([second.at, second.length].map(|n| format!("{n:.3}")));
    out.push(second.part.name().to_owned());
    out.extend([put, read].map(|n| n.to_string()));
    out.extend([slowest(&puts), slowest(&reads)].map(|n| format!("{n:.1}")));
    out.extend([rate(put), rate(read)].map(|n| format!("{n:.0}")));
    let bytes = [second.read, second.read_calls, second.written];
    out.extend(bytes.map(|n| n.to_string()));
    out.extend(bytes.map(per));
    let space = [second.files, second.allocated, second.live];
    let memory = [second.resident, second.charged.anonymous, second.charged.cache];
    out.extend(memory.map(|n| n.to_string()));
    out.extend(space.map(|n| n.to_string()));
    out.extend([second.debt, second.busy].map(|n| n.to_string()));
    let stalls: Vec<String> =
        second.stalls.iter().map(|s| steady::stall(&s.cause, s.count, s.seconds)).collect();
    out.push(stalls.join(", "));
    out
}
