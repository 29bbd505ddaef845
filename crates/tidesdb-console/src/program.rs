//! The frame of a program: from its arguments to its exit code.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Out, tell};
use crate::{terminal, text};

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
            report(&failure);
        }
        failure.exit
    })
}

/// Prints a failure on the standard error stream.
fn report(failure: &Failure) {
    tell(failure.painted(terminal::error_colours()) + "\n");
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
    let styled = error.render();
    let plain = styled.to_string();
    // A word of the command line may be the name of a file that anybody named: it loses its control characters, and the text its colours.
    let text = match text::plain(&plain) {
        Cow::Borrowed(_) if terminal::colours(terminal) => styled.ansi().to_string(),
        plain => plain.into_owned(),
    };
    if is_error {
        tell(text);
        return Exit::Usage;
    }
    let mut out = stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            if !failure.is_hangup() {
                report(&failure);
            }
            failure.exit
        }
    }
}
