//! A transaction, with what C expects of it beside the engine's: named savepoints, an end that can be asked about, and the families it
//! has met, so that a call looks nothing up.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb::{Isolation, Savepoint, WriteOptions};

use super::family::{Family, stricter};
use super::{Database, FAMILIES};
use crate::abi::{Code, ERR_MEMORY, ERR_NOT_FOUND};
use crate::failure::{Answer, Failure, invalid, told};
use crate::handle::Handle;

/// Where a transaction is in its life.
#[derive(Clone, Debug)]
enum Phase {
    Active,
    Committed,
    RolledBack,
    /// Its commit failed, and fails again in the same way.
    Failed(Failure),
}

const ENDED: Failure = invalid!("the transaction has ended: reset it to begin anew");
/// Reads of an ended transaction have a code of their own.
const ENDED_FOR_READING: Failure = told!(ERR_MEMORY, "the transaction has ended: reset it to begin anew");
const NO_KEY: Failure = told!(ERR_NOT_FOUND, "no such key");

/// A family as the transaction knows it.
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
    /// Families met so far, the last one used first.
    known: Vec<Known>,
    savepoints: Vec<(Box<CStr>, Savepoint)>,
    /// How often it has begun, and changed since.
    beginnings: u64,
    changes: u64,
    /// Bytes of its writes, for the figures of its database. No other thread writes it.
    bytes: Arc<AtomicU64>,
}

/// What a cursor shows of its transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    beginnings: u64,
    changes: u64,
}

/// How much a read counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// The commit may depend on it.
    Tracked,
    /// It never does.
    Untracked,
}

impl Transaction {
    /// Begins.
    pub(super) fn new(database: &Arc<Database>, isolation: Isolation) -> Self {
        Self {
            database: Arc::clone(database),
            engine: database.engine().begin(isolation),
            phase: Phase::Active,
            known: Vec::new(),
            savepoints: Vec::new(),
            beginnings: 0,
            changes: 0,
            bytes: database.count_transaction(),
        }
    }

    /// Tells the figures of the database how much its writes are.
    #[inline]
    fn count_bytes(&self) {
        self.bytes.store(self.engine.bytes() as u64, Ordering::Relaxed);
    }

    /// Whether its database is still open.
    pub(super) fn is_usable(&self) -> bool {
        !self.database.is_closed()
    }

