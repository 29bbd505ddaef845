//! `tidesdb top` beside processes that run, are stopped, were killed, have closed the database, or have published nothing.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::cli::Stage;
use crate::figures::{signal, writer};

/// Returns the page of `tidesdb top --once` once it contains `wanted`.
fn page(stage: &Stage, wanted: &str) -> String {
    for _ in 0..600 {
        let text = stage.ok(&["top", "--once"]);
        if text.contains(wanted) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{wanted:?} is never shown: {}", stage.ok(&["top", "--once"]));
}

#[test]
fn a_page_says_whose_figures_it_shows_and_what_became_of_the_process() {
    let stage = Stage::new();
    let (mut writer, _stdin) = writer(&stage);
    let process = writer.id();
    let text = page(&stage, "default");
    let first = text.lines().next().unwrap();
    let db = stage.path("db");
    assert!(first.starts_with(&format!("{}: process {process} runs", db.display())), "{text}");
    for wanted in [
        "\nhealthy; open for ",
        "\nwaits       no writer has waited since the open",
        "\nmemory  ",
        "\ndisk  ",
    ] {
        assert!(text.contains(wanted), "{wanted:?}: {text}");
    }
    assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.trim_end() == line), "{text:?}");

    let json: Value = serde_json::from_str(&stage.ok(&["top", "--json"])).unwrap();
    assert_eq!((&json["figures_of"]["process"], &json["health"]), (&process.into(), &"healthy".into()));
    assert_eq!(json["families"][0]["name"], "default");
    assert!(
        json["memory"]["limit"].as_f64() > Some(1e6) && json["disk"]["free"].as_f64() > Some(0.0),
        "{json}"
    );
    assert!(json["waits"].as_object().is_some_and(serde_json::Map::is_empty), "{json}");

    signal(&writer, "-STOP");
    let text = page(&stage, "is stopped by a signal");
    assert!(text.contains(&format!("(kill -CONT {process})")), "{text}");
    signal(&writer, "-CONT");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let text = page(&stage, "has ended without closing the database");
    assert!(
        text.contains("NO PROCESS WRITES THE DATABASE: it was killed") && text.contains("default"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&stage.ok(&["top", "--once", "--json"])).unwrap();
    assert_eq!(json["figures_of"]["state"], "ended");
}

/// The last figures of a process that has closed the database stay, and are not taken for those of now.
#[test]
fn a_closed_database_shows_its_last_figures_and_one_without_says_why() {
    let stage = Stage::new();
    let (mut writer, stdin) = writer(&stage);
    drop(stdin); // the shell ends
    writer.wait().unwrap();
    let text = stage.ok(&["top", "--once", "db"]);
    assert!(text.contains("has closed the database") && text.contains("it was closed in order"), "{text}");

    std::fs::remove_file(stage.path("db/FIGURES")).unwrap();
    let mut silent = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = silent.stdin.take().unwrap();
    let says = |wanted: &str| {
        let said = |_| {
            std::thread::sleep(Duration::from_millis(20));
            let run = stage.run(&["top"]);
            run.code == 1 && run.err.contains(wanted)
        };
        assert!((0..500).any(said), "{wanted:?} is never said");
    };
    says("the process that writes has published none (it has just opened the database"); // and writes nothing
    stdin.write_all(b"quit\n").unwrap();
    silent.wait().unwrap();
    let run = stage.run(&["top"]);
    assert_eq!((run.code, run.text()), (1, ""));
    assert!(
        run.err.contains("there are no figures of ") && run.err.contains("no process has published any"),
        "{}",
        run.err
    );
    assert!(run.err.contains(" next: "), "{}", run.err);
    let run = stage.run(&["top", "--json", "--db", "none"]);
    assert!(run.code == 2 && run.err.contains("database none"), "{}", run.err);
    std::fs::create_dir(stage.path("empty")).unwrap();
    assert_eq!(stage.run(&["top", "empty"]).code, 2);
}

#[test]
fn damaged_figures_are_an_error_or_none_and_never_a_panic() {
    let stage = Stage::new();
    let (mut writer, stdin) = writer(&stage);
    drop(stdin);
    writer.wait().unwrap();
    let path = stage.path("db/FIGURES");
    let whole = std::fs::read(&path).unwrap();
    for at in [0, 9, 60, 4096, 4096 + 16, 4096 + (128 << 10) + 20, 4096 + (256 << 10) + 30] {
        let mut bytes = whole.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0x55;
        }
        std::fs::write(&path, &bytes).unwrap();
        let run = stage.run(&["top", "--once"]);
        assert!([0, 1, 3].contains(&run.code) && !run.err.contains("panicked"), "{at}: {}", run.err);
    }
}
