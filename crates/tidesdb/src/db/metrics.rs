//! Statistics as text for monitors: OpenMetrics 1.0.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Db, WriterState};
use crate::engine::Stats;
use crate::health::{HealthReport, HealthState};
use crate::stats::{Durations, StatInfo, StatKind, StatUnit, StatValue};
use crate::waits::StallCause;

impl Db {
    /// Returns the statistics and the health of the database in the format OpenMetrics 1.0, which Prometheus and others read. The content
    /// type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// All names begin with `tidesdb_` and follow from the names of the figures: those of [`Stats`]; `tidesdb_family_` and
    /// [`FamilyStats`](crate::FamilyStats) with a label `family`; `tidesdb_tree_` and [`TreeStats`](crate::TreeStats);
    /// `tidesdb_level_` and [`LevelStats`](crate::LevelStats) with labels `family` and `level`; `tidesdb_stall_` with a label `cause`.
    ///
    /// `tidesdb_sync_duration_seconds` and the same of `flush` and `merge` are histograms of all durations. Those of `get`, `multi_get`, `seek`,
    /// `put` and `commit` are histograms of a random sample: `_count` and `_sum` are those of the sample, and the `HELP` line has its rate.
    pub fn metrics_text(&self) -> String {
        text(&self.stats(), &self.health(), None)
    }
}

/// Labels of a sample, such as `family="default"`, and the figures of one source.
type Row = (String, Vec<(&'static StatInfo, StatValue)>);

/// The text; for figures of another process with what is known of it, and their age.
pub(super) fn text(stats: &Stats, health: &HealthReport, writer: Option<(WriterState, Duration)>) -> String {
    let mut out = String::with_capacity(16 << 10);
    out.push_str("# TYPE tidesdb_health stateset\n# HELP tidesdb_health Health of the database.\n");
    for state in [HealthState::Healthy, HealthState::Degraded, HealthState::Poisoned] {
        let is_so = u8::from(health.state == state);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "tidesdb_health{{tidesdb_health=\"{}\"}} {is_so}", state.name());
    }
    if let Some((state, age)) = writer {
        out.push_str("# TYPE tidesdb_writer stateset\n# HELP tidesdb_writer What is known of the process that writes.\n");
        for other in WriterState::ALL {
            let is_so = u8::from(other == state);
            let _ = writeln!(out, "tidesdb_writer{{tidesdb_writer=\"{}\"}} {is_so}", other.name());
        }
        out.push_str(
            "# TYPE tidesdb_figures_age_seconds gauge\n# UNIT tidesdb_figures_age_seconds seconds\n",
        );
        out.push_str("# HELP tidesdb_figures_age_seconds Time since the process that writes published these figures.\n");
        sample(&mut out, "tidesdb_figures_age_seconds", "", "", age.as_secs_f64());
    }
    table(&mut out, "", &[(String::new(), stats.figures().collect())]);
    let of_operations = [
        ("get", &stats.gets),
        ("multi_get", &stats.multi_gets),
        ("seek", &stats.seeks),
        ("put", &stats.puts),
        ("commit", &stats.commits),
    ];
    let of_work = [("sync", &stats.syncs), ("flush", &stats.flushes), ("merge", &stats.merges)];
    for (name, times) in of_operations.into_iter().chain(of_work) {
        histogram(
            &mut out,
            &format!("tidesdb_{name}_duration_seconds"),
            &[(String::new(), &times.durations)],
        );
        let percentiles = times
            .figures()
            .filter(|(info, _)| info.kind == StatKind::Gauge && info.unit == StatUnit::Seconds);
        table(&mut out, &format!("{name}_"), &[(String::new(), percentiles.collect())]);
    }
    let stalls = stats.stalls_by_cause();
    let cause = |cause: StallCause| label("cause", cause.name());
    table(&mut out, "stall_", &stalls.each_ref().map(|(by, stall)| (cause(*by), stall.figures().collect())));
    histogram(&mut out, "tidesdb_stall_delay_seconds", &stalls.map(|(by, stall)| (cause(by), &stall.delays)));
    if let Some(remote) = &stats.remote {
        table(&mut out, "remote_", &[(String::new(), remote.figures().collect())]);
    }
    let families = stats.families.iter().map(|f| (label("family", &f.name), f.figures().collect()));
    table(&mut out, "family_", &families.collect::<Vec<Row>>());
    let trees = stats.trees.iter().map(|tree| (label("family", &tree.family), tree.figures().collect()));
    table(&mut out, "tree_", &trees.collect::<Vec<Row>>());
    let levels = stats.trees.iter().flat_map(|tree| {
        let labels = |level: usize| format!("{},level=\"{level}\"", label("family", &tree.family));
        tree.levels.iter().map(move |level| (labels(level.level), level.figures().collect()))
    });
    table(&mut out, "level_", &levels.collect::<Vec<Row>>());
    out.push_str("# EOF\n");
    out
}

/// Appends each figure of `rows`, which all come from the same table.
fn table(out: &mut String, prefix: &str, rows: &[Row]) {
    let Some((_, first)) = rows.first() else { return };
    for (at, (info, _)) in first.iter().enumerate() {
        let name = name(prefix, info);
        header(out, &name, info);
        let suffix = if info.kind == StatKind::Counter { "_total" } else { "" };
        for (labels, figures) in rows {
            match &figures[at].1 {
                StatValue::Number(n) => sample(out, &name, suffix, labels, n),
                StatValue::Real(x) => sample(out, &name, suffix, labels, x),
                StatValue::Levels(levels) => {
                    for (n, level) in levels.iter().zip(1..) {
                        sample(out, &name, suffix, &format!("{labels},level=\"{level}\""), n);
                    }
                }
            }
        }
    }
}

/// The name of a metric ends with its unit.
fn name(prefix: &str, info: &StatInfo) -> String {
    match unit(info) {
        Some(unit) if !info.name.ends_with(unit) => format!("tidesdb_{prefix}{}_{unit}", info.name),
        _ => format!("tidesdb_{prefix}{}", info.name),
    }
}

fn unit(info: &StatInfo) -> Option<&'static str> {
    match info.unit {
        StatUnit::Bytes => Some("bytes"),
        StatUnit::Seconds => Some("seconds"),
        StatUnit::Share | StatUnit::Ratio => Some("ratio"),
        StatUnit::Count => None,
    }
}

