//! Iterators over keys, values and rows, and cursors: all on a `tidesdb::Cursor`.
//!
//! An iterator copies some rows at a time, more each time, and releases the interpreter lock once for all of them: a thread that wants it back
//! may have to wait for milliseconds. A long row is not copied, but made into `bytes` where it lies.

use std::collections::VecDeque;
use std::ops::Bound as End;
use std::sync::Arc;
use std::time::SystemTime;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tidesdb::{Error, KeyBounds, ReadOptions};

use crate::buffer::{Bytes, copied};
use crate::failure::raise;
use crate::handle::{Guarded, Owned, Shared, detach, run};

/// Rows that are copied at a time, and their bytes.
const COPIED_ROWS_MAX: usize = 1024;
const COPIED_BYTES_MAX: usize = 64 << 10;
/// Rows that are copied the first time: a program often wants a few.
const CHUNK: usize = 8;
/// A value of this many bytes is not copied.
const LONG_BYTES: usize = 16 << 10;

const HAS_ENDED: &str =
    "these rows have ended: ask before the last of them, or the database, or its mapping()";

/// What an iterator yields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Keys,
    Values,
    Items,
}

impl Kind {
    /// How to read it.
    pub(crate) fn options(self) -> ReadOptions {
        ReadOptions::default().keys_only(self == Self::Keys)
    }

    fn make<'py>(self, py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Self::Keys => PyBytes::new(py, key).into_any(),
            Self::Values => copied(py, value)?.into_any(),
            Self::Items => PyTuple::new(py, [PyBytes::new(py, key), copied(py, value)?])?.into_any(),
        })
    }
}

/// A pair of `bytes`.
pub(crate) type Row<'py> = Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

/// Which rows, and in which direction: the arguments of `keys`, `values` and `items`.
pub(crate) struct Span<'a> {
    pub start: Option<Bytes<'a>>,
    pub stop: Option<Bytes<'a>>,
    pub prefix: Option<Bytes<'a>>,
    pub reverse: bool,
}

impl Span<'_> {
    /// Returns the range of keys, in the order of `family`.
    ///
    /// # Errors
    /// If there is a prefix beside the ends of a range, or the order of the family has no prefixes.
    pub(crate) fn bounds(&self, py: Python<'_>, family: &tidesdb::Family) -> PyResult<KeyBounds> {
        match (&self.prefix, &self.start, &self.stop) {
            (Some(prefix), None, None) => family.prefix_range(prefix).map_err(|e| raise(py, &e)),
            (Some(_), ..) => Err(PyTypeError::new_err("either a prefix or the ends of a range")),
            _ => Ok(range(self.start.as_ref(), self.stop.as_ref())),
        }
    }
}

/// Returns the range from `start` up to, and without, `stop`.
pub(crate) fn range(start: Option<&Bytes<'_>>, stop: Option<&Bytes<'_>>) -> KeyBounds {
    let owned = |key: &Bytes<'_>| key.0.to_vec();
    (
        start.map_or(End::Unbounded, |key| End::Included(owned(key))),
        stop.map_or(End::Unbounded, |key| End::Excluded(owned(key))),
    )
}

/// Counts the keys in `bounds`.
///
/// # Errors
/// Those of the engine.
pub(crate) fn count(mut cursor: tidesdb::Cursor, bounds: KeyBounds) -> tidesdb::Result<u64> {
    cursor.set_range(bounds);
    cursor.seek_to_first()?;
    let mut n = 0;
    while cursor.valid() {
        n += 1;
        cursor.next()?;
    }
    Ok(n)
}

/// Returns when the row of `key` expires, in seconds since 1970 (infinity = never); `None` if there is no such row.
///
/// # Errors
/// Those of the engine.
pub(crate) fn expiry(
    mut cursor: tidesdb::Cursor,
    family: &tidesdb::Family,
    key: &[u8],
) -> tidesdb::Result<Option<f64>> {
    if key.is_empty() {
        return Ok(None); // no row has it, and a seek would go to the first
    }
    cursor.seek(key)?;
    Ok((cursor.valid() && is_same(family, cursor.key(), key)).then(|| seconds(cursor.expiry())))
}

