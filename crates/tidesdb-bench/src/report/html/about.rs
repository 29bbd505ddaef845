//! The conditions of the measurement: machine, settings, checks, method.

use std::fmt::Write;

use crate::rivals;
use crate::run::Results;

use super::super::lines::{Line, YARDSTICK};
use super::super::words::{DASH, Unit, counted, date, escape};

/// Returns the sections at the end.
pub(super) fn about(results: &Results, lines: &[Line], names: &[String]) -> String {
    [
        environment(results),
        settings(results, names),
        builds(names),
        verification(results, lines, names),
        restarts(results),
        stalls(results),
        METHOD.to_owned(),
    ]
    .concat()
}

fn environment(results: &Results) -> String {
    let m = &results.machine;
    let memory = format!("{:.1} GiB", m.memory as f64 / f64::from(1 << 30));
    let facts = [
        ("Processor", format!("{} \u{d7} {}", m.processors, m.processor)),
        ("Memory", memory),
        ("Kernel", format!("Linux {}", m.kernel)),
        ("File system", m.file_system.clone()),
        ("Load at the start", format!("{:.2}", m.load)),
        ("Build", m.build.clone()),
        ("Compiler", m.compiler.clone()),
        ("Commit", m.commit.clone()),
        ("Version", results.version.clone()),
        ("Suite", results.suite.clone()),
        ("Seed", results.seed.to_string()),
        ("Begun", date(results.begun)),
    ];
    let mut out = "<section id=\"environment\"><h2>Environment</h2>\n<dl>\n".to_owned();
    for (name, value) in facts.iter().filter(|(_, value)| !value.trim().is_empty()) {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    }
    out + "</dl></section>\n"
}

/// Returns version and settings of each engine, each distinct value once.
fn settings(results: &Results, names: &[String]) -> String {
    let mut out = "<section id=\"settings\"><h2>Settings of the engines</h2>\n".to_owned();
    for name in names {
        let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
        for outcome in results.outcomes.iter().filter(|o| o.engine == *name && !o.settings.is_empty()) {
            let row = outcome.spec.name.as_str();
            match all.iter_mut().find(|(settings, _)| *settings == outcome.settings) {
                Some((_, rows)) if rows.contains(&row) => {}
                Some((_, rows)) => rows.push(row),
                None => all.push((&outcome.settings, vec![row])),
            }
        }
        let _ = writeln!(out, "<h3>{}</h3>", escape(name));
        if all.is_empty() {
            out += "<p class=\"soft\">No row got far enough to record them.</p>\n";
        }
        for (settings, rows) in all {
            let _ = writeln!(
                out,
                "<details><summary><code>{}</code></summary><p class=\"soft\">{}: {}</p></details>",
                escape(settings),
                counted(rows.len(), "row"),
                escape(&rows.join(", "))
            );
        }
    }
    out + "</section>\n"
}

/// Returns the build times of the rivals, if they were measured.
fn builds(names: &[String]) -> String {
    let known = |name: &String| Some((name.clone(), rivals::named(name)?.build_seconds));
    let times: Vec<(String, u64)> = names.iter().filter_map(known).filter(|(_, time)| *time > 0).collect();
    if times.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"builds\"><h2>Build times</h2>\n<p class=\"soft\">Release build of each rival's program with \
                   nothing built before, on two processors; not measured in this run.</p>\n<dl>\n"
        .to_owned();
    for (name, seconds) in times {
        let _ = writeln!(out, "<div><dt>{}</dt><dd>{seconds} s</dd></div>", escape(&name));
    }
    out + "</dl></section>\n"
}

