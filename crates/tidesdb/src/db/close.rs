//! Closing: stop background work, flush, sync, record a clean shutdown in the manifest, unlock. If a step fails the log
//! stays, so nothing is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Db, Inner};
use crate::events::Event;
use crate::version::{Change, VersionEdit};
use crate::{Result, flush, upload};

/// Attempts to upload to the object store during a close.
const UPLOAD_TRIES: u32 = 3;
/// Pause between two attempts.
const UPLOAD_PAUSE: Duration = Duration::from_millis(100);

impl Db {
    /// Closes the database for all handles: waits for background work, flushes, finishes the commits that other threads
    /// have begun to write to the log, and removes the log. Every other call, also one that is waiting, fails with
    /// `Closed` and has no effect.
    ///
    /// Dropping the last handle closes the database, too, and blocks as long; an error is then only logged. Iterators,
    /// cursors, snapshots, transactions and handles of families do not keep the database open.
    ///
    /// # Errors
    /// Returns the first failure. Acknowledged commits are in the log, and the next open recovers them. If only the
    /// upload to the object store failed, the folder is complete and closed cleanly, and the next open uploads.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl Inner {
    pub(super) fn close(&self) -> Result<()> {
        let shared = &self.shared;
        let mut slot = self.lock.lock(); // a second call returns after this one
        let Some(lock) = slot.take() else {
            return Ok(()); // closed already
        };
        let started = shared.write.env.clock.mono();
        self.sync_for_intervals();
        self.pool.stop(&shared.write);
        let result = if shared.write.options.read_only { Ok(()) } else { self.settle() };
        if result.is_err() {
            let _ = self.end_writes(); // nothing is acknowledged once another process may open the directory
        }
        shared.reads.closed.store(true, Ordering::SeqCst);
        let result = result.and_then(|()| self.upload_last());
        self.log_close(&result, started);
        drop(lock);
        result
    }

    /// Syncs the log if commits rely on a sync in the background, which ends now: the close may take long, or fail. A failure poisons the
    /// database.
    fn sync_for_intervals(&self) {
        let write = &self.shared.write;
        if write.options.background_threads != Some(0) && write.sync_due.end() {
            let _ = write.sync_to(write.log.sequencer().tail());
        }
    }

    /// Writes the last events.
    fn log_close(&self, result: &Result<()>, started: Duration) {
        let write = &self.shared.write;
        self.shared.observe(true);
        write.events.record(&Event::Close {
            seconds: write.env.clock.mono().saturating_sub(started),
            error: result.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        });
        write.events.write();
        write.events.end_log();
    }

    /// Uploads for the last time.
    fn upload_last(&self) -> Result<()> {
        let shared = &self.shared;
        for _ in 1..UPLOAD_TRIES {
            if upload::at_close(shared).is_ok() {
                return Ok(());
            }
            shared.write.env.clock.sleep(UPLOAD_PAUSE);
        }
        upload::at_close(shared)
    }

    /// Ends without writing anything.
    pub(super) fn abandon(&self) {
        let lock = self.lock.lock().take();
        self.pool.stop(&self.shared.write);
        self.shared.reads.closed.store(true, Ordering::SeqCst);
        self.shared.write.events.end_log();
        drop(lock);
    }

    /// Finishes the commits that have a place in the log, and waits for value writes in progress. Others fail with
    /// `Closed`.
    fn end_writes(&self) -> Result<()> {
        let shared = &self.shared;
        let ended = shared.write.log.close();
        shared.reads.closed.store(true, Ordering::SeqCst); // before the wait: later value writes see it
        shared.write.log.wait_for_space_reservations();
        ended
    }

    /// Flushes everything to tables, then records in the manifest that there is no log.
    fn settle(&self) -> Result<()> {
        let shared = &self.shared;
        shared.write.health.check()?;
        for family in shared.write.all_families() {
            flush::all(&shared.maintenance, &family)?;
        }
        self.end_writes()?;
        let families = shared.write.all_families();
        let boundary = shared.write.rotate_all(&families);
        for family in &families {
            let _one_at_a_time = family.flushing.lock();
            flush::up_to(&shared.maintenance, family, boundary)?;
        }
        let tail = shared.write.log.sequencer().tail();
        let mut edit = VersionEdit::new();
        edit.push(Change::LastSeq { seq: tail });
        edit.push(Change::LogStart { wal: crate::types::WalId(shared.write.log.segment_of(tail).0 + 1) });
        shared.maintenance.remove_obsolete_at_close();
        shared.maintenance.versions.close(&edit)?;
        shared.write.log.remove_all();
        shared.write.log.leave_reserve();
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database could not be closed cleanly; the next open recovers it");
        }
        debug_assert!(Arc::strong_count(&self.shared) > 0);
    }
}
