//! Readers of a database that another process writes.

use std::path::PathBuf;
use std::sync::Arc;

use tidesdb::{DEFAULT_FAMILY, Error, MergeOperator, OpenOptions, Reader, SyncMode};

use super::snapshot::Shared;
use super::{CLOSED, Database, Facts, SETTINGS_FAMILY, SHARED};
use crate::callback;
use crate::failure::Answer;
use crate::gate::Gate;
use crate::handle::{Handle, STALE};
use crate::log::Messages;

/// A reader, and what its views need.
pub(crate) struct Beside {
    reader: Reader,
    path: PathBuf,
    operators: Vec<MergeOperator>,
    has_cache: bool,
    /// The calls that use it; shut once it is closed.
    calls: Gate,
    /// Keeps the log destination open.
    messages: Arc<Messages>,
}

/// Opens a reader. A database that no C program has written has no family with settings; its default family is the engine's then.
///
/// # Errors
/// The engine's errors.
pub(crate) fn open(
    options: OpenOptions,
    path: PathBuf,
    operators: Vec<MergeOperator>,
    has_cache: bool,
    messages: Arc<Messages>,
) -> Answer<Handle> {
    let mut opened = options.clone().default_family_name(SETTINGS_FAMILY).open_reader();
    if matches!(opened, Err(Error::NotFound { .. })) {
        opened = options.default_family_name(DEFAULT_FAMILY).open_reader();
    }
    let beside = Beside { reader: opened?, path, operators, has_cache, calls: Gate::default(), messages };
    SHARED.insert(Shared::Beside(Arc::new(beside)), Handle::NULL)
}

/// Creates a view of the database as it is now: a database for reading only.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle; `ERR_BUSY` in a comparator, which another refresh may have called; the engine's errors.
pub(crate) fn refresh(handle: Handle) -> Answer<Handle> {
    callback::not_in_order()?;
    let Shared::Beside(beside) = SHARED.share(handle)? else { return Err(STALE) };
    let _pass = beside.calls.pass().ok_or(CLOSED)?;
    let view = beside.reader.refresh()?;
    let facts = Facts {
        path: beside.path.clone(),
        memory_limit: view.memory_limit(),
        has_cache: beside.has_cache,
        unified: false,
        sync: SyncMode::None,
        merges: false,
        waits_at_close: false,
        is_view: true,
        connector: None,
        operators: beside.operators.clone(),
        _messages: Arc::clone(&beside.messages),
    };
    Arc::new(Database::of_view(view, facts)).publish()
}

/// Closes a reader; its views stay.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle; `ERR_BUSY` in a function that the library calls.
pub(crate) fn close(handle: Handle) -> Answer {
    callback::not_inside()?;
    let Shared::Beside(beside) = SHARED.share(handle)? else { return Err(STALE) };
    drop(SHARED.retire(handle));
    beside.calls.shut();
    beside.calls.wait();
    Ok(())
}
