//! Iterators over typed rows.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::Arc;

use tidesdb::{Iter, Slice};

use crate::error::Result;
use crate::key::Key;
use crate::schema::Schema;
use crate::value::Value;

/// Iterates over the rows of a table in key order, from either end, at one read timestamp.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::TableDefinition;
/// const SQUARES: TableDefinition<i32, i32> = TableDefinition::new("squares");
/// let squares = SQUARES.open(&db)?;
/// for n in -3..=3 { squares.put(n, n * n)?; }
/// let last: Vec<_> = squares.range(..2)?.rev().take(3).collect::<Result<_, _>>()?;
/// assert_eq!(last, [(1, 1), (0, 0), (-1, 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rows<K, V: Value> {
    inner: Iter,
    schema: Arc<Schema<V>>,
    key: PhantomData<fn() -> K>,
}

impl<K: Key, V: Value> Rows<K, V> {
    pub(crate) fn new(inner: Iter, schema: &Arc<Schema<V>>) -> Self {
        Self { inner, schema: Arc::clone(schema), key: PhantomData }
    }

    /// Iterates over the keys alone; no value is read.
    pub fn keys(self) -> Keys<K, V> {
        Keys(Self { inner: self.inner.keys_only(), ..self })
    }

    fn decode(&self, (key, value): (Slice, Slice)) -> Result<(K, V::Owned)> {
        Ok((self.schema.key(&key)?, self.schema.value(&value)?))
    }
}

impl<K: Key, V: Value> Iterator for Rows<K, V> {
    type Item = Result<(K, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.inner.next()?;
        Some(row.map_err(Into::into).and_then(|row| self.decode(row)))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Rows<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let row = self.inner.next_back()?;
        Some(row.map_err(Into::into).and_then(|row| self.decode(row)))
    }
}

impl<K: Key, V: Value> FusedIterator for Rows<K, V> {}

impl<K, V: Value> fmt::Debug for Rows<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("table", &self.schema.table).finish_non_exhaustive()
    }
}

/// Iterates over the keys of a table; made by [`Rows::keys`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::TableDefinition;
/// const WORDS: TableDefinition<String, String> = TableDefinition::new("words");
/// let words = WORDS.open(&db)?;
/// words.put("whale", "a large animal of the sea")?;
/// assert_eq!(words.iter()?.keys().collect::<Result<Vec<_>, _>>()?, ["whale"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Keys<K, V: Value>(Rows<K, V>);

impl<K: Key, V: Value> Keys<K, V> {
    fn decode(&self, row: tidesdb::Result<(Slice, Slice)>) -> Result<K> {
        self.0.schema.key(&row?.0)
    }
}

impl<K: Key, V: Value> Iterator for Keys<K, V> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0.inner.next()?;
        Some(self.decode(row))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Keys<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let row = self.0.inner.next_back()?;
        Some(self.decode(row))
    }
}

impl<K: Key, V: Value> FusedIterator for Keys<K, V> {}
