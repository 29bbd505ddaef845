//! Ctrl-C, and the signal that asks a process to end: a command ends what it does and removes what it had begun. A second one ends the process
//! at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tidesdb::Error;

use crate::failure::{Failure, Outcome};

/// Whether a signal has come.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Returns one that never stops anything: signals end the process at once.
    pub(crate) fn none() -> Self {
        Self(Arc::default())
    }

    /// Catches the signals, until [`Interrupt::release`].
    pub(crate) fn catch() -> Outcome<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second signal finds what the first one has set.
            flag::register_conditional_default(signal, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .map_err(|e| Failure::failed(format!("cannot catch signals: {e}")))?;
        }
        Ok(Self(stop))
    }

    /// Returns the flag that a signal sets.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Returns the failure of a call that has the flag. `left` says what a call that was stopped has left.
    pub(crate) fn failure(&self, e: Error, left: &str) -> Failure {
        match e {
            Error::Busy { .. } if self.0.load(Ordering::Relaxed) => {
                Failure::stopped(format!("stopped: {left}"))
            }
            e => Failure::from(e),
        }
    }

    /// From now on, signals end the process at once.
    pub(crate) fn release(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
