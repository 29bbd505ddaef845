//! Tests of the built program: its output, its files, its exit codes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory to run the program in. At the end of a test the doctor finds nothing wrong with the database in it, except that its writer was killed.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    /// Whether the database is made ill on purpose.
    pub(crate) is_ill: bool,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.is_ill || std::thread::panicking() {
            return;
        }
        let run = self.run(&["doctor", "--json"]);
        let seen: serde_json::Value = serde_json::from_slice(&run.out).unwrap_or_default();
        let findings = seen["findings"].as_array().into_iter().flatten();
        let wrong: Vec<_> = findings.filter(|finding| finding["rule"] != "ended").collect();
        assert!(wrong.is_empty(), "the doctor finds an illness in a healthy database: {wrong:?}");
    }
}

/// Result of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), is_ill: false }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidesdb"));
        command
            .args(words)
            .env("TIDESDB_DB", self.path("db"))
            .env_remove("CARGO")
            .env_remove("CLICOLOR_FORCE")
            .current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Run {
        result(self.command(words).output().unwrap())
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let run = self.run(words);
        assert_eq!(run.code, 0, "{words:?}: {}", run.err);
        String::from_utf8(run.out).unwrap()
    }

    pub(crate) fn with_input(&self, words: &[&str], input: &[u8]) -> Run {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(stdin.write_all(input))); // the program may end before it has read all
            result(child.wait_with_output().unwrap())
        })
    }
}

