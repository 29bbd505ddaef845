//! Which merge is due: a pure function of the version.

use std::sync::Arc;

use crate::sources::{TableSlot, TableVersion};
use crate::types::Comparator;

/// Level of the one sorted run.
pub(super) const BOTTOM_LEVEL: u8 = 2;

/// How a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// The inputs overlap nothing, not even each other: they only change their level.
    Move,
    /// The inputs are merged into new tables.
    Merge,
}

/// What a compaction will do. It can be printed, tested and refused.
#[derive(Clone, Debug)]
pub struct CompactionPlan {
    /// How.
    pub kind: PlanKind,
    /// Tables that go, with their level, newest data first.
    pub inputs: Vec<(u8, Arc<TableSlot>)>,
    /// Level of the outputs.
    pub target: u8,
    /// Whether no table outside the inputs holds older data of their keys.
    pub bottom: bool,
}

/// The compaction that is due. `force` asks for one even if level 1 is below its trigger.
pub fn pick(
    version: &TableVersion,
    comparator: &Comparator,
    l1_tables_trigger: usize,
    force: bool,
) -> Option<CompactionPlan> {
    let upper = version.level(1);
    if upper.is_empty() || (!force && upper.len() < l1_tables_trigger.max(1)) {
        return None;
    }
    let lower = version.level(BOTTOM_LEVEL);
    let lone = |i: usize| {
        upper.iter().skip(i + 1).chain(lower.iter()).all(|other| !overlap(comparator, &upper[i], other))
    };
    // A forced merge is asked for to drop what is dead, which a move does not do.
    let kind = if !force && (0..upper.len()).all(lone) { PlanKind::Move } else { PlanKind::Merge };
    let upper_inputs = upper.iter().map(|t| (1, Arc::clone(t)));
    let inputs = match kind {
        PlanKind::Move => upper_inputs.collect(),
        PlanKind::Merge => upper_inputs
            .chain(between(upper, lower, comparator).map(|t| (BOTTOM_LEVEL, Arc::clone(t))))
            .collect(),
    };
    Some(CompactionPlan { kind, inputs, target: BOTTOM_LEVEL, bottom: true })
}

/// The tables of `lower` from the smallest to the largest key of `upper`. Those in a gap of `upper` belong to them: an output
/// may span the gap.
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

/// A plan that rewrites every table.
pub(super) fn everything(version: &TableVersion) -> Option<CompactionPlan> {
    let inputs: Vec<_> =
        (1..=BOTTOM_LEVEL).flat_map(|l| version.level(l).iter().map(move |t| (l, Arc::clone(t)))).collect();
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
