//! Values in chunks, on their way to the value log.
//!
//! Each chunk is compressed and appended by a helper that has room, otherwise by the caller. Chunks of one value may be appended
//! in any order; the chunk index lists them in theirs.

use std::mem;
use std::sync::Arc;

use crate::family::{FamilyCore, Metric};
use crate::memory::{Charge, Use};
use crate::shared::Family;
use crate::types::VlogId;
use crate::value_threads::Helpers;
use crate::vlog::{CHUNK_BYTES, ChunkIndex, ChunkedPlace, Lane, Lease, VlogPointer};
use crate::wal::{Log, SpaceReservation, Unpublished};
use crate::{Error, Result};

/// Values of at least this length are stored by the put, in chunks.
const LONG_BYTES_MIN: usize = 8 << 20;
/// Chunks appended by the caller before helpers are started: for a short value they would not pay.
const CHUNKS_ALONE: usize = 2;

/// A chunk and its number.
type Given = (usize, Vec<u8>);
/// The number and the memory of a chunk, and where it was appended.
type Done = (usize, Vec<u8>, Result<Appended>);
/// An appended chunk, and a lease on its file.
type Appended = (VlogPointer, Vec<Lease>);

/// Checks that a part of a value may be written, and reserves disk space for its `bytes` unless a reservation for the whole value is
/// held. That one also covers the part while another put, which does not fit beside it, is being refused.
fn begin_part(family: &Family, bytes: usize, is_reserved: bool) -> Result<Option<SpaceReservation<&Log>>> {
    match is_reserved {
        true => family.shared.write.check_writable().map(|()| None),
        false => begin_writing(family, bytes).map(Some),
    }
}

/// Reserves disk space for `bytes` of values. A close waits until the reservation is dropped: once it has returned, another
/// process may have the directory open.
///
/// # Errors
/// `NoSpace`, `Io`, `ReadOnly`, `Closed`, `Poisoned`.
pub fn begin_writing(family: &Family, bytes: usize) -> Result<SpaceReservation<&Log>> {
    let ctx = &family.shared.write;
    let reservation = ctx.log.reserve_space_for_values(bytes.max(1) as u64)?;
    ctx.check_writable()?; // after the reservation: a close that does not wait for it is seen here
    Ok(reservation)
}

/// Returns whether a put stores `value` at once. A commit hook sees the value, so it stays in the batch.
#[inline]
pub(super) fn is_long(family: &Family, value: &[u8]) -> bool {
    value.len() >= LONG_BYTES_MIN
        && value.len() >= family.core.options.value_threshold()
        && !family.core.hook.is_set()
}

/// Refuses writes of a comparator that this thread runs for a commit.
pub(super) fn refuse_comparators() -> Result<()> {
    match Unpublished::is_here() {
        true => Err(Error::invalid("a comparator may read the database, not write to it")),
        false => Ok(()),
    }
}

/// Stores `value` in the value log. Returns where it lies, and leases on its files. It is as durable as other values: a commit
/// in full mode, or the next sync of the log, makes it so.
pub(super) fn store(family: &Family, value: &[u8]) -> Result<(ChunkedPlace, Vec<Lease>)> {
    refuse_comparators()?;
    let (ctx, core) = (&family.shared.write, &family.core);
    if core.is_dropped() {
        return Err(core.unusable());
    }
    let stored = append_value(family, value).map_err(|e| ctx.refused(value.len() as u64, e))?;
    ctx.note_dirty_values([core]);
    Ok(stored)
}

/// Appends `value` in chunks. Reserves space for the whole value first: a put that fails half way leaves garbage, which would take
/// the space from other writers until it is collected.
fn append_value(family: &Family, value: &[u8]) -> Result<(ChunkedPlace, Vec<Lease>)> {
    let reservation = begin_writing(family, value.len())?;
    let _expected = family.core.vlog.expect(value.len() as u64);
    let mut chunks = Chunks::new(family); // declared last, so helpers end before the reservation and the announcement
    chunks.is_reserved = true;
    for chunk in value.chunks(CHUNK_BYTES) {
        reservation.written(chunk.len() as u64)?;
        chunks.add_part(chunk)?;
    }
    chunks.finish()
}

/// The chunks of one value. Dropping them waits for the helpers and leaves garbage.
pub struct Chunks {
    family: Family,
    /// Where the chunks lie, as far as that is known.
    pointers: Vec<Option<VlogPointer>>,
    /// The newest file that has a chunk or the index, as far as that is known. Files of both lanes share one order of numbers.
    newest: Option<VlogId>,
    leases: Vec<Lease>,
    helpers: Option<Helpers<Given, Done>>,
    /// Memory for chunks.
    spare: Vec<Vec<u8>>,
    /// Memory of the chunks that helpers have, and of `spare`.
    charge: Charge,
    /// True if the caller holds a space reservation for the whole value.
    is_reserved: bool,
}

impl Chunks {
    /// No chunks yet.
    pub fn new(family: &Family) -> Self {
        let family = family.clone();
        Self {
            family,
            pointers: Vec::new(),
            newest: None,
            leases: Vec::new(),
            helpers: None,
            spare: Vec::new(),
            charge: Charge::new(Use::Cursors),
            is_reserved: false,
        }
    }

    /// Returns the number of chunks added.
    pub fn count(&self) -> usize {
        self.pointers.len()
    }

