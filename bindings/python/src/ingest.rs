//! Tables of sorted rows: `TableBuilder` writes them outside of a database, `SortedWriter` for one family of an open one.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyBlockingIOError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tidesdb::{Error, WriteOptions};

use crate::buffer::{Bytes, PIECE_BYTES};
use crate::failure::raise;
use crate::figures;
use crate::handle::{Guarded, Owned, Shared, detach, interrupt, run};
use crate::operators::operand;
use crate::options::{self, Expiry, Folder, Moment, Ttl};
use crate::pairs::each_chunk;
use crate::rows;

/// What the rows become.
enum Tables {
    Files(Box<tidesdb::TableBuilder>),
    Family(Box<tidesdb::SortedWriter>),
}

impl Tables {
    fn rows(&mut self) -> &mut tidesdb::TableBuilder {
        match self {
            Self::Files(builder) => builder,
            Self::Family(writer) => writer.rows(),
        }
    }
}

/// Rows that are added in the order of their keys, each key once: a `TableBuilder`, or the writer of `Family.sorted_writer`.
///
/// A row out of order is an error, and the rows before it stay. After an I/O error they can only be discarded, as by `discard` or with the object.
#[pyclass(frozen, subclass, module = "tidesdb")]
pub(crate) struct SortedRows {
    /// Of a family of it.
    shared: Option<Arc<Shared>>,
    /// `None` once they are finished or discarded.
    tables: Guarded<Option<Owned<Tables>>>,
}

impl SortedRows {
    fn new(shared: Option<Arc<Shared>>, tables: Tables) -> Self {
        Self { shared, tables: Guarded::new(Some(Owned::new(tables))) }
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.check(py))
    }

    /// Adds rows, without the interpreter lock.
    fn add(
        &self,
        py: Python<'_>,
        add: impl FnOnce(&mut tidesdb::TableBuilder) -> tidesdb::Result<()> + Send,
    ) -> PyResult<()> {
        self.check(py)?;
        self.tables.with_open(py, |tables| run(py, || add(tables.rows())))
    }

    /// Takes what was written.
    fn take(&self, py: Python<'_>) -> PyResult<Owned<Tables>> {
        self.check(py)?;
        self.tables.with(py, Option::take)?.ok_or_else(|| raise(py, &Error::Closed))
    }
}

/// Adds a row.
fn put(to: &mut tidesdb::TableBuilder, key: &[u8], value: &[u8], expiry: Expiry) -> tidesdb::Result<()> {
    match expiry {
        Expiry::Default => to.put(key, value),
        Expiry::After(ttl) => to.put_with_ttl(key, value, ttl),
        Expiry::At(at) => to.put_expiring(key, value, at),
    }
}

#[pymethods]
impl SortedRows {
    /// Adds a row; `ttl` and `expires` are those of `Family.put`.
    #[pyo3(signature = (key, value, *, ttl=None, expires=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        ttl: Option<Ttl>,
        expires: Option<Moment>,
    ) -> PyResult<()> {
        let expiry = Expiry::new(ttl, expires)?;
        self.add(py, |to| put(to, &key, &value, expiry))
    }

    /// Adds all pairs of a mapping, or of an iterable of pairs: one call for many rows.
    #[pyo3(signature = (items, *, ttl=None, expires=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        items: &Bound<'_, PyAny>,
        ttl: Option<Ttl>,
        expires: Option<Moment>,
    ) -> PyResult<()> {
        let expiry = Expiry::new(ttl, expires)?;
        each_chunk(py, items, |rows| {
            self.add(py, |to| rows.iter().try_for_each(|(key, value)| put(to, key, value, expiry)))
        })
    }

    /// Adds a row whose value is read from a binary file to its end, of any length, in little memory. The file must have a byte.
    #[pyo3(signature = (key, file, *, expires=None))]
    fn put_file(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        file: &Bound<'_, PyAny>,
        expires: Option<Moment>,
    ) -> PyResult<()> {
        self.check(py)?;
        let mut source = Source { read: file.getattr("read")?.unbind(), exception: None };
        let added = self.tables.with_open(py, |tables| {
            let source = &mut source;
            detach(py, || match expires {
                None => tables.rows().put_stream(&*key, source),
                Some(Moment(at)) => tables.rows().put_stream_expiring(&*key, source, Some(at)),
            })
        })?;
        match source.exception {
            Some(exception) => Err(exception),
            None => added.map_err(|e| raise(py, &e)),
        }
    }

    /// Adds that `key` is deleted.
    fn delete(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        self.add(py, |to| to.delete(&key))
    }

    /// Adds that the keys from `start` up to, and without, `stop` are deleted that are older than these rows. It may be called at any time.
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
    ) -> PyResult<()> {
        let range = rows::range(start.as_ref(), stop.as_ref());
        self.add(py, |to| to.delete_range(range))
    }

    /// Adds an operand of the merge operator for `key`: see `Family.merge`.
    fn merge(&self, py: Python<'_>, key: Bytes<'_>, operand: &Bound<'_, PyAny>) -> PyResult<()> {
        let operand = self::operand(operand)?;
        self.add(py, |to| to.merge(&key, &operand))
    }

    /// Removes the files that were written. A second call does nothing.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let tables = self.tables.with(py, Option::take)?;
        detach(py, || drop(tables))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.check(slf.py())?;
        Ok(slf)
    }
}

