//! Reads through an index.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use tidesdb::{Family, Iter, Slice};

use crate::error::{Error, Result};
use crate::index::inner;
use crate::key::{Key, Prefix, encode};
use crate::schema::{OpenIndex, Schema};
use crate::store::{Bounds, Read, sealed::Read as _};
use crate::value::Value;

/// A table as one of its indexes sorts it; made by [`Table::by`](crate::Table::by). Index and rows are read at the same
/// timestamp; within a transaction that has written, an iterator may or may not show what it writes later. In a view that is older than the index,
/// rows from before are missing from it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{IndexDefinition, TableDefinition};
///
/// /// Towns by number of inhabitants.
/// const BY_SIZE: IndexDefinition<u32, u32> = IndexDefinition::new("size", |size, keys| keys.add(size));
/// const TOWNS: TableDefinition<String, u32> = TableDefinition::new("towns").indexes(&[&BY_SIZE]);
///
/// let towns = TOWNS.open(&db)?;
/// for (name, size) in [("Bonn", 330_000), ("Delft", 104_000), ("Gent", 265_000), ("Metz", 104_000)] {
///     towns.put(name, size)?;
/// }
/// let large: Vec<_> = towns.by(&BY_SIZE).range(200_000..)?.rev().collect::<Result<_, _>>()?;
/// assert_eq!(large[0], (330_000, "Bonn".to_owned(), 330_000));
/// assert_eq!(towns.by(&BY_SIZE).all(104_000)?.count(), 2);
/// assert_eq!(towns.by(&BY_SIZE).get(1)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct By<'t, K, V: Value, I, S> {
    schema: &'t Arc<Schema<V>>,
    store: &'t S,
    index: &'static str,
    kinds: PhantomData<fn() -> (K, I)>,
}

impl<'t, K: Key, V: Value, I: Key, S: Read> By<'t, K, V, I, S> {
    pub(crate) fn new(schema: &'t Arc<Schema<V>>, store: &'t S, index: &'static str) -> Self {
        Self { schema, store, index, kinds: PhantomData }
    }

    /// Returns the row that has `key`; the first one if several have.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Decode`], [`Error::NoIndex`], [`Error::MissingRow`]. The same holds for all reads
    /// through an index.
    pub fn get(&self, key: I::Ref<'_>) -> Result<Option<(K, V::Owned)>> {
        self.all(key)?.next().transpose().map(|row| row.map(|(_, key, value)| (key, value)))
    }

