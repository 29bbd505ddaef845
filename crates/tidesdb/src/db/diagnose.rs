//! What is wrong with a database, found in its figures: [`Finding`].
//!
//! A rule is a function of the evidence that returns a finding or none; [`RULES`] has all of them. A rule reports what hurts now or will, with the
//! numbers that show it, and nothing that a healthy database has, too.

use std::fmt;
use std::time::{Duration, SystemTime};

use tidesdb_io::{MachineMemory, Space};

use super::{Db, WriterFigures, WriterState};
use crate::engine::Stats;
use crate::family::FamilyStats;
use crate::figures::{History, Pace, read_history};
use crate::health::{HealthReport, HealthState};
use crate::stats;
use crate::waits::StallCause;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Data is in danger, or writes fail.
    Urgent,
    /// It is slow, or it will fail.
    Problem,
    /// It could be better.
    Advice,
}

impl Severity {
    /// The name in lower case.
    pub fn name(self) -> &'static str {
        ["urgent", "problem", "advice"][self as usize]
    }
}

/// One thing that is wrong with a database. Its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Name of the rule that found it.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
    /// The numbers that show it.
    pub evidence: Vec<String>,
    /// Why it is so, and what follows.
    pub cause: String,
    /// What to do.
    pub advice: String,
    /// What that costs and gains.
    pub price: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} [{}]", self.severity.name(), self.what, self.rule)?;
        self.evidence.iter().try_for_each(|line| writeln!(f, "  seen:  {line}"))?;
        writeln!(f, "  why:   {}", self.cause)?;
        writeln!(f, "  do:    {}", self.advice)?;
        writeln!(f, "  costs: {}", self.price)
    }
}

/// What the rules look at.
struct Evidence<'a> {
    stats: &'a Stats,
    health: &'a HealthReport,
    /// How long the database has been open.
    open_for: Duration,
    /// The process that writes, and the age of its figures; `None` if it is this one.
    writer: Option<(WriterState, Duration)>,
    /// Memory that the process may use, if it is this one.
    memory: Option<u64>,
    space: Option<Space>,
    /// Of each minute.
    history: Option<&'a History>,
    /// Now, in milliseconds since the UNIX epoch.
    now: u64,
}

/// How far back the rules look where they have the history.
const HOUR_MILLIS: u64 = 3_600_000;

impl Evidence<'_> {
    /// How much the figure `name` has grown within the last hour; `None` if the history does not say.
    fn grown(&self, name: &str) -> Option<i64> {
        let series = self.recent(name);
        let (first, last) = (series.first()?, series.last()?);
        (first.0 < last.0).then(|| last.1.saturating_sub(first.1))
    }

    /// What the history has of the figure `name` for the last hour.
    fn recent(&self, name: &str) -> Vec<(u64, i64)> {
        let series = self.history.map(|history| history.series(name)).unwrap_or_default();
        let since = self.now.saturating_sub(HOUR_MILLIS);
        series.into_iter().filter(|(millis, _)| (since..=self.now).contains(millis)).collect()
    }
}

type Rule = fn(&Evidence<'_>) -> Option<Finding>;

/// All rules. Of findings that are equally bad, the first is shown first.
const RULES: &[Rule] = &[
    poisoned,
    writer_ended,
    writer_stopped,
    hung_sync,
    degraded,
    stale,
    disk_fills,
    refused,
    memory_above_group,
    waits,
    slow_syncs,
    level_1,
    tombstones,
    old_readers,
    garbage,
    cache,
    conflicts,
    clock,
    long_log,
    events_lost,
];

impl Db {
    /// Returns what is wrong with the database, worst first; nothing if it is healthy. Looks at [`Db::stats`], [`Db::health`], the disk and the
    /// memory of this process, and changes nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tidesdb::Db::open(dir.path())?;
    /// db.put("whale", "blue")?;
    /// for finding in db.diagnose() {
    ///     println!("{finding}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn diagnose(&self) -> Vec<Finding> {
        let engine = &self.inner.engine;
        let (stats, health) = (self.stats(), self.health());
        let (dir, versions) = (&*engine.maintenance.dir, &engine.maintenance.versions);
        let history = read_history(dir, versions.identity().uuid, Pace::Minutes).ok();
        diagnose(&Evidence {
            stats: &stats,
            health: &health,
            open_for: engine.write.env.clock.mono().saturating_sub(engine.write.events.opened()),
            writer: None,
            memory: Some(MachineMemory::now().total),
            space: dir.space().ok(),
            history: history.as_ref(),
            now: engine.write.env.clock.wall().as_millis() as u64,
        })
    }
}

