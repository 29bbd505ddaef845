//! [`Table`]: reads and writes of typed rows.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidesdb::{Db, Family, FamilyOptions, Iter, ReadOptions, Slice, Snapshot, Transaction};

use crate::by::By;
use crate::definition::TableDefinition;
use crate::error::{Error, Result};
use crate::index::{IndexDefinition, sealed::Index as _};
use crate::key::{Key, Prefix, encode};
use crate::opening;
use crate::rows::Rows;
use crate::schema::Schema;
use crate::store::{Bounds, Read, Within, Write, sealed::Read as _};
use crate::value::Value;

/// A check of indexes leaves out rows that expire within this time. If it takes longer, it starts again with a longer time.
const CHECK_SPAN: Duration = Duration::from_secs(60);

impl<K: Key, V: Value> TableDefinition<K, V> {
    /// Opens the table; creates it if it does not exist. The handle is cheap to clone and keeps the database open. In a
    /// database that is open for reading only, such as a view of a [`Reader`](tidesdb::Reader), the table and the indexes that
    /// the definition lists must exist.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) if the table was created with other types, or the family has rows that are not of these
    /// types; [`Error::NameTaken`](crate::Error::NameTaken) if the table or an index needs a family that it did not make;
    /// [`Error::Duplicate`](crate::Error::Duplicate) if rows that exist do not fit a new unique index; the errors of
    /// [`Db::family_or_create`].
    pub fn open(&self, db: &Db) -> Result<Table<K, V>> {
        Ok(Table::new(opening::open(self, db, FamilyOptions::default())?, db))
    }

    /// Like [`TableDefinition::open`], with options for the family of the rows: the settings that they name are put in force.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::FamilyOptions;
    /// use tidesdb_typed::TableDefinition;
    /// const PAGES: TableDefinition<String, Vec<u8>> = TableDefinition::new("pages");
    /// let pages = PAGES.open_with(&db, FamilyOptions::default().value_threshold(4096))?;
    /// assert_eq!(pages.family().current_options().value_threshold, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`TableDefinition::open`].
    pub fn open_with(&self, db: &Db, options: FamilyOptions) -> Result<Table<K, V>> {
        Ok(Table::new(opening::open(self, db, options)?, db))
    }
}

/// An open table. By default it reads the newest data, and each write is a commit of its own. [`Table::within`] gives
/// the same table within a transaction, [`Table::at`] as a snapshot sees it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{Error, TableDefinition};
///
/// const ACCOUNTS: TableDefinition<String, i64> = TableDefinition::new("accounts");
/// const TRANSFERS: TableDefinition<(String, u64), i64> = TableDefinition::new("transfers");
///
/// let (accounts, transfers) = (ACCOUNTS.open(&db)?, TRANSFERS.open(&db)?);
/// accounts.put("ann", 100)?;
/// let before = db.snapshot();
/// db.transact(|tx| {
///     let ann = accounts.within(tx).get("ann")?.unwrap_or(0);
///     accounts.within(tx).put("ann", ann - 30)?;
///     transfers.within(tx).put(("ann", 1), -30)?;
///     Ok::<_, Error>(())
/// })?;
/// assert_eq!(accounts.get("ann")?, Some(70));
/// assert_eq!(accounts.at(&before).get("ann")?, Some(100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table<K, V: Value, S = Db> {
    schema: Arc<Schema<V>>,
    store: S,
    key: PhantomData<fn() -> K>,
}

impl<K: Key, V: Value> Table<K, V> {
    fn new(schema: Schema<V>, db: &Db) -> Self {
        Self { schema: Arc::new(schema), store: db.clone(), key: PhantomData }
    }
}