    /// Returns the first row in the order of the index: index key, key, value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::{IndexDefinition, TableDefinition};
    /// const BY_SIZE: IndexDefinition<u32, u32> = IndexDefinition::new("size", |size, keys| keys.add(size));
    /// const TOWNS: TableDefinition<String, u32> = TableDefinition::new("towns").indexes(&[&BY_SIZE]);
    /// let towns = TOWNS.open(&db)?;
    /// for (name, size) in [("Bonn", 330_000), ("Metz", 104_000)] { towns.put(name, size)?; }
    /// assert_eq!(towns.by(&BY_SIZE).first()?, Some((104_000, "Metz".to_owned(), 104_000)));
    /// assert_eq!(towns.by(&BY_SIZE).last()?, Some((330_000, "Bonn".to_owned(), 330_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn first(&self) -> Result<Option<(I, K, V::Owned)>> {
        self.iter()?.next().transpose()
    }

    /// Returns the last row in the order of the index: see [`By::first`].
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn last(&self) -> Result<Option<(I, K, V::Owned)>> {
        self.iter()?.next_back().transpose()
    }

    /// Returns whether a row has `key`, without reading the row.
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn contains(&self, key: I::Ref<'_>) -> Result<bool> {
        let view = self.store.view();
        let mut entries = view.prefix(&self.schema.indexes[self.place()?].family, &inner::<I>(key))?.keys();
        Ok(entries.next_ref()?.is_some())
    }

    /// Iterates over the rows that have `key`, in the order of their own keys.
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn all(&self, key: I::Ref<'_>) -> Result<RowsBy<'t, K, V, I, S>> {
        self.prefixed(&inner::<I>(key))
    }

    /// Iterates over all rows in the order of the index.
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn iter(&self) -> Result<RowsBy<'t, K, V, I, S>> {
        self.range(..)
    }

    /// Iterates over the rows with index keys in `range`.
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn range<'a>(&self, range: impl RangeBounds<I::Ref<'a>>) -> Result<RowsBy<'t, K, V, I, S>> {
        let entries = entries::<I>((range.start_bound().cloned(), range.end_bound().cloned()));
        self.rows(|view, family| view.range(family, entries))
    }

    /// Iterates over the rows whose index keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn prefix(&self, prefix: impl Prefix<I>) -> Result<RowsBy<'t, K, V, I, S>> {
        let mut bytes = Vec::new();
        prefix.encode_inside(&mut bytes);
        self.prefixed(&bytes)
    }

    /// Iterates over the rows after the row `key` that has `index_key`, in the order of the index: the next page of a
    /// list that ended with this row, whether it still exists or not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::{IndexDefinition, TableDefinition};
    /// const BY_SIZE: IndexDefinition<u32, u32> = IndexDefinition::new("size", |size, keys| keys.add(size));
    /// const TOWNS: TableDefinition<String, u32> = TableDefinition::new("towns").indexes(&[&BY_SIZE]);
    /// let towns = TOWNS.open(&db)?;
    /// for name in ["Bonn", "Delft", "Gent", "Metz", "Ulm"] { towns.put(name, 100)?; }
    ///
    /// let mut page: Vec<_> = towns.by(&BY_SIZE).all(100)?.take(2).collect::<Result<_, _>>()?;
    /// let mut pages = 0;
    /// while let Some((size, name, _)) = page.last() {
    ///     page = towns.by(&BY_SIZE).after(*size, name)?.take(2).collect::<Result<_, _>>()?;
    ///     pages += 1;
    /// }
    /// assert_eq!(pages, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn after(&self, index_key: I::Ref<'_>, key: K::Ref<'_>) -> Result<RowsBy<'t, K, V, I, S>> {
        let open = &self.schema.indexes[self.place()?];
        let (entry, _) = open.entry(&inner::<I>(index_key), &encode::<K>(key));
        self.rows(|view, family| view.range(family, (Bound::Excluded(entry), Bound::Unbounded)))
    }

    /// Iterates over the rows before the row `key` that has `index_key`. Read it from the end, with `rev`, for the next
    /// page of a list in reverse order: see [`By::after`].
    ///
    /// # Errors
    /// As [`By::get`].
    pub fn before(&self, index_key: I::Ref<'_>, key: K::Ref<'_>) -> Result<RowsBy<'t, K, V, I, S>> {
        let open = &self.schema.indexes[self.place()?];
        let (entry, _) = open.entry(&inner::<I>(index_key), &encode::<K>(key));
        self.rows(|view, family| view.range(family, (Bound::Unbounded, Bound::Excluded(entry))))
    }

    /// Returns the position of the index among those of the table.
    fn place(&self) -> Result<usize> {
        let (table, index) = (self.schema.table, self.index);
        let found = self.schema.indexes.iter().position(|open| open.index.name() == index);
        found.ok_or(Error::NoIndex { table, index })
    }

    fn prefixed(&self, prefix: &[u8]) -> Result<RowsBy<'t, K, V, I, S>> {
        self.rows(|view, family| view.prefix(family, prefix))
    }

    fn rows(
        &self,
        read: impl FnOnce(&S::View<'t>, &Family) -> tidesdb::Result<Iter>,
    ) -> Result<RowsBy<'t, K, V, I, S>> {
        let place = self.place()?;
        let view = self.store.view();
        let inner = read(&view, &self.schema.indexes[place].family)?;
        Ok(RowsBy { inner, view, place, schema: Arc::clone(self.schema), kinds: PhantomData })
    }
}

impl<K, V: Value, I, S> fmt::Debug for By<'_, K, V, I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").field("table", &self.schema.table).field("index", &self.index).finish()
    }
}