fn header(out: &mut String, name: &str, info: &StatInfo) {
    let kind = if info.kind == StatKind::Counter { "counter" } else { "gauge" };
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let Some(unit) = unit(info) {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {}", escaped(info.help));
}

fn sample(out: &mut String, name: &str, suffix: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = match labels {
        "" => writeln!(out, "{name}{suffix} {value}"),
        labels => writeln!(out, "{name}{suffix}{{{}}} {value}", labels.trim_start_matches(',')),
    };
}

/// Powers of two that bound the buckets of histograms, in nanoseconds: from 256 ns to 69 s. All are written, empty ones too: a monitor
/// computes rates of buckets, and a bucket that appears later would have lost its first counts.
const BOUNDS: RangeInclusive<u32> = 8..=36;

/// Appends a histogram of each of `rows`.
fn histogram(out: &mut String, name: &str, rows: &[(String, &Durations)]) {
    let help = match rows.first().map_or(0, |(_, durations)| durations.sampled_one_in()) {
        0 => "Durations.".to_owned(),
        n => format!("Durations of a random sample: one in {n}."),
    };
    let _ = writeln!(out, "# TYPE {name} histogram\n# UNIT {name} seconds\n# HELP {name} {help}");
    for (labels, durations) in rows {
        let (mut sum, mut counts) = (0, durations.buckets().peekable());
        for bound in BOUNDS.map(|n| Duration::from_nanos(1 << n)) {
            while let Some((_, n)) = counts.next_if(|(reached, _)| *reached <= bound) {
                sum += n;
            }
            let le = format!("{labels},le=\"{}\"", bound.as_secs_f64());
            sample(out, name, "_bucket", &le, sum);
        }
        sample(out, name, "_bucket", &format!("{labels},le=\"+Inf\""), durations.count());
        sample(out, name, "_count", labels, durations.count());
        sample(out, name, "_sum", labels, durations.sum().as_secs_f64());
    }
}

fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", escaped(value))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
