//! [`Table`]: windows of slots, search within a window, eviction, and growth of the table.
//!
//! Linear hashing: the table grows by one window at a time, which takes a part of the keys of one other window.
//! So no insert moves more than one window, and the size of the table follows the number of entries.
//!
//! Invariants:
//! * An entry is in the window that its hash selects, or the thread that put or found it elsewhere is about to
//!   move it.
//! * Every entry in a slot is charged to the account once; the thread that removes it from the slot uncharges
//!   it.
//! * Two concurrent inserts of one key may both succeed. Each then runs [`Table::settle`], after which at most
//!   one of the entries is left.
//! * Only one thread at a time, which holds the cache's lock, changes the number of windows.

use tidesdb_sync::{CachePadded, EpochCell, Guard};

use crate::directory::{Directory, Ghosts};
use crate::entry::{Entry, MAX_HEAT};
use crate::key::CacheKey;
use crate::queue::Queue;
use crate::slot::{CHUNK, EntryRef, Slot, Tag, WIDTH, Window};
use crate::stats::{Account, Count};
use crate::sync::{Arc, AtomicUsize, HintUsize, Ordering, PlainArc, fence};

/// Entries per window at which the table grows. Until all windows are split, some hold twice as many.
const LOAD: u64 = if cfg!(loom) { 1 } else { 4 };

/// Queue places for entries on probation, per window.
const QUEUE_PLACES: usize = 2;

/// Memory of a window: slots, ghosts, queue places.
pub(crate) const WINDOW_BYTES: u64 = ((WIDTH + 1 + QUEUE_PLACES) * size_of::<u64>()) as u64;

/// Number of windows of the largest table. The higher bits of the hash have other uses.
const WINDOWS_MAX: usize = if cfg!(loom) { 4 } else { 1 << 31 };

/// Attempts of an insert to get a slot of its window.
const PLACE_ATTEMPTS: usize = 4;

/// Hits on probation after which an entry stays.
const HITS_TO_STAY: u8 = 2;

pub(crate) struct Table<V: Send + Sync + 'static> {
    /// Index of the last window in use.
    last: AtomicUsize,
    /// Hash bits that select a window: the least power of two above `last`, minus one. It may briefly be one
    /// bit longer, which makes no difference.
    mask: AtomicUsize,
    directory: EpochCell<Directory<V>>,
    /// Hashes of entries on probation, in order of arrival.
    queue: EpochCell<Queue>,
    /// Number of slots that the hand has passed since creation.
    hand: CachePadded<HintUsize>,
    /// Number of entries replaced in full windows.
    replacements: HintUsize,
    account: PlainArc<Account>,
}

/// Limits the work that one insert may spend on making room.
pub(crate) struct Effort {
    /// Number of warm entries that may still be spared.
    spare: usize,
    /// Number of slots that may still be checked.
    looks: usize,
}

