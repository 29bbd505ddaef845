//! A transaction: the engine's, plus what the C interface needs in addition: named savepoints, a recorded end,
//! and the families it has used, so that most calls need no lookup.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tidesdb::{Isolation, Savepoint, SeqNo, SyncMode, WriteOptions};

use super::family::{Family, stricter};
use super::savepoints::Savepoints;
use super::{Database, FAMILIES, NO_KEY};
use crate::abi::{Code, ERR_MEMORY, ERR_NOT_FOUND};
use crate::failure::{Answer, Failure, invalid, told};
use crate::handle::Handle;

/// The phase of a transaction's life.
#[derive(Clone, Debug)]
enum Phase {
    Active,
    Committed,
    RolledBack,
    /// The commit failed. Committing again returns the same failure.
    Failed(Failure),
}

const ENDED: Failure = invalid!("the transaction has ended: call tidesdb_txn_reset to restart it");
/// Reads of an ended transaction have their own code.
const ENDED_FOR_READING: Failure =
    told!(ERR_MEMORY, "the transaction has ended: call tidesdb_txn_reset to restart it");

/// The last second at which a row can expire.
const SECONDS_MAX: u64 = ((1 << 48) - 1) / 1000;

/// A family that the transaction has used.
struct Known {
    handle: Handle,
    family: Arc<Family>,
    written: bool,
}

/// A transaction.
pub(crate) struct Transaction {
    database: Arc<Database>,
    engine: tidesdb::Transaction,
    phase: Phase,
    /// Families used so far, the most recent first.
    known: Vec<Known>,
    savepoints: Savepoints<Savepoint>,
    /// Number of times the transaction was restarted, and number of changes since.
    beginnings: u64,
    changes: u64,
    /// Bytes of its writes, for the statistics of its database. Written by this transaction only.
    bytes: Arc<AtomicU64>,
}

/// The state of a transaction that a cursor shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    beginnings: u64,
    changes: u64,
}

/// Whether conflict checks include a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// The commit may depend on the read.
    Tracked,
    /// The commit never depends on the read.
    Untracked,
}

impl Transaction {
    /// Begins a transaction.
    ///
    /// # Errors
    /// Errors of [`Database::engine`].
    pub(crate) fn new(database: &Arc<Database>, isolation: Isolation) -> Answer<Self> {
        Ok(Self {
            database: Arc::clone(database),
            engine: database.engine()?.begin(isolation),
            phase: Phase::Active,
            known: Vec::new(),
            savepoints: Savepoints::default(),
            beginnings: 0,
            changes: 0,
            bytes: database.count_transaction(),
        })
    }

    /// Updates the byte counter for the statistics of the database.
    #[inline]
    fn count_bytes(&self) {
        self.bytes.store(self.engine.bytes() as u64, Ordering::Relaxed);
    }

    /// Notes that a write to the family met last has been added.
    #[inline]
    fn note_write(&mut self) {
        self.known[0].written = true;
        self.changes += 1;
        self.count_bytes();
    }

    /// Returns whether the database is still open.
    pub(super) fn is_usable(&self) -> bool {
        !self.database.is_closed()
    }

