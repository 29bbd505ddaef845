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

use std::fmt;
use std::sync::OnceLock;

use tidesdb_sync::Mutex;

pub(crate) use slot::Lent;
use slot::Slot;

use crate::abi::{ERR_BUSY, ERR_MEMORY};
use crate::failure::{Answer, Failure, invalid, told};

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 21;
const ALIGNMENT_BITS: u32 = 3;
const GENERATIONS: usize = 1 << GENERATION_BITS;
/// Slots come in chunks that are made when they are needed and never move.
const CHUNK: usize = 256;
const CHUNKS: usize = (1 << INDEX_BITS) / CHUNK;

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

    fn new(kind: Kind, generation: usize, index: usize) -> Self {
        Self((((kind as usize) << GENERATION_BITS | generation) << INDEX_BITS | index) << ALIGNMENT_BITS)
    }

    /// Index and generation, if it looks like a handle of `kind`.
    #[inline(always)]
    fn parts(self, kind: Kind) -> Option<(usize, usize)> {
        let bits = self.0 >> ALIGNMENT_BITS;
        let (index, rest) = (bits & ((1 << INDEX_BITS) - 1), bits >> INDEX_BITS);
        let generation = rest & (GENERATIONS - 1);
        let whole = self.0 & ((1 << ALIGNMENT_BITS) - 1) == 0 && rest >> GENERATION_BITS == kind as usize;
        whole.then_some((index, generation))
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

    #[inline(always)]
    fn slot(&self, index: usize) -> Option<&Slot<T>> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// The slot and generation that `handle` names.
    fn find(&self, handle: Handle) -> Answer<(&Slot<T>, usize)> {
        let (index, generation) = handle.parts(self.kind).ok_or(STALE)?;
        Ok((self.slot(index).ok_or(STALE)?, generation))
    }

    /// Gives `value`, which belongs to `owner`, a handle.
    ///
    /// # Errors
    /// `ERR_MEMORY` if a million are in use.
    pub(crate) fn insert(&self, value: T, owner: Handle) -> Answer<Handle> {
        let index = self.unused_index()?;
        let chunk = self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Slot::new()).collect());
        // A handle that somebody made up may have it for a moment.
        let mut lent = chunk[index % CHUNK].take_any();
        lent.fill(value, owner.0);
        Ok(Handle::new(self.kind, lent.generation(), index))
    }

    fn unused_index(&self) -> Answer<usize> {
        let mut unused = self.unused.lock();
        if let Some(index) = unused.again.pop() {
            return Ok(index as usize);
        }
        if unused.fresh == 1 << INDEX_BITS {
            return Err(told!(ERR_MEMORY, "a million handles of this kind are in use: free some"));
        }
        unused.fresh += 1;
        Ok(unused.fresh as usize - 1)
    }

    /// What `handle` stands for, to oneself until it is dropped.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands for nothing, `ERR_BUSY` if another has it.
    #[inline(always)]
    pub(crate) fn lend(&self, handle: Handle) -> Answer<Lent<'_, T>> {
        match self.try_lend(handle) {
            Some(lent) => Ok(lent),
            None => Err(self.why_not(handle)),
        }
    }

    #[inline(always)]
    fn try_lend(&self, handle: Handle) -> Option<Lent<'_, T>> {
        let (index, generation) = handle.parts(self.kind)?;
        self.slot(index)?.try_take(generation).filter(Lent::is_there)
    }

    #[cold]
    fn why_not(&self, handle: Handle) -> Failure {
        let found = self.find(handle);
        found.map_or_else(|stale| stale, |(slot, generation)| slot.why_not(generation))
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
        slot.take(generation).and_then(|mut lent| lent.place().clone()).ok_or(STALE)
    }

    /// Takes back a value that others may be copying: the first to ask gets it.
    pub(crate) fn retire(&self, handle: Handle) -> Option<T> {
        let (slot, generation) = self.find(handle).ok()?;
        let value = slot.take(generation).filter(Lent::is_there)?.end();
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
        lent.end_generation();
        let index = handle.parts(self.kind).map_or(0, |(index, _)| index as u32);
        Parked { index, generation: lent.generation() }
    }

    /// A value that was parked, with a handle of its own again; `None` if it was removed meanwhile.
    #[inline]
    pub(crate) fn wake(&self, parked: Parked) -> Option<(Handle, Lent<'_, T>)> {
        let index = parked.index as usize;
        let lent = self.slot(index)?.take(parked.generation).filter(Lent::is_there)?;
        Some((Handle::new(self.kind, parked.generation, index), lent))
    }

    /// Removes every value of `owner`, parked ones too, that nobody uses at this moment.
    pub(crate) fn remove_all(&self, owner: Handle) -> Vec<T> {
        let mut removed = Vec::new();
        let fresh = self.unused.lock().fresh as usize;
        let of_owner = |slot: &&Slot<T>| slot.owner() == owner.0;
        for index in 0..fresh {
            // Those of others are not even touched.
            let Some(lent) = self.slot(index).filter(of_owner).and_then(Slot::try_take_any) else { continue };
            if lent.is_there() && lent.owner() == owner.0 {
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
    /// That of its handle when it wakes. Another value may be in the slot by then: the database was closed.
    generation: usize,
}

#[cfg(test)]
mod tests;
