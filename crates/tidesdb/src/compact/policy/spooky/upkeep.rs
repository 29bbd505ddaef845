//! Compactions that follow from what tables hold, and changes of the number of levels.

use super::super::picture::{TableView, Tree};
use super::super::plan::{Cause, Plan, PlanKind};
use super::super::settings::PolicySettings;
use super::super::shape::Shape;
use super::{partition, upper};

/// Maximum number of entries that a merge reads for each dead entry it removes.
const DEAD_SHARE: u64 = 10;
/// A flushed table of less than this share of a memtable is merged before it leaves level 1.
const SMALL_SHARE: u64 = 16;
/// On an idle database, data above the largest level is merged into it from this share of it on. So these merges write at most 21 bytes for
/// each byte that was flushed since the last one.
const LEFTOVER_SHARE: f64 = 0.05;

/// Drops tables all of whose rows have expired and hide nothing.
pub(super) fn drop_expired(tree: &Tree<'_>) -> Option<Plan> {
    let free = |(level, t): &(u8, &TableView<'_>)| {
        is_expired(tree, t) && !t.taken && t.tombstones == 0 && !hides(tree, *level, t)
    };
    Plan::dropping(Cause::Expired, tree.tables().filter(free).map(|(level, t)| (level, t.id)).collect())
}

/// Merges an expired table with what it hides, if that is not too much.
pub(super) fn expired(tree: &Tree<'_>, shape: &Shape) -> Option<Plan> {
    let candidates =
        tree.tables().filter(|(level, t)| *level > 1 && *level < shape.largest && is_expired(tree, t));
    candidates.into_iter().find_map(|(level, t)| {
        to_bottom(tree, shape, Cause::Expired, level, std::slice::from_ref(t), worth(t.entries))
    })
}

