//! Backups by generations, in a directory or in another store.

use std::path::Path;
use std::sync::Arc;

use tidesdb::backup::{Backups, CreateOptions, Generation};
use tidesdb::store::DirectoryStore;
use tidesdb::{Db, ObjectStore};

use super::SHARED;
use super::snapshot::Shared;
use crate::abi::{ERR_IO, Objstore};
use crate::callback;
use crate::connector;
use crate::failure::{Answer, Failure};
use crate::handle::{Handle, STALE};
use crate::system;

/// Opens the backups in a directory, which is created if it is missing.
///
/// # Errors
/// `ERR_IO`.
pub(crate) fn open(directory: &Path) -> Answer<Handle> {
    callback::not_in_order()?;
    system::check_parent(directory)?;
    // A program may change its folder later.
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let store = DirectoryStore::open(&directory)
        .map_err(|e| Failure::text_of(ERR_IO, format!("cannot open {}: {e}", directory.display())))?;
    insert(Arc::new(store))
}

/// Opens the backups in a store, and takes its connector over.
///
/// # Errors
/// Those of [`connector::take`].
pub(crate) fn open_store(at: *mut Objstore) -> Answer<Handle> {
    callback::not_in_order()?;
    connector::take(at, insert)
}

fn insert(store: Arc<dyn ObjectStore>) -> Answer<Handle> {
    SHARED.insert(Shared::Backups(Backups::new(store)), Handle::NULL)
}

/// Runs `body` on backups.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle; those of `body`.
pub(crate) fn on<R>(handle: Handle, body: impl FnOnce(&Backups) -> tidesdb::Result<R>) -> Answer<R> {
    callback::not_in_order()?;
    let Shared::Backups(backups) = SHARED.share(handle)? else { return Err(STALE) };
    Ok(body(&backups)?)
}

/// Makes a generation of a database.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle; the engine's errors.
pub(crate) fn create(handle: Handle, database: Handle, options: &CreateOptions) -> Answer<Generation> {
    let database = super::database(database)?;
    let engine: &Db = database.engine()?;
    on(handle, |backups| backups.create_with(engine, options))
}

/// Frees backups. The generations stay.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle.
pub(crate) fn free(handle: Handle) -> Answer {
    let Shared::Backups(_) = SHARED.share(handle)? else { return Err(STALE) };
    drop(SHARED.retire(handle));
    Ok(())
}