impl<K: Key, V: Value, S> Table<K, V, S> {
    /// The table within `tx`: reads see the transaction's own writes, and writes take effect when it commits.
    pub fn within<'t>(&self, tx: &'t mut Transaction) -> Table<K, V, Within<'t>> {
        self.on(Within(RefCell::new(tx)))
    }

    /// The table as `snapshot` sees it, for reading only.
    pub fn at(&self, snapshot: &Snapshot) -> Table<K, V, Snapshot> {
        self.on(snapshot.clone())
    }

    fn on<T>(&self, store: T) -> Table<K, V, T> {
        Table { schema: Arc::clone(&self.schema), store, key: PhantomData }
    }

    /// Returns the family of the rows: for statistics, estimates and maintenance. Writes past the table do not reach its
    /// indexes.
    pub fn family(&self) -> &Family {
        &self.schema.family
    }
}

impl<K: Key, V: Value, S: Read> Table<K, V, S> {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database), [`Error::Decode`](crate::Error::Decode). The same holds for all reads.
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let value = self.store.get(&self.schema.family, &encode::<K>(key))?;
        value.map(|value| self.schema.value(&value)).transpose()
    }

    /// Returns the values of many keys, all at one read timestamp, in the order of `keys`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const TOWNS: TableDefinition<String, u32> = TableDefinition::new("towns");
    /// let towns = TOWNS.open(&db)?;
    /// towns.put("Gent", 265_000)?;
    /// assert_eq!(towns.multi_get(&["Metz", "Gent"])?, [None, Some(265_000)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn multi_get(&self, keys: &[K::Ref<'_>]) -> Result<Vec<Option<V::Owned>>> {
        let keys: Vec<_> = keys.iter().map(|key| encode::<K>(*key)).collect();
        let values = self.store.multi_get(&self.schema.family, &keys)?;
        values.into_iter().map(|value| value.map(|value| self.schema.value(&value)).transpose()).collect()
    }

    /// Returns whether each of many keys exists, all at one read timestamp, in the order of `keys`, without reading a value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const TOWNS: TableDefinition<String, u32> = TableDefinition::new("towns");
    /// let towns = TOWNS.open(&db)?;
    /// towns.put("Gent", 265_000)?;
    /// assert_eq!(towns.multi_contains(&["Metz", "Gent"])?, [false, true]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn multi_contains(&self, keys: &[K::Ref<'_>]) -> Result<Vec<bool>> {
        let keys: Vec<_> = keys.iter().map(|key| encode::<K>(*key)).collect();
        Ok(self.store.multi_contains(&self.schema.family, &keys)?)
    }

    /// Returns whether `key` exists, without reading its value.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains(&self, key: K::Ref<'_>) -> Result<bool> {
        Ok(self.store.contains(&self.schema.family, &encode::<K>(key))?)
    }

    /// Returns the first row.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn first(&self) -> Result<Option<(K, V::Owned)>> {
        self.iter()?.next().transpose()
    }

    /// Returns the last row.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last(&self) -> Result<Option<(K, V::Owned)>> {
        self.iter()?.next_back().transpose()
    }

    /// Iterates over all rows in key order.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn iter(&self) -> Result<Rows<K, V>> {
        self.range(..)
    }

    /// Iterates over the rows with keys in `range`.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn range<'a>(&self, range: impl RangeBounds<K::Ref<'a>>) -> Result<Rows<K, V>> {
        let rows = self.store.range(&self.schema.family, bounds::<K>(range))?;
        Ok(Rows::new(rows, &self.schema))
    }

    /// Iterates over the rows whose keys begin with `prefix`: see [`Prefix`].
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn prefix(&self, prefix: impl Prefix<K>) -> Result<Rows<K, V>> {
        let mut bytes = Vec::new();
        prefix.encode(&mut bytes);
        Ok(Rows::new(self.store.prefix(&self.schema.family, &bytes)?, &self.schema))
    }

    /// Checks the indexes against the rows, all at one timestamp: each row has its index entries, and each entry its row.
    /// Reads the whole table. Returns the number of rows. Rows that expire before the end of the check are counted and not checked.
    ///
    /// [`Db::verify`] checks the bytes on disk; this checks what programs wrote: a row that was put past the table, or an
    /// index function that returns other keys than it did.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::{Error, IndexDefinition, TableDefinition, encode};
    /// const BY_SIZE: IndexDefinition<u32, u32> = IndexDefinition::new("size", |size, keys| keys.add(size));
    /// const TOWNS: TableDefinition<String, u32> = TableDefinition::new("towns").indexes(&[&BY_SIZE]);
    /// let towns = TOWNS.open(&db)?;
    /// towns.put("Gent", 265_000)?;
    /// assert_eq!(towns.check_indexes()?, 1);
    /// towns.family().put("Metz", encode::<u32>(121_000))?; // past the table
    /// assert!(matches!(towns.check_indexes(), Err(Error::MissingEntry { index: "size", .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingEntry`](crate::Error::MissingEntry), [`Error::MissingRow`](crate::Error::MissingRow); as [`Table::get`].
    pub fn check_indexes(&self) -> Result<u64> {
        let family = &self.schema.family;
        let mut span = CHECK_SPAN;
        loop {
            let until = family.expiry_after(span)?;
            let checked = self.check_rows_after(until);
            if family.expiry_after(Duration::ZERO)? <= until {
                return checked;
            }
            span = span.saturating_mul(8);
        }
    }

    /// Like [`Table::check_indexes`], for the rows that do not expire up to `until`. A row that expires between two reads would
    /// look like one without entries, or its entries like entries without a row.
    fn check_rows_after(&self, until: SystemTime) -> Result<u64> {
        let (schema, view) = (&self.schema, self.store.view());
        let (table, lasts) = (schema.table, |expiry: Option<SystemTime>| expiry.is_none_or(|at| at > until));
        let mut wanted = vec![0_u64; schema.indexes.len()];
        let mut count = 0;
        let mut rows = view.cursor(&schema.family, &ReadOptions::default())?;
        rows.seek_to_first()?;
        while rows.valid() {
            count += 1;
            if lasts(rows.expiry()) {
                let (key, value) = rows.entry()?;
                let value = schema.value(value)?;
                for (open, wanted) in schema.indexes.iter().zip(&mut wanted) {
                    for index_key in open.index.keys(V::to_ref(&value)) {
                        let (entry, owner) = open.entry(&index_key, key);
                        if view.get(&open.family, &entry)?.is_none_or(|found| *found != *owner) {
                            return Err(Error::MissingEntry { table, index: open.index.name() });
                        }
                        *wanted += 1;
                    }
                }
            }
            rows.next()?;
        }
        // Each entry that a row needs exists, so an entry without a row makes the number of entries too large.
        for (open, wanted) in schema.indexes.iter().zip(wanted) {
            let mut entries = view.cursor(&open.family, &ReadOptions::default().keys_only(true))?;
            entries.seek_to_first()?;
            let mut found = 0;
            while entries.valid() {
                found += u64::from(lasts(entries.expiry()));
                entries.next()?;
            }
            if found != wanted {
                return Err(Error::MissingRow { table, index: open.index.name() });
            }
        }
        Ok(count)
    }

    /// The table as `index` sorts it; the definition of the table must list the index.
    pub fn by<I: Key>(&self, index: &IndexDefinition<V, I>) -> By<'_, K, V, I, S> {
        By::new(&self.schema, &self.store, index.name())
    }
}

