//! The order of commits: reserve an address, publish the gap-free prefix.
//!
//! One word holds the tail: `held:1 | seq:47 | ticket:16`. A reservation is one compare-and-swap on it. Each commit then
//! owns a slot of a ring, found by its ticket, and moves it through
//!
//! ```text
//!   (old round) -> WRITTEN          bytes are with the kernel
//!               -> READY            inserted in the memtables, visible once durable   (synced commits)
//!               -> DONE             inserted in the memtables, visible now            (all others)
//! ```
//!
//! A slot holds `end_of_record << 2 | state`. Ends only grow, so a value of an earlier round is recognised by being at or below
//! the published prefix: the value is its own tag, and no slot can be mistaken for another commit's. A full ring
//! makes reservers wait; nothing is overwritten.
//!
//! `visible` is the published prefix `end:48 | ticket:16`: whoever finds the next slot DONE, or READY and durable, moves
//! it. Nobody waits for an earlier commit in order to return; instead a commit that returns while `visible` lags
//! raises `acked`, and a *reader* that sees `acked` above `visible` waits for it, so that what has returned is seen by all.
//!
//! All accesses that decide an order are SeqCst: a committer stores its slot and then looks at its neighbour's while
//! the neighbour does the same; with less, both could miss the other and the prefix would stand still.

use tidesdb_sync::modelled::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tidesdb_sync::{Backoff, CachePadded};

use super::layout::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, UNIT};
use crate::types::SeqNo;

const HELD: u64 = 1 << 63;
const TICKET_BITS: u32 = 16;
const TICKET_MASK: u64 = (1 << TICKET_BITS) - 1;
/// A model fills it with a handful of commits.
const RING_SLOTS: usize = if cfg!(loom) { 4 } else { 1 << 14 };

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
    ticket: u64,
    /// Where the pad record goes that fills the segment left behind, and its whole length in bytes.
    pub pad: Option<(SeqNo, u64)>,
}

/// Hands out addresses and publishes commits in order. All methods are callable from any thread.
#[derive(Debug)]
pub struct Sequencer {
    tail: CachePadded<AtomicU64>,
    visible: CachePadded<AtomicU64>,
    acked: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    stopped: AtomicBool,
    slots: Box<[AtomicU64]>,
    segment_bytes: u64,
}

