//! Merges of the lower levels, one partition at a time.

use std::ops::Range;

use super::super::partitions::Partitions;
use super::super::plan::{Cause, Plan, PlanKind};
use super::super::shape::Shape;
use super::super::tree::sum_bytes;
use super::{Planner, owned};
use crate::order;

/// Added to the fill of a partition that has as many runs as it may have: the tiered level never holds a million times what the largest
/// level holds.
const FULL_FIRST: f64 = 1e6;

/// How full a level is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) level: u8,
    /// What it holds / what it should hold.
    pub(super) share: f64,
    /// Bytes that it holds beyond what it should hold.
    pub(super) excess: u64,
    /// As much as writers pay for: see [`Planner::wanted_now`].
    pub(super) excess_now: u64,
}

impl<'a> Planner<'_, 'a> {
    /// The fullest level from the tiered one to the one above the largest; from a share of 1 on a partition is drained.
    /// Tables that running jobs drain are left out.
    pub(super) fn fullest_level(&self) -> Option<Fill> {
        let of = |level: u8| {
            let bytes = sum_bytes(self.tree.level(level).filter(|t| !t.taken));
            let [wanted, now] = self.wanted_and_now(level);
            let share = bytes as f64 / wanted.max(1) as f64;
            Fill { level, share, excess: bytes.saturating_sub(wanted), excess_now: bytes.saturating_sub(now) }
        };
        let levels = self.shape.tiered..self.shape.largest;
        levels.map(of).max_by(|a, b| a.share.total_cmp(&b.share))
    }

    /// Returns the bytes that `level`, which is drained in partitions, should hold. The tiered level should have room for more runs, or a
    /// merge of level 1 would have to write the newest run again: no partition should have as many as it may have. And partitions are
    /// drained in turn, so the average partition should have half as many.
    pub(super) fn wanted(&self, level: u8) -> u64 {
        self.wanted_and_now(level)[0]
    }

    /// As [`Planner::wanted`], but of the partitions that have as many runs as they may have, about one counts. With small runs, one merge of
    /// level 1 can make a third of them so: writers would pay for all at once, and stand still for seconds.
    pub(super) fn wanted_now(&self, level: u8) -> u64 {
        self.wanted_and_now(level)[1]
    }

    fn wanted_and_now(&self, level: u8) -> [u64; 2] {
        let Shape { tiered, largest, runs_max, .. } = self.shape;
        let most = self.shape.tiered_bytes();
        match level {
            _ if level != tiered => return [self.shape.capacity(level); 2],
            _ if runs_max == 1 || tiered >= largest => return [most; 2],
            _ => {}
        }
        let all = self.partitions(tiered);
        let upper = self.tree.runs_in(tiered..tiered + 1).len();
        let (mut keys, mut runs, mut full) = (0_u128, 0_u128, 0_u64);
        for at in 0..all.len() {
            let weight = u128::from(all.bytes(all.last(), at..at + 1)) + 1; // the more keys, the more it counts
            let here = all.runs(at, upper);
            keys += weight;
            runs += weight * here as u128;
            if here as u64 >= runs_max {
                full += (0..upper).map(|run| all.bytes(run, at..at + 1)).sum::<u64>();
            }
        }
        let held = self.tree.bytes(tiered);
        let half = keys * u128::from(runs_max) / 2;
        let by_runs = if runs <= half { most } else { (held as f64 * (half as f64 / runs as f64)) as u64 };
        let by_full = |full: u64| if full == 0 { most } else { held.saturating_sub(full) + 1 };
        [full, full.min(self.shape.partition_bytes())].map(|full| most.min(by_runs).min(by_full(full)))
    }

    /// Drains the fullest free partition of `level`, one with as many runs as it may have first, into the first level that has room for its
    /// share. Leaves out what is more than `merge_bytes_max`.
    pub(super) fn drain(&self, level: u8) -> Option<Plan> {
        let all = self.partitions(level);
        let drained = self.tree.runs_in(level..level + 1).len();
        let is_full = |at| drained > 1 && all.runs(at, drained) as u64 >= self.shape.runs_max;
        let fill = |at| match all.fill(at, drained) {
            fill if fill > 0.0 && is_full(at) => fill + FULL_FIRST,
            fill => fill,
        };
        let fills: Vec<f64> = (0..all.len()).map(fill).collect();
        self.fullest(&all, &fills, Cause::Capacity)
    }

    /// Merges all levels from the tiered level on in the fullest free partition, if they hold at least `share` of what the largest level
    /// holds there, and no reader needs an older version.
    pub(super) fn leftovers(&self, share: f64) -> Option<Plan> {
        let all = self.partitions(self.shape.tiered);
        let upper = all.last();
        let is_read =
            |at| (0..upper).flat_map(|run| all.tables(run, at..at + 1)).any(|t| t.max_seq > self.tree.floor);
        let fill = |at| match all.fill(at, upper) {
            fill if fill >= share && !is_read(at) => fill,
            _ => 0.0,
        };
        let fills: Vec<f64> = (0..all.len()).map(fill).collect();
        self.fullest(&all, &fills, Cause::Idle)
    }

    /// Merges the partition with the highest of `fills` that can be merged now; a partition without fill is left alone.
    fn fullest(&self, all: &Partitions<'_, 'a>, fills: &[f64], cause: Cause) -> Option<Plan> {
        let bytes_max = self.shape.partition_bytes().min(self.settings.merge_bytes_max);
        let mut order: Vec<usize> = (0..all.len()).filter(|&at| fills[at] > 0.0).collect();
        order::sort_by(&mut order, |&a, &b| fills[b].total_cmp(&fills[a]));
        order.into_iter().find_map(|at| self.merge_partitions(all, all.widened(at, fills, bytes_max), cause))
    }

    /// Keys that divide the largest level into partitions of about [`Shape::partition_bytes`], and that no table of the levels
    /// from `from` on spans.
    pub(super) fn boundaries(&self, from: u8) -> Vec<&'a [u8]> {
        let all = self.partitions(from);
        self.divided(&all, &all)
    }

    /// Keys at which a run that is added to the tiered level is cut. It must not span the ends of partitions, or these would become one. A
    /// partition of more than [`Shape::partition_bytes`] is cut inside too, as if the tiered level was empty: once the runs that span these
    /// keys are drained, it is several.
    pub(super) fn cuts(&self) -> Vec<&'a [u8]> {
        self.divided(&self.partitions(self.shape.tiered + 1), &self.partitions(self.shape.tiered))
    }

    /// Where partitions of `all` begin, [`Shape::partition_bytes`] apart or more, counted anew from each of these that is in `ends` too: those
    /// are chosen by their distance from each other alone.
    fn divided(&self, all: &Partitions<'_, 'a>, ends: &Partitions<'_, 'a>) -> Vec<&'a [u8]> {
        let mut ends = (1..ends.len()).map(|at| ends.begins(at)).peekable();
        let bytes_min = self.shape.partition_bytes();
        let (mut keys, mut since_end, mut since_key) = (Vec::new(), 0u64, 0u64);
        for at in 0..all.len() {
            let tables = all.tables(all.last(), at..at + 1);
            let is_end = ends.next_if_eq(&all.begins(at)).is_some() && since_end >= bytes_min;
            if is_end {
                since_end = 0;
            }
            if let Some(first) = tables.first().filter(|_| is_end || since_key >= bytes_min) {
                keys.push(first.smallest);
                since_key = 0;
            }
            since_end = since_end.saturating_add(sum_bytes(tables));
            since_key = since_key.saturating_add(sum_bytes(tables));
        }
        keys
    }

    /// Merges some neighbouring partitions down to the first level whose share of them has room for all above; on an idle database, down to
    /// the largest level. `None` if that is more than `merge_bytes_max`.
    fn merge_partitions(
        &self,
        all: &Partitions<'_, 'a>,
        partitions: Range<usize>,
        cause: Cause,
    ) -> Option<Plan> {
        let Shape { tiered, largest, .. } = self.shape;
        let below = all.bytes(all.last(), partitions.clone());
        let runs: Vec<_> = all.levels().enumerate().collect();
        let (mut sum, first) = (0, runs[0].1);
        let target = (first..=largest).find(|level| {
            let of_level = runs.iter().filter(|(_, at)| at == level);
            sum += of_level.map(|(run, _)| all.bytes(*run, partitions.clone())).sum::<u64>();
            let is_drained = *level <= tiered || *level == first;
            let fits = *level == largest || cause != Cause::Idle && sum <= self.shape.share(below, *level);
            !is_drained && fits
        })?;
        let merged = runs.iter().filter(|(_, level)| *level <= target);
        let merged = merged.map(|(run, level)| (*level, all.tables(*run, partitions.clone())));
        let merged: Vec<_> = merged.filter(|(_, tables)| !tables.is_empty()).collect();
        let inputs = merged.iter().flat_map(|(level, tables)| tables.iter().map(|t| (*level, t)));
        if merged.len() == 1 {
            return Plan::moving(self.tree, cause, inputs, target);
        }
        if sum > self.settings.merge_bytes_max {
            return None;
        }
        let range = self.tree.hull(inputs.clone().map(|(_, t)| t))?;
        let mut plan = Plan::new(self.tree, (PlanKind::Partitioned, cause), inputs, target)?;
        // In the largest level the cuts are kept: a run that is added meanwhile has them too.
        let mut cuts = if target < largest { self.boundaries(target + 1) } else { self.cuts() };
        cuts.retain(|key| self.tree.compare(key, range.0).is_gt() && self.tree.compare(key, range.1).is_le());
        plan.cuts = owned(cuts);
        Some(plan)
    }
}
