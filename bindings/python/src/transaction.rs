//! Transactions.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidesdb::{Isolation, ReadOptions, WriteOptions};

use crate::buffer::{Bytes, PIECE_BYTES, copied};
use crate::failure::raise;
use crate::family;
use crate::handle::{Guarded, Owned, Shared, detach, run};
use crate::operators::operand;
use crate::options::{self, Expiry, Level, Mode, Moment, level_name, write_options};
use crate::pairs::each_pair;
use crate::rows::{self, Cursor, Kind, Row, Rows};
use crate::snapshot::with_family;
use crate::values::{self, WriteHandle};

/// Reads and writes that happen as if alone. Its reads see its own writes. `with db.transaction() as tx` commits at the end of the block, or rolls
/// back if the block ends with an exception; a commit that another one excludes raises `Conflict`: see `Db.transact`, which retries.
///
/// The calls use the default family, or the one named by `family`: a `Family` or its name.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Transaction {
    pub(crate) shared: Arc<Shared>,
    transaction: Guarded<Owned<tidesdb::Transaction>>,
    options: WriteOptions,
}

/// A place in a transaction that it can be rolled back to.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Savepoint(tidesdb::Savepoint);

/// Adds a put to `tx`.
///
/// # Errors
/// Those of the engine.
fn add(
    tx: &mut tidesdb::Transaction,
    family: &tidesdb::Family,
    key: &[u8],
    value: &[u8],
    expiry: Expiry,
) -> tidesdb::Result<()> {
    match expiry {
        Expiry::Default => tx.put(family, key, value),
        Expiry::After(ttl) => tx.put_with_ttl(family, key, value, ttl),
        Expiry::At(at) => tx.put_expiring(family, key, value, at),
    }
}

impl Transaction {
    /// # Errors
    /// `Closed`, `Forked`.
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        level: Isolation,
        sync: Option<Mode>,
    ) -> PyResult<Self> {
        let transaction = shared.run(py, |db| Ok(db.begin(level)))?;
        let transaction = Guarded::new(Owned::new(transaction));
        Ok(Self { shared: Arc::clone(shared), transaction, options: write_options(sync) })
    }

    fn run<R: Send>(
        &self,
        py: Python<'_>,
        family: Option<&Bound<'_, PyAny>>,
        call: impl FnOnce(&mut tidesdb::Transaction, &tidesdb::Family) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        with_family(&self.shared, py, family, |family| self.run_in(py, family, call))
    }

    /// As [`Transaction::run`], once the family is known.
    fn run_in<R: Send>(
        &self,
        py: Python<'_>,
        family: &tidesdb::Family,
        call: impl FnOnce(&mut tidesdb::Transaction, &tidesdb::Family) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        self.transaction.with(py, |transaction| run(py, || call(transaction, family)))?
    }

    /// Adds an operation with `bytes` of keys and value. Only a copy that is short, and waits for no memory, is made under the interpreter lock.
    fn change(
        &self,
        py: Python<'_>,
        bytes: usize,
        family: Option<&Bound<'_, PyAny>>,
        change: impl FnOnce(&mut tidesdb::Transaction, &tidesdb::Family) -> tidesdb::Result<()> + Send,
    ) -> PyResult<()> {
        with_family(&self.shared, py, family, |family| {
            self.transaction.with(py, |tx| match bytes < PIECE_BYTES && tx.has_room(bytes) {
                true => change(tx, family).map_err(|e| raise(py, &e)),
                false => run(py, || change(tx, family)),
            })?
        })
    }

    fn add(
        &self,
        py: Python<'_>,
        key: &Bytes<'_>,
        value: &Bytes<'_>,
        expiry: Expiry,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let bytes = key.len() + value.len();
        self.change(py, bytes, family, |tx, family| add(tx, family, key, value, expiry))
    }

    /// Commits, in a thread that does not hold the interpreter lock.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn commit_detached(&self, options: &WriteOptions) -> tidesdb::Result<u64> {
        self.transaction.with_detached(|tx| tx.commit_with(options))
    }

    fn rows(
        &self,
        py: Python<'_>,
        kind: Kind,
        span: &rows::Span<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        with_family(&self.shared, py, family, |family| {
            let open =
                |options: &ReadOptions| self.run_in(py, family, |tx, family| tx.cursor_with(family, options));
            Rows::new(py, &self.shared, family, kind, span, true, open)
        })
    }
}

