//! The interpreter that loads the module.
#![allow(unsafe_code, reason = "the number of an interpreter is behind a pointer")]

use pyo3::exceptions::PyImportError;
use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// The number of the main interpreter.
const MAIN: i64 = 0;

/// Refuses all interpreters of the process but the main one: the module has one state for the process, and the engine calls functions of
/// Python in threads that know the main interpreter only.
///
/// # Errors
/// `ImportError`.
pub(crate) fn check(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter, as `_py` shows. The first call returns it, and the second one reads its number.
    let number = unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "tidesdb works in the main interpreter of a process, not in a subinterpreter: use another process instead (under mod_wsgi: \
         WSGIApplicationGroup %{GLOBAL})",
    ))
}
