//! The frame of a program: from its arguments to its exit code.

use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;

use crate::failure::{Exit, Outcome};
use crate::output::Out;
use crate::terminal;

/// Bytes of the buffer of the standard output.
const BUFFER_BYTES: usize = 256 << 10;

/// Runs `work` with the standard output, and prints its failure.
pub fn run(work: impl FnOnce(&mut Out<'_>) -> Outcome) -> Exit {
    let stdout = stdout();
    let terminal = stdout.is_terminal();
    let mut stdout = BufWriter::with_capacity(BUFFER_BYTES, stdout.lock());
    let outcome =
        work(&mut Out::new(&mut stdout, terminal)).and_then(|exit| Ok(stdout.flush().map(|()| exit)?));
    outcome.unwrap_or_else(|failure| {
        let _ = stdout.flush(); // output from before the failure; the failure itself is reported below
        if !failure.is_hangup() {
            eprintln!("{}", failure.painted(terminal::error_colours()));
        }
        failure.exit
    })
}

/// Returns the path of the file of this process, to start it again: as the system says, otherwise as it was started, which is enough where
/// no `/proc` is mounted.
///
/// # Errors
/// Returns the error of the system if it was started without a path.
pub fn file() -> io::Result<PathBuf> {
    std::env::current_exe().or_else(|error| {
        let started = std::env::args_os().next().map(PathBuf::from);
        started.filter(|path| path.components().count() > 1 && path.is_file()).ok_or(error)
    })
}

/// Prints the help or the version that was asked for, or what is wrong with the command line.
pub fn answer(error: &clap::Error) -> Exit {
    let is_error = error.use_stderr();
    let terminal = if is_error { stderr().is_terminal() } else { stdout().is_terminal() };
    let text = error.render();
    let text = if terminal::colours(terminal) { text.ansi().to_string() } else { text.to_string() };
    let (mut out, mut err) = (stdout(), stderr());
    let to: &mut dyn Write = if is_error { &mut err } else { &mut out };
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush()); // a closed pipe: nothing to report
    if is_error { Exit::Usage } else { Exit::Done }
}
