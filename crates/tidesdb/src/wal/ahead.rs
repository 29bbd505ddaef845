//! Files and blocks of the log that are ready before commits need them.
//!
//! ```text
//!   addresses:  | records | blocks            | file without blocks |
//!                         ^ tail              ^ backed = limit of the sequencer
//! ```
//!
//! A file of the log needs two syncs before its first record: of its header, and of its name. A thread makes the next file while the log
//! has blocks in the one before (`Job::PrepareLog`), so no commit waits for these syncs. It holds only `making` meanwhile. The first file
//! of a session is made by the commit that needs it, and so are all where no thread runs.
//!
//! A commit that finds too few blocks in a file allocates a piece of less than [`AHEAD_BYTES_MIN`] itself. A commit that finds no file waits
//! for the thread; that wait has the cause [`StallCause::Log`].
//!
//! How much is ready follows the rate of the writers: twice what they used while the last preparations ran, at most
//! [`AHEAD_SEGMENTS_MAX`] segments. All of it counts as used space of the disk.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidesdb_sync::{Event, Mutex, rank};

use super::layout::{SEGMENT_HEADER_BYTES, SegmentHeader, UNIT};
use super::log::Log;
use super::segment::{Draft, PIECE_BYTES_MIN, Segment};
use super::sequencer::{Commit, Purpose};
use crate::waits::StallCause;
use crate::{Error, Result};

/// Shorter pieces of the log are allocated by the commit that needs them: that takes less time than to wake a thread.
const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Longest piece that a commit allocates while a thread prepares the log.
const PIECE_OF_COMMIT: u64 = 512 << 10;
/// Blocks are ready for at most this many segments beyond the tail.
const AHEAD_SEGMENTS_MAX: u64 = 4;
/// Segments are a multiple of this length.
const BLOCK_BYTES: u64 = 4096;
/// A commit that waits for the thread checks this often whether the database is still open.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of the disk that a byte of log in a new file needs: one for its block, and one for its flush.
pub(super) const NEW_COST: u64 = 2;
/// The same in a file whose blocks are allocated already: only the byte for its flush.
const SPARE_COST: u64 = 1;

/// Requests a preparation. Returns true if a thread will carry it out.
type Ask = Box<dyn Fn() -> bool + Send + Sync>;

/// What prepares the log.
#[derive(Default)]
pub(super) struct Ahead {
    /// Held while a file is made. Taken before `Log::preparing`.
    pub(super) making: Mutex<(), { rank::MAKING }>,
    /// Advanced when there are more blocks or files, and when a preparation has ended.
    ready: Event,
    /// Preparations that ended early: with a failure, or because the disk is full.
    ended_early: AtomicU64,
    /// Bytes of blocks that should be ready beyond the tail.
    wanted: AtomicU64,
    /// The address of the commit that requested a preparation, until it ends; 0 if none did.
    asked_at: AtomicU64,
    /// Serializes the computation of limits.
    limits: Mutex<(), { rank::LEAF }>,
    /// Unset: no thread prepares the log.
    ask: OnceLock<Ask>,
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// What the caller of [`Log::back_to`] may do.
#[derive(Clone, Copy)]
pub(super) enum Makes {
    /// Allocates blocks in files that exist, in pieces of at most so many bytes; holds `preparing`.
    Blocks(u64),
    /// Makes files as well; holds `making` and `preparing`.
    Files,
}

impl Log {
    /// From now on commits request preparations by `ask`, which returns true if a thread will carry them out.
    pub fn prepared_by(&self, ask: impl Fn() -> bool + Send + Sync + 'static) {
        let _set_once = self.ahead.ask.set(Box::new(ask));
    }

    /// Makes sure that a record of `bytes` can be placed, which the limits of the sequencer have refused, or that another thread has changed
    /// what there is. The caller looks again. `asks` lets the thread that prepares the log make a new file.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing happened.
    pub(super) fn extend_for(&self, bytes: u64, purpose: Purpose, asks: bool) -> Result<()> {
        self.waits.of(StallCause::Log).time(&*self.env.clock, || {
            let has_thread = self.ahead.ask.get().is_some();
            if self.has_file_for(bytes) || !has_thread || !asks || !self.wait_for_file(bytes)? {
                self.extend_here(bytes, purpose, has_thread)?;
            }
            Ok(())
        })
    }

