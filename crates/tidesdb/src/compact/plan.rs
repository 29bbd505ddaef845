//! Decides which merge is due: a pure function of the version.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeBounds;
use std::sync::Arc;

use super::policy::{
    Cause, Claim as Claimed, CompactionPolicy, Plan, PlanKind, PolicySettings, Shape, Spooky, TableView, Tree,
};
use crate::family::Claim;
use crate::merge::RetainRules;
use crate::options::LiveOptions;
use crate::sources::{TableSlot, TableVersion};
use crate::sst::TableMeta;
use crate::types::VlogId;

/// A planned compaction. It can be printed, tested and rejected.
#[derive(Clone, Debug)]
pub struct CompactionPlan {
    /// How to execute it.
    pub kind: PlanKind,
    /// Why.
    pub cause: Cause,
    /// Input tables with their levels, newest data first.
    pub inputs: Vec<(u8, Arc<TableSlot>)>,
    /// Level of the outputs.
    pub target: u8,
    /// True if no table outside the inputs holds older data of their keys.
    pub bottom: bool,
    /// Keys at which an output table begins.
    pub cuts: Vec<Vec<u8>>,
    /// An output table also ends before a gap that holds two of these.
    pub guards: Vec<Vec<u8>>,
}

impl CompactionPlan {
    fn new((kind, cause): (PlanKind, Cause), inputs: Vec<(u8, Arc<TableSlot>)>, target: u8) -> Self {
        Self { kind, cause, inputs, target, bottom: false, cuts: Vec::new(), guards: Vec::new() }
    }

    /// `plan` with the tables that it names.
    fn of(version: &TableVersion, plan: Plan) -> Option<Self> {
        let table = |(level, id)| Some((level, Arc::clone(version.table(id)?)));
        let inputs = plan.inputs.into_iter().map(table).collect::<Option<Vec<_>>>()?;
        let Plan { kind, cause, target, bottom, cuts, guards, .. } = plan;
        Some(Self { kind, cause, inputs, target, bottom, cuts, guards })
    }

    /// Returns true if the inputs are rewritten.
    pub fn is_merge(&self) -> bool {
        !matches!(self.kind, PlanKind::Move | PlanKind::Drop)
    }

    /// What it uses while it runs.
    pub(super) fn claim(&self, version: &TableVersion) -> Claim {
        let order = version.order();
        let keys = |of: fn(&TableMeta) -> &Vec<u8>| self.inputs.iter().map(move |(_, t)| of(t.meta()));
        let smallest = keys(|m| &m.smallest).min_by(|a, b| order.compare(a, b));
        let largest = keys(|m| &m.largest).max_by(|a, b| order.compare(a, b));
        Claim {
            tables: self.inputs.iter().map(|(_, t)| t.id()).collect(),
            level: self.target,
            smallest: smallest.cloned().unwrap_or_default(),
            largest: largest.cloned().unwrap_or_default(),
        }
    }
}

/// Returns the compaction that is due and can run concurrently with those that hold `claims`.
pub(super) fn next(
    version: &TableVersion,
    claims: &[Claim],
    options: &LiveOptions,
    readers: &RetainRules,
) -> Option<CompactionPlan> {
    let tree = picture(version, claims, readers);
    let by_policy =
        || Spooky.pick(&tree, &settings(options)).and_then(|plan| CompactionPlan::of(version, plan));
    if version.ranges().is_empty() {
        return by_policy();
    }
    let free = free_tables(version, &tree);
    deleted(version, &free, readers).or_else(by_policy).or_else(|| half_deleted(version, &free, readers))
}

/// The tree as policies see it.
fn picture<'a>(version: &'a TableVersion, claims: &'a [Claim], readers: &RetainRules) -> Tree<'a> {
    let taken: HashSet<_> = claims.iter().flat_map(|claim| &claim.tables).collect();
    let view = |slot: &'a Arc<TableSlot>| {
        let meta = slot.meta();
        TableView {
            id: meta.id,
            smallest: &meta.smallest,
            largest: &meta.largest,
            bytes: meta.file_bytes,
            entries: meta.entries,
            tombstones: meta.tombstones,
            max_seq: meta.max_seq,
            expires: meta.expires().unwrap_or(0),
            taken: taken.contains(&meta.id),
        }
    };
    let levels = version.levels().iter().map(|level| level.tables().iter().map(view).collect()).collect();
    let mut tree = Tree::new(version.order(), levels);
    let claim = |c: &'a Claim| Claimed { level: c.level, smallest: &c.smallest, largest: &c.largest };
    tree.claims = claims.iter().map(claim).collect();
    tree.floor = [readers.snapshots.first().copied(), readers.conflicts_since, Some(readers.visible_floor)]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(0);
    tree.now = readers.now.unwrap_or(0);
    tree
}

fn settings(options: &LiveOptions) -> PolicySettings {
    let level = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    PolicySettings {
        buffer_bytes: options.write_buffer_bytes() as u64,
        table_bytes: options.table_bytes(),
        l1_tables_trigger: options.l1_tables_trigger(),
        ratio: options.level_size_ratio(),
        min_levels: level(options.min_levels()),
        dividing_offset: level(options.dividing_level_offset()),
        density_permille: options.tombstone_density_permille(),
        density_min_entries: options.tombstone_density_min_entries(),
        ..PolicySettings::default()
    }
}

/// Tables that no running merge uses and whose place none writes to, with their levels.
fn free_tables(version: &TableVersion, tree: &Tree<'_>) -> Vec<(u8, Arc<TableSlot>)> {
    let free = tree.tables().filter(|(level, t)| !t.taken && !tree.is_claimed(*level, t.range()));
    free.filter_map(|(level, t)| Some((level, Arc::clone(version.table(t.id)?)))).collect()
}

