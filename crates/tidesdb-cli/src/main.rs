//! The `tidesdb` program: reads, fills, checks and copies databases. `docs/reference/cli.md` describes it.
//!
//! The order of the modules below is the order of the layers: a module uses only modules above its own line.

// They panic if the stream is full or closed: `tidesdb_console::output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod host;
mod version;
mod welcome;
mod nearby;
mod new_file;
mod interrupt;
mod session;
mod look;
mod format;
mod range;
mod programs;
mod commands;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tidesdb_console::{failure, names, output, program, progress, text};

use commands::Verb;
use commands::doctor::Doctor;
use commands::generations::Generations;
use commands::inspect::Inspect;
use commands::levels::Levels;
#[cfg(feature = "pages")]
use commands::pages::{Completions, Pages};
#[cfg(feature = "report")]
use commands::report::Report;
use commands::shell::Shell;
use commands::top::Top;
use commands::tour::{Tour, Witness};
use commands::verify::Verify;
use commands::why::Why;
use failure::{Exit, Outcome};
use output::Out;
use programs::Bench;
use progress::Progress;
use session::{Access, Common, Place, Session};

/// Reads, fills, checks and copies TidesDB databases
///
/// Start with `tidesdb tour`. Exit codes: 0 success; 1 negative result (no such key, damage found); 2 wrong command line or
/// input; 3 the command failed (I/O, corruption, no space); 4 another process has the database open; 130 stopped by Ctrl-C.
#[derive(Parser)]
#[command(version, long_version = version::long(), name = "tidesdb", max_term_width = 100)]
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
    Generations(Generations),
    Inspect(Inspect),
    Levels(Levels),
    Doctor(Doctor),
    Top(Top),
    Why(Why),
    #[cfg(feature = "report")]
    Report(Report),
    Shell(Shell),
    Bench(Bench),
    #[cfg(feature = "pages")]
    Completions(Completions),
    #[cfg(feature = "pages")]
    #[command(name = "man")]
    Pages(Pages),
    #[command(hide = true)]
    Witness(Witness),
}

fn main() -> ExitCode {
    match Cli::try_parse_from(programs::with_help_last(std::env::args_os().collect())) {
        Ok(cli) => program::run(|out| cli.run(out)),
        Err(e) => answer(&e),
    }
    .into()
}

/// Prints the help or the version that was asked for, or what is wrong with the command line.
///
/// Without a command that is what to type next, with the exit code of a wrong command line: a script whose command is an empty variable
/// must not succeed. It goes to the standard error stream for the same reason: a pipe expects the output of a command.
fn answer(error: &clap::Error) -> Exit {
    let no_command = [ErrorKind::MissingSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if no_command.contains(&error.kind()) {
        output::tell(welcome::text());
        return Exit::Usage;
    }
    let exit = program::answer(error);
    if let Some(dir) = misplaced(error) {
        output::tell(format!(" next: add --db: tidesdb --db {} COMMAND\n", text::plain(&dir)));
    }
    exit
}

/// Returns the first argument that is a database, if the command line has no `--db` and an argument too many.
fn misplaced(error: &clap::Error) -> Option<String> {
    let too_many = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let named = words.iter().any(|word| word.starts_with("--db") || word.starts_with("-d"));
    let is_wrong = too_many.contains(&error.kind()) && !named;
    words.into_iter().find(|word| is_wrong && nearby::is_database(Path::new(word)))
}

impl Cli {
    fn run(&self, out: &mut Out<'_>) -> Outcome {
        match &self.command {
            Command::Tour(tour) => tour.run(out),
            Command::Witness(witness) => witness.run(out),
            Command::Bench(bench) => bench.run(self.common.json),
            #[cfg(feature = "pages")]
            Command::Completions(completions) => completions.run(Self::with_programs(), out),
            #[cfg(feature = "pages")]
            Command::Pages(pages) => pages.run(Self::with_programs(), out),
            Command::Generations(generations) => generations.run(&self.place, &self.common, out),
            Command::Inspect(inspect) => inspect.run(&self.place, self.common.json, out),
            Command::Levels(levels) => levels.run(&self.place, &self.common, out),
            Command::Doctor(doctor) => doctor.run(&self.place, &self.common, out),
            Command::Top(top) => top.run(&self.place, &self.common, out),
            Command::Why(why) => why.run(&self.place, &self.common, out),
            #[cfg(feature = "report")]
            Command::Report(report) => report.run(&self.place, &self.common, out),
            Command::Shell(shell) => {
                self.with_session(shell.target.dir.as_ref(), shell.access(), |session| {
                    shell.run(session.clone(), out)
                })
            }
            Command::Verb(verb) => self.run_verb(verb, out),
        }
    }

    /// Returns the arguments of this program and of those that it starts.
    #[cfg(feature = "pages")]
    fn with_programs() -> clap::Command {
        programs::described(<Self as clap::CommandFactory>::command())
    }

    fn run_verb(&self, verb: &Verb, out: &mut Out<'_>) -> Outcome {
        match (self.with_session(verb.dir(), verb.access(), |session| verb.run(session, out)), verb) {
            (Err(failure), Verb::Verify(_)) => Verify::not_open(failure, self.common.json, out),
            (outcome, _) => outcome,
        }
    }

    /// Opens the database, which the command may name as `dir`, calls `work`, and closes the database. A failed close is a failure of the command.
    fn with_session(
        &self,
        dir: Option<&PathBuf>,
        access: Access,
        work: impl FnOnce(&Session) -> Outcome,
    ) -> Outcome {
        let session = Session::open(&self.place.or_at(dir), &self.common, access)?;
        if let Some(remark) = session.remark() {
            output::tell(remark + "\n");
        }
        let exit = work(&session)?;
        Progress::during("closing the database", || session.db.close())?;
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