    fn extend_here(&self, bytes: u64, purpose: Purpose, has_thread: bool) -> Result<()> {
        let makes_file = !self.has_file_for(bytes);
        let _making = makes_file.then(|| self.ahead.making.lock());
        let _one_at_a_time = self.preparing.lock();
        let makes = match makes_file {
            true => Makes::Files,
            false if has_thread => Makes::Blocks(PIECE_OF_COMMIT),
            false => Makes::Blocks(u64::MAX),
        };
        self.hold_reserve(purpose, self.backed.load(Ordering::SeqCst))?;
        self.back_to(self.sequencer.end_of_next(bytes), purpose, makes)
    }

    /// Returns whether the files exist for a record of `bytes` that is placed next.
    fn has_file_for(&self, bytes: u64) -> bool {
        let (backed, end) = (self.backed.load(Ordering::SeqCst), self.sequencer.end_of_next(bytes));
        let segment = self.config.segment_bytes;
        let table = self.table.lock();
        (backed / segment..end.div_ceil(segment)).all(|id| end <= backed || table.live.contains_key(&id))
    }

    /// Waits until the thread that prepares the log has made a file for a record of `bytes`. Returns false if the caller has to make it:
    /// there is no such thread, or it ended early.
    fn wait_for_file(&self, bytes: u64) -> Result<bool> {
        let (Some(ask), ahead) = (self.ahead.ask.get(), &self.ahead) else { return Ok(false) };
        let ended_early = ahead.ended_early.load(Ordering::SeqCst);
        loop {
            let seen = ahead.ready.current();
            if self.has_file_for(bytes) {
                return Ok(true);
            }
            self.health.check()?;
            if ended_early != ahead.ended_early.load(Ordering::SeqCst) || !ask() {
                return Ok(false);
            }
            ahead.ready.wait_while(seen, Some(LOOK));
        }
    }

    /// Makes the first file of the session with its first blocks. A full disk is not an error: the next append tries again.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn make_first(&self) -> Result<()> {
        let _making = self.ahead.making.lock();
        self.add_piece(Makes::Files).map(drop)
    }

    /// Makes files and allocates blocks until enough are ready. Releases the pages of the segment before the tail's. A full disk is not an
    /// error: the next append tries again.
    ///
    /// # Errors
    /// `Io`; nothing is lost, the next append tries again.
    pub fn prepare_next(&self) -> Result<()> {
        let ahead = &self.ahead;
        self.follow_rate(ahead.asked_at.load(Ordering::SeqCst));
        let prepared = self.prepare();
        if !matches!(prepared, Ok(true)) {
            ahead.ended_early.fetch_add(1, Ordering::SeqCst);
        }
        self.follow_rate(ahead.asked_at.swap(0, Ordering::SeqCst));
        ahead.ready.advance();
        let full = self.segment_of(self.sequencer.tail()).0.checked_sub(1);
        if let Some(full) = full.and_then(|id| self.table.lock().live.get(&id).cloned()) {
            full.release_pages();
        }
        prepared.map(drop)
    }

    /// Returns false if the disk is full.
    fn prepare(&self) -> Result<bool> {
        loop {
            let missing = self.next_without_file();
            let is_done = match missing {
                // Blocks first: they are allocated in no time, and commits need them while a file is made.
                _ if self.wants_blocks() && !missing.is_some_and(|id| self.is_first(id)) => {
                    self.add_piece(Makes::Blocks(u64::MAX))?
                }
                Some(id) => self.make_next(id)?,
                None => return Ok(true),
            };
            self.ahead.ready.advance();
            if !is_done {
                return Ok(false);
            }
        }
    }

    /// Makes the file of segment `id` with its first block, unless a record that needs a file of its own has taken the place. Returns false
    /// if the disk has no room for it.
    fn make_next(&self, id: u64) -> Result<bool> {
        let _making = self.ahead.making.lock();
        if self.next_without_file() != Some(id) {
            return Ok(true);
        }
        let room = self.room_for(SEGMENT_HEADER_BYTES, NEW_COST, Purpose::Store);
        let made = room.and_then(|_| self.make_file(id, SEGMENT_HEADER_BYTES..=SEGMENT_HEADER_BYTES));
        self.unless_full(made.map(drop))
    }

    /// Returns whether commits ask for more blocks, whatever they asked for already.
    fn wants_blocks(&self) -> bool {
        let ask_from = self.ask_from.load(Ordering::Relaxed);
        ask_from > 0 && self.sequencer.tail() * UNIT > ask_from
    }

