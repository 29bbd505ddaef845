//! Events: what the background does, as JSON lines in the database directory and as `tracing` events.
//!
//! [`Events::record`] formats a line into memory and does no I/O, so any thread may call it. Background threads call [`Events::write`]
//! after each job. No commit waits for the event log, nothing in it is synced, and a failed write never fails the engine: it is
//! counted. `docs/operate/events.md` lists the events and their fields.

mod json;
mod kind;
mod log;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::{Clock, Dir};
use tidesdb_sync::{Mutex, rank};

use json::timestamp;
pub use kind::{Event, EventInfo, LevelPart, TARGET};
use log::EventLog;

/// Bytes of lines kept in memory for the next write; more are lost.
const PENDING_BYTES_MAX: usize = 256 << 10;

/// Records the events of one database.
#[derive(Debug)]
pub struct Events {
    clock: Arc<dyn Clock>,
    /// Monotonic time at which the database was opened.
    opened: Duration,
    /// `None`: events only go to `tracing`.
    log: Mutex<Option<EventLog>, { rank::EVENT_LOG }>,
    is_logging: AtomicBool,
    pending: Mutex<String>,
    has_pending: AtomicBool,
    recorded: AtomicU64,
    lost: AtomicU64,
}

impl Events {
    /// Events by `clock`. Without [`Events::log_to`] they only go to `tracing`.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            opened: clock.mono(),
            clock: Arc::clone(clock),
            log: Mutex::default(),
            is_logging: AtomicBool::new(false),
            pending: Mutex::default(),
            has_pending: AtomicBool::new(false),
            recorded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Writes the event log to `dir` from now on.
    pub fn log_to(&self, dir: &Arc<dyn Dir>) {
        *self.log.lock() = Some(EventLog::new(dir));
        self.is_logging.store(true, Ordering::Release);
    }

    /// Ends the event log; the directory may belong to another process from now on.
    pub fn end_log(&self) {
        self.is_logging.store(false, Ordering::Release);
        *self.log.lock() = None;
    }

    /// The monotonic time at which the database was opened.
    pub fn opened(&self) -> Duration {
        self.opened
    }

    /// Records `event`. Does no I/O.
    pub fn record(&self, event: &Event) {
        event.trace();
        if !self.is_logging.load(Ordering::Acquire) {
            return;
        }
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let mut line = String::with_capacity(256);
        line.push_str("{\"time\":\"");
        timestamp(self.clock.wall_secs(), &mut line);
        let at = self.clock.mono().saturating_sub(self.opened).as_secs_f64();
        let _ = write!(line, "\",\"at\":{at:.6},\"event\":\"{}\"", event.name());
        event.fields(&mut line);
        line.push_str("}\n");
        let mut pending = self.pending.lock();
        if pending.len() + line.len() > PENDING_BYTES_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        pending.push_str(&line);
        self.has_pending.store(true, Ordering::Release);
    }

    /// Returns true if [`Events::write`] has something to write.
    pub fn has_pending(&self) -> bool {
        self.has_pending.load(Ordering::Acquire)
    }

    /// Writes the recorded events to the event log. Failures are counted: the lines are lost.
    pub fn write(&self) {
        if !self.has_pending() {
            return;
        }
        let mut log = self.log.lock(); // taken first, so that lines stay in order
        let lines = {
            let mut pending = self.pending.lock();
            self.has_pending.store(false, Ordering::Release);
            std::mem::take(&mut *pending)
        };
        let written = log.as_mut().map_or(Ok(()), |log| log.append(lines.as_bytes()));
        if written.is_err() {
            self.lost.fetch_add(lines.lines().count() as u64, Ordering::Relaxed);
        }
    }

    /// Number of events recorded since the open.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Number of these events that were not written to the event log.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
