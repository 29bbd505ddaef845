//! Clock and latency histograms.
//!
//! Latencies are nanoseconds in HDR histograms with three significant digits, one per thread, merged at the end. A
//! thread reads the clock once per operation: the end of one operation is the start of the next.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Maximum recorded latency in nanoseconds: 1000 s. Longer latencies count as this.
const LONGEST: u64 = 1_000_000_000_000;
/// A thread that is early by more than this sleeps; a shorter time it spins. Spinning takes a processor from the engine, so it is
/// kept short: the time by which a sleep is too long, usually a few microseconds, is included in the latency.
const SPIN: Duration = Duration::from_micros(10);

/// Returns the current time.
#[inline]
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time; the engine keeps its own")]
pub fn now() -> Instant {
    Instant::now()
}

/// Makes sleeps of the calling thread end on time. By default, Linux lets them take 50 us longer (`PR_SET_TIMERSLACK`).
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)); // without it they end late
}

/// Histogram of nanoseconds.
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

    /// Adds the records of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    /// Returns the statistics, or `None` if nothing was recorded.
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
            p9999: micros(h.value_at_quantile(0.9999)),
            slow: slow_seconds(h),
            max: micros(h.max()),
        })
    }
}

/// Operations from this latency on are slow.
pub const SLOW: Duration = Duration::from_millis(1);

/// Returns the seconds of all slow operations.
fn slow_seconds(h: &Histogram<u64>) -> f64 {
    let slow = h.iter_recorded().filter(|step| Duration::from_nanos(step.value_iterated_to()) >= SLOW);
    slow.map(|step| step.value_iterated_to() as f64 * 1e-9 * step.count_at_value() as f64).sum()
}

/// Latencies in microseconds. There is one sample per commit, whatever its batch size, and one per read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of samples.
    pub samples: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Standard deviation in percent of the mean.
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
    /// 99.99th percentile.
    #[serde(default)]
    pub p9999: f64,
    /// Seconds of all samples of 1 ms and more.
    #[serde(default)]
    pub slow: f64,
    /// Maximum.
    pub max: f64,
}

/// Measures the operations of one thread, back to back or at a fixed rate.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    /// When the current operation was due.
    last: Instant,
    /// When the current operation began; in an open loop this may be later.
    began: Instant,
    /// Closed loop: `None`.
    pace: Option<Pace>,
    recorders: Vec<Recorder>,
}

/// Schedule of an open loop.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Time between two starts.
    every: Duration,
    /// Start of the schedule.
    from: Instant,
    /// Number of starts that were due so far.
    due: u32,
}

impl Meter {
    /// Creates a meter for `kinds` kinds of operations; `pace` is the time between starts in an open loop.
    pub fn new(kinds: usize, pace: Option<Duration>) -> Self {
        let start = now();
        let recorders = vec![Recorder::default(); kinds];
        let pace = pace.map(|every| Pace { every, from: start, due: 0 });
        Self { start, last: start, began: start, pace, recorders }
    }

    /// Starts the clock of the first operation, which the calling thread issues.
    pub fn begin(&mut self) {
        if self.pace.is_some() {
            sleep_precisely();
        }
        self.resume();
        self.start = self.last;
    }

    /// Excludes the time since the last operation. The next operation begins now.
    pub fn resume(&mut self) {
        let present = now();
        (self.last, self.began) = (present, present);
        if let Some(pace) = &mut self.pace {
            (pace.from, pace.due) = (present, 0);
        }
    }

    /// Begins an open loop with this time between starts, for operations of the calling thread.
    pub fn keep_pace(&mut self, every: Duration) {
        self.pace = Some(Pace { every, from: self.start, due: 0 });
        sleep_precisely();
        self.resume();
    }

    /// Ends the operation that started at the last boundary, records its latency and returns it. In an open loop the
    /// latency is measured from when the operation was due, so waiting for a slow predecessor is part of it. Then
    /// waits until the next operation is due.
    #[inline]
    pub fn lap(&mut self, kind: usize) -> Duration {
        let end = now();
        let latency = end - self.last;
        self.recorders[kind].record(latency);
        self.end(end);
        latency
    }