/// Returns the range of the entries whose index keys are in `range`. An entry begins with its index key.
fn entries<I: Key>((start, end): (Bound<I::Ref<'_>>, Bound<I::Ref<'_>>)) -> Bounds {
    let start = match start {
        Bound::Included(key) => Bound::Included(inner::<I>(key)),
        Bound::Excluded(key) => match after(inner::<I>(key)) {
            Ok(next) => Bound::Included(next),
            Err(key) => return (Bound::Included(key.clone()), Bound::Excluded(key)), // nothing is larger
        },
        Bound::Unbounded => Bound::Unbounded,
    };
    let end = match end {
        Bound::Included(key) => after(inner::<I>(key)).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Excluded(key) => Bound::Excluded(inner::<I>(key)),
        Bound::Unbounded => Bound::Unbounded,
    };
    (start, end)
}

/// Returns the first byte string after all that begin with `prefix`; the prefix itself if there is none.
fn after(prefix: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|b| *b != u8::MAX) else { return Err(prefix) };
    let mut next = prefix;
    next.truncate(last + 1);
    next[last] += 1;
    Ok(next)
}

/// Iterates over rows in the order of an index, from either end: index key, key, value.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{IndexDefinition, TableDefinition};
/// const BY_LENGTH: IndexDefinition<String, u8> =
///     IndexDefinition::new("length", |word, keys| keys.add(word.len() as u8));
/// const WORDS: TableDefinition<u32, String> = TableDefinition::new("words").indexes(&[&BY_LENGTH]);
/// let words = WORDS.open(&db)?;
/// words.put(1, "whale")?;
/// words.put(2, "boat")?;
/// let mut rows = words.by(&BY_LENGTH).iter()?;
/// assert_eq!(rows.next().transpose()?, Some((4, 2, "boat".to_owned())));
/// assert_eq!(rows.next_back().transpose()?, Some((5, 1, "whale".to_owned())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowsBy<'t, K, V: Value, I, S: Read + 't> {
    inner: Iter,
    view: S::View<'t>,
    /// Position of the index among those of the table.
    place: usize,
    schema: Arc<Schema<V>>,
    kinds: PhantomData<fn() -> (K, I)>,
}

impl<K: Key, V: Value, I: Key, S: Read> RowsBy<'_, K, V, I, S> {
    /// Reads the row of an index entry; `None` if both have expired since the iterator was made.
    fn row(&self, entry: tidesdb::Result<(Slice, Slice)>) -> Result<Option<(I, K, V::Owned)>> {
        let (entry, owner) = entry?;
        let mut rest = &*entry;
        let index_key = I::decode(&mut rest, false)
            .map_err(|cause| self.schema.damaged("index entry", I::name(), cause))?;
        let OpenIndex { index, family } = &self.schema.indexes[self.place];
        let key = if index.is_unique() { &*owner } else { rest };
        match self.view.get(&self.schema.family, key)? {
            Some(value) => Ok(Some((index_key, self.schema.key(key)?, self.schema.value(&value)?))),
            None if !self.view.contains(family, &entry)? => Ok(None),
            None => Err(Error::MissingRow { table: self.schema.table, index: index.name() }),
        }
    }
}

impl<K: Key, V: Value, I: Key, S: Read> Iterator for RowsBy<'_, K, V, I, S> {
    type Item = Result<(I, K, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.inner.next()?;
            if let Some(row) = self.row(entry).transpose() {
                return Some(row);
            }
        }
    }
}

impl<K: Key, V: Value, I: Key, S: Read> DoubleEndedIterator for RowsBy<'_, K, V, I, S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.inner.next_back()?;
            if let Some(row) = self.row(entry).transpose() {
                return Some(row);
            }
        }
    }
}

impl<K: Key, V: Value, I: Key, S: Read> FusedIterator for RowsBy<'_, K, V, I, S> {}

impl<K, V: Value, I, S: Read> fmt::Debug for RowsBy<'_, K, V, I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsBy").field("table", &self.schema.table).finish_non_exhaustive()
    }
}
