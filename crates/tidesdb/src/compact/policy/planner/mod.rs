//! Spooky: upper levels are merged whole, lower levels in partitions.
//!
//! After Dayan et al., "Spooky: Granulating LSM-Tree Compactions Correctly" (VLDB 2022). With `L` the largest level, the tiered level is
//! `X = L - 1 - offset` (at least 2). The paper calls it the dividing level, and it has one sorted run there; here it has several, so that a
//! merge into it need not write the existing rows again:
//!
//! ```text
//! level 1      flushed tables, overlapping
//! 2 .. X-1     one sorted run each. Full preemptive merge of 1..q into q, the first level that has room for all of it
//! X            no such q: 1..X-1 are merged into a new run of the tiered level. Outputs are cut at the ends of partitions. Where the level
//!              has as many runs as it may have, the newest of them is merged too
//! X+1 .. L     partitioned merge of X..z: all runs of one partition at a time, into the first level z that has room for its part of
//!              X..z. Inputs and outputs of different partitions never overlap, so partitions merge side by side
//! ```
//!
//! A partition is a stretch of level `L` between two boundaries that no table of the levels from X on spans. Partitions are
//! drained one by one, the fullest first, as soon as the tiered level holds as much as it should, in bytes or in runs. So their fill is
//! staggered: on average each is half full, but work and space are even over time, and no state is kept between two plans.
//!
//! The tiered level is what tiering is to leveling in "Dostoevsky" (Dayan and Idreos, SIGMOD 2018), for one level.
//!
//! Tables that overlap nothing deeper move to the largest level without being rewritten.

mod lower;
mod upkeep;
mod upper;

use std::cell::OnceCell;
use std::rc::Rc;

use super::partitions::Partitions;
use super::plan::{Cause, Plan};
use super::settings::PolicySettings;
use super::shape::Shape;
use super::tree::Tree;

/// Decides which compaction of one tree is due.
#[derive(Debug)]
pub struct Planner<'t, 'a> {
    tree: &'t Tree<'a>,
    settings: &'t PolicySettings,
    shape: Shape,
    /// The partitions of the levels from the tiered one on.
    partitions: OnceCell<Rc<Partitions<'t, 'a>>>,
}

enum Due {
    Plan(Plan),
    /// Something is due that must wait for running jobs; jobs that would make it wait longer must not start.
    Wait,
    Nothing,
}

/// Level 1 is merged first, whatever other levels hold, if it has this many times the tables, or bytes, at which its merge is due.
const FIRST: f64 = 5.5;

/// The same while several partitions have as many runs as they may have: a little above where writers are slowed down. A merge of level 1
/// writes the newest run again then, so the partitions should be drained before, but writers should not stand still for them.
const FIRST_WHILE_FULL: f64 = 3.0;

/// A byte in level 1 has the weight of this many in a lower level: tables of level 1 take their space twice while they are merged, and
/// each is a sorted run of its own.
const WEIGHT: u64 = 2;

impl<'t, 'a> Planner<'t, 'a> {
    /// The planner of `tree`.
    pub fn new(tree: &'t Tree<'a>, settings: &'t PolicySettings) -> Self {
        Self { tree, settings, shape: Shape::of(tree, settings), partitions: OnceCell::new() }
    }

    /// The shape of the tree.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The most urgent compaction that uses no table and no range of a running job; `None` if none is due.
    pub fn next(&self) -> Option<Plan> {
        let free = self
            .drop_expired()
            .or_else(|| self.sink())
            .or_else(|| self.add_level())
            .or_else(|| self.move_to_tiered());
        if free.is_some() {
            return free;
        }
        let merge = match self.most_urgent() {
            Due::Plan(plan) => Some(plan),
            Due::Wait => None,
            Due::Nothing => self
                .dense()
                .or_else(|| self.expired())
                .or_else(|| self.remove_level())
                .or_else(|| self.probed())
                .or_else(|| self.settle()),
        };
        merge.map(|plan| Plan { table_bytes: self.shape.table_bytes, ..plan })
    }

    /// Returns a merge of level 1 if its bytes, times [`WEIGHT`], are at least the excess of the fullest lower level, else of a partition
    /// of that level. Both are bytes: as a share of what a level may hold, the excess of the lower levels of a large tree would always be the
    /// smaller one, and grow without end.
    fn most_urgent(&self) -> Due {
        let upper = self.upper_debt();
        let lower = self.fullest_level();
        let excess = lower.map_or(0, |fill| fill.excess);
        let is_full = lower.is_some_and(|fill| fill.excess_now < fill.excess);
        let first = if is_full { FIRST_WHILE_FULL } else { FIRST };
        if upper >= 1.0 && (self.tree.bytes(1).saturating_mul(WEIGHT) >= excess || upper >= first) {
            match self.merge_upper(Cause::Level1) {
                Some(plan) => return Due::Plan(plan),
                None if !self.is_upper_running() => return Due::Wait,
                None => {}
            }
        }
        let lower = lower.filter(|fill| fill.share >= 1.0);
        let lower = lower.and_then(|fill| self.drain(fill.level));
        let plan = lower.or_else(|| (upper >= 1.0).then(|| self.merge_upper(Cause::Level1)).flatten());
        plan.map_or(Due::Nothing, Due::Plan)
    }

    /// The partitions of the levels from `from` on.
    fn partitions(&self, from: u8) -> Rc<Partitions<'t, 'a>> {
        let new = |from| Rc::new(Partitions::new(self.tree, from..self.shape.largest + 1));
        match self.tree.runs_in(self.shape.tiered..from).is_empty() {
            true => Rc::clone(self.partitions.get_or_init(|| new(self.shape.tiered))), // no run lies between
            false => new(from),
        }
    }

    /// Number of partitions of the largest level.
    pub fn partition_count(&self) -> usize {
        self.partition_starts().len() + usize::from(self.tree.bytes(self.shape.largest) > 0)
    }

    /// First keys of the partitions of the largest level, without the first partition.
    pub fn partition_starts(&self) -> Vec<&'a [u8]> {
        self.boundaries(self.shape.tiered)
    }

    /// Bytes of `level` that merges must move to a deeper level now.
    pub fn debt_bytes(&self, level: u8) -> u64 {
        match level {
            1 if self.upper_debt() >= 1.0 => self.tree.bytes(1),
            level if level < self.shape.tiered => 0, // merged together with level 1
            level => self.tree.bytes(level).saturating_sub(self.wanted(level)),
        }
    }

    /// Returns the bytes above what the levels between level 1 and the largest should hold, for the levels that are drained in partitions; less
    /// than 0 if the tiered level has room. Includes tables that running jobs drain.
    pub fn excess(&self) -> i64 {
        let Shape { tiered, largest, .. } = self.shape;
        let excess = |level: u8| self.tree.bytes(level) as i64 - self.wanted_now(level) as i64;
        let deeper = (tiered + 1..largest).map(|level| excess(level).max(0)).sum::<i64>();
        if tiered < largest { excess(tiered) + deeper } else { 0 }
    }
}

fn owned(keys: Vec<&[u8]>) -> Vec<Vec<u8>> {
    keys.into_iter().map(<[u8]>::to_vec).collect()
}