    /// Ends the operation like [`Meter::lap`], but records the time from when the operation began: without waiting for
    /// a slow predecessor. Returns that time, and the time since the operation was due.
    #[inline]
    pub fn lap_served(&mut self, kind: usize) -> (Duration, Duration) {
        let end = now();
        let (served, since_due) = (end - self.began, end - self.last);
        self.recorders[kind].record(served);
        self.end(end);
        (served, since_due)
    }

    #[inline]
    fn end(&mut self, end: Instant) {
        (self.last, self.began) = (end, end);
        if self.pace.is_some() {
            self.wait(end);
        }
    }

    #[cold]
    fn wait(&mut self, mut present: Instant) {
        let Some(pace) = &mut self.pace else { return };
        pace.due += 1;
        let next = pace.from + pace.every * pace.due;
        while present < next {
            let early = next - present;
            if early > SPIN {
                std::thread::sleep(early - SPIN / 2)
            } else {
                std::hint::spin_loop()
            }
            present = now();
        }
        (self.last, self.began) = (next, present);
    }

    /// Returns the time from the start until the current operation began.
    #[inline]
    pub fn elapsed(&self) -> Duration {
        self.began - self.start
    }

    /// Returns the start, the end and the recorded latencies.
    pub fn finish(self) -> (Instant, Instant, Vec<Recorder>) {
        (self.start, self.began, self.recorders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_known_distribution_are_right() {
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
    fn an_open_loop_counts_the_wait_for_a_slow_operation() {
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
        assert!(delayed >= 4, "the operations due during the slow one waited too: {delayed}");
    }

    /// Measures ten operations, of which one takes 11 ms. Returns how many took 5 ms or more.
    fn slow_operations_of_ten() -> u64 {
        let mut meter = Meter::new(1, None);
        meter.begin();
        meter.keep_pace(Duration::from_millis(2));
        let mut since_due = Recorder::default();
        for n in 0..10 {
            if n == 3 {
                std::thread::sleep(Duration::from_millis(11));
            }
            let (served, since) = meter.lap_served(0);
            assert!(served <= since);
            since_due.record(since);
        }
        assert!(since_due.0.count_between(2_000_000, LONGEST) >= 4);
        assert!(meter.elapsed() >= Duration::from_millis(18), "{:?}", meter.elapsed());
        let (_, _, recorders) = meter.finish();
        recorders[0].0.count_between(5_000_000, LONGEST)
    }

    #[test]
    fn the_service_time_excludes_the_wait_for_a_slow_operation() {
        // On a busy machine others may take long, too, but not each time.
        let counts: Vec<u64> = (0..500).map(|_| slow_operations_of_ten()).take_while(|n| *n != 1).collect();
        assert!(counts.len() < 500 && !counts.contains(&0), "only the slow operation: {counts:?}");
    }

    #[test]
    fn an_open_loop_that_is_late_counts_the_time_that_it_took() {
        let mut meter = Meter::new(1, Some(Duration::from_micros(10)));
        meter.begin();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(2));
            meter.lap(0);
        }
        assert!(meter.elapsed() >= Duration::from_millis(6), "{:?}", meter.elapsed());
        let (start, end, _) = meter.finish();
        assert!(end - start >= Duration::from_millis(6));
    }

    #[test]
    fn an_open_loop_keeps_its_rate() {
        let mut meter = Meter::new(1, Some(Duration::from_millis(1)));
        for _ in 0..50 {
            meter.lap(0);
        }
        assert!(meter.elapsed() >= Duration::from_millis(49), "{:?}", meter.elapsed());
    }

    /// A thread that spun until its next operation would take a whole processor from the engine.
    #[test]
    #[cfg(target_os = "linux")]
    fn an_open_loop_sleeps_between_its_operations() {
        let used = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let every = Duration::from_micros(200);
        let mut meter = Meter::new(1, Some(every));
        meter.begin();
        let before = used();
        for _ in 0..1000 {
            meter.lap(0);
        }
        let (used, elapsed) = (used() - before, meter.elapsed());
        assert!(elapsed >= every * 999, "{elapsed:?}");
        assert!(used * 2 < elapsed, "{used:?} of processor time in {elapsed:?}");
    }
}
