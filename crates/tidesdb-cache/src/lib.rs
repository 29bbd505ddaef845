//! A lock-free block cache: S3-FIFO replacement, charged by actual bytes, read without a read-modify-write.
//!
//! # How it works
//!
//! The table consists of windows of 16 slots. A slot is one atomic word: empty, or a pointer to an entry. A key
//! can be in the slots of one window only, so lookups, inserts and the search for duplicates read 128 bytes,
//! and there are no tombstones. The upper bits of the word hold bits of the hash, so usually only the right
//! entry is accessed; the full key is always compared.
//!
//! A slot owns one reference to its entry and releases it through the epoch ([`tidesdb_sync::pin`]). So a
//! reader that found an entry under a pin may use it until the pin ends ([`Cache::get_pinned`]), and may add a
//! reference of its own ([`Cache::get`]), whatever happens to the slot meanwhile. A slot has no intermediate
//! state: each change is one compare-and-swap from the word that was read. So no state needs a pin count, and
//! an address is not reused while a thread with a pin still compares with it.
//!
//! # Replacement
//!
//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), in place: entries do
//! not move when their state changes. In a full cache a new entry is on probation. While entries on probation
//! take more than a tenth of the capacity, the oldest of them is judged. With two hits it stays; otherwise it
//! leaves, and its window keeps a fingerprint of its key. A key whose fingerprint is known skips probation when
//! it is inserted again. To free the remaining room, a hand scans the slots: cold entries leave, others cool by
//! one. Hits raise the heat of an entry up to 3, so a hot entry is only read. The work per insert is bounded.
//! See `docs/design/0022-cache-policy.md` for measurements.
//!
//! # Growth
//!
//! The table has one window per four entries, whatever the capacity, and grows by linear hashing: an insert
//! that makes it crowded adds one window, and a part of one other window moves there. A lookup may miss an
//! entry while it is being moved. Windows are in chunks of 4,096, whose memory the system provides when it is
//! first touched.
//!
//! # Bounds
//!
//! [`CacheStats::used_bytes`] (table and entries) never exceeds the capacity, with one exception. Inserts that
//! race with [`Cache::set_capacity`] to a smaller size may leave it above, by at most an eighth of the former
//! capacity per inserting thread, until the next insert. Evicted entries that handles or pins still keep alive
//! are not included; [`CacheStats::live_bytes`] counts them too. The first window, 152 bytes, is not counted.
#![allow(unsafe_code, reason = "a leaf crate")]

mod sync;
mod key;
mod stats;
mod entry;
mod slot;
mod queue;
mod directory;
mod table;
mod cache;
#[cfg(all(test, not(loom)))]
mod tests;

pub use cache::Cache;
pub use entry::Handle;
pub use key::CacheKey;
pub use stats::CacheStats;