#[pymethods]
impl Transaction {
    /// Returns the value of `key`, or `default`. The key counts as read, unless `tracked` is false.
    #[pyo3(signature = (key, default=None, *, family=None, tracked=true))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        default: Option<Bound<'py, PyAny>>,
        family: Option<&Bound<'py, PyAny>>,
        tracked: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.run(py, family, |tx, family| match tracked {
            true => tx.get(family, &key),
            false => tx.get_untracked(family, &key),
        })?;
        family::or_default(py, found, default)
    }

    /// Returns the values of `keys`, in their order, with `None` for those that are missing.
    #[pyo3(signature = (keys, *, family=None))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        family::with_keys(keys, |keys| {
            family::list(py, &self.run(py, family, |tx, family| tx.multi_get(family, keys))?)
        })
    }

    /// Returns whether `key` exists. The key counts as read, unless `tracked` is false.
    #[pyo3(signature = (key, *, family=None, tracked=true))]
    fn contains(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        family: Option<&Bound<'_, PyAny>>,
        tracked: bool,
    ) -> PyResult<bool> {
        self.run(py, family, |tx, family| match tracked {
            true => tx.contains(family, &key),
            false => tx.contains_untracked(family, &key),
        })
    }

    /// Returns which of `keys` exist, in their order: see `Family.multi_contains`.
    #[pyo3(signature = (keys, *, family=None))]
    fn multi_contains(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<bool>> {
        family::with_keys(keys, |keys| self.run(py, family, |tx, family| tx.multi_contains(family, keys)))
    }

    /// Returns a part of the value of `key`: see `Family.get_part`.
    #[pyo3(signature = (key, offset=0, length=None, *, family=None))]
    fn get_part<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        offset: u64,
        length: Option<u64>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let range = family::part(offset, length);
        let part = self.run(py, family, |tx, family| tx.get_part(family, &key, range))?;
        part.map(|part| copied(py, &part)).transpose()
    }

    /// Returns when the row of `key` expires: see `Family.expiry`.
    #[pyo3(signature = (key, *, family=None))]
    fn expiry(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<f64>> {
        self.run(py, family, |tx, family| {
            rows::expiry(tx.cursor_with(family, &Kind::Keys.options())?, family, &key)
        })
    }

    /// Counts keys, by reading all of them, which then count as read: see `Family.count`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, family=None))]
    fn count(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        with_family(&self.shared, py, family, |family| {
            let bounds = rows::Span { start, stop, prefix, reverse: false }.bounds(py, family)?;
            self.run_in(py, family, |tx, family| {
                rows::count(tx.cursor_with(family, &Kind::Keys.options())?, bounds)
            })
        })
    }

    /// Returns a cursor over the rows as the transaction sees them when it is made: see `Family.cursor`. Keys that it passes count as read.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, keys_only=false, family=None))]
    fn cursor(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        keys_only: bool,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Cursor> {
        with_family(&self.shared, py, family, |family| {
            let open =
                |options: &ReadOptions| self.run_in(py, family, |tx, family| tx.cursor_with(family, options));
            let span = rows::Span { start, stop, prefix, reverse: false };
            Cursor::new(py, &self.shared, family, &span, keys_only, open)
        })
    }

    /// Sets `key` to `value`: see `Family.put`.
    #[pyo3(signature = (key, value, *, ttl=None, expires=None, family=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        ttl: Option<options::Ttl>,
        expires: Option<Moment>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.add(py, &key, &value, Expiry::new(ttl, expires)?, family)
    }

    /// Puts all pairs of a mapping, or of an iterable of pairs.
    #[pyo3(signature = (items, *, ttl=None, expires=None, family=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        items: &Bound<'_, PyAny>,
        ttl: Option<options::Ttl>,
        expires: Option<Moment>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let expiry = Expiry::new(ttl, expires)?;
        let mut all = Vec::new();
        each_pair(items, |pair| {
            all.push(pair);
            Ok(())
        })?;
        let rows: Vec<_> = all.iter().map(|(key, value)| (key.get(py), value.get(py))).collect();
        // At once: what other threads write into the transaction meanwhile would be rolled back with it.
        self.run(py, family, |tx, family| {
            let savepoint = tx.savepoint();
            tx.rollback_to(savepoint)?; // fails if there was no memory for it
            let done = rows.iter().try_for_each(|(key, value)| add(tx, family, key, value, expiry));
            if done.is_err() {
                tx.rollback_to(savepoint)?;
            }
            tx.release(savepoint)?;
            done
        })
    }

    /// Deletes `key`.
    #[pyo3(signature = (key, *, family=None))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, family: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.change(py, key.len(), family, |tx, family| tx.delete(family, &key))
    }

    /// Deletes a key that was put at most once since its last delete.
    #[pyo3(signature = (key, *, family=None))]
    fn single_delete(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.change(py, key.len(), family, |tx, family| tx.single_delete(family, &key))
    }

    /// Deletes `key` and returns its value, or `default`; `KeyError` if there is neither.
    #[pyo3(signature = (key, *default, family=None))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        default: &Bound<'py, PyTuple>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        family::popped(py, self.run(py, family, |tx, family| tx.take(family, &key))?, &key, default)
    }

    /// Sets `key` to `value` and returns what it was, or `None`.
    #[pyo3(signature = (key, value, *, family=None))]
    fn replace<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let before = self.run(py, family, |tx, family| tx.replace(family, &key, &value))?;
        before.map(|before| copied(py, &before)).transpose()
    }

    /// Deletes the keys from `start` up to, and without, `stop`.
    #[pyo3(signature = (start, stop, *, family=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        self.run(py, family, |tx, family| tx.delete_range(family, range))
    }

    /// Deletes the keys that begin with `prefix`.
    #[pyo3(signature = (prefix, *, family=None))]
    fn delete_prefix(
        &self,
        py: Python<'_>,
        prefix: Bytes<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.run(py, family, |tx, family| tx.delete_prefix(family, &prefix))
    }

    /// Combines the value of `key` with `operand`: see `Family.merge`.
    #[pyo3(signature = (key, operand, *, family=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        operand: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operand = self::operand(operand)?;
        self.run(py, family, |tx, family| tx.merge(family, &key, &operand))
    }

    /// Iterates over pairs of a key and its value: see `Family.items`. What was passed counts as read.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, family=None))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        reverse: bool,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        self.rows(py, Kind::Items, &rows::Span { start, stop, prefix, reverse }, family)
    }

    /// Iterates over keys: see `Family.items`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, family=None))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        reverse: bool,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        self.rows(py, Kind::Keys, &rows::Span { start, stop, prefix, reverse }, family)
    }

    /// Iterates over values: see `Family.items`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, family=None))]
    fn values(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        prefix: Option<Bytes<'_>>,
        reverse: bool,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        self.rows(py, Kind::Values, &rows::Span { start, stop, prefix, reverse }, family)
    }

    /// Returns the first key and its value, or `None`.
    #[pyo3(signature = (*, family=None))]
    fn first<'py>(&self, py: Python<'py>, family: Option<&Bound<'py, PyAny>>) -> PyResult<Row<'py>> {
        family::row(py, self.run(py, family, |tx, family| tx.first(family))?)
    }

    /// Returns the last key and its value, or `None`.
    #[pyo3(signature = (*, family=None))]
    fn last<'py>(&self, py: Python<'py>, family: Option<&Bound<'py, PyAny>>) -> PyResult<Row<'py>> {
        family::row(py, self.run(py, family, |tx, family| tx.last(family))?)
    }

    /// Returns a file object that reads the value of `key`, or `None`: see `Family.value_reader`.
    #[pyo3(signature = (key, *, family=None))]
    fn value_reader<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.run(py, family, |tx, family| tx.value_reader(family, &key))?;
        values::reader(py, &self.shared, reader)
    }

    /// Returns a file object that writes the value of `key`: see `Family.value_writer`. Its `close` adds the value to the transaction.
    #[pyo3(signature = (key, *, ttl=None, expires=None, family=None))]
    fn value_writer<'py>(
        slf: &Bound<'py, Self>,
        key: Bytes<'_>,
        ttl: Option<options::Ttl>,
        expires: Option<Moment>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, expiry, this) = (slf.py(), Expiry::new(ttl, expires)?, slf.get());
        let writer = this.run(py, family, |_, family| family.value_writer(&key))?;
        values::writer(py, WriteHandle::new(&this.shared, writer, expiry, None), Some(slf.as_any()))
    }

    fn _join(&self, py: Python<'_>, writer: &Bound<'_, WriteHandle>) -> PyResult<()> {
        let writer = writer.get().take(py)?;
        self.run(py, None, |tx, _| writer.into_inner().join(tx))
    }

    /// Makes a savepoint for `rollback_to`.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        self.shared.check(py)?;
        self.transaction.with(py, |tx| Savepoint(tx.savepoint()))
    }

    /// Undoes the writes since `savepoint`.
    fn rollback_to(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        let savepoint = savepoint.0;
        self.run(py, None, |tx, _| tx.rollback_to(savepoint))
    }

    /// Forgets a savepoint, and those made after it; their writes stay.
    fn release(&self, py: Python<'_>, savepoint: &Savepoint) -> PyResult<()> {
        let savepoint = savepoint.0;
        self.run(py, None, |tx, _| tx.release(savepoint))
    }

    /// Begins again, as a new transaction in the memory of this one, which may have ended. What was not committed is rolled back.
    #[pyo3(signature = (isolation=None))]
    fn reset(&self, py: Python<'_>, isolation: Option<Level>) -> PyResult<()> {
        self.shared.check(py)?;
        self.transaction.with(py, |tx| {
            detach(py, || match isolation {
                Some(Level(level)) => tx.reset_at(level),
                None => tx.reset(),
            })
        })?
    }

    /// Commits. Returns the sequence number. The transaction has ended, also after an exception.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared.check(py)?;
        let options = &self.options;
        self.transaction.with(py, |tx| run(py, || tx.commit_with(options)))?
    }

    /// Undoes everything. The transaction has ended.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.db_even_closed(py)?;
        self.transaction.with(py, |tx| detach(py, || tx.rollback()))?
    }

    /// Whether it was neither committed nor rolled back.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        self.transaction.with(py, |tx| tx.is_open())
    }

    /// The isolation level.
    #[getter]
    fn isolation(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.transaction.with(py, |tx| level_name(tx.isolation()))
    }

    /// The sequence number of the newest commit that it sees; `None` if it sees each as it comes.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.transaction.with(py, |tx| tx.snapshot_seq())
    }

    /// Bytes that its writes take.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.transaction.with(py, |tx| tx.bytes())
    }

    /// Number of keys and ranges that count as read.
    #[getter]
    fn reads_tracked(&self, py: Python<'_>) -> PyResult<usize> {
        self.transaction.with(py, |tx| tx.reads_tracked())
    }

    /// Number of writes.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.transaction.with(py, |tx| tx.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'_>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.run(py, None, |tx, family| tx.get(family, &key))?;
        family::or_missing(py, found, &key)
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.add(py, &key, &value, Expiry::Default, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        self.delete(py, key, None)
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        self.contains(py, key, None, true)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.keys(py, None, None, None, false, None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, *_args))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        if kind.is_none() {
            return if self.is_open(py)? { self.commit(py).map(drop) } else { Ok(()) };
        }
        self.rollback(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.is_open(py)? { "open" } else { "ended" };
        Ok(format!("<tidesdb.Transaction {}, {state}, {} writes>", self.isolation(py)?, self.__len__(py)?))
    }
}
