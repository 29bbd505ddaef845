//! Handles that cannot dangle.
//!
//! ```text
//!   bits 46..44  43......23   22....3  2..0
//!          kind  generation   index    000
//! ```
//!
//! A handle looks like an aligned address in the lower half of the address space, which every binding can
//! carry, but it is never dereferenced: the index finds a slot, and the slot's generation must match the
//! handle's. Each time a slot is freed, it gets a new generation, so a freed handle is refused even if its slot
//! is reused, until the generation wraps after 2^21 uses. A value is lent to one thread at a time; a second
//! thread gets `ERR_BUSY`. A value that is freed while it is lent ends when it is given back: its handle is stale at once, and nothing waits.
//!
//! If addresses have 32 bits, the index has 16 and the generation 9: 65,536 handles of a kind, and a freed one is refused until its slot
//! was used 512 times.

mod slot;
mod window;

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use tidesdb_sync::{Mutex, rank};

pub(crate) use slot::Lent;
use slot::{Place, Slot, Taken};
pub(crate) use window::{Front, Window};

use crate::abi::{ERR_BUSY, ERR_MEMORY};
use crate::failure::{Answer, Failure, invalid, told};

const INDEX_BITS: u32 = if usize::BITS >= 64 { 20 } else { 16 };
const GENERATION_BITS: u32 = if usize::BITS >= 64 { 21 } else { 9 };
const ALIGNMENT_BITS: u32 = 3;
const GENERATIONS: usize = 1 << GENERATION_BITS;
/// Slots are in chunks that never move, each twice as large as the previous one, because most programs have few
/// handles of a kind. The first chunk is part of the table, so that it is found in one step. The others are
/// allocated and initialized as a whole when needed.
const FIRST_CHUNK: usize = 16;
const CHUNKS: usize = (INDEX_BITS - FIRST_CHUNK.ilog2() + 1) as usize;
const _: () = assert!(FIRST_CHUNK * ((1 << CHUNKS) - 1) >= 1 << INDEX_BITS);

pub(crate) const STALE: Failure = invalid!("a handle is NULL, was freed, or is of another kind");
const BUSY: Failure =
    told!(ERR_BUSY, "this handle is in use by another thread or by the caller of this callback");

/// The kind of object that a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Database = 1,
    Family = 2,
    Transaction = 3,
    Iterator = 4,
    /// Objects of the extended interface that one thread uses at a time.
    Object = 5,
    /// Iterators of the extended interface.
    Scan = 6,
    /// Objects of the extended interface that many threads use.
    Shared = 7,
}

/// An opaque C handle, declared as a pointer. It is never dereferenced.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Handle(usize);

impl Handle {
    /// The null handle.
    pub(crate) const NULL: Self = Self(0);

    /// A handle with arbitrary bits, for fuzzing.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn invented(bits: usize) -> Self {
        Self(bits)
    }

    /// A handle that a caller passed inside a structure.
    pub(crate) fn of_word(word: usize) -> Self {
        Self(word)
    }

    fn new(kind: Kind, generation: usize, index: usize) -> Self {
        Self((((kind as usize) << GENERATION_BITS | generation) << INDEX_BITS | index) << ALIGNMENT_BITS)
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.0 >> ALIGNMENT_BITS & ((1 << INDEX_BITS) - 1)
    }

    /// Returns the index, or `None` if the word is not aligned: such a word must never be compared with a
    /// slot's state.
    #[inline(always)]
    fn aligned_index(self) -> Option<usize> {
        let aligned = self.0 & ((1 << ALIGNMENT_BITS) - 1) == 0;
        aligned.then(|| self.index())
    }

    /// Returns the next handle of the same slot: the next generation.
    fn next(self) -> Self {
        const SHIFT: u32 = ALIGNMENT_BITS + INDEX_BITS;
        const MASK: usize = (GENERATIONS - 1) << SHIFT;
        Self(self.0 & !MASK | (self.0.wrapping_add(1 << SHIFT) & MASK))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x})", self.0)
    }
}

#[derive(Default)]
struct Unused {
    again: Vec<u32>,
    fresh: u32,
}

type Chunk<T, F> = Box<[Slot<T, F>]>;

/// Returns the indexes of a chunk. The last chunk ends at the largest index.
fn indexes(chunk: usize) -> Range<usize> {
    let first = |chunk: usize| (FIRST_CHUNK << chunk) - FIRST_CHUNK;
    first(chunk)..first(chunk + 1).min(1 << INDEX_BITS)
}

/// Returns the chunk of slot `index` and the position in it.
fn place_of(index: usize) -> (usize, usize) {
    let from_first = index + FIRST_CHUNK;
    let doublings = from_first.ilog2() - FIRST_CHUNK.ilog2();
    (doublings as usize, from_first - (FIRST_CHUNK << doublings))
}