/// Merges tables that are tombstones for the most part with what these delete, if that is not too much.
pub(super) fn dense(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Option<Plan> {
    if settings.density_permille == 0 {
        return None;
    }
    let is_dense = |tables: &[TableView<'_>]| {
        let (dead, entries) = (tombstones(tables), entries(tables));
        entries >= settings.density_min_entries
            && dead.saturating_mul(1000) >= entries.saturating_mul(settings.density_permille.into())
            && tables.iter().all(|t| t.max_seq <= tree.floor)
    };
    let flushed = tree.level(1);
    if !flushed.is_empty()
        && is_dense(flushed)
        && let Some(plan) = to_bottom(tree, shape, Cause::Tombstones, 1, flushed, worth(tombstones(flushed)))
    {
        return Some(plan);
    }
    (2..shape.largest).find_map(|level| {
        let mut seeds = tree.level(level).iter().map(std::slice::from_ref).filter(|t| is_dense(t));
        seeds.find_map(|t| to_bottom(tree, shape, Cause::Tombstones, level, t, worth(tombstones(t))))
    })
}

/// Merges sorted runs into one, if reads have spent as much on looking into each of them as the merge will cost: level 1 with what
/// lies below it, or else a table of another level. A merge that leaves as many runs is not planned.
pub(super) fn probed(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Option<Plan> {
    if tree.probes_pay == 0 {
        return None;
    }
    let pays = |plan: &Plan| {
        let is_one_run = plan.inputs.iter().all(|(level, _)| *level > 1 && *level == plan.inputs[0].0);
        plan.inputs.len() > 1 && !is_one_run && tree.sum_of(plan, |t| t.entries) <= tree.probes_pay
    };
    let down =
        |level, seeds| to_bottom(tree, shape, Cause::Probes, level, seeds, tree.probes_pay).filter(pays);
    let flushed =
        upper::plan(tree, shape, settings, Cause::Probes).filter(pays).or_else(|| down(1, tree.level(1)));
    flushed.or_else(|| {
        let mut tables =
            (2..shape.largest).flat_map(|level| tree.level(level).iter().map(move |t| (level, t)));
        tables.find_map(|(level, table)| down(level, std::slice::from_ref(table)))
    })
}

/// If the tree settles, merges what lies above the largest level into it, one partition at a time, so that the old versions that it hides
/// go. A partition that holds little above the largest level, or that a reader needs as it is, stays.
pub(super) fn settle(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Option<Plan> {
    if !tree.settles {
        return None;
    }
    let mut upper = (1..shape.top).flat_map(|level| tree.level(level));
    let is_much =
        tree.bytes_in(1..shape.top) as f64 >= tree.bytes(shape.largest).max(1) as f64 * LEFTOVER_SHARE;
    let merge = || {
        let plan = upper::plan(tree, shape, settings, Cause::Idle);
        plan.filter(|plan| plan.inputs.len() > 1)
    };
    let flushed = (is_much && upper.all(|t| t.max_seq <= tree.floor))
        .then(|| sink_flushed(tree, shape, settings).or_else(merge))
        .flatten();
    flushed.or_else(|| partition::leftovers(tree, shape, settings, LEFTOVER_SHARE))
}

/// Entries that a merge may read to remove `dead` ones.
fn worth(dead: u64) -> u64 {
    dead.saturating_mul(DEAD_SHARE)
}

/// Merges `seeds` of `level`, and all that overlaps them from there on, into the largest level, if these are at most `entries_max`
/// entries.
fn to_bottom<'a>(
    tree: &Tree<'a>,
    shape: &Shape,
    cause: Cause,
    level: u8,
    seeds: &[TableView<'a>],
    entries_max: u64,
) -> Option<Plan> {
    let mut range = tree.hull(seeds)?;
    let mut inputs: Vec<(u8, &TableView<'a>)> = Vec::new();
    // An output spans gaps between inputs, so what lies in a gap goes along; that may widen the range, so look again.
    loop {
        let count = inputs.len();
        inputs.clear();
        inputs.extend(seeds.iter().filter(|_| level == 1).map(|t| (level, t)));
        for lower in level.max(2)..shape.largest + 1 {
            let met = &tree.level(lower)[tree.meeting(lower, range)];
            inputs.extend(met.iter().map(|t| (lower, t)));
            range = tree.hull(met).map_or(range, |more| tree.join(range, more));
        }
        if inputs.len() == count {
            break;
        }
    }
    let read = inputs.iter().map(|(_, t)| t.entries).fold(0, u64::saturating_add);
    if read > entries_max {
        return None;
    }
    Plan::new(tree, (PlanKind::Partitioned, cause), inputs, shape.largest)
}

/// Moves tables that overlap nothing deeper to the largest level: those of the sorted levels that are full, and those of level
/// 1 when it is due.
pub(super) fn sink(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Option<Plan> {
    let largest = shape.largest;
    let full = shape.table_bytes - shape.table_bytes / 8;
    for level in (2..largest).rev() {
        let whole = tree.level(level).iter().filter(|t| t.bytes >= full && !t.taken);
        let falls = |t: &&TableView<'_>| !tree.is_met(level + 2..largest + 1, t.range());
        let tables = tree.apart(whole, level + 1).filter(falls).map(|t| (level, t));
        if let Some(plan) = Plan::moving(tree, Cause::Disjoint, tables, largest) {
            return Some(plan);
        }
    }
    if upper::debt(tree, settings) < 1.0 { None } else { sink_flushed(tree, shape, settings) }
}

/// Moves tables of the dividing levels to the deepest of these in which they overlap nothing.
pub(super) fn lower(tree: &Tree<'_>, shape: &Shape) -> Option<Plan> {
    let apart = |level: u8| {
        let free = tree.level(level).iter().filter(|t| !t.taken);
        tree.apart(free, level + 1).map(move |t| (level, t))
    };
    let apart: Vec<_> = (shape.top..shape.dividing).flat_map(apart).collect();
    for target in (shape.top + 1..shape.dividing + 1).rev() {
        for level in (shape.top..target).rev() {
            let falls = |(from, t): &(u8, &TableView<'_>)| {
                *from == level && !tree.is_met(level + 2..target + 1, t.range())
            };
            let tables = apart.iter().copied().filter(falls);
            if let Some(plan) = Plan::moving(tree, Cause::Disjoint, tables, target) {
                return Some(plan);
            }
        }
    }
    None
}

/// Moves flushed tables that overlap nothing to the largest level.
fn sink_flushed(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Option<Plan> {
    let small = settings.table_bytes.min(settings.buffer_bytes) / SMALL_SHARE;
    let falls = |t: &&TableView<'_>| t.bytes >= small && !tree.is_met(2..shape.largest + 1, t.range());
    let tables = lone(tree, tree.level(1)).into_iter().filter(falls).map(|t| (1, t));
    Plan::moving(tree, Cause::Disjoint, tables, shape.largest)
}

/// Those of `tables` that overlap no other of them.
fn lone<'t, 'a>(tree: &Tree<'a>, tables: &'t [TableView<'a>]) -> Vec<&'t TableView<'a>> {
    let mut sorted: Vec<_> = tables.iter().collect();
    sorted.sort_by(|a, b| tree.compare(a.smallest, b.smallest));
    let mut reached: Option<&[u8]> = None;
    let mut found = Vec::new();
    for (at, table) in sorted.iter().enumerate() {
        let begins = reached.is_none_or(|key| tree.compare(key, table.smallest).is_lt());
        let ends = sorted.get(at + 1).is_none_or(|next| tree.compare(table.largest, next.smallest).is_lt());
        if begins && ends {
            found.push(*table);
        }
        if reached.is_none_or(|key| tree.compare(key, table.largest).is_lt()) {
            reached = Some(table.largest);
        }
    }
    found
}

/// Moves the largest level down if the tree should have more levels for what it holds, or if the levels below it are empty.
pub(super) fn add_level(tree: &Tree<'_>, shape: &Shape) -> Option<Plan> {
    let depth = tree.depth();
    let wanted = shape.levels_for(tree.bytes(shape.largest));
    let target = match shape.largest {
        largest if depth >= 2 && depth < largest => largest,
        largest if wanted > largest => wanted,
        _ => return None,
    };
    Plan::moving(tree, Cause::Levels, tree.level(depth).iter().map(|t| (depth, t)), target)
}

/// Merges the largest level into the one above if the tree holds so little that it needs one level less.
pub(super) fn remove_level(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Option<Plan> {
    let (largest, above) = (shape.largest, shape.largest - 1);
    let total = tree.bytes_in(1..largest + 1);
    if above < 2
        || above < settings.min_levels
        || tree.depth() < largest
        || shape.levels_for(total.saturating_mul(2)) > above
    {
        return None;
    }
    let inputs =
        [above, largest].into_iter().flat_map(|level| tree.level(level).iter().map(move |t| (level, t)));
    if tree.level(above).is_empty() {
        let is_busy = !tree.claims.is_empty() || tree.level(largest).iter().any(|t| t.taken);
        return if is_busy { None } else { Plan::moving(tree, Cause::Levels, inputs, above) };
    }
    let plan = Plan::new(tree, (PlanKind::Full, Cause::Levels), inputs, above)?;
    Some(Plan { bottom: true, ..plan })
}

fn is_expired(tree: &Tree<'_>, t: &TableView<'_>) -> bool {
    t.expires != 0 && t.expires <= tree.now && t.max_seq <= tree.floor
}

/// Returns true if a table may hold older versions of keys of `table`, which is in `level`.
fn hides(tree: &Tree<'_>, level: u8, table: &TableView<'_>) -> bool {
    let older = |t: &&TableView<'_>| t.max_seq < table.max_seq && t.id != table.id;
    tree.is_met(level.max(1) + 1..tree.depth() + 1, table.range())
        || level == 1
            && tree.level(1).iter().filter(older).any(|t| tree.ranges_meet(t.range(), table.range()))
}

fn tombstones(tables: &[TableView<'_>]) -> u64 {
    tables.iter().map(|t| t.tombstones).fold(0, u64::saturating_add)
}

fn entries(tables: &[TableView<'_>]) -> u64 {
    tables.iter().map(|t| t.entries).fold(0, u64::saturating_add)
}
