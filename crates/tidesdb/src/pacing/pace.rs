//! Pacing of writers: all commits that must be delayed share one schedule.
//!
//! The generic cell rate algorithm in its form of virtual scheduling (ITU-T I.371, annex A): `next` is the time at which the next commit may
//! start. A commit moves it by its cost and waits until then. So the rate of all writers together is bounded, whatever their number and
//! the size of their commits: a delay that is too short for a sleep stays in the schedule, and a later commit pays it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The schedule of commits is at most this far ahead of the clock.
const LEAD_MAX: Duration = Duration::from_secs(1);

/// The schedule of delayed work.
#[derive(Debug, Default)]
pub struct Pace {
    /// Nanoseconds of the monotonic clock.
    next: AtomicU64,
}

impl Pace {
    /// Adds a commit that costs `cost` to the schedule at time `now`. Returns how long the commit has to wait.
    pub fn reserve(&self, now: Duration, cost: Duration) -> Duration {
        self.reserve_up_to(now, cost, LEAD_MAX)
    }

    /// Like [`Pace::reserve`]; the schedule is at most `lead` ahead of the clock.
    pub fn reserve_up_to(&self, now: Duration, cost: Duration, lead: Duration) -> Duration {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (now, cost, lead) = (nanos(now), nanos(cost), nanos(lead));
        let after = |next: u64| next.max(now).saturating_add(cost).min(now.saturating_add(lead));
        let before = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(after(next)));
        let turn = after(before.unwrap_or_else(|next| next));
        Duration::from_nanos(turn - now)
    }

    /// Empties the schedule.
    pub fn forget(&self) {
        self.next.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn short_delays_add_up() {
        let pace = Pace::default();
        let waits: Vec<_> = (0..4).map(|_| pace.reserve(MICRO * 100, MICRO * 3)).collect();
        assert_eq!(waits, [3, 6, 9, 12].map(|n| MICRO * n));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let pace = Pace::default();
        pace.reserve(MICRO, MICRO * 10);
        assert_eq!(pace.reserve(MICRO * 1000, MICRO * 10), MICRO * 10);
    }

    #[test]
    fn the_schedule_stays_near_the_clock() {
        let pace = Pace::default();
        assert_eq!(pace.reserve(MICRO, Duration::MAX), LEAD_MAX);
        assert_eq!(pace.reserve(MICRO, Duration::MAX), LEAD_MAX);
    }
}