    /// The first segment without a file, if it is to be made now: the one after the tail's, or as many as the writers use up.
    fn next_without_file(&self) -> Option<u64> {
        let (segment, tail) = (self.config.segment_bytes, self.sequencer.tail() * UNIT);
        let reach = (tail + self.ahead.wanted.load(Ordering::Relaxed).max(segment)) / segment;
        let table = self.table.lock();
        let mut id = tail / segment;
        while let Some((_, last)) = table.live.range(..=id).next_back()
            && last.covers(id)
        {
            id = last.header.id + u64::from(last.header.span);
        }
        (id <= reach).then_some(id)
    }

    /// Returns whether the next block would be the first one of segment `id`.
    fn is_first(&self, id: u64) -> bool {
        self.backed.load(Ordering::SeqCst) == id * self.config.segment_bytes
    }

    /// Allocates the next piece of the log. Returns false if the disk has no room for it: then commits allocate what they need, and no piece
    /// is requested before the next segment.
    fn add_piece(&self, makes: Makes) -> Result<bool> {
        let _one_at_a_time = self.preparing.lock();
        let end = self.backed.load(Ordering::SeqCst) + 1;
        self.unless_full(self.back_to(end, Purpose::Store, makes))
    }

    /// Returns whether a preparation was carried out: false if the disk has no room for it. Then nothing more is requested in advance before
    /// the next segment.
    fn unless_full(&self, prepared: Result<()>) -> Result<bool> {
        if prepared.as_ref().is_err_and(Error::is_full) {
            let next = self.segment_of(self.sequencer.tail()).0 + 1;
            self.tight_to.store(next * self.config.segment_bytes, Ordering::Relaxed);
            self.set_limits();
            return Ok(false);
        }
        prepared.map(|()| true)
    }

    /// From now on twice as much should be ready as commits have used since a preparation was requested at the address `asked_at`.
    fn follow_rate(&self, asked_at: u64) {
        let used = (self.sequencer.tail() * UNIT).saturating_sub(asked_at);
        let before = self.ahead.wanted.load(Ordering::Relaxed);
        let most = AHEAD_SEGMENTS_MAX * self.config.segment_bytes;
        let wanted = (before - before / 8).max(2 * used).min(most);
        if asked_at > 0 && wanted != before {
            self.ahead.wanted.store(wanted, Ordering::Relaxed);
            self.set_limits();
        }
    }

    /// Bytes of the next piece of the log.
    fn piece(&self) -> u64 {
        let (begun, segment) = (self.backed.load(Ordering::SeqCst) - self.start, self.config.segment_bytes);
        begun.clamp(PIECE_BYTES_MIN.min(segment), segment)
    }

    /// Allocates blocks for the log up to the address `end`, or up to where a file is missing that the caller may not make.
    pub(super) fn back_to(&self, end: u64, purpose: Purpose, makes: Makes) -> Result<()> {
        // Whole blocks: an unused rest of a segment also has blocks, and the next segment begins where this one ends.
        let end = end.next_multiple_of(BLOCK_BYTES);
        loop {
            let backed = self.backed.load(Ordering::SeqCst);
            if end <= backed {
                return Ok(());
            }
            let segment = self.table.lock().live.get(&(backed / self.config.segment_bytes)).cloned();
            let piece = match (&segment, makes) {
                (None, Makes::Blocks(_)) => return Ok(()),
                (_, Makes::Blocks(most)) => self.piece().min(most),
                (_, Makes::Files) => self.piece(),
            };
            let most = self.grow_reserve(end, end.max(backed + piece), purpose)?;
            let is_spare = match &segment {
                Some(segment) => segment.has_spare_blocks(),
                None => !self.table.lock().free.is_empty(),
            };
            let cost = if is_spare { SPARE_COST } else { NEW_COST };
            let room = self.room_for(end - backed, cost, purpose)?.min(most - backed);
            match self.back_more(segment, backed, end, room) {
                Ok(()) => self.note_room(cost * (end - backed)),
                Err(e) if e.is_full() && purpose == Purpose::Relief && self.reserve.release() => {}
                Err(e) if e.is_full() => return Err(self.no_space(end - backed)),
                Err(e) => return Err(e),
            }
            self.set_limits();
        }
    }

