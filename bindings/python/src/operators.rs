//! Merge operators and compaction filters: built-in ones by name, and functions of Python.
//!
//! The engine calls a function of Python in whatever thread combines values: one that reads, or one of its own. An exception is an error of
//! the operator: the engine keeps the value and all operands, and the read raises `MergeFailed` with the words of the exception. One that is no
//! `Exception`, such as `KeyboardInterrupt`, is raised by the call of Python that the engine works for, if there is one.

use std::error::Error;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString, PyTuple};
use tidesdb::{CompactionFilter, Decision, FilterRow};

use crate::buffer::Bytes;
use crate::failure;
use crate::handle::{interrupt, is_interrupted};

type Failure = Box<dyn Error + Send + Sync>;

/// A merge operator of your own: `MergeOperator(name, merge, check=None)`.
///
/// `merge(older, newer)` gets two `bytes` and returns their combination. It must be associative and depend on its arguments only, and
/// must not use the database. The name is stored with the family: pass the operator to each `open`, as `merge_operators=[...]`.
/// `check(operand)`, if there is one, raises an exception for an operand that must not be written.
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct MergeOperator {
    pub(crate) operator: tidesdb::MergeOperator,
}

#[pymethods]
impl MergeOperator {
    #[new]
    #[pyo3(signature = (name, merge, check=None))]
    fn new(py: Python<'_>, name: &str, merge: Py<PyAny>, check: Option<Py<PyAny>>) -> PyResult<Self> {
        for function in [Some(&merge), check.as_ref()].into_iter().flatten() {
            if !function.bind(py).is_callable() {
                return Err(PyTypeError::new_err("a merge operator is made of functions"));
            }
        }
        let mut operator =
            tidesdb::MergeOperator::custom(name, move |value, operand| combine(&merge, value, operand));
        if let Some(check) = check {
            operator = operator.check_operands(move |operand| {
                calling(|py| check.bind(py).call1((PyBytes::new(py, operand),)).map(drop))
            });
        }
        Ok(Self { operator })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn __repr__(&self) -> String {
        format!("MergeOperator({:?})", self.operator.name())
    }
}

/// Runs Python code; an exception becomes an error with its words. Nothing is run any more for a call that was interrupted.
fn calling<R>(call: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R, Failure> {
    if is_interrupted() {
        return Err("interrupted".into());
    }
    let called = Python::try_attach(|py| call(py).map_err(|e| failure_of(py, e)));
    called.unwrap_or_else(|| Err("the interpreter has ended".into()))
}

/// Returns the error for an exception. One that is no `Exception` is kept for the call of Python that the engine works for.
fn failure_of(py: Python<'_>, exception: PyErr) -> Failure {
    let words = exception.to_string();
    if !exception.is_instance_of::<PyException>(py)
        && let Err(exception) = interrupt(exception)
    {
        exception.write_unraisable(py, None); // a thread of the engine
    }
    words.into()
}

fn combine(merge: &Py<PyAny>, value: &mut Vec<u8>, operand: &[u8]) -> Result<(), Failure> {
    calling(|py| {
        let combined = merge.bind(py).call1((PyBytes::new(py, value), PyBytes::new(py, operand)))?;
        let combined =
            combined.cast::<PyBytes>().map_err(|_| PyTypeError::new_err("a merge operator returns bytes"))?;
        value.clear();
        value.extend_from_slice(combined.as_bytes());
        Ok(())
    })
}

/// Returns the merge operator that `given` stands for: a name, `("append", separator)`, or an operator.
///
/// # Errors
/// `InvalidArgument` for a name that is not known; `TypeError`.
pub(crate) fn operator(given: &Bound<'_, PyAny>) -> PyResult<tidesdb::MergeOperator> {
    if let Ok(own) = given.cast::<MergeOperator>() {
        return Ok(own.get().operator.clone());
    }
    if let Ok(pair) = given.cast::<PyTuple>() {
        let (name, separator): (String, String) = pair.extract()?;
        if name == "append" {
            return Ok(tidesdb::MergeOperator::append(&separator));
        }
    } else if given.is_instance_of::<PyString>() {
        match given.extract()? {
            "add" => return Ok(tidesdb::MergeOperator::add()),
            "max" => return Ok(tidesdb::MergeOperator::max()),
            "min" => return Ok(tidesdb::MergeOperator::min()),
            "append" => return Ok(tidesdb::MergeOperator::append("")),
            _ => {}
        }
    } else {
        return Err(PyTypeError::new_err(
            "merge_operator is a name, ('append', separator) or a MergeOperator",
        ));
    }
    let message = "merge_operator is 'add', 'max', 'min', ('append', separator) or a MergeOperator";
    Err(failure::invalid(given.py(), message))
}

/// The bytes of an operand: a number stands for the eight bytes that the operator `add` takes.
///
/// # Errors
/// If it is neither, or does not fit.
pub(crate) fn operand(of: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(number) = of.extract::<i64>() {
        return Ok(number.to_le_bytes().to_vec());
    }
    if let Ok(number) = of.extract::<u64>() {
        return Ok(number.to_le_bytes().to_vec());
    }
    Ok(of.extract::<Bytes<'_>>()?.0.into_owned())
}

/// Makes a filter of `decide(key, value)`, which returns true to keep a row, false to delete it, and `bytes` to change its value.
pub(crate) fn filter(decide: Py<PyAny>) -> CompactionFilter {
    CompactionFilter::new("python", move |row| {
        // A row that cannot be judged stays. No caller sees an `Exception`: it is reported as one of `__del__` is.
        let report = |py: Python<'_>, e: &PyErr| {
            if e.is_instance_of::<PyException>(py) {
                e.clone_ref(py).write_unraisable(py, None);
            }
        };
        calling(|py| judge(py, &decide, row).inspect_err(|e| report(py, e))).unwrap_or(Decision::Keep)
    })
}

fn judge(py: Python<'_>, decide: &Py<PyAny>, row: &FilterRow<'_>) -> PyResult<Decision> {
    let value = row.value.map(|value| PyBytes::new(py, value));
    let decision = decide.bind(py).call1((PyBytes::new(py, row.key), value))?;
    if let Ok(keep) = decision.cast::<PyBool>() {
        return Ok(if keep.is_true() { Decision::Keep } else { Decision::Remove });
    }
    let changed = decision.cast::<PyBytes>();
    let changed =
        changed.map_err(|_| PyTypeError::new_err("a compaction filter returns True, False or bytes"))?;
    Ok(Decision::Change(changed.as_bytes().to_vec()))
}
