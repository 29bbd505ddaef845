//! The page of `tidesdb report` in a real browser. The test is ignored by default because it needs Chromium; `cargo xtask ci report` runs it, or
//! reports that Chromium is missing. If `TIDESDB_REPORT_DIR` is set, the page and its pictures are kept there.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::chromium::{Browser, COLOURS};
use crate::cli::Stage;

/// Window sizes: a screen and a phone.
const SIZES: [(&str, &str); 2] = [("wide", "1400,2400"), ("phone", "390,2400")];
/// Names that are code where they are not escaped.
const HOSTILE: [&str; 4] = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "right\u{202e}tfel",
    "line\u{2028}line",
];

/// A process that writes into families of hostile names, until its input ends.
fn writer(stage: &Stage) -> std::process::Child {
    for name in HOSTILE {
        stage.ok(&["families", "create", name]);
    }
    let writer = stage.command(&["shell"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = writer.stdin.as_ref().unwrap();
    for name in HOSTILE {
        writeln!(stdin, "put --family \"{name}\" secret 1\ncompact").unwrap();
    }
    // A row in each of some seconds, which the history has.
    for n in 0..30 {
        writeln!(stdin, "put key{n} {n}").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    writer
}

#[test]
#[ignore = "needs Chromium: cargo xtask ci report"]
fn the_page_renders_in_a_browser() {
    let stage = Stage::new();
    let temporary = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("TIDESDB_REPORT_DIR").map_or(temporary.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&dir).unwrap();
    let mut writer = writer(&stage);
    let page = dir.join("database.html");
    stage.ok(&["report", "--output", page.to_str().unwrap()]);
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());

    let browser = Browser::find(temporary.path().join("profile"));
    let dom = browser.open(&page, "1", &["--dump-dom"]);
    assert!(dom.contains("data-ready=\"yes\""), "the script must run to its end");
    assert!(dom.contains("figures of process "), "the page is of the writer");
    assert!(
        dom.matches("<canvas").count() >= 4 && dom.contains("<rect class=\"box"),
        "charts and trees are drawn"
    );
    assert_eq!(dom.matches("<script").count(), 3, "a name is run");
    assert!(!dom.contains("<img") && dom.contains("&lt;img src=x"), "a name is shown as text");
    assert!(!dom.contains("secret") && !dom.contains('\u{202e}'));
    for (size, window) in SIZES {
        let pictures = COLOURS.map(|(name, colours)| {
            let picture = dir.join(format!("database-{size}-{name}.png"));
            let args = [format!("--screenshot={}", picture.display()), format!("--window-size={window}")];
            browser.open(&page, colours, &args.each_ref().map(String::as_str));
            std::fs::read(picture).unwrap()
        });
        assert!(pictures.iter().all(|picture| picture.len() > 50_000), "something must be drawn");
        assert_ne!(pictures[0], pictures[1], "the dark page must differ from the light one");
    }
}
