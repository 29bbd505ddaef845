//! The benchmark as a part of this program.

use std::ffi::OsString;

use super::BENCH;
use crate::failure::Outcome;

/// Runs the benchmark.
pub(super) fn run(args: &[OsString], json: bool) -> Outcome {
    let json = json.then(|| OsString::from("--json"));
    Ok(tidesdb_bench::program::main(args.iter().cloned().chain(json), &[BENCH]))
}

/// Returns what the benchmark says of its arguments.
#[cfg(feature = "pages")]
pub(super) fn described() -> Option<String> {
    Some(tidesdb_bench::program::described())
}
