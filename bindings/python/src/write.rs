//! The writes of `tidesdb.aio`. A task makes one, which takes references to its key and value only; a thread commits it later, with those of
//! other tasks: each by itself, so that it fails alone and needs only its own memory, and with one sync for all.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use tidesdb::{Error, KEY_BYTES_MAX, KeyBounds, SeqNo, SyncMode, WriteBatch, WriteOptions};

use crate::batch::Batch;
use crate::buffer::{Bytes, Kept, Lent};
use crate::failure::raise;
use crate::family::{Family, add};
use crate::handle::{Shared, detach, take_interrupt};
use crate::operators;
use crate::options::{Expiry, Moment, Ttl};
use crate::pairs::{pairs, parts};
use crate::rows::range;
use crate::transaction::Transaction;

/// Copies of lent buffers that are made before they are committed, in bytes: more than one only up to this sum.
const COPIES_BYTES: usize = 8 << 20;

/// What is to be committed.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Write {
    shared: Arc<Shared>,
    what: What,
}

enum What {
    Put {
        family: Py<Family>,
        rows: Vec<(Kept, Lent)>,
        expiry: Expiry,
    },
    Delete {
        family: Py<Family>,
        key: Kept,
    },
    SingleDelete {
        family: Py<Family>,
        key: Kept,
    },
    DeleteRange {
        family: Py<Family>,
        range: KeyBounds,
    },
    DeletePrefix {
        family: Py<Family>,
        prefix: Kept,
    },
    Merge {
        family: Py<Family>,
        key: Kept,
        operand: Vec<u8>,
    },
    /// In one commit, which may be empty: it makes all before it durable.
    All(Vec<Py<Write>>),
    Batch(Py<Batch>),
    Transaction(Py<Transaction>),
}

impl Write {
    fn of(family: &Bound<'_, Family>, what: impl FnOnce(Py<Family>) -> What) -> PyResult<Self> {
        let shared = &family.get().shared;
        shared.check(family.py())?;
        Ok(Self { shared: Arc::clone(shared), what: what(family.clone().unbind()) })
    }
}

/// Keeps a key.
///
/// # Errors
/// If it is not bytes-like; `InvalidArgument` for its length.
fn key_of(family: &Bound<'_, Family>, key: &Bound<'_, PyAny>) -> PyResult<Kept> {
    let (py, key) = (key.py(), Kept::new(key)?);
    if (1..=KEY_BYTES_MAX).contains(&key.get(py).len()) {
        return Ok(key);
    }
    let refused = WriteBatch::new().delete(&family.get().family, key.get(py)); // in the words of the engine
    refused.map(|()| key).map_err(|e| raise(py, &e))
}

#[pymethods]
impl Write {
    #[staticmethod]
    #[pyo3(signature = (family, key, value, ttl=None, expires=None))]
    fn put(
        family: &Bound<'_, Family>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Ttl>,
        expires: Option<Moment>,
    ) -> PyResult<Self> {
        let expiry = Expiry::new(ttl, expires)?;
        let rows = vec![(key_of(family, key)?, Lent::new(value)?)];
        Self::of(family, |family| What::Put { family, rows, expiry })
    }

