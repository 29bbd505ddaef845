//! `tidesdb why` of processes that work, are stopped, were killed, and of an event log that anybody has written into.

use std::io::Write;
use std::process::ChildStdin;
use std::time::Duration;

use serde_json::Value;

use crate::cli::Stage;
use crate::figures::{signal, writer};

/// Returns what `tidesdb why` says once that contains `wanted`, while `work` goes on.
fn says(stage: &Stage, words: &[&str], wanted: &str, mut work: impl FnMut()) -> String {
    let mut text = String::new();
    for _ in 0..400 {
        work();
        text = stage.ok(&[&["why"], words].concat());
        if text.contains(wanted) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{wanted:?} is never said: {text}");
}

fn put(stdin: &mut ChildStdin) {
    stdin.write_all(b"put k v\n").unwrap();
}

#[test]
fn a_process_that_works_is_stopped_and_is_killed() {
    let stage = Stage::new();
    let (mut writer, mut stdin) = writer(&stage);
    let process = writer.id();
    // Some seconds of work, so that a gap is one.
    for _ in 0..25 {
        put(&mut stdin);
        std::thread::sleep(Duration::from_millis(100));
    }
    signal(&writer, "-STOP");
    let text = says(&stage, &[], "does not run since about ", || {});
    assert!(
        text.starts_with(&format!("Process {process} does not run")) && text.contains("\n  next "),
        "{text}"
    );
    std::thread::sleep(Duration::from_secs(5)); // longer than a gap of a busy machine
    signal(&writer, "-CONT");
    let text = says(&stage, &[], "The process did not run from ", || put(&mut stdin));
    assert!(text.contains("went on afterwards: it was stopped (SIGSTOP"), "{text}");
    assert!(text.lines().count() < 24, "{text}");

    writer.kill().unwrap();
    writer.wait().unwrap();
    let text = says(&stage, &[], "has ended without closing the database", || {});
    assert!(
        text.starts_with(&format!("No process writes the database: process {process} has ended")),
        "{text}"
    );
    let json: Value = serde_json::from_str(&stage.ok(&["why", "--json"])).unwrap();
    assert_eq!((&json["verdict"], &json["figures_of"]["process"]), (&"ended".into(), &process.into()));

    // Whatever stands in the event log.
    let mut log = std::fs::read(stage.path("db/EVENTS")).unwrap();
    log.extend(b"{\"time\":\"\x1b[2J\n\xff\xff\n[[[[\n{\"time\":\"9999-99-99T99:99:99Z\",\"event\":7}\n");
    std::fs::write(stage.path("db/EVENTS"), log).unwrap();
    let text = stage.ok(&["why"]);
    assert!(text.contains("4 lines of EVENTS are damaged") && !text.contains('\u{1b}'), "{text}");

    // The next process recovers; the time before is still explained.
    let (mut next, mut stdin) = self::writer(&stage);
    let wanted = format!("now      process {} runs", next.id());
    let text = says(&stage, &[], &wanted, || put(&mut stdin));
    assert!(
        text.starts_with("No process wrote the database ") || text.starts_with("The process did not run"),
        "{text}"
    );
    drop(stdin);
    next.wait().unwrap();
}

#[test]
fn a_database_at_rest_answers_in_one_line_and_bad_times_are_named() {
    let stage = Stage::new();
    let (mut writer, stdin) = writer(&stage);
    drop(stdin);
    writer.wait().unwrap();
    let text = stage.ok(&["why"]);
    let is_quiet =
        text.starts_with("Nothing waited or was slow in the last hour") && text.lines().count() == 1;
    assert!(
        is_quiet || text.contains("slow") || text.contains("waited"),
        "the disk may have been slow: {text}"
    );
    let text = stage.ok(&["why", "--at", "1999-12-31T23:59:59Z"]);
    assert!(text.starts_with("Not recorded: ") && text.contains(" UTC"), "{text}");
    for (words, code, says) in [
        (&["why", "--at", "noon"][..], 2, "is no time; write 14:03, 14:03:20"),
        (&["why", "--at", "2999-01-01T00:00:00Z"], 2, "is still to come"),
        (&["why", "--at", "-5"], 2, "is not a duration"),
        (&["why", "none"], 2, "database none"),
    ] {
        let run = stage.run(words);
        assert!(run.code == code && run.err.contains(says), "{words:?}: {}", run.err);
    }
    assert_eq!(stage.run(&["why", "--at", "-10m"]).code, 0, "a time may begin with a hyphen");
    std::fs::remove_file(stage.path("db/FIGURES")).unwrap();
    let run = stage.run(&["why"]);
    assert!(run.code == 1 && run.err.contains("there are no figures of "), "{}", run.err);
}
