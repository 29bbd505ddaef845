//! Chains: the versions of one key, and the skips that make an old one reachable in O(log n).
//!
//! ```text
//! newest -> r -> ... -> r* -> r -> late -> r -> ... -> r* -> ... -> oldest
//!                       |                              ^
//!                       +-- skip: parent, jump --------+
//! ```
//!
//! Along the links `seq` never rises. A record is put on the head of its chain, or, when it comes late, between older
//! ones. Of those put on the head every [`SKIP_EVERY`]th carries a [`Skip`]: `next` of the record is then a marked
//! pointer to it, and the link to the older neighbour lies in the skip. A skip leads to the next older record with a
//! skip and to one far behind it, chosen by the skew-binary rule, so that from any of `n` of them any other is
//! O(log n) steps away.
//!
//! Invariants: whether a record carries a skip is settled before it is published. A record with a skip never leaves its
//! chain, so whoever follows a skip sees what comes late. `run` of a record at the head counts the records put on the
//! head since the last skip, or since the chain began; a late one is never a head, and its run means nothing.
//! Threads: only the links change once published.

use std::mem::align_of;
use std::ptr;

use super::{KIND_BITS, KIND_RUN_BITS, Record, RecordRef};
use crate::arena::Arena;
use crate::sync::{AtomicPtr, Born, Ordering};

/// Of so many records put on the head one carries a skip. A model needs short chains.
const SKIP_EVERY: u32 = if cfg!(loom) { 2 } else { 8 };
const RUN_BITS: u32 = KIND_RUN_BITS - KIND_BITS;
const _: () = assert!(SKIP_EVERY < 1 << RUN_BITS);

/// What a record may carry besides its version.
#[repr(C)]
struct Skip<'a> {
    born: Born,
    /// The next older version of the record that carries this.
    next: AtomicPtr<Record>,
    /// The next older record with a skip.
    parent: Lead<'a>,
    /// One at least as old as that.
    jump: Lead<'a>,
    /// How many records with skips are older.
    depth: u64,
}

/// A record with a skip and its sequence number, so that one looks at it only to go there. At the oldest skip, nothing.
#[derive(Clone, Copy)]
struct Lead<'a> {
    record: Option<RecordRef<'a>>,
    seq: u64,
}

impl Lead<'_> {
    const NOWHERE: Self = Lead { record: None, seq: 0 };
}

/// Set in `next` of a record that carries a skip. Records are aligned to more than a byte.
const MARK: usize = 1;

