//! What a compaction will do.

use std::fmt;

use super::picture::{TableView, Tree};
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
    /// Levels 1 to the dividing level are merged, and cut at the partition boundaries of the largest level.
    Dividing,
    /// One partition of some levels is merged.
    Partitioned,
}

impl PlanKind {
    /// The name, as in the source.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "Move",
            Self::Drop => "Drop",
            Self::Full => "Full",
            Self::Dividing => "Dividing",
            Self::Partitioned => "Partitioned",
        }
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
    /// No commit came for some seconds, and the levels above the largest one hold old versions of much of it.
    Idle,
    /// The user asked for it.
    Manual,
}

/// A compaction. It can be printed, tested and refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How.
    pub kind: PlanKind,
    /// Why.
    pub cause: Cause,
    /// Input tables with their levels, newest data first.
    pub inputs: Vec<(u8, TableId)>,
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

impl Plan {
    /// A plan with these inputs, ordered newest data first; `None` without inputs, if one of them is taken, or if a running
    /// job writes to the same keys of the target level.
    pub(super) fn new<'t, 'a: 't>(
        tree: &Tree<'a>,
        (kind, cause): (PlanKind, Cause),
        inputs: impl IntoIterator<Item = (u8, &'t TableView<'a>)>,
        target: u8,
    ) -> Option<Self> {
        let inputs: Vec<_> = inputs.into_iter().collect();
        let range = tree.hull(inputs.iter().map(|(_, t)| *t))?;
        if inputs.iter().any(|(_, t)| t.taken) || tree.is_claimed(target, range) {
            return None;
        }
        let bottom = kind != PlanKind::Drop && !tree.is_met(target + 1..tree.depth() + 1, range);
        let inputs = inputs.into_iter().map(|(level, t)| (level, t.id)).collect();
        Some(Self { bottom, ..Self::of(kind, cause, inputs, target) })
    }

    /// Moves those of `tables` to `target` that no running job uses or writes over; they overlap nothing on the way.
    pub(super) fn moving<'t, 'a: 't>(
        tree: &Tree<'a>,
        cause: Cause,
        tables: impl IntoIterator<Item = (u8, &'t TableView<'a>)>,
        target: u8,
    ) -> Option<Self> {
        let free = |(_, t): &(u8, &TableView<'_>)| !t.taken && !tree.is_claimed(target, t.range());
        let inputs = tables.into_iter().filter(free).map(|(level, t)| (level, t.id)).collect();
        Self::unmerged(PlanKind::Move, cause, inputs, target)
    }

    /// Drops `inputs`; `None` if there is none.
    pub(super) fn dropping(cause: Cause, inputs: Vec<(u8, TableId)>) -> Option<Self> {
        Self::unmerged(PlanKind::Drop, cause, inputs, 1)
    }

    fn unmerged(kind: PlanKind, cause: Cause, inputs: Vec<(u8, TableId)>, target: u8) -> Option<Self> {
        let plan = Self::of(kind, cause, inputs, target);
        (!plan.inputs.is_empty()).then_some(plan)
    }

    fn of(kind: PlanKind, cause: Cause, inputs: Vec<(u8, TableId)>, target: u8) -> Self {
        let (cuts, guards) = (Vec::new(), Vec::new());
        Self { kind, cause, inputs, target, cuts, guards, table_bytes: u64::MAX, bottom: false }
    }

    /// Returns true if the inputs are rewritten.
    pub fn is_merge(&self) -> bool {
        !matches!(self.kind, PlanKind::Move | PlanKind::Drop)
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
