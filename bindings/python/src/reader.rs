//! A reader beside the process that writes.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::db::Db;
use crate::failure;
use crate::figures;
use crate::handle::{self, Guarded, Owned, detach};
use crate::options::{self, Folder};

/// Reads a database that another process, or another handle of this one, has open for writing: `tidesdb.open_reader(path)`. It takes no lock
/// and costs the writer nothing. It may also be opened in a child of a fork.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Reader {
    /// `None` once it is closed. In use for an instant only: calls keep what they use.
    reader: Guarded<Option<Arc<Owned<tidesdb::Reader>>>>,
    path: PathBuf,
}

/// Opens the database in the folder `path` for reading beside its writer. Options are those of `open` that concern reads.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn open_reader(
    py: Python<'_>,
    path: Folder,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Reader> {
    let Folder(path) = path;
    let opening = options::open(tidesdb::Db::options(&path), options)?;
    let reader = handle::run(py, || opening.open_reader())?;
    Ok(Reader { reader: Guarded::new(Some(Arc::new(Owned::new(reader)))), path })
}

/// Returns the figures that the process which writes the database in the folder `path` has published last, about once a second while it works,
/// or `None` if there are none. The database is not opened, and the writer does not notice.
///
/// A dictionary with the `state` of the writer ("running", "idle", "stopped", "closed", "ended", "rebooted", "unknown"), its `process`, the `age` of the
/// figures in seconds, `stats` (as of `Db.stats`), `trees`, `settings`, `health`, `findings` (as of `Db.diagnose`) and `metrics_text`.
#[pyfunction]
pub(crate) fn writer_figures<'py>(py: Python<'py>, path: Folder) -> PyResult<Option<Bound<'py, PyDict>>> {
    let options = tidesdb::Db::options(path.0);
    let found = handle::run(py, || options.writer_figures())?;
    found.map(|found| figures::writer(py, &found)).transpose()
}

/// Returns the figures that writers of the database in the folder `path` have recorded: a dictionary of each second of the last hour, and one of each
/// minute of the last day. Each has lists of moments, in seconds since 1970, and values, by the name of the figure.
#[pyfunction]
pub(crate) fn writer_history<'py>(
    py: Python<'py>,
    path: Folder,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let options = tidesdb::Db::options(path.0);
    let [seconds, minutes] = handle::run(py, || options.writer_history())?;
    Ok((figures::history(py, &seconds)?, figures::history(py, &minutes)?))
}

impl Reader {
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tidesdb::Reader) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        let reader = self.reader.with(py, |reader| reader.clone())?;
        let reader = reader.ok_or_else(|| failure::raise(py, &tidesdb::Error::Closed))?;
        handle::run(py, || call(&reader))
    }
}

#[pymethods]
impl Reader {
    /// Returns the newest view that `refresh` made, or the first one: a `Db` for reading, which never changes.
    fn view(&self, py: Python<'_>) -> PyResult<Py<Db>> {
        let view = self.run(py, |reader| Ok(reader.view()))?;
        Db::make(py, view, self.path.clone(), false)
    }

    /// Makes a view of the database as it is now, and returns it.
    fn refresh(&self, py: Python<'_>) -> PyResult<Py<Db>> {
        let view = self.run(py, tidesdb::Reader::refresh)?;
        Db::make(py, view, self.path.clone(), false)
    }

    /// The sequence number of the newest commit that the newest view shows.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |reader| Ok(reader.seq()))
    }

    /// The figures that the process which writes the database has published last: see `tidesdb.writer_figures`.
    fn writer_figures<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let found = self.run(py, tidesdb::Reader::writer_figures)?;
        found.map(|found| figures::writer(py, &found)).transpose()
    }

    /// The folder of the database.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.reader.with(py, |reader| reader.is_none())
    }

    /// Closes the reader. Its views stay usable until they are closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let reader = self.reader.with(py, Option::take)?;
        detach(py, || drop(reader))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<tidesdb.Reader {:?}>", self.path)
    }
}
