//! Healthy or poisoned. The first failure that leaves the durable state unknown is kept forever: writes are refused
//! with it, reads continue, and only reopening finds out what is on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_sync::{Mutex, rank};

use crate::callback::contained;
use crate::{Error, Result};

/// The health of one database.
#[derive(Debug, Default)]
pub struct Health {
    poisoned: AtomicBool,
    cause: Mutex<Option<Arc<Error>>, { rank::HEALTH }>,
}

impl Health {
    /// Refuses writes from now on. The first cause is kept and returned.
    pub fn poison(&self, error: Error) -> Arc<Error> {
        let mut cause = self.cause.lock();
        let is_first = cause.is_none();
        let kept = Arc::clone(cause.get_or_insert_with(|| Arc::new(error)));
        self.poisoned.store(true, Ordering::SeqCst);
        drop(cause);
        if is_first {
            let log = || tracing::error!(error = %kept, "the database refuses writes from now on; reopen it to recover");
            contained(log); // the caller has yet to wake the threads that wait
        }
        kept
    }

    /// Returns true if writes are refused.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    /// The first failure, if any.
    pub fn cause(&self) -> Option<Arc<Error>> {
        if self.is_poisoned() { self.cause.lock().clone() } else { None }
    }

    /// Fails if writes are refused.
    ///
    /// # Errors
    /// `Poisoned`, with the first failure.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.cause() {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned { cause }),
        }
    }
}