    /// Converts C's number of an isolation level.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`.
    pub(crate) fn level(number: Code) -> Answer<Isolation> {
        use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};
        match number {
            0 => Ok(ReadUncommitted),
            1 => Ok(ReadCommitted),
            2 => Ok(RepeatableRead),
            3 => Ok(Snapshot),
            4 => Ok(Serializable),
            _ => Err(invalid!("the isolation level must be 0 to 4")),
        }
    }

    /// Looks up the family of `handle` and moves it to the front of `known`.
    #[inline]
    fn meet(&mut self, handle: Handle) -> Answer {
        match self.known.first() {
            Some(known) if known.handle == handle && known.family.is_live() => Ok(()),
            _ => self.look_up(handle),
        }
    }

    #[cold]
    fn look_up(&mut self, handle: Handle) -> Answer {
        if let Some(at) = self.known.iter().position(|known| known.handle == handle) {
            self.known.swap(0, at);
            if self.known[0].family.is_live() {
                return Ok(());
            }
        }
        // The engine refuses a family of another database.
        let known = Known { handle, family: FAMILIES.share(handle)?, written: false };
        self.known.insert(0, known);
        Ok(())
    }

    fn check_active(&self) -> Answer {
        if matches!(self.phase, Phase::Active) { Ok(()) } else { Err(ENDED) }
    }

    /// Sets a key to a value that expires at `ttl`, in UNIX seconds. It never expires if `ttl` is 0 or less; a time after the
    /// engine's latest expiry, in the year 10889, becomes that expiry.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`, `ERR_MEMORY_LIMIT`; the engine's errors.
    #[inline]
    pub(crate) fn put(&mut self, family: Handle, key: &[u8], value: &[u8], ttl: i64) -> Answer {
        self.check_active()?;
        self.database.check_size(key, value)?;
        let seconds = u64::try_from(ttl).unwrap_or(0).min(SECONDS_MAX);
        let expiry = (seconds > 0).then(|| UNIX_EPOCH + Duration::from_secs(seconds));
        self.meet(family)?;
        self.engine.put_expiring(self.known[0].family.engine(), key, value, expiry)?;
        self.note_write();
        Ok(())
    }

    /// Deletes a key. With `single`, the key must have been put at most once.
    ///
    /// # Errors
    /// Errors of [`Transaction::put`].
    pub(crate) fn delete(&mut self, family: Handle, key: &[u8], single: bool) -> Answer {
        self.check_active()?;
        self.meet(family)?;
        let family = self.known[0].family.engine();
        let done =
            if single { self.engine.single_delete(family, key) } else { self.engine.delete(family, key) };
        done?;
        self.note_write();
        Ok(())
    }

    /// Passes the value of a key to `read`.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_MEMORY` after the end, as the interface specifies; the engine's errors.
    #[inline]
    pub(crate) fn get<R>(
        &mut self,
        family: Handle,
        key: &[u8],
        tracking: Tracking,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Answer<R> {
        if !matches!(self.phase, Phase::Active) {
            return Err(ENDED_FOR_READING);
        }
        self.meet(family)?;
        let family = self.known[0].family.engine();
        let found = match tracking {
            Tracking::Tracked => self.engine.get_map(family, key, read),
            Tracking::Untracked => self.engine.get_untracked_map(family, key, read),
        };
        found?.ok_or(NO_KEY)
    }

    /// Checks that a key exists. The commit never depends on it.
    ///
    /// # Errors
    /// Errors of [`Transaction::get`].
    pub(crate) fn contains(&mut self, family: Handle, key: &[u8]) -> Answer {
        if !matches!(self.phase, Phase::Active) {
            return Err(ENDED_FOR_READING);
        }
        self.meet(family)?;
        let found = self.engine.contains_untracked(self.known[0].family.engine(), key)?;
        if found { Ok(()) } else { Err(NO_KEY) }
    }

    /// Returns the engine's transaction and family, and the database, for reads of the extended interface.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a stale family and after the end.
    #[inline]
    pub(super) fn for_reading(
        &mut self,
        family: Handle,
    ) -> Answer<(&tidesdb::Transaction, &tidesdb::Family, &Arc<Database>)> {
        self.check_active()?;
        self.meet(family)?;
        Ok((&self.engine, self.known[0].family.engine(), &self.database))
    }

    /// Adds a write of the extended interface.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a stale family and after the end; those of `write`.
    pub(crate) fn write(
        &mut self,
        family: Handle,
        write: impl FnOnce(&mut tidesdb::Transaction, &tidesdb::Family) -> Answer,
    ) -> Answer {
        self.check_active()?;
        self.meet(family)?;
        let done = write(&mut self.engine, self.known[0].family.engine());
        self.note_write(); // a range may have been written in part
        done
    }

    /// Returns a cursor over a family, which includes the transaction's own writes.
    ///
    /// # Errors
    /// The engine's errors.
    pub(super) fn cursor(&mut self, family: Handle) -> Answer<tidesdb::Cursor> {
        self.check_active()?;
        self.meet(family)?;
        Ok(self.engine.cursor(self.known[0].family.engine())?)
    }

    /// Returns the state that a cursor created now shows.
    pub(super) fn shown(&self) -> Shown {
        Shown { beginnings: self.beginnings, changes: self.changes }
    }

    /// Returns whether a new cursor would show something else: the transaction is still active and has written
    /// or undone something.
    pub(super) fn has_changed_since(&self, shown: Shown) -> bool {
        let same = self.beginnings == shown.beginnings && matches!(self.phase, Phase::Active);
        same && self.changes != shown.changes
    }

    /// Returns the database of the transaction.
    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Commits. After a failure it is neither committed nor active: roll it back.
    ///
    /// # Errors
    /// `ERR_CONFLICT`; the engine's errors; `ERR_INVALID_ARGS` after its end.
    pub(crate) fn commit(&mut self) -> Answer {
        self.commit_at(None).map(drop)
    }

    /// Like [`Transaction::commit`], with the sync mode `sync` if there is one. Returns the sequence number of the commit.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub(crate) fn commit_at(&mut self, sync: Option<SyncMode>) -> Answer<SeqNo> {
        match &self.phase {
            Phase::Active => {}
            Phase::Failed(failure) => return Err(failure.clone()),
            Phase::Committed | Phase::RolledBack => return Err(ENDED),
        }
        let written = self.known.iter().filter(|known| known.written);
        let kept = written.fold(self.database.sync(), |sync, known| stricter(sync, known.family.sync()));
        match self.engine.commit_with(&WriteOptions::default().sync(sync.unwrap_or(kept))) {
            Ok(seq) => {
                self.phase = Phase::Committed;
                self.count_bytes();
                Ok(seq)
            }
            Err(e) => {
                let failure = Failure::from(e);
                self.phase = Phase::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    /// Discards all writes.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it was committed.
    pub(crate) fn rollback(&mut self) -> Answer {
        if matches!(self.phase, Phase::Committed) {
            return Err(invalid!("the transaction was committed"));
        }
        self.engine.rollback();
        self.count_bytes();
        self.phase = Phase::RolledBack;
        Ok(())
    }

    /// Restarts the transaction in the same memory. An active one must not have any writes.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`.
    #[inline]
    pub(crate) fn reset(&mut self, isolation: Isolation) -> Answer {
        match self.phase {
            Phase::Active if !self.engine.is_empty() => {
                return Err(invalid!("the transaction has writes: commit it or roll it back first"));
            }
            Phase::Failed(_) => return Err(invalid!("the commit failed: roll it back first")),
            _ => {}
        }
        self.restart(isolation);
        Ok(())
    }

    /// Restarts the transaction from any phase.
    pub(super) fn restart(&mut self, isolation: Isolation) {
        self.savepoints.clear();
        self.beginnings += 1;
        self.forget_dropped();
        self.known.iter_mut().for_each(|known| known.written = false);
        self.engine.reset_at(isolation);
        self.count_bytes();
        self.phase = Phase::Active;
    }

    /// Releases families that were dropped.
    pub(super) fn forget_dropped(&mut self) {
        self.known.retain(|known| known.family.is_live());
    }

    /// Releases everything except memory for reuse.
    pub(super) fn rest(&mut self) {
        self.engine.rollback();
        self.count_bytes();
        self.savepoints.clear();
        self.forget_dropped();
        self.known.truncate(4);
        self.phase = Phase::RolledBack;
    }

    /// Sets a savepoint. A savepoint of the same name moves here.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` after the end.
    pub(crate) fn savepoint(&mut self, name: &CStr) -> Answer {
        self.check_active()?;
        self.forget(name);
        self.savepoints.add(name, self.engine.savepoint());
        Ok(())
    }

    fn find(&self, name: &CStr) -> Answer<Savepoint> {
        self.check_active()?;
        self.savepoints.find(name).ok_or(told!(ERR_NOT_FOUND, "no savepoint has this name"))
    }

    /// Discards the writes since a savepoint, and removes that savepoint and the later ones.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_INVALID_ARGS` after the end.
    pub(crate) fn rollback_to(&mut self, name: &CStr) -> Answer {
        let savepoint = self.find(name)?;
        self.engine.rollback_to(savepoint)?;
        self.engine.release(savepoint)?;
        self.savepoints.cut(name);
        self.changes += 1;
        self.count_bytes();
        Ok(())
    }

    /// Removes a savepoint; later ones and all writes stay.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_INVALID_ARGS` after the end.
    pub(crate) fn release(&mut self, name: &CStr) -> Answer {
        self.find(name)?;
        self.forget(name);
        Ok(())
    }

    /// Removes a savepoint, if there is one of this name. The engine releases a savepoint together with all later ones. So the
    /// engine's savepoint is released now only if it is the last one, otherwise together with an earlier one.
    fn forget(&mut self, name: &CStr) {
        if let Some(savepoint) = self.savepoints.remove(name) {
            let _ = self.engine.release(savepoint); // it exists: it was created and not released
        }
    }
}
