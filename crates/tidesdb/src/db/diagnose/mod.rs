//! What is wrong with a database, found in its figures: [`Finding`].
//!
//! A rule is a function of the evidence that returns a finding or none; [`RULES`] has all of them. A rule reports what hurts now or will, with the
//! numbers that show it, and nothing that a healthy database has, too.

mod memory;
mod process;
mod reads;
mod space;
#[cfg(test)]
mod tests;
mod writes;

use std::fmt;
use std::time::{Duration, SystemTime};

use tidesdb_io::{MachineMemory, Space, Surroundings};

use super::{Db, WriterFigures, WriterState};
use crate::engine::Stats;
use crate::family::FamilyStats;
use crate::figures::{History, Pace, read_history};
use crate::health::HealthReport;
use crate::options::ChangedSetting;
use crate::stats;

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
    /// Number of the process that writes.
    process: u32,
    /// What differs from the defaults.
    settings: &'a [ChangedSetting],
    around: &'a Surroundings,
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

    /// The setting `name` of `family`, or of the database if that is empty, if it is a number and not the default.
    fn setting(&self, family: &str, name: &str) -> Option<u64> {
        let found = self.settings.iter().find(|setting| setting.family == family && setting.name == name);
        found?.value.parse().ok()
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
    process::poisoned,
    process::ended,
    process::stopped,
    process::hung_sync,
    process::degraded,
    process::stale,
    space::disk_fills,
    process::descriptors,
    writes::merge_rate,
    memory::held_memtables,
    writes::refused,
    space::removed_files,
    space::mount,
    memory::above_group,
    memory::scarce,
    writes::waits,
    writes::slow_syncs,
    writes::merges_behind,
    reads::tombstones,
    reads::filters,
    reads::operands,
    space::old_snapshot,
    space::old_cursor,
    space::garbage,
    reads::cache,
    writes::small_buffers,
    writes::values_below,
    writes::conflicts,
    process::clock,
    space::long_log,
    process::events_lost,
];

impl Db {
    /// Returns what is wrong with the database, worst first; nothing if it is healthy. Looks at [`Db::stats`], [`Db::health`], the
    /// history of the figures, the disk, this process, and where the system tells at those that hold files of the database. Changes nothing.
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
        let mut around = dir.surroundings(Some(std::process::id()));
        around.memory = Some(MachineMemory::now().total);
        diagnose(&Evidence {
            stats: &stats,
            health: &health,
            open_for: engine.write.env.clock.mono().saturating_sub(engine.write.events.opened()),
            writer: None,
            process: std::process::id(),
            settings: &engine.changed_settings(),
            around: &around,
            space: dir.space().ok(),
            history: history.as_ref(),
            now: engine.write.env.clock.wall().as_millis() as u64,
        })
    }
}

impl WriterFigures {
    /// Returns what is wrong with the database of the process that published these figures, worst first: as [`Db::diagnose`]. Looks at the
    /// history of these figures, at the disk, and where the system tells at the process and at those that hold files of the database.
    pub fn diagnose(&self) -> Vec<Finding> {
        let (dir, uuid) = &self.place;
        // The number of a process of another container says nothing here.
        let process = (self.state != WriterState::Unknown).then_some(self.process);
        diagnose(&Evidence {
            stats: &self.stats,
            health: &self.health,
            open_for: self.open_for,
            writer: Some((self.state, self.age)),
            process: self.process,
            settings: &self.settings,
            around: &dir.surroundings(process),
            space: dir.space().ok(),
            history: read_history(&**dir, *uuid, Pace::Minutes).ok().as_ref(),
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

/// The family of which `of` says most, with what it says.
fn worst<'a>(seen: &Evidence<'a>, of: impl Fn(&FamilyStats) -> f64) -> Option<(&'a FamilyStats, f64)> {
    let all = seen.stats.families.iter().map(|family| (family, of(family)));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, most)| *most > 0.0)
}
