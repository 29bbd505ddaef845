//! What commits wait for, by cause, and for how long.
//!
//! Commits that wait for flushes, merges, collections or memory are delayed on purpose: see [`crate::pacing`]. The other causes are counted
//! after the fact, if the wait took a millisecond or longer. A commit that does not wait writes nothing here. A sync that the mode of a
//! commit asks for is not counted: the statistics have the times of syncs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;

use crate::stats::{Durations, Histogram, statistics};

/// Shorter waits for the log, the device or a lock are not counted.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Why a writer is delayed. `docs/concepts/pacing.md` says what to do about each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// Memtables wait for their flush.
    Memtables,
    /// Merges of the tables of a family are due.
    Tables,
    /// Memory is scarce.
    Memory,
    /// The value logs of a family hold much garbage.
    Values,
    /// The log has no blocks, or no file, for the record yet.
    Log,
    /// The system takes long to accept the bytes of the record: the device is busy, or too much is not written back yet.
    Device,
    /// Another commit holds the order of commits, or has not finished.
    Lock,
}

impl StallCause {
    /// All causes.
    pub const ALL: [Self; 7] =
        [Self::Memtables, Self::Tables, Self::Memory, Self::Values, Self::Log, Self::Device, Self::Lock];

    /// Those for which writers are delayed on purpose: see [`crate::pacing`].
    pub(crate) const PACED: [Self; 4] = [Self::Memtables, Self::Tables, Self::Memory, Self::Values];

    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        ["memtables", "tables", "memory", "values", "log", "device", "lock"][self as usize]
    }

    /// Returns what the error of a writer says that waited too long.
    pub(crate) fn why_busy(self) -> &'static str {
        match self {
            Self::Memory => {
                "memory: transactions, iterators, memtables or keys of tables hold all of memory_limit; see the statistics"
            }
            _ => "flushes and merges make no progress; the logged warnings say why",
        }
    }
}

/// What the commits of a database wait for.
#[derive(Debug, Default)]
pub struct Waits([Delays; StallCause::ALL.len()]);

impl Waits {
    /// Waits for `cause`.
    pub fn of(&self, cause: StallCause) -> &Delays {
        &self.0[cause as usize]
    }

    /// Returns true if a commit is delayed at the moment.
    pub fn any_now(&self) -> bool {
        self.0.iter().any(|delays| delays.running.count() > 0)
    }
}

/// How writers were delayed for one cause. Only commits that are delayed write to it.
#[derive(Debug, Default)]
pub struct Delays {
    /// All of them.
    pub times: Histogram,
    /// Commits that were slowed down.
    pub slowed: AtomicU64,
    /// Commits that were stopped.
    pub stopped: AtomicU64,
    /// Commits that failed after they were stopped.
    pub gave_up: AtomicU64,
    /// Delays of this moment.
    running: Running,
}

/// Delays that have not ended: their number, in the lowest 16 bits, and the sum of the milliseconds at which they began. One word, so that
/// both are of one moment. The sum may overflow: what is asked for is its difference to as many times now.
#[derive(Debug, Default)]
struct Running(AtomicU64);

impl Running {
    const COUNT_BITS: u32 = 16;

    /// Adds a delay that begins at `now`. Returns what [`Running::end`] takes off.
    fn begin(&self, now: Duration) -> u64 {
        let one = ((now.as_nanos().div_ceil(1_000_000) as u64) << Self::COUNT_BITS) | 1;
        self.0.fetch_add(one, Ordering::Relaxed);
        one
    }

    fn end(&self, one: u64) {
        self.0.fetch_sub(one, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & ((1 << Self::COUNT_BITS) - 1)
    }

    /// How long they have lasted at `now`, summed, to the millisecond.
    fn time(&self, now: Duration) -> Duration {
        let word = self.0.load(Ordering::Relaxed);
        let count = word & ((1 << Self::COUNT_BITS) - 1);
        let all = count.wrapping_mul(now.as_millis() as u64).wrapping_sub(word >> Self::COUNT_BITS);
        let millis = (all << Self::COUNT_BITS).cast_signed() >> Self::COUNT_BITS; // one that has just begun may be a millisecond ahead
        Duration::from_millis(millis.max(0).cast_unsigned())
    }
}

impl Delays {
    /// Runs `wait`, which delays a commit from `now` on, and records how long it took.
    pub fn measure<R>(&self, clock: &dyn Clock, now: Duration, wait: impl FnOnce() -> R) -> R {
        let one = self.running.begin(now);
        let result = wait();
        self.times.record(clock.mono().saturating_sub(now));
        self.running.end(one);
        result
    }

