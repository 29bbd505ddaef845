//! What the process that writes a database says of itself, for other processes: [`WriterFigures`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidesdb_io::{Dir, ProcessState};

use super::{OpenOptions, Reader, metrics};
use crate::engine::{Phase, Report, Stats};
use crate::figures::{History, Pace, newest, read_history};
use crate::files::{self, FIGURES};
use crate::health::HealthReport;
use crate::options::ChangedSetting;
use crate::version::in_force;
use crate::{Error, Result};

/// The figures that the process which writes a database has published last, and what is known of that process.
///
/// The writer publishes them once a second while it has something to do, and when its health changes: see
/// [`DbOptions::event_log`](crate::DbOptions::event_log). Nothing is locked, and the writer does not know who reads them. They are those of
/// one moment, [`WriterFigures::written`]: look at [`WriterFigures::age`] and [`WriterFigures::state`] before you rely on them.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # use std::time::Duration;
/// use tidesdb::{Db, WriterState};
/// let db = Db::open(dir.path())?; // in practice, in another process
/// db.put(b"whale", b"blue")?;
///
/// # while Db::options(dir.path()).writer_figures()?.is_none() { std::thread::sleep(Duration::from_millis(20)); }
/// let figures = Db::options(dir.path()).writer_figures()?.expect("the writer has published some");
/// assert_eq!(figures.process, std::process::id());
/// assert!(figures.stats.wal_bytes > 0 && figures.health.causes.is_empty());
/// db.close()?;
/// let figures = Db::options(dir.path()).writer_figures()?.expect("the last ones stay");
/// assert_eq!(figures.state, WriterState::Closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WriterFigures {
    /// The figures. Keys are not among them: the first and last keys of levels are empty.
    pub stats: Stats,
    /// Settings that differ from their defaults, of the database and of its families.
    pub settings: Vec<ChangedSetting>,
    /// The health. The failure itself is not there, only its text.
    pub health: HealthReport,
    /// Number of the process.
    pub process: u32,
    /// Whether it still runs.
    pub state: WriterState,
    /// Version of the engine in it.
    pub version: String,
    /// When it wrote the figures, by its clock.
    pub written: SystemTime,
    /// How long ago that was, by the clock of this process; 0 if its clock is behind.
    pub age: Duration,
    /// How long it had the database open then.
    pub open_for: Duration,
    /// Families that the figures of families and trees leave out, because there are too many. Those that wrote least are left out.
    pub families_left_out: u64,
    /// Figures of this version that the writer, of another version, does not publish, such as `families.tombstones`: they are 0 here.
    pub unknown: Vec<String>,
    /// Where they were read: the directory, and the identity of the database in it.
    pub(super) place: (Arc<dyn Dir>, [u8; 16]),
}

/// What is known of the process that published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriterState {
    /// It runs.
    Running,
    /// It runs, and nothing has changed since it published.
    Idle,
    /// A signal (`SIGSTOP`) or a debugger has stopped it.
    Stopped,
    /// It has closed the database.
    Closed,
    /// It ended without closing the database.
    Ended,
    /// The machine was started again meanwhile, and the database was not closed before.
    Rebooted,
    /// The system does not tell: the process belongs to another container, or the system is not Linux.
    Unknown,
}

impl WriterState {
    /// All states.
    pub const ALL: [Self; 7] =
        [Self::Running, Self::Idle, Self::Stopped, Self::Closed, Self::Ended, Self::Rebooted, Self::Unknown];

    /// Whether it has ended without closing the database.
    ///
    /// ```
    /// use tidesdb::WriterState;
    /// assert!(WriterState::Rebooted.has_ended() && !WriterState::Closed.has_ended());
    /// ```
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Ended | Self::Rebooted)
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        ["running", "idle", "stopped", "closed", "ended", "rebooted", "unknown"][self as usize]
    }
}

impl fmt::Display for WriterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "runs",
            Self::Idle => "runs and has had nothing to do since",
            Self::Stopped => "is stopped by a signal or a debugger",
            Self::Closed => "has closed the database",
            Self::Ended => "has ended without closing the database",
            Self::Rebooted => "ended without closing the database, and the machine was started again",
            Self::Unknown => "may run or not: the system does not tell",
        })
    }
}

impl WriterFigures {
    /// Returns the figures in the format OpenMetrics 1.0: as [`Db::metrics_text`](crate::Db::metrics_text), `tidesdb_figures_age_seconds`, and `tidesdb_writer`, the state.
    pub fn metrics_text(&self) -> String {
        metrics::text(&self.stats, &self.health, Some((self.state, self.age)))
    }

