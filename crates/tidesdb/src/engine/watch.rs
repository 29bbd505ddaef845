//! Turns counters of the write path into events: stalls, slow syncs, changes of health. Commits only count; the timekeeper looks at the
//! counters every few milliseconds.

use std::time::Duration;

use super::Engine;
use crate::events::Event;
use crate::health::HealthState;
use crate::pacing::Stall;
use crate::waits::StallCause;

/// Minimum time between two events for slow syncs, and between two looks at the health.
const PERIOD: Duration = Duration::from_secs(1);

/// What the last look saw.
#[derive(Debug, Default)]
pub struct Watch {
    /// By [`StallCause`].
    stalls: [Stall; StallCause::ALL.len()],
    state: HealthState,
    causes: Vec<String>,
    next: Duration,
}

impl Engine {
    /// Records what changed since the last call. With `ends`, this is the last call.
    pub fn observe(&self, ends: bool) {
        let now = self.write.env.clock.mono();
        let pacing = &self.write.pacing;
        let mut watch = self.watch.lock();
        for (cause, stall) in StallCause::ALL.into_iter().zip(&mut watch.stalls) {
            let begin = || Event::StallBegin {
                cause: cause.name(),
                memtable_bytes: pacing.flush_debt(),
                jobs: self.write.jobs.pending() as u64,
            };
            let event = stall.look(cause, pacing.delays(cause), now, ends, begin);
            event.into_iter().for_each(|event| self.write.events.record(&event));
        }
        let is_new_failure = watch.state != HealthState::Poisoned && self.write.health.is_poisoned();
        if now < watch.next && !ends && !is_new_failure {
            return;
        }
        watch.next = now + PERIOD;
        let (syncs, longest) = self.write.log.sync_times().take_slow();
        if syncs > 0 {
            self.write.events.record(&Event::SlowSync { syncs, longest });
        }
        for (operation, times) in self.reads.times.all() {
            let (operations, longest) = times.take_slow();
            if operations > 0 {
                self.write.events.record(&Event::SlowOperation { operation, operations, longest });
            }
        }
        let health = self.health();
        if (health.state, &health.causes) != (watch.state, &watch.causes) {
            (watch.state, watch.causes) = (health.state, health.causes.clone());
            self.write.jobs.wake(); // other processes learn it at once
            self.write.events.record(&Event::Health { state: health.state.name(), causes: health.causes });
        }
    }
}
