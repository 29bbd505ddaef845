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

use std::sync::Arc;

pub(crate) use database::{Database, Facts, SETTINGS_FAMILY};
pub(crate) use family::Family;
pub(crate) use iterator::{Iterator, To, iterate, moved, on};
pub(crate) use orders::Order;
pub(crate) use pool::{begin, end};
pub(crate) use transaction::{Tracking, Transaction};

use crate::handle::{Kind, Table, Window};

/// All open databases.
pub(crate) static DATABASES: Table<Arc<Database>> = Table::new(Kind::Database);
/// The families of open databases that callers asked for.
pub(crate) static FAMILIES: Table<Arc<Family>> = Table::new(Kind::Family);
/// All transactions.
pub(crate) static TRANSACTIONS: Table<Transaction> = Table::new(Kind::Transaction);
/// All iterators.
pub(crate) static ITERATORS: Table<Iterator, Window> = Table::new(Kind::Iterator);
