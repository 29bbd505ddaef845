//! Optimistic transactions. The crate offers no way to reuse one, so each is new.
//!
//! This engine has no isolation levels. Each of our levels maps to the weakest combination of its features that keeps
//! the guarantee. Keys that a transaction writes are checked at every level from the time of the write on; the engine
//! offers nothing weaker.

use rocksdb::{
    Error, ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions, ReadOptions, Transaction,
    WriteOptions,
};
use tidesdb_bench::engine::{Ended, Result, Transactions};
use tidesdb_bench::spec::Isolation;

use crate::said;

/// Describes how a level is implemented here.
pub(crate) fn words(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => {
            "; optimistic transactions, read uncommitted and read committed: no snapshot, plain reads"
        }
        Isolation::Snapshot => "; optimistic transactions, snapshot: its snapshot, plain reads of it",
        Isolation::RepeatableRead | Isolation::Serializable => {
            "; optimistic transactions, repeatable read and serializable: its snapshot, get_for_update (keys, no ranges)"
        }
    }
}

/// The transactions of one session.
pub(crate) struct RocksTransactions<'a> {
    db: &'a OptimisticTransactionDB,
    how: WriteOptions,
    options: OptimisticTransactionOptions,
    read: ReadOptions,
    /// True if the values it read must not change before the commit.
    for_update: bool,
    open: Option<Transaction<'a, OptimisticTransactionDB>>,
}

impl<'a> RocksTransactions<'a> {
    #[expect(clippy::unnecessary_wraps, reason = "the plain database returns None")]
    pub(crate) fn of(
        db: &'a OptimisticTransactionDB,
        how: WriteOptions,
    ) -> Option<Box<dyn Transactions + 'a>> {
        let (options, read) = (OptimisticTransactionOptions::default(), ReadOptions::default());
        Some(Box::new(Self { db, how, options, read, for_update: false, open: None }))
    }

    fn open(&self) -> Result<&Transaction<'a, OptimisticTransactionDB>> {
        self.open.as_ref().ok_or_else(|| "no transaction is open".to_owned())
    }
}

/// Returns whether the commit failed because of a conflict, or because a conflict could not be ruled out.
fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain)
}

impl Transactions for RocksTransactions<'_> {
    fn begin(&mut self, level: Isolation) -> Result<()> {
        self.options.set_snapshot(level >= Isolation::RepeatableRead);
        self.for_update = matches!(level, Isolation::RepeatableRead | Isolation::Serializable);
        let open = self.db.transaction_opt(&self.how, &self.options);
        // The transaction's own snapshot, which lives as long as the transaction; empty if it has none.
        self.read.set_snapshot(&open.snapshot());
        self.open = Some(open);
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let open = self.open()?;
        let found = match self.for_update {
            true => open.get_pinned_for_update_opt(key, true, &self.read),
            false => open.get_pinned_opt(key, &self.read),
        };
        let found = found.map_err(said)?;
        if let Some(found) = &found {
            value(found);
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open()?.put(key, value).map_err(said)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.open()?.delete(key).map_err(said)
    }

    fn commit(&mut self) -> Result<Ended> {
        let open = self.open.take().ok_or("no transaction is open")?;
        match open.commit() {
            Ok(()) => Ok(Ended::Committed),
            Err(error) if is_conflict(&error) => Ok(Ended::Conflict),
            Err(error) => Err(said(error)),
        }
    }

    fn rollback(&mut self) -> Result<()> {
        let open = self.open.take().ok_or("no transaction is open")?;
        open.rollback().map_err(said)
    }
}
