//! System access of the program itself: its input files, the time, threads, what streams can show.
//!
//! Databases are accessed only through the engine; this module is for everything else.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

/// Opens one of the user's files for reading.
#[expect(clippy::disallowed_methods, reason = "a file that the user names is not part of a database")]
pub(crate) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Returns the current time, to measure durations.
#[expect(clippy::disallowed_methods, reason = "the program measures itself; the engine keeps its own time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Starts a thread that works for the display only.
#[expect(clippy::disallowed_methods, reason = "it does nothing with a database that a test would simulate")]
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(work)
}

/// Returns how a user starts this program.
pub(crate) fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "tidesdb" }
}

/// Returns how many bytes this process has read with system calls; `None` if the system does not say.
pub(crate) fn bytes_read() -> Option<u64> {
    read_of(&std::fs::read_to_string("/proc/self/io").ok()?)
}

/// Finds the bytes read in the text of `/proc/PID/io`.
fn read_of(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

/// True if text for a stream gets colours.
pub(crate) fn colours(terminal: bool) -> bool {
    wants_colours(terminal, |name| std::env::var_os(name))
}

/// True if text for the standard error stream gets colours.
pub(crate) fn error_colours() -> bool {
    colours(io::stderr().is_terminal())
}

/// True if the standard error stream is a terminal on which lines can be drawn again.
pub(crate) fn can_redraw() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Decides about colours: `NO_COLOR` (no-color.org) wins, then `CLICOLOR_FORCE` and `CLICOLOR` (bixense.com/clicolors), then the stream.
fn wants_colours(terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
    let is_set = |name: &str| variable(name).is_some_and(|found| !found.is_empty());
    if is_set("NO_COLOR") {
        return false;
    }
    if is_set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0") {
        return true;
    }
    terminal && !is("CLICOLOR", "0") && !is("TERM", "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_about_colours() {
        let decided = |terminal, set: &[(&str, &str)]| {
            wants_colours(terminal, |name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        assert!(decided(true, &[]) && !decided(false, &[]));
        assert!(!decided(true, &[("NO_COLOR", "1")]) && decided(true, &[("NO_COLOR", "")]));
        assert!(decided(false, &[("CLICOLOR_FORCE", "1")]) && !decided(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!decided(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(!decided(true, &[("CLICOLOR", "0")]) && !decided(false, &[("CLICOLOR", "1")]));
        assert!(decided(false, &[("CLICOLOR", "0"), ("CLICOLOR_FORCE", "1")]));
        assert!(!decided(true, &[("TERM", "dumb")]) && decided(true, &[("TERM", "xterm")]));
    }

    #[test]
    fn bytes_read_are_those_of_all_reads() {
        assert_eq!(read_of("rchar: 5321\nwchar: 7\nread_bytes: 4096\n"), Some(5321));
        assert_eq!(read_of("wchar: 7\n"), None);
    }
}
