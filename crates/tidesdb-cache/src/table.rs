//! [`Table`]: windows of slots, the search within a window, and the hand of the clock.
//!
//! Invariants: an entry sits only in the window its hash names; every entry in a slot is charged to the account
//! once, and whoever takes it out of the slot uncharges it. Two inserts of one key at the same time may both
//! land; each then runs [`Table::settle`], after which at most one of them is left.

use tidesdb_sync::{CachePadded, Guard};

use crate::entry::{Entry, MAX_HEAT};
use crate::key::CacheKey;
use crate::slot::{Found, Slot, Tag};
use crate::stats::{Account, Count};
use crate::sync::{Arc, AtomicUsize, Ordering, PlainArc, fence};

/// Slots of a window: two cache lines.
pub(crate) const WIDTH: usize = if cfg!(loom) { 2 } else { 16 };

/// Bytes of capacity per slot. Blocks are bigger as a rule, so that windows are seldom full.
const BYTES_PER_SLOT: u64 = 1024;

/// Memory of a slot.
const SLOT_BYTES: u64 = size_of::<usize>() as u64;

/// How often an insert tries to get a slot of its window before it gives up.
const PLACE_ATTEMPTS: usize = 4;

#[repr(align(128))]
struct Window<V>([Slot<V>; WIDTH]);

pub(crate) struct Table<V: Send + Sync + 'static> {
    windows: Box<[Window<V>]>,
    /// Slots the hand has passed since the beginning.
    hand: CachePadded<AtomicUsize>,
    /// Entries replaced in full windows.
    replacements: AtomicUsize,
    account: PlainArc<Account>,
}

/// How much work one insert may spend on making room.
pub(crate) struct Effort {
    /// Warm entries that may still be spared.
    spare: usize,
    /// Slots that may still be looked at.
    looks: usize,
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

impl<V: Send + Sync + 'static> Table<V> {
    /// Slots of a table for `capacity` bytes: a power of two, or none if the table would eat the capacity.
    pub(crate) fn slots_for(capacity: u64) -> usize {
        let wanted = (capacity / BYTES_PER_SLOT).clamp(WIDTH as u64, 1 << 31).next_power_of_two();
        let wanted = if cfg!(loom) { WIDTH as u64 } else { wanted };
        if wanted * SLOT_BYTES > capacity / 2 { 0 } else { wanted as usize }
    }

    pub(crate) fn new(slots: usize, account: &PlainArc<Account>) -> Self {
        let window = |_| Window(std::array::from_fn(|_| Slot::empty()));
        Table {
            windows: (0..slots / WIDTH).map(window).collect(),
            hand: CachePadded::new(AtomicUsize::new(0)),
            replacements: AtomicUsize::new(0),
            account: PlainArc::clone(account),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.windows.len() * WIDTH
    }

    /// Memory of the slot array.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots() as u64 * SLOT_BYTES
    }

    /// The window of a hash; none in a table without slots.
    #[inline]
    fn window(&self, hash: u64) -> Option<&Window<V>> {
        self.windows.get(hash as usize & self.windows.len().wrapping_sub(1))
    }

    /// The entry of `key`.
    #[inline]
    pub(crate) fn find<'g>(&'g self, key: CacheKey, hash: u64, guard: &'g Guard) -> Option<Found<'g, V>> {
        let tag = Tag::of(hash);
        let home = home(hash);
        let window = &self.window(hash)?.0;
        for step in 0..WIDTH {
            if let Some(found) = window[(home + step) % WIDTH].load_tagged(tag, guard)
                && found.entry().key == key
            {
                return Some(found);
            }
        }
        None
    }

    /// Puts a charged entry into its window, in place of a colder one if the window is full. Returns whether it
    /// did; if not, the charge is still the caller's.
    pub(crate) fn place(&self, entry: &Arc<Entry<V>>, hash: u64, guard: &Guard) -> bool {
        let Some(window) = self.window(hash) else {
            return false;
        };
        for _ in 0..PLACE_ATTEMPTS {
            let (slot, seen) = choose(window, home(hash), guard);
            if !slot.put(seen, entry, Tag::of(hash), guard) {
                continue;
            }
            self.account.count(Count::Arrival);
            if let Some(victim) = seen {
                self.departed(victim);
                self.account.count(Count::Eviction);
                self.age(window, victim, guard);
            }
            return true;
        }
        false
    }

    /// After a `place`: leaves the first entry of `key` in its window and removes the others. Returns what is
    /// left, if it has not been evicted yet.
    ///
    /// Of two inserters that both placed the key, at least one sees the other's entry here, by the fences; and
    /// both prefer the same one, so not both are removed.
    pub(crate) fn settle<'g>(&'g self, key: CacheKey, hash: u64, guard: &'g Guard) -> Option<Found<'g, V>> {
        fence(Ordering::SeqCst);
        let mut first = None;
        for slot in &self.window(hash)?.0 {
            let Some(found) = slot.load_tagged(Tag::of(hash), guard).filter(|found| found.entry().key == key)
            else {
                continue;
            };
            if first.is_none() {
                first = Some(found);
            } else {
                self.take(slot, found, guard);
            }
        }
        first
    }

