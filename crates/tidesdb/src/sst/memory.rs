//! The memory of open tables: indexes and filters that stay in memory take it from the block cache.
//!
//! What tables hold and what the cache may hold is one number. Tables that want to hold all of their index and filter share
//! half of it at most, so that blocks always keep the other half.

use std::fmt;
use std::sync::Arc;

use tidesdb_cache::Cache;
use tidesdb_sync::Mutex;

use super::CachedPart;

/// The memory that the tables of a database share with the block cache.
pub struct TableMemory {
    cache: Arc<Cache<CachedPart>>,
    /// Bytes of both.
    capacity: u64,
    /// Bytes that tables hold.
    held: Mutex<u64>,
}

impl TableMemory {
    /// Memory of `capacity` bytes, all of which `cache` may use as long as no table is open.
    pub fn new(cache: &Arc<Cache<CachedPart>>, capacity: u64) -> Arc<Self> {
        Arc::new(Self { cache: Arc::clone(cache), capacity, held: Mutex::new(0) })
    }

    /// Takes `bytes` from the cache, if the tables then hold half of the memory at most.
    pub(super) fn try_take(self: &Arc<Self>, bytes: u64) -> Option<TableShare> {
        let mut share = TableShare { memory: Arc::clone(self), bytes: 0 };
        share.try_resize(bytes).then_some(share)
    }

    /// Takes `bytes` that a table cannot do without.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> TableShare {
        let mut held = self.held.lock();
        let wanted = held.saturating_add(bytes);
        self.set(&mut held, wanted);
        TableShare { memory: Arc::clone(self), bytes }
    }

    /// The cache gets what is left, and half of the memory at least.
    fn set(&self, held: &mut u64, bytes: u64) {
        *held = bytes;
        self.cache.set_capacity(self.capacity - bytes.min(self.capacity / 2));
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
        let mut held = self.memory.held.lock();
        let wanted = held.saturating_sub(self.bytes).saturating_add(bytes);
        if wanted > self.memory.capacity / 2 {
            return false;
        }
        self.memory.set(&mut held, wanted);
        self.bytes = bytes;
        true
    }
}

impl Drop for TableShare {
    fn drop(&mut self) {
        let mut held = self.memory.held.lock();
        let left = held.saturating_sub(self.bytes);
        self.memory.set(&mut held, left);
    }
}
