//! Explanations of the program beside a process that writes.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::cli::Stage;

/// A reader beside the writer explains its own view, and says so.
#[test]
fn an_explanation_beside_a_writer_says_whose_view_it_is() {
    let stage = Stage::new();
    let mut writer = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(b"put a one\nput a second\n").unwrap();
    let beside = "another process writes this database: this is what a read of this command does.";
    let explained = || {
        (0..600).find_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let run = stage.run(&["explain", "a"]);
            (run.code == 0 && run.text().contains("put, 6 bytes; shown")).then(|| run.text().to_owned())
        })
    };
    let text = explained().expect("the put becomes visible");
    assert!(text.starts_with(beside), "{text}");
    assert!(text.contains("memtables and cache of the writer are not known to it"), "{text}");
    assert!(text.contains("put, 3 bytes; not shown: version "), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(stage.run(&["explain", "a", "--json"]).text()).unwrap();
    assert_eq!(json["view_of"], "this reader");
    assert_eq!(json["not_known"][1], "block cache of the writer");
    drop(stdin);
    assert!(writer.wait().unwrap().success());
    let alone = stage.ok(&["explain", "a"]);
    assert!(alone.starts_with("get \"a\" at sequence number "), "{alone}");
    let missing = stage.run(&["explain", "none"]);
    assert_eq!(missing.code, 1, "{}", missing.text());
    assert_eq!(stage.run(&["explain"]).code, 2, "neither a key nor a range");
    assert_eq!(stage.run(&["explain", "a", "--scan", "a..b"]).code, 2, "both");
}
