//! Merges of the lower levels, one partition at a time.

use std::borrow::Cow;
use std::ops::Range;

use super::super::division::Division;
use super::super::picture::{TableView, Tree, sum_bytes};
use super::super::plan::{Cause, Plan, PlanKind};
use super::super::settings::PolicySettings;
use super::super::shape::Shape;
use super::upper::owned;

/// Added to the fill of a partition that has a run in each dividing level: the dividing levels never hold a million times what the largest
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
}

/// The fullest level from the dividing ones, which count as one, to the one above the largest; from a share of 1 on a partition is drained.
/// What running jobs drain does not count.
pub(super) fn fullest_level(tree: &Tree<'_>, shape: &Shape) -> Option<Fill> {
    let of = |level: u8| {
        let tables = levels(shape, level).flat_map(|level| tree.level(level));
        let (bytes, wanted) = (sum_bytes(tables.filter(|t| !t.taken)), wanted(tree, shape, level));
        Fill { level, share: bytes as f64 / wanted.max(1) as f64, excess: bytes.saturating_sub(wanted) }
    };
    (shape.dividing..shape.largest).map(of).max_by(|a, b| a.share.total_cmp(&b.share))
}

/// `level`; all dividing levels for the last of them.
fn levels(shape: &Shape, level: u8) -> Range<u8> {
    if level == shape.dividing { shape.top..level + 1 } else { level..level + 1 }
}

/// What `level` holds, one of those above the largest that are drained in partitions; the last dividing level stands for all of them.
pub(super) fn held(tree: &Tree<'_>, shape: &Shape, level: u8) -> u64 {
    tree.bytes_in(levels(shape, level))
}

/// What `level` should hold, one of those above the largest that are drained in partitions; the last dividing level stands for all of them.
/// They should have room for more runs, or a merge of level 1 would have to write the newest run again: no partition should have a run in each
/// of them. And partitions are drained in turn, so half of the levels should be empty in the average partition.
pub(super) fn wanted(tree: &Tree<'_>, shape: &Shape, level: u8) -> u64 {
    if level != shape.dividing {
        return shape.capacity(level);
    }
    let most = shape.dividing_bytes();
    if shape.runs() == 1 {
        return most;
    }
    let all = Partitions::new(tree, shape.top..shape.largest + 1);
    let upper = shape.runs() as usize;
    let (mut keys, mut runs, mut full) = (0_u128, 0_u128, 0_u64);
    for at in 0..all.len() {
        let weight = u128::from(all.bytes(all.levels.len() - 1, at..at + 1)) + 1; // the more keys, the more it counts
        let here = all.runs(at, upper);
        keys += weight;
        runs += weight * here as u128;
        if here == upper {
            full += (0..upper).map(|index| all.bytes(index, at..at + 1)).sum::<u64>();
        }
    }
    let held = held(tree, shape, level);
    let half = keys * u128::from(shape.runs()) / 2;
    let by_runs = if runs <= half { most } else { (held as f64 * (half as f64 / runs as f64)) as u64 };
    let by_full = if full == 0 { most } else { held.saturating_sub(full) + 1 };
    most.min(by_runs).min(by_full)
}

/// Drains the fullest free partition of `level`, one with a run in each dividing level first, into the first level that has room for its
/// share. Leaves out what is more than `settings.merge_bytes_max`.
pub(super) fn plan(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings, level: u8) -> Option<Plan> {
    let drained = levels(shape, level);
    let all = Partitions::new(tree, drained.start..shape.largest + 1);
    let mut fills: Vec<f64> = (0..all.len()).map(|at| all.fill(at, drained.len())).collect();
    if drained.len() > 1 {
        let is_full = |at: usize| all.runs(at, drained.len()) == drained.len();
        let first = |(at, fill): (usize, &mut f64)| {
            *fill += if *fill > 0.0 && is_full(at) { FULL_FIRST } else { 0.0 }
        };
        fills.iter_mut().enumerate().for_each(first);
    }
    fullest(tree, shape, settings, &all, &fills, Cause::Capacity)
}

/// Merges all levels from the dividing level on in the fullest free partition, if they hold at least `share` of what the largest level
/// holds there, and no reader needs an older version.
pub(super) fn leftovers(
    tree: &Tree<'_>,
    shape: &Shape,
    settings: &PolicySettings,
    share: f64,
) -> Option<Plan> {
    let all = Partitions::new(tree, shape.top..shape.largest + 1);
    let upper = all.levels.len() - 1;
    let is_read = |at| {
        let tables = (0..upper).flat_map(|index| all.tables(index, at..at + 1));
        tables.into_iter().any(|t| t.max_seq > tree.floor)
    };
    let fill = |at| match all.fill(at, upper) {
        fill if fill >= share && !is_read(at) => fill,
        _ => 0.0,
    };
    let fills: Vec<f64> = (0..all.len()).map(fill).collect();
    fullest(tree, shape, settings, &all, &fills, Cause::Idle)
}

/// Merges the partition with the highest of `fills` that can be merged now; a partition without fill is left alone.
fn fullest(
    tree: &Tree<'_>,
    shape: &Shape,
    settings: &PolicySettings,
    all: &Partitions<'_, '_>,
    fills: &[f64],
    cause: Cause,
) -> Option<Plan> {
    let bytes_max = shape.partition_bytes().min(settings.merge_bytes_max);
    let mut order: Vec<usize> = (0..all.len()).filter(|&at| fills[at] > 0.0).collect();
    order.sort_by(|&a, &b| fills[b].total_cmp(&fills[a]));
    let merged = |at| merge(tree, shape, settings, all, all.widened(at, fills, bytes_max), cause);
    order.into_iter().find_map(merged)
}

