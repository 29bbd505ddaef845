//! A family: what a program does with keys and values. A database is its default family with more methods.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use tidesdb::{ReadOptions, Slice, WriteBatch};

use crate::buffer::{Bytes, copied};
use crate::figures;
use crate::handle::{Owned, Shared};
use crate::ingest::{SortedWriter, TableBuilder};
use crate::operators;
use crate::options::{self, Expiry, Folder, Mode, Moment, write_options};
use crate::pairs::each_chunk;
use crate::rows::{self, Cursor, Kind, Row, Rows};
use crate::values::{self, WriteHandle};

/// A family of keys and values in one order, with its own settings. `mapping()` is one as a `MutableMapping`.
///
/// Keys and values are bytes: `bytes`, `bytearray`, `memoryview` or whatever has the buffer protocol; what is read is `bytes`.
#[pyclass(frozen, subclass, module = "tidesdb")]
pub(crate) struct Family {
    pub(crate) shared: Arc<Shared>,
    pub(crate) family: Owned<tidesdb::Family>,
}

/// Returns a row as a pair of `bytes`.
///
/// # Errors
/// Those of [`copied`].
pub(crate) fn row<'py>(py: Python<'py>, found: Option<(Slice, Slice)>) -> PyResult<Row<'py>> {
    found.map(|(key, value)| Ok((copied(py, &key)?, copied(py, &value)?))).transpose()
}

/// Returns values as a list, with `None` for those that are missing.
///
/// # Errors
/// Those of [`copied`].
pub(crate) fn list<'py>(py: Python<'py>, found: &[Option<Slice>]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for value in found {
        list.append(value.as_ref().map(|value| copied(py, value)).transpose()?)?;
    }
    Ok(list)
}

/// Returns the value, or `default`.
///
/// # Errors
/// Those of [`copied`].
pub(crate) fn or_default<'py>(
    py: Python<'py>,
    found: Option<Slice>,
    default: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match found {
        Some(value) => copied(py, &value)?.into_any(),
        None => default.unwrap_or_else(|| py.None().into_bound(py)),
    })
}

/// The exception for a key that is missing.
fn missing(py: Python<'_>, key: &Bytes<'_>) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key.as_ref()).unbind())
}

/// Returns the value of `key`, as `family[key]` does.
///
/// # Errors
/// `KeyError` if there is none; those of [`copied`].
pub(crate) fn or_missing<'py>(
    py: Python<'py>,
    found: Option<Slice>,
    key: &Bytes<'_>,
) -> PyResult<Bound<'py, PyBytes>> {
    found.map_or_else(|| Err(missing(py, key)), |value| copied(py, &value))
}

/// Returns the value that was taken, as `dict.pop` does.
///
/// # Errors
/// `KeyError` if there is neither a value nor a default; `TypeError` for two defaults; those of [`copied`].
pub(crate) fn popped<'py>(
    py: Python<'py>,
    taken: Option<Slice>,
    key: &Bytes<'_>,
    default: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    match (taken, default.len()) {
        (Some(value), 0 | 1) => Ok(copied(py, &value)?.into_any()),
        (None, 0) => Err(missing(py, key)),
        (None, 1) => default.get_item(0),
        (_, n) => Err(PyTypeError::new_err(format!("pop expected at most 2 arguments, got {}", n + 1))),
    }
}