impl<V: Send + Sync + 'static> Table<V> {
    /// Creates a table of one window.
    pub(crate) fn new(account: &PlainArc<Account>) -> Self {
        Table {
            last: AtomicUsize::new(0),
            mask: AtomicUsize::new(0),
            directory: EpochCell::new(Directory::new()),
            queue: EpochCell::new(Queue::new(QUEUE_PLACES)),
            hand: CachePadded::new(HintUsize::new(0)),
            replacements: HintUsize::new(0),
            account: PlainArc::clone(account),
        }
    }

    pub(crate) fn windows(&self) -> usize {
        self.last.load(Ordering::Acquire) + 1
    }

    fn slots(&self) -> usize {
        self.windows() * WIDTH
    }

    /// Returns the index of the window that `hash` selects.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        let last = self.last.load(Ordering::Acquire);
        let mask = self.mask.load(Ordering::Acquire);
        let index = hash as usize & mask;
        if index <= last { index } else { index & (mask >> 1) }
    }

    #[inline]
    fn window<'g>(&'g self, index: usize, guard: &'g Guard) -> Option<&'g Window<V>> {
        self.directory.load(guard).window(index)
    }

    fn slots_of<'g>(&'g self, index: usize, guard: &'g Guard) -> &'g [Slot<V>] {
        self.window(index, guard).map_or(&[], |window| window)
    }

    pub(crate) fn ghosts<'g>(&'g self, hash: u64, guard: &'g Guard) -> Option<Ghosts<'g>> {
        self.directory.load(guard).ghosts(self.index(hash))
    }

    /// Returns the entry of `key`. Entries that are being moved to another window may be missed.
    #[inline]
    pub(crate) fn find<'g>(&'g self, key: CacheKey, hash: u64, guard: &'g Guard) -> Option<EntryRef<'g, V>> {
        let tag = Tag::of(hash);
        let home = home(hash);
        let window = self.window(self.index(hash), guard)?;
        for step in 0..WIDTH {
            if let Some(found) = window[(home + step) % WIDTH].load_tagged(tag, guard)
                && found.entry().key == key
            {
                return Some(found);
            }
        }
        None
    }

    /// Puts an entry into its window, in place of a colder one if the window is full. Returns the window. On
    /// `None` the caller still owns the entry's charge.
    pub(crate) fn place(&self, entry: &Arc<Entry<V>>, hash: u64, guard: &Guard) -> Option<usize> {
        let index = self.index(hash);
        let window = self.window(index, guard)?;
        for _ in 0..PLACE_ATTEMPTS {
            let (slot, seen) = choose(window, home(hash), guard);
            if !slot.put(seen, entry, Tag::of(hash), guard) {
                continue;
            }
            if let Some(victim) = seen {
                victim.entry().depart();
                self.account.count(Count::Eviction);
                self.age(window, victim, guard);
            }
            return Some(index);
        }
        None
    }

    /// Called after a `place` into window `placed`. Keeps the first entry of `key` in the window that its hash
    /// selects now, and removes the others. Returns the entry kept, if it has not been evicted yet.
    ///
    /// If two inserters both placed the key, the fences ensure that at least one of them sees the other's entry
    /// here. Both prefer the same entry, so not both are removed. If the table grew meanwhile, either the
    /// growing thread has seen the entry and moved it, or the new size is seen here.
    pub(crate) fn settle<'g>(
        &'g self,
        key: CacheKey,
        hash: u64,
        placed: usize,
        guard: &'g Guard,
    ) -> Option<EntryRef<'g, V>> {
        fence(Ordering::SeqCst);
        let index = self.index(hash);
        if index != placed {
            self.keep_first(key, hash, (placed, 0), guard);
        }
        self.keep_first(key, hash, (index, 1), guard)
    }

    /// Removes every entry of `key`.
    pub(crate) fn erase(&self, key: CacheKey, hash: u64, guard: &Guard) {
        self.keep_first(key, hash, (self.index(hash), 0), guard);
    }

    /// Removes all but the first `keep` entries of `key` in a window. Returns the first one kept.
    fn keep_first<'g>(
        &'g self,
        key: CacheKey,
        hash: u64,
        (index, keep): (usize, usize),
        guard: &'g Guard,
    ) -> Option<EntryRef<'g, V>> {
        let (mut first, mut kept) = (None, 0);
        for slot in self.slots_of(index, guard) {
            let Some(found) = slot.load_tagged(Tag::of(hash), guard).filter(|found| found.entry().key == key)
            else {
                continue;
            };
            if kept < keep {
                kept += 1;
                first = first.or(Some(found));
            } else {
                take(slot, found, guard);
            }
        }
        first
    }

    /// Removes every entry from windows `from..to` whose key `goes`. Returns whether there are windows after `to`.
    pub(crate) fn erase_where(
        &self,
        goes: impl Fn(CacheKey) -> bool,
        (from, to): (usize, usize),
        guard: &Guard,
    ) -> bool {
        let windows = self.windows();
        for slot in (from..to.min(windows)).flat_map(|index| self.slots_of(index, guard)) {
            if let Some(found) = slot.load(guard).filter(|found| goes(found.entry().key)) {
                take(slot, found, guard);
            }
        }
        to < windows
    }

    /// Adds a placed entry to the queue of entries on probation.
    pub(crate) fn enqueue(&self, hash: u64, guard: &Guard) {
        self.queue.load(guard).push(hash);
    }

    /// Evicts until `missing` bytes are free or the effort is spent. Takes entries on probation while those
    /// hold more than `probation` bytes, otherwise entries at the hand. Returns the bytes freed.
    pub(crate) fn evict(&self, missing: u64, probation: u64, effort: &mut Effort, guard: &Guard) -> u64 {
        let mut freed = 0;
        while freed < missing && effort.looks > 0 {
            if self.account.probation() > probation
                && let Some(hash) = self.queue.load(guard).pop()
            {
                effort.looks -= 1;
                freed += self.end_probation(hash, effort, guard);
            } else {
                freed += self.move_hand(effort, guard);
            }
        }
        freed
    }

    fn end_probation(&self, hash: u64, effort: &mut Effort, guard: &Guard) -> u64 {
        for slot in self.slots_of(self.index(hash), guard) {
            if let Some(found) = slot.load_tagged(Tag::of(hash), guard)
                && found.entry().is_on_probation()
                && found.entry().key.hash() == hash
            {
                return self.judge(slot, found, effort, guard);
            }
        }
        0
    }

    fn move_hand(&self, effort: &mut Effort, guard: &Guard) -> u64 {
        // The hand moves by a few slots at a time and handles all of them, even if fewer would be enough:
        // stopping halfway would spare the same slots in every round.
        let slots = self.slots();
        let stride = (slots / 256).clamp(1, 4);
        effort.looks = effort.looks.saturating_sub(stride);
        let start = self.hand.fetch_add(stride, Ordering::Relaxed);
        let mut freed = 0;
        for position in (start..start + stride).map(|position| position % slots) {
            if let Some(slot) = self.slots_of(position / WIDTH, guard).get(position % WIDTH)
                && let Some(found) = slot.load(guard)
            {
                freed += self.judge(slot, found, effort, guard);
            }
        }
        freed
    }

    /// Evicts an entry, or spares it if it has enough hits and the effort allows. Returns the bytes freed.
    fn judge(&self, slot: &Slot<V>, found: EntryRef<'_, V>, effort: &mut Effort, guard: &Guard) -> u64 {
        let entry = found.entry();
        let probation = entry.is_on_probation();
        let stays = if probation { entry.heat() >= HITS_TO_STAY } else { entry.heat() > 0 };
        if stays && effort.spare > 0 {
            effort.spare -= 1;
            if probation {
                entry.end_probation();
                entry.chill();
            } else {
                entry.cool();
            }
            return 0;
        }
        if !take(slot, found, guard) {
            return 0;
        }
        self.account.count(Count::Eviction);
        let hash = entry.key.hash();
        if let Some(ghosts) = self.ghosts(hash, guard).filter(|_| probation) {
            ghosts.add(hash);
        }
        entry.charge
    }

    /// Returns whether there are more entries than the windows are meant for.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.account.entries() > LOAD * self.windows() as u64 && self.windows() < WINDOWS_MAX
    }

    /// Returns whether the table must grow before more entries arrive, because its windows are about to
    /// overflow.
    pub(crate) fn is_overcrowded(&self) -> bool {
        self.account.entries() > 3 * LOAD / 2 * self.windows() as u64
    }

    /// Adds a window, which is charged already. The caller holds the lock.
    pub(crate) fn grow(&self, guard: &Guard) {
        let (new, mut directory) = (self.windows(), self.directory.load(guard));
        if new == directory.windows() {
            self.directory.store(directory.resized(new / CHUNK + 1));
            directory = self.directory.load(guard);
        }
        let parent = new ^ 1 << new.ilog2();
        if let (Some(ghosts), Some(parents)) = (directory.ghosts(new), directory.ghosts(parent)) {
            ghosts.copy_from(&parents);
        }
        self.mask.store((new + 1).next_power_of_two() - 1, Ordering::Release);
        self.last.store(new, Ordering::Release);
        self.rehome(parent, guard);
        self.fit_queue(guard);
    }

    /// Removes windows until `windows` are left. The caller holds the lock.
    pub(crate) fn contract(&self, windows: usize, guard: &Guard) {
        while self.windows() > windows.max(1) {
            let gone = self.windows() - 1;
            self.last.store(gone - 1, Ordering::Release);
            self.mask.store(gone.next_power_of_two() - 1, Ordering::Release);
            self.rehome(gone, guard);
            self.account.uncharge(WINDOW_BYTES);
        }
        let (directory, chunks) = (self.directory.load(guard), self.windows().div_ceil(CHUNK));
        if chunks < directory.windows() / CHUNK {
            self.directory.store(directory.resized(chunks));
        }
        self.fit_queue(guard);
    }

    /// Number of windows needed for the remaining entries.
    pub(crate) fn windows_needed(&self) -> usize {
        usize::try_from(self.account.entries() / LOAD).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Moves entries of window `from` that belong elsewhere after the number of windows changed.
    fn rehome(&self, from: usize, guard: &Guard) {
        fence(Ordering::SeqCst);
        for slot in self.slots_of(from, guard) {
            let Some(found) = slot.load(guard) else {
                continue;
            };
            let entry = found.share();
            let hash = entry.key.hash();
            // Removes first, then inserts: the thread that removes an entry owns its charge. The other order
            // could leave an entry in its new window whose charge an eviction from the old one has returned.
            if self.index(hash) != from && slot.remove(found, guard) {
                match self.place(&entry, hash, guard) {
                    Some(placed) => drop(self.settle(entry.key, hash, placed, guard)),
                    None => entry.depart(),
                }
            }
        }
    }

    fn fit_queue(&self, guard: &Guard) {
        let (queue, len) = (self.queue.load(guard), self.windows().next_power_of_two() * QUEUE_PLACES);
        if queue.len() >= len && queue.len() <= 2 * len {
            return;
        }
        let new = Queue::new(len);
        while let Some(hash) = queue.pop() {
            new.push(hash);
        }
        self.queue.store(new);
    }

    /// Called when a full window lost `victim`. Cools the remaining entries by one if the victim was not cold,
    /// and also at every 16th replacement. Otherwise formerly hot entries would stay, and new ones would only
    /// replace each other.
    fn age(&self, window: &Window<V>, victim: EntryRef<'_, V>, guard: &Guard) {
        let turn = self.replacements.fetch_add(1, Ordering::Relaxed);
        if victim.entry().heat() > 0 || turn.is_multiple_of(WIDTH) {
            for found in window.iter().filter_map(|slot| slot.load(guard)) {
                found.entry().cool();
            }
        }
    }
}

