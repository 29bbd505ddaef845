//! System access of the program itself: its input files, the time, whether a stream is a terminal.
//!
//! Databases are accessed only through the engine; this module is for everything else.

use std::fs::File;
use std::io;
use std::path::Path;
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

/// True if the user wants colours on a stream that is a terminal.
pub(crate) fn colours(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
