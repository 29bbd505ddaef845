//! The history of figures, as samples by name and the differences between two of them.

use std::collections::HashMap;

use tidesdb::{History, Sample};

/// Counters that grow with nearly everything that a database does, and begin at 0 when it is opened.
const SESSION: [&str; 9] = [
    "wal_bytes",
    "written_bytes",
    "cache_hits",
    "cache_misses",
    "lookup_reads",
    "puts.count",
    "gets.count",
    "commits.count",
    "events",
];

/// What is the same in two samples if the database did nothing between them.
const ACTIVITY: [&str; 9] = [
    "visible_seq",
    "wal_bytes",
    "cache_hits",
    "cache_misses",
    "lookup_reads",
    "gets.count",
    "multi_gets.count",
    "seeks.count",
    "events",
];

/// The history of one pace.
#[derive(Debug, Default)]
pub(crate) struct Track {
    names: HashMap<String, u32>,
    /// In the order in which they were recorded; the values of each by the number of their name.
    samples: Vec<Sample>,
}

impl From<History> for Track {
    fn from(history: History) -> Self {
        let names = history.names.into_iter().zip(0..).collect();
        let mut samples = history.samples;
        samples.iter_mut().for_each(|sample| sample.values.sort_unstable_by_key(|(name, _)| *name));
        Self { names, samples }
    }
}

impl Track {
    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// When sample `at` was recorded, in milliseconds since the UNIX epoch.
    pub(crate) fn millis(&self, at: usize) -> u64 {
        self.samples.get(at).map_or(0, |sample| sample.millis)
    }

    fn value_of(&self, at: usize, name: u32) -> Option<i64> {
        let values = &self.samples.get(at)?.values;
        let found = values.binary_search_by_key(&name, |(name, _)| *name).ok()?;
        Some(values[found].1)
    }

    /// The figure `name` of sample `at`, in the units of the history.
    pub(crate) fn value(&self, at: usize, name: &str) -> Option<i64> {
        self.value_of(at, *self.names.get(name)?)
    }