impl Effort {
    /// Effort of an insert: spares a limited number of warm entries, then evicts any, in at most about one
    /// round of the table.
    pub(crate) fn bounded<V: Send + Sync + 'static>(table: &Table<V>) -> Self {
        const SPARE: usize = 64;
        Effort { spare: SPARE, looks: table.slots() + SPARE * WIDTH }
    }

    /// Effort of shrinking: as many rounds as the hottest entry takes to cool.
    pub(crate) fn thorough<V: Send + Sync + 'static>(table: &Table<V>) -> Self {
        Effort { spare: usize::MAX, looks: table.slots() * (usize::from(MAX_HEAT) + 2) }
    }
}

fn take<V: Send + Sync + 'static>(slot: &Slot<V>, found: EntryRef<'_, V>, guard: &Guard) -> bool {
    let taken = slot.remove(found, guard);
    if taken {
        found.entry().depart();
    }
    taken
}

/// Slot of the window at which the search for a key starts. It spreads the keys, so that most are found at the
/// first slot.
#[inline]
fn home(hash: u64) -> usize {
    (hash >> 40) as usize % WIDTH
}

/// Returns the slot of a window to put a new entry into: the first empty one, otherwise the coldest.
fn choose<'g, V: Send + Sync + 'static>(
    window: &'g Window<V>,
    home: usize,
    guard: &'g Guard,
) -> (&'g Slot<V>, Option<EntryRef<'g, V>>) {
    let in_order = || (home..home + WIDTH).map(|at| &window[at % WIDTH]);
    // The search for an empty slot does not access entries, which are likely not in the processor's caches.
    if let Some(empty) = in_order().find(|slot| slot.load(guard).is_none()) {
        return (empty, None);
    }
    let heat = |slot: &Slot<V>| slot.load(guard).map_or(0, |found| 1 + found.entry().heat());
    let coldest = in_order().min_by_key(|slot| heat(slot)).unwrap_or(&window[home]);
    (coldest, coldest.load(guard))
}
