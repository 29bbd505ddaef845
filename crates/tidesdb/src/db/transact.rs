//! Begins transactions and retries them after conflicts.

use std::time::Duration;

use super::{Db, work_here};
use crate::options::{Isolation, WriteOptions};
use crate::txn::Transaction;
use crate::types::SeqNo;
use crate::{Error, Result};

/// Maximum number of attempts in [`Db::transact`].
const TRIES_MAX: u32 = 100;
/// Bounds of the random pause after a conflict.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(5);

impl Transaction {
    /// Commits all writes atomically and returns the commit's sequence number. The transaction has ended afterwards,
    /// also after an error.
    ///
    /// # Errors
    /// `Conflict` if another commit wrote what the isolation level protects. Nothing was written; call
    /// [`Transaction::reset`] and retry. Other errors as [`Db::write`](crate::Db::write).
    pub fn commit(&mut self) -> Result<SeqNo> {
        self.commit_with(&WriteOptions::default())
    }

    /// Like [`Transaction::commit`], with options for this commit.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(&mut self, options: &WriteOptions) -> Result<SeqNo> {
        let committed = self.commit_only(options);
        work_here(self.shared(), &committed);
        committed
    }
}

impl Db {
    /// Begins a transaction.
    pub fn begin(&self, isolation: Isolation) -> Transaction {
        Transaction::new(&self.inner.shared, isolation)
    }

    /// Runs `body` in a serializable transaction and commits. After a conflict it retries both, with growing random
    /// pauses, so `body` must be repeatable. If `body` fails with an error other than `Conflict`, nothing is committed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let counter = db.default_family();
    /// let next = db.transact(|tx| {
    ///     let n = tx.get(counter, b"n")?.map_or(0, |v| v[0]) + 1;
    ///     tx.put(counter, b"n", &[n])?;
    ///     Ok(n)
    /// })?;
    /// assert_eq!(next, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `body` and of the commit; `Conflict` after 100 conflicts in a row.
    pub fn transact<R>(&self, body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.transact_at(Isolation::Serializable, body)
    }

    /// Like [`Db::transact`], at another isolation level.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_at<R>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<R> {
        let shared = &self.inner.shared;
        let mut tx = self.begin(isolation);
        for round in 1..=TRIES_MAX {
            match body(&mut tx).and_then(|out| tx.commit().map(|_| out)) {
                Err(Error::Conflict) if round < TRIES_MAX => {}
                other => return other,
            }
            let longest = PAUSE_MIN.saturating_mul(1 << round.min(16)).min(PAUSE_MAX);
            let share = shared.write.env.entropy.next_u64() % longest.as_nanos().max(1) as u64;
            shared.write.env.clock.sleep(Duration::from_nanos(share));
            tx.reset();
        }
        Err(Error::Conflict)
    }
}
