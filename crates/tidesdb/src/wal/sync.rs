//! Group commit: one thread writes back for all who wait, one sync in flight.
//!
//! A waiter becomes the leader if there is none. The leader syncs everything that is gap-free in the log at that moment,
//! so all commits written before the sync began become durable together; the others sleep until it is done
//! and look again. The first failure poisons: every waiter gets it, and no sync of the log is tried again.

use tidesdb_sync::Backoff;

use super::layout::{RECORD_HEADER_BYTES, RecordKind};
use super::log::Log;
use crate::files;
use crate::types::SeqNo;
use crate::{Error, Result};

/// Bytes between the two seals of an idle log.
const SEAL_DISTANCE: usize = 4096;

impl Log {
    /// Returns once everything up to `end` is durable. `values` makes durable what records refer to, before the records.
    ///
    /// # Errors
    /// The failure that poisoned the log, to every waiter.
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
                let result = self.lead(end, values);
                leading = self.group.leading.lock();
                *leading = false;
                self.group.done.notify_all();
                result?;
            } else {
                self.group.done.wait(&mut leading);
            }
        }
    }

    /// Wakes all waiters, so that they see a failure from elsewhere.
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
        self.sync_files(target, values).map_err(|e| {
            self.note_failed_sync();
            let cause = self.health.poison(e);
            self.sequencer.stop();
            Error::Poisoned { cause }
        })?;
        self.sequencer.set_durable(target);
        debug_assert!(self.sequencer.durable() >= end);
        Ok(())
    }

    /// Leaves a note for the next open. It needs no sync: after a stop of the machine the boot identity tells as much.
    fn note_failed_sync(&self) {
        match self.dir.create_new(files::SYNC_FAILED, 0) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                tracing::warn!(%error, "a sync failed, and no note of it could be left for the next open");
            }
            _ => {}
        }
    }

    fn sync_files(&self, target: SeqNo, values: &dyn Fn() -> Result<()>) -> Result<()> {
        values()?;
        for segment in self.segments_between(self.sequencer.durable(), target) {
            segment.sync()?;
        }
        Ok(())
    }

    /// Makes everything durable that was committed before the call and, if records came since the last time, appends a seal that says so: damage below
    /// a seal is never taken for a torn tail. A full disk does without the seal. Returns how far the log is durable.
    ///
    /// # Errors
    /// As [`Log::sync_to`].
    pub fn seal(&self, values: &dyn Fn() -> Result<()>) -> Result<SeqNo> {
        self.health.check()?;
        // Not only the gap-free prefix: the caller's own commit may be behind one that is still being written.
        let tail = self.sequencer.tail();
        self.sync_to(tail, values)?;
        let mut sealed = self.group.sealed.lock();
        if self.sequencer.tail() <= *sealed {
            return Ok(tail);
        }
        // Two seals with a page between them: a damaged page never takes the last record and both seals.
        for body in [SEAL_DISTANCE, 0] {
            let mut record = vec![0; RECORD_HEADER_BYTES + body];
            let commit = match self.append_own(RecordKind::Seal, &mut record) {
                Ok(commit) => commit,
                Err((None, e)) if e.is_full() || matches!(e, Error::Exhausted { .. }) => return Ok(tail),
                Err((_, e)) => {
                    let cause = self.health.poison(e);
                    self.sequencer.stop();
                    return Err(Error::Poisoned { cause });
                }
            };
            self.sequencer.done(&commit);
            *sealed = commit.end;
        }
        let end = *sealed;
        drop(sealed);
        self.sync_to(end, values)?;
        Ok(tail)
    }
}
