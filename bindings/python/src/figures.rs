//! Statistics and reports as dictionaries, with the names of the engine.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tidesdb::{
    FamilyStats, HealthReport, RangeEstimate, RecoveryReport, StatInfo, StatValue, Stats, TreeStats,
    VerifyReport,
};

type Dict<'py> = Bound<'py, PyDict>;

/// Adds figures by their names.
fn add(dict: &Dict<'_>, figures: impl Iterator<Item = (&'static StatInfo, StatValue)>) -> PyResult<()> {
    for (info, value) in figures {
        match value {
            StatValue::Number(n) => dict.set_item(info.name, n)?,
            StatValue::Real(x) => dict.set_item(info.name, x)?,
            StatValue::Levels(levels) => dict.set_item(info.name, levels)?,
            other => dict.set_item(info.name, format!("{other:?}"))?,
        }
    }
    Ok(())
}

fn dict_of<'py>(
    py: Python<'py>,
    figures: impl Iterator<Item = (&'static StatInfo, StatValue)>,
) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    add(&dict, figures)?;
    Ok(dict)
}

pub(crate) fn family<'py>(py: Python<'py>, stats: &FamilyStats) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &stats.name)?;
    add(&dict, stats.figures())?;
    Ok(dict)
}

pub(crate) fn tree<'py>(py: Python<'py>, tree: &TreeStats) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("family", &tree.family)?;
    dict.set_item("order", &tree.order)?;
    add(&dict, tree.figures())?;
    let levels = PyList::empty(py);
    for level in &tree.levels {
        levels.append(dict_of(py, level.figures())?)?;
    }
    dict.set_item("levels", levels)?;
    Ok(dict)
}

pub(crate) fn database<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Dict<'py>> {
    let dict = dict_of(py, stats.figures())?;
    let times = PyDict::new(py);
    for (name, one) in stats.times() {
        times.set_item(name, dict_of(py, one.figures())?)?;
    }
    dict.set_item("times", times)?;
    let stalls = PyDict::new(py);
    for (cause, one) in stats.stalls_by_cause() {
        stalls.set_item(cause.name(), dict_of(py, one.figures())?)?;
    }
    dict.set_item("stalls", stalls)?;
    let jobs = PyList::empty(py);
    for job in &stats.jobs {
        let one = dict_of(py, job.figures())?;
        one.set_item("kind", job.kind)?;
        one.set_item("family", &job.family)?;
        jobs.append(one)?;
    }
    dict.set_item("jobs", jobs)?;
    let families = PyDict::new(py);
    for one in &stats.families {
        families.set_item(&one.name, family(py, one)?)?;
    }
    dict.set_item("families", families)?;
    Ok(dict)
}

pub(crate) fn estimate<'py>(py: Python<'py>, estimate: &RangeEstimate) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("entries", estimate.entries)?;
    dict.set_item("bytes", estimate.bytes)?;
    dict.set_item("blocks", estimate.blocks)?;
    dict.set_item("tables", estimate.tables)?;
    dict.set_item("sources", estimate.sources)?;
    dict.set_item("memtable_entries", estimate.memtable_entries)?;
    Ok(dict)
}

pub(crate) fn health<'py>(py: Python<'py>, report: &HealthReport) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("state", report.state.name())?;
    dict.set_item("causes", &report.causes)?;
    dict.set_item("first_failure", report.first_failure.as_ref().map(ToString::to_string))?;
    Ok(dict)
}

pub(crate) fn recovery<'py>(py: Python<'py>, report: &RecoveryReport) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("clean", report.clean)?;
    dict.set_item("commits", report.commits)?;
    dict.set_item("operations", report.operations)?;
    dict.set_item("log_bytes", report.log_bytes)?;
    dict.set_item("discarded", report.discarded)?;
    dict.set_item("unfinished", report.unfinished)?;
    dict.set_item("cut", report.cut)?;
    dict.set_item("sync_failed", report.sync_failed)?;
    dict.set_item("damage", report.damage.as_ref().map(ToString::to_string))?;
    dict.set_item("end", report.end)?;
    dict.set_item("orphans", report.orphans)?;
    dict.set_item("took", report.took.as_secs_f64())?;
    Ok(dict)
}

pub(crate) fn verification<'py>(py: Python<'py>, report: &VerifyReport) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("ok", report.is_ok())?;
    dict.set_item("tables", report.tables)?;
    dict.set_item("vlogs", report.vlogs)?;
    dict.set_item("entries", report.entries)?;
    dict.set_item("pointers", report.pointers)?;
    dict.set_item("unflushed", report.unflushed)?;
    dict.set_item("damage", report.damage.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(dict)
}
