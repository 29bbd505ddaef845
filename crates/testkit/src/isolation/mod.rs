//! T13: are transactions isolated as their level says? Threads run random transactions of all levels at once and note what they
//! saw; the checker replays what was committed, in the order of sequence numbers, and judges every transaction. What it knows of
//! the engine's own numbers, [`append`] does without.

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

/// What one transaction did and saw.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its level.
    pub level: Isolation,
    /// Who ran it, and as their how-manieth.
    pub thread: usize,
    /// The sequence number it read at, if it read at one.
    pub snapshot: Option<u64>,
    /// Keys read, those that it had not written itself.
    pub reads: Vec<Read>,
    /// Intervals walked, without the keys that it had written itself.
    pub walks: Vec<Walk>,
    /// What it wrote; `None` = deleted.
    pub writes: BTreeMap<Key, Option<u64>>,
    /// What it wrote and then wrote over. Only `ReadUncommitted` may see that, between the two inserts of the commit.
    pub overwritten: Vec<(Key, Option<u64>)>,
    /// How it ended.
    pub end: End,
}

/// A key that was read, at some moment from the first sequence number to the second.
#[derive(Clone, Debug)]
pub struct Read {
    /// The key.
    pub key: Key,
    /// What was found.
    pub value: Option<u64>,
    /// Visible before and after.
    pub moment: (u64, u64),
}

/// An interval that was walked.
#[derive(Clone, Debug)]
pub struct Walk {
    /// From here.
    pub low: Key,
    /// To before here.
    pub high: Key,
    /// What was found.
    pub found: Vec<(Key, u64)>,
    /// Keys in it that the transaction had written itself by then.
    pub own: Vec<Key>,
    /// Visible before and after.
    pub moment: (u64, u64),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this sequence number; that of the newest commit if it wrote nothing.
    Committed(u64),
    /// With a conflict, when this was visible.
    Refused(u64),
    /// By its own will.
    RolledBack,
}

/// A key in the order of the database.
fn bytes(key: Key) -> [u8; 2] {
    [(key >> 8) as u8, key as u8]
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
