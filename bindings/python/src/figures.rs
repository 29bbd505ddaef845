//! Statistics and reports as dictionaries, with the names of the engine.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use tidesdb::backup::{Generation, Pruned, VerifiedGeneration};
use tidesdb::{
    ChangedSetting, ExplainedSource, ExplainedVersion, Explanation, FamilyStats, Finding, HealthReport,
    History, Ingested, Outcome, Profile, RangeEstimate, RangeExplanation, ReadWork, RecoveryReport,
    ScannedSource, StatInfo, StatValue, Stats, TreeStats, VerifyReport, WriterFigures,
};

use crate::buffer::copied;
use crate::rows::seconds;

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
        let one = dict_of(py, level.figures())?;
        one.set_item("first_key", PyBytes::new(py, &level.first_key))?;
        one.set_item("last_key", PyBytes::new(py, &level.last_key))?;
        levels.append(one)?;
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
    let remote = stats.remote.as_ref().map(|remote| dict_of(py, remote.figures())).transpose()?;
    dict.set_item("remote", remote)?;
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

/// Returns what `of` makes of each of `all`, as a list.
fn list<'py, T>(
    py: Python<'py>,
    all: impl IntoIterator<Item = T>,
    of: impl Fn(Python<'py>, T) -> PyResult<Dict<'py>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for one in all {
        list.append(of(py, one)?)?;
    }
    Ok(list)
}

pub(crate) fn findings<'py>(py: Python<'py>, all: &[Finding]) -> PyResult<Bound<'py, PyList>> {
    list(py, all, |py, finding| {
        let dict = PyDict::new(py);
        dict.set_item("severity", finding.severity.name())?;
        dict.set_item("rule", finding.rule)?;
        dict.set_item("what", &finding.what)?;
        dict.set_item("evidence", &finding.evidence)?;
        dict.set_item("cause", &finding.cause)?;
        dict.set_item("advice", &finding.advice)?;
        dict.set_item("price", &finding.price)?;
        Ok(dict)
    })
}

pub(crate) fn settings<'py>(py: Python<'py>, all: &[ChangedSetting]) -> PyResult<Bound<'py, PyList>> {
    list(py, all, |py, setting| {
        let dict = PyDict::new(py);
        dict.set_item("family", Some(&setting.family).filter(|family| !family.is_empty()))?;
        dict.set_item("name", &setting.name)?;
        dict.set_item("value", &setting.value)?;
        Ok(dict)
    })
}

pub(crate) fn writer<'py>(py: Python<'py>, figures: &WriterFigures) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("state", figures.state.name())?;
    dict.set_item("process", figures.process)?;
    dict.set_item("version", &figures.version)?;
    dict.set_item("written", seconds(Some(figures.written)))?;
    dict.set_item("age", figures.age.as_secs_f64())?;
    dict.set_item("open_for", figures.open_for.as_secs_f64())?;
    dict.set_item("stats", database(py, &figures.stats)?)?;
    dict.set_item("trees", list(py, &figures.stats.trees, tree)?)?;
    dict.set_item("settings", settings(py, &figures.settings)?)?;
    dict.set_item("health", health(py, &figures.health)?)?;
    dict.set_item("findings", findings(py, &figures.diagnose())?)?;
    dict.set_item("metrics_text", figures.metrics_text())?;
    dict.set_item("families_left_out", figures.families_left_out)?;
    dict.set_item("unknown", &figures.unknown)?;
    Ok(dict)
}

/// The figures of the past by name, each as a list of moments, in seconds since 1970, and values.
pub(crate) fn history<'py>(py: Python<'py>, history: &History) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    let mut all = vec![Vec::new(); history.names.len()];
    for sample in &history.samples {
        for (name, value) in &sample.values {
            if let Some(series) = all.get_mut(*name as usize) {
                series.push((sample.millis as f64 / 1000.0, *value));
            }
        }
    }
    for (name, series) in history.names.iter().zip(all) {
        dict.set_item(name, series)?;
    }
    Ok(dict)
}

fn work<'py>(py: Python<'py>, work: &ReadWork) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("in_memory", work.in_memory)?;
    dict.set_item("from_page_cache", work.from_page_cache)?;
    dict.set_item("from_device", work.from_device)?;
    dict.set_item("table_bytes", work.table_bytes)?;
    dict.set_item("log_values", work.log_values)?;
    dict.set_item("log_value_bytes", work.log_value_bytes)?;
    Ok(dict)
}

fn version<'py>(py: Python<'py>, version: &ExplainedVersion) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("seq", version.seq)?;
    dict.set_item("kind", version.kind.name())?;
    dict.set_item("expires", seconds(version.expiry))?;
    dict.set_item("value_bytes", version.value_bytes)?;
    dict.set_item("verdict", version.verdict.name())?;
    Ok(dict)
}

fn source<'py>(py: Python<'py>, source: &ExplainedSource) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("name", source.name.to_string())?;
    dict.set_item("searched", source.is_searched)?;
    dict.set_item("filter", source.filter.name())?;
    dict.set_item("bytes", source.bytes)?;
    dict.set_item("entries", source.entries)?;
    dict.set_item("steps", source.steps.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    dict.set_item("versions", list(py, &source.versions, version)?)?;
    dict.set_item("work", work(py, &source.work())?)?;
    Ok(dict)
}

