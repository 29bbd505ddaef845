//! A reader beside the process that writes.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::db::Db;
use crate::handle::{self, Guarded, Owned, detach};
use crate::options::{self, Folder};

/// Reads a database that another process, or another handle of this one, has open for writing: `tidesdb.open_reader(path)`. It takes no lock
/// and costs the writer nothing. It may also be opened in a child of a fork.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Reader {
    reader: Guarded<Option<Owned<tidesdb::Reader>>>,
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
    Ok(Reader { reader: Guarded::new(Some(Owned::new(reader))), path })
}

impl Reader {
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&tidesdb::Reader) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        self.reader.with_open(py, |reader| handle::run(py, || call(reader)))
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