impl WriterFigures {
    /// Returns what is wrong with the database of the process that published these figures, worst first: as [`Db::diagnose`]. `minutes` is the
    /// history of minutes ([`OpenOptions::writer_history`](crate::OpenOptions::writer_history)), `free` the bytes that the file system has
    /// left, and those that it has in all; without them some findings are not made.
    pub fn diagnose(&self, minutes: Option<&History>, free: Option<(u64, u64)>) -> Vec<Finding> {
        diagnose(&Evidence {
            stats: &self.stats,
            health: &self.health,
            open_for: self.open_for,
            writer: Some((self.state, self.age)),
            memory: None,
            space: free.map(|(free, total)| Space { free, total }),
            history: minutes,
            now: self
                .written
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |at| (at + self.age).as_millis() as u64),
        })
    }
}

fn diagnose(seen: &Evidence<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().filter_map(|rule| rule(seen)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Makes a finding. The texts are what is wrong, why, what to do, and what that costs and gains.
fn finding(
    (severity, rule): (Severity, &'static str),
    what: impl Into<String>,
    evidence: Vec<String>,
    [cause, advice, price]: [&str; 3],
) -> Option<Finding> {
    let [cause, advice, price] = [cause, advice, price].map(str::to_owned);
    Some(Finding { severity, rule, what: what.into(), evidence, cause, advice, price })
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    match unit {
        0 => format!("{bytes} B"),
        unit => format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        secs if secs < 120.0 => stats::time(secs),
        secs if secs < 7200.0 => format!("{:.0} minutes", secs / 60.0),
        secs => format!("{:.0} hours", secs / 3600.0),
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn poisoned(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.health.state == HealthState::Poisoned).then_some(())?;
    finding(
        (Severity::Urgent, "poisoned"),
        "all writes are refused",
        seen.health.causes.clone(),
        [
            "a write or a sync of the log failed, so nobody knows what is on the disk until the database is opened again",
            "look at the disk (dmesg, SMART), then restart the program: docs/operate/crash.md",
            "the time of an open; acknowledged commits are recovered",
        ],
    )
}

fn writer_ended(seen: &Evidence<'_>) -> Option<Finding> {
    let (state, age) =
        seen.writer.filter(|(state, _)| [WriterState::Ended, WriterState::Rebooted].contains(state))?;
    finding(
        (Severity::Urgent, "ended"),
        format!("the process that wrote the database {state}"),
        vec![format!(
            "its last figures are {} old; the log that the next open replays has {}",
            time(age),
            size(seen.stats.wal_live_bytes)
        )],
        [
            "it was killed, or it crashed; no process writes the database now",
            "find out why (its output, dmesg for the killer of the kernel), and start it again",
            "the next open replays the log; commits that were acknowledged as durable are there",
        ],
    )
}

fn writer_stopped(seen: &Evidence<'_>) -> Option<Finding> {
    let (_, age) = seen.writer.filter(|(state, _)| *state == WriterState::Stopped)?;
    finding(
        (Severity::Urgent, "stopped"),
        "the process that writes is stopped by a signal or a debugger",
        vec![format!("its last figures are {} old", time(age))],
        [
            "somebody sent SIGSTOP or SIGTSTP (Ctrl-Z in its terminal), or a debugger holds it",
            "let it go on: kill -CONT and its number, fg in its terminal, or detach the debugger",
            "nothing",
        ],
    )
}

fn degraded(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.health.state == HealthState::Degraded).then_some(())?;
    finding(
        (Severity::Urgent, "degraded"),
        "a part of the database does not work",
        seen.health.causes.clone(),
        [
            "reads work; what does not is above",
            "the table of docs/operate/monitoring.md#degraded says what to do for each",
            "see there",
        ],
    )
}

/// A process that runs and works publishes at least this often, also with ten thousand families.
const STALE: Duration = Duration::from_secs(30);

fn hung_sync(seen: &Evidence<'_>) -> Option<Finding> {
    let runs = seen.stats.sync_running_seconds;
    (runs >= Duration::from_secs(2)).then_some(())?;
    finding(
        (Severity::Urgent, "hung-sync"),
        "a sync of the log does not end: commits wait for the disk",
        vec![format!(
            "it has run for {}; the longest before took {}",
            time(runs),
            time(seen.stats.syncs.longest)
        )],
        [
            "the device or its controller hangs, or another program fills the queue of the disk",
            "dmesg, iostat -x 1; if it never ends, only a restart of the machine helps",
            "nothing is lost: what was acknowledged is in the log",
        ],
    )
}

/// The figures of a process that runs and works are at most some seconds old.
fn stale(seen: &Evidence<'_>) -> Option<Finding> {
    let (_, age) = seen.writer.filter(|(state, age)| *state == WriterState::Running && *age > STALE)?;
    finding(
        (Severity::Problem, "stale"),
        "the process that writes runs, and has published nothing for some time",
        vec![format!("its figures are {} old", time(age))],
        [
            "its disk does not take writes, or is full, or the process gets no processor time; all below is of that time",
            "look at the disk and the load of the machine",
            "nothing",
        ],
    )
}

/// Free space that lasts for less than a day at the rate of the last hour.
fn disk_fills(seen: &Evidence<'_>) -> Option<Finding> {
    const SOON: f64 = 24.0;
    let space = seen.space?;
    (space.total > 0).then_some(())?; // some file systems of the network do not say
    let part = share(space.free as f64, space.total as f64);
    let hours = hours_left(seen, space.free);
    let is_low = part < 0.05 && space.free < 50 << 30;
    (is_low || hours.is_some_and(|hours| hours < SOON)).then_some(())?;
    let left = format!("{} of {} are free, {:.1} %", size(space.free), size(space.total), part * 100.0);
    let at_rate = hours
        .filter(|hours| *hours < SOON)
        .map(|hours| format!("at the rate of the last hour that lasts for {hours:.1} hours"));
    finding(
        (if is_low { Severity::Urgent } else { Severity::Problem }, "disk-fills"),
        "the disk is nearly full, or will be within a day",
        [left].into_iter().chain(at_rate).collect(),
        [
            "commits that store data are refused at disk_free_min; merges stop before",
            "free space, delete rows, or grow the disk: docs/operate/disk.md. Old snapshots, cursors, checkpoints and readers hold files",
            "deletes work on a full disk, too; their space comes back by merges",
        ],
    )
}

/// Hours until `free` bytes are used at the rate at which the database grew in the last hour.
fn hours_left(seen: &Evidence<'_>, free: u64) -> Option<f64> {
    let series = seen.recent("disk_bytes");
    let (first, last) = (series.first()?, series.last()?);
    let hours = last.0.checked_sub(first.0)? as f64 / HOUR_MILLIS as f64;
    let bytes = last.1.saturating_sub(first.1) as f64;
    (hours > 0.05 && bytes > 0.0).then(|| free as f64 / (bytes / hours))
}

fn refused(seen: &Evidence<'_>) -> Option<Finding> {
    let gave_up: Vec<_> =
        seen.stats.stalls_by_cause().into_iter().filter(|(_, stall)| stall.gave_up > 0).collect();
    (!gave_up.is_empty()).then_some(())?;
    let line = |(cause, stall): &(StallCause, &crate::waits::StallStats)| {
        format!("{} commits waited too long for {} and failed with Busy", stall.gave_up, cause.name())
    };
    let recent = gave_up.iter().map(|(cause, _)| seen.grown(&format!("stall.{}.gave_up", cause.name())));
    let is_over = recent.clone().all(|grown| grown == Some(0));
    finding(
        (if is_over { Severity::Advice } else { Severity::Urgent }, "refused"),
        if is_over { "writes were refused, but not within the last hour" } else { "writes are refused" },
        gave_up.iter().map(line).collect(),
        REFUSED,
    )
}

const REFUSED: [&str; 3] = [
    "flushes or merges failed or were stuck, or memory was held by transactions and cursors that stay open",
    "the events job_failed and the causes of Db::health name it; end long transactions and cursors, or raise memory_limit",
    "memory, if the limit is raised",
];

fn memory_above_group(seen: &Evidence<'_>) -> Option<Finding> {
    let (limit, allowed) = (seen.stats.memory_limit_bytes, seen.memory?);
    (limit > allowed / 10 * 9).then_some(())?;
    finding(
        (Severity::Problem, "memory-limit"),
        "memory_limit is as large as all memory that the process may use",
        vec![format!(
            "memory_limit is {}; the machine, or the control group, allows {}",
            size(limit),
            size(allowed)
        )],
        [
            "the rest of the program, the page cache and the allocator need memory, too: the kernel may kill the process",
            "set memory_limit to half of it; 0 does that by itself",
            "a smaller block cache: more reads from the disk",
        ],
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

/// Writers that wait for a twentieth of the time, or once for a second.
fn waits(seen: &Evidence<'_>) -> Option<Finding> {
    let stalls = seen.stats.stalls_by_cause();
    let (cause, stall) = stalls.into_iter().max_by_key(|(_, stall)| stall.time)?;
    // Of the last hour if the history says so, else since the open.
    let grown = seen.grown(&format!("stall.{}.time", cause.name()));
    let (waited, within) = match grown.map(|nanos| Duration::from_nanos(nanos.unsigned_abs())) {
        Some(grown) => (grown, seen.open_for.min(Duration::from_millis(HOUR_MILLIS))),
        None => (stall.time, seen.open_for),
    };
    let of_all = share(waited.as_secs_f64(), within.as_secs_f64());
    let is_bad = of_all > 0.05 || stall.longest > Duration::from_secs(1);
    (is_bad && waited > Duration::from_secs(1)).then_some(())?;
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

fn slow_syncs(seen: &Evidence<'_>) -> Option<Finding> {
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

/// The family of which `of` says most, with what it says.
fn worst<'a>(seen: &Evidence<'a>, of: impl Fn(&FamilyStats) -> f64) -> Option<(&'a FamilyStats, f64)> {
    let all = seen.stats.families.iter().map(|family| (family, of(family)));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, most)| *most > 0.0)
}

fn level_1(seen: &Evidence<'_>) -> Option<Finding> {
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

fn tombstones(seen: &Evidence<'_>) -> Option<Finding> {
    let (family, dead) = worst(seen, |family| share(family.tombstones as f64, family.table_entries as f64))?;
    (dead > 0.3 && family.tombstones > 100_000).then_some(())?;
    finding(
        (Severity::Problem, "tombstones"),
        format!("scans of family {:?} step over many deleted rows", family.name),
        vec![format!(
            "{} of its {} entries are tombstones; the densest table has {:.0} %, in level {}",
            family.tombstones,
            family.table_entries,
            family.tombstone_share_max * 100.0,
            family.tombstone_share_level
        )],
        [
            "rows are deleted faster than merges drop the tombstones, or a snapshot or cursor keeps them",
            "delete ranges with delete_range, end old snapshots and cursors, or compact the family once",
            "a compaction writes the family again",
        ],
    )
}

fn old_readers(seen: &Evidence<'_>) -> Option<Finding> {
    let age = Duration::try_from_secs_f64(seen.stats.oldest_cursor_seconds).unwrap_or_default();
    (age > Duration::from_secs(600)).then_some(())?;
    finding(
        (Severity::Problem, "old-cursor"),
        "a cursor or iterator has been open for long",
        vec![format!(
            "{} are open, the oldest for {}; {} snapshots",
            seen.stats.cursors,
            time(age),
            seen.stats.snapshots
        )],
        [
            "merges keep every version that it may show: disk space does not come back, and reads step over old versions",
            "find it in the program; close it, or call Cursor::refresh",
            "nothing",
        ],
    )
}

fn garbage(seen: &Evidence<'_>) -> Option<Finding> {
    let (family, dead) = worst(seen, |family| {
        share(family.value_log_garbage_bytes as f64, family.value_log_file_bytes as f64)
    })?;
    (dead > 0.6 && family.value_log_garbage_bytes > 256 << 20).then_some(())?;
    finding(
        (Severity::Problem, "garbage"),
        format!("value logs of family {:?} are mostly garbage", family.name),
        vec![format!(
            "{} of {} are overwritten or deleted values, or of rows that are not flushed yet",
            size(family.value_log_garbage_bytes),
            size(family.value_log_file_bytes)
        )],
        [
            "the collection is behind, or snapshots and cursors keep old values",
            "end old snapshots and cursors; a lower value_garbage_percent",
            "values are written again by the collection",
        ],
    )
}

fn cache(seen: &Evidence<'_>) -> Option<Finding> {
    let stats = seen.stats;
    let lookups = stats.cache_hits.saturating_add(stats.cache_misses);
    (lookups > 100_000 && stats.cache_hit_share < 0.5 && stats.lookup_reads > 50_000).then_some(())?;
    finding(
        (Severity::Advice, "cache"),
        "most reads miss the block cache",
        vec![
            format!(
                "{:.0} % of {lookups} look-ups hit; {} reads of tables",
                stats.cache_hit_share * 100.0,
                stats.lookup_reads
            ),
            format!("the cache holds {}", size(stats.cache_bytes)),
        ],
        [
            "what is read does not fit into the cache, so each read pays for a block from the page cache or the disk",
            "a larger cache_bytes within memory_limit, if the same rows are read again",
            "memory; nothing is gained if each row is read once",
        ],
    )
}

fn conflicts(seen: &Evidence<'_>) -> Option<Finding> {
    let (family, conflicts) = worst(seen, |family| family.conflicts as f64)?;
    let commits = seen.stats.commits.count as f64 * seen.stats.commits.sampled_one_in.max(1) as f64;
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

/// The wall clock went back between two minutes.
fn clock(seen: &Evidence<'_>) -> Option<Finding> {
    let samples = &seen.history?.samples;
    let back = samples
        .windows(2)
        .filter_map(|pair| pair[0].millis.checked_sub(pair[1].millis))
        .filter(|back| *back > 1000);
    let most = back.max()?;
    finding(
        (Severity::Advice, "clock"),
        "the clock of the machine went back",
        vec![format!(
            "by {} or up to a minute more, between two minutes of the history",
            time(Duration::from_millis(most))
        )],
        [
            "it was set by hand or by a time service; rows with a TTL live longer by as much",
            "let the time service slew the clock in place of steps",
            "nothing",
        ],
    )
}

fn long_log(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.stats.wal_live_bytes > 4 << 30).then_some(())?;
    finding(
        (Severity::Advice, "long-log"),
        "an open after a crash would replay a long log",
        vec![format!("{} of log", size(seen.stats.wal_live_bytes))],
        [
            "a family that is seldom written keeps its rows in memory, and the log with them",
            "a lower wal_bytes_max, or Db::flush from time to time",
            "a few small tables",
        ],
    )
}

fn events_lost(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.stats.events_lost > 0).then_some(())?;
    finding(
        (Severity::Advice, "events-lost"),
        "lines of the event log are lost",
        vec![format!("{} of {} events", seen.stats.events_lost, seen.stats.events)],
        [
            "the disk was full or failed when they were written, or too many came at once",
            "look at the disk",
            "nothing",
        ],
    )
}