fn verification(results: &Results, lines: &[Line], names: &[String]) -> String {
    let mut out = "<section id=\"verification\"><h2>Verification</h2>\n\
                   <p class=\"soft\">Every answer is checked for its key and version, one of 64 byte by byte unless all were asked for; \
                   after each row every key is compared with a model. A single wrong answer fails the row.</p>\n\
                   <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Verification\"><table>\n<thead><tr><th scope=\"col\">engine</th>\
                   <th scope=\"col\">runs</th><th scope=\"col\">failed</th><th scope=\"col\">answers compared in full</th>\
                   <th scope=\"col\">keys compared at the end</th><th scope=\"col\">result</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for name in names {
        let runs = || results.outcomes.iter().filter(|o| o.engine == *name);
        let failed = runs().filter(|o| o.failure.is_some()).count();
        let (checked, keys) = runs().fold((0, 0), |(c, k), o| (c + o.checked, k + o.keys));
        let rows = lines.iter().filter(|l| l.engine == *name && l.failure.is_some()).count();
        let result = match (failed, name == YARDSTICK) {
            (_, true) => "stores nothing: the cost of the benchmark, in no comparison".to_owned(),
            (0, _) => "all answers correct".to_owned(),
            _ => format!("{} failed and have no figures", counted(rows, "row")),
        };
        let class = if failed > 0 { " class=\"loss\"" } else { "" };
        let keys = if name == YARDSTICK { DASH.to_owned() } else { Unit::Rate.show(keys as f64) };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{failed}</td><td>{}</td><td>{keys}</td><td{class}>{result}</td></tr>",
            escape(name),
            runs().count(),
            Unit::Rate.show(checked as f64),
        );
    }
    out + "</tbody></table></div></section>\n"
}

/// Returns the recovery of engines after a kill.
fn restarts(results: &Results) -> String {
    let mut rows = String::new();
    for outcome in results.outcomes.iter().filter(|o| o.failure.is_none()) {
        let Some(restart) = outcome.restart else { continue };
        let lost = restart.acknowledged.saturating_sub(restart.survived);
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{lost}</td><td>{}</td><td>{}</td></tr>",
            escape(&outcome.engine),
            escape(&outcome.spec.name),
            outcome.spec.durability.name(),
            restart.acknowledged,
            restart.survived,
            Unit::Seconds.show(restart.killed),
            Unit::Seconds.show(restart.clean)
        );
    }
    let heads = [
        "engine",
        "row",
        "class",
        "acknowledged",
        "survived",
        "lost",
        "open after the kill",
        "after a clean close",
    ];
    let about =
        "Puts whose commit had returned when the process was killed, and the time to open the database.";
    section(("restarts", "After a kill", about), &heads, &rows)
}

/// Returns why writers had to wait, if engines report it.
fn stalls(results: &Results) -> String {
    let mut rows = String::new();
    for outcome in &results.outcomes {
        for cause in &outcome.causes {
            let time = if cause.seconds > 0.0 { Unit::Seconds.show(cause.seconds) } else { DASH.to_owned() };
            let _ = writeln!(
                rows,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{time}</td></tr>",
                escape(&outcome.engine),
                escape(&outcome.spec.name),
                escape(&cause.cause),
                cause.count
            );
        }
    }
    let heads = ["engine", "row", "cause", "how often", "how long"];
    let about = "Waits of writers in each run, if the engine reports them.";
    section(("stalls", "Stalls by cause", about), &heads, &rows)
}

/// Returns a section with a table; empty without rows.
fn section((id, title, about): (&str, &str, &str), heads: &[&str], rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heads: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    format!(
        "<section id=\"{id}\"><h2>{title}</h2>\n<p class=\"soft\">{about}</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<thead><tr>{heads}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div></section>\n"
    )
}

const METHOD: &str = "<section id=\"method\"><h2>Method in short</h2>\n<ul>\n\
<li>Every row runs in a process of its own on a fresh directory; a database that must be filled first is filled by another process.</li>\n\
<li>Engines run side by side, rows and engines in a shuffled order whose seed is stated, repeated; figures are medians, with the range of all repetitions.</li>\n\
<li>A rate is operations divided by the time from the first start to the last end of any thread. Opening, filling, closing and the reading of all rows (ITER) are not in it.</li>\n\
<li>Latencies come from histograms of nanoseconds with three digits; a batch is one sample.</li>\n\
<li>Ratios are wins or losses only if the ranges of the repetitions do not overlap and the medians differ by 3 % or more. A mean over all kinds is the geometric mean of the means of the kinds, so that each weighs the same.</li>\n\
<li>Commits that survive the death of the process and those that survive the loss of power are never in one mean. Rows that failed are in none.</li>\n\
<li>Write amplification counts bytes until all background work is done; memory is the highest the process ever had.</li>\n\
</ul></section>\n";
