//! What other processes can see of a database and of the process that writes it: its figures, their history, the event log, the disk.
//! Nothing is opened for it, and nothing changes.

pub(crate) mod clock;
pub(crate) mod track;
pub(crate) mod model;
pub(crate) mod events;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tidesdb::{Db, Error, WriterFigures, WriterState};
use tidesdb_io::{Disk, RealDisk};

use crate::failure::{Failure, Outcome};
use crate::host;
use crate::session::{self, Lock, lock_of};
use crate::text::plain;
use track::Track;

/// One look at a database.
#[derive(Debug)]
pub(crate) struct Look {
    /// What the process that writes has published last, or the last process that did.
    pub(crate) figures: WriterFigures,
    /// Another process has the database open now, and has published nothing.
    pub(crate) is_of_earlier: bool,
    /// Of each second of the last hour in which something happened.
    pub(crate) seconds: Track,
    /// Of each minute of the last day.
    pub(crate) minutes: Track,
    /// Bytes of the file system that are free, and all of them.
    pub(crate) space: Option<(u64, u64)>,
    /// The clock of this machine, in milliseconds since the UNIX epoch.
    pub(crate) now: u64,
}

/// Looks at one database again and again.
#[derive(Debug)]
pub(crate) struct Watcher {
    path: PathBuf,
    /// The process and its state for which the lock was looked at, what it was, and when. The figures were those of the database's writer.
    judged: Option<((u32, WriterState), Lock, Instant)>,
}

/// How long it is believed that no other process has opened the database since a process has gone.
const GONE_FOR: Duration = Duration::from_secs(5);

/// Why there are no figures of a process that has the database open.
pub(crate) const NO_FIGURES: &str = "the process that writes has published none (it has just opened the database, or has written nothing since, or \
                          has event_log off, or is of an older version)";

/// Why there are no figures of a process that had the database open.
const NEVER: &str = "no process has published any (none has written the database for half a second or longer, or it had event_log off, or was of \
                     an older version)";

