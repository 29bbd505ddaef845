//! Decides which merge is due. The decision depends on the arguments only; [`next`] also records the debt in [`MergeDebt`].

use std::collections::{BTreeSet, HashSet};
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use super::policy::{self, Cause, Plan, PlanKind, Planner, PolicySettings, Run, Shape, TableView, Tree};
use crate::family::Claim;
use crate::merge::{CoveringRanges, RetainRules};
use crate::options::LiveOptions;
use crate::pacing::MergeDebt;
use crate::ranges::RangeTombstone;
use crate::sources::{TableSlot, TableVersion};
use crate::sst::TableMeta;
use crate::types::{Comparator, TableId, VlogId};

/// Range tombstones that are looked at to find one that can be applied.
const APPLIED_MAX: usize = 256;

/// A plan with the tables that it merges.
pub type CompactionPlan = Plan<Arc<TableSlot>>;

impl CompactionPlan {
    /// What it reserves while it runs.
    pub(super) fn claim(&self, version: &TableVersion) -> Claim {
        let (smallest, largest) = self.keys(version.order()).unwrap_or_default();
        Claim {
            tables: self.inputs.iter().map(|(_, t)| t.id()).collect(),
            level: self.target,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
        }
    }

    /// The first and the last key of its inputs.
    pub(super) fn keys(&self, order: &Comparator) -> Option<policy::KeyRange<'_>> {
        hull(order, self.inputs.iter().map(|(_, table)| table))
    }

    /// The generation of its outputs in the target level of `version`: above all tables that stay there and may share keys with them. Tables
    /// that are moved keep their distance above that. A table that is rewritten where it is keeps its generation.
    pub(super) fn generation(&self, version: &TableVersion) -> u32 {
        if self.inputs.iter().all(|(level, _)| *level == self.target) {
            return self.inputs.iter().map(|(_, table)| version.generation(table.id())).max().unwrap_or(0);
        }
        let ids: HashSet<TableId> = self.inputs.iter().map(|(_, table)| table.id()).collect();
        let keys = self.keys(version.order());
        keys.map_or(0, |(a, b)| version.next_generation(self.target, &(a..=b), &ids))
    }

    /// Estimates the bytes that the merge will write. Each tombstone in level 1 is assumed to remove one entry of the
    /// lowest level. If fewer entries are removed, the merge asks for more space while it writes.
    pub(super) fn output_bytes(&self) -> u64 {
        let deepest = self.inputs.iter().map(|(level, _)| *level).max();
        let sum = |bottom: bool, of: fn(&TableMeta) -> u64| {
            let tables = self.inputs.iter().filter(move |(level, _)| (Some(*level) == deepest) == bottom);
            tables.map(|(_, table)| of(table.meta())).sum::<u64>()
        };
        let (below, entries) = (sum(true, |meta| meta.file_bytes), sum(true, |meta| meta.entries));
        let gone = sum(false, |meta| meta.tombstones).min(entries);
        let stays = below as f64 * (1.0 - gone as f64 / entries.max(1) as f64);
        sum(false, |meta| meta.file_bytes) + stays as u64
    }
}

/// A compaction that was planned.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) plan: CompactionPlan,
    /// Range tombstones of the tables.
    pub(super) purge: CoveringRanges,
    /// How often merges had been stopped.
    pub(super) stops: u64,
}

/// What bounds planned merges.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeLimits {
    /// Merges of at most this many bytes are preferred.
    pub(super) bytes_max: u64,
    /// Entries that may be rewritten to make sorted runs fewer.
    pub(super) probes_credit: u64,
    /// See [`Tree::settles`].
    pub(super) settles: bool,
    /// Range tombstones take much memory: tables may be rewritten only to apply some.
    pub(super) is_in_ranges: bool,
}

/// Returns the compaction that is due and can run concurrently with those that hold `claims`. Records the debt of merges in `debt`.
pub(super) fn next(
    version: &TableVersion,
    claims: &[Claim],
    options: &LiveOptions,
    readers: &RetainRules,
    limits: MergeLimits,
    debt: &MergeDebt,
) -> Option<CompactionPlan> {
    let MergeLimits { bytes_max, probes_credit, settles, is_in_ranges } = limits;
    let tree = Tree { probes_credit, settles, ..picture(version, claims, readers) };
    let settings = PolicySettings { merge_bytes_max: bytes_max, ..PolicySettings::of(&options.now()) };
    let planner = Planner::new(&tree, &settings);
    debt.set_excess(planner.excess(), flushed_bytes(&tree, &settings));
    let by_policy = || planner.next()?.with(|id| version.table(id).cloned());
    if version.ranges().is_empty() {
        return by_policy();
    }
    let free = free_tables(version, &tree);
    let applied = || is_in_ranges.then(|| applied(version, &free, readers)).flatten();
    deleted(version, &free, readers)
        .or_else(by_policy)
        .or_else(|| half_deleted(version, &free, readers))
        .or_else(applied)
}

