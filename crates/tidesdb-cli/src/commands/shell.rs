//! `tidesdb shell`: runs several commands on one open database, typed or from a pipe.
//!
//! A line is a command as on the command line, read by the same parser. `'...'` encloses words with blanks, `"..."` also
//! resolves escapes. From a pipe there is no prompt, each line is answered before the next one is read, and the first failure ends the shell.

mod complete;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

use clap::Parser;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use tidesdb_io::program;

use self::complete::Completion;
use super::Verb;
use crate::failure::{Exit, Failure, Outcome};
use crate::format::{Lines, RowError};
use crate::output::{Out, Style};
use crate::session::{Access, Common, Session, Target};
use crate::text;

/// Run commands interactively on an open database
///
/// The database is created if it does not exist. Keeps a history in $XDG_STATE_HOME/tidesdb or ~/.local/state/tidesdb, on Windows
/// in %LOCALAPPDATA%\tidesdb. Commands from a pipe run without a prompt; the first that fails ends the shell with its exit code.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Open the database read-only
    #[arg(long)]
    read_only: bool,
    /// Keep no history
    #[arg(long)]
    no_history: bool,
}

/// Commands on the open database; `help COMMAND` describes a command
#[derive(Parser)]
#[command(no_binary_name = true, name = "", bin_name = "")]
struct Line {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Typed,
}

/// Commands of the shell: all verbs, and a few for the shell only.
#[derive(clap::Subcommand)]
enum Typed {
    #[command(flatten)]
    Verb(Verb),
    /// Set the default family for commands without --family
    Use {
        /// The family
        name: String,
    },
    /// Make all commits so far durable
    Sync,
    /// Leave the shell
    #[command(alias = "exit")]
    Quit,
}

/// True if the shell continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Line(Exit),
    End,
}

impl Shell {
    /// Returns the access to the database that the shell needs.
    pub(crate) fn access(&self) -> Access {
        if self.read_only { Access::Read } else { Access::Create }
    }

    pub(crate) fn run(&self, session: Session, out: &mut Out<'_>) -> Outcome {
        out.end_values();
        if io::stdin().is_terminal() {
            return self.interact(session, out);
        }
        run_script(session, &mut io::stdin().lock(), out)
    }

