//! A lock-free block cache: S3-FIFO replacement, charged by real bytes, read without a read-modify-write.
//!
//! # How it works
//!
//! The table consists of windows of 16 slots; a slot is one atomic word, empty or a pointer to an entry. A key can
//! live in the slots of one window only, so lookups, inserts and the search for duplicates look at 128 bytes and there
//! are no tombstones. Upper bits of the word carry bits of the hash, so that as a rule only the right entry is
//! touched; the full key is compared all the same.
//!
//! A slot owns one reference of its entry and gives it back through the epoch ([`tidesdb_sync::pin`]). Hence a
//! reader that found an entry under a pin may use it until the pin ends ([`Cache::get_pinned`]) and may add a
//! reference of its own ([`Cache::get`]), whatever happens to the slot meanwhile. No slot is ever "being
//! changed": each change is one compare-and-swap from what was seen, so no state needs a pin count, and an
//! address cannot come back while somebody pinned still compares with it.
//!
//! # Replacement
//!
//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), in place: entries never move
//! when their state changes. In a full cache a new entry is on probation. When entries on probation take more than a
//! tenth of the capacity, the oldest of them is judged: with two hits it stays, else it leaves and its window
//! remembers a fingerprint of its key. A key that is remembered when it comes back skips probation. For the rest of
//! the room a hand walks the slots: cold entries leave, others cool by one. Hits warm an entry up to heat 3, so a hot
//! entry is only read. The work per insert is bounded. `docs/design/0022-cache-policy.md` has the measurements.
//!
//! # Growth
//!
//! The table has a window for every four entries, whatever the capacity, and grows by linear hashing: the insert that
//! makes it crowded adds one window, to which a part of one other window moves. A lookup meanwhile may miss an entry
//! that is being moved. Windows lie in chunks of 4,096, whose memory the system provides as it is touched.
//!
//! # Bounds
//!
//! [`CacheStats::used_bytes`] (table and entries) never exceeds the capacity, with one exception: inserts that race
//! with [`Cache::set_capacity`] to a smaller size may leave it above, by at most an eighth of the former capacity per
//! inserting thread, until the next insert. Entries that were evicted but are still held by handles or pins are
//! outside it; [`CacheStats::live_bytes`] counts them too. The first window, 152 bytes, is not counted.

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
