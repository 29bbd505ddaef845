//! The report in a real browser. Ignored by default, because it needs Chromium: `cargo xtask ci report` runs it, or
//! reports that there is none. With `TIDESDB_REPORT_DIR` set, pages and pictures are kept there for inspection.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{fixture, html, plot_files};
use crate::compare;

/// Window sizes to test: a screen and a phone.
const SIZES: [(&str, &str); 2] = [("wide", "1100,2400"), ("phone", "400,2400")];
/// The browser's names for the preferred colour schemes.
const COLOURS: [(&str, &str); 2] = [("dark", "0"), ("light", "1")];

struct Browser {
    program: String,
    profile: PathBuf,
}

impl Browser {
    fn find(profile: PathBuf) -> Self {
        let named = std::env::var("CHROMIUM").ok();
        let names = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
        let there =
            |name: &String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        let program =
            named.into_iter().chain(names).find(there).expect("no Chromium: apt-get install chromium");
        Self { program, profile }
    }

    /// Opens a page; returns the output and the error messages of the browser.
    fn open(&self, page: &Path, colours: &str, args: &[&str]) -> (String, String) {
        let out = Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000"])
            .arg(format!("--user-data-dir={}", self.profile.display()))
            .arg(format!("--blink-settings=preferredColorScheme={colours}"))
            .args(args)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, complained) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success(), "{complained}");
        let console: Vec<&str> = complained.lines().filter(|l| l.contains("CONSOLE")).collect();
        assert!(console.is_empty(), "{console:#?}");
        (said, complained)
    }
}

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
        let (dom, _) = browser.open(&page, "1", &["--dump-dom"]);
        assert!(dom.contains("data-ready=\"yes\""), "the script did not finish");
        assert!(!dom.contains("<img") && !dom.contains("<script>alert"), "a name was interpreted as HTML");
        assert!(dom.matches("<svg").count() >= 30 && dom.contains("id=\"method\""));
        for (size, window) in SIZES {
            let pictures = COLOURS.map(|(name, colours)| {
                let picture = dir.join(format!("{suite}-{size}-{name}.png"));
                let args = [format!("--screenshot={}", picture.display()), format!("--window-size={window}")];
                browser.open(&page, colours, &args.each_ref().map(String::as_str));
                std::fs::read(picture).unwrap()
            });
            assert!(pictures.iter().all(|p| p.len() > 50_000), "nothing is drawn");
            assert_ne!(pictures[0], pictures[1], "the colour schemes look the same");
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
        let (dom, _) = browser.open(&page, "0", &["--dump-dom"]);
        assert!(dom.contains("data-ready=\"yes\"") && dom.contains("worse"));
        let drawing = dir.join("plots/01-speedup.svg");
        browser.open(&drawing, "0", &["--dump-dom"]);
    }
}
