//! A progress bar on the standard error stream, with percentage and remaining time if the total is known. Nothing is
//! drawn unless that stream is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::text::{grouped, size};

/// Progress bar of a command.
pub(crate) struct Progress {
    bar: ProgressBar,
}

const KNOWN: &str = "{bar:30} {percent:>3} %  {msg}, {elapsed} elapsed, {eta} left";
const UNKNOWN: &str = "{spinner} {msg}, {elapsed} elapsed";

impl Progress {
    /// Starts a progress bar for `total` bytes, if known.
    pub(crate) fn new(total: Option<u64>) -> Self {
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let template = if total.is_some() { KNOWN } else { UNKNOWN };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("#>-"));
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }

    /// Shows a text instead of rows and rates.
    pub(crate) fn say(&self, text: String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(text);
        }
    }

    /// Shows that `bytes` of one value are done.
    pub(crate) fn stream(&self, bytes: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let secs = self.bar.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{}, {}/s", size(bytes), size((bytes as f64 / secs) as u64)));
    }

    /// Shows that `rows` and `bytes` are done.
    pub(crate) fn update(&self, rows: u64, bytes: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let secs = self.bar.elapsed().as_secs_f64().max(1e-3);
        let per_second = (rows as f64 / secs) as u64;
        let speed = size((bytes as f64 / secs) as u64);
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{} rows, {} rows/s, {speed}/s", grouped(rows), grouped(per_second)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
