//! Histograms of durations: one bucket per power of two, in nanoseconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;

use super::sample::SAMPLED_ONE_IN;
use super::statistics;

/// Number of buckets. Bucket `i` counts durations of `[2^(i-1), 2^i)` nanoseconds, the last one also all longer ones (over 4 minutes).
const BUCKETS: usize = 40;

/// Counts durations. Recording is a few relaxed additions and takes no lock.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
    longest_nanos: AtomicU64,
    /// The longest duration since [`Histogram::take_longest`].
    recent_nanos: AtomicU64,
    /// One duration in so many is recorded; 0 if all are.
    sampled_one_in: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        let [sum_nanos, longest_nanos, recent_nanos] = [0; 3].map(AtomicU64::new);
        Self { buckets, sum_nanos, longest_nanos, recent_nanos, sampled_one_in: 0 }
    }
}

/// Measures an operation until it is dropped.
#[derive(Debug)]
pub struct Timer<'a> {
    times: &'a Histogram,
    clock: &'a dyn Clock,
    started: Duration,
}

impl Drop for Timer<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.times.record(self.clock.mono().saturating_sub(self.started));
    }
}

fn bucket(nanos: u64) -> usize {
    ((u64::BITS - nanos.leading_zeros()) as usize).min(BUCKETS - 1)
}

impl Histogram {
    /// Creates a histogram of operations that [`is_chosen`](super::is_chosen) chooses.
    pub fn of_sample() -> Self {
        Self { sampled_one_in: SAMPLED_ONE_IN, ..Self::default() }
    }

    /// Begins to measure an operation.
    pub fn start<'a>(&'a self, clock: &'a dyn Clock) -> Timer<'a> {
        Timer { times: self, clock, started: clock.mono() }
    }

    /// Adds one duration.
    pub fn record(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
        for longest in [&self.longest_nanos, &self.recent_nanos] {
            if longest.load(Ordering::Relaxed) < nanos {
                longest.fetch_max(nanos, Ordering::Relaxed);
            }
        }
    }

    /// Estimates the number of all operations from that of the measured ones.
    pub fn estimate(&self) -> u64 {
        let measured = self.now();
        measured.count() * measured.sampled_one_in().max(1)
    }

    /// Returns the longest duration since the previous call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_nanos(self.recent_nanos.swap(0, Ordering::Relaxed))
    }

    /// Returns a copy of the counts. Durations that are recorded at the same time may be in some figures and not in others.
    pub fn now(&self) -> Durations {
        Durations {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
            longest: Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed)),
            sampled_one_in: self.sampled_one_in,
        }
    }
}

/// Durations that were counted up to one moment: all, or a random sample of them ([`Durations::sampled_one_in`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    buckets: [u64; BUCKETS],
    sum: Duration,
    longest: Duration,
    sampled_one_in: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: Duration::ZERO, longest: Duration::ZERO, sampled_one_in: 0 }
    }
}

impl Durations {
    /// One operation in so many was measured, on average, chosen at random; 0 if all were. All other figures are those of the
    /// measured ones. Multiply a count or a sum by this number to estimate that of all operations.
    pub fn sampled_one_in(&self) -> u64 {
        self.sampled_one_in
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest one.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The duration that `share` (0 to 1) of all durations do not exceed: at most twice the exact value, never more than the
    /// longest. 0 if nothing was counted.
    pub fn percentile(&self, share: f64) -> Duration {
        let rank = (self.count() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        at.map_or(Duration::ZERO, |at| match at {
            at if at == BUCKETS - 1 => self.longest,
            at => Duration::from_nanos((1_u64 << at) - 1).min(self.longest),
        })
    }

    /// Each bucket that is not empty: its upper bound, and the number of durations in it. The last bound is [`Duration::MAX`].
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let bound = |at| if at == BUCKETS - 1 { Duration::MAX } else { Duration::from_nanos(1_u64 << at) };
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(move |(at, n)| (bound(at), *n))
    }
}

statistics! {
    /// Durations of one kind of work since the open: all, or a random sample of them (`sampled_one_in`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    TimeStats of durations: &Durations;

    plain {
        "All durations." durations: Durations = *durations;
    }
    figures {
        Gauge Count sampled_one_in: u64 = durations.sampled_one_in(),
            "One in so many was measured, chosen at random, and the other figures are those of the measured ones; 0 if all were.";
        Counter Count count: u64 = durations.count(), "Number of durations.";
        Counter Seconds time: Duration = durations.sum(), "Total time.";
        Gauge Seconds p50: Duration = durations.percentile(0.5), "Half of the durations are no longer than this.";
        Gauge Seconds p99: Duration = durations.percentile(0.99), "99 % of the durations are no longer than this.";
        Gauge Seconds longest: Duration = durations.longest(), "The longest duration.";
    }
}

impl From<&Histogram> for TimeStats {
    fn from(histogram: &Histogram) -> Self {
        Self::of(&histogram.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_within_a_factor_of_two() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|n| histogram.record(MILLI * n));
        let all = histogram.now();
        assert_eq!((all.count(), all.longest(), all.sum()), (1000, MILLI * 1000, MILLI * 500_500));
        for (share, exact) in [(0.001, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = all.percentile(share);
            assert!(found >= MILLI * exact && found <= MILLI * 2 * exact, "{share}: {found:?}");
        }
        assert_eq!(all.percentile(1.0), MILLI * 1000);
        assert_eq!(all.buckets().map(|(_, n)| n).sum::<u64>(), 1000);
    }

    #[test]
    fn extremes() {
        let histogram = Histogram::default();
        assert_eq!((histogram.now().percentile(0.5), histogram.now().count()), (Duration::ZERO, 0));
        histogram.record(Duration::ZERO);
        histogram.record(Duration::MAX);
        assert_eq!(histogram.now().count(), 2);
        assert_eq!(histogram.now().percentile(0.1), Duration::ZERO);
        assert_eq!(histogram.now().percentile(1.0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn the_longest_duration_since_the_last_call() {
        let histogram = Histogram::default();
        let longest = |n: u32| {
            histogram.record(MILLI * n);
            histogram.take_longest()
        };
        assert_eq!(
            [longest(9), longest(2), histogram.take_longest()],
            [MILLI * 9, MILLI * 2, Duration::ZERO]
        );
        assert_eq!(histogram.now().longest(), MILLI * 9);
    }
}
