//! Disk space of the log: how blocks are allocated, and which commits may use the last ones.
//!
//! ```text
//!   addresses:  | records | free place | no blocks yet ...
//!                                      ^ backed = limit of the sequencer
//! ```
//!
//! A record gets a place only where the log has real blocks, so a full disk refuses a commit before it has a number:
//! nothing happened. Blocks are allocated in pieces, each as long as the log of this session is already: the first one has
//! 64 KiB, and from the second segment on a piece is a whole segment. Long pieces are allocated in advance (`ahead.rs`). On a nearly
//! full disk pieces are smaller.
//!
//! A commit that stores data must leave enough space to flush everything that is only in the log, plus `free_min`
//! bytes. So acknowledged data can always be flushed, which frees log space. Commits fill the blocks that the log has without a look at
//! the disk, so the space for their flush is set aside when the blocks are allocated. A commit that only deletes may also use
//! `free_min` and the reserve except its last piece (`reserve.rs`), as long as the next open could flush the log.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::Dir;
use tidesdb_sync::Backoff;

use super::ahead::{Makes, NEW_COST};
use super::layout::{SEGMENT_HEADER_BYTES, UNIT};
use super::log::Log;
use super::reserve;
use super::segment::Draft;
use super::sequencer::{Commit, Purpose};
use crate::types::{SeqNo, WalId};
use crate::{Error, Result, files};

/// Bytes of values written to value logs between two checks of the free space.
const VALUES_UNCHECKED_MAX: u64 = 64 << 10;

/// What a flush writes in addition to the entries: indexes, filters, whole pages, the manifest.
pub(super) const FLUSH_OVERHEAD_BYTES: u64 = 512 << 10;

/// A commit that was refused for its size alone is expected to be tried again for this long.
const REFUSAL_COUNTS: Duration = Duration::from_secs(60);

/// A commit that was refused for lack of space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// Bytes that a retry needs free, besides those that commits leave free; the disk may have lacked less.
    bytes: u64,
    at: Duration,
}

/// Removes files that earlier sessions left for reuse: opening at all may need their space.
pub fn release_spare_files(dir: &Arc<dyn Dir>) {
    reserve::release(&**dir);
    remove_spare_segments(&**dir);
}

/// Removes segment files that an earlier session kept for reuse.
pub fn remove_spare_segments(dir: &dyn Dir) {
    let names = dir.list().unwrap_or_default();
    names.iter().filter(|name| name.ends_with(".wal.free")).for_each(|name| files::remove(dir, name));
}

/// A disk space reservation: bytes that running work is about to write; other work leaves them free.
#[derive(Debug)]
pub struct SpaceReservation<L: Deref<Target = Log>> {
    log: L,
    /// Bytes still to be written, and one more: a close waits until no byte is reserved.
    bytes: AtomicU64,
}

impl<L: Deref<Target = Log>> SpaceReservation<L> {
    fn new(log: L, bytes: u64) -> Self {
        let bytes = bytes + 1;
        log.reserved_bytes.fetch_add(bytes, Ordering::SeqCst);
        Self { log, bytes: AtomicU64::new(bytes) }
    }

    /// Records that `bytes` of a merge or of a long value are being written: from now on they are used bytes of the disk. All
    /// parts share one reservation. Fails if the disk then has less space than commits and flushes leave free, because something
    /// else took it. If `bytes` exceed the reservation, also fails if other reservations need the space.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn written(&self, bytes: u64) -> Result<()> {
        let take = |left: u64| Some(left - (left - 1).min(bytes));
        let left = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(1);
        let covered = (left - 1).min(bytes);
        self.log.reserved_bytes.fetch_sub(covered, Ordering::SeqCst);
        if covered < bytes {
            return self.log.check_space_for_merge(bytes);
        }
        let kept = if self.log.reserve.is_held() { self.log.kept_free() } else { 0 };
        self.log.check_space(kept.saturating_add(bytes))
    }
}

impl<L: Deref<Target = Log>> Drop for SpaceReservation<L> {
    fn drop(&mut self) {
        self.log.reserved_bytes.fetch_sub(*self.bytes.get_mut(), Ordering::SeqCst);
    }
}

impl Log {
    /// Returns true if a record of `bytes` needs segments of its own.
    pub(super) fn is_oversized(&self, bytes: u64) -> bool {
        bytes > self.config.segment_bytes - SEGMENT_HEADER_BYTES
    }

    /// Makes sure that a record of `bytes` can be placed, if it is the next one.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing happened.
    pub fn make_room(&self, bytes: u64, purpose: Purpose) -> Result<()> {
        let backed = self.backed.load(Ordering::SeqCst);
        if self.is_oversized(bytes) {
            return self.room_for(bytes + self.config.segment_bytes, NEW_COST, purpose).map(drop);
        }
        if self.sequencer.end_of_next(bytes) <= backed
            && (purpose == Purpose::Relief || self.reserve.is_held())
        {
            return Ok(());
        }
        self.extend_for(bytes, purpose, true)
    }

