//! An open database and the settings shared by the commands on it.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueHint;
use tidesdb::{
    Db, Error, Family, OpenOptions, Reader, RecoveryMode, SyncMode, TreeStats, WriteOptions, WriterFigures,
    WriterState, inspect,
};
use tidesdb_io::program;

use crate::failure::{Failure, Outcome};
use crate::names::{Offer, nearest};
use crate::progress::Progress;
use crate::{nearby, output, text};

/// The default family of databases that the C library created: it stores the settings of the other families.
const OF_THE_C_LIBRARY: &str = "tidesdb:settings";

/// Location of the database and how it is opened.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct Place {
    /// Directory of the database
    #[arg(short, long, value_name = "PATH", env = "TIDESDB_DB", global = true, value_hint = ValueHint::DirPath)]
    pub(crate) db: Option<PathBuf>,
    /// How to treat damage in the log
    #[arg(long, value_name = "MODE", global = true, default_value = "tail",
        value_parser = Offer::new(["tail", "strict", "point-in-time", "salvage"], recovery_mode))]
    pub(crate) recovery: RecoveryMode,
}

/// The database as the first argument, in the commands whose arguments name no key.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// Directory of the database [default: --db]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Options shared by all commands on a database.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Common")]
pub(crate) struct Common {
    /// Column family [default: default]
    #[arg(short, long, value_name = "NAME", global = true)]
    pub(crate) family: Option<String>,
    /// When writes are durable: none, full, or interval:TIME such as interval:50ms
    #[arg(long, value_name = "MODE", global = true, hide_possible_values = true,
        value_parser = Offer::new(["none", "full", "interval:50ms"], Sync::from_str))]
    pub(crate) sync: Option<Sync>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Keys and values on the command line contain escapes: \t \n \r \0 \\ \xHH
    #[arg(short, long, global = true)]
    pub(crate) escapes: bool,
}

/// Access to the database that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads only; the directory stays unchanged.
    Read,
    /// Writes, or requests background work.
    Write,
    /// Writes, and creates the database if it does not exist.
    Create,
}

/// A sync mode as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sync(pub(crate) SyncMode);

impl FromStr for Sync {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mode = match text.split_once(':') {
            None if text == "none" => SyncMode::None,
            None if text == "full" => SyncMode::Full,
            Some(("interval", time)) => SyncMode::Interval(duration(time)?),
            _ => return Err("expected none, full, or interval:TIME such as interval:50ms".to_owned()),
        };
        Ok(Self(mode))
    }
}

/// Parses a duration such as `50ms`, `30s`, `5m`, `12h` or `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write 50ms, 30s, 5m, 12h or 7d");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let n: u64 = text[..split].parse().map_err(|_| bad())?;
    let millis = match &text[split..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad()),
    };
    n.checked_mul(millis).map(Duration::from_millis).ok_or_else(bad)
}

fn recovery_mode(text: &str) -> Result<RecoveryMode, String> {
    match text {
        "tail" => Ok(RecoveryMode::Tail),
        "strict" => Ok(RecoveryMode::Strict),
        "point-in-time" => Ok(RecoveryMode::PointInTime),
        "salvage" => Ok(RecoveryMode::Salvage),
        _ => Err("expected tail, strict, point-in-time or salvage".to_owned()),
    }
}

impl Place {
    /// Returns the directory.
    pub(crate) fn path(&self) -> Outcome<&PathBuf> {
        let missing = || Failure::usage("no database given").next("add --db PATH, or set TIDESDB_DB");
        self.db.as_ref().ok_or_else(missing)
    }

    /// Returns the place of a command that may name the database itself.
    pub(crate) fn or_at(&self, dir: Option<&PathBuf>) -> Self {
        Self { db: dir.or(self.db.as_ref()).cloned(), ..self.clone() }
    }
}

