//! `tidesdb completions` and `tidesdb man`: what shells and `man` know of this program, derived from its arguments.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Out;
use crate::text::count;

/// Print the completions for a shell
///
/// bash: tidesdb completions bash > ~/.local/share/bash-completion/completions/tidesdb
///
/// zsh: tidesdb completions zsh > DIR/_tidesdb, with a DIR of $fpath
///
/// fish: tidesdb completions fish > ~/.config/fish/completions/tidesdb.fish
///
/// powershell: tidesdb completions powershell | Out-String | Invoke-Expression, as a line of the file $PROFILE
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Kind,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

/// Write the manual pages of this program and its commands
///
/// With DIR, one file for each command, such as tidesdb-load.1. Without DIR, all pages to the standard output:
/// `tidesdb man | man -l -` shows them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Pages {
    /// Directory of the files; created if it does not exist
    #[arg(value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

const NAME: &str = "tidesdb";

impl Completions {
    /// Prints the completions of `command`.
    pub(crate) fn run(&self, command: Command, out: &mut Out<'_>) -> Outcome {
        let mut command = visible(command);
        let shell = match self.shell {
            Kind::Bash => Shell::Bash,
            Kind::Zsh => Shell::Zsh,
            Kind::Fish => Shell::Fish,
            Kind::Powershell => Shell::PowerShell,
        };
        let mut script = Vec::new(); // a reader of our output that ends early would make the generator panic
        clap_complete::generate(shell, &mut command, NAME, &mut script);
        out.write_all(&script)?;
        if self.shell == Kind::Fish {
            fish_positionals(&command, &[], out)?;
        }
        Ok(Exit::Done)
    }
}

/// Adds the values of positional arguments, which the generator for fish leaves out.
fn fish_positionals(command: &Command, parents: &[&str], out: &mut Out<'_>) -> Outcome<()> {
    if let [first, rest @ ..] = parents {
        let seen: String =
            rest.iter().map(|name| format!("; and __fish_seen_subcommand_from {name}")).collect();
        let deeper: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let unless = match deeper.is_empty() {
            true => String::new(),
            false => format!("; and not __fish_seen_subcommand_from {}", deeper.join(" ")),
        };
        for arg in command.get_positionals() {
            let values: Vec<String> =
                arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
            if !values.is_empty() {
                let values = values.join(" ");
                out.line(format!(
                    "complete -c {NAME} -n \"__fish_{NAME}_using_subcommand {first}{seen}{unless}\" -f -a \"{values}\""
                ))?;
            }
        }
    }
    let of_program = |command: &&Command| command.get_name() != "help";
    command
        .get_subcommands()
        .filter(of_program)
        .try_for_each(|deeper| fish_positionals(deeper, &[parents, &[deeper.get_name()]].concat(), out))
}

impl Pages {
    /// Writes the pages of `command`.
    pub(crate) fn run(&self, command: Command, out: &mut Out<'_>) -> Outcome {
        let mut command = visible(command).disable_help_subcommand(true);
        command.build();
        let mut pages = Vec::new();
        render(&command, &mut pages)?;
        match &self.dir {
            Some(dir) => {
                write(dir, &pages)?;
                let pages = count(pages.len() as u64, "page", "pages");
                out.line(format!("{pages} in {}", dir.display()))?;
            }
            None => pages.iter().try_for_each(|(_, page)| out.write_all(page))?,
        }
        Ok(Exit::Done)
    }
}

fn write(dir: &Path, pages: &[(String, Vec<u8>)]) -> Outcome<()> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::file("create", dir, &e))?;
    for (name, page) in pages {
        let path = dir.join(name);
        std::fs::write(&path, page).map_err(|e| Failure::file("write", &path, &e))?;
    }
    Ok(())
}

/// Appends the name and the text of the page of `command`, and those of the commands below it.
fn render(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(source).manual("TidesDB");
    let mut text = Vec::new();
    page.render(&mut text)?;
    if command.get_name() == NAME {
        of_all_commands(&mut text)?;
    }
    pages.push((page.get_filename(), text));
    command.get_subcommands().try_for_each(|deeper| render(deeper, pages))
}

/// Appends what applies to all commands.
fn of_all_commands(page: &mut Vec<u8>) -> io::Result<()> {
    let exits = [
        ("0", "Success."),
        ("1", "Negative result: no such key, or a check found damage."),
        ("2", "The command line or the input is wrong."),
        ("3", "The command failed: I/O error, corruption, no space."),
        ("4", "Another process has the database open, and the command writes."),
    ];
    let variables = [
        ("TIDESDB_DB", "The database, if --db is not given."),
        ("NO_COLOR", "If not empty: no colours."),
        ("CLICOLOR_FORCE", "If neither empty nor 0: colours also without a terminal."),
        ("CLICOLOR", "If 0: no colours."),
    ];
    let mut roff = Roff::default();
    for (title, entries) in [("EXIT STATUS", &exits[..]), ("ENVIRONMENT", &variables)] {
        roff.control("SH", [title]);
        for (term, meaning) in entries {
            roff.control("TP", []);
            roff.text([clap_mangen::roff::bold(*term)]);
            roff.text([roman(*meaning)]);
        }
    }
    page.write_all(roff.render().as_bytes())
}

/// Returns `command` without the commands that the program starts itself with.
fn visible(command: Command) -> Command {
    let deeper: Vec<Command> =
        command.get_subcommands().filter(|deeper| !deeper.is_hide_set()).cloned().map(visible).collect();
    let mut bare = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().cloned())
        .subcommand_required(command.is_subcommand_required_set())
        .subcommands(deeper);
    if let Some(version) = command.get_version() {
        bare = bare.version(version.to_owned());
    }
    if let Some(about) = command.get_about() {
        bare = bare.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        bare = bare.long_about(about.clone());
    }
    bare
}
