//! T13: tests whether transactions are isolated as their level promises. Threads run random transactions of all levels at once and
//! record what they saw. The checker replays the commits in the order of sequence numbers and checks every transaction. [`append`]
//! is a second checker that does not use the engine's sequence numbers.

mod roam;
pub mod append;
mod check;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tidesdb::Isolation;

pub use check::{Findings, check};
pub use run::run;

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

/// Actions and observations of one transaction.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its level.
    pub level: Isolation,
    /// The thread that ran it, and its index in that thread.
    pub thread: usize,
    /// The sequence number at which it read, if it had one.
    pub snapshot: Option<u64>,
    /// Keys read, except those that it had written itself.
    pub reads: Vec<Read>,
    /// Intervals scanned, without the keys that it had written itself.
    pub walks: Vec<Walk>,
    /// What it wrote; `None` = deleted.
    pub writes: BTreeMap<Key, Option<u64>>,
    /// Values that it wrote and then overwrote. Only `ReadUncommitted` may see them, between the two inserts of the commit.
    pub overwritten: Vec<(Key, Option<u64>)>,
    /// How it ended.
    pub end: End,
}

/// A read of a key, at some time between the two sequence numbers.
#[derive(Clone, Debug)]
pub struct Read {
    /// The key.
    pub key: Key,
    /// The value found.
    pub value: Option<u64>,
    /// Newest visible sequence number before and after the read.
    pub moment: (u64, u64),
}

/// An interval that was scanned.
#[derive(Clone, Debug)]
pub struct Walk {
    /// First key of the interval.
    pub low: Key,
    /// End of the interval, excluded.
    pub high: Key,
    /// The rows found.
    pub found: Vec<(Key, u64)>,
    /// Keys in the interval that the transaction had written itself by then.
    pub own: Vec<Key>,
    /// Newest visible sequence number before and after the scan.
    pub moment: (u64, u64),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Committed with this sequence number; that of the newest commit if it wrote nothing.
    Committed(u64),
    /// Failed with a conflict, when this number was visible.
    Refused(u64),
    /// Rolled back by the client.
    RolledBack,
}

/// Returns the bytes of a key, in the order of the database.
fn bytes(key: Key) -> [u8; 2] {
    [(key >> 8) as u8, key as u8]
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