/// Those of `tables` that hold nothing but what range tombstones delete for all readers.
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
                && !readers.reader_within(meta.min_seq..range.seq)
                && !readers.is_evidence(meta.max_seq)
        })
    };
    let inputs: Vec<_> = tables.iter().filter(|(_, table)| is_deleted(table)).cloned().collect();
    (!inputs.is_empty()).then(|| CompactionPlan::new((PlanKind::Drop, Cause::Ranges), inputs, 1))
}

/// One of `tables` of whose blocks at least half are deleted for all readers by one range tombstone: it is rewritten where it
/// is, so that the disk comes back soon.
fn half_deleted(
    version: &TableVersion,
    tables: &[(u8, Arc<TableSlot>)],
    readers: &RetainRules,
) -> Option<CompactionPlan> {
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
    let (level, table) = tables.iter().find(|(_, table)| is_half_deleted(table))?;
    let range = &*table.meta().smallest..=&*table.meta().largest;
    let bottom = *level > 1 && !version.any_deeper(*level, &range);
    let inputs = vec![(*level, Arc::clone(table))];
    Some(CompactionPlan {
        bottom,
        ..CompactionPlan::new((PlanKind::Partitioned, Cause::Ranges), inputs, *level)
    })
}

/// A plan that rewrites, where it is, the free table that refers to the most bytes of the value logs `victims`.
pub(super) fn of_values(
    version: &TableVersion,
    claims: &[Claim],
    victims: &BTreeSet<VlogId>,
) -> Option<CompactionPlan> {
    let free = free_tables(version, &picture(version, claims, &RetainRules::default()));
    let (level, table) = free.into_iter().max_by_key(|(_, table)| table.meta().value_bytes_in(victims))?;
    if table.meta().value_bytes_in(victims) == 0 {
        return None;
    }
    let range = &*table.meta().smallest..=&*table.meta().largest;
    let bottom = level > 1 && !version.any_deeper(level, &range);
    let plan = CompactionPlan::new((PlanKind::Partitioned, Cause::Values), vec![(level, Arc::clone(&table))], level);
    Some(CompactionPlan { bottom, ..plan })
}

/// A plan that rewrites every table into the largest level.
pub(super) fn everything(version: &TableVersion, options: &LiveOptions) -> Option<CompactionPlan> {
    manual(version, options, version.levels().iter().map(|level| level.tables().to_vec()).collect())
}

/// Returns a plan that rewrites every table that overlaps `range`, so that only versions needed by readers remain in
/// it. It also includes older level 1 tables that overlap an included one, because newer data must not move below older
/// data. And it includes the tables of deeper levels between the smallest and the largest key of all inputs.
pub(super) fn within<'k>(
    version: &TableVersion,
    options: &LiveOptions,
    range: &impl RangeBounds<&'k [u8]>,
) -> Option<CompactionPlan> {
    let order = version.order();
    let upper = version.level(1);
    let mut goes: Vec<bool> = upper.iter().map(|table| table.meets(order, range)).collect();
    for newer in 0..upper.len() {
        for older in newer + 1..upper.len() {
            goes[older] |= goes[newer] && overlap(version, &upper[newer], &upper[older]);
        }
    }
    let first: Vec<_> =
        upper.iter().zip(goes).filter(|(_, goes)| *goes).map(|(t, _)| Arc::clone(t)).collect();
    let mut levels = vec![first];
    levels.extend((2..=version.depth()).map(|level| version.tables_meeting(level, range)));
    // An output spans gaps between inputs, so what lies in a gap goes along; that may widen the range, so look again.
    let mut count = 0;
    while count != levels.iter().map(Vec::len).sum::<usize>() {
        count = levels.iter().map(Vec::len).sum();
        let hull = |levels: &[Vec<Arc<TableSlot>>]| {
            let metas = || levels.iter().flatten().map(|t| t.meta());
            let smallest = metas().map(|m| m.smallest.clone()).min_by(|a, b| order.compare(a, b))?;
            let largest = metas().map(|m| m.largest.clone()).max_by(|a, b| order.compare(a, b))?;
            Some((smallest, largest))
        };
        let (smallest, largest) = hull(&levels)?;
        for level in 2..=version.depth() {
            let met = version.tables_meeting(level, &(&*smallest..=&*largest));
            levels[usize::from(level) - 1] = met;
        }
    }
    manual(version, options, levels)
}

/// Merges these tables, which are all that their keys have, into the largest level.
fn manual(
    version: &TableVersion,
    options: &LiveOptions,
    levels: Vec<Vec<Arc<TableSlot>>>,
) -> Option<CompactionPlan> {
    let largest = Shape::of(&picture(version, &[], &RetainRules::default()), &settings(options)).largest;
    let inputs: Vec<_> = levels
        .into_iter()
        .zip(1..)
        .flat_map(|(tables, level)| tables.into_iter().map(move |t| (level, t)))
        .collect();
    (!inputs.is_empty()).then(|| CompactionPlan {
        bottom: true,
        ..CompactionPlan::new((PlanKind::Full, Cause::Manual), inputs, largest)
    })
}

fn overlap(version: &TableVersion, a: &TableSlot, b: &TableSlot) -> bool {
    let order = version.order();
    let (a, b) = (a.meta(), b.meta());
    order.compare(&a.smallest, &b.largest).is_le() && order.compare(&b.smallest, &a.largest).is_le()
}
