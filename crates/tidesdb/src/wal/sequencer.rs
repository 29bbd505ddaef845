//! The order of commits: reserves addresses and publishes the gap-free prefix.
//!
//! One word holds the tail: `held:1 | seq:47 | ticket:16`. A reservation is one compare-and-swap on it. Each commit
//! then owns a slot of a ring, found by its ticket, and moves it through these states:
//!
//! ```text
//!   (old round) -> WRITTEN          bytes are with the kernel
//!               -> READY            inserted in the memtables, visible once durable   (synced commits)
//!               -> DONE             inserted in the memtables, visible now            (all others)
//! ```
//!
//! A slot holds `end_of_record << 2 | state`. Ends only grow, so a value of an earlier round is recognised by being at
//! or below the published prefix: the value is its own tag, and no slot can be mistaken for another commit's. A full
//! ring makes reservers wait; no slot in use is overwritten.
//!
//! `visible` is the published prefix `end:47 | ticket:16`. Any thread that finds the next slot DONE, or READY and
//! durable, advances it. A commit does not wait for earlier commits in order to return (the log adds such a wait where
//! no identity of the boot is exact). Instead, a commit that returns while `visible` lags raises `acked`, and a *reader* that sees `acked` above `visible` waits. So every later reader
//! sees what has returned.
//!
//! **Sequence numbers are wider than the words.** A word holds the low 47 bits of a sequence number. `anchor` is a full
//! number that lies at most 2^46 below every number in use, so the distance from the anchor restores the high bits, as
//! QUIC does with packet numbers (RFC 9000, A.3). The anchor moves up once in 2^46 units (512 TiB of log), and any
//! anchor that a thread reads, old or new, gives the same answer. See `docs/design/0016-numbers-beyond-a-word.md`.
//!
//! **Limits.** A reservation must end at or below a limit: the end of the log that has real blocks on disk. So a full
//! disk refuses a commit before it has a number. Commits that only delete have a limit of their own, see [`Purpose`].
//!
//! All accesses that decide an order are SeqCst: a committer stores its slot and then reads its neighbour's while the
//! neighbour does the same. With a weaker ordering both could miss the other's store and the prefix would stop
//! advancing.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidesdb_io::Clock;
use tidesdb_sync::modelled::{AtomicU64, Ordering::SeqCst};
use tidesdb_sync::{Backoff, CachePadded};

use super::layout::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, UNIT};
use crate::types::{SEQ_MAX, SeqNo};
use crate::waits::{StallCause, Waits};

const HELD: u64 = 1 << 63;
const TICKET_BITS: u32 = 16;
const TICKET_MASK: u64 = (1 << TICKET_BITS) - 1;
/// Bits of a sequence number in a word.
const LOW_BITS: u32 = 47;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
/// When the tail is this far above the anchor, the anchor moves to half of this below the tail.
const ANCHOR_REACH: u64 = 1 << (LOW_BITS - 1);
/// The last address that a record may reach. Addresses above it are kept for the segments that opens begin.
const ADDRESS_MAX: u64 = (SEQ_MAX - (1 << 32)) * UNIT;
/// Small under loom, so that a model can fill the ring with a handful of commits.
const RING_SLOTS: usize = if cfg!(loom) { 4 } else { 1 << 14 };

/// Values of [`Sequencer::state`], which only rises.
const OPEN: u64 = 0;
const CLOSED: u64 = 1;
const STOPPED: u64 = 2;

const WRITTEN: u64 = 1;
const READY: u64 = 2;
const DONE: u64 = 3;

/// A reserved place in the log and in the order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The commit's sequence number: its address in units of eight bytes.
    pub seq: SeqNo,
    /// Where the next record can begin.
    pub end: SeqNo,
    /// `seq`, or the place of the pad record that fills the rest of the previous segment.
    pub begin: SeqNo,
    ticket: u64,
}

/// The purpose of a record; decides whether it is allowed on a nearly full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Purpose {
    /// It may add data, or is not essential.
    Store,
    /// It only deletes, so it may use the reserve.
    Relief,
}

