//! Chains: the versions of one key, and the skips that make any version reachable in O(log n) steps.
//!
//! ```text
//! newest -> r -> ... -> r* -> r -> late -> r -> ... -> r* -> ... -> oldest
//!                       |                              ^
//!                       +-- skip: parent, jump --------+
//! ```
//!
//! Along the links `seq` never rises. A record is put at the head of its chain, or, when it arrives late,
//! between older ones. Every [`SKIP_EVERY`]th record put at the head carries a [`Skip`]: its `next` is then a
//! marked pointer to the skip, and the skip holds the link to the older neighbour. A skip leads to the next
//! older record with a skip, and to a much older one chosen by the skew-binary rule, so that from any of `n`
//! such records any other is O(log n) steps away. It also counts the older versions, so that all of them can be passed at once.
//!
//! Invariants: whether a record carries a skip is decided before it is published. A record with a skip never
//! leaves its chain, so readers that follow skips do not miss late records. For the head of the chain, `run`
//! counts the records put at the head since the last skip, or since the chain began. A late record is never the
//! head, so its `run` has no meaning.
//! Threads: only the links change after a record is published.

use std::mem::align_of;
use std::ptr;

use super::{EXPIRES, KIND_BITS, KIND_RUN_BITS, Record, RecordRef};
use crate::arena::Arena;
use crate::sync::{AtomicPtr, Born, Ordering};

/// One in this many records put at the head carries a skip. A loom model needs short chains.
const SKIP_EVERY: u32 = if cfg!(loom) { 2 } else { 8 };
const RUN_BITS: u32 = KIND_RUN_BITS - KIND_BITS;
const _: () = assert!(SKIP_EVERY < 1 << RUN_BITS);

/// The skip pointers that a record may carry in addition to its version.
#[repr(C)]
struct Skip<'a> {
    born: Born,
    /// The next older version after the record that carries this skip.
    next: AtomicPtr<Record>,
    /// The next older record with a skip.
    parent: Lead<'a>,
    /// A record with a skip that is at least as old as `parent`.
    jump: Lead<'a>,
    /// Number of older records with skips in the chain.
    depth: u32,
    /// Number of older records when this skip was made. It does not count late records that were inserted afterwards.
    below: u32,
    /// The kind that these and the record with the skip have, or [`MIXED`].
    kind: u32,
}

/// Kind of a chain of which the records differ in kind, or of which one expires.
const MIXED: u32 = u32::MAX;

/// A record with a skip, and its sequence number, so that a search reads the record only if it moves there.
/// Empty at the oldest skip.
#[derive(Clone, Copy)]
struct Lead<'a> {
    record: Option<RecordRef<'a>>,
    seq: u64,
}

impl Lead<'_> {
    const NOWHERE: Self = Lead { record: None, seq: 0 };
}

/// Set in `next` of a record that carries a skip. Records are aligned to more than one byte, so the bit is
/// free.
const MARK: usize = 1;

/// Returns the skip that a record's `next` points to, if it is marked.
///
/// # Safety
///
/// `next` was loaded from a record that lives for `'a`, and that record's publishing happens before this call.
#[inline]
unsafe fn skip_of<'a>(next: *mut Record) -> Option<&'a Skip<'a>> {
    if next.addr() & MARK == 0 {
        return None;
    }
    let skip = next.map_addr(|addr| addr & !MARK).cast::<Skip<'a>>();
    // SAFETY: a marked pointer was made from a Skip in the record's arena, written before the record was
    // published, and it leads to records published before that.
    let skip = unsafe { &*skip };
    skip.born.check();
    Some(skip)
}

impl<'a> RecordRef<'a> {
    #[inline]
    fn next(self) -> *mut Record {
        self.head().next.load(Ordering::Acquire)
    }

    fn skip(self) -> Option<&'a Skip<'a>> {
        // SAFETY: the record is private to this thread, or was reached by an Acquire load of its publication.
        unsafe { skip_of(self.next()) }
    }

