//! Options as keyword arguments, with the names of the engine.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use strsim::levenshtein;
use tidesdb::{
    Comparator, Compression, DbOptions, FamilyOptions, Isolation, OpenOptions, RecoveryMode, SyncMode,
    WriteOptions,
};

use crate::failure;
use crate::operators;
use crate::resources::Resources;

/// The path of a folder: `str`, `bytes`, or an object with one.
pub(crate) struct Folder(pub PathBuf);

impl<'a, 'py> FromPyObject<'a, 'py> for Folder {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let path = object.py().import("os")?.call_method1("fsdecode", (object,))?;
        path.extract().map(Self)
    }
}

/// A time: seconds, or a `timedelta`; infinity is `None`.
pub(crate) struct Span(pub Option<Duration>);

impl<'a, 'py> FromPyObject<'a, 'py> for Span {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("a time is a number of seconds or a timedelta, not a bool"));
        }
        let Ok(seconds) = object.extract::<f64>() else {
            let wrong =
                |_| PyTypeError::new_err("a time is a number of seconds or a timedelta, and not negative");
            return object.extract::<Duration>().map(|time| Self(Some(time))).map_err(wrong);
        };
        if seconds == f64::INFINITY {
            return Ok(Self(None));
        }
        let wrong = |_| {
            failure::invalid(object.py(), &format!("invalid argument: {seconds} is no number of seconds"))
        };
        Duration::try_from_secs_f64(seconds).map(|time| Self(Some(time))).map_err(wrong)
    }
}

/// A time to live: as [`Span`], but not 0.
pub(crate) struct Ttl(pub Option<Duration>);

impl<'a, 'py> FromPyObject<'a, 'py> for Ttl {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let Span(time) = object.extract()?;
        match time {
            Some(Duration::ZERO) => Err(failure::invalid(
                object.py(),
                "invalid argument: ttl is above 0: math.inf = never, None = as the family says; delete() removes a row at once",
            )),
            time => Ok(Self(time)),
        }
    }
}

/// A moment: seconds since 1970, or a `datetime` (one without a time zone is local, as in Python).
pub(crate) struct Moment(pub SystemTime);

impl<'a, 'py> FromPyObject<'a, 'py> for Moment {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = match object.extract() {
            Ok(seconds) => seconds,
            Err(_) => match object.call_method0("timestamp") {
                Ok(seconds) => seconds.extract()?,
                Err(_) => {
                    return Err(PyTypeError::new_err(
                        "a moment is a number of seconds since 1970 or a datetime",
                    ));
                }
            },
        };
        let since = Duration::try_from_secs_f64(seconds).ok();
        let moment = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        let wrong =
            || failure::invalid(object.py(), &format!("invalid argument: {seconds} is no moment after 1970"));
        moment.map(Self).ok_or_else(wrong)
    }
}

/// When a row expires.
#[derive(Clone, Copy)]
pub(crate) enum Expiry {
    /// As the family says.
    Default,
    After(Duration),
    At(Option<SystemTime>),
}

impl Expiry {
    /// Takes the arguments `ttl` and `expires`.
    ///
    /// # Errors
    /// If there are both.
    pub(crate) fn new(ttl: Option<Ttl>, expires: Option<Moment>) -> PyResult<Self> {
        Ok(match (ttl, expires) {
            (None, None) => Self::Default,
            (Some(Ttl(Some(ttl))), None) => Self::After(ttl),
            (Some(Ttl(None)), None) => Self::At(None),
            (None, Some(Moment(at))) => Self::At(Some(at)),
            (Some(_), Some(_)) => return Err(PyTypeError::new_err("either ttl or expires")),
        })
    }

    pub(crate) fn is_default(self) -> bool {
        matches!(self, Self::Default)
    }
}

/// A sync mode: `"full"`, `"none"`, or the seconds of an interval.
#[derive(Clone, Copy)]
pub(crate) struct Mode(pub SyncMode);

impl<'a, 'py> FromPyObject<'a, 'py> for Mode {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = object.cast::<PyString>() {
            return match &*name.to_string_lossy() {
                "full" => Ok(Self(SyncMode::Full)),
                "none" => Ok(Self(SyncMode::None)),
                other => Err(failure::invalid(
                    object.py(),
                    &format!("invalid argument: sync is \"full\", \"none\" or seconds, not {other:?}"),
                )),
            };
        }
        if let Ok(yes) = object.cast::<PyBool>() {
            return Ok(Self(if yes.is_true() { SyncMode::Full } else { SyncMode::None }));
        }
        match object.extract()? {
            Span(Some(time)) => Ok(Self(SyncMode::Interval(time))),
            Span(None) => Ok(Self(SyncMode::None)),
        }
    }
}

/// Returns the options of a commit.
pub(crate) fn write_options(sync: Option<Mode>) -> WriteOptions {
    sync.map_or_else(WriteOptions::default, |Mode(mode)| WriteOptions::default().sync(mode))
}

/// An isolation level by its name, with `_` or spaces.
pub(crate) struct Level(pub Isolation);

