//! The write path in a few lines.
//!
//! ```text
//! WriteBatch::put      encodes the operation once, in the log's own form; a value of 8 MiB or more goes to the value log at once
//! commit               the only entry point for data:
//!   admit                waits here if background work lags, before a place in the order of commits is drawn
//!   separate             moves values of at least the threshold to the value log and leaves pointers
//!   log.reserve          one compare-and-swap assigns the sequence number
//!   log.write_at         the bytes go to the kernel
//!   insert               into the memtable that the sequence number belongs to; a large batch is sorted into memtables of its
//!                        own before log.reserve (`staged.rs`)
//!   publish              makes the commit visible to all, after it is durable if the commit asks for that
//! commit_if            the same with a condition, decided after the place is assigned and before the record is written; the
//!                      record of a refused commit is written as refused
//! ```

mod ops;
mod family;
mod chunks;
mod batch;
mod insert;
mod staged;
mod admit;
mod commit;
#[cfg(test)]
mod tests;

pub use batch::{Mark, WriteBatch, check_key};
pub use chunks::{Chunks, begin_writing};
pub(crate) use commit::commit_taken;
pub use commit::{commit, commit_if};
pub use family::Family;
pub use insert::{insert_op, slot_of};
pub use ops::{Op, encode_op, logged_ops, ops, whole_ops};
