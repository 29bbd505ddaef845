//! What the page says, without its form: [`Report::data`](super::Report) as JSON. Numbers that are not drawn are texts already.

use serde_json::{Value, json};
use tidesdb::inspect::Layout;
use tidesdb::{FamilyStats, History, JobStats, LevelStats, StatUnit, StatValue, Stats};

use super::{Known, Whose, keys, past, shown_key};
use crate::commands::doctor::finding_json;
use crate::commands::stats::source;
use crate::format::millis_of;
use crate::output::figures_json;
use crate::text::{count, grouped, size, time};

/// Families in the table: those with the most bytes.
pub(super) const FAMILIES_MAX: usize = 200;
/// Families with a picture of their tree: those with the most bytes.
pub(super) const TREES_MAX: usize = 20;
/// Running jobs that are listed.
const JOBS_MAX: usize = 50;

/// What memory is used for: figures of the database, and names. Together they are what the limit counts.
pub(super) const MEMORY: [(&str, &str); 7] = [
    ("memory_tables_bytes", "block cache and tables"),
    ("memory_memtables_bytes", "memtables"),
    ("memory_jobs_bytes", "flushes and merges"),
    ("memory_transactions_bytes", "transactions"),
    ("memory_cursors_bytes", "cursors"),
    ("memory_ranges_bytes", "range deletes"),
    ("memory_fixed_bytes", "fixed parts"),
];

/// Returns everything that the page shows.
pub(super) fn of(known: &Known<'_>) -> Value {
    let stats = known.whose.stats();
    json!({
        "made": known.made,
        "version": env!("CARGO_PKG_VERSION"),
        "path": known.path.display().to_string(),
        "source": whose(known),
        "tiles": stats.map(|stats| tiles(stats, known)),
        "findings": known.findings.as_ref().map(|found| found.iter().map(finding_json).collect::<Vec<_>>()),
        "history": history(known),
        "memory": stats.map(memory),
        "jobs": stats.map(jobs),
        "operations": stats.map(operations),
        "waits": stats.map(waits),
        "trees": trees(known),
        "families": families(known),
        "figures": stats.map(all_figures),
    })
}

/// Whose figures the page shows, and of when: the first lines of the page.
fn whose(known: &Known<'_>) -> Value {
    let mut lines = Vec::new();
    let written = match &known.whose {
        Whose::Writer(writer) => {
            lines.push(source(writer));
            lines.push(format!("it was {}", writer.health));
            if writer.families_left_out > 0 {
                lines.push(format!(
                    "{} families that wrote less are left out of its figures",
                    grouped(writer.families_left_out)
                ));
            }
            if !writer.unknown.is_empty() {
                lines.push(format!(
                    "its version {} does not publish: {}",
                    writer.version,
                    writer.unknown.join(", ")
                ));
            }
            Some(millis_of(writer.written))
        }
        Whose::Own { health, .. } => {
            lines.push(
                "figures of this command, which opened the database for reading: counters start at zero"
                    .to_owned(),
            );
            lines.push(format!("no process writes it; it is {health}"));
            Some(known.made)
        }
        Whose::Nobody { why } => {
            lines.push(format!("no figures: {why}"));
            None
        }
    };
    let state = match &known.whose {
        Whose::Writer(writer) => writer.state.name(),
        Whose::Own { .. } => "own",
        Whose::Nobody { .. } => "none",
    };
    let written = written.filter(|millis| *millis <= past::MILLIS_MAX);
    json!({ "state": state, "lines": lines, "written": written })
}

