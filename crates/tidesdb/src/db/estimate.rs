//! Estimates of a family's contents from memory: no data blocks are read, and at most two index partitions per table.

use std::ops::Bound;
use std::sync::Arc;

use crate::family::MemSlot;
use crate::sst::BlocksWithin;
use crate::types::{Comparator, KeyRange, KeySpan};
use crate::write::Family;

/// Limit for counting the entries of a memtable one by one.
const COUNTED_MAX: u64 = 1000;

/// Estimated contents of a range of keys; see [`Family::estimate_range`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Blocks of tables that a scan would read.
    pub blocks: u64,
    /// Entries in tables, old versions and tombstones included.
    pub entries: u64,
    /// Bytes of these blocks on disk, without values in value logs.
    pub bytes: u64,
    /// Tables and memtables that a scan would merge.
    pub sources: u64,
    /// Tables among these sources.
    pub tables: u64,
    /// Entries in memtables. Exact up to 1000 per memtable; beyond that, the memtable's total.
    pub memtable_entries: u64,
}

impl Family {
    /// Estimates what a scan of `range` reads now. Searches the index of each table that overlaps the range; for an
    /// index not in memory it reads at most two partitions. Counts whole blocks, each with the average number of
    /// entries per block of its table.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let family = db.default_family();
    /// for n in 0..100u8 { family.put(&[n], b"v")?; }
    /// assert_eq!(family.estimate_range([10u8]..[20]).memtable_entries, 10);
    /// family.flush()?;
    /// assert_eq!(family.estimate_range([10u8]..[20]).sources, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn estimate_range(&self, range: impl KeyRange) -> RangeEstimate {
        let range = range.bounds();
        let order = &self.core.options.comparator;
        let mut sum = RangeEstimate::default();
        if is_empty(order, range) {
            return sum;
        }
        let view = self.core.owned_view();
        for slot in view.memtables() {
            let entries = count(order, slot, range);
            sum.memtable_entries += entries;
            sum.sources += u64::from(entries > 0);
        }
        let taken = view.memtables().filter_map(|slot| slot.taken.as_deref());
        let runs = taken.chain([&*view.version]).flat_map(|version| version.runs());
        for table in runs.flat_map(|run| run.meeting(order, &range)) {
            let BlocksWithin { blocks, all, bytes } = table.table().blocks_within(range.0, range.1);
            sum.blocks += blocks;
            sum.bytes += bytes;
            sum.entries += (table.meta().entries * blocks).div_ceil(all.max(1));
            sum.sources += 1;
            sum.tables += 1;
        }
        sum
    }

    /// Returns an upper bound for the number of keys with a value, without a scan: the entries of tables and memtables, minus the
    /// tombstones of the tables. After [`Family::compact`] without snapshots it is exact, except for keys that expired
    /// since.
    pub fn key_count_max(&self) -> u64 {
        let view = self.core.owned_view();
        let in_memtables: u64 = view.memtables().map(|slot| slot.entries()).sum();
        let in_tables = view.version.tables().map(|table| {
            let meta = table.meta();
            meta.keys.min(meta.entries.saturating_sub(meta.tombstones))
        });
        in_memtables + in_tables.sum::<u64>()
    }
}

/// Returns whether a range contains no key.
pub(super) fn is_empty(order: &Comparator, (start, end): KeySpan<'_>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => order.compare(start, end).is_gt(),
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            order.compare(start, end).is_ge()
        }
        _ => false,
    }
}

/// Counts the entries of `slot` in `range`. Returns the memtable's total if there are more than [`COUNTED_MAX`].
fn count(order: &Comparator, slot: &Arc<MemSlot>, (start, end): KeySpan<'_>) -> u64 {
    let mut cursor = slot.map.cursor();
    match start {
        Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key),
        Bound::Unbounded => cursor.seek_to_first(),
    }
    let mut counted = 0;
    while cursor.valid() {
        let key = cursor.entry().key;
        let before = matches!(start, Bound::Excluded(start) if order.compare(key, start).is_le());
        if is_empty(order, (Bound::Included(key), end)) {
            break;
        }
        counted += u64::from(!before);
        if counted > COUNTED_MAX {
            return slot.map.entries();
        }
        cursor.next();
    }
    counted
}
