//! [`Cache`]: the public interface. Admits new values, makes room for them and grows the table.
//!
//! Locks: lookups wait for no lock. Erasing and resizing exclude each other by a lock, so that a resize does
//! not move an erased key to another window unseen. An insert that finds the lock taken leaves growing to the
//! next insert, unless windows would overflow.
//!
//! An evicted value is freed once no epoch pin can see it. A thread that sleeps with a pin delays all of that,
//! so inserts stop evicting while too much waits to be freed ([`Cache::is_clogged`]): they return their values
//! uncached.

use std::fmt;

use tidesdb_sync::{Guard, Mutex, pin, rank, reclaim};

use crate::entry::{Entry, Handle};
use crate::key::CacheKey;
use crate::slot::EntryRef;
use crate::stats::{Account, CacheStats, Count};
use crate::sync::{AtomicU64, HintU64, Ordering, PlainArc};
use crate::table::{Effort, Table, WINDOW_BYTES};

/// A value may take at most one part in this many of the capacity, so that a few values cannot push out
/// everything.
const LARGEST_SHARE: u64 = if cfg!(loom) { 1 } else { 8 };

/// Entries on probation are evicted while they take more than one part in this many of the capacity.
const PROBATION_SHARE: u64 = 10;

/// Minimum capacity per window, so that the table does not take the space of the values.
const BYTES_PER_WINDOW: u64 = if cfg!(loom) { 40 } else { 1024 };

/// Limit on evicted bytes that wait to be freed: one part in this many of the capacity, but at least
/// [`WAITING_MIN`].
const WAITING_SHARE: u64 = 8;
const WAITING_MIN: u64 = 2 << 20;

/// Maximum number of windows that one insert adds.
const GROWTH: usize = 4;

/// Number of windows that `erase_file` scans under one pin.
const WINDOWS_PER_PIN: usize = 256;

