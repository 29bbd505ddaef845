//! Healthy or poisoned. The first failure that leaves the durable state unknown is kept forever: writes are refused
//! with it, reads continue, and only reopening finds out what is on disk.

use std::fmt;
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

/// Whether a database works, works with restrictions, or refuses writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthState {
    /// All work succeeds.
    #[default]
    Healthy,
    /// Reads work; some background work does not, or there is no room for commits that store data, on the disk or in memory.
    Degraded,
    /// Writes are refused until the database is opened again. Reads work.
    Poisoned,
}

impl HealthState {
    /// The name in lower case.
    pub fn name(self) -> &'static str {
        ["healthy", "degraded", "poisoned"][self as usize]
    }
}

/// The health of a database at one moment. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HealthReport {
    /// The state.
    pub state: HealthState,
    /// Why the database is not healthy; empty if it is.
    pub causes: Vec<String>,
    /// The first failure that poisoned the database.
    pub first_failure: Option<Arc<Error>>,
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state.name())?;
        if !self.causes.is_empty() {
            write!(f, ": {}", self.causes.join("; "))?;
        }
        Ok(())
    }
}