/// The figures that are looked at first.
fn tiles(stats: &Stats, known: &Known<'_>) -> Vec<Value> {
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let tables = sum(&mut known.layouts.iter().map(|layout| layout.tree.bytes));
    let values = sum(&mut stats.families.iter().map(|family| family.value_log_file_bytes));
    let debt = sum(&mut known.layouts.iter().map(|layout| layout.tree.debt_bytes));
    // A writer with many families does not publish all of them.
    let disk = sampled_disk(known).unwrap_or(sum(&mut [tables, values, stats.wal_live_bytes].into_iter()));
    let number: usize = known.layouts.iter().map(|layout| layout.tables.len()).sum();
    let used = used_memory(stats);
    let share = used as f64 / stats.memory_limit_bytes.max(1) as f64 * 100.0;
    let stalled = stats.stall_time().as_secs_f64();
    let hits = match stats.cache_hits.saturating_add(stats.cache_misses) {
        0 => "no lookup".to_owned(),
        _ => format!("{:.1} %", stats.cache_hit_share * 100.0),
    };
    let written = stats.families.iter().any(|family| family.user_bytes > 0);
    let tile = |name: &str, value: String, about: String| json!([name, value, about]);
    let in_tables = format!("{} in {}", size(tables), count(number as u64, "table", "tables"));
    vec![
        tile("On disk", size(disk), in_tables),
        tile(
            "Memory",
            format!("{share:.0} %"),
            format!("{} of {}", size(used), size(stats.memory_limit_bytes)),
        ),
        tile("Writers waited", time(stalled), "since the open, all threads together".to_owned()),
        tile("To merge", size(debt), "above the capacity of levels".to_owned()),
        tile("Cache hits", hits, format!("{} held", size(stats.cache_bytes))),
        tile(
            "Write amplification",
            if written { format!("{:.1}", stats.write_amplification) } else { "none yet".to_owned() },
            "bytes written for each byte of users".to_owned(),
        ),
    ]
}

/// What a process that writes has on the disk, as it recorded it last.
fn sampled_disk(known: &Known<'_>) -> Option<u64> {
    let (Whose::Writer(_), Ok([seconds, _])) = (&known.whose, &known.history) else { return None };
    let (_, bytes) = seconds.series("disk_bytes").pop()?;
    u64::try_from(bytes).ok()
}

fn history(known: &Known<'_>) -> Value {
    match &known.history {
        Ok([seconds, minutes]) => {
            let lines = |history: &History, scope| past::lines(history, scope, known.whose.stats());
            json!({ "hour": lines(seconds, past::HOUR), "day": lines(minutes, past::DAY) })
        }
        Err(error) => json!({ "error": error }),
    }
}

fn used_memory(stats: &Stats) -> u64 {
    MEMORY.iter().map(|(name, _)| number(stats, name)).fold(0, u64::saturating_add)
}

/// The figure `name` of the database.
fn number(stats: &Stats, name: &str) -> u64 {
    let found = stats.figures().find(|(info, _)| info.name == name);
    match found {
        Some((_, StatValue::Number(n))) => n,
        _ => 0,
    }
}

fn memory(stats: &Stats) -> Value {
    let kinds = MEMORY.map(|(figure, name)| {
        let bytes = number(stats, figure);
        json!({ "figure": figure, "name": name, "bytes": bytes, "size": size(bytes) })
    });
    let pressure = ["normal", "elevated", "high", "critical"];
    let level = usize::try_from(stats.memory_pressure).ok().and_then(|level| pressure.get(level));
    let mut about = format!(
        "{} of {}; pressure: {}.",
        size(used_memory(stats)),
        size(stats.memory_limit_bytes),
        level.unwrap_or(&"unknown")
    );
    if stats.memory_allocator_bytes > 0 {
        about += &format!(" Not counted: {} that the allocator keeps.", size(stats.memory_allocator_bytes));
    }
    json!({ "limit": stats.memory_limit_bytes, "kinds": kinds, "about": about })
}

