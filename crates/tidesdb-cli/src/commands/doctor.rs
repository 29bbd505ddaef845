//! `tidesdb doctor`: what is wrong with a database.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::{Value, json};
use tidesdb::{ChangedSetting, Finding, HealthReport, Severity, Stats, WriterFigures};

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
        let (published, is_locked) = session::published(path)?;
        match published {
            Some(figures) => {
                let found = figures.diagnose();
                let patient = Patient { path, stats: &figures.stats, writer: Some(&figures), found };
                self.bundle(&patient, &figures.health, &figures.settings)?;
                print(&patient, common.json, out)
            }
            None if is_locked && common.json => {
                out.json(&json!({ "unknown": NO_FIGURES }))?;
                Ok(Exit::No)
            }
            None if is_locked => {
                out.line("unknown: another process has the database open and publishes no figures")?;
                out.line(format!("  why: {}", NO_FIGURES))?;
                Ok(Exit::No)
            }
            None => {
                let session = Session::open(&place, common, Access::Read)?;
                let found = session.db.diagnose();
                let patient = Patient { path, stats: &session.db.stats(), writer: None, found };
                // Those of the database are the settings of this command.
                let mut settings = session.db.changed_settings();
                settings.retain(|setting| !setting.family.is_empty());
                self.bundle(&patient, &session.db.health(), &settings)?;
                let exit = print(&patient, common.json, out)?;
                session.db.close()?;
                Ok(exit)
            }
        }
    }

    /// Writes the file for a maintainer, if one is asked for.
    fn bundle(
        &self,
        patient: &Patient<'_>,
        health: &HealthReport,
        settings: &[ChangedSetting],
    ) -> Outcome<()> {
        let Some(file) = &self.bundle else { return Ok(()) };
        let mut figures = super::stats::database_json(patient.stats, &[]);
        figures.insert("health".into(), health.state.name().into());
        figures.insert("health_causes".into(), health.causes.clone().into());
        figures.insert("figures_of".into(), patient.writer.map(super::stats::writer_json).into());
        figures.insert("findings".into(), patient.found.iter().map(finding_json).collect());
        bundle::write(file, patient.path, figures, settings)?;
        output::tell(format!(
            "{} holds the report for a maintainer; look at it before you send it\n",
            file.display()
        ));
        Ok(())
    }
}

/// What was looked at, and what was found.
struct Patient<'a> {
    path: &'a Path,
    stats: &'a Stats,
    writer: Option<&'a WriterFigures>,
    found: Vec<Finding>,
}

fn print(patient: &Patient<'_>, as_json: bool, out: &mut Out<'_>) -> Outcome {
    let exit = if patient.found.is_empty() { Exit::Done } else { Exit::No };
    if as_json {
        let found: Vec<Value> = patient.found.iter().map(finding_json).collect();
        let writer = patient.writer.map(super::stats::writer_json);
        out.json(&json!({ "findings": found, "figures_of": writer }))?;
        return Ok(exit);
    }
    if patient.found.is_empty() {
        let whose = patient.writer.map_or(String::new(), |writer| format!("; {}", source(writer)));
        out.line(format!("healthy{whose}"))?;
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
    let stats = patient.stats;
    out.line("--- for a report ---")?;
    let version = patient.writer.map_or(env!("CARGO_PKG_VERSION"), |writer| &writer.version);
    let version = out.name(version).into_owned();
    out.line(format!("tidesdb {version} on {} {}", std::env::consts::OS, std::env::consts::ARCH))?;
    if let Some(writer) = patient.writer {
        out.line(source(writer))?;
    }
    let rules: Vec<&str> = patient.found.iter().map(|finding| finding.rule).collect();
    out.line(format!("findings: {}", rules.join(", ")))?;
    for (work, times) in stats.times().into_iter().filter(|(_, times)| times.count > 0) {
        let all = times.count.saturating_mul(times.sampled_one_in.max(1));
        let [p50, p99, longest] = [times.p50, times.p99, times.longest].map(|t| time(t.as_secs_f64()));
        out.line(format!("{work}: {}, p50 {p50}, p99 {p99}, longest {longest}", grouped(all)))?;
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

fn finding_json(finding: &Finding) -> Value {
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
