//! The program on a terminal, which `script` of util-linux makes: colours, and a bar for what takes longer than a second.

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

/// Names and rows reached the terminal with the sequences that it acts on: a family could set its title, or clear it.
#[test]
fn names_and_rows_reach_a_terminal_without_control_characters() {
    let hostile = r#"x=$(printf 'a\033]0;title\007\302\2332J\r\177')"#;
    let fill = format!(
        r#"{hostile}; tidesdb families create "$x"; tidesdb put --family "$x" "$x" "$x"; tidesdb put "$x" "$x"; tidesdb checkpoint "$x" >/dev/null"#
    );
    let plain =
        |text: &str| text.replace("\r\n", "").chars().all(|c| !c.is_control() || c == '\t' || c == '\n');
    for line in [
        "families",
        "families list --json",
        r#"scan --family "$x""#,
        r#"scan --json --family "$x""#,
        "get \"$x\"",
        "get --json \"$x\"",
        "get --file - \"$x\"",
        "dump",
        "dump --format csv",
        "dump --format jsonl",
        "stats",
        "stats --json",
        "stats --openmetrics",
        "levels",
        "levels --json",
        "compact",
        "verify",
        "inspect manifest",
        "inspect wal --entries",
        "inspect table --entries",
        r#"scan --family "${x}b" || true"#,
        r#"scan --db "$x/none" || true"#,
        r#"scan --db . || true"#,
        r#""$x" || true"#,
        r#"load "$x.tsv" || true"#,
        r#"get -e "$x\\q" || true"#,
        r#"scan --family "$x" --count"#,
        r#"families drop "$x""#,
    ] {
        for variables in [&[("NO_COLOR", "1")][..], &[]] {
            let Some(text) = on_terminal(&format!("{fill}; tidesdb {line}"), variables) else { return };
            let styles = ["[1m", "[2m", "[32m", "[1;31m", "[1;32m", "[1;36m", "[0m"];
            let text = styles.iter().fold(text, |text, style| text.replace(&format!("\u{1b}{style}"), ""));
            assert!(plain(&text), "{line} {variables:?}: {text:?}");
        }
    }
    // A pipe gets what is there.
    let text = on_terminal(&format!("{fill}; tidesdb dump --output rows; cat rows | od -c"), &[]).unwrap();
    assert!(text.contains("033"), "{text:?}");
}

/// A byte that is not UTF-8 ended the shell.
#[test]
fn a_byte_that_is_no_text_does_not_end_the_shell() {
    // Each line when the one before it has been read: the editor drops what comes with a line.
    let wait = |text: &str| {
        format!("n=0; until grep -q '{text}' seen || [ $n -ge 600 ]; do sleep 0.1; n=$((n + 1)); done")
    };
    let steps = [
        ("lists the commands", "put a 1\\r"),
        ("put a 1", "put b \\377"),
        ("not UTF-8", "put c 3\\r"),
        ("put c 3", "quit\\r"),
    ];
    let typed: String =
        steps.map(|(seen, text)| format!("{}; sleep 0.2; printf '{text}'; ", wait(seen))).concat();
    let program = env!("CARGO_BIN_EXE_tidesdb");
    let line = format!(
        "touch seen; ({typed}:) | script --quiet --return --flush --command \"'{program}' --db db shell --no-history\" seen >/dev/null; echo code $?; '{program}' --db db scan"
    );
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(folder.path()).env("TERM", "xterm").env_remove("CARGO");
    if Command::new("script").arg("--version").output().is_err() {
        return;
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.ends_with("code 0\na\t1\nc\t3\n"),
        "{text:?} {:?}",
        std::fs::read_to_string(folder.path().join("seen"))
    );
}

/// The screen is drawn again, keys work, and the terminal is as before at the end: after a key, after a signal, of any size.
#[cfg(feature = "top")]
#[test]
fn the_screen_of_top_ends_with_the_terminal_as_it_was() {
    let fill = "(echo put a 1; sleep 1.2) | tidesdb shell";
    let typed = |keys: &[&str]| {
        let keys: String = keys.iter().map(|key| format!("sleep 0.6; printf '{key}'; ")).collect();
        format!("{fill}; ({keys}) | script -qc 'stty cols 80 rows 24; tidesdb top' /dev/null")
    };
    let ended = |text: &str| text.contains("\u{1b}[?1049h") && text.ends_with("\u{1b}[?25h\u{1b}[?1049l");
    let program = format!(
        "PATH='{}':$PATH",
        std::path::Path::new(env!("CARGO_BIN_EXE_tidesdb")).parent().unwrap().display()
    );
    for (line, says) in [
        (typed(&["q"]), "it was closed in order"),
        (typed(&["?", "\\003"]), "leave this help"),
        (typed(&["sp", "\\033[A\\033[B\\033[D", "r", "q"]), "PAUSED"),
        (
            format!(
                "{fill}; stty cols 3 rows 2; (sleep 0.7; kill $(cat pid)) & sh -c 'echo $$ >pid; exec tidesdb top'"
            ),
            "",
        ),
    ] {
        let line = format!("export {program} TIDESDB_DB=db; {line}");
        let Some(text) = on_terminal(&line, &[]) else { return };
        let text = text.trim_end();
        assert!(ended(text) && text.contains(says), "{line}: {text:?}");
    }
    // Colours are for terminals that want them.
    let line = format!("export {program} TIDESDB_DB=db; {}", typed(&["q"]));
    let (with, without) =
        (on_terminal(&line, &[]).unwrap(), on_terminal(&line, &[("NO_COLOR", "1")]).unwrap());
    let red = "\u{1b}[38;5;1m";
    assert!(with.contains(red) && !without.contains(red) && ended(without.trim_end()), "{without:?}");
    // A terminal that can show no screen gets a page.
    let page = on_terminal(&format!("{fill}; tidesdb top"), &[("TERM", "dumb")]).unwrap();
    assert!(page.contains("it was closed in order") && !page.contains(ESCAPE), "{page:?}");
}
