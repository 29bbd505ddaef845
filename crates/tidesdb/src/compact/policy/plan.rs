//! What a compaction will do.

use std::collections::HashSet;
use std::fmt;

use super::tree::{KeyRange, TableView, Tree};
use crate::types::TableId;

/// How a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// The inputs change their level and are not rewritten. They overlap nothing on the way.
    Move,
    /// The inputs are dropped unread: no reader can see a row of theirs.
    Drop,
    /// Levels 1 to the target are merged whole.
    Full,
    /// Levels above the tiered level are merged into a new run of it, cut at the partition boundaries of the largest level. Spooky calls it a
    /// dividing merge.
    Tiered,
    /// One partition of some levels is merged.
    Partitioned,
}

impl PlanKind {
    /// The name, as in the source.
    pub fn name(self) -> &'static str {
        ["Move", "Drop", "Full", "Tiered", "Partitioned"][self as usize]
    }
}

/// Why a compaction is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Number or bytes of the tables in level 1.
    Level1,
    /// A level is over its capacity.
    Capacity,
    /// Tombstones are too large a share of a table.
    Tombstones,
    /// All rows of a table have expired.
    Expired,
    /// Reads probe too many sorted runs.
    Probes,
    /// The number of levels changes.
    Levels,
    /// Tables that overlap nothing deeper belong in the largest level.
    Disjoint,
    /// Range tombstones delete tables, or half of one.
    Ranges,
    /// Live values leave value logs that are mostly garbage.
    Values,
    /// There was no commit for some seconds, and the levels above the largest one hide many of its rows.
    Idle,
    /// The user asked for it.
    Manual,
}

/// A compaction. It can be printed, tested and refused. A table is given by its number, or as `T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<T = TableId> {
    /// How.
    pub kind: PlanKind,
    /// Why.
    pub cause: Cause,
    /// Input tables with their levels, newest data first; those of a sorted run in key order.
    pub inputs: Vec<(u8, T)>,
    /// Level of the outputs.
    pub target: u8,
    /// Keys that begin a new output table: no output holds keys on both sides of one.
    pub cuts: Vec<Vec<u8>>,
    /// An output table also ends before a gap that spans a whole interval between two of these keys.
    pub guards: Vec<Vec<u8>>,
    /// Size limit of an output table, if that is less than the setting.
    pub table_bytes: u64,
    /// True if no table outside the inputs holds older data of their keys.
    pub bottom: bool,
}

impl<T> Plan<T> {
    /// A plan that cuts nowhere.
    pub fn of((kind, cause): (PlanKind, Cause), inputs: Vec<(u8, T)>, target: u8) -> Self {
        let (cuts, guards) = (Vec::new(), Vec::new());
        Self { kind, cause, inputs, target, cuts, guards, table_bytes: u64::MAX, bottom: false }
    }

    /// The same; `None` without inputs.
    pub fn of_any(what: (PlanKind, Cause), inputs: Vec<(u8, T)>, target: u8) -> Option<Self> {
        (!inputs.is_empty()).then(|| Self::of(what, inputs, target))
    }

    /// Returns true if the inputs are rewritten.
    pub fn is_merge(&self) -> bool {
        !matches!(self.kind, PlanKind::Move | PlanKind::Drop)
    }

    /// The same plan with the tables that `table` returns for its inputs; `None` if there is none for one of them.
    pub fn with<U>(self, table: impl Fn(T) -> Option<U>) -> Option<Plan<U>> {
        let Self { kind, cause, inputs, target, cuts, guards, table_bytes, bottom } = self;
        let inputs = inputs.into_iter().map(|(level, t)| Some((level, table(t)?))).collect::<Option<_>>()?;
        Some(Plan { kind, cause, inputs, target, cuts, guards, table_bytes, bottom })
    }
}