/// All handles of one kind. Values of some kinds show a [`Front`] that can be read without lending the value.
pub(crate) struct Table<T, F = ()> {
    kind: Kind,
    first: [Slot<T, F>; FIRST_CHUNK],
    /// The other chunks; element 0 is not used.
    chunks: [OnceLock<Chunk<T, F>>; CHUNKS],
    unused: Mutex<Unused, { rank::C_HANDLES }>,
}

impl<T, F: Front> Table<T, F> {
    /// Creates a table without handles.
    pub(crate) const fn new(kind: Kind) -> Self {
        let unused = Mutex::new(Unused { again: Vec::new(), fresh: 0 });
        Self {
            kind,
            first: [const { Slot::new() }; FIRST_CHUNK],
            chunks: [const { OnceLock::new() }; CHUNKS],
            unused,
        }
    }

    /// Returns the slot that `handle` refers to, if it exists.
    #[inline(always)]
    fn slot(&self, handle: Handle) -> Option<Place<'_, T, F>> {
        let index = handle.aligned_index()?;
        let slot = self.first.get(index).or_else(|| self.farther_slot(index))?;
        Some(Place { slot, table: self })
    }

    #[inline(never)]
    fn farther_slot(&self, index: usize) -> Option<&Slot<T, F>> {
        let (chunk, at) = place_of(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn place(&self, index: u32) -> Place<'_, T, F> {
        let (chunk, at) = place_of(index as usize);
        let slot = match chunk {
            0 => &self.first[at],
            _ => &self.chunks[chunk].get_or_init(|| indexes(chunk).map(|_| Slot::new()).collect())[at],
        };
        Place { slot, table: self }
    }

    /// Creates a handle for `value`, which belongs to `owner`.
    ///
    /// # Errors
    /// `ERR_MEMORY` if about a million handles are in use, or 65,536 if addresses have 32 bits.
    pub(crate) fn insert(&self, value: T, owner: Handle) -> Answer<Handle> {
        self.insert_shown(value, owner, |_| {})
    }

    /// Like [`Table::insert`]. `show` sets the front of the value.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub(crate) fn insert_shown(&self, value: T, owner: Handle, show: impl FnOnce(&F)) -> Answer<Handle> {
        // A thread that scans for the values of an owner may hold the slot briefly.
        Ok(self.place(self.unused_index()?).take_any().fill(value, owner, show))
    }

    fn unused_index(&self) -> Answer<u32> {
        let mut unused = self.unused.lock();
        if let Some(index) = unused.again.pop() {
            return Ok(index);
        }
        if unused.fresh == 1 << INDEX_BITS {
            return Err(told!(ERR_MEMORY, "all handles of this kind are in use: free some"));
        }
        let index = unused.fresh;
        self.place(index).slot.begin(Handle::new(self.kind, 0, index as usize));
        unused.fresh += 1;
        Ok(index)
    }

    /// Lends the value of `handle` exclusively, until the result is dropped.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if the handle is invalid, `ERR_BUSY` if its value is lent already.
    #[inline(always)]
    pub(crate) fn lend(&self, handle: Handle) -> Answer<Lent<'_, T, F>> {
        match self.slot(handle).and_then(|slot| slot.try_lend(handle)) {
            Some(lent) => Ok(lent),
            None => Err(self.why_not(handle)),
        }
    }

    /// Like [`Table::front`], for the handles of the first chunk, which most programs use. It needs so few
    /// instructions that the caller saves no registers.
    #[inline(always)]
    pub(crate) fn near_front(&self, handle: Handle) -> Option<&F> {
        self.first.get(handle.aligned_index()?)?.front(handle)
    }

    /// Returns the front of the value of `handle`; `None` if the handle is invalid or the value is lent.
    #[inline(always)]
    pub(crate) fn front(&self, handle: Handle) -> Option<&F> {
        self.slot(handle)?.slot.front(handle)
    }

    /// Returns the front of the value of `handle`, whether or not the value is lent.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if the handle is invalid.
    pub(crate) fn front_even_lent(&self, handle: Handle) -> Answer<&F> {
        self.slot(handle).and_then(|place| place.slot.front_even_lent(handle)).ok_or(STALE)
    }

    /// Runs `body` on the value of `handle`. Like [`Table::lend`], in fewer instructions.
    ///
    /// # Errors
    /// Errors of [`Table::lend`] and of `body`.
    #[inline(always)]
    pub(crate) fn with<R>(&self, handle: Handle, body: impl FnOnce(&mut T) -> Answer<R>) -> Answer<R> {
        let mut lent = self.lend(handle)?;
        let answer = body(&mut lent);
        lent.give_back();
        answer
    }

    #[cold]
    #[inline(never)]
    fn why_not(&self, handle: Handle) -> Failure {
        self.slot(handle).map_or(STALE, |place| place.slot.why_not(handle))
    }

    /// Lends the value of `handle` for its end. If it is lent to another caller now, it ends when that one gives it back, and the result is
    /// `None`. In both cases the handle is stale afterwards.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if the handle is invalid.
    pub(crate) fn lend_to_end(&self, handle: Handle) -> Answer<Option<Lent<'_, T, F>>> {
        loop {
            let place = self.slot(handle).ok_or(STALE)?;
            if let Some(lent) = place.try_lend(handle) {
                return Ok(Some(lent));
            }
            if place.slot.end_when_given_back(handle) {
                return Ok(None);
            }
            if place.slot.front_even_lent(handle).is_none() {
                return Err(STALE);
            }
        }
    }

    /// Removes the value of `handle`; the handle is stale afterwards. `None` if the value is lent: see [`Table::lend_to_end`].
    ///
    /// # Errors
    /// As [`Table::lend_to_end`].
    pub(crate) fn remove(&self, handle: Handle) -> Answer<Option<T>> {
        Ok(self.lend_to_end(handle)?.and_then(|lent| self.end(lent)))
    }

    /// Like [`Table::remove`], also for a value that was shut. Only for tables in which no value is parked: an
    /// invented handle could wake one.
    ///
    /// # Errors
    /// As [`Table::lend_to_end`].
    pub(crate) fn remove_shut(&self, handle: Handle) -> Answer<Option<T>> {
        self.remove(handle).or_else(|failure| {
            let lent = self.slot(handle).and_then(|place| place.wake(handle)).ok_or(failure)?;
            Ok(self.end(lent))
        })
    }

    /// Returns a clone of the value of `handle`. For values that many threads use at a time, and that end by [`Table::retire`] only.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if the handle is invalid.
    pub(crate) fn share(&self, handle: Handle) -> Answer<T>
    where
        T: Clone,
    {
        let lent = self.slot(handle).and_then(|place| place.lend(handle)).ok_or(STALE)?;
        let clone = T::clone(&lent);
        lent.give_back_shared();
        Ok(clone)
    }

    /// Removes a value that other threads may be cloning. The first caller gets it.
    pub(crate) fn retire(&self, handle: Handle) -> Option<T> {
        self.end(self.slot(handle)?.lend(handle)?)
    }

    /// Removes a lent value and frees its slot.
    pub(crate) fn end(&self, lent: Lent<'_, T, F>) -> Option<T> {
        let index = lent.handle().index() as u32;
        let value = lent.end();
        self.unused.lock().again.push(index);
        value
    }

    /// Makes the handle of `lent` stale but keeps the value for reuse: see [`Table::wake`].
    pub(crate) fn park(lent: Lent<'_, T, F>) -> Parked {
        Parked(lent.park())
    }

    /// Lends a parked value again, with a new handle; `None` if it was removed meanwhile.
    #[inline]
    pub(crate) fn wake(&self, parked: Parked) -> Option<(Handle, Lent<'_, T, F>)> {
        let lent = self.slot(parked.0)?.wake(parked.0)?;
        Some((lent.handle(), lent))
    }

    /// Invalidates the handles of all values of `owner` that are not lent now. The values stay until
    /// [`Table::remove_shut`].
    pub(crate) fn shut_all(&self, owner: Handle) {
        let fresh = self.unused.lock().fresh;
        (0..fresh).for_each(|index| self.place(index).slot.shut_of(owner));
    }

    /// Like [`Table::shut_all`], but waits for values that are lent. No value is inserted for `owner` any more.
    pub(crate) fn await_and_shut_all(&self, owner: Handle) {
        let fresh = self.unused.lock().fresh;
        for index in 0..fresh {
            if let Some(taken) = self.place(index).take_of(owner) {
                taken.shut();
            }
        }
    }

    /// Calls `visit` for every parked value of `owner`. A value that is being woken now is left out.
    pub(crate) fn visit_parked(&self, owner: Handle, mut visit: impl FnMut(&mut T)) {
        let fresh = self.unused.lock().fresh;
        for index in 0..fresh {
            if let Some(mut taken) = self.place(index).try_take_parked_of(owner) {
                taken.value().map(&mut visit);
            }
        }
    }

    /// Removes every value of `owner` that is not lent now, including parked ones.
    pub(crate) fn remove_all(&self, owner: Handle) -> Vec<T> {
        self.remove_taken(|slot| slot.try_take_of(owner))
    }

    /// Like [`Table::remove_all`], but waits for values that are lent. No value is inserted for `owner` any more.
    pub(crate) fn await_and_remove_all(&self, owner: Handle) -> Vec<T> {
        self.remove_taken(|slot| slot.take_of(owner))
    }

    /// Removes the values of all slots that `take` takes.
    fn remove_taken<'t>(&'t self, take: impl Fn(Place<'t, T, F>) -> Option<Taken<'t, T, F>>) -> Vec<T> {
        let mut removed = Vec::new();
        let fresh = self.unused.lock().fresh;
        for index in 0..fresh {
            if let Some(value) = take(self.place(index)).and_then(Taken::end) {
                removed.push(value);
                self.unused.lock().again.push(index);
            }
        }
        removed
    }
}

/// A parked value, identified by the handle it gets when it wakes. If the database was closed meanwhile, the
/// slot may hold another value.
#[derive(Debug)]
pub(crate) struct Parked(Handle);

#[cfg(test)]
mod tests;
