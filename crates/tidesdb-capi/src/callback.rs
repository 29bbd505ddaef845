//! Functions supplied by C callers: comparators, merge operators, commit hooks, and those that receive the results of commits.
//!
//! By the headers, the caller guarantees that a function and its context may be used from any thread while the
//! database is open, and that the function returns normally: no exception and no `longjmp` may leave it. In return, none
//! runs once `tidesdb_close` has returned, and no hook once it was removed.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::LocalKey;
use std::time::{SystemTime, UNIX_EPOCH};

use tidesdb::backup::Progress;
use tidesdb::{
    CommitHook, Committed, CommittedOp, CompactionFilter, Comparator, Decision, FilterRow, MergeOperator,
};

use crate::abi::extended::{self, BackupOptions, CheckFn, CommittedFn, FilterFn, MergeFn};
use crate::abi::{CommitOp, CompareFn, ERR_BUSY, ERR_MEMORY, HookFn, SUCCESS};
use crate::failure::{Answer, invalid, told};
use crate::gate::Gate;

/// The context pointer that belongs to a function. Never dereferenced here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(*mut c_void);

// SAFETY: the pointer is only stored and passed back; the caller guarantees that its function may run in any
// thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Wraps the caller's pointer.
    pub(crate) fn new(raw: *mut c_void) -> Self {
        Self(raw)
    }

    /// Returns the caller's pointer.
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// Adapts the caller's comparator to the engine.
pub(crate) fn comparator(name: &str, compare: CompareFn, context: Context) -> Comparator {
    Comparator::custom(name, move |a: &[u8], b: &[u8]| {
        let _inside = Inside::enter(&ORDERS);
        // SAFETY: both slices are valid for their lengths; the caller guarantees the rest, see above.
        let order = unsafe { compare(a.as_ptr(), a.len(), b.as_ptr(), b.len(), context.raw()) };
        order.cmp(&0)
    })
}