/// Why a reservation was refused. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The record would end above the limit.
    Limit,
    /// Sequence numbers are used up.
    Exhausted,
    /// [`Sequencer::close`] or [`Sequencer::stop`] was called.
    Stopped,
}

/// The published prefix, and the anchor that sequence numbers in words are relative to.
#[derive(Debug)]
struct Published {
    visible: AtomicU64,
    anchor: AtomicU64,
}

/// Hands out addresses and publishes commits in order. All methods may be called from any thread.
#[derive(Debug)]
pub struct Sequencer {
    tail: CachePadded<AtomicU64>,
    published: CachePadded<Published>,
    acked: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    /// Whether commits are ordered: `OPEN`, `CLOSED` or `STOPPED`.
    state: AtomicU64,
    /// The empty place that ends the order of commits.
    closed_at: AtomicU64,
    /// By [`Purpose`]: no record may end above this address.
    limits: [AtomicU64; 2],
    /// Large commits that are not published yet.
    large: AtomicU64,
    slots: Box<[AtomicU64]>,
    segment_bytes: u64,
    /// Counts what commits wait for a place; unset in models.
    watch: OnceLock<(Arc<dyn Clock>, Arc<Waits>)>,
}

thread_local! {
    /// True if this thread has an unpublished commit, in any database.
    static UNPUBLISHED: Cell<bool> = const { Cell::new(false) };
}

/// While this value lives, the thread has a place in the order of commits that is not published, or is about to get
/// one. A comparator that reads the database during an insert must not wait for the commit that it delays. Nor may it
/// wait for a commit of another database, whose comparator may wait for this one.
#[derive(Debug)]
pub struct Unpublished(());

impl Unpublished {
    /// Marks this thread as within a commit until the value is dropped.
    pub fn begin() -> Self {
        UNPUBLISHED.set(true);
        Self(())
    }

    /// Returns true if this thread is within a commit, of any database.
    pub fn is_here() -> bool {
        UNPUBLISHED.get()
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        UNPUBLISHED.set(false);
    }
}

/// A commit whose insert takes so long that readers would notice. Until this is dropped, because the commit is published or never will
/// be, later writers wait for it, so that no reader has to.
#[derive(Debug)]
pub struct Large<'a>(&'a AtomicU64);

impl Drop for Large<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The tail while it is held: no other commit is ordered until this is dropped.
#[derive(Debug)]
pub struct HeldTail<'a> {
    sequencer: &'a Sequencer,
    /// Lowest sequence number that commits ordered afterwards can get.
    pub boundary: SeqNo,
}

impl Drop for HeldTail<'_> {
    fn drop(&mut self) {
        let before = self.sequencer.tail.fetch_and(!HELD, SeqCst);
        debug_assert!(before & HELD != 0, "only a held tail is released");
    }
}

impl HeldTail<'_> {
    /// Checks that a record of `bytes` bytes could get the next number.
    ///
    /// # Errors
    /// The reason why it could not.
    pub fn check(&self, bytes: u64) -> Result<(), Refusal> {
        let sequencer = self.sequencer;
        if sequencer.state.load(SeqCst) != OPEN {
            return Err(Refusal::Stopped);
        }
        let (commit, _) = sequencer.commit_at(sequencer.tail.load(SeqCst) & !HELD, bytes);
        if commit.seq * UNIT + bytes > ADDRESS_MAX { Err(Refusal::Exhausted) } else { Ok(()) }
    }

    /// Reserves a record of `bytes` as the next one if it ends below the limit for `purpose`.
    ///
    /// # Errors
    /// The reason of the refusal; nothing happened.
    pub fn reserve_below_limit(&self, bytes: u64, purpose: Purpose) -> Result<Commit, Refusal> {
        let limit = self.sequencer.limits[purpose as usize].load(SeqCst);
        let end = self.sequencer.place(self.boundary * UNIT, bytes).0 + bytes;
        if end > limit { Err(Refusal::Limit) } else { self.reserve(bytes) }
    }

    /// Reserves a record of `bytes` as the next one, regardless of the limits.
    ///
    /// # Errors
    /// The reason of the refusal; nothing happened.
    pub fn reserve(&self, bytes: u64) -> Result<Commit, Refusal> {
        let sequencer = self.sequencer;
        let mut backoff = Backoff::new();
        loop {
            self.check(bytes)?;
            let tail = sequencer.tail.load(SeqCst) & !HELD;
            if sequencer.has_ticket(tail) {
                let (commit, next) = sequencer.commit_at(tail, bytes);
                sequencer.tail.store(next | HELD, SeqCst);
                sequencer.keep_anchor_near(commit.end);
                return Ok(commit);
            }
            sequencer.publish();
            backoff.snooze();
        }
    }
}

