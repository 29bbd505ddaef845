//! Decides which merge is due: a pure function of the version.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::merge::RetainRules;
use crate::sources::{TableSlot, TableVersion};
use crate::sst::TableMeta;
use crate::types::Comparator;

/// The deepest level: one sorted run.
pub(super) const BOTTOM_LEVEL: u8 = 2;
/// Minimum number of tombstones in level 1 that can trigger a merge.
const DENSE_MIN: u64 = 10_000;
/// A merge triggered by tombstones reads at most this many entries of the level below per tombstone.
const DENSE_SHARE: u64 = 10;

/// How a plan is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// The inputs overlap neither each other nor other tables: they only change their level.
    Move,
    /// The inputs are merged into new tables.
    Merge,
    /// Range tombstones delete all entries of the inputs: these are removed without being read.
    Drop,
}

/// A planned compaction. It can be printed, tested and rejected.
#[derive(Clone, Debug)]
pub struct CompactionPlan {
    /// How to execute it.
    pub kind: PlanKind,
    /// Input tables with their levels, newest data first.
    pub inputs: Vec<(u8, Arc<TableSlot>)>,
    /// Level of the outputs.
    pub target: u8,
    /// Whether no table outside the inputs holds older data of their keys.
    pub bottom: bool,
}

/// Returns the compaction that is due. `force` requests one even if level 1 is below its trigger.
pub fn pick(
    version: &TableVersion,
    comparator: &Comparator,
    l1_tables_trigger: usize,
    force: bool,
) -> Option<CompactionPlan> {
    let upper = version.level(1);
    let lower = version.level(BOTTOM_LEVEL);
    let force = force || is_dense(upper, lower, comparator);
    let due = force || upper.len() >= l1_tables_trigger.max(1);
    if upper.is_empty() || !due {
        return None;
    }
    let lone = |i: usize| {
        upper.iter().skip(i + 1).chain(lower.iter()).all(|other| !overlap(comparator, &upper[i], other))
    };
    // A forced merge shall drop dead entries, which a move does not.
    let kind = if !force && (0..upper.len()).all(lone) { PlanKind::Move } else { PlanKind::Merge };
    let mut inputs: Vec<_> = upper.iter().map(|t| (1, Arc::clone(t))).collect();
    if kind == PlanKind::Merge {
        inputs.extend(between(upper, lower, comparator).map(|t| (BOTTOM_LEVEL, Arc::clone(t))));
    }
    Some(CompactionPlan { kind, inputs, target: BOTTOM_LEVEL, bottom: true })
}

/// Returns a plan that removes the tables whose entries range tombstones delete for all readers.
pub(super) fn deleted(version: &TableVersion, readers: &RetainRules) -> Option<CompactionPlan> {
    let order = version.order();
    let is_deleted = |table: &Arc<TableSlot>| {
        version.ranges().iter().any(|range| {
            let meta = table.meta();
            range.seq > meta.max_seq
                && range.covers(order, &meta.smallest)
                && range.covers(order, &meta.largest)
                && !readers.reader_within(meta.min_seq..range.seq)
                && !readers.is_evidence(meta.max_seq)
        })
    };
    let inputs: Vec<_> = all_tables(version).filter(|(_, table)| is_deleted(table)).collect();
    (!inputs.is_empty()).then_some(CompactionPlan { kind: PlanKind::Drop, inputs, target: 1, bottom: false })
}

/// Returns a plan for a table of which one range tombstone deletes at least half of the blocks for all readers. The
/// table is rewritten in its level, so that its disk space is freed soon.
pub(super) fn half_deleted(version: &TableVersion, readers: &RetainRules) -> Option<CompactionPlan> {
    let order = version.order();
    let is_half_deleted = |table: &Arc<TableSlot>| {
        version.ranges().iter().any(|range| {
            let meta = table.meta();
            meta.may_be_hidden(order, range)
                && !readers.reader_within(meta.min_seq..range.seq)
                && !readers.is_evidence(meta.max_seq)
                && table.table().is_half_of(range.start.as_deref(), range.end.as_deref())
        })
    };
    let (level, table) = all_tables(version).find(|(_, table)| is_half_deleted(table))?;
    Some(CompactionPlan {
        kind: PlanKind::Merge,
        inputs: vec![(level, table)],
        target: level,
        bottom: level == BOTTOM_LEVEL,
    })
}