    fn of(report: Report, place: (Arc<dyn Dir>, [u8; 16]), now: Duration) -> Self {
        let state = match (report.phase, report.process.look()) {
            (Phase::Closed, _) => WriterState::Closed,
            (Phase::Open, ProcessState::Runs) => WriterState::Running,
            (Phase::Idle, ProcessState::Runs) => WriterState::Idle,
            (_, ProcessState::Stopped) => WriterState::Stopped,
            (_, ProcessState::Ended) => WriterState::Ended,
            (_, ProcessState::Rebooted) => WriterState::Rebooted,
            _ => WriterState::Unknown,
        };
        let (mut stats, age) = (report.stats, now.saturating_sub(report.written));
        if state != WriterState::Closed && !state.has_ended() {
            // They go on ageing.
            stats.oldest_cursor_seconds += if stats.cursors > 0 { age.as_secs_f64() } else { 0.0 };
            stats.oldest_snapshot_seconds += if stats.snapshots > 0 { age.as_secs_f64() } else { 0.0 };
        }
        Self {
            stats,
            settings: report.settings,
            health: report.health,
            process: report.process.number,
            state,
            version: report.version,
            written: SystemTime::UNIX_EPOCH.checked_add(report.written).unwrap_or(SystemTime::UNIX_EPOCH),
            age,
            open_for: report.open_for,
            families_left_out: report.left_out,
            unknown: report.missing,
            place,
        }
    }

    fn read(place: (Arc<dyn Dir>, [u8; 16]), now: Duration) -> Result<Option<Self>> {
        let Some(found) = newest(&*place.0, place.1)? else { return Ok(None) };
        Ok(Some(Self::of(Report::decode(&found.content, FIGURES, found.at)?, place, now)))
    }
}

impl OpenOptions {
    /// Returns what the process that writes the database, or the last one that did, has published. Opens nothing and takes no lock. `None`
    /// if there is nothing: the writer has been open for less than a second, has written nothing since, does not publish
    /// ([`DbOptions::event_log`](crate::DbOptions::event_log)), or is of an older version.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `FormatTooNew`; `Corrupt`; `Io`.
    pub fn writer_figures(&self) -> Result<Option<WriterFigures>> {
        WriterFigures::read(self.place_of_figures()?, self.env.clock.wall())
    }

    /// Returns figures of the past that the processes which wrote the database have recorded: of each second of the last hour in which
    /// something happened, then of each minute of the last day. Names are those of [`Stats`], with a point before what belongs to a kind of
    /// operation (`puts.p99`), a cause (`stall.tables.time`) or one of the ten busiest families (`family.NAME.user_bytes`). Seconds are in
    /// nanoseconds, shares and ratios in thousandths; percentiles are those of the second, or the minute.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use tidesdb::Db;
    /// # let db = Db::open(dir.path())?;
    /// # db.put("whale", "blue")?;
    /// let [seconds, _minutes] = Db::options(dir.path()).writer_history()?;
    /// for (millis, nanoseconds) in seconds.series("puts.p99") {
    ///     println!("{millis}: {nanoseconds} ns");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::writer_figures`].
    pub fn writer_history(&self) -> Result<[History; 2]> {
        let (dir, uuid) = self.place_of_figures()?;
        Ok([read_history(&*dir, uuid, Pace::Seconds)?, read_history(&*dir, uuid, Pace::Minutes)?])
    }

    /// The directory, and the identity of the database in it.
    fn place_of_figures(&self) -> Result<(Arc<dyn Dir>, [u8; 16])> {
        files::check_path(&self.path)?;
        let path = self.path.display();
        let no_database = || Error::NotFound { what: format!("database {path}").into() };
        let dir = self.env.disk.open_dir(&self.path, false).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => no_database(),
            _ => Error::io("open", &path.to_string(), e),
        })?;
        let (_, uuid) = in_force(&*dir)?.ok_or_else(no_database)?;
        Ok((dir, uuid))
    }
}

impl Reader {
    /// Returns what the process that writes the database has published: see [`OpenOptions::writer_figures`].
    ///
    /// # Errors
    /// As there.
    pub fn writer_figures(&self) -> Result<Option<WriterFigures>> {
        let (dir, uuid, now) = self.place();
        WriterFigures::read((dir, uuid), now)
    }
}
