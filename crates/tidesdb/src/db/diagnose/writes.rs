//! Rules about writes.

use std::time::Duration;

use super::{Evidence, Finding, Severity, finding, share, size, time, worst};
use crate::family::FamilyStats;
use crate::waits::{StallCause, StallStats};

pub(super) fn refused(seen: &Evidence<'_>) -> Option<Finding> {
    let gave_up: Vec<_> =
        seen.stats.stalls_by_cause().into_iter().filter(|(_, stall)| stall.gave_up > 0).collect();
    (!gave_up.is_empty()).then_some(())?;
    let most = gave_up.iter().max_by_key(|(_, stall)| stall.gave_up)?.0;
    let line = |(cause, stall): &(StallCause, &StallStats)| {
        format!("{} commits waited too long for {} and failed with Busy", stall.gave_up, cause.name())
    };
    let grown = |cause: StallCause, now: u64| seen.grown(&format!("stall.{}.gave_up", cause.name()), now);
    let is_over =
        gave_up.iter().all(|(cause, stall)| grown(*cause, stall.gave_up).is_some_and(|(n, _)| n == 0));
    finding(
        (if is_over { Severity::Advice } else { Severity::Urgent }, "refused"),
        if is_over { "writes were refused, but not within the last hour" } else { "writes are refused" },
        gave_up.iter().map(line).collect(),
        about(most),
    )
}

/// Why writers wait for `cause`, what to do, and what that costs.
fn about(cause: StallCause) -> [&'static str; 3] {
    match cause {
        StallCause::Memtables => [
            "rows come faster than flushes write them",
            "a faster disk, a larger memtables_bytes_max, or fewer rows at once",
            "memory for more memtables; short peaks no longer wait",
        ],
        StallCause::Tables => [
            "merges do not keep up with the tables of level 1",
            "a larger write_buffer_bytes, more background_threads, or a faster disk",
            "memory; reads look into more tables while merges are behind",
        ],
        StallCause::Memory => [
            "memtables, transactions, cursors and tables fill memory_limit",
            "raise memory_limit, end long transactions and cursors, or make the cache smaller",
            "memory",
        ],
        StallCause::Values => [
            "value logs hold more garbage than the collection frees",
            "a higher value_garbage_percent, or a higher value_threshold",
            "disk space; writers are faster",
        ],
        StallCause::Log => [
            "the log had no blocks ready: the disk is slow to make files, or records are very long",
            "look at the latency of the disk; smaller batches",
            "nothing",
        ],
        StallCause::Device => [
            "the system is slow to take the bytes: the device is busy, or too much is not written back yet",
            "find who else uses the disk; on Linux a lower vm.dirty_bytes",
            "nothing",
        ],
        StallCause::Lock => [
            "commits wait for each other: there are more threads that write than processors",
            "fewer threads that write, or larger batches",
            "nothing",
        ],
    }
}

/// Writers that wait for a twentieth of the time, or once for more than a second.
pub(super) fn waits(seen: &Evidence<'_>) -> Option<Finding> {
    let stalls = seen.stats.stalls_by_cause();
    let (cause, stall) = stalls.into_iter().max_by_key(|(cause, _)| seen.waited(*cause).0)?;
    let (waited, within) = seen.waited(cause);
    let of_all = share(waited.as_secs_f64(), within.as_secs_f64());
    // The longest is known since the open alone.
    let is_long = stall.longest > Duration::from_secs(1) && stall.longest <= waited;
    (waited > Duration::from_secs(1) && (of_all > 0.05 || is_long)).then_some(())?;
    let evidence = vec![
        format!(
            "{} within {}, which is {:.1} % of it (summed over threads)",
            time(waited),
            time(within),
            of_all * 100.0
        ),
        format!(
            "{} stopped, {} slowed; p99 {}, longest {}",
            stall.stopped,
            stall.slowed,
            time(stall.p99),
            time(stall.longest)
        ),
    ];
    finding(
        (Severity::Problem, "waits"),
        format!("writers wait for {}", cause.name()),
        evidence,
        about(cause),
    )
}

pub(super) fn slow_syncs(seen: &Evidence<'_>) -> Option<Finding> {
    let syncs = &seen.stats.syncs;
    (syncs.count >= 10 && syncs.p99 > Duration::from_millis(100)).then_some(())?;
    finding(
        (Severity::Problem, "slow-syncs"),
        "the disk is slow to make commits durable",
        vec![format!(
            "{} syncs: p50 {}, p99 {}, longest {}",
            syncs.count,
            time(syncs.p50),
            time(syncs.p99),
            time(syncs.longest)
        )],
        [
            "the device, its cache or others who use it; a network disk; a file system that waits for others who sync",
            "measure with tidesdb bench synced; commit in batches or from several threads, which share a sync; or SyncMode::Interval",
            "an interval may lose the last commits when the machine crashes",
        ],
    )
}

pub(super) fn merges_behind(seen: &Evidence<'_>) -> Option<Finding> {
    let behind = Duration::try_from_secs_f64(seen.stats.merge_debt_seconds).unwrap_or_default();
    (behind > Duration::from_secs(60) && seen.stats.merge_debt_bytes > 256 << 20).then_some(())?;
    let deepest = worst(seen, |family| family.level_tables.first().copied().unwrap_or(0) as f64);
    let of_family =
        deepest.map(|(family, tables)| format!("family {:?} has {tables} tables in level 1", family.name));
    let debt = format!(
        "{} to merge, {} at the rate of the last merges",
        size(seen.stats.merge_debt_bytes),
        time(behind)
    );
    finding(
        (Severity::Problem, "merges-behind"),
        "merges do not keep up with writes",
        [debt].into_iter().chain(of_family).collect(),
        [
            "each read looks into more tables, and writers are slowed down to the rate of merges",
            "more background_threads, a larger write_buffer_bytes, no compaction rate limit; or fewer writes",
            "processor time and disk bandwidth, or memory",
        ],
    )
}

