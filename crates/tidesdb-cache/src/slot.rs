//! [`Slot`]: one atomic word, empty or the owner of one reference to an entry. All `unsafe` of the crate is
//! here.
//!
//! Invariants:
//! 1. A non-null word, without its tag, came from `Arc::into_raw`, and the slot owns that reference.
//! 2. A reference leaves a slot by one successful compare-and-swap (`put`, `remove`). The thread that made it
//!    drops the reference through the epoch, under a guard that was alive at the swap. Otherwise the reference
//!    is dropped with the slot, whose owner drops it only when no thread can access it (see [`EntryRef`]).
//! 3. Entries are published by Release and found by Acquire, so a reader sees them whole.

use std::marker::PhantomData;
use std::ptr;

use tidesdb_sync::Guard;

use crate::entry::Entry;
use crate::sync::{Arc, AtomicPtr, HintU64, Ordering, PlainArc};

/// Bits of a pointer that are zero in user space on 64-bit systems. An entry at an address that uses them is not cached.
const TAG_BITS: u32 = if usize::BITS == 64 { 16 } else { 0 };
const ADDRESS: usize = usize::MAX >> TAG_BITS;

/// Hash bits kept in a slot's word.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) struct Tag(usize);

impl Tag {
    #[inline]
    pub(crate) fn of(hash: u64) -> Self {
        Tag(hash as usize & !ADDRESS)
    }
}

pub(crate) struct Slot<V> {
    word: AtomicPtr<Entry<V>>,
    owns: PhantomData<Arc<Entry<V>>>,
}

/// An entry read from a slot under a guard. It may have left the slot since.
///
/// It is alive for `'g`: the slot is borrowed for `'g`, so it is dropped later. A thread that takes the entry
/// out of the slot drops it through the epoch, which waits for the guard, borrowed for `'g` too (invariant 2).
pub(crate) struct EntryRef<'g, V> {
    word: *mut Entry<V>,
    guard: PhantomData<&'g Entry<V>>,
}

impl<V> Copy for EntryRef<'_, V> {}

impl<V> Clone for EntryRef<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'g, V> EntryRef<'g, V> {
    #[inline]
    fn raw(self) -> *const Entry<V> {
        untagged(self.word)
    }

    #[inline]
    pub(crate) fn entry(self) -> &'g Entry<V> {
        // SAFETY: by invariant 1 this is a pointer to an entry that was complete before it was published
        // (invariant 3), and it lives for `'g`, as explained at [`EntryRef`]. Entries are never borrowed mutably.
        unsafe { &*self.raw() }
    }

    /// Returns a new reference to the entry.
    #[inline]
    pub(crate) fn share(self) -> Arc<Entry<V>> {
        // SAFETY: the pointer came from `Arc::into_raw`, and the count is at least one during `'g`: the slot's
        // reference is not dropped before the guard ends.
        unsafe {
            Arc::increment_strong_count(self.raw());
            Arc::from_raw(self.raw())
        }
    }
}

/// Number of slots in a window: 128 bytes.
pub(crate) const WIDTH: usize = if cfg!(loom) { 2 } else { 16 };

/// Number of windows in a chunk.
pub(crate) const CHUNK: usize = if cfg!(loom) { 2 } else { 4096 };

/// The slots that can hold a given key.
pub(crate) type Window<V> = [Slot<V>; WIDTH];

/// Windows, and one word of ghosts for each. The system zeroes the memory when it is first touched, so a chunk
/// costs only the part that is used.
pub(crate) struct Chunk<V: Send + Sync + 'static> {
    pub(crate) windows: [Window<V>; CHUNK],
    pub(crate) ghosts: [HintU64; CHUNK],
}

