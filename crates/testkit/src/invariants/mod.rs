//! T13, invariants: transactions that preserve an invariant, on a disk that crashes at every call.
//!
//! * **Bank**: accounts in two families; each transfer takes from one what it gives to another, so the total is constant.
//! * **Ring**: each node names the next one, and all form one ring. Each transaction changes the order of three consecutive nodes, so
//!   it stays one ring of the same length.
//!
//! Several transactions are open at once and take turns, some at repeatable read, some at snapshot, some serializable. At all three
//! levels the second of two that read and write the same keys conflicts, so both invariants hold. The turns are those of one thread
//! and depend only on the seed, so every run is the same. Parts are undone by savepoints, whole transactions are rolled back, and
//! conflicts occur. Each transaction also writes a receipt.
//!
//! For every possible disk image: the invariant holds, the receipts are those of a prefix of the commits, which includes all commits
//! acknowledged as durable, and every key holds what these commits wrote. In a snapshot and in an open transaction the
//! invariant holds at any time.

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

/// A key: true if it is in the second family, and its bytes.
pub type Place = (bool, Vec<u8>);

/// Contents of both families.
pub type Contents = BTreeMap<Place, Vec<u8>>;

/// What a committed transaction wrote.
pub type Commit = Vec<(Place, Vec<u8>)>;

/// Promises so far.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Commits in order; the last may be unfinished.
    pub commits: Vec<Commit>,
    /// Number of acknowledged commits.
    pub acked: usize,
    /// Number of commits acknowledged as durable.
    pub durable: usize,
}

impl Promises {
    /// Returns the contents after the first `n` commits.
    pub fn contents(&self, n: usize) -> Contents {
        self.commits.iter().take(n).flatten().cloned().collect()
    }
}

/// Promises, shared with an observer of the disk.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Promises>>);

impl Shared {
    /// Locks the promises.
    pub fn lock(&self) -> MutexGuard<'_, Promises> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key of a transaction's receipt. Receipts are in the second family.
pub fn receipt(id: u64) -> Place {
    (true, format!("r{id:08}").into_bytes())
}

/// Returns whether a key is that of a receipt.
pub fn is_receipt(place: &Place) -> bool {
    place.0 && place.1.starts_with(b"r")
}
