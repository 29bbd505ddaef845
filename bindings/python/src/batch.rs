//! Batches: writes that are committed together.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tidesdb::{WriteBatch, WriteOptions};

use crate::buffer::{Bytes, PIECE_BYTES};
use crate::failure::raise;
use crate::family::add;
use crate::handle::{Guarded, Owned, Shared, run};
use crate::operators::operand;
use crate::options::{self, Expiry, Mode, Moment, write_options};
use crate::pairs::each_chunk;
use crate::rows;
use crate::snapshot::with_family;

/// Writes to any families that are committed together: all of them or none. `with db.batch() as batch` commits at the end of the block, or
/// discards the batch if the block ends with an exception. A batch can be filled and committed again.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Batch {
    pub(crate) shared: Arc<Shared>,
    batch: Guarded<Owned<WriteBatch>>,
    options: WriteOptions,
}

impl Batch {
    pub(crate) fn new(shared: &Arc<Shared>, sync: Option<Mode>) -> Self {
        let batch = Guarded::new(Owned::new(WriteBatch::new()));
        Self { shared: Arc::clone(shared), batch, options: write_options(sync) }
    }

    /// Adds an operation with `bytes` of keys and value. Only a copy that is short, and waits for no memory, is made under the interpreter lock.
    fn change(
        &self,
        py: Python<'_>,
        bytes: usize,
        family: Option<&Bound<'_, PyAny>>,
        change: impl FnOnce(&mut WriteBatch, &tidesdb::Family) -> tidesdb::Result<()> + Send,
    ) -> PyResult<()> {
        with_family(&self.shared, py, family, |family| {
            self.batch.with(py, |batch| match bytes < PIECE_BYTES && batch.has_room(bytes) {
                true => change(batch, family).map_err(|e| raise(py, &e)),
                false => run(py, || change(batch, family)),
            })?
        })
    }

    /// As [`Batch::change`], without the interpreter lock.
    fn change_detached(
        &self,
        py: Python<'_>,
        family: Option<&Bound<'_, PyAny>>,
        change: impl FnOnce(&mut WriteBatch, &tidesdb::Family) -> tidesdb::Result<()> + Send,
    ) -> PyResult<()> {
        with_family(&self.shared, py, family, |family| {
            self.batch.with(py, |batch| run(py, || change(batch, family)))?
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
        self.change(py, bytes, family, |batch, family| add(batch, family, key, value, expiry))
    }

    /// Commits the batch and empties it, in a thread that does not hold the interpreter lock. Its own options come before `options`.
    ///
    /// # Errors
    /// Those of the engine, after which it is as it was.
    pub(crate) fn commit_detached(&self, db: &tidesdb::Db, options: &WriteOptions) -> tidesdb::Result<u64> {
        let options = if self.options.sync.is_some() { &self.options } else { options };
        self.batch.with_detached(|batch| db.write_with(batch, options))
    }
}

#[pymethods]
impl Batch {
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

    /// Puts all pairs of a mapping, or of an iterable of pairs: one call for many rows.
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
        let mut all = Owned::new(WriteBatch::new()); // so that a call that fails leaves no part of the rows
        each_chunk(py, items, |rows| {
            with_family(&self.shared, py, family, |family| {
                run(py, || rows.iter().try_for_each(|(key, value)| add(&mut all, family, key, value, expiry)))
            })
        })?;
        self.batch.with(py, |batch| match batch.is_empty() {
            true => {
                std::mem::swap(batch, &mut all);
                Ok(())
            }
            false => run(py, || batch.append(&all)),
        })?
    }

    /// Deletes `key`.
    #[pyo3(signature = (key, *, family=None))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, family: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.change(py, key.len(), family, |batch, family| batch.delete(family, &key))
    }

    /// Deletes a key that was put at most once since its last delete.
    #[pyo3(signature = (key, *, family=None))]
    fn single_delete(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.change(py, key.len(), family, |batch, family| batch.single_delete(family, &key))
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
        self.change_detached(py, family, |batch, family| batch.delete_range(family, range))
    }

    /// Deletes the keys that begin with `prefix`.
    #[pyo3(signature = (prefix, *, family=None))]
    fn delete_prefix(
        &self,
        py: Python<'_>,
        prefix: Bytes<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // The end of the range may be as long as its start.
        self.change(py, 2 * prefix.len(), family, |batch, family| batch.delete_prefix(family, &prefix))
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
        // A merge operator in Python may check the operand.
        self.change_detached(py, family, |batch, family| batch.merge(family, &key, &operand))
    }

    /// Appends the writes of another batch of the same database behind those of this one. The other batch keeps them.
    fn append(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<()> {
        self.shared.check(py)?;
        // A copy: two threads that append two batches to each other would wait for each other's lock.
        let mut copy = Owned::new(WriteBatch::new());
        other.get().batch.with(py, |batch| run(py, || copy.append(batch)))??;
        self.batch.with(py, |batch| run(py, || batch.append(&copy)))?
    }

    /// Commits the batch and empties it. Returns the sequence number.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let db = self.shared.db(py)?;
        self.batch.with(py, |batch| run(py, || db.write_with(batch, &self.options)))?
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

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.add(py, &key, &value, Expiry::Default, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
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
