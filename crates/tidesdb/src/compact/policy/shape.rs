//! Levels and their capacities, adapted to the data.
//!
//! `L` is the largest level and holds most of the data. Level `i` may hold `N_L / T^(L-i)` bytes, where `N_L` is what level
//! `L` holds now and `T` the size ratio, but never less than level 1 (`base`). So the upper levels together hold at most
//! about `1/(T-1)` of the data, whatever its size.
//!
//! The tree has `L` levels while `N_L` is at most `base * T^(L-1)`; two levels only up to half of `base`, because a tree of two levels is
//! merged whole, which needs as much space again. A level is removed when
//! all data is at most half of what one level less may hold, so that no size makes the tree add and remove in turn.
//!
//! One level between level 1 and the largest is tiered: it holds several sorted runs, up to [`PolicySettings::tiered_runs_max`] in one place.
//! All other levels hold one.

use super::settings::PolicySettings;
use super::tree::Tree;
use crate::version::LEVEL_MAX;

/// The shape of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The largest level.
    pub largest: u8,
    /// The tiered level, or the largest one of a tree that has no level between it and level 1. Levels above it are merged whole, levels from
    /// it on in partitions.
    pub tiered: u8,
    /// Maximum number of sorted runs of the tiered level in one place.
    pub runs_max: u64,
    /// Size limit of an output table: less than the setting while the tree is small, so that a merge of one partition is a small part of
    /// it.
    pub table_bytes: u64,
    base: u64,
    ratio: u64,
    largest_bytes: u64,
}

/// Fewest levels of a tree: level 1 and one sorted level.
const LEVELS_MIN: u8 = 2;
/// The size limit of a table is lowered to this part of the largest level, so that this level has so many tables, but at most to this
/// part of the setting, and not below [`TABLE_BYTES_MIN`].
const TABLES_MIN: u64 = 16;
/// The size limit of a table is not lowered below this.
const TABLE_BYTES_MIN: u64 = 1 << 20;
/// A partition is at most this part of the largest level: its merge needs so much extra space.
const PARTITIONS_MIN: u64 = 8;

impl Shape {
    /// The shape of `tree`.
    pub fn of(tree: &Tree<'_>, settings: &PolicySettings) -> Self {
        let largest = tree.depth().max(settings.min_levels).clamp(LEVELS_MIN, LEVEL_MAX);
        let largest_bytes = tree.bytes(largest);
        let table_bytes = settings.table_bytes.max(1);
        let least = (table_bytes / TABLES_MIN).max(TABLE_BYTES_MIN).min(table_bytes);
        Self {
            largest,
            tiered: largest.saturating_sub(1).saturating_sub(settings.tiered_offset).max(2),
            runs_max: settings.tiered_runs_max.max(1),
            table_bytes: (largest_bytes / TABLES_MIN).clamp(least, table_bytes),
            base: settings.base_bytes(),
            ratio: settings.ratio.max(2),
            largest_bytes,
        }
    }

    /// Bytes that `level` may hold. The largest level has no bound of its own.
    pub fn capacity(&self, level: u8) -> u64 {
        match level {
            1 => self.base,
            level if level >= self.largest => u64::MAX,
            level if level == self.tiered && self.runs_max > 1 => self.tiered_bytes(),
            level => self.part(level),
        }
    }

    /// The share of `level` in the bytes of the largest level, at least that of level 1.
    fn part(&self, level: u8) -> u64 {
        self.share(self.largest_bytes, level).max(self.base)
    }

    /// Bytes that the tiered level should hold at most: a little less than the level below may hold, so that its runs and the merges that add
    /// and drain them take about a third of the largest level; with a single run half of what that may hold, because its partitions are
    /// drained in turn.
    pub fn tiered_bytes(&self) -> u64 {
        match self.runs_max {
            _ if self.tiered >= self.largest => u64::MAX,
            1 => self.part(self.tiered) / 2,
            _ => self.part((self.tiered + 1).min(self.largest - 1)) / (self.ratio + 1) * self.ratio,
        }
    }

    /// `bytes` of the largest level, divided by the ratio once per level from `level` to the largest.
    pub fn share(&self, bytes: u64, level: u8) -> u64 {
        bytes / self.power(self.largest.saturating_sub(level))
    }

    /// Bytes of the largest of `levels` above which the tree gets one more.
    pub fn holds(&self, levels: u8) -> u64 {
        match levels {
            0..=LEVELS_MIN => self.base / 2,
            levels => self.base.saturating_mul(self.power(levels - 1)),
        }
    }

    /// Number of levels of a tree whose largest level holds `bytes`.
    pub fn levels_for(&self, bytes: u64) -> u8 {
        (LEVELS_MIN..LEVEL_MAX).find(|levels| bytes <= self.holds(*levels)).unwrap_or(LEVEL_MAX)
    }

    /// Approximate bytes of the largest level in one partition. One partition is merged at a time; its part of the
    /// tiered level should fill about one table.
    pub fn partition_bytes(&self) -> u64 {
        let whole = self.table_bytes.saturating_mul(self.power(self.largest.saturating_sub(self.tiered)));
        self.part(self.tiered).min(whole).min(self.largest_bytes / PARTITIONS_MIN).max(self.table_bytes)
    }

    fn power(&self, exponent: u8) -> u64 {
        self.ratio.saturating_pow(exponent.into())
    }
}
