//! Tests of commands that are programs of their own: which program runs, with which arguments, and how it ends. Scripts take its place,
//! which only Unix starts; `beside.rs` has a test for every system, and says why each of these is alone in its process.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tidesdb_io::sim::alone;

/// The program `tidesdb`, alone in its directory.
struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap() };
        let (built, at) = (env!("CARGO_BIN_EXE_tidesdb"), stage.path("bin/tidesdb"));
        std::fs::create_dir(stage.path("bin")).unwrap();
        if std::fs::hard_link(built, &at).is_err() {
            std::fs::copy(built, &at).unwrap(); // another disk
        }
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a script that takes the place of the benchmark in the directory `dir`.
    fn script(&self, dir: &str, mode: u32, lines: &str) {
        let path = self.path(dir).join("tidesdb-bench");
        std::fs::create_dir_all(self.path(dir)).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs `tidesdb` with the directories `a` and `b` in the path.
    fn run(&self, words: &[&str]) -> Output {
        let path =
            std::env::join_paths([self.path("a"), self.path("b"), Path::new("/bin").to_owned()]).unwrap();
        Command::new(self.path("bin/tidesdb")).args(words).env("PATH", path).output().unwrap()
    }
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn the_program_gets_all_arguments_and_its_exit_code_is_passed_on() {
    alone(|| {
        let stage = Stage::new();
        stage.script("bin", 0o755, "printf '<%s>' \"$@\"; exit 7");
        for (words, passed) in [
            (&["bench"][..], "<>"),
            (&["bench", "quick", "--scale", "0.1"], "<quick><--scale><0.1>"),
            (&["bench", "--vs", "rocksdb", "--db", "x", "-f", "y"], "<--vs><rocksdb><--db><x><-f><y>"),
            (&["bench", "run", "--json", "a b", "--", "-x"], "<run><--json><a b><--><-x>"),
            (&["--json", "bench", "run"], "<run><--json>"),
            (&["bench", "--help"], "<--help>"),
            (&["bench", "-h"], "<-h>"),
            (&["bench", "--version"], "<--version>"),
            (&["help", "bench", "run"], "<run><--help>"),
        ] {
            let output = stage.run(words);
            assert_eq!((output.status.code(), out(&output)), (Some(7), passed), "{words:?}");
        }
    });
}

#[test]
fn the_nearest_program_runs() {
    alone(|| {
        let stage = Stage::new();
        stage.script("b", 0o755, "echo b");
        assert_eq!(out(&stage.run(&["bench"])), "b\n");
        stage.script("a", 0o644, "echo a");
        assert_eq!(out(&stage.run(&["bench"])), "b\n", "a file that cannot be run is none");
        stage.script("a", 0o755, "echo a");
        assert_eq!(out(&stage.run(&["bench"])), "a\n");
        stage.script("bin", 0o755, "echo beside");
        assert_eq!(out(&stage.run(&["bench"])), "beside\n");
    });
}

#[test]
fn a_signal_ends_both() {
    alone(|| {
        let stage = Stage::new();
        stage.script("bin", 0o755, "kill -TERM $$");
        assert_eq!(stage.run(&["bench"]).status.signal(), Some(15));
    });
}

#[test]
fn without_the_program_the_way_to_it_is_shown() {
    alone(|| {
        let stage = Stage::new();
        let output = stage.run(&["bench", "quick"]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        let way = match cfg!(target_os = "linux") {
            true => "cargo run --profile dist -p tidesdb-bench -- quick",
            false => "on Linux only",
        };
        for part in ["no tidesdb-bench in ", "/bin or PATH", " next: ", way] {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert!(out(&stage.run(&["help"])).contains("\n  bench "), "it is a command all the same");
    });
}

/// What the benchmark says of its arguments: two suites and a command.
#[cfg(feature = "pages")]
const DESCRIPTION: &str = r#"{"name":"tidesdb-bench","about":"Measure","long_about":null,"arguments":[
    {"id":"suite","help":"Suite to run","has_value":true,"hint":"Unknown","value_names":["SUITE"],"values":["calm","storm"],"defaults":["calm"]}
    ],"commands":[{"name":"race","about":"Race engines","long_about":null,"arguments":[
    {"id":"lane","long":"lane","help":"The lane","has_value":true,"hint":"Unknown","value_names":["LANE"],"values":["left","right"],"defaults":[]}
    ],"commands":[]}]}"#;

#[cfg(feature = "pages")]
#[test]
fn completions_and_pages_contain_what_the_program_says_of_its_arguments() {
    alone(|| {
        let stage = Stage::new();
        let texts = |words: &[&str]| {
            let output = stage.run(words);
            assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            out(&output).to_owned()
        };
        let alone = texts(&["completions", "fish"]);
        assert!(alone.contains("-a \"bench\"") && !alone.contains("storm"), "{alone}");
        stage.script("bin", 0o755, "exit 1");
        assert_eq!(texts(&["completions", "fish"]), alone, "a program that says nothing is no harm");
        stage.script("bin", 0o755, &format!("[ \"$1\" = describe ] && cat <<'END'\n{DESCRIPTION}\nEND"));
        for shell in ["bash", "zsh", "fish"] {
            let script = texts(&["completions", shell]);
            assert!(
                ["storm", "race", "lane", "right"].iter().all(|word| script.contains(word)),
                "{shell}: {script}"
            );
        }
        let fish = texts(&["completions", "fish"]);
        let suites =
            "using_subcommand bench; and not __fish_seen_subcommand_from race help\" -f -a \"calm storm\"";
        assert!(fish.contains(suites), "{fish}");
        texts(&["man", stage.path("man").to_str().unwrap()]);
        let page = std::fs::read_to_string(stage.path("man/tidesdb-bench.1")).unwrap();
        assert!(page.contains("Suite to run") && page.contains("race"), "{page}");
        assert!(stage.path("man/tidesdb-bench-race.1").is_file());
    });
}
