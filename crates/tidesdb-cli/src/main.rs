//! The `tidesdb` program: reads, fills, checks and copies databases. `docs/cli.md` describes it.
//!
//! The order of the modules below is the order of the layers: a module uses only modules above its own line.

mod host;
mod failure;
mod text;
mod output;
mod progress;
mod session;
mod format;
mod range;
mod commands;

use std::io::{BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::Verb;
#[cfg(feature = "bench")]
use commands::bench::Bench;
use commands::inspect::Inspect;
use commands::levels::Levels;
use commands::shell::Shell;
use commands::tour::{Tour, Witness};
use commands::verify::Verify;
use failure::Outcome;
use output::Out;
use session::{Access, Common, Place, Session};

/// Reads, fills, checks and copies TidesDB databases
///
/// Start with `tidesdb tour`. Exit codes: 0 success; 1 negative result (no such key, damage found); 2 wrong command line or
/// input; 3 the command failed (I/O, corruption, no space); 4 another process has the database open.
#[derive(Parser)]
#[command(version, name = "tidesdb", max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Tour(Tour),
    #[command(flatten)]
    Verb(Verb),
    Inspect(Inspect),
    Levels(Levels),
    Shell(Shell),
    #[cfg(feature = "bench")]
    Bench(Box<Bench>),
    #[command(hide = true)]
    Witness(Witness),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let stdout = std::io::stdout();
    let terminal = stdout.is_terminal();
    let mut stdout = BufWriter::with_capacity(256 << 10, stdout.lock());
    let outcome =
        cli.run(&mut Out::new(&mut stdout, terminal)).and_then(|exit| Ok(stdout.flush().map(|()| exit)?));
    outcome
        .unwrap_or_else(|failure| {
            let _ = stdout.flush(); // output from before the failure; the failure itself is reported below
            if !failure.is_hangup() {
                eprintln!("{}", failure.message());
            }
            failure.exit
        })
        .into()
}

impl Cli {
    fn run(&self, out: &mut Out<'_>) -> Outcome {
        match &self.command {
            Command::Tour(tour) => tour.run(out),
            Command::Witness(witness) => witness.run(out),
            #[cfg(feature = "bench")]
            Command::Bench(bench) => bench.run(self.common.json, out),
            Command::Inspect(inspect) => inspect.run(&self.place, self.common.json, out),
            Command::Levels(levels) => levels.run(&self.place, &self.common, out),
            Command::Shell(shell) => {
                self.with_session(shell.access(), |session| shell.run(session.clone(), out))
            }
            Command::Verb(verb) => self.run_verb(verb, out),
        }
    }

    fn run_verb(&self, verb: &Verb, out: &mut Out<'_>) -> Outcome {
        match (self.with_session(verb.access(), |session| verb.run(session, out)), verb) {
            (Err(failure), Verb::Verify(_)) => Verify::not_open(failure, self.common.json, out),
            (outcome, _) => outcome,
        }
    }

    /// Opens the database, calls `work`, and closes the database. A failed close is a failure of the command.
    fn with_session(&self, access: Access, work: impl FnOnce(&Session) -> Outcome) -> Outcome {
        let session = Session::open(&self.place, &self.common, access)?;
        if let Some(remark) = session.remark() {
            eprintln!("{remark}");
        }
        let exit = work(&session)?;
        session.db.close()?;
        Ok(exit)
    }
}

/// The arguments that all commands share are valid.
#[cfg(test)]
#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}
