//! The figures of another process, as the program shows them.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::cli::Stage;

/// A shell that has two rows written and its figures published.
pub(crate) fn writer(stage: &Stage) -> (Child, ChildStdin) {
    let mut writer = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(b"put a 1\nput b 2\n").unwrap();
    let has_file = |_| {
        std::thread::sleep(Duration::from_millis(20));
        stage.path("db/FIGURES").exists()
    };
    assert!((0..1500).any(has_file), "the writer publishes nothing");
    (writer, stdin)
}

pub(crate) fn signal(writer: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &writer.id().to_string()]).status().unwrap().success());
}

/// Returns what `tidesdb stats` says, once that contains `wanted`.
fn source(stage: &Stage, wanted: &str) -> String {
    for _ in 0..600 {
        let text = stage.ok(&["stats"]);
        if text.contains(wanted) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{wanted:?} is never shown: {}", stage.ok(&["stats"]));
}

/// A process that runs, one that is stopped, one that was killed and one that has closed the database are told apart, and the figures are
/// those of the writer.
#[test]
fn the_figures_of_another_process_say_whose_they_are() {
    let stage = Stage::new();
    let (mut writer, _stdin) = writer(&stage);
    let text = source(&stage, "user bytes                4 B");
    let process = writer.id().to_string();
    assert!(text.contains(&format!("figures of process {process}, which runs")), "{text}");
    assert!(text.contains("it was healthy"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&stage.ok(&["stats", "--json"])).unwrap();
    assert_eq!((&json["figures_of"]["who"], &json["health"]), (&"the writer".into(), &"healthy".into()));
    assert_eq!(json["families"][0]["user_bytes"], 4);
    assert!(stage.ok(&["stats", "--openmetrics"]).contains("tidesdb_figures_age_seconds "));
    assert!(stage.ok(&["stats", "--family", "default"]).starts_with("figures of process "));

    signal(&writer, "-STOP");
    source(&stage, "is stopped by a signal");
    signal(&writer, "-CONT");
    source(&stage, "which runs and has had nothing to do since");

    // A copy of the folder has no writer.
    let copy = stage.path("copy");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(stage.path("db")).unwrap().flatten() {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let text = stage.ok(&["stats", "--db", copy.to_str().unwrap()]);
    assert!(!text.contains("figures of"), "{text}");

    writer.kill().unwrap();
    writer.wait().unwrap();
    let text = source(&stage, "has ended without closing the database");
    assert!(text.contains("user bytes                4 B"), "{text}");
    stage.ok(&["put", "c", "3"]);
    assert!(!stage.ok(&["stats"]).contains("figures of"), "the last writer has closed the database");
}

/// A page of a process that works, and of one that was killed: whose figures, of when, and what happened before.
#[test]
#[cfg(feature = "report")]
fn the_page_of_another_process_says_whose_it_is() {
    let stage = Stage::new();
    let (mut writer, _stdin) = writer(&stage);
    let says = |wanted: &str| {
        for _ in 0..600 {
            let data: serde_json::Value =
                serde_json::from_str(&stage.ok(&["report", "--json", "-o", "-"])).unwrap();
            if data["source"]["lines"][0].as_str().unwrap().contains(wanted) {
                return data;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{wanted:?} is never said");
    };
    let data = says(&format!("figures of process {}, which runs", writer.id()));
    assert_eq!(data["findings"], serde_json::json!([]));
    assert!(data["source"]["written"].as_u64() > Some(1_600_000_000_000), "{}", data["source"]);
    writer.kill().unwrap();
    writer.wait().unwrap();
    let data = says("has ended without closing the database");
    assert_eq!((&data["source"]["state"], &data["findings"][0]["rule"]), (&"ended".into(), &"ended".into()));
    assert!(data["history"]["hour"]["lines"]["disk_bytes"].is_array(), "{}", data["history"]);
    assert_eq!(data["families"]["rows"][0][9], "4 B", "what users wrote");
    let page = stage.path("page.html");
    assert_eq!(stage.ok(&["report", "-o", page.to_str().unwrap()]), "");
    assert!(std::fs::read_to_string(&page).unwrap().contains("has ended without closing the database"));
    // The next writer closes it: nobody's figures are left, and what happened is.
    stage.ok(&["put", "c", "3"]);
    let data = says("figures of this command");
    assert!(data["history"]["hour"]["lines"].is_object() && data["findings"].as_array().unwrap().is_empty());
}

/// What the doctor says of a process that works, is stopped, was killed.
#[test]
fn the_doctor_tells_processes_apart_and_says_nothing_of_a_healthy_one() {
    let stage = Stage::new();
    let (mut writer, mut stdin) = writer(&stage);
    stdin.write_all(b"put a-secret-key a-secret-value\nput b-secret-key a-secret-value\ncompact\n").unwrap();
    let says = |wanted: &str| {
        for _ in 0..600 {
            let run = stage.run(&["doctor"]);
            if run.text().contains(wanted) {
                return (run.code, run.text().to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{wanted:?} is never said: {}", stage.run(&["doctor"]).text());
    };
    let (code, text) = says("healthy; figures of process");
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
    let bundle = stage.path("bundle.json");
    let has_table = |_| {
        stage.ok(&["doctor", "--bundle", bundle.to_str().unwrap()]);
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&bundle).unwrap()).unwrap();
        let levels = json["figures"]["trees"][0]["levels"].as_array().unwrap();
        let has_table = levels.iter().any(|level| level["tables"].as_u64() > Some(0));
        std::thread::sleep(Duration::from_millis(50));
        has_table
    };
    assert!((0..600).any(has_table), "the writer never publishes its table");
    let text = std::fs::read_to_string(&bundle).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["figures"]["figures_of"]["process"], writer.id());
    assert_eq!(json["figures"]["families"][0]["name"], "default");
    assert!(json["files"].as_array().unwrap().iter().any(|file| file["name"] == "FIGURES"), "{text}");
    for name in ["puts.count", "user_bytes"] {
        assert!(json["history"]["seconds"]["figures"][name][0][1].is_number(), "{name}: {text}");
    }
    assert_eq!(json["events"][0]["event"], "open", "{text}");

    signal(&writer, "-STOP");
    let (code, text) = says("is stopped by a signal");
    assert!(code == 1 && text.starts_with("urgent: ") && text.contains("--- for a report ---"), "{text}");
    signal(&writer, "-CONT");
    says("healthy");
    writer.kill().unwrap();
    writer.wait().unwrap();
    let (code, text) = says("has ended without closing the database");
    assert!(code == 1 && text.starts_with("urgent: the process that wrote the database has ended"), "{text}");
    let json: serde_json::Value = serde_json::from_str(stage.run(&["doctor", "--json"]).text()).unwrap();
    assert_eq!(json["findings"][0]["rule"], "ended");
    stage.ok(&["put", "a secret key", "3"]);
    stage.ok(&["compact"]);
    assert_eq!(stage.ok(&["doctor", "--bundle", bundle.to_str().unwrap()]), "healthy\n");
    let text = std::fs::read_to_string(&bundle).unwrap();
    let hidden = text.replace(' ', "");
    assert!(
        !text.contains("secret") && !hidden.contains("first_key") && text.contains("\"levels\""),
        "{text}"
    );
}

/// A pipe in the place of the event log: to open it would wait for its other end.
#[test]
#[cfg(unix)]
fn a_bundle_does_not_wait_for_a_pipe() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    std::fs::remove_file(stage.path("db/EVENTS")).unwrap();
    assert!(Command::new("mkfifo").arg(stage.path("db/EVENTS")).status().unwrap().success());
    let mut doctor = stage.command(&["doctor", "--bundle", "bundle.json"]).spawn().unwrap();
    let has_ended = |_| {
        std::thread::sleep(Duration::from_millis(50));
        doctor.try_wait().unwrap().is_some()
    };
    let ended = (0..400).any(has_ended);
    doctor.kill().unwrap();
    assert!(ended && doctor.wait().unwrap().success());
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(stage.path("bundle.json")).unwrap()).unwrap();
    assert_eq!(json["events"], serde_json::json!([]));
}
