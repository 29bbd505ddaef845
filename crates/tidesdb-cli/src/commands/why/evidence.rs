//! What shows an answer: the load, waits by cause, jobs, what filled, syncs, the tree, and what ended it.

use std::time::Duration;

use tidesdb::{StallCause, WriterState};

use super::super::stats::ago;
use super::case::{Case, SECOND, Verdict};
use super::stretch::{FELT, Stretch};
use super::tree;
use crate::look::events::Event;
use crate::look::{clock, on_one_line};
use crate::text::{count, grouped, printable, size, time};

/// Jobs and families that are named.
const NAMED_MAX: usize = 3;

/// Collects what shows an answer about the time between two moments.
pub(super) fn collect(
    case: Case<'_>,
    verdict: Verdict,
    (from, to): (u64, u64),
    around: Option<&Stretch<'_>>,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let inner = around.map(|around| within(around, from, to));
    // Of a time without a process, what it did last.
    let was = matches!(verdict, Verdict::Ended | Verdict::Stopped | Verdict::Hidden | Verdict::Closed);
    let seen = match inner {
        Some(inner) if was => inner.before(3),
        inner => inner,
    };
    let has_load = !matches!(verdict, Verdict::Closed | Verdict::Idle);
    if let Some(seen) = seen.as_ref().filter(|_| has_load) {
        lines.push(("load", load(case, seen, was)));
        lines.extend(waited(seen, was).map(|text| ("waited", text)));
        lines.extend(slowest(case, seen).map(|text| ("slowest", text)));
        lines.extend(filled(case, seen).map(|text| ("filled", text)));
    }
    let asked = if was { (from.saturating_sub(10 * SECOND), from) } else { (from, to) };
    let ran = running(case, seen.as_ref().filter(|_| has_load), asked);
    lines.extend(ran.into_iter().map(|text| ("running", text)));
    let worst = seen.as_ref().filter(|_| !was).map_or(from, |seen| seen.track.millis(seen.worst()));
    if !matches!(verdict, Verdict::NotRecorded | Verdict::Idle | Verdict::Closed) {
        lines.extend(trees(case, worst).into_iter().map(|text| ("tree", text)));
    }
    lines.extend(ended(case, verdict, from, to).map(|text| ("ended", text)));
    lines.push(("now", now(case)));
    lines.push(("known", known(case, around)));
    lines
}

/// The samples of `around` from the last before `from` to the first after `to`.
fn within<'a>(around: &Stretch<'a>, from: u64, to: u64) -> Stretch<'a> {
    let track = around.track;
    let first = track.at_or_before(from).unwrap_or(around.first);
    let last = (first..track.len()).find(|at| track.millis(*at) >= to).unwrap_or(track.len() - 1);
    Stretch { first, last, ..*around }
}

fn load(case: Case<'_>, seen: &Stretch<'_>, was: bool) -> String {
    let of = |stretch: &Stretch<'_>| format!("{}/s from users", size(stretch.user_rate() as u64));
    let stats = &case.look.figures.stats;
    let kinds = stats.times().into_iter().filter(|(kind, _)| FELT.contains(kind));
    let rates = kinds.filter_map(|(kind, times)| {
        let rate = seen.rate(&format!("{kind}.count")) * times.sampled_one_in.max(1) as f64;
        (rate >= 1.0).then(|| format!("about {} {}/s", grouped(rate as u64), kind.replace('_', " ")))
    });
    let mut parts = vec![format!("{}{}", if was { "before: " } else { "" }, of(seen))];
    parts.extend(rates);
    if let Some(before) = seen.before(15).filter(|_| !was) {
        parts.push(format!("in the minute before {}", of(&before)));
    }
    parts.join(", ")
}

fn waited(seen: &Stretch<'_>, was: bool) -> Option<String> {
    let of = |cause: StallCause| {
        let secs = seen.waited(cause);
        let [stopped, slowed, gave_up] = ["stopped", "slowed", "gave_up"]
            .map(|figure| seen.grown(&format!("stall.{}.{figure}", cause.name())));
        let counts = [(stopped, "stopped"), (slowed, "slowed down"), (gave_up, "REFUSED as Busy")];
        let counts: Vec<String> = counts
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{} {what}", grouped(*n)))
            .collect();
        let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
        (secs > 0.0).then(|| (secs, format!("{} {}{counts}", cause.name(), time(secs))))
    };
    let mut all: Vec<_> = StallCause::ALL.into_iter().filter_map(of).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let texts: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
    (!texts.is_empty()).then(|| format!("{}{}", if was { "before: " } else { "" }, texts.join(", ")))
}

