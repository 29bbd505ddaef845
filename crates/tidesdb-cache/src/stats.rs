//! Counters of a cache, and the bytes charged to it.

use tidesdb_sync::{CachePadded, ShardedCounter, ShardedCounters};

use crate::sync::{AtomicU64, HintU64, Ordering};

/// Statistics of a [`Cache`](crate::Cache) since its creation. They are read one by one while other threads
/// work, so they may be slightly inconsistent with each other.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct CacheStats {
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not find their key.
    pub misses: u64,
    /// Values put into the table.
    pub inserts: u64,
    /// Of these, values whose key had been in the table until lately. A larger cache would have kept them.
    pub returns: u64,
    /// Values evicted to make room.
    pub evictions: u64,
    /// Number of values in the table.
    pub entries: u64,
    /// Bytes of the table and of the values in it.
    pub used_bytes: u64,
    /// Bytes of all values not yet destroyed: in the table, evicted but kept alive by a handle or a pin, or
    /// never cached and kept alive by a handle. Does not include the table.
    pub live_bytes: u64,
    /// Upper limit of `used_bytes`.
    pub capacity: u64,
}

/// Events that are counted, per thread slot.
#[derive(Copy, Clone)]
pub(crate) enum Count {
    Hit,
    Miss,
    Insert,
    Return,
    Eviction,
}

const COUNTS: usize = 5;

/// The fields that every insert and eviction writes, on one cache line.
struct Level {
    /// Bytes of the table and its entries. Every entry in a slot is charged exactly once.
    used: AtomicU64,
    /// Bytes of the entries on probation.
    probation: HintU64,
    entries: HintU64,
}

/// The accounting of a cache. Entries share it, because handles outlive the cache.
pub(crate) struct Account {
    level: CachePadded<Level>,
    live: ShardedCounter,
    counts: ShardedCounters<COUNTS>,
}

impl Account {
    pub(crate) fn new() -> Self {
        Account {
            level: CachePadded::new(Level {
                used: AtomicU64::new(0),
                probation: HintU64::new(0),
                entries: HintU64::new(0),
            }),
            live: ShardedCounter::new(),
            counts: ShardedCounters::new(),
        }
    }

    #[inline]
    pub(crate) fn count(&self, what: Count) {
        self.counts.add(what as usize, 1);
    }

    pub(crate) fn used(&self) -> u64 {
        self.level.used.load(Ordering::Relaxed)
    }

    pub(crate) fn probation(&self) -> u64 {
        self.level.probation.load(Ordering::Relaxed)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.level.entries.load(Ordering::Relaxed)
    }

    /// Charges `bytes` if the total then stays within `capacity`. Otherwise returns the number of bytes
    /// missing.
    pub(crate) fn try_charge(&self, bytes: u64, capacity: u64) -> Result<(), u64> {
        let mut used = self.used();
        loop {
            let room = capacity.saturating_sub(used);
            if bytes > room || used > capacity {
                return Err(used.saturating_sub(capacity).saturating_add(bytes - bytes.min(room)));
            }
            let wanted = used + bytes;
            match self.level.used.compare_exchange_weak(used, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    pub(crate) fn uncharge(&self, bytes: u64) {
        let before = self.level.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "uncharged {bytes} of {before} bytes");
    }

    /// Records an entry that is charged already, and how many of its bytes are on probation.
    pub(crate) fn arrived(&self, probation: u64) {
        self.level.entries.fetch_add(1, Ordering::Relaxed);
        if probation > 0 {
            self.level.probation.fetch_add(probation, Ordering::Relaxed);
        }
    }

    /// Records that an entry of `charge` bytes left the table.
    pub(crate) fn departed(&self, charge: u64) {
        self.level.entries.fetch_sub(1, Ordering::Relaxed);
        self.uncharge(charge);
    }

    pub(crate) fn end_probation(&self, charge: u64) {
        self.level.probation.fetch_sub(charge, Ordering::Relaxed);
    }

    pub(crate) fn born(&self, bytes: u64) {
        self.live.add(bytes);
    }

    pub(crate) fn died(&self, bytes: u64) {
        self.live.sub(bytes);
    }

    /// Bytes of all values not yet destroyed. Sums the counters of all threads.
    pub(crate) fn live(&self) -> u64 {
        self.live.sum()
    }

    pub(crate) fn stats(&self, capacity: u64) -> CacheStats {
        let sum = |what: Count| self.counts.sum(what as usize);
        CacheStats {
            hits: sum(Count::Hit),
            misses: sum(Count::Miss),
            inserts: sum(Count::Insert),
            returns: sum(Count::Return),
            evictions: sum(Count::Eviction),
            entries: self.entries(),
            used_bytes: self.used(),
            live_bytes: self.live(),
            capacity,
        }
    }
}
