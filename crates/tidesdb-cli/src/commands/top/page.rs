//! The figures as lines of text. They have any length: a screen cuts them, a page does not. Names are escaped.

use tidesdb::{HealthState, WriterFigures, WriterState};
use unicode_width::UnicodeWidthStr;

use super::super::stats::ago;
use crate::look::clock;
use crate::look::model::{Family, Job, Model, Operation, Wait};
use crate::look::{Look, on_one_line};
use crate::output::Style;
use crate::text::{grouped, printable, size, time};

/// Columns before the figures of a line with a label.
const LABEL: usize = 12;
/// Longest name of a family in the table, in columns.
const NAME_MAX: usize = 18;
/// Figures of a writer that runs and has work are not older.
const FRESH_SECS: u64 = 15;
/// A full bar of a job.
const BAR: usize = 16;
/// From little to much, of the timeline.
const RAMP: &[u8] = b" .:-=+*#%@";
const HOUR_MILLIS: u64 = 3_600_000;
/// Lengths of the timeline.
const SPANS: [(u64, &str); 4] =
    [(60_000, "1 min"), (300_000, "5 min"), (900_000, "15 min"), (HOUR_MILLIS, "hour")];

/// A piece of text in a style.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) style: Option<Style>,
}

/// A line of text.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(pub(super) Vec<Piece>);

impl Line {
    fn plain(text: impl Into<String>) -> Self {
        Self(vec![Piece { text: text.into(), style: None }])
    }

    fn styled(text: impl Into<String>, style: Style) -> Self {
        Self(vec![Piece { text: text.into(), style: Some(style) }])
    }

    fn push(&mut self, text: impl Into<String>, style: Option<Style>) {
        self.0.push(Piece { text: text.into(), style });
    }

    /// Its columns on a terminal.
    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|piece| piece.text.width()).sum()
    }
}

/// By which column the families are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Column {
    #[default]
    Written,
    Memory,
    Size,
    Debt,
    Fill,
    Name,
}

impl Column {
    #[cfg(feature = "top")]
    const ALL: [Self; 6] = [Self::Written, Self::Memory, Self::Size, Self::Debt, Self::Fill, Self::Name];

    /// The next one, and the first after the last.
    #[cfg(feature = "top")]
    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    fn heading(self) -> &'static str {
        ["written/s", "in memory", "size", "to merge", "fill of levels 1, 2, ... in %", "family"]
            [self as usize]
    }
}

/// The order of the families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) by: Column,
    pub(super) is_reversed: bool,
}

impl Order {
    /// Sorts the families: the largest first, names from a to z. Equal ones keep their order by name.
    fn sort(self, families: &mut [Family]) {
        families.sort_by(|a, b| a.name.cmp(&b.name));
        let key = |family: &Family| match self.by {
            Column::Written => family.rate.unwrap_or(0.0),
            Column::Memory => family.memtables.unwrap_or(0.0),
            Column::Size => family.bytes.unwrap_or(0.0),
            Column::Debt => family.debt.unwrap_or(0.0),
            Column::Fill => family.fill(),
            Column::Name => 0.0,
        };
        families.sort_by(|a, b| key(b).total_cmp(&key(a)));
        if self.is_reversed {
            families.reverse();
        }
    }

    fn heading(self, column: Column) -> String {
        let mark = match (self.by == column, self.is_reversed == (column == Column::Name)) {
            (false, _) => "",
            (true, true) => " v",
            (true, false) => " ^",
        };
        format!("{}{mark}", column.heading())
    }
}

/// Breaks `parts` into lines of at most `width` columns: `label`, then the parts with commas between them.
fn labelled(label: &str, parts: Vec<Piece>, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = Line::styled(format!("{label:<LABEL$}"), Style::Strong);
    let count = parts.len();
    for (at, Piece { text, style }) in parts.into_iter().enumerate() {
        let comma = if at + 1 < count { "," } else { "" };
        let blank = usize::from(line.0.len() > 1);
        if line.0.len() > 1 && line.width() + blank + text.width() + comma.len() > width {
            lines.push(std::mem::replace(&mut line, Line::plain(" ".repeat(LABEL))));
        } else if blank > 0 {
            line.push(" ", None);
        }
        line.push(text, style);
        line.push(comma, None);
    }
    lines.push(line);
    lines
}

/// Breaks a sentence into lines of at most `width` columns, or longer ones if a word is longer.
fn wrapped(text: &str, style: Style, width: usize) -> Vec<Line> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| Line::styled(line, style)).collect()
}

