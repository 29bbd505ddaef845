//! How commands end: exit codes, and errors that say what happened, where, and what to do next.

use std::io;
use std::process::ExitCode;

use tidesdb::{Error, TreeStats};

use crate::text;

/// Exit code of the program. Part of its interface: scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// Negative result: no such key, or a check found damage.
    No = 1,
    /// The command line or the input is wrong.
    Usage = 2,
    /// The command failed: I/O, corruption, a full disk.
    Failed = 3,
    /// Another process has the database open; try again later.
    InUse = 4,
    /// A signal has stopped the command, which has removed what it had begun. Shells say the same of a process that a Ctrl-C has ended.
    Stopped = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Begins the style of the next step.
pub(crate) const NEXT: &str = "\x1b[1;32m";

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    what: String,
    next: Option<String>,
    damage: Option<Box<Error>>,
}

/// Result of a command.
pub type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// Returns a failure for a wrong command line or input.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, what: what.into(), next: None, damage: None }
    }

    /// Returns a failure for a command that could not be completed.
    pub fn failed(what: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, what: what.into(), next: None, damage: None }
    }

    /// Returns a failure for a negative result of a check.
    pub fn no(what: impl Into<String>) -> Self {
        Self { exit: Exit::No, ..Self::failed(what) }
    }

    /// Returns a failure for a command that a signal has stopped.
    pub fn stopped(what: impl Into<String>) -> Self {
        Self { exit: Exit::Stopped, ..Self::failed(what) }
    }

    /// Returns a failure for a family whose key order this program does not know.
    pub fn unknown_order(tree: &TreeStats) -> Self {
        let what =
            format!("family {:?} has the key order {:?}, which is not known here", tree.family, tree.order);
        let next = "only a program that has this order can read the family; here `families`, `stats` and `levels` show it";
        Self { exit: Exit::Usage, next: Some(next.into()), ..Self::failed(what) }
    }

    /// Returns a failure for a failed system call on one of the user's files.
    pub fn file(op: &str, path: &std::path::Path, e: &io::Error) -> Self {
        Self::failed(format!("cannot {op} {}: {e}", path.display()))
    }

    /// Adds the next step for the user.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Adds something else to know to the next step.
    pub fn also(mut self, text: impl AsRef<str>) -> Self {
        let before = self.next.map_or(String::new(), |step| step + "; ");
        self.next = Some(before + text.as_ref());
        self
    }

    /// Replaces the next step by the name that was probably meant, if any is near enough.
    pub fn meant(self, name: Option<impl AsRef<str>>) -> Self {
        match name {
            Some(name) => self.next(format!("did you mean {:?}?", name.as_ref())),
            None => self,
        }
    }

    /// Adds where the failure happened.
    pub fn at(mut self, place: &str) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// True if the reader of our output has closed it: nothing to report.
    pub fn is_hangup(&self) -> bool {
        self.exit == Exit::Done
    }

    /// Returns the damage on disk, if that is the cause.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_deref()
    }

    /// The message, on one or two lines.
    pub fn message(&self) -> String {
        self.painted(false)
    }

    /// The message, with or without colours.
    pub fn painted(&self, colours: bool) -> String {
        let (error, next) = match colours {
            true => ("\x1b[1;31merror:\x1b[0m".to_owned(), format!("{NEXT}next:\x1b[0m")),
            false => ("error:".to_owned(), "next:".to_owned()),
        };
        // They name files and families, which anybody may have named.
        let what = text::plain(&self.what);
        match &self.next {
            Some(step) => format!("{error} {what}\n {next} {}", text::plain(step)),
            None => format!("{error} {what}"),
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
            Error::Locked { .. } | Error::Busy { .. } | Error::Closing { .. } => Exit::InUse,
            _ => Exit::Failed,
        };
        let next = match &e {
            Error::Corrupt { file, .. } if file.contains(".wal") => Some(
                "`tidesdb verify --recovery salvage` lists all damage; restore a checkpoint, or add `--recovery salvage` to \
                 `dump` what can be read",
            ),
            Error::Corrupt { .. } => {
                Some("`tidesdb verify` lists all damage; restore a checkpoint or a backup")
            }
            Error::Locked { .. } => Some(
                "wait until the other process closes it, or stop that process; commands that only read work meanwhile",
            ),
            Error::Poisoned { .. } | Error::CommitUnknown { .. } => {
                Some("run the command again: opening recovers")
            }
            Error::NotFound { what } if what.starts_with("database") => {
                Some("check --db; `put`, `load` and `shell` create a database if it does not exist")
            }
            Error::NotFound { what } if what.contains("family") => {
                Some("`tidesdb families` lists them, `tidesdb families create NAME` creates one")
            }
            Error::InvalidArgument { what } if what.ends_with("OpenOptions::comparator") => Some(
                "only a program that has these orders can write this database; commands that only read work",
            ),
            Error::NotBuiltIn { feature: "zstd" } => Some(
                "the program of the Debian package has it; from source: `cargo install --profile dist --path \
                 crates/tidesdb-cli --features zstd`, which needs a C compiler",
            ),
            _ => None,
        };
        let damage = e.is_corruption().then(|| Box::new(e.clone()));
        Self { exit, what: e.to_string(), next: next.map(Into::into), damage }
    }
}

/// Failures of our own output. It is not an error if a reader such as `head` has closed the pipe.
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
    fn exit_codes_distinguish_wrong_usage_from_failures() {
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
    fn a_program_without_zstd_says_where_one_with_it_is() {
        let message = Failure::from(Error::NotBuiltIn { feature: "zstd" }).message();
        assert!(message.contains("zstd compression is not built in"), "{message}");
        assert!(message.contains(" next: ") && message.contains("--features zstd"), "{message}");
    }

    #[test]
    fn colours_do_not_change_the_text() {
        let failure = Failure::usage("bad").next("better").meant(None::<&str>);
        let painted = failure.painted(true);
        assert!(painted.contains("\x1b[1;31merror:\x1b[0m bad\n"), "{painted:?}");
        let plain = painted.replace("\x1b[1;31m", "").replace("\x1b[1;32m", "").replace("\x1b[0m", "");
        assert_eq!(plain, failure.message());
        assert!(failure.meant(Some("users")).message().ends_with("\n next: did you mean \"users\"?"));
    }

    #[test]
    fn a_closed_output_pipe_is_not_an_error() {
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_hangup());
        assert!(!Failure::from(io::Error::from(io::ErrorKind::StorageFull)).is_hangup());
    }
}
