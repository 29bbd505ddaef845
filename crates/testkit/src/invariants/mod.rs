//! T13, invariants: transactions that keep something true, on a disk that crashes at every call.
//!
//! * **Bank**: accounts in two families; each transfer takes from one what it gives to another, so the total stays.
//! * **Ring**: each node names the next one, all of them one ring; each transaction takes three in a row and changes their order, so
//!   it stays one ring of the same length.
//!
//! Several transactions are open at once and take turns, some at repeatable read, some at snapshot, some serializable: all three refuse the second
//! of two that read and write the same keys, so both invariants hold at each. The turns are those of one thread and of a seed,
//! so all is the same each time. Parts are undone by savepoints, whole transactions rolled back, and conflicts are met.
//! Each transaction also leaves a receipt.
//!
//! Whatever image of the disk is opened: the invariant is true, the receipts are those of the first so many commits, those
//! acknowledged as durable among them, and every key holds what these commits left. In a snapshot and in an open transaction the
//! invariant is true at any time.

mod judge;
mod play;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use judge::{Demand, recovered};
pub use play::{Counts, Player};
pub use work::{Work, whole};

/// The second family.
pub const SECOND: &str = "second";

/// A key: whether it is in the second family, and its bytes.
pub type Place = (bool, Vec<u8>);

/// Contents of both families.
pub type Contents = BTreeMap<Place, Vec<u8>>;

/// What a committed transaction wrote.
pub type Commit = Vec<(Place, Vec<u8>)>;

/// What was promised so far.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Commits in order; the last may be under way.
    pub commits: Vec<Commit>,
    /// Acknowledged.
    pub acked: usize,
    /// Acknowledged as durable.
    pub durable: usize,
}

impl Promises {
    /// What the first `n` commits leave.
    pub fn contents(&self, n: usize) -> Contents {
        self.commits.iter().take(n).flatten().cloned().collect()
    }
}

/// Promises, shared with an observer of the disk.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Promises>>);

impl Shared {
    /// The promises.
    pub fn lock(&self) -> MutexGuard<'_, Promises> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a transaction's receipt. Receipts are in the second family.
pub fn receipt(id: u64) -> Place {
    (true, format!("r{id:08}").into_bytes())
}

/// Whether a key is that of a receipt.
pub fn is_receipt(place: &Place) -> bool {
    place.0 && place.1.starts_with(b"r")
}