/// Passes the keys of an iterable to `read`, where they lie.
///
/// # Errors
/// If one is not bytes-like; those of `read`.
pub(crate) fn with_keys<R>(
    of: &Bound<'_, PyAny>,
    read: impl FnOnce(&[Bytes<'_>]) -> PyResult<R>,
) -> PyResult<R> {
    let held = match of.cast_exact::<PyList>() {
        Ok(list) => list.iter().collect(),
        Err(_) => of.try_iter()?.collect::<PyResult<Vec<_>>>()?,
    };
    let keys = held.iter().map(|key| key.extract()).collect::<PyResult<Vec<Bytes<'_>>>>()?;
    read(&keys)
}

/// Returns the bytes of a value from `offset` on, `length` of them or all.
pub(crate) fn part(offset: u64, length: Option<u64>) -> Range<u64> {
    offset..length.map_or(u64::MAX, |length| offset.saturating_add(length))
}

/// Adds a put to `batch`.
///
/// # Errors
/// Those of the engine.
pub(crate) fn add(
    batch: &mut WriteBatch,
    family: &tidesdb::Family,
    key: &[u8],
    value: &[u8],
    expiry: Expiry,
) -> tidesdb::Result<()> {
    match expiry {
        Expiry::Default => batch.put(family, key, value),
        Expiry::After(ttl) => batch.put_with_ttl(family, key, value, ttl),
        Expiry::At(at) => batch.put_expiring(family, key, value, at),
    }
}

impl Family {
    pub(crate) fn new(shared: &Arc<Shared>, family: tidesdb::Family) -> Self {
        Self { shared: Arc::clone(shared), family: Owned::new(family) }
    }

    fn run<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tidesdb::Family) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        let family = &*self.family;
        self.shared.run(py, |_| call(family))
    }

    fn rows(&self, py: Python<'_>, kind: Kind, span: &rows::Span<'_>) -> PyResult<Rows> {
        self.shared.check(py)?;
        let open = |options: &ReadOptions| self.run(py, |family| family.cursor_with(options));
        Rows::new(py, &self.shared, &self.family, kind, span, false, open)
    }
}

