//! Chromium without a window, for tests of pages: those of the benchmark, and that of `tidesdb report`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The browser's values for the preferred colour scheme.
pub(crate) const COLOURS: [(&str, &str); 2] = [("dark", "0"), ("light", "1")];

pub(crate) struct Browser {
    program: String,
    profile: PathBuf,
}

impl Browser {
    pub(crate) fn find(profile: PathBuf) -> Self {
        let named = std::env::var("CHROMIUM").ok();
        let names = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
        let there =
            |name: &String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        let program = named.into_iter().chain(names).find(there);
        Self { program: program.expect("no Chromium: apt-get install chromium"), profile }
    }

    /// Opens a page, which must cause no message; returns what the browser prints.
    pub(crate) fn open(&self, page: &Path, colours: &str, args: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000"]);
        command.arg(format!("--user-data-dir={}", self.profile.display()));
        command.arg(format!("--blink-settings=preferredColorScheme={colours}"));
        let out = command.args(args).arg(format!("file://{}", page.display())).output().unwrap();
        let complained = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{complained}");
        let console: Vec<&str> = complained.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(console.is_empty(), "{console:#?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}
