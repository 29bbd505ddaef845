//! Merges of the lower levels, one partition at a time.

use std::cmp::Ordering;
use std::ops::Range;

use super::super::picture::{TableView, Tree, sum_bytes};
use super::super::plan::{Cause, Plan, PlanKind};
use super::super::shape::Shape;
use super::upper::owned;

/// The fullest level from the dividing level to the one above the largest, with its debt; from 1 on a partition is drained.
pub(super) fn debt(tree: &Tree<'_>, shape: &Shape) -> (u8, f64) {
    let of = |level: u8| {
        let capacity = shape.capacity(level) as f64;
        // Partitions of the dividing level are drained in turn, so that each is half full on average.
        let wanted = if level == shape.dividing { capacity / 2.0 } else { capacity };
        (level, tree.bytes(level) as f64 / wanted)
    };
    let levels = (shape.dividing..shape.largest).map(of);
    levels.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((shape.dividing, 0.0))
}

/// Drains the fullest free partition of `level` into the first level that has room for its share.
pub(super) fn plan(tree: &Tree<'_>, shape: &Shape, level: u8) -> Option<Plan> {
    let all = partitions(tree, level..shape.largest + 1);
    let mut order: Vec<usize> = (0..all.len()).filter(|&at| all[at].is_drainable()).collect();
    order.sort_by(|&a, &b| all[b].fill().total_cmp(&all[a].fill()));
    order.into_iter().find_map(|at| merge(tree, shape, &widened(&all, at, shape.partition_bytes())))
}

/// Keys that divide the largest level into partitions of about [`Shape::partition_bytes`], and that no table of the levels
/// from `from` on spans.
pub(super) fn boundaries<'a>(tree: &Tree<'a>, shape: &Shape, from: u8) -> Vec<&'a [u8]> {
    let tables = tree.level(shape.largest);
    let (mut keys, mut bytes) = (Vec::new(), 0u64);
    for partition in partitions(tree, from..shape.largest + 1) {
        if bytes >= shape.partition_bytes()
            && let Some(first) = tables.get(partition.tables.last().map_or(0, |range| range.start))
        {
            keys.push(first.smallest);
            bytes = 0;
        }
        bytes = bytes.saturating_add(partition.largest_bytes());
    }
    keys
}

/// Tables of some levels between two keys that no table of these levels spans.
#[derive(Clone, Debug)]
struct Partition {
    first_level: u8,
    /// Indices of its tables in each level, the largest level last.
    tables: Vec<Range<usize>>,
    /// Their bytes.
    bytes: Vec<u64>,
    taken: bool,
}

impl Partition {
    fn largest_bytes(&self) -> u64 {
        self.bytes.last().copied().unwrap_or(0)
    }

    fn top_bytes(&self) -> u64 {
        self.bytes.first().copied().unwrap_or(0)
    }

    fn is_drainable(&self) -> bool {
        self.top_bytes() > 0 && !self.taken
    }

    /// Bytes of its first level for each byte of the largest.
    fn fill(&self) -> f64 {
        self.top_bytes() as f64 / self.largest_bytes().max(1) as f64
    }
}

/// Divides `levels`, of which the last is the largest level, at every key where a table of the largest level begins and that
/// no table spans.
fn partitions(tree: &Tree<'_>, levels: Range<u8>) -> Vec<Partition> {
    let first_level = levels.start;
    let levels: Vec<&[TableView<'_>]> = levels.map(|level| tree.level(level)).collect();
    let Some((largest, upper)) = levels.split_last() else { return Vec::new() };
    let (mut at, mut found) = (vec![0; levels.len()], Vec::new());
    let mut from = at.clone();
    let partition = |from: &[usize], to: &[usize]| {
        let tables: Vec<Range<usize>> = from.iter().zip(to).map(|(a, b)| *a..*b).collect();
        let slices = || levels.iter().zip(&tables).map(|(all, range)| &all[range.clone()]);
        let bytes = slices().map(sum_bytes).collect();
        let taken = slices().any(|tables| tables.iter().any(|t| t.taken));
        Partition { first_level, tables, bytes, taken }
    };
    for (index, table) in largest.iter().enumerate().skip(1) {
        let mut is_spanned = false;
        for (tables, at) in upper.iter().zip(&mut at) {
            let ended = |t: &&TableView<'_>| tree.compare(t.largest, table.smallest) == Ordering::Less;
            *at += tables[*at..].iter().take_while(ended).count();
            is_spanned |= tables.get(*at).is_some_and(|t| tree.compare(t.smallest, table.smallest).is_lt());
        }
        if !is_spanned {
            at[upper.len()] = index;
            found.push(partition(&from, &at));
            from.clone_from(&at);
        }
    }
    let ends: Vec<usize> = levels.iter().map(|tables| tables.len()).collect();
    found.push(partition(&from, &ends));
    found
}

/// The partition at `at`, with its neighbours if it is small and they are half as full.
fn widened(all: &[Partition], at: usize, bytes_max: u64) -> Partition {
    let mut wide = all[at].clone();
    let least = wide.fill() / 2.0;
    let mut size: u64 = wide.bytes.iter().sum();
    let mut join = |wide: &mut Partition, next: &Partition| {
        size = size.saturating_add(next.bytes.iter().sum());
        let joins = next.is_drainable() && next.fill() >= least && size <= bytes_max;
        if joins {
            for (range, more) in wide.tables.iter_mut().zip(&next.tables) {
                *range = range.start.min(more.start)..range.end.max(more.end);
            }
            wide.bytes.iter_mut().zip(&next.bytes).for_each(|(sum, more)| *sum += more);
        }
        joins
    };
    let _after = all[at + 1..].iter().take_while(|next| join(&mut wide, next)).count();
    let _before = all[..at].iter().rev().take_while(|next| join(&mut wide, next)).count();
    wide
}

/// Merges `partition` down to the first level whose share of it has room for all above.
fn merge(tree: &Tree<'_>, shape: &Shape, partition: &Partition) -> Option<Plan> {
    let mut sum = partition.top_bytes();
    let deeper = (partition.first_level + 1..).zip(&partition.bytes[1..]);
    let target = deeper.into_iter().find_map(|(level, bytes)| {
        sum += bytes;
        let fits = level == shape.largest || sum <= shape.share(partition.largest_bytes(), level);
        fits.then_some(level)
    })?;
    let ranges = (partition.first_level..target + 1).zip(&partition.tables);
    let inputs: Vec<_> = ranges
        .flat_map(|(level, range)| tree.level(level)[range.clone()].iter().map(move |t| (level, t)))
        .collect();
    if inputs.iter().all(|(level, _)| *level == partition.first_level) {
        return Plan::moving(tree, Cause::Capacity, inputs, target);
    }
    let range = tree.hull(inputs.iter().map(|(_, t)| *t))?;
    let mut plan = Plan::new(tree, (PlanKind::Partitioned, Cause::Capacity), inputs, target)?;
    if target < shape.largest {
        let mut cuts = boundaries(tree, shape, target + 1);
        cuts.retain(|key| tree.compare(key, range.0).is_gt() && tree.compare(key, range.1).is_le());
        plan.cuts = owned(cuts);
    }
    Some(plan)
}
