//! The figures of one moment for the history: of the database, and of the families that write most.

use std::collections::HashMap;

use super::stats::Stats;
use crate::family::FamilyStats;
use crate::health::HealthReport;
use crate::order;
use crate::stats::{Durations, StatUnit, StatValue};

/// Families of a sample.
const FAMILIES_MAX: usize = 10;
/// Their figures.
const OF_FAMILY: [&str; 8] = [
    "user_bytes",
    "memtable_bytes",
    "table_entries",
    "tombstones",
    "flush_bytes",
    "compaction_written",
    "value_log_written",
    "value_log_file_bytes",
];

/// What the last sample saw: the next one has the durations since.
#[derive(Debug, Default)]
pub(super) struct Before {
    times: HashMap<&'static str, Durations>,
    written: HashMap<String, u64>,
}

/// A figure of the history as a whole number: seconds in nanoseconds, shares and ratios in thousandths.
fn whole(unit: StatUnit, value: &StatValue) -> Option<i64> {
    Some(match (value, unit) {
        (StatValue::Number(n), _) => n.cast_signed(),
        (StatValue::Real(x), StatUnit::Seconds) => (x * 1e9) as i64,
        (StatValue::Real(x), _) => (x * 1e3) as i64,
        (StatValue::Levels(_), _) => return None,
    })
}

impl Before {
    /// Returns the figures of `stats` with their names. Percentiles are those since the last call.
    pub(super) fn next(&mut self, stats: &Stats, health: &HealthReport) -> Vec<(String, i64)> {
        let mut out = vec![("health".to_owned(), health.state as i64)];
        for (info, value) in stats.figures() {
            out.extend(whole(info.unit, &value).map(|n| (info.name.to_owned(), n)));
        }
        let of_family =
            |family: &FamilyStats| family.level_bytes.iter().sum::<u64>() + family.value_log_file_bytes;
        let disk = stats.families.iter().map(of_family).sum::<u64>() + stats.wal_live_bytes;
        out.push(("disk_bytes".to_owned(), disk.cast_signed()));
        let sum = |of: fn(&FamilyStats) -> u64| {
            stats.families.iter().map(of).fold(0, u64::saturating_add).cast_signed()
        };
        out.push(("user_bytes".to_owned(), sum(|family| family.user_bytes)));
        out.push(("older_versions".to_owned(), sum(|family| family.older_versions)));
        out.push(("entries_written".to_owned(), sum(|family| family.entries_written)));
        for (work, times) in stats.times() {
            let now = &times.durations;
            let before = self.times.entry(work).or_default();
            let recent = now.since(before);
            *before = now.clone();
            let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            out.push((format!("{work}.count"), now.count().cast_signed()));
            for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("longest", 1.0)] {
                out.push((format!("{work}.{name}"), nanos(recent.percentile(share))));
            }
        }
        for (cause, stall) in stats.stalls_by_cause() {
            let wanted = stall
                .figures()
                .filter(|(info, _)| ["time", "stopped", "slowed", "gave_up"].contains(&info.name));
            let named = wanted.filter_map(|(info, value)| {
                Some((format!("stall.{}.{}", cause.name(), info.name), whole(info.unit, &value)?))
            });
            out.extend(named);
        }
        let (flushes, merges): (Vec<_>, Vec<_>) = stats.jobs.iter().partition(|job| job.kind == "flush");
        out.push(("jobs.flushes".to_owned(), flushes.len() as i64));
        out.push(("jobs.merges".to_owned(), merges.len() as i64));
        self.add_families(stats, &mut out);
        out
    }

    fn add_families(&mut self, stats: &Stats, out: &mut Vec<(String, i64)>) {
        let wrote = |family: &FamilyStats| {
            family.user_bytes.saturating_sub(self.written.get(&family.name).copied().unwrap_or(0))
        };
        let mut busiest: Vec<_> =
            stats.families.iter().map(|family| (wrote(family), family.user_bytes, family)).collect();
        order::sort_by_key(&mut busiest, |(recent, all, _)| std::cmp::Reverse((*recent, *all)));
        busiest.truncate(FAMILIES_MAX);
        for (.., family) in &busiest {
            for (info, value) in family.figures().filter(|(info, _)| OF_FAMILY.contains(&info.name)) {
                out.extend(
                    whole(info.unit, &value).map(|n| (format!("family.{}.{}", family.name, info.name), n)),
                );
            }
        }
        self.written = stats.families.iter().map(|family| (family.name.clone(), family.user_bytes)).collect();
    }
}
