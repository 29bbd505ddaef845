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
    /// Overrides the database's sync mode for this commit. `Full` makes it, and all commits before it, durable
    /// before the call returns.
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

/// Settings of one read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// Do not fetch values: `value` of an iterator is then an error. Never touches the value log.
    pub keys_only: bool,
}
