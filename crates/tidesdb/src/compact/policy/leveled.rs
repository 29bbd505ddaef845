//! Leveled compaction with partial merges, as LevelDB and RocksDB do it.
//!
//! Level 1 is merged with what it overlaps in level 2. A deeper level over its capacity hands one table to the next level,
//! merged with what it overlaps there: the table with the least overlap for its size. Capacities and the number of levels are
//! those of [`Shape`], as with dynamic level sizes.

use super::CompactionPolicy;
use super::picture::{Tree, sum_bytes};
use super::plan::{Cause, Plan, PlanKind};
use super::settings::PolicySettings;
use super::shape::Shape;
use super::spooky::{add_level, drop_expired, upper_debt};

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leveled;

impl CompactionPolicy for Leveled {
    fn pick(&self, tree: &Tree<'_>, settings: &PolicySettings) -> Option<Plan> {
        let shape = Shape::of(tree, settings);
        if let Some(plan) = drop_expired(tree).or_else(|| add_level(tree, &shape)) {
            return Some(plan);
        }
        let mut debts = vec![(1, upper_debt(tree, settings))];
        debts.extend(
            (2..shape.largest).map(|level| (level, tree.bytes(level) as f64 / shape.capacity(level) as f64)),
        );
        debts.retain(|(_, debt)| *debt >= 1.0);
        debts.sort_by(|a, b| b.1.total_cmp(&a.1));
        debts
            .into_iter()
            .find_map(|(level, _)| if level == 1 { flushed(tree) } else { one_table(tree, level) })
    }
}

/// Merges level 1 with what it overlaps in level 2, or moves it there.
fn flushed(tree: &Tree<'_>) -> Option<Plan> {
    let tables = tree.level(1);
    let met = &tree.level(2)[tree.meeting(2, tree.hull(tables)?)];
    let inputs = tables.iter().map(|t| (1, t)).chain(met.iter().map(|t| (2, t)));
    if met.is_empty() && tree.union(tables).len() == tables.len() {
        return Plan::moving(tree, Cause::Level1, inputs, 2);
    }
    Plan::new(tree, (PlanKind::Full, Cause::Level1), inputs, 2)
}

/// Merges the cheapest free table of `level` with what it overlaps in the next one, or moves it there.
fn one_table(tree: &Tree<'_>, level: u8) -> Option<Plan> {
    let below = tree.level(level + 1);
    let mut candidates: Vec<_> = tree.level(level).iter().filter(|t| !t.taken).collect();
    candidates.sort_by_cached_key(|t| {
        let overlap = sum_bytes(&below[tree.meeting(level + 1, t.range())]);
        overlap.saturating_mul(1024) / t.bytes.max(1)
    });
    candidates.into_iter().find_map(|t| {
        let met = &below[tree.meeting(level + 1, t.range())];
        let inputs = [(level, t)].into_iter().chain(met.iter().map(|t| (level + 1, t)));
        match met.is_empty() {
            true => Plan::moving(tree, Cause::Capacity, inputs, level + 1),
            false => Plan::new(tree, (PlanKind::Partitioned, Cause::Capacity), inputs, level + 1),
        }
    })
}
