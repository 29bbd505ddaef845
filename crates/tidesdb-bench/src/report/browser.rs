//! Tests the report in a real browser. The test is ignored by default because it needs Chromium; `cargo xtask ci
//! report` runs it, or reports that Chromium is missing. If `TIDESDB_REPORT_DIR` is set, pages and screenshots are kept
//! there for inspection.

use std::path::PathBuf;

use super::chromium::{Browser, COLOURS};
use super::{fixture, html, plot_files};
use crate::compare;

/// Window sizes to test: a screen and a phone.
const SIZES: [(&str, &str); 2] = [("wide", "1100,2400"), ("phone", "400,2400")];
#[test]
#[ignore = "needs Chromium: cargo xtask ci report"]
fn the_report_renders_in_a_browser() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("TIDESDB_REPORT_DIR").map_or(temporary.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(dir.join("plots")).unwrap();
    let browser = Browser::find(temporary.path().join("profile"));
    for suite in ["quick", "standard"] {
        let results = fixture::results(suite);
        let page = dir.join(format!("{suite}.html"));
        std::fs::write(&page, html(&results)).unwrap();
        let dom = browser.open(&page, "1", &["--dump-dom"]);
        assert!(dom.contains("data-ready=\"yes\""), "the script must run to its end");
        assert!(!dom.contains("<img") && !dom.contains("<script>alert"), "names must be escaped");
        assert!(dom.matches("<svg").count() >= 30 && dom.contains("id=\"method\""));
        for (size, window) in SIZES {
            let pictures = COLOURS.map(|(name, colours)| {
                let picture = dir.join(format!("{suite}-{size}-{name}.png"));
                let args = [format!("--screenshot={}", picture.display()), format!("--window-size={window}")];
                browser.open(&page, colours, &args.each_ref().map(String::as_str));
                std::fs::read(picture).unwrap()
            });
            assert!(pictures.iter().all(|p| p.len() > 50_000), "something must be drawn");
            assert_ne!(pictures[0], pictures[1], "the dark page must differ from the light one");
        }
        for (name, text) in plot_files(&results) {
            std::fs::write(dir.join("plots").join(&name), text).unwrap();
        }
        let mut slower = results.clone();
        let phases = slower.outcomes.iter_mut().filter(|o| o.engine == "tidesdb").flat_map(|o| &mut o.phases);
        phases.filter(|p| p.operation == "GET").for_each(|p| p.seconds *= 1.5);
        let changes = compare::compare(&results, &slower, 0.05);
        let page = dir.join(format!("{suite}-compare.html"));
        std::fs::write(&page, compare::html(&results, &slower, &changes)).unwrap();
        let dom = browser.open(&page, "0", &["--dump-dom"]);
        assert!(dom.contains("data-ready=\"yes\"") && dom.contains("worse"));
        let drawing = dir.join("plots/01-speedup.svg");
        browser.open(&drawing, "0", &["--dump-dom"]);
    }
}
