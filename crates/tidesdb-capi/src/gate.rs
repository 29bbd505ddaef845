//! [`Gate`]: the calls that are inside of something, which its owner ends once the last of them has left.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidesdb_sync::Backoff;

/// Counts the calls inside. Once it is shut, no call enters any more.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: AtomicUsize,
    shut: AtomicBool,
}

impl Gate {
    /// Enters, until the result is dropped; `None` if the gate is shut.
    pub(crate) fn pass(&self) -> Option<Pass<'_>> {
        // Not `then_some`: that makes a pass in any case, and dropping it would leave a second time.
        if self.enter() { Some(Pass(self)) } else { None }
    }

    /// Enters, until [`Gate::leave`]. Returns false if the gate is shut.
    pub(crate) fn enter(&self) -> bool {
        // Either this call sees that the gate is shut, or `wait` sees this call.
        self.inside.fetch_add(1, Ordering::SeqCst);
        if self.shut.load(Ordering::SeqCst) {
            self.leave();
            return false;
        }
        true
    }

    /// Ends a call for which [`Gate::enter`] returned true.
    pub(crate) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Shuts the gate. Returns whether it was open.
    pub(crate) fn shut(&self) -> bool {
        !self.shut.swap(true, Ordering::SeqCst)
    }

    /// Returns whether the gate is shut.
    #[inline(always)]
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Waits until no call is inside. The gate is shut.
    pub(crate) fn wait(&self) {
        let mut backoff = Backoff::new();
        while self.inside.load(Ordering::SeqCst) > 0 {
            backoff.snooze();
        }
    }
}

/// A call inside of a gate.
pub(crate) struct Pass<'g>(&'g Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn the_last_call_leaves_before_the_wait_ends_and_none_enters_afterwards() {
        let gate = Gate::default();
        let (first, second) = (gate.pass(), gate.pass());
        assert!(first.is_some() && second.is_some() && !gate.is_shut());
        std::thread::scope(|scope| {
            let ender = scope.spawn(|| {
                assert!(gate.shut() && !gate.shut());
                gate.wait();
            });
            while gate.pass().is_some() {
                std::thread::yield_now();
            }
            drop(first);
            assert!(!ender.is_finished());
            drop(second);
            ender.join().unwrap();
        });
        assert!(gate.is_shut() && gate.pass().is_none());
        gate.wait();
    }
}