fn result(output: Output) -> Run {
    Run {
        code: output.status.code().unwrap(),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Returns pseudo-random numbers; Marsaglia's xorshift.
fn draws(seed: u64) -> impl Iterator<Item = u64> {
    let mut n = seed;
    std::iter::from_fn(move || {
        n ^= n << 13;
        n ^= n >> 7;
        n ^= n << 17;
        Some(n)
    })
}

pub(crate) fn files_of(path: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

#[test]
fn a_dump_of_a_loaded_file_is_the_sorted_file() {
    let stage = Stage::new();
    let mut lines: Vec<String> = draws(7)
        .take(20_000)
        .enumerate()
        .map(|(i, n)| format!("user:{n:016x}:{i}\tvalue {i}\t{}", n % 1000))
        .collect();
    let input = lines.join("\n") + "\n";
    let file = stage.write("in.tsv", input.as_bytes());
    assert!(stage.ok(&["load", &file]).starts_with("20,000 rows, "));
    lines.sort_unstable();
    assert_eq!(stage.ok(&["dump"]), lines.join("\n") + "\n");
}

#[test]
fn hostile_bytes_survive_every_format() {
    let stage = Stage::new();
    let seed = 0xBADC_0FFE;
    let mut draw = draws(seed);
    let mut byte = || (draw.next().unwrap() >> 32) as u8;
    let mut input = Vec::new();
    for n in 0..3000u32 {
        // Every byte is escaped, so the input defines exactly which bytes are meant.
        let mut hex = |length: u32, out: &mut Vec<u8>| {
            (0..length).for_each(|_| out.extend_from_slice(format!("\\x{:02X}", byte()).as_bytes()));
        };
        input.extend_from_slice(format!("{n:04}").as_bytes());
        hex(n % 9, &mut input);
        input.push(b'\t');
        hex(n % 31, &mut input);
        input.push(b'\n');
    }
    let first = stage.with_input(&["load", "--format", "tsv"], &input);
    assert_eq!(first.code, 0, "seed {seed}: {}", first.err);
    let expected = stage.run(&["dump"]).out;
    for name in ["again.tsv", "again.csv", "again.jsonl"] {
        stage.ok(&["dump", "--output", name]);
        stage.ok(&["families", "create", name]);
        stage.ok(&["load", name, "--family", name]);
        assert_eq!(stage.run(&["dump", "--family", name]).out, expected, "seed {seed}, {name}");
        assert_eq!(stage.run(&["scan", "--family", name]).out, expected, "seed {seed}, {name}");
    }
    // The expected bytes, decoded one by one.
    let key = std::str::from_utf8(
        input.split(|b| *b == b'\n').nth(8).unwrap().split(|b| *b == b'\t').next().unwrap(),
    );
    let value = stage.run(&["get", "-e", key.unwrap()]);
    assert_eq!((value.code, value.out.len()), (0, 8));
}

#[test]
fn standard_input_in_each_format() {
    let stage = Stage::new();
    assert_eq!(stage.with_input(&["load", "--format", "csv", "-"], b"key,value\na,1\n").code, 0);
    assert_eq!(stage.with_input(&["load", "--format", "jsonl", "--key", "id"], b"{\"id\":\"b\"}\n").code, 0);
    assert_eq!(stage.with_input(&["put", "c"], b"from\nstdin").code, 0);
    assert_eq!(stage.ok(&["scan"]), "a\t1\nb\t{\"id\":\"b\"}\nc\tfrom\\nstdin\n");
    assert_eq!(stage.run(&["get", "c"]).out, b"from\nstdin");
    let unnamed = stage.with_input(&["load"], b"a\tb\n");
    assert_eq!(unnamed.code, 2);
    assert!(unnamed.err.contains("--format tsv"), "{}", unnamed.err);
}

#[test]
fn bad_rows_are_reported_with_their_line_or_counted() {
    let stage = Stage::new();
    let file = stage.write("in.tsv", b"a\t1\nno tab here\nb\t2\nb\t3\n");
    let run = stage.run(&["load", &file]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("in.tsv, line 2: no tab"), "{}", run.err);
    assert!(run.err.contains("loaded before it: 1 row") && run.err.contains("--skip-bad"), "{}", run.err);
    assert_eq!(stage.ok(&["scan"]), "a\t1\n");
    let told = stage.ok(&["load", &file, "--skip-bad"]);
    assert!(told.contains("2 rows replaced a value"), "{told}");
    assert!(told.contains("1 malformed row skipped, the first in line 2: no tab"), "{told}");
    let json: Vec<_> = draws(1).take(3).collect();
    let file =
        stage.write("in.jsonl", format!("{{\"key\":\"x\",\"value\":\"{}\"}}\n{{\n", json[0]).as_bytes());
    let run = stage.run(&["load", &file, "--json"]);
    assert!(run.code == 2 && run.err.contains("line 2: not a JSON object"), "{}", run.err);
}

#[test]
fn exit_codes() {
    let stage = Stage::new();
    for (words, code) in [
        (&["get", "a"][..], 2), // no database yet
        (&["stats"], 2),
        (&["put", "a", "1"], 0),
        (&["get", "a"], 0),
        (&["get", "b"], 1),
        (&["delete", "b"], 1),
        (&["delete", "a"], 0),
        (&["get", "a", "--family", "none"], 2),
        (&["frobnicate"], 2),
        (&["load", "missing.tsv"], 3),
        (&["verify"], 0),
        (&["--version"], 0),
    ] {
        assert_eq!(stage.run(words).code, code, "{words:?}");
    }
    let nowhere = stage.command(&["stats"]).env_remove("TIDESDB_DB").output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--db PATH"));
    assert!(!stage.path("missing").exists());
}

#[test]
fn without_a_command_the_next_step_is_shown() {
    let stage = Stage::new();
    for words in [&[][..], &["--json"], &["--db", "x"]] {
        let run = stage.run(words);
        assert_eq!((run.code, run.text()), (2, ""), "{words:?}");
        for step in ["  tidesdb tour ", "  tidesdb put --db my.db apple red ", "  tidesdb help "] {
            assert!(run.err.contains(step), "{words:?}: {}", run.err);
        }
    }
    let run = result(stage.command(&[]).env("CARGO", "cargo").output().unwrap());
    assert!(run.err.contains("  cargo run --release -- tour "), "{}", run.err);
    assert!(stage.ok(&["help"]).contains("Usage: tidesdb"));
}

#[test]
fn the_version_is_one_line_or_all() {
    let stage = Stage::new();
    let short = stage.ok(&["-V"]);
    assert_eq!(short, format!("tidesdb {}\n", env!("CARGO_PKG_VERSION")));
    let long = stage.ok(&["--version"]);
    assert!(long.starts_with(&short), "{long}");
    let line = |name: &str| long.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    let features = line("features: ");
    assert!(features.starts_with("lz4 snappy zstd"), "{features}");
    assert_eq!(features.contains("pages"), cfg!(feature = "pages"), "{features}");
    assert!(line("target: ").starts_with(std::env::consts::ARCH), "{long}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let head = Command::new("git").current_dir(&root).args(["rev-parse", "HEAD"]).output();
    let (commit, is_checkout) = (line("commit: "), root.join(".git").exists());
    match head.ok().filter(|head| head.status.success() && is_checkout) {
        Some(head) => {
            assert!(commit.len() >= 12 && head.stdout.starts_with(commit.as_bytes()), "{long}");
        }
        // The program may have been built on another machine, which had git.
        None => assert!(commit == "unknown" || is_checkout, "{long}"),
    }
}

/// Help, errors of the command line, errors of commands and tables follow the same variables.
#[test]
fn colours_follow_the_environment() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    let with = |words: &[&str], variables: &[(&str, &str)]| {
        let run = result(stage.command(words).envs(variables.iter().copied()).output().unwrap());
        String::from_utf8(run.out).unwrap() + &run.err
    };
    for words in
        [&["help"][..], &["scan", "--help"], &["frobnicate"], &["get", "a", "--family", "x"], &["stats"]]
    {
        assert!(!with(words, &[]).contains('\x1b'), "{words:?} in a pipe");
        assert!(with(words, &[("CLICOLOR_FORCE", "1")]).contains('\x1b'), "{words:?}");
        let both = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
        assert!(!with(words, &both).contains('\x1b'), "{words:?} with NO_COLOR");
        assert!(!with(words, &[("CLICOLOR_FORCE", "0")]).contains('\x1b'), "{words:?} with 0");
    }
}

#[test]
fn the_name_that_was_meant_is_suggested() {
    let stage = Stage::new();
    stage.ok(&["families", "create", "users"]);
    for (words, meant) in [
        (&["sacn"][..], "'scan'"),
        (&["families", "crate"], "'create'"),
        (&["scan", "--prefixx", "a"], "'--prefix'"),
        (&["dump", "--format", "jsnol"], "'jsonl'"),
        (&["scan", "--recovery", "salvge"], "'salvage'"),
        (&["put", "a", "1", "--sync", "ful"], "'full'"),
        (&["inspect", "tabel"], "'table'"),
        (&["families", "create", "x", "--compression", "zstdd"], "'zstd'"),
        (&["families", "create", "x", "--order", "bytwise"], "'bytewise'"),
        (&["families", "create", "x", "--set", "value_treshold=1"], "\"value_threshold\""),
        (&["get", "a", "--family", "usres"], "did you mean \"users\"?"),
        (&["families", "drop", "user"], "did you mean \"users\"?"),
        (&["families", "rename", "Users", "x"], "did you mean \"users\"?"),
        (&["families", "clone", "userss", "x"], "did you mean \"users\"?"),
        (&["compact", "--family", "user"], "did you mean \"users\"?"),
        (&["levels", "--family", "user"], "did you mean \"users\"?"),
    ] {
        let run = stage.run(words);
        assert!(run.code == 2 && run.err.contains(meant), "{words:?}: {}", run.err);
    }
    let run = stage.with_input(&["shell"], b"use user\n");
    assert!(run.code == 2 && run.err.contains("did you mean \"users\"?"), "{}", run.err);
    let run = stage.run(&["get", "a", "--family", "fruit"]);
    assert!(run.err.contains("`tidesdb families` lists them"), "{}", run.err);
    let run = stage.run(&["families", "create", "x", "--set", "table_bytes=0"]);
    assert!(run.code == 2 && !run.err.contains("did you mean"), "the name is right: {}", run.err);
}

#[test]
fn a_database_nearby_is_suggested() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    let file = files_of(&stage.path("db"), "manifest").pop().unwrap();
    let root = stage.dir.path().to_str().unwrap();
    for (path, part) in [
        (root, "the directory contains databases: --db "),
        (stage.path("db/below/it").to_str().unwrap(), "inside of a database: did you mean --db "),
        (file.to_str().unwrap(), "inside of a database: did you mean --db "),
        (stage.path("bd").to_str().unwrap(), "did you mean --db "),
    ] {
        for words in [&["scan"][..], &["levels"], &["inspect", "manifest"]] {
            let run = stage.run(&[words, &["--db", path]].concat());
            assert_ne!(run.code, 0);
            let db = stage.path("db").display().to_string();
            assert!(run.err.contains(part) && run.err.contains(&db), "{words:?} {path}: {}", run.err);
        }
    }
    let run = stage.run(&["inspect", "wal", "--db", "bd"]);
    assert!(run.code == 3 && run.err.contains("did you mean --db "), "{}", run.err);
    let nothing = stage.run(&["scan", "--db", "something-else"]);
    assert!(nothing.err.contains("next: check --db"), "{}", nothing.err);
}

#[test]
fn a_database_in_use_has_its_own_exit_code() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    // A shell that starts while `delete` has the database ends at once; the next one may be luckier.
    let held = (0..250).find_map(|_| {
        let mut shell = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = shell.stdin.take().unwrap();
        let _ = stdin.write_all(b"get a\nget --json a\n"); // it may have ended
        while shell.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let busy = stage.run(&["delete", "none"]);
            if busy.code != 1 {
                return Some((shell, stdin, busy));
            }
        }
        None
    });
    let (mut shell, stdin, busy) = held.expect("a shell holds the database");
    assert_eq!(busy.code, 4, "{}", busy.err);
    assert!(busy.err.contains("is open elsewhere") && busy.err.contains("next: wait"), "{}", busy.err);
    drop(stdin);
    assert_eq!(shell.wait().unwrap().code(), Some(0));
    assert_eq!(stage.ok(&["get", "a"]), "1");
}