impl Sequencer {
    /// A log whose next record begins in segment `first_segment`, right after its header. No limits are set yet.
    pub fn new(segment_bytes: u64, first_segment: u64) -> Self {
        debug_assert!(segment_bytes.is_multiple_of(UNIT) && first_segment > 0);
        let start = (first_segment * segment_bytes + SEGMENT_HEADER_BYTES) / UNIT;
        let word = (start & LOW_MASK) << TICKET_BITS;
        let anchor = AtomicU64::new(start.saturating_sub(ANCHOR_REACH / 2));
        Self {
            tail: CachePadded::new(AtomicU64::new(word)),
            published: CachePadded::new(Published { visible: AtomicU64::new(word), anchor }),
            acked: CachePadded::new(AtomicU64::new(start)),
            durable: CachePadded::new(AtomicU64::new(start)),
            state: AtomicU64::new(OPEN),
            closed_at: AtomicU64::new(SeqNo::MAX),
            limits: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            large: AtomicU64::new(0),
            slots: (0..RING_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            segment_bytes,
            watch: OnceLock::new(),
        }
    }

    /// Makes everything below `end` visible, in a log that another process writes and that is durable below `durable`. No
    /// place may be reserved in it.
    pub fn stand_at(&self, end: SeqNo, durable: SeqNo) {
        let word = (end & LOW_MASK) << TICKET_BITS;
        self.published.anchor.store(end.saturating_sub(ANCHOR_REACH / 2), SeqCst);
        self.published.visible.store(word, SeqCst);
        self.tail.store(word, SeqCst);
        self.acked.store(end, SeqCst);
        self.durable.store(durable, SeqCst);
    }

    /// The sequence number whose low bits are in `word`.
    #[inline]
    fn seq_in(&self, word: u64) -> SeqNo {
        let anchor = self.published.anchor.load(SeqCst);
        anchor + ((word >> TICKET_BITS).wrapping_sub(anchor) & LOW_MASK)
    }

    #[inline]
    fn visible_word(&self) -> u64 {
        self.published.visible.load(SeqCst)
    }

    /// From now on no record for `purpose` may end above `address`.
    pub fn set_limit(&self, purpose: Purpose, address: u64) {
        self.limits[purpose as usize].store(address, SeqCst);
    }

    /// Reserves a record of `bytes` (header included, a multiple of eight).
    ///
    /// Waits only while the tail is held by a rotation (about a microsecond) or the ring is full.
    ///
    /// # Errors
    /// The reason of the refusal; nothing happened.
    #[inline]
    pub fn reserve(&self, bytes: u64, purpose: Purpose) -> Result<Commit, Refusal> {
        debug_assert!(bytes.is_multiple_of(UNIT) && bytes >= RECORD_HEADER_BYTES as u64);
        let mut backoff = Backoff::new();
        let mut waits_since = None;
        loop {
            let t = self.tail.load(SeqCst);
            // After the tail: a close moves the tail, so a reservation that passes this check too early fails to swap.
            if self.state.load(SeqCst) != OPEN {
                return Err(Refusal::Stopped);
            }
            if t & HELD != 0 || !self.has_ticket(t) {
                waits_since = waits_since.or_else(|| self.now());
                self.publish();
                backoff.snooze();
                continue;
            }
            let (commit, next) = self.commit_at(t, bytes);
            let end = commit.seq * UNIT + bytes;
            if end > self.limits[purpose as usize].load(SeqCst) {
                return Err(Refusal::Limit);
            }
            if end > ADDRESS_MAX {
                return Err(Refusal::Exhausted);
            }
            if self.tail.compare_exchange_weak(t, next, SeqCst, SeqCst).is_ok() {
                self.keep_anchor_near(commit.end);
                if let Some(since) = waits_since {
                    self.note_wait(since);
                }
                return Ok(commit);
            }
        }
    }

    /// From now on waits for a place are counted in `waits`.
    pub(super) fn count_waits(&self, clock: &Arc<dyn Clock>, waits: &Arc<Waits>) {
        let _set_once = self.watch.set((Arc::clone(clock), Arc::clone(waits)));
    }

    #[cold]
    fn now(&self) -> Option<Duration> {
        self.watch.get().map(|(clock, _)| clock.mono())
    }

    #[cold]
    fn note_wait(&self, since: Duration) {
        if let Some((clock, waits)) = self.watch.get() {
            waits.of(StallCause::Lock).note(clock.mono().saturating_sub(since));
        }
    }

    /// Returns true if the ring has a slot for the commit after the tail `t`.
    #[inline]
    fn has_ticket(&self, t: u64) -> bool {
        let outstanding = (t + 1).wrapping_sub(self.visible_word()) & TICKET_MASK;
        outstanding < RING_SLOTS as u64
    }

    /// The commit of `bytes` at the tail `t`, which is not held, and the tail after it.
    #[inline]
    fn commit_at(&self, t: u64, bytes: u64) -> (Commit, u64) {
        let (ticket, begin) = ((t + 1) & TICKET_MASK, self.seq_in(t));
        let (start, end) = self.place(begin * UNIT, bytes);
        let next = ((end / UNIT) & LOW_MASK) << TICKET_BITS | ticket;
        (Commit { seq: start / UNIT, end: end / UNIT, begin, ticket }, next)
    }

    /// Moves the anchor if the tail is too far above it. Called for every reservation.
    #[inline]
    fn keep_anchor_near(&self, tail: SeqNo) {
        if tail - self.published.anchor.load(SeqCst) > ANCHOR_REACH {
            self.move_anchor(tail);
        }
    }

    #[cold]
    fn move_anchor(&self, tail: SeqNo) {
        self.published.anchor.fetch_max(tail - ANCHOR_REACH / 2, SeqCst);
    }

    /// Where a record of `bytes` goes when the tail is at `pos`, and where the tail is afterwards.
    #[inline]
    fn place(&self, pos: u64, bytes: u64) -> (u64, u64) {
        let segment = self.segment_bytes;
        let left = segment - pos % segment;
        if bytes > segment - SEGMENT_HEADER_BYTES {
            let start = pos + left + SEGMENT_HEADER_BYTES;
            let end = pos + left + (SEGMENT_HEADER_BYTES + bytes).next_multiple_of(segment);
            return (start, end + SEGMENT_HEADER_BYTES);
        }
        let (start, room) = match left.checked_sub(bytes) {
            Some(room) => (pos, room),
            None => (pos + left + SEGMENT_HEADER_BYTES, segment - SEGMENT_HEADER_BYTES - bytes),
        };
        let end = start + bytes;
        // If the rest of the segment is too short for a record's header it stays unused, so that the tail always is a
        // usable place.
        let tail = if room < RECORD_HEADER_BYTES as u64 { end + room + SEGMENT_HEADER_BYTES } else { end };
        (start, tail)
    }

    /// The address at which a record of `bytes` would end if it were reserved now.
    pub fn end_of_next(&self, bytes: u64) -> u64 {
        self.place(self.tail() * UNIT, bytes).0 + bytes
    }

    /// Marks the bytes of `c` as handed to the kernel.
    pub fn written(&self, c: &Commit) {
        self.set(c, WRITTEN);
    }

    /// Marks `c` as inserted; it becomes visible once the log is durable up to its end.
    pub fn ready(&self, c: &Commit) {
        self.set(c, READY);
        self.publish();
    }

    /// Marks `c` as inserted and allows it to become visible. Every reader that starts after the return sees it.
    pub fn done(&self, c: &Commit) {
        self.set(c, DONE);
        self.publish();
        self.acknowledge(c);
    }

    /// Makes sure that readers wait for `c` if it is not visible yet. After a large commit the caller waits instead,
    /// because that takes so long that readers would notice.
    pub fn acknowledge(&self, c: &Commit) {
        if self.seq_in(self.visible_word()) < c.end {
            self.wait_for_large(c);
            self.acked.fetch_max(c.end, SeqCst);
        }
    }

    /// Counts a large commit. Must be called before the commit is reserved.
    pub fn begin_large(&self) -> Large<'_> {
        self.large.fetch_add(1, SeqCst);
        Large(&self.large)
    }