impl<V: Send + Sync + 'static> Chunk<V> {
    /// Allocates a chunk of empty slots.
    #[cfg(not(loom))]
    pub(crate) fn empty() -> PlainArc<Self> {
        // SAFETY: a chunk consists of atomic integers and of slots, which are atomic pointers. All bits zero is
        // valid for both, and as a pointer it is null, an empty slot.
        unsafe { PlainArc::new_zeroed().assume_init() }
    }

    #[cfg(loom)]
    pub(crate) fn empty() -> PlainArc<Self> {
        let slot = |_| Slot { word: AtomicPtr::new(ptr::null_mut()), owns: PhantomData };
        let windows = std::array::from_fn(|_| std::array::from_fn(slot));
        PlainArc::new(Chunk { windows, ghosts: std::array::from_fn(|_| HintU64::new(0)) })
    }
}

impl<V: Send + Sync + 'static> Drop for Chunk<V> {
    fn drop(&mut self) {
        // No thread can access the chunk any more. The pin is not needed, but cheap, and slots can only be read
        // under one.
        let guard = tidesdb_sync::pin();
        for found in self.windows.iter().flatten().filter_map(|slot| slot.load(&guard)) {
            found.entry().depart();
        }
    }
}

/// Allocates `count` words of zero, in memory that the system zeroes when it is touched.
pub(crate) fn zeroed_words(count: usize) -> Box<[HintU64]> {
    // SAFETY: all bits zero is a valid atomic integer.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

impl<V: Send + Sync + 'static> Slot<V> {
    /// Returns the content of the slot.
    #[inline]
    pub(crate) fn load<'g>(&'g self, _guard: &'g Guard) -> Option<EntryRef<'g, V>> {
        let word = self.word.load(Ordering::Acquire);
        (!word.is_null()).then_some(EntryRef { word, guard: PhantomData })
    }

    /// Returns the content of the slot, if its tag is `tag`.
    #[inline]
    pub(crate) fn load_tagged<'g>(&'g self, tag: Tag, _guard: &'g Guard) -> Option<EntryRef<'g, V>> {
        let word = self.word.load(Ordering::Acquire);
        (word.addr() & !ADDRESS == tag.0 && !word.is_null()).then_some(EntryRef { word, guard: PhantomData })
    }

    /// Puts `entry` into the slot if the slot still holds `seen`, which is then retired. Returns whether it
    /// did.
    pub(crate) fn put(
        &self,
        seen: Option<EntryRef<'_, V>>,
        entry: &Arc<Entry<V>>,
        tag: Tag,
        guard: &Guard,
    ) -> bool {
        let word = Arc::into_raw(Arc::clone(entry)).cast_mut();
        let expected = seen.map_or(ptr::null_mut(), |found| found.word);
        if word.addr() & !ADDRESS == 0 && self.swap(expected, word.map_addr(|addr| addr | tag.0), guard) {
            return true;
        }
        // SAFETY: the pointer came from `Arc::into_raw` above and was not stored in the slot.
        drop(unsafe { Arc::from_raw(word.cast_const()) });
        false
    }

    /// Empties the slot if it still holds `seen`, which is then retired. Returns whether it did.
    pub(crate) fn remove(&self, seen: EntryRef<'_, V>, guard: &Guard) -> bool {
        self.swap(seen.word, ptr::null_mut(), guard)
    }

    fn swap(&self, seen: *mut Entry<V>, new: *mut Entry<V>, guard: &Guard) -> bool {
        if self.word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        if !seen.is_null() {
            // SAFETY: `seen` was in the slot until this exchange, so by invariant 1 it came from
            // `Arc::into_raw` and the slot's reference is ours now. The epoch drops it, so after every guard
            // that could have found it in this slot.
            let owned = unsafe { Arc::from_raw(untagged(seen)) };
            guard.defer(move || drop(owned));
        }
        true
    }
}

impl<V> Drop for Slot<V> {
    fn drop(&mut self) {
        let word = self.word.load(Ordering::Relaxed);
        if !word.is_null() {
            // SAFETY: invariant 1; the exclusive borrow means that no `EntryRef` of this slot exists.
            drop(unsafe { Arc::from_raw(untagged(word)) });
        }
    }
}

#[inline]
fn untagged<V>(word: *mut Entry<V>) -> *const Entry<V> {
    word.map_addr(|addr| addr & ADDRESS).cast_const()
}
