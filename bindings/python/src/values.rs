//! Values as streams. `tidesdb._values` makes file objects of these handles.

use std::io::{BufRead, Seek, SeekFrom, Write};
use std::sync::Arc;

use pyo3::prelude::*;
use tidesdb::{Error, ValueReader, ValueWriter};

use crate::buffer::{Given, Writable};
use crate::failure::{invalid, raise, raise_io};
use crate::handle::{Guarded, Owned, Shared, detach, run};
use crate::options::{Expiry, Mode};

/// Returns a file object for `reader`.
///
/// # Errors
/// If Python has no memory.
pub(crate) fn reader<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    reader: Option<ValueReader>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(reader) = reader else { return Ok(None) };
    let handle = ReadHandle { shared: Arc::clone(shared), reader: Guarded::new(Some(Owned::new(reader))) };
    py.import("tidesdb._values")?.getattr("ValueReader")?.call1((handle,)).map(Some)
}

/// Returns a file object for `handle`. Its `close` commits, or adds the value to `transaction`.
///
/// # Errors
/// If Python has no memory.
pub(crate) fn writer<'py>(
    py: Python<'py>,
    handle: WriteHandle,
    transaction: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("tidesdb._values")?.getattr("ValueWriter")?.call1((handle, transaction))
}

/// Reads one value.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct ReadHandle {
    shared: Arc<Shared>,
    reader: Guarded<Option<Owned<ValueReader>>>,
}

impl ReadHandle {
    fn with<R>(&self, py: Python<'_>, call: impl FnOnce(&mut ValueReader) -> PyResult<R>) -> PyResult<R> {
        self.shared.check(py)?;
        self.reader.with_open(py, call)
    }
}

#[pymethods]
impl ReadHandle {
    /// Fills `buffer` as far as one piece of the value goes. Returns how many bytes; 0 at the end.
    fn readinto(&self, py: Python<'_>, buffer: Writable) -> PyResult<usize> {
        self.with(py, |reader| {
            detach(py, || reader.fill_buf().map(drop))?.map_err(|e| raise_io(py, e))?;
            let piece = reader.fill_buf().map_err(|e| raise_io(py, e))?; // it is there already
            let n = buffer.fill(py, piece);
            reader.consume(n);
            Ok(n)
        })
    }

    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let to = match whence {
            0 => u64::try_from(offset)
                .map(SeekFrom::Start)
                .map_err(|_| invalid(py, &format!("invalid argument: negative position {offset}")))?,
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            _ => return Err(invalid(py, &format!("invalid argument: whence {whence}"))),
        };
        self.with(py, |reader| reader.seek(to).map_err(|e| raise_io(py, e)))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |reader| Ok(usize::try_from(reader.len()).unwrap_or(usize::MAX)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.reader.with(py, |reader| *reader = None)
    }
}

/// Writes one value.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct WriteHandle {
    shared: Arc<Shared>,
    writer: Guarded<Option<Owned<ValueWriter>>>,
}

impl WriteHandle {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        mut writer: ValueWriter,
        expiry: Expiry,
        sync: Option<Mode>,
    ) -> Self {
        writer = match expiry {
            Expiry::Default => writer,
            Expiry::After(ttl) => writer.ttl(ttl),
            Expiry::At(at) => writer.expires_at(at),
        };
        if let Some(Mode(mode)) = sync {
            writer = writer.sync(mode);
        }
        Self { shared: Arc::clone(shared), writer: Guarded::new(Some(Owned::new(writer))) }
    }

    /// Takes the writer, which ends.
    ///
    /// # Errors
    /// `Closed` if it has ended.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Owned<ValueWriter>> {
        self.shared.check(py)?;
        let writer = self.writer.with(py, Option::take)?;
        writer.ok_or_else(|| raise(py, &Error::Closed))
    }
}

#[pymethods]
impl WriteHandle {
    /// Writes all of `data`.
    fn write(&self, py: Python<'_>, data: Given<'_>) -> PyResult<usize> {
        self.shared.check(py)?;
        self.writer.with_open(py, |writer| {
            let mut write =
                |bytes: &[u8]| detach(py, || writer.write_all(bytes))?.map_err(|e| raise_io(py, e));
            match data {
                Given::Bytes(bytes) => write(bytes).map(|()| bytes.len()),
                Given::Buffer(buffer) => buffer.each_piece(py, write).map(|()| buffer.len()),
            }
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = |writer: &mut Option<Owned<ValueWriter>>| writer.as_ref().map_or(0, |writer| writer.len());
        Ok(usize::try_from(self.writer.with(py, len)?).unwrap_or(usize::MAX))
    }

    /// Sets the key to what was written. Returns the sequence number.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let writer = self.take(py)?;
        run(py, || writer.into_inner().commit())
    }

    /// Discards what was written.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer.with(py, Option::take)?;
        detach(py, || drop(writer))
    }
}
