//! Spooky: upper levels are merged whole, lower levels in partitions.
//!
//! After Dayan et al., "Spooky: Granulating LSM-Tree Compactions Correctly" (VLDB 2022). With `L` the largest level and
//! `X = L - 1 - offset` the last dividing level (at least 2). The paper has one dividing level; here it is a stack of levels from `D` to
//! `X`, so that a merge into it need not write again what is there:
//!
//! ```text
//! level 1      flushed tables, overlapping
//! 2 .. D-1     one sorted run each. Full preemptive merge of 1..q into q, the first level that has room for all of it
//! D .. X       no such q: dividing merge of 1..D into D; outputs are cut at partition boundaries of L, and move to the deepest of
//!              these levels that is empty there. So D is empty, as long as a partition has fewer runs than there are levels
//! X+1 .. L     partitioned merge of D..z: one partition at a time, into the first level z that has room for its part of
//!              D..z. Inputs and outputs of different partitions never overlap, so partitions merge side by side
//! ```
//!
//! A partition is a stretch of level `L` between two boundaries that no table of the levels from D on spans. Partitions are
//! drained one by one, the fullest first, as soon as the dividing levels hold as much as they should, in bytes or in runs. So their fill is
//! staggered: on average each is half full, but work and space are even over time, and no state is kept between two plans.
//!
//! The stack is what tiering is to leveling in "Dostoevsky" (Dayan and Idreos, SIGMOD 2018), for one level.
//!
//! Tables that overlap nothing deeper move to the largest level without being rewritten.

mod partition;
mod upkeep;
mod upper;

use super::{Cause, Plan, PolicySettings, Shape, Tree};

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spooky;

impl Spooky {
    /// The most urgent compaction that uses no table and no range of a running job; `None` if none is due.
    pub fn pick(tree: &Tree<'_>, settings: &PolicySettings) -> Option<Plan> {
        let shape = Shape::of(tree, settings);
        let free = upkeep::drop_expired(tree)
            .or_else(|| upkeep::sink(tree, &shape, settings))
            .or_else(|| upkeep::add_level(tree, &shape))
            .or_else(|| upkeep::lower(tree, &shape));
        if free.is_some() {
            return free;
        }
        let merge = match most_urgent(tree, &shape, settings) {
            Due::Plan(plan) => Some(plan),
            Due::Wait => None,
            Due::Nothing => upkeep::dense(tree, &shape, settings)
                .or_else(|| upkeep::expired(tree, &shape))
                .or_else(|| upkeep::remove_level(tree, &shape, settings))
                .or_else(|| upkeep::probed(tree, &shape, settings))
                .or_else(|| upkeep::settle(tree, &shape, settings)),
        };
        merge.map(|plan| Plan { table_bytes: shape.table_bytes, ..plan })
    }

    /// Up to `want` compactions that can run at the same time, most urgent first.
    pub fn plans(tree: &Tree<'_>, settings: &PolicySettings, want: usize) -> Vec<Plan> {
        let mut tree = tree.clone();
        let mut plans = Vec::new();
        while plans.len() < want
            && let Some(plan) = Self::pick(&tree, settings)
        {
            tree.claim(&plan);
            plans.push(plan);
        }
        plans
    }

    /// Number of partitions of the largest level.
    pub fn partitions(tree: &Tree<'_>, shape: &Shape) -> usize {
        partition::boundaries(tree, shape, shape.top).len()
            + usize::from(!tree.level(shape.largest).is_empty())
    }

    /// Bytes of `level` that merges must move to a deeper level now.
    pub fn debt_bytes(tree: &Tree<'_>, settings: &PolicySettings, level: u8) -> u64 {
        let (shape, bytes) = (Shape::of(tree, settings), tree.bytes(level));
        match level {
            1 if upper::debt(tree, settings) >= 1.0 => bytes,
            level if level < shape.dividing => 0, // merged together with level 1
            level => {
                let held = partition::held(tree, &shape, level);
                held.saturating_sub(partition::wanted(tree, &shape, level))
            }
        }
    }

    /// Bytes that the levels between level 1 and the largest, as far as they are drained in partitions, hold beyond what they should hold; less
    /// than 0 if the dividing level has room. What running jobs drain counts.
    pub fn excess(tree: &Tree<'_>, settings: &PolicySettings) -> i64 {
        let shape = Shape::of(tree, settings);
        let excess = |level: u8| {
            let (held, wanted) =
                (partition::held(tree, &shape, level), partition::wanted(tree, &shape, level));
            held as i64 - wanted as i64
        };
        let deeper = (shape.dividing + 1..shape.largest).map(|level| excess(level).max(0)).sum::<i64>();
        if shape.dividing < shape.largest { excess(shape.dividing) + deeper } else { 0 }
    }
}

enum Due {
    Plan(Plan),
    /// Something is due that must wait for running jobs; jobs that would make it wait longer must not start.
    Wait,
    Nothing,
}

/// Level 1 is merged first, whatever other levels hold, from this many times the tables on at which its merge is due.
const FIRST: f64 = 5.5;

/// A byte in level 1 counts as this many in a lower level: tables of level 1 take their space twice while they are merged, and each is a
/// sorted run of its own.
const WEIGHT: u64 = 2;

/// A merge of level 1, or of a partition: the larger excess first. In proportion to what a level may hold, the excess of the lower levels of
/// a large tree would always be the smaller one, and grow without end.
fn most_urgent(tree: &Tree<'_>, shape: &Shape, settings: &PolicySettings) -> Due {
    let upper = upper::debt(tree, settings);
    let lower = partition::fullest_level(tree, shape);
    let excess = lower.map_or(0, |fill| fill.excess);
    if upper >= 1.0 && (tree.bytes(1).saturating_mul(WEIGHT) >= excess || upper >= FIRST) {
        match upper::plan(tree, shape, settings, Cause::Level1) {
            Some(plan) => return Due::Plan(plan),
            None if !upper::is_running(tree) => return Due::Wait,
            None => {}
        }
    }
    let lower = lower.filter(|fill| fill.share >= 1.0);
    match lower
        .and_then(|fill| partition::plan(tree, shape, settings, fill.level))
        .or_else(|| (upper >= 1.0).then(|| upper::plan(tree, shape, settings, Cause::Level1)).flatten())
    {
        Some(plan) => Due::Plan(plan),
        None => Due::Nothing,
    }
}