    /// Returns the atomic that holds the pointer to the older neighbour.
    fn link(self) -> &'a AtomicPtr<Record> {
        self.skip().map_or(&self.head().next, |skip| &skip.next)
    }

    #[inline]
    fn run(self) -> u32 {
        (self.head().key_len_run_kind >> KIND_BITS) & ((1 << RUN_BITS) - 1)
    }

    /// Sets the run of a record that is still private.
    #[inline]
    fn set_run(self, run: u32) {
        let others = self.head().key_len_run_kind & !(((1 << RUN_BITS) - 1) << KIND_BITS);
        // SAFETY: the record is private, so no other thread accesses the field and no reference to it exists;
        // the pointer spans the record.
        unsafe { (&raw mut (*self.as_ptr()).key_len_run_kind).write(others | run << KIND_BITS) };
    }

    /// Returns the next older version of the same key.
    #[inline]
    pub(crate) fn older(self) -> Option<RecordRef<'a>> {
        let mut next = self.next();
        // SAFETY: as in `skip`.
        if let Some(skip) = unsafe { skip_of(next) } {
            next = skip.next.load(Ordering::Acquire);
        }
        // SAFETY: links hold published records of the same arena; Acquire pairs with the publishing Release.
        unsafe { RecordRef::from_ptr(next) }
    }

    /// Sets the older neighbour of a private record. A skip prepared for it earlier stays unused.
    #[inline]
    fn set_older(self, older: Option<RecordRef<'a>>) {
        let next = older.map_or(ptr::null_mut(), RecordRef::as_ptr);
        self.head().next.store(next, Ordering::Relaxed);
    }

    /// Prepares a private record to replace `newest` as the head of its chain. May be repeated for another
    /// head.
    #[inline]
    pub(crate) fn put_on(self, newest: RecordRef<'a>, arena: &'a Arena) {
        let run = newest.run() + 1;
        if run >= SKIP_EVERY {
            return self.put_on_with_skip(newest, arena);
        }
        self.set_run(run);
        self.set_older(Some(newest));
    }

    /// Like `put_on`, with a skip. If there is no memory for the skip, the next record tries again.
    #[cold]
    fn put_on_with_skip(self, newest: RecordRef<'a>, arena: &'a Arena) {
        let Some(at) = arena.alloc(size_of::<Skip>(), align_of::<Skip>()) else {
            self.set_run(SKIP_EVERY - 1);
            return self.set_older(Some(newest));
        };
        let skip = at.cast::<Skip<'a>>();
        // SAFETY: fresh bytes of the right size and alignment.
        unsafe { skip.write(Skip::over(self, newest)) };
        self.set_run(0);
        let marked = skip.as_ptr().cast::<Record>().map_addr(|addr| addr | MARK);
        self.head().next.store(marked, Ordering::Relaxed);
    }

    /// Like [`put_on`](Self::put_on), for one thread at a time: if this version supersedes `newest`, that one
    /// leaves the chain. Returns whether it does.
    #[inline]
    pub(crate) fn put_on_alone(self, newest: RecordRef<'a>, arena: &'a Arena) -> bool {
        if !self.supersedes(newest) {
            self.put_on(newest, arena);
            return false;
        }
        self.set_run(newest.run());
        self.set_older(newest.older());
        true
    }

    /// Returns the newest version at or below `snapshot` in the chain that begins here.
    #[inline]
    pub(crate) fn visible_at(self, snapshot: u64) -> Option<RecordRef<'a>> {
        if self.seq() <= snapshot { Some(self) } else { self.around(snapshot).1 }
    }

    /// Given that this version is above `seq`: returns the last version above `seq`, and its older neighbour.
    fn around(self, seq: u64) -> (RecordRef<'a>, Option<RecordRef<'a>>) {
        let mut record = self;
        loop {
            debug_assert!(record.seq() > seq);
            let mut next = record.next();
            // SAFETY: as in `skip`.
            if let Some(skip) = unsafe { skip_of(next) } {
                if let Some(far) = skip.above(seq) {
                    record = far;
                    continue;
                }
                next = skip.next.load(Ordering::Acquire);
            }
            // SAFETY: as in `older`.
            match unsafe { RecordRef::from_ptr(next) } {
                Some(older) if older.seq() > seq => record = older,
                older => return (record, older),
            }
        }
    }

    /// Number of records that `around` visits.
    #[cfg(all(test, not(loom)))]
    pub(super) fn steps_to(self, seq: u64) -> usize {
        let lead = self.skip().and_then(|skip| skip.above(seq));
        match lead.or_else(|| self.older().filter(|older| older.seq() > seq)) {
            Some(record) => 1 + record.steps_to(seq),
            None => 1,
        }
    }

    /// Returns the oldest version of the chain that begins here.
    pub(crate) fn oldest(self) -> RecordRef<'a> {
        let mut record = self;
        loop {
            let far = record.skip().and_then(|skip| skip.jump.record);
            match far.or_else(|| record.older()) {
                Some(older) => record = older,
                None => return record,
            }
        }
    }

    /// Number of older versions, as of before any late one, if all of them have the kind of this one and no version expires. Costs
    /// at most [`SKIP_EVERY`] steps, unless memory for skips was missing.
    pub(crate) fn older_alike(self) -> Option<u64> {
        let (mut record, mut passed) = (self, 0);
        loop {
            if record.chain_kind() != self.chain_kind() || record.chain_kind() == MIXED {
                return None;
            }
            if let Some(skip) = record.skip() {
                return (skip.kind == self.chain_kind()).then(|| passed + u64::from(skip.below));
            }
            let Some(older) = record.older() else { return Some(passed) };
            (record, passed) = (older, passed + 1);
        }
    }

    /// Its kind, or [`MIXED`] if it expires.
    #[inline]
    fn chain_kind(self) -> u32 {
        let kind = self.head().key_len_run_kind & (EXPIRES | 0xFF);
        if kind & EXPIRES == 0 { kind } else { MIXED }
    }

    /// Returns the version just newer than `record` in the chain that begins here; `None` if there is none.
    /// `record` may have left the chain.
    pub(crate) fn newer_than(self, record: RecordRef<'a>) -> Option<RecordRef<'a>> {
        if self.as_ptr() == record.as_ptr() {
            return None;
        }
        let mut newer = if self.seq() > record.seq() { self.around(record.seq()).0 } else { self };
        // From here on, only versions with the same sequence number remain.
        loop {
            let older = newer.older()?;
            // A superseded record is no longer in the chain; its replacement is returned instead.
            if older.as_ptr() == record.as_ptr() || older.seq() < record.seq() {
                return Some(newer);
            }
            newer = older;
        }
    }

    /// Returns whether `self`, inserted later, replaces `old` so that `old` may leave the chain: same sequence
    /// number, same kind. Every reader that may see `old` may see `self` too.
    #[inline]
    fn supersedes(self, old: RecordRef<'a>) -> bool {
        self.seq() == old.seq() && self.kind() == old.kind() && old.skip().is_none()
    }

    /// Like [`link_older`](Self::link_older), for one thread at a time: a version that `new` supersedes leaves
    /// the chain. Returns whether one did.
    pub(crate) fn link_older_alone(self, new: RecordRef<'a>) -> bool {
        let (before, after) = self.around(new.seq());
        let superseded = after.filter(|after| new.supersedes(*after));
        new.set_older(superseded.map_or(after, RecordRef::older));
        // Release: publishes the record. A reader on the superseded record still reaches the older ones.
        before.link().store(new.as_ptr(), Ordering::Release);
        superseded.is_some()
    }

    /// Publishes `new` at its place among the versions older than `self`. `self` must be newer than `new`. Any
    /// number of threads may call this at once.
    pub(crate) fn link_older(self, new: RecordRef<'a>) {
        let mut from = self;
        loop {
            let (before, after) = from.around(new.seq());
            new.set_older(after);
            let expected = after.map_or(ptr::null_mut(), RecordRef::as_ptr);
            // Release: publishes the record. No record is ever unlinked here, so on failure `before` is still
            // valid.
            let swap =
                before.link().compare_exchange(expected, new.as_ptr(), Ordering::Release, Ordering::Relaxed);
            if swap.is_ok() {
                return;
            }
            from = before;
        }
    }
}

