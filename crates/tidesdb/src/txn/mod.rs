//! Transactions: reads and writes at one level of isolation, committed all or none.
//!
//! ```text
//! put, delete      into the batch, which is the record of the log; nobody else sees it
//! get, cursors     the transaction's own writes first, then the moment that the level reads at; what was looked at is noted if
//!                  the level must know
//! commit           no condition at the weak levels: the path of a plain batch.
//!                  Otherwise the commit draws its place in the order, waits until all before it are in the memtables, and asks
//!                  for each key and interval of its footprint whether a version came since its snapshot
//! ```
//!
//! | level | reads at | refused at commit if since then somebody wrote |
//! | --- | --- | --- |
//! | `ReadUncommitted` | each call, also what is not yet published | - |
//! | `ReadCommitted` | each call | - |
//! | `RepeatableRead` | the beginning | a key that was read |
//! | `Snapshot` | the beginning | a key that is written |
//! | `Serializable` | the beginning | a key that was read, or any key in an interval that was walked |
//!
//! This is optimistic concurrency control with backward validation (Kung and Robinson, "On Optimistic Methods for Concurrency
//! Control", 1981), by versions instead of sets: a footprint is compared with the data, key by key in full, so there
//! is neither a false conflict by a hash nor a missed one, no memory of finished transactions, and no limit to their number.
//! A serializable transaction that commits at `c` has read at its snapshot what it would have read at `c`: the order of
//! commits is an equivalent serial order, in real time. One that only reads is in that order at its snapshot.

mod footprint;
mod own;
mod transaction;
mod validate;

pub use transaction::{Savepoint, Transaction};
