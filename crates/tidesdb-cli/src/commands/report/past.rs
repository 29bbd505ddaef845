//! The history of the figures as lines to draw: evenly spaced points, few enough for a page.
//!
//! A counter becomes a rate: its growth between two samples, spread over the time between them, because no sample is taken while nothing changes.
//! A counter that fell is that of another open, and the time between the two is unknown. Of other figures, a point has the highest of its time.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use tidesdb::{History, StallCause, Stats};

use crate::look::track::Track;

/// A line of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Growth in a second.
    Rate,
    /// The highest.
    Level,
    /// The highest of those above zero: where it is zero, nothing was measured.
    Moment,
}

/// How much of the past is drawn, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// The usual time between two samples.
    pace: u64,
    span: u64,
}

/// The last hour, of samples of seconds.
pub(super) const HOUR: Scope = Scope { pace: 1000, span: 3_600_000 };
/// The last day, of samples of minutes.
pub(super) const DAY: Scope = Scope { pace: 60_000, span: 86_400_000 };
/// Points of a line. More cannot be told apart on a screen.
pub(super) const POINTS_MAX: usize = 1200;
/// A line is drawn from this number of points on, so a young database does not fill the width with two.
const POINTS_MIN: usize = 30;
/// The end of the year 9999. A browser has no name for moments far behind it.
pub(super) const MILLIS_MAX: u64 = 253_402_300_799_999;
/// A busy disk delays samples. Those that are more than this many of their pace apart had nothing to say in between.
const NEAR_PACES: u64 = 15;

/// Returns the lines of `history`, and the moments of their points. It ends with the last sample. `stats` says how often operations are measured.
pub(super) fn lines(history: &History, scope: Scope, stats: Option<&Stats>) -> Value {
    let moments =
        || history.samples.iter().map(|sample| sample.millis).filter(|millis| *millis <= MILLIS_MAX);
    let Some(end) = moments().next_back() else { return Value::Null };
    let in_span = |millis: &u64| (end.saturating_sub(scope.span)..=end).contains(millis);
    let first = moments().filter(in_span).min().unwrap_or(end);
    let paces = (end - first) / scope.pace + 1;
    let step = scope.pace * paces.div_ceil(POINTS_MAX as u64);
    let points = (((end - first) / step + 1) as usize).clamp(POINTS_MIN, POINTS_MAX);
    // Not before 1970, and at the border of a point.
    let begin = (end / step + 1).saturating_sub(points as u64) * step;
    let time = Time { begin, end, pace: scope.pace, step, points, opens: opens(history) };
    let mut lines = Map::new();
    for (name, kind, factor) in wanted(history, stats) {
        let points = time.points(&history.series(&name), kind, factor);
        if points.iter().any(|point| point.is_some_and(|value| value > 0.0)) {
            lines.insert(name, points.into_iter().map(shortened).collect());
        }
    }
    json!({ "begin": begin, "step": step, "points": points, "lines": lines })
}

/// The figures that are drawn, and what one unit of each counts.
fn wanted(history: &History, stats: Option<&Stats>) -> Vec<(String, Kind, f64)> {
    let mut out = Vec::new();
    let mut add = |name: String, kind, factor| {
        if history.names.contains(&name) {
            out.push((name, kind, factor));
        }
    };
    let known = Stats::default();
    for (work, times) in stats.unwrap_or(&known).times() {
        if stats.is_some() {
            add(format!("{work}.count"), Kind::Rate, times.sampled_one_in.max(1) as f64);
        }
        for figure in ["p50", "p99", "p999", "longest"] {
            add(format!("{work}.{figure}"), Kind::Moment, 1e-9);
        }
    }
    for cause in StallCause::ALL {
        add(format!("stall.{}.time", cause.name()), Kind::Rate, 1e-9);
    }
    for name in ["wal_bytes", "written_bytes", "lookup_read_bytes", "cache_hits", "cache_misses"] {
        add(name.to_owned(), Kind::Rate, 1.0);
    }
    for (name, _) in super::data::MEMORY {
        add(name.to_owned(), Kind::Level, 1.0);
    }
    for name in ["memory_limit_bytes", "disk_bytes", "merge_debt_bytes", "jobs.flushes", "jobs.merges"] {
        add(name.to_owned(), Kind::Level, 1.0);
    }
    out
}

