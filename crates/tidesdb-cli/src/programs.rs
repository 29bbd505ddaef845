//! Commands that are programs of their own, so that they take no part in the build of this one: `tidesdb NAME` becomes `tidesdb-NAME`,
//! which lies in the directory of this program or in one of `PATH`. It has the same process, and so gets all signals; on Windows it has
//! another one, which this one waits for.

use std::env::consts::{EXE_SUFFIX, OS};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidesdb_io::program;

use crate::failure::{Failure, Outcome};

/// The command, and the name of its program behind the name of this one.
const BENCH: &str = "bench";

/// Measure engines and check their answers
///
/// This is a program of its own, `tidesdb-bench`, in the directory of this program or in one of PATH. It measures on Linux only. The
/// Debian package has it. `tidesdb bench --help` shows its arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    /// Arguments of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    args: Vec<OsString>,
}

impl Bench {
    /// Becomes the program, or runs it and ends with its exit code. Returns only if that is not possible.
    pub(crate) fn run(&self, json: bool) -> Outcome {
        let beside = beside();
        let Some(path) = find(BENCH, beside.as_deref()) else {
            let beside = beside.map_or_else(String::new, |dir| format!("{} or ", dir.display()));
            let what =
                format!("the benchmark is a program of its own: there is no tidesdb-bench in {beside}PATH");
            return Err(Failure::usage(what).next(way_to_it(OS)));
        };
        let mut command = Command::new(&path);
        command.args(&self.args).args(json.then_some("--json"));
        match program::become_another(&mut command, "tidesdb bench") {
            Ok(code) => std::process::exit(code),
            Err(e) => Err(Failure::failed(format!("cannot start {}: {e}", path.display()))),
        }
    }
}

/// Returns where to get the benchmark on this system.
fn way_to_it(system: &str) -> &'static str {
    match system {
        "linux" => {
            "the Debian package has it; from source: `cargo run --profile dist -p tidesdb-bench -- quick`, or \
             `cargo install --profile dist --path crates/tidesdb-bench`"
        }
        _ => "it measures on Linux only: docs/testing/bench.md; everything else of this program works here",
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

/// Adds to `command` what the programs say of their arguments, if they are there.
#[cfg(feature = "pages")]
pub(crate) fn described(command: clap::Command) -> clap::Command {
    let output =
        find(BENCH, beside().as_deref()).and_then(|path| Command::new(path).arg("describe").output().ok());
    let known =
        output.and_then(|output| tidesdb_console::described::read(std::str::from_utf8(&output.stdout).ok()?));
    match known {
        Some(known) => command.mut_subcommand(BENCH, |_| known.name(BENCH)),
        None => command,
    }
}

/// Returns the directory of this program.
fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

/// Returns the path of a program: in `beside`, otherwise in the first directory of `PATH` that has it.
fn find(name: &str, beside: Option<&Path>) -> Option<PathBuf> {
    let list = std::env::var_os("PATH").unwrap_or_default();
    let places = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(&list));
    let file = format!("tidesdb-{name}{EXE_SUFFIX}");
    places.map(|place| place.join(&file)).find(|path| program::is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_the_benchmark_is_told_so() {
        assert!(way_to_it("linux").contains("cargo install"));
        for system in ["windows", "macos", "freebsd"] {
            assert!(way_to_it(system).contains("on Linux only"), "{system}");
        }
    }
}
