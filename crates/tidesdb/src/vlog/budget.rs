//! Limits how many value logs may be open for writing, across all families of a database.
//!
//! A file that is being written keeps its descriptor until it is complete and synced. With small files and rare syncs,
//! or with many families, such files alone could use up all descriptors of the process.

use std::sync::Arc;

/// Value logs open for writing may use this part of the descriptor budget.
const DESCRIPTORS_SHARE: usize = 4;

/// Counts the files that are open for writing, against a maximum.
#[derive(Debug)]
pub struct WriteBudget {
    /// Each of the files holds a clone.
    open: Counted,
    max: usize,
}

/// One open file, counted in a budget until this is dropped.
pub(super) type Counted = Arc<()>;

impl WriteBudget {
    /// Creates a budget of 1/4 of `descriptors`, at least one file.
    pub fn of(descriptors: usize) -> Arc<Self> {
        Self::new((descriptors / DESCRIPTORS_SHARE).max(1))
    }

    /// Creates a budget of `max` files.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { open: Counted::default(), max })
    }

    /// Counts one file until the returned value is dropped.
    pub(super) fn count(&self) -> Counted {
        Arc::clone(&self.open)
    }

    /// Returns the number of files currently open for writing.
    pub(super) fn open(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    pub(super) fn is_spent(&self) -> bool {
        self.open() >= self.max
    }
}
