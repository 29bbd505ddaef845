//! Statistics of the database and of a family.

use super::Db;
use crate::compact::TreeStats;
use crate::engine::{Stats, tree_of};
use crate::write::Family;

impl Family {
    /// Returns the tree of the family: its levels, their capacities, and the debt of merges.
    pub fn tree(&self) -> TreeStats {
        tree_of(&self.core)
    }
}

impl Db {
    /// Returns statistics of the database. For [`Stats::memory_allocator_bytes`] the allocator walks its free blocks, which takes about a
    /// millisecond as a rule. If it takes long, later calls get the same figure for a while: at most a hundredth of the time is spent on that.
    pub fn stats(&self) -> Stats {
        self.inner.engine.stats()
    }
}
