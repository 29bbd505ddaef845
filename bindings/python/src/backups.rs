//! Generations of backups in a folder.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidesdb::backup::{self, CreateOptions, Progress, PrunePolicy, RestoreOptions};
use tidesdb::store::DirectoryStore;

use crate::db::Db;
use crate::figures;
use crate::handle::{Owned, detach, of_parent, run};
use crate::options::{self, Folder, Span};

/// Backups of databases in a folder: `Backups(path)`. Each is a generation, which can be restored alone; what several have in common is stored once.
///
/// The folder is created unless `must_exist` is true. It has one writer: the object that last changed something. A generation is a dictionary
/// with `number`, `created`, `database`, `seq`, `files`, `bytes`, `bytes_copied`, `proven` (`None`: nobody has tried) and `proven_at`.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Backups {
    backups: Owned<backup::Backups>,
    path: PathBuf,
}

impl Backups {
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&backup::Backups) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        if !self.backups.is_ours() {
            return Err(of_parent(py));
        }
        let backups = &*self.backups;
        run(py, || call(backups))
    }
}

/// Shows the progress of a call to a function of Python, and ends the call with the exception that it raises, or that a signal does.
struct Observer {
    show: Option<Py<PyAny>>,
    exception: Mutex<Option<PyErr>>,
    stop: Arc<AtomicBool>,
}

impl Observer {
    fn new(py: Python<'_>, show: Option<Py<PyAny>>) -> PyResult<Arc<Self>> {
        if show.as_ref().is_some_and(|show| !show.bind(py).is_callable()) {
            return Err(PyTypeError::new_err("progress is a function"));
        }
        Ok(Arc::new(Self { show, exception: Mutex::new(None), stop: Arc::default() }))
    }

    fn show(&self, progress: &Progress) {
        if self.stop.load(Ordering::Relaxed) {
            return; // the call is about to end
        }
        let shown = Python::try_attach(|py| {
            py.check_signals()?;
            self.show.as_ref().map_or(Ok(()), |show| {
                show.bind(py).call1((progress.bytes_done, progress.bytes_total)).map(drop)
            })
        });
        if let Some(Err(exception)) = shown {
            self.exception.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(exception);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the exception that has ended the call, or else its result.
    fn result<R>(&self, result: PyResult<R>) -> PyResult<R> {
        let raised = self.exception.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.map_or(result, Err)
    }
}

impl Backups {
    /// Runs a call that reads a generation.
    fn reading<R: Send>(
        &self,
        py: Python<'_>,
        (bytes_per_second, progress): (u64, Option<Py<PyAny>>),
        call: impl FnOnce(&backup::Backups, &RestoreOptions) -> tidesdb::Result<R> + Send,
    ) -> PyResult<R> {
        let observer = Observer::new(py, progress)?;
        let shown = Arc::clone(&observer);
        let options = RestoreOptions::default()
            .bytes_per_second(bytes_per_second)
            .stop(&observer.stop)
            .progress(move |progress| shown.show(progress));
        observer.result(self.run(py, |backups| call(backups, &options)))
    }
}

#[pymethods]
impl Backups {
    #[new]
    #[pyo3(signature = (path, *, must_exist=false))]
    fn new(py: Python<'_>, path: Folder, must_exist: bool) -> PyResult<Self> {
        let Folder(path) = path;
        let store = detach(py, || {
            if must_exist { DirectoryStore::open_existing(&path) } else { DirectoryStore::open(&path) }
        })??;
        Ok(Self { backups: Owned::new(backup::Backups::new(Arc::new(store))), path })
    }

    /// Makes a generation of `db`, beside its readers and writers, and returns it: copies what the folder lacks.
    ///
    /// prove: a new or empty folder, in which the generation is restored, opened, and compared with the database
    /// bytes_per_second: at most so many are copied; 0 = no limit
    /// progress: a function that is called as `progress(bytes_done, bytes_total)`; an exception of it ends the call, and so does Ctrl-C.
    /// It must not close the database.
    #[pyo3(signature = (db, *, prove=None, bytes_per_second=0, progress=None))]
    fn create<'py>(
        &self,
        py: Python<'py>,
        db: &Bound<'_, Db>,
        prove: Option<Folder>,
        bytes_per_second: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let observer = Observer::new(py, progress)?;
        let shown = Arc::clone(&observer);
        let mut options = CreateOptions::default()
            .bytes_per_second(bytes_per_second)
            .stop(&observer.stop)
            .progress(move |progress| shown.show(progress));
        if let Some(Folder(scratch)) = prove {
            options = options.prove(scratch);
        }
        let made = {
            let shared = db.get().shared();
            shared.check(py)?;
            self.run(py, |backups| shared.with(|db| backups.create_with(db, &options)))
        };
        figures::generation(py, &observer.result(made)?)
    }

    /// Returns all generations, by number.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        figures::generations(py, &self.run(py, backup::Backups::list)?)
    }

