//! Merges of the upper levels: full preemptive, and those that add a run to the tiered level.

use super::super::plan::{Cause, Plan, PlanKind};
use super::super::tree::sum_bytes;
use super::{Planner, owned};
use crate::order;

/// Approximate number of stretches into which the guards of a full merge divide the largest level.
const GUARDS: usize = 16;

impl<'a> Planner<'_, 'a> {
    /// How urgent a merge of level 1 is; from 1 on it is due.
    pub(super) fn upper_debt(&self) -> f64 {
        let tables = self.tree.flushed().len();
        let by_count = tables as f64 / self.settings.l1_tables_trigger.max(1) as f64;
        let by_bytes = self.tree.bytes(1) as f64 / self.settings.base_bytes() as f64;
        by_count.max(by_bytes)
    }

    /// Returns true if a job merges tables of level 1.
    pub(super) fn is_upper_running(&self) -> bool {
        self.tree.flushed().iter().any(|table| table.taken)
    }

    /// Merges level 1, and as many levels below it as the target needs; if that is more than `merge_bytes_max`, the oldest tables
    /// of level 1 only. `None` while running jobs are in the way.
    pub(super) fn merge_upper(&self, cause: Cause) -> Option<Plan> {
        for newer in 0..self.tree.flushed().len() {
            let (plan, bytes) = self.merge_oldest(cause, newer)?;
            if bytes <= self.settings.merge_bytes_max {
                return Some(plan);
            }
        }
        None
    }

    /// Merges all but the first `newer` tables of level 1. Also returns the bytes of the inputs.
    fn merge_oldest(&self, cause: Cause, newer: usize) -> Option<(Plan, u64)> {
        let (tree, shape, target) = (self.tree, &self.shape, self.target());
        let tiers = target == shape.tiered && target < shape.largest;
        let kind = if tiers { PlanKind::Tiered } else { PlanKind::Full };
        let mut inputs: Vec<_> = tree.tables().skip(newer).take_while(|(level, _)| *level < target).collect();
        // The tables of the target level that are merged too: of the tiered level only those beyond the runs that it may have.
        let runs = tree.runs_in(target..target + 1);
        let stay = if tiers { shape.runs_max as usize - 1 } else { 0 };
        let merged = runs.start..runs.end.saturating_sub(stay).max(runs.start);
        let stays = merged.end < runs.end;
        let above = inputs.len();
        let mut spared = Vec::new();
        for run in merged.rev() {
            // Oldest first: what is merged must not get above newer data.
            let spans = tree.union(inputs.iter().map(|(_, table)| *table));
            let tables = tree.runs[run].tables.iter();
            let (met, rest): (Vec<_>, Vec<_>) = tables.partition(|t| tree.meets_one_of(&spans, t.range()));
            inputs.splice(above..above, met.into_iter().map(|t| (target, t)));
            spared.extend(rest.into_iter().map(|t| t.smallest));
        }
        let bytes = sum_bytes(inputs.iter().map(|(_, t)| *t));
        let range = tree.hull(inputs.iter().map(|(_, t)| *t))?;
        let mut plan = Plan::new(tree, (kind, cause), inputs, target)?;
        // Tables of these runs that overlap no input stay, so no output may span one.
        let mut cuts: Vec<&[u8]> = spared;
        if tiers {
            cuts.extend(if stays { self.cuts() } else { self.boundaries(target + 1) });
        } else if target < shape.largest {
            plan.guards = owned(self.guards());
        }
        cuts.retain(|key| tree.compare(key, range.0).is_gt() && tree.compare(key, range.1).is_le());
        order::sort_by(&mut cuts, |a, b| tree.compare(a, b));
        cuts.dedup();
        plan.cuts = owned(cuts);
        Some((plan, bytes))
    }

    /// The first level that has room for all above it and itself; at most the tiered level. A small tree is merged whole.
    fn target(&self) -> u8 {
        let (tree, shape) = (self.tree, &self.shape);
        let largest = tree.bytes(shape.largest);
        if largest <= tree.bytes_in(1..shape.largest) && largest <= shape.holds(2).saturating_mul(2) {
            return shape.largest;
        }
        let fits = |level: &u8| tree.bytes_in(1..level + 1) <= shape.capacity(*level);
        (2..shape.tiered).find(fits).unwrap_or(shape.tiered)
    }

    /// Keys of the largest level that a table of a full merge need not span: if it has nothing between two of them, it ends.
    fn guards(&self) -> Vec<&'a [u8]> {
        let tables: Vec<_> = self.tree.level(self.shape.largest).collect();
        tables.iter().step_by(tables.len().div_ceil(GUARDS).max(1)).map(|t| t.smallest).collect()
    }
}
