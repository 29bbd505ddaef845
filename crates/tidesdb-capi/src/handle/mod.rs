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

mod slot;
mod window;

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use tidesdb_sync::{Mutex, rank};

pub(crate) use slot::Lent;
use slot::{Slot, Taken};
pub(crate) use window::{Front, Window};

use crate::abi::{ERR_BUSY, ERR_MEMORY};
use crate::failure::{Answer, Failure, invalid, told};

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 21;
const ALIGNMENT_BITS: u32 = 3;
const GENERATIONS: usize = 1 << GENERATION_BITS;
/// Slots come in chunks that never move, each twice as large as the one before: most programs have few handles of a kind. The first is
/// part of the table, so that it is found in one step; the others are made, and touched as a whole, when they are needed.
const FIRST_CHUNK: usize = 16;
const CHUNKS: usize = 17;
const _: () = assert!(FIRST_CHUNK * ((1 << CHUNKS) - 1) >= 1 << INDEX_BITS);

const STALE: Failure = invalid!("a handle is NULL, was freed, or is of another kind");
const BUSY: Failure = told!(ERR_BUSY, "another thread, or a callback's caller, is using this handle");

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

    /// A handle that nobody gave out, or perhaps somebody did.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn invented(bits: usize) -> Self {
        Self(bits)
    }

    fn new(kind: Kind, generation: usize, index: usize) -> Self {
        Self((((kind as usize) << GENERATION_BITS | generation) << INDEX_BITS | index) << ALIGNMENT_BITS)
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.0 >> ALIGNMENT_BITS & ((1 << INDEX_BITS) - 1)
    }

    /// The index, unless the word is no handle: such a one must never be compared with a state.
    #[inline(always)]
    fn aligned_index(self) -> Option<usize> {
        let aligned = self.0 & ((1 << ALIGNMENT_BITS) - 1) == 0;
        aligned.then(|| self.index())
    }

    /// The one after it of the same place.
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

/// The indexes of a chunk. The last one ends where there are no more.
fn indexes(chunk: usize) -> Range<usize> {
    let first = |chunk: usize| (FIRST_CHUNK << chunk) - FIRST_CHUNK;
    first(chunk)..first(chunk + 1).min(1 << INDEX_BITS)
}

/// In which chunk slot `index` is, and where there.
fn place_of(index: usize) -> (usize, usize) {
    let from_first = index + FIRST_CHUNK;
    let doublings = from_first.ilog2() - FIRST_CHUNK.ilog2();
    (doublings as usize, from_first - (FIRST_CHUNK << doublings))
}

/// All handles of one kind; values of some show something without being lent.
pub(crate) struct Table<T, F = ()> {
    kind: Kind,
    first: [Slot<T, F>; FIRST_CHUNK],
    /// The others; the place of the first is not used.
    chunks: [OnceLock<Chunk<T, F>>; CHUNKS],
    unused: Mutex<Unused, { rank::C_HANDLES }>,
}

impl<T, F: Front> Table<T, F> {
    /// A table without handles.
    pub(crate) const fn new(kind: Kind) -> Self {
        let unused = Mutex::new(Unused { again: Vec::new(), fresh: 0 });
        Self {
            kind,
            first: [const { Slot::new() }; FIRST_CHUNK],
            chunks: [const { OnceLock::new() }; CHUNKS],
            unused,
        }
    }

    /// The place that `handle` would have, if it is one.
    #[inline(always)]
    fn slot(&self, handle: Handle) -> Option<&Slot<T, F>> {
        let index = handle.aligned_index()?;
        self.first.get(index).or_else(|| self.farther_slot(index))
    }