    fn wait_for_large(&self, c: &Commit) {
        self.wait_until(|| self.large.load(SeqCst) == 0 || self.seq_in(self.visible_word()) >= c.end);
    }

    /// Publishes commits until `done` returns true. Returns false if the sequencer was stopped before.
    fn wait_until(&self, done: impl Fn() -> bool) -> bool {
        let mut backoff = Backoff::new();
        while !done() {
            if self.is_stopped() {
                return false;
            }
            self.publish();
            backoff.snooze();
        }
        true
    }

    fn set(&self, c: &Commit, state: u64) {
        // Law: sequence numbers of a slot only rise, so no commit is published twice or takes another's place. Cost: a load and a
        // comparison for each state of a commit. Models leave it out: the load would multiply their interleavings.
        assert!(
            cfg!(loom) || self.slot(c.ticket).load(SeqCst) < c.end << 2 | state,
            "states and rounds only go up"
        );
        self.slot(c.ticket).store(c.end << 2 | state, SeqCst);
    }

    fn slot(&self, ticket: u64) -> &AtomicU64 {
        &self.slots[ticket as usize & (RING_SLOTS - 1)]
    }

    /// Advances `visible` over every commit that may be seen.
    pub fn publish(&self) {
        loop {
            let v = self.visible_word();
            let ticket = (v + 1) & TICKET_MASK;
            let slot = self.slot(ticket).load(SeqCst);
            let (end, state) = (slot >> 2, slot & 3);
            let may = state == DONE || (state == READY && self.durable.load(SeqCst) >= end);
            if end <= self.seq_in(v) || !may {
                return;
            }
            debug_assert!(end <= self.tail(), "what is published was reserved");
            let next = (end & LOW_MASK) << TICKET_BITS | ticket;
            let _ = self.published.visible.compare_exchange(v, next, SeqCst, SeqCst);
        }
    }