    /// The level that C's number stands for.
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
            _ => Err(invalid!("an isolation level is a number from 0 to 4")),
        }
    }

    /// The family that `handle` stands for, now the first of those known.
    #[inline]
    fn meet(&mut self, handle: Handle) -> Answer<&mut Known> {
        match self.known.first() {
            Some(known) if known.handle == handle && known.family.is_live() => {}
            _ => self.look_up(handle)?,
        }
        Ok(&mut self.known[0])
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

    /// Sets a key to a value until `ttl`, in UNIX seconds; never expires for 0 and below.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`, `ERR_MEMORY_LIMIT`; the engine's.
    #[inline]
    pub(crate) fn put(&mut self, family: Handle, key: &[u8], value: &[u8], ttl: i64) -> Answer {
        self.check_active()?;
        self.database.check_size(key, value)?;
        let expiry = u32::try_from(ttl.max(0)).unwrap_or(u32::MAX);
        self.meet(family)?.written = true;
        self.changes += 1;
        let family = &self.known[0].family;
        self.engine.put_expiring(family.engine(), key, value, expiry)?;
        self.count_bytes();
        Ok(())
    }

    /// Deletes a key; `single`: it was put at most once.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub(crate) fn delete(&mut self, family: Handle, key: &[u8], single: bool) -> Answer {
        self.check_active()?;
        self.meet(family)?.written = true;
        self.changes += 1;
        let family = self.known[0].family.engine();
        let done =
            if single { self.engine.single_delete(family, key) } else { self.engine.delete(family, key) };
        done?;
        self.count_bytes();
        Ok(())
    }

    /// Hands the value of a key to `read`.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_MEMORY` after the end, as the interface has it; the engine's.
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
            Tracking::Tracked => self.engine.get_with(family, key, read),
            Tracking::Untracked => self.engine.get_untracked_with(family, key, read),
        };
        found?.ok_or(NO_KEY)
    }

    /// Whether a key exists; the commit never depends on it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub(crate) fn contains(&mut self, family: Handle, key: &[u8]) -> Answer {
        if !matches!(self.phase, Phase::Active) {
            return Err(ENDED_FOR_READING);
        }
        self.meet(family)?;
        let found = self.engine.contains_untracked(self.known[0].family.engine(), key)?;
        if found { Ok(()) } else { Err(NO_KEY) }
    }

    /// A cursor over a family that shows the transaction's own writes.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn cursor(&mut self, family: Handle) -> Answer<tidesdb::Cursor> {
        self.check_active()?;
        self.meet(family)?;
        Ok(self.engine.cursor(self.known[0].family.engine())?)
    }

    /// What a cursor that is made now shows.
    pub(super) fn shown(&self) -> Shown {
        Shown { beginnings: self.beginnings, changes: self.changes }
    }

    /// Whether a cursor would show something else now: it goes on, and has written or undone something.
    pub(super) fn has_changed_since(&self, shown: Shown) -> bool {
        let same = self.beginnings == shown.beginnings && matches!(self.phase, Phase::Active);
        same && self.changes != shown.changes
    }

    /// The database it belongs to.
    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Commits. After a failure it is neither committed nor active: roll it back.
    ///
    /// # Errors
    /// `ERR_CONFLICT`; the engine's; `ERR_INVALID_ARGS` after its end.
    pub(crate) fn commit(&mut self) -> Answer {
        match &self.phase {
            Phase::Active => {}
            Phase::Failed(failure) => return Err(failure.clone()),
            Phase::Committed | Phase::RolledBack => return Err(ENDED),
        }
        let written = self.known.iter().filter(|known| known.written);
        let sync = written.fold(self.database.sync(), |sync, known| stricter(sync, known.family.sync()));
        match self.engine.commit_with(&WriteOptions::default().sync(sync)) {
            Ok(_) => {
                self.phase = Phase::Committed;
                self.count_bytes();
                Ok(())
            }
            Err(e) => {
                let failure = Failure::from(e);
                self.phase = Phase::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    /// Undoes everything.
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

    /// Begins anew in the memory of the old one. One that is active may have written nothing yet.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`.
    #[inline]
    pub(crate) fn reset(&mut self, isolation: Isolation) -> Answer {
        match self.phase {
            Phase::Active if !self.engine.is_empty() => {
                return Err(invalid!("the transaction has writes: commit it or roll it back first"));
            }
            Phase::Failed(_) => return Err(invalid!("its commit failed: roll it back first")),
            _ => {}
        }
        self.begin_anew(isolation);
        Ok(())
    }

    /// Begins anew, whatever was before.
    pub(super) fn begin_anew(&mut self, isolation: Isolation) {
        self.savepoints.clear();
        self.beginnings += 1;
        self.forget_dropped();
        self.known.iter_mut().for_each(|known| known.written = false);
        self.engine.reset_at(isolation);
        self.count_bytes();
        self.phase = Phase::Active;
    }

    /// Lets go of families that were dropped.
    pub(super) fn forget_dropped(&mut self) {
        self.known.retain(|known| known.family.is_live());
    }

    /// Gives up everything but memory.
    pub(super) fn rest(&mut self) {
        self.engine.rollback();
        self.count_bytes();
        self.savepoints.clear();
        self.forget_dropped();
        self.known.truncate(4);
        self.phase = Phase::RolledBack;
    }

    /// Notes a place to come back to. One of the same name moves here.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` after the end.
    pub(crate) fn savepoint(&mut self, name: &CStr) -> Answer {
        self.check_active()?;
        if let Some(at) = self.savepoints.iter().rposition(|(other, _)| **other == *name) {
            self.forget(at);
        }
        self.savepoints.push((name.into(), self.engine.savepoint()));
        Ok(())
    }

    fn find(&self, name: &CStr) -> Answer<usize> {
        self.check_active()?;
        let at = self.savepoints.iter().rposition(|(other, _)| **other == *name);
        at.ok_or(told!(ERR_NOT_FOUND, "no savepoint of this name"))
    }

    /// Undoes the writes since a savepoint, which goes, and later ones with it.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_INVALID_ARGS` after the end, or if there is no savepoint at all.
    pub(crate) fn rollback_to(&mut self, name: &CStr) -> Answer {
        self.check_active()?;
        if self.savepoints.is_empty() {
            return Err(invalid!("the transaction has no savepoint"));
        }
        let at = self.find(name)?;
        let savepoint = self.savepoints[at].1;
        self.engine.rollback_to(savepoint)?;
        self.engine.release(savepoint)?;
        self.savepoints.truncate(at);
        self.changes += 1;
        self.count_bytes();
        Ok(())
    }

    /// Forgets a savepoint; later ones and all writes stay.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_INVALID_ARGS` after the end.
    pub(crate) fn release(&mut self, name: &CStr) -> Answer {
        let at = self.find(name)?;
        self.forget(at);
        Ok(())
    }

    /// The engine forgets with a savepoint those made after it. So it is asked to if there are none; else the savepoint is forgotten
    /// here, and there with an earlier one.
    fn forget(&mut self, at: usize) {
        let (_, savepoint) = self.savepoints.remove(at);
        if at == self.savepoints.len() {
            let _ = self.engine.release(savepoint); // it is there: it was made and not released
        }
    }
}
