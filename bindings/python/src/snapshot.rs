//! Snapshots, and how calls name a family beside the default one.

use std::sync::{Arc, RwLock};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use tidesdb::{Error, ReadOptions};

use crate::buffer::{Bytes, copied};
use crate::family::{self, Family};
use crate::figures;
use crate::handle::{Owned, Shared, run};
use crate::rows::{self, Cursor, Kind, Row, Rows};
use crate::values;

/// The argument `family`: a family, or its name. Without it, the default family is meant.
pub(crate) enum Which<'py> {
    Handle(Bound<'py, Family>),
    Name(tidesdb::Family),
}

impl<'py> Which<'py> {
    /// # Errors
    /// `NotFound` if no family has the name; `TypeError`.
    pub(crate) fn new(shared: &Shared, given: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(handle) = given.cast::<Family>() {
            return Ok(Self::Handle(handle.clone()));
        }
        let name: String = given.extract()?;
        shared.run(given.py(), |db| db.family(&name)).map(Self::Name)
    }

    pub(crate) fn get(&self) -> &tidesdb::Family {
        match self {
            Self::Handle(handle) => &handle.get().family,
            Self::Name(family) => family,
        }
    }
}

/// Passes the family that `given` names to `call`.
///
/// # Errors
/// Those of [`Which::new`] and of `call`.
pub(crate) fn with_family<R>(
    shared: &Shared,
    py: Python<'_>,
    given: Option<&Bound<'_, PyAny>>,
    call: impl FnOnce(&tidesdb::Family) -> PyResult<R>,
) -> PyResult<R> {
    match given {
        None => call(shared.db(py)?.default_family()),
        Some(given) => {
            shared.check(py)?;
            call(Which::new(shared, given)?.get())
        }
    }
}

/// One state of all families, whatever is written meanwhile. It keeps old versions of rows: close it, or use it as `with db.snapshot() as s`.
///
/// The calls read the default family, or the one named by `family`: a `Family` or its name.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Snapshot {
    shared: Arc<Shared>,
    /// `None` once it is closed. Locked for an instant only: calls keep what they read.
    snapshot: RwLock<Option<Arc<Owned<tidesdb::Snapshot>>>>,
    seq: u64,
}

impl Snapshot {
    pub(crate) fn new(shared: &Arc<Shared>, snapshot: tidesdb::Snapshot) -> Self {
        let seq = snapshot.seq();
        Self { shared: Arc::clone(shared), snapshot: RwLock::new(Some(Arc::new(Owned::new(snapshot)))), seq }
    }

    fn run<R: Send>(
        &self,
        py: Python<'_>,
        family: Option<&Bound<'_, PyAny>>,
        call: impl FnOnce(&tidesdb::Snapshot, &tidesdb::Family) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        with_family(&self.shared, py, family, |family| self.run_in(py, family, call))
    }

    /// As [`Snapshot::run`], once the family is known.
    fn run_in<R: Send>(
        &self,
        py: Python<'_>,
        family: &tidesdb::Family,
        call: impl FnOnce(&tidesdb::Snapshot, &tidesdb::Family) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        let snapshot = &self.snapshot;
        run(py, || {
            let open = snapshot.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            open.map_or(Err(Error::Closed), |open| call(&open, family))
        })
    }

    fn rows(
        &self,
        py: Python<'_>,
        kind: Kind,
        span: &rows::Span<'_>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Rows> {
        with_family(&self.shared, py, family, |family| {
            let open = |options: &ReadOptions| {
                self.run_in(py, family, |snapshot, family| snapshot.cursor_with(family, options))
            };
            Rows::new(py, &self.shared, family, kind, span, false, open)
        })
    }
}

#[pymethods]
impl Snapshot {
    /// Returns the value of `key`, or `default`.
    #[pyo3(signature = (key, default=None, *, family=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        default: Option<Bound<'py, PyAny>>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.run(py, family, |snapshot, family| snapshot.get(family, &key))?;
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
            family::list(py, &self.run(py, family, |snapshot, family| snapshot.multi_get(family, keys))?)
        })
    }

    /// Returns whether `key` exists.
    #[pyo3(signature = (key, *, family=None))]
    fn contains(&self, py: Python<'_>, key: Bytes<'_>, family: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.run(py, family, |snapshot, family| snapshot.contains(family, &key))
    }

    /// Returns which of `keys` exist, in their order: see `Family.multi_contains`.
    #[pyo3(signature = (keys, *, family=None))]
    fn multi_contains(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<bool>> {
        family::with_keys(keys, |keys| {
            self.run(py, family, |snapshot, family| snapshot.multi_contains(family, keys))
        })
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
        let part = self.run(py, family, |snapshot, family| snapshot.get_part(family, &key, range))?;
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
        self.run(py, family, |snapshot, family| {
            rows::expiry(snapshot.cursor_with(family, &Kind::Keys.options())?, family, &key)
        })
    }

    /// Counts keys, by reading all of them: see `Family.count`.
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
            self.run_in(py, family, |snapshot, family| {
                rows::count(snapshot.cursor_with(family, &Kind::Keys.options())?, bounds)
            })
        })
    }

    /// Returns a cursor: see `Family.cursor`.
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
            let open = |options: &ReadOptions| {
                self.run_in(py, family, |snapshot, family| snapshot.cursor_with(family, options))
            };
            let span = rows::Span { start, stop, prefix, reverse: false };
            Cursor::new(py, &self.shared, family, &span, keys_only, open)
        })
    }

    /// Explains `get` of `key`: see `Family.explain`.
    #[pyo3(signature = (key, *, family=None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let explained = self.run(py, family, |snapshot, family| snapshot.explain(family, &key))?;
        figures::explanation(py, &explained)
    }

    /// Explains a scan: see `Family.explain_range`.
    #[pyo3(signature = (start=None, stop=None, *, rows=1000, family=None))]
    fn explain_range<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
        rows: usize,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        let explained =
            self.run(py, family, |snapshot, family| snapshot.explain_range(family, range, rows))?;
        figures::range_explanation(py, &explained)
    }

    /// Returns the first key and its value, or `None`.
    #[pyo3(signature = (*, family=None))]
    fn first<'py>(&self, py: Python<'py>, family: Option<&Bound<'py, PyAny>>) -> PyResult<Row<'py>> {
        family::row(py, self.run(py, family, tidesdb::Snapshot::first)?)
    }

    /// Returns the last key and its value, or `None`.
    #[pyo3(signature = (*, family=None))]
    fn last<'py>(&self, py: Python<'py>, family: Option<&Bound<'py, PyAny>>) -> PyResult<Row<'py>> {
        family::row(py, self.run(py, family, tidesdb::Snapshot::last)?)
    }

    /// Iterates over pairs of a key and its value: see `Family.items`.
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

    /// Returns a file object that reads the value of `key`, or `None`: see `Family.value_reader`.
    #[pyo3(signature = (key, *, family=None))]
    fn value_reader<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'_>,
        family: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.run(py, family, |snapshot, family| snapshot.value_reader(family, &key))?;
        values::reader(py, &self.shared, reader)
    }

    /// The sequence number of the newest commit that it shows.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    /// Lets go of the old versions of rows. It cannot be used afterwards. A call of another thread that reads it goes on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.db_even_closed(py)?;
        let open = self.snapshot.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        drop(open);
        Ok(())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'_>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.run(py, None, |snapshot, family| snapshot.get(family, &key))?;
        family::or_missing(py, found, &key)
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        self.contains(py, key, None)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.keys(py, None, None, None, false, None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<tidesdb.Snapshot {} of {:?}>", self.seq, self.shared.path)
    }
}
