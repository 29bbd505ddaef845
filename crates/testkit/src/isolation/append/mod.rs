//! T13, black box: random transactions append to lists and read them. The checker sees only what a client sees: what was
//! read, what was appended after what, and how each transaction ended. It uses no sequence number and no snapshot.
//!
//! The method is that of Elle (Kingsbury and Alvaro, 2020): each element is appended once in the whole history, so a list identifies
//! all previous versions and their writers. An append here is a `get` and a `put` of the longer list, so each version also
//! identifies its predecessor. From this follow, for each key, a tree of versions, whose newest is given by the last read of the
//! history, and the following edges between transactions:
//!
//! * `ww`: one's version was appended to the other's, or was overwritten by the newest;
//! * `wr`: one read the other's version;
//! * `rw`: one read a version that the other overwrote. An *item* if the key was read or met in a scan, a *range* if it was
//!   in a scanned interval and did not exist;
//! * `time`: one had ended before the other began.
//!
//! A cycle is an anomaly, named by its edges: `G0` (`ww` only), `G1c` (`ww`, `wr`), `G-single` (one `rw`), `G-nonadjacent` (several, no two
//! consecutive), `G2-item` (several, items only), `G2` (several, including ranges); `real-time` if it is not a cycle without `time`. Other
//! anomalies are visible in one read: `G1a` (an element of a transaction that did not commit, or of a part rolled back), `G1b` (a version
//! that its writer overwrote itself), `internal` (its own appends are not seen correctly), `duplicate`, `unwritten` (a list that was never
//! written). Two are visible in the last read of a key: `lost-update` (a committed element is missing) and `incompatible-order` (a list
//! was read that is not a prefix of it).
//!
//! # What each level forbids
//! `G0`, `G1a`, `G1c`, `internal`, `duplicate`, `unwritten` and `real-time`: every level, see `docs/transactions.md`. Also:
//!
//! * read uncommitted: nothing else. Each call has its own read timestamp, and an append is a read and a write. So
//!   elements are lost, and reads in between see lists that are then overwritten. `time` counts in cycles
//!   without `rw`, and in a read that misses what was committed before its transaction began. A read may run while a
//!   commit is being inserted into the memtables, and show the first of its two writes of a key: a `G1b`, a few in a hundred
//!   thousand transactions. There is no `G1a`: a commit that conflicts is never inserted.
//! * read committed: also `G1b`.
//! * snapshot: all of these, `lost-update`, `incompatible-order` (the second to append conflicts), and each cycle without two
//!   consecutive `rw`, including `time`. A transaction on an edge `ww`, `wr` or `time` began after the other's commit, and over an `rw`
//!   it began before it, so such a cycle runs backwards in time.
//! * repeatable read: the same, and each cycle without an `rw` on a range: a commit conflicts if a key that was read has a newer
//!   version. A key met in a scan counts as read. A key that did not exist in a scan does not.
//! * serializable: every cycle.
//!
//! The reads of transactions that conflicted or were rolled back are included: such a transaction must see no more anomalies than one
//! that only reads and commits.

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

/// One operation of a transaction, as seen by its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A key was read.
    Read {
        /// The key.
        key: Key,
        /// The list found.
        list: List,
    },
    /// An interval was scanned.
    Walk {
        /// First key of the interval.
        low: Key,
        /// End of the interval, excluded.
        high: Key,
        /// The lists found, by key.
        found: Vec<(Key, List)>,
    },
    /// A key was put with its list and one more element.
    Append {
        /// The key.
        key: Key,
        /// The last element of the list before; `None` if there was no list.
        after: Option<u64>,
        /// The new element.
        element: u64,
    },
    /// The newest append of this transaction to a key was undone, by a rollback to a savepoint.
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
    /// Failed with a conflict.
    Refused,
    /// Rolled back by the client.
    RolledBack,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its operations, in order.
    pub ops: Vec<Op>,
    /// How it ended.
    pub end: End,
    /// Logical time before it began.
    pub begun: u64,
    /// Logical time after it had ended.
    pub ended: u64,
}

/// All transactions on one database.
#[derive(Clone, Debug)]
pub struct History {
    /// The level of all transactions.
    pub level: Isolation,
    /// The transactions.
    pub records: Vec<Record>,
    /// Final list of every key.
    pub finals: BTreeMap<Key, List>,
}

/// Anomalies of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions overwrote each other alternately.
    G0,
    /// Uncommitted data was read.
    G1a,
    /// A version that its writer overwrote was read.
    G1b,
    /// Two transactions read each other's writes.
    G1c,
    /// A transaction did not see its own appends.
    Internal,
    /// A list contains an element twice.
    Duplicate,
    /// A list that was never written.
    Unwritten,
    /// A commit from before the transaction began was not visible, or a later one was.
    RealTime,
    /// A committed element is missing.
    LostUpdate,
    /// Two lists of a key, neither of which is a prefix of the other.
    IncompatibleOrder,
    /// Read skew.
    GSingle,
    /// Several anti-dependencies, no two consecutive.
    GNonadjacent,
    /// Write skew on items.
    G2Item,
    /// Write skew on keys that did not exist.
    G2,
}

impl Anomaly {
    /// All anomalies.
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

    /// Returns its name in the literature.
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

    /// Returns whether `level` allows it.
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

    /// Returns the anomalies that a long history at `level` shows; otherwise its transactions were not concurrent.
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

/// Returns the name of a level, for a line of results.
pub fn level_name(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted => "read-uncommitted",
        Isolation::ReadCommitted => "read-committed",
        Isolation::RepeatableRead => "repeatable-read",
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    }
}