fn jobs(stats: &Stats) -> Value {
    let job = |job: &JobStats| {
        let merge = if job.kind == "flush" || job.kind == "merge" { "" } else { " merge" };
        let share = job.bytes_done as f64 / job.bytes.max(1) as f64;
        let speed = job.bytes_done as f64 / job.time.as_secs_f64().max(1e-3);
        json!({
            "what": format!("{}{merge} into level {}", job.kind, job.target),
            "family": job.family,
            "share": (share * 100.0).clamp(0.0, 100.0).round(),
            "about": format!(
                "{} of {}, {} so far, {}/s",
                size(job.bytes_done),
                size(job.bytes),
                time(job.time.as_secs_f64()),
                size(speed as u64)
            ),
        })
    };
    let listed: Vec<Value> = stats.jobs.iter().take(JOBS_MAX).map(job).collect();
    let pending = stats.jobs_pending.saturating_sub(stats.jobs.len());
    json!({ "running": listed, "left_out": stats.jobs.len().saturating_sub(JOBS_MAX), "pending": pending })
}

fn operations(stats: &Stats) -> Value {
    let row = |(work, times): (&str, &tidesdb::TimeStats)| {
        let sampled = times.sampled_one_in.max(1);
        let [p50, p99, p999, longest] =
            [times.p50, times.p99, times.p999, times.longest].map(|t| time(t.as_secs_f64()));
        let how = if sampled == 1 { "all".to_owned() } else { format!("one in {sampled}") };
        json!([work.replace('_', " "), grouped(times.estimate()), p50, p99, p999, longest, how])
    };
    let rows = stats.times().into_iter().filter(|(_, times)| times.count > 0).map(row);
    json!({
        "columns": ["", "number", "p50", "p99", "p99.9", "longest", "measured"],
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn waits(stats: &Stats) -> Value {
    let row = |(cause, stall): (tidesdb::StallCause, &tidesdb::StallStats)| {
        json!([
            cause.name(),
            time(stall.time.as_secs_f64()),
            time(stall.longest.as_secs_f64()),
            grouped(stall.slowed),
            grouped(stall.stopped),
            grouped(stall.gave_up),
            grouped(stall.delayed_now),
        ])
    };
    let waited = stats.stalls_by_cause().into_iter().filter(|(_, s)| !s.time.is_zero() || s.delayed_now > 0);
    json!({
        "columns": ["cause", "time", "longest", "slowed", "stopped", "gave up", "now"],
        "rows": waited.map(row).collect::<Vec<_>>(),
    })
}

/// The layouts of the families that are shown, those with the most bytes first.
fn by_size<'a>(known: &'a Known<'_>) -> Vec<&'a Layout> {
    let is_shown = |layout: &&Layout| known.family.as_ref().is_none_or(|name| layout.tree.family == *name);
    let mut layouts: Vec<&Layout> = known.layouts.iter().filter(is_shown).collect();
    layouts.sort_by(|a, b| (b.tree.bytes, &a.tree.family).cmp(&(a.tree.bytes, &b.tree.family)));
    layouts
}

fn trees(known: &Known<'_>) -> Value {
    let layouts = by_size(known);
    let drawn = layouts.iter().take(TREES_MAX).map(|layout| tree(layout, known.with_keys));
    json!({ "trees": drawn.collect::<Vec<_>>(), "left_out": layouts.len().saturating_sub(TREES_MAX) })
}

fn tree(layout: &Layout, with_keys: bool) -> Value {
    let tree = &layout.tree;
    let partitions = match tree.partitions {
        0 => String::new(),
        n => format!(", {}", count(n as u64, "partition", "partitions")),
    };
    let about = format!(
        "{}, {}, {}{partitions}, {} to merge; keys in the order {}",
        count(tree.levels.len() as u64, "level", "levels"),
        count(tree.tables as u64, "table", "tables"),
        size(tree.bytes),
        size(tree.debt_bytes),
        tree.order,
    );
    let note =
        "this order is not known here: keys and runs are those in byte order, and partitions are not known";
    let level = |level: &LevelStats| of_level(level, layout, with_keys);
    json!({
        "family": tree.family,
        "size": size(tree.bytes),
        "about": about,
        "note": (!tree.order_is_known).then_some(note),
        "levels": tree.levels.iter().map(level).collect::<Vec<_>>(),
        "picture": keys::picture(layout, with_keys),
    })
}

fn of_level(level: &LevelStats, layout: &Layout, with_keys: bool) -> Value {
    let deleted = level.tombstones as f64 / level.entries.max(1) as f64 * 100.0;
    let role = match level.level {
        n if n == layout.tree.largest_level => "largest",
        n if n == layout.tree.tiered_level => "tiered",
        _ => "",
    };
    let keys = (with_keys && level.tables > 0)
        .then(|| format!("{} .. {}", shown_key(&level.first_key), shown_key(&level.last_key)));
    json!({
        "level": level.level,
        "role": role,
        "fill": (level.fill * 1000.0).min(1e6).round() / 10.0,
        "bytes": size(level.bytes),
        "capacity": size(level.capacity_bytes),
        "tables": (level.tables > 0).then(|| {
            format!("{}, {}", count(level.runs as u64, "run", "runs"), count(level.tables as u64, "table", "tables"))
        }),
        "entries": format!("{}, {deleted:.1} % deleted", count(level.entries, "entry", "entries")),
        "keys": keys,
    })
}

fn families(known: &Known<'_>) -> Value {
    let layouts = by_size(known);
    let stats = known.whose.stats();
    let row = |layout: &&Layout| {
        let tree = &layout.tree;
        let figures = stats.and_then(|stats| stats.families.iter().find(|f| f.name == tree.family));
        let figure = |of: fn(&FamilyStats) -> String| figures.map_or_else(|| "?".to_owned(), of);
        let (entries, tombstones) = tree.levels.iter().fold((0u64, 0u64), |sum, level| {
            (sum.0.saturating_add(level.entries), sum.1.saturating_add(level.tombstones))
        });
        json!([
            tree.family,
            size(tree.bytes),
            grouped(tree.levels.len() as u64),
            grouped(tree.tables as u64),
            grouped(entries),
            format!("{:.1} %", tombstones as f64 / entries.max(1) as f64 * 100.0),
            size(tree.debt_bytes),
            figure(|f| size(f.memtable_bytes)),
            figure(|f| size(f.value_log_file_bytes)),
            figure(|f| size(f.user_bytes)),
            figure(|f| format!("{:.1}", f.write_amplification)),
        ])
    };
    let rows: Vec<Value> = layouts.iter().take(FAMILIES_MAX).map(row).collect();
    let rest = layouts.iter().skip(FAMILIES_MAX).map(|layout| layout.tree.bytes).fold(0, u64::saturating_add);
    json!({
        "columns": ["family", "in tables", "levels", "tables", "entries", "deleted", "to merge", "memtables", "value logs",
            "written by users", "write ampl."],
        "rows": rows,
        "left_out": layouts.len().saturating_sub(FAMILIES_MAX),
        "left_out_bytes": size(rest),
    })
}

/// Every figure of the database that is not 0, with its description.
fn all_figures(stats: &Stats) -> Value {
    let shown = |(info, value): (&'static tidesdb::StatInfo, StatValue)| {
        let text = match value {
            StatValue::Number(0) => return None,
            StatValue::Real(x) if x <= 0.0 => return None,
            StatValue::Number(n) if info.unit == StatUnit::Bytes => size(n),
            StatValue::Number(n) => grouped(n),
            StatValue::Real(x) if info.unit == StatUnit::Seconds => time(x),
            StatValue::Real(x) => format!("{x:.3}"),
            _ => figures_json(std::iter::once((info, value))).get(info.name)?.to_string(),
        };
        Some(json!([info.name.replace('_', " "), text, info.help]))
    };
    let rows: Vec<Value> = stats.figures().filter_map(shown).collect();
    json!({ "columns": ["figure", "value", "what it is"], "rows": rows })
}
