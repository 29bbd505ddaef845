//! Histograms of durations, in nanoseconds: 16 buckets for each power of two, so that a percentile is known to 3 %.
//!
//! The buckets are those of HdrHistogram with four bits after the first: each is as wide as a sixteenth of the power of two below it. A
//! histogram that has counted nothing has no buckets: in most databases most of them never count.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;

use super::sample::SAMPLED_ONE_IN;
use super::statistics;
use crate::Result;
use crate::codec::{Decoder, put_varint};

/// Bits of a duration that choose its bucket, after the first.
const BITS: u32 = 4;
/// Buckets of a power of two.
const PARTS: u64 = 1 << BITS;
/// Number of buckets. The last one counts all durations of 2^40 nanoseconds (18 minutes) and longer.
const BUCKETS: usize = (40 - BITS as usize + 1) * PARTS as usize + 1;

/// The bucket of a duration. Each of the shortest has one of its own.
fn bucket(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - BITS;
    let at = u64::from(shift) * PARTS + (nanos >> shift); // the first bit counts as `PARTS`
    (at as usize).min(BUCKETS - 1)
}

/// The shortest duration of a bucket.
fn first_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / PARTS {
        0 | 1 => bucket,
        power => (PARTS + bucket % PARTS) << (power - 1),
    }
}

type Buckets = [AtomicU64; BUCKETS];

/// Counts durations. Recording is a few relaxed additions and takes no lock.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Made for the first duration.
    buckets: OnceLock<Box<Buckets>>,
    sum_nanos: AtomicU64,
    longest_nanos: AtomicU64,
    /// The longest duration since [`Histogram::take_longest`].
    recent_nanos: AtomicU64,
    /// Durations from this one on are slow; 0 if none is.
    slow_from: AtomicU64,
    /// How many were slow since [`Histogram::take_slow`], and the longest.
    slow: AtomicU64,
    slow_longest: AtomicU64,
    /// One duration in so many is recorded; 0 if all are.
    sampled_one_in: u64,
}

/// Measures an operation until it is dropped.
#[derive(Debug)]
pub struct Timer<'a> {
    times: &'a Histogram,
    clock: &'a dyn Clock,
    started: Duration,
    /// Whether the duration is recorded; otherwise it only counts if it is slow.
    records: bool,
}

impl Drop for Timer<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let took = self.clock.mono().saturating_sub(self.started);
        match self.records {
            true => self.times.record(took),
            false => self.times.note_slow(nanos_of(took)),
        }
    }
}

fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Histogram {
    /// Creates a histogram of operations that [`is_chosen`](super::is_chosen) chooses.
    pub fn of_sample() -> Self {
        Self { sampled_one_in: SAMPLED_ONE_IN, ..Self::default() }
    }

    /// Begins to measure an operation. Unless it `records`, it is counted only if it turns out to be slow.
    pub fn start<'a>(&'a self, clock: &'a dyn Clock, records: bool) -> Timer<'a> {
        Timer { times: self, clock, started: clock.mono(), records }
    }

    /// Sets from which duration on operations are slow; `None` or 0: none is.
    pub fn set_slow_from(&self, time: Option<Duration>) {
        self.slow_from.store(time.map_or(0, nanos_of), Ordering::Relaxed);
    }

    /// Returns how many were slow since the previous call, and the longest of them.
    pub fn take_slow(&self) -> (u64, Duration) {
        let [count, longest] = [&self.slow, &self.slow_longest].map(|n| n.swap(0, Ordering::Relaxed));
        (count, Duration::from_nanos(longest))
    }

    fn note_slow(&self, nanos: u64) {
        let from = self.slow_from.load(Ordering::Relaxed);
        if from > 0 && nanos >= from {
            self.slow.fetch_add(1, Ordering::Relaxed);
            self.slow_longest.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// Adds one duration.
    pub fn record(&self, time: Duration) {
        let nanos = nanos_of(time);
        self.note_slow(nanos);
        let buckets = self.buckets.get_or_init(|| Box::new([const { AtomicU64::new(0) }; BUCKETS]));
        buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
        for longest in [&self.longest_nanos, &self.recent_nanos] {
            if longest.load(Ordering::Relaxed) < nanos {
                longest.fetch_max(nanos, Ordering::Relaxed);
            }
        }
    }

    /// Number of durations.
    fn counted(&self) -> u64 {
        self.buckets.get().map_or(0, |buckets| buckets.iter().map(|n| n.load(Ordering::Relaxed)).sum())
    }

    /// The sum of the durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed))
    }

    /// Estimates the number of all operations from that of the measured ones.
    pub fn estimate(&self) -> u64 {
        self.counted() * self.sampled_one_in.max(1)
    }

    /// Returns the longest duration since the previous call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_nanos(self.recent_nanos.swap(0, Ordering::Relaxed))
    }

    /// Returns a copy of the counts. Durations that are recorded at the same time may be in some figures and not in others.
    pub fn now(&self) -> Durations {
        let counts = self.buckets.get().into_iter().flat_map(|buckets| buckets.iter().enumerate());
        let counts = counts.map(|(at, n)| (at as u16, n.load(Ordering::Relaxed)));
        Durations {
            counts: counts.filter(|(_, n)| *n > 0).collect(),
            sum: self.sum(),
            longest: Duration::from_nanos(self.longest_nanos.load(Ordering::Relaxed)),
            sampled_one_in: self.sampled_one_in,
        }
    }
}

/// Durations that were counted up to one moment: all, or a random sample of them ([`Durations::sampled_one_in`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// Each bucket that is not empty, and how many durations it has; in order.
    counts: Vec<(u16, u64)>,
    sum: Duration,
    longest: Duration,
    sampled_one_in: u64,
}

impl Durations {
    /// One operation in so many was measured, on average, chosen at random; 0 if all were. All other figures are those of the
    /// measured ones. Multiply a count or a sum by this number to estimate that of all operations.
    pub fn sampled_one_in(&self) -> u64 {
        self.sampled_one_in
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, n)| n).sum()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest one.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The duration that `share` (0 to 1) of all durations do not exceed. At most 3.2 % off, or half a nanosecond; never more than the
    /// longest. 0 if nothing was counted.
    pub fn percentile(&self, share: f64) -> Duration {
        let (count, mut seen) = (self.count(), 0);
        let rank = (count as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        if rank >= count {
            return self.longest;
        }
        let at = self.counts.iter().find(|(_, n)| {
            seen += n;
            seen >= rank
        });
        at.map_or(Duration::ZERO, |(at, _)| match usize::from(*at) {
            at if at == BUCKETS - 1 => self.longest,
            at => Duration::from_nanos(first_of(at).midpoint(first_of(at + 1) - 1)).min(self.longest),
        })
    }

    /// Each bucket that is not empty: its upper bound, and the number of durations in it. The last bound is [`Duration::MAX`].
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let bound = |at| match at {
            at if at == BUCKETS - 1 => Duration::MAX,
            at => Duration::from_nanos(first_of(at + 1)),
        };
        self.counts.iter().map(move |(at, n)| (bound(usize::from(*at)), *n))
    }

    /// What was counted since `before`, an earlier state of the same counts. The longest is that of all, or less if a bucket says so.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut earlier = before.counts.iter().peekable();
        let counts = self.counts.iter().filter_map(|(at, n)| {
            while earlier.next_if(|(other, _)| other < at).is_some() {}
            let old = earlier.next_if(|(other, _)| other == at).map_or(0, |(_, n)| *n);
            Some((*at, n.saturating_sub(old))).filter(|(_, n)| *n > 0)
        });
        let counts: Vec<_> = counts.collect();
        let bound = counts.last().map_or(0, |(at, _)| match usize::from(*at) {
            at if at == BUCKETS - 1 => u64::MAX,
            at => first_of(at + 1) - 1,
        });
        Self {
            counts,
            sum: self.sum.saturating_sub(before.sum),
            longest: self.longest.min(Duration::from_nanos(bound)),
            sampled_one_in: self.sampled_one_in,
        }
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        for (at, n) in &other.counts {
            match self.counts.binary_search_by_key(at, |(at, _)| *at) {
                Ok(found) => self.counts[found].1 += n,
                Err(place) => self.counts.insert(place, (*at, *n)),
            }
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
        self.sampled_one_in = self.sampled_one_in.max(other.sampled_one_in);
    }

    /// Appends the durations to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, 1 + self.counts.len() as u64);
        put_varint(out, self.sampled_one_in);
        [self.sum, self.longest].iter().for_each(|time| put_varint(out, nanos_of(*time)));
        let mut next = 0;
        for (at, n) in &self.counts {
            put_varint(out, u64::from(*at) - next);
            put_varint(out, *n);
            next = u64::from(*at) + 1;
        }
    }

    /// Reads what [`Durations::encode`] wrote, or a 0, which stands for none.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Option<Self>> {
        let Some(buckets) = d.number(0..=1 + BUCKETS as u64, "the number of buckets")?.checked_sub(1) else {
            return Ok(None);
        };
        let mut this = Self { sampled_one_in: d.varint()?, ..Self::default() };
        [this.sum, this.longest] = [d.varint()?, d.varint()?].map(Duration::from_nanos);
        let (mut next, mut all) = (0, 0_u64);
        for _ in 0..buckets {
            let at = d.varint()?.saturating_add(next);
            if at >= BUCKETS as u64 {
                return Err(d.corrupt("a bucket that there is not"));
            }
            let n = d.varint()?;
            all = all.checked_add(n).ok_or_else(|| d.corrupt("more durations than can be counted"))?;
            this.counts.push((at as u16, n));
            next = at + 1;
        }
        Ok(Some(this))
    }
}

