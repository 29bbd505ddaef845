//! The time that decides expiry: the wall clock, except that it never goes back while the database is open.
//!
//! A merge drops what has expired. If the time of a later reader were before the merge's, its answer would depend on
//! whether the merge has run. So if the wall clock is set back, time continues from the latest one seen, at the pace
//! of the monotonic clock, until the wall clock has caught up. The latest time is not stored: an open starts with the
//! wall clock again.
//!
//! All reads and puts use this clock. The lock is taken only if the wall clock is behind: when it was set back, or if another thread
//! read a later time meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::Mutex;

use crate::types::EXPIRY_MAX;

/// The last time that the clock shows: an expiry after it would never be reached.
const TIME_MAX: u64 = EXPIRY_MAX;

/// Milliseconds since the UNIX epoch that never decrease.
#[derive(Debug, Default)]
pub struct ExpiryClock {
    /// The latest time read, times two; plus one while the wall clock is behind.
    state: AtomicU64,
    /// Set while the wall clock is behind.
    behind: Mutex<Option<Behind>>,
}

/// The time from which time continues, and the monotonic time at which it was reached.
#[derive(Clone, Copy, Debug)]
struct Behind {
    from: Duration,
    since: Duration,
}

impl ExpiryClock {
    /// The latest time that was read.
    #[inline]
    pub fn seen(&self) -> u64 {
        // Relaxed is enough: a read of one atomic never returns a value older than one whose store happened before the
        // read.
        self.state.load(Ordering::Relaxed) >> 1
    }

    /// Reads the clock.
    pub fn read(&self, clock: &dyn Clock) -> u64 {
        millis(self.read_exactly(clock))
    }

    /// Like [`ExpiryClock::read`], with the fraction of the millisecond.
    pub fn read_exactly(&self, clock: &dyn Clock) -> Duration {
        let wall = clock.wall();
        let (state, now) = (self.state.load(Ordering::Relaxed), millis(wall));
        let is_ahead = state & 1 == 0 && now >= state >> 1;
        if is_ahead && (state == now << 1 || self.swap(state, now << 1)) { wall } else { self.go_on(clock) }
    }

    fn swap(&self, state: u64, next: u64) -> bool {
        self.state.compare_exchange(state, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn go_on(&self, clock: &dyn Clock) -> Duration {
        let mut behind = self.behind.lock();
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let (seen, wall) = (Duration::from_millis(state >> 1), clock.wall());
            let known = behind.filter(|_| state & 1 == 1);
            let behind_now =
                known.or_else(|| (wall < seen).then(|| Behind { from: seen, since: clock.mono() }));
            let ahead = behind_now.map_or(wall, |Behind { from, since }| {
                from.saturating_add(clock.mono().saturating_sub(since))
            });
            let now = wall.max(ahead).max(seen);
            let behind_now = behind_now.filter(|_| wall < ahead);
            if self.swap(state, millis(now) << 1 | u64::from(behind_now.is_some())) {
                *behind = behind_now;
                return now;
            }
        }
    }
}

/// Returns `time` in milliseconds, rounded down, at most [`TIME_MAX`].
fn millis(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1000);
    seconds.saturating_add(time.subsec_millis().into()).min(TIME_MAX)
}

#[cfg(test)]
mod tests {
    use tidesdb_io::ManualClock;

    use super::*;
    use crate::types::{expiry_after, has_passed};

    #[test]
    fn time_continues_when_the_wall_clock_is_set_back() {
        let (clock, expiry) = (ManualClock::new(1000), ExpiryClock::default());
        assert_eq!((expiry.seen(), expiry.read(&clock), expiry.seen()), (0, 1_000_000, 1_000_000));
        clock.set_wall_secs(400);
        assert_eq!(expiry.read(&clock), 1_000_000);
        for (passed, now) in [(3000, 1_003_000), (0, 1_003_000), (7001, 1_010_001)] {
            clock.advance(Duration::from_millis(passed));
            assert_eq!(expiry.read(&clock), now);
        }
        clock.set_wall_secs(5); // again
        clock.advance(Duration::from_secs(10));
        assert_eq!(expiry.read(&clock), 1_020_001);
        clock.set_wall_secs(1015);
        clock.advance(Duration::from_secs(10)); // past the latest time seen, but still behind
        assert_eq!(expiry.read(&clock), 1_030_001);
        for (wall, now) in [
            (1_030_000, 1_030_001),
            (1_030_001, 1_030_001),
            (1_030_002, 1_030_002),
            (1_030_001, 1_030_002),
            (5_000_000, 5_000_000),
        ] {
            clock.set_wall(Duration::from_millis(wall));
            assert_eq!(expiry.read(&clock), now, "{wall}");
        }
    }

    #[test]
    fn time_saturates_at_the_largest_value() {
        let (clock, expiry) = (ManualClock::new(u64::MAX), ExpiryClock::default());
        assert_eq!(expiry.read(&clock), TIME_MAX);
        clock.set_wall_secs(7);
        expiry.read(&clock);
        clock.advance(Duration::from_secs(100));
        assert_eq!(expiry.read(&clock), TIME_MAX);
    }

    #[test]
    fn the_exact_time_has_the_fraction_of_the_wall_clock() {
        let (clock, expiry) = (ManualClock::new(0), ExpiryClock::default());
        let time = Duration::new(1000, 123_456_789);
        clock.set_wall(time);
        assert_eq!((expiry.read_exactly(&clock), expiry.seen()), (time, 1_000_123));
    }

    #[test]
    fn a_ttl_does_not_end_early_while_the_wall_clock_is_behind() {
        let (clock, expiry) = (ManualClock::new(0), ExpiryClock::default());
        let time = Duration::new(1000, 123_456_789);
        clock.set_wall(time);
        expiry.read(&clock);
        clock.set_wall(time - Duration::from_secs(1));
        expiry.read(&clock);
        clock.advance(Duration::from_micros(900));
        let end = expiry_after(expiry.read_exactly(&clock), Duration::from_millis(1)).unwrap();
        clock.advance(Duration::from_micros(999));
        assert!(!has_passed(end, expiry.read(&clock)), "a millisecond has not passed");
        clock.advance(Duration::from_micros(1001));
        assert!(has_passed(end, expiry.read(&clock)), "a TTL lasts for a millisecond too long at most");
    }

    #[test]
    fn threads_never_see_time_go_back() {
        let (clock, expiry) = (ManualClock::new(1000), ExpiryClock::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20_000u64 {
                    clock.set_wall(Duration::from_millis(1000 + n * 7919 % 500 + n / 10));
                    clock.advance(Duration::from_millis(n % 2));
                }
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..20_000 {
                        let now = expiry.read(&clock);
                        assert!(now >= last && expiry.seen() >= now);
                        last = now;
                    }
                });
            }
        });
    }
}
