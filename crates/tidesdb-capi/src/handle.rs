//! Handles that cannot dangle.
//!
//! ```text
//!   bits 46..44  43......23   22....3  2..0
//!          kind  generation   index    000
//! ```
//!
//! A handle looks like an aligned address in the lower half of the address space, which every binding can carry, but it is never
//! followed: the index finds a slot, and the slot's generation must be the handle's. Each end of a slot's use begins a new
//! generation, so a handle that was freed is refused, however often the slot is used again - up to 2^21 times, when a
//! generation comes back. A value is lent to one thread at a time; a second one is told that it is busy.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tidesdb_sync::{Backoff, Mutex};

use crate::abi::{ERR_BUSY, ERR_MEMORY};
use crate::failure::{Answer, Failure};

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 21;
const ALIGNMENT_BITS: u32 = 3;
const GENERATIONS: u32 = 1 << GENERATION_BITS;
/// Slots come in chunks that are made when they are needed and never move.
const CHUNK: usize = 256;
const CHUNKS: usize = (1 << INDEX_BITS) / CHUNK;

const STALE: Failure = Failure::invalid("a handle is NULL, was freed, or is of another kind");
const BUSY: Failure = Failure::Told(ERR_BUSY, "another thread, or a callback's caller, is using this handle");

/// What a handle may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Database = 1,
    Family = 2,
    Transaction = 3,
    Iterator = 4,
}

/// A pointer of C that is none.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(usize);

impl Handle {
    /// No handle.
    pub(crate) const NULL: Self = Self(0);

    fn new(kind: Kind, generation: u32, index: usize) -> Self {
        let generation = (generation % GENERATIONS) as usize;
        Self((((kind as usize) << GENERATION_BITS | generation) << INDEX_BITS | index) << ALIGNMENT_BITS)
    }

    /// Index and generation, if it looks like a handle of `kind`.
    #[inline]
    fn parts(self, kind: Kind) -> Option<(usize, u32)> {
        let bits = self.0 >> ALIGNMENT_BITS;
        let (index, rest) = (bits & ((1 << INDEX_BITS) - 1), bits >> INDEX_BITS);
        let generation = (rest as u32) & (GENERATIONS - 1);
        let whole = self.0 & ((1 << ALIGNMENT_BITS) - 1) == 0 && rest >> GENERATION_BITS == kind as usize;
        whole.then_some((index, generation))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x})", self.0)
    }
}

/// A place for a value, and who may touch it.
struct Slot<T> {
    /// The generation, and in the lowest bit whether somebody has the value.
    state: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached only through `Lent`, of which there is one at a time: it is made by who sets the lowest bit of
// `state`, and clears it when it goes. So the value moves between threads, which `T: Send` allows, and is never shared.
unsafe impl<T: Send> Sync for Slot<T> {}

const TAKEN: u32 = 1;

fn generation_of(state: u32) -> u32 {
    (state >> 1) % GENERATIONS
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self { state: AtomicU32::new(0), value: UnsafeCell::new(None) }
    }

    /// Takes the value if it is of this generation (any, for `None`) and nobody has it.
    #[inline]
    fn try_take(&self, generation: Option<u32>) -> Answer<Lent<'_, T>> {
        // Looked at before anything is written: a stale handle must not be in the way of the slot's new user.
        let state = self.state.load(Ordering::Relaxed);
        if generation.is_some_and(|generation| generation != generation_of(state)) {
            return Err(STALE);
        }
        if state & TAKEN != 0 {
            return Err(BUSY);
        }
        // Acquire: what the one before did to the value is seen.
        let taken = self.state.compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.map(|_| Lent { slot: self, generation: state >> 1 }).map_err(|_| BUSY)
    }

    /// As [`Slot::try_take`], waiting for who has it: for values that are had for moments only.
    fn take(&self, generation: Option<u32>) -> Answer<Lent<'_, T>> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_take(generation) {
                Err(failure) if failure.code() == ERR_BUSY => backoff.snooze(),
                other => return other,
            }
        }
    }
}

#[derive(Default)]
struct Unused {
    again: Vec<u32>,
    fresh: u32,
}

/// All handles of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    unused: Mutex<Unused>,
}