    /// Allocates blocks at the address `backed`, in `segment` or in a new file: at least up to `end`, and at most `room` bytes.
    fn back_more(&self, segment: Option<Arc<Segment>>, backed: u64, end: u64, room: u64) -> Result<()> {
        let bytes = self.config.segment_bytes;
        let (id, offset) = (backed / bytes, backed % bytes);
        let needed = (end - id * bytes).min(bytes);
        let most = ((offset + room) / BLOCK_BYTES * BLOCK_BYTES).clamp(needed, bytes);
        let segment = match segment {
            Some(segment) => segment.back(needed, most).map(|()| segment)?,
            None => self.make_file(id, needed..=most)?,
        };
        self.backed.store(id * bytes + segment.backed(), Ordering::SeqCst);
        Ok(())
    }

    /// Makes the file of segment `id`, with blocks for as many bytes as the disk allows, within `blocks`. Its header and name are durable.
    /// The caller holds `making`.
    fn make_file(&self, id: u64, blocks: RangeInclusive<u64>) -> Result<Arc<Segment>> {
        let reuse = {
            let mut table = self.table.lock();
            if table.closed {
                return Err(Error::Closed);
            }
            table.free.pop()
        };
        let draft = Draft::make(&self.dir, self.header(id, 1), reuse, blocks)?;
        let segment = draft.finish(&self.dir, self.config.mapped)?;
        self.dir.sync().map_err(|e| Error::io("sync", "database directory", e))?;
        Ok(self.register(segment))
    }

    pub(super) fn header(&self, id: u64, span: u32) -> SegmentHeader {
        SegmentHeader {
            id,
            segment_bytes: self.config.segment_bytes,
            span,
            salt: self.env.entropy.salt(),
            db_uuid: self.config.db_uuid,
            boot_id: self.config.boot.id,
        }
    }

    /// Sets the limits of the sequencer: how far the log has blocks, and which purposes may use them. Sets where the next piece is
    /// requested in advance: when half of the last one is used (of a short one three quarters), or earlier if writers are fast.
    pub(super) fn set_limits(&self) {
        let _one_at_a_time = self.ahead.limits.lock();
        let backed = self.backed.load(Ordering::SeqCst);
        self.sequencer.set_limit(Purpose::Relief, backed);
        let store = if self.reserve.is_held() { backed } else { 0 };
        self.sequencer.set_limit(Purpose::Store, store);
        let (piece, segment) = (self.piece(), self.config.segment_bytes);
        // A short log stays short: its commits allocate blocks themselves if they are too fast.
        let ahead = if piece < segment {
            piece / 4
        } else {
            (piece / 2).max(self.ahead.wanted.load(Ordering::Relaxed))
        };
        let is_short = piece < AHEAD_BYTES_MIN.min(segment);
        let ask_from = if is_short { u64::MAX } else { backed.saturating_sub(ahead).max(1) };
        let ask_from = match self.announces.load(Ordering::Relaxed) {
            true => 0,
            false => ask_from.max(self.tight_to.load(Ordering::Relaxed)),
        };
        self.ask_from.store(ask_from, Ordering::Relaxed);
    }

    /// Returns true if [`Log::takes_first`] or [`Log::wants_piece`] may.
    #[inline]
    pub fn wants_next(&self, commit: &Commit) -> bool {
        commit.seq * UNIT > self.ask_from.load(Ordering::Relaxed)
    }

    /// Returns true once if more should be prepared in the background, and again after [`Log::prepare_next`] has ended.
    pub fn wants_piece(&self, commit: &Commit) -> bool {
        let ask_from = self.ask_from.load(Ordering::Relaxed);
        let wants = ask_from > 0 && commit.seq * UNIT > ask_from;
        let asked_at = &self.ahead.asked_at;
        let asks = |at| asked_at.compare_exchange(0, at, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        wants && asked_at.load(Ordering::Relaxed) == 0 && asks(commit.seq * UNIT)
    }

    /// From now on [`Log::takes_first`] returns true once.
    pub fn announce_first(&self) {
        self.announces.store(true, Ordering::Relaxed);
        self.set_limits();
    }

    /// Returns true at the first call after [`Log::announce_first`].
    pub fn takes_first(&self) -> bool {
        let is_first = self.announces.swap(false, Ordering::Relaxed);
        if is_first {
            self.set_limits();
        }
        is_first
    }
}
