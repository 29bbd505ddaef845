//! Settings of one call.

use super::SyncMode;

/// Settings of one commit.
///
/// ```
/// let durable_now = tidesdb::WriteOptions::default().sync(tidesdb::SyncMode::Full);
/// assert!(durable_now.sync.is_some());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Overrides the database's sync mode for this commit. `Full` makes this commit and all commits before it durable
    /// before the call returns. `Interval` lets the background thread sync later.
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
/// [docs/transactions.md](https://github.com/tidesdb/tidesdb-rs/blob/main/docs/transactions.md) has a schedule for each
/// level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// Each read sees the newest data, including commits that are about to be published.
    ReadUncommitted,
    /// Each read sees what was committed before it.
    #[default]
    ReadCommitted,
    /// All reads see the state at the beginning. The commit is refused if a key that was read has been written since.
    RepeatableRead,
    /// All reads see the state at the beginning. The commit is refused if a key that it writes has been written since:
    /// the first to commit wins.
    Snapshot,
    /// As if transactions ran one after the other. The commit is refused if a key that was read, or any key in an
    /// interval that was scanned, has been written since.
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
pub struct ReadOptions {
    /// Do not fetch values, and never access the value log: reading the `value` of an iterator is then an error.
    pub keys_only: bool,
}
