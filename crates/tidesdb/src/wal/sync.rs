//! Group commit: one thread syncs for all waiters; one sync is in flight at a time.
//!
//! A waiter becomes the leader if there is none. The leader syncs the whole gap-free prefix of the log, so all commits
//! written before the sync began become durable together. The other waiters sleep until it has finished and check
//! again. The first failure poisons the log: every waiter gets it, and no sync of the log is tried again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_sync::{Backoff, Condvar, Mutex, rank};

use super::layout::{RecordKind, blank_record};
use super::log::Log;
use super::sequencer::Purpose;
use crate::files;
use crate::stats::Histogram;
use crate::stats::counts::{self, Counter};
use crate::types::SeqNo;
use crate::{Error, Result};

/// Bytes between the two seals of an idle log.
const SEAL_DISTANCE: usize = 4096;

/// State shared by the threads of a group commit.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// True while a thread leads.
    leading: Mutex<bool, { rank::LEADING }>,
    /// Notified when a leader has finished.
    done: Condvar,
    /// First address after the last seal.
    sealed: Mutex<SeqNo, { rank::SEALED }>,
    /// Durations of syncs, of the log with the value logs.
    syncs: Histogram,
    /// When the sync under way began, in nanoseconds and at least 1; 0 if there is none.
    began: AtomicU64,
}

/// The thread that syncs for all waiters. Dropping this wakes them, also after a panic: the next one then leads.
struct Leader<'a>(&'a Log);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut leading = self.0.group.leading.lock();
        *leading = false;
        self.0.group.done.notify_all();
    }
}

impl Log {
    /// Returns once everything up to `end` is durable. `values` makes the values durable that records refer to; it is
    /// called before the log is synced.
    ///
    /// # Errors
    /// The failure that poisoned the log; every waiter gets it.
    pub fn sync_to(&self, end: SeqNo, values: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut leading = self.group.leading.lock();
        loop {
            if self.sequencer.durable() >= end {
                return Ok(());
            }
            self.health.check()?;
            if !*leading {
                *leading = true;
                drop(leading);
                let _leader = Leader(self);
                return self.lead(end, values);
            }
            counts::add(Counter::SyncWaits, 1);
            self.group.done.wait(&mut leading);
        }
    }

    /// Wakes all waiters, so that they notice a failure that happened elsewhere.
    pub fn wake_waiters(&self) {
        let _leading = self.group.leading.lock();
        self.group.done.notify_all();
    }

    fn lead(&self, end: SeqNo, values: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut backoff = Backoff::new();
        let target = loop {
            let written = self.sequencer.written_end();
            if written >= end {
                break written;
            }
            self.health.check()?; // an earlier commit may have failed and left a hole
            backoff.snooze();
        };
        counts::add(Counter::Syncs, 1);
        let started = self.env.clock.mono();
        self.group.began.store((started.as_nanos() as u64).max(1), Ordering::Relaxed);
        let synced = self.sync_files(target, values);
        self.group.began.store(0, Ordering::Relaxed);
        self.group.syncs.record(self.env.clock.mono().saturating_sub(started));
        synced.inspect_err(|_| files::note_failed_sync(&*self.dir)).map_err(|e| self.poison(e))?;
        let before = self.sequencer.durable();
        self.sequencer.set_durable(target);
        self.close_between(before, target);
        debug_assert!(self.sequencer.durable() >= end);
        Ok(())
    }

    /// Ends the log after a failure with an unknown effect.
    pub(super) fn poison(&self, e: Error) -> Error {
        let cause = self.health.poison(e);
        self.sequencer.stop();
        Error::Poisoned { cause }
    }

    /// Durations of the syncs since the open.
    pub fn sync_times(&self) -> &Histogram {
        &self.group.syncs
    }

    /// How long the sync that is under way has taken so far; 0 if there is none.
    pub fn sync_runs_for(&self) -> Duration {
        match self.group.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => self.env.clock.mono().saturating_sub(Duration::from_nanos(began)),
        }
    }

    fn sync_files(&self, target: SeqNo, values: &dyn Fn() -> Result<()>) -> Result<()> {
        values()?;
        let durable = self.sequencer.durable();
        match self.only_segment(durable, target) {
            Some(segment) => segment.sync(),
            None => self.segments_between(durable, target).iter().try_for_each(|segment| segment.sync()),
        }
    }

    /// Makes everything durable that was committed before the call. If records were added since the last seal, appends
    /// a seal that records this: damage below a seal is never mistaken for a torn tail. On a full disk, and
    /// if the database is being closed, the seal is omitted. Returns how far the log is durable.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn seal(&self, values: &dyn Fn() -> Result<()>) -> Result<SeqNo> {
        self.health.check()?;
        // Not only the gap-free prefix: a commit before the caller's own may still be being written.
        let tail = self.sequencer.tail();
        self.sync_to(tail, values)?;
        let mut sealed = self.group.sealed.lock();
        if self.sequencer.tail() <= *sealed {
            return Ok(tail);
        }
        // Two seals with a page between them: one damaged page never destroys the last record and both seals.
        for body in [SEAL_DISTANCE, 0] {
            let mut record = blank_record(body);
            let place = match self.reserve(&mut record, Purpose::Store) {
                Err(e) if e.is_full() || matches!(e, Error::Exhausted { .. } | Error::Closed) => {
                    return Ok(tail);
                }
                place => place,
            };
            let written = place.and_then(|place| {
                self.write_at(&place, RecordKind::Seal, 0, &mut record, false).map(|()| place)
            });
            let commit = written.map_err(|e| self.poison(e))?;
            self.sequencer.done(&commit);
            *sealed = commit.end;
        }
        let end = *sealed;
        drop(sealed);
        self.sync_to(end, values)?;
        Ok(tail)
    }
}
