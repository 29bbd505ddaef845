//! System access of the program itself: its input files and the time.
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

/// Opens one of the user's files for writing, and leaves its content as it is.
#[expect(clippy::disallowed_methods, reason = "a file that the user names is not part of a database")]
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path)
}

/// Returns the current time, to measure durations.
#[expect(clippy::disallowed_methods, reason = "the program measures itself; the engine keeps its own time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns how a user starts this program.
pub(crate) fn program() -> String {
    if std::env::var_os("CARGO").is_some() {
        return "cargo run --release --".to_owned();
    }
    program_of(&std::env::args().next().unwrap_or_default())
}

/// Returns how a user who typed `first` starts the program. A shell does not find a program of the current folder without the path.
fn program_of(first: &str) -> String {
    let is_path = first.contains(std::path::is_separator) && !Path::new(first).has_root();
    if is_path { first } else { "tidesdb" }.to_owned()
}

/// Returns how many bytes this process has read with system calls; `None` if the system does not say.
pub(crate) fn bytes_read() -> Option<u64> {
    read_of(&std::fs::read_to_string("/proc/self/io").ok()?)
}

/// Finds the bytes read in the text of `/proc/PID/io`.
fn read_of(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unpacked archive is tried in its own folder: `tidesdb` alone is not found there.
    #[test]
    fn the_program_is_named_as_it_was_typed() {
        for typed in ["./tidesdb", "../bin/tidesdb"] {
            assert_eq!(program_of(typed), typed);
        }
        let absolute = if cfg!(windows) { r"C:\bin\tidesdb.exe" } else { "/usr/bin/tidesdb" };
        for found in ["tidesdb", "", absolute, "/usr/bin/tidesdb"] {
            assert_eq!(program_of(found), "tidesdb");
        }
    }

    #[test]
    fn bytes_read_are_those_of_all_reads() {
        assert_eq!(read_of("rchar: 5321\nwchar: 7\nread_bytes: 4096\n"), Some(5321));
        assert_eq!(read_of("wchar: 7\n"), None);
    }
}
