//! The program on a terminal, which `script` of util-linux makes: colours, and a bar for what takes longer than a second.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Begins the sequences that terminals act on.
const ESCAPE: &str = "\u{1b}[";

/// Returns what the shell command `line` writes to a terminal with these variables, where `tidesdb` is the program and `db` a database in an
/// empty folder; `None` without `script`.
fn on_terminal(line: &str, variables: &[(&str, &str)]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("tidesdb() {{ '{}' --db db \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_tidesdb"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(folder.path());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    let output =
        command.env("SHELL", "/bin/sh").env("TERM", "xterm").envs(variables.iter().copied()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {text}");
    Some(text)
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let wrong = "tidesdb get nothing || true";
    let Some(text) = on_terminal(wrong, &[]) else { return };
    assert!(text.contains(ESCAPE) && text.contains("error:"), "{text:?}");
    for (line, variables) in [
        (wrong, &[("NO_COLOR", "1")][..]),
        (wrong, &[("TERM", "dumb")]),
        ("(tidesdb get nothing 2>&1 || true) | cat", &[]),
    ] {
        let text = on_terminal(line, variables).unwrap();
        assert!(!text.contains(ESCAPE) && text.contains("error:"), "{line} {variables:?}: {text:?}");
    }
}

#[test]
fn a_load_of_more_than_a_second_shows_a_bar() {
    let load = "tidesdb load --format tsv -";
    let slow = format!("(echo 'a\t1'; sleep 1.6; echo 'b\t2') | {load}");
    let Some(text) = on_terminal(&slow, &[("NO_COLOR", "1")]) else { return };
    assert!(text.contains("\r\u{1b}[2K") && text.contains("1 s elapsed"), "no bar: {text:?}");
    assert!(!text.contains(" , "), "a bar without rows: {text:?}");
    // A reader of the output that is no terminal sees the result alone.
    for line in [format!("echo 'a\t1' | {load}"), format!("({slow}) 2>&1 | cat")] {
        let text = on_terminal(&line, &[("NO_COLOR", "1")]).unwrap();
        assert!(!text.contains(ESCAPE) && text.contains("row"), "{line}: {text:?}");
    }
}
