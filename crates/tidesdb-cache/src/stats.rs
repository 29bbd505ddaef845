//! Counters of a cache and the bytes it accounts for.

use tidesdb_sync::{CachePadded, ShardedCounter, ShardedCounters};

use crate::sync::{AtomicU64, HintU64, Ordering};

/// Figures of a [`Cache`](crate::Cache) since it was made. Taken one by one while others work, so they need not
/// agree with each other to the last unit.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct CacheStats {
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Values that were put into the table.
    pub inserts: u64,
    /// Values that were pushed out to make room.
    pub evictions: u64,
    /// Values in the table.
    pub entries: u64,
    /// Bytes of the table and of the values in it.
    pub used_bytes: u64,
    /// Bytes of all values not yet destroyed: in the table, evicted but held by a handle or a pin, or never
    /// cached and held by a handle. Without the table.
    pub live_bytes: u64,
    /// The limit of `used_bytes`.
    pub capacity: u64,
}

/// What is counted per event, by thread slot.
#[derive(Copy, Clone)]
pub(crate) enum Count {
    Hit,
    Miss,
    Insert,
    Eviction,
}

const COUNTS: usize = 4;

/// What every insert and eviction writes, on one cache line.
struct Level {
    /// Bytes of the table and its entries. Every entry in a slot is charged exactly once.
    used: AtomicU64,
    /// Those of entries on probation.
    probation: HintU64,
    entries: HintU64,
}

/// The books of a cache. Entries share them, since handles outlive the cache.
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

    /// Charges `bytes` if the total then stays within `capacity`; else says how much is missing.
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
        debug_assert!(before >= bytes, "gave back {bytes} of {before} bytes");
    }

    /// Notes an entry that is charged already, and how much of it is on probation.
    pub(crate) fn arrived(&self, probation: u64) {
        self.level.entries.fetch_add(1, Ordering::Relaxed);
        if probation > 0 {
            self.level.probation.fetch_add(probation, Ordering::Relaxed);
        }
    }

    /// Notes that an entry of `charge` bytes is gone.
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

    /// Bytes of all values not yet destroyed. Adds up counters of all threads.
    pub(crate) fn live(&self) -> u64 {
        self.live.sum()
    }

    pub(crate) fn stats(&self, capacity: u64) -> CacheStats {
        let sum = |what: Count| self.counts.sum(what as usize);
        CacheStats {
            hits: sum(Count::Hit),
            misses: sum(Count::Miss),
            inserts: sum(Count::Insert),
            evictions: sum(Count::Eviction),
            entries: self.entries(),
            used_bytes: self.used(),
            live_bytes: self.live(),
            capacity,
        }
    }
}