impl TimeStats {
    /// Estimates how many there were: those that were measured, each for as many as it stands for.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// db.put("whale", "blue")?;
    /// let syncs = db.stats().syncs;
    /// assert_eq!(syncs.estimate(), syncs.count, "all of them are measured");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn estimate(&self) -> u64 {
        self.count.saturating_mul(self.sampled_one_in.max(1))
    }
}

statistics! {
    /// Durations of one kind of work since the open: all, or a random sample of them (`sampled_one_in`).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    TimeStats of durations: &Durations;

    plain {
        "All durations." durations: Durations = durations.clone();
    }
    figures {
        Gauge Count sampled_one_in: u64 = durations.sampled_one_in(),
            "One in so many was measured, chosen at random, and the other figures are those of the measured ones; 0 if all were.";
        Counter Count count: u64 = durations.count(), "Number of durations.";
        Counter Seconds time: Duration = durations.sum(), "Total time.";
        Gauge Seconds p50: Duration = durations.percentile(0.5), "Half of the durations are no longer than this.";
        Gauge Seconds p99: Duration = durations.percentile(0.99), "99 % of the durations are no longer than this.";
        Gauge Seconds p999: Duration = durations.percentile(0.999), "99.9 % of the durations are no longer than this.";
        Gauge Seconds longest: Duration = durations.longest(), "The longest duration.";
    }
}

impl From<&Histogram> for TimeStats {
    fn from(histogram: &Histogram) -> Self {
        histogram.now().into()
    }
}