    /// A delay that begins `now` and lasts until [`Delays::release`].
    #[cfg(test)]
    pub fn hold(&self, now: Duration) -> u64 {
        self.running.begin(now)
    }

    /// Ends what [`Delays::hold`] began.
    #[cfg(test)]
    pub fn release(&self, one: u64) {
        self.running.end(one);
    }

    /// Runs `work`, for which a commit waits. Records how long it took, if that was not short.
    #[inline]
    pub fn time<R>(&self, clock: &dyn Clock, work: impl FnOnce() -> R) -> R {
        let started = clock.mono();
        let result = work();
        self.note(clock.mono().saturating_sub(started));
        result
    }

    /// Records a wait of a commit that has ended, if it was not short.
    #[inline]
    pub fn note(&self, took: Duration) {
        if took >= WAIT_MIN {
            self.times.record(took);
            self.stopped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the longest delay since the previous call.
    pub fn take_longest(&self) -> Duration {
        self.times.take_longest()
    }

    /// Returns the figures at this moment, `now`.
    pub fn stats(&self, now: Duration) -> StallStats {
        let running = self.running.time(now);
        StallStats::of(&Seen { counts: self.counts(), running, delays: self.times.now() })
    }

    /// Returns the counts at this moment.
    pub fn counts(&self) -> DelayCounts {
        let [slowed, stopped, gave_up] =
            [&self.slowed, &self.stopped, &self.gave_up].map(|n| n.load(Ordering::Relaxed));
        DelayCounts { slowed, stopped, gave_up, now: self.running.count(), time: self.times.sum() }
    }
}

/// How many commits were delayed for one cause, and for how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayCounts {
    /// See [`Delays::slowed`].
    pub slowed: u64,
    /// See [`Delays::stopped`].
    pub stopped: u64,
    /// See [`Delays::gave_up`].
    pub gave_up: u64,
    /// Commits that are delayed at the moment.
    pub now: u64,
    /// Total time of the delays that have ended, summed over all threads.
    pub time: Duration,
}

struct Seen {
    counts: DelayCounts,
    running: Duration,
    delays: Durations,
}

statistics! {
    /// Delays of writers for one cause since the open.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    StallStats of seen: &Seen;

    plain {
        "All delays." delays: Durations = seen.delays.clone();
    }
    figures {
        Counter Seconds time: Duration = seen.delays.sum().saturating_add(seen.running),
            "Total time, summed over all threads, that of this moment's delays included.";
        Counter Count slowed: u64 = seen.counts.slowed,
            "Commits that were slowed down.";
        Counter Count stopped: u64 = seen.counts.stopped,
            "Commits that were stopped.";
        Counter Count gave_up: u64 = seen.counts.gave_up,
            "Commits that failed with `Busy` after they were stopped.";
        Gauge Count delayed_now: u64 = seen.counts.now,
            "Commits that are delayed at the moment.";
        Gauge Seconds p50: Duration = seen.delays.percentile(0.5),
            "Half of the delays are no longer than this.";
        Gauge Seconds p99: Duration = seen.delays.percentile(0.99),
            "99 % of the delays are no longer than this.";
        Gauge Seconds p999: Duration = seen.delays.percentile(0.999),
            "99.9 % of the delays are no longer than this.";
        Gauge Seconds longest: Duration = seen.delays.longest(),
            "The longest delay.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_delay_grows_while_it_lasts() {
        let (running, at) = (Running::default(), Duration::from_millis);
        assert_eq!((running.count(), running.time(at(5))), (0, Duration::ZERO));
        let first = running.begin(at(1000));
        let second = running.begin(Duration::from_micros(1_500_500));
        assert_eq!(
            (running.count(), running.time(at(1000))),
            (2, Duration::ZERO),
            "the second has not begun"
        );
        assert_eq!(running.time(at(3000)), at(2000 + 1499));
        running.end(first);
        assert_eq!((running.count(), running.time(at(3000))), (1, at(1499)));
        running.end(second);
        assert_eq!((running.count(), running.time(at(9000))), (0, Duration::ZERO));
        // Many of them, at a time for whose sum there is no room.
        let late = Duration::from_secs(1 << 37);
        let all: Vec<u64> = (0..5000).map(|_| running.begin(late)).collect();
        assert_eq!(running.time(late + at(7)), at(35_000));
        all.into_iter().for_each(|one| running.end(one));
        assert_eq!(running.count(), 0);
    }
}
