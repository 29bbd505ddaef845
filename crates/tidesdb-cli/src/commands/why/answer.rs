//! The answer: what happened at a moment, in one sentence. Pure: it knows figures, their history and events, and no clock.

use std::time::{Duration, SystemTime};

use tidesdb::{HealthState, StallCause, WriterState};

use super::super::stats::ago;
use super::case::{Case, SECOND, Verdict};
use super::evidence;
use super::stretch::{FELT, SLOW_NANOS, Stretch};
use crate::look::on_one_line;
use crate::look::track::Track;
use crate::text::{grouped, size, time};

/// A process that has work publishes each second; of ten thousand families it takes up to ten.
const GAP_MILLIS: u64 = 4000;
/// The same of minutes.
const GAP_OF_MINUTES: u64 = 150_000;
/// Figures of a process that runs and has work are not older.
const FRESH: Duration = Duration::from_secs(15);
const HOUR: u64 = 3_600_000;

/// An answer, and what shows it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) sentence: String,
    /// The time that it is about, in milliseconds since the UNIX epoch.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) evidence: Vec<(&'static str, String)>,
}

/// What was found, before its evidence is collected.
struct Found {
    verdict: Verdict,
    sentence: String,
    from: u64,
    to: u64,
}

impl<'a> Case<'a> {
    /// What happened between two moments.
    pub(super) fn between(self, from: u64, to: u64) -> Answer {
        let Some(stretch) = self.stretch(from, to) else {
            return self.answer(self.unrecorded(from, to), None);
        };
        let found = self
            .poisoned(&stretch, to)
            .or_else(|| self.interrupted(&stretch, from, to))
            .or_else(|| self.unwell(&stretch, from, to, true))
            .or_else(|| self.waits(&stretch))
            .or_else(|| self.unwell(&stretch, from, to, false))
            .or_else(|| self.slow(&stretch))
            .unwrap_or_else(|| self.quiet(&stretch, from, to));
        self.answer(found, Some(stretch))
    }

    /// The worst of the last hour.
    pub(super) fn worst(self) -> Answer {
        let (figures, now) = (&self.look.figures, self.look.now);
        let last =
            figures.written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        if let Some(found) = self.since_the_last(last) {
            return self.answer(found, self.stretch(last, last));
        }
        if figures.state != WriterState::Closed && figures.health.state != HealthState::Healthy {
            return self.between(now.saturating_sub(SECOND), now.saturating_add(1));
        }
        let track = &self.look.seconds;
        let since = now.saturating_sub(HOUR);
        let first = (0..track.len()).find(|at| track.millis(*at) >= since);
        let Some(first) = first.filter(|first| first + 1 < track.len()) else {
            let last =
                track.len().checked_sub(1).map_or("none".to_owned(), |last| self.moment(track.millis(last)));
            if figures.state == WriterState::Idle {
                let sentence = format!(
                    "Nothing waited or was slow in the last hour: the process had nothing to do since {last}."
                );
                return self.answer(Found { verdict: Verdict::Fine, sentence, from: since, to: now }, None);
            }
            let sentence = format!("Nothing was recorded in the last hour; the last record is of {last}.");
            return self
                .answer(Found { verdict: Verdict::NotRecorded, sentence, from: since, to: now }, None);
        };
        let all = Stretch { track, first, last: track.len() - 1, gap: GAP_MILLIS };
        match self.costliest(&all) {
            Some((from, to)) => self.between(from, to),
            None => {
                let recorded = format!("{} is recorded", self.when(all.from(), all.to()));
                let sentence = format!("Nothing waited or was slow in the last hour ({recorded}).");
                self.answer(Found { verdict: Verdict::Fine, sentence, from: all.from(), to: all.to() }, None)
            }
        }
    }

    /// The stretch of the hour that cost its users most time.
    fn costliest(&self, all: &Stretch<'a>) -> Option<(u64, u64)> {
        let mut worst: Option<(f64, u64, u64)> = None;
        let mut offer = |cost: f64, from: u64, to: u64| {
            if worst.is_none_or(|(most, ..)| cost > most) {
                worst = Some((cost, from, to));
            }
        };
        let mut at = all.first + 1;
        while at <= all.last {
            let step = Stretch { first: at - 1, last: at, ..*all };
            if step.track.value(at, "health") == Some(2) {
                offer(f64::INFINITY, step.from(), step.to().saturating_add(1));
            }
            match (self.gap(&step), step.waiting()) {
                (Some(Verdict::Hidden), None) => {} // it worked
                (Some(Verdict::Ended | Verdict::Stopped), _) => {
                    let millis = step.to().saturating_sub(step.from());
                    offer(millis as f64 / 1e3, step.from().saturating_add(1), step.to())
                }
                (_, Some(waiting)) => {
                    let cost: f64 = StallCause::ALL.iter().map(|cause| waiting.waited(*cause)).sum();
                    offer(cost, waiting.from().saturating_add(1), waiting.to().saturating_add(1));
                    at = at.max(waiting.last);
                }
                _ => {}
            }
            at += 1;
        }
        if worst.is_none() {
            let slowest = FELT.iter().chain(&["syncs"]).filter_map(|kind| all.longest(kind)).max();
            let (_, at) = slowest.filter(|(nanos, _)| *nanos >= SLOW_NANOS)?;
            let after = |at: usize| all.track.millis(at).saturating_add(1);
            return Some((after(at - 1), after(at)));
        }
        worst.map(|(_, from, to)| (from, to))
    }

