//! The objects behind handles: the tables of all databases, families, transactions and iterators of this
//! process.

mod family;
mod orders;
mod committer;
mod database;
mod savepoints;
mod transaction;
mod iterator;
mod pool;
mod writing;
pub(crate) mod beside;
pub(crate) mod snapshot;
mod reading;
mod scan;
mod object;
pub(crate) mod tables;
pub(crate) mod generations;
pub(crate) mod shared;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

pub(crate) use database::{Database, Facts, SETTINGS_FAMILY};
pub(crate) use family::Family;
pub(crate) use iterator::{Iterator, To, iterate, moved, on};
pub(crate) use object::{
    ObjectKind, append, batch, commit, commit_in_background, free, join, new_batch, new_reader, new_writer,
    read,
};
pub(crate) use orders::Order;
pub(crate) use pool::{begin, end};
pub(crate) use reading::Reading;
pub(crate) use scan::{
    Bounds, Buffers, NO_ROOM, Scan, Sink, Way, free as free_scan, new as scan, on as on_scan,
};
pub(crate) use transaction::{Tracking, Transaction};
pub(crate) use writing::{Op, Writing, add, bounds};

use crate::abi::{ERR_INVALID_DB, ERR_NOT_FOUND};
use crate::failure::{Answer, Failure, told};
use crate::gate::Gate;
use crate::handle::{Handle, Kind, Table, Window};

/// All open databases.
pub(crate) static DATABASES: Table<Arc<Database>> = Table::new(Kind::Database);
/// The families of open databases that callers asked for.
pub(crate) static FAMILIES: Table<Arc<Family>> = Table::new(Kind::Family);
/// All transactions.
pub(crate) static TRANSACTIONS: Table<Transaction> = Table::new(Kind::Transaction);
/// All iterators.
pub(crate) static ITERATORS: Table<Iterator, Window> = Table::new(Kind::Iterator);

/// Batches, readers and writers of values, builders of tables.
static OBJECTS: Table<object::Object, object::Shape> = Table::new(Kind::Object);
/// All iterators of the extended interface.
static SCANS: Table<Scan> = Table::new(Kind::Scan);
/// Snapshots, readers beside a writer, and backups.
static SHARED: Table<snapshot::Shared> = Table::new(Kind::Shared);

/// There is no such key.
pub(crate) const NO_KEY: Failure = told!(ERR_NOT_FOUND, "no such key");
/// There is no row.
pub(crate) const NO_ROW: Failure = told!(ERR_NOT_FOUND, "the family is empty");
const CLOSED: Failure = told!(ERR_INVALID_DB, "the database is closed");

/// A database or family that a call uses. A close waits until it is dropped.
pub(crate) struct Used<T> {
    object: Arc<T>,
    calls: Arc<Gate>,
}

impl<T> Used<T> {
    fn new(object: Arc<T>, calls: Arc<Gate>) -> Answer<Self> {
        if calls.enter() { Ok(Self { object, calls }) } else { Err(CLOSED) }
    }
}

impl<T> Deref for Used<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T> Drop for Used<T> {
    fn drop(&mut self) {
        self.calls.leave();
    }
}

/// Returns the database of `handle`, for the duration of a call.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle, `ERR_INVALID_DB` if a close has begun.
pub(crate) fn database(handle: Handle) -> Answer<Used<Database>> {
    let database = DATABASES.share(handle)?;
    let calls = Arc::clone(database.calls());
    Used::new(database, calls)
}

/// Returns the family of `handle`, for the duration of a call.
///
/// # Errors
/// Errors of [`database`].
pub(crate) fn family(handle: Handle) -> Answer<Used<Family>> {
    let family = FAMILIES.share(handle)?;
    let calls = Arc::clone(family.database()?.calls());
    Used::new(family, calls)
}