impl<'a, 'py> FromPyObject<'a, 'py> for Level {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let name: String = object.extract()?;
        Ok(Self(match name.replace(' ', "_").as_str() {
            "read_uncommitted" => Isolation::ReadUncommitted,
            "read_committed" => Isolation::ReadCommitted,
            "repeatable_read" => Isolation::RepeatableRead,
            "snapshot" => Isolation::Snapshot,
            "serializable" => Isolation::Serializable,
            _ => {
                return Err(failure::invalid(
                    object.py(),
                    "invalid argument: isolation is read_uncommitted, read_committed, repeatable_read, snapshot or serializable",
                ));
            }
        }))
    }
}

/// Returns the name of `level` as [`Level`] takes it.
pub(crate) fn level_name(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted => "read_uncommitted",
        Isolation::ReadCommitted => "read_committed",
        Isolation::RepeatableRead => "repeatable_read",
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    }
}

/// Sets the option `name` of a family; false if there is no such option.
fn set_family(options: &mut FamilyOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    let own = std::mem::take(options);
    *options = match name {
        "comparator" => own.comparator(comparator(value)?),
        "merge_operator" if value.is_none() => own, // as `options()` has it
        "merge_operator" => own.merge_operator(operators::operator(value)?),
        "compression" => own.compression(compression(value)?),
        "default_ttl" => own.default_ttl(default_ttl(value)?),
        _ => {
            *options = own;
            if !FamilyOptions::TABLE.iter().any(|info| info.name == name) {
                return Ok(false);
            }
            options.set(name, value.extract()?).map_err(|e| failure::raise(py, &e))?;
            return Ok(true);
        }
    };
    Ok(true)
}

/// Returns the default time to live; 0 = none, as the engine has it.
fn default_ttl(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    match value.extract::<Option<Span>>()? {
        Some(Span(Some(Duration::ZERO))) => Err(failure::invalid(
            value.py(),
            "invalid argument: default_ttl is above 0: None = rows never expire",
        )),
        ttl => Ok(ttl.and_then(|Span(time)| time).unwrap_or_default()),
    }
}

fn comparator(value: &Bound<'_, PyAny>) -> PyResult<Comparator> {
    let name: String = value.extract()?;
    let built_in = match name.as_str() {
        "bytewise" => Some(Comparator::bytewise()),
        "reverse_bytewise" => Some(Comparator::reverse_bytewise()),
        "u64_le" => Some(Comparator::u64_le()),
        "i64_le" => Some(Comparator::i64_le()),
        "c_string" => Some(Comparator::c_string()),
        "case_insensitive" => Some(Comparator::case_insensitive()),
        other => Comparator::by_name(other),
    };
    built_in.ok_or_else(|| {
        failure::invalid(
            value.py(),
            "invalid argument: comparator is bytewise, reverse_bytewise, u64_le, i64_le, c_string or case_insensitive",
        )
    })
}

fn compression(value: &Bound<'_, PyAny>) -> PyResult<Compression> {
    let Some(name) = value.extract::<Option<String>>()? else { return Ok(Compression::None) };
    Compression::by_name(&name).ok_or_else(|| {
        failure::invalid(value.py(), "invalid argument: compression is none, snappy, lz4, lz4-fast or zstd")
    })
}

/// Returns the options of a family in `given`.
///
/// # Errors
/// `TypeError` for an unknown name; `InvalidArgument` for a value outside of its domain.
pub(crate) fn family(given: Option<&Bound<'_, PyDict>>) -> PyResult<FamilyOptions> {
    let mut options = FamilyOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if !set_family(&mut options, &name, &value).map_err(|e| named(&value, &name, e))? {
            return Err(unknown(&name, false));
        }
    }
    Ok(options)
}

/// Adds the name of the option to an exception of Python for its value.
fn named(value: &Bound<'_, PyAny>, name: &str, e: PyErr) -> PyErr {
    let (py, words) = (value.py(), format!("{name}: {}", e.value(value.py())));
    if e.is_instance_of::<PyOverflowError>(py) {
        return failure::invalid(py, &format!("invalid argument: {words}"));
    }
    if e.is_instance_of::<PyTypeError>(py) { PyTypeError::new_err(words) } else { e }
}

/// Returns `options` with those in `given`: of the database, and of its default family.
///
/// # Errors
/// As [`family`].
pub(crate) fn open(mut options: OpenOptions, given: Option<&Bound<'_, PyDict>>) -> PyResult<OpenOptions> {
    let mut default = None;
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "default_family_name" => options = options.default_family_name(value.extract::<String>()?),
            "allow_unknown" => options = options.allow_unknown(value.extract()?),
            "resources" => {
                let resources =
                    value.extract::<PyRef<'_, Resources>>().map_err(|e| named(&value, &name, e.into()))?;
                options = options.resources(resources.shared(value.py())?);
            }
            "merge_operators" => {
                for one in value.try_iter()? {
                    options = options.merge_operator(operators::operator(&one?)?);
                }
            }
            _ => {
                let mut is_known = Ok(false);
                options = options.with(|all| is_known = set_db(all, &name, &value));
                if is_known.map_err(|e| named(&value, &name, e))? {
                    continue;
                }
                let family = default.get_or_insert_with(FamilyOptions::default);
                if !set_family(family, &name, &value).map_err(|e| named(&value, &name, e))? {
                    return Err(unknown(&name, true));
                }
            }
        }
    }
    Ok(match default {
        Some(default) => options.default_family(default),
        None => options,
    })
}

