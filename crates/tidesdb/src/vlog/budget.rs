//! Limits how many value logs may be open for writing, across all families of a database.
//!
//! A file that is being written keeps its descriptor until it is complete and synced. With small files and rare syncs,
//! or with many families, such files alone could use up all descriptors of the process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the files that are open for writing, against a maximum.
#[derive(Debug)]
pub struct WriteBudget {
    open: AtomicUsize,
    max: usize,
}

impl WriteBudget {
    /// Creates a budget of `max` files.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), max })
    }

    /// Counts one file until the returned value is dropped.
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        self.open.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self))
    }

    /// Returns the number of files currently open for writing.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn is_spent(&self) -> bool {
        self.open() >= self.max
    }
}

/// One open file, counted in a budget.
#[derive(Debug)]
pub(super) struct Counted(Arc<WriteBudget>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The budget of a set, with a callback that makes all sets of the database close files.
pub(super) struct Limit {
    pub(super) budget: Arc<WriteBudget>,
    relieve: Box<dyn Fn() + Send + Sync>,
}

impl Limit {
    pub(super) fn new(budget: Arc<WriteBudget>, relieve: impl Fn() + Send + Sync + 'static) -> Self {
        Self { budget, relieve: Box::new(relieve) }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }

    pub(super) fn relieve(&self) {
        (self.relieve)();
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.budget.fmt(f)
    }
}
