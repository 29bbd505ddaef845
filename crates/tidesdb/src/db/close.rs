//! Close: stop, flush, sync, say so in the manifest, unlock. Nothing is lost if a step fails: the log stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Db, Inner};
use crate::version::{Change, VersionEdit};
use crate::{Result, flush};

impl Db {
    /// Closes the database for all handles: waits for background work, flushes, and leaves no log behind. Calls on other
    /// handles fail with `Closed` afterwards.
    ///
    /// # Errors
    /// The first failure; what was acknowledged is in the log and is recovered by the next open.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl Inner {
    pub(super) fn close(&self) -> Result<()> {
        let shared = &self.shared;
        let Some(lock) = self.lock.lock().take() else {
            return Ok(()); // closed already
        };
        self.pool.stop(shared);
        let result = if shared.options.read_only { Ok(()) } else { self.settle() };
        shared.closed.store(true, Ordering::SeqCst);
        drop(lock);
        result
    }

    /// Ends without writing anything.
    pub(super) fn abandon(&self) {
        let lock = self.lock.lock().take();
        self.pool.stop(&self.shared);
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(lock);
    }

    /// Everything to tables; then the manifest says that there is no log.
    fn settle(&self) -> Result<()> {
        let shared = &self.shared;
        shared.health.check()?;
        for family in shared.all_families() {
            flush::all(shared, &family)?;
        }
        shared.closed.store(true, Ordering::SeqCst);
        shared.log.wait_for_pledges(); // values that are being written; later ones see `closed`
        // Commits that slipped in before `closed` was set. One that reserves its place after the boundary sees `closed`, and
        // goes with the log, whole.
        let families = shared.all_families();
        let boundary = shared.rotate_all(&families);
        for family in &families {
            let _one_at_a_time = family.flushing.lock();
            flush::up_to(shared, family, boundary)?;
        }
        let tail = shared.log.sequencer().tail();
        let mut edit = VersionEdit::new();
        edit.push(Change::LastSeq { seq: tail });
        edit.push(Change::LogStart { wal: crate::types::WalId(shared.log.segment_of(tail).0 + 1) });
        shared.remove_obsolete();
        shared.versions.close(&edit)?;
        shared.log.remove_all();
        shared.log.leave_reserve();
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database could not be closed in order; the next open recovers it");
        }
        debug_assert!(Arc::strong_count(&self.shared) > 0);
    }
}
