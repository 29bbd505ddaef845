//! Compactions that follow from what tables hold, and changes of the number of levels.

use super::super::plan::{Cause, Plan, PlanKind};
use super::super::tree::{TableView, Tree, join};
use super::Planner;
use crate::order;

/// Maximum number of entries that a merge reads for each dead entry it removes.
const DEAD_SHARE: u64 = 10;
/// A flushed table of less than this share of a memtable is merged before it leaves level 1.
const SMALL_SHARE: u64 = 16;
/// On an idle database, data above the largest level is merged into it from this share of it on. So these merges write at most 21 bytes for
/// each byte that was flushed since the last one.
const LEFTOVER_SHARE: f64 = 0.05;

impl<'a> Planner<'_, 'a> {
    /// Drops tables all of whose rows have expired and hide nothing.
    pub(super) fn drop_expired(&self) -> Option<Plan> {
        let free = |run: usize, t: &TableView<'_>| {
            is_expired(self.tree, t) && !t.taken && t.tombstones == 0 && !self.hides(run, t)
        };
        let runs = self.tree.runs.iter().enumerate();
        let free = runs
            .flat_map(|(at, run)| run.tables.iter().filter(move |t| free(at, t)).map(|t| (run.level, t.id)));
        Plan::of_any((PlanKind::Drop, Cause::Expired), free.collect(), 1)
    }

    /// Merges an expired table with what it hides, if that is not too much.
    pub(super) fn expired(&self) -> Option<Plan> {
        self.each_between(|run, t| {
            let merge = || self.to_bottom(Cause::Expired, run, std::slice::from_ref(t), worth(t.entries));
            is_expired(self.tree, t).then(merge).flatten()
        })
    }

    /// Merges tables that are tombstones for the most part with what these delete, if that is not too much.
    pub(super) fn dense(&self) -> Option<Plan> {
        if self.settings.density_permille == 0 {
            return None;
        }
        let merge = |run: usize, tables: &[TableView<'a>]| {
            let (dead, entries) = (tombstones(tables), entries(tables));
            let is_dense = entries >= self.settings.density_min_entries
                && dead.saturating_mul(1000) >= entries.saturating_mul(self.settings.density_permille.into())
                && tables.iter().all(|t| t.max_seq <= self.tree.floor);
            is_dense.then(|| self.to_bottom(Cause::Tombstones, run, tables, worth(dead))).flatten()
        };
        let flushed = self.tree.flushed();
        let flushed = if flushed.is_empty() { None } else { merge(0, flushed) };
        flushed.or_else(|| self.each_between(|run, t| merge(run, std::slice::from_ref(t))))
    }

    /// Merges sorted runs into one, if reads have spent as much on looking into each of them as the merge will cost: level 1 with what
    /// lies below it, or else a table of another level. A merge that leaves as many runs is not planned.
    pub(super) fn probed(&self) -> Option<Plan> {
        let entries_max = self.tree.probes_credit;
        if entries_max == 0 {
            return None;
        }
        let fits = |plan: &Plan| plan.inputs.len() > 1 && plan.entries(self.tree) <= entries_max;
        let down = |run, seeds: &[TableView<'a>]| {
            self.to_bottom(Cause::Probes, run, seeds, entries_max).filter(fits)
        };
        let flushed = self.merge_upper(Cause::Probes).filter(fits).or_else(|| down(0, self.tree.flushed()));
        flushed.or_else(|| self.each_between(|run, t| down(run, std::slice::from_ref(t))))
    }

    /// The first plan that `plan` returns for a table between level 1 and the largest level, and its run.
    fn each_between(&self, plan: impl Fn(usize, &TableView<'a>) -> Option<Plan>) -> Option<Plan> {
        let mut runs = self.tree.runs_in(2..self.shape.largest);
        runs.find_map(|run| self.tree.runs[run].tables.iter().find_map(|t| plan(run, t)))
    }

    /// If the tree settles, merges what lies above the largest level into it, one partition at a time, so that the old versions that it hides
    /// are dropped. A partition that holds little above the largest level, or that a reader needs as it is, stays.
    pub(super) fn settle(&self) -> Option<Plan> {
        if !self.tree.settles {
            return None;
        }
        let mut upper = self.tree.in_levels(1..self.shape.tiered);
        let least = self.tree.bytes(self.shape.largest).max(1) as f64 * LEFTOVER_SHARE;
        let is_much = self.tree.bytes_in(1..self.shape.tiered) as f64 >= least;
        let merge = || self.merge_upper(Cause::Idle).filter(|plan| plan.inputs.len() > 1);
        let flushed = (is_much && upper.all(|t| t.max_seq <= self.tree.floor))
            .then(|| self.sink_flushed().or_else(merge))
            .flatten();
        flushed.or_else(|| self.leftovers(LEFTOVER_SHARE))
    }

    /// Merges `seeds` of a run, and all that overlaps them from there on, into the largest level, if these are at most `entries_max`
    /// entries. For reads only if these are several runs.
    fn to_bottom(&self, cause: Cause, run: usize, seeds: &[TableView<'a>], entries_max: u64) -> Option<Plan> {
        let tree = self.tree;
        if entries(seeds) > entries_max {
            return None;
        }
        let mut range = tree.hull(seeds)?;
        let mut inputs: Vec<(usize, &TableView<'a>)> = Vec::new();
        // An output spans gaps between inputs, so a table that lies in a gap is merged too. That may widen the range, so look again.
        loop {
            let count = inputs.len();
            inputs.clear();
            inputs.extend(seeds.iter().filter(|_| run == 0).map(|t| (run, t)));
            let mut read = if run == 0 { entries(seeds) } else { 0 };
            for lower in run.max(1)..tree.runs.len() {
                let met = tree.meeting(lower, range);
                read = read.saturating_add(entries(met));
                if read > entries_max {
                    return None;
                }
                inputs.extend(met.iter().map(|t| (lower, t)));
                range = tree.hull(met).map_or(range, |more| join(tree.order, range, more));
            }
            if inputs.len() == count {
                break;
            }
        }
        let is_one_run = run > 0 && inputs.iter().all(|(at, _)| *at == run);
        if cause == Cause::Probes && is_one_run {
            return None;
        }
        let inputs = inputs.into_iter().map(|(run, t)| (tree.runs[run].level, t));
        Plan::new(tree, (PlanKind::Partitioned, cause), inputs, self.shape.largest)
    }

    /// Moves tables that overlap nothing deeper to the largest level: those of the sorted runs that are full, and those of level
    /// 1 when it is due.
    pub(super) fn sink(&self) -> Option<Plan> {
        let (tree, largest) = (self.tree, self.shape.largest);
        let full = self.shape.table_bytes - self.shape.table_bytes / 8;
        for run in tree.runs_in(2..largest).rev() {
            let whole = tree.runs[run].tables.iter().filter(|t| t.bytes >= full && !t.taken);
            let tables = tree.apart(whole, run + 1..tree.runs.len()).map(|t| (tree.runs[run].level, t));
            if let Some(plan) = Plan::moving(tree, Cause::Disjoint, tables, largest) {
                return Some(plan);
            }
        }
        if self.upper_debt() < 1.0 { None } else { self.sink_flushed() }
    }

    /// Moves flushed tables that overlap nothing to the largest level.
    fn sink_flushed(&self) -> Option<Plan> {
        let (tree, settings) = (self.tree, self.settings);
        let small = settings.table_bytes.min(settings.buffer_bytes) / SMALL_SHARE;
        let falls = |t: &&TableView<'_>| t.bytes >= small && !tree.is_met(1..tree.runs.len(), t.range());
        let tables = lone(tree, tree.flushed()).into_iter().filter(falls).map(|t| (1, t));
        Plan::moving(tree, Cause::Disjoint, tables, self.shape.largest)
    }

    /// Moves the largest level down if the tree should have more levels for what it holds, or if the levels below it are empty.
    pub(super) fn add_level(&self) -> Option<Plan> {
        let depth = self.tree.depth();
        let wanted = self.shape.levels_for(self.tree.bytes(self.shape.largest));
        let target = match self.shape.largest {
            largest if depth >= 2 && depth < largest => largest,
            largest if wanted > largest => wanted,
            _ => return None,
        };
        Plan::moving_level(self.tree, depth, target)
    }

    /// Moves the runs of a level above the tiered one down to it: that was the tiered level before the tree got a level more.
    pub(super) fn move_to_tiered(&self) -> Option<Plan> {
        let (tree, tiered) = (self.tree, self.shape.tiered);
        let level = (2..tiered).rev().find(|level| !tree.runs_in(*level..level + 1).is_empty())?;
        let has_runs = tree.runs_in(level..level + 1).len() > 1;
        has_runs.then(|| Plan::moving_level(tree, level, tiered)).flatten()
    }

    /// Merges the largest level into the one above if the tree holds so little that it needs one level less.
    pub(super) fn remove_level(&self) -> Option<Plan> {
        let tree = self.tree;
        let (largest, above) = (self.shape.largest, self.shape.largest - 1);
        let total = tree.bytes_in(1..largest + 1);
        if above < 2
            || above < self.settings.min_levels
            || tree.depth() < largest
            || self.shape.levels_for(total.saturating_mul(2)) > above
        {
            return None;
        }
        let inputs = tree.tables().filter(|(level, _)| *level >= above);
        if tree.runs_in(above..largest).is_empty() {
            let is_busy = !tree.busy.is_empty() || tree.level(largest).any(|t| t.taken);
            return if is_busy { None } else { Plan::moving(tree, Cause::Levels, inputs, above) };
        }
        let plan = Plan::new(tree, (PlanKind::Full, Cause::Levels), inputs, above)?;
        Some(Plan { bottom: true, ..plan })
    }

    /// Returns true if a table may hold older versions of keys of `table`, which is in `run`.
    fn hides(&self, run: usize, table: &TableView<'_>) -> bool {
        let older = |t: &&TableView<'_>| t.max_seq < table.max_seq && t.id != table.id;
        let mut beside = self.tree.flushed().iter().filter(older);
        self.tree.is_met(run + 1..self.tree.runs.len(), table.range())
            || run == 0 && beside.any(|t| self.tree.ranges_meet(t.range(), table.range()))
    }
}

/// Entries that a merge may read to remove `dead` ones.
fn worth(dead: u64) -> u64 {
    dead.saturating_mul(DEAD_SHARE)
}

/// Those of `tables` that overlap no other of them.
fn lone<'t, 'a>(tree: &Tree<'a>, tables: &'t [TableView<'a>]) -> Vec<&'t TableView<'a>> {
    let mut sorted: Vec<_> = tables.iter().collect();
    order::sort_by(&mut sorted, |a, b| tree.compare(a.smallest, b.smallest));
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

fn is_expired(tree: &Tree<'_>, t: &TableView<'_>) -> bool {
    t.expires != 0 && t.expires <= tree.now && t.max_seq <= tree.floor
}

fn tombstones(tables: &[TableView<'_>]) -> u64 {
    tables.iter().map(|t| t.tombstones).fold(0, u64::saturating_add)
}

fn entries(tables: &[TableView<'_>]) -> u64 {
    tables.iter().map(|t| t.entries).fold(0, u64::saturating_add)
}