/// Bytes of a table of level 1, on average; at least a quarter of a memtable.
fn flushed_bytes(tree: &Tree<'_>, settings: &PolicySettings) -> u64 {
    let average = tree.bytes(1).checked_div(tree.flushed().len() as u64).unwrap_or(settings.buffer_bytes);
    average.max(settings.buffer_bytes / 4)
}

/// The tree as the planner sees it: without the damaged tables of level 1 and those above them, which stay where they are.
pub(super) fn picture<'a>(version: &'a TableVersion, claims: &'a [Claim], readers: &RetainRules) -> Tree<'a> {
    let taken: HashSet<_> = claims.iter().flat_map(|claim| &claim.tables).collect();
    let view = |slot: &'a Arc<TableSlot>| view(slot.meta(), taken.contains(&slot.id()));
    let runs =
        version.runs().iter().map(|run| Run { level: run.level(), tables: run.tables().map(view).collect() });
    let mut tree = Tree::new(version.order(), runs.collect());
    if claims.iter().any(Claim::is_quarantine) {
        let stay = staying(version, claims);
        tree.runs[0].tables.retain(|table| !stay.contains(&table.id));
    }
    tree.busy = claims.iter().map(|c| (c.level, (&*c.smallest, &*c.largest))).collect();
    tree.floor = readers.oldest_reader();
    tree.now = readers.now.unwrap_or(0);
    tree
}

/// A table as the planner sees it; `taken` if a running job uses it.
pub(super) fn view(meta: &TableMeta, taken: bool) -> TableView<'_> {
    TableView {
        id: meta.id,
        smallest: &meta.smallest,
        largest: &meta.largest,
        bytes: meta.file_bytes,
        entries: meta.entries,
        tombstones: meta.tombstones,
        max_seq: meta.max_seq,
        expires: meta.expires().unwrap_or(0),
        taken,
    }
}

/// Damaged tables of level 1, and newer ones that overlap one of these: what they hold must not move below older versions.
fn staying(version: &TableVersion, claims: &[Claim]) -> HashSet<TableId> {
    let damaged: HashSet<_> = claims.iter().filter(|c| c.is_quarantine()).flat_map(|c| &c.tables).collect();
    let mut stay: Vec<&Arc<TableSlot>> = Vec::new();
    for table in version.level(1).rev() {
        if damaged.contains(&table.id()) || stay.iter().any(|older| older.overlaps(version.order(), table)) {
            stay.push(table);
        }
    }
    stay.into_iter().map(|table| table.id()).collect()
}

/// Tables that no running merge uses, with their levels. Outputs that running merges write to their levels overlap none of them, or are
/// newer.
fn free_tables(version: &TableVersion, tree: &Tree<'_>) -> Vec<(u8, Arc<TableSlot>)> {
    let free = tree.tables().filter(|(_, t)| !t.taken);
    free.filter_map(|(level, t)| Some((level, Arc::clone(version.table(t.id)?)))).collect()
}

/// Returns true if no reader needs what `range` hides of a table.
fn hides_for_all(range: &RangeTombstone, meta: &TableMeta, readers: &RetainRules) -> bool {
    !readers.reader_within(meta.min_seq..range.seq) && !readers.is_evidence(meta.max_seq)
}

/// Returns those of `tables` whose entries are all deleted by range tombstones, for all readers.
fn deleted(
    version: &TableVersion,
    tables: &[(u8, Arc<TableSlot>)],
    readers: &RetainRules,
) -> Option<CompactionPlan> {
    let order = version.order();
    let is_deleted = |table: &Arc<TableSlot>| {
        version.ranges().iter().any(|range| {
            let meta = table.meta();
            range.seq > meta.max_seq
                && range.covers(order, &meta.smallest)
                && range.covers(order, &meta.largest)
                && hides_for_all(range, meta, readers)
        })
    };
    let inputs = tables.iter().filter(|(_, table)| is_deleted(table)).cloned().collect();
    Plan::of_any((PlanKind::Drop, Cause::Ranges), inputs, 1)
}