impl From<Durations> for TimeStats {
    fn from(durations: Durations) -> Self {
        Self::of(&durations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn each_duration_is_in_the_bucket_that_begins_at_or_below_it() {
        let powers = (0..64).map(|bit| 1_u64 << bit);
        for nanos in powers.flat_map(|n| [n - 1, n, n + 1, n + n / 3]).chain([0, u64::MAX]) {
            let at = bucket(nanos);
            assert!(first_of(at) <= nanos, "{nanos}");
            assert!(at == BUCKETS - 1 || nanos < first_of(at + 1), "{nanos}");
        }
        assert_eq!(first_of(BUCKETS - 1), 1 << 40);
        assert!((1..BUCKETS).all(|at| first_of(at - 1) < first_of(at)));
    }

    #[test]
    fn percentiles_are_within_three_percent() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|n| histogram.record(MILLI * n));
        let all = histogram.now();
        assert_eq!((all.count(), all.longest(), all.sum()), (1000, MILLI * 1000, MILLI * 500_500));
        for (share, exact) in [(0.001, 1), (0.01, 10), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999)] {
            let found = all.percentile(share).as_secs_f64() * 1000.0;
            assert!((found / f64::from(exact) - 1.0).abs() <= 0.032, "{share}: {found} in place of {exact}");
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

    #[test]
    fn slow_durations_are_counted_whether_they_are_recorded_or_not() {
        let (histogram, clock) = (Histogram::of_sample(), tidesdb_io::ManualClock::new(0));
        let run = |time, records| {
            let timer = histogram.start(&clock, records);
            clock.advance(time);
            drop(timer);
        };
        run(MILLI * 50, true);
        assert_eq!(histogram.take_slow(), (0, Duration::ZERO), "none is slow at first");
        histogram.set_slow_from(Some(MILLI * 10));
        for (n, records) in [(9, true), (9, false), (10, true), (12, false), (11, false)] {
            run(MILLI * n, records);
        }
        assert_eq!(histogram.take_slow(), (3, MILLI * 12));
        assert_eq!((histogram.take_slow().0, histogram.now().count()), (0, 3));
        histogram.set_slow_from(None);
        run(MILLI * 50, true);
        assert_eq!(histogram.take_slow().0, 0);
    }

    #[test]
    fn counts_are_added_and_taken_away() {
        let (first, second) = (Histogram::default(), Histogram::default());
        [1, 5, 70].iter().for_each(|n| first.record(MILLI * *n));
        let before = first.now();
        [5, 9].iter().for_each(|n| first.record(MILLI * *n));
        [5, 9].iter().for_each(|n| second.record(MILLI * *n));
        let recent = first.now().since(&before);
        assert_eq!(recent.counts, second.now().counts);
        assert_eq!(recent.sum(), MILLI * 14);
        assert!(recent.longest() >= MILLI * 9 && recent.longest() <= MILLI * 10, "{recent:?}");
        let mut both = before;
        both.add(&second.now());
        assert_eq!(both, first.now());
        assert_eq!(both.since(&both.clone()).count(), 0);
    }

    #[test]
    fn the_bytes_of_durations_are_read_as_they_were_written_and_others_are_refused() {
        let histogram = Histogram::of_sample();
        [0, 3, 3, 999_999, u64::MAX].iter().for_each(|n| histogram.record(Duration::from_nanos(*n)));
        let mut bytes = Vec::new();
        histogram.now().encode(&mut bytes);
        let read = |bytes: &[u8]| {
            let mut d = Decoder::new(bytes, "file", 0);
            let found = Durations::decode(&mut d)?;
            d.finish()?;
            Ok::<_, crate::Error>(found)
        };
        assert_eq!(read(&bytes).unwrap(), Some(histogram.now()));
        assert_eq!(read(&[0]).unwrap(), None);
        assert!((0..bytes.len()).all(|len| read(&bytes[..len]).is_err()));
        let far = |at: &[u64]| {
            let mut bytes = Vec::new();
            [1 + at.len() as u64, 0, 0, 0].iter().for_each(|n| put_varint(&mut bytes, *n));
            at.iter().for_each(|at| [*at, 1].into_iter().for_each(|n| put_varint(&mut bytes, n)));
            read(&bytes)
        };
        assert_eq!(far(&[BUCKETS as u64 - 1]).unwrap().unwrap().count(), 1);
        assert!(far(&[BUCKETS as u64]).is_err() && far(&[BUCKETS as u64 - 1, 0]).is_err());
        assert!(far(&[u64::MAX, u64::MAX]).is_err());
    }
}