/// The skip that a value of a record's `next` leads to, if it is marked.
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
    // SAFETY: a marked pointer was made of a Skip of the record's arena, written before the record was published, and
    // leads to records published before that.
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
        // SAFETY: the record is this thread's own, or was reached by an Acquire of its publishing.
        unsafe { skip_of(self.next()) }
    }

    /// Where the pointer to the older neighbour lies.
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
        // SAFETY: the record is private, so nobody else reads or writes the field, and no reference to it is held; the
        // pointer spans the record.
        unsafe { (&raw mut (*self.as_ptr()).key_len_run_kind).write(others | run << KIND_BITS) };
    }

    /// The next older version of the same key.
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

    /// Sets the older neighbour of a record that is still private. A skip it was made ready with stays unused.
    #[inline]
    fn set_older(self, older: Option<RecordRef<'a>>) {
        let next = older.map_or(ptr::null_mut(), RecordRef::as_ptr);
        self.head().next.store(next, Ordering::Relaxed);
    }

    /// Makes a private record ready to take the place of `newest` at the head of its chain. May be done again for
    /// another head.
    #[inline]
    pub(crate) fn put_on(self, newest: RecordRef<'a>, arena: &'a Arena) {
        let run = newest.run() + 1;
        if run >= SKIP_EVERY {
            return self.put_on_with_skip(newest, arena);
        }
        self.set_run(run);
        self.set_older(Some(newest));
    }

    /// As `put_on`, with a skip. Without memory for it the next record will try again.
    #[cold]
    fn put_on_with_skip(self, newest: RecordRef<'a>, arena: &'a Arena) {
        let Some(at) = arena.alloc(size_of::<Skip>(), align_of::<Skip>()) else {
            self.set_run(SKIP_EVERY - 1);
            return self.set_older(Some(newest));
        };
        let skip = at.cast::<Skip<'a>>();
        // SAFETY: fresh bytes of the right size and alignment.
        unsafe { skip.write(Skip::over(newest)) };
        self.set_run(0);
        let marked = skip.as_ptr().cast::<Record>().map_addr(|addr| addr | MARK);
        self.head().next.store(marked, Ordering::Relaxed);
    }

    /// As [`put_on`](Self::put_on), for one thread at a time: should this version supersede `newest`, that leaves the
    /// chain. Returns whether it does.
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

    /// Newest version at or below `snapshot` in the chain that begins here.
    #[inline]
    pub(crate) fn visible_at(self, snapshot: u64) -> Option<RecordRef<'a>> {
        if self.seq() <= snapshot { Some(self) } else { self.around(snapshot).1 }
    }

    /// From a version above `seq`: the last one that is, and its older neighbour.
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

    /// How many records `around` stands on.
    #[cfg(all(test, not(loom)))]
    pub(super) fn steps_to(self, seq: u64) -> usize {
        let lead = self.skip().and_then(|skip| skip.above(seq));
        match lead.or_else(|| self.older().filter(|older| older.seq() > seq)) {
            Some(record) => 1 + record.steps_to(seq),
            None => 1,
        }
    }

    /// Oldest version of the chain that begins here.
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

    /// The version just newer than `record` in the chain that begins here; `None` if there is none. `record` may have left
    /// the chain.
    pub(crate) fn newer_than(self, record: RecordRef<'a>) -> Option<RecordRef<'a>> {
        if self.as_ptr() == record.as_ptr() {
            return None;
        }
        let mut newer = if self.seq() > record.seq() { self.around(record.seq()).0 } else { self };
        // From here on there are only versions of the same sequence number to be passed.
        loop {
            let older = newer.older()?;
            // A superseded record is not in the chain any more; what took its place is next to be met.
            if older.as_ptr() == record.as_ptr() || older.seq() < record.seq() {
                return Some(newer);
            }
            newer = older;
        }
    }

    /// Whether `self`, inserted later, says all that `old` said, and `old` may leave the chain: same sequence number, same
    /// kind. Nobody who may see the one can want the other.
    #[inline]
    fn supersedes(self, old: RecordRef<'a>) -> bool {
        self.seq() == old.seq() && self.kind() == old.kind() && old.skip().is_none()
    }

    /// As [`link_older`](Self::link_older), for one thread at a time: a version that `new` supersedes leaves the chain. Returns
    /// whether one did.
    pub(crate) fn link_older_alone(self, new: RecordRef<'a>) -> bool {
        let (before, after) = self.around(new.seq());
        let superseded = after.filter(|after| new.supersedes(*after));
        new.set_older(superseded.map_or(after, RecordRef::older));
        // Release: publishes the record. A reader on the superseded one still finds its way to the older ones.
        before.link().store(new.as_ptr(), Ordering::Release);
        superseded.is_some()
    }

    /// Publishes `new` in its place among the versions older than `self`, which must be newer than `new`.
    /// Any number of threads may do so at once.
    pub(crate) fn link_older(self, new: RecordRef<'a>) {
        let mut from = self;
        loop {
            let (before, after) = from.around(new.seq());
            new.set_older(after);
            let expected = after.map_or(ptr::null_mut(), RecordRef::as_ptr);
            // Release: publishes the record. Nothing is ever unlinked, so on failure `before` still stands.
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
    /// The skip of a record put on `newest`.
    fn over(newest: RecordRef<'a>) -> Self {
        let (born, next) = (Born::new(), AtomicPtr::new(newest.as_ptr()));
        let mut record = newest;
        let older = loop {
            if let Some(skip) = record.skip() {
                break skip;
            }
            let Some(older) = record.older() else {
                return Skip { born, next, parent: Lead::NOWHERE, jump: Lead::NOWHERE, depth: 0 };
            };
            record = older;
        };
        let parent = Lead { record: Some(record), seq: record.seq() };
        let jump = older.farther().unwrap_or(parent);
        Skip { born, next, parent, jump, depth: older.depth + 1 }
    }

    /// Where a skip over the record of this one may jump, if that is beyond this one: two jumps of one length after one
    /// another make one of their sum.
    fn farther(&self) -> Option<Lead<'a>> {
        let near = self.jump.record?.skip()?;
        let far = near.jump.record?.skip()?;
        (self.depth - near.depth == near.depth - far.depth).then_some(near.jump)
    }

    /// The farther one of the two targets that are above `seq`.
    #[inline]
    fn above(&self, seq: u64) -> Option<RecordRef<'a>> {
        let lead = if self.jump.seq > seq { self.jump } else { self.parent };
        if lead.seq > seq { lead.record } else { None }
    }
}
