//! The write buffer of TidesDB: concurrent ordered maps of versions, in an arena.
//!
//! [`Memtable`] is one interface over two maps. The default is a B+tree whose nodes are locked optimistically
//! (readers write nothing, writers lock one leaf); the other is a lock-free skip list, which also takes any key
//! order. Each is the model of the other in the tests.
//!
//! | file | contents |
//! | --- | --- |
//! | `memtable/` | the public interface: the memtable, its cursor and its entries |
//! | `tree/` | the B+tree |
//! | `skiplist/` | the skip list |
//! | `order.rs`, `record/`, `walk.rs` | shared by both maps: key order, versions and their chains, iteration over keys |
//! | `arena/` | memory: allocated by many threads, freed all at once |
//! | `sync.rs` | atomics, the real ones or loom's |
//!
//! # Safety
//!
//! This is one of the crates that may contain `unsafe`. Its proofs rest on three facts:
//! * The memory of an arena never moves and is freed only with its memtable.
//! * A record, a tower and a node are written completely before a Release store publishes them.
//! * Afterwards only atomic fields change: `next` of a record (or of its skip), the links and `newest` of a
//!   tower, and everything in a node. A reader uses what it read from a node only if the node's version word
//!   did not change meanwhile.
//!
//! # Out of scope
//!
//! Versions have no meaning to this crate beyond their order: kinds, expiry, tombstones and snapshots belong to
//! the caller. Nothing is ever removed. The size is not limited; the caller compares
//! [`Memtable::allocated_bytes`] with its budget and starts a new memtable.
#![allow(unsafe_code, reason = "a leaf crate")]

mod sync;
mod arena;
mod order;
mod record;
mod walk;
mod skiplist;
mod tree;
mod memtable;

pub use arena::{free_spare, spare_bytes};
pub use memtable::{Cursor, Entry, Memtable, Place, ValueHandle};
pub use order::{CompareFn, KeyOrder};
pub use record::{MemtableFull, Version};
