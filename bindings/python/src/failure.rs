//! Errors of the engine as exceptions: the classes are those of `tidesdb._errors`, the words are the engine's.

use std::io;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use tidesdb::Error;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Makes an exception of the class called `name`.
pub(crate) fn exception(py: Python<'_>, name: &str, message: &str) -> PyErr {
    match instance(py, name, message) {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}

fn instance<'py>(py: Python<'py>, name: &str, message: &str) -> PyResult<Bound<'py, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || py.import("tidesdb._errors").map(Bound::unbind))?;
    classes.bind(py).getattr(name)?.call1((message,))
}

/// The exception for an argument outside of its domain.
pub(crate) fn invalid(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "InvalidArgument", message)
}

/// Returns the exception for an error of the engine.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if matches!(error, Error::Closed) {
        return exception(py, "Closed", "the database, or this object of it, is closed");
    }
    // The engine names what a program in Rust calls.
    let message = error.to_string().replace("OpenOptions::merge_operator", "the option merge_operators");
    let message = message.replace("OpenOptions::open_reader", "tidesdb.open_reader");
    let message = message.replace("check Cursor::valid first", "look at its attribute `valid` first");
    let made = instance(py, class(error), &message);
    match made.and_then(|made| describe(py, &made, error).map(|()| made)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}

/// Returns the exception for an error of a reader or writer of a value, which holds one of the engine.
pub(crate) fn raise_io(py: Python<'_>, error: io::Error) -> PyErr {
    match error.downcast::<Error>() {
        Ok(error) => raise(py, &error),
        Err(other) => other.into(),
    }
}

fn class(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "IoError",
        Error::Corrupt { .. } => "Corruption",
        Error::CommitUnknown { .. } => "CommitUnknown",
        Error::Poisoned { .. } => "Poisoned",
        Error::NoSpace { .. } => "NoSpace",
        Error::Exhausted { .. } => "Exhausted",
        Error::Busy { .. } => "Busy",
        Error::Conflict { .. } => "Conflict",
        Error::Locked { .. } => "Locked",
        Error::ReadOnly => "ReadOnly",
        Error::Closed => "Closed",
        Error::Closing { .. } => "Closing",
        Error::NotFound { .. } => "NotFound",
        Error::Exists { .. } => "Exists",
        Error::InvalidArgument { .. } => "InvalidArgument",
        Error::Merge { .. } => "MergeFailed",
        Error::MemoryLimit { .. } => "MemoryLimit",
        Error::FormatTooNew { .. } => "FormatTooNew",
        Error::FormatTooOld { .. } => "FormatTooOld",
        Error::NotBuiltIn { .. } => "NotBuiltIn",
        Error::Internal { .. } => "Internal",
        _ => "Error",
    }
}

/// Sets the attributes that a program may ask for.
fn describe(py: Python<'_>, made: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    match error {
        Error::Conflict { family, key } => {
            made.setattr("family", &**family)?;
            made.setattr("key", PyBytes::new(py, key))
        }
        Error::CommitUnknown { seq, .. } => made.setattr("seq", *seq),
        Error::Io { file, cause, .. } => {
            made.setattr("file", &**file)?;
            made.setattr("errno", cause.raw_os_error())
        }
        Error::Corrupt { file, offset, .. } => {
            made.setattr("file", &**file)?;
            made.setattr("offset", *offset)
        }
        Error::NoSpace { free, needed, .. } => {
            made.setattr("free", *free)?;
            made.setattr("needed", *needed)
        }
        _ => Ok(()),
    }
}
