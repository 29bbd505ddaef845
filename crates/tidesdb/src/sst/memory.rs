//! Memory of open tables: descriptions with their first and last keys, indexes and filters reduce the capacity of the block cache.
//!
//! One limit covers the memory of tables and of the cache. Tables with a resident index and filter may together use at
//! most half of it, so blocks always keep the other half.
//!
//! A table may be dropped where no lock may be taken: inside the cache, by epoch reclamation. So dropping a table only
//! updates a counter. The capacity of the cache is adjusted when the next table is opened or the next block is read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_cache::Cache;
use tidesdb_sync::{Mutex, rank};

use super::CachedPart;
use crate::memory::Memory;

/// The memory that the tables of a database share with the block cache.
pub struct TableMemory {
    cache: Arc<Cache<CachedPart>>,
    /// Limit for tables and cache together, in bytes.
    pub(super) capacity: u64,
    /// This limit, lowered while memory is scarce.
    allowed: AtomicU64,
    /// Bytes used by tables.
    held: AtomicU64,
    /// The value of `held` for which the cache capacity was last set.
    settled: AtomicU64,
    settling: Mutex<(), { rank::TABLE_MEMORY }>,
    /// The memory of the database, for cursors.
    pub(super) whole: Arc<Memory>,
}

impl TableMemory {
    /// Creates a memory limit of `capacity` bytes within `whole`. `cache` may use all of it while no table is open.
    pub fn new(whole: &Arc<Memory>, cache: &Arc<Cache<CachedPart>>, capacity: u64) -> Arc<Self> {
        let (held, settled) = (AtomicU64::new(0), AtomicU64::new(0));
        let (cache, allowed) = (Arc::clone(cache), AtomicU64::new(capacity));
        let settling = Mutex::new(());
        Arc::new(Self { cache, capacity, allowed, held, settled, settling, whole: Arc::clone(whole) })
    }

    /// Returns the bytes that tables and cache use, including values that only readers keep.
    pub fn used(&self) -> u64 {
        let cache = self.cache.stats();
        self.held.load(Ordering::Relaxed) + cache.used_bytes.max(cache.live_bytes)
    }

    /// Lowers the limit to `bytes`, or raises it again, at most to the capacity. The cache shrinks at once; the memory of open
    /// tables stays.
    pub fn lower_to(&self, bytes: u64) {
        let _alone = self.settling.lock();
        self.allowed.store(bytes.min(self.capacity), Ordering::Relaxed);
        self.set_cache();
    }

    /// Takes `bytes` from the cache, unless the tables would then use more than half of the memory.
    pub(super) fn try_take(self: &Arc<Self>, bytes: u64) -> Option<TableShare> {
        let mut share = TableShare { memory: Arc::clone(self), bytes: 0 };
        share.try_resize(bytes).then_some(share)
    }

    /// Takes `bytes` that a table cannot do without.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> TableShare {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.settle();
        TableShare { memory: Arc::clone(self), bytes }
    }

    /// Sets the cache capacity to the remaining memory, but at least half.
    #[inline]
    pub(super) fn settle(&self) {
        if self.held.load(Ordering::Relaxed) != self.settled.load(Ordering::Relaxed) {
            self.set_capacity();
        }
    }

    #[cold]
    fn set_capacity(&self) {
        let _alone = self.settling.lock();
        loop {
            let held = self.held.load(Ordering::Relaxed);
            if self.settled.swap(held, Ordering::Relaxed) == held {
                return;
            }
            self.set_cache();
        }
    }

    /// Gives the cache what tables leave of the limit, at least half of it. The caller holds `settling`.
    fn set_cache(&self) {
        let (held, allowed) = (self.held.load(Ordering::Relaxed), self.allowed.load(Ordering::Relaxed));
        self.cache.set_capacity(allowed - held.min(allowed / 2));
    }
}

impl fmt::Debug for TableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableMemory").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// The memory of one table; dropping it returns the memory.
pub(super) struct TableShare {
    memory: Arc<TableMemory>,
    bytes: u64,
}

impl TableShare {
    /// Changes the share to `bytes`. Refuses if the tables would then use more than half of the memory.
    pub(super) fn try_resize(&mut self, bytes: u64) -> bool {
        let (limit, mine) = (self.memory.capacity / 2, self.bytes);
        let resized = |held: u64| Some(held - mine + bytes).filter(|wanted| *wanted <= limit);
        let done = self.memory.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, resized).is_ok();
        if done {
            self.bytes = bytes;
            self.memory.settle();
        }
        done
    }
}

impl Drop for TableShare {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
