//! The time that decides expiry: the wall clock, except that it never goes back while the database is open.
//!
//! A merge drops what has expired. If the time of a later reader were before the merge's, its answer would depend on
//! whether the merge has run. So if the wall clock is set back, time continues from the latest second seen, at the pace
//! of the monotonic clock, until the wall clock has caught up. The latest second is not stored: an open starts with the
//! wall clock again.
//!
//! All reads and puts use this clock. The lock is taken only when the second changes, and while the wall clock is
//! behind.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::Mutex;

/// The last second that the clock shows: an expiry after it would never come.
pub const SECOND_MAX: u32 = u32::MAX - 1;

/// Seconds since the UNIX epoch that never decrease.
#[derive(Debug, Default)]
pub struct ExpiryClock {
    /// The latest second read, times two; plus one while the wall clock is behind.
    state: AtomicU64,
    /// Set while the wall clock is behind.
    behind: Mutex<Option<Behind>>,
}

/// The second from which time continues, and the monotonic time at which it was reached.
#[derive(Clone, Copy, Debug)]
struct Behind {
    from: u32,
    since: Duration,
}

impl ExpiryClock {
    /// The latest second that was read.
    #[inline]
    pub fn seen(&self) -> u32 {
        // Relaxed is enough: a read of one atomic never returns a value older than one whose store happened before the
        // read.
        (self.state.load(Ordering::Relaxed) >> 1) as u32
    }

    /// Reads the clock.
    pub fn read(&self, clock: &dyn Clock) -> u32 {
        self.read_at(clock, clock.wall_secs())
    }

    /// Like [`ExpiryClock::read`], with the fraction of the second; without it while the wall clock is behind.
    pub fn read_exactly(&self, clock: &dyn Clock) -> Duration {
        let wall = clock.wall();
        let now = Duration::from_secs(self.read_at(clock, wall.as_secs()).into());
        if now.as_secs() == wall.as_secs() { wall } else { now }
    }

    /// Reads the clock, of which the wall clock shows `wall` seconds.
    fn read_at(&self, clock: &dyn Clock, wall: u64) -> u32 {
        let wall = u32::try_from(wall).unwrap_or(SECOND_MAX).min(SECOND_MAX);
        // Fast path: the wall clock is not behind, and the second has not changed.
        if self.state.load(Ordering::Relaxed) == u64::from(wall) << 1 {
            wall
        } else {
            self.go_on(clock, wall)
        }
    }

    #[cold]
    fn go_on(&self, clock: &dyn Clock, wall: u32) -> u32 {
        let mut behind = self.behind.lock();
        let seen = self.seen();
        if wall < seen && behind.is_none() {
            *behind = Some(Behind { from: seen, since: clock.mono() });
        }
        let ahead = behind.map_or(wall, |Behind { from, since }| {
            let passed = u32::try_from(clock.mono().saturating_sub(since).as_secs()).unwrap_or(u32::MAX);
            from.saturating_add(passed).min(SECOND_MAX)
        });
        if wall >= ahead {
            *behind = None;
        }
        let now = wall.max(ahead).max(seen);
        self.state.store(u64::from(now) << 1 | u64::from(behind.is_some()), Ordering::Relaxed);
        now
    }
}

#[cfg(test)]
mod tests {
    use tidesdb_io::ManualClock;

    use super::*;

    #[test]
    fn time_continues_when_the_wall_clock_is_set_back() {
        let (clock, expiry) = (ManualClock::new(1000), ExpiryClock::default());
        assert_eq!((expiry.seen(), expiry.read(&clock), expiry.seen()), (0, 1000, 1000));
        clock.set_wall_secs(400);
        assert_eq!(expiry.read(&clock), 1000);
        for (passed, now) in [(3, 1003), (0, 1003), (7, 1010)] {
            clock.advance(Duration::from_secs(passed));
            assert_eq!(expiry.read(&clock), now);
        }
        clock.set_wall_secs(5); // again
        clock.advance(Duration::from_secs(10));
        assert_eq!(expiry.read(&clock), 1020);
        clock.set_wall_secs(1015);
        clock.advance(Duration::from_secs(10)); // past the latest second seen, but still behind
        assert_eq!(expiry.read(&clock), 1030);
        for (wall, now) in [(1029, 1030), (1030, 1030), (1031, 1031), (1030, 1031), (5000, 5000)] {
            clock.set_wall_secs(wall);
            assert_eq!(expiry.read(&clock), now, "{wall}");
        }
    }

    #[test]
    fn time_saturates_below_the_largest_value() {
        let (clock, expiry) = (ManualClock::new(u64::MAX), ExpiryClock::default());
        assert_eq!(expiry.read(&clock), u32::MAX - 1);
        clock.set_wall_secs(7);
        expiry.read(&clock);
        clock.advance(Duration::from_secs(100));
        assert_eq!(expiry.read(&clock), u32::MAX - 1);
    }

    #[test]
    fn threads_never_see_time_go_back() {
        let (clock, expiry) = (ManualClock::new(1000), ExpiryClock::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20_000u64 {
                    clock.set_wall_secs(1000 + n * 7919 % 500 + n / 100);
                    clock.advance(Duration::from_millis(10));
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
