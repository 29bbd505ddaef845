//! What the streams of a program can show.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;

use terminal_size::{Width, terminal_size_of};
use tidesdb_io::program;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// Returns the current time, to measure durations.
#[expect(clippy::disallowed_methods, reason = "it does nothing with a database that a test would simulate")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Starts a thread that works for the display only.
#[expect(clippy::disallowed_methods, reason = "it does nothing with a database that a test would simulate")]
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(work)
}

/// True if the terminals of this program understand escape sequences. The console of Windows is told to, at the first call.
fn understands_escapes() -> bool {
    static DO: OnceLock<bool> = OnceLock::new();
    *DO.get_or_init(program::enable_escapes)
}

/// True if text for a stream gets colours; `terminal` says whether it is a terminal.
pub fn colours(terminal: bool) -> bool {
    wants_colours(terminal && understands_escapes(), |name| std::env::var_os(name))
}

/// True if text for the standard error stream gets colours.
pub fn error_colours() -> bool {
    colours(io::stderr().is_terminal())
}

/// True if the standard error stream is a terminal on which lines can be drawn again.
pub fn can_redraw() -> bool {
    let is_dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && understands_escapes() && !is_dumb()
}

/// Returns the columns of the terminal that shows the standard error stream.
pub fn error_width() -> usize {
    terminal_size_of(io::stderr()).map_or(COLUMNS, |(Width(columns), _)| columns.into())
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
}
