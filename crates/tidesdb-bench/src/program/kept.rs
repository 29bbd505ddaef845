//! Output files of a run: the results, and the report that is drawn from them, now or later.

use std::fs;
use std::path::{Path, PathBuf};

use tidesdb_console::failure::{Exit, Failure, Outcome as Ended};
use tidesdb_console::output::{Out, Style};

use crate::{Results, compare, report};

/// Writes `results.json`, `results.csv` and the report into a directory; `seconds.csv` too if rows were sampled every second.
pub(super) fn keep(results: &Results, dir: &Path) -> Ended<()> {
    let files = [("results.json", report::json(results)), ("results.csv", report::csv(results))];
    for (name, text) in files {
        write(&dir.join(name), &text.map_err(Failure::failed)?)?;
    }
    if results.outcomes.iter().any(|outcome| !outcome.timeline.is_empty()) {
        write(&dir.join("seconds.csv"), &report::seconds_csv(results).map_err(Failure::failed)?)?;
    }
    draw(results, dir)
}

/// Writes `report.html` and `plots/*.svg` into a directory.
fn draw(results: &Results, dir: &Path) -> Ended<()> {
    let plots = dir.join("plots");
    fs::create_dir_all(&plots).map_err(|e| Failure::file("create", &plots, &e))?;
    write(&dir.join("report.html"), &report::html(results))?;
    for (name, text) in report::plot_files(results) {
        write(&plots.join(name), &text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Ended<()> {
    fs::write(path, text).map_err(|e| Failure::file("write", path, &e))
}

fn read(path: &Path) -> Ended<Results> {
    let text = fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    report::from_json(&text).map_err(|what| Failure::usage(what).at(&path.display().to_string()))
}

/// Recreate the report of earlier results: the table, report.html and plots
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Redraw {
    /// A results.json
    results: PathBuf,
    /// Where to write report.html and plots/ [default: the directory of the results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Redraw {
    pub(super) fn run(&self, out: &mut Out<'_>) -> Ended {
        let results = read(&self.results)?;
        let beside = self.results.parent().unwrap_or(Path::new(""));
        let dir = self.out.as_deref().unwrap_or(beside);
        draw(&results, dir)?;
        out.line(report::table(&results).trim_end())?;
        out.line(format!("\n{}", dir.join("report.html").display()))?;
        Ok(Exit::Done)
    }
}

/// Parses a number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("it must be above 0".to_owned()) }
}

/// Compare two results, and flag what became slower
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Compare {
    /// The earlier results.json
    old: PathBuf,
    /// The later results.json
    new: PathBuf,
    /// Ignore changes of less than this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = positive)]
    threshold: f64,
    /// Also write the comparison as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Compare {
    pub(super) fn run(&self, out: &mut Out<'_>) -> Ended {
        let (old, new) = (read(&self.old)?, read(&self.new)?);
        if old.machine.processor != new.machine.processor
            || old.machine.file_system != new.machine.file_system
        {
            out.line(out.paint(Style::Bad, "these results are from different machines"))?;
        }
        let changes = compare::compare(&old, &new, self.threshold / 100.0);
        if let Some(path) = &self.html {
            write(path, &compare::html(&old, &new, &changes))?;
        }
        out.line(compare::table(&changes).trim_end())?;
        match compare::is_worse(&changes) {
            true => Err(Failure::no("at least one row became worse")),
            false => Ok(Exit::Done),
        }
    }
}
