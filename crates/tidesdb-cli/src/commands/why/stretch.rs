//! A stretch of the history, and what happened in it.

use tidesdb::StallCause;

use crate::look::track::Track;

/// Seconds of waiting in a second from which on writers are said to wait.
const WAITS_FROM: f64 = 0.05;
/// What belongs to a stretch of waiting that has begun.
const WAITS_ON: f64 = 0.005;
/// A stretch of waiting may have so many samples without any.
const QUIET_MAX: usize = 2;
/// Operations and syncs that take so long are slow.
pub(super) const SLOW_NANOS: i64 = 100_000_000;

/// The kinds whose slowness a user feels.
pub(super) const FELT: [&str; 5] = ["gets", "multi_gets", "seeks", "puts", "commits"];

/// The samples between two, both included, of one pace. Its figures are those that grew after the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    pub(super) track: &'a Track,
    pub(super) first: usize,
    pub(super) last: usize,
    /// Milliseconds between two samples of a process that has work, and some more.
    pub(super) gap: u64,
}

impl<'a> Stretch<'a> {
    pub(super) fn from(&self) -> u64 {
        self.track.millis(self.first)
    }

    pub(super) fn to(&self) -> u64 {
        self.track.millis(self.last)
    }

    /// Each sample after the first whose figures grew since the one before it.
    pub(super) fn steps(&self) -> impl DoubleEndedIterator<Item = usize> + use<'a> {
        let track = self.track;
        (self.first + 1..=self.last).filter(move |at| !track.is_break(*at))
    }

    /// Seconds that writers waited for one cause, of all threads.
    pub(super) fn waited(&self, cause: StallCause) -> f64 {
        let name = format!("stall.{}.time", cause.name());
        self.grown(&name) as f64 / 1e9
    }

    /// How much a counter grew.
    pub(super) fn grown(&self, name: &str) -> u64 {
        self.steps().filter_map(|at| self.track.grown(at - 1, at, name)).fold(0, u64::saturating_add)
    }

    /// How much a counter grew each second.
    pub(super) fn rate(&self, name: &str) -> f64 {
        let secs: f64 = self.steps().filter_map(|at| self.track.seconds(at - 1, at)).sum();
        if secs > 0.0 { self.grown(name) as f64 / secs } else { 0.0 }
    }

    /// How much users wrote each second.
    pub(super) fn user_rate(&self) -> f64 {
        if self.track.value(self.last, "user_bytes").is_some() {
            return self.rate("user_bytes");
        }
        // Earlier versions recorded only the busiest families.
        let names: Vec<String> = self
            .track
            .values(self.last, "family.")
            .filter(|(rest, _)| rest.ends_with(".user_bytes"))
            .map(|(rest, _)| format!("family.{rest}"))
            .collect();
        names.iter().map(|name| self.rate(name)).sum()
    }

    /// The largest value of a figure, and its sample.
    pub(super) fn largest(&self, name: &str) -> Option<(i64, usize)> {
        (self.first..=self.last).filter_map(|at| Some((self.track.value(at, name)?, at))).max()
    }

    /// The longest operation of a kind that ended within the stretch, in nanoseconds, and its sample.
    pub(super) fn longest(&self, kind: &str) -> Option<(i64, usize)> {
        let (count, longest) = (format!("{kind}.count"), format!("{kind}.longest"));
        let grew = |at: &usize| self.track.grown(at - 1, *at, &count).is_some_and(|n| n > 0);
        self.steps().filter(grew).filter_map(|at| Some((self.track.value(at, &longest)?, at))).max()
    }

    /// The sample before which writers waited most, the first of several.
    pub(super) fn worst(&self) -> usize {
        let rates = self.steps().map(|at| (wait_rate(self.track, at), at));
        rates.rev().max_by(|a, b| a.0.total_cmp(&b.0)).map_or(self.last, |(_, at)| at)
    }

    /// The stretch of waiting that reaches into this one, from its begin to its end; `None` if writers did not wait.
    pub(super) fn waiting(&self) -> Option<Self> {
        let worst = self.worst();
        if worst == self.first || wait_rate(self.track, worst) < WAITS_FROM {
            return None;
        }
        let (mut first, mut last) = (worst - 1, worst);
        let (mut at, mut quiet) = (worst - 1, 0);
        while at > 0 && quiet <= QUIET_MAX && !self.track.is_break(at) {
            quiet = if wait_rate(self.track, at) >= WAITS_ON { 0 } else { quiet + 1 };
            if quiet == 0 {
                first = at - 1;
            }
            at -= 1;
        }
        (at, quiet) = (worst + 1, 0);
        while at < self.track.len() && quiet <= QUIET_MAX && !self.track.is_break(at) {
            quiet = if wait_rate(self.track, at) >= WAITS_ON { 0 } else { quiet + 1 };
            if quiet == 0 {
                last = at;
            }
            at += 1;
        }
        Some(Self { first, last, ..*self })
    }

    /// The samples of about `gaps` times the time between two samples before this stretch, of the same session; `None` if there are none.
    pub(super) fn before(&self, gaps: u64) -> Option<Self> {
        let first = self.track.window(self.first, gaps * self.gap)?;
        Some(Self { first, last: self.first, ..*self })
    }
}

/// Seconds that writers waited for all causes, for each second before sample `at`.
fn wait_rate(track: &Track, at: usize) -> f64 {
    if track.is_break(at) {
        return 0.0;
    }
    let of = |cause: StallCause| track.rate(at - 1, at, &format!("stall.{}.time", cause.name()));
    StallCause::ALL.into_iter().filter_map(of).sum::<f64>() / 1e9
}
