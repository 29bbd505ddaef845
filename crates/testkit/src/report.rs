//! Machine-readable results, one line per test, and the arguments of the runners.

use std::fmt::Write as _;
use std::process::ExitCode;

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

/// Formats one line: the test, then its figures.
pub fn line(test: &str, figures: &[(&str, u64)]) -> String {
    let mut out = test.to_owned();
    for (name, n) in figures {
        let _ = write!(out, " {name}={n}");
    }
    out
}

/// Prints the line of a test and returns whether it passed: no violation, and no figure below its minimum. A test that silently
/// checks less than it should has failed.
pub fn finish(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    println!("{}", line(test, figures));
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    enough(test, figures, floors) && figure("violations") == 0
}

/// Returns whether no figure is below its minimum; prints those that are.
pub fn enough(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    let low: Vec<_> = floors.iter().filter(|(name, floor)| figure(name) < *floor).collect();
    for (name, floor) in &low {
        eprintln!("{test}: {name} is {}, below its minimum of {floor}", figure(name));
    }
    low.is_empty()
}

/// Returns the exit code of a runner.
pub fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