impl Watcher {
    /// Watches the database at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), judged: None }
    }

    /// Looks at the database now.
    ///
    /// # Errors
    /// If there is no database (`Usage`), if it has no figures of the process that has it open (`No`), or if they cannot be read.
    pub(crate) fn look(&mut self) -> Outcome<Look> {
        let look = self.look_back()?;
        if look.is_of_earlier {
            let (process, state) = (look.figures.process, look.figures.state);
            return Err(Failure::no(format!(
                "there are no figures of the process that has {} open: the last are of process {process}, which {state}",
                self.path.display()
            ))
            .next("it publishes once it has written something; with event_log off it never does. `tidesdb why` looks at what was before"));
        }
        Ok(look)
    }

    /// The same, also if the figures are of an earlier process than the one that has the database open.
    ///
    /// # Errors
    /// If there is no database (`Usage`), if it has no figures (`No`), or if they cannot be read.
    pub(crate) fn look_back(&mut self) -> Outcome<Look> {
        let options = Db::options(&self.path);
        let figures = options.writer_figures().map_err(|error| self.failure(error))?;
        let Some(mut figures) = figures else {
            let why = if lock_of(&self.path) == Lock::Held { NO_FIGURES } else { NEVER };
            return Err(Failure::no(format!("there are no figures of {}: {why}", self.path.display()))
                .next("`tidesdb stats`, `levels` and `doctor` show what the files of the database say"));
        };
        let is_of_earlier = !self.judge(&mut figures);
        let [seconds, minutes] = options.writer_history()?;
        let written = figures.written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = written.saturating_add(figures.age);
        Ok(Look {
            figures,
            is_of_earlier,
            seconds: seconds.into(),
            minutes: minutes.into(),
            space: space(&self.path),
            now: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn failure(&self, error: Error) -> Failure {
        if session::is_foreign(&self.path) {
            session::foreign(&self.path)
        } else {
            session::no_database(error, &self.path)
        }
    }

    /// Returns whether the figures are those of the process that has the database open, or of the last one that had, and settles whether a
    /// process of unknown state has ended. Looks at the lock only if the answer may have changed: a writer that opens the database at that
    /// moment would be refused.
    fn judge(&mut self, figures: &mut WriterFigures) -> bool {
        let who = (figures.process, figures.state);
        let may_have_gone =
            matches!(figures.state, WriterState::Closed | WriterState::Unknown) || figures.state.has_ended();
        let known =
            self.judged.filter(|(of, _, at)| *of == who && (!may_have_gone || at.elapsed() < GONE_FOR));
        let lock = known.map_or_else(|| lock_of(&self.path), |(_, lock, _)| lock);
        let answer = known.is_some()
            || match figures.state {
                // The last ones of a process that has gone are shown as such, unless another one has the database now.
                WriterState::Closed => lock != Lock::Held,
                _ => session::is_of_writer(figures, lock == Lock::Held),
            };
        session::settle(figures, lock == Lock::Free);
        self.judged = answer.then(|| known.unwrap_or_else(|| (who, lock, host::now())));
        answer
    }
}

/// Returns a text of somebody else as a part of one line.
pub(crate) fn on_one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// Bytes of the file system that are free, and all of them.
fn space(path: &Path) -> Option<(u64, u64)> {
    let space = RealDisk::new().open_dir(path, false).ok()?.space().ok()?;
    Some((space.free, space.total))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::OnceLock;
    use std::time::Duration;

    use super::*;
    use track::tests::BASE;

    /// A look at a database with one row, whose figures are those of the moment `BASE`, one second before the look. Tests change what they need.
    pub(crate) fn look(seconds: Track) -> Look {
        static FIGURES: OnceLock<WriterFigures> = OnceLock::new();
        let figures = FIGURES.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let db = Db::open(dir.path()).unwrap();
            db.put("whale", "blue").unwrap();
            loop {
                std::thread::sleep(Duration::from_millis(20));
                if let Some(figures) = Db::options(dir.path()).writer_figures().unwrap() {
                    return figures;
                }
            }
        });
        let mut figures = figures.clone();
        (figures.written, figures.age) =
            (SystemTime::UNIX_EPOCH + Duration::from_millis(BASE), Duration::from_secs(1));
        (figures.state, figures.process) = (WriterState::Running, 4711);
        Look {
            figures,
            is_of_earlier: false,
            seconds,
            minutes: Track::default(),
            space: Some((25 << 30, 100 << 30)),
            now: BASE + 1000,
        }
    }

    /// A process that opens the database later and publishes nothing is seen.
    #[test]
    fn that_nobody_writes_is_not_believed_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        db.put("whale", "blue").unwrap();
        while Db::options(dir.path()).writer_figures().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        db.close().unwrap();
        let mut watcher = Watcher::new(dir.path());
        assert_eq!(watcher.look().unwrap().figures.state, WriterState::Closed);
        let _later = Db::options(dir.path()).with(|options| options.event_log = false).open().unwrap();
        assert!(watcher.look().is_ok(), "the lock is left alone for a while");
        let (.., at) = watcher.judged.as_mut().unwrap();
        *at = at.checked_sub(GONE_FOR).unwrap();
        assert_eq!(watcher.look().unwrap_err().exit, crate::failure::Exit::No);
    }

    /// Where the system does not tell whether a process runs, the lock does, again and again.
    #[test]
    fn a_process_of_unknown_state_is_judged_by_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let mut watcher = Watcher::new(dir.path());
        let seen = |watcher: &mut Watcher| {
            let mut figures = look(Track::default()).figures;
            figures.state = WriterState::Unknown;
            assert!(watcher.judge(&mut figures));
            figures.state
        };
        assert_eq!(seen(&mut watcher), WriterState::Unknown);
        db.close().unwrap();
        assert_eq!(seen(&mut watcher), WriterState::Unknown, "the lock is left alone for a while");
        let (.., at) = watcher.judged.as_mut().unwrap();
        *at = at.checked_sub(GONE_FOR).unwrap();
        assert_eq!(seen(&mut watcher), WriterState::Ended);
        assert_eq!(seen(&mut watcher), WriterState::Ended);
    }
}
