//! The benchmark program: measures engines, checks their answers, and compares results. `docs/testing/bench.md` describes it.
//!
//! `tidesdb bench` runs it with the same arguments: as a program of its own, or as a part of `tidesdb`.

mod against;
mod kept;
mod watch;
mod bench;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use tidesdb_console::failure::Exit;
use tidesdb_console::{described, program};

use bench::{Bench, Started};

/// Measure engines and check their answers
///
/// Each row of a suite runs in its own process in a new directory. A row with a wrong or failed answer is shown as
/// FAILED, and the exit code is 1.
#[derive(Parser)]
#[command(version, name = "tidesdb-bench", max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    bench: Bench,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// Runs the program with these arguments. `first` are the arguments with which the file of this process is this program: it starts itself for
/// each row.
pub fn main(args: impl IntoIterator<Item = OsString>, first: &'static [&'static str]) -> Exit {
    match Cli::try_parse_from([OsString::from("tidesdb-bench")].into_iter().chain(args)) {
        Ok(Cli { bench, json }) => program::run(|out| bench.run(&Started { json, first }, out)),
        Err(e) => program::answer(&e),
    }
}

/// Returns the arguments of the program, in the form that [`described::read`] reads.
pub fn described() -> String {
    described::write(&Cli::command())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments are valid, and `tidesdb` learns their names.
    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let text = described::write(&Cli::command());
        let read = described::read(&text).unwrap();
        read.clone().debug_assert();
        assert!(described::write(&read) == text, "nothing is lost");
        for name in ["ycsb", "rocksdb", "\"run\"", "scrambled", "serializable", "patience", "\"compare\""] {
            assert!(text.contains(name), "{name}");
        }
        assert!(!text.contains("\"child\"") && !text.contains("\"describe\""), "hidden");
    }
}
