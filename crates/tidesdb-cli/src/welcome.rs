//! The answer to `tidesdb` without a command: what to type next.

use std::fmt::Write;

use crate::host;

/// Returns the next steps for someone who has just installed the program.
pub(crate) fn text() -> String {
    let program = host::program();
    let steps = [
        ("tour", "a guided tour in a few seconds; leaves no files behind"),
        ("put --db my.db apple red", "set a key in a new database in the directory my.db ..."),
        ("get --db my.db apple", "... and read it"),
        ("help", "all commands; `help COMMAND` describes one"),
    ];
    let width = steps.iter().map(|(step, _)| step.len()).max().unwrap_or(0);
    let version = env!("CARGO_PKG_VERSION");
    let mut out =
        format!("tidesdb {version}: reads, fills, checks and copies TidesDB databases. To begin:\n\n");
    for (step, what) in steps {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {program} {step:width$}   {what}");
    }
    out
}