/// Breaks a line of the help. Lines of the table keep their blanks and are cut by the screen.
#[cfg(feature = "top")]
pub(super) fn wrapped_help(text: &str, width: usize) -> Vec<Line> {
    match text.contains("  ") || text.is_empty() {
        true => vec![Line::plain(text)],
        false => wrapped(text, Style::Faint, width),
    }
}

fn part(text: impl Into<String>) -> Piece {
    Piece { text: text.into(), style: None }
}

fn bytes(n: f64) -> String {
    size(n.max(0.0) as u64)
}

fn or_dash(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A rate of operations. Few are shown with a digit after the point.
fn rate(n: f64) -> String {
    if n > 0.0 && n < 10.0 { format!("{n:.1}") } else { grouped(n.round() as u64) }
}

/// A duration that is 0 if the time is shorter than a second is shown as it is.
fn waited(secs: f64) -> String {
    if secs == 0.0 { "0 s".to_owned() } else { time(secs) }
}

/// Whose figures these are, of when, and what is known of the process. `path` names the database.
pub(super) fn head(look: &Look, model: &Model, path: &str, width: usize) -> Vec<Line> {
    let figures = &look.figures;
    let (process, state) = (figures.process, figures.state);
    let of = match state {
        WriterState::Running | WriterState::Idle => "figures",
        _ => "last figures",
    };
    let written = clock::moment(model_of_last(figures), look.now);
    let who = format!("{path}: process {process} {state}; {of} of {} ago, {written}", ago(figures.age));
    let mut lines = wrapped(&who, Style::Title, width);
    let health = &figures.health;
    let style = if health.state == HealthState::Healthy { Style::Good } else { Style::Bad };
    let since =
        format!("open for {}, tidesdb {}", ago(figures.open_for), printable(figures.version.as_bytes()));
    let causes = on_one_line(&health.to_string());
    lines.extend(wrapped(&format!("{causes}; {since}"), style, width));
    lines.extend(plight(figures).iter().flat_map(|text| wrapped(text, Style::Bad, width)));
    if !model.is_last {
        let back = std::time::Duration::from_millis(look.now.saturating_sub(model.millis));
        let text = format!(
            "shown: {}, {} ago, {} then",
            clock::moment(model.millis, look.now),
            ago(back),
            model.health
        );
        lines.extend(wrapped(&text, Style::Title, width));
    }
    lines
}

fn model_of_last(figures: &WriterFigures) -> u64 {
    let written = figures.written.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(written.as_millis()).unwrap_or(u64::MAX)
}

/// What makes the figures other than those of a process at work.
fn plight(figures: &WriterFigures) -> Option<String> {
    let process = figures.process;
    Some(match figures.state {
        WriterState::Ended | WriterState::Rebooted => {
            "NO PROCESS WRITES THE DATABASE: it was killed or it crashed; below is its last state, the next open recovers".to_owned()
        }
        WriterState::Closed => {
            "NO PROCESS WRITES THE DATABASE: it was closed in order; below is what it did before".to_owned()
        }
        WriterState::Stopped => {
            format!("THE PROCESS IS STOPPED and does nothing until it goes on (kill -CONT {process}); below is what it did before")
        }
        WriterState::Running if figures.age.as_secs() >= FRESH_SECS => {
            "THE FIGURES ARE OLD though the process runs: its disk takes no writes, or it gets no processor time".to_owned()
        }
        _ => return None,
    })
}

/// Operations, waits, bytes, memory, cache and disk.
pub(super) fn summary(look: &Look, model: &Model, width: usize) -> Vec<Line> {
    let mut lines = operations(model);
    lines.extend(waits(model, width));
    lines.extend(flow(model, width));
    lines.extend(memory(model, width));
    lines.extend(disk(model, width));
    lines.extend(timeline(look, model, width));
    lines
}

fn operations(model: &Model) -> Vec<Line> {
    let window = model.window.map_or("no rates yet".to_owned(), |secs| format!("last {secs:.0} s"));
    let heading = format!(
        "{window:<LABEL$} {:>11} {:>9} {:>9} {:>9} {:>9} {:>13}",
        "a second", "p50", "p99", "p99.9", "slowest", "since open"
    );
    let mut lines = vec![Line::styled(heading, Style::Strong)];
    for Operation { kind, total, rate: per_second, p50, p99, p999, longest } in &model.operations {
        let [p50, p99, p999, longest] = [p50, p99, p999, longest].map(|t| or_dash(*t, time));
        lines.push(Line::plain(format!(
            "{:<LABEL$} {:>11} {p50:>9} {p99:>9} {p999:>9} {longest:>9} {:>13}",
            kind.replace('_', " "),
            or_dash(*per_second, rate),
            grouped(*total)
        )));
    }
    if model.operations.is_empty() {
        lines.push(Line::plain("no operation was measured yet (one in 256 is)"));
    }
    lines
}

fn waits(model: &Model, width: usize) -> Vec<Line> {
    if model.waits.is_empty() {
        return labelled("waits", vec![part("no writer has waited since the open")], width);
    }
    let minutes =
        model.waits.iter().find_map(|wait| wait.recent).map_or("minutes".to_owned(), |(_, secs)| {
            if secs >= 120.0 { format!("{:.0} min", secs / 60.0) } else { format!("{secs:.0} s") }
        });
    let heading = format!(
        "{:<LABEL$} {:>11} {:>9} {:>9} {:>9} {:>9} {:>13}",
        "waits for", "now", "a second", minutes, "longest", "refused", "since open"
    );
    let mut lines = vec![Line::styled(heading, Style::Strong)];
    for Wait { cause, now, rate, recent, total, longest, gave_up } in &model.waits {
        let is_on = now.is_some_and(|n| n > 0) || rate.is_some_and(|rate| rate > 0.05);
        let commits = now.map_or("-".to_owned(), |n| match n {
            1 => "1 commit".to_owned(),
            n => format!("{} commits", grouped(n)),
        });
        let text = format!(
            "{cause:<LABEL$} {commits:>11} {:>9} {:>9} {:>9} {:>9} {:>13}",
            or_dash(*rate, waited),
            or_dash(recent.map(|(secs, _)| secs), waited),
            or_dash(*longest, waited),
            grouped(*gave_up),
            waited(*total)
        );
        lines.push(if is_on { Line::styled(text, Style::Bad) } else { Line::plain(text) });
    }
    lines
}

fn flow(model: &Model, width: usize) -> Vec<Line> {
    let (flow, amplification) = (&model.flow, &model.amplification);
    let per_second = |what: &str, n: Option<f64>| part(format!("{what} {}", or_dash(n, bytes)));
    let mut lines = labelled(
        "bytes/s",
        vec![
            per_second("from users", flow.user),
            per_second("to the log", flow.log),
            per_second("to tables and values", flow.tables),
            per_second("read by lookups", flow.lookups),
        ],
        width,
    );
    let ratio = |x: Option<f64>| or_dash(x, |x| format!("{x:.1}"));
    let parts = vec![
        part(format!("writes {} now", ratio(amplification.write))),
        part(format!("{} since the open", ratio(amplification.write_all))),
        part(format!("space {} (estimate)", ratio(amplification.space))),
    ];
    lines.extend(labelled("amplified", parts, width));
    lines
}

fn memory(model: &Model, width: usize) -> Vec<Line> {
    let memory = &model.memory;
    let pressure = memory.pressure.unwrap_or(0.0);
    let name = ["normal", "elevated", "high", "critical"][(pressure as usize).min(3)];
    let limit = memory.limit.map_or(String::new(), |limit| format!(" of {}", bytes(limit)));
    let all = format!("{}{limit}", bytes(memory.used()));
    let style = (pressure >= 1.0).then_some(Style::Bad);
    let mut parts = vec![part(all), Piece { text: format!("pressure {name}"), style }];
    let used = memory.uses.iter().filter(|(_, n)| *n > 0.0);
    parts.extend(used.map(|(name, n)| part(format!("{name} {}", bytes(*n)))));
    parts.extend(memory.spare.map(|n| part(format!("and {} spare", bytes(n)))));
    let mut lines = labelled("memory", parts, width);
    let cache = &model.cache;
    let parts = vec![
        part(format!("hits {}", or_dash(cache.share, percent))),
        part(format!("{} since the open", or_dash(cache.share_all, percent))),
        part(format!("{} lookups/s", or_dash(cache.rate, rate))),
        part(format!("holds {}", or_dash(cache.bytes, bytes))),
    ];
    lines.extend(labelled("cache", parts, width));
    lines
}

fn disk(model: &Model, width: usize) -> Vec<Line> {
    let disk = &model.disk;
    let mut parts = vec![
        part(format!("database {}", or_dash(disk.database, bytes))),
        part(format!("of that log to replay {}", or_dash(disk.log, bytes))),
    ];
    match (disk.free, disk.total.filter(|total| *total > 0.0)) {
        (Some(free), Some(total)) => {
            let share = free / total;
            let style = (share < 0.1).then_some(Style::Bad);
            let text = format!("free {} of {} ({})", bytes(free), bytes(total), percent(share));
            parts.push(Piece { text, style });
        }
        _ => parts.push(part("free -")),
    }
    labelled("disk", parts, width)
}

/// Bytes written to the log, and waits, of the last hour or of the part of it that is recorded: one character for some seconds each.
fn timeline(look: &Look, model: &Model, width: usize) -> Vec<Line> {
    let columns = width.saturating_sub(LABEL + 20).clamp(1, 120);
    let track = &look.seconds;
    let end = look.now.max(model.millis);
    let first = (0..track.len())
        .map(|at| track.millis(at))
        .filter(|millis| end - (*millis).min(end) <= HOUR_MILLIS)
        .min();
    let recorded = end.saturating_sub(first.unwrap_or(end));
    let (span, name) =
        SPANS.into_iter().find(|(span, _)| *span >= recorded).unwrap_or(SPANS[SPANS.len() - 1]);
    let begin = end.saturating_sub(span);
    let column = |millis: u64| {
        let at = u128::from(millis.checked_sub(begin)?) * columns as u128 / u128::from(span);
        Some((at as usize).min(columns - 1)).filter(|_| millis <= end)
    };
    let rates = |names: &[String]| {
        let mut sums = vec![(0_u64, 0.0); columns];
        for at in (1..track.len()).filter(|at| !track.is_break(*at)) {
            let Some(column) = column(track.millis(at)) else { continue };
            let grown =
                names.iter().filter_map(|name| track.grown(at - 1, at, name)).fold(0, u64::saturating_add);
            sums[column].0 = sums[column].0.saturating_add(grown);
            sums[column].1 += track.seconds(at - 1, at).unwrap_or(0.0);
        }
        sums.into_iter()
            .map(|(sum, secs)| if secs > 0.0 { sum as f64 / secs } else { 0.0 })
            .collect::<Vec<_>>()
    };
    let row = |what: &str, rates: &[f64], full: f64, most: String| {
        let mark = |n: &f64| match n / full {
            share if share <= 0.0 || !share.is_finite() => RAMP[0],
            share => RAMP[(1 + (share * (RAMP.len() - 1) as f64) as usize).min(RAMP.len() - 1)],
        };
        let text: String = rates.iter().map(|n| char::from(mark(n))).collect();
        let mut line = Line::styled(format!("{:<LABEL$}", format!("{name} {what}")), Style::Strong);
        line.push(format!("|{text}| max {most}"), None);
        line
    };
    let most = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let log = rates(&["wal_bytes".to_owned()]);
    let waits = rates(&tidesdb::StallCause::ALL.map(|cause| format!("stall.{}.time", cause.name())));
    let mut lines = vec![
        row("log", &log, most(&log), format!("{}/s", bytes(most(&log)))),
        // A full mark is one thread that waits all of the time.
        row("waits", &waits, 1e9, format!("{}/s", waited(most(&waits) / 1e9))),
    ];
    if let Some(at) = column(model.millis).filter(|_| !model.is_last) {
        let blanks = " ".repeat(LABEL + 1 + at);
        lines.push(Line::styled(format!("{blanks}^"), Style::Title));
    }
    lines
}

/// What runs and is due, and the families.
pub(super) fn details(look: &Look, model: &Model, order: Order, width: usize) -> Vec<Line> {
    let mut lines = jobs(model, width);
    lines.extend(families(model, order, width));
    let left_out = look.figures.families_left_out;
    if left_out > 0 && model.is_last {
        lines.push(Line::plain(format!("{} families that wrote less are left out", grouped(left_out))));
    }
    if !look.figures.unknown.is_empty() {
        let text = format!("its version does not publish: {}", look.figures.unknown.join(", "));
        lines.extend(wrapped(&printable(text.as_bytes()), Style::Faint, width));
    }
    lines
}

fn jobs(model: &Model, width: usize) -> Vec<Line> {
    let work = &model.work;
    let debt = |what: &str, debt: Option<(f64, f64)>| match debt {
        Some((0.0, _)) => part(format!("nothing to {what}")),
        Some((n, secs)) => part(format!("{} to {what} ({})", bytes(n), waited(secs))),
        None => part(format!("to {what} -")),
    };
    let running = |n: Option<f64>, one: &str, many: &str| match n {
        Some(n) => part(crate::text::count(n as u64, one, many)),
        None => part(format!("- {many}")),
    };
    let none = work.flushes.zip(work.merges).is_some_and(|(flushes, merges)| flushes + merges == 0.0);
    let mut parts = vec![
        running(work.flushes, "flush runs", "flushes run"),
        running(work.merges, "merge runs", "merges run"),
        debt("flush", work.flush_debt),
        debt("merge", work.merge_debt),
    ];
    if none {
        parts.splice(..2, [part("none runs")]);
    }
    if let Some(secs) = work.sync_runs {
        let style = (secs >= 1.0).then_some(Style::Bad);
        parts.push(Piece { text: format!("a sync of the log has run for {}", time(secs)), style });
    }
    let mut lines = labelled("jobs", parts, width);
    lines.extend(work.jobs.iter().flatten().map(job));
    lines
}

fn job(job: &Job) -> Line {
    let share = job.share();
    let filled = (share * BAR as f64) as usize;
    let bar = format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled));
    let kind =
        if job.kind == "flush" { "flush".to_owned() } else { format!("merge {}", job.kind.to_lowercase()) };
    let left = job.left().map_or(String::new(), |secs| format!(", {} left", crate::text::span(secs)));
    let speed = or_dash(job.speed(), bytes);
    let (family, target) = (printable(job.family.as_bytes()), job.target);
    Line::plain(format!(
        "  {bar} {:>3.0} % of {}, {speed}/s{left}: {kind} of {family} to level {target}",
        share * 100.0,
        size(job.bytes),
    ))
}

