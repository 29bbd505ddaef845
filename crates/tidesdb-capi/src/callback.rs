//! Functions supplied by C callers: comparators and commit hooks.
//!
//! By the headers, the caller guarantees that a function and its context may be used from any thread while the
//! database is open, and that the function returns normally: no exception and no `longjmp` may leave it. In return, none
//! runs once `tidesdb_close` has returned, and no hook once it was removed.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::thread::LocalKey;
use std::time::{SystemTime, UNIX_EPOCH};

use tidesdb::{CommitHook, Committed, CommittedOp, Comparator};

use crate::abi::{CommitOp, CompareFn, ERR_BUSY, HookFn};
use crate::failure::{Answer, told};
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

/// A hook of the caller.
#[derive(Debug)]
pub(crate) struct Hook {
    function: HookFn,
    context: Context,
    /// The calls of `function`.
    calls: Gate,
}

impl Hook {
    /// Creates the adapter of a hook.
    pub(crate) fn new(function: HookFn, context: Context) -> Arc<Self> {
        Arc::new(Self { function, context, calls: Gate::default() })
    }

    /// Returns the hook for the engine. It does nothing after [`Hook::end`].
    pub(crate) fn for_engine(self: &Arc<Self>) -> Arc<CommitHook> {
        let hook = Arc::clone(self);
        Arc::new(move |committed: &Committed<'_>| hook.call(committed))
    }

    fn call(&self, committed: &Committed<'_>) {
        let Some(_pass) = self.calls.pass() else { return };
        let ops: Vec<CommitOp> = committed.ops.iter().filter_map(show).collect();
        let count = c_int::try_from(ops.len()).unwrap_or(c_int::MAX);
        let _inside = Inside::enter(&OTHERS);
        // SAFETY: the operations and the memory they point to live until the call returns; the caller
        // guarantees the rest, see above.
        let code = unsafe { (self.function)(ops.as_ptr(), count, committed.seq, self.context.raw()) };
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
    /// Running calls of hooks and of connectors.
    static OTHERS: Cell<u32> = const { Cell::new(0) };
    /// Running calls of comparators.
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
            "a hook, comparator or connector cannot close a database: the close would wait for it"
        ));
    }
    Ok(())
}

/// Fails if the call comes from a comparator, because the thread that compares may hold locks the call would
/// wait for.
///
/// # Errors
/// `ERR_BUSY`.
#[inline]
pub(crate) fn not_in_order() -> Answer {
    match ORDERS.get() {
        0 => Ok(()),
        _ => Err(told!(ERR_BUSY, "a comparator may only read")),
    }
}

/// Converts an operation for C. Range deletes and streamed values are left out, because the C interface has none.
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
