//! A database: its default family, and what concerns all of them.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use tidesdb::internals::stats::counts;
use tidesdb::{Error, Ingest, Isolation};

use crate::batch::Batch;
use crate::buffer::Bytes;
use crate::failure;
use crate::family::Family;
use crate::figures;
use crate::handle::{self, Shared};
use crate::options::{self, Folder, Level, Mode, Span};
use crate::pairs;
use crate::rows;
use crate::snapshot::{Snapshot, Which};
use crate::transaction::Transaction;

/// An open database: `tidesdb.open(path)`, or `tidesdb.Db(path)`. Its calls are those of its default family, and it gives access to the others. Any thread may use it.
///
/// Use it as `with tidesdb.open(path) as db`, or call `close`; what is open at the end of the interpreter is closed then.
#[pyclass(frozen, extends = Family, module = "tidesdb")]
pub(crate) struct Db {
    shared: Arc<Shared>,
}

impl Db {
    /// Makes the object for an open database.
    ///
    /// # Errors
    /// If Python has no memory.
    pub(crate) fn make(py: Python<'_>, db: tidesdb::Db, path: PathBuf, is_owner: bool) -> PyResult<Py<Self>> {
        Py::new(py, Self::initializer(db, path, is_owner))
    }

    /// The database with all that its handles share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn initializer(db: tidesdb::Db, path: PathBuf, is_owner: bool) -> PyClassInitializer<Self> {
        let family = db.default_family().clone();
        let shared = Shared::new(db, path, is_owner);
        let base = Family::new(&shared, family);
        PyClassInitializer::from(base).add_subclass(Self { shared })
    }

    fn opened(
        py: Python<'_>,
        Folder(path): Folder,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let opening = options::open(tidesdb::Db::options(&path), options)?;
        let db = handle::run(py, || opening.open())?;
        Ok(Self::initializer(db, path, true))
    }
}

/// Opens the database in the folder `path`; creates it if there is none. A database without a family called "default", as the C library makes
/// them, gets one, unless `default_family_name` names a family that it has. To be only read, it must have the one or the other.
///
/// Options of the database, with the names of the engine:
///
/// sync: when a write is durable: "full" (default), before the call returns; "none"; or seconds, at most that much later
/// memory_limit: bytes that it may use, of all kinds; 0 (default): half of what the process may use
/// cache_bytes: bytes of decoded blocks in memory
/// resources: a `Resources` that other databases share
/// create_if_missing, error_if_exists, read_only: default True, False, False
/// recovery: what an open does about damage in the log: "tail" (default), "strict", "point_in_time", "salvage"
/// history_bytes: how much past `snapshot_at` can read
/// merge_operators: those in Python that its families use
/// default_family_name, allow_unknown, background_threads, compaction_bytes_per_second, memtables_bytes_max,
/// active_memtables_bytes_max, wal_bytes_max, wal_segment_bytes, disk_free_min, disk_reserve_bytes,
/// mmap_wal, event_log, slow_sync, slow_operation
///
/// Settings of its default family, which `create_family` takes too:
///
/// compression: "lz4" (default), "lz4-fast", "zstd", "snappy", "none"
/// default_ttl: seconds until a row expires that is put without `ttl`; None (default): never
/// merge_operator: "add", "max", "min", ("append", separator), or a MergeOperator
/// comparator: the order of the keys: "bytewise" (default), "reverse_bytewise", "u64_le", "i64_le", "c_string", "case_insensitive"
/// value_threshold: bytes from which on a value lies in a value log
/// write_buffer_bytes, filter_bits_per_key, table_bytes, l1_tables_trigger, vlog_file_bytes, level_size_ratio, min_levels,
/// dividing_level_offset, tombstone_density_permille, tombstone_density_min_entries, value_garbage_percent, tiered_runs_max
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn open(py: Python<'_>, path: Folder, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<Db>> {
    Py::new(py, Db::opened(py, path, options)?)
}

/// Removes the database in the folder `path`: its own files, and the folder, if nothing else is in it. `Locked` if it is open, `NotFound` if there
/// is none.
#[pyfunction]
pub(crate) fn destroy(py: Python<'_>, path: Folder) -> PyResult<()> {
    handle::run(py, || tidesdb::Db::destroy(path.0))
}

/// Counts of the thread that made it, from then on: a part of `profile`.
#[pyclass(unsendable, module = "tidesdb._tidesdb")]
pub(crate) struct Profiling(Option<counts::Profiling>);

#[pymethods]
impl Profiling {
    #[new]
    fn new() -> Self {
        Self(Some(counts::Profiling::begin()))
    }

    /// Ends, and returns the counts.
    fn end<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counting = self.0.take().ok_or_else(|| failure::raise(py, &Error::Closed))?;
        figures::profile(py, &counting.end())
    }
}

#[pymethods]
impl Db {
    #[new]
    #[pyo3(signature = (path, **options))]
    fn new(
        py: Python<'_>,
        path: Folder,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        Self::opened(py, path, options)
    }

