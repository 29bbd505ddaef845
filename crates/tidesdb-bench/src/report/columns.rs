//! CSV for other programs: the columns of the reference tool first, in its order and units, then ours.
//!
//! One line per row, engine, repetition and kind of operation. A failed row is one line, with the reason and without
//! figures.

use crate::run::Results;
use crate::spec::{Durability, Workload};
use crate::stage::Outcome;
use crate::workload::Phase;

/// The columns.
pub const COLUMNS: [&str; 53] = [
    "engine",
    "test_name",
    "operation",
    "ops_per_sec",
    "duration_sec",
    "avg_latency_us",
    "stddev_us",
    "cv_percent",
    "p50_us",
    "p95_us",
    "p99_us",
    "min_us",
    "max_us",
    "peak_rss_mb",
    "peak_vms_mb",
    "disk_read_mb",
    "disk_write_mb",
    "cpu_user_sec",
    "cpu_sys_sec",
    "cpu_percent",
    "db_size_mb",
    "write_amp",
    "read_amp",
    "space_amp",
    "workload",
    "pattern",
    "threads",
    "num_operations",
    "batch_size",
    "key_size",
    "value_size",
    "range_size",
    "sync_enabled",
    "p999_us",
    "repetition",
    "failure",
    "durability",
    "cpu_sec_per_million",
    "write_amp_settled",
    "settle_sec",
    "open_sec",
    "close_sec",
    "stalls",
    "stall_sec",
    "answers_checked",
    "keys_at_end",
    "rate_limit",
    "seed",
    "isolation",
    "tx_ops",
    "contention",
    "conflicts",
    "conflict_percent",
];

const MB: f64 = 1_048_576.0;

/// Returns the results as comma-separated values.
///
/// # Errors
/// If the writer fails, which it does not for memory.
pub fn csv(results: &Results) -> Result<String, String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(|e| e.to_string())?;
    for outcome in &results.outcomes {
        let none = Phase::default();
        let phases = if outcome.failure.is_some() { std::slice::from_ref(&none) } else { &outcome.phases };
        for phase in phases {
            writer.write_record(line(outcome, phase)).map_err(|e| e.to_string())?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

fn line(outcome: &Outcome, phase: &Phase) -> Vec<String> {
    let mut line = Vec::with_capacity(COLUMNS.len());
    line.extend([outcome.engine.clone(), outcome.spec.name.clone(), phase.operation.clone()]);
    if outcome.failure.is_some() {
        line.resize(24, String::new());
    } else {
        measured(outcome, phase, &mut line);
    }
    settings(outcome, &mut line);
    ours(outcome, phase, &mut line);
    line
}

/// Appends the columns `ops_per_sec` to `space_amp`.
fn measured(outcome: &Outcome, phase: &Phase, line: &mut Vec<String>) {
    let three = |n: f64| format!("{n:.3}");
    let usage = &outcome.usage;
    line.extend([format!("{:.2}", phase.rate()), format!("{:.6}", phase.seconds)]);
    match &phase.latency {
        Some(l) => {
            line.extend([l.mean, l.deviation, l.variation, l.p50, l.p95, l.p99, l.min, l.max].map(three));
        }
        None => line.extend(std::iter::repeat_n(String::new(), 8)),
    }
    let bytes = [outcome.peak_memory, outcome.peak_addresses, usage.read, usage.written];
    line.extend(bytes.map(|n| three(n as f64 / MB)));
    let percent = 100.0 * (usage.user + usage.system) / outcome.wall.max(1e-9);
    line.extend([usage.user, usage.system, percent, outcome.db_bytes as f64 / MB].map(three));
    let payload = outcome.payload();
    line.push(ratio(usage.written, payload.written));
    line.push(ratio(usage.read, payload.read));
    line.push(ratio(outcome.db_bytes, outcome.keys * outcome.spec.entry_bytes()));
}

/// Appends the columns `workload` to `sync_enabled`.
fn settings(outcome: &Outcome, line: &mut Vec<String>) {
    let spec = &outcome.spec;
    line.extend([spec.workload.name().to_owned(), spec.pattern.name().to_owned()]);
    line.extend([spec.threads as u64, spec.ops, spec.batch].map(|n| n.to_string()));
    line.extend([spec.key_bytes as u64, spec.value_bytes as u64, spec.range].map(|n| n.to_string()));
    line.push(u8::from(spec.durability == Durability::Device).to_string());
}

/// Appends the columns that the reference tool does not have.
fn ours(outcome: &Outcome, phase: &Phase, line: &mut Vec<String>) {
    let spec = &outcome.spec;
    line.push(phase.latency.as_ref().map_or_else(String::new, |l| format!("{:.3}", l.p999)));
    line.push(outcome.repetition.to_string());
    line.push(outcome.failure.clone().unwrap_or_default());
    line.push(spec.durability.name().to_owned());
    line.push(format!("{:.4}", outcome.processor_per_million()));
    line.push(ratio(outcome.settled_written, outcome.payload().written));
    line.extend([outcome.settle, outcome.open, outcome.close].map(|n| format!("{n:.6}")));
    line.push(outcome.stats.stalls.to_string());
    line.push(format!("{:.6}", outcome.stats.stalled));
    line.extend([outcome.checked, outcome.keys].map(|n| n.to_string()));
    line.push(spec.rate.to_string());
    line.push(spec.seed.to_string());
    line.extend(transactions(outcome));
}

/// Returns the columns `isolation` to `conflict_percent`; empty for rows without transactions.
fn transactions(outcome: &Outcome) -> [String; 5] {
    let spec = &outcome.spec;
    let counters = (spec.workload == Workload::Transaction).then_some(spec);
    let text = |text: Option<String>| text.unwrap_or_default();
    [
        text(spec.level().map(|level| level.name().to_owned())),
        text(counters.map(|spec| spec.tx_ops.to_string())),
        text(counters.map(|spec| spec.contention.name().to_owned())),
        text(outcome.transacted.map(|t| t.conflicts.to_string())),
        text(outcome.transacted.map(|t| format!("{:.3}", t.conflict_rate()))),
    ]
}

/// Formats a ratio; empty if the divisor is 0.
fn ratio(n: u64, by: u64) -> String {
    if by == 0 { String::new() } else { format!("{:.4}", n as f64 / by as f64) }
}
