//! The program among hostile input, streams, files and folders: what it cannot do it says, with an exit code, and takes nothing away.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidesdb::Db;

/// A directory to run the program in.
struct Stage {
    dir: tempfile::TempDir,
}

/// Exit code, output and errors of a run.
type Run = (i32, String, String);

impl Stage {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn prepared(&self, mut command: Command) -> Command {
        for name in ["CARGO", "CLICOLOR_FORCE", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.env("TIDESDB_DB", self.path("db")).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidesdb"));
        command.args(words);
        self.prepared(command)
    }

    fn run(&self, words: &[&str]) -> Run {
        result(&mut self.command(words))
    }

    fn ok(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {err}");
        out
    }

    /// Runs a line of `sh`, in which `tidesdb` is the program.
    #[cfg(unix)]
    fn shell(&self, line: &str) -> Run {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("tidesdb() {{ '{}' \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_tidesdb")));
        result(&mut self.prepared(command))
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.path(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }
}

fn result(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A download that was cut off loaded as success, with a row that nobody wrote.
#[test]
fn a_csv_file_that_is_none_is_refused_with_its_line() {
    let stage = Stage::new();
    for (text, line, why) in [
        ("key,value\na,1\n\"b\",\"2\nc,3\nd", 3, "quote"),
        ("key,value\na,1\nb,\"1\"x\n", 3, "quote"),
        ("key,value\na,1\nb,c\"d\n", 3, "quote"),
        ("key,value\na,1\nb,2\rc,3\n", 3, "carriage return"),
        ("key,value\na,1\n\nb\n", 4, "1 field where 2 are expected"),
    ] {
        std::fs::write(stage.path("in.csv"), text).unwrap();
        let (code, _, err) = stage.run(&["load", "in.csv"]);
        assert!(
            code == 2 && err.contains(&format!("in.csv, line {line}: ")) && err.contains(why),
            "{text:?}: {err}"
        );
        assert_eq!(stage.ok(&["scan"]), "a\t1\n", "{text:?}");
        let told = stage.ok(&["load", "in.csv", "--skip-bad"]);
        assert!(told.contains("malformed row"), "{told}");
        stage.ok(&["delete", "a"]);
        stage.run(&["delete", "c"]);
        stage.run(&["delete", "d"]);
    }
    // The row after a malformed header was taken for the header, and was lost.
    std::fs::write(stage.path("in.csv"), "\"key\"x,value\nkey,value\na,1\n").unwrap();
    let (code, _, err) = stage.run(&["load", "in.csv", "--skip-bad"]);
    assert!(code == 2 && err.contains("in.csv: the header, line 1: "), "{code}: {err}");
    assert_eq!(stage.ok(&["scan"]), "");
    std::fs::write(stage.path("in.csv"), "id,x,x\n1,2,3\n").unwrap();
    let (code, _, err) = stage.run(&["load", "in.csv", "--key", "id"]);
    assert!(code == 2 && err.contains("two columns are named \"x\""), "{err}");
    stage.ok(&["load", "in.csv", "--key", "1", "--value", "3"]);
    assert_eq!(stage.ok(&["scan"]), "1\t3\n");
}

/// A write to a full or closed stream panicked, or was no failure.
#[test]
#[cfg(target_os = "linux")]
fn full_and_closed_streams_are_no_panics() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    let _held = Db::open(stage.path("held")).unwrap(); // so that a remark is printed
    std::fs::write(stage.path("in.csv"), "key,value\na\n").unwrap();
    for (line, code) in [
        ("tidesdb", 2),
        ("tidesdb frobnicate", 2),
        ("tidesdb get none --family none", 2),
        ("tidesdb get a --db held", 1),
        ("tidesdb load in.csv", 2),
        ("tidesdb put e 1 --ttl 1h", 0),
        ("tidesdb dump --no-expiry", 0),
        ("tidesdb scan", 0),
        ("tidesdb help", 0),
    ] {
        for streams in ["2>/dev/full", "2>&-", "2>/dev/full 1>&-"] {
            let (found, _, err) = stage.shell(&format!("{line} {streams}"));
            assert_eq!(found, code, "{line} {streams}: {err}");
        }
        // The reader of the errors is gone before one is written.
        let (found, _, err) = stage.shell(&format!("(sleep 0.3; {line} >/dev/null; echo $? > code) 2>&1 | true; while [ ! -s code ]; do sleep 0.1; done; code=$(cat code); rm code; exit $code"));
        assert_eq!(found, code, "{line} with a closed pipe: {err}");
    }
    for line in [
        "--help",
        "-V",
        "--version",
        "help scan",
        "scan",
        "stats --json",
        "man",
        "completions bash",
        "get a",
        "get a --file -",
        "dump",
    ] {
        let (code, _, err) = stage.shell(&format!("tidesdb {line} >/dev/full"));
        assert!(code == 3 && err.contains("cannot write the output"), "{line}: {code} {err}");
        let (code, ..) = stage.shell(&format!("tidesdb {line} >/dev/full 2>/dev/full"));
        assert_eq!(code, 3, "{line}");
        let (code, _, err) = stage.shell(&format!("(sleep 0.3; tidesdb {line}; echo $? > code) | true; while [ ! -s code ]; do sleep 0.1; done; code=$(cat code); rm code; exit $code"));
        assert_eq!((code, err.as_str()), (0, ""), "{line}: a reader that ends early is no error");
    }
}

