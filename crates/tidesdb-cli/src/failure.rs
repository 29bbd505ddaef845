//! How commands end: exit codes, and errors that say what happened, where, and what to do next.

use std::io;
use std::process::ExitCode;

use tidesdb::Error;

/// What the program's exit code says. Part of its interface: scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no: no such key, or a check found damage.
    No = 1,
    /// The command line or the input is wrong.
    Usage = 2,
    /// It could not be done: I/O, corruption, a full disk.
    Failed = 3,
    /// Another process has the database open; later it may work.
    InUse = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    what: String,
    next: Option<String>,
    damage: Option<Box<Error>>,
}

/// How a command ended.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// The command line or the input is wrong.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, what: what.into(), next: None, damage: None }
    }

    /// It could not be done.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, what: what.into(), next: None, damage: None }
    }

    /// A check said no.
    pub(crate) fn no(what: impl Into<String>) -> Self {
        Self { exit: Exit::No, ..Self::failed(what) }
    }

    /// A system call on one of the user's files failed.
    pub(crate) fn file(op: &str, path: &std::path::Path, e: &io::Error) -> Self {
        Self::failed(format!("cannot {op} {}: {e}", path.display()))
    }

    /// Adds what to do next.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Says where it happened.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// Whether nobody reads our output any more: no reason to complain.
    pub(crate) fn is_hangup(&self) -> bool {
        self.exit == Exit::Done
    }

    /// The damage on disk, if that is the reason.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.as_deref()
    }

    /// The message, on one line or two.
    pub(crate) fn message(&self) -> String {
        match &self.next {
            Some(next) => format!("error: {}\n next: {next}", self.what),
            None => format!("error: {}", self.what),
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let exit = match &e {
            Error::NotFound { .. }
            | Error::Exists { .. }
            | Error::InvalidArgument { .. }
            | Error::ReadOnly => Exit::Usage,
            Error::Locked { .. } | Error::Busy { .. } => Exit::InUse,
            _ => Exit::Failed,
        };
        let next = match &e {
            Error::Corrupt { .. } => Some(
                "`tidesdb verify` lists all damage; restore a checkpoint, or add `--recovery salvage` to `dump` what can \
                 be read",
            ),
            Error::Locked { .. } => Some("wait until the other process closes it, or stop that process"),
            Error::Poisoned { .. } | Error::CommitUnknown { .. } => {
                Some("run the command again: opening recovers")
            }
            Error::NotFound { what } if what.starts_with("database") => {
                Some("check --db; `put`, `load` and `shell` create a database")
            }
            Error::NotFound { what } if what.contains("family") => {
                Some("`tidesdb families` lists them, `tidesdb families create NAME` makes one")
            }
            _ => None,
        };
        let damage = e.is_corruption().then(|| Box::new(e.clone()));
        Self { exit, what: e.to_string(), next: next.map(Into::into), damage }
    }
}

/// Failures of our own output. That a reader such as `head` has left is not an error.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        let exit = if e.kind() == io::ErrorKind::BrokenPipe { Exit::Done } else { Exit::Failed };
        Self { exit, what: format!("cannot write the output: {e}"), next: None, damage: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_mistakes_from_failures() {
        assert_eq!(Failure::from(Error::ReadOnly).exit, Exit::Usage);
        assert_eq!(Failure::from(Error::Busy { cause: "flush" }).exit, Exit::InUse);
        assert_eq!(Failure::from(Error::Closed).exit, Exit::Failed);
        let damage = Error::Corrupt { file: "000001.klog".into(), offset: 77, what: "checksum".into() };
        let failure = Failure::from(damage);
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message().contains("000001.klog at byte 77"), "{}", failure.message());
        assert!(failure.message().contains(" next: "), "{}", failure.message());
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_hangup());
        assert!(!Failure::from(io::Error::from(io::ErrorKind::StorageFull)).is_hangup());
    }
}
