//! Settings that decide the shape of the tree.

use crate::FamilyOptions;

/// Settings of a family, as far as the planner needs them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicySettings {
    /// Size of a memtable in bytes.
    pub buffer_bytes: u64,
    /// Size limit of an output table in bytes.
    pub table_bytes: u64,
    /// Number of tables in level 1 that starts a compaction.
    pub l1_tables_trigger: usize,
    /// Size ratio of neighbouring levels, at least 2.
    pub ratio: u64,
    /// Least number of levels.
    pub min_levels: u8,
    /// Number of levels between the tiered level and the largest level.
    pub tiered_offset: u8,
    /// Maximum number of sorted runs of the tiered level in one place, at least 1.
    pub tiered_runs_max: u64,
    /// Share of tombstones, in thousandths of the entries, above which a table is compacted to the bottom; 0 = never.
    pub density_permille: u32,
    /// Tables with fewer entries are never dense.
    pub density_min_entries: u64,
    /// Maximum bytes of the inputs of a merge that can be planned smaller, because the disk is nearly full.
    pub merge_bytes_max: u64,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self::of(&FamilyOptions::default())
    }
}

impl PolicySettings {
    /// The settings of a family.
    pub fn of(options: &FamilyOptions) -> Self {
        let levels = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        Self {
            buffer_bytes: options.write_buffer_bytes as u64,
            table_bytes: options.table_bytes,
            l1_tables_trigger: options.l1_tables_trigger,
            ratio: options.level_size_ratio,
            min_levels: levels(options.min_levels),
            tiered_offset: levels(options.dividing_level_offset),
            tiered_runs_max: options.tiered_runs_max,
            density_permille: options.tombstone_density_permille,
            density_min_entries: options.tombstone_density_min_entries,
            merge_bytes_max: u64::MAX,
        }
    }

    /// Capacity of level 1 in bytes, and the least capacity of every other level.
    pub fn base_bytes(&self) -> u64 {
        self.buffer_bytes.max(1).saturating_mul(self.l1_tables_trigger.max(1) as u64)
    }
}