/// A concurrent cache from [`CacheKey`] to immutable values.
///
/// ```
/// use tidesdb_cache::{Cache, CacheKey};
///
/// let cache: Cache<Vec<u8>> = Cache::new(1 << 20);
/// let key = CacheKey { file: 7, database: 0, block: 0, part: 0 };
/// assert!(cache.get(key).is_none());
///
/// cache.insert(key, vec![1, 2, 3], 3);
/// let guard = tidesdb_sync::pin();
/// assert_eq!(cache.get_pinned(key, &guard), Some(&vec![1, 2, 3]));
///
/// let handle = cache.get(key).expect("just inserted");
/// cache.erase(key);
/// drop(cache);
/// assert_eq!(*handle, [1, 2, 3]);
/// ```
pub struct Cache<V: Send + Sync + 'static> {
    table: Table<V>,
    capacity: AtomicU64,
    /// Bytes evicted since the epoch was last asked to free some.
    retired: HintU64,
    /// 1 while too many evicted bytes are not freed yet.
    clogged: HintU64,
    account: PlainArc<Account>,
    /// Held by a thread that erases or changes the number of windows.
    reshaping: Mutex<(), { rank::CACHE }>,
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Creates a cache of at most `capacity` bytes, including its table. With 0 it caches nothing. It takes
    /// almost no memory until something is cached.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        let account = PlainArc::new(Account::new());
        Cache {
            table: Table::new(&account),
            capacity: AtomicU64::new(capacity),
            retired: HintU64::new(0),
            clogged: HintU64::new(0),
            account,
            reshaping: Mutex::new(()),
        }
    }

    /// Returns the value of `key` as a handle. Costs a shared reference count; see
    /// [`get_pinned`](Self::get_pinned).
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Handle<V>> {
        let guard = pin();
        self.look_up(key, &guard).map(|found| Handle(found.share()))
    }

    /// Returns the value of `key`, valid while the guard lives. Writes to no memory that is shared with other
    /// readers, except for the first few hits since the hand last passed the entry.
    #[inline]
    pub fn get_pinned<'g>(&'g self, key: CacheKey, guard: &'g Guard) -> Option<&'g V> {
        self.look_up(key, guard).map(|found| &found.entry().value)
    }

    #[inline(always)]
    fn look_up<'g>(&'g self, key: CacheKey, guard: &'g Guard) -> Option<EntryRef<'g, V>> {
        let found = self.table.find(key, key.hash(), guard);
        match found {
            Some(found) => {
                self.account.count(Count::Hit);
                found.entry().touch();
            }
            None => self.account.count(Count::Miss),
        }
        found
    }

    /// Returns whether `key` is cached. This is neither a lookup nor a hit of the entry in the statistics.
    pub fn contains(&self, key: CacheKey) -> bool {
        let guard = pin();
        self.table.find(key, key.hash(), &guard).is_some()
    }

    /// Caches `value`, of `charge` bytes (its own size and everything it owns), and evicts others to make room.
    /// In a full cache, a value that was not looked up lately is on probation: it leaves soon unless it is hit
    /// twice.
    ///
    /// If the key is cached already, or another thread caches it meanwhile, the handle is for *that* value and
    /// this one is dropped. A value of more than an eighth of the capacity is returned without being cached,
    /// and so is a value for which a bounded effort finds no room.
    pub fn insert(&self, key: CacheKey, value: V, charge: u64) -> Handle<V> {
        let hash = key.hash();
        let guard = pin();
        if let Some(found) = self.table.find(key, hash, &guard) {
            return Handle(found.share());
        }
        let entry = Entry::new(key, value, charge, &self.account);
        let capacity = self.capacity();
        if entry.charge > capacity / LARGEST_SHARE {
            return Handle(entry);
        }
        let Some(evicted) = self.make_room(entry.charge, &guard) else {
            return Handle(entry);
        };
        let known = self.table.ghosts(hash, &guard).is_some_and(|ghosts| ghosts.remove(hash));
        let probation = !known && (evicted || self.account.probation() < capacity / PROBATION_SHARE);
        entry.arrive(probation);
        let Some(placed) = self.table.place(&entry, hash, &guard) else {
            entry.depart();
            return Handle(entry);
        };
        if probation {
            self.table.enqueue(hash, &guard);
        }
        self.account.count(Count::Insert);
        if known {
            self.account.count(Count::Return);
        }
        let winner = self.table.settle(key, hash, placed, &guard);
        let handle = winner.map_or(Handle(entry), |winner| Handle(winner.share()));
        self.grow(&guard);
        handle
    }

    /// Returns whether it is worth preparing the value of `key` for [`insert`](Self::insert): there is room, or
    /// the key was looked up lately. If not, records that it was looked up now.
    pub fn admits(&self, key: CacheKey) -> bool {
        if !self.is_full() {
            return self.capacity() > 0;
        }
        let hash = key.hash();
        let guard = pin();
        let Some(ghosts) = self.table.ghosts(hash, &guard) else {
            return false;
        };
        let known = ghosts.contains(hash);
        if !known {
            ghosts.add(hash);
        }
        known
    }

    /// Removes the value of `key` from the cache. Existing handles stay valid.
    pub fn erase(&self, key: CacheKey) {
        let _alone = self.reshaping.lock();
        let guard = pin();
        self.table.erase(key, key.hash(), &guard);
    }

    /// Removes all values of `file`, a file of `database`. Scans the whole table; intended for deleted files.
    ///
    /// A reader that still uses the file may insert values during or after the scan. Such values are harmless,
    /// because file numbers are not reused, and the hand evicts them later.
    pub fn erase_file(&self, database: u16, file: u64) {
        self.erase_where(|key| key.file == file && key.database == database);
    }

    /// Removes all values of `database`. Scans the whole table. The number may be used again once nothing inserts values of the old
    /// database any more, and this was called after that.
    pub fn erase_database(&self, database: u16) {
        self.erase_where(|key| key.database == database);
    }

    fn erase_where(&self, goes: impl Fn(CacheKey) -> bool) {
        let alone = self.reshaping.lock();
        let mut window = 0;
        loop {
            let guard = pin();
            if !self.table.erase_where(&goes, (window, window + WINDOWS_PER_PIN), &guard) {
                break;
            }
            window += WINDOWS_PER_PIN;
        }
        drop(alone);
        reclaim();
    }

    /// Changes the capacity. If it shrinks, evicts values until the rest fits, before it returns.
    pub fn set_capacity(&self, capacity: u64) {
        let alone = self.reshaping.lock();
        self.capacity.store(capacity, Ordering::Relaxed);
        let guard = pin();
        self.table.contract(windows_allowed(capacity), &guard);
        while let Err(missing) = self.account.try_charge(0, capacity) {
            let mut effort = Effort::thorough(&self.table);
            if self.table.evict(missing, capacity / PROBATION_SHARE, &mut effort, &guard) == 0 {
                break;
            }
        }
        self.table.contract(self.table.windows_needed(), &guard);
        drop(guard);
        drop(alone);
        reclaim();
    }

    /// Returns true if an insert is likely to evict something: less than a sixteenth of the capacity is free.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let capacity = self.capacity();
        self.account.used() > capacity - capacity / 16
    }

    /// Returns the counters since creation, and the bytes in use.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.account.stats(self.capacity())
    }

    /// Bytes charged for the table. Its first window is part of the cache itself.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.table.windows() as u64 - 1) * WINDOW_BYTES
    }

    fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Charges `charge` bytes and evicts as needed. Returns whether it evicted, or `None` if there is no room.
    fn make_room(&self, charge: u64, guard: &Guard) -> Option<bool> {
        let capacity = self.capacity();
        let mut effort = None;
        while let Err(missing) = self.account.try_charge(charge, capacity) {
            if self.is_clogged(capacity, guard) {
                return None;
            }
            let effort = effort.get_or_insert_with(|| Effort::bounded(&self.table));
            let freed = self.table.evict(missing, capacity / PROBATION_SHARE, effort, guard);
            self.retired(freed, capacity, guard);
            if freed == 0 {
                return None;
            }
        }
        Some(effort.is_some())
    }

    /// Adds windows if there are too few for the entries, unless another thread holds the lock. Waits for that
    /// thread if windows would overflow before it is done.
    fn grow(&self, guard: &Guard) {
        if !self.table.is_crowded() || self.table.windows() >= windows_allowed(self.capacity()) {
            return;
        }
        let alone = self.reshaping.try_lock();
        // This lock is not a lock of the loom model, so waiting for it would hang the model.
        if alone.is_none() && (cfg!(loom) || !self.table.is_overcrowded()) {
            return;
        }
        let _alone = alone.unwrap_or_else(|| self.reshaping.lock());
        for _ in 0..GROWTH {
            let allowed = windows_allowed(self.capacity());
            if !self.table.is_crowded()
                || self.table.windows() >= allowed
                || self.make_room(WINDOW_BYTES, guard).is_none()
            {
                return;
            }
            self.table.grow(guard);
        }
    }

    /// Asks the epoch to free evicted memory each time a small part of the capacity was evicted.
    fn retired(&self, bytes: u64, capacity: u64, guard: &Guard) {
        let limit = (capacity / 256).clamp(4 << 10, 1 << 20);
        if bytes > 0 && self.retired.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= limit {
            self.retired.store(0, Ordering::Relaxed);
            guard.flush();
            self.note_waiting(capacity);
        }
    }

    /// Returns whether so much evicted memory waits to be freed that no more may be evicted.
    fn is_clogged(&self, capacity: u64, guard: &Guard) -> bool {
        if self.clogged.load(Ordering::Relaxed) == 0 {
            return false;
        }
        guard.flush();
        self.note_waiting(capacity)
    }

    fn note_waiting(&self, capacity: u64) -> bool {
        let limit = capacity.saturating_add((capacity / WAITING_SHARE).max(WAITING_MIN));
        let clogged = !cfg!(loom) && self.account.live() > limit;
        self.clogged.store(clogged.into(), Ordering::Relaxed);
        clogged
    }
}

/// Maximum number of windows of a cache of `capacity` bytes.
fn windows_allowed(capacity: u64) -> usize {
    usize::try_from(capacity / BYTES_PER_WINDOW).unwrap_or(usize::MAX)
}

impl<V: Send + Sync + 'static> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
