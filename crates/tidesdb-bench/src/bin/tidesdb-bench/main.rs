//! The benchmark program: measures engines, checks their answers, and compares results. `docs/testing/bench.md` describes it.
//!
//! `tidesdb bench` runs it with the same arguments.

mod against;
mod kept;
mod watch;
mod bench;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tidesdb_console::{described, program};

use bench::Bench;

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

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => program::run(|out| cli.bench.run(cli.json, &described::write(&Cli::command()), out)),
        Err(e) => program::answer(&e),
    }
    .into()
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
