//! Beginning transactions, and doing them again after a conflict.

use std::time::Duration;

use super::{Db, work_here};
use crate::options::{Isolation, WriteOptions};
use crate::txn::Transaction;
use crate::types::SeqNo;
use crate::{Error, Result};

/// How often [`Db::transact`] begins anew.
const TRIES_MAX: u32 = 100;
/// The first pause after a conflict, and the longest.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(5);

impl Transaction {
    /// Commits all writes, or none; returns the commit's sequence number. The transaction has then ended, however it went.
    ///
    /// # Errors
    /// `Conflict` if somebody wrote what the level protects: nothing happened, [`Transaction::reset`] and do it again. Others
    /// as [`Db::write`](crate::Db::write).
    pub fn commit(&mut self) -> Result<SeqNo> {
        self.commit_with(&WriteOptions::default())
    }

    /// As [`Transaction::commit`], with options for this commit.
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

    /// Runs `body` in a serializable transaction and commits; after a conflict all of it again, with growing random pauses. `body`
    /// must do nothing that cannot be repeated. If it fails with anything but `Conflict`, nothing is committed.
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
    /// Those of `body` and of the commit; `Conflict` if it met a hundred of them in a row.
    pub fn transact<R>(&self, body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.transact_at(Isolation::Serializable, body)
    }

    /// As [`Db::transact`], at another level.
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
