//! The memory of open tables: indexes and filters that stay in memory take it from the block cache.
//!
//! What tables hold and what the cache may hold is one number. Tables that want to hold all of their index and filter share
//! half of it at most, so that blocks always keep the other half.
//!
//! A table may be dropped where no lock may be taken: inside of the cache, by the epoch. So what it held is only noted then, and
//! the cache learns of it when the next table is opened or the next block is read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_cache::Cache;
use tidesdb_sync::{Mutex, rank};

use super::CachedPart;

/// The memory that the tables of a database share with the block cache.
pub struct TableMemory {
    cache: Arc<Cache<CachedPart>>,
    /// Bytes of both.
    capacity: u64,
    /// Bytes that tables hold.
    held: AtomicU64,
    /// Those that the capacity of the cache was last set for.
    settled: AtomicU64,
    settling: Mutex<(), { rank::TABLE_MEMORY }>,
}

impl TableMemory {
    /// Memory of `capacity` bytes, all of which `cache` may use as long as no table is open.
    pub fn new(cache: &Arc<Cache<CachedPart>>, capacity: u64) -> Arc<Self> {
        let (held, settled) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { cache: Arc::clone(cache), capacity, held, settled, settling: Mutex::new(()) })
    }

    /// Takes `bytes` from the cache, if the tables then hold half of the memory at most.
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

    /// Gives the cache what is left, and half of the memory at least.
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
            self.cache.set_capacity(self.capacity - held.min(self.capacity / 2));
        }
    }
}

impl fmt::Debug for TableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableMemory").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// The memory of one table, given back when this is dropped.
pub(super) struct TableShare {
    memory: Arc<TableMemory>,
    bytes: u64,
}

impl TableShare {
    /// Takes or gives back the difference to `bytes`, if the tables then hold half of the memory at most.
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