/// Returns one of `tables` for which one range tombstone deletes at least half of the blocks for all readers. Such a table is
/// rewritten in its level, so that its disk space is freed soon.
fn half_deleted(
    version: &TableVersion,
    tables: &[(u8, Arc<TableSlot>)],
    readers: &RetainRules,
) -> Option<CompactionPlan> {
    let order = version.order();
    let is_half_deleted = |table: &Arc<TableSlot>| {
        version.ranges().iter().any(|range| {
            table.meta().may_be_hidden(order, range)
                && hides_for_all(range, table.meta(), readers)
                && table.table().is_half_of(range.start.as_deref(), range.end.as_deref())
        })
    };
    let (level, table) = tables.iter().find(|(_, table)| is_half_deleted(table))?;
    Some(in_place(version, Cause::Ranges, *level, table))
}

/// Returns a plan that rewrites one table in its level, so that one of the oldest range tombstones has one table less to hide rows of. Once it
/// has none it is removed. Only a table of which no reader needs what the tombstone hides: the rewrite keeps nothing of that.
fn applied(
    version: &TableVersion,
    tables: &[(u8, Arc<TableSlot>)],
    readers: &RetainRules,
) -> Option<CompactionPlan> {
    let order = version.order();
    let (level, table) = version.oldest_ranges().take(APPLIED_MAX).find_map(|range| {
        let is_hidden =
            |meta: &TableMeta| meta.may_be_hidden(order, range) && hides_for_all(range, meta, readers);
        tables.iter().find(|(_, table)| is_hidden(table.meta()))
    })?;
    Some(in_place(version, Cause::Ranges, *level, table))
}

/// Rewrites `table` in its level `level`.
fn in_place(version: &TableVersion, cause: Cause, level: u8, table: &Arc<TableSlot>) -> CompactionPlan {
    let bottom = level > 1 && !version.overlaps_older(table);
    let plan = Plan::of((PlanKind::Partitioned, cause), vec![(level, Arc::clone(table))], level);
    CompactionPlan { bottom, ..plan }
}

/// Returns a plan that rewrites one table in its level: the free one that refers to the most bytes of the value logs `victims`.
pub(super) fn of_values(
    version: &TableVersion,
    claims: &[Claim],
    victims: &BTreeSet<VlogId>,
) -> Option<CompactionPlan> {
    let free = free_tables(version, &picture(version, claims, &RetainRules::default()));
    let (level, table) = free.into_iter().max_by_key(|(_, table)| table.meta().value_bytes_in(victims))?;
    let refers = table.meta().value_bytes_in(victims) > 0;
    refers.then(|| in_place(version, Cause::Values, level, &table))
}

/// A plan that merges all tables, if one of them refers to the value logs `victims`.
pub(super) fn for_values(
    version: &TableVersion,
    options: &LiveOptions,
    victims: &BTreeSet<VlogId>,
) -> Option<CompactionPlan> {
    if !version.tables().any(|table| table.meta().value_bytes_in(victims) > 0) {
        return None;
    }
    within(version, options, &..).map(|plan| CompactionPlan { cause: Cause::Values, ..plan })
}

/// Returns a plan that rewrites every table that overlaps `range`, so that only versions needed by readers remain in
/// it. It also includes older level 1 tables that overlap an included one, because newer data must not move below older
/// data. And it includes the tables of deeper levels between the smallest and the largest key of all inputs.
pub(super) fn within<'k>(
    version: &TableVersion,
    options: &LiveOptions,
    range: &impl RangeBounds<&'k [u8]>,
) -> Option<CompactionPlan> {
    let inputs = all_meeting(version, range, 1..version.depth() + 1)?;
    let shape = shape(version, options);
    Some(CompactionPlan { bottom: true, ..manual(inputs, shape.largest, &shape) })
}

/// Returns true if the merge of `range` is divided into several.
pub(super) fn is_divided<'k>(
    version: &TableVersion,
    options: &LiveOptions,
    range: &impl RangeBounds<&'k [u8]>,
) -> bool {
    let shape = shape(version, options);
    let upper = (1..shape.largest).any(|level| !version.tables_meeting(level, range).is_empty());
    let bytes: u64 = version.tables_meeting(shape.largest, range).iter().map(|t| t.meta().file_bytes).sum();
    bytes > shape.partition_bytes().saturating_mul(2) && (shape.largest > 2 || !upper)
}

/// Like [`within`], but leaves the largest level alone: its tables are merged in pieces afterwards, and the outputs are cut at the borders
/// of these pieces.
pub(super) fn above_largest<'k>(
    version: &TableVersion,
    options: &LiveOptions,
    range: &impl RangeBounds<&'k [u8]>,
) -> Option<CompactionPlan> {
    let shape = shape(version, options);
    let inputs = all_meeting(version, range, 1..shape.largest)?;
    let plan = manual(inputs, shape.largest - 1, &shape);
    let (smallest, largest) = plan.keys(version.order())?;
    let keys = smallest..=largest;
    let (mut bytes, mut cuts) = (0, Vec::new());
    let below = version.tables_meeting(shape.largest, &keys);
    for table in &below {
        if bytes >= shape.partition_bytes() && keys.contains(&&*table.meta().smallest) {
            cuts.push(table.meta().smallest.clone());
            bytes = 0;
        }
        bytes += table.meta().file_bytes;
    }
    let bottom = below.is_empty();
    Some(CompactionPlan { bottom, cuts, ..plan })
}