/// Returns the trees of the families whose key order this program does not know.
fn of_unknown_order(path: &Path) -> tidesdb::Result<Vec<TreeStats>> {
    let mut trees = inspect::trees(path)?;
    trees.retain(|tree| !tree.order_is_known);
    Ok(trees)
}

/// Returns the failure of a command that needs the family `name`, which may have been left out.
fn failure_of(error: Error, path: &Path, name: &str) -> Failure {
    let left_out = match error {
        Error::NotFound { .. } => of_unknown_order(path).unwrap_or_default(),
        _ => Vec::new(),
    };
    let wanted = left_out.iter().find(|tree| tree.family == name);
    wanted.map_or_else(|| error.into(), Failure::unknown_order)
}

/// Returns the name of the default family of the database at `path`. Another program may have given it another name, and an open for writing
/// creates a family of a name that it does not find.
fn default_family(path: &Path) -> String {
    let trees = inspect::trees(path).unwrap_or_default();
    let is_there = |name: &str| trees.iter().any(|tree| tree.family == name);
    let known = [tidesdb::DEFAULT_FAMILY, OF_THE_C_LIBRARY].into_iter().find(|name| is_there(name));
    let first = || trees.iter().find(|tree| tree.order_is_known).map(|tree| tree.family.as_str());
    known.or_else(first).unwrap_or(tidesdb::DEFAULT_FAMILY).to_owned()
}

/// True if a directory has no file of a database: an open of it for reading or writing would leave one there, its lock, and fail. Exported
/// tables and the objects of a store have the same extensions, but their names are no numbers.
pub(crate) fn is_foreign(path: &Path) -> bool {
    let is_of_database = |name: OsString| {
        let extension = Path::new(&name).extension().and_then(OsStr::to_str);
        let stem = Path::new(&name).file_stem().and_then(OsStr::to_str);
        ["CURRENT", "LOCK"].iter().any(|known| name == *known)
            || extension.is_some_and(|end| ["manifest", "wal", "klog", "vlog"].contains(&end))
                && stem.is_some_and(|stem| stem.bytes().all(|b| b.is_ascii_digit()))
    };
    std::fs::read_dir(path)
        .is_ok_and(|mut all| !all.any(|one| one.is_ok_and(|one| is_of_database(one.file_name()))))
}

/// Refuses to create a database among the backups of a store: `generations` would not take the store any more.
fn check_no_store(path: &Path) -> Outcome<()> {
    let has = |name: &str| path.join(name).exists();
    if has("CURRENT") || !has("backup.index") && !has("backup.probe") {
        return Ok(());
    }
    let what = format!("{} is a store of backups; a database is a directory of its own", path.display());
    Err(Failure::usage(what)
        .next("name another --db; `tidesdb generations restore` makes a database of a backup"))
}

/// Returns the failure of a command on a directory without a database.
pub(crate) fn foreign(path: &Path) -> Failure {
    no_database(Error::NotFound { what: format!("database {}", path.display()).into() }, path)
}

/// Returns the failure of a command that needs the database at `path`. If there is no database at `path`, the message
/// suggests one nearby, which was probably meant.
pub(crate) fn no_database(error: Error, path: &Path) -> Failure {
    let is_family = matches!(&error, Error::NotFound { what } if what.starts_with("family"));
    if is_family && inspect::trees(path).is_ok_and(|trees| trees.is_empty()) {
        let what = format!("the database {} has no family: its creation did not end", path.display());
        return Failure::usage(what).next("`put`, `load` and `shell` complete it");
    }
    let is_missing = match &error {
        Error::NotFound { what } => what.starts_with("database"),
        Error::Io { .. } => !path.is_dir(),
        _ => false,
    };
    let failure = failure_of(error, path, tidesdb::DEFAULT_FAMILY);
    if is_missing { or_nearby(failure, path) } else { failure }
}