/// The options of an open beside those of the default family.
const OF_DB: [&str; 24] = [
    "memory_limit",
    "resources",
    "cache_bytes",
    "memtables_bytes_max",
    "active_memtables_bytes_max",
    "wal_bytes_max",
    "wal_segment_bytes",
    "background_threads",
    "compaction_bytes_per_second",
    "disk_free_min",
    "disk_reserve_bytes",
    "history_bytes",
    "create_if_missing",
    "error_if_exists",
    "read_only",
    "mmap_wal",
    "event_log",
    "slow_sync",
    "slow_operation",
    "sync",
    "recovery",
    "default_family_name",
    "allow_unknown",
    "merge_operators",
];

/// Sets an option of a database; false if there is no such option.
fn set_db(all: &mut DbOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "sync" => all.sync = value.extract::<Mode>()?.0,
        "recovery" => all.recovery = recovery(value)?,
        "memory_limit" => all.memory_limit = value.extract()?,
        "cache_bytes" => all.cache_bytes = value.extract()?,
        "memtables_bytes_max" => all.memtables_bytes_max = value.extract()?,
        "active_memtables_bytes_max" => all.active_memtables_bytes_max = value.extract()?,
        "wal_bytes_max" => all.wal_bytes_max = value.extract()?,
        "wal_segment_bytes" => all.wal_segment_bytes = value.extract()?,
        "background_threads" => all.background_threads = value.extract()?,
        "compaction_bytes_per_second" => all.compaction_bytes_per_second = value.extract()?,
        "disk_free_min" => all.disk_free_min = value.extract()?,
        "disk_reserve_bytes" => all.disk_reserve_bytes = value.extract()?,
        "history_bytes" => all.history_bytes = value.extract()?,
        "create_if_missing" => all.create_if_missing = value.extract()?,
        "error_if_exists" => all.error_if_exists = value.extract()?,
        "read_only" => all.read_only = value.extract()?,
        "mmap_wal" => all.mmap_wal = value.extract()?,
        "event_log" => all.event_log = value.extract()?,
        "slow_sync" => all.slow_sync = slow_sync(value.extract()?),
        "slow_operation" => all.slow_operation = slow_operation(value.extract()?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// From how long on a sync is an event; the engine has 0 for none.
pub(crate) fn slow_sync(from: Option<Span>) -> Duration {
    from.and_then(|Span(time)| time).unwrap_or_default()
}

/// From how long on an operation is an event.
pub(crate) fn slow_operation(from: Option<Span>) -> Option<Duration> {
    from.and_then(|Span(time)| time)
}

fn recovery(value: &Bound<'_, PyAny>) -> PyResult<RecoveryMode> {
    Ok(match value.extract::<String>()?.as_str() {
        "strict" => RecoveryMode::Strict,
        "tail" => RecoveryMode::Tail,
        "point_in_time" => RecoveryMode::PointInTime,
        "salvage" => RecoveryMode::Salvage,
        _ => {
            let message = "invalid argument: recovery is strict, tail, point_in_time or salvage";
            return Err(failure::invalid(value.py(), message));
        }
    })
}

/// The exception for a name that no option has: it names the most similar one.
fn unknown(name: &str, of_db: bool) -> PyErr {
    let family = FamilyOptions::TABLE.iter().map(|info| info.name).chain(["comparator", "merge_operator"]);
    let db = OF_DB.into_iter().filter(|_| of_db);
    let similar = family.chain(db).min_by_key(|known| levenshtein(name, known));
    let hint = similar.filter(|known| levenshtein(name, known) <= 1 + known.len() / 3);
    let hint = hint.map_or_else(String::new, |known| format!(": did you mean {known:?}?"));
    PyTypeError::new_err(format!("unknown option {name:?}{hint}"))
}

/// Returns the settings of a family, by name.
pub(crate) fn current<'py>(py: Python<'py>, options: &FamilyOptions) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("comparator", options.comparator.name())?;
    all.set_item("merge_operator", options.merge_operator.as_ref().map(tidesdb::MergeOperator::name))?;
    for info in FamilyOptions::TABLE {
        all.set_item(info.name, options.get(info.name))?;
    }
    all.set_item("compression", options.compression.name())?;
    let ttl = Some(options.default_ttl).filter(|ttl| !ttl.is_zero());
    all.set_item("default_ttl", ttl.map(|ttl| ttl.as_secs_f64()))?;
    Ok(all)
}

/// Returns the settings of a family: name, default, least and greatest value, and what it does.
#[pyfunction]
pub(crate) fn defaults() -> Vec<(&'static str, u64, u64, u64, &'static str)> {
    let row =
        |info: &tidesdb::SettingInfo| (info.name, info.default, info.domain.0, info.domain.1, info.help);
    FamilyOptions::TABLE.iter().map(row).collect()
}
