//! The picture of a tree that policies decide on.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;

use super::division::Division;
use super::plan::Plan;
use crate::types::{Comparator, SeqNo, TableId};

/// First and last key of a table, or of several.
pub type KeyRange<'a> = (&'a [u8], &'a [u8]);

/// Facts about one table.
#[derive(Clone, Copy, Debug)]
pub struct TableView<'a> {
    /// Number of the table.
    pub id: TableId,
    /// First key.
    pub smallest: &'a [u8],
    /// Last key.
    pub largest: &'a [u8],
    /// Length of the file.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub tombstones: u64,
    /// Largest sequence number.
    pub max_seq: SeqNo,
    /// Time at which the last of its puts expires; 0 if one of them never does.
    pub expires: u64,
    /// True if a running job reads the table.
    pub taken: bool,
}

/// Key range of one level that a running job will write to.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Target level of the job.
    pub level: u8,
    /// First key of its inputs.
    pub smallest: &'a [u8],
    /// Last key of its inputs.
    pub largest: &'a [u8],
}

/// All tables of one family at one moment, and what runs on them.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    /// Order of the keys.
    pub order: &'a Comparator,
    /// Tables of level 1, newest first, then of each deeper level, disjoint and in key order. Their key ranges do not change once a policy has
    /// looked at the tree.
    pub levels: Vec<Vec<TableView<'a>>>,
    /// Where running jobs write to.
    pub claims: Vec<Claim<'a>>,
    /// No reader and no transaction needs a version that a newer one at or below this number hides.
    pub floor: SeqNo,
    /// Time at or before the clock of every reader; 0 = nothing counts as expired.
    pub now: u64,
    /// Entries that may be rewritten to make sorted runs fewer: reads have spent as much on runs that held nothing for them.
    pub probes_pay: u64,
    /// Merges that only free space and make runs fewer may start: no commit came for some seconds, or newer tables may hide much that
    /// takes space elsewhere.
    pub settles: bool,
    /// The first division into partitions that a plan asked for. It depends on key ranges only, so it stays valid when jobs begin.
    pub(crate) division: OnceCell<Division>,
}

impl<'a> Tree<'a> {
    /// A tree of these levels on which no job runs.
    pub fn new(order: &'a Comparator, levels: Vec<Vec<TableView<'a>>>) -> Self {
        Self {
            order,
            levels,
            claims: Vec::new(),
            floor: SeqNo::MAX,
            now: 0,
            probes_pay: 0,
            settles: false,
            division: OnceCell::new(),
        }
    }

    /// Tables of `level`, 1 for level 1.
    pub fn level(&self, level: u8) -> &[TableView<'a>] {
        self.levels.get(usize::from(level).wrapping_sub(1)).map_or(&[], |tables| tables)
    }

    /// Bytes in `level`.
    pub fn bytes(&self, level: u8) -> u64 {
        sum_bytes(self.level(level))
    }

    /// Bytes in `levels`.
    pub fn bytes_in(&self, levels: Range<u8>) -> u64 {
        levels.map(|level| self.bytes(level)).sum()
    }

    /// Sum of a figure over the inputs of `plan`.
    pub fn sum_of(&self, plan: &Plan, figure: impl Fn(&TableView<'a>) -> u64) -> u64 {
        let of_level = |inputs: &[(u8, TableId)]| {
            let ids: HashSet<TableId> = inputs.iter().map(|(_, id)| *id).collect();
            let tables = self.level(inputs[0].0).iter().filter(|t| ids.contains(&t.id));
            tables.map(&figure).fold(0, u64::saturating_add)
        };
        plan.inputs.chunk_by(|a, b| a.0 == b.0).map(of_level).fold(0, u64::saturating_add)
    }

    /// The deepest level that holds a table; 0 without tables.
    pub fn depth(&self) -> u8 {
        self.levels.iter().rposition(|tables| !tables.is_empty()).map_or(0, |at| at as u8 + 1)
    }

    /// All tables with their levels, newest data first.
    pub fn tables(&self) -> impl Iterator<Item = (u8, &TableView<'a>)> {
        self.levels.iter().zip(1u8..).flat_map(|(tables, level)| tables.iter().map(move |t| (level, t)))
    }

    /// Indices of the tables of the sorted `level` that overlap the keys from `smallest` to `largest`.
    pub fn meeting(&self, level: u8, (smallest, largest): KeyRange<'_>) -> Range<usize> {
        let tables = self.level(level);
        let start = tables.partition_point(|t| self.compare(t.largest, smallest).is_lt());
        let end = start + tables[start..].partition_point(|t| self.compare(t.smallest, largest).is_le());
        start..end
    }

    /// Returns true if a table of `levels`, all of them sorted, overlaps the range.
    pub fn is_met(&self, mut levels: Range<u8>, range: KeyRange<'_>) -> bool {
        levels.any(|level| !self.meeting(level, range).is_empty())
    }

    /// Returns those of `tables`, which are disjoint and in key order, that overlap no table of the sorted `level`.
    pub fn apart<'t>(
        &self,
        tables: impl Iterator<Item = &'t TableView<'a>>,
        level: u8,
    ) -> impl Iterator<Item = &'t TableView<'a>>
    where
        'a: 't,
    {
        let mut lower = self.level(level).iter().peekable();
        tables.filter(move |t| {
            while lower.next_if(|l| self.compare(l.largest, t.smallest).is_lt()).is_some() {}
            lower.peek().is_none_or(|l| self.compare(t.largest, l.smallest).is_lt())
        })
    }

