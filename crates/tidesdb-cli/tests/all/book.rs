//! The sessions in the pages of the book: each command runs with the built program, and its output is compared.
//!
//! A session is fenced text in the language `console`. A line that begins with `$ ` is a command of a shell; those that follow are what it prints, to
//! both streams. `...` stands for any text in a line, and as a line for any number of lines. A command must succeed. The sessions of a page run in
//! their order, in one folder that is empty at first.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A command, and the lines that it should print.
struct Step<'a> {
    /// Line of the page, from 1.
    line: usize,
    command: &'a str,
    prints: Vec<&'a str>,
}

/// Returns the commands of the sessions of a page.
fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let (mut fence, mut console) = (false, false);
    for (at, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            (fence, console) = (!fence, !fence && info == "console");
        } else if console {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { line: at + 1, command, prints: Vec::new() }),
                (None, Some(step)) => step.prints.push(line),
                (None, None) => panic!("line {}: output without a command", at + 1),
            }
        }
    }
    steps
}

/// Returns whether `line` is `pattern`, in which `...` stands for any text.
fn line_matches(pattern: &str, line: &str) -> bool {
    match pattern.split_once("...") {
        None => pattern == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && line_matches(after, &rest[at..]))
        }),
    }
}

/// Returns whether `lines` are those of `patterns`, in which the line `...` stands for any lines.
fn matches(patterns: &[&str], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|at| matches(rest, &lines[at..])),
        Some((pattern, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| line_matches(pattern, line) && matches(rest, others)),
    }
}

/// Runs the sessions of a page, and describes the first command that fails or prints something else.
fn run(name: &str, page: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_tidesdb")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    for Step { line, command, prints } in steps(page) {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec 2>&1\n{command}")).current_dir(dir.path()).env("PATH", &path);
        shell.env("LC_ALL", "C").env("NO_COLOR", "1").env("HOME", dir.path());
        shell.env_remove("TIDESDB_DB").env_remove("CARGO").env_remove("CLICOLOR_FORCE");
        let output = shell.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        if !output.status.success() || !matches(&prints, &lines) {
            return Some(format!(
                "{name}:{line}: `{command}` ends with {} and prints\n{text}",
                output.status
            ));
        }
    }
    None
}

/// Returns the pages below a folder.
fn pages(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, out);
        } else if path.extension().is_some_and(|end| end == "md") {
            out.push(path);
        }
    }
}

#[test]
fn the_sessions_of_the_pages_print_what_the_pages_say() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    all.sort();
    let mut sessions = 0;
    let mut failed = Vec::new();
    for path in all {
        let page = std::fs::read_to_string(&path).unwrap();
        sessions += steps(&page).len();
        failed.extend(run(&path.strip_prefix(&docs).unwrap().display().to_string(), &page));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(sessions >= 30, "only {sessions} commands were found");
}

#[test]
fn a_session_that_prints_something_else_fails() {
    let page = |command: &str, prints: &str| format!("# A\n```console\n$ {command}\n{prints}```\n");
    for (command, prints) in [
        ("echo one; echo two >&2", "one\ntwo\n"),
        ("seq 9", "1\n...\n9\n"),
        ("seq 2", "...\n1\n2\n...\n"),
        ("echo 12 rows in 0.3 s", "... rows in ... s\n"),
        ("tidesdb put --db d a 1; tidesdb get --db d a", "1\n"),
    ] {
        assert_eq!(run("p", &page(command, prints)), None, "{command}");
    }
    for (command, prints) in [
        ("echo one", ""),
        ("true", "one\n"),
        ("seq 3", "1\n3\n"),
        ("seq 9", "1\n...\n8\n"),
        ("echo 12 rows in 0.3 m", "... rows in ... s\n"),
        ("false", ""),
        ("tidesdb get --db none a", "...\n"),
    ] {
        let found = run("p", &page(command, prints)).unwrap_or_default();
        assert!(found.starts_with("p:3: "), "{command}: {found}");
    }
    let text = "```text\n$ false\n```\n```console (needs root)\n$ false\n```\n";
    assert_eq!(run("p", text), None, "it is no session");
}
