//! How a delayed writer waits, and when it gives up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_io::Clock;

use super::{Admission, Pacing};
use crate::waits::StallCause;
use crate::{Error, Result};

/// How long a stopped writer waits without any progress.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a commit waits for memory in all: flushes and merges may go on without freeing what transactions or readers hold.
pub const MEMORY_PATIENCE: Duration = Duration::from_secs(30);
/// How long a batch or a transaction that grows waits for memory in all. It holds memory itself, which others may be waiting for.
pub const GROWTH_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which a stopped writer checks the clock, and the minimum number of checks before it gives up. A clock
/// that jumps, as after the machine slept, proves nothing about flushing.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS_MIN: u32 = 200;
/// Writers may write at `rate / (STEEPNESS * fullness^2)`. Debt falls in steps: a flush or a merge of level 1 removes all that it reads
/// at its end. With a steepness of 3, writers need as long to fill the whole range from 0 to 1 as the work needs to remove that much, so
/// a step as large as the range does not stop writers.
const STEEPNESS: f64 = 3.0;
/// The schedule of commits is at most this far ahead of the clock.
const LEAD_MAX: Duration = Duration::from_secs(1);
/// A shorter delay is not worth a system call; a later commit waits for it.
const DELAY_MIN: Duration = Duration::from_micros(50);
/// Interval at which a delayed writer checks whether it may continue.
const SLICE: Duration = Duration::from_millis(10);

impl Pacing {
    /// Delays a commit that causes work of `bytes` bytes, because of a limit (its cause and its fullness). Ends early once `admission` is
    /// [`Admission::Go`].
    pub fn delay(
        &self,
        clock: &dyn Clock,
        (cause, fullness): (StallCause, f64),
        bytes: f64,
        admission: impl Fn() -> Admission,
    ) {
        let cost = bytes / self.rate(cause) * STEEPNESS * fullness * fullness;
        let now = clock.mono();
        let wait = self.pace.reserve(now, cost, LEAD_MAX);
        if wait < DELAY_MIN {
            return;
        }
        let delays = self.delays(cause);
        delays.slowed.fetch_add(1, Ordering::Relaxed);
        delays.measure(clock, now, || {
            let left = || (now + wait).saturating_sub(clock.mono()).min(SLICE);
            while !left().is_zero() && admission() != Admission::Go {
                clock.sleep(left());
            }
        });
    }

    /// Stops a writer while `admission` is [`Admission::Stop`]; `cause` is the first cause. Calls `check` before each wait. With
    /// `is_shared`, other databases take of the same memory: what they free is no progress of this one, but ends a wait for memory.
    ///
    /// # Errors
    /// `Busy` without progress for [`PATIENCE`], or if memory is scarce for `memory_patience` in all; those of `check`.
    #[cold]
    pub fn stop(
        &self,
        clock: &dyn Clock,
        cause: StallCause,
        (memory_patience, is_shared): (Duration, bool),
        admission: impl Fn() -> Admission,
        check: impl Fn(StallCause) -> Result<()>,
    ) -> Result<()> {
        let (delays, started) = (self.delays(cause), clock.mono());
        delays.stopped.fetch_add(1, Ordering::Relaxed);
        let mut patience = Patience::new(self, started);
        let result = delays.measure(clock, started, || {
            loop {
                let seen = self.progress.current();
                let Admission::Stop(cause) = admission() else { return Ok(()) };
                check(cause)?;
                // A timed wait may end early, so the clock decides.
                let progress = self.progress.wait_while(seen, Some(LOOK));
                let now = clock.mono();
                let lasts = now.saturating_sub(started) >= memory_patience && patience.looks >= LOOKS_MIN;
                let is_for_memory = cause == StallCause::Memory;
                let is_exhausted = patience.is_exhausted(self, now, progress);
                if is_exhausted && !(is_for_memory && is_shared) || is_for_memory && lasts {
                    return Err(Error::Busy { cause: cause.why_busy() });
                }
            }
        });
        if matches!(result, Err(Error::Busy { .. })) {
            delays.gave_up.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

/// How long a stopped writer has seen no progress. A job that processes entries is progress, unless a job failed since debt last fell: it
/// may process the same entries again and again.
struct Patience {
    /// Checks in all.
    looks: u32,
    idle_since: Duration,
    idle_looks: u32,
    steps: u64,
    failures: u64,
    failing: bool,
}

impl Patience {
    fn new(pacing: &Pacing, now: Duration) -> Self {
        let [steps, failures] = [&pacing.steps, &pacing.failures].map(|n| n.load(Ordering::Relaxed));
        Self { looks: 0, idle_since: now, idle_looks: 0, steps, failures, failing: false }
    }

    /// Checks once more. With `fell`, debt fell since the last check.
    fn is_exhausted(&mut self, pacing: &Pacing, now: Duration, fell: bool) -> bool {
        self.looks += 1;
        let next = Self { looks: self.looks, ..Self::new(pacing, now) };
        let failing = !fell && (self.failing || next.failures != self.failures);
        if fell || (next.steps != self.steps && !failing) {
            *self = next;
            return false;
        }
        (self.steps, self.failures, self.failing) = (next.steps, next.failures, failing);
        self.idle_looks += 1;
        self.idle_looks >= LOOKS_MIN && now.saturating_sub(self.idle_since) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use tidesdb_io::ManualClock;

    use super::*;

    /// Another database may free memory after a long time without progress of this one.
    #[test]
    fn a_wait_for_shared_memory_lasts_longer_than_one_without_progress() {
        let (clock, pacing) = (ManualClock::new(0), Pacing::default());
        let until = PATIENCE + PATIENCE / 2;
        let admission = || match clock.mono() < until {
            true => Admission::Stop(StallCause::Memory),
            false => Admission::Go,
        };
        let check = |_| {
            clock.advance(PATIENCE / LOOKS_MIN);
            Ok(())
        };
        pacing.stop(&clock, StallCause::Memory, (MEMORY_PATIENCE, true), admission, check).unwrap();
    }
}