/// Writes rows, in the order of their keys, to table files outside of a database: `Db.ingest` takes them, in any process, on any machine.
///
/// `TableBuilder(stem, **settings)` needs no database: its settings are those of the family that is to take the tables (`create_family` has them).
/// `Family.table_builder(stem)` has those of a family. The tables are `STEM-000001.klog` and so on, each with a file of long values beside it, if
/// it has some. Several builders may work at the same time, each with a stem of its own.
///
/// A builder that is collected before `finish` removes its files, and so does a `with` block that ends without it.
#[pyclass(frozen, extends = SortedRows, module = "tidesdb")]
pub(crate) struct TableBuilder;

impl TableBuilder {
    pub(crate) fn new(builder: tidesdb::TableBuilder) -> PyClassInitializer<Self> {
        PyClassInitializer::from(SortedRows::new(None, Tables::Files(Box::new(builder)))).add_subclass(Self)
    }
}

#[pymethods]
impl TableBuilder {
    #[new]
    #[pyo3(signature = (stem, *, memory_limit=None, **settings))]
    fn create(
        py: Python<'_>,
        stem: Folder,
        memory_limit: Option<u64>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let options = options::family(settings)?;
        let builder = run(py, || tidesdb::TableBuilder::create(&stem.0, &options))?;
        Ok(Self::new(match memory_limit {
            Some(bytes) => builder.memory_limit(bytes),
            None => builder,
        }))
    }

    /// Completes the tables and makes them durable. Returns their paths, in the order of their keys; none if there was no row.
    fn finish(slf: &Bound<'_, Self>) -> PyResult<Vec<PathBuf>> {
        let py = slf.py();
        let tables = slf.as_super().get().take(py)?;
        run(py, || match tables.into_inner() {
            Tables::Files(builder) => builder.finish(),
            Tables::Family(_) => Ok(Vec::new()), // never in this class
        })
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(slf: &Bound<'_, Self>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        slf.as_super().get().discard(slf.py())
    }

    fn __repr__(&self) -> &'static str {
        "<tidesdb.TableBuilder>"
    }
}

/// Rows on their way into a family, as tables: see `Family.sorted_writer`. No reader sees them before `commit`, and then all of them.
#[pyclass(frozen, extends = SortedRows, module = "tidesdb")]
pub(crate) struct SortedWriter {
    options: WriteOptions,
}

impl SortedWriter {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        writer: tidesdb::SortedWriter,
        options: WriteOptions,
    ) -> PyClassInitializer<Self> {
        let base = SortedRows::new(Some(Arc::clone(shared)), Tables::Family(Box::new(writer)));
        PyClassInitializer::from(base).add_subclass(Self { options })
    }
}

#[pymethods]
impl SortedWriter {
    /// Adds the rows to the family, as one commit. Returns a dictionary with `seq` (0 if there was no row), `tables`, `rows` and `bytes`.
    fn commit<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let tables = slf.as_super().get().take(py)?;
        let options = &slf.get().options;
        let taken = run(py, || match tables.into_inner() {
            Tables::Family(writer) => writer.commit_with(options),
            Tables::Files(_) => Err(Error::Closed), // never in this class
        })?;
        figures::ingested(py, &taken)
    }

    #[pyo3(signature = (kind, *_args))]
    fn __exit__(slf: &Bound<'_, Self>, kind: &Bound<'_, PyAny>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        let (py, rows) = (slf.py(), slf.as_super().get());
        let is_open = rows.tables.with(py, |tables| tables.is_some())?;
        if kind.is_none() && is_open { Self::commit(slf).map(drop) } else { rows.discard(py) }
    }

    fn __repr__(&self) -> &'static str {
        "<tidesdb.SortedWriter>"
    }
}

/// A file object of Python as a source of bytes.
struct Source {
    /// Its method.
    read: Py<PyAny>,
    /// What it has raised.
    exception: Option<PyErr>,
}

impl Source {
    fn call(&self, py: Python<'_>, out: &mut [u8]) -> PyResult<usize> {
        let got = self.read.bind(py).call1((out.len().min(PIECE_BYTES),))?;
        if got.is_none() {
            return Err(PyBlockingIOError::new_err("the file has no bytes yet"));
        }
        let bytes = got.extract::<Bytes<'_>>()?;
        let room = out.get_mut(..bytes.len());
        room.ok_or_else(|| PyTypeError::new_err("read(n) returned more than n bytes"))?
            .copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let ended = || io::Error::other("the interpreter has ended");
        Python::try_attach(|py| {
            self.call(py, out).map_err(|exception| {
                let words = exception.to_string();
                if exception.is_instance_of::<PyException>(py) {
                    self.exception = Some(exception);
                } else if let Err(exception) = interrupt(exception) {
                    self.exception = Some(exception);
                }
                io::Error::other(words)
            })
        })
        .unwrap_or_else(|| Err(ended()))
    }
}
