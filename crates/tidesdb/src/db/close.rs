//! Closing: refuse new writes, stop background work, finish the commits that have begun, flush, sync, record a clean shutdown in the
//! manifest, unlock. If a step fails the log stays, so nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidesdb_io::{DirLock, Priority};
use tidesdb_sync::{Event as Signal, Mutex, rank};

use super::{Db, Inner};
use crate::events::Event;
use crate::family::FamilyCore;
use crate::remote::upload;
use crate::types::{WalId, wal_id_max};
use crate::version::{Change, VersionEdit};
use crate::{Error, Result, collect, flush};

/// Attempts to upload to the object store during a close.
const UPLOAD_TRIES: u32 = 3;
/// Pause between two attempts.
const UPLOAD_PAUSE: Duration = Duration::from_millis(100);
/// A thread that waits for a close looks at least this often.
const LOOK: Duration = Duration::from_millis(100);

/// Whether a database is open, and the state of its close.
pub(super) struct Closing {
    /// Held by the thread that closes.
    end: Mutex<End, { rank::DIRECTORY }>,
    begun: AtomicBool,
    /// Whether a thread of its own closes the database because the last handle was dropped by a deferred call.
    handed_over: bool,
    /// What the close waits for.
    step: Mutex<&'static str>,
    ended: Signal,
}

struct End {
    /// The lock of the directory; `None` once the database is closed.
    lock: Option<Box<dyn DirLock>>,
    /// How the close went.
    result: Result<()>,
}

impl Closing {
    /// An open database that holds `lock`. Without a lock, another [`Inner`] closes the database.
    pub(super) fn new(lock: Option<Box<dyn DirLock>>) -> Self {
        Self {
            begun: AtomicBool::new(lock.is_none()),
            handed_over: false,
            end: Mutex::new(End { lock, result: Ok(()) }),
            step: Mutex::new("the thread that closes it"),
            ended: Signal::new(),
        }
    }

    /// In one word, for `Debug`.
    pub(super) fn state(&self) -> &'static str {
        match self.end.try_lock() {
            Some(end) if end.lock.is_none() => "closed",
            _ if self.begun.load(Ordering::SeqCst) => "closing",
            _ => "open",
        }
    }

    /// The result of the close; `None` if it has not ended.
    fn result(&self) -> Option<Result<()>> {
        let end = self.end.try_lock()?;
        end.lock.is_none().then(|| end.result.clone())
    }

    fn waits_for(&self, step: &'static str) {
        *self.step.lock() = step;
    }
}

impl Db {
    /// Closes the database for all handles. Writes that begin from now on, and those that wait before they have a place in the log, fail
    /// with `Closed` and have no effect. Commits that have a place are finished. Then running merges end, memtables are flushed, and the
    /// log is removed; every other call fails with `Closed`, too. Calls of other threads that merge, clone or copy end early, with `Closed`. Further calls wait for the first and return its result.
    ///
    /// It waits for the device and for merges that run, without limit: [`Db::close_timeout`] has one.
    ///
    /// Functions of the program: no filter runs when this returns. A commit hook may still run, in the thread of a commit that has ended but
    /// whose call has not returned, and reads that go on, such as those of a [`Cursor`](crate::Cursor), still call comparators, merge operators
    /// and the object store. All of them are dropped with the last handle of any kind.
    ///
    /// Dropping the last `Db` closes the database, too, and blocks as long; an error is then only logged. Other handles do not keep the
    /// database open: [the table](Db#what-keeps-a-database-open) says what each of them does afterwards.
    ///
    /// # Errors
    /// Returns the first failure. Acknowledged commits are in the log, and the next open recovers them. If only the
    /// upload to the object store failed, the folder is complete and closed cleanly, and the next open uploads.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }

    /// Like [`Db::close`], but waits at most `timeout`, and stops merges that run instead of waiting for them: their tables stay as they
    /// were.
    ///
    /// If the time does not suffice, the close goes on in a thread of its own, which also frees the lock of the directory in the end.
    /// Call it again, or [`Db::close`], to wait further. Dropping the last `Db` does not wait then. If the process ends first, the
    /// next open recovers all acknowledged commits from the log.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use std::time::Duration;
    /// db.put("whale", "blue")?;
    /// match db.close_timeout(Duration::from_secs(30)) {
    ///     Ok(()) => println!("closed"),
    ///     Err(e @ tidesdb::Error::Closing { .. }) => println!("{e}"),
    ///     Err(e) => return Err(e.into()),
    /// }
    /// assert!(matches!(db.put("whale", "grey"), Err(tidesdb::Error::Closed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Closing` after `timeout`: it says what the close waits for. `Io` if the thread cannot be started: nothing was done. Others as
    /// [`Db::close`].
    pub fn close_timeout(&self, timeout: Duration) -> Result<()> {
        let closing = &self.inner.closing;
        let clock = &self.inner.engine.write.env.clock;
        let end = clock.mono().saturating_add(timeout);
        loop {
            // Again each time: the thread of another call may not have started, and a merge may have begun meanwhile.
            self.inner.close_behind()?;
            let seen = closing.ended.current();
            if let Some(result) = closing.result() {
                return result;
            }
            let left = end.saturating_sub(clock.mono());
            if left.is_zero() {
                return Err(Error::Closing { waits_for: self.inner.close_waits_for().into() });
            }
            closing.ended.wait_while(seen, Some(left.min(LOOK)));
        }
    }
}

impl Inner {
    pub(super) fn close(&self) -> Result<()> {
        let (engine, closing) = (&self.engine, &self.closing);
        closing.begun.store(true, Ordering::SeqCst);
        let mut end = closing.end.lock(); // a second call returns after this one
        let Some(lock) = end.lock.take() else {
            return end.result.clone();
        };
        end.result = Err(Error::internal("the close panicked; the next open recovers the database"));
        let started = engine.write.env.clock.mono();
        engine.write.stop_admitting();
        closing.waits_for("the log to be synced");
        self.sync_for_intervals();
        closing.waits_for("background jobs, and calls that read or write files");
        self.pool.stop(&engine.write);
        let result = if engine.write.options.read_only { Ok(()) } else { self.settle() };
        if result.is_err() {
            let _ = self.end_writes(); // nothing is acknowledged once another process may open the directory
        }
        engine.reads.closed.store(true, Ordering::SeqCst);
        closing.waits_for("the last upload to the object store");
        let result = result.and_then(|()| self.upload_last());
        self.log_close(&result, started);
        engine.leave_files();
        engine.leave_shared();
        drop(lock);
        end.result.clone_from(&result);
        drop(end);
        closing.ended.advance();
        result
    }

    /// Has a thread close the database, unless one does already, and stops merges.
    fn close_behind(self: &Arc<Self>) -> Result<()> {
        if !self.closing.begun.swap(true, Ordering::SeqCst) {
            let closer = Arc::clone(self);
            let body = move || closer.close_and_log();
            let spawned =
                self.engine.write.env.threads.spawn("tidesdb-close", Priority::Normal, Box::new(body));
            if let Err(e) = spawned {
                self.closing.begun.store(false, Ordering::SeqCst);
                return Err(Error::io("start", "tidesdb-close", e));
            }
        }
        self.engine.write.stop_admitting();
        self.engine.write.merges.stop();
        Ok(())
    }

    /// Has a thread of its own close the database.
    fn close_elsewhere(&mut self) {
        let mut closing = std::mem::replace(&mut self.closing, Closing::new(None));
        closing.handed_over = true;
        let closer = Self {
            path: std::mem::take(&mut self.path),
            engine: Arc::clone(&self.engine),
            default: self.default.clone(),
            pool: std::mem::take(&mut self.pool),
            report: std::mem::take(&mut self.report),
            closing,
        };
        let body = Box::new(move || drop(closer));
        if let Err(error) = self.engine.write.env.threads.spawn("tidesdb-close", Priority::Normal, body) {
            // The system has dropped `body`, so the database is closed.
            tracing::warn!(%error, "no thread could be started to close the database");
        }
    }

