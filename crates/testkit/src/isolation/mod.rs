//! T13: tests that transactions are isolated as their level promises. Threads run random transactions of all levels
//! concurrently and record what they saw. The checker replays the commits in the order of sequence numbers and judges
//! every transaction. It uses the engine's sequence numbers; [`append`] does not.

mod roam;
pub mod append;
mod check;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tidesdb::Isolation;

pub use check::{Findings, check};
pub use run::{Shared, Writes, client, encode, family_of, run};

/// A key.
pub type Key = u16;

/// All levels, the weakest first.
pub const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// Operations and observations of one transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// Level.
    pub level: Isolation,
    /// Number of the thread that ran it.
    pub thread: usize,
    /// Read timestamp, if the level has a fixed one.
    pub snapshot: Option<u64>,
    /// Reads by key, except of the transaction's own writes.
    pub reads: Vec<Read>,
    /// Scans, without the keys that the transaction had written itself.
    pub walks: Vec<Scan>,
    /// Final writes; `None` is a delete.
    pub writes: Writes,
    /// Keys of `writes` whose last write is a range delete. True if a write of the key alone came before it.
    pub ranged: BTreeMap<Key, bool>,
    /// Writes that the transaction overwrote itself. Only `ReadUncommitted` may see them, between the two inserts of
    /// the commit.
    pub overwritten: Vec<(Key, Option<u64>)>,
    /// How it ended.
    pub end: End,
}

/// A read of a key, at some time between the two sequence numbers of `moment`.
#[derive(Clone, Debug)]
pub struct Read {
    /// Key.
    pub key: Key,
    /// Value that was found.
    pub value: Option<u64>,
    /// Visible sequence numbers before and after the read.
    pub moment: (u64, u64),
}

/// A scan of an interval.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Lower bound, inclusive.
    pub low: Key,
    /// Upper bound, exclusive.
    pub high: Key,
    /// Rows that were found.
    pub found: Vec<(Key, u64)>,
    /// Keys in the interval that the transaction had already written itself.
    pub own: Vec<Key>,
    /// Visible sequence numbers before and after the scan.
    pub moment: (u64, u64),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Committed with this sequence number; that of the newest commit if the transaction wrote nothing.
    Committed(u64),
    /// Refused with a conflict, when this sequence number was visible.
    Refused(u64),
    /// Rolled back by the client.
    RolledBack,
}

/// Returns the bytes of a key, which have its order.
pub fn bytes(key: Key) -> [u8; 2] {
    [(key >> 8) as u8, key as u8]
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
