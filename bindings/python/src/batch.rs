//! Batches: writes that are committed together.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tidesdb::{SyncMode, WriteBatch, WriteOptions};

use crate::buffer::{Key, Value};
use crate::failure::raise;
use crate::family::{add, each_pair, operand, write_options};
use crate::handle::{Guarded, Owned, Shared, detach};
use crate::options::{self, Expiry, Mode, Moment};
use crate::rows;
use crate::snapshot::with_family;

/// A value of this many bytes is added without the interpreter lock: a long one goes to the disk at once.
const LONG_BYTES: usize = 1 << 20;

/// Writes to any families that are committed together: all of them or none. `with db.batch() as batch` commits at the end of the block, or
/// discards the batch if the block ends with an exception. A batch can be filled and committed again.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Batch {
    shared: Arc<Shared>,
    batch: Guarded<Owned<WriteBatch>>,
    options: WriteOptions,
}

impl Batch {
    pub(crate) fn new(shared: &Arc<Shared>, sync: Option<Mode>) -> Self {
        let batch = Guarded::new(Owned::new(WriteBatch::new()));
        Self { shared: Arc::clone(shared), batch, options: write_options(sync) }
    }

    fn change(
        &self,
        py: Python<'_>,
        family: Option<&Bound<'_, PyAny>>,
        change: impl FnOnce(&mut WriteBatch, &tidesdb::Family) -> tidesdb::Result<()>,
    ) -> PyResult<()> {
        with_family(&self.shared, py, family, |family| {
            self.batch.with(py, |batch| change(batch, family))?.map_err(|e| raise(py, &e))
        })
    }

    fn add(
        &self,
        py: Python<'_>,
        key: &Key<'_>,
        value: &Value<'_>,
        expiry: Expiry,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.change(py, family, |batch, family| match value {
            Value::Bytes(bytes) if bytes.len() >= LONG_BYTES => {
                detach(py, || add(batch, family, key, bytes, expiry))
            }
            value => value.read(py, |value| add(batch, family, key, value, expiry)),
        })
    }
}

#[pymethods]
impl Batch {
    /// Sets `key` to `value`: see `Family.put`.
    #[pyo3(signature = (key, value, *, ttl=None, expires=None, family=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        value: Value<'_>,
        ttl: Option<options::Span>,
        expires: Option<Moment>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.add(py, &key, &value, Expiry::new(ttl, expires)?, family)
    }

    /// Puts all pairs of a mapping, or of an iterable of pairs: one call for many rows.
    #[pyo3(signature = (items, *, ttl=None, expires=None, family=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        items: &Bound<'_, PyAny>,
        ttl: Option<options::Span>,
        expires: Option<Moment>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let expiry = Expiry::new(ttl, expires)?;
        each_pair(items, |key, value| self.add(py, &key.extract()?, &value.extract()?, expiry, family))
    }

    /// Deletes `key`.
    #[pyo3(signature = (key, *, family=None))]
    fn delete(&self, py: Python<'_>, key: Key<'_>, family: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.change(py, family, |batch, family| batch.delete(family, &key))
    }

    /// Deletes a key that was put at most once since its last delete.
    #[pyo3(signature = (key, *, family=None))]
    fn single_delete(&self, py: Python<'_>, key: Key<'_>, family: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.change(py, family, |batch, family| batch.single_delete(family, &key))
    }

    /// Deletes the keys from `start` up to, and without, `stop`.
    #[pyo3(signature = (start, stop, *, family=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Key<'_>>,
        stop: Option<Key<'_>>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        self.change(py, family, |batch, family| batch.delete_range(family, range))
    }

    /// Deletes the keys that begin with `prefix`.
    #[pyo3(signature = (prefix, *, family=None))]
    fn delete_prefix(
        &self,
        py: Python<'_>,
        prefix: Key<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.change(py, family, |batch, family| batch.delete_prefix(family, &prefix))
    }

    /// Combines the value of `key` with `operand`: see `Family.merge`.
    #[pyo3(signature = (key, operand, *, family=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        operand: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operand = self::operand(operand)?;
        with_family(&self.shared, py, family, |family| {
            // A merge operator in Python may check the operand.
            let merge = |batch: &mut Owned<WriteBatch>| detach(py, || batch.merge(family, &key, &operand));
            self.batch.with(py, merge)?.map_err(|e| raise(py, &e))
        })
    }

    /// Commits the batch and empties it. Returns the sequence number.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let db = self.shared.db(py)?;
        let committed = self.batch.with(py, |batch| detach(py, || db.write_with(batch, &self.options)))?;
        committed.map_err(|e| raise(py, &e))
    }

    /// Discards what is in the batch.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.db_even_closed(py)?;
        self.batch.with(py, |batch| batch.clear())
    }

    /// Bytes that the batch takes.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.batch.with(py, |batch| batch.bytes())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.batch.with(py, |batch| batch.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __setitem__(&self, py: Python<'_>, key: Key<'_>, value: Value<'_>) -> PyResult<()> {
        self.add(py, &key, &value, Expiry::Default, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Key<'_>) -> PyResult<()> {
        self.delete(py, key, None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, *_args))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        if kind.is_none() { self.commit(py).map(drop) } else { self.clear(py) }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<tidesdb.Batch of {} operations>", self.__len__(py)?))
    }
}

/// Commits batches of one database, each by itself and in their order, then makes all of them durable with one sync unless `sync` is false.
/// Returns a list with the sequence number of each, or the exception: the group commit of `tidesdb.aio`.
#[pyfunction]
pub(crate) fn write_group<'py>(
    py: Python<'py>,
    batches: Vec<Bound<'py, Batch>>,
    sync: bool,
) -> PyResult<Bound<'py, PyList>> {
    let Some(first) = batches.first() else { return Ok(PyList::empty(py)) };
    let shared = &first.get().shared;
    if batches.iter().any(|batch| !Arc::ptr_eq(&batch.get().shared, shared)) {
        return Err(PyRuntimeError::new_err("batches of several databases"));
    }
    // The batches are taken out of their handles, so that one call without the interpreter lock commits all of them.
    let mut taken = Vec::with_capacity(batches.len());
    for batch in &batches {
        taken.push(
            batch.get().batch.with(py, |batch| std::mem::replace(batch, Owned::new(WriteBatch::new())))?,
        );
    }
    let db = shared.db(py)?;
    let (results, synced) = detach(py, || {
        let relaxed = WriteOptions::default().sync(SyncMode::None);
        let options = if sync { relaxed } else { WriteOptions::default() };
        let results: Vec<_> = taken.iter_mut().map(|batch| db.write_with(batch, &options)).collect();
        // An empty commit in mode `Full` makes all commits before it durable.
        let full = WriteOptions::default().sync(SyncMode::Full);
        let synced = if sync { db.write_with(&mut WriteBatch::new(), &full).map(drop) } else { Ok(()) };
        let durable_end = synced.is_err().then(|| db.stats().durable_end);
        (results, synced.map_err(|e| (e, durable_end.unwrap_or_default())))
    });
    let out = PyList::empty(py);
    for result in results {
        let result = match (&synced, result) {
            (Err((e, durable_end)), Ok(seq)) if seq >= *durable_end => {
                Err(tidesdb::Error::CommitUnknown { seq, cause: Arc::new(e.clone()) })
            }
            (_, result) => result,
        };
        match result {
            Ok(seq) => out.append(seq)?,
            Err(e) => out.append(raise(py, &e).into_value(py))?,
        }
    }
    Ok(out)
}
