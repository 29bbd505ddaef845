//! Writes the figures of this process into the file `FIGURES`, for other processes.
//!
//! A thread of its own does it, so a disk that hangs delays nothing but the figures. Operations do no work for it.

use std::time::Duration;

use tidesdb_io::ProcessId;

use super::Engine;
use super::report::{Phase, Report};
use super::sampled::Before;
use crate::Result;
use crate::figures::{CONTENT_BYTES_MAX, FiguresFile, Pace};
use crate::files::{self, FIGURES};
use crate::health::HealthReport;
use crate::memory::Use;
use crate::options::ChangedSetting;

/// How often figures are written while there is something to do.
const PERIOD: Duration = Duration::from_secs(1);
/// A session that is shorter publishes nothing.
pub const FIRST_FIGURES_AFTER: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);
/// The pause is at least so many times as long as the figures took: those of ten thousand families take tens of milliseconds.
const PAUSE_SHARE: u32 = 50;
/// The longest pause while there is something to do.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What publishes the figures of one database.
#[derive(Debug, Default)]
pub struct Publisher {
    /// `None` before the first write.
    file: Option<FiguresFile>,
    /// What had happened when the figures were written last, and what they said of the writer.
    last: Option<(Activity, Phase)>,
    /// What the last samples of the history saw: of each second, of each minute.
    sampled: [Before; 2],
    /// When the last sample of a minute was taken.
    last_minute: Option<Duration>,
}

/// Changes with whatever the database does.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Activity {
    counts: [u64; 11],
    health: Vec<String>,
    /// Jobs run, or commits are under way or wait: figures change all the time.
    is_busy: bool,
}

impl Engine {
    /// Writes the figures of this moment, unless nothing has changed since the last ones or nothing was written to the database since the
    /// open. Returns how long to wait until the next call. A failure is only logged: the next call tries again.
    pub fn publish(&self) -> Duration {
        let started = self.write.env.clock.mono();
        if !self.write.is_unbegun() {
            self.publish_as(None);
        }
        let took = self.write.env.clock.mono().saturating_sub(started);
        took.saturating_mul(PAUSE_SHARE).clamp(PERIOD, PAUSE_MAX)
    }

    /// Writes the last figures, if there is a file. A session that does not publish removes that of an earlier one, which would say that its
    /// process ended without closing the database. Afterwards the directory may belong to another process.
    pub fn publish_close(&self) {
        if self.write.is_unbegun() || self.write.options.read_only {
            return;
        }
        match self.publishes() {
            true => self.publish_as(Some(Phase::Closed)),
            false => files::remove(&*self.maintenance.dir, FIGURES),
        }
    }

    /// Returns true if the database writes its figures for other processes.
    pub fn publishes(&self) -> bool {
        self.write.options.event_log && !self.write.options.read_only
    }

    fn publish_as(&self, phase: Option<Phase>) {
        let mut publisher = self.publisher.lock();
        let health = self.health();
        let activity = self.activity(&health);
        let is_idle = |(seen, _): &(Activity, Phase)| *seen == activity && !activity.is_busy;
        let now = if publisher.last.as_ref().is_some_and(is_idle) { Phase::Idle } else { Phase::Open };
        let phase = phase.unwrap_or(now);
        if phase == Phase::Idle && publisher.last.as_ref().is_some_and(|(_, last)| *last == Phase::Idle) {
            return;
        }
        match publisher.write(self, phase, health) {
            Ok(()) => publisher.last = Some((activity, phase)),
            Err(error) => tracing::debug!(%error, "the figures for other processes could not be written"),
        }
    }

    /// Returns the settings of the database and of its families that differ from their defaults.
    pub fn changed_settings(&self) -> Vec<ChangedSetting> {
        let mut options = self.write.options.clone();
        options.compaction_bytes_per_second = self.write.merges.rate(); // it may have been changed since the open
        let mut all = options.changed();
        let families = self.write.all_families();
        families.iter().for_each(|family| all.append(&mut family.options.now().changed(&family.name())));
        all
    }

    fn activity(&self, health: &HealthReport) -> Activity {
        let (cache, tables) = (self.maintenance.tables.cache.stats(), &self.maintenance.tables);
        let (times, log, memory) = (&self.reads.times, &self.write.log, &self.write.memory);
        let (cursors, oldest) = self.reads.snapshots.cursors();
        let tail = log.sequencer().tail();
        Activity {
            counts: [
                tail,
                cache.hits,
                cache.misses,
                tables.reads.reads(),
                times.reads() + times.writes(),
                self.write.events.recorded(),
                cursors as u64,
                oldest.unwrap_or(0),
                self.reads.snapshots.count() as u64,
                memory.used_for(Use::Transactions),
                memory.used_for(Use::Cursors),
            ],
            health: health.causes.clone(),
            is_busy: self.write.jobs.pending() > 0
                || log.waits().any_now()
                || !log.sync_runs_for().is_zero()
                || log.sequencer().visible_end() < tail,
        }
    }
}

impl Publisher {
    /// Writes a report. One of a close is written only where there is a file.
    fn write(&mut self, engine: &Engine, phase: Phase, health: HealthReport) -> Result<()> {
        let (dir, versions) = (&*engine.maintenance.dir, &engine.maintenance.versions);
        let (uuid, env) = (versions.identity().uuid, &engine.write.env);
        if self.file.is_none() {
            self.file = FiguresFile::open(dir, uuid)?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            None if phase == Phase::Closed => return Ok(()),
            file => file.insert(FiguresFile::create(dir, env.entropy.salt(), uuid)?),
        };
        let report = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: ProcessId::current(),
            written: env.clock.wall(),
            open_for: env.clock.mono().saturating_sub(engine.write.events.opened()),
            phase,
            health,
            stats: engine.stats_without_heap(),
            settings: engine.changed_settings(),
            left_out: 0,
            missing: Vec::new(),
        };
        file.write(&report.encode(CONTENT_BYTES_MAX))?;
        if let Err(error) = self.record(engine.write.env.clock.mono(), &report) {
            tracing::debug!(%error, "a sample of the history of figures could not be written");
        }
        if phase != Phase::Closed && self.file.as_ref().is_some_and(|file| !file.is_there(dir)) {
            self.file = None; // somebody has removed it: the next figures get a new one
        }
        Ok(())
    }

    /// Adds the figures of `report` to the history. A session that ends before its second figures adds nothing.
    fn record(&mut self, now: Duration, report: &Report) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if report.phase == Phase::Closed && self.last_minute.is_none() {
            return Ok(());
        }
        let millis = report.written.as_millis() as u64;
        let of_second =
            file.record(Pace::Seconds, millis, &self.sampled[0].next(&report.stats, &report.health));
        if self.last_minute.is_none_or(|last| now.saturating_sub(last) >= MINUTE) {
            self.last_minute = Some(now);
            file.record(Pace::Minutes, millis, &self.sampled[1].next(&report.stats, &report.health))?;
        }
        of_second
    }
}
