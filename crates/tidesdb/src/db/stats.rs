//! Statistics of the database and of a family.

use super::Db;
use crate::compact::TreeStats;
use crate::engine::{Stats, tree_of};
use crate::options::ChangedSetting;
use crate::write::Family;

impl Family {
    /// Returns the tree of the family: its levels, their capacities, and the debt of merges.
    pub fn tree(&self) -> TreeStats {
        tree_of(&self.core)
    }
}

impl Db {
    /// Returns the settings of the database and of its families that differ from their defaults. Key orders and merge operators are not
    /// among them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use tidesdb::{Db, FamilyOptions};
    /// let db = Db::open(dir.path())?;
    /// db.family_or_create("films", FamilyOptions::default().filter_bits_per_key(12))?;
    /// for setting in db.changed_settings() {
    ///     println!("{} {} = {}", setting.family, setting.name, setting.value); // films filter_bits_per_key = 12
    /// }
    /// # assert_eq!(db.changed_settings().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changed_settings(&self) -> Vec<ChangedSetting> {
        self.inner.engine.changed_settings()
    }

    /// Returns statistics of the database. For [`Stats::memory_allocator_bytes`] the allocator walks its free blocks, which takes about a
    /// millisecond as a rule. If it takes long, later calls get the same figure for a while: at most a hundredth of the time is spent on that.
    pub fn stats(&self) -> Stats {
        self.inner.engine.stats()
    }
}
