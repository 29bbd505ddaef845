//! Calls of functions that a user supplied: commit hooks, comparators, filters, merge operators, object stores.
//!
//! A panic in such a function ends here wherever the engine is in the middle of something: the caller then treats it as a failed step.
//! Reads pass a panic of a comparator on to their caller, because they change nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, Result};

/// Runs `call`; `None` if it panicked.
pub(crate) fn contained<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).map_err(discard).ok()
}

/// Runs a step of a commit that compares keys. A panic of a comparator is an error of the commit.
pub(crate) fn comparing<R>(step: impl FnOnce() -> Result<R>) -> Result<R> {
    contained(step).unwrap_or_else(|| Err(Error::invalid("a comparator panicked")))
}

/// Drops the payload of a panic. If that panics, the payload of the second panic is leaked: its drop may panic, too.
#[cold]
fn discard(payload: Box<dyn std::any::Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        #[expect(clippy::mem_forget, reason = "a drop of it may panic")]
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::contained;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Self);
        }
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_contained() {
        assert_eq!(contained(|| 1), Some(1));
        assert_eq!(contained::<()>(|| std::panic::panic_any(Bomb)), None);
    }
}