    /// Reserves a place for a record that needs segments of its own. Their file is complete before the tail is held;
    /// only its name is given while the tail is held. Then `within` is called with the commit.
    pub(super) fn reserve_oversized(
        &self,
        bytes: u64,
        purpose: Purpose,
        mut within: impl FnMut(&Commit),
    ) -> Result<Commit> {
        let segment = self.config.segment_bytes;
        let span = u32::try_from((bytes + SEGMENT_HEADER_BYTES).div_ceil(segment))
            .map_err(|_| Error::invalid("a commit is too large for the log"))?;
        let file_bytes = segment * u64::from(span);
        let _making = self.ahead.making.lock();
        let _one_at_a_time = self.preparing.lock();
        if self.table.lock().closed {
            return Err(Error::Closed);
        }
        self.hold_reserve(purpose, self.backed.load(Ordering::SeqCst) + file_bytes)?;
        self.room_for(file_bytes, NEW_COST, purpose)?;
        let next_id = |tail: SeqNo| self.segment_of(tail).0 + 1;
        let full = |e: Error| if e.is_full() { self.no_space(file_bytes) } else { e };
        loop {
            // The pad goes to the segment of the tail, which must have all its blocks.
            let id = next_id(self.sequencer.tail());
            self.back_to(id * segment, purpose, Makes::Files)?;
            let made = Draft::make(&self.dir, self.header(id, span), None, file_bytes..=file_bytes);
            let made = made.map_err(full)?;
            let held = self.sequencer.hold();
            if next_id(held.boundary) != id {
                // Start again: the segment `id` may need a file of the same temporary name. The loop ends, because the
                // tail cannot move beyond the allocated blocks.
                drop(held);
                made.discard(&self.dir);
                continue;
            }
            // Checked before the file replaces the segment that was prepared for the next records.
            held.check(bytes).map_err(|refusal| {
                made.discard(&self.dir);
                self.refused(refusal)
            })?;
            let aside = self.put_aside(id).inspect_err(|_| made.discard(&self.dir))?;
            let finished =
                made.finish(&self.dir, false).map_err(|e| self.put_back(id, aside.as_deref(), e))?;
            let commit = held.reserve(bytes).map_err(|refusal| self.refused(refusal))?;
            self.register(finished);
            within(&commit);
            drop(held);
            self.backed.fetch_max(id * segment + file_bytes, Ordering::SeqCst);
            self.set_limits();
            self.remove_covered(id, span);
            if let Some(aside) = aside {
                files::remove(&*self.dir, &aside);
            }
            return Ok(commit);
        }
    }

    /// Gives the segment `id`, if it was prepared, another name: a record takes its place, and a file system may refuse to replace a file
    /// that is open. Returns that name. No segment gets it, because the record covers its number.
    fn put_aside(&self, id: u64) -> Result<Option<String>> {
        if !self.table.lock().live.contains_key(&id) {
            return Ok(None);
        }
        let (name, aside) = (files::wal(WalId(id)), files::free_wal(WalId(id + 1)));
        self.dir.rename(&name, &aside).map_err(|e| Error::io("rename", &name, e))?;
        Ok(Some(aside))
    }

    /// Gives a segment that was put aside its name back, because nothing took its place. If that fails, the log ends.
    fn put_back(&self, id: u64, aside: Option<&str>, cause: Error) -> Error {
        match aside.map_or(Ok(()), |aside| self.dir.rename(aside, &files::wal(WalId(id)))) {
            Ok(()) => cause,
            Err(_) => self.poison(cause),
        }
    }

    /// Removes prepared segments whose addresses an oversized record has covered.
    fn remove_covered(&self, id: u64, span: u32) {
        let covered: Vec<u64> =
            self.table.lock().live.range(id + 1..id + u64::from(span)).map(|(id, _)| *id).collect();
        for id in covered {
            self.forget(id);
            files::remove(&*self.dir, &files::wal(WalId(id)));
        }
    }