impl Sequencer {
    /// A log whose next record begins in segment `first_segment`, right after its header.
    pub fn new(segment_bytes: u64, first_segment: u64) -> Self {
        debug_assert!(segment_bytes.is_multiple_of(UNIT) && first_segment > 0);
        let start = (first_segment * segment_bytes + SEGMENT_HEADER_BYTES) / UNIT;
        Self {
            tail: CachePadded::new(AtomicU64::new(start << TICKET_BITS)),
            visible: CachePadded::new(AtomicU64::new(start << TICKET_BITS)),
            acked: CachePadded::new(AtomicU64::new(start)),
            durable: CachePadded::new(AtomicU64::new(start)),
            stopped: AtomicBool::new(false),
            slots: (0..RING_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            segment_bytes,
        }
    }

    /// Reserves a record of `bytes` (header included, a multiple of eight).
    ///
    /// Waits only while the tail is held by a rotation (about a microsecond) or the ring is full. `None` after a
    /// [`Sequencer::stop`]: a ring that is full then would stay so.
    pub fn reserve(&self, bytes: u64) -> Option<Commit> {
        debug_assert!(bytes.is_multiple_of(UNIT) && bytes >= RECORD_HEADER_BYTES as u64);
        let mut backoff = Backoff::new();
        loop {
            if self.stopped.load(SeqCst) {
                return None;
            }
            let t = self.tail.load(SeqCst);
            let ticket = (t + 1) & TICKET_MASK;
            let outstanding = ticket.wrapping_sub(self.visible.load(SeqCst)) & TICKET_MASK;
            if t & HELD != 0 || outstanding >= RING_SLOTS as u64 {
                self.publish();
                backoff.snooze();
                continue;
            }
            let pos = (t >> TICKET_BITS) * UNIT;
            let (start, end) = self.place(pos, bytes);
            let next = (end / UNIT) << TICKET_BITS | ticket;
            if self.tail.compare_exchange_weak(t, next, SeqCst, SeqCst).is_ok() {
                let pad = (start != pos).then(|| (pos / UNIT, self.segment_bytes - pos % self.segment_bytes));
                return Some(Commit { seq: start / UNIT, end: end / UNIT, ticket, pad });
            }
        }
    }

    /// Where a record of `bytes` goes when the tail is at `pos`, and where the tail is afterwards.
    fn place(&self, pos: u64, bytes: u64) -> (u64, u64) {
        let segment = self.segment_bytes;
        let next_boundary = (pos / segment + 1) * segment;
        if bytes > segment - SEGMENT_HEADER_BYTES {
            let start = next_boundary + SEGMENT_HEADER_BYTES;
            let end = next_boundary + (SEGMENT_HEADER_BYTES + bytes).next_multiple_of(segment);
            return (start, end + SEGMENT_HEADER_BYTES);
        }
        let start = if pos + bytes <= next_boundary { pos } else { next_boundary + SEGMENT_HEADER_BYTES };
        let end = start + bytes;
        let room = (start / segment + 1) * segment - end;
        // A rest too short for a record's header is left unused, so that the tail always points at a usable place.
        (start, if room < RECORD_HEADER_BYTES as u64 { end + room + SEGMENT_HEADER_BYTES } else { end })
    }

    /// The bytes of `c` are with the kernel.
    pub fn written(&self, c: &Commit) {
        self.set(c, WRITTEN);
    }

    /// `c` is inserted and becomes visible once the log is durable up to its end.
    pub fn ready(&self, c: &Commit) {
        self.set(c, READY);
        self.publish();
    }

    /// `c` is inserted and may become visible. On return every reader that starts later sees it.
    pub fn done(&self, c: &Commit) {
        self.set(c, DONE);
        self.publish();
        self.acknowledge(c);
    }

    /// Makes sure that readers wait for `c` if it is not visible yet.
    pub fn acknowledge(&self, c: &Commit) {
        if self.visible.load(SeqCst) >> TICKET_BITS < c.end {
            self.acked.fetch_max(c.end, SeqCst);
        }
    }

    fn set(&self, c: &Commit, state: u64) {
        debug_assert!(self.slot(c.ticket).load(SeqCst) < c.end << 2 | state, "states and rounds only go up");
        self.slot(c.ticket).store(c.end << 2 | state, SeqCst);
    }

    fn slot(&self, ticket: u64) -> &AtomicU64 {
        &self.slots[ticket as usize & (RING_SLOTS - 1)]
    }

    /// Moves `visible` over every commit that may be seen.
    pub fn publish(&self) {
        loop {
            let v = self.visible.load(SeqCst);
            let ticket = (v + 1) & TICKET_MASK;
            let slot = self.slot(ticket).load(SeqCst);
            let (end, state) = (slot >> 2, slot & 3);
            let may = state == DONE || (state == READY && self.durable.load(SeqCst) >= end);
            if end <= v >> TICKET_BITS || !may {
                return;
            }
            debug_assert!(end <= self.tail(), "what is published was reserved");
            let _ = self.visible.compare_exchange(v, end << TICKET_BITS | ticket, SeqCst, SeqCst);
        }
    }

    /// Newest sequence number a reader may see now. Whatever returned before the call is at or below it.
    #[inline]
    pub fn snapshot(&self) -> SeqNo {
        let visible = self.visible.load(SeqCst) >> TICKET_BITS;
        let acked = self.acked.load(SeqCst);
        if acked <= visible { visible - 1 } else { self.wait_acked(acked) }
    }

    #[cold]
    fn wait_acked(&self, acked: SeqNo) -> SeqNo {
        let mut backoff = Backoff::new();
        loop {
            self.publish();
            let visible = self.visible.load(SeqCst) >> TICKET_BITS;
            if visible >= acked || self.stopped.load(SeqCst) {
                return visible - 1;
            }
            backoff.snooze();
        }
    }

    /// First sequence number not published yet: every commit below it is visible.
    pub fn visible_end(&self) -> SeqNo {
        self.publish();
        self.visible.load(SeqCst) >> TICKET_BITS
    }

    /// Where the next record will begin, at the earliest.
    pub fn tail(&self) -> SeqNo {
        (self.tail.load(SeqCst) & !HELD) >> TICKET_BITS
    }

    /// End of the gap-free prefix whose bytes are with the kernel.
    pub fn written_end(&self) -> SeqNo {
        self.prefix_end(WRITTEN)
    }

    /// Waits until every commit ordered before `c` is in the memtables, whether visible or not, or was refused. False if the
    /// order was stopped.
    pub fn wait_for_earlier(&self, c: &Commit) -> bool {
        let begin = c.pad.map_or(c.seq, |(seq, _)| seq);
        let mut backoff = Backoff::new();
        while self.prefix_end(READY) < begin {
            if self.stopped.load(SeqCst) {
                return false;
            }
            self.publish();
            backoff.snooze();
        }
        true
    }

    /// End of the gap-free prefix of commits that have come to `state` or further.
    fn prefix_end(&self, state: u64) -> SeqNo {
        let v = self.visible.load(SeqCst);
        let (mut end, mut ticket) = (v >> TICKET_BITS, v & TICKET_MASK);
        loop {
            let next = (ticket + 1) & TICKET_MASK;
            let slot = self.slot(next).load(SeqCst);
            // A slot goes to a commit of the next round only once `visible` is past it. Then it says nothing about this place.
            let v = self.visible.load(SeqCst);
            if v >> TICKET_BITS > end {
                (end, ticket) = (v >> TICKET_BITS, v & TICKET_MASK);
                continue;
            }
            if slot >> 2 <= end || slot & 3 < state {
                return end;
            }
            (end, ticket) = (slot >> 2, next);
        }
    }

    /// The log is durable up to `end`.
    pub fn set_durable(&self, end: SeqNo) {
        debug_assert!(end <= self.tail(), "what is durable was reserved");
        self.durable.fetch_max(end, SeqCst);
        self.publish();
    }

    /// How far the log is durable.
    pub fn durable(&self) -> SeqNo {
        self.durable.load(SeqCst)
    }

    /// Holds the tail: no commit is ordered until [`Sequencer::release`]. Returns the first sequence number
    /// that commits ordered after the release can get. Callers hold a lock among themselves.
    pub fn hold(&self) -> SeqNo {
        let before = self.tail.fetch_or(HELD, SeqCst);
        debug_assert!(before & HELD == 0, "the tail is held by one rotation at a time");
        before >> TICKET_BITS
    }

    /// Ends a [`Sequencer::hold`].
    pub fn release(&self) {
        let before = self.tail.fetch_and(!HELD, SeqCst);
        debug_assert!(before & HELD != 0, "only a held tail is released");
    }

    /// After poisoning: nothing is reserved any more, and readers stop waiting for commits that will never be published.
    pub fn stop(&self) {
        self.stopped.store(true, SeqCst);
    }
}
