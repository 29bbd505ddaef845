//! The table for the terminal: one line per row, kind of operation and engine, medians with ranges. The line of each
//! rival shows how many times faster this engine is. The geometric means are at the end.

use std::fmt::Write;

use crate::run::Results;
use crate::spec::Durability;

use super::lines::{Line, OURS, Spread};
use super::score::Score;
use super::words::{counted, figure};

const HEAD: [&str; 13] = [
    "row",
    "engine",
    "operation",
    "ops/s",
    "range",
    "ratio",
    "",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "CPU s/M",
    "RSS MiB",
    "conflicts",
];
/// Columns used only by rivals.
const RATIO: std::ops::Range<usize> = 5..7;
/// Left-aligned columns.
const LEFT: [usize; 4] = [0, 1, 2, RATIO.start + 1];

/// Returns the table of all lines.
pub(super) fn lines_table(results: &Results, all: &[Line]) -> String {
    let score = Score::of(all);
    let mut rows: Vec<Vec<String>> = vec![HEAD.map(str::to_owned).to_vec()];
    let mut failures = String::new();
    for line in all {
        match &line.failure {
            Some(failure) => {
                let _ = writeln!(failures, "FAILED {} on {}: {failure}", line.row, line.engine);
                let mut cells = vec![line.row.clone(), line.engine.clone(), "FAILED".to_owned()];
                cells.resize(HEAD.len(), String::new());
                rows.push(cells);
            }
            None if line.absent.is_some() => {
                let mut cells = vec![line.row.clone(), line.engine.clone(), "not offered".to_owned()];
                cells.resize(HEAD.len(), String::new());
                rows.push(cells);
            }
            None => rows.push(cells(line, &score)),
        }
    }
    if all.iter().all(|line| line.conflicts.is_none()) {
        rows.iter_mut().for_each(|row| row.truncate(HEAD.len() - 1));
    }
    if score.rivals.is_empty() {
        rows.iter_mut().for_each(|row| drop(row.drain(RATIO)));
    }
    let left = if score.rivals.is_empty() { &LEFT[..3] } else { &LEFT };
    header(results) + &aligned(&rows, left) + &failures + &means(&score)
}

/// Formats cells in columns, each as wide as its widest cell; `left` are the left-aligned columns.
pub(super) fn aligned(rows: &[Vec<String>], left: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    }
    let mut out = String::new();
    for row in rows {
        let mut text = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match left.contains(&i) {
                true => write!(text, "{cell:<width$}  "),
                false => write!(text, "{cell:>width$}  "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
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

fn cells(line: &Line, score: &Score) -> Vec<String> {
    let micros = |s: &Spread| if s.high > 0.0 { figure(s.median) } else { String::new() };
    let duel = score.duel(&line.row, &line.operation, &line.engine);
    vec![
        line.row.clone(),
        line.engine.clone(),
        line.operation.clone(),
        rate(line.rate.median),
        if line.rate.low == line.rate.high {
            String::new()
        } else {
            format!("{}..{}", rate(line.rate.low), rate(line.rate.high))
        },
        duel.map_or_else(String::new, |d| format!("{}x", figure(d.ratio.value))),
        duel.map_or_else(String::new, |d| d.ratio.mark.word().to_owned()),
        micros(&line.p50),
        micros(&line.p99),
        micros(&line.p999),
        format!("{:.2}", line.processor.median),
        format!("{:.0}", line.memory.median / f64::from(1 << 20)),
        line.conflicts.map_or_else(String::new, |s| format!("{} %", figure(s.median))),
    ]
}

/// Returns the description of a durability class.
pub(crate) fn class_words(class: Durability) -> &'static str {
    match class {
        Durability::None => "commits that may be lost with the process",
        Durability::Os => "commits that survive the death of the process",
        Durability::Device => "commits that survive the loss of power",
    }
}

/// Returns the geometric means for each class, rival and kind of operation, and the excluded comparisons.
fn means(score: &Score) -> String {
    let mut out = String::new();
    if score.rivals.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\nratio: how many times faster {OURS} is; tie: ranges overlap, or less than 3 %");
    for class in score.classes() {
        let _ = writeln!(out, "\nclass {}: {}", class.name(), class_words(class));
        let kinds = score.kinds(class);
        let mut rows = vec![["geometric mean", "wins", "ties", "losses", "all"].map(str::to_owned).to_vec()];
        rows[0].extend(kinds.iter().map(|kind| (*kind).to_owned()));
        for rival in score.rivals.iter().filter(|rival| score.against(class, rival).next().is_some()) {
            let tally = score.tally(class, rival);
            let times = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{}x", figure(n)));
            let mut row = vec![format!("{OURS} / {rival}")];
            row.extend([tally.wins, tally.ties, tally.losses].map(|n| n.to_string()));
            row.push(times(score.mean(class, rival)));
            row.extend(kinds.iter().map(|kind| times(score.mean_of(class, rival, kind))));
            rows.push(row);
        }
        out.push_str(&aligned(&rows, &[0]));
    }
    if !score.left_out.is_empty() {
        let _ = writeln!(out, "\n{} in no mean:", counted(score.left_out.len(), "comparison"));
        for left in &score.left_out {
            let _ = writeln!(out, "  {} against {}: {}", left.row, left.rival, left.reason);
        }
    }
    out
}

/// Formats a rate with three digits and a unit.
pub(crate) fn rate(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{} G", figure(n / 1e9)),
        n if n >= 1e6 => format!("{} M", figure(n / 1e6)),
        n if n >= 1e3 => format!("{} K", figure(n / 1e3)),
        0.0 => String::new(),
        n => figure(n),
    }
}