    #[staticmethod]
    #[pyo3(signature = (family, items, ttl=None, expires=None))]
    fn put_many(
        family: &Bound<'_, Family>,
        items: &Bound<'_, PyAny>,
        ttl: Option<Ttl>,
        expires: Option<Moment>,
    ) -> PyResult<Self> {
        let expiry = Expiry::new(ttl, expires)?;
        let row = |pair: PyResult<Bound<'_, PyAny>>| {
            let (key, value) = parts(&pair?)?;
            Ok((key_of(family, &key)?, Lent::new(&value)?))
        };
        let rows = pairs(items)?.map(row).collect::<PyResult<_>>()?;
        Self::of(family, |family| What::Put { family, rows, expiry })
    }

    #[staticmethod]
    fn delete(family: &Bound<'_, Family>, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let key = key_of(family, key)?;
        Self::of(family, |family| What::Delete { family, key })
    }

    #[staticmethod]
    fn single_delete(family: &Bound<'_, Family>, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let key = key_of(family, key)?;
        Self::of(family, |family| What::SingleDelete { family, key })
    }

    #[staticmethod]
    fn delete_range(
        family: &Bound<'_, Family>,
        start: Option<Bytes<'_>>,
        stop: Option<Bytes<'_>>,
    ) -> PyResult<Self> {
        let range = range(start.as_ref(), stop.as_ref());
        Self::of(family, |family| What::DeleteRange { family, range })
    }

    #[staticmethod]
    fn delete_prefix(family: &Bound<'_, Family>, prefix: &Bound<'_, PyAny>) -> PyResult<Self> {
        let prefix = Kept::new(prefix)?;
        Self::of(family, |family| What::DeletePrefix { family, prefix })
    }

    #[staticmethod]
    fn merge(
        family: &Bound<'_, Family>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (key, operand) = (key_of(family, key)?, operators::operand(operand)?);
        Self::of(family, |family| What::Merge { family, key, operand })
    }

    /// All `writes` in one commit, to families of the database of `family`.
    #[staticmethod]
    fn all(family: &Bound<'_, Family>, writes: Vec<Py<Write>>) -> PyResult<Self> {
        Self::of(family, |_| What::All(writes))
    }

    #[staticmethod]
    fn batch(batch: &Bound<'_, Batch>) -> PyResult<Self> {
        let shared = &batch.get().shared;
        shared.check(batch.py())?;
        Ok(Self { shared: Arc::clone(shared), what: What::Batch(batch.clone().unbind()) })
    }

    #[staticmethod]
    fn transaction(transaction: &Bound<'_, Transaction>) -> PyResult<Self> {
        let shared = &transaction.get().shared;
        shared.check(transaction.py())?;
        Ok(Self { shared: Arc::clone(shared), what: What::Transaction(transaction.clone().unbind()) })
    }
}

