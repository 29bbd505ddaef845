//! Functions supplied by C callers: comparators and commit hooks.
//!
//! By the headers, the caller guarantees that a function and its context may be used from any thread while the
//! database is open, and that the function returns normally: no exception and no `longjmp` may leave it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::thread::LocalKey;
use std::time::{SystemTime, UNIX_EPOCH};

use tidesdb::{CommitHook, Committed, CommittedOp, Comparator};

use crate::abi::{CommitOp, CompareFn, ERR_BUSY, HookFn};
use crate::failure::{Answer, told};

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

/// Adapts the caller's hook to the engine.
pub(crate) fn hook(function: HookFn, context: Context) -> Arc<CommitHook> {
    Arc::new(move |committed: &Committed<'_>| {
        let ops: Vec<CommitOp> = committed.ops.iter().filter_map(show).collect();
        let count = c_int::try_from(ops.len()).unwrap_or(c_int::MAX);
        let _inside = Inside::enter(&HOOKS);
        // SAFETY: the operations and the memory they point to live until the call returns; the caller
        // guarantees the rest, see above.
        let code = unsafe { function(ops.as_ptr(), count, committed.seq, context.raw()) };
        if code != 0 {
            tracing::warn!(code, seq = committed.seq, "a commit hook failed; the commit stands");
        }
    })
}

thread_local! {
    static HOOKS: Cell<u32> = const { Cell::new(0) };
    static ORDERS: Cell<u32> = const { Cell::new(0) };
}

/// Guard: while it lives, this thread is inside a function of the caller.
struct Inside(&'static LocalKey<Cell<u32>>);

impl Inside {
    fn enter(depth: &'static LocalKey<Cell<u32>>) -> Self {
        depth.set(depth.get() + 1);
        Self(depth)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Fails if the call comes from a hook, because the hook's own commit has not returned yet.
///
/// # Errors
/// `ERR_BUSY`.
pub(crate) fn not_in_hook() -> Answer {
    match HOOKS.get() {
        0 => Ok(()),
        _ => Err(told!(ERR_BUSY, "a commit hook cannot close the database: its commit is still running")),
    }
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
