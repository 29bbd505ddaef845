//! The write buffer of TidesDB: concurrent ordered maps of versions, in an arena.
//!
//! [`Memtable`] is one interface over two maps. The default is a B+tree whose nodes are locked optimistically
//! (readers write nothing, writers lock one leaf); the other is a lock-free skip list, which also takes any key
//! order. Each is the model of the other in the tests.
//!
//! | file | what |
//! | --- | --- |
//! | `memtable/` | the interface: the memtable, its cursor, the entries it shows |
//! | `tree/` | the B+tree |
//! | `skiplist/` | the skip list |
//! | `order.rs`, `record/`, `walk.rs` | what the maps share: key order, versions and their chains, stepping |
//! | `arena/` | memory: handed out by many threads, freed at once |
//! | `sync.rs` | atomics, real or loom's |
//!
//! # Who may do what
//!
//! This is one of the crates that may hold `unsafe`. Its proofs rest on three facts. Memory of an arena never
//! moves and is freed only with its memtable. A record, a tower and a node are written completely before a
//! Release store publishes them. Afterwards only atomic fields change: `next` of a record (or of its skip), the links and
//! `newest` of a tower, and everything in a node; a reader of a node believes what it read only if the node's
//! version word did not change meanwhile.
//!
//! # What it does not do
//!
//! It gives versions no meaning beyond their order: kinds, expiry, tombstones and snapshots are the caller's.
//! It removes nothing. It does not limit its size; the caller compares [`Memtable::allocated_bytes`] with its
//! budget and starts a new memtable.

mod sync;
mod arena;
mod order;
mod record;
mod walk;
mod skiplist;
mod tree;
mod memtable;

pub use memtable::{Cursor, Entry, MapKind, Memtable, ValueHandle};
pub use order::{CompareFn, KeyOrder};
pub use record::{MemtableFull, Version};