/// Whether two keys are one in the order of `family`.
fn is_same(family: &tidesdb::Family, a: &[u8], b: &[u8]) -> bool {
    a == b || family.current_options().comparator.compare(a, b).is_eq()
}

/// Returns a moment in seconds since 1970; infinity = never.
pub(crate) fn seconds(moment: Option<SystemTime>) -> f64 {
    let since =
        |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    moment.map_or(f64::INFINITY, since)
}

/// Rows that were copied, and the next of them.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    /// Lengths of key and value.
    lens: Vec<(usize, usize)>,
    next: usize,
    at: usize,
}

impl Copied {
    /// Whether all rows were taken.
    fn is_empty(&self) -> bool {
        self.next == self.lens.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lens.clear();
        (self.next, self.at) = (0, 0);
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lens.push((key.len(), value.len()));
    }

    fn take(&mut self) -> Option<(&[u8], &[u8])> {
        let (key, value) = *self.lens.get(self.next)?;
        let row = &self.bytes[self.at..self.at + key + value];
        self.next += 1;
        self.at += key + value;
        Some(row.split_at(key))
    }
}

/// What `in` looks for.
enum Wanted<'a> {
    Key(Bytes<'a>),
    Value(Bytes<'a>),
    Item(Bytes<'a>, Bytes<'a>),
}

struct State {
    cursor: tidesdb::Cursor,
    family: tidesdb::Family,
    kind: Kind,
    reverse: bool,
    /// Whether the cursor stands on the row that was yielded, or copied, last.
    placed: bool,
    done: bool,
    copied: Copied,
    /// Rows to copy next time.
    chunk: usize,
    /// The most rows to copy at a time.
    chunk_max: usize,
    /// Whether the cursor stands on a long row, which comes after the copied ones.
    on_long: bool,
    /// An error behind the copied rows.
    failed: Option<Error>,
    /// Whether the row that the cursor stands on could not be read.
    again: bool,
    /// Rows before an error, of a call that raised it.
    kept: VecDeque<Py<PyAny>>,
}

impl State {
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(row) = self.kept.pop_front() {
            return Ok(Some(row.into_bound(py)));
        }
        if self.copied.is_empty() && !self.on_long && self.failed.is_none() && !self.done {
            self.fill(py)?;
        }
        if let Some((key, value)) = self.copied.take() {
            return self.kind.make(py, key, value).map(Some);
        }
        if let Some(e) = self.failed.take() {
            return Err(raise(py, &e));
        }
        if !self.on_long {
            return Ok(None);
        }
        let (key, value) = self.cursor.entry().map_err(|e| raise(py, &e))?; // it is there already
        let row = self.kind.make(py, key, value)?;
        self.on_long = false;
        Ok(Some(row))
    }

    /// Copies the next rows. A call that was interrupted leaves the row that it was at to the next call.
    fn fill(&mut self, py: Python<'_>) -> PyResult<()> {
        let filled = detach(py, || self.copy());
        match filled {
            Ok(()) => self.again = false,
            Err(_) if self.failed.take().is_some() => self.done = false,
            Err(_) => {}
        }
        filled
    }

    /// Whether there is nothing more to yield.
    fn has_ended(&self) -> bool {
        self.done && self.copied.is_empty() && self.failed.is_none() && !self.on_long && self.kept.is_empty()
    }

    /// Whether `wanted` is among the rows, those that were yielded included. The cursor is then where it was.
    fn has(&mut self, wanted: &Wanted<'_>) -> tidesdb::Result<bool> {
        let place = (self.placed && self.cursor.valid()).then(|| self.cursor.key().to_vec());
        let found = self.find(wanted);
        let Some(place) = place else { return found };
        if let Err(e) =
            if self.reverse { self.cursor.seek_for_prev(&place) } else { self.cursor.seek(&place) }
        {
            self.failed = Some(e.clone()); // the place is lost: the next step must not look like the end
            (self.on_long, self.done) = (false, true);
            return Err(e);
        }
        if !self.cursor.valid() {
            (self.on_long, self.done) = (false, true); // that row has expired, and there is none behind it
        } else if self.cursor.key() != place {
            self.again |= !self.on_long; // that row has expired: the cursor stands on the one behind it, which is the next
        }
        found
    }

    fn find(&mut self, wanted: &Wanted<'_>) -> tidesdb::Result<bool> {
        let Self { cursor, family, .. } = self;
        match wanted {
            Wanted::Key(key) | Wanted::Item(key, _) if key.is_empty() => return Ok(false), // no row has it
            Wanted::Key(key) | Wanted::Item(key, _) => cursor.seek(key)?,
            Wanted::Value(_) => cursor.seek_to_first()?,
        }
        match wanted {
            Wanted::Key(key) => Ok(cursor.valid() && is_same(family, cursor.key(), key)),
            Wanted::Item(key, value) => {
                Ok(cursor.valid() && is_same(family, cursor.key(), key) && cursor.value()? == &**value)
            }
            Wanted::Value(value) => {
                while cursor.valid() {
                    if cursor.value()? == &**value {
                        return Ok(true);
                    }
                    cursor.next()?;
                }
                Ok(false)
            }
        }
    }

    /// Moves to the next row. Returns false at the end.
    fn step(&mut self) -> tidesdb::Result<bool> {
        if std::mem::take(&mut self.again) {
            let key = self.cursor.key().to_vec(); // the cursor remembers an error until it moves
            if self.reverse { self.cursor.seek_for_prev(key) } else { self.cursor.seek(key) }?;
            return Ok(self.cursor.valid());
        }
        match (self.placed, self.reverse) {
            (false, false) => self.cursor.seek_to_first(),
            (false, true) => self.cursor.seek_to_last(),
            (true, false) => self.cursor.next(),
            (true, true) => self.cursor.prev(),
        }?;
        self.placed = true;
        Ok(self.cursor.valid())
    }

    /// Copies the rows that come next, up to a long one. An error ends the iterator, unless it is one of a single row.
    fn copy(&mut self) {
        self.copied.clear();
        while self.copied.lens.len() < self.chunk
            && self.copied.bytes.len() < COPIED_BYTES_MAX
            && !self.on_long
        {
            let stepped = self.step();
            self.again = matches!(stepped, Ok(true));
            match stepped.and_then(|there| if there { self.copy_row() } else { Ok(false) }) {
                Ok(true) => self.again = false,
                Ok(false) => {
                    self.done = true;
                    break;
                }
                Err(e) => {
                    self.done = !matches!(e, Error::Merge { .. });
                    self.failed = Some(e);
                    break;
                }
            }
        }
        self.chunk = (2 * self.chunk).min(self.chunk_max);
    }

    /// Copies the row that the cursor stands on, and those that it has in its buffer.
    fn copy_row(&mut self) -> tidesdb::Result<bool> {
        if self.kind == Kind::Keys {
            self.copied.push(self.cursor.key(), &[]);
            return Ok(true);
        }
        let (key, value) = self.cursor.entry()?;
        if value.len() >= LONG_BYTES {
            self.on_long = true;
            return Ok(true);
        }
        self.copied.push(key, value);
        let (bytes, rows) = self.cursor.buffered();
        let more = rows.len().saturating_sub(1).min(self.chunk.saturating_sub(self.copied.lens.len()));
        for row in rows.iter().skip(1).take(more) {
            let (at, key) = (row.start(), row.key_len());
            self.copied.push(&bytes[at..at + key], &bytes[at + key..at + key + row.value_len()]);
        }
        self.cursor.advance(more);
        Ok(true)
    }
}