    fn answer(self, found: Found, stretch: Option<Stretch<'a>>) -> Answer {
        let Found { verdict, sentence, from, to } = found;
        let evidence = evidence::collect(self, verdict, (from, to), stretch.as_ref());
        Answer { verdict, sentence, from, to, evidence }
    }

    /// The samples around a time: the last before it, the first after it, and those between. Those of minutes if those of seconds do not go
    /// back so far. `None` if neither does.
    fn stretch(&self, from: u64, to: u64) -> Option<Stretch<'a>> {
        let of = |track: &'a Track, gap: u64| {
            let first = track.at_or_before(from)?;
            let after = (first..track.len()).find(|at| track.millis(*at) >= to);
            let last = after.unwrap_or(track.len() - 1);
            Some(Stretch { track, first, last, gap })
        };
        of(&self.look.seconds, GAP_MILLIS).or_else(|| of(&self.look.minutes, GAP_OF_MINUTES)).or_else(|| {
            // The first seconds of a database.
            let (track, gap) = (&self.look.seconds, GAP_MILLIS);
            let last = track.at_or_before(to)?;
            Some(Stretch { track, first: 0, last, gap })
        })
    }

    fn unrecorded(&self, from: u64, to: u64) -> Found {
        let first = [&self.look.seconds, &self.look.minutes].into_iter().filter(|track| track.len() > 0);
        let first = first.map(|track| track.millis(0)).min();
        let begin =
            first.map_or("there is none".to_owned(), |millis| format!("it begins {}", self.moment(millis)));
        let sentence =
            format!("Not recorded: the history does not go back to {}; {begin}.", self.moment(from));
        Found { verdict: Verdict::NotRecorded, sentence, from, to }
    }

    fn poisoned(&self, stretch: &Stretch<'a>, to: u64) -> Option<Found> {
        let at = (stretch.first..=stretch.last)
            .filter(|at| stretch.track.millis(*at) < to)
            .find(|at| stretch.track.value(*at, "health") == Some(2))?;
        let mut begin = at;
        while !stretch.track.is_break(begin) && stretch.track.value(begin - 1, "health") == Some(2) {
            begin -= 1;
        }
        let since = stretch.track.millis(begin);
        let cause = self
            .causes(since.saturating_add(2 * SECOND))
            .unwrap_or_else(|| "the cause is not recorded".to_owned());
        let end = self.events.named("open", since, u64::MAX).next().map(|open| open.millis);
        let until =
            end.map_or(String::new(), |end| format!(", until it was opened again at {}", self.moment(end)));
        let sentence = format!(
            "Writes were refused from {} on{until}: the database was poisoned: {cause}.",
            self.moment(since)
        );
        Some(Found { verdict: Verdict::Poisoned, sentence, from: since, to: end.unwrap_or(to) })
    }

    /// Why the database was not healthy at a moment.
    fn causes(&self, by: u64) -> Option<String> {
        let event = self.events.named("health", 0, by).rfind(|event| event.text("state") != "healthy");
        let of_event = event.map(|event| {
            let causes = event.list("causes").iter().filter_map(|cause| cause.as_str());
            causes.collect::<Vec<_>>().join("; ")
        });
        let of_now = Some(self.look.figures.health.causes.join("; "));
        let known = of_event.filter(|text| !text.is_empty()).or(of_now.filter(|text| !text.is_empty()));
        known.map(|text| on_one_line(&text))
    }

    /// What happened between the two samples of `step` if they are further apart than those of a process at work: that it ended, was closed, or
    /// was stopped. `None` if they are not, or if it was idle.
    fn gap(&self, step: &Stretch<'a>) -> Option<Verdict> {
        let (track, from, to) = (step.track, step.from(), step.to());
        let is_long = to.saturating_sub(from) > step.gap;
        if track.is_break(step.last) || self.was_opened(step) {
            let since = from.saturating_sub(SECOND);
            let opens = self.events.named("open", since, to.saturating_add(SECOND)).next_back();
            return match opens {
                Some(open) if !open.is("clean") => Some(Verdict::Ended),
                _ => None,
            };
        }
        if !is_long || track.is_idle(step.first) || track.is_idle(step.last) {
            return None;
        }
        // What a process that did not run cannot have written.
        let usual = step.before(3).map_or(0.0, |before| before.rate("wal_bytes"));
        let grown = step.grown("wal_bytes") as f64;
        Some(if usual > 0.0 && grown > usual * 4.0 { Verdict::Hidden } else { Verdict::Stopped })
    }

    /// A process opened the database after the first sample of `stretch` and before its last. Its counters may be above those of the one before.
    fn was_opened(&self, stretch: &Stretch<'a>) -> bool {
        // Times of events are rounded down, so one after the sample was after it.
        self.events.named("open", stretch.from().saturating_add(1), stretch.to()).next().is_some()
    }

    /// The process ended, was closed or was stopped.
    fn interrupted(&self, stretch: &Stretch<'a>, from: u64, to: u64) -> Option<Found> {
        let steps =
            (stretch.first + 1..=stretch.last).map(|at| Stretch { first: at - 1, last: at, ..*stretch });
        for step in steps.filter(|step| step.from() < to && step.to() > from) {
            let Some(verdict) = self.gap(&step) else { continue };
            let when = self.when(step.from(), step.to());
            let sentence = match verdict {
                Verdict::Ended => format!(
                    "No process wrote the database {when}: the one before had been killed or had crashed, and the next one recovered."
                ),
                Verdict::Hidden => format!(
                    "The process worked {when}, and its figures of that time are missing: the thread that publishes them got no processor time, or the disk took no writes."
                ),
                _ => format!(
                    "The process did not run {when}, and went on afterwards: it was stopped (SIGSTOP, a debugger), or got no processor time."
                ),
            };
            return Some(Found { verdict, sentence, from: step.from(), to: step.to() });
        }
        let end = stretch.track.millis(stretch.track.len() - 1);
        if stretch.last + 1 == stretch.track.len() && to > end.saturating_add(SECOND) {
            return self.since_the_last(end);
        }
        None
    }

    /// What became of the process after its last figures.
    fn since_the_last(&self, end: u64) -> Option<Found> {
        let (figures, now) = (&self.look.figures, self.look.now);
        let (process, since) = (figures.process, self.moment(end));
        let (verdict, sentence) = match figures.state {
            WriterState::Ended | WriterState::Rebooted => (
                Verdict::Ended,
                format!(
                    "{}: process {process} {}, at about {since} ({} ago).",
                    match self.look.is_of_earlier {
                        true =>
                            "A process has the database open and has published nothing yet; the one before it is dead",
                        false => "No process writes the database",
                    },
                    figures.state,
                    ago(figures.age)
                ),
            ),
            WriterState::Stopped => (
                Verdict::Stopped,
                format!(
                    "Process {process} does not run since about {since} ({} ago): a signal (SIGSTOP) or a debugger has stopped it.",
                    ago(figures.age)
                ),
            ),
            WriterState::Running if figures.age >= FRESH => (
                Verdict::Hidden,
                format!(
                    "Process {process} runs and has published nothing since {since} ({} ago): its disk takes no writes, or it gets no processor time.",
                    ago(figures.age)
                ),
            ),
            _ => return None,
        };
        Some(Found { verdict, sentence, from: end, to: now })
    }

    /// Something did not work; with `space`, only if that was for want of space.
    fn unwell(&self, stretch: &Stretch<'a>, from: u64, to: u64, space: bool) -> Option<Found> {
        let track = stretch.track;
        let is_ill = |at: usize| track.value(at, "health") == Some(1);
        let within =
            |at: &usize| track.millis(*at) < to && (track.millis(*at) >= from || *at == stretch.first);
        let seen = (stretch.first..=stretch.last).filter(within).find(|at| is_ill(*at))?;
        let (mut first, mut last) = (seen, seen);
        while !track.is_break(first) && is_ill(first - 1) {
            first -= 1;
        }
        while last + 1 < track.len() && !track.is_break(last + 1) && is_ill(last + 1) {
            last += 1;
        }
        let causes = self
            .causes(track.millis(last).saturating_add(2 * SECOND))
            .unwrap_or_else(|| "the cause is not recorded".to_owned());
        let is_space = causes.contains("must be free") || causes.contains("no space");
        (is_space || !space).then_some(())?;
        let goes_on = last + 1 == track.len() && self.look.figures.health.state != HealthState::Healthy;
        let when = match goes_on {
            true => format!("since {}", self.moment(track.millis(first))),
            false => self.when(track.millis(first), track.millis(last)),
        };
        let (verdict, what) = match (is_space, causes.contains("refused")) {
            (true, true) => (Verdict::Space, "Commits were refused for want of space"),
            (true, false) => (Verdict::Space, "The disk had no space"),
            (false, true) => (Verdict::Degraded, "Commits were refused"),
            (false, false) => (Verdict::Degraded, "A part of the database did not work"),
        };
        let sentence = format!("{what} {when}: {causes}.");
        Some(Found { verdict, sentence, from: track.millis(first), to: track.millis(last) })
    }

    fn waits(&self, stretch: &Stretch<'a>) -> Option<Found> {
        let waiting = stretch.waiting()?;
        let by_cause = StallCause::ALL.map(|cause| (waiting.waited(cause), cause));
        let all: f64 = by_cause.iter().map(|(secs, _)| secs).sum();
        let (most, cause) = by_cause.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let mostly = if most < 0.8 * all { "mostly " } else { "" };
        let when = self.when(waiting.from(), waiting.to());
        let sentence = format!(
            "Writes waited {} (all threads together) {when}, {mostly}for {}.",
            time(all),
            phrase(cause)
        );
        Some(Found { verdict: Verdict::Waits, sentence, from: waiting.from(), to: waiting.to() })
    }

    fn slow(&self, stretch: &Stretch<'a>) -> Option<Found> {
        let slow = |kind: &'static str| {
            let (nanos, at) = stretch.longest(kind)?;
            (nanos >= SLOW_NANOS).then_some((nanos, at, kind))
        };
        let sync = slow("syncs");
        let felt = FELT.into_iter().filter_map(slow).max();
        let (nanos, at, kind) = sync.or(felt)?;
        let (from, to) = (stretch.track.millis(at - 1), stretch.track.millis(at));
        let took = time(nanos as f64 / 1e9);
        let p99 = stretch.track.value(at, &format!("{kind}.p99")).unwrap_or(0) as f64 / 1e9;
        let (verdict, sentence) = match sync {
            Some(_) => (
                Verdict::SlowSyncs,
                format!("The disk was slow {}: a sync of the log took {took}.", self.when(to, to)),
            ),
            None => (
                Verdict::Slow,
                format!(
                    "One of the {} took {took} {}, and 99 % of that second at most {}; nothing waited and no sync was slow.",
                    kind.replace('_', " "),
                    self.when(to, to),
                    time(p99)
                ),
            ),
        };
        Some(Found { verdict, sentence, from, to })
    }

    /// Nothing waited or was slow.
    fn quiet(&self, stretch: &Stretch<'a>, from: u64, to: u64) -> Found {
        let track = stretch.track;
        let when = self.when(from, to.saturating_sub(1));
        let closed = self
            .events
            .last(&["open", "close"], from.saturating_add(1))
            .is_some_and(|event| event.name == "close");
        let is_after = from > track.millis(track.len() - 1);
        let is_break =
            stretch.steps().next().is_none() || stretch.last == stretch.first + 1 && self.was_opened(stretch);
        if (closed && is_break) || (is_after && self.look.figures.state == WriterState::Closed) {
            let sentence = format!("The database was closed {when}.");
            return Found { verdict: Verdict::Closed, sentence, from, to };
        }
        let within = |at: usize| (from..to).contains(&track.millis(at));
        let is_paused = track.is_idle(stretch.first) && !(stretch.first..=stretch.last).any(within);
        let step = stretch.first + 1;
        if !(stretch.first..=stretch.last).any(within) && step < track.len() && track.is_break(step) {
            let sentence = format!(
                "Not recorded: {when} no process had the database open, and EVENTS does not say how the one before ended."
            );
            return Found { verdict: Verdict::NotRecorded, sentence, from, to };
        }
        let is_idle = is_paused
            || stretch.grown("wal_bytes") == 0
                && FELT.iter().all(|kind| stretch.grown(&format!("{kind}.count")) == 0);
        if is_idle {
            let sentence = format!("The database had nothing to do {when}.");
            return Found { verdict: Verdict::Idle, sentence, from, to };
        }
        let writes = stretch.rate("puts.count") + stretch.rate("commits.count");
        let sentence = format!(
            "Nothing waited or was slow {when}: about {} writes a second, {}/s of log.",
            grouped((writes * self.look.figures.stats.puts.sampled_one_in.max(1) as f64) as u64),
            size(stretch.rate("wal_bytes") as u64)
        );
        Found { verdict: Verdict::Fine, sentence, from, to }
    }
}

/// What writers wait for.
fn phrase(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Memtables => "flushes: memtables filled faster than they were written to tables",
        StallCause::Tables => "merges: level 1 filled faster than they emptied it",
        StallCause::Memory => "memory: memory_limit was nearly reached",
        StallCause::Values => "the collection of garbage in value logs",
        StallCause::Log => "the log, whose next blocks were not prepared in time",
        StallCause::Device => "the disk, which took the bytes of the log late",
        _ => "other commits, which held the order of commits",
    }
}