    /// Returns the family called `name`; `NotFound` if there is none.
    fn family(&self, py: Python<'_>, name: &str) -> PyResult<Family> {
        Ok(Family::new(&self.shared, self.shared.run(py, |db| db.family(name))?))
    }

    /// Creates a family; `Exists` if there is one of this name.
    #[pyo3(signature = (name, **options))]
    fn create_family(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Family> {
        let options = options::family(options)?;
        Ok(Family::new(&self.shared, self.shared.run(py, |db| db.create_family(name, options))?))
    }

    /// Returns the family called `name`, with these settings; creates it if there is none.
    #[pyo3(signature = (name, **options))]
    fn family_or_create(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Family> {
        let options = options::family(options)?;
        Ok(Family::new(&self.shared, self.shared.run(py, |db| db.family_or_create(name, options))?))
    }

    /// Deletes a family with all its rows.
    fn drop_family(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.shared.run(py, |db| db.drop_family(name))
    }

    /// Renames a family.
    fn rename_family(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.shared.run(py, |db| db.rename_family(old, new))
    }

    /// Creates the family `new` with the rows and settings of `source`.
    fn clone_family(&self, py: Python<'_>, source: &str, new: &str) -> PyResult<Family> {
        Ok(Family::new(&self.shared, self.shared.run(py, |db| db.clone_family(source, new))?))
    }

    /// Returns the names of all families.
    fn families(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.shared.run(py, |db| Ok(db.families()))
    }

    /// Returns whether there is a family called `name`.
    fn has_family(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.shared.run(py, |db| Ok(db.has_family(name)))
    }

    /// Returns the settings that differ from their defaults: dictionaries with `family` (`None`: of the database), `name` and `value`.
    fn changed_settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        figures::settings(py, &self.shared.run(py, |db| Ok(db.changed_settings()))?)
    }

    /// Takes tables that `TableBuilder`s wrote, of several families, as one commit. `tables` is a mapping of families, or their names, to paths,
    /// or an iterable of such pairs. Each byte is checked first, and no writer waits.
    ///
    /// transfer: "copy" (default), "link": database and caller share the files, or "move": the files lose their names
    ///
    /// Returns a dictionary with `seq` (0 if there was nothing to take), `tables`, `rows` and `bytes`.
    #[pyo3(signature = (tables, *, transfer="copy", sync=None))]
    fn ingest<'py>(
        &self,
        py: Python<'py>,
        tables: &Bound<'py, PyAny>,
        transfer: &str,
        sync: Option<Mode>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.shared.check(py)?;
        let mut ingest = match transfer {
            "copy" => Ingest::new(),
            "link" => Ingest::new().linking(),
            "move" => Ingest::new().moving(),
            _ => return Err(failure::invalid(py, "invalid argument: transfer is copy, link or move")),
        };
        for pair in pairs::pairs(tables)? {
            let (family, paths) = pairs::parts(&pair?)?;
            if paths.is_instance_of::<PyString>() {
                return Err(PyTypeError::new_err("a list of paths is required, not one path"));
            }
            let paths = paths.try_iter()?.map(|path| path?.extract::<Folder>().map(|Folder(path)| path));
            let paths = paths.collect::<PyResult<Vec<_>>>()?;
            ingest = ingest.tables(Which::new(&self.shared, &family)?.get(), paths);
        }
        let ingest = ingest.options(options::write_options(sync));
        figures::ingested(py, &self.shared.run(py, |db| db.ingest(&ingest))?)
    }

    /// Begins a batch: `with db.batch() as batch`.
    #[pyo3(signature = (*, sync=None))]
    fn batch(&self, py: Python<'_>, sync: Option<Mode>) -> PyResult<Batch> {
        self.shared.check(py)?;
        Ok(Batch::new(&self.shared, sync))
    }

