//! `tidesdb doctor`: what is wrong with a database.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::{Map, Value, json};
use tidesdb::{ChangedSetting, Error, Finding, HealthReport, Severity, Stats, WriterFigures};

use super::bundle;
use super::stats::source;
use crate::failure::{Exit, Outcome};
use crate::look::NO_FIGURES;
use crate::output::{self, Out, Style};
use crate::session::{self, Access, Common, Place, Session, Target};
use crate::text::{grouped, size, time};

/// Say what is wrong with a database, and what to do
///
/// Looks at the figures that the process which writes has published, at their history of a day and at the disk, and opens nothing; a database that was
/// closed is opened for reading. Prints each finding, worst first: the numbers that show it, why it is so, what to do, what that costs. Ends with a block
/// for a report, without keys and values. Changes nothing. The exit code is 1 if something was found.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    target: Target,
    /// Also write what a maintainer needs into this file, as JSON: figures, settings, history, events; no key and no value
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    bundle: Option<PathBuf>,
}

impl Doctor {
    pub(crate) fn run(&self, place: &Place, common: &Common, out: &mut Out<'_>) -> Outcome {
        let place = place.or_at(self.target.dir.as_ref());
        let path = place.path()?;
        let published = session::published(path)?;
        let patient = match published.figures {
            Some(writer) => Patient::of_writer(path, writer),
            None if published.is_locked => {
                return self.unknown(path, &no_figures(published.error.as_ref()), common.json, out);
            }
            None => Patient::at_rest(&place, path, common)?,
        };
        // What was found is printed whatever becomes of the file.
        let written = self.bundle(path, patient.figures(), &patient.settings);
        let exit = print(&patient, common.json, out)?;
        written?;
        Ok(exit)
    }

    /// Another process has the database open, and there are no figures of it.
    fn unknown(&self, path: &Path, why: &str, as_json: bool, out: &mut Out<'_>) -> Outcome {
        let figures = Map::from_iter([("unknown".to_owned(), why.into())]);
        let written = self.bundle(path, figures, &[]);
        if as_json {
            out.json(&json!({ "unknown": why }))?;
        } else {
            out.line("unknown: another process has the database open, and its figures are not known")?;
            out.line(format!("  why: {}", out.name(why)))?;
        }
        written?;
        Ok(Exit::No)
    }

    /// Writes the file for a maintainer, if one is asked for.
    fn bundle(&self, path: &Path, figures: Map<String, Value>, settings: &[ChangedSetting]) -> Outcome<()> {
        let Some(file) = &self.bundle else { return Ok(()) };
        bundle::write(file, path, figures, settings)?;
        output::tell(format!(
            "{} holds the report for a maintainer; look at it before you send it\n",
            file.display()
        ));
        Ok(())
    }
}

/// Why there are no figures of the process that has the database open.
pub(super) fn no_figures(error: Option<&Error>) -> String {
    error.map_or_else(|| NO_FIGURES.to_owned(), |error| format!("its figures cannot be read: {error}"))
}

/// What was looked at, and what was found.
struct Patient<'a> {
    path: &'a Path,
    stats: Stats,
    health: HealthReport,
    settings: Vec<ChangedSetting>,
    /// `None` if this command opened the database.
    writer: Option<WriterFigures>,
    found: Vec<Finding>,
}

impl<'a> Patient<'a> {
    fn of_writer(path: &'a Path, writer: WriterFigures) -> Self {
        let found = writer.diagnose();
        let (stats, health, settings) =
            (writer.stats.clone(), writer.health.clone(), writer.settings.clone());
        Self { path, stats, health, settings, writer: Some(writer), found }
    }

    /// A database that nobody writes. It is open only as long as it is looked at.
    fn at_rest(place: &Place, path: &'a Path, common: &Common) -> Outcome<Self> {
        let Session { db, .. } = Session::open(place, common, Access::Read)?;
        let (found, stats, health) = (db.diagnose(), db.stats(), db.health());
        // Those of the database are the settings of this command.
        let mut settings = db.changed_settings();
        settings.retain(|setting| !setting.family.is_empty());
        db.close()?;
        Ok(Self { path, stats, health, settings, writer: None, found })
    }

