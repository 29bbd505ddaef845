//! Transactions: reads and writes at one isolation level, committed all or none.
//!
//! ```text
//! put, delete      appended to the batch, which is the record of the log; no other thread sees it
//! get, cursors     the transaction's own writes first, then the data at the read timestamp of the level; keys and intervals
//!                  read are recorded if the level needs them
//! commit           weak levels: the path of a plain batch, without a condition.
//!                  Other levels: the commit gets its place in the order, waits until all commits before it are in the
//!                  memtables, and checks for each key and interval of its footprint whether a version was written since its
//!                  snapshot
//! ```
//!
//! | level | reads at | refused at commit if another commit has since written |
//! | --- | --- | --- |
//! | `ReadUncommitted` | each call, including what is not yet published | - |
//! | `ReadCommitted` | each call | - |
//! | `RepeatableRead` | the beginning | a key that was read |
//! | `Snapshot` | the beginning | a key that is written |
//! | `Serializable` | the beginning | a key that was read, or any key in an interval that was scanned |
//!
//! This is optimistic concurrency control with backward validation (Kung and Robinson, "On Optimistic Methods for
//! Concurrency Control", 1981), by versions instead of sets: a footprint is compared with the data, key by key in full.
//! So there are no false conflicts by a hash and no missed ones, no memory of finished transactions, and no limit to
//! their number.
//!
//! A serializable transaction that commits at `c` has read at its snapshot what it would have read at `c`: the order of
//! commits is an equivalent serial order, in real time. A transaction that only reads takes its place in that order at
//! its snapshot.

mod footprint;
mod own;
mod transaction;
mod validate;

pub use transaction::{Savepoint, Transaction};
