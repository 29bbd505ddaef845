//! The tree as the planner sees it.

use std::cmp::Ordering;
use std::ops::Range;

use crate::order;
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

/// Tables of one level: disjoint and in key order, but those of level 1 newest first.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The level.
    pub level: u8,
    /// The tables.
    pub tables: Vec<TableView<'a>>,
}

/// All tables of one family at one moment, and what runs on them.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    /// Order of the keys.
    pub order: &'a Comparator,
    /// Level 1, and the sorted runs of each deeper level: newest data first.
    pub runs: Vec<Run<'a>>,
    /// Where running jobs write to: their target levels, with the keys of their inputs.
    pub busy: Vec<(u8, KeyRange<'a>)>,
    /// No reader and no transaction needs a version that a newer one at or below this number hides.
    pub floor: SeqNo,
    /// Time at or before the clock of every reader; 0 = no entry is expired.
    pub now: u64,
    /// Entries that a merge may rewrite to leave fewer sorted runs: reads have spent as much on runs that held nothing for them.
    pub probes_credit: u64,
    /// True if merges may start that only free space and leave fewer runs: there was no commit for some seconds, or newer tables may
    /// hide much that takes space elsewhere.
    pub settles: bool,
}

impl<'a> Tree<'a> {
    /// A tree of these runs, newest data first, on which no job runs.
    pub fn new(order: &'a Comparator, mut runs: Vec<Run<'a>>) -> Self {
        if runs.first().is_none_or(|run| run.level > 1) {
            runs.insert(0, Run { level: 1, tables: Vec::new() });
        }
        runs.retain(|run| run.level == 1 || !run.tables.is_empty());
        let (busy, floor, now, probes_credit) = (Vec::new(), SeqNo::MAX, 0, 0);
        Self { order, runs, busy, floor, now, probes_credit, settles: false }
    }

    /// Tables of level 1, newest first.
    pub fn flushed(&self) -> &[TableView<'a>] {
        &self.runs[0].tables
    }

    /// Indices of the runs of `levels`.
    pub fn runs_in(&self, levels: Range<u8>) -> Range<usize> {
        let first = |level| self.runs.partition_point(|run| run.level < level);
        first(levels.start)..first(levels.end).max(first(levels.start))
    }

    /// Tables of `levels`, run by run.
    pub fn in_levels(&self, levels: Range<u8>) -> impl Iterator<Item = &TableView<'a>> {
        self.runs[self.runs_in(levels)].iter().flat_map(|run| &run.tables)
    }

    /// Tables of `level`, run by run.
    pub fn level(&self, level: u8) -> impl Iterator<Item = &TableView<'a>> {
        self.in_levels(level..level + 1)
    }

    /// Bytes in `level`.
    pub fn bytes(&self, level: u8) -> u64 {
        sum_bytes(self.level(level))
    }

    /// Bytes in `levels`.
    pub fn bytes_in(&self, levels: Range<u8>) -> u64 {
        sum_bytes(self.in_levels(levels))
    }

    /// The deepest level that holds a table; 0 without tables.
    pub fn depth(&self) -> u8 {
        self.runs.iter().rfind(|run| !run.tables.is_empty()).map_or(0, |run| run.level)
    }

    /// All tables with their levels, newest data first.
    pub fn tables(&self) -> impl Iterator<Item = (u8, &TableView<'a>)> {
        self.runs.iter().flat_map(|run| run.tables.iter().map(|t| (run.level, t)))
    }

    /// Tables of the sorted `run` that overlap the keys from `smallest` to `largest`.
    pub fn meeting(&self, run: usize, (smallest, largest): KeyRange<'_>) -> &[TableView<'a>] {
        let tables = &self.runs[run].tables;
        let tables = &tables[tables.partition_point(|t| self.compare(t.largest, smallest).is_lt())..];
        &tables[..tables.partition_point(|t| self.compare(t.smallest, largest).is_le())]
    }

    /// Returns true if a table of `runs`, all of them sorted, overlaps the range.
    pub fn is_met(&self, mut runs: Range<usize>, range: KeyRange<'_>) -> bool {
        runs.any(|run| !self.meeting(run, range).is_empty())
    }

    /// Returns those of `tables`, which are disjoint and in key order, that overlap no table of `runs`, all of them sorted.
    pub fn apart<'t>(
        &'t self,
        tables: impl Iterator<Item = &'t TableView<'a>>,
        runs: Range<usize>,
    ) -> impl Iterator<Item = &'t TableView<'a>> {
        let mut lower = self.runs.get(runs.start).into_iter().flat_map(|run| &run.tables).peekable();
        tables.filter(move |t| {
            while lower.next_if(|l| self.compare(l.largest, t.smallest).is_lt()).is_some() {}
            let is_apart = lower.peek().is_none_or(|l| self.compare(t.largest, l.smallest).is_lt());
            is_apart && !self.is_met(runs.start + 1..runs.end, t.range())
        })
    }

    /// Returns true if a running job writes to `level` in the range.
    pub fn is_busy(&self, level: u8, range: KeyRange<'_>) -> bool {
        self.busy.iter().any(|(target, keys)| *target == level && self.ranges_meet(*keys, range))
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
        tables.into_iter().map(TableView::range).reduce(|a, b| join(self.order, a, b))
    }

    /// Returns the ranges of `tables` in key order; overlapping ranges are joined.
    pub fn union<'t>(&self, tables: impl IntoIterator<Item = &'t TableView<'a>>) -> Vec<KeyRange<'a>>
    where
        'a: 't,
    {
        let mut ranges: Vec<_> = tables.into_iter().map(TableView::range).collect();
        order::sort_by(&mut ranges, |a, b| self.compare(a.0, b.0));
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
}

impl<'a> TableView<'a> {
    /// Its first and last key.
    pub fn range(&self) -> KeyRange<'a> {
        (self.smallest, self.largest)
    }
}

/// The smallest range that holds both.
pub fn join<'k>(order: &Comparator, a: KeyRange<'k>, b: KeyRange<'k>) -> KeyRange<'k> {
    let smallest = if order.compare(b.0, a.0).is_lt() { b.0 } else { a.0 };
    let largest = if order.compare(b.1, a.1).is_gt() { b.1 } else { a.1 };
    (smallest, largest)
}

/// Bytes of `tables`.
pub(super) fn sum_bytes<'t, 'a: 't>(tables: impl IntoIterator<Item = &'t TableView<'a>>) -> u64 {
    tables.into_iter().map(|t| t.bytes).fold(0, u64::saturating_add)
}
