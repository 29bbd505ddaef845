//! `tidesdb stats`: statistics of a database.

use std::io::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidesdb::{FamilyStats, JobStats, StatInfo, StatUnit, StatValue, TreeStats, WriterFigures};

use super::levels::tree_json;
use crate::failure::{Exit, Failure, Outcome};
use crate::look::NO_FIGURES;
use crate::output::{Out, Style, figures_json};
use crate::session::{Session, Target};
use crate::text::{grouped, size, time};

/// Print statistics of the database and its families
///
/// If another process has the database open for writing, these are the figures that it published within the last second; the first line says
/// so, and whether it runs. The same of a process that ended without closing the database: its last ones. Otherwise they are those of this
/// command, whose counters start at zero. With --family, only of that family. Figures that are 0 are left out, except with --json and
/// --openmetrics.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(super) target: Target,
    /// Print the statistics of the database in the format OpenMetrics, for monitors
    #[arg(long)]
    openmetrics: bool,
}

impl Stats {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let writer = session.writer_figures();
        if self.openmetrics {
            if writer.is_none() && session.beside.is_some() {
                // Those of this reader would pass for them.
                return Err(Failure::failed(format!("there are no figures: {NO_FIGURES}")));
            }
            let text = writer.map_or_else(|| session.db.metrics_text(), |writer| writer.metrics_text());
            write!(out, "{text}")?;
            return Ok(Exit::Done);
        }
        if let Some(name) = &session.common.family {
            return one_family(name, writer.as_ref(), session, out);
        }
        let own;
        let (stats, left_out) = match &writer {
            Some(writer) => (&writer.stats, Vec::new()),
            None => {
                own = session.db.stats();
                (&own, session.left_out()?)
            }
        };
        if session.common.json {
            let mut all = database_json(stats, &left_out);
            let health = writer.as_ref().map_or_else(|| session.db.health(), |writer| writer.health.clone());
            all.insert("health".into(), health.state.name().into());
            all.insert("health_causes".into(), health.causes.into());
            all.insert("figures_of".into(), source_json(writer.as_ref(), session));
            out.json(&all.into())?;
            return Ok(Exit::Done);
        }
        out.line(out.paint(Style::Strong, &session.path.display().to_string()))?;
        print_source(writer.as_ref(), session, out)?;
        print_database(stats, out)?;
        stats.families.iter().try_for_each(|family| print_family(family, out))?;
        for tree in stats.trees.iter().chain(&left_out) {
            out.line(out.paint(Style::Strong, &format!("tree of family {:?}", tree.family)))?;
            if !tree.order_is_known {
                let order = out.name(&tree.order);
                out.line(format!("  the order {order} of its keys is not known here"))?;
            }
            print(tree.figures(), out)?;
        }
        Ok(Exit::Done)
    }
}

/// Prints the statistics of the family `name`.
fn one_family(name: &str, writer: Option<&WriterFigures>, session: &Session, out: &mut Out<'_>) -> Outcome {
    let published = writer.and_then(|writer| writer.stats.families.iter().find(|family| family.name == name));
    let family = match published {
        Some(family) => family.clone(),
        None => {
            let own = session.family_named(name)?; // suggests another name if there is none of this
            if writer.is_some() {
                let what = format!("the figures of the writer leave out family {name:?}: it has too many");
                return Err(Failure::usage(what));
            }
            own.stats()
        }
    };
    if session.common.json {
        out.json(&family_json(&family))?;
    } else {
        print_source(writer, session, out)?;
        print_family(&family, out)?;
    }
    Ok(Exit::Done)
}

/// Says whose figures follow, and of when, unless they are those of this process alone.
fn print_source(writer: Option<&WriterFigures>, session: &Session, out: &mut Out<'_>) -> Outcome<()> {
    let Some(writer) = writer else {
        return match session.beside {
            Some(_) => out.line(format!("figures of this reader: {NO_FIGURES}")),
            None => Ok(()),
        };
    };
    out.line(source(writer))?;
    out.line(format!("it was {}", writer.health))?;
    if writer.families_left_out > 0 {
        out.line(format!("{} families that wrote less are left out", grouped(writer.families_left_out)))?;
    }
    if !writer.unknown.is_empty() {
        let (version, unknown) = (out.name(&writer.version), writer.unknown.join(", "));
        out.line(format!("its version {version} does not publish: {unknown}"))?;
    }
    Ok(())
}

/// Says whose figures these are, and how old.
pub(super) fn source(writer: &WriterFigures) -> String {
    let (process, state, age) = (writer.process, writer.state, ago(writer.age));
    format!(
        "figures of process {process}, which {state}; of {age} ago, {} after its open",
        ago(writer.open_for)
    )
}

/// A duration in the unit that suits it.
pub(super) fn ago(time: Duration) -> String {
    match time.as_secs() {
        0..120 => format!("{:.1} s", time.as_secs_f64()),
        secs @ 120..7200 => format!("{} min", secs / 60),
        secs @ 7200..172_800 => format!("{} h", secs / 3600),
        secs => format!("{} days", secs / 86_400),
    }
}

fn source_json(writer: Option<&WriterFigures>, session: &Session) -> Value {
    let Some(writer) = writer else {
        let who = if session.beside.is_some() { "this reader" } else { "this process" };
        return json!({ "who": who, "process": std::process::id() });
    };
    writer_json(writer)
}

