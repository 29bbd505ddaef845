//! [`Table`]: windows of slots, the search within a window, who leaves when room is needed, and how the table grows.
//!
//! Linear hashing: the table grows by one window at a time, which takes over the keys of one other window. So no insert
//! moves more than a window, and the table has the size of what is cached.
//!
//! Invariants: an entry sits in the window that its hash names, or whoever put or found it elsewhere is about to move it;
//! every entry in a slot is charged to the account once, and whoever takes it out of the slot uncharges it. Two
//! inserts of one key at the same time may both land; each then runs [`Table::settle`], after which at most one of
//! them is left. Only one thread at a time, which holds the cache's lock, changes the number of windows.

use tidesdb_sync::{CachePadded, EpochCell, Guard};

use crate::directory::{Directory, Ghosts};
use crate::entry::{Entry, MAX_HEAT};
use crate::key::CacheKey;
use crate::queue::Queue;
use crate::slot::{CHUNK, Found, Slot, Tag, WIDTH, Window};
use crate::stats::{Account, Count};
use crate::sync::{Arc, AtomicUsize, HintUsize, Ordering, PlainArc, fence};

/// Entries per window before the table grows. While it doubles, some windows hold twice as many.
const LOAD: u64 = if cfg!(loom) { 1 } else { 4 };

/// Places in the queue of probationary entries, per window.
const QUEUE_PLACES: usize = 2;

/// Memory of a window: slots, ghosts, places in the queue.
pub(crate) const WINDOW_BYTES: u64 = ((WIDTH + 1 + QUEUE_PLACES) * size_of::<u64>()) as u64;

/// Windows of the largest table. Bits of the hash above have other uses.
const WINDOWS_MAX: usize = if cfg!(loom) { 4 } else { 1 << 31 };

/// How often an insert tries to get a slot of its window before it gives up.
const PLACE_ATTEMPTS: usize = 4;

/// Hits on probation that make an entry stay.
const HITS_TO_STAY: u8 = 2;

pub(crate) struct Table<V: Send + Sync + 'static> {
    /// Number of the last window in use.
    last: AtomicUsize,
    /// Bits of a hash that name a window: the least power of two above `last`, minus one. It may be one bit longer for a
    /// moment, which makes no difference.
    mask: AtomicUsize,
    directory: EpochCell<Directory<V>>,
    /// Hashes of entries on probation, in order of arrival.
    queue: EpochCell<Queue>,
    /// Slots the hand has passed since the beginning.
    hand: CachePadded<HintUsize>,
    /// Entries replaced in full windows.
    replacements: HintUsize,
    account: PlainArc<Account>,
}

/// How much work one insert may spend on making room.
pub(crate) struct Effort {
    /// Warm entries that may still be spared.
    spare: usize,
    /// Slots that may still be looked at.
    looks: usize,
}

