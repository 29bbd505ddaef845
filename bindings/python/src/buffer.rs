//! Keys and values as Python passes them: `bytes`, which are used where they lie, or any other object with the buffer protocol.
#![allow(unsafe_code, reason = "Python lends the bytes of a buffer as a pointer")]

use std::borrow::Cow;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// A value. The bytes of `bytes` never change; those of another buffer may change whenever the interpreter lock is free.
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    Buffer(PyUntypedBuffer),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Value<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyBytes>() {
            return Ok(Self::Bytes(object.extract::<&'a [u8]>()?));
        }
        buffer(&object).map(Self::Buffer)
    }
}

/// Returns the buffer of an object that is no `bytes`.
#[cold]
fn buffer(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("a bytes-like object is required, not 'str': use .encode()"));
    }
    let kind = object.get_type();
    let name = kind.name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let buffer = PyUntypedBuffer::get(object);
    let buffer =
        buffer.map_err(|_| PyTypeError::new_err(format!("a bytes-like object is required, not '{name}'")))?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => {
            Err(PyTypeError::new_err(format!("the bytes of this '{name}' are not contiguous: use bytes(x)")))
        }
    }
}

impl Value<'_> {
    /// Passes the bytes to `read`, which must not run Python code. The token is proof of the interpreter lock.
    pub(crate) fn read<R>(&self, _py: Python<'_>, read: impl FnOnce(&[u8]) -> R) -> R {
        read(match self {
            Self::Bytes(bytes) => bytes,
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the exporter keeps `len_bytes` bytes at `buf_ptr` valid and in place until the buffer is released, which
            // `self` does when it is dropped; the bytes are contiguous, which `buffer` has checked, and initialised. Nothing changes
            // them during the borrow: this thread holds the interpreter lock, as `_py` shows, `read` runs no Python code, and the
            // slice does not leave the call. Code that changes a buffer without that lock races with every reader, in C too.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        })
    }
}

/// A key: short, so that one that may change is copied.
pub(crate) struct Key<'a>(pub Cow<'a, [u8]>);

impl<'a, 'py> FromPyObject<'a, 'py> for Key<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        Ok(Self(match Value::extract(object)? {
            Value::Bytes(bytes) => Cow::Borrowed(bytes),
            value => Cow::Owned(value.read(py, <[u8]>::to_vec)),
        }))
    }
}

impl AsRef<[u8]> for Key<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A buffer of Python that can be written.
pub(crate) struct Room(PyUntypedBuffer);

impl<'a, 'py> FromPyObject<'a, 'py> for Room {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("a writable, contiguous buffer is required"));
        }
        Ok(Self(buffer))
    }
}

impl Room {
    /// Copies `bytes` into the buffer, at most as many as fit. Returns how many. The token is proof of the interpreter lock.
    pub(crate) fn fill(&self, _py: Python<'_>, bytes: &[u8]) -> usize {
        let n = self.0.len_bytes().min(bytes.len());
        // SAFETY: the exporter keeps `len_bytes` bytes at `buf_ptr` valid and in place until the buffer is released, which `self` does
        // when it is dropped; they are contiguous and may be written, which `extract` has checked. They are memory of Python, so they do
        // not overlap with `bytes`, which is memory of the engine. This thread holds the interpreter lock, as `_py` shows.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.buf_ptr().cast::<u8>(), n) };
        n
    }
}
