//! Functions of C callers: comparators and commit hooks.
//!
//! A caller promises, in the headers, that a function and its context may be used from any thread, as long as the database is open,
//! and that it returns: no exception and no `longjmp` may leave it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::thread::LocalKey;

use tidesdb::{CommitHook, Committed, CommittedOp, Comparator};

use crate::abi::{CommitOp, CompareFn, ERR_BUSY, HookFn};
use crate::failure::{Answer, told};

/// The context that goes with a function: never followed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(*mut c_void);

// SAFETY: it is a value here, handed back as it came; that the function behind it may run in any thread is the caller's promise.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// As it came.
    pub(crate) fn new(raw: *mut c_void) -> Self {
        Self(raw)
    }

    /// As it came.
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// The caller's order as one of the engine's.
pub(crate) fn comparator(name: &str, compare: CompareFn, context: Context) -> Comparator {
    Comparator::custom(name, move |a: &[u8], b: &[u8]| {
        let _inside = Inside::enter(&ORDERS);
        // SAFETY: both slices are good for reading their lengths; the rest is the caller's promise, see above.
        let order = unsafe { compare(a.as_ptr(), a.len(), b.as_ptr(), b.len(), context.raw()) };
        order.cmp(&0)
    })
}

/// The caller's hook as one of the engine's.
pub(crate) fn hook(function: HookFn, context: Context) -> Arc<CommitHook> {
    Arc::new(move |committed: &Committed<'_>| {
        let ops: Vec<CommitOp> = committed.ops.iter().filter_map(show).collect();
        let count = c_int::try_from(ops.len()).unwrap_or(c_int::MAX);
        let _inside = Inside::enter(&HOOKS);
        // SAFETY: the operations and what they point to live until the call returns; the rest is the caller's promise, see above.
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

/// As long as it lives, this thread is in a function of the caller's.
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

/// Refuses a call from a hook: the commit that it is about has not returned yet.
///
/// # Errors
/// `ERR_BUSY`.
pub(crate) fn not_in_hook() -> Answer {
    match HOOKS.get() {
        0 => Ok(()),
        _ => Err(told!(ERR_BUSY, "a commit hook cannot close the database: its commit goes on")),
    }
}

/// Refuses a call from a comparator: whoever compares may hold what the call would wait for.
///
/// # Errors
/// `ERR_BUSY`.
#[inline]
pub(crate) fn not_in_order() -> Answer {
    match ORDERS.get() {
        0 => Ok(()),
        _ => Err(told!(ERR_BUSY, "a comparator may read, and nothing else")),
    }
}

/// As C sees it; this interface has no range deletes.
fn show(op: &CommittedOp<'_>) -> Option<CommitOp> {
    let (key, value, expiry) = match *op {
        CommittedOp::Put { key, value, expiry } => (key, Some(value), expiry),
        CommittedOp::Delete { key } => (key, None, 0),
        _ => return None,
    };
    Some(CommitOp {
        key: key.as_ptr(),
        key_size: key.len(),
        value: value.map_or(null(), <[u8]>::as_ptr),
        value_size: value.map_or(0, <[u8]>::len),
        ttl: i64::from(expiry),
        is_delete: c_int::from(value.is_none()),
    })
}