#[pymethods]
impl Family {
    /// Returns the value of `key`, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.run(py, |family| family.get(&key))?;
        or_default(py, found, default)
    }

    /// Sets `key` to `value`; durable when it returns, unless the sync mode says otherwise. Returns the sequence number.
    ///
    /// ttl: seconds or a timedelta until the row expires; math.inf = never, whatever the family says.
    /// expires: the moment, in seconds since 1970 or as a datetime.
    /// sync: the sync mode of this call: "full", "none" or seconds.
    #[pyo3(signature = (key, value, *, ttl=None, expires=None, sync=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        ttl: Option<options::Ttl>,
        expires: Option<Moment>,
        sync: Option<Mode>,
    ) -> PyResult<u64> {
        let expiry = Expiry::new(ttl, expires)?;
        if sync.is_none() && expiry.is_default() {
            return self.run(py, |family| family.put(&key, &value));
        }
        let family = &*self.family;
        self.shared.run(py, |db| {
            let mut batch = WriteBatch::new();
            add(&mut batch, family, &key, &value, expiry)?;
            db.write_with(&mut batch, &write_options(sync))
        })
    }

    /// Returns whether `key` exists: as `key in family`.
    fn contains(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        self.run(py, |family| family.contains(&key))
    }

    /// Returns when the row of `key` expires, in seconds since 1970; `math.inf` = never. `None` if the key is missing.
    fn expiry(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<Option<f64>> {
        self.run(py, |family| rows::expiry(family.cursor_with(&Kind::Keys.options())?, family, &key))
    }

    /// Deletes `key`, whether or not it exists. Returns the sequence number.
    #[pyo3(signature = (key, *, sync=None))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, sync: Option<Mode>) -> PyResult<u64> {
        self.run(py, |family| family.delete_with(&key, &write_options(sync)))
    }

    /// Deletes a key that was put at most once since its last delete: cheaper than `delete`.
    #[pyo3(signature = (key, *, sync=None))]
    fn single_delete(&self, py: Python<'_>, key: Bytes<'_>, sync: Option<Mode>) -> PyResult<u64> {
        self.run(py, |family| family.single_delete_with(&key, &write_options(sync)))
    }

    /// Deletes the keys from `start` up to, and without, `stop`, in one step however many they are. `None` is no limit.
    #[pyo3(signature = (start, stop, *, sync=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        sync: Option<Mode>,
    ) -> PyResult<u64> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        self.run(py, |family| family.delete_range_with(range, &write_options(sync)))
    }

    /// Deletes the keys that begin with `prefix`, in one step.
    #[pyo3(signature = (prefix, *, sync=None))]
    fn delete_prefix(&self, py: Python<'_>, prefix: Bytes<'_>, sync: Option<Mode>) -> PyResult<u64> {
        self.run(py, |family| family.delete_prefix_with(&prefix, &write_options(sync)))
    }

    /// Deletes all keys, in one step.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |family| family.delete_range(..)).map(drop)
    }

    /// Combines the value of `key` with `operand` by the merge operator of the family, without reading it. For the operator "add",
    /// `operand` may be a number.
    #[pyo3(signature = (key, operand, *, sync=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        operand: &Bound<'_, PyAny>,
        sync: Option<Mode>,
    ) -> PyResult<u64> {
        let operand = operators::operand(operand)?;
        self.run(py, |family| family.merge_with(&key, &operand, &write_options(sync)))
    }

    /// Returns the values of `keys`, in their order, with `None` for those that are missing: one call for many keys.
    fn multi_get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        with_keys(keys, |keys| list(py, &self.run(py, |family| family.multi_get(keys))?))
    }

    /// Returns which of `keys` exist, in their order, as a list of `bool`. No value is read.
    fn multi_contains(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        with_keys(keys, |keys| self.run(py, |family| family.multi_contains(keys)))
    }

    /// Puts all pairs of a mapping, or of an iterable of pairs, in one atomic commit. Returns its sequence number.
    #[pyo3(signature = (items, *, ttl=None, expires=None, sync=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        items: &Bound<'_, PyAny>,
        ttl: Option<options::Ttl>,
        expires: Option<Moment>,
        sync: Option<Mode>,
    ) -> PyResult<u64> {
        self.shared.check(py)?;
        let expiry = Expiry::new(ttl, expires)?;
        let mut batch = Owned::new(WriteBatch::new());
        each_chunk(py, items, |rows| {
            let batch = &mut *batch;
            self.run(py, |family| {
                rows.iter().try_for_each(|(key, value)| add(batch, family, key, value, expiry))
            })
        })?;
        self.shared.run(py, |db| db.write_with(&mut batch, &write_options(sync)))
    }

    /// Puts all pairs of a mapping, or of an iterable of pairs, in one atomic commit.
    fn update(&self, py: Python<'_>, items: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put_many(py, items, None, None, None).map(drop)
    }

    /// Deletes `key` and returns its value, or `default`; `KeyError` if there is neither. Atomic.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        popped(py, self.run(py, |family| family.take(&key))?, &key, default)
    }

    /// Returns the value of `key`; if it has none, sets it to `default` first. Atomic.
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        default: Bytes<'_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        loop {
            if let Some(value) = self.run(py, |family| family.get(&key))? {
                return copied(py, &value);
            }
            if self.run(py, |family| family.compare_and_swap(&key, None, Some(&default)))? {
                return copied(py, &default);
            }
        }
    }

    /// Sets `key` to `value` and returns what it was, or `None`. Atomic.
    fn replace<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        value: Bytes<'_>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let before = self.run(py, |family| family.replace(&key, &value))?;
        before.map(|before| copied(py, &before)).transpose()
    }

    /// Sets `key` to `new` if its value is `expected`, and returns whether it was; `None` stands for no value. Atomic.
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        expected: Option<Bytes<'_>>,
        new: Option<Bytes<'_>>,
    ) -> PyResult<bool> {
        let (expected, new) = (expected.as_ref().map(Bytes::as_ref), new.as_ref().map(Bytes::as_ref));
        self.run(py, |family| family.compare_and_swap(&key, expected, new))
    }

    /// Returns `length` bytes of the value of `key` from `offset` on, as far as it has them, without reading the rest of a long value;
    /// `None` if the key is missing.
    #[pyo3(signature = (key, offset=0, length=None))]
    fn get_part<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let part = self.run(py, |family| family.get_part(&key, part(offset, length)))?;
        part.map(|part| copied(py, &part)).transpose()
    }

    /// Returns the first key and its value, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        row(py, self.run(py, tidesdb::Family::first)?)
    }

    /// Returns the last key and its value, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        row(py, self.run(py, tidesdb::Family::last)?)
    }

    /// Deletes the first key and returns it with its value, or `None`. Atomic: a queue.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        row(py, self.run(py, tidesdb::Family::pop_first)?)
    }

    /// Deletes the last key and returns it with its value, or `None`. Atomic.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        row(py, self.run(py, tidesdb::Family::pop_last)?)
    }

    /// Iterates over pairs of a key and its value, in the order of the keys, from `start` up to, and without, `stop`; or over those
    /// that begin with `prefix`; backwards with `reverse`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        reverse: bool,
    ) -> PyResult<Rows> {
        self.rows(py, Kind::Items, &rows::Span { start, stop, prefix, reverse })
    }

    /// Iterates over the keys: see `items`. No value is read.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        reverse: bool,
    ) -> PyResult<Rows> {
        self.rows(py, Kind::Keys, &rows::Span { start, stop, prefix, reverse })
    }

    /// Iterates over the values: see `items`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn values(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        reverse: bool,
    ) -> PyResult<Rows> {
        self.rows(py, Kind::Values, &rows::Span { start, stop, prefix, reverse })
    }

    /// Counts the keys from `start` up to, and without, `stop`, or those with `prefix`, by reading all of them.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None))]
    fn count(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
    ) -> PyResult<u64> {
        self.shared.check(py)?;
        let bounds = rows::Span { start, stop, prefix, reverse: false }.bounds(py, &self.family)?;
        self.run(py, |family| rows::count(family.cursor_with(&Kind::Keys.options())?, bounds))
    }

    /// Returns a cursor, which moves in both directions and seeks: among all keys, those from `start` up to, and without, `stop`, or
    /// those with `prefix`. With `keys_only` it reads no values.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, keys_only=false))]
    fn cursor(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        keys_only: bool,
    ) -> PyResult<Cursor> {
        self.shared.check(py)?;
        let open = |options: &ReadOptions| self.run(py, |family| family.cursor_with(options));
        let span = rows::Span { start, stop, prefix, reverse: false };
        Cursor::new(py, &self.shared, &self.family, &span, keys_only, open)
    }

    /// Returns a binary file object that reads the value of `key`, or `None` if the key is missing. It seeks, and reads a long value in
    /// pieces: what the value was when the call returned, whatever is written meanwhile.
    fn value_reader<'py>(&self, py: Python<'py>, key: Bytes<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.run(py, |family| family.value_reader(&key))?;
        values::reader(py, &self.shared, reader)
    }

    /// Returns a binary file object that writes the value of `key`, of any length, in little memory. The value appears as a whole with
    /// `close`. A `with` block that ends with an exception discards it, and so does a writer that is collected without `close`.
    #[pyo3(signature = (key, *, ttl=None, expires=None, sync=None))]
    fn value_writer<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        ttl: Option<options::Ttl>,
        expires: Option<Moment>,
        sync: Option<Mode>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let expiry = Expiry::new(ttl, expires)?;
        let writer = self.run(py, |family| family.value_writer(&key))?;
        values::writer(py, WriteHandle::new(&self.shared, writer, expiry, sync), None)
    }

    /// Writes what is in memory to tables. With `wait=False` it returns at once, and a thread of the engine does it.
    #[pyo3(signature = (*, wait=true))]
    fn flush(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.run(py, |family| if wait { family.flush() } else { family.start_flush() })
    }

    /// Merges the tables with keys from `start` up to, and without, `stop`; all of them without limits.
    #[pyo3(signature = (start=None, stop=None))]
    fn compact(&self, py: Python<'_>, start: Option<Bytes<'_>>, stop: Option<Bytes<'_>>) -> PyResult<()> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        let all = start.is_none() && stop.is_none();
        self.run(py, |family| if all { family.compact() } else { family.compact_range(range) })
    }

    /// Estimates how much a range holds, without reading it: a dictionary with `entries`, `bytes`, `blocks`, `tables`, `sources` and
    /// `memtable_entries`.
    #[pyo3(signature = (start=None, stop=None))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        figures::estimate(py, &self.run(py, |family| Ok(family.estimate_range(range)))?)
    }

    /// Returns an upper limit of the number of keys, without reading any: versions and deletes of one key count as several.
    fn key_count_max(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |family| Ok(family.key_count_max()))
    }

    /// Explains what `get` of `key` does and returns: a dictionary with `outcome`, `value`, the `sources` that it looks into with the
    /// `versions` in each, `work`, and `text`, which is for people.
    fn explain<'py>(&self, py: Python<'py>, key: Bytes<'_>) -> PyResult<Bound<'py, PyDict>> {
        figures::explanation(py, &self.run(py, |family| family.explain(&key))?)
    }

    /// Explains a scan from `start` up to, and without, `stop`, of at most `rows` rows: a dictionary with the `keys` that it shows, what it
    /// meets in each of its `sources`, and `text`, which is for people.
    #[pyo3(signature = (start=None, stop=None, *, rows=1000))]
    fn explain_range<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        rows: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        figures::range_explanation(py, &self.run(py, |family| family.explain_range(range, rows))?)
    }

    /// Puts pairs whose keys are in the order of the family, of a mapping or an iterable, into tables, and takes all of them as one commit: for
    /// many rows, a part of the work of `put_many`. Each key comes once. Returns a dictionary with `seq`, `tables`, `rows` and `bytes`.
    #[pyo3(signature = (items, *, sync=None))]
    fn ingest_sorted<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        sync: Option<Mode>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let writer = self.run(py, tidesdb::Family::sorted_writer)?;
        let mut writer = Owned::new(writer);
        each_chunk(py, items, |rows| {
            let writer = &mut *writer;
            self.run(py, |_| rows.iter().try_for_each(|(key, value)| writer.rows().put(key, value)))
        })?;
        let taken = self.run(py, |_| writer.into_inner().commit_with(&write_options(sync)))?;
        figures::ingested(py, &taken)
    }

    /// Begins tables that `commit` adds to the family: as `ingest_sorted`, row by row. `with family.sorted_writer() as rows` commits at the end
    /// of the block, or discards the rows if it ends with an exception.
    #[pyo3(signature = (*, sync=None))]
    fn sorted_writer(&self, py: Python<'_>, sync: Option<Mode>) -> PyResult<Py<SortedWriter>> {
        let writer = self.run(py, tidesdb::Family::sorted_writer)?;
        Py::new(py, SortedWriter::new(&self.shared, writer, write_options(sync)))
    }

    /// Begins tables outside of the database, with the settings of this family, for `Db.ingest`: see `TableBuilder`.
    fn table_builder(&self, py: Python<'_>, stem: Folder) -> PyResult<Py<TableBuilder>> {
        Py::new(py, TableBuilder::new(self.run(py, |family| family.table_builder(&stem.0))?))
    }

    /// Statistics of the family, by name.
    fn family_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures::family(py, &self.run(py, |family| Ok(family.stats()))?)
    }

    /// The levels of the family and their tables.
    fn tree<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures::tree(py, &self.run(py, |family| Ok(family.tree()))?)
    }

    /// The settings of the family, by name.
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        options::current(py, &self.run(py, |family| Ok(family.current_options()))?)
    }

    /// Changes settings of the family, which are stored.
    #[pyo3(signature = (**settings))]
    fn change_options(&self, py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let options = options::family(settings)?;
        self.run(py, |family| family.change_options(options))
    }

    /// Changes settings of the family until the database is closed: they are not stored.
    #[pyo3(signature = (**settings))]
    fn change_options_until_close(
        &self,
        py: Python<'_>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let options = options::family(settings)?;
        self.run(py, |family| family.change_options_until_close(options))
    }

    /// Sets the compaction filter: `decide(key, value)` sees rows that merges of tables rewrite, and returns `True` to keep a row,
    /// `False` to delete it, or `bytes` to change its value. `value` is `None` if it lies in the value log. It is not stored.
    fn set_compaction_filter(&self, py: Python<'_>, decide: Option<Py<PyAny>>) -> PyResult<()> {
        if decide.as_ref().is_some_and(|decide| !decide.bind(py).is_callable()) {
            return Err(PyTypeError::new_err("a compaction filter is a function"));
        }
        let filter = decide.map(operators::filter);
        self.run(py, |family| {
            family.set_compaction_filter(filter);
            Ok(())
        })
    }

    /// Its name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.shared.db_even_closed(py)?;
        Ok(self.family.name())
    }

    /// Its number, which is not used again in this database.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u32> {
        self.shared.db_even_closed(py)?;
        Ok(self.family.id().0)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'_>) -> PyResult<Bound<'py, PyBytes>> {
        or_missing(py, self.run(py, |family| family.get(&key))?, &key)
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(py, key, value, None, None, None).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        self.delete(py, key, None).map(drop)
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        self.run(py, |family| family.contains(&key))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.keys(py, None, None, None, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.keys(py, None, None, None, true)
    }

    fn __len__(&self) -> PyResult<usize> {
        Err(PyTypeError::new_err(
            "a database does not know its number of keys: count() reads all of them, estimate() reads none, and len(mapping()) counts",
        ))
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<tidesdb.Family {:?} of {:?}>", self.name(py)?, self.shared.path))
    }
}