/// An operation of a batch.
enum Op<'a> {
    Put(&'a [u8], Cow<'a, [u8]>, Expiry),
    Delete(&'a [u8]),
    SingleDelete(&'a [u8]),
    DeleteRange(&'a KeyBounds),
    DeletePrefix(&'a [u8]),
    Merge(&'a [u8], &'a [u8]),
}

/// A commit.
enum Commit<'a> {
    /// Of operations of the [`Group`].
    Ops(Range<usize>),
    Batch(&'a Batch),
    Transaction(&'a Transaction),
    /// It cannot be made.
    Failed(PyErr),
}

/// Why there is no commit.
enum Failure {
    Engine(Error),
    Python(PyErr),
}

type Outcome = Result<SeqNo, Failure>;

/// Commits that follow each other, ready to be made without the interpreter lock.
#[derive(Default)]
struct Group<'a> {
    ops: Vec<(&'a tidesdb::Family, Op<'a>)>,
    commits: Vec<Commit<'a>>,
    copied_bytes: usize,
}

impl<'a> Group<'a> {
    /// Adds `write`, which fails if it is not for the database of `shared`.
    fn push(&mut self, py: Python<'_>, shared: &Arc<Shared>, write: &'a Write) {
        let from = self.ops.len();
        let commit = match &write.what {
            _ if !Arc::ptr_eq(&write.shared, shared) => Err(raise(
                py,
                &Error::InvalidArgument { what: "a batch, or a transaction, of another database".into() },
            )),
            What::Batch(batch) => Ok(Commit::Batch(batch.get())),
            What::Transaction(transaction) => Ok(Commit::Transaction(transaction.get())),
            _ => self.push_ops(py, write).map(|()| Commit::Ops(from..self.ops.len())),
        };
        self.commits.push(commit.unwrap_or_else(Commit::Failed));
    }

    fn push_ops(&mut self, py: Python<'_>, write: &'a Write) -> PyResult<()> {
        let (family, op) = match &write.what {
            What::Put { family, rows, expiry } => {
                for (key, value) in rows {
                    let value = value.get(py)?;
                    if let Cow::Owned(copy) = &value {
                        self.copied_bytes += copy.len();
                    }
                    self.ops.push((&family.get().family, Op::Put(key.get(py), value, *expiry)));
                }
                return Ok(());
            }
            What::All(writes) => return writes.iter().try_for_each(|write| self.push_ops(py, write.get())),
            What::Delete { family, key } => (family, Op::Delete(key.get(py))),
            What::SingleDelete { family, key } => (family, Op::SingleDelete(key.get(py))),
            What::DeleteRange { family, range } => (family, Op::DeleteRange(range)),
            What::DeletePrefix { family, prefix } => (family, Op::DeletePrefix(prefix.get(py))),
            What::Merge { family, key, operand } => (family, Op::Merge(key.get(py), operand)),
            What::Batch(_) | What::Transaction(_) => return Ok(()), // never part of another write
        };
        self.ops.push((&family.get().family, op));
        Ok(())
    }

    /// Makes the commits, in their order.
    fn commit(self, db: &tidesdb::Db, options: &WriteOptions, outcomes: &mut Vec<Outcome>) {
        let mut batch = WriteBatch::new();
        for commit in self.commits {
            let committed = match commit {
                Commit::Ops(range) => fill(&mut batch, &self.ops[range])
                    .and_then(|()| db.write_with(&mut batch, options))
                    .inspect_err(|_| batch.clear()),
                Commit::Batch(batch) => batch.commit_detached(db, options),
                Commit::Transaction(transaction) => transaction.commit_detached(options),
                Commit::Failed(e) => {
                    outcomes.push(Err(Failure::Python(e)));
                    continue;
                }
            };
            // A merge operator in Python may have raised an exception that is no error of the engine.
            let interrupt = take_interrupt().map_or(Ok(()), |e| Err(Failure::Python(e)));
            outcomes.push(interrupt.and_then(|()| committed.map_err(Failure::Engine)));
        }
    }
}

fn fill(batch: &mut WriteBatch, ops: &[(&tidesdb::Family, Op<'_>)]) -> tidesdb::Result<()> {
    ops.iter().try_for_each(|(family, op)| match op {
        Op::Put(key, value, expiry) => add(batch, family, key, value, *expiry),
        Op::Delete(key) => batch.delete(family, key),
        Op::SingleDelete(key) => batch.single_delete(family, key),
        Op::DeleteRange(range) => batch.delete_range(family, (*range).clone()),
        Op::DeletePrefix(prefix) => batch.delete_prefix(family, prefix),
        Op::Merge(key, operand) => batch.merge(family, key, operand),
    })
}

/// Commits writes to the database of `database`, each by itself and in their order, then makes all of them durable with one sync unless `sync` is false.
/// Returns a list with the sequence number of each, or the exception.
#[pyfunction]
pub(crate) fn write_group<'py>(
    py: Python<'py>,
    database: &Bound<'py, Family>,
    writes: Vec<Bound<'py, Write>>,
    sync: bool,
) -> PyResult<Bound<'py, PyList>> {
    let shared = &database.get().shared;
    let db = shared.db(py)?;
    let options = if sync { WriteOptions::default().sync(SyncMode::None) } else { WriteOptions::default() };
    let mut outcomes = Vec::with_capacity(writes.len());
    let mut rest = writes.iter().peekable();
    while rest.peek().is_some() {
        let mut group = Group::default();
        while group.copied_bytes < COPIES_BYTES
            && let Some(write) = rest.next()
        {
            group.push(py, shared, write.get());
        }
        detach(py, || group.commit(db, &options, &mut outcomes))?;
    }
    let synced = if sync { detach(py, || make_durable(db))? } else { Ok(()) };
    let out = PyList::empty(py);
    for outcome in outcomes {
        let outcome = match (&synced, outcome) {
            (Err((e, durable_end)), Ok(seq)) if seq >= *durable_end => {
                Err(Failure::Engine(Error::CommitUnknown { seq, cause: Arc::new(e.clone()) }))
            }
            (_, outcome) => outcome,
        };
        match outcome {
            Ok(seq) => out.append(seq)?,
            Err(Failure::Engine(e)) => out.append(raise(py, &e).into_value(py))?,
            Err(Failure::Python(e)) => out.append(e.into_value(py))?,
        }
    }
    Ok(out)
}

/// Makes all commits durable: an empty commit in mode `Full` does it.
///
/// # Errors
/// That of the commit, and the sequence number up to which commits are durable.
fn make_durable(db: &tidesdb::Db) -> Result<(), (Error, SeqNo)> {
    let full = WriteOptions::default().sync(SyncMode::Full);
    db.write_with(&mut WriteBatch::new(), &full).map(drop).map_err(|e| (e, db.stats().durable_end))
}
