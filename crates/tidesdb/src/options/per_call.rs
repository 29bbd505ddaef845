//! Settings of one call.

use super::SyncMode;

/// Settings of one commit. Puts, merges and deletes have a form that takes them, with `_with` at the end of its name, such as
/// [`Db::put_with`](crate::Db::put_with). [`Db::write_with`](crate::Db::write_with) takes them for a batch, which can hold any operation,
/// and [`Transaction::commit_with`](crate::Transaction::commit_with) for a transaction.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use std::time::Duration;
/// use tidesdb::{SyncMode, WriteBatch, WriteOptions};
/// let durable_now = WriteOptions::default().sync(SyncMode::Full);
/// db.put_with("a", "1", &durable_now)?;
/// let mut batch = WriteBatch::new();
/// batch.put_with_ttl(db.default_family(), "b", "2", Duration::from_secs(60))?;
/// db.write_with(&mut batch, &durable_now)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Overrides the database's sync mode for this commit. `Full` makes this commit and all commits before it durable
    /// before the call returns, whatever it holds: an empty batch or a transaction that wrote nothing, too. `Interval` lets the
    /// background thread sync later.
    pub sync: Option<SyncMode>,
}

impl WriteOptions {
    /// Sets the sync mode of this commit.
    #[must_use]
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.sync = Some(mode);
        self
    }
}

/// What a [`Transaction`](crate::Transaction) sees of other writers, and when its commit is refused.
/// `docs/concepts/transactions.md` in the repository has a schedule for each
/// level.
///
/// The default is `Serializable`, for [`Db::transact`](crate::Db::transact), too: transactions that are right one after the other are right
/// at the same time. [`Db::begin`](crate::Db::begin) has no default.
///
/// ```
/// use tidesdb::{Isolation, TransactOptions};
/// assert_eq!(Isolation::default(), Isolation::Serializable);
/// assert_eq!(TransactOptions::default().isolation, Isolation::default());
/// ```
///
/// Levels have no order: of two transactions that write the same key without reading it, `Snapshot` refuses the second one, and
/// `Serializable`, for which the result is that of one after the other, does not.
///
/// ```compile_fail,E0369
/// # use tidesdb::Isolation;
/// assert!(Isolation::Serializable > Isolation::Snapshot);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each read sees the newest data, including commits that are about to be published.
    ReadUncommitted,
    /// Each read sees what was committed before it.
    ReadCommitted,
    /// All reads see the state at the beginning. The commit is refused if a key that was read has been written since.
    RepeatableRead,
    /// All reads see the state at the beginning. The commit is refused if a key that it writes has been written since:
    /// the first to commit wins.
    Snapshot,
    /// As if transactions ran one after the other. The commit is refused if a key that was read, or any key in an
    /// interval that was scanned, has been written since.
    #[default]
    Serializable,
}

impl Isolation {
    /// Returns true if a commit depends on what was read.
    pub(crate) fn depends_on_reads(self) -> bool {
        matches!(self, Self::RepeatableRead | Self::Serializable)
    }
}

/// Settings of one read.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Do not fetch values, and never access the value log: reading the `value` of an iterator is then an error.
    pub keys_only: bool,
}

impl ReadOptions {
    /// Sets whether values are left out.
    #[must_use]
    pub fn keys_only(mut self, yes: bool) -> Self {
        self.keys_only = yes;
        self
    }
}

/// Settings of [`Db::transact_with`](crate::Db::transact_with).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TransactOptions {
    /// Isolation level; `Serializable` by default.
    pub isolation: Isolation,
    /// Maximum number of attempts, at least 1; 100 by default.
    pub attempts: u32,
    /// Settings of the commit.
    pub write: WriteOptions,
}

impl Default for TransactOptions {
    fn default() -> Self {
        Self { isolation: Isolation::default(), attempts: 100, write: WriteOptions::default() }
    }
}

impl TransactOptions {
    /// Sets the isolation level.
    #[must_use]
    pub fn isolation(mut self, level: Isolation) -> Self {
        self.isolation = level;
        self
    }

    /// Sets the maximum number of attempts.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the options of the commit.
    #[must_use]
    pub fn write(mut self, options: WriteOptions) -> Self {
        self.write = options;
        self
    }
}
