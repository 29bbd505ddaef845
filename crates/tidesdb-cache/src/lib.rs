//! A lock-free block cache: CLOCK replacement, charged by real bytes, read without a read-modify-write.
//!
//! # How it works
//!
//! The table is an array of windows of 16 slots; a slot is one atomic word, empty or a pointer to an entry. A
//! key can live in the slots of one window only, so lookups, inserts and the search for duplicates look at two
//! cache lines and there are no tombstones. Upper bits of the word carry bits of the hash, so that as a rule
//! only the right entry is touched; the full key is compared all the same.
//!
//! A slot owns one reference of its entry and gives it back through the epoch ([`tidesdb_sync::pin`]). Hence a
//! reader that found an entry under a pin may use it until the pin ends ([`Cache::get_pinned`]) and may add a
//! reference of its own ([`Cache::get`]), whatever happens to the slot meanwhile. No slot is ever "being
//! changed": each change is one compare-and-swap from what was seen, so no state needs a pin count, and an
//! address cannot come back while somebody pinned still compares with it.
//!
//! # Replacement
//!
//! Entries start cold and warm up by hits, to heat 3. A hand walks the slots when room
//! is needed: cold entries go, others cool by one. A scan thus flushes what was never asked for twice, before
//! it touches the working set. The work per insert is bounded.
//!
//! # Bounds
//!
//! [`CacheStats::used_bytes`] (slot array and entries) never exceeds the capacity, with one exception: inserts
//! that race with [`Cache::set_capacity`] to a smaller size may leave it above, by at most an eighth of the
//! former capacity per inserting thread, until the next insert. Entries that were evicted but are still held by
//! handles or pins are outside it; [`CacheStats::live_bytes`] counts them too.

mod sync;
mod key;
mod stats;
mod entry;
mod slot;
mod queue;
mod segment;
mod table;
mod cache;
#[cfg(all(test, not(loom)))]
mod tests;

pub use cache::Cache;
pub use entry::Handle;
pub use key::CacheKey;
pub use stats::CacheStats;
