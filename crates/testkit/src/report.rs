//! Machine-readable results, one line for each test, and the arguments of the runners.

use std::fmt::Write as _;
use std::process::ExitCode;

/// The value of `--name` on the command line.
pub fn argument(name: &str) -> Option<u64> {
    text_argument(name)?.parse().ok()
}

/// The value of `--name` on the command line, as text.
pub fn text_argument(name: &str) -> Option<String> {
    let mut args = std::env::args();
    args.find(|a| a == &format!("--{name}"))?;
    args.next()
}

/// One line: the test, then its figures.
pub fn line(test: &str, figures: &[(&str, u64)]) -> String {
    let mut out = test.to_owned();
    for (name, n) in figures {
        let _ = write!(out, " {name}={n}");
    }
    out
}

/// Prints the line of a test and judges it: no violation, and no figure below its floor, for a test that silently shrinks
/// has failed.
pub fn finish(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    println!("{}", line(test, figures));
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    enough(test, figures, floors) && figure("violations") == 0
}

/// Whether no figure is below its floor; tells of those that are.
pub fn enough(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    let low: Vec<_> = floors.iter().filter(|(name, floor)| figure(name) < *floor).collect();
    for (name, floor) in &low {
        eprintln!("{test}: {name} is {}, below its floor of {floor}", figure(name));
    }
    low.is_empty()
}

/// What a runner ends with.
pub fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