    fn interact(&self, mut session: Session, out: &mut Out<'_>) -> Outcome {
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let broken = |e: ReadlineError| Failure::failed(format!("cannot read the terminal: {e}"));
        let mut editor: Editor<Completion, FileHistory> = Editor::with_config(config).map_err(broken)?;
        let history = if self.no_history { None } else { history_file() };
        if let Some(path) = &history {
            let _ = editor.load_history(path); // there is no file the first time
        }
        let hint = "`help` lists the commands, Tab completes, `quit` leaves";
        out.line(format!("{}, {}; {hint}", session.path.display(), session.db.recovery_report()))?;
        loop {
            io::Write::flush(out)?;
            editor.set_helper(Some(Completion::new(session.db.families())));
            match editor.readline(&prompt(&session)) {
                Ok(line) => match run_line(&mut session, &line, out) {
                    Ok(Next::End) => break,
                    Ok(Next::Line(Exit::No)) if !session.common.json => {
                        out.line(out.paint(Style::Faint, "no"))?
                    }
                    Ok(Next::Line(_)) => {}
                    Err(e) => out.line(e.painted(out.has_colours()))?,
                },
                Err(ReadlineError::Interrupted) => {}
                // What came with the byte is not run either.
                Err(ReadlineError::Io(e)) if e.kind() == io::ErrorKind::InvalidData => {
                    out.line(Failure::usage(NO_TEXT).next(ANY_BYTES).painted(out.has_colours()))?;
                }
                Err(ReadlineError::Eof) => break,
                Err(e) => return Err(broken(e)),
            }
        }
        if let Some(path) = &history {
            let made = path.parent().is_none_or(|dir| std::fs::create_dir_all(dir).is_ok());
            if let Some(e) = made.then(|| editor.save_history(path).err()).flatten() {
                out.line(format!("the history could not be written to {}: {e}", path.display()))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// A line that cannot be read as words.
const NO_TEXT: &str = "the line has a byte that is not UTF-8, and is not run";
const ANY_BYTES: &str = "write any bytes as \\xHH, in double quotes";

/// Returns the path of the history file.
fn history_file() -> Option<PathBuf> {
    history_below(|name| std::env::var_os(name))
}

/// Finds the directory of the history by the environment. Only Windows sets `LOCALAPPDATA`.
fn history_below(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let dir = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let at_home = || Some(dir("HOME")?.join(".local").join("state"));
    let state = dir("XDG_STATE_HOME").or_else(|| dir("LOCALAPPDATA")).or_else(at_home)?;
    Some(state.join("tidesdb").join("history"))
}

fn prompt(session: &Session) -> String {
    let name = session.path.file_name().unwrap_or(session.path.as_os_str()).to_string_lossy();
    let prompt = match &session.common.family {
        Some(family) => format!("{name}/{family}> "),
        None => format!("{name}> "),
    };
    text::plain(&prompt).into_owned()
}

/// Runs lines until the end or the first failure. The exit code is that of the last command. The program at the other end of the pipe may
/// wait for an answer before it sends the next line.
fn run_script(mut session: Session, input: &mut dyn BufRead, out: &mut Out<'_>) -> Outcome {
    session.is_script = true;
    let mut last = Exit::Done;
    let mut lines = Lines::new(input);
    loop {
        match lines.advance() {
            Ok(true) => {}
            Ok(false) => return Ok(last),
            Err(RowError::Bad { line, why }) => return Err(Failure::usage(why).at(&format!("line {line}"))),
            Err(RowError::Io(e)) => {
                return Err(Failure::failed(format!("cannot read line {}: {e}", lines.number + 1)));
            }
            Err(RowError::Unfit(why)) => return Err(Failure::usage(why)),
        }
        let line = std::str::from_utf8(&lines.line).map_err(|_| Failure::usage(NO_TEXT).next(ANY_BYTES));
        let ran = line.and_then(|line| run_line(&mut session, line, out));
        let told = ran.and_then(|next| Ok(io::Write::flush(out).map(|()| next)?));
        let number = lines.number;
        match told {
            Ok(Next::Line(exit)) => last = exit,
            Ok(Next::End) => return Ok(last),
            Err(e) if e.is_hangup() && has_commands(&mut lines) => return Err(hangup(number)),
            Err(e) => return Err(e.at(&format!("line {number}"))),
        }
    }
}

/// Returns whether a command is left in `lines`.
fn has_commands<R: BufRead>(lines: &mut Lines<R>) -> bool {
    loop {
        match lines.advance() {
            Ok(true) => {}
            Ok(false) => return false,
            Err(_) => return true,
        }
        match lines.line.trim_ascii() {
            b"" | [b'#', ..] => {}
            b"quit" | b"exit" => return false,
            _ => return true,
        }
    }
}

/// A reader that leaves early is no failure of a command that only prints, but the lines after it may write.
fn hangup(line: u64) -> Failure {
    Failure::failed("the reader of the output has gone; the lines after this one were not run")
        .at(&format!("line {line}"))
        .next("read the output to its end, or send it to a file")
}

/// Runs one line.
fn run_line(session: &mut Session, line: &str, out: &mut Out<'_>) -> Outcome<Next> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Next::Line(Exit::Done));
    }
    let words = text::words(line).map_err(Failure::usage)?;
    let words = words.into_iter().map(argument).collect::<Outcome<Vec<_>>>()?;
    let parsed = match Line::try_parse_from(words) {
        Ok(parsed) => parsed,
        Err(e) if !e.use_stderr() => {
            out.line(e.to_string().trim_end())?;
            return Ok(Next::Line(Exit::Done));
        }
        Err(e) => return Err(Failure::usage(e.to_string().trim_start_matches("error: ").trim_end())),
    };
    let settings = settings(&session.common, parsed.common);
    session.refresh()?;
    match parsed.verb {
        Typed::Verb(verb) => {
            if let Some(dir) = verb.dir() {
                let what = format!("the argument {dir:?} would name a database, and the shell has one open");
                return Err(Failure::usage(what).next("keys are named by --from, --to and --prefix"));
            }
            let session = Session { common: settings, ..session.clone() };
            verb.run(&session, out).map(Next::Line)
        }
        Typed::Use { name } => {
            session.family_named(&name)?;
            session.common.family = Some(name).filter(|name| name != tidesdb::DEFAULT_FAMILY);
            Ok(Next::Line(Exit::Done))
        }
        Typed::Sync => {
            session.db.sync()?;
            Ok(Next::Line(Exit::Done))
        }
        Typed::Quit => Ok(Next::End),
    }
}

/// Returns a word as the argument of a command. On Windows an argument is text.
fn argument(word: Vec<u8>) -> Outcome<OsString> {
    program::from_bytes(word).map_err(|word| {
        Failure::usage(format!("the word {:?} is no text", text::printable(&word)))
            .next("write any bytes as '\\xHH', with --escapes")
    })
}

/// Returns the settings of a line: its own, otherwise those of the shell.
fn settings(shell: &Common, line: Common) -> Common {
    Common {
        family: line.family.or_else(|| shell.family.clone()),
        sync: line.sync.or(shell.sync),
        json: line.json || shell.json,
        escapes: line.escapes || shell.escapes,
    }
}

#[cfg(test)]
mod tests;
