//! Keys and values as Python passes them: `bytes`, which are used where they lie, or any other object with the buffer protocol, which is
//! copied. The copy of a long buffer releases the interpreter lock between pieces: other threads run, and may change the bytes that are not
//! yet copied, but not the length.
#![allow(unsafe_code, reason = "Python lends the bytes of a buffer as a pointer")]

use std::borrow::Cow;
use std::ops::Deref;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::ffi::{PyBytes_AsString, PyBytes_FromStringAndSize};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::handle::detach;

/// Bytes that are copied at a time while the interpreter lock is held. More are copied in pieces, or without the lock.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// A buffer of Python whose bytes are contiguous, and may change whenever the interpreter lock is free. Python refuses to resize it.
pub(crate) struct Buffer(PyUntypedBuffer);

impl Buffer {
    /// Returns the buffer of an object that is no `bytes`.
    #[cold]
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a bytes-like object is required, not 'str': use .encode()"));
        }
        let kind = object.get_type();
        let name = kind.name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        let buffer = PyUntypedBuffer::get(object);
        let buffer = buffer
            .map_err(|_| PyTypeError::new_err(format!("a bytes-like object is required, not '{name}'")))?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyTypeError::new_err(format!(
                "the bytes of this '{name}' are not contiguous: use bytes(x)"
            ))),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Passes the bytes to `read`, which must not run Python code. The token is proof of the interpreter lock.
    fn read<R>(&self, _py: Python<'_>, read: impl FnOnce(&[u8]) -> R) -> R {
        read(match self.len() {
            0 => &[],
            // SAFETY: the exporter keeps `len_bytes` bytes at `buf_ptr` valid and in place until the buffer is released, which
            // `self` does when it is dropped; the bytes are contiguous, which `new` has checked, and initialised. Nothing changes
            // them during the borrow: this thread holds the interpreter lock, as `_py` shows, `read` runs no Python code, and the
            // slice does not leave the call. Code that changes a buffer without that lock races with every reader, in C too.
            len => unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), len) },
        })
    }

    /// Copies the bytes from `at` on, as many as `out` has room for.
    fn copy(&self, py: Python<'_>, at: usize, out: &mut [u8]) {
        self.read(py, |bytes| out.copy_from_slice(&bytes[at..at + out.len()]));
    }

    /// Passes copies of all bytes to `write`, piece by piece.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn each_piece(
        &self,
        py: Python<'_>,
        mut write: impl FnMut(&[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut piece = vec![0; self.len().min(PIECE_BYTES)];
        let mut at = 0;
        while at < self.len() {
            piece.truncate(self.len() - at);
            self.copy(py, at, &mut piece);
            write(&piece)?;
            at += piece.len();
        }
        Ok(())
    }

    /// Returns a copy of all bytes.
    ///
    /// # Errors
    /// `MemoryError`; those of [`detach`].
    pub(crate) fn to_vec(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let len = self.len();
        if len < PIECE_BYTES {
            return Ok(self.read(py, <[u8]>::to_vec));
        }
        let mut copy = Vec::new();
        let no_memory = |_| PyMemoryError::new_err(format!("no memory for a copy of {len} bytes"));
        copy.try_reserve_exact(len).map_err(no_memory)?;
        while copy.len() < len {
            let at = copy.len();
            let end = len.min(at + PIECE_BYTES);
            // The system provides the memory here, which takes longer than to copy: a thread that waits for the lock gets it.
            detach(py, || copy.resize(end, 0))?;
            self.copy(py, at, &mut copy[at..]);
        }
        Ok(copy)
    }
}

/// Bytes as they were given.
pub(crate) enum Given<'a> {
    /// They never change.
    Bytes(&'a [u8]),
    Buffer(Buffer),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Given<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyBytes>() {
            return Ok(Self::Bytes(object.extract::<&'a [u8]>()?));
        }
        Buffer::new(&object).map(Self::Buffer)
    }
}

/// A key or a value for one call: `bytes` where they lie, or a copy.
pub(crate) struct Bytes<'a>(pub Cow<'a, [u8]>);

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        Ok(Self(match Given::extract(object)? {
            Given::Bytes(bytes) => Cow::Borrowed(bytes),
            Given::Buffer(buffer) => Cow::Owned(buffer.to_vec(py)?),
        }))
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A key or a value that outlives the call that passed it: `bytes`, or a copy.
pub(crate) enum Kept {
    Bytes(Py<PyBytes>),
    Copied(Vec<u8>),
}

impl Kept {
    /// # Errors
    /// If the object is not bytes-like; those of [`Buffer::to_vec`].
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        match Lent::new(object)? {
            Lent::Kept(kept) => Ok(kept),
            Lent::Buffer(buffer) => buffer.to_vec(object.py()).map(Self::Copied),
        }
    }

    /// Returns the bytes.
    pub(crate) fn get<'a>(&'a self, py: Python<'_>) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(py),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// As [`Kept`], but a long buffer is copied when it is needed. Its bytes must not change before.
pub(crate) enum Lent {
    Kept(Kept),
    Buffer(Buffer),
}

impl Lent {
    /// # Errors
    /// If the object is not bytes-like.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Kept(Kept::Bytes(bytes.clone().unbind())));
        }
        let buffer = Buffer::new(object)?;
        match buffer.len() < PIECE_BYTES {
            true => buffer.to_vec(object.py()).map(|copy| Self::Kept(Kept::Copied(copy))),
            false => Ok(Self::Buffer(buffer)),
        }
    }

    /// Returns the bytes: where they lie, or a copy.
    ///
    /// # Errors
    /// Those of [`Buffer::to_vec`].
    pub(crate) fn get<'a>(&'a self, py: Python<'_>) -> PyResult<Cow<'a, [u8]>> {
        Ok(match self {
            Self::Kept(kept) => Cow::Borrowed(kept.get(py)),
            Self::Buffer(buffer) => Cow::Owned(buffer.to_vec(py)?),
        })
    }
}

/// Returns a copy of `bytes`, which are memory of the engine. A long one is copied without the interpreter lock.
///
/// # Errors
/// `MemoryError`; those of [`detach`].
pub(crate) fn copied<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if bytes.len() < PIECE_BYTES {
        return Ok(PyBytes::new(py, bytes));
    }
    let len = isize::try_from(bytes.len())?;
    // SAFETY: without bytes to copy, the call makes an object with room for `len` bytes, which are not initialised, or raises `MemoryError`
    // and returns null. The object is `bytes`, and this reference is the only one.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(py, PyBytes_FromStringAndSize(std::ptr::null(), len))?
            .cast_into_unchecked::<PyBytes>()
    };
    // SAFETY: the object is `bytes`, as above.
    let room = Room { start: unsafe { PyBytes_AsString(made.as_ptr()) }.cast::<u8>(), len: bytes.len() };
    detach(py, || room.fill(bytes))?;
    Ok(made)
}

/// The room of `bytes` that nobody has seen yet.
struct Room {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is the only way to these bytes until `copied` returns the object.
unsafe impl Send for Room {}

impl Room {
    fn fill(self, bytes: &[u8]) {
        assert_eq!(self.len, bytes.len());
        // SAFETY: `start` has room for `len` bytes, which `copied` keeps alive and nobody else reads or writes before it returns them. They
        // are new memory of Python, so they do not overlap with `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, self.len) };
    }
}

/// A buffer of Python that can be written.
pub(crate) struct Writable(PyUntypedBuffer);

impl<'a, 'py> FromPyObject<'a, 'py> for Writable {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("a writable, contiguous buffer is required"));
        }
        Ok(Self(buffer))
    }
}

impl Writable {
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
