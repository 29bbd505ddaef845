//! The epoch under loom: deferred calls run when no guard is left.
//!
//! That is later than the real epoch would run them, never earlier. The lock orders the end of a reader's pin
//! before the call, as the real epoch does. The models check how users of the epoch publish, find and retire
//! values; the epoch library is tested by its authors.

use std::fmt;

use loom::sync::Mutex;

type Deferred = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    pins: usize,
    garbage: Vec<Deferred>,
}

loom::lazy_static! {
    static ref STATE: Mutex<State> = Mutex::new(State::default());
}

fn with_state<R>(f: impl FnOnce(&mut State) -> R) -> R {
    f(&mut STATE.lock().expect("no model panics under the lock"))
}

/// See the real epoch. The models do not ask.
pub fn in_deferred_call() -> bool {
    false
}

/// See the real guard.
pub struct Guard(());

impl Guard {
    /// See the real guard.
    pub fn defer(&self, f: impl FnOnce() + Send + 'static) {
        with_state(|state| state.garbage.push(Box::new(f)));
    }

    /// See the real guard. Does nothing: garbage is freed when the last pin ends.
    pub fn flush(&self) {}

    /// See the real guard.
    pub fn repin(&mut self) {
        *self = pin();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let due = with_state(|state| {
            state.pins -= 1;
            if state.pins == 0 { std::mem::take(&mut state.garbage) } else { Vec::new() }
        });
        for call in due {
            call();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// See the real `pin`.
#[must_use]
pub fn pin() -> Guard {
    with_state(|state| state.pins += 1);
    Guard(())
}

/// See the real `reclaim`.
pub fn reclaim() {
    drop(pin());
}