/// Adds a database near `path`, if there is one, to the failure to find one there.
pub(crate) fn or_nearby(failure: Failure, path: &Path) -> Failure {
    match nearby::suggestion(path) {
        Some(suggestion) => failure.next(suggestion),
        None => failure,
    }
}

/// An open database with the settings of one command.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) db: Db,
    pub(crate) path: PathBuf,
    pub(crate) common: Common,
    pub(crate) access: Access,
    /// Set if another process has the database open for writing: then `db` is a view of this reader.
    pub(crate) beside: Option<Reader>,
    /// True if the commands come from the standard input, which a command cannot read as well.
    pub(crate) is_script: bool,
}

impl Session {
    /// Opens the database. A command that only reads gets a view of it if another process has it open for writing.
    pub(crate) fn open(place: &Place, common: &Common, access: Access) -> Outcome<Self> {
        let path = place.path()?;
        if access != Access::Create && is_foreign(path) {
            return Err(foreign(path));
        }
        if access == Access::Create {
            check_no_store(path)?;
        }
        let sync = common.sync.map_or(SyncMode::Full, |sync| sync.0);
        let options = |default_family: &str| {
            Db::options(path)
                .recovery(place.recovery)
                .sync(sync)
                .read_only(access == Access::Read)
                .create_if_missing(access == Access::Create)
                .default_family_name(default_family)
                .allow_unknown(access == Access::Read)
        };
        let alone = |db| (db, None);
        let progress = Progress::new(None);
        progress.say(format!("opening {}", path.display()));
        let first = match access {
            Access::Read => tidesdb::DEFAULT_FAMILY.to_owned(),
            Access::Write | Access::Create => default_family(path),
        };
        let opened = match options(&first).open() {
            // An open for reading creates no family, and the C library does not create the default one.
            Err(Error::NotFound { .. }) if access == Access::Read => {
                options(&default_family(path)).open().map(alone)
            }
            Err(Error::Locked { .. }) if access == Access::Read && place.recovery == RecoveryMode::Tail => {
                open_beside(options, path)
            }
            opened => opened.map(alone),
        };
        drop(progress);
        let (db, beside) = opened.map_err(|e| no_database(e, path))?;
        Ok(Self { db, path: path.clone(), common: common.clone(), access, beside, is_script: false })
    }

    /// Refuses to read the standard input if the commands come from there: the shell holds it, so the command would wait for ever.
    pub(crate) fn check_input(&self) -> Outcome<()> {
        match self.is_script {
            true => Err(Failure::usage("the standard input is the script")
                .next("write the value into the line, or name a file")),
            false => Ok(()),
        }
    }

    /// Brings a view of a database that another process writes up to date.
    pub(crate) fn refresh(&mut self) -> Outcome<()> {
        if let Some(reader) = &self.beside {
            self.db = reader.refresh()?;
        }
        Ok(())
    }

    /// Returns the remark that the command shows a view; `None` if no other process writes the database.
    pub(crate) fn remark(&self) -> Option<String> {
        let seq = self.beside.as_ref()?.seq();
        Some(format!("note: the database is open elsewhere; this is a view of it at sequence number {seq}"))
    }

    /// Returns the figures of the process that writes the database, or of the one that ended without closing it; `None` if that is this
    /// process, or if there are none.
    pub(crate) fn writer_figures(&self) -> Option<WriterFigures> {
        let (found, lock) = match &self.beside {
            Some(reader) => (reader.writer_figures(), Lock::Held),
            // This session shares the lock, so nobody writes.
            None if self.access == Access::Read => (Db::options(&self.path).writer_figures(), Lock::Free),
            None => return None,
        };
        Published::of(found, lock).figures
    }

    /// Returns the trees of the families that were left out, because this program does not know their key order.
    pub(crate) fn left_out(&self) -> Outcome<Vec<TreeStats>> {
        Ok(of_unknown_order(&self.path)?)
    }