/// A line that does not fit into the memory ended the program by an abort.
#[test]
#[cfg(target_os = "linux")]
fn a_line_longer_than_the_memory_is_an_error() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    let endless = "(printf 'b\\t2\\n'; head -c 1500000000 /dev/zero | tr '\\0' x; printf '\\nc\\t3\\n')";
    let (code, _, err) = stage.shell(&format!("{endless} | (ulimit -v 700000; tidesdb load --format tsv)"));
    assert!(code == 2 && err.contains("line 2: "), "{code}: {err}");
    assert!(err.contains("memory") || err.contains("longest line"), "{err}");
    assert_eq!(stage.ok(&["scan"]), "a\t1\nb\t2\n");
    let (code, out, err) =
        stage.shell(&format!("{endless} | (ulimit -v 700000; tidesdb load --format tsv --skip-bad)"));
    assert!(code == 0 && out.contains("1 malformed row skipped, the first in line 2"), "{code}: {out}{err}");
    assert_eq!(stage.ok(&["scan"]), "a\t1\nb\t2\nc\t3\n");
    for command in ["load --format csv", "load --format jsonl --key x", "shell", "put d"] {
        let zeros = "head -c 1500000000 /dev/zero";
        let (code, _, err) = stage.shell(&format!("{zeros} | (ulimit -v 700000; tidesdb {command})"));
        assert!(code == 2 || code == 3, "{command}: {code} {err}");
        assert!(err.starts_with("error: "), "{command}: {err}");
    }
}

/// The shell answered at the end of its input only: a program that waits for an answer before its next line waited for ever.
#[test]
fn the_shell_answers_a_pipe_line_by_line() {
    let stage = Stage::new();
    let mut shell = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut to = shell.stdin.take().unwrap();
    let mut from = BufReader::new(shell.stdout.take().unwrap()).lines();
    for n in 0..3 {
        to.write_all(format!("put k{n} v\nscan --count\n").as_bytes()).unwrap();
        assert_eq!(from.next().unwrap().unwrap(), (n + 1).to_string());
    }
    drop(to);
    assert!(shell.wait().unwrap().success());
    let mut shell = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(b"put a 1\nput b \xff\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && err.contains("line 2: ") && err.contains("\\xHH"), "{err}");
}

/// A command that reads the standard input waited for ever for what the shell held, with the database locked.
#[test]
fn a_script_is_not_the_input_of_its_commands() {
    let stage = Stage::new();
    std::fs::write(stage.path("value"), "v").unwrap();
    for line in ["put k", "put k --file -", "load --format tsv", "load - --format csv"] {
        let mut shell = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
        let script = format!("put a --file value\n{line}\nput b 1\n");
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let has_ended = |_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            shell.try_wait().unwrap().is_some()
        };
        if !(0..600).any(has_ended) {
            shell.kill().unwrap();
            panic!("{line}: the shell does not end");
        }
        let output = shell.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2), "{line}: {err}");
        assert!(err.contains("line 2: the standard input is the script"), "{line}: {err}");
        assert_eq!(stage.ok(&["scan"]), "a\tv\n", "{line}");
    }
}

/// The rest of a script was not run, with exit code 0.
#[test]
fn a_script_whose_reader_goes_away_fails_if_commands_are_left() {
    let stage = Stage::new();
    for (script, code) in [
        ("put a 1\nscan\nput b 2\n", 3),
        ("scan\n\n# a comment\nsync\n", 3),
        ("put a 1\nscan\n", 0),
        ("scan\n\n# a comment\nquit\nput b 2\n", 0),
    ] {
        let mut shell = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
        drop(shell.stdout.take());
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{script}: {err}");
        let line = script.lines().position(|line| line == "scan").unwrap() + 1;
        assert_eq!(
            err.contains(&format!("error: line {line}: the reader of the output")),
            code == 3,
            "{err}"
        );
        assert_eq!(err.is_empty(), code == 0, "{err}");
        assert_eq!(stage.ok(&["scan"]), "a\t1\n");
    }
}