    fn close_and_log(&self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database could not be closed cleanly; the next open recovers it");
        }
    }

    /// What the close waits for, with the flushes and merges that run.
    fn close_waits_for(&self) -> String {
        let mut text = (*self.closing.step.lock()).to_owned();
        for job in self.engine.write.running.now() {
            let kind = if job.kind == "flush" { "flush" } else { "merge" };
            let since = job.time.as_secs_f64();
            text.push_str(&format!("; a {kind} of family {:?} runs for {since:.1} s", job.family));
        }
        text
    }

    /// Syncs the log if commits rely on a sync in the background, which ends now: the close may take long, or fail. A failure poisons the
    /// database.
    fn sync_for_intervals(&self) {
        let write = &self.engine.write;
        if write.options.background_threads != Some(0) && write.sync_due.end() {
            let _ = write.sync_to(write.log.sequencer().tail());
        }
    }

    /// Writes the last events.
    fn log_close(&self, result: &Result<()>, started: Duration) {
        let write = &self.engine.write;
        self.engine.observe(true);
        write.events.record(&Event::Close {
            seconds: write.env.clock.mono().saturating_sub(started),
            error: result.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        });
        write.events.write();
        write.events.end_log();
        self.engine.publish_close();
    }

    /// Uploads for the last time.
    fn upload_last(&self) -> Result<()> {
        let engine = &self.engine;
        let Some(remote) = &engine.remote else { return Ok(()) };
        for _ in 1..UPLOAD_TRIES {
            if upload::at_close(&engine.maintenance, remote).is_ok() {
                return Ok(());
            }
            engine.write.env.clock.sleep(UPLOAD_PAUSE);
        }
        upload::at_close(&engine.maintenance, remote)
    }

    /// Ends without writing anything.
    pub(super) fn abandon(&self) {
        self.closing.begun.store(true, Ordering::SeqCst);
        let lock = self.closing.end.lock().lock.take();
        self.pool.stop(&self.engine.write);
        self.engine.reads.closed.store(true, Ordering::SeqCst);
        self.engine.write.events.end_log();
        self.engine.leave_files();
        self.engine.leave_shared();
        drop(lock);
    }

    /// Finishes the commits that have a place in the log, and waits for value writes in progress. Others fail with
    /// `Closed`.
    fn end_writes(&self) -> Result<()> {
        let engine = &self.engine;
        self.closing.waits_for("commits that have begun");
        let ended = engine.write.log.close();
        engine.reads.closed.store(true, Ordering::SeqCst); // before the wait: later value writes see it
        engine.write.log.wait_for_space_reservations();
        ended
    }

    /// Flushes everything to tables, then records in the manifest that there is no log.
    fn settle(&self) -> Result<()> {
        let engine = &self.engine;
        engine.write.health.check()?;
        self.closing.waits_for("flushes");
        flush::all(&engine.maintenance, &engine.write.all_families())?;
        self.end_writes()?;
        self.closing.waits_for("flushes");
        let families = engine.write.all_families();
        let boundary = engine.write.rotate_all(&families);
        let flushing: Vec<_> = families.iter().map(|family| family.flushing.lock_in_order()).collect();
        flush::up_to(&engine.maintenance, &families, boundary)?;
        families.iter().try_for_each(|family| self.name_values(family))?;
        drop(flushing);
        let tail = engine.write.log.sequencer().tail();
        let mut edit = VersionEdit::new();
        edit.push(Change::LastSeq { seq: tail });
        let last = wal_id_max(engine.maintenance.versions.identity().wal_segment_bytes);
        edit.push(Change::LogStart { wal: engine.write.log.after_all(tail).min(WalId(last)) });
        engine.maintenance.remove_obsolete_at_close();
        engine.maintenance.versions.close(&edit)?;
        engine.write.log.sequencer().set_durable(tail); // in tables
        engine.write.log.remove_all();
        engine.write.log.leave_reserve();
        Ok(())
    }

    /// Names in the manifest the value logs that no flush has named, so that the next open removes them. They hold long values that
    /// were put and not committed.
    fn name_values(&self, family: &FamilyCore) -> Result<()> {
        let ctx = &self.engine.maintenance;
        match ctx.with_reserve(|| collect::name_begun(ctx, family)) {
            Err(e) if family.was_lost(&e) => Ok(()),
            other => other,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.closing.begun.load(Ordering::SeqCst) {
            // A disk or a merge operator may own a handle. A deferred call drops them, on a thread that may hold locks of any database.
            if tidesdb_sync::in_deferred_call() && !self.closing.handed_over {
                self.close_elsewhere();
            } else {
                self.close_and_log();
            }
        }
        debug_assert!(Arc::strong_count(&self.engine) > 0);
    }
}
