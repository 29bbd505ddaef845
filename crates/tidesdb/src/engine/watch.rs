//! Turns counters of the write path into events: stalls, slow syncs, changes of health.
//!
//! Commits only count. The timekeeper looks at the counters every few milliseconds, so a stall is two events however many
//! commits it delays.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use crate::events::Event;
use crate::health::HealthState;
use crate::pacing::DelayStats;

/// A stall has ended when no commit was delayed for this long.
const CALM: Duration = Duration::from_secs(1);
/// Minimum time between two events for slow syncs, and between two looks at the health.
const PERIOD: Duration = Duration::from_secs(1);

/// What the last look saw.
#[derive(Debug, Default)]
pub struct Watch {
    by_memtables: Stall,
    by_tables: Stall,
    by_memory: Stall,
    by_values: Stall,
    state: HealthState,
    causes: Vec<String>,
    next: Duration,
}

/// Delays of one cause.
#[derive(Debug, Default)]
struct Stall {
    /// When it began, and the counts before it; `None` while there is no stall.
    began: Option<(Duration, Counts)>,
    /// When a commit was last seen delayed.
    last: Duration,
    seen: Counts,
}

/// Counts of [`DelayStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    slowed: u64,
    stopped: u64,
    gave_up: u64,
    time: Duration,
}

impl Counts {
    fn of(delays: &DelayStats) -> Self {
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        let (slowed, stopped, gave_up) = (get(&delays.slowed), get(&delays.stopped), get(&delays.gave_up));
        Self { slowed, stopped, gave_up, time: delays.times.now().sum() }
    }
}

/// Begin or end of a stall.
enum Change {
    Begin,
    End(Event),
}

impl Stall {
    /// Looks once. `ends`: a stall ends now, because the database is closed.
    fn look(
        &mut self,
        cause: &'static str,
        delays: &DelayStats,
        now: Duration,
        ends: bool,
    ) -> Option<Change> {
        let counts = Counts::of(delays);
        if counts != self.seen || delays.delayed_now.load(Ordering::Relaxed) > 0 {
            let before = std::mem::replace(&mut self.seen, counts);
            self.last = now;
            if self.began.is_none() {
                self.began = Some((now, before));
                return Some(Change::Begin);
            }
        }
        let is_over = ends || now.saturating_sub(self.last) >= CALM;
        let (began, before) = self.began.take_if(|_| is_over)?;
        Some(Change::End(Event::StallEnd {
            cause,
            seconds: self.last.saturating_sub(began),
            delayed: counts.slowed - before.slowed,
            stopped: counts.stopped - before.stopped,
            gave_up: counts.gave_up - before.gave_up,
            delay_seconds: counts.time.saturating_sub(before.time),
            longest: delays.times.take_longest(),
        }))
    }
}

impl Shared {
    /// Records what changed since the last call. `ends`: this is the last call.
    pub fn observe(&self, ends: bool) {
        let now = self.write.env.clock.mono();
        let debt = &self.write.debt;
        let mut watch = self.watch.lock();
        let stalls = [
            ("memtables", watch.by_memtables.look("memtables", &debt.by_memtables, now, ends)),
            ("tables", watch.by_tables.look("tables", &debt.by_tables, now, ends)),
            ("memory", watch.by_memory.look("memory", &debt.by_memory, now, ends)),
            ("values", watch.by_values.look("values", &debt.by_values, now, ends)),
        ];
        for (cause, change) in stalls.into_iter().filter_map(|(cause, change)| Some((cause, change?))) {
            self.write.events.record(&match change {
                Change::End(event) => event,
                Change::Begin => Event::StallBegin {
                    cause,
                    memtable_bytes: debt.immutable_bytes.load(Ordering::Relaxed),
                    jobs: self.write.jobs.pending() as u64,
                },
            });
        }
        let is_new_failure = watch.state != HealthState::Poisoned && self.write.health.is_poisoned();
        if now < watch.next && !ends && !is_new_failure {
            return;
        }
        watch.next = now + PERIOD;
        let syncs = self.write.log.take_slow_syncs();
        if syncs.count > 0 {
            self.write.events.record(&Event::SlowSync { syncs: syncs.count, longest: syncs.longest });
        }
        let health = self.health();
        if (health.state, &health.causes) != (watch.state, &watch.causes) {
            (watch.state, watch.causes) = (health.state, health.causes.clone());
            self.write.events.record(&Event::Health { state: health.state.name(), causes: health.causes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stall_lasts_while_a_commit_is_delayed_and_ends_after_a_calm_second() {
        let (mut stall, delays) = (Stall::default(), DelayStats::default());
        let mut look = |at: u32| stall.look("tables", &delays, SECOND * at / 2, false);
        assert!(look(1).is_none());
        delays.stopped.fetch_add(1, Ordering::Relaxed);
        delays.delayed_now.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(look(2), Some(Change::Begin)));
        assert!((3..20).all(|at| look(at).is_none()), "the commit still waits");
        delays.delayed_now.fetch_sub(1, Ordering::Relaxed);
        delays.times.record(SECOND * 9);
        assert!(look(20).is_none() && look(21).is_none());
        let Some(Change::End(end)) = look(22) else { panic!("a calm second has passed") };
        let (seconds, delay_seconds, longest) = (SECOND * 9, SECOND * 9, SECOND * 9);
        let (delayed, stopped, gave_up) = (0, 1, 0);
        let wanted =
            Event::StallEnd { cause: "tables", seconds, delayed, stopped, gave_up, delay_seconds, longest };
        assert_eq!(end, wanted);
        assert!((23..30).all(|at| look(at).is_none()));
        delays.slowed.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(look(30), Some(Change::Begin)), "the next stall");
    }

    #[test]
    fn the_last_look_ends_a_stall() {
        let (mut stall, delays) = (Stall::default(), DelayStats::default());
        delays.slowed.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(stall.look("tables", &delays, SECOND, false), Some(Change::Begin)));
        assert!(matches!(stall.look("tables", &delays, SECOND, true), Some(Change::End(_))));
    }
}