impl<T> Table<T> {
    /// A table without handles.
    pub(crate) const fn new(kind: Kind) -> Self {
        let unused = Mutex::new(Unused { again: Vec::new(), fresh: 0 });
        Self { kind, chunks: [const { OnceLock::new() }; CHUNKS], unused }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// The slot and generation that `handle` names.
    #[inline]
    fn find(&self, handle: Handle) -> Answer<(&Slot<T>, u32)> {
        let (index, generation) = handle.parts(self.kind).ok_or(STALE)?;
        Ok((self.slot(index).ok_or(STALE)?, generation))
    }

    /// Gives `value` a handle.
    ///
    /// # Errors
    /// `ERR_MEMORY` if a million are in use.
    pub(crate) fn insert(&self, value: T) -> Answer<Handle> {
        let index = self.unused_index()?;
        let chunk = self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Slot::new()).collect());
        // A handle that somebody made up may have it for a moment.
        let mut lent = chunk[index % CHUNK].take(None)?;
        *lent.place() = Some(value);
        Ok(Handle::new(self.kind, lent.generation, index))
    }

    fn unused_index(&self) -> Answer<usize> {
        let mut unused = self.unused.lock();
        if let Some(index) = unused.again.pop() {
            return Ok(index as usize);
        }
        if unused.fresh == 1 << INDEX_BITS {
            return Err(Failure::Told(ERR_MEMORY, "a million handles of this kind are in use: free some"));
        }
        unused.fresh += 1;
        Ok(unused.fresh as usize - 1)
    }

    /// What `handle` stands for, to oneself until it is dropped.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands for nothing, `ERR_BUSY` if another has it.
    #[inline]
    pub(crate) fn lend(&self, handle: Handle) -> Answer<Lent<'_, T>> {
        let (slot, generation) = self.find(handle)?;
        let mut lent = slot.try_take(Some(generation))?;
        if lent.place().is_none() {
            return Err(STALE);
        }
        Ok(lent)
    }

    /// Takes back what `handle` stands for; the handle is then stale.
    ///
    /// # Errors
    /// As [`Table::lend`].
    pub(crate) fn remove(&self, handle: Handle) -> Answer<T> {
        let value = self.lend(handle)?.end().ok_or(STALE)?;
        self.give_back(handle);
        Ok(value)
    }

    /// A copy of what `handle` stands for: for values that many threads use at a time.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands for nothing.
    pub(crate) fn share(&self, handle: Handle) -> Answer<T>
    where
        T: Clone,
    {
        let (slot, generation) = self.find(handle)?;
        slot.take(Some(generation))?.place().clone().ok_or(STALE)
    }

    /// Takes back a value that others may be copying: the first to ask gets it.
    pub(crate) fn retire(&self, handle: Handle) -> Option<T> {
        let (slot, generation) = self.find(handle).ok()?;
        let value = slot.take(Some(generation)).ok().filter(|lent| lent.is_there())?.end();
        self.give_back(handle);
        value
    }

    fn give_back(&self, handle: Handle) {
        if let Some((index, _)) = handle.parts(self.kind) {
            self.unused.lock().again.push(index as u32);
        }
    }

    /// Makes `handle` stale but keeps its value for another use: see [`Table::wake`].
    pub(crate) fn park(&self, mut lent: Lent<'_, T>, handle: Handle) -> Parked {
        lent.generation += 1;
        Parked { index: handle.parts(self.kind).map_or(0, |(index, _)| index as u32) }
    }

    /// A value that was parked, with a handle of its own again; `None` if it was removed meanwhile.
    #[inline]
    pub(crate) fn wake(&self, parked: Parked) -> Option<(Handle, Lent<'_, T>)> {
        let index = parked.index as usize;
        let lent = self.slot(index)?.take(None).ok().filter(|lent| lent.is_there())?;
        Some((Handle::new(self.kind, lent.generation, index), lent))
    }

    /// Removes every value, parked ones too, for which `wanted` holds and that nobody uses at this moment.
    pub(crate) fn remove_all(&self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        let fresh = self.unused.lock().fresh as usize;
        for index in 0..fresh {
            let Some(Ok(mut lent)) = self.slot(index).map(|slot| slot.try_take(None)) else { continue };
            if lent.place().as_ref().is_some_and(&wanted) {
                removed.extend(lent.end());
                self.unused.lock().again.push(index as u32);
            }
        }
        removed
    }
}

/// A value that waits for another use.
#[derive(Debug)]
pub(crate) struct Parked {
    index: u32,
}

/// A value on loan: nobody else has it.
pub(crate) struct Lent<'t, T> {
    slot: &'t Slot<T>,
    /// The generation that the slot has afterwards.
    generation: u32,
}

impl<T> Lent<'_, T> {
    #[inline]
    fn place(&mut self) -> &mut Option<T> {
        // SAFETY: who made `self` set the lowest bit of the slot's state, so nobody else has a `Lent` of it: see `Slot`.
        unsafe { &mut *self.slot.value.get() }
    }

    fn is_there(&self) -> bool {
        // SAFETY: as in `place`; the borrow of `self` keeps it from being changed meanwhile.
        unsafe { &*self.slot.value.get() }.is_some()
    }

    /// Ends the value's time in the slot: all its handles are stale.
    fn end(mut self) -> Option<T> {
        self.generation += 1;
        self.place().take()
    }
}

const THERE: &str = "a value is lent only if it is there";

impl<T> Deref for Lent<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as in `place`; the borrow of `self` keeps it from being changed meanwhile.
        unsafe { &*self.slot.value.get() }.as_ref().expect(THERE)
    }
}

impl<T> DerefMut for Lent<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.place().as_mut().expect(THERE)
    }
}