/// Merges the first piece of `range` into the largest level: all sorted levels up to a table of the deepest one. Level 1 stays: what
/// it holds was written after the merge was asked for.
pub(super) fn piece<'k>(
    version: &TableVersion,
    options: &LiveOptions,
    range: &impl RangeBounds<&'k [u8]>,
) -> Option<CompactionPlan> {
    let shape = shape(version, options);
    let levels = (2..version.depth() + 1).rev().map(|level| version.tables_meeting(level, range));
    let deepest = levels.into_iter().find(|tables| !tables.is_empty())?;
    let mut bytes = 0;
    let full = |table: &&Arc<TableSlot>| {
        bytes += table.meta().file_bytes;
        bytes >= shape.partition_bytes()
    };
    let end = match deepest.iter().find(full) {
        Some(last) => Bound::Included(&*last.meta().largest),
        None => range.end_bound().cloned(),
    };
    let inputs = all_meeting(version, &(range.start_bound().cloned(), end), 2..version.depth() + 1)?;
    Some(CompactionPlan { bottom: true, ..manual(inputs, shape.largest, &shape) })
}

/// The last key of all tables.
pub(super) fn largest_key(version: &TableVersion) -> Option<Vec<u8>> {
    hull(version.order(), version.tables()).map(|(_, largest)| largest.to_vec())
}

fn manual(inputs: Vec<(u8, Arc<TableSlot>)>, target: u8, shape: &Shape) -> CompactionPlan {
    CompactionPlan {
        table_bytes: shape.table_bytes,
        ..Plan::of((PlanKind::Full, Cause::Manual), inputs, target)
    }
}

fn shape(version: &TableVersion, options: &LiveOptions) -> Shape {
    Shape::of(&picture(version, &[], &RetainRules::default()), &PolicySettings::of(&options.now()))
}

/// Tables of `levels` that overlap `range`, and those that must be merged with them; `None` if there are none.
fn all_meeting<'k>(
    version: &TableVersion,
    range: &impl RangeBounds<&'k [u8]>,
    levels: Range<u8>,
) -> Option<Vec<(u8, Arc<TableSlot>)>> {
    let flushed = if levels.start == 1 { flushed_meeting(version, range) } else { Vec::new() };
    let sorted = levels.start.max(2)..levels.end;
    let mut tables = flushed.clone();
    tables.extend(sorted.clone().flat_map(|level| version.tables_meeting(level, range)));
    // An output spans gaps between inputs, so a table that lies in a gap is merged too. That may widen the range, so look again.
    loop {
        let (smallest, largest) = hull(version.order(), &tables)?;
        let keys = smallest..=largest;
        let inputs = flushed.iter().cloned().map(|table| (1, table));
        let met = |level| version.tables_meeting(level, &keys).into_iter().map(move |table| (level, table));
        let inputs: Vec<_> = inputs.chain(sorted.clone().flat_map(met)).collect();
        if inputs.len() == tables.len() {
            return Some(inputs);
        }
        tables = inputs.into_iter().map(|(_, table)| table).collect();
    }
}

/// The tables of level 1 that overlap `range`, and older ones that overlap one of them.
fn flushed_meeting<'k>(version: &TableVersion, range: &impl RangeBounds<&'k [u8]>) -> Vec<Arc<TableSlot>> {
    let order = version.order();
    let upper: Vec<_> = version.level(1).collect();
    let mut goes: Vec<bool> = upper.iter().map(|table| table.meets(order, range)).collect();
    for newer in 0..upper.len() {
        for older in newer + 1..upper.len() {
            goes[older] |= goes[newer] && upper[newer].overlaps(order, upper[older]);
        }
    }
    upper.into_iter().zip(goes).filter(|(_, goes)| *goes).map(|(t, _)| Arc::clone(t)).collect()
}

/// The first and the last key of `tables`.
fn hull<'t>(
    order: &Comparator,
    tables: impl IntoIterator<Item = &'t Arc<TableSlot>>,
) -> Option<policy::KeyRange<'t>> {
    let ranges = tables.into_iter().map(|t| (&*t.meta().smallest, &*t.meta().largest));
    ranges.reduce(|a, b| policy::join(order, a, b))
}
