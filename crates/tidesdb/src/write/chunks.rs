//! Values in chunks, on their way to the value log.
//!
//! A long put has threads that help it. Chunks of one value may be appended in any order; the chunk index lists them in theirs.

use std::mem;

use super::family::Family;
use crate::family::Metric;
use crate::stats::counts::{self, Counter};
use crate::types::VlogId;
use crate::vlog::{CHUNK_BYTES, ChunkIndex, ChunkedPlace, Lane, Lease, VlogPointer};
use crate::wal::{Log, SpaceReservation, Unpublished};
use crate::{Error, Result};

/// Values of at least this length are stored by the put, in chunks.
const LONG_BYTES_MIN: usize = 8 << 20;

/// Reserves disk space for `bytes` of values. A close waits until the reservation is dropped: once it has returned, another
/// process may have the directory open.
///
/// # Errors
/// `NoSpace`, `Io`, `ReadOnly`, `Closed`, `Poisoned`.
pub fn begin_writing(family: &Family, bytes: usize) -> Result<SpaceReservation<&Log>> {
    let ctx = &family.ctx;
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
    let (ctx, core) = (&family.ctx, &family.core);
    core.check_usable()?;
    let stored = append_value(family, value).map_err(|e| ctx.refused(value.len() as u64, e))?;
    ctx.note_dirty_values([core]);
    Ok(stored)
}

/// Appends `value` in chunks. Reserves space for the whole value first: a put that fails half way leaves garbage, which would take
/// the space from other writers until it is collected. The reservation also covers its chunks while another put, which does not fit
/// beside it, is being refused.
fn append_value(family: &Family, value: &[u8]) -> Result<(ChunkedPlace, Vec<Lease>)> {
    let reservation = begin_writing(family, value.len())?;
    let _expected = family.core.vlog.expect(value.len() as u64);
    let appended = family.core.vlog.in_parallel(value.chunks(CHUNK_BYTES), |lane, chunk| {
        reservation.written(chunk.len() as u64)?;
        family.ctx.check_writable()?;
        append(family, lane, chunk)
    })?;
    let mut chunks = Chunks::default();
    appended.into_iter().for_each(|chunk| chunks.push(chunk));
    chunks.append_index(family)
}

/// The chunks of one value that were appended. Dropping them leaves garbage.
#[derive(Debug)]
pub struct Chunks {
    index: ChunkIndex,
    /// One for each file.
    leases: Vec<Lease>,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { index: ChunkIndex::new(CHUNK_BYTES as u32), leases: Vec::new() }
    }
}

impl Chunks {
    /// Returns the number of chunks added.
    pub fn count(&self) -> usize {
        self.index.chunks().len()
    }

    /// Appends the next chunk, of [`CHUNK_BYTES`] unless it is the last. Returns its file, which is no older than those of the
    /// chunks before.
    ///
    /// # Errors
    /// As [`begin_writing`]; `Io`.
    pub fn add(&mut self, family: &Family, chunk: &[u8]) -> Result<VlogId> {
        let _reservation = begin_writing(family, chunk.len())?;
        let appended = append(family, Lane::Main, chunk)?;
        let file = appended.0.vlog;
        self.push(appended);
        Ok(file)
    }

    fn push(&mut self, (pointer, lease): (VlogPointer, Lease)) {
        self.index.push(pointer);
        if !self.leases.iter().rev().any(|kept| kept.is_same(&lease)) {
            self.leases.push(lease);
        }
    }

    /// Appends the index of the chunks. Returns where the value lies, and leases on its files.
    ///
    /// # Errors
    /// As [`Chunks::add`].
    pub fn finish(&mut self, family: &Family) -> Result<(ChunkedPlace, Vec<Lease>)> {
        let _reservation = begin_writing(family, self.index.encoded_bytes() as usize)?;
        self.append_index(family)
    }

    fn append_index(&mut self, family: &Family) -> Result<(ChunkedPlace, Vec<Lease>)> {
        let core = &family.core;
        let place = core.vlog.append_index(&self.index, core.options.compression(), &mut self.leases)?;
        core.collection.note_stored(place.len, place.parts.iter().map(|part| part.bytes).sum());
        Ok((place, mem::take(&mut self.leases)))
    }
}

/// Compresses `chunk` and appends it to the value log.
fn append(family: &Family, lane: Lane, chunk: &[u8]) -> Result<(VlogPointer, Lease)> {
    let core = &family.core;
    let appended = core.vlog.append_leased(lane, chunk, core.options.compression())?;
    core.count(Metric::ValueLogWritten, appended.0.record_bytes());
    counts::add(Counter::ValuesWritten, appended.0.record_bytes());
    Ok(appended)
}