    #[inline(never)]
    fn farther_slot(&self, index: usize) -> Option<&Slot<T, F>> {
        let (chunk, at) = place_of(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn place(&self, index: u32) -> &Slot<T, F> {
        let (chunk, at) = place_of(index as usize);
        match chunk {
            0 => &self.first[at],
            _ => &self.chunks[chunk].get_or_init(|| indexes(chunk).map(|_| Slot::new()).collect())[at],
        }
    }

    /// Gives `value`, which belongs to `owner`, a handle.
    ///
    /// # Errors
    /// `ERR_MEMORY` if a million are in use.
    pub(crate) fn insert(&self, value: T, owner: Handle) -> Answer<Handle> {
        // Whoever looks for all values of an owner may have it for a moment.
        Ok(self.place(self.unused_index()?).take_any().fill(value, owner))
    }

    fn unused_index(&self) -> Answer<u32> {
        let mut unused = self.unused.lock();
        if let Some(index) = unused.again.pop() {
            return Ok(index);
        }
        if unused.fresh == 1 << INDEX_BITS {
            return Err(told!(ERR_MEMORY, "a million handles of this kind are in use: free some"));
        }
        let index = unused.fresh;
        self.place(index).begin(Handle::new(self.kind, 0, index as usize));
        unused.fresh += 1;
        Ok(index)
    }

    /// What `handle` stands for, to oneself until it is dropped.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands for nothing, `ERR_BUSY` if another has it.
    #[inline(always)]
    pub(crate) fn lend(&self, handle: Handle) -> Answer<Lent<'_, T, F>> {
        match self.slot(handle).and_then(|slot| slot.try_lend(handle)) {
            Some(lent) => Ok(lent),
            None => Err(self.why_not(handle)),
        }
    }

    /// As [`Table::front`] for the handles that most programs have, in so few instructions that it needs no registers of its caller's.
    #[inline(always)]
    pub(crate) fn near_front(&self, handle: Handle) -> Option<&F> {
        self.first.get(handle.aligned_index()?)?.front(handle)
    }

    /// As [`Table::front`] for the other handles.
    #[inline(always)]
    pub(crate) fn far_front(&self, handle: Handle) -> Option<&F> {
        if handle.index() < FIRST_CHUNK { None } else { self.front(handle) }
    }

    /// What the value of `handle` shows; nothing if it stands for nothing, or if the value is in use.
    #[inline(always)]
    pub(crate) fn front(&self, handle: Handle) -> Option<&F> {
        self.slot(handle)?.front(handle)
    }

    /// Runs `body` on what `handle` stands for: as [`Table::lend`], in fewer instructions.
    ///
    /// # Errors
    /// As [`Table::lend`]; those of `body`.
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
        self.slot(handle).map_or(STALE, |slot| slot.why_not(handle))
    }

    /// Takes back what `handle` stands for; the handle is then stale.
    ///
    /// # Errors
    /// As [`Table::lend`].
    pub(crate) fn remove(&self, handle: Handle) -> Answer<T> {
        self.end(self.lend(handle)?).ok_or(STALE)
    }

    /// As [`Table::remove`], also for a value that was shut. Only for tables in which nothing is parked: a made-up handle could wake it.
    ///
    /// # Errors
    /// As [`Table::lend`].
    pub(crate) fn remove_shut(&self, handle: Handle) -> Answer<T> {
        self.remove(handle).or_else(|failure| {
            let lent = self.slot(handle).and_then(|slot| slot.wake(handle)).ok_or(failure)?;
            self.end(lent).ok_or(STALE)
        })
    }

    /// A copy of what `handle` stands for: for values that many threads use at a time.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands for nothing.
    pub(crate) fn share(&self, handle: Handle) -> Answer<T>
    where
        T: Clone,
    {
        let lent = self.slot(handle).and_then(|slot| slot.lend(handle)).ok_or(STALE)?;
        Ok(lent.clone())
    }

    /// Takes back a value that others may be copying: the first to ask gets it.
    pub(crate) fn retire(&self, handle: Handle) -> Option<T> {
        self.end(self.slot(handle)?.lend(handle)?)
    }

    /// Takes back a value that one has; its place serves another from then on.
    pub(crate) fn end(&self, lent: Lent<'_, T, F>) -> Option<T> {
        let index = lent.handle().index() as u32;
        let value = lent.end();
        self.unused.lock().again.push(index);
        value
    }

    /// Makes the handle of `lent` stale but keeps the value for another use: see [`Table::wake`].
    pub(crate) fn park(lent: Lent<'_, T, F>) -> Parked {
        Parked(lent.park())
    }

    /// A value that was parked, with a handle of its own again; `None` if it was removed meanwhile.
    #[inline]
    pub(crate) fn wake(&self, parked: Parked) -> Option<(Handle, Lent<'_, T, F>)> {
        let lent = self.slot(parked.0)?.wake(parked.0)?;
        Some((lent.handle(), lent))
    }

    /// Refuses the handles of all values of `owner` that nobody uses at this moment. The values stay until [`Table::remove_shut`].
    pub(crate) fn shut_all(&self, owner: Handle) {
        let fresh = self.unused.lock().fresh;
        (0..fresh).for_each(|index| self.place(index).shut_of(owner));
    }

    /// Shows `visit` every parked value of `owner`. One that wakes at this moment is left out.
    pub(crate) fn visit_parked(&self, owner: Handle, mut visit: impl FnMut(&mut T)) {
        let fresh = self.unused.lock().fresh;
        for index in 0..fresh {
            if let Some(mut taken) = self.place(index).try_take_parked_of(owner) {
                taken.value().map(&mut visit);
            }
        }
    }

    /// Removes every value of `owner`, parked ones too, that nobody uses at this moment.
    pub(crate) fn remove_all(&self, owner: Handle) -> Vec<T> {
        let mut removed = Vec::new();
        let fresh = self.unused.lock().fresh;
        for index in 0..fresh {
            if let Some(value) = self.place(index).try_take_of(owner).and_then(Taken::end) {
                removed.push(value);
                self.unused.lock().again.push(index);
            }
        }
        removed
    }
}

/// A value that waits for another use, by the handle it has when it wakes. Another value may be there by then: the database was
/// closed.
#[derive(Debug)]
pub(crate) struct Parked(Handle);

#[cfg(test)]
mod tests;