    /// Newest sequence number that a reader may see now. Every commit that returned before the call is at or below it.
    /// Exception: a reader inside a commit of any database (a comparator that reads) gets the published prefix and does
    /// not wait.
    #[inline]
    pub fn snapshot(&self) -> SeqNo {
        let visible = self.seq_in(self.visible_word());
        let acked = self.acked.load(SeqCst);
        if acked <= visible { visible - 1 } else { self.wait_acked(acked) }
    }

    #[cold]
    fn wait_acked(&self, acked: SeqNo) -> SeqNo {
        self.wait_until(|| self.visible_end() >= acked || Unpublished::is_here());
        self.visible_end() - 1
    }

    /// First sequence number not published yet: every commit below it is visible.
    pub fn visible_end(&self) -> SeqNo {
        self.publish();
        self.seq_in(self.visible_word())
    }

    /// The earliest place where the next record can begin.
    pub fn tail(&self) -> SeqNo {
        self.seq_in(self.tail.load(SeqCst))
    }

    /// End of the gap-free prefix of commits whose bytes are with the kernel.
    pub fn written_end(&self) -> SeqNo {
        self.prefix_end(WRITTEN)
    }

    /// Waits until every commit ordered before `c` is in the memtables, visible or not, or was refused. Returns false
    /// if the sequencer was stopped.
    pub fn wait_for_earlier(&self, c: &Commit) -> bool {
        self.wait_until(|| self.prefix_end(READY) >= c.begin)
    }