/// `levels fruit.db` worked, and `stats fruit.db` was an unexpected argument.
#[test]
#[cfg(unix)]
fn the_database_is_an_argument_of_the_commands_without_another_one() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1", "--db", "fruit.db"]);
    for command in ["levels", "stats", "verify", "scan", "dump", "compact"] {
        let before = stage.ok(&[command, "--db", "fruit.db", "--json"]);
        let named = stage.ok(&[command, "fruit.db", "--json"]);
        assert_eq!(before.lines().count(), named.lines().count(), "{command}: {named}");
        assert!(!stage.path("db").exists(), "{command}: the argument goes before TIDESDB_DB");
    }
    let (code, out, err) = stage.shell("printf 'get a\\nget a\\n' | tidesdb shell fruit.db");
    assert_eq!((code, out.as_str()), (0, "1\n1\n"), "{err}");
    let (code, _, err) = stage.shell("echo scan fruit.db | tidesdb shell fruit.db");
    assert!(code == 2 && err.contains("the shell has one open"), "{err}");
    for words in [&["get", "fruit.db", "a"][..], &["put", "fruit.db", "a", "2"], &["families", "fruit.db"]] {
        let (code, _, err) = stage.run(words);
        assert!(code == 2 && err.contains("next: add --db: tidesdb --db fruit.db"), "{err}");
    }
    let (code, _, err) = stage.run(&["get", "a", "b", "--db", "fruit.db"]);
    assert!(code == 2 && !err.contains("add --db"), "{err}");
}

/// A folder that cannot be made was said not to exist, with the advice to create it.
#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_cannot_be_made_is_named_with_the_reason() {
    let stage = Stage::new();
    std::os::unix::fs::symlink("/nowhere/at/all", stage.path("dangling")).unwrap();
    for (path, why) in [
        ("dangling", "dangling is a link to /nowhere/at/all, which does not exist"),
        ("/proc/fruit.db", "No such file or directory"),
    ] {
        let (code, _, err) = stage.run(&["put", "a", "1", "--db", path]);
        assert!(code == 3 && err.contains(path) && err.contains(why), "{path}: {err}");
    }
}

/// A command on a folder without a database left its lock there.
#[test]
fn a_foreign_folder_stays_as_it_is() {
    let stage = Stage::new();
    // Tables that were exported, and backups, are no database either.
    for content in [
        &[][..],
        &["notes.txt"],
        &["part-000001.klog", "part-000001.klog.vlog"],
        &["backup.000001.000000.klog", "backup.000001.000001.vlog", "backup.index", "backup.probe"],
    ] {
        let _ = std::fs::remove_dir_all(stage.path("foreign"));
        std::fs::create_dir(stage.path("foreign")).unwrap();
        content.iter().for_each(|name| std::fs::write(stage.path("foreign").join(name), "mine").unwrap());
        for words in [
            &["scan"][..],
            &["get", "a"],
            &["dump"],
            &["stats"],
            &["verify"],
            &["families"],
            &["levels"],
            &["inspect", "wal"],
            &["inspect", "manifest"],
            &["delete", "a"],
            &["compact"],
            &["checkpoint", "copy"],
            &["backup", "copy"],
            &["generations", "create", "--store", "copy"],
            &["families", "drop", "x"],
            &["shell", "--read-only"],
            &["scan", "--recovery", "salvage"],
        ] {
            let (code, _, err) = stage.run(&[words, &["--db", "foreign"]].concat());
            assert!(code == 2 && err.contains("does not exist"), "{words:?}: {code} {err}");
            assert_eq!(stage.names("foreign"), content, "{words:?}");
        }
    }
    assert!(!stage.path("copy").exists());
    // What is left there is a store: a database among its objects would end its use.
    for words in [&["put", "a", "1"][..], &["shell"], &["families", "create", "x"]] {
        let (code, _, err) = stage.run(&[words, &["--db", "foreign"]].concat());
        assert!(code == 2 && err.contains("foreign is a store of backups"), "{words:?}: {code} {err}");
        assert_eq!(stage.names("foreign").len(), 4, "{words:?}");
    }
    std::fs::write(stage.path("in.tsv"), "a\t1\n").unwrap();
    let (code, _, err) = stage.run(&["load", "in.tsv", "--db", "foreign"]);
    assert!(code == 2 && err.contains("foreign is a store of backups"), "{code} {err}");
}