fn slowest(case: Case<'_>, seen: &Stretch<'_>) -> Option<String> {
    let of = |kind: &&str| {
        let (nanos, at) = seen.longest(kind)?;
        let at = clock::time_of_day(seen.track.millis(at));
        Some(format!("{} {} ({at})", kind.replace('_', " "), time(nanos as f64 / 1e9)))
    };
    let mut parts: Vec<String> = FELT.iter().chain(&["syncs"]).filter_map(of).collect();
    let slow = case.events.named("slow_sync", seen.from(), seen.to().saturating_add(SECOND));
    let slow = slow.map(|event| event.number("syncs").max(0.0)).sum::<f64>();
    if slow > 0.0 {
        parts.push(format!("{} of the syncs over the threshold", grouped(slow as u64)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What rose within the stretch.
fn filled(case: Case<'_>, seen: &Stretch<'_>) -> Option<String> {
    let at_first = |name: &str| seen.track.value(seen.first, name).unwrap_or(0).max(0) as u64;
    let rose = |name: &str, what: &str| {
        let most = u64::try_from(seen.largest(name)?.0).ok()?;
        (most > at_first(name).max(1 << 20))
            .then(|| format!("{what} {} to {}", size(at_first(name)), size(most)))
    };
    let mut parts: Vec<String> = [
        rose("flush_debt_bytes", "to flush"),
        rose("merge_debt_bytes", "to merge"),
        rose("memory_memtables_bytes", "memtables"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let pressure = seen.largest("memory_pressure").map_or(0, |(level, _)| level);
    if pressure > 0 {
        let name = ["normal", "elevated", "high", "critical"][usize::try_from(pressure).unwrap_or(0).min(3)];
        let limit = seen.track.value(seen.last, "memory_limit_bytes").unwrap_or(0);
        parts.push(format!("memory pressure {name} (limit {})", size(u64::try_from(limit).unwrap_or(0))));
    }
    let failed: Vec<&Event> =
        case.events.named("job_failed", seen.from(), seen.to().saturating_add(SECOND)).collect();
    if let Some(event) = failed.last() {
        let text = on_one_line(event.text("error"));
        parts.push(format!("{}, last: {text}", count(failed.len() as u64, "job failed", "jobs failed")));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The jobs that ran then, by the events of their ends.
fn running(case: Case<'_>, seen: Option<&Stretch<'_>>, (from, to): (u64, u64)) -> Vec<String> {
    let ran = |event: &&Event| {
        ["flush", "merge"].contains(&event.name.as_str())
            && event.millis.saturating_add(SECOND) >= from
            && event.began() <= to
    };
    let mut jobs: Vec<&Event> = case.events.all.iter().filter(ran).collect();
    jobs.sort_by(|a, b| b.number("seconds").total_cmp(&a.number("seconds")));
    let mut lines: Vec<String> = jobs.iter().take(NAMED_MAX).map(|job| described(job)).collect();
    if let Some(rest) = jobs.len().checked_sub(NAMED_MAX).filter(|rest| *rest > 0) {
        lines.push(format!("and {} shorter ones", grouped(rest as u64)));
    }
    let of_samples = |name: &str| seen.and_then(|seen| seen.largest(name)).map_or(0, |(n, _)| n);
    let (flushes, merges) = (of_samples("jobs.flushes"), of_samples("jobs.merges"));
    if lines.is_empty() && flushes.saturating_add(merges) > 0 {
        lines.push(format!(
            "at most {flushes} flushes and {merges} merges at a time, of which EVENTS knows no end"
        ));
    }
    lines
}

/// A flush or a merge: what it read and when.
fn described(job: &Event) -> String {
    let (began, ended) = (clock::time_of_day(job.began()), clock::time_of_day(job.millis));
    let family = printable(job.text("family").as_bytes());
    let secs = time(job.number("seconds").max(0.0));
    if job.name == "flush" {
        let bytes = size(job.number("memtable_bytes").max(0.0) as u64);
        return format!("flush of {bytes} of {family}, {began} to {ended} ({secs})");
    }
    let tables: f64 = job.list("inputs").iter().filter_map(|part| part.get("tables")?.as_f64()).sum();
    let (bytes, target) =
        (size(job.number("read_bytes").max(0.0) as u64), job.number("target").max(0.0) as u64);
    format!(
        "merge of {tables:.0} tables of {family} into level {target}, {bytes}, {began} to {ended} ({secs})"
    )
}

/// The trees of the fullest families at a moment.
fn trees(case: Case<'_>, millis: u64) -> Vec<String> {
    let at = clock::time_of_day(millis);
    let mut trees: Vec<_> = match tree::at(case.look, case.events, millis) {
        Ok(trees) => trees.into_iter().collect(),
        Err(why) => return vec![format!("at {at} not recorded: {why}")],
    };
    trees.retain(|(_, levels)| levels.values().any(|(tables, _)| *tables > 0));
    if trees.is_empty() {
        return vec![format!("no family had a table at {at}")];
    }
    trees.sort_by_key(|(_, levels)| std::cmp::Reverse(levels.get(&1).map_or(0, |(tables, _)| *tables)));
    let shown = |(family, levels): (String, tree::Levels)| {
        let levels =
            levels.into_iter().filter(|(_, (tables, _))| *tables > 0).map(|(level, (tables, bytes))| {
                let tables = count(u64::try_from(tables).unwrap_or(0), "table", "tables");
                format!("level {level} {tables} {}", size(u64::try_from(bytes).unwrap_or(0)))
            });
        format!("{} at {at}: {}", printable(family.as_bytes()), levels.collect::<Vec<_>>().join(", "))
    };
    trees.into_iter().take(NAMED_MAX).map(shown).collect()
}

/// What ended it.
fn ended(case: Case<'_>, verdict: Verdict, from: u64, to: u64) -> Option<String> {
    let look = case.look;
    match verdict {
        Verdict::Waits => {
            let last = look.seconds.len().checked_sub(1).map_or(0, |last| look.seconds.millis(last));
            let waits_now =
                look.figures.stats.stalls_by_cause().iter().any(|(_, stall)| stall.delayed_now > 0);
            if to >= last {
                match look.figures.state {
                    WriterState::Ended | WriterState::Rebooted => {
                        return Some("with the process, which ended".to_owned());
                    }
                    WriterState::Closed => return Some("with the close of the database".to_owned()),
                    _ if waits_now => return Some("not yet: writers wait at this moment".to_owned()),
                    _ => {}
                }
            }
            let near = |event: &&Event| {
                ["flush", "merge"].contains(&event.name.as_str())
                    && event.millis.saturating_add(2 * SECOND) >= to
                    && event.millis <= to.saturating_add(SECOND)
            };
            let job = case
                .events
                .all
                .iter()
                .filter(near)
                .max_by(|a, b| a.number("seconds").total_cmp(&b.number("seconds")));
            let wait = case.events.named("stall_end", from, to.saturating_add(4 * SECOND)).next_back();
            let by = job
                .map_or("with less load, or with a job that EVENTS does not have".to_owned(), |job| {
                    format!("with the {}", described(job))
                });
            let longest = wait.map_or(String::new(), |end| {
                format!(
                    "; the longest wait for {} was {}",
                    printable(end.text("cause").as_bytes()),
                    time(end.number("longest"))
                )
            });
            Some(format!("at {}, {by}{longest}", case.moment(to)))
        }
        Verdict::Space | Verdict::Degraded => {
            let healthy =
                case.events.named("health", from, u64::MAX).find(|event| event.text("state") == "healthy");
            healthy.map(|event| format!("at {}: healthy again", case.moment(event.millis)))
        }
        Verdict::Ended => {
            let open = case.events.named("open", from.saturating_sub(SECOND), u64::MAX).next()?;
            let (secs, commits) = (open.number("seconds").max(0.0), open.number("commits").max(0.0));
            Some(format!(
                "at {}: the next open replayed {} commits, {}, in {}",
                case.moment(open.millis),
                grouped(commits as u64),
                size(open.number("log_bytes").max(0.0) as u64),
                time(secs)
            ))
        }
        _ => None,
    }
}

/// What is known of the process at this moment.
fn now(case: Case<'_>) -> String {
    let figures = &case.look.figures;
    let health = on_one_line(&figures.health.to_string());
    let was =
        if matches!(figures.state, WriterState::Running | WriterState::Idle) { "it is" } else { "it was" };
    format!(
        "process {} {}; {was} {health}; figures of {} ago",
        figures.process,
        figures.state,
        ago(figures.age)
    )
}

/// How far back what is known goes.
fn known(case: Case<'_>, around: Option<&Stretch<'_>>) -> String {
    let pace = match around {
        Some(around) if around.gap > 60 * SECOND => "minutes",
        _ => "seconds",
    };
    let begin = |track: &crate::look::track::Track| {
        if track.len() == 0 { "none".to_owned() } else { case.moment(track.millis(0)) }
    };
    let mut parts = vec![match pace {
        "minutes" => format!("by the minute, since {}", begin(&case.look.minutes)),
        _ => format!("by the second, since {}", begin(&case.look.seconds)),
    }];
    parts.push(match case.events.all.first() {
        Some(first) => format!("EVENTS since {}", case.moment(first.millis)),
        None => "no EVENTS".to_owned(),
    });
    if case.events.damaged > 0 {
        parts.push(count(
            case.events.damaged as u64,
            "line of EVENTS is damaged",
            "lines of EVENTS are damaged",
        ));
    }
    let left =
        Duration::from_millis(case.look.now.saturating_sub(around.map_or(case.look.now, Stretch::from)));
    if left > Duration::from_secs(120) {
        parts.push(format!("that was {} ago", ago(left)));
    }
    parts.join(", ")
}