impl Plan {
    /// A plan with these inputs, ordered newest data first; `None` without inputs, if one of them is taken, or if a running
    /// job writes to the same keys of the target level.
    pub(super) fn new<'t, 'a: 't>(
        tree: &Tree<'a>,
        what: (PlanKind, Cause),
        inputs: impl IntoIterator<Item = (u8, &'t TableView<'a>)>,
        target: u8,
    ) -> Option<Self> {
        let inputs: Vec<_> = inputs.into_iter().collect();
        let range = tree.hull(inputs.iter().map(|(_, t)| *t))?;
        if inputs.iter().any(|(_, t)| t.taken) || tree.is_busy(target, range) {
            return None;
        }
        let inputs: Vec<_> = inputs.into_iter().map(|(level, t)| (level, t.id)).collect();
        // The inputs overlap all tables of a target level with one run that hold a key of theirs. If the target level has several runs,
        // some of them may stay.
        let is_one_run = what.0 != PlanKind::Tiered && tree.runs_in(target..target + 1).len() < 2;
        let bottom = !tree.is_met(tree.runs_in(target + 1..u8::MAX), range)
            && (is_one_run || Self::is_whole(tree, &inputs, target, range));
        Some(Self { bottom, ..Self::of(what, inputs, target) })
    }

    /// Returns true if all tables of `level` in `range` are among `inputs`.
    fn is_whole(tree: &Tree<'_>, inputs: &[(u8, TableId)], level: u8, range: KeyRange<'_>) -> bool {
        let ids: HashSet<TableId> = inputs.iter().map(|(_, id)| *id).collect();
        let mut met = tree.runs_in(level..level + 1).flat_map(|run| tree.meeting(run, range));
        met.all(|t| ids.contains(&t.id))
    }

    /// Moves those of `tables` to `target` that no running job uses or writes over; they overlap nothing on the way.
    pub(super) fn moving<'t, 'a: 't>(
        tree: &Tree<'a>,
        cause: Cause,
        tables: impl IntoIterator<Item = (u8, &'t TableView<'a>)>,
        target: u8,
    ) -> Option<Self> {
        let free = |(_, t): &(u8, &TableView<'_>)| !t.taken && !tree.is_busy(target, t.range());
        let inputs = tables.into_iter().filter(free).map(|(level, t)| (level, t.id)).collect();
        Self::of_any((PlanKind::Move, cause), inputs, target)
    }

    /// Moves all tables of `level` to `target`, which may hold older data. Tables of several runs keep their order, so `None` if a running
    /// job uses one of them or writes to `target`.
    pub(super) fn moving_level(tree: &Tree<'_>, level: u8, target: u8) -> Option<Self> {
        let is_free = |t: &TableView<'_>| !t.taken && !tree.is_busy(target, t.range());
        if tree.runs_in(level..level + 1).len() > 1 && !tree.level(level).all(is_free) {
            return None;
        }
        Self::moving(tree, Cause::Levels, tree.level(level).map(|t| (level, t)), target)
    }

    /// Entries of its inputs.
    pub(super) fn entries(&self, tree: &Tree<'_>) -> u64 {
        let ids: HashSet<TableId> = self.inputs.iter().map(|(_, id)| *id).collect();
        let inputs = tree.tables().filter(|(_, t)| ids.contains(&t.id));
        inputs.map(|(_, t)| t.entries).fold(0, u64::saturating_add)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:?}:", self.kind, self.cause)?;
        for run in self.inputs.chunk_by(|a, b| a.0 == b.0 && a.1.0 + 1 == b.1.0) {
            let ((level, first), last) = (run[0], run[run.len() - 1].1);
            write!(f, " {level}:{}", first.0)?;
            if run.len() > 1 {
                write!(f, "-{}", last.0)?;
            }
        }
        if self.kind != PlanKind::Drop {
            write!(f, " -> {}", self.target)?;
        }
        for (name, keys) in [("cuts", &self.cuts), ("guards", &self.guards)] {
            if !keys.is_empty() {
                let keys: Vec<_> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
                write!(f, " {name}={}", keys.join(","))?;
            }
        }
        f.write_str(if self.bottom && self.is_merge() { " bottom" } else { "" })
    }
}