/// `inspect` showed the file of the same name of another database.
#[test]
fn a_file_of_another_database_is_not_inspected() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    stage.ok(&["put", "b", "2", "--db", "other"]);
    let (code, _, err) = stage.run(&["inspect", "table", "other/000001.klog"]);
    assert!(code == 2 && err.contains("other/000001.klog is not in the database"), "{code} {err}");
    assert!(err.contains("add --db other"), "{err}");
    for path in ["db/000001.klog", "db/../db/1", "000001.klog", "1"] {
        stage.ok(&["inspect", "table", path]);
    }
    stage.ok(&["inspect", "table", "other/000001.klog", "--db", "other"]);
}

fn damage_value(path: &Path) {
    let logs = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.into_iter().find(|path| path.extension().is_some_and(|end| end == "vlog")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
}

/// A value or a row that cannot be read left a file with a part of the new content, and nothing of the old one.
#[test]
fn a_file_is_replaced_by_a_whole_value_or_not_at_all() {
    let stage = Stage::new();
    let value: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(stage.path("value"), &value).unwrap();
    stage.ok(&["put", "a", "1"]);
    stage.ok(&["put", "b", "--file", "value"]);
    stage.ok(&["compact"]);
    stage.ok(&["get", "b", "--file", "out"]);
    assert!(std::fs::read(stage.path("out")).unwrap() == value);
    damage_value(&stage.path("db"));
    for (name, old) in [("out", Some("precious")), ("new", None)] {
        let path = stage.path(name);
        old.inspect(|old| std::fs::write(&path, old).unwrap());
        let (code, _, err) = stage.run(&["get", "b", "--file", name]);
        assert!(code == 3 && err.contains("corruption"), "{code}: {err}");
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), old);
    }
    // What was written of a dump is of use, and beside.
    std::fs::write(stage.path("rows.tsv"), "precious").unwrap();
    let (code, _, err) = stage.run(&["dump", "--output", "rows.tsv"]);
    assert!(
        code == 3 && err.contains("what was written before it is in") && err.contains("rows.tsv.part"),
        "{err}"
    );
    assert_eq!(std::fs::read_to_string(stage.path("rows.tsv")).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(stage.path("rows.tsv.part")).unwrap(), "a\t1\n");
    let (code, ..) = stage.run(&["dump", "--output", "rows.tsv", "--family", "none"]);
    assert_eq!(code, 2);
    assert_eq!(stage.names("."), ["db", "out", "rows.tsv", "rows.tsv.part", "value"]);
}

/// `scan` said that a family of the C library does not exist.
#[test]
fn a_database_whose_creation_did_not_end_is_named_as_such() {
    let stage = Stage::new();
    // The name of the default family is refused when the manifest is there already.
    let long = "x".repeat(200);
    Db::options(stage.path("db")).default_family_name(long).open().unwrap_err();
    assert!(stage.path("db/CURRENT").exists(), "{:?}", stage.names("db"));
    for words in [&["scan"][..], &["get", "a"], &["families"], &["stats"], &["verify"]] {
        let (code, _, err) = stage.run(words);
        assert!(
            code == 2 && err.contains("has no family: its creation did not end"),
            "{words:?}: {code} {err}"
        );
        assert!(err.contains("`put`, `load` and `shell` complete it"), "{err}");
    }
    stage.ok(&["put", "a", "1"]);
    assert_eq!(stage.ok(&["scan"]), "a\t1\n");
}

/// Opened for writing, a database of the C library got a family `default` that its program did not make.
#[test]
fn no_family_is_created_in_a_database_whose_default_has_another_name() {
    for name in ["tidesdb:settings", "main"] {
        let stage = Stage::new();
        let db = Db::options(stage.path("db")).default_family_name(name).open().unwrap();
        db.create_family("fruit", tidesdb::FamilyOptions::default()).unwrap();
        db.close().unwrap();
        stage.ok(&["put", "apple", "red", "--family", "fruit"]);
        stage.ok(&["compact"]);
        assert_eq!(stage.ok(&["get", "apple", "--family", "fruit"]), "red");
        let (code, _, err) = stage.run(&["put", "a", "1"]);
        assert!(code == 2 && err.contains("family \"default\" does not exist"), "{err}");
        let (code, _, err) = stage.run(&["get", "a"]);
        assert!(code == 2 && err.contains("family \"default\" does not exist"), "{err}");
        let (code, _, err) = stage.run(&["families", "drop", "tidesdb:settings"]);
        assert!(code == 2, "{err}");
        let mut names = vec!["fruit", name];
        names.sort_unstable();
        assert_eq!(stage.ok(&["families"]).lines().collect::<Vec<_>>(), names);
    }
}
