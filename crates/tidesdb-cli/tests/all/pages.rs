//! Tests of `tidesdb completions` and `tidesdb man`: all commands are in them, and the programs that read them accept them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn tidesdb(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidesdb")).args(words).output().expect("the program starts")
}

/// Returns the output of a command that must succeed.
fn ok(words: &[&str]) -> String {
    let output = tidesdb(words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

/// Returns what `program` prints for `input`; `None` if it is not installed.
fn through(program: &str, args: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        child.wait_with_output().ok()
    })
}

/// Returns the words that bash offers for the last of `words`; `None` without bash.
fn offered_by_bash(script: &str, words: &[&str]) -> Option<Vec<String>> {
    let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let (last, before) = (words.len() - 1, words.len().saturating_sub(2));
    let call = format!(
        "{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={last}; COMPREPLY=()
         _tidesdb tidesdb \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{before}]}}\"
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    );
    let output = through("bash", &["--norc"], &call)?;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn bash_completes_commands_options_suites_and_formats() {
    let script = ok(&["completions", "bash"]);
    for (words, some) in [
        (&["tidesdb", ""][..], &["tour", "load", "checkpoint", "bench", "completions"][..]),
        (&["tidesdb", "che"], &["checkpoint"]),
        (&["tidesdb", "scan", "--pre"], &["--prefix"]),
        (&["tidesdb", "families", "cr"], &["create"]),
        (&["tidesdb", "families", "create", "--compression", "z"], &["zstd"]),
        (&["tidesdb", "load", "--format", ""], &["tsv", "csv", "jsonl"]),
        (&["tidesdb", "scan", "--recovery", "s"], &["strict", "salvage"]),
        (&["tidesdb", "inspect", ""], &["wal", "table", "manifest", "vlog"]),
    ] {
        let Some(offered) = offered_by_bash(&script, words) else { return };
        for word in some {
            assert!(offered.iter().any(|offered| offered == word), "{words:?}: {word} in {offered:?}");
        }
    }
}

#[test]
fn every_shell_gets_all_names_and_no_hidden_command() {
    for (shell, begin) in [
        ("bash", "_tidesdb() {"),
        ("zsh", "#compdef tidesdb"),
        ("fish", "complete -c tidesdb "),
        ("powershell", "Register-ArgumentCompleter -Native -CommandName 'tidesdb'"),
    ] {
        let script = ok(&["completions", shell]);
        assert!(script.contains(begin), "{shell}");
        // The generator for PowerShell leaves out the values of options.
        let values = if shell == "powershell" { &[][..] } else { &["jsonl", "snappy", "point-in-time"] };
        for name in ["checkpoint", "families", "bench"].iter().chain(values) {
            assert!(script.contains(name), "{shell}: {name}");
        }
        assert!(!script.contains("witness") && !script.contains("for another process"), "{shell}");
        // The other shells check a script without running it.
        if shell != "powershell"
            && let Some(output) = through(shell, &["-n"], &script)
        {
            assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert_eq!(tidesdb(&["completions", "tcsh"]).status.code(), Some(2));
}

/// Returns the names of the files in `dir`.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn each_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/man1");
    let said = ok(&["man", path.to_str().unwrap()]);
    let names = names(&path);
    assert!(said.starts_with(&format!("{} pages in ", names.len())), "{said}");
    for name in
        ["tidesdb.1", "tidesdb-load.1", "tidesdb-families-create.1", "tidesdb-bench.1", "tidesdb-man.1"]
    {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("witness") || name.contains("child")), "{names:?}");
    let page = std::fs::read_to_string(path.join("tidesdb.1")).unwrap();
    for part in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", "TIDESDB_DB", "NO_COLOR", "tidesdb\\-load(1)"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(ok(&["man"]).matches(".TH ").count(), names.len());
    for name in &names {
        let page = std::fs::read_to_string(path.join(name)).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH DESCRIPTION"), "{name}");
        if let Some(output) = through("groff", &["-man", "-Tutf8", "-z"], &page) {
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        }
    }
}

/// The first table of `docs/reference/cli.md` has the commands that the program has, and no others.
#[test]
fn the_documentation_has_each_command() {
    let page = include_str!("../../../../docs/reference/cli.md");
    let rows = page.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let cells = rows.take_while(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut documented: Vec<&str> = spans.filter_map(|span| span.split(' ').next()).collect();
    documented.sort_unstable();
    let help = ok(&["help"]);
    let commands = help.split_once("Commands:").unwrap().1.split_once("\n\n").unwrap().0;
    let commands = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut commands: Vec<&str> =
        commands.filter(|command| !command.is_empty() && *command != "help").collect();
    commands.sort_unstable();
    assert_eq!(documented, commands, "docs/reference/cli.md, then the program");
}
