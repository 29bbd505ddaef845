//! Iterators over typed rows.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::Arc;

use tidesdb::Iter;

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
        Keys { inner: self.inner.keys(), schema: self.schema, key: PhantomData }
    }
}

/// Decodes the row that an iterator lends.
fn row<K: Key, V: Value>(
    schema: &Schema<V>,
    lent: tidesdb::Result<Option<(&[u8], &[u8])>>,
) -> Option<Result<(K, V::Owned)>> {
    let row = lent.transpose()?;
    Some(row.map_err(Into::into).and_then(|(key, value)| Ok((schema.key(key)?, schema.value(value)?))))
}

/// Decodes the key that an iterator lends.
fn key<K: Key, V: Value>(schema: &Schema<V>, lent: tidesdb::Result<Option<&[u8]>>) -> Option<Result<K>> {
    let key = lent.transpose()?;
    Some(key.map_err(Into::into).and_then(|key| schema.key(key)))
}

impl<K: Key, V: Value> Iterator for Rows<K, V> {
    type Item = Result<(K, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        row(&self.schema, self.inner.next_ref())
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Rows<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        row(&self.schema, self.inner.next_back_ref())
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
pub struct Keys<K, V: Value> {
    inner: tidesdb::Keys,
    schema: Arc<Schema<V>>,
    key: PhantomData<fn() -> K>,
}

impl<K: Key, V: Value> Iterator for Keys<K, V> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        key(&self.schema, self.inner.next_ref())
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Keys<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        key(&self.schema, self.inner.next_back_ref())
    }
}

impl<K: Key, V: Value> FusedIterator for Keys<K, V> {}

impl<K, V: Value> fmt::Debug for Keys<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("table", &self.schema.table).finish_non_exhaustive()
    }
}
