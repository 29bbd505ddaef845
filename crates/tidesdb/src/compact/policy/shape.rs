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
//! A tree of three or more such levels gets [`PolicySettings::dividing_levels`] - 1 more, so that the dividing level is several levels, which
//! share what they may hold: each may hold a sorted run of the same keys.

use super::picture::Tree;
use super::settings::PolicySettings;
use crate::version::LEVEL_MAX;

/// The shape of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The largest level.
    pub largest: u8,
    /// The first dividing level: levels above it are merged whole, levels from it on in partitions.
    pub top: u8,
    /// The last dividing level.
    pub dividing: u8,
    /// Size limit of an output table: less than the setting while the tree is small, so that a merge of one partition is a small part of
    /// it.
    pub table_bytes: u64,
    base: u64,
    ratio: u64,
    runs_max: u8,
    largest_bytes: u64,
}

/// With more levels than this between the last dividing level and the largest one, a tree has one dividing level.
const OFFSET_MAX: u8 = 3;
/// Fewest levels of a tree: level 1 and one sorted level.
const LEVELS_MIN: u8 = 2;
/// The largest level has at least this many tables, as long as these are not less than this part of what a table may be, nor less than
/// [`TABLE_BYTES_MIN`].
const TABLES_MIN: u64 = 16;
/// The size limit of a table is not lowered below this.
const TABLE_BYTES_MIN: u64 = 1 << 20;
/// A partition is at most this part of the largest level: so much extra space does its merge need.
const PARTITIONS_MIN: u64 = 8;

impl Shape {
    /// The shape of `tree`.
    pub fn of(tree: &Tree<'_>, settings: &PolicySettings) -> Self {
        let largest = tree.depth().max(settings.min_levels).clamp(LEVELS_MIN, LEVEL_MAX);
        let dividing = largest.saturating_sub(1).saturating_sub(settings.dividing_offset).max(2);
        let largest_bytes = tree.bytes(largest);
        let table_bytes = settings.table_bytes.max(1);
        let least = (table_bytes / TABLES_MIN).max(TABLE_BYTES_MIN).min(table_bytes);
        let mut this = Self {
            largest,
            top: dividing,
            dividing,
            table_bytes: (largest_bytes / TABLES_MIN).clamp(least, table_bytes),
            base: settings.base_bytes(),
            ratio: settings.ratio.max(2),
            runs_max: if settings.dividing_offset > OFFSET_MAX { 1 } else { settings.dividing_levels.max(1) },
            largest_bytes,
        };
        if dividing < largest {
            let spare = largest.saturating_sub(this.needs(largest_bytes));
            this.top -= spare.min(this.runs_max - 1).min(dividing - 2);
        }
        this
    }

    /// Bytes that `level` may hold. The largest level has no bound of its own.
    pub fn capacity(&self, level: u8) -> u64 {
        match level {
            1 => self.base,
            level if level >= self.largest => u64::MAX,
            level if level < self.top => self.part(level + (self.dividing - self.top)),
            level if level <= self.dividing && self.runs() > 1 => self.dividing_bytes() / self.runs(),
            level => self.part(level),
        }
    }

    /// The share of `level` in the bytes of the largest level, at least that of level 1.
    fn part(&self, level: u8) -> u64 {
        self.share(self.largest_bytes, level).max(self.base)
    }

    /// Number of dividing levels.
    pub fn runs(&self) -> u64 {
        u64::from(self.dividing - self.top) + 1
    }

    /// Bytes that all dividing levels together should hold at most: half of what a single one may hold, because its partitions are drained in turn;
    /// if there are several, a little less than the level below, so that they and the merges that fill and drain them take about a third of
    /// the largest level.
    pub fn dividing_bytes(&self) -> u64 {
        match self.runs() {
            _ if self.dividing >= self.largest => u64::MAX,
            1 => self.part(self.dividing) / 2,
            _ => self.part((self.dividing + 1).min(self.largest - 1)) / (self.ratio + 1) * self.ratio,
        }
    }

    /// `bytes` of the largest level, divided by the ratio once per level from `level` to the largest.
    pub fn share(&self, bytes: u64, level: u8) -> u64 {
        bytes / self.power(self.largest.saturating_sub(level))
    }

    /// Bytes of the largest level above which the tree gets one more level.
    pub fn most(&self) -> u64 {
        self.holds((self.largest + 1).saturating_sub(self.runs_max))
    }

    /// Bytes of the largest of `levels` that have one dividing level.
    pub fn holds(&self, levels: u8) -> u64 {
        match levels {
            0..=LEVELS_MIN => self.base / 2,
            levels => self.base.saturating_mul(self.power(levels - 1)),
        }
    }

    /// Least number of levels that hold `bytes`, with one dividing level.
    fn needs(&self, bytes: u64) -> u8 {
        (LEVELS_MIN..LEVEL_MAX).find(|levels| bytes <= self.holds(*levels)).unwrap_or(LEVEL_MAX)
    }

    /// Number of levels of a tree whose largest level holds `bytes`.
    pub fn levels_for(&self, bytes: u64) -> u8 {
        match self.needs(bytes) {
            levels if levels <= LEVELS_MIN => levels,
            levels => (levels + self.runs_max - 1).min(LEVEL_MAX),
        }
    }

    /// About how many bytes of the largest level make a partition. One partition is merged at a time; its part of the
    /// dividing level should fill about one table.
    pub fn partition_bytes(&self) -> u64 {
        let whole = self.table_bytes.saturating_mul(self.power(self.largest.saturating_sub(self.dividing)));
        self.part(self.dividing).min(whole).min(self.largest_bytes / PARTITIONS_MIN).max(self.table_bytes)
    }

    fn power(&self, exponent: u8) -> u64 {
        self.ratio.saturating_pow(exponent.into())
    }
}
