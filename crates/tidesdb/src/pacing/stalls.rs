//! Stalls of writers as events.

use std::time::Duration;

use crate::events::Event;
use crate::waits::{DelayCounts, Delays, StallCause};

/// A stall has ended when no commit was delayed for this long.
const CALM: Duration = Duration::from_secs(1);

/// Finds the stalls for one cause. A stall is one event, however many commits it delays. The timekeeper calls this every few milliseconds.
#[derive(Debug, Default)]
pub struct Stall {
    /// When it began, and the figures before it; `None` while there is no stall.
    began: Option<(Duration, DelayCounts)>,
    /// When a commit was last seen delayed.
    last: Duration,
    seen: DelayCounts,
}

impl Stall {
    /// Checks once. If a stall has begun, returns the event that `begin` makes; if one has ended, returns the event of its end. With `ends`, a
    /// stall ends now, because the database is closed.
    pub fn look(
        &mut self,
        cause: StallCause,
        delays: &Delays,
        now: Duration,
        ends: bool,
        begin: impl FnOnce() -> Event,
    ) -> Option<Event> {
        let counts = delays.counts();
        if counts != self.seen || counts.now > 0 {
            let before = std::mem::replace(&mut self.seen, counts);
            self.last = now;
            if self.began.is_none() {
                self.began = Some((now, before));
                return Some(begin());
            }
        }
        let is_over = ends || now.saturating_sub(self.last) >= CALM;
        let (began, before) = self.began.take_if(|_| is_over)?;
        Some(Event::StallEnd {
            cause: cause.name(),
            seconds: self.last.saturating_sub(began),
            delayed: counts.slowed - before.slowed,
            stopped: counts.stopped - before.stopped,
            gave_up: counts.gave_up - before.gave_up,
            delay_seconds: counts.time.saturating_sub(before.time),
            longest: delays.take_longest(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn look(stall: &mut Stall, delays: &Delays, now: Duration, ends: bool) -> Option<Event> {
        let begin = || Event::StallBegin { cause: "tables", memtable_bytes: 0, jobs: 0 };
        stall.look(StallCause::Tables, delays, now, ends, begin)
    }

    #[test]
    fn a_stall_lasts_while_a_commit_is_delayed_and_ends_after_a_calm_second() {
        let (mut stall, delays) = (Stall::default(), Delays::default());
        let mut look = |at: u32| look(&mut stall, &delays, SECOND * at / 2, false);
        assert!(look(1).is_none());
        delays.stopped.fetch_add(1, Ordering::Relaxed);
        let waits = delays.hold(SECOND);
        assert!(matches!(look(2), Some(Event::StallBegin { .. })));
        assert!((3..20).all(|at| look(at).is_none()), "the commit still waits");
        delays.release(waits);
        delays.times.record(SECOND * 9);
        assert!(look(20).is_none() && look(21).is_none());
        let Some(end) = look(22) else { panic!("a calm second has passed") };
        let (seconds, delay_seconds, longest) = (SECOND * 9, SECOND * 9, SECOND * 9);
        let (delayed, stopped, gave_up) = (0, 1, 0);
        let wanted =
            Event::StallEnd { cause: "tables", seconds, delayed, stopped, gave_up, delay_seconds, longest };
        assert_eq!(end, wanted);
        assert!((23..30).all(|at| look(at).is_none()));
        delays.slowed.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(look(30), Some(Event::StallBegin { .. })), "the next stall");
    }

    #[test]
    fn the_last_look_ends_a_stall() {
        let (mut stall, delays) = (Stall::default(), Delays::default());
        delays.slowed.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(look(&mut stall, &delays, SECOND, false), Some(Event::StallBegin { .. })));
        assert!(matches!(look(&mut stall, &delays, SECOND, true), Some(Event::StallEnd { .. })));
    }
}
