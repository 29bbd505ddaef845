//! The write path in ten lines.
//!
//! ```text
//! WriteBatch::put      encodes the operation once, in the log's own form
//! commit               the only door through which data enters:
//!   stall::admit         wait here if flushing lags, before an order is drawn
//!   separate             values from the threshold up go to the value log, a pointer takes their place
//!   log.append           one compare-and-swap gives the sequence number, then the bytes go to the kernel
//!   insert               into the memtable that the sequence number belongs to; a large batch is sorted into memtables of its
//!                        own before log.append (`staged.rs`)
//!   publish              visible to all, after it is durable if the commit asks for that
//! commit_if            the same with a condition, decided between the drawing of the place and the writing of the record:
//!                      a record that is refused is written as such
//! ```

mod batch;
mod commit;
mod staged;
mod stall;
#[cfg(test)]
mod tests;

pub use batch::{Mark, Op, WriteBatch, encode_op, ops};
pub use commit::{commit, commit_if};