impl<V: Send + Sync + 'static> Table<V> {
    /// A table of one window.
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

    /// The number of the window that `hash` names.
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

    /// The entry of `key`. While a window is moved, entries in it may be missed.
    #[inline]
    pub(crate) fn find<'g>(&'g self, key: CacheKey, hash: u64, guard: &'g Guard) -> Option<Found<'g, V>> {
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

    /// Puts an entry into its window, in place of a colder one if the window is full. Returns the window; if there is none,
    /// the entry is still the caller's.
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

    /// After a `place` into window `placed`: leaves the first entry of `key` in the window that its hash names now and
    /// removes the others. Returns what is left, if it has not been evicted yet.
    ///
    /// Of two inserters that both placed the key, at least one sees the other's entry here, by the fences; and both prefer
    /// the same one, so not both are removed. If the table grew meanwhile, either its grower has seen the entry and moved
    /// it, or the new size is seen here.
    pub(crate) fn settle<'g>(
        &'g self,
        key: CacheKey,
        hash: u64,
        placed: usize,
        guard: &'g Guard,
    ) -> Option<Found<'g, V>> {
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

    /// Removes the entries of `key` in a window but the first `keep`. Returns the first one kept.
    fn keep_first<'g>(
        &'g self,
        key: CacheKey,
        hash: u64,
        (index, keep): (usize, usize),
        guard: &'g Guard,
    ) -> Option<Found<'g, V>> {
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

    /// Removes every entry of `file` from windows `from..to`. Returns whether there are windows beyond.
    pub(crate) fn erase_file(&self, file: u64, from: usize, to: usize, guard: &Guard) -> bool {
        let windows = self.windows();
        for slot in (from..to.min(windows)).flat_map(|index| self.slots_of(index, guard)) {
            if let Some(found) = slot.load(guard).filter(|found| found.entry().key.file == file) {
                take(slot, found, guard);
            }
        }
        to < windows
    }

    /// Puts a placed entry on the list of those that must prove themselves.
    pub(crate) fn enqueue(&self, hash: u64, guard: &Guard) {
        self.queue.load(guard).push(hash);
    }

    /// Evicts until `missing` bytes are free or the effort is spent: entries on probation while those take more than
    /// `probation` bytes, else what the hand finds. Returns the bytes freed.
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
        // The hand moves by a few slots at a time, and those are all seen to even if fewer would do: stopping
        // halfway would spare the same slots round after round.
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

    /// Evicts an entry or, if it has earned that and the effort allows, spares it. Returns the bytes freed.
    fn judge(&self, slot: &Slot<V>, found: Found<'_, V>, effort: &mut Effort, guard: &Guard) -> u64 {
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

    /// Whether there are more entries than the windows are meant for.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.account.entries() > LOAD * self.windows() as u64 && self.windows() < WINDOWS_MAX
    }

    /// Whether the table must grow before more entries arrive: its windows are about to overflow.
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

    /// Windows for the entries that are left.
    pub(crate) fn windows_needed(&self) -> usize {
        usize::try_from(self.account.entries() / LOAD).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// After the number of windows changed: moves entries of window `from` that belong elsewhere now.
    fn rehome(&self, from: usize, guard: &Guard) {
        fence(Ordering::SeqCst);
        for slot in self.slots_of(from, guard) {
            let Some(found) = slot.load(guard) else {
                continue;
            };
            let entry = found.share();
            let hash = entry.key.hash();
            // First out, then in: whoever takes an entry out owns its charge, and it must not be both here
            // uncharged by an eviction and there.
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

    /// After a full window lost `victim`: cools the rest by one if nothing cold was left in it, and now and then
    /// anyway. Else what was hot once would stay, and newcomers would only push out each other.
    fn age(&self, window: &Window<V>, victim: Found<'_, V>, guard: &Guard) {
        let turn = self.replacements.fetch_add(1, Ordering::Relaxed);
        if victim.entry().heat() > 0 || turn.is_multiple_of(WIDTH) {
            for found in window.iter().filter_map(|slot| slot.load(guard)) {
                found.entry().cool();
            }
        }
    }
}

impl Effort {
    /// For an insert: spares so many warm entries, then takes what comes, in one round of the table at most.
    pub(crate) fn bounded<V: Send + Sync + 'static>(table: &Table<V>) -> Self {
        const SPARE: usize = 64;
        Effort { spare: SPARE, looks: table.slots() + SPARE * WIDTH }
    }

    /// For shrinking: as many rounds as the hottest entry takes to cool.
    pub(crate) fn thorough<V: Send + Sync + 'static>(table: &Table<V>) -> Self {
        Effort { spare: usize::MAX, looks: table.slots() * (usize::from(MAX_HEAT) + 2) }
    }
}

fn take<V: Send + Sync + 'static>(slot: &Slot<V>, found: Found<'_, V>, guard: &Guard) -> bool {
    let taken = slot.remove(found, guard);
    if taken {
        found.entry().depart();
    }
    taken
}

/// Where in its window a key is looked for first: spreads keys, so that most are found at the first look.
#[inline]
fn home(hash: u64) -> usize {
    (hash >> 40) as usize % WIDTH
}

/// The slot of a window to put a new entry into: the first empty one, else the coldest.
fn choose<'g, V: Send + Sync + 'static>(
    window: &'g Window<V>,
    home: usize,
    guard: &'g Guard,
) -> (&'g Slot<V>, Option<Found<'g, V>>) {
    let in_order = || (home..home + WIDTH).map(|at| &window[at % WIDTH]);
    // Looking for an empty slot first touches no entries, which are likely to be far from the caches.
    if let Some(empty) = in_order().find(|slot| slot.load(guard).is_none()) {
        return (empty, None);
    }
    let heat = |slot: &Slot<V>| slot.load(guard).map_or(0, |found| 1 + found.entry().heat());
    let coldest = in_order().min_by_key(|slot| heat(slot)).unwrap_or(&window[home]);
    (coldest, coldest.load(guard))
}
