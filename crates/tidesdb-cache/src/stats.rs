//! Counters of a cache and the bytes it accounts for.

use tidesdb_sync::{CachePadded, ShardedCounter, ShardedCounters};

use crate::sync::{AtomicU64, Ordering};

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
    /// Bytes of the slot array and of the values in the table.
    pub used_bytes: u64,
    /// Bytes of all values not yet destroyed: in the table, evicted but held by a handle or a pin, or never
    /// cached and held by a handle. Without the slot array.
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
    /// Any entry put into a slot, by an insert or by a change of tables.
    Arrival,
    /// Any entry taken out of a slot, evictions included.
    Departure,
}

const COUNTS: usize = 6;

/// The books of a cache. Entries share them, since handles outlive the cache.
pub(crate) struct Account {
    /// Bytes of the table and its entries. Every entry in a slot is charged exactly once.
    used: CachePadded<AtomicU64>,
    live: ShardedCounter,
    counts: ShardedCounters<COUNTS>,
}

impl Account {
    pub(crate) fn new() -> Self {
        Account {
            used: CachePadded::new(AtomicU64::new(0)),
            live: ShardedCounter::new(),
            counts: ShardedCounters::new(),
        }
    }

    #[inline]
    pub(crate) fn count(&self, what: Count) {
        self.counts.add(what as usize, 1);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes` if the total then stays within `capacity`; else says how much is missing.
    pub(crate) fn try_charge(&self, bytes: u64, capacity: u64) -> Result<(), u64> {
        let mut used = self.used();
        loop {
            let wanted = used.saturating_add(bytes);
            if wanted > capacity {
                return Err(wanted - capacity);
            }
            match self.used.compare_exchange_weak(used, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Charges `bytes` whatever the limit: for the slot array.
    pub(crate) fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn uncharge(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "gave back {bytes} of {before} bytes");
    }

    pub(crate) fn born(&self, bytes: u64) {
        self.live.add(bytes);
    }

    pub(crate) fn died(&self, bytes: u64) {
        self.live.sub(bytes);
    }

    pub(crate) fn stats(&self, capacity: u64) -> CacheStats {
        let sum = |what: Count| self.counts.sum(what as usize);
        // Departures first: an entry that comes and goes in between must not make the difference negative.
        let departures = sum(Count::Departure);
        CacheStats {
            hits: sum(Count::Hit),
            misses: sum(Count::Miss),
            inserts: sum(Count::Insert),
            evictions: sum(Count::Eviction),
            entries: sum(Count::Arrival).saturating_sub(departures),
            used_bytes: self.used(),
            live_bytes: self.live.sum(),
            capacity,
        }
    }
}