    /// Begins a transaction: `with db.transaction() as tx`. The isolation level is "read_uncommitted", "read_committed",
    /// "repeatable_read", "snapshot" or "serializable".
    #[pyo3(
        signature = (isolation=Level(Isolation::Serializable), *, sync=None),
        text_signature = "($self, isolation='serializable', *, sync=None)"
    )]
    fn transaction(&self, py: Python<'_>, isolation: Level, sync: Option<Mode>) -> PyResult<Transaction> {
        Transaction::new(py, &self.shared, isolation.0, sync)
    }

    /// Takes a snapshot: `with db.snapshot() as snapshot`.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let snapshot = self.shared.run(py, |db| Ok(db.snapshot()))?;
        Ok(Snapshot::new(&self.shared, snapshot))
    }

    /// Takes a snapshot of the past, as of the commit with the sequence number `seq`: see the option `history_bytes`.
    fn snapshot_at(&self, py: Python<'_>, seq: u64) -> PyResult<Snapshot> {
        let snapshot = self.shared.run(py, |db| db.snapshot_at(seq))?;
        Ok(Snapshot::new(&self.shared, snapshot))
    }

    /// Makes all commits durable. Returns the sequence number of the newest.
    fn sync(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared.run(py, tidesdb::Db::sync)
    }

    /// Writes what is in memory to tables, of all families. With `wait=False` it returns at once, and threads of the engine do it.
    #[pyo3(signature = (*, wait=true))]
    fn flush(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.shared.run(py, |db| match wait {
            true => db.flush(),
            false => db.families().iter().try_for_each(|name| match db.family(name) {
                Err(Error::NotFound { .. }) => Ok(()), // it was dropped meanwhile
                family => family?.start_flush(),
            }),
        })
    }

    /// Merges the tables of all families. With limits: those of the default family with keys from `start` up to, and without, `stop`.
    #[pyo3(signature = (start=None, stop=None))]
    fn compact(&self, py: Python<'_>, start: Option<Bytes<'_>>, stop: Option<Bytes<'_>>) -> PyResult<()> {
        if start.is_none() && stop.is_none() {
            return self.shared.run(py, tidesdb::Db::compact);
        }
        let range = rows::range(start.as_ref(), stop.as_ref());
        self.shared.run(py, |db| db.default_family().compact_range(range))
    }

    /// Stops merges that run.
    fn cancel_compactions(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.run(py, tidesdb::Db::cancel_compactions)
    }

    /// Sets how many bytes per second merges may write; 0 = no limit.
    fn set_compaction_rate(&self, py: Python<'_>, bytes_per_second: u64) -> PyResult<()> {
        self.shared.run(py, |db| {
            db.set_compaction_rate(bytes_per_second);
            Ok(())
        })
    }

    /// Sets from how many seconds on an operation is an event in the event log; `None` = none is.
    fn set_slow_operation(&self, py: Python<'_>, seconds: Option<Span>) -> PyResult<()> {
        let from = options::slow_operation(seconds);
        self.shared.run(py, |db| {
            db.set_slow_operation(from);
            Ok(())
        })
    }

    /// Sets from how many seconds on a sync of the log is an event in the event log; `None` = none is.
    fn set_slow_sync(&self, py: Python<'_>, seconds: Option<Span>) -> PyResult<()> {
        let from = options::slow_sync(seconds);
        self.shared.run(py, |db| {
            db.set_slow_sync(from);
            Ok(())
        })
    }

    /// Makes a copy of the database in the new folder `path`, with links to its files where the file system has them.
    fn checkpoint(&self, py: Python<'_>, path: Folder) -> PyResult<()> {
        self.shared.run(py, |db| db.checkpoint(&path.0))
    }

    /// Makes a copy of the database in the new folder `path`, which shares no file with it.
    fn backup(&self, py: Python<'_>, path: Folder) -> PyResult<()> {
        self.shared.run(py, |db| db.backup(&path.0))
    }

    /// Reads and checks all files: a dictionary with `ok`, `damage` and counts.
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures::verification(py, &self.shared.run(py, tidesdb::Db::verify)?)
    }

    /// The state of health: a dictionary with `state` ("healthy", "degraded" or "poisoned"), `causes` and `first_failure`.
    fn health<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures::health(py, &self.shared.run(py, |db| Ok(db.health()))?)
    }

    /// What is wrong, as far as the figures show it: dictionaries with `severity` ("urgent", "problem" or "advice"), `rule`, `what`,
    /// `evidence`, `cause`, `advice` and `price`, the most severe first.
    fn diagnose<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        figures::findings(py, &self.shared.run(py, |db| Ok(db.diagnose()))?)
    }

    /// Statistics of the database, by name; `families` has those of each family, `times` those of each kind of call.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures::database(py, &self.shared.run(py, |db| Ok(db.stats()))?)
    }

    /// Statistics as text for Prometheus, in the format OpenMetrics.
    fn metrics_text(&self, py: Python<'_>) -> PyResult<String> {
        self.shared.run(py, |db| Ok(db.metrics_text()))
    }

    /// What the open found, and recovered after a crash.
    fn recovery_report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures::recovery(py, &self.shared.run(py, |db| Ok(db.recovery_report().clone()))?)
    }

    /// Bytes of memory that the database may use.
    #[getter]
    fn memory_limit(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared.run(py, |db| Ok(db.memory_limit()))
    }

    /// The folder of the database.
    #[getter]
    fn path(&self) -> PathBuf {
        self.shared.path.clone()
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Closes the database for all its handles: calls on them raise `Closed`. Waits for commits that have begun and for merges that run;
    /// with `timeout`, at most so many seconds: then it raises `Closing`, and the close goes on. A second call does nothing.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Span>) -> PyResult<()> {
        match timeout {
            Some(Span(Some(timeout))) => self.shared.close_timeout(py, timeout),
            _ => self.shared.close(py),
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.shared.check(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.shared.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.shared.is_closed() { ", closed" } else { "" };
        format!("<tidesdb.Db {:?}{state}>", self.shared.path)
    }
}