    /// Each figure of sample `at` whose name begins with `prefix`, without it.
    pub(crate) fn values<'a>(&'a self, at: usize, prefix: &'a str) -> impl Iterator<Item = (&'a str, i64)> {
        self.names.iter().filter_map(move |(name, id)| {
            let rest = name.strip_prefix(prefix)?;
            Some((rest, self.value_of(at, *id)?))
        })
    }

    /// The last sample that was recorded at `millis` or before; `None` if none was. Later records win where a clock went back.
    pub(crate) fn at_or_before(&self, millis: u64) -> Option<usize> {
        (0..self.len()).rev().find(|at| self.millis(*at) <= millis)
    }

    /// True if sample `at` is of another session than the one before it, or if the clock went back: they have no difference.
    pub(crate) fn is_break(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return true };
        let went_back = |name: &&str| match (self.value(before, name), self.value(at, name)) {
            (Some(before), Some(now)) => now < before,
            _ => false,
        };
        self.millis(at) <= self.millis(before) || SESSION.iter().any(went_back)
    }

    /// True if nothing had happened since the sample before `at`: the writer records that once, and then nothing until it has work again.
    pub(crate) fn is_idle(&self, at: usize) -> bool {
        at > 0
            && !self.is_break(at)
            && ACTIVITY.iter().all(|name| self.value(at - 1, name) == self.value(at, name))
    }

    /// The first sample of the session of sample `at` that is at most `millis` older; the one before `at` if all are older. `None` if the
    /// session has none before `at`.
    pub(crate) fn window(&self, at: usize, millis: u64) -> Option<usize> {
        if at >= self.len() || self.is_break(at) {
            return None;
        }
        let since = self.millis(at).saturating_sub(millis);
        let mut from = at - 1;
        while !self.is_break(from) && self.millis(from - 1) >= since {
            from -= 1;
        }
        Some(from)
    }

    /// How much a counter has grown between two samples of a session. One that is not in the earlier sample began at 0, unless it is that of a
    /// family, of which only the busiest are recorded.
    pub(crate) fn grown(&self, from: usize, to: usize, name: &str) -> Option<u64> {
        let now = self.value(to, name)?;
        let before = match self.value(from, name) {
            None if name.starts_with("family.") => return None,
            before => before.unwrap_or(0),
        };
        u64::try_from(now.checked_sub(before)?).ok()
    }

    /// Seconds between two samples; `None` if it is no time.
    pub(crate) fn seconds(&self, from: usize, to: usize) -> Option<f64> {
        let millis = self.millis(to).checked_sub(self.millis(from)).filter(|millis| *millis > 0)?;
        Some(millis as f64 / 1e3)
    }

    /// How fast a counter grew between two samples, by the second.
    pub(crate) fn rate(&self, from: usize, to: usize, name: &str) -> Option<f64> {
        Some(self.grown(from, to, name)? as f64 / self.seconds(from, to)?)
    }

    /// The figure `name` of the samples after `from` up to `to` in the middle, each as often as `weight` grew with it; `None` if that did not grow.
    pub(crate) fn middle(&self, from: usize, to: usize, name: &str, weight: &str) -> Option<i64> {
        let weighted =
            (from + 1..=to).filter_map(|at| Some((self.value(at, name)?, self.grown(at - 1, at, weight)?)));
        let mut weighted: Vec<_> = weighted.filter(|(_, weight)| *weight > 0).collect();
        weighted.sort_unstable();
        let half = weighted.iter().fold(0, |sum: u64, (_, weight)| sum.saturating_add(*weight)).div_ceil(2);
        let mut seen = 0_u64;
        weighted.into_iter().find_map(|(value, weight)| {
            seen = seen.saturating_add(weight);
            (seen >= half).then_some(value)
        })
    }

    /// The largest figure `name` of the samples after `from` up to `to` with which `counter` grew.
    pub(crate) fn largest(&self, from: usize, to: usize, name: &str, counter: &str) -> Option<i64> {
        let grew = |at: &usize| self.grown(at - 1, *at, counter).is_some_and(|n| n > 0);
        (from + 1..=to).filter(grew).filter_map(|at| self.value(at, name)).max()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Samples at these seconds after `BASE`, each with its figures.
    pub(crate) fn track(samples: &[(u64, &[(&str, i64)])]) -> Track {
        let mut track = Track::default();
        for (secs, figures) in samples {
            let mut values = Vec::new();
            for (name, value) in *figures {
                let next = track.names.len() as u32;
                values.push((*track.names.entry((*name).to_owned()).or_insert(next), *value));
            }
            values.sort_unstable();
            let mut sample = Sample::default();
            (sample.millis, sample.values) = (BASE + secs * 1000, values);
            track.samples.push(sample);
        }
        track
    }

    /// 2026-11-30T12:00:00Z.
    pub(crate) const BASE: u64 = 1_796_040_000_000;

    #[test]
    fn windows_end_where_a_session_or_the_clock_does() {
        let track = track(&[
            (0, &[("wal_bytes", 900)]),
            (1, &[("wal_bytes", 10)]),
            (2, &[("wal_bytes", 30)]),
            (4, &[("wal_bytes", 70)]),
            (60, &[("wal_bytes", 80)]),
            (59, &[("wal_bytes", 90)]),
        ]);
        assert_eq!([0, 1, 5].map(|at| track.window(at, 10_000)), [None; 3], "first, another session, clock");
        assert_eq!([2, 3].map(|at| track.window(at, 10_000)), [Some(1); 2]);
        assert_eq!(track.window(3, 2000), Some(2));
        assert_eq!((track.window(4, 10_000), track.window(4, 1_000_000)), (Some(3), Some(1)));
        assert_eq!(track.rate(1, 3, "wal_bytes"), Some(20.0));
        assert_eq!((track.rate(1, 3, "none"), track.grown(3, 2, "wal_bytes")), (None, None));
        assert_eq!((track.at_or_before(BASE - 1), track.at_or_before(BASE + 3999)), (None, Some(2)));
        assert_eq!(track.window(99, 1), None);
    }

    #[test]
    fn a_percentile_of_several_seconds_is_that_of_the_middle_one() {
        let track = track(&[
            (0, &[("puts.count", 0), ("puts.p99", 0)]),
            (1, &[("puts.count", 10), ("puts.p99", 5)]),
            (2, &[("puts.count", 10), ("puts.p99", 0)]),
            (3, &[("puts.count", 11), ("puts.p99", 900)]),
            (4, &[("puts.count", 15), ("puts.p99", 7)]),
            (5, &[("puts.count", 16), ("puts.p99", 3)]),
        ]);
        assert_eq!(track.middle(1, 5, "puts.p99", "puts.count"), Some(7), "neither the least nor the most");
        assert_eq!(track.middle(0, 4, "puts.p99", "puts.count"), Some(5));
        assert_eq!(track.middle(1, 4, "puts.p99", "puts.count"), Some(7));
        assert_eq!(track.middle(1, 2, "puts.p99", "puts.count"), None);
        assert_eq!(track.largest(0, 4, "puts.p99", "puts.count"), Some(900));
        assert_eq!(
            track.largest(0, 2, "puts.p99", "puts.count"),
            Some(5),
            "a second without puts does not count"
        );
    }

    #[test]
    fn a_sample_that_repeats_the_one_before_it_is_idle() {
        let same = &[("visible_seq", 7), ("wal_bytes", 10)][..];
        let track = track(&[(0, same), (1, same), (2, &[("visible_seq", 7), ("wal_bytes", 11)])]);
        assert_eq!([0, 1, 2].map(|at| track.is_idle(at)), [false, true, false]);
    }
}
