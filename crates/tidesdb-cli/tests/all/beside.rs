//! A command that is a program of its own, on every system: a copy of `tidesdb` takes the place of the benchmark.
//!
//! A file that was just written cannot be run while any process has it open for writing. A test that starts a program at that moment, in
//! another thread, would pass the open file on until its program runs. So a test that runs what it has written is alone in its process.

use std::env::consts::EXE_SUFFIX;
use std::process::{Command, Output};

use tidesdb_io::sim::alone;

#[test]
fn the_program_beside_gets_the_arguments_and_its_exit_code_is_passed_on() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(format!("{name}{EXE_SUFFIX}"));
        let run = |words: &[&str]| -> Output {
            let mut command = Command::new(at("tidesdb"));
            command.args(words).env_remove("TIDESDB_DB").env("PATH", dir.path()).current_dir(dir.path());
            command.output().unwrap()
        };
        std::fs::copy(env!("CARGO_BIN_EXE_tidesdb"), at("tidesdb")).unwrap();
        let missing = run(&["bench", "put", "a", "1"]);
        assert_eq!(missing.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no tidesdb-bench in "));
        std::fs::copy(at("tidesdb"), at("tidesdb-bench")).unwrap();
        for (words, code, text) in [
            (&["bench", "put", "--db", "a b", "k", "two words"][..], 0, ""),
            (&["bench", "get", "--db", "a b", "k"], 0, "two words"),
            (&["--json", "bench", "get", "--db", "a b", "k"], 0, "{\"key\":\"k\",\"value\":\"two words\"}\n"),
            (&["bench", "get", "--db", "a b", "none"], 1, ""),
            (&["bench", "frobnicate"], 2, ""),
        ] {
            let output = run(words);
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                (output.status.code(), &*String::from_utf8(output.stdout).unwrap()),
                (Some(code), text),
                "{words:?}: {err}"
            );
        }
    });
}