    /// The line about families of which nothing is known, if there are any.
    fn left_out(&self) -> Option<String> {
        let count = self.writer.as_ref().map(|writer| writer.families_left_out).filter(|count| *count > 0)?;
        Some(format!("{} families that wrote less are left out of these figures", grouped(count)))
    }

    /// The figures for a maintainer.
    fn figures(&self) -> Map<String, Value> {
        let mut figures = super::stats::database_json(&self.stats, &[]);
        figures.insert("health".into(), self.health.state.name().into());
        figures.insert("health_causes".into(), self.health.causes.clone().into());
        figures.insert("figures_of".into(), self.writer.as_ref().map(super::stats::writer_json).into());
        figures.insert("findings".into(), self.found.iter().map(finding_json).collect());
        figures
    }
}

fn print(patient: &Patient<'_>, as_json: bool, out: &mut Out<'_>) -> Outcome {
    let exit = if patient.found.is_empty() { Exit::Done } else { Exit::No };
    if as_json {
        let found: Vec<Value> = patient.found.iter().map(finding_json).collect();
        let writer = patient.writer.as_ref().map(super::stats::writer_json);
        out.json(&json!({ "findings": found, "figures_of": writer }))?;
        return Ok(exit);
    }
    if patient.found.is_empty() {
        let whose = patient.writer.as_ref().map_or(String::new(), |writer| format!("; {}", source(writer)));
        let left_out = patient.left_out();
        let verdict = if left_out.is_some() { "nothing found" } else { "healthy" };
        out.line(format!("{verdict}{whose}"))?;
        left_out.map_or(Ok(()), |text| out.line(text))?;
        return Ok(exit);
    }
    for finding in &patient.found {
        let style = if finding.severity == Severity::Advice { Style::Strong } else { Style::Bad };
        let text = finding.to_string();
        let mut lines = text.lines();
        out.line(out.paint(style, lines.next().unwrap_or_default()))?;
        lines.try_for_each(|line| out.line(line))?;
    }
    report(patient, out)?;
    Ok(exit)
}

/// Prints the block for a report.
fn report(patient: &Patient<'_>, out: &mut Out<'_>) -> Outcome<()> {
    let stats = &patient.stats;
    out.line("--- for a report ---")?;
    let version = patient.writer.as_ref().map_or(env!("CARGO_PKG_VERSION"), |writer| &writer.version);
    let version = out.name(version).into_owned();
    out.line(format!("tidesdb {version} on {} {}", std::env::consts::OS, std::env::consts::ARCH))?;
    if let Some(writer) = &patient.writer {
        out.line(source(writer))?;
    }
    patient.left_out().map_or(Ok(()), |text| out.line(text))?;
    let rules: Vec<&str> = patient.found.iter().map(|finding| finding.rule).collect();
    out.line(format!("findings: {}", rules.join(", ")))?;
    for (work, times) in stats.times().into_iter().filter(|(_, times)| times.count > 0) {
        let [p50, p99, longest] = [times.p50, times.p99, times.longest].map(|t| time(t.as_secs_f64()));
        out.line(format!("{work}: {}, p50 {p50}, p99 {p99}, longest {longest}", grouped(times.estimate())))?;
    }
    for (cause, stall) in stats.stalls_by_cause().into_iter().filter(|(_, stall)| !stall.time.is_zero()) {
        let [all, longest] = [stall.time, stall.longest].map(|t| time(t.as_secs_f64()));
        out.line(format!("waits for {}: {all} in all, longest {longest}", cause.name()))?;
    }
    out.line(format!(
        "memory: limit {}, memtables {}, tables and cache {}, pressure {}",
        size(stats.memory_limit_bytes),
        size(stats.memory_memtables_bytes),
        size(stats.memory_tables_bytes),
        stats.memory_pressure
    ))?;
    let tables =
        stats.families.iter().flat_map(|f| &f.level_bytes).fold(0, |sum: u64, n| sum.saturating_add(*n));
    let values = stats.families.iter().fold(0, |sum: u64, f| sum.saturating_add(f.value_log_file_bytes));
    out.line(format!(
        "{} families, {} in tables, {} in value logs, {} of log; write amplification {:.1}",
        grouped(stats.families.len() as u64),
        size(tables),
        size(values),
        size(stats.wal_live_bytes),
        stats.write_amplification
    ))?;
    out.line("---")?;
    let shown = patient.path.display();
    out.line(format!(
        "all figures: tidesdb stats --json --db {shown}; what happened when: EVENTS in the folder"
    ))
}

