//! Machine-readable results, one line per test, and the arguments of the runners.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use tempfile::TempDir;

/// Returns the value of `--name` on the command line.
pub fn argument(name: &str) -> Option<u64> {
    text_argument(name)?.parse().ok()
}

/// Returns the value of `--name` on the command line, as text.
pub fn text_argument(name: &str) -> Option<String> {
    let mut args = std::env::args();
    args.find(|a| a == &format!("--{name}"))?;
    args.next()
}

/// Makes a temporary directory, in `--dir` if that is on the command line.
///
/// # Errors
/// Those of the system.
pub fn temp_dir() -> io::Result<TempDir> {
    text_argument("dir").map_or_else(tempfile::tempdir, tempfile::tempdir_in)
}

/// Formats a line: the test, then its figures.
pub fn line(test: &str, figures: &[(&str, u64)]) -> String {
    let mut out = test.to_owned();
    for (name, n) in figures {
        let _ = write!(out, " {name}={n}");
    }
    out
}

/// Prints the line of a test and returns true if it passed: no violation, and no figure below its floor. The floors
/// detect tests that silently became smaller.
pub fn finish(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    println!("{}", line(test, figures));
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    enough(test, figures, floors) && figure("violations") == 0
}

/// Returns true if no figure is below its floor; prints those that are.
pub fn enough(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    let low: Vec<_> = floors.iter().filter(|(name, floor)| figure(name) < *floor).collect();
    for (name, floor) in &low {
        eprintln!("{test}: {name} is {}, below its floor of {floor}", figure(name));
    }
    low.is_empty()
}

/// Returns the exit code of a runner.
pub fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
