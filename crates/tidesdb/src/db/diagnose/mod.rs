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
use crate::options::{ChangedSetting, FamilyOptions};
use crate::order;
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
        let Self { severity, rule, what, evidence, cause, advice, price } = self;
        writeln!(f, "{}: {} [{rule}]", severity.name(), plain(what))?;
        evidence.iter().try_for_each(|line| writeln!(f, "  seen:  {}", plain(line)))?;
        writeln!(f, "  why:   {}", plain(cause))?;
        writeln!(f, "  do:    {}", plain(advice))?;
        writeln!(f, "  costs: {}", plain(price))
    }
}

/// A text with escapes for what is not printed: names of processes, paths and causes of bad health come from elsewhere.
fn plain(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

/// What the rules look at.
struct Evidence<'a> {
    stats: &'a Stats,
    health: &'a HealthReport,
    /// How long the database has been open.
    open_for: Duration,
    /// The process that writes, and the age of its figures; `None` if it is this one.
    writer: Option<(WriterState, Duration)>,
    /// Number of the process that writes, if it runs and the number says something here.
    process: Option<u32>,
    /// Families that the figures leave out.
    families_left_out: u64,
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
    /// The process that wrote has ended.
    fn has_ended(&self) -> bool {
        self.writer.is_some_and(|(state, _)| state.has_ended())
    }

    /// How much the figure `name`, now `current`, has grown within the last hour, over all sessions: one that begins counts from zero. With
    /// the time that this covers; `None` if the history does not say.
    fn grown(&self, name: &str, current: u64) -> Option<(u64, Duration)> {
        let millis = |time: Duration| time.as_millis() as u64;
        let at = self.now.saturating_sub(self.writer.map_or(0, |(_, age)| millis(age)));
        let (opened, since) =
            (at.saturating_sub(millis(self.open_for)), self.now.saturating_sub(HOUR_MILLIS));
        let mut series = self.recent(name);
        // Before the first session there was nothing. (A machine that slept makes `opened` too late: then there are samples before it.)
        let is_first = |all: Vec<(u64, i64)>| all.first().is_none_or(|(millis, _)| *millis >= opened);
        if opened >= since && self.history.is_none_or(|history| is_first(history.series(name))) {
            series.insert(0, (opened, 0));
        }
        if at >= since {
            // A sample of this session may be a little newer than the figures, or count families that they leave out.
            let recorded = series.last().filter(|(millis, _)| *millis >= opened).map_or(0, |last| last.1);
            series.push((at, i64::try_from(current).unwrap_or(i64::MAX).max(recorded)));
        }
        let step = |pair: &[(u64, i64)]| match pair[1].1.saturating_sub(pair[0].1) {
            fallen if fallen < 0 => pair[1].1.max(0),
            grown => grown,
        };
        let (first, last) = (series.first()?, series.last()?);
        let span = Duration::from_millis(last.0.saturating_sub(first.0)).max(Duration::from_secs(1));
        let sum = || series.windows(2).map(step).fold(0, i64::saturating_add).unsigned_abs();
        (series.len() > 1).then(|| (sum(), span))
    }

    /// The setting `name` of the database, if it is a number and not the default.
    fn setting(&self, name: &str) -> Option<u64> {
        self.changed("", name)
    }

    /// The setting `name` of `family`, the default if it was not changed.
    fn setting_of(&self, family: &FamilyStats, name: &str) -> u64 {
        self.changed(&family.name, name).unwrap_or_else(|| default_of(name))
    }

    fn changed(&self, family: &str, name: &str) -> Option<u64> {
        let found = self.settings.iter().find(|setting| setting.family == family && setting.name == name);
        found?.value.parse().ok()
    }

    /// How long writers waited for `cause`, and within which time: of the last hour if the history says so, else since the open.
    fn waited(&self, cause: StallCause) -> (Duration, Duration) {
        let time = self.stats.stalled_by(cause).time;
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self.grown(&format!("stall.{}.time", cause.name()), nanos) {
            Some((nanos, within)) => (Duration::from_nanos(nanos), within),
            None => (time, self.open_for),
        }
    }

    /// What the history has of the figure `name` for the last hour.
    fn recent(&self, name: &str) -> Vec<(u64, i64)> {
        let series = self.history.map(|history| history.series(name)).unwrap_or_default();
        let since = self.now.saturating_sub(HOUR_MILLIS);
        series.into_iter().filter(|(millis, _)| (since..=self.now).contains(millis)).collect()
    }
}

/// The default of a setting of families.
fn default_of(name: &str) -> u64 {
    FamilyOptions::TABLE.iter().find(|info| info.name == name).map_or(0, |info| info.default)
}

type Rule = fn(&Evidence<'_>) -> Option<Finding>;

/// Rules about what a process does or holds at this moment: nothing of one that has ended. They come first.
const OF_NOW: &[Rule] =
    &[process::hung_sync, memory::held_memtables, memory::scarce, space::old_snapshot, space::old_cursor];

/// All other rules. Of findings that are equally bad, the first is shown first.
const RULES: &[Rule] = &[
    process::poisoned,
    process::ended,
    process::stopped,
    process::degraded,
    process::stale,
    space::disk_fills,
    process::descriptors,
    writes::merge_rate,
    writes::refused,
    space::removed_files,
    space::mount,
    memory::above_group,
    writes::waits,
    writes::slow_syncs,
    writes::merges_behind,
    reads::tombstones,
    reads::filters,
    reads::operands,
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
            process: Some(std::process::id()),
            families_left_out: 0,
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
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use tidesdb::Db;
    /// # let db = Db::open(dir.path())?; // in practice, in another process
    /// # db.put("whale", "blue")?;
    /// if let Some(figures) = Db::options(dir.path()).writer_figures()? {
    ///     figures.diagnose().iter().for_each(|finding| println!("{finding}"));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn diagnose(&self) -> Vec<Finding> {
        let (dir, uuid) = &self.place;
        // The number of a process of another container says nothing here, and that of one that has ended may be another's by now.
        let runs = [WriterState::Running, WriterState::Idle, WriterState::Stopped].contains(&self.state);
        let process = runs.then_some(self.process);
        diagnose(&Evidence {
            stats: &self.stats,
            health: &self.health,
            open_for: self.open_for,
            writer: Some((self.state, self.age)),
            process,
            families_left_out: self.families_left_out,
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
    let of_now = if seen.has_ended() { &[][..] } else { OF_NOW };
    let mut findings: Vec<Finding> = of_now.iter().chain(RULES).filter_map(|rule| rule(seen)).collect();
    order::sort_by_key(&mut findings, |finding| finding.severity);
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
