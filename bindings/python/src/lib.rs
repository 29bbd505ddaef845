//! The extension module `tidesdb._tidesdb`: the engine as classes of Python. The package around it, in `python/tidesdb`, has what is easier
//! to say in Python: the exceptions, file objects, and `asyncio`.
//!
//! * Threads: a call of the engine that may read, wait or compare runs without the interpreter lock (`Shared::run`, or `handle::run` within `Guarded::with`).
//!   A thread waits for a lock of this module only while it does not hold the interpreter lock, so the two cannot deadlock.
//! * Keys and values: `bytes` are passed to the engine where they lie, because they never change. Any other buffer is copied while the
//!   interpreter lock is held, and only then; a long one piece by piece, between which other threads run (`buffer.rs`).
//! * `fork`: the engine's threads and its lock belong to the process that opened the database. In a child every call raises `Forked`, and
//!   what a handle owns is leaked instead of dropped (`handle.rs`).
//! * Subinterpreters: refused (`interpreter.rs`).
//! * The end of the interpreter: a hook closes the databases that are still open, while threads can still run Python.
//!
//! The order of the modules below is the order of the layers: a module uses only modules above its own line.
#![allow(clippy::too_many_arguments, reason = "each keyword of a call in Python is an argument")]

mod interpreter;
mod failure;
mod handle;
mod buffer;
mod pairs;
mod operators;
mod resources;
mod options;
mod figures;
mod rows;
mod values;
mod ingest;
mod family;
mod snapshot;
mod batch;
mod transaction;
mod write;
mod db;
mod backups;
mod reader;

use pyo3::prelude::*;

/// The engine as classes; `tidesdb` has their documentation.
#[pymodule]
fn _tidesdb(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::check(module.py())?;
    module.add_class::<family::Family>()?;
    module.add_class::<db::Db>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<write::Write>()?;
    module.add_class::<transaction::Savepoint>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<rows::Cursor>()?;
    module.add_class::<values::ReadHandle>()?;
    module.add_class::<values::WriteHandle>()?;
    module.add_class::<operators::MergeOperator>()?;
    module.add_class::<ingest::SortedRows>()?;
    module.add_class::<ingest::TableBuilder>()?;
    module.add_class::<ingest::SortedWriter>()?;
    module.add_class::<backups::Backups>()?;
    module.add_class::<resources::Resources>()?;
    module.add_class::<db::Profiling>()?;
    module.add_function(wrap_pyfunction!(db::open, module)?)?;
    module.add_function(wrap_pyfunction!(db::destroy, module)?)?;
    module.add_function(wrap_pyfunction!(reader::open_reader, module)?)?;
    module.add_function(wrap_pyfunction!(reader::writer_figures, module)?)?;
    module.add_function(wrap_pyfunction!(reader::writer_history, module)?)?;
    module.add_function(wrap_pyfunction!(handle::close_all, module)?)?;
    module.add_function(wrap_pyfunction!(handle::forked, module)?)?;
    module.add_function(wrap_pyfunction!(write::write_group, module)?)?;
    module.add_function(wrap_pyfunction!(options::defaults, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
