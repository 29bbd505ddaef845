//! Compaction filters: a user's decision about each row that a merge of tables rewrites.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::moment_of;
use crate::callback::contained;

/// A row that a merge of tables rewrites.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FilterRow<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` if it lies in the value log, which a merge does not read.
    pub value: Option<&'a [u8]>,
    /// When it expires; `None` = never.
    pub expiry: Option<SystemTime>,
}

impl<'a> FilterRow<'a> {
    pub(crate) fn new(key: &'a [u8], value: Option<&'a [u8]>, expiry: u64) -> Self {
        Self { key, value, expiry: moment_of(expiry) }
    }
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays.
    Keep,
    /// It is deleted.
    Remove,
    /// It gets another value, and keeps its expiry.
    Change(Vec<u8>),
}

/// Decides about a row; see [`CompactionFilter::new`].
type FilterFn = dyn Fn(&FilterRow<'_>) -> Decision + Send + Sync;

/// A named function that merges of tables apply to the rows of a family; see
/// `docs/concepts/merge-operators.md` in the repository for what it may rely on.
#[derive(Clone)]
pub struct CompactionFilter {
    name: Arc<str>,
    decide: Arc<FilterFn>,
}

impl CompactionFilter {
    /// A filter. The name appears in messages only.
    ///
    /// `decide` must depend on its argument only, or on something that changes in one direction, such as the time: a row may be
    /// shown to it in any merge, many times or never. It must not use the database. If it panics, the row stays.
    pub fn new(
        name: impl Into<Arc<str>>,
        decide: impl Fn(&FilterRow<'_>) -> Decision + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), decide: Arc::new(decide) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Decides about `row`; `None` if the function panicked.
    pub(crate) fn decide(&self, row: &FilterRow<'_>) -> Option<Decision> {
        contained(|| (self.decide)(row))
    }
}

impl fmt::Debug for CompactionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompactionFilter").field(&self.name()).finish()
    }
}