/// Keys that divide the largest level into partitions of about [`Shape::partition_bytes`], and that no table of the levels
/// from `from` on spans.
pub(super) fn boundaries<'a>(tree: &Tree<'a>, shape: &Shape, mut from: u8) -> Vec<&'a [u8]> {
    while from > shape.top && tree.level(from - 1).is_empty() {
        from -= 1; // an empty level divides nothing: so this is the division that the plan has made before
    }
    let all = Partitions::new(tree, from..shape.largest + 1);
    let (mut keys, mut bytes) = (Vec::new(), 0u64);
    for at in 0..all.len() {
        let largest = all.tables(all.levels.len() - 1, at..at + 1);
        if bytes >= shape.partition_bytes()
            && let Some(first) = largest.first()
        {
            keys.push(first.smallest);
            bytes = 0;
        }
        bytes = bytes.saturating_add(sum_bytes(largest));
    }
    keys
}

/// Some levels, of which the last is the largest level, and where they divide into partitions.
struct Partitions<'t, 'a> {
    levels: Vec<&'t [TableView<'a>]>,
    division: Cow<'t, Division>,
}

impl<'t, 'a> Partitions<'t, 'a> {
    fn new(tree: &'t Tree<'a>, levels: Range<u8>) -> Self {
        let division = Division::of(tree, levels.clone());
        Self { levels: levels.map(|level| tree.level(level)).collect(), division }
    }

    fn len(&self) -> usize {
        self.division.partitions()
    }

    /// Tables of the level at `index`, in some neighbouring partitions.
    fn tables(&self, index: usize, partitions: Range<usize>) -> &'t [TableView<'a>] {
        &self.levels[index][self.division.tables(index, partitions)]
    }

    fn bytes(&self, index: usize, partitions: Range<usize>) -> u64 {
        sum_bytes(self.tables(index, partitions))
    }

    /// Number of the first `upper` levels that hold something in a partition.
    fn runs(&self, at: usize, upper: usize) -> usize {
        if self.division.is_bare(at) {
            return 0;
        }
        (0..upper).filter(|index| !self.tables(*index, at..at + 1).is_empty()).count()
    }

    /// Bytes of the first `upper` levels for each byte of the largest; 0 if a running job uses the partition.
    fn fill(&self, at: usize, upper: usize) -> f64 {
        if self.division.is_bare(at) {
            return 0.0;
        }
        let top: u64 = (0..upper).map(|index| self.bytes(index, at..at + 1)).sum();
        let is_taken = |index| self.tables(index, at..at + 1).iter().any(|t| t.taken);
        if top == 0 || (0..self.levels.len()).any(is_taken) {
            return 0.0;
        }
        top as f64 / self.bytes(self.levels.len() - 1, at..at + 1).max(1) as f64
    }

    /// The partition at `at`, with neighbours that are at least half as full, up to `bytes_max`.
    fn widened(&self, at: usize, fills: &[f64], bytes_max: u64) -> Range<usize> {
        let bytes =
            |at: usize| (0..self.levels.len()).map(|index| self.bytes(index, at..at + 1)).sum::<u64>();
        let mut size = bytes(at);
        let mut joins = |next: &usize| {
            size = size.saturating_add(bytes(*next));
            fills[*next] >= fills[at] / 2.0 && size <= bytes_max
        };
        let after = (at + 1..self.len()).take_while(&mut joins).count();
        let before = (0..at).rev().take_while(&mut joins).count();
        at - before..at + 1 + after
    }
}

/// Merges some neighbouring partitions down to the first level whose share of them has room for all above; on an idle database, down to
/// the largest level. `None` if that is more than `settings.merge_bytes_max`.
fn merge(
    tree: &Tree<'_>,
    shape: &Shape,
    settings: &PolicySettings,
    all: &Partitions<'_, '_>,
    partitions: Range<usize>,
    cause: Cause,
) -> Option<Plan> {
    let largest = all.bytes(all.levels.len() - 1, partitions.clone());
    let mut sum = 0;
    let target = (0..all.levels.len()).zip(all.division.levels.start..).find_map(|(index, level)| {
        sum += all.bytes(index, partitions.clone());
        if level <= shape.dividing || index == 0 {
            return None; // it is drained
        }
        let fits = level == shape.largest || cause != Cause::Idle && sum <= shape.share(largest, level);
        fits.then_some(level)
    })?;
    let levels = (0..all.levels.len()).zip(all.division.levels.start..target + 1);
    let inputs: Vec<_> = levels
        .flat_map(|(index, level)| all.tables(index, partitions.clone()).iter().map(move |t| (level, t)))
        .collect();
    if inputs.iter().all(|(level, _)| *level == inputs[0].0) {
        return Plan::moving(tree, cause, inputs, target);
    }
    if sum > settings.merge_bytes_max {
        return None;
    }
    let range = tree.hull(inputs.iter().map(|(_, t)| *t))?;
    let mut plan = Plan::new(tree, (PlanKind::Partitioned, cause), inputs, target)?;
    if target < shape.largest {
        let mut cuts = boundaries(tree, shape, target + 1);
        cuts.retain(|key| tree.compare(key, range.0).is_gt() && tree.compare(key, range.1).is_le());
        plan.cuts = owned(cuts);
    }
    Some(plan)
}