    /// Reads all bytes of a generation and compares them with their checksums: a dictionary with `ok`, `objects`, `bytes` and `damage`.
    ///
    /// bytes_per_second: at most so many are read; 0 = no limit
    /// progress: a function that is called as `progress(bytes_done, bytes_total)`; an exception of it ends the call, and so does Ctrl-C
    #[pyo3(signature = (number, *, bytes_per_second=0, progress=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        bytes_per_second: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let how = (bytes_per_second, progress);
        figures::verified(
            py,
            &self.reading(py, how, |backups, options| backups.verify_with(number, options))?,
        )
    }

    /// Restores a generation to `path`, a new or empty folder, which is a database when this returns. A restore that ends early leaves no file.
    /// `bytes_per_second` and `progress` are those of `verify`.
    #[pyo3(signature = (number, path, *, bytes_per_second=0, progress=None))]
    fn restore(
        &self,
        py: Python<'_>,
        number: u64,
        path: Folder,
        bytes_per_second: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let how = (bytes_per_second, progress);
        self.reading(py, how, |backups, options| backups.restore_with(number, &path.0, options))
    }

    /// Proves a generation: restores it to the new or empty folder `scratch`, opens it, reads each row, and removes it again. Returns the
    /// generation. `bytes_per_second` and `progress` are those of `verify`, the other options those of `tidesdb.open`, such as `merge_operators`.
    #[pyo3(signature = (number, scratch, *, bytes_per_second=0, progress=None, **options))]
    fn prove<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        scratch: Folder,
        bytes_per_second: u64,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let opening = options::open(tidesdb::Db::options(&scratch.0), options)?;
        let how = (bytes_per_second, progress);
        let proven = self.reading(py, how, |backups, options| backups.prove_with(number, opening, options));
        figures::generation(py, &proven?)
    }

    /// Deletes a generation, and what no other one needs.
    fn delete(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        self.run(py, |backups| backups.delete(number))
    }

    /// Deletes the generations that no rule keeps: of each database the last `keep_last`, those younger than `keep_younger` (seconds or a
    /// timedelta), and the newest that was proven. Returns a dictionary with the numbers of the `generations` and how many `objects` went.
    #[pyo3(signature = (*, keep_last=0, keep_younger=None))]
    fn prune<'py>(
        &self,
        py: Python<'py>,
        keep_last: u64,
        keep_younger: Option<Span>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let younger =
            keep_younger.map_or_else(Default::default, |Span(age)| age.unwrap_or(std::time::Duration::MAX));
        let policy = PrunePolicy::default().keep_last(keep_last).keep_younger(younger);
        figures::pruned(py, &self.run(py, |backups| backups.prune(&policy))?)
    }

    /// Makes a damaged or missing index again, from the descriptions of the generations, which it returns. One that was deleted, or not
    /// finished, may be among them.
    fn repair<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        figures::generations(py, &self.run(py, backup::Backups::repair)?)
    }

    /// The folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn __repr__(&self) -> String {
        format!("<tidesdb.Backups {:?}>", self.path)
    }
}