#[test]
fn scans() {
    let stage = Stage::new();
    stage.with_input(&["load", "--format", "tsv"], b"a\t1\nab\t2\nb\t3\nc\t4\n");
    for (words, expected) in [
        (&["scan", "--prefix", "a"][..], "a\t1\nab\t2\n"),
        (&["scan", "--from", "ab", "--to", "c", "--keys-only"], "ab\nb\n"),
        (&["scan", "--reverse", "--limit", "1"], "c\t4\n"),
        (&["scan", "--count"], "4\n"),
        (&["scan", "--json", "--limit", "1"], "{\"key\":\"a\",\"value\":\"1\"}\n"),
    ] {
        assert_eq!(stage.ok(words), expected, "{words:?}");
    }
    assert_eq!(stage.run(&["scan", "--prefix", "a", "--from", "b"]).code, 2);
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let stage = Stage::new();
    let rows: String = (0..200_000).map(|n| format!("{n:08}\tsome value to fill the pipe\n")).collect();
    assert_eq!(stage.with_input(&["load", "--format", "tsv"], rows.as_bytes()).code, 0);
    let mut child = stage.command(&["scan"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_dump_warns_when_it_omits_the_expiry() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1", "--ttl", "7d"]);
    stage.ok(&["put", "b", "2"]);
    for (format, form) in [("tsv", "a\t1\\@"), ("csv", "a,1,"), ("jsonl", "\"value\":\"1\",\"expiry\":")] {
        let run = stage.run(&["dump", "--format", format]);
        assert!(run.err.is_empty() && run.text().contains(form), "{}{}", run.text(), run.err);
        let run = stage.run(&["dump", "--format", format, "--no-expiry"]);
        assert!(run.err.contains("1 row that expires would become permanent"), "{}", run.err);
        assert!(!run.text().contains(form), "{}", run.text());
    }
    assert!(stage.ok(&["help", "dump"]).contains("Omit the expiry"));
}

#[test]
fn families() {
    let stage = Stage::new();
    stage.ok(&["families", "create", "users", "--compression", "zstd"]);
    stage.ok(&["put", "--family", "users", "ann", "1"]);
    stage.ok(&["families", "clone", "users", "copy"]);
    stage.ok(&["families", "rename", "copy", "second"]);
    stage.ok(&["families", "drop", "users"]);
    assert_eq!(stage.ok(&["families"]), "default\nsecond\n");
    assert_eq!(stage.ok(&["get", "--family", "second", "ann"]), "1");
    let run = stage.run(&["families", "drop", "users"]);
    assert!(run.code == 2 && run.err.contains("does not exist"), "{}", run.err);
    assert!(stage.ok(&["families", "list", "--json"]).contains("\"compression\":\"zstd\""));
}

#[test]
fn verify_compact_checkpoint_and_stats() {
    let stage = Stage::new();
    let rows: String = (0..5000).map(|n| format!("{:05}\t{n}\n", n % 2000)).collect();
    stage.with_input(&["load", "--format", "tsv"], rows.as_bytes());
    assert!(stage.ok(&["compact"]).contains("-> 1 table, "));
    let stats = stage.ok(&["stats", "--json"]);
    assert!(stats.contains("\"table_entries\":2000,"), "{stats}");
    assert!(stage.ok(&["stats"]).contains("family \"default\""));
    stage.ok(&["checkpoint", "copy"]);
    assert!(stage.ok(&["verify", "--db", "copy"]).ends_with("all good\n"));
    assert_eq!(stage.ok(&["dump", "--db", "copy"]), stage.ok(&["dump"]));
    assert_eq!(stage.run(&["checkpoint", "copy"]).code, 2);
}

#[test]
fn damage_is_found_and_named() {
    let stage = Stage::new();
    let rows: String = (0..20_000).map(|n| format!("{n:06}\tvalue {n}\n")).collect();
    stage.with_input(&["load", "--format", "tsv"], rows.as_bytes());
    stage.ok(&["compact"]);
    let table = files_of(&stage.path("db"), "klog").pop().unwrap();
    let name = table.file_name().unwrap().to_str().unwrap().to_owned();
    let whole = std::fs::read(&table).unwrap();
    // In the data, in the index, in the footer.
    for at in [whole.len() / 2, whole.len() - 500, whole.len() - 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&table, &bytes).unwrap();
        let run = stage.run(&["verify"]);
        assert_eq!(run.code, 1, "{at}: {}", run.err);
        assert!(run.text().contains(&format!("corruption in {name} at byte ")), "{at}: {}", run.text());
        let run = stage.run(&["inspect", "table", "--json"]);
        assert_eq!(run.code, 1, "{at}: {}", run.err);
        assert!(run.text().contains(&format!("{{\"file\":\"{name}\",\"offset\":")), "{at}: {}", run.text());
    }
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 1;
    std::fs::write(&table, &bytes).unwrap();
    let run = stage.run(&["dump"]);
    assert_eq!(run.code, 3);
    assert!(run.err.contains(&name) && run.err.contains("next: `tidesdb verify`"), "{}", run.err);
    std::fs::write(&table, &whole).unwrap();
    assert_eq!(stage.ok(&["dump"]), rows);
}

#[test]
fn a_killed_load_leaves_a_prefix() {
    let stage = Stage::new();
    let rows: String = (0..300_000).map(|n| format!("{n:07}\tvalue {n}\n")).collect();
    let mut child =
        stage.command(&["load", "--format", "tsv", "--sync", "none"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Half of the input is written; the program is waiting for more when it is killed.
    stdin.write_all(&rows.as_bytes()[..rows.len() / 2]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(stdin);
    let verified = stage.ok(&["verify"]);
    assert!(verified.contains("log: recovered ") && verified.ends_with("all good\n"), "{verified}");
    let dump = stage.ok(&["dump"]);
    assert!(rows.starts_with(&dump) && dump.ends_with('\n') && dump.len() > 1000, "{} bytes", dump.len());
    assert!(stage.ok(&["inspect", "wal"]).contains("Commit seqno "));
}

#[test]
fn inspecting_every_kind_of_file() {
    let stage = Stage::new();
    stage.with_input(&["put", "big"], &[b'x'; 9000]);
    stage.ok(&["put", "small", "v"]);
    for (words, part) in [
        (&["inspect", "manifest"][..], "family 1 \"default\""),
        (&["inspect", "table", "--entries"], "small seqno"),
        (&["inspect", "vlog", "--entries"], "value of 9000 bytes"),
        (&["inspect", "wal"], "no damage"),
    ] {
        let text = stage.ok(words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
    assert_eq!(stage.run(&["inspect", "table", "424242"]).code, 2);
}

#[test]
fn a_shell_in_a_pipe() {
    let stage = Stage::new();
    let script = b"put 'two words' \"tab\\there\"\nfamilies create f\nuse f\nput x y\nscan\nuse default\nscan\nget none\n";
    let run = stage.with_input(&["shell"], script);
    assert_eq!((run.code, run.text()), (1, "x\ty\ntwo words\ttab\there\n"), "{}", run.err);
    assert_eq!(stage.ok(&["scan", "--family", "f"]), "x\ty\n");
    let run = stage.with_input(&["shell"], b"scan\nfrob\nscan\n");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("line 2: "), "{}", run.err);
    let run = stage.with_input(&["shell", "--read-only"], b"put a b\n");
    assert!(run.code == 2 && run.err.contains("reading only"), "{}", run.err);
}

#[test]
fn the_tour_keeps_its_promises() {
    let stage = Stage::new();
    let text = stage.ok(&["tour", "--dir", "kept"]);
    let killed = format!("and is killed with {} after", tidesdb_io::program::KILL);
    for part in
        ["SPOUTING WHALE", &killed, "acknowledged records survived", "corruption in ", "all kept, in "]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\x1b') && !text.contains("BROKEN"), "{text}");
    assert_eq!(
        stage.ok(&["get", "--db", "kept/db", "--family", "records", "000000000001"]).split(',').next(),
        Some("record 1")
    );
    assert_eq!(stage.run(&["verify", "--db", "kept/damaged"]).code, 1);
    let again = stage.run(&["tour", "--dir", "kept"]);
    assert!(again.code == 2 && again.err.contains("is not empty"), "{}", again.err);
}

/// Commands that only read failed on every database of the C library: it has no family with the default name, and a read-only
/// open cannot create one.
#[test]
fn databases_of_the_c_library_are_read() {
    let stage = Stage::new();
    let options = || tidesdb::Db::options(stage.path("db")).default_family_name("tidesdb:settings");
    let db = options().open().unwrap();
    db.create_family("fruit", tidesdb::FamilyOptions::default()).unwrap().put(b"apple", b"red").unwrap();
    let order = tidesdb::Comparator::custom("c:mine", |a: &[u8], b: &[u8]| b.cmp(a));
    db.create_family("ordered", tidesdb::FamilyOptions::default().comparator(order)).unwrap();
    let beside = stage.run(&["get", "apple", "--family", "fruit"]);
    assert!(beside.text().trim() == "red" && beside.err.starts_with("note: "), "{}", beside.err);
    db.close().unwrap();
    assert_eq!(stage.ok(&["get", "apple", "--family", "fruit"]).trim(), "red");
    assert_eq!(stage.ok(&["scan", "--family", "fruit"]).trim(), "apple\tred");
    stage.ok(&["verify"]);
    assert!(stage.ok(&["stats"]).contains("fruit"));
    let refused = stage.run(&["get", "apple"]);
    assert_ne!(refused.code, 0, "there is no default family");
    let refused = stage.run(&["get", "apple", "--family", "ordered"]);
    assert!(refused.code != 0 && refused.err.contains("c:mine"), "{}", refused.err);
    let refused = stage.run(&["put", "k", "v", "--family", "fruit"]);
    assert!(refused.code != 0 && refused.err.contains("c:mine"), "{}", refused.err);
    let db = options().allow_unknown(true).read_only(true).open().unwrap();
    assert_eq!(db.families(), ["fruit", "tidesdb:settings"], "reading creates no family");
    db.close().unwrap();
}

#[test]
fn reading_commands_show_a_view_of_a_database_that_another_process_writes() {
    let stage = Stage::new();
    let mut writer = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(b"put a 1\nput b 2\n").unwrap();
    // The writer has the database open until its input ends. A scan before that would open the database itself, and the writer would find
    // it locked.
    let has_log = || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let mut files = std::fs::read_dir(stage.path("db")).into_iter().flatten().flatten();
        files.any(|file| file.path().extension().is_some_and(|end| end == "wal"))
    };
    assert!((0..6000).any(|_| has_log()), "the writer does not open the database");
    let shown = |words: &[&str], wanted: &str| {
        for _ in 0..600 {
            let run = stage.run(words);
            if run.code == 0 && run.text() == wanted {
                return run.err;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{words:?} never shows {wanted:?}: {}", stage.run(words).text());
    };
    let remark = shown(&["scan"], "a\t1\nb\t2\n");
    assert!(
        remark.starts_with("note: the database is open elsewhere; this is a view of it at sequence"),
        "{remark}"
    );
    assert_eq!(stage.ok(&["get", "a"]), "1");
    assert_eq!(stage.ok(&["families"]), "default\n");
    assert!(stage.ok(&["stats"]).contains("visible seq"));
    assert!(stage.ok(&["verify"]).ends_with("all good\n"));
    assert!(stage.ok(&["levels"]).contains("family \"default\""));
    assert_eq!(stage.ok(&["dump"]), "a\t1\nb\t2\n");
    let refused = stage.run(&["put", "c", "3"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let salvage = stage.run(&["scan", "--recovery", "salvage"]);
    assert_eq!(salvage.code, 4, "{}", salvage.err);
    stdin.write_all(b"put c 3\n").unwrap();
    shown(&["scan"], "a\t1\nb\t2\nc\t3\n");
    drop(stdin);
    assert!(writer.wait().unwrap().success());
    assert_eq!(stage.run(&["scan"]).err, "", "no view: the writer is gone");
}

/// The commands of `docs/operate/crash.md` for damage in the log.
#[test]
#[cfg(unix)]
fn the_recipe_for_a_damaged_log_saves_the_commits_around_the_damage() {
    let stage = Stage::new();
    let mut writer = stage.command(&["shell", "--db", "my.db"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(b"put apple 1\nput banana 2\nput carrot 3\n").unwrap();
    let wal = stage.path("my.db/000001.wal");
    let is_written = |_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        wal.exists() && stage.run(&["get", "--db", "my.db", "carrot"]).code == 0
    };
    assert!((0..600).any(is_written), "the writer does not write");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let mut log = std::fs::read(&wal).unwrap();
    let at = log.windows(6).position(|bytes| bytes == b"banana").unwrap();
    log[at] ^= 1;
    std::fs::write(&wal, log).unwrap();
    let refused = stage.run(&["get", "--db", "my.db", "apple"]);
    assert!(refused.code == 3 && refused.err.contains("--recovery salvage"), "{}", refused.err);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/crash.md");
    let page = std::fs::read_to_string(page).unwrap();
    let recipe =
        page.split("```sh (needs a damaged database)\n").nth(1).unwrap().split("```").next().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_tidesdb")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    let done = shell.arg("-c").arg(recipe).current_dir(stage.dir.path()).env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("000001.wal at byte"), "{done:?}");
    assert_eq!(stage.ok(&["scan", "--db", "new.db"]), "apple\t1\ncarrot\t3\n");
}

#[test]
fn families_with_a_comparator_of_another_program_are_listed_and_counted() {
    let stage = Stage::new();
    let order = || tidesdb::Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    let options = || tidesdb::FamilyOptions::default().comparator(order());
    let db = tidesdb::Db::options(stage.path("db")).comparator(order()).open().unwrap();
    let odd = db.create_family("odd", options()).unwrap();
    for key in ["zz", "aaaa", "b"] {
        db.put(key, "v").unwrap();
        odd.put(key, vec![7; 5000]).unwrap();
    }
    db.flush().unwrap();
    drop(odd);
    let check = || {
        assert_eq!(stage.ok(&["families"]), "default\nodd\n");
        let stats = stage.ok(&["stats"]);
        assert!(
            stats.contains("tree of family \"odd\"\n  the order by-length of its keys is not known here\n"),
            "{stats}"
        );
        assert_eq!(stage.ok(&["get", "zz"]), "v");
        let refused = stage.run(&["get", "zz", "--family", "odd"]);
        assert_eq!(refused.code, 2);
        for words in [
            "family \"odd\" has the key order \"by-length\", which is not known here",
            "next: only a program that has this order",
        ] {
            assert!(refused.err.contains(words), "{}", refused.err);
        }
        let verified = stage.ok(&["verify"]);
        assert!(
            verified.contains("family \"odd\" was not checked: its key order \"by-length\""),
            "{verified}"
        );
        assert!(stage.ok(&["verify", "--json"]).contains("\"not_checked\":[\"odd\"]"));
    };
    check();
    db.close().unwrap();
    check();
    let stage = Stage::new();
    let db = tidesdb::Db::options(stage.path("db")).default_family(options()).open().unwrap();
    let refused = |words: &[&str]| {
        let refused = stage.run(words);
        assert!(refused.code == 2 && refused.err.contains("\"by-length\""), "{}", refused.err);
    };
    refused(&["get", "zz"]);
    db.close().unwrap();
    refused(&["get", "zz"]);
    refused(&["put", "zz", "v"]);
    assert!(stage.ok(&["levels"]).contains("by-length"));
}