    /// Returns for how many more bytes of the log blocks may be allocated now, if each takes `cost` bytes of the disk; at least
    /// `wanted`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(super) fn room_for(&self, wanted: u64, cost: u64, purpose: Purpose) -> Result<u64> {
        if purpose == Purpose::Relief {
            return self.check_flushable(wanted).map(|()| wanted);
        }
        let kept = self.kept_free_and_reserved();
        match self.free_bytes()?.saturating_sub(kept) / cost {
            room if room >= wanted => Ok(room),
            _ => Err(self.no_space(kept.saturating_add(cost * wanted))),
        }
    }

    /// Fails if the next open could not write what is only in the log, with `wanted` more bytes, to tables. A table takes no more bytes
    /// than its part of the log.
    fn check_flushable(&self, wanted: u64) -> Result<()> {
        let needed = self.bytes_since(self.needed_from.load(Ordering::SeqCst)).saturating_add(2 * wanted);
        let free = self.free_bytes()?.saturating_add(self.reserve.spare());
        if free < needed { Err(self.no_space(needed)) } else { Ok(()) }
    }

    fn free_bytes(&self) -> Result<u64> {
        let space = self.dir.space().map_err(|e| Error::io("read free space", "database directory", e))?;
        Ok(space.free)
    }

    /// Bytes of the disk that all work leaves free: the most that a flush needs of what is only in the log, once commits have filled the
    /// blocks that the log has, and the configured minimum.
    fn kept_free(&self) -> u64 {
        let end = self.backed.load(Ordering::SeqCst).max(self.sequencer.tail() * UNIT);
        let unflushed = end.saturating_sub(self.needed_from.load(Ordering::SeqCst) * UNIT);
        (unflushed + FLUSH_OVERHEAD_BYTES).saturating_add(self.config.free_min)
    }

    /// [`Log::kept_free`] plus the disk space reservations.
    fn kept_free_and_reserved(&self) -> u64 {
        self.kept_free().saturating_add(self.reserved_bytes.load(Ordering::SeqCst))
    }

    /// Records that everything committed before `seq` is in tables.
    pub fn set_needed_from(&self, seq: SeqNo) {
        self.needed_from.fetch_max(seq, Ordering::SeqCst);
    }

    /// Bytes that a log with blocks up to the address `end` and the data of the database want reserved.
    fn reserve_wanted(&self, end: u64) -> u64 {
        let log = end.saturating_sub(self.start);
        self.reserve.wanted(self.data.load(Ordering::Relaxed).saturating_add(log))
    }

    /// Occupies the reserve before data is stored: as much as a log with blocks up to the address `end` wants. The caller holds
    /// `preparing`.
    pub(super) fn hold_reserve(&self, purpose: Purpose, end: u64) -> Result<()> {
        let (wanted, held) = (self.reserve_wanted(end), self.reserve.held());
        if purpose == Purpose::Relief || wanted <= held {
            return Ok(());
        }
        // Merges that run keep what was reserved for them; nothing is stored before the first reserve.
        let kept = if held > 0 { self.kept_free_and_reserved() } else { self.kept_free() };
        let more = wanted - held;
        self.check_space(kept.saturating_add(more))?;
        self.reserve.hold(wanted).map_err(|e| if e.is_full() { self.no_space(more) } else { e })?;
        self.set_limits();
        Ok(())
    }

    /// Extends the reserve for the next piece of the log, which reaches at least to the address `end` and at most to `most`. Returns how far
    /// it may reach: if the disk lacks room for the reserve of a whole piece, to `end`. The caller holds `preparing`.
    pub(super) fn grow_reserve(&self, end: u64, most: u64, purpose: Purpose) -> Result<u64> {
        if !self.reserve.is_held() {
            return Ok(most); // nothing is stored before it is
        }
        match self.hold_reserve(purpose, most) {
            Err(e) if e.is_full() => self.hold_reserve(purpose, end).map(|()| end),
            held => held.map(|()| most),
        }
    }

    /// Records that the database holds `bytes` more bytes of tables and values: the reserve grows with them.
    pub fn note_data(&self, bytes: u64) {
        self.data.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes over the reserve of an earlier session, if there is one.
    ///
    /// # Errors
    /// `Io`.
    pub fn take_over_reserve(&self) -> Result<()> {
        let _one_at_a_time = self.preparing.lock();
        self.reserve.take_over()?;
        self.set_limits();
        Ok(())
    }

    /// Returns true if the reserve has space for a manifest, beside the last piece for that of the next open.
    pub fn is_ready_for_full_disk(&self) -> bool {
        self.reserve.spare() >= FLUSH_OVERHEAD_BYTES / 2
    }

    /// Reserves disk space for `bytes` of values. Checks that they leave enough to flush what is only in the log. The
    /// values may be written while the reservation lives.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn reserve_space_for_values(&self, bytes: u64) -> Result<SpaceReservation<&Self>> {
        let reservation = SpaceReservation::new(self, bytes);
        let unchecked = self.values_unchecked.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unchecked >= VALUES_UNCHECKED_MAX {
            self.check_space(self.kept_free_and_reserved())?;
            self.note_data(self.values_unchecked.swap(0, Ordering::Relaxed));
            self.note_room(bytes);
        }
        Ok(reservation)
    }

    /// Like [`Log::reserve_space_for_values`], for the output of a merge. While the reserve file is in use only reserved bytes
    /// count, so that work that frees space continues.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn reserve_space_for_merge<L: Deref<Target = Self>>(
        log: L,
        bytes: u64,
    ) -> Result<SpaceReservation<L>> {
        let reservation = SpaceReservation::new(log, bytes);
        reservation.log.check_space_for_merge(0)?;
        Ok(reservation)
    }

    /// Fails if the disk lacks space for all reservations and `bytes` more.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn check_space_for_merge(&self, bytes: u64) -> Result<()> {
        self.check_space(self.needed_for_merges().saturating_add(bytes))
    }

    /// Bytes that merges leave free, with the reservations.
    fn needed_for_merges(&self) -> u64 {
        match self.reserve.is_held() {
            true => self.kept_free_and_reserved(),
            false => self.reserved_bytes.load(Ordering::SeqCst),
        }
    }

    /// Bytes that [`Log::reserve_space_for_merge`] would grant now. If the disk does not say, there is no limit.
    pub fn room_for_merge(&self) -> u64 {
        self.free_bytes().map_or(u64::MAX, |free| free.saturating_sub(self.needed_for_merges()))
    }

    /// Waits until every reservation is released.
    pub fn wait_for_space_reservations(&self) {
        let mut backoff = Backoff::new();
        while self.reserved_bytes.load(Ordering::SeqCst) > 0 {
            backoff.snooze();
        }
    }

    /// Occupies the reserve again, or extends it, if the disk has room for that. Never fails: the next commit that stores data, or
    /// needs blocks of the log, tries again.
    pub fn restore_reserve(&self) {
        let end = || self.backed.load(Ordering::SeqCst);
        if self.reserve_wanted(end()) > self.reserve.held() {
            let _one_at_a_time = self.preparing.lock();
            if self.hold_reserve(Purpose::Store, end()).is_err() && !self.reserve.is_held() {
                self.reserve.hold_last();
            }
        }
    }

    /// Called before the database closes on a full disk: keeps the remaining space for the next open.
    pub fn leave_reserve(&self) {
        let _one_at_a_time = self.preparing.lock();
        self.reserve.hold_what_fits(self.reserve_wanted(self.start));
    }

    /// Gives the space of the reserve to a flush, a drop or a merge that found the disk full. Returns true if there was
    /// space to give.
    pub fn use_reserve(&self) -> bool {
        let _one_at_a_time = self.preparing.lock();
        let released = self.reserve.release();
        self.set_limits();
        released
    }

    /// Records that a commit was refused with `refusal`, because the disk lacks `bytes` or more.
    pub fn note_refusal(&self, refusal: &Error, bytes: u64) {
        let needed = if let Error::NoSpace { needed, .. } = refusal { *needed } else { 0 };
        let bytes = needed.saturating_sub(self.kept_free_and_reserved()).max(bytes);
        *self.refused.lock() = Some(Refused { bytes, at: self.env.clock.mono() });
    }

    /// Records that a commit found `bytes` bytes of the disk: a refusal for lack of at most as many bytes is over.
    pub(super) fn note_room(&self, bytes: u64) {
        self.refused.lock().take_if(|refused| refused.bytes <= bytes);
    }

    /// Returns true after a commit was refused for lack of space, until there is space for it.
    pub fn lacks_space(&self) -> bool {
        self.refused.lock().is_some()
    }

    /// Returns what the disk lacks if a commit was refused for it and the same one would be refused again. Looks at the disk only
    /// after a refusal.
    pub fn shortage(&self) -> Option<Error> {
        let refused = (*self.refused.lock())?;
        let is_recent = self.env.clock.mono().saturating_sub(refused.at) < REFUSAL_COUNTS;
        let wanted = if is_recent { refused.bytes } else { 0 };
        let backed = self.backed.load(Ordering::SeqCst);
        let reserve = if self.reserve.is_held() { 0 } else { self.reserve_wanted(backed) };
        let needed = self.kept_free_and_reserved().saturating_add(reserve).saturating_add(wanted);
        let short = self.check_space(needed).err();
        if short.is_none() {
            self.refused.lock().take_if(|last| last.at == refused.at);
        }
        short
    }

    /// Removes the old segment files that are kept for reuse.
    pub fn release_spares(&self) {
        let spares = std::mem::take(&mut self.table.lock().free);
        spares.iter().for_each(|name| files::remove(&*self.dir, name));
    }

    /// Fails if fewer than `needed` bytes of the disk are free.
    fn check_space(&self, needed: u64) -> Result<()> {
        if self.free_bytes()? < needed { Err(self.no_space(needed)) } else { Ok(()) }
    }

    /// The error for a disk that lacks `needed` bytes.
    pub fn no_space(&self, needed: u64) -> Error {
        let free = self.dir.space().map_or(0, |space| space.free);
        Error::NoSpace { dir: self.dir.path().display().to_string().into(), free, needed }
    }
}
