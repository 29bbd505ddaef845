//! The objects behind handles: the tables of all databases, families, transactions and iterators of this
//! process.

mod family;
mod orders;
mod database;
mod savepoints;
mod transaction;
mod iterator;
mod pool;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

pub(crate) use database::{Database, Facts, SETTINGS_FAMILY};
pub(crate) use family::Family;
pub(crate) use iterator::{Iterator, To, iterate, moved, on};
pub(crate) use orders::Order;
pub(crate) use pool::{begin, end};
pub(crate) use transaction::{Tracking, Transaction};

use crate::abi::ERR_INVALID_DB;
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
