//! T13, black box: random transactions append to lists and read them. The checker uses only what a client knows: what
//! was read, what was appended after which element, and how each transaction ended. It does not use sequence numbers or
//! snapshots.
//!
//! The method is that of Elle (Kingsbury and Alvaro, 2020). Each element is appended only once in the whole history, so
//! a list identifies all previous versions and their writers. An append is a `get` and a `put` of the longer list, so
//! each version also identifies the version that it was appended to. This defines a tree of versions for each key; the
//! final read of the history identifies the newest version. It also defines edges between transactions:
//!
//! * `ww`: one's version was appended to the other's, or was overwritten by the newest;
//! * `wr`: one read the other's version;
//! * `rw`: one read a version that the other overwrote. It is an *item* if the key was read by key or found in a scan,
//!   and a *range* if the key was absent from a scanned interval;
//! * `time`: one ended before the other began.
//!
//! A cycle is an anomaly, named by its edges: `G0` (`ww` only), `G1c` (`ww`, `wr`), `G-single` (one `rw`),
//! `G-nonadjacent` (several `rw`, no two of them successive), `G2-item` (several `rw`, items only), `G2` (several `rw`,
//! including ranges), and `real-time` if there is no cycle without `time`.
//!
//! Other anomalies show in a single read: `G1a` (an element of a transaction that did not commit, or of a part that was
//! rolled back), `G1b` (a version that its own writer overwrote), `internal` (the transaction's own appends are not
//! seen correctly), `duplicate`, `unwritten` (a list that was never written). Two show in the final read of a key:
//! `lost-update` (a committed element is missing) and `incompatible-order` (a list was read that is no prefix of the
//! final list).
//!
//! # What each level forbids
//! Every level forbids `G0`, `G1a`, `G1c`, `internal`, `duplicate`, `unwritten` and `real-time`, see
//! `docs/concepts/transactions.md`. In addition:
//!
//! * read uncommitted forbids nothing else. Each call has its own read timestamp, and an append is a read and a write.
//!   So elements are lost, and readers in between see lists of which one is overwritten. `time` is used for cycles
//!   without `rw`, and for a read that misses what was committed before its transaction began. A read during the
//!   insertion of a commit into the memtables may see the first of the commit's two writes of a key: this is a `G1b`,
//!   and occurs a few times in a hundred thousand transactions. There is no `G1a`, because a refused commit is never
//!   inserted.
//! * read committed also forbids `G1b`.
//! * snapshot also forbids `lost-update` and `incompatible-order` (the second transaction to append is refused), and
//!   each cycle without two successive `rw`, `time` included. A transaction at the end of a `ww`, `wr` or `time` edge
//!   began after the other's commit; over an `rw` edge it began before it. So such a cycle would run backwards in time.
//! * repeatable read forbids the same, and each cycle without an `rw` on a range: a commit is refused if a key that was
//!   read has a newer version. A key found in a scan is treated as read; a key absent from a scan is not.
//! * serializable forbids every cycle.
//!
//! Refused and rolled back transactions take part with their reads: they may see no more anomalies than a transaction
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

/// Value of a key: elements in the order of the appends. Empty if the key does not exist.
pub type List = Vec<u64>;

/// One operation of a transaction, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read of a key.
    Read {
        /// Key.
        key: Key,
        /// List that was found.
        list: List,
    },
    /// A scan of an interval.
    Scan {
        /// Lower bound, inclusive.
        low: Key,
        /// Upper bound, exclusive.
        high: Key,
        /// Lists that were found, by key.
        found: Vec<(Key, List)>,
    },
    /// A put of a key's list with one more element.
    Append {
        /// Key.
        key: Key,
        /// Last element of the previous list; `None` if there was no list.
        after: Option<u64>,
        /// New element.
        element: u64,
    },
    /// Undo of the newest append of this transaction to a key, by a rollback to a savepoint.
    Undo {
        /// Key.
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
    /// Rolled back by the client.
    RolledBack,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// Operations, in order.
    pub ops: Vec<Op>,
    /// How it ended.
    pub end: End,
    /// Tick of the history's clock before it began.
    pub begun: u64,
    /// Tick after it had ended.
    pub ended: u64,
}

/// History of one database.
#[derive(Clone, Debug)]
pub struct History {
    /// Level of all transactions.
    pub level: Isolation,
    /// All transactions.
    pub records: Vec<Record>,
    /// Final list of every key.
    pub finals: BTreeMap<Key, List>,
}

/// Kinds of anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions overwrote each other in turn.
    G0,
    /// An uncommitted element was read.
    G1a,
    /// A version was read that its own writer overwrote.
    G1b,
    /// Two transactions read each other.
    G1c,
    /// A transaction did not see its own appends.
    Internal,
    /// A list contains an element twice.
    Duplicate,
    /// A list was read that was never written.
    Unwritten,
    /// A read missed a commit from before its transaction began, or saw a later one.
    RealTime,
    /// A committed element is missing from the final list.
    LostUpdate,
    /// Two lists of a key, neither of which is a prefix of the other.
    IncompatibleOrder,
    /// Read skew.
    GSingle,
    /// Several anti-dependencies, no two of them successive.
    GNonadjacent,
    /// Write skew on items.
    G2Item,
    /// Write skew on absent keys.
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

    /// Returns the name used in the literature.
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

    /// Returns true if `level` allows the anomaly.
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

    /// Returns the anomalies that a long history at `level` must show. Otherwise its transactions were not concurrent.
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

/// Returns the name of a level, for a report line.
pub fn level_name(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadUncommitted => "read-uncommitted",
        Isolation::ReadCommitted => "read-committed",
        Isolation::RepeatableRead => "repeatable-read",
        Isolation::Snapshot => "snapshot",
        Isolation::Serializable => "serializable",
    }
}
