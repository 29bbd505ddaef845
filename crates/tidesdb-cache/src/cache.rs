//! [`Cache`]: what the engine sees; admits new values, finds room for them and lets the table grow.
//!
//! Lookups wait for no lock. Erasing and resizing take one among themselves, so that an erased key is not carried into another
//! window behind the eraser's back. An insert that finds it taken leaves growing to the next, unless windows would overflow.
//!
//! What is evicted is freed once no pin can see it. A thread that sleeps with a pin holds up all of it, so inserts evict nothing
//! more while too much waits ([`Cache::is_clogged`]): they return their values uncached.

use std::fmt;

use tidesdb_sync::{Guard, Mutex, pin, rank, reclaim};

use crate::entry::{Entry, Handle};
use crate::key::CacheKey;
use crate::slot::Found;
use crate::stats::{Account, CacheStats, Count};
use crate::sync::{AtomicU64, HintU64, Ordering, PlainArc};
use crate::table::{Effort, Table, WINDOW_BYTES};

/// A value may take this part of the capacity at most, lest a few of them push out everything.
const LARGEST_SHARE: u64 = if cfg!(loom) { 1 } else { 8 };

/// Entries on probation may take this part of the capacity before they leave.
const PROBATION_SHARE: u64 = 10;

/// Capacity per window at least, lest the table eat what values need.
const BYTES_PER_WINDOW: u64 = if cfg!(loom) { 40 } else { 1024 };

/// Evicted bytes that may wait to be freed: this part of the capacity, and [`WAITING_MIN`].
const WAITING_SHARE: u64 = 8;
const WAITING_MIN: u64 = 2 << 20;

/// Windows that one insert adds at most.
const GROWTH: usize = 4;

/// Windows that `erase_file` looks at under one pin.
const WINDOWS_PER_PIN: usize = 256;

/// A concurrent cache from [`CacheKey`] to immutable values.
///
/// ```
/// use tidesdb_cache::{Cache, CacheKey};
///
/// let cache: Cache<Vec<u8>> = Cache::new(1 << 20);
/// let key = CacheKey { file: 7, block: 0, part: 0 };
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
    /// Bytes pushed out since the epoch was last asked to free some.
    retired: HintU64,
    /// 1 when too much of what was evicted is not freed yet.
    clogged: HintU64,
    account: PlainArc<Account>,
    /// Held by whoever erases or changes the number of windows.
    reshaping: Mutex<(), { rank::CACHE }>,
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// A cache of at most `capacity` bytes, its table included; with 0 it caches nothing. Takes next to no memory until
    /// something is cached.
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

    /// The value of `key`, for keeping. Costs a shared reference count; see [`get_pinned`](Self::get_pinned).
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Handle<V>> {
        let guard = pin();
        self.look_up(key, &guard).map(|found| Handle(found.share()))
    }

    /// The value of `key` while the guard lives. Writes nothing that other readers of the value write, except
    /// for the first few hits since the hand last passed.
    #[inline]
    pub fn get_pinned<'g>(&'g self, key: CacheKey, guard: &'g Guard) -> Option<&'g V> {
        self.look_up(key, guard).map(|found| &found.entry().value)
    }

    #[inline]
    fn look_up<'g>(&'g self, key: CacheKey, guard: &'g Guard) -> Option<Found<'g, V>> {
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

    /// Whether `key` is cached; not counted as a lookup, and the value does not warm up.
    pub fn contains(&self, key: CacheKey) -> bool {
        let guard = pin();
        self.table.find(key, key.hash(), &guard).is_some()
    }

    /// Caches `value`, of `charge` bytes (its own size and all it owns), evicting others to make room. In a full cache a
    /// value that was not asked for lately is on probation: it leaves soon unless it is hit twice.
    ///
    /// If the key is cached already, or another thread caches it meanwhile, the handle is for *that* value and
    /// this one is dropped. A value of more than an eighth of the capacity, or one for which a bounded effort
    /// finds no room, is returned without being cached.
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
        let winner = self.table.settle(key, hash, placed, &guard);
        let handle = winner.map_or(Handle(entry), |winner| Handle(winner.share()));
        self.grow(&guard);
        handle
    }

    /// Whether it is worth work to prepare the value of `key` for [`insert`](Self::insert): there is room, or the key was
    /// asked for lately. If not, the cache remembers that it was asked for now.
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

    /// A handle to a value that is not put into the cache, but counts as live. For readers that would only
    /// disturb it.
    pub fn uncached(&self, key: CacheKey, value: V, charge: u64) -> Handle<V> {
        Handle(Entry::new(key, value, charge, &self.account))
    }

    /// Drops the value of `key` from the cache. Handles to it stay valid.
    pub fn erase(&self, key: CacheKey) {
        let _alone = self.reshaping.lock();
        let guard = pin();
        self.table.erase(key, key.hash(), &guard);
    }

    /// Drops all values of `file`. Looks at the whole table: for files that are deleted.
    ///
    /// A reader that still uses the file may insert behind this; such values are harmless, as file numbers are
    /// not reused, and leave when the hand comes by.
    pub fn erase_file(&self, file: u64) {
        let alone = self.reshaping.lock();
        let mut window = 0;
        loop {
            let guard = pin();
            if !self.table.erase_file(file, window, window + WINDOWS_PER_PIN, &guard) {
                break;
            }
            window += WINDOWS_PER_PIN;
        }
        drop(alone);
        reclaim();
    }

    /// Changes the capacity. When it shrinks, values are evicted until the rest fits, before this returns.
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

    /// Whether an insert is likely to evict something: less than a sixteenth of the capacity is free.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let capacity = self.capacity();
        self.account.used() > capacity - capacity / 16
    }

    /// What happened so far, and the bytes in use.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.account.stats(self.capacity())
    }

    /// What the table is charged. Its first window is part of the cache itself.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.table.windows() as u64 - 1) * WINDOW_BYTES
    }

    fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Charges `charge` bytes, evicting as needed. Returns whether it was needed, or nothing if there is no room.
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

    /// Adds windows if there are too few for the entries, unless another thread holds the lock. Where windows would overflow before
    /// that thread is done, waits for it.
    fn grow(&self, guard: &Guard) {
        if !self.table.is_crowded() || self.table.windows() >= windows_allowed(self.capacity()) {
            return;
        }
        let alone = self.reshaping.try_lock();
        // The lock is no lock of the model, which would wait for ever.
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

    /// Keeps memory that was evicted but not freed yet to a small part of the capacity.
    fn retired(&self, bytes: u64, capacity: u64, guard: &Guard) {
        let limit = (capacity / 256).clamp(4 << 10, 1 << 20);
        if bytes > 0 && self.retired.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= limit {
            self.retired.store(0, Ordering::Relaxed);
            guard.flush();
            self.note_waiting(capacity);
        }
    }

    /// Whether so much of what was evicted waits to be freed that no more should be evicted.
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

/// Windows that a cache of `capacity` bytes may have.
fn windows_allowed(capacity: u64) -> usize {
    usize::try_from(capacity / BYTES_PER_WINDOW).unwrap_or(usize::MAX)
}

impl<V: Send + Sync + 'static> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
