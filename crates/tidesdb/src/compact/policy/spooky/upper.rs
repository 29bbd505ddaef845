//! Merges of the upper levels: full preemptive and dividing.

use super::super::picture::{Tree, sum_bytes};
use super::super::plan::{Cause, Plan, PlanKind};
use super::super::settings::PolicySettings;
use super::super::shape::Shape;
use super::partition;

/// About how many stretches of the largest level the guards of a full merge divide it into.
const GUARDS: usize = 16;

/// How urgent a merge of level 1 is; from 1 on it is due.
pub(super) fn debt(tree: &Tree<'_>, settings: &PolicySettings) -> f64 {
    let tables = tree.level(1).len();
    let by_count = tables as f64 / settings.l1_tables_trigger.max(1) as f64;
    let by_bytes = tree.bytes(1) as f64 / settings.base_bytes() as f64;
    by_count.max(by_bytes)
}

/// Returns true if a job merges tables of level 1.
pub(super) fn is_running(tree: &Tree<'_>) -> bool {
    tree.level(1).iter().any(|table| table.taken)
}

/// Merges level 1, and as many levels below it as the target needs; if that is more than `settings.merge_bytes_max`, the oldest tables
/// of level 1 only. `None` while running jobs are in the way.
pub(super) fn plan(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings, cause: Cause) -> Option<Plan> {
    for newer in 0..tree.level(1).len() {
        let (plan, bytes) = oldest(tree, shape, cause, newer)?;
        if bytes <= settings.merge_bytes_max {
            return Some(plan);
        }
    }
    None
}

/// Merges all but the first `newer` tables of level 1. Also returns the bytes of the inputs.
fn oldest(tree: &Tree<'_>, shape: &Shape, cause: Cause, newer: usize) -> Option<(Plan, u64)> {
    let target = target(tree, shape);
    let divides = target == shape.top && target < shape.largest;
    let kind = if divides { PlanKind::Dividing } else { PlanKind::Full };
    let above: Vec<_> = tree.tables().skip(newer).take_while(|(level, _)| *level < target).collect();
    let spans = tree.union(above.iter().map(|(_, table)| *table));
    let (met, spared): (Vec<_>, Vec<_>) =
        tree.level(target).iter().partition(|t| tree.meets_one_of(&spans, t.range()));
    let bytes = sum_bytes(above.iter().map(|(_, t)| *t).chain(met.iter().copied()));
    let range = tree.hull(above.iter().map(|(_, t)| *t).chain(met.iter().copied()))?;
    let mut plan = Plan::new(
        tree,
        (kind, cause),
        above.into_iter().chain(met.into_iter().map(|t| (target, t))),
        target,
    )?;
    // Tables of the target level that overlap no input stay, so no output may span one.
    let mut cuts: Vec<&[u8]> = spared.iter().map(|t| t.smallest).collect();
    if divides {
        cuts.extend(partition::boundaries(tree, shape, target + 1));
    } else if target < shape.largest {
        plan.guards = owned(guards(tree, shape));
    }
    cuts.retain(|key| tree.compare(key, range.0).is_gt() && tree.compare(key, range.1).is_le());
    cuts.sort_by(|a, b| tree.compare(a, b));
    cuts.dedup();
    plan.cuts = owned(cuts);
    Some((plan, bytes))
}

/// The first level that has room for all above it and itself; at most the dividing level. A small tree is merged whole.
fn target(tree: &Tree<'_>, shape: &Shape) -> u8 {
    let largest = tree.bytes(shape.largest);
    if largest <= tree.bytes_in(1..shape.largest) && largest <= shape.holds(2).saturating_mul(2) {
        return shape.largest;
    }
    let fits = |level: &u8| tree.bytes_in(1..level + 1) <= shape.capacity(*level);
    (2..shape.top).find(fits).unwrap_or(shape.top)
}

/// Keys of the largest level that a table of a full merge need not span: if it has nothing between two of them, it ends.
fn guards<'a>(tree: &Tree<'a>, shape: &Shape) -> Vec<&'a [u8]> {
    let tables = tree.level(shape.largest);
    tables.iter().step_by(tables.len().div_ceil(GUARDS).max(1)).map(|t| t.smallest).collect()
}

pub(super) fn owned(keys: Vec<&[u8]>) -> Vec<Vec<u8>> {
    keys.into_iter().map(<[u8]>::to_vec).collect()
}
