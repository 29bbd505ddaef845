//! Typed tables on [TidesDB](tidesdb): keys and values have types, keys sort as their types do, and secondary indexes
//! change in the same transaction as their rows.
//!
//! ```
//! use tidesdb::Db;
//! use tidesdb_typed::{Error, IndexDefinition, Postcard, TableDefinition};
//!
//! #[derive(serde::Serialize, serde::Deserialize, Debug)]
//! struct Order {
//!     customer: String,
//!     cents: u64,
//! }
//!
//! /// Orders by customer, the largest last.
//! const BY_CUSTOMER: IndexDefinition<Postcard<Order>, (String, u64)> =
//!     IndexDefinition::new("customer", |order, keys| keys.add((&order.customer, order.cents)));
//! const ORDERS: TableDefinition<u64, Postcard<Order>> = TableDefinition::new("orders").indexes(&[&BY_CUSTOMER]);
//! const SPENT: TableDefinition<String, u64> = TableDefinition::new("spent");
//!
//! # fn main() -> Result<(), Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::open(dir.path())?;
//! let (orders, spent) = (ORDERS.open(&db)?, SPENT.open(&db)?);
//! for (id, cents) in [(1, 900), (2, 250)] {
//!     let order = Order { customer: "ann".to_owned(), cents };
//!     db.transact(|tx| {
//!         orders.within(tx).put(id, &order)?; // the index too
//!         spent.within(tx).update("ann", |sum| Some(sum.unwrap_or(0) + cents))?;
//!         Ok::<_, Error>(())
//!     })?;
//! }
//! assert_eq!(spent.get("ann")?, Some(1150));
//! let largest = orders.by(&BY_CUSTOMER).prefix(("ann",))?.next_back().transpose()?;
//! assert_eq!(largest.map(|(_, id, _)| id), Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! * [`TableDefinition`] and [`Table`]: a constant, and the open table. A table is a column family;
//!   [`Table::family`] returns it.
//! * Rows may have a time to live ([`Table::put_with_ttl`]), or the default TTL of their family ([`TableDefinition::open_with`] and
//!   [`FamilyOptions::default_ttl`](tidesdb::FamilyOptions::default_ttl)); their index entries expire with them.
//! * [`Key`]: integers, floating-point numbers, `bool`, strings, byte strings, arrays, tuples, `Option`, and types of
//!   your own. Callers pass keys in their borrowed form: `&str` for `String`.
//! * [`Value`]: every key type, and [`Postcard`] and [`Json`] for types that serde can encode.
//! * [`IndexDefinition`]: unique and non-unique indexes, read with [`Table::by`], from page to page with [`By::after`],
//!   and checked with [`Table::check_indexes`].
//! * [`Error`]: names the table, and what could not be decoded.
#![forbid(unsafe_code)]

mod error;
mod key;
mod value;
mod index;
mod store;
mod schema;
mod rows;
mod by;
mod definition;
mod catalogue;
mod opening;
mod table;
#[cfg(test)]
mod tests;

pub use by::{By, RowsBy};
pub use definition::TableDefinition;
pub use error::{Error, Malformed, Result};
pub use index::{Index, IndexDefinition, IndexKeys};
pub use key::{Key, Prefix, decode, encode};
pub use rows::{Keys, Rows};
pub use store::{Read, Within, Write};
pub use table::Table;
#[cfg(feature = "json")]
pub use value::Json;
#[cfg(feature = "postcard")]
pub use value::Postcard;
pub use value::Value;

/// Compiles the example of the page of this crate as a doc test.
#[cfg(all(doctest, feature = "postcard"))]
#[doc = include_str!("../README.md")]
struct Readme;
