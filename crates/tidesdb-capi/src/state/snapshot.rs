//! Objects of the extended interface that many threads use at a time: snapshots, readers beside the writer, backups, and what databases share.

use std::sync::Arc;

use tidesdb::backup::Backups;
use tidesdb::{Resources, SeqNo, Snapshot};

use super::beside::Beside;
use super::{Database, SHARED, Used};
use crate::failure::Answer;
use crate::handle::{Handle, STALE};

/// An object that calls clone while they use it.
#[derive(Clone)]
pub(crate) enum Shared {
    Snapshot(Arc<Shot>),
    Beside(Arc<Beside>),
    Backups(Backups),
    Resources(Resources),
}

/// A snapshot, and its database.
pub(crate) struct Shot {
    engine: Snapshot,
    database: Arc<Database>,
}

impl Shot {
    /// Returns the engine's snapshot.
    pub(crate) fn engine(&self) -> &Snapshot {
        &self.engine
    }

    /// Returns the database.
    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

/// Creates a snapshot: of now, or at a sequence number.
///
/// # Errors
/// Errors of [`super::database`]; the engine's errors if it has no such history.
pub(crate) fn new(database: Handle, at: Option<SeqNo>) -> Answer<Handle> {
    let database = super::database(database)?;
    let engine = match at {
        Some(seq) => database.engine()?.snapshot_at(seq)?,
        None => database.engine()?.snapshot(),
    };
    let shot = Shot { engine, database: Arc::clone(&database) };
    SHARED.insert(Shared::Snapshot(Arc::new(shot)), database.handle())
}

/// Returns a snapshot, for the duration of a call.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle, `ERR_INVALID_DB` if a close of its database has begun.
pub(crate) fn shot(handle: Handle) -> Answer<Used<Shot>> {
    let Shared::Snapshot(shot) = SHARED.share(handle)? else { return Err(STALE) };
    let calls = Arc::clone(shot.database.calls());
    Used::new(shot, calls)
}

/// Frees a snapshot.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle.
pub(crate) fn free(handle: Handle) -> Answer {
    let Shared::Snapshot(_) = SHARED.share(handle)? else { return Err(STALE) };
    drop(SHARED.retire(handle));
    Ok(())
}