    /// Adds the next chunk, of [`CHUNK_BYTES`] unless it is the last. Returns empty memory for another one.
    ///
    /// # Errors
    /// As [`begin_writing`]; those of appending this chunk or an earlier one.
    pub fn add(&mut self, chunk: Vec<u8>) -> Result<Vec<u8>> {
        let number = self.begin()?;
        let mut next = match self.memory_beside() {
            Some(next) => {
                self.give((number, chunk))?;
                next
            }
            None => {
                self.append_here(number, &chunk)?;
                chunk
            }
        };
        next.clear();
        Ok(next)
    }

    /// Returns memory for a chunk while a helper has another one; `None` if no helper has room, or memory is scarce.
    fn memory_beside(&mut self) -> Option<Vec<u8>> {
        if !self.helpers.as_ref().is_some_and(Helpers::have_room) {
            return None;
        }
        self.spare.pop().or_else(|| {
            let bytes = self.charge.bytes() + CHUNK_BYTES as u64;
            let grown = self.charge.grow(&self.family.core.memory, bytes);
            grown.is_ok().then(|| Vec::with_capacity(CHUNK_BYTES))
        })
    }

    fn give(&mut self, given: Given) -> Result<()> {
        match &mut self.helpers {
            Some(helpers) => helpers.give(given),
            None => Err(Error::internal("there are no helpers")),
        }
    }

    /// Like [`Chunks::add`], for a chunk that is copied only if a helper takes it.
    ///
    /// # Errors
    /// As [`Chunks::add`].
    pub fn add_part(&mut self, chunk: &[u8]) -> Result<()> {
        let number = self.begin()?;
        let Some(mut copy) = self.memory_beside() else { return self.append_here(number, chunk) };
        copy.clear();
        copy.extend_from_slice(chunk);
        self.give((number, copy))
    }

    /// Takes what helpers have done, starts them in time, and returns the number of the next chunk.
    fn begin(&mut self) -> Result<usize> {
        while let Some(done) = self.helpers.as_mut().and_then(Helpers::take) {
            self.note(done)?;
        }
        if self.pointers.len() == CHUNKS_ALONE
            && let Some(threads) = self.family.core.vlog.threads()
        {
            let (family, is_reserved) = (self.family.clone(), self.is_reserved);
            let work = move |(number, chunk): Given| {
                let appended = append(&family, Lane::Helpers, &chunk, is_reserved);
                (number, chunk, appended)
            };
            self.helpers = Some(Helpers::start(&**threads, work));
        }
        self.pointers.push(None);
        Ok(self.pointers.len() - 1)
    }

    fn append_here(&mut self, number: usize, chunk: &[u8]) -> Result<()> {
        let appended = append(&self.family, Lane::Main, chunk, self.is_reserved);
        self.note((number, Vec::new(), appended))
    }

    fn note(&mut self, (number, memory, appended): Done) -> Result<()> {
        let (pointer, leases) = appended?;
        self.pointers[number] = Some(pointer);
        self.newest = self.newest.max(Some(pointer.vlog));
        self.keep(leases);
        if memory.capacity() > 0 {
            self.spare.push(memory);
        }
        Ok(())
    }

    /// Keeps one lease for each file.
    fn keep(&mut self, leases: Vec<Lease>) {
        for lease in leases {
            if !self.leases.iter().rev().any(|kept| kept.is_same(&lease)) {
                self.leases.push(lease);
            }
        }
    }

    /// Returns the newest file that is known to have a chunk or the index.
    pub fn newest_file(&self) -> Option<VlogId> {
        self.newest
    }

    /// Waits for all chunks and appends their index. Returns where the value lies, and leases on its files.
    ///
    /// # Errors
    /// As [`Chunks::add`].
    pub fn finish(&mut self) -> Result<(ChunkedPlace, Vec<Lease>)> {
        while let Some(done) = self.helpers.as_mut().map_or(Ok(None), Helpers::wait)? {
            self.note(done)?;
        }
        self.helpers = None;
        let mut index = ChunkIndex::new(CHUNK_BYTES as u32);
        for pointer in mem::take(&mut self.pointers) {
            index.push(pointer.ok_or_else(|| Error::internal("a chunk of a value was not written"))?);
        }
        let core = &self.family.core;
        let _reservation = begin_part(&self.family, index.encoded_bytes() as usize, self.is_reserved)?;
        let place = core.vlog.append_index(&index, core.options.compression(), &mut self.leases)?;
        self.newest = self.newest.max(Some(place.index.vlog));
        note_stored(core, &place);
        Ok((place, mem::take(&mut self.leases)))
    }
}

/// Compresses `chunk` and appends it to the value log.
fn append(family: &Family, lane: Lane, chunk: &[u8], is_reserved: bool) -> Result<Appended> {
    let _reservation = begin_part(family, chunk.len(), is_reserved)?;
    let mut leases = Vec::new();
    let compression = family.core.options.compression();
    let pointer = family.core.vlog.append_leased(lane, chunk, compression, &mut leases)?;
    family.core.count(Metric::ValueLogWritten, pointer.record_bytes());
    Ok((pointer, leases))
}

fn note_stored(core: &Arc<FamilyCore>, place: &ChunkedPlace) {
    core.collection.note_stored(place.len, place.parts.iter().map(|part| part.bytes).sum());
}
