//! Pacing of writers: all commits that must be delayed share one schedule.
//!
//! The generic cell rate algorithm in its form of virtual scheduling (ITU-T I.371, annex A): `next` is the time at which the next commit may
//! start. A commit moves it by its cost and waits until then. So the rate of all writers together is bounded, whatever their number and
//! the size of their commits: a delay that is too short for a sleep stays in the schedule, and a later commit waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The schedule of delayed work.
#[derive(Debug, Default)]
pub struct Pace {
    /// Nanoseconds of the monotonic clock.
    next: AtomicU64,
}

impl Pace {
    /// Adds work that costs so many seconds to the schedule at time `now`. Returns how long the work has to wait. The schedule is at most `lead`
    /// ahead of the clock.
    pub fn reserve(&self, now: Duration, seconds: f64, lead: Duration) -> Duration {
        let cost = Duration::from_secs_f64(seconds.min(lead.as_secs_f64()));
        let [now, cost, lead] = [now, cost, lead].map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
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
    const LEAD: Duration = Duration::from_secs(1);

    #[test]
    fn short_delays_add_up() {
        let pace = Pace::default();
        let waits: Vec<_> = (0..4).map(|_| pace.reserve(MICRO * 100, 3e-6, LEAD)).collect();
        assert_eq!(waits, [3, 6, 9, 12].map(|n| MICRO * n));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let pace = Pace::default();
        pace.reserve(MICRO, 1e-5, LEAD);
        assert_eq!(pace.reserve(MICRO * 1000, 1e-5, LEAD), MICRO * 10);
    }

    #[test]
    fn the_schedule_stays_near_the_clock() {
        let pace = Pace::default();
        assert_eq!(pace.reserve(MICRO, f64::INFINITY, LEAD), LEAD);
        assert_eq!(pace.reserve(MICRO, f64::INFINITY, LEAD), LEAD);
    }
}