impl<K: Key, V: Value, S: Write> Table<K, V, S> {
    /// Sets `key` to `value`, and changes the indexes. If the family of the rows has a default TTL, the row expires after it.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database), [`Error::Encode`](crate::Error::Encode), [`Error::EmptyKey`](crate::Error::EmptyKey).
    /// With indexes also
    /// [`Error::Duplicate`](crate::Error::Duplicate), [`Error::WeakIsolation`](crate::Error::WeakIsolation), and
    /// [`Error::Decode`](crate::Error::Decode) for the old value. The same holds for all writes.
    pub fn put(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.put_expiring(key, value, self.schema.family.default_expiry()?)
    }

    /// Sets `key` to `value` for `ttl`, in milliseconds, rounded up. The index entries expire with the row.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use std::time::{Duration, SystemTime};
    /// use tidesdb_typed::{IndexDefinition, TableDefinition};
    /// const BY_USER: IndexDefinition<String, String> = IndexDefinition::new("user", |user, keys| keys.add(user));
    /// const SESSIONS: TableDefinition<u64, String> = TableDefinition::new("sessions").indexes(&[&BY_USER]);
    /// let sessions = SESSIONS.open(&db)?;
    /// sessions.put_with_ttl(7, "ann", Duration::from_secs(3600))?;
    /// assert_eq!(sessions.by(&BY_USER).all("ann")?.count(), 1); // for an hour
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`]; `InvalidArgument` of the database if `ttl` ends after the year 10889.
    pub fn put_with_ttl(&self, key: K::Ref<'_>, value: V::Ref<'_>, ttl: Duration) -> Result<()> {
        self.put_expiring(key, value, self.schema.family.expiry_after(ttl)?)
    }

    /// Sets `key` to `value` until `expiry`, in milliseconds, rounded up; `None` = forever, whatever the default TTL.
    ///
    /// # Errors
    /// As [`Table::put_with_ttl`].
    pub fn put_expiring(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: impl Into<Option<SystemTime>>,
    ) -> Result<()> {
        let (key, expiry) = (self.schema.written_key::<K>(key)?, expiry.into());
        if self.schema.indexes.is_empty() {
            return Ok(self.store.put(&self.schema.family, &key, &self.schema.encode(value)?, expiry)?);
        }
        self.store.transact(|tx| self.schema.put(tx, &key, value, expiry))
    }

    /// Deletes the row `key`, whether it exists or not, and its index entries.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn delete(&self, key: K::Ref<'_>) -> Result<()> {
        let key = self.schema.written_key::<K>(key)?;
        if self.schema.indexes.is_empty() {
            return Ok(self.store.delete(&self.schema.family, &key)?);
        }
        self.store.transact(|tx| self.schema.delete(tx, &key))
    }

    /// Sets `key` to `value`, as [`Table::put`] does, and returns the value that it had.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const PRICES: TableDefinition<String, u32> = TableDefinition::new("prices");
    /// let prices = PRICES.open(&db)?;
    /// assert_eq!(prices.replace("apple", 3)?, None);
    /// assert_eq!(prices.replace("apple", 4)?, Some(3));
    /// assert_eq!(prices.take("apple")?, Some(4));
    /// assert_eq!(prices.take("apple")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::put`].
    pub fn replace(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        let (schema, key) = (&self.schema, self.schema.written_key::<K>(key)?);
        self.store.transact(|tx| schema.replace(tx, &key, value, schema.family.default_expiry()?))
    }

    /// Deletes the row `key` and its index entries, and returns the value that it had. If several threads do this at once, one of them gets
    /// the value. Writes nothing if there is no such row.
    ///
    /// # Errors
    /// As [`Table::replace`].
    pub fn take(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let (schema, key) = (&self.schema, self.schema.written_key::<K>(key)?);
        self.store.transact(|tx| schema.take(tx, &key))
    }

    /// Sets `key` to the result of `change` for its value; `None` is the value of a row that does not exist, and deletes it. Returns the
    /// new value. Outside of a transaction, `change` runs again if another commit writes the row meanwhile. The row then has the default
    /// TTL of the family, whatever TTL it had.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const VISITS: TableDefinition<String, u64> = TableDefinition::new("visits");
    /// let visits = VISITS.open(&db)?;
    /// for n in 1..=3 {
    ///     assert_eq!(visits.update("page", |count| Some(count.unwrap_or(0) + 1))?, Some(n));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn update(
        &self,
        key: K::Ref<'_>,
        mut change: impl FnMut(Option<V::Owned>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        let (schema, key) = (&self.schema, self.schema.written_key::<K>(key)?);
        self.store.transact(|tx| {
            let old = tx.get(&schema.family, &key)?.map(|old| schema.value(&old)).transpose()?;
            let new = change(old);
            match &new {
                Some(new) => schema.put(tx, &key, V::to_ref(new), schema.family.default_expiry()?)?,
                None => schema.delete(tx, &key)?,
            }
            Ok(new)
        })
    }

    /// Removes the first row and returns it. If several threads do this at once, each gets a different row.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn pop_first(&self) -> Result<Option<(K, V::Owned)>> {
        self.pop(Iter::next)
    }

    /// Removes the last row and returns it: see [`Table::pop_first`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const STACK: TableDefinition<u64, String> = TableDefinition::new("stack");
    /// let stack = STACK.open(&db)?;
    /// for (n, plate) in (0..).zip(["red", "blue"]) { stack.put(n, plate)?; }
    /// assert_eq!(stack.pop_last()?, Some((1, "blue".to_owned())));
    /// assert_eq!(stack.first()?, stack.last()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn pop_last(&self) -> Result<Option<(K, V::Owned)>> {
        self.pop(Iter::next_back)
    }

    /// Removes the row that `end` takes from all rows.
    fn pop(
        &self,
        end: impl Fn(&mut Iter) -> Option<tidesdb::Result<(Slice, Slice)>>,
    ) -> Result<Option<(K, V::Owned)>> {
        let schema = &self.schema;
        self.store.transact(|tx| {
            let Some((key, value)) = end(&mut tx.iter(&schema.family)?).transpose()? else { return Ok(None) };
            schema.delete(tx, &key)?;
            Ok(Some((schema.key(&key)?, schema.value(&value)?)))
        })
    }

    /// Deletes the rows with keys in `range`: at the cost of one write, or, with indexes, row by row in one transaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const EVENTS: TableDefinition<u64, String> = TableDefinition::new("events");
    /// let events = EVENTS.open(&db)?;
    /// for at in 0..10 { events.put(at, "tick")?; }
    /// events.delete_range(..7)?;
    /// assert_eq!(events.first()?, Some((7, "tick".to_owned())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn delete_range<'a>(&self, range: impl RangeBounds<K::Ref<'a>>) -> Result<()> {
        let (schema, range) = (&self.schema, bounds::<K>(range));
        self.store.transact(|tx| {
            if schema.indexes.is_empty() {
                return Ok(tx.delete_range(&schema.family, &range)?);
            }
            let rows = tx.range(&schema.family, &range)?;
            schema.delete_all(tx, rows)
        })
    }

    /// Deletes the rows whose keys begin with `prefix`, as [`Table::delete_range`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb_typed::TableDefinition;
    /// const LOGINS: TableDefinition<(u64, i64), ()> = TableDefinition::new("logins"); // user and time
    /// let logins = LOGINS.open(&db)?;
    /// for user in 1..=3 { logins.put((user, 1_700_000_000), ())?; }
    /// logins.delete_prefix((2,))?;
    /// assert_eq!(logins.iter()?.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn delete_prefix(&self, prefix: impl Prefix<K>) -> Result<()> {
        let (schema, mut bytes) = (&self.schema, Vec::new());
        prefix.encode(&mut bytes);
        self.store.transact(|tx| {
            if schema.indexes.is_empty() {
                return Ok(tx.delete_prefix(&schema.family, &bytes)?);
            }
            let rows = tx.prefix(&schema.family, &bytes)?;
            schema.delete_all(tx, rows)
        })
    }
}

impl<K, V: Value, S: Clone> Clone for Table<K, V, S> {
    fn clone(&self) -> Self {
        Self { schema: Arc::clone(&self.schema), store: self.store.clone(), key: PhantomData }
    }
}

impl<K, V: Value, S> fmt::Debug for Table<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indexes: Vec<_> = self.schema.indexes.iter().map(|open| open.index.name()).collect();
        f.debug_struct("Table").field("name", &self.schema.table).field("indexes", &indexes).finish()
    }
}

/// Encodes the bounds of a range.
fn bounds<'a, K: Key>(range: impl RangeBounds<K::Ref<'a>>) -> Bounds {
    let encoded = |key: &K::Ref<'a>| encode::<K>(*key);
    (range.start_bound().map(encoded), range.end_bound().map(encoded))
}
