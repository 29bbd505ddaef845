//! What handles ask of the open database that the write path alone cannot do.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Result;
use crate::family::FamilyCore;
use crate::ingest::Ingested;
use crate::options::{FamilyOptions, WriteOptions};
use crate::types::KeySpan;

/// The open database, for handles of families and transactions, which hold only its write path. `db` implements it.
pub trait OpenDatabase: Send + Sync {
    /// Runs the queued jobs in this thread until there are none, or one fails. A failure appears in the next call, or poisons the database.
    fn run_queued(self: Arc<Self>);

    /// Writes everything committed so far to tables.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`.
    fn flush(&self, family: &Arc<FamilyCore>) -> Result<()>;

    /// Flushes, merges the tables that overlap `range`, or all, and collects garbage of values.
    ///
    /// # Errors
    /// As [`OpenDatabase::flush`]; `Corrupt`; `Busy` if the merge was cancelled.
    fn compact(&self, family: &Arc<FamilyCore>, range: Option<KeySpan<'_>>) -> Result<()>;

    /// Names the value logs in the manifest that are durable and not named yet; all that were begun, after a sync, if `begun`.
    ///
    /// # Errors
    /// Errors of an install; `NotFound` for a dropped family; a failed sync poisons the database.
    fn name_value_logs(&self, family: &FamilyCore, begun: bool) -> Result<()>;

    /// Returns the settings that the manifest has.
    ///
    /// # Errors
    /// `NotFound` for a dropped family.
    fn stored_options(&self, family: &FamilyCore) -> Result<FamilyOptions>;

    /// Changes settings, until the close or, if `keep`, for good.
    ///
    /// # Errors
    /// `InvalidArgument` if the change is impossible; others as [`OpenDatabase::flush`]. Nothing changed.
    fn change_options(&self, family: &Arc<FamilyCore>, options: FamilyOptions, keep: bool) -> Result<()>;

    /// Takes sorted tables, which are in the folder of the database under names that nobody else knows, as one commit.
    ///
    /// # Errors
    /// As [`crate::Db::ingest`]. Nothing is taken, and the files are removed.
    fn take_tables(
        &self,
        family: &Arc<FamilyCore>,
        paths: Vec<PathBuf>,
        options: WriteOptions,
    ) -> Result<Ingested>;
}