pub(super) fn conflicts(seen: &Evidence<'_>) -> Option<Finding> {
    let (family, conflicts) = worst(seen, |family| family.conflicts as f64)?;
    let commits = seen.stats.commits.estimate() as f64;
    (conflicts > 1000.0 && conflicts > commits / 5.0).then_some(())?;
    finding(
        (Severity::Advice, "conflicts"),
        format!("many transactions on family {:?} are refused and repeated", family.name),
        vec![format!("{conflicts} conflicts, about {commits} commits of batches and transactions")],
        [
            "transactions change the same keys at once",
            "shorter transactions, a merge operator for counters, or one thread for the hot keys",
            "a change of the program; less work is done twice",
        ],
    )
}

/// Flushes of a few bytes, many times a minute.
pub(super) fn small_buffers(seen: &Evidence<'_>) -> Option<Finding> {
    const SMALL: u64 = 4 << 20;
    let minutes = seen.open_for.as_secs_f64() / 60.0;
    let each = |family: &FamilyStats| family.flush_bytes / family.flushes.max(1);
    let is_bad = |family: &FamilyStats| {
        let is_small = || seen.setting_of(family, "write_buffer_bytes") < 2 * SMALL;
        let is_often = family.flushes >= 20 && family.flushes as f64 > 6.0 * minutes;
        is_often && each(family) < SMALL && is_small()
    };
    let (family, _) = worst(seen, |family| if is_bad(family) { family.flushes as f64 } else { 0.0 })?;
    let buffer = seen.setting_of(family, "write_buffer_bytes");
    finding(
        (Severity::Advice, "small-buffers"),
        format!("family {:?} writes many small tables", family.name),
        vec![
            format!(
                "{} flushes within {}, of {} each",
                family.flushes,
                time(seen.open_for),
                size(each(family))
            ),
            format!(
                "write_buffer_bytes is {}; merges wrote {}, flushes {}",
                size(buffer),
                size(family.compaction_written),
                size(family.flush_bytes)
            ),
        ],
        [
            "each flush makes a table that merges read and write again, and that reads look into meanwhile",
            "a larger write_buffer_bytes: the default is 64 MiB",
            "memory, within memory_limit; fewer bytes are written",
        ],
    )
}

/// Bytes that merges of a family wrote from which its values are worth a finding.
const MERGED_MIN: u64 = 1 << 30;

/// Values that merges write again and again, because they are a little shorter than those that go to value logs.
pub(super) fn values_below(seen: &Evidence<'_>) -> Option<Finding> {
    let threshold = |family: &FamilyStats| seen.setting_of(family, "value_threshold");
    let average = |family: &FamilyStats| {
        let live = family.table_entries.saturating_sub(family.tombstones).max(1);
        family.value_bytes.saturating_sub(family.value_log_live_bytes) / live
    };
    let is_bad = |family: &FamilyStats| {
        family.compaction_written > MERGED_MIN
            && family.compaction_written / 3 > family.user_bytes
            && family.value_log_live_bytes < family.value_bytes / 10
            && (threshold(family) / 2..threshold(family)).contains(&average(family))
    };
    let (family, merged) =
        worst(seen, |family| if is_bad(family) { family.compaction_written as f64 } else { 0.0 })?;
    finding(
        (Severity::Advice, "value-threshold"),
        format!("values of family {:?} are a little too short for value logs", family.name),
        vec![
            format!("{} bytes each on average; value_threshold is {}", average(family), threshold(family)),
            format!("merges wrote {}, users {}", size(merged as u64), size(family.user_bytes)),
        ],
        [
            "merges write the values again with the keys; from value_threshold on they would lie in value logs, where they stay",
            "a value_threshold below their length, if the disk or the processor is the limit",
            "a get reads one place more, and a scan of values is slower",
        ],
    )
}

/// Merges that are behind because they may write only so much.
pub(super) fn merge_rate(seen: &Evidence<'_>) -> Option<Finding> {
    let limit = seen.setting("compaction_bytes_per_second").filter(|limit| *limit > 0)?;
    let behind = seen.stats.merge_debt_bytes / limit;
    let (waited, _) = seen.waited(StallCause::Tables);
    (behind > 60 || waited > Duration::from_secs(5)).then_some(())?;
    let refuses = seen.stats.stalled_by(StallCause::Tables).gave_up > 0;
    finding(
        (if refuses { Severity::Urgent } else { Severity::Problem }, "merge-rate"),
        "merges are limited to a rate that does not suffice",
        vec![
            format!("compaction_bytes_per_second is {}", size(limit)),
            format!(
                "{} are left to merge: {} at that rate; writers waited {} for merges",
                size(seen.stats.merge_debt_bytes),
                time(Duration::from_secs(behind)),
                time(waited)
            ),
        ],
        [
            "the limit was set at the open or by Db::set_compaction_rate, perhaps for a backup, and commits bring more than it allows",
            "Db::set_compaction_rate(0) at once; without it, a larger compaction_bytes_per_second at the next open",
            "disk bandwidth while merges catch up",
        ],
    )
}
