//! Definitions of tables: a name, two types, and a list of indexes, as a constant.

use std::fmt;
use std::marker::PhantomData;

use crate::index::Index;
use crate::key::Key;
use crate::value::Value;

/// Defines a table with keys of type `K` and values of type `V`, usually as a constant. Each table is a column family of
/// the same name.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tidesdb::Db;
/// use tidesdb_typed::TableDefinition;
///
/// const STOCK: TableDefinition<String, u32> = TableDefinition::new("stock");
///
/// let db = Db::open(dir.path())?;
/// let stock = STOCK.open(&db)?; // created if it does not exist
/// stock.put("apple", 3)?; // durable when it returns
/// assert_eq!(stock.get("apple")?, Some(3));
/// for row in stock.range("a".."c")? {
///     let (name, count) = row?;
///     println!("{name}: {count}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TableDefinition<K, V: Value> {
    pub(crate) name: &'static str,
    pub(crate) indexes: &'static [&'static dyn Index<V>],
    key: PhantomData<fn() -> K>,
}

impl<K: Key, V: Value> TableDefinition<K, V> {
    /// Defines a table without indexes.
    pub const fn new(name: &'static str) -> Self {
        Self { name, indexes: &[], key: PhantomData }
    }

    /// Sets the indexes of the table. Every program that writes the table must list all of them. The open builds an index
    /// that is new, from the rows that exist, and drops one that is no longer listed. An index is the family `TABLE.INDEX`; a family of
    /// that name that the index did not make is refused with [`Error::NameTaken`](crate::Error::NameTaken).
    #[must_use]
    pub const fn indexes(self, indexes: &'static [&'static dyn Index<V>]) -> Self {
        Self { indexes, ..self }
    }

    /// Returns the name of the table.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K, V: Value> fmt::Debug for TableDefinition<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableDefinition").field("name", &self.name).finish_non_exhaustive()
    }
}