    /// Returns true if a running job writes to `level` in the range.
    pub fn is_claimed(&self, level: u8, range: KeyRange<'_>) -> bool {
        let meets = |c: &Claim<'_>| self.ranges_meet((c.smallest, c.largest), range);
        self.claims.iter().any(|claim| claim.level == level && meets(claim))
    }

    /// Returns true if two closed ranges have a key in common.
    pub fn ranges_meet(&self, a: KeyRange<'_>, b: KeyRange<'_>) -> bool {
        self.compare(a.0, b.1).is_le() && self.compare(b.0, a.1).is_le()
    }

    /// Compares two keys.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.order.compare(a, b)
    }

    /// From the smallest to the largest key of `tables`.
    pub fn hull<'t>(&self, tables: impl IntoIterator<Item = &'t TableView<'a>>) -> Option<KeyRange<'a>>
    where
        'a: 't,
    {
        tables.into_iter().map(TableView::range).reduce(|a, b| self.join(a, b))
    }

    /// The smallest range that holds both.
    pub fn join<'k>(&self, a: KeyRange<'k>, b: KeyRange<'k>) -> KeyRange<'k> {
        let smallest = if self.compare(b.0, a.0).is_lt() { b.0 } else { a.0 };
        let largest = if self.compare(b.1, a.1).is_gt() { b.1 } else { a.1 };
        (smallest, largest)
    }

    /// Returns the ranges of `tables` in key order; overlapping ranges are joined.
    pub fn union<'t>(&self, tables: impl IntoIterator<Item = &'t TableView<'a>>) -> Vec<KeyRange<'a>>
    where
        'a: 't,
    {
        let mut ranges: Vec<_> = tables.into_iter().map(TableView::range).collect();
        ranges.sort_by(|a, b| self.compare(a.0, b.0));
        let mut joined: Vec<KeyRange<'a>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if self.compare(range.0, last.1).is_le() => {
                    if self.compare(range.1, last.1).is_gt() {
                        last.1 = range.1;
                    }
                }
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Returns true if `range` overlaps one of `spans`, which are disjoint and in key order.
    pub fn meets_one_of(&self, spans: &[KeyRange<'_>], range: KeyRange<'_>) -> bool {
        let at = spans.partition_point(|span| self.compare(span.1, range.0).is_lt());
        spans.get(at).is_some_and(|span| self.compare(span.0, range.1).is_le())
    }

    /// Marks the inputs of `plan` as taken and its target range as claimed.
    pub fn claim(&mut self, plan: &Plan) {
        let mut taken = Vec::new();
        for (level, id) in &plan.inputs {
            let Some(tables) = self.levels.get_mut(usize::from(*level).wrapping_sub(1)) else { continue };
            for table in tables.iter_mut().filter(|t| t.id == *id) {
                table.taken = true;
                taken.push(*table);
            }
        }
        if let Some((smallest, largest)) = self.hull(&taken) {
            self.claims.push(Claim { level: plan.target, smallest, largest });
        }
    }
}

impl<'a> TableView<'a> {
    /// Its first and last key.
    pub fn range(&self) -> KeyRange<'a> {
        (self.smallest, self.largest)
    }
}

/// Bytes of `tables`.
pub(super) fn sum_bytes<'t, 'a: 't>(tables: impl IntoIterator<Item = &'t TableView<'a>>) -> u64 {
    tables.into_iter().map(|t| t.bytes).fold(0, u64::saturating_add)
}