    /// Returns the family that the command uses.
    pub(crate) fn family(&self) -> Outcome<Family> {
        let name = self.common.family.as_deref().unwrap_or(tidesdb::DEFAULT_FAMILY);
        self.family_named(name)
    }

    /// Returns the family `name`.
    pub(crate) fn family_named(&self, name: &str) -> Outcome<Family> {
        self.db.family(name).map_err(|e| self.no_family(e, name))
    }

    /// Returns the failure of a call that needs the family `name`. If there is no such family, the user probably
    /// meant another one.
    pub(crate) fn no_family(&self, error: Error, name: &str) -> Failure {
        let meant = match &error {
            Error::NotFound { .. } => nearest(name, self.db.families()),
            _ => None,
        };
        failure_of(error, &self.path, name).meant(meant)
    }

    /// Returns the write options of this command, with the sync mode `unless` if the user gave none.
    pub(crate) fn write_options(&self, unless: SyncMode) -> WriteOptions {
        WriteOptions::default().sync(self.common.sync.map_or(unless, |sync| sync.0))
    }

    /// Returns the bytes that an argument stands for.
    pub(crate) fn bytes<'a>(&self, argument: &'a OsStr) -> Outcome<Cow<'a, [u8]>> {
        let no_text = || {
            Failure::usage(format!("argument {argument:?} is no text"))
                .next("write any bytes as \\xHH, with --escapes")
        };
        let given = program::bytes_of(argument).ok_or_else(no_text)?;
        if !self.common.escapes {
            return Ok(given.into());
        }
        let mut out = Vec::with_capacity(given.len());
        text::unescape(given, &mut out)
            .map_err(|e| Failure::usage(format!("argument {:?}: {e}", text::printable(given))))?;
        Ok(out.into())
    }
}

/// Returns whether published figures are those of the process that has the database open, or of the last one if none has, which ended without
/// closing it. `is_locked` if one has. Those of a process that runs while nobody holds the lock are of the original of a copied folder; those of a process that
/// has ended while somebody holds it are of an earlier one.
pub(crate) fn is_of_writer(figures: &WriterFigures, is_locked: bool) -> bool {
    match figures.state {
        WriterState::Closed => false,
        WriterState::Ended | WriterState::Rebooted => !is_locked,
        WriterState::Running | WriterState::Idle | WriterState::Stopped => is_locked,
        _ => true,
    }
}

/// Takes a process of which the system does not tell whether it runs for one that has ended, if `is_free`: nobody holds the lock of the
/// database. Cursors and snapshots of such a process have not become older since.
pub(crate) fn settle(figures: &mut WriterFigures, is_free: bool) {
    if figures.state != WriterState::Unknown || !is_free {
        return;
    }
    figures.state = WriterState::Ended;
    let (stats, age) = (&mut figures.stats, figures.age.as_secs_f64());
    let younger = |count: usize, seconds: f64| if count > 0 { (seconds - age).max(0.0) } else { seconds };
    stats.oldest_cursor_seconds = younger(stats.cursors, stats.oldest_cursor_seconds);
    stats.oldest_snapshot_seconds = younger(stats.snapshots, stats.oldest_snapshot_seconds);
}

/// What a process that writes the database says of itself.
#[derive(Debug)]
pub(crate) struct Published {
    /// The figures of the process that writes, or of the last one that did and ended without closing the database.
    pub(crate) figures: Option<WriterFigures>,
    /// Why they cannot be read.
    pub(crate) error: Option<Error>,
    /// A process has the database open for writing.
    pub(crate) is_locked: bool,
}

impl Published {
    /// Judges what was read, and tells the user if it cannot be read.
    fn of(found: tidesdb::Result<Option<WriterFigures>>, lock: Lock) -> Self {
        let is_locked = lock == Lock::Held;
        match found {
            Ok(found) => {
                let mut figures = found.filter(|figures| is_of_writer(figures, is_locked));
                figures.iter_mut().for_each(|figures| settle(figures, lock == Lock::Free));
                Self { figures, error: None, is_locked }
            }
            Err(error) => {
                output::tell(format!("note: the figures of the writer cannot be read: {error}\n"));
                Self { figures: None, error: Some(error), is_locked }
            }
        }
    }
}

