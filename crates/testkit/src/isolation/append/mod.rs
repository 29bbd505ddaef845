//! T13, black box: random transactions append to lists and read them, and the checker sees no more than a client does: what was
//! read, what was appended behind what, and how each transaction ended. It knows no sequence number and no snapshot.
//!
//! The idea is that of Elle (Kingsbury and Alvaro, 2020): each element is appended once in the whole history, so a list names all
//! the versions before it and who wrote them. An append here is a `get` and a `put` of the longer list, so each version also
//! names the one it was put behind. From this follow, for each key, a tree of versions, of which the last read of the
//! history tells the newest; and between transactions the edges
//!
//! * `ww`: one's version was put behind the other's, or was overwritten by the newest;
//! * `wr`: one read the other's version;
//! * `rw`: one read a version that the other overwrote. An *item* if the key was read or met in a walk, a *range* if it was
//!   in a walked interval and not there;
//! * `time`: one had ended before the other began.
//!
//! A cycle is an anomaly, by its edges: `G0` (`ww` only), `G1c` (`ww`, `wr`), `G-single` (one `rw`), `G-nonadjacent` (several, no two of them
//! in a row), `G2-item` (several, items only), `G2` (several, ranges among them); `real-time` if it is none without `time`. Others show
//! in one read: `G1a` (an element of a transaction that did not commit, or of a part rolled back), `G1b` (a version that its writer
//! overwrote itself), `internal` (its own appends not seen as they are), `duplicate`, `unwritten` (a list that nobody put). Two show
//! in the last read of a key: `lost-update` (a committed element is not in it) and `incompatible-order` (somebody read a list that is no
//! prefix of it).
//!
//! # What each level forbids
//! `G0`, `G1a`, `G1c`, `internal`, `duplicate`, `unwritten` and `real-time`: every level, see `docs/transactions.md`. Also:
//!
//! * read uncommitted: nothing else. Each call reads at its own moment, and an append is a read and a write; so
//!   elements are lost, and lists of which one is overwritten are seen by those who read between. `time` counts in cycles
//!   without `rw`, and in a read that misses what was committed before its transaction began. A read may come while a
//!   commit is being put into the memtables, and show the first of its two writes of a key: a `G1b`, a few in a hundred
//!   thousand transactions. There is no `G1a`: a commit that is refused is never put there.
//! * read committed: also `G1b`.
//! * snapshot: all of these, `lost-update`, `incompatible-order` (the second to append is refused), and each cycle in which no
//!   two `rw` follow each other, `time` included: a transaction on an edge `ww`, `wr` or `time` began after the other's commit, and over an `rw` it began before it, so
//!   such a cycle runs backwards in time.
//! * repeatable read: the same, and each cycle without an `rw` on a range: a commit is refused if a key that was read has a newer
//!   version, and a key met in a walk was read. A key that was not there in a walk was not.
//! * serializable: every cycle.
//!
//! Transactions that were refused or rolled back take part with their reads: they have seen no more of an anomaly than one that
//! only reads and commits.

mod graph;
mod infer;
mod judge;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tidesdb::Isolation;

use super::Key;
pub use judge::{Findings, check};
pub use run::run;

/// The value of a key: elements in the order of the appends. Empty if there is none.
pub type List = Vec<u64>;

/// One operation of a transaction, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A key was read.
    Read {
        /// The key.
        key: Key,
        /// What was found.
        list: List,
    },
    /// An interval was walked.
    Walk {
        /// From here.
        low: Key,
        /// To before here.
        high: Key,
        /// What was found, by key.
        found: Vec<(Key, List)>,
    },
    /// The list of a key was put with one more element.
    Append {
        /// The key.
        key: Key,
        /// The last element of the list before; `None` if there was no list.
        after: Option<u64>,
        /// The new element.
        element: u64,
    },
    /// The newest append of this transaction to a key was undone, by going back to a savepoint.
    Undo {
        /// The key.
        key: Key,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Committed.
    Committed,
    /// Refused with a conflict.
    Refused,
    /// By its own will.
    RolledBack,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// What it did, in order.
    pub ops: Vec<Op>,
    /// How it ended.
    pub end: End,
    /// A tick of the history's clock before it began.
    pub begun: u64,
    /// A tick after it had ended.
    pub ended: u64,
}

/// All that happened on one database.
#[derive(Clone, Debug)]
pub struct History {
    /// The level of all transactions.
    pub level: Isolation,
    /// The transactions.
    pub records: Vec<Record>,
    /// What every key held in the end.
    pub finals: BTreeMap<Key, List>,
}

/// What can be wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions overwrote each other in turn.
    G0,
    /// Something uncommitted was read.
    G1a,
    /// A version that its writer overwrote was read.
    G1b,
    /// Two transactions read each other.
    G1c,
    /// A transaction did not see its own appends.
    Internal,
    /// A list holds an element twice.
    Duplicate,
    /// A list that nobody put.
    Unwritten,
    /// What was committed before a transaction began was not seen, or what began later was.
    RealTime,
    /// A committed element is gone.
    LostUpdate,
    /// Two lists of a key of which none is a prefix of the other.
    IncompatibleOrder,
    /// Read skew.
    GSingle,
    /// Several anti-dependencies, none after the other.
    GNonadjacent,
    /// Write skew on items.
    G2Item,
    /// Write skew on what was not there.
    G2,
}

impl Anomaly {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::G0,
        Self::G1a,
        Self::G1b,
        Self::G1c,
        Self::Internal,
        Self::Duplicate,
        Self::Unwritten,
        Self::RealTime,
        Self::LostUpdate,
        Self::IncompatibleOrder,
        Self::GSingle,
        Self::GNonadjacent,
        Self::G2Item,
        Self::G2,
    ];

    /// Its name in the literature.
    pub fn name(self) -> &'static str {
        match self {
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::Internal => "internal",
            Self::Duplicate => "duplicate",
            Self::Unwritten => "unwritten",
            Self::RealTime => "real-time",
            Self::LostUpdate => "lost-update",
            Self::IncompatibleOrder => "incompatible-order",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2Item => "G2-item",
            Self::G2 => "G2",
        }
    }

    /// Whether `level` lets it happen.
    pub fn is_allowed(self, level: Isolation) -> bool {
        match self {
            Self::LostUpdate | Self::IncompatibleOrder | Self::GSingle | Self::GNonadjacent => {
                matches!(level, Isolation::ReadUncommitted | Isolation::ReadCommitted)
            }
            Self::G1b => level == Isolation::ReadUncommitted,
            Self::G2Item => !matches!(level, Isolation::RepeatableRead | Isolation::Serializable),
            Self::G2 => level != Isolation::Serializable,
            _ => false,
        }
    }

    /// Those that a long history at `level` shows, or its transactions were not concurrent.
    pub fn expected(level: Isolation) -> &'static [Self] {
        match level {
            Isolation::ReadUncommitted | Isolation::ReadCommitted => {
                &[Self::LostUpdate, Self::IncompatibleOrder, Self::GSingle]
            }
            Isolation::RepeatableRead => &[Self::G2],
            Isolation::Snapshot => &[Self::G2Item, Self::G2],
            Isolation::Serializable => &[],
        }
    }
}

/// The name of a level, for a line of results.
pub fn level_name(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted => "read-uncommitted",
        Isolation::ReadCommitted => "read-committed",
        Isolation::RepeatableRead => "repeatable-read",
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    }
}
