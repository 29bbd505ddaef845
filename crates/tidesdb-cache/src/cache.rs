//! [`Cache`]: what the engine sees; finds room for new values and swaps the table when the capacity changes.
//!
//! Lookups and inserts take no lock. Erasing and resizing take one among themselves, so that an erased key is
//! not carried into a new table behind the eraser's back.

use std::fmt;

use tidesdb_sync::{EpochCell, Guard, Mutex, pin, reclaim};

use crate::entry::{Entry, Handle};
use crate::key::CacheKey;
use crate::stats::{Account, CacheStats, Count};
use crate::sync::{AtomicU64, Ordering, PlainArc};
use crate::table::{Effort, Table};

/// A value may take this part of the capacity at most, lest a few of them push out everything.
const LARGEST_SHARE: u64 = if cfg!(loom) { 1 } else { 8 };

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
    table: EpochCell<Table<V>>,
    capacity: AtomicU64,
    /// Bytes pushed out since the epoch was last asked to free some.
    retired: AtomicU64,
    account: PlainArc<Account>,
    /// Held by whoever erases or swaps the table.
    reshaping: Mutex<()>,
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// A cache of at most `capacity` bytes, its slot array included; with 0 it caches nothing.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        let account = PlainArc::new(Account::new());
        let table = Table::new(Table::<V>::slots_for(capacity), &account);
        account.charge(table.bytes());
        Cache {
            table: EpochCell::new(table),
            capacity: AtomicU64::new(capacity),
            retired: AtomicU64::new(0),
            account,
            reshaping: Mutex::new(()),
        }
    }

    /// The value of `key`, for keeping. Costs a shared reference count; see [`get_pinned`](Self::get_pinned).
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Handle<V>> {
        let guard = pin();
        let found = self.table.load(&guard).find(key, key.hash(), &guard);
        self.account.count(if found.is_some() { Count::Hit } else { Count::Miss });
        found.map(|found| {
            found.entry().touch();
            Handle(found.share())
        })
    }

    /// The value of `key` while the guard lives. Writes nothing that other readers of the value write, except
    /// for the first few hits since the hand last passed.
    #[inline]
    pub fn get_pinned<'g>(&'g self, key: CacheKey, guard: &'g Guard) -> Option<&'g V> {
        let found = self.table.load(guard).find(key, key.hash(), guard);
        self.account.count(if found.is_some() { Count::Hit } else { Count::Miss });
        found.map(|found| {
            found.entry().touch();
            &found.entry().value
        })
    }

    /// Whether `key` is cached; not counted as a lookup, and the value does not warm up.
    pub fn contains(&self, key: CacheKey) -> bool {
        let guard = pin();
        self.table.load(&guard).find(key, key.hash(), &guard).is_some()
    }

    /// Caches `value`, of `charge` bytes (its own size and all it owns), evicting others to make room.
    ///
    /// If the key is cached already, or another thread caches it meanwhile, the handle is for *that* value and
    /// this one is dropped. A value of more than an eighth of the capacity, or one for which a bounded effort
    /// finds no room, is returned without being cached.
    pub fn insert(&self, key: CacheKey, value: V, charge: u64) -> Handle<V> {
        let hash = key.hash();
        let guard = pin();
        let table = self.table.load(&guard);
        if let Some(found) = table.find(key, hash, &guard) {
            return Handle(found.share());
        }
        let entry = Entry::new(key, value, charge, &self.account);
        if entry.charge > self.capacity.load(Ordering::Relaxed) / LARGEST_SHARE {
            return Handle(entry);
        }
        if !self.make_room(entry.charge, table, &guard) {
            return Handle(entry);
        }
        if !table.place(&entry, hash, &guard) {
            self.account.uncharge(entry.charge);
            return Handle(entry);
        }
        self.account.count(Count::Insert);
        table.settle(key, hash, &guard).map_or(Handle(entry), |winner| Handle(winner.share()))
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
        self.table.load(&guard).erase(key, key.hash(), &guard);
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
            let table = self.table.load(&guard);
            if !table.erase_file(file, window, window + WINDOWS_PER_PIN, &guard) {
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
        self.resize_table(Table::<V>::slots_for(capacity));
        self.shrink_to(capacity);
        drop(alone);
        reclaim();
    }

    /// Whether an insert is likely to evict something: less than a sixteenth of the capacity is free.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.account.used() > capacity - capacity / 16
    }

    /// What happened so far, and the bytes in use.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.account.stats(self.capacity.load(Ordering::Relaxed))
    }

    /// Charges `charge` bytes, evicting as needed.
    fn make_room(&self, charge: u64, table: &Table<V>, guard: &Guard) -> bool {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let mut effort = None;
        while let Err(missing) = self.account.try_charge(charge, capacity) {
            let effort = effort.get_or_insert_with(|| Effort::bounded(table));
            let freed = table.evict(missing, effort, guard);
            self.retired(freed, capacity, guard);
            if freed == 0 {
                return false;
            }
        }
        true
    }

    /// Keeps memory that was evicted but not freed yet to a small part of the capacity.
    fn retired(&self, bytes: u64, capacity: u64, guard: &Guard) {
        let limit = (capacity / 256).clamp(4 << 10, 1 << 20);
        if bytes > 0 && self.retired.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= limit {
            self.retired.store(0, Ordering::Relaxed);
            guard.flush();
        }
    }

    /// Puts a table of `slots` in place, if the present one is too small or far
    /// too large. The caller holds the lock.
    fn resize_table(&self, slots: usize) {
        let guard = pin();
        let old = self.table.load(&guard);
        if slots <= old.slots() && slots > old.slots() / 4 || slots == old.slots() {
            return;
        }
        let new = Table::new(slots, &self.account);
        self.account.charge(new.bytes());
        self.table.store(new);
        old.drain_into(self.table.load(&guard), &guard);
        // Inserts that found the old table just before the swap may still put entries there: nobody will find
        // them, and they are uncharged when the old table is destroyed.
        self.account.uncharge(old.bytes());
    }

    fn shrink_to(&self, capacity: u64) {
        let guard = pin();
        let table = self.table.load(&guard);
        while let Err(missing) = self.account.try_charge(0, capacity) {
            if table.evict(missing, &mut Effort::thorough(table), &guard) == 0 {
                return;
            }
        }
    }
}

impl<V: Send + Sync + 'static> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
