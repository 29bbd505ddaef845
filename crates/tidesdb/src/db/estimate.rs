//! What a family holds, told from what is in memory already: no file is read.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::family::MemSlot;
use crate::shared::Family;
use crate::types::Comparator;

/// So many entries of a memtable are counted one by one, and no more.
const COUNTED_MAX: u64 = 1000;

/// About how much lies in a range of keys; see [`Family::estimate_range`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeEstimate {
    /// Blocks of tables that a scan would read.
    pub blocks: u64,
    /// Entries in tables, old versions and tombstones included.
    pub entries: u64,
    /// Bytes of these blocks on disk. Values in value logs come on top.
    pub bytes: u64,
    /// Tables and memtables that a scan would merge.
    pub sources: u64,
    /// Entries in memtables: exact up to a thousand in each; where there are more, all that the memtable holds.
    pub memtable_entries: u64,
}

type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl Family {
    /// About what a scan of `range` meets now. Costs a search in the index of each table that the range meets; of an index that is not
    /// in memory it reads two partitions at most. Whole blocks are counted, and for each the average number of entries of
    /// its table.
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
    pub fn estimate_range<B: AsRef<[u8]>>(&self, range: impl RangeBounds<B>) -> RangeEstimate {
        let range = (range.start_bound().map(B::as_ref), range.end_bound().map(B::as_ref));
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
        for table in (1..=view.version.depth()).flat_map(|n| view.version.tables_meeting(n, &range)) {
            let (blocks, all, bytes) = table.table().blocks_within(range.0, range.1);
            sum.blocks += blocks;
            sum.bytes += bytes;
            sum.entries += (table.meta().entries * blocks).div_ceil(all.max(1));
            sum.sources += 1;
        }
        sum
    }

    /// A number that the family has at most of keys with a value: the entries of its tables and memtables, without the
    /// tombstones of the tables. After [`Family::compact`], without snapshots, it is exact but for what has expired since.
    pub fn cardinality_max(&self) -> u64 {
        let view = self.core.owned_view();
        let in_memtables: u64 = view.memtables().map(|slot| slot.map.entries()).sum();
        let in_tables = view.version.tables().map(|table| {
            let meta = table.meta();
            meta.keys.min(meta.entries.saturating_sub(meta.tombstones))
        });
        in_memtables + in_tables.sum::<u64>()
    }
}

/// Whether no key is in a range.
pub(super) fn is_empty(order: &Comparator, (start, end): Range<'_>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => order.compare(start, end).is_gt(),
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            order.compare(start, end).is_ge()
        }
        _ => false,
    }
}

/// Entries of `slot` in `range`; all of it if that takes long to find out.
fn count(order: &Comparator, slot: &Arc<MemSlot>, (start, end): Range<'_>) -> u64 {
    let mut cursor = slot.map.cursor();
    match start {
        Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key),
        Bound::Unbounded => cursor.seek_to_first(),
    }
    let mut counted = 0;
    while cursor.valid() {
        let key = cursor.entry().key;
        let before = matches!(start, Bound::Excluded(start) if order.compare(key, start).is_le());
        let beyond = match end {
            Bound::Included(end) => order.compare(key, end).is_gt(),
            Bound::Excluded(end) => order.compare(key, end).is_ge(),
            Bound::Unbounded => false,
        };
        if beyond {
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
