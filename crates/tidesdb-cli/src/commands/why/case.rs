//! What is looked at, and what can be found.

use std::time::Duration;

use super::super::stats::ago;
use crate::look::events::Events;
use crate::look::{Look, clock};

/// The lines of events have whole seconds.
pub(super) const SECOND: u64 = 1000;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) look: &'a Look,
    pub(super) events: &'a Events,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Writes are refused until the database is opened again.
    Poisoned,
    /// The process ended without closing the database.
    Ended,
    /// The process did not run.
    Stopped,
    /// The process worked, and its figures of that time are missing.
    Hidden,
    /// Commits were refused for want of space.
    Space,
    /// Something did not work.
    Degraded,
    /// Writers waited.
    Waits,
    /// Syncs of the log took long.
    SlowSyncs,
    /// Operations took long.
    Slow,
    /// The database was closed.
    Closed,
    /// There was nothing to do.
    Idle,
    /// Nothing waited or was slow.
    Fine,
    NotRecorded,
}

impl Verdict {
    /// The name in JSON.
    pub(super) fn name(self) -> &'static str {
        [
            "poisoned",
            "ended",
            "stopped",
            "hidden",
            "space",
            "degraded",
            "waits",
            "slow_syncs",
            "slow",
            "closed",
            "idle",
            "fine",
            "not_recorded",
        ][self as usize]
    }
}

impl Case<'_> {
    /// A moment as text.
    pub(super) fn moment(&self, millis: u64) -> String {
        clock::moment(millis, self.look.now)
    }

    /// A time as text: `from 14:02:41 to 14:03:17 UTC (36 s)`.
    pub(super) fn when(&self, from: u64, to: u64) -> String {
        let secs = to.saturating_sub(from).div_ceil(SECOND);
        match secs {
            0..=1 => format!("at {}", self.moment(to)),
            _ => {
                let begin = self.moment(from);
                let begin = begin.strip_suffix(" UTC").unwrap_or(&begin);
                format!(
                    "from {begin} to {} ({})",
                    self.moment(to),
                    ago(Duration::from_millis(to.saturating_sub(from)))
                )
            }
        }
    }
}
