//! T47: transactions that maintain an invariant, on a disk that crashes at every call.
//!
//! * **Bank**: accounts in two families. Each transfer moves an amount from one account to another, so the total is
//!   constant.
//! * **Ring**: each node names the next one, and all nodes form one ring. Each transaction changes the order of three
//!   successive nodes, so the ring keeps its length.
//!
//! Several transactions are open at once and take turns, at repeatable read, snapshot or serializable. Each of these
//! levels refuses the second of two transactions that read and write the same keys, so both invariants hold at each
//! level. One thread makes all turns, driven by a seed, so each play is reproducible. Parts of transactions are undone
//! by savepoints, whole transactions are rolled back, and conflicts occur. Each transaction also writes a receipt.
//!
//! For every image of the disk, the opened database must satisfy the following. The invariant holds. The receipts are
//! those of the first `n` commits for some `n`, including all commits acknowledged as durable. Every key holds the
//! value that these commits left. In addition, the invariant holds in every snapshot and in every open transaction.

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

/// Name of the second family.
pub const SECOND: &str = "second";

/// A key: whether it is in the second family, and its bytes.
pub type FamilyKey = (bool, Vec<u8>);

/// Contents of both families.
pub type Contents = BTreeMap<FamilyKey, Vec<u8>>;

/// Writes of a committed transaction.
pub type Commit = Vec<(FamilyKey, Vec<u8>)>;

/// Promises made so far.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Commits in order; the last one may be in progress.
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
pub fn receipt(id: u64) -> FamilyKey {
    (true, format!("r{id:08}").into_bytes())
}

/// Returns true if a key is that of a receipt.
pub fn is_receipt(place: &FamilyKey) -> bool {
    place.0 && place.1.starts_with(b"r")
}