    /// Waits until the bytes of `c` and of every commit ordered before it are with the kernel. Returns false if the sequencer was stopped.
    pub fn wait_written(&self, c: &Commit) -> bool {
        self.wait_until(|| self.written_end() >= c.end)
    }

    /// End of the gap-free prefix of commits that have reached `state` or a later one.
    fn prefix_end(&self, state: u64) -> SeqNo {
        let v = self.visible_word();
        let (mut end, mut ticket) = (self.seq_in(v), v & TICKET_MASK);
        loop {
            let next = (ticket + 1) & TICKET_MASK;
            let slot = self.slot(next).load(SeqCst);
            // A commit of the next round gets the slot only after `visible` has passed it. Then the slot says nothing
            // about this place.
            let v = self.visible_word();
            let visible = self.seq_in(v);
            if visible > end {
                (end, ticket) = (visible, v & TICKET_MASK);
                continue;
            }
            if slot >> 2 <= end || slot & 3 < state {
                return end;
            }
            (end, ticket) = (slot >> 2, next);
        }
    }

    /// Records that the log is durable up to `end`.
    #[inline]
    pub fn set_durable(&self, end: SeqNo) {
        // Law: nothing is called durable that has no place in the log. Cost: a load and a comparison for each sync.
        assert!(cfg!(loom) || end <= self.tail(), "what is durable was reserved");
        self.durable.fetch_max(end, SeqCst);
        self.publish();
    }

    /// How far the log is durable.
    pub fn durable(&self) -> SeqNo {
        self.durable.load(SeqCst)
    }

    /// How far the log is durable and has a record at every place: not beyond the empty place that ends the order of commits. An open
    /// would miss the record of a place below a mark in the manifest.
    pub fn durable_records(&self) -> SeqNo {
        let durable = self.durable(); // first: it passes that place only afterwards
        durable.min(self.closed_at.load(SeqCst))
    }

    /// Holds the tail: no commit is ordered until the value is dropped. Waits for another holder.
    pub fn hold(&self) -> HeldTail<'_> {
        let mut backoff = Backoff::new();
        loop {
            let before = self.tail.fetch_or(HELD, SeqCst);
            if before & HELD == 0 {
                return HeldTail { sequencer: self, boundary: self.seq_in(before) };
            }
            backoff.snooze();
        }
    }

    /// Called after poisoning: no more reservations succeed, and readers stop waiting for commits that will never be
    /// published.
    pub fn stop(&self) {
        self.state.store(STOPPED, SeqCst);
    }

    fn is_stopped(&self) -> bool {
        self.state.load(SeqCst) == STOPPED
    }

    /// Ends the order of commits: every later reservation is refused, every earlier commit is published before the
    /// return. The last place stays empty: a reservation that looked at the tail before can no longer take it.
    ///
    /// # Errors
    /// `Stopped`, if the sequencer was stopped, before or meanwhile.
    pub fn close(&self) -> Result<(), Refusal> {
        let held = self.hold();
        let last = match held.reserve(RECORD_HEADER_BYTES as u64) {
            Err(Refusal::Exhausted) => None, // then no reservation fits
            other => Some(other?),
        };
        let closed = self.state.compare_exchange(OPEN, CLOSED, SeqCst, SeqCst);
        drop(held);
        closed.map_err(|_| Refusal::Stopped)?;
        if let Some(last) = last {
            self.closed_at.store(last.seq, SeqCst);
            self.done(&last);
        }
        let end = self.tail();
        if self.wait_until(|| self.visible_end() >= end) { Ok(()) } else { Err(Refusal::Stopped) }
    }
}
