//! Arranges the tables of a level into sorted runs.
//!
//! The manifest numbers the generations of a level. Tables of one generation are disjoint. If two tables overlap, the one with the higher
//! generation has the newer data. A run is not a generation: each table is in the oldest run in which it overlaps nothing and below which
//! all older tables are that it overlaps. So a level has no more runs than tables overlap each other in one place, whatever merges wrote
//! them, and a table moves to an older run when those below it are removed, without a change of the manifest.

use std::sync::Arc;

use super::run::{Run, TableSlot};
use crate::order;
use crate::types::{Comparator, TableId};
use crate::{Error, Result};

/// A table that belongs in the level.
pub(super) struct Placed<T> {
    pub(super) generation: u32,
    pub(super) slot: Arc<TableSlot<T>>,
}

/// Returns the runs of `level`, newest first, that `runs` become without `gone` and with `new`. `generation` returns the generation of
/// a table that stays. The cost depends on what changes: all other runs, and all other chunks of a run, are shared.
///
/// # Errors
/// `Internal`: a table of `gone` is not in the level.
pub(super) fn rearranged<T>(
    order: &Comparator,
    level: u8,
    runs: &[Arc<Run<T>>],
    (gone, new): (&[&Arc<TableSlot<T>>], Vec<Placed<T>>),
    generation: impl Fn(TableId) -> u32,
) -> Result<Vec<Arc<Run<T>>>> {
    let mut runs: Vec<Arc<Run<T>>> = runs.iter().rev().cloned().collect(); // oldest first
    for slot in gone {
        let from = runs.iter().position(|run| run.table(order, slot.meta()).is_some());
        let from =
            from.ok_or_else(|| Error::internal(format!("table {} is not in level {level}", slot.id().0)))?;
        Arc::make_mut(&mut runs[from]).remove(order, slot.meta());
    }
    // Tables above those that went may sink, but never rise: each with the number of runs that it may be in.
    let mut moved: Vec<(Placed<T>, usize)> = Vec::new();
    for (at, run) in runs.iter_mut().enumerate().skip(1) {
        let above = |slot: &Arc<TableSlot<T>>| gone.iter().any(|gone| slot.overlaps(order, gone));
        for slot in run.tables().filter(|slot| above(slot)).cloned().collect::<Vec<_>>() {
            Arc::make_mut(run).remove(order, slot.meta());
            moved.push((Placed { generation: generation(slot.id()), slot }, at + 1));
        }
    }
    moved.extend(new.into_iter().map(|placed| (placed, usize::MAX)));
    order::sort_by_key(&mut moved, |(placed, _)| placed.generation);
    for (Placed { slot, .. }, most) in moved {
        let is_below = |run: &Arc<Run<T>>| level > 1 && run.overlaps(order, slot.meta());
        let at = runs.iter().take(most).rposition(is_below).map_or(0, |below| below + 1);
        if at == runs.len() {
            runs.push(Arc::new(Run::empty(level)));
        }
        Arc::make_mut(&mut runs[at]).insert(order, slot);
    }
    runs.retain(|run| !run.is_empty());
    for run in runs.iter_mut().filter(|run| !run.is_indexed()) {
        Arc::make_mut(run).index(order);
    }
    runs.reverse();
    Ok(runs)
}
