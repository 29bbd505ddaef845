//! Commands that are programs of their own, so that they take no part in the build of this one: `tidesdb NAME` becomes `tidesdb-NAME`,
//! which lies in the directory of this program or in one of `PATH`. It has the same process, and so gets all signals; on Windows it has
//! another one, which this one waits for. With its feature, a command is a part of this program instead, so that one file has everything.

#[cfg(not(feature = "bench"))]
mod found;
#[cfg(feature = "bench")]
mod inside;

use std::ffi::OsString;

#[cfg(not(feature = "bench"))]
use found as benchmark;
#[cfg(feature = "bench")]
use inside as benchmark;

use crate::failure::Outcome;

/// The command, and the name of its program behind the name of this one.
const BENCH: &str = "bench";

/// Measure engines and check their answers
///
/// This is a program of its own, `tidesdb-bench`, in the directory of this program or in one of PATH, or a part of this one. It measures
/// on Linux only. The Debian package has it. `tidesdb bench --help` shows its arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    args: Vec<OsString>,
}

impl Bench {
    /// Runs the benchmark. Does not return if that is a program of its own which starts.
    pub(crate) fn run(&self, json: bool) -> Outcome {
        benchmark::run(&self.args, json)
    }
}

/// Returns the command line with `help bench` replaced by `bench --help`: only the program knows its arguments.
pub(crate) fn with_help_last(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") && words.get(2).is_some_and(|word| word == BENCH) {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

/// Adds to `command` what the benchmark says of its arguments, if it is there.
#[cfg(feature = "pages")]
pub(crate) fn described(command: clap::Command) -> clap::Command {
    let known = benchmark::described().and_then(|text| tidesdb_console::described::read(&text));
    match known {
        Some(known) => command.mut_subcommand(BENCH, |_| known.name(BENCH)),
        None => command,
    }
}