pub(super) fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.name(),
        "rule": finding.rule,
        "what": finding.what,
        "evidence": finding.evidence,
        "cause": finding.cause,
        "advice": finding.advice,
        "price": finding.price,
    })
}

#[cfg(test)]
mod tests {
    use tidesdb::Db;

    use super::*;

    /// Runs the command; returns the exit code, or the failure, and what it prints.
    fn doctor(db: &Path, bundle: PathBuf) -> (Outcome, String) {
        let command = Doctor { target: Target::default(), bundle: Some(bundle) };
        let place = Place { db: Some(db.to_owned()), ..Place::default() };
        let mut bytes = Vec::new();
        let outcome = command.run(&place, &Common::default(), &mut Out::new(&mut bytes, false));
        (outcome, String::from_utf8(bytes).unwrap())
    }

    /// Of families that the figures leave out nothing is known, so it does not call them healthy.
    #[test]
    fn families_that_are_left_out_are_told() {
        let mut writer = crate::look::tests::look(crate::look::track::Track::default()).figures;
        writer.families_left_out = 4000;
        let mut patient = Patient::of_writer(Path::new("db"), writer);
        let printed = |patient: &Patient<'_>| {
            let mut bytes = Vec::new();
            print(patient, false, &mut Out::new(&mut bytes, false)).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let line = "\n4,000 families that wrote less are left out of these figures\n";
        patient.found.clear();
        let text = printed(&patient);
        assert!(text.starts_with("nothing found; figures of process 4711") && text.ends_with(line), "{text}");
        let mut ended = patient.writer.clone().unwrap();
        ended.state = tidesdb::WriterState::Ended;
        let text = printed(&Patient::of_writer(Path::new("db"), ended));
        assert!(text.starts_with("urgent: ") && text.contains(line), "{text}");
        patient.writer.as_mut().unwrap().families_left_out = 0;
        patient.found.clear();
        assert!(printed(&patient).starts_with("healthy; figures of process 4711"));
    }

    #[test]
    fn a_writer_without_figures_has_a_bundle() {
        let dir = tempfile::tempdir().unwrap();
        let (db, bundle) = (dir.path().join("db"), dir.path().join("bundle"));
        let _writer = Db::options(&db).with(|options| options.event_log = false).open().unwrap();
        let (exit, text) = doctor(&db, bundle.clone());
        assert_eq!(exit.unwrap(), Exit::No);
        assert!(text.starts_with("unknown: another process has the database open"), "{text}");
        let all: Value = serde_json::from_slice(&std::fs::read(&bundle).unwrap()).unwrap();
        assert_eq!(all["figures"]["unknown"], NO_FIGURES);
        assert!(all["files"].as_array().unwrap().iter().any(|file| file["name"] == "CURRENT"), "{all}");
    }

    #[test]
    fn figures_that_cannot_be_read_are_not_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        let _writer = Db::options(&db).with(|options| options.event_log = false).open().unwrap();
        std::fs::create_dir(db.join("FIGURES")).unwrap();
        let (exit, text) = doctor(&db, dir.path().join("bundle"));
        assert_eq!(exit.unwrap(), Exit::No);
        assert!(text.contains("\n  why: its figures cannot be read: "), "{text}");
    }

    #[test]
    fn what_was_found_is_printed_though_the_bundle_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        Db::open(dir.path()).unwrap().close().unwrap();
        let (exit, text) = doctor(dir.path(), dir.path().join("none/bundle"));
        assert_eq!(text, "healthy\n");
        assert!(exit.unwrap_err().message().contains("none/bundle"));
    }
}