fn families(model: &Model, order: Order, columns: usize) -> Vec<Line> {
    let mut families = model.families.clone();
    order.sort(&mut families);
    let names: Vec<String> =
        families.iter().map(|family| short(&printable(family.name.as_bytes()))).collect();
    let name_heading = order.heading(Column::Name);
    let width = names.iter().map(|name| name.width()).max().unwrap_or(0).max(name_heading.len());
    let [written, memory, all, debt] =
        [Column::Written, Column::Memory, Column::Size, Column::Debt].map(|column| order.heading(column));
    let fill = order.heading(Column::Fill);
    let heading = format!("{name_heading:<width$} {written:>11} {memory:>11} {all:>10} {debt:>10} {fill}");
    let mut lines = vec![Line::styled(heading, Style::Strong)];
    for (family, name) in families.iter().zip(names) {
        let blanks = " ".repeat(width - name.width());
        let mut line = Line::plain(format!(
            "{name}{blanks} {:>11} {:>11} {:>10} {:>10} ",
            or_dash(family.rate, bytes),
            or_dash(family.memtables, bytes),
            or_dash(family.bytes, bytes),
            or_dash(family.debt, bytes),
        ));
        for level in &family.levels {
            let style = (level.fill > 1.0 && level.level > 0).then_some(Style::Strong);
            line.push(format!("{:.0} ", level.fill * 100.0), style);
        }
        if family.levels.is_empty() {
            line.push(if model.is_last { "no table" } else { "not recorded" }, None);
        }
        lines.push(line);
    }
    lines.extend(families.iter().flat_map(|family| levels(family, columns)));
    if !model.is_last {
        lines.push(Line::styled("the history has the ten busiest families, and no levels", Style::Faint));
    }
    lines
}

/// The levels of a family that hold something.
fn levels(family: &Family, width: usize) -> Vec<Line> {
    let used: Vec<_> = family.levels.iter().filter(|level| level.bytes > 0).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let mut parts = vec![Piece { text: printable(family.name.as_bytes()), style: Some(Style::Strong) }];
    parts.extend(used.into_iter().map(|level| {
        let runs = match level.runs {
            n if n == level.tables || n <= 1 => String::new(),
            n => format!(" in {n} runs"),
        };
        let tables = crate::text::count(level.tables as u64, "table", "tables");
        part(format!(
            "level {}: {} of {}, {tables}{runs}",
            level.level,
            size(level.bytes),
            size(level.capacity)
        ))
    }));
    if family.value_logs.is_some_and(|n| n > 0.0) {
        parts.push(part(format!("value logs {}", or_dash(family.value_logs, bytes))));
    }
    labelled("tree of", parts, width)
}

/// Shortens a name to the width of its column.
fn short(name: &str) -> String {
    if name.width() <= NAME_MAX {
        return name.to_owned();
    }
    let mut out = String::new();
    for c in name.chars() {
        out.push(c);
        if out.width() >= NAME_MAX {
            out.pop();
            break;
        }
    }
    out + "~"
}