impl<T> Drop for Lent<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // What a panic left half done is never lent again. Its memory is kept: to drop it could panic again.
        let end = u32::from(std::thread::panicking());
        let state = self.generation.wrapping_add(end) << 1;
        // Release: what was done to the value is seen by the next one. A plain store is enough: only who has the value writes.
        self.slot.state.store(state, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::abi::ERR_INVALID_ARGS;

    type Small = Table<u64>;

    fn table() -> Box<Small> {
        Box::new(Table::new(Kind::Iterator))
    }

    fn code<T>(answer: Answer<T>) -> i32 {
        answer.err().map_or(0, |failure| failure.code())
    }

    #[test]
    fn a_handle_carries_kind_generation_and_index() {
        for (generation, index) in [(0, 0), (1, 1), (GENERATIONS - 1, (1 << INDEX_BITS) - 1), (77, 4096)] {
            let handle = Handle::new(Kind::Family, generation, index);
            assert_eq!(handle.parts(Kind::Family), Some((index, generation)));
            assert_eq!(handle.parts(Kind::Database), None);
            assert_eq!((handle.0 % 8, handle.0 >> 47), (0, 0), "an aligned address of the lower half");
            assert_eq!(Handle(handle.0 | 1).parts(Kind::Family), None, "an address within");
            assert_eq!(Handle(handle.0 | 1 << 60).parts(Kind::Family), None, "of another half");
        }
    }

    #[test]
    fn a_removed_handle_stays_stale_when_its_slot_is_used_again() {
        let table = table();
        let old = table.insert(1).unwrap();
        assert_eq!(table.remove(old).unwrap(), 1);
        let new = table.insert(2).unwrap();
        assert_ne!(old, new);
        assert_eq!(code(table.lend(old)), ERR_INVALID_ARGS);
        assert_eq!(code(table.remove(old)), ERR_INVALID_ARGS, "a second time");
        assert_eq!(*table.lend(new).unwrap(), 2);
        for word in [0, 8, new.0 + 8, new.0 + 1, usize::MAX, 0x7fff_dead_beef] {
            assert_eq!(code(table.lend(Handle(word))), ERR_INVALID_ARGS, "{word:#x}");
        }
    }

    #[test]
    fn a_value_is_lent_to_one_at_a_time() {
        let table = table();
        let handle = table.insert(1).unwrap();
        let lent = table.lend(handle).unwrap();
        assert_eq!(code(table.lend(handle)), ERR_BUSY);
        assert_eq!(code(table.remove(handle)), ERR_BUSY);
        assert!(table.remove_all(|_| true).is_empty(), "what is in use stays");
        drop(lent);
        assert_eq!(table.remove_all(|n| *n == 1), [1]);
        assert_eq!(code(table.lend(handle)), ERR_INVALID_ARGS);
    }

    #[test]
    fn what_is_parked_is_kept_under_another_handle() {
        let table = table();
        let old = table.insert(7).unwrap();
        let parked = table.park(table.lend(old).unwrap(), old);
        assert_eq!(code(table.lend(old)), ERR_INVALID_ARGS);
        let (new, lent) = table.wake(parked).unwrap();
        assert_eq!(*lent, 7);
        drop(lent);
        assert_ne!(new, old);
        assert_eq!(table.remove(new).unwrap(), 7);
    }

    #[test]
    fn what_a_panic_left_is_never_lent_again() {
        let table = table();
        let handle = table.insert(1).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _lent = table.lend(handle).unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(code(table.lend(handle)), ERR_INVALID_ARGS);
    }

    /// Threads insert, lend and remove at random, with handles of each other, stale ones too: a value is never seen by two, and
    /// never under a handle that is not its own.
    #[test]
    fn threads_never_share_a_value() {
        let table: Table<(u64, AtomicUsize)> = Table::new(Kind::Transaction);
        let handles: Vec<Mutex<(Handle, u64)>> = (0..8).map(|_| Mutex::new((Handle::NULL, 0))).collect();
        let served = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (table, handles, served) = (&table, &handles, &served);
                scope.spawn(move || {
                    let mut random = thread + 1;
                    for n in 0..20_000 {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        let place = &handles[(random >> 60) as usize % 8];
                        let (handle, stamp) = *place.lock();
                        match (random >> 40) % 8 {
                            0 => {
                                let stamp = thread << 32 | n;
                                let new = table.insert((stamp, AtomicUsize::new(0))).unwrap();
                                *place.lock() = (new, stamp);
                            }
                            1 => drop(table.remove(handle)),
                            _ => {
                                if let Ok(lent) = table.lend(handle) {
                                    assert_eq!(lent.0, stamp);
                                    assert_eq!(lent.1.fetch_add(1, Ordering::SeqCst), 0, "lent to two");
                                    served.fetch_add(1, Ordering::Relaxed);
                                    lent.1.fetch_sub(1, Ordering::SeqCst);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(served.into_inner() > 1000);
    }
}