/// The samples that are the first of another open.
fn opens(history: &History) -> HashSet<u64> {
    let track = Track::from(history.clone());
    (0..track.len()).filter(|at| track.is_break(*at)).map(|at| track.millis(at)).collect()
}

struct Time {
    begin: u64,
    end: u64,
    pace: u64,
    /// Milliseconds between two points.
    step: u64,
    points: usize,
    opens: HashSet<u64>,
}

impl Time {
    /// The points of a figure. A point without a sample since the last restart is unknown.
    fn points(&self, series: &[(u64, i64)], kind: Kind, factor: f64) -> Vec<Option<f64>> {
        let mut points = vec![None; self.points];
        let mut seconds = vec![0.0; self.points];
        let mut before = None;
        for &(to, value) in series {
            let from = before.replace((to, value));
            if !(self.begin..=self.end).contains(&to) {
                continue;
            }
            // Without one before it, or after a step of the clock or another open, a sample stands for its own point only.
            let from = from.filter(|from| from.0 < to && !self.opens.contains(&to));
            let at = self.at(to);
            let since = |millis: u64| self.at(millis.max(self.begin))..at;
            match (kind, from) {
                (Kind::Rate, Some((from, before))) if value >= before => {
                    let growth = value.saturating_sub(before) as f64 * factor;
                    self.spread((from, to), growth, &mut points, &mut seconds);
                }
                (Kind::Rate, _) => {}
                (Kind::Level, from) => {
                    if let Some((from, before)) = from {
                        points[since(from)].iter_mut().for_each(|point| raise(point, before as f64 * factor));
                    }
                    raise(&mut points[at], value as f64 * factor);
                }
                (Kind::Moment, _) if value <= 0 => {}
                (Kind::Moment, from) => {
                    // It is of all the time since the sample before. If that is long, most of it was idle.
                    if let Some((from, _)) = from.filter(|from| to - from.0 <= self.pace * NEAR_PACES) {
                        points[since(from + 1)]
                            .iter_mut()
                            .for_each(|point| raise(point, value as f64 * factor));
                    }
                    raise(&mut points[at], value as f64 * factor);
                }
            }
        }
        let rate = |(sum, seconds): (Option<f64>, f64)| Some(sum? / seconds);
        if kind == Kind::Rate { points.into_iter().zip(seconds).map(rate).collect() } else { points }
    }

    /// Adds the `growth` between two moments to the points, by the time that each has of it.
    fn spread(&self, (from, to): (u64, u64), growth: f64, sums: &mut [Option<f64>], seconds: &mut [f64]) {
        let all = (to - from) as f64;
        let from = from.max(self.begin);
        for at in self.at(from)..=self.at(to) {
            let begin = self.begin + at as u64 * self.step;
            let inside = to.min(begin + self.step).saturating_sub(from.max(begin)) as f64;
            if inside > 0.0 {
                *sums[at].get_or_insert(0.0) += growth * inside / all;
                seconds[at] += inside / 1000.0;
            }
        }
    }

    fn at(&self, millis: u64) -> usize {
        ((millis.saturating_sub(self.begin) / self.step) as usize).min(self.points - 1)
    }
}

fn raise(point: &mut Option<f64>, value: f64) {
    *point = Some(point.map_or(value, |before| before.max(value)));
}

/// A number in few digits: whole from 1,000 on, four digits below.
fn shortened(point: Option<f64>) -> Value {
    let Some(value) = point else { return Value::Null };
    match value {
        0.0 => 0.into(),
        value if value >= 1000.0 => (value.round() as u64).into(),
        value => {
            let unit = 10f64.powi(value.log10().floor() as i32 - 3);
            let digits = (value / unit).round() * unit;
            // The product has a long tail of digits otherwise.
            format!("{digits:.12}").parse::<f64>().map_or(Value::Null, Value::from)
        }
    }
}
