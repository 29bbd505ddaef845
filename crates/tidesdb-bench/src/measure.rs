//! The clock and the histograms.
//!
//! Latencies are nanoseconds in HDR histograms with three significant digits, one per thread, merged at the end. A thread
//! reads the clock once at each boundary between operations: the end of one is the start of the next.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longer latencies are counted as this many nanoseconds: 1000 s.
const LONGEST: u64 = 1_000_000_000_000;
/// A thread that is early by more than this sleeps; it spins for the rest.
const NAP: Duration = Duration::from_micros(200);

/// Returns the current time.
#[inline]
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time; the engine keeps its own")]
pub fn now() -> Instant {
    Instant::now()
}

/// A histogram of nanoseconds.
#[derive(Clone, Debug)]
pub struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"))
    }
}

impl Recorder {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    /// Returns figures of the recorded latencies, or `None` if there are none.
    pub fn latency(&self) -> Option<Latency> {
        let h = &self.0;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (mean, deviation) = (h.mean() / 1e3, h.stdev() / 1e3);
        (!h.is_empty()).then(|| Latency {
            samples: h.len(),
            mean,
            deviation,
            variation: if mean > 0.0 { 100.0 * deviation / mean } else { 0.0 },
            min: micros(h.min()),
            p50: micros(h.value_at_quantile(0.5)),
            p95: micros(h.value_at_quantile(0.95)),
            p99: micros(h.value_at_quantile(0.99)),
            p999: micros(h.value_at_quantile(0.999)),
            max: micros(h.max()),
        })
    }
}

/// Latencies in microseconds; one sample per commit, whatever its batch, and per read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of samples.
    pub samples: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Deviation in percent of the mean.
    pub variation: f64,
    /// Minimum.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// Measures the operations of one thread, back to back or at a fixed rate.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    last: Instant,
    /// Open loop: the time between two starts, and how many operations were due so far. `None` in a closed loop.
    pace: Option<(Duration, u32)>,
    recorders: Vec<Recorder>,
}

impl Meter {
    /// Creates a recorder for `kinds` kinds of operations; `pace` is the time between starts in an open loop.
    pub fn new(kinds: usize, pace: Option<Duration>) -> Self {
        let start = now();
        let recorders = vec![Recorder::default(); kinds];
        Self { start, last: start, pace: pace.map(|every| (every, 0)), recorders }
    }

    /// Starts the first operation.
    pub fn begin(&mut self) {
        self.start = now();
        self.last = self.start;
    }

    /// Ends the operation that began at the last boundary and returns its latency. In an open loop the latency counts from when the
    /// operation was due, so that it includes waiting for an earlier slow operation. Then waits until the next
    /// operation is due.
    #[inline]
    pub fn lap(&mut self, kind: usize) -> Duration {
        let end = now();
        let latency = end - self.last;
        self.recorders[kind].record(latency);
        self.last = end;
        if self.pace.is_some() {
            self.wait(end);
        }
        latency
    }

    #[cold]
    fn wait(&mut self, mut present: Instant) {
        let Some((every, due)) = &mut self.pace else { return };
        *due += 1;
        let next = self.start + *every * *due;
        while present < next {
            let early = next - present;
            if early > NAP {
                std::thread::sleep(early - NAP / 2)
            } else {
                std::hint::spin_loop()
            }
            present = now();
        }
        self.last = next;
    }

    /// Returns the time from the beginning to the last boundary.
    #[inline]
    pub fn elapsed(&self) -> Duration {
        self.last - self.start
    }

    /// Returns the start, the end, and the recorded latencies.
    pub fn finish(self) -> (Instant, Instant, Vec<Recorder>) {
        (self.start, self.last, self.recorders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_known_distribution() {
        let mut halves = [Recorder::default(), Recorder::default()];
        for n in 1..=10_000u64 {
            halves[n as usize % 2].record(Duration::from_micros(n));
        }
        let [mut all, other] = halves;
        all.merge(&other);
        let latency = all.latency().unwrap();
        let near = |got: f64, want: f64| assert!((got - want).abs() <= want * 0.002, "{got}, not {want}");
        assert_eq!(latency.samples, 10_000);
        near(latency.mean, 5000.5);
        near(latency.deviation, 2886.75);
        near(latency.variation, 57.73);
        near(latency.p50, 5000.0);
        near(latency.p95, 9500.0);
        near(latency.p99, 9900.0);
        near(latency.p999, 9990.0);
        near(latency.max, 10_000.0);
        near(latency.min, 1.0);
        assert_eq!(Recorder::default().latency(), None);
    }

    #[test]
    fn an_open_loop_counts_the_wait_behind_a_slow_operation() {
        let every = Duration::from_millis(2);
        let mut meter = Meter::new(1, Some(every));
        for n in 0..10 {
            if n == 3 {
                std::thread::sleep(Duration::from_millis(11));
            }
            meter.lap(0);
        }
        let (_, _, recorders) = meter.finish();
        let latency = recorders[0].latency().unwrap();
        assert_eq!(latency.samples, 10);
        let delayed = recorders[0].0.count_between(2_000_000, LONGEST);
        assert!(delayed >= 4, "the operations due during the slow one must include their wait: {delayed}");
    }

    #[test]
    fn an_open_loop_keeps_its_rate() {
        let mut meter = Meter::new(1, Some(Duration::from_millis(1)));
        for _ in 0..50 {
            meter.lap(0);
        }
        assert!(meter.elapsed() >= Duration::from_millis(49), "{:?}", meter.elapsed());
    }
}