fn all_tables(version: &TableVersion) -> impl Iterator<Item = (u8, Arc<TableSlot>)> {
    (1..=BOTTOM_LEVEL).flat_map(|l| version.level(l).iter().map(move |t| (l, Arc::clone(t))))
}

/// Returns whether level 1 consists mostly of tombstones, enough to justify a merge with the entries they delete. Until
/// then, scans must step over each of them.
fn is_dense(upper: &[Arc<TableSlot>], lower: &[Arc<TableSlot>], comparator: &Comparator) -> bool {
    let sum = |of: fn(&TableMeta) -> u64| upper.iter().map(|t| of(t.meta())).sum::<u64>();
    let (tombstones, entries) = (sum(|m| m.tombstones), sum(|m| m.entries));
    let beneath: u64 = between(upper, lower, comparator).map(|t| t.meta().entries).sum();
    tombstones >= DENSE_MIN && tombstones * 2 >= entries && tombstones * DENSE_SHARE >= beneath
}

/// Returns the tables of `lower` between the smallest and the largest key of `upper`. Tables in a gap of `upper` are
/// included, because an output may span the gap.
fn between<'v>(
    upper: &'v [Arc<TableSlot>],
    lower: &'v [Arc<TableSlot>],
    comparator: &'v Comparator,
) -> impl Iterator<Item = &'v Arc<TableSlot>> {
    let order = |a: &&[u8], b: &&[u8]| comparator.compare(a, b);
    let smallest = upper.iter().map(|t| &t.meta().smallest[..]).min_by(order);
    let largest = upper.iter().map(|t| &t.meta().largest[..]).max_by(order);
    lower.iter().filter(move |t| {
        smallest.is_some_and(|key| comparator.compare(&t.meta().largest, key).is_ge())
            && largest.is_some_and(|key| comparator.compare(&t.meta().smallest, key).is_le())
    })
}

/// Returns a plan that rewrites every table.
pub(super) fn everything(version: &TableVersion) -> Option<CompactionPlan> {
    let inputs: Vec<_> = all_tables(version).collect();
    (!inputs.is_empty()).then_some(CompactionPlan {
        kind: PlanKind::Merge,
        inputs,
        target: BOTTOM_LEVEL,
        bottom: true,
    })
}

/// Returns a plan that rewrites every table that overlaps `range`, so that only versions needed by readers remain in
/// it. It also includes older level 1 tables that overlap an included one, because newer data must not move below older
/// data. And it includes the level 2 tables between the smallest and the largest key of all inputs.
pub(super) fn within<'k>(
    version: &TableVersion,
    range: &impl RangeBounds<&'k [u8]>,
) -> Option<CompactionPlan> {
    let order = version.order();
    let upper = version.level(1);
    let mut goes: Vec<bool> = upper.iter().map(|table| table.meets(order, range)).collect();
    for newer in 0..upper.len() {
        for older in newer + 1..upper.len() {
            goes[older] |= goes[newer] && overlap(order, &upper[newer], &upper[older]);
        }
    }
    let mut tables: Vec<_> =
        upper.iter().zip(goes).filter(|(_, goes)| *goes).map(|(t, _)| Arc::clone(t)).collect();
    let mut inputs: Vec<_> = tables.iter().map(|table| (1, Arc::clone(table))).collect();
    tables.extend(version.tables_meeting(BOTTOM_LEVEL, range));
    let lower = between(&tables, version.level(BOTTOM_LEVEL), order);
    inputs.extend(lower.map(|table| (BOTTOM_LEVEL, Arc::clone(table))));
    (!inputs.is_empty()).then_some(CompactionPlan {
        kind: PlanKind::Merge,
        inputs,
        target: BOTTOM_LEVEL,
        bottom: true,
    })
}

fn overlap(comparator: &Comparator, a: &TableSlot, b: &TableSlot) -> bool {
    let (a, b) = (a.meta(), b.meta());
    comparator.compare(&a.smallest, &b.largest).is_le() && comparator.compare(&b.smallest, &a.largest).is_le()
}