/// The lock of a database, which a process that writes it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Held,
    Free,
    /// It could not be tried.
    Unknown,
}

/// Tries the lock of the database at `path`.
pub(crate) fn lock_of(path: &Path) -> Lock {
    match Db::options(path).read_only(true).lock() {
        Ok(_) => Lock::Free,
        Err(Error::Locked { .. }) => Lock::Held,
        Err(_) => Lock::Unknown,
    }
}

/// Returns what the process that writes the database at `path`, or the last one that did, says of itself. Opens nothing.
pub(crate) fn published(path: &Path) -> Outcome<Published> {
    if is_foreign(path) {
        return Err(foreign(path));
    }
    match Db::options(path).read_only(true).writer_figures() {
        Err(error @ Error::NotFound { .. }) => Err(no_database(error, path)),
        found => Ok(Published::of(found, lock_of(path))),
    }
}

/// Opens a reader beside the process that writes, and its first view.
fn open_beside(options: impl Fn(&str) -> OpenOptions, path: &Path) -> tidesdb::Result<(Db, Option<Reader>)> {
    let reader = match options(tidesdb::DEFAULT_FAMILY).open_reader() {
        Err(Error::NotFound { .. }) => options(&default_family(path)).open_reader(),
        opened => opened,
    }?;
    Ok((reader.view(), Some(reader)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_modes() {
        assert_eq!("none".parse(), Ok(Sync(SyncMode::None)));
        assert_eq!("full".parse(), Ok(Sync(SyncMode::Full)));
        assert_eq!("interval:50ms".parse(), Ok(Sync(SyncMode::Interval(Duration::from_millis(50)))));
        for bad in ["", "interval", "interval:", "interval:5", "interval:x5s", "full:1s", "NONE"] {
            assert!(bad.parse::<Sync>().is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(duration("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(duration("0ms"), Ok(Duration::ZERO));
        for bad in ["", "5", "s", "-1s", "5 s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    /// Outside of Linux, and of a process of another container, only the lock tells.
    #[test]
    fn a_process_of_unknown_state_has_ended_if_the_lock_is_free() {
        let mut figures = crate::look::tests::look(crate::look::track::Track::default()).figures;
        (figures.state, figures.age) = (WriterState::Unknown, Duration::from_secs(3600));
        (figures.stats.cursors, figures.stats.oldest_cursor_seconds) = (1, 3605.0);
        (figures.stats.snapshots, figures.stats.oldest_snapshot_seconds) = (1, 3607.0);
        let seen = |lock| Published::of(Ok(Some(figures.clone())), lock).figures.unwrap();
        for lock in [Lock::Held, Lock::Unknown] {
            let seen = seen(lock);
            assert_eq!((seen.state, seen.stats.oldest_cursor_seconds), (WriterState::Unknown, 3605.0));
        }
        let ended = seen(Lock::Free);
        assert_eq!(ended.state, WriterState::Ended);
        assert_eq!((ended.stats.oldest_cursor_seconds, ended.stats.oldest_snapshot_seconds), (5.0, 7.0));
        let rules: Vec<&str> = ended.diagnose().iter().map(|finding| finding.rule).collect();
        assert!(rules.contains(&"ended") && !rules.contains(&"old-cursor"), "{rules:?}");
        assert!(
            ended.metrics_text().contains("tidesdb_oldest_cursor_seconds 5\n"),
            "{}",
            ended.metrics_text()
        );
    }

    #[test]
    fn a_command_without_a_database_fails() {
        assert!(Place::default().path().unwrap_err().message().contains("--db"));
    }
}