thread_local! {
    /// What the running merge operator or filter has appended; `None` if none runs.
    static COMBINED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Adapts the caller's merge operator to the engine.
pub(crate) fn operator(
    name: &str,
    merge: MergeFn,
    check: Option<CheckFn>,
    context: Context,
) -> MergeOperator {
    let operator = MergeOperator::custom(name, move |value: &mut Vec<u8>, operand: &[u8]| {
        let _inside = Inside::enter(&ORDERS);
        // An operator may read, so another one may run inside of it.
        let outer = COMBINED.replace(Some(Vec::with_capacity(value.len() + operand.len())));
        // SAFETY: both slices are valid for their lengths; the caller guarantees the rest, see above.
        let code =
            unsafe { merge(value.as_ptr(), value.len(), operand.as_ptr(), operand.len(), context.raw()) };
        let combined = COMBINED.replace(outer);
        match combined {
            Some(combined) if code == 0 => {
                *value = combined;
                Ok(())
            }
            _ => Err(format!("the function of the program returned {code}").into()),
        }
    });
    let Some(check) = check else { return operator };
    operator.check_operands(move |operand: &[u8]| {
        let _inside = Inside::enter(&ORDERS);
        // SAFETY: as above.
        match unsafe { check(operand.as_ptr(), operand.len(), context.raw()) } {
            0 => Ok(()),
            code => Err(format!("the check of the program returned {code}").into()),
        }
    })
}

/// A filter of the caller. Several threads may run it.
#[derive(Debug)]
pub(crate) struct Filter {
    function: FilterFn,
    context: Context,
    /// The calls of `function`.
    calls: Gate,
}

impl Filter {
    /// Creates the adapter of a filter.
    pub(crate) fn new(function: FilterFn, context: Context) -> Arc<Self> {
        Arc::new(Self { function, context, calls: Gate::default() })
    }

    /// Returns the filter for the engine. It keeps every row after [`Filter::end`].
    pub(crate) fn for_engine(self: &Arc<Self>) -> CompactionFilter {
        let filter = Arc::clone(self);
        CompactionFilter::new("tidesdb_x_set_filter", move |row: &FilterRow<'_>| filter.decide(row))
    }

    fn decide(&self, row: &FilterRow<'_>) -> Decision {
        let Some(_pass) = self.calls.pass() else { return Decision::Keep };
        let _inside = Inside::enter(&ORDERS);
        let outer = COMBINED.replace(Some(Vec::new()));
        let value = row.value.map_or(null(), <[u8]>::as_ptr);
        let size = row.value.map_or(0, <[u8]>::len);
        let expiry = row.expiry.map_or(0, unix_millis);
        // SAFETY: the key and the value are valid for their lengths; the caller guarantees the rest, see above.
        let decided = unsafe {
            (self.function)(row.key.as_ptr(), row.key.len(), value, size, expiry, self.context.raw())
        };
        let changed = COMBINED.replace(outer);
        match decided {
            extended::FILTER_REMOVE => Decision::Remove,
            extended::FILTER_CHANGE => changed.map_or(Decision::Keep, Decision::Change),
            _ => Decision::Keep,
        }
    }

    /// As [`Hook::end`].
    pub(crate) fn end(&self) {
        self.calls.shut();
        if !is_inside() {
            self.calls.wait();
        }
    }
}

/// Appends bytes to the result of the merge operator or filter that runs in this thread.
///
/// # Errors
/// `ERR_INVALID_ARGS` if none runs; `ERR_MEMORY`.
pub(crate) fn append_to_result(bytes: &[u8]) -> Answer {
    COMBINED.with_borrow_mut(|combined| {
        let combined = combined.as_mut().ok_or(invalid!(
            "no merge operator or filter runs in this thread: its result is appended there"
        ))?;
        combined.try_reserve(bytes.len()).map_err(|_| told!(ERR_MEMORY, "out of memory"))?;
        combined.extend_from_slice(bytes);
        Ok(())
    })
}

/// A function of the caller that receives the result of a commit, once.
pub(crate) struct Receiver {
    function: CommittedFn,
    context: Context,
}

impl Receiver {
    /// Creates the adapter.
    pub(crate) fn new(function: CommittedFn, context: Context) -> Self {
        Self { function, context }
    }

    /// Passes the result to the function.
    pub(crate) fn call(self, result: Answer<u64>) {
        let _inside = Inside::enter(&OTHERS);
        let (code, seq, text) = match result {
            Ok(seq) => (SUCCESS, seq, CString::default()),
            Err(failure) => {
                let text = CString::new(failure.text().replace('\0', " ")).unwrap_or_default();
                (failure.code(), 0, text)
            }
        };
        // SAFETY: the text lives until the call returns; the caller guarantees the rest, see above.
        unsafe { (self.function)(code, seq, text.as_ptr(), self.context.raw()) };
    }
}

/// Adapts the caller's functions for a call on backups: what the engine calls with the progress, which sets `stop` if the call is to end.
pub(crate) fn progress(
    options: &BackupOptions,
    stop: &Arc<AtomicBool>,
) -> impl Fn(&Progress) + Send + Sync + use<> {
    let (show, asked, context) = (options.progress, options.stop, Context::new(options.ctx));
    let stop = Arc::clone(stop);
    move |seen| {
        let _inside = Inside::enter(&OTHERS);
        if let Some(show) = show {
            // SAFETY: two numbers; the caller guarantees the rest, see above.
            unsafe { show(seen.bytes_done, seen.bytes_total, context.raw()) };
        }
        if let Some(asked) = asked
            // SAFETY: the caller guarantees it, see above.
            && unsafe { asked(context.raw()) } != 0
        {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// A hook of the caller.
#[derive(Debug)]
pub(crate) struct Hook {
    function: HookKind,
    context: Context,
    /// The calls of `function`.
    calls: Gate,
}

/// The function of a hook: of the base interface, or of the extended one, which also shows merges, range deletes and streamed values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HookKind {
    Base(HookFn),
    Extended(extended::HookFn),
}

impl Hook {
    /// Creates the adapter of a hook.
    pub(crate) fn new(function: HookKind, context: Context) -> Arc<Self> {
        Arc::new(Self { function, context, calls: Gate::default() })
    }

    /// Returns the hook for the engine. It does nothing after [`Hook::end`].
    pub(crate) fn for_engine(self: &Arc<Self>) -> Arc<CommitHook> {
        let hook = Arc::clone(self);
        Arc::new(move |committed: &Committed<'_>| hook.call(committed))
    }

    fn call(&self, committed: &Committed<'_>) {
        let Some(_pass) = self.calls.pass() else { return };
        let _inside = Inside::enter(&OTHERS);
        let code = match self.function {
            HookKind::Base(function) => {
                let ops: Vec<CommitOp> = committed.ops.iter().filter_map(show).collect();
                let count = c_int::try_from(ops.len()).unwrap_or(c_int::MAX);
                // SAFETY: the operations and the memory they point to live until the call returns; the caller guarantees the rest, see
                // above.
                unsafe { function(ops.as_ptr(), count, committed.seq, self.context.raw()) }
            }
            HookKind::Extended(function) => {
                let ops: Vec<extended::CommitOp> = committed.ops.iter().filter_map(show_all).collect();
                // SAFETY: as above.
                unsafe { function(ops.as_ptr(), ops.len(), committed.seq, self.context.raw()) }
            }
        };
        if code != 0 {
            tracing::warn!(code, seq = committed.seq, "a commit hook failed; the commit stands");
        }
    }

    /// Ends a hook that the engine does not have any more: no call of it begins, and those that run have ended when this
    /// returns. Inside of a function of the caller it does not wait, because it could wait for itself. The calling thread must not
    /// hold a lock, because the hook may call the library.
    pub(crate) fn end(&self) {
        self.calls.shut();
        if !is_inside() {
            self.calls.wait();
        }
    }
}

thread_local! {
    /// Running calls of hooks, of connectors, and of receivers of results.
    static OTHERS: Cell<u32> = const { Cell::new(0) };
    /// Running calls of comparators, of merge operators and of filters.
    static ORDERS: Cell<u32> = const { Cell::new(0) };
}

/// Guard: while it lives, this thread is inside a function of the caller.
pub(crate) struct Inside(&'static LocalKey<Cell<u32>>);

impl Inside {
    fn enter(depth: &'static LocalKey<Cell<u32>>) -> Self {
        depth.set(depth.get() + 1);
        Self(depth)
    }

    /// This thread is inside a function of a connector until the result is dropped.
    pub(crate) fn a_connector() -> Self {
        Self::enter(&OTHERS)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn is_inside() -> bool {
    OTHERS.get() > 0 || ORDERS.get() > 0
}

/// Fails if the call comes from a function of the caller: a close waits for those.
///
/// # Errors
/// `ERR_BUSY`.
pub(crate) fn not_inside() -> Answer {
    if is_inside() {
        return Err(told!(
            ERR_BUSY,
            "a function that the library calls cannot close a database: the close would wait for it"
        ));
    }
    Ok(())
}

/// Fails if the call comes from a comparator, merge operator or filter, because the thread that compares may hold locks the call would
/// wait for.
///
/// # Errors
/// `ERR_BUSY`.
#[inline]
pub(crate) fn not_in_order() -> Answer {
    match ORDERS.get() {
        0 => Ok(()),
        _ => Err(told!(ERR_BUSY, "a comparator, merge operator or filter may only read")),
    }
}

/// Converts an operation for a hook of the extended interface.
fn show_all(op: &CommittedOp<'_>) -> Option<extended::CommitOp> {
    let (kind, key, value, size, expiry) = match *op {
        CommittedOp::Put { key, value, expiry } => (extended::OP_PUT, key, value, value.len() as u64, expiry),
        CommittedOp::PutStream { key, len, expiry } => (extended::OP_PUT_STREAM, key, &[][..], len, expiry),
        CommittedOp::Merge { key, operand } => (extended::OP_MERGE, key, operand, operand.len() as u64, None),
        CommittedOp::Delete { key } => (extended::OP_DELETE, key, &[][..], 0, None),
        CommittedOp::DeleteRange { start, end } => {
            (extended::OP_DELETE_RANGE, start, end, end.len() as u64, None)
        }
        _ => return None,
    };
    Some(extended::CommitOp {
        kind: c_int::from(kind),
        key: key.as_ptr(),
        key_size: key.len(),
        value: if kind == extended::OP_PUT_STREAM { null() } else { value.as_ptr() },
        value_size: size,
        expires_at_ms: expiry.map_or(0, unix_millis),
    })
}

/// Returns a moment in UNIX milliseconds.
pub(crate) fn unix_millis(moment: SystemTime) -> u64 {
    let time = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Converts an operation for a hook of the base interface, which has no merges, range deletes and streamed values: they are left out.
fn show(op: &CommittedOp<'_>) -> Option<CommitOp> {
    let (key, value, expiry) = match *op {
        CommittedOp::Put { key, value, expiry } => (key, Some(value), expiry),
        CommittedOp::Delete { key } => (key, None, None),
        _ => return None,
    };
    Some(CommitOp {
        key: key.as_ptr(),
        key_size: key.len(),
        value: value.map_or(null(), <[u8]>::as_ptr),
        value_size: value.map_or(0, <[u8]>::len),
        ttl: expiry.map_or(0, unix_seconds),
        is_delete: c_int::from(value.is_none()),
    })
}

/// Returns a moment in UNIX seconds, rounded up: a row that was put through Rust may have a fraction.
fn unix_seconds(moment: SystemTime) -> i64 {
    let time = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(time.as_secs() + u64::from(time.subsec_nanos() > 0)).unwrap_or(i64::MAX)
}
