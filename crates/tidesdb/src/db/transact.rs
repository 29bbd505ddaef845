//! Begins transactions and retries them after conflicts.

use std::sync::Arc;
use std::time::Duration;

use super::{Db, work_here};
use crate::context::WriteCtx;
use crate::options::{Isolation, TransactOptions, WriteOptions};
use crate::stats::is_chosen;
use crate::txn::Transaction;
use crate::types::SeqNo;
use crate::{Error, Result};

/// Bounds of the random pause after a conflict.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(5);

impl Transaction {
    /// Commits all writes atomically and returns the commit's sequence number; without writes, that of the newest commit. The
    /// transaction has ended afterwards, also after an error.
    ///
    /// In mode [`SyncMode::Full`](crate::SyncMode::Full) all commits before it are durable when it returns, also if it wrote nothing. That
    /// takes a sync only if other commits use a weaker mode.
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
        let is_chosen = !self.is_empty() && is_chosen();
        let is_timed = is_chosen || !self.is_empty() && self.ctx().reads.reports_slow();
        let timed = is_timed.then(|| Arc::clone(self.ctx()));
        let _timer = timed.as_ref().map(|ctx| ctx.reads.measure(&ctx.reads.times.commits, is_chosen));
        let committed = self.commit_only(options);
        work_here(self.ctx(), &committed);
        committed
    }
}

impl Db {
    /// Begins a transaction. [`Db::transact`] also commits it, and repeats it after a conflict.
    pub fn begin(&self, isolation: Isolation) -> Transaction {
        Transaction::new(&self.inner.engine.write, isolation)
    }

    /// Runs `body` in a serializable transaction and commits. After a conflict it repeats both, with growing random
    /// pauses, up to 100 times, so `body` must be repeatable. The errors of `body` may be of any type that holds an
    /// [`Error`]. If `body` fails, nothing is committed and nothing is repeated.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// #[derive(Debug, thiserror::Error)]
    /// enum ShopError {
    ///     #[error("sold out")]
    ///     SoldOut,
    ///     #[error(transparent)]
    ///     Store(#[from] tidesdb::Error),
    /// }
    ///
    /// fn sell(db: &tidesdb::Db) -> Result<u8, ShopError> {
    ///     let stock = db.default_family();
    ///     db.transact(|tx| {
    ///         let left = tx.get(stock, b"boat")?.map_or(0, |v| v[0]);
    ///         let left = left.checked_sub(1).ok_or(ShopError::SoldOut)?;
    ///         tx.put(stock, b"boat", &[left])?;
    ///         Ok(left)
    ///     })
    /// }
    ///
    /// db.put(b"boat", &[1])?;
    /// assert_eq!(sell(&db)?, 0);
    /// assert!(matches!(sell(&db), Err(ShopError::SoldOut)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A body that commits the transaction itself, or leaves it ended, is not repeated. So [`Transaction::rollback`] is the way to
    /// undo everything without an error:
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let is_new = db.transact(|tx| {
    ///     tx.put(db.default_family(), b"job", b"1")?;
    ///     tx.rollback();
    ///     Ok::<_, tidesdb::Error>(false)
    /// })?;
    /// assert!(!is_new && !db.contains(b"job")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `body` and of the commit; `Conflict` after the last attempt.
    pub fn transact<R, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_with(&TransactOptions::default(), body)
    }

    /// Like [`Db::transact`], with options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::{Isolation, TransactOptions};
    /// let options = TransactOptions::default().isolation(Isolation::Snapshot).attempts(3);
    /// db.transact_with(&options, |tx| tx.put(db.default_family(), b"k", b"v"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_with<R, E: From<Error>>(
        &self,
        options: &TransactOptions,
        body: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        transact(&self.inner.engine.write, options, body)
    }
}

/// Runs `body` in a transaction, commits, and repeats both after a conflict.
pub(super) fn transact<R, E: From<Error>>(
    ctx: &Arc<WriteCtx>,
    options: &TransactOptions,
    mut body: impl FnMut(&mut Transaction) -> Result<R, E>,
) -> Result<R, E> {
    let mut tx = Transaction::new(ctx, options.isolation);
    let mut attempt = 1;
    loop {
        tx.set_repeatable();
        let out = body(&mut tx)?;
        if !tx.is_open() {
            return Ok(out);
        }
        let repeatable = tx.is_repeatable() && attempt < options.attempts;
        match tx.commit_with(&options.write) {
            Ok(_) => return Ok(out),
            Err(Error::Conflict { .. }) if repeatable => {}
            Err(e) => return Err(e.into()),
        }
        pause(ctx, attempt);
        attempt += 1;
        tx.reset();
    }
}

/// Waits for a random time, longer after more attempts.
fn pause(ctx: &WriteCtx, attempt: u32) {
    let env = &ctx.env;
    let longest = PAUSE_MIN.saturating_mul(1 << attempt.min(16)).min(PAUSE_MAX);
    let share = env.entropy.next_u64() % longest.as_nanos().max(1) as u64;
    env.clock.sleep(Duration::from_nanos(share));
}