/// An iterator over keys, values, or pairs of both. It reads one state of the database, whatever is written meanwhile, and keeps that state
/// until it ends, is closed, or is collected.
#[pyclass(frozen, generic, module = "tidesdb")]
pub(crate) struct Rows {
    shared: Arc<Shared>,
    /// `None` once it has ended.
    state: Guarded<Option<Owned<State>>>,
}

impl Rows {
    /// Makes an iterator over the rows of `family` in `span`, with the cursor that `open` returns. Within a transaction a row that is read
    /// in advance counts as read, so none is.
    ///
    /// # Errors
    /// Those of [`Span::bounds`] and of `open`.
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        family: &tidesdb::Family,
        kind: Kind,
        span: &Span<'_>,
        in_transaction: bool,
        open: impl FnOnce(&ReadOptions) -> PyResult<tidesdb::Cursor>,
    ) -> PyResult<Self> {
        let bounds = span.bounds(py, family)?;
        let mut cursor = open(&kind.options())?;
        cursor.set_range(bounds);
        let chunk_max = if in_transaction { 1 } else { COPIED_ROWS_MAX };
        let state = State {
            cursor,
            family: family.clone(),
            kind,
            reverse: span.reverse,
            placed: false,
            done: false,
            copied: Copied::default(),
            chunk: CHUNK.min(chunk_max),
            chunk_max,
            on_long: false,
            failed: None,
            again: false,
            kept: VecDeque::new(),
        };
        Ok(Self { shared: Arc::clone(shared), state: Guarded::new(Some(Owned::new(state))) })
    }

    /// Passes the state to `call`, and ends it if the rows have ended.
    fn with<R>(&self, py: Python<'_>, end: R, call: impl FnOnce(&mut State) -> PyResult<R>) -> PyResult<R> {
        self.shared.check(py)?;
        self.state.with(py, |state| {
            let Some(open) = state else { return Ok(end) };
            let out = call(open);
            if open.has_ended() {
                *state = None;
            }
            out
        })?
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.with(py, None, |state| state.next(py))
    }

    /// Returns a list of the next `n` rows, fewer at the end: one call for many rows. After an exception, the next call returns the rows
    /// before it.
    fn fetch<'py>(&self, py: Python<'py>, n: usize) -> PyResult<Bound<'py, PyList>> {
        if n == 0 {
            return Err(PyValueError::new_err("the number of rows must be at least 1"));
        }
        let rows = PyList::empty(py);
        self.with(py, (), |state| {
            while rows.len() < n {
                match state.next(py) {
                    Ok(Some(row)) => rows.append(row)?,
                    Ok(None) => break,
                    Err(e) => {
                        state.kept.extend(rows.iter().map(Bound::unbind));
                        return Err(e);
                    }
                }
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// Whether a key, a value or a pair is among the rows, wherever the iterator stands: it does not move. It is an error once the iterator
    /// has ended, because it has no state to look into any more. A value is found by reading the rows.
    fn __contains__(&self, py: Python<'_>, row: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.shared.check(py)?;
        self.state.with(py, |state| {
            let Some(state) = state else { return Err(PyValueError::new_err(HAS_ENDED)) };
            let parts;
            let wanted = match state.kind {
                Kind::Keys => row.extract().map(Wanted::Key),
                Kind::Values => row.extract().map(Wanted::Value),
                Kind::Items => {
                    parts = row.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
                    let Ok((key, value)) = &parts else { return Ok(false) };
                    key.extract().and_then(|key| Ok(Wanted::Item(key, value.extract()?)))
                }
            };
            let Ok(wanted) = wanted else { return Ok(false) }; // rows have bytes only
            run(py, || state.has(&wanted))
        })?
    }

    fn __repr__(&self) -> String {
        format!("<tidesdb.Rows of {:?}>", self.shared.path)
    }

    /// Ends the iterator and gives back its memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.with(py, |state| *state = None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

/// A position among the keys of a family, which moves in both directions and seeks. It reads one state of the database until `refresh`.
///
/// The calls that move it return whether it stands on a key.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    cursor: Guarded<Option<Owned<tidesdb::Cursor>>>,
}

impl Cursor {
    /// Makes a cursor for the rows of `family` in `span`, of the one that `open` returns.
    ///
    /// # Errors
    /// Those of [`Span::bounds`] and of `open`.
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        family: &tidesdb::Family,
        span: &Span<'_>,
        keys_only: bool,
        open: impl FnOnce(&ReadOptions) -> PyResult<tidesdb::Cursor>,
    ) -> PyResult<Self> {
        let bounds = span.bounds(py, family)?;
        let mut cursor = open(&ReadOptions::default().keys_only(keys_only))?;
        cursor.set_range(bounds);
        Ok(Self { shared: Arc::clone(shared), cursor: Guarded::new(Some(Owned::new(cursor))) })
    }

    fn with<R>(&self, py: Python<'_>, call: impl FnOnce(&mut tidesdb::Cursor) -> PyResult<R>) -> PyResult<R> {
        self.shared.check(py)?;
        self.cursor.with_open(py, call)
    }

    fn go(
        &self,
        py: Python<'_>,
        to: impl FnOnce(&mut tidesdb::Cursor) -> tidesdb::Result<()> + Send,
    ) -> PyResult<bool> {
        self.with(py, |cursor| {
            run(py, || to(cursor))?;
            Ok(cursor.valid())
        })
    }
}

#[pymethods]
impl Cursor {
    /// Moves to the first key.
    fn first(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, tidesdb::Cursor::seek_to_first)
    }

    /// Moves to the last key.
    fn last(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, tidesdb::Cursor::seek_to_last)
    }

    /// Moves to the first key at or after `key`.
    fn seek(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        self.go(py, |cursor| cursor.seek(&key))
    }

    /// Moves to the last key at or before `key`.
    fn seek_for_prev(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        self.go(py, |cursor| cursor.seek_for_prev(&key))
    }

    /// Moves to the next key.
    fn next(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, tidesdb::Cursor::next)
    }

    /// Moves to the previous key.
    fn prev(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, tidesdb::Cursor::prev)
    }

    /// Moves to the newest state of the database; the position is lost.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.go(py, tidesdb::Cursor::refresh).map(drop)
    }

    /// Whether it stands on a key.
    #[getter]
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |cursor| Ok(cursor.valid()))
    }

    /// The key, or `None` if it stands on none.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with(py, |cursor| Ok(cursor.valid().then(|| PyBytes::new(py, cursor.key()))))
    }

    /// The value, or `None` if it stands on no key.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with(py, |cursor| {
            if !cursor.valid() {
                return Ok(None);
            }
            run(py, || cursor.value().map(drop))?;
            copied(py, cursor.value().map_err(|e| raise(py, &e))?).map(Some)
        })
    }

    /// The key and the value, or `None` if it stands on no key.
    #[getter]
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        self.with(py, |cursor| {
            if !cursor.valid() {
                return Ok(None);
            }
            run(py, || cursor.entry().map(drop))?;
            let (key, value) = cursor.entry().map_err(|e| raise(py, &e))?;
            Ok(Some((PyBytes::new(py, key), copied(py, value)?)))
        })
    }

    /// When the row expires, in seconds since 1970 (`math.inf` = never), or `None` if it stands on no key.
    #[getter]
    fn expires(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |cursor| Ok(cursor.valid().then(|| seconds(cursor.expiry()))))
    }

    /// The sequence number of the commit that wrote the row, or `None` if it stands on no key. Merges set it to 0 once no snapshot needs it.
    #[getter]
    fn version_seq(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, |cursor| Ok(cursor.valid().then(|| cursor.version_seq())))
    }

    /// The sequence number of the newest commit that it shows.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |cursor| Ok(cursor.seq()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key =
            self.key(py)?.map_or(Ok("no key".to_owned()), |key| key.repr().map(|key| key.to_string()))?;
        Ok(format!("<tidesdb.Cursor on {key} of {:?}>", self.shared.path))
    }

    /// Gives back the memory of the cursor, which cannot be used afterwards.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.cursor.with(py, |cursor| *cursor = None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