pub(super) fn writer_json(writer: &WriterFigures) -> Value {
    json!({
        "who": "the writer",
        "process": writer.process,
        "state": writer.state.name(),
        "version": writer.version,
        "age": writer.age.as_secs_f64(),
        "open_for": writer.open_for.as_secs_f64(),
        "families_left_out": writer.families_left_out,
        "unknown": writer.unknown,
    })
}

/// Prints the figures that are not those of a family.
fn print_database(stats: &tidesdb::Stats, out: &mut Out<'_>) -> Outcome<()> {
    print(stats.figures(), out)?;
    for (work, times) in stats.times().into_iter().filter(|(_, times)| times.count > 0) {
        out.line(out.paint(Style::Strong, work))?;
        print(times.figures(), out)?;
    }
    for job in &stats.jobs {
        out.line(out.paint(Style::Strong, &format!("running: {} of family {:?}", job.kind, job.family)))?;
        print(job.figures(), out)?;
    }
    for (cause, held) in
        stats.stalls_by_cause().into_iter().filter(|(_, held)| !held.time.is_zero() || held.delayed_now > 0)
    {
        out.line(out.paint(Style::Strong, &format!("writers delayed by {}", cause.name())))?;
        print(held.figures(), out)?;
    }
    if let Some(remote) = &stats.remote {
        out.line(out.paint(Style::Strong, "object store"))?;
        print(remote.figures(), out)?;
    }
    Ok(())
}

/// A figure and its description.
type Figure = (&'static StatInfo, StatValue);

/// Prints figures one a line, without those that are 0: most are, in most databases.
fn print(figures: impl Iterator<Item = Figure>, out: &mut Out<'_>) -> Outcome<()> {
    for (info, value) in figures {
        let number = |n| if info.unit == StatUnit::Bytes { size(n) } else { grouped(n) };
        let value = match value {
            StatValue::Number(0) => continue,
            StatValue::Real(x) if x <= 0.0 => continue,
            StatValue::Levels(levels) if levels.iter().all(|n| *n == 0) => continue,
            StatValue::Number(n) => number(n),
            StatValue::Real(x) if info.unit == StatUnit::Share => format!("{:.1} %", x * 100.0),
            StatValue::Real(x) if info.unit == StatUnit::Ratio => format!("{x:.2}"),
            StatValue::Real(x) => time(x),
            StatValue::Levels(levels) => levels.into_iter().map(number).collect::<Vec<_>>().join(", "),
            other => format!("{other:?}"),
        };
        out.line(format!("  {:<25} {value}", info.name.replace('_', " ")).trim_end())?;
    }
    Ok(())
}

fn print_family(family: &FamilyStats, out: &mut Out<'_>) -> Outcome<()> {
    out.line(out.paint(Style::Strong, &format!("family {:?}", family.name)))?;
    print(family.figures(), out)
}

pub(super) fn database_json(stats: &tidesdb::Stats, left_out: &[TreeStats]) -> Map<String, Value> {
    let mut all = figures_json(stats.figures());
    for (cause, stall) in stats.stalls_by_cause() {
        all.insert(format!("stalled_by_{}", cause.name()), figures_json(stall.figures()).into());
    }
    for (work, times) in stats.times() {
        all.insert(work.into(), figures_json(times.figures()).into());
    }
    all.insert("jobs".into(), stats.jobs.iter().map(job_json).collect());
    all.insert("trees".into(), stats.trees.iter().chain(left_out).map(tree_json).collect());
    if let Some(remote) = &stats.remote {
        all.insert("remote".into(), figures_json(remote.figures()).into());
    }
    all.insert("families".into(), stats.families.iter().map(family_json).collect());
    all
}

fn job_json(job: &JobStats) -> Value {
    let mut all = figures_json(job.figures());
    all.insert("kind".into(), job.kind.into());
    all.insert("family".into(), job.family.as_str().into());
    all.into()
}

fn family_json(family: &FamilyStats) -> Value {
    let mut all = figures_json(family.figures());
    all.insert("name".into(), family.name.as_str().into());
    all.into()
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn figures_match_those_of_the_engine() {
        let stage = Stage::with(&["a", "b", "c"]);
        stage.db.flush().unwrap();
        let stats: Value = serde_json::from_str(&stage.run(&["stats", "--json"])).unwrap();
        assert_eq!(stats["families"][0]["table_entries"], 3);
        assert_eq!(stats["families"][0]["user_bytes"], 6);
        assert_eq!(stats["visible_seq"], stage.db.stats().visible_seq);
        for info in FamilyStats::TABLE {
            assert!(stats["families"][0].get(info.name).is_some(), "{} is missing", info.name);
        }
        let text = stage.run(&["stats"]);
        assert!(text.contains("table entries             3\n"), "{text}");
        let lines: Vec<_> = text.lines().collect();
        let is_figure = |line: &str| line.starts_with("  ");
        assert!(
            lines.windows(2).all(|w| is_figure(w[0]) || is_figure(w[1])),
            "a heading without figures: {text}"
        );
        assert!(!lines.contains(&"multi_gets"), "{text}");
        let metrics = stage.run(&["stats", "--openmetrics"]);
        assert!(metrics.contains("tidesdb_family_table_entries{family=\"default\"} 3\n"), "{metrics}");
        let family = stage.run(&["stats", "--family", "default"]);
        assert!(family.starts_with("family \"default\"\n"), "{family}");
    }
}