/// Why a read returns what it returns.
pub(crate) fn explanation<'py>(py: Python<'py>, explained: &Explanation) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("text", explained.to_string())?;
    dict.set_item("key", PyBytes::new(py, &explained.key))?;
    dict.set_item("seq", explained.seq)?;
    dict.set_item("outcome", explained.outcome.name())?;
    let value = explained.outcome.value().map(|value| copied(py, value)).transpose()?;
    dict.set_item("value", value)?;
    let failure =
        if let Outcome::Failed { error } = &explained.outcome { Some(error.to_string()) } else { None };
    dict.set_item("error", failure)?;
    dict.set_item("sources", list(py, &explained.sources, source)?)?;
    let levels = list(py, &explained.levels, |py, level| {
        let dict = PyDict::new(py);
        dict.set_item("level", level.level)?;
        dict.set_item("tables", level.tables)?;
        dict.set_item("runs", level.runs)?;
        dict.set_item("covering", level.covering)?;
        Ok(dict)
    })?;
    dict.set_item("levels", levels)?;
    dict.set_item("has_more_versions", explained.has_more_versions)?;
    dict.set_item("dead_versions", explained.dead_versions())?;
    dict.set_item("sources_searched", explained.sources_searched())?;
    dict.set_item("work", work(py, &explained.work())?)?;
    dict.set_item("extra_reads", explained.extra_reads)?;
    dict.set_item("extra_bytes", explained.extra_bytes)?;
    Ok(dict)
}

fn scanned<'py>(py: Python<'py>, source: &ScannedSource) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("name", source.name.to_string())?;
    dict.set_item("seeks", source.seeks)?;
    dict.set_item("entries", source.entries)?;
    dict.set_item("shown", source.shown)?;
    dict.set_item("operands", source.operands)?;
    dict.set_item("older", source.older)?;
    dict.set_item("too_new", source.too_new)?;
    dict.set_item("tombstones", source.tombstones)?;
    dict.set_item("expired", source.expired)?;
    dict.set_item("hidden_by_range", source.hidden_by_range)?;
    dict.set_item("blocks_in_memory", source.blocks_in_memory)?;
    dict.set_item("table_reads", source.table_reads)?;
    dict.set_item("table_bytes", source.table_bytes)?;
    Ok(dict)
}

/// What a scan meets and reads.
pub(crate) fn range_explanation<'py>(py: Python<'py>, explained: &RangeExplanation) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("text", explained.to_string())?;
    dict.set_item("seq", explained.seq)?;
    let keys = PyList::empty(py);
    for key in &explained.keys {
        keys.append(PyBytes::new(py, key))?;
    }
    dict.set_item("keys", keys)?;
    dict.set_item("row_bytes", explained.row_bytes)?;
    dict.set_item("log_values", explained.log_values)?;
    dict.set_item("log_value_bytes", explained.log_value_bytes)?;
    dict.set_item("failed_values", explained.failed_values)?;
    dict.set_item("is_complete", explained.is_complete)?;
    dict.set_item("range_tombstones", explained.range_tombstones)?;
    dict.set_item("sources", list(py, &explained.sources, scanned)?)?;
    Ok(dict)
}

/// What an ingest has taken.
pub(crate) fn ingested<'py>(py: Python<'py>, taken: &Ingested) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("seq", taken.seq)?;
    dict.set_item("tables", taken.tables)?;
    dict.set_item("rows", taken.rows)?;
    dict.set_item("bytes", taken.bytes)?;
    Ok(dict)
}

/// A backup.
pub(crate) fn generation<'py>(py: Python<'py>, made: &Generation) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("number", made.number)?;
    dict.set_item("created", seconds(Some(made.created)))?;
    dict.set_item("database", &made.database)?;
    dict.set_item("seq", made.sequence)?;
    dict.set_item("files", made.files)?;
    dict.set_item("bytes", made.bytes)?;
    dict.set_item("bytes_copied", made.bytes_copied)?;
    dict.set_item("proven", made.proof.map(|proof| proof.passed))?;
    dict.set_item("proven_at", made.proof.map(|proof| seconds(Some(proof.at))))?;
    Ok(dict)
}

pub(crate) fn generations<'py>(py: Python<'py>, all: &[Generation]) -> PyResult<Bound<'py, PyList>> {
    list(py, all, generation)
}

pub(crate) fn pruned<'py>(py: Python<'py>, pruned: &Pruned) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("generations", &pruned.generations)?;
    dict.set_item("objects", pruned.objects)?;
    Ok(dict)
}

pub(crate) fn verified<'py>(py: Python<'py>, report: &VerifiedGeneration) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    dict.set_item("ok", report.is_ok())?;
    dict.set_item("objects", report.objects)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("damage", report.damage.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(dict)
}

/// What a call read and wrote.
pub(crate) fn profile<'py>(py: Python<'py>, profile: &Profile) -> PyResult<Dict<'py>> {
    dict_of(py, profile.figures())
}