    /// Removes every entry of `key`.
    pub(crate) fn erase(&self, key: CacheKey, hash: u64, guard: &Guard) {
        for slot in self.window(hash).iter().flat_map(|window| &window.0) {
            if let Some(found) = slot.load_tagged(Tag::of(hash), guard)
                && found.entry().key == key
            {
                self.take(slot, found, guard);
            }
        }
    }

    /// Removes every entry of `file` from windows `from..to`. Returns whether there are windows beyond.
    pub(crate) fn erase_file(&self, file: u64, from: usize, to: usize, guard: &Guard) -> bool {
        let to = to.min(self.windows.len());
        for slot in self.windows[from.min(to)..to].iter().flat_map(|window| &window.0) {
            if let Some(found) = slot.load(guard).filter(|found| found.entry().key.file == file) {
                self.take(slot, found, guard);
            }
        }
        to < self.windows.len()
    }

    /// Moves the hand on until `missing` bytes are free or the effort is spent. Returns the bytes freed.
    pub(crate) fn evict(&self, missing: u64, effort: &mut Effort, guard: &Guard) -> u64 {
        // The hand moves by a few slots at a time, and those are all seen to even if fewer would do: stopping
        // halfway would spare the same slots round after round.
        let stride = (self.slots() / 256).clamp(1, 4);
        let mut freed = 0;
        while freed < missing && effort.looks > 0 && !self.windows.is_empty() {
            effort.looks = effort.looks.saturating_sub(stride);
            let start = self.hand.fetch_add(stride, Ordering::Relaxed);
            for position in start..start + stride {
                freed += self.evict_at(position % self.slots(), effort, guard);
            }
        }
        freed
    }

    fn evict_at(&self, position: usize, effort: &mut Effort, guard: &Guard) -> u64 {
        let slot = &self.windows[position / WIDTH].0[position % WIDTH];
        let Some(found) = slot.load(guard) else {
            return 0;
        };
        if !found.entry().cool() && effort.spare > 0 {
            effort.spare -= 1;
            return 0;
        }
        if !self.take(slot, found, guard) {
            return 0;
        }
        self.account.count(Count::Eviction);
        found.entry().charge
    }

    /// Moves every entry to `to`. Entries that find no place there are dropped.
    pub(crate) fn drain_into(&self, to: &Table<V>, guard: &Guard) {
        for slot in self.windows.iter().flat_map(|window| &window.0) {
            let Some(found) = slot.load(guard) else {
                continue;
            };
            let entry = found.share();
            let hash = entry.key.hash();
            // First out, then in: whoever takes an entry out owns its charge, and it must not be both here
            // uncharged by an eviction and there.
            if slot.remove(found, guard) {
                self.account.count(Count::Departure);
                if to.place(&entry, hash, guard) {
                    to.settle(entry.key, hash, guard);
                } else {
                    self.account.uncharge(entry.charge);
                }
            }
        }
    }

    /// After a full window lost `victim`: cools the rest by one if nothing cold was left in it, and now and then
    /// anyway. Else what was hot once would stay, and newcomers would only push out each other.
    fn age(&self, window: &Window<V>, victim: Found<'_, V>, guard: &Guard) {
        let turn = self.replacements.fetch_add(1, Ordering::Relaxed);
        if victim.entry().heat() > 0 || turn.is_multiple_of(WIDTH) {
            for found in window.0.iter().filter_map(|slot| slot.load(guard)) {
                found.entry().cool();
            }
        }
    }

    fn take(&self, slot: &Slot<V>, found: Found<'_, V>, guard: &Guard) -> bool {
        let taken = slot.remove(found, guard);
        if taken {
            self.departed(found);
        }
        taken
    }

    fn departed(&self, found: Found<'_, V>) {
        self.account.count(Count::Departure);
        self.account.uncharge(found.entry().charge);
    }
}

impl<V: Send + Sync + 'static> Drop for Table<V> {
    fn drop(&mut self) {
        // Nobody can look at the table any more; a pin of our own costs nothing and keeps one way to look.
        let guard = tidesdb_sync::pin();
        for slot in self.windows.iter().flat_map(|window| &window.0) {
            if let Some(found) = slot.load(&guard) {
                self.departed(found);
            }
        }
    }
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
    let in_order = || (home..home + WIDTH).map(|at| &window.0[at % WIDTH]);
    // Looking for an empty slot first touches no entries, which are likely to be far from the caches.
    if let Some(empty) = in_order().find(|slot| slot.load(guard).is_none()) {
        return (empty, None);
    }
    let heat = |slot: &Slot<V>| slot.load(guard).map_or(0, |found| 1 + found.entry().heat());
    let coldest = in_order().min_by_key(|slot| heat(slot)).unwrap_or(&window.0[home]);
    (coldest, coldest.load(guard))
}
