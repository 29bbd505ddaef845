//! Memory of open tables: descriptions with their first and last keys, indexes and filters reduce the capacity of the block cache.
//!
//! One limit covers the memory of tables and of the cache. Tables with a resident index and filter may together use at
//! most half of it, so blocks always keep the other half.
//!
//! A table may be dropped where no lock may be taken: inside the cache, by epoch reclamation. So dropping a table only
//! updates a counter. The capacity of the cache is adjusted when the next table is opened or the next block is read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidesdb_cache::Cache;
use tidesdb_sync::{Mutex, rank};

use super::CachedPart;
use crate::memory::Memory;
use crate::{Error, Result};

/// The memory that tables share with the block cache, of one database or of several.
pub struct CacheMemory {
    cache: Arc<Cache<CachedPart>>,
    /// Limit for tables and cache together, in bytes.
    capacity: u64,
    /// This limit, lowered while memory is scarce.
    allowed: AtomicU64,
    /// Bytes used by tables.
    held: AtomicU64,
    /// The value of `held` for which the cache capacity was last set.
    settled: AtomicU64,
    settling: Mutex<(), { rank::TABLE_MEMORY }>,
    /// Whether the number of a database, its place here, is in use.
    numbers: Mutex<Vec<Arc<AtomicBool>>, { rank::LEAF }>,
}

impl CacheMemory {
    /// Creates a memory limit of `capacity` bytes. The cache may use all of it while no table is open.
    pub fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self {
            cache: Arc::new(Cache::new(capacity)),
            capacity,
            allowed: AtomicU64::new(capacity),
            held: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            settling: Mutex::default(),
            numbers: Mutex::default(),
        })
    }

    /// Returns the bytes that tables and cache use, including values that only readers keep.
    pub fn used(&self) -> u64 {
        let cache = self.cache.stats();
        self.held.load(Ordering::Relaxed) + cache.used_bytes.max(cache.live_bytes)
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<Cache<CachedPart>> {
        &self.cache
    }

    /// Limit for tables and cache together, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Lowers the limit to `bytes`, or raises it again, at most to the capacity. The cache shrinks at once; the memory of open
    /// tables stays.
    pub fn lower_to(&self, bytes: u64) {
        let _alone = self.settling.lock();
        self.allowed.store(bytes.min(self.capacity), Ordering::Relaxed);
        self.set_cache();
    }

    /// Sets the cache capacity to the remaining memory, but at least half.
    #[inline]
    fn settle(&self) {
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

    /// Returns a number for one more database, and what says that it is in use. A number is used again once its database has no table
    /// any more; what the cache had of it goes before.
    fn number(&self) -> Result<(u16, Arc<AtomicBool>)> {
        let mut numbers = self.numbers.lock();
        let free = numbers.iter().position(|used| !used.load(Ordering::Acquire));
        let at = free.unwrap_or(numbers.len());
        let Ok(number) = u16::try_from(at) else {
            return Err(Error::Exhausted { what: "numbers of databases that share a cache".into() });
        };
        let used = Arc::new(AtomicBool::new(true));
        match free {
            Some(at) => numbers[at] = Arc::clone(&used),
            None => numbers.push(Arc::clone(&used)),
        }
        drop(numbers);
        if free.is_some() {
            self.cache.erase_database(number);
        }
        Ok((number, used))
    }
}

impl fmt::Debug for CacheMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheMemory").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// The part of one database in this memory.
pub struct TableMemory {
    /// The memory that it is part of.
    pub shared: Arc<CacheMemory>,
    /// Number of the database in keys of the cache.
    pub(super) number: u16,
    /// Cleared when the last table is gone.
    number_used: Arc<AtomicBool>,
    /// Bytes used by tables of this database.
    held: AtomicU64,
    /// The memory of the database, for cursors.
    pub(super) whole: Arc<Memory>,
}

impl TableMemory {
    /// A limit of `capacity` bytes within `whole`, for one database.
    pub fn alone(whole: &Arc<Memory>, capacity: u64) -> Arc<Self> {
        Self::with(whole, CacheMemory::new(capacity), (0, Arc::default()))
    }

    /// Adds the database with the memory `whole` to those that have `shared`.
    ///
    /// # Errors
    /// `Exhausted` if there are as many as there are numbers.
    pub fn among(whole: &Arc<Memory>, shared: &Arc<CacheMemory>) -> Result<Arc<Self>> {
        let number = shared.number()?;
        Ok(Self::with(whole, Arc::clone(shared), number))
    }

    fn with(
        whole: &Arc<Memory>,
        shared: Arc<CacheMemory>,
        (number, number_used): (u16, Arc<AtomicBool>),
    ) -> Arc<Self> {
        Arc::new(Self { shared, number, number_used, held: AtomicU64::new(0), whole: Arc::clone(whole) })
    }

    /// Drops what the cache has of this database.
    pub fn leave_cache(&self) {
        self.shared.cache.erase_database(self.number);
    }

    /// Returns the bytes that open tables of this database use.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Limit for tables and cache together, in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.shared.capacity
    }

    /// Gives the cache the memory that tables leave.
    #[inline]
    pub(super) fn settle(&self) {
        self.shared.settle();
    }

    /// Takes `bytes` from the cache, unless the tables would then use more than half of the memory.
    pub(super) fn try_take(self: &Arc<Self>, bytes: u64) -> Option<TableShare> {
        let mut share = TableShare { memory: Arc::clone(self), bytes: 0 };
        share.try_resize(bytes).then_some(share)
    }

    /// Takes `bytes` that a table cannot do without.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> TableShare {
        self.shared.held.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.settle();
        TableShare { memory: Arc::clone(self), bytes }
    }
}

impl Drop for TableMemory {
    fn drop(&mut self) {
        self.number_used.store(false, Ordering::Release);
    }
}

impl fmt::Debug for TableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableMemory").field("number", &self.number).finish_non_exhaustive()
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
        let (limit, mine) = (self.memory.capacity() / 2, self.bytes);
        let resized = |held: u64| Some(held - mine + bytes).filter(|wanted| *wanted <= limit);
        let held = &self.memory.shared.held;
        let done = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, resized).is_ok();
        if done {
            self.memory.held.fetch_add(bytes.wrapping_sub(mine), Ordering::Relaxed);
            self.bytes = bytes;
            self.memory.settle();
        }
        done
    }
}

impl Drop for TableShare {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.memory.shared.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
