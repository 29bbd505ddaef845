//! Many rows in one call: a mapping, or an iterable of pairs.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyMapping, PyTuple};

use crate::buffer::{Kept, PIECE_BYTES};

/// Rows that are passed on at a time, at most.
const CHUNK_ROWS: usize = 16 << 10;

/// Returns an iterator over the pairs of a mapping, or over an iterable of pairs. A `dict` that changes meanwhile ends it with `RuntimeError`,
/// as in Python.
///
/// # Errors
/// `TypeError`.
pub(crate) fn pairs<'py>(items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    match items.cast::<PyMapping>().is_ok() {
        true => items.call_method0("items")?.try_iter(),
        false => items.try_iter(),
    }
}

/// Returns the parts of a pair.
///
/// # Errors
/// `TypeError` for what is no pair.
pub(crate) fn parts<'py>(pair: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    if let Ok(pair) = pair.cast::<PyTuple>()
        && pair.len() == 2
    {
        return Ok((pair.get_item(0)?, pair.get_item(1)?));
    }
    let parts = pair.try_iter().and_then(|parts| parts.collect::<PyResult<Vec<_>>>());
    match parts.as_deref() {
        Ok([key, value]) if !pair.is_instance_of::<PyBytes>() => Ok((key.clone(), value.clone())),
        _ => Err(PyTypeError::new_err("pairs of a key and a value are required")),
    }
}

/// Passes each pair of `items` to `take`.
///
/// # Errors
/// Those of [`pairs`], of the iterable, of [`parts`], and of `take`.
pub(crate) fn each_pair(
    items: &Bound<'_, PyAny>,
    mut take: impl FnMut((Kept, Kept)) -> PyResult<()>,
) -> PyResult<()> {
    for pair in pairs(items)? {
        let (key, value) = parts(&pair?)?;
        take((Kept::new(&key)?, Kept::new(&value)?))?;
    }
    Ok(())
}

/// Passes the pairs of `items` to `add`, many at a time, which adds them without the interpreter lock: so a thread that waits for it gets it
/// now and then. After an error, some of those before it may have been added: it is for the caller to take them back.
///
/// # Errors
/// As [`each_pair`]; those of `add`.
pub(crate) fn each_chunk(
    py: Python<'_>,
    items: &Bound<'_, PyAny>,
    mut add: impl FnMut(&[(&[u8], &[u8])]) -> PyResult<()>,
) -> PyResult<()> {
    let mut pass = |chunk: &[(Kept, Kept)]| {
        let rows: Vec<_> = chunk.iter().map(|(key, value)| (key.get(py), value.get(py))).collect();
        if rows.is_empty() { Ok(()) } else { add(&rows) }
    };
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    each_pair(items, |pair| {
        bytes += pair.0.get(py).len() + pair.1.get(py).len();
        chunk.push(pair);
        if chunk.len() >= CHUNK_ROWS || bytes >= PIECE_BYTES {
            pass(&chunk)?;
            chunk.clear();
            bytes = 0;
        }
        Ok(())
    })?;
    pass(&chunk)
}