impl<'a> Skip<'a> {
    /// Creates the skip of `head`, which is put on top of `newest`.
    fn over(head: RecordRef<'a>, newest: RecordRef<'a>) -> Self {
        let (born, next) = (Born::new(), AtomicPtr::new(newest.as_ptr()));
        let (mut record, mut below, mut kind) = (newest, 1, head.chain_kind());
        let alike = |kind: u32, other: u32| if kind == other { kind } else { MIXED };
        let older = loop {
            kind = alike(kind, record.chain_kind());
            if let Some(skip) = record.skip() {
                break skip;
            }
            let Some(older) = record.older() else {
                let (parent, jump) = (Lead::NOWHERE, Lead::NOWHERE);
                return Skip { born, next, parent, jump, depth: 0, below, kind };
            };
            (record, below) = (older, below + 1);
        };
        let parent = Lead { record: Some(record), seq: record.seq() };
        let jump = older.farther().unwrap_or(parent);
        let (below, kind) = (below + older.below, alike(kind, older.kind));
        Skip { born, next, parent, jump, depth: older.depth + 1, below, kind }
    }

    /// Returns where a skip over this one's record may jump, if that is beyond this one: two consecutive jumps
    /// of equal length merge into one of their sum.
    fn farther(&self) -> Option<Lead<'a>> {
        let near = self.jump.record?.skip()?;
        let far = near.jump.record?.skip()?;
        (self.depth - near.depth == near.depth - far.depth).then_some(near.jump)
    }

    /// Returns the farther of the two targets, `jump` or `parent`, that is above `seq`.
    #[inline]
    fn above(&self, seq: u64) -> Option<RecordRef<'a>> {
        let lead = if self.jump.seq > seq { self.jump } else { self.parent };
        if lead.seq > seq { lead.record } else { None }
    }
}
