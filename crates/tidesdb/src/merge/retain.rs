//! Decides which versions a flush or compaction may drop, apart from what range tombstones hide (`merge/purge.rs`) and tables that are
//! dropped unread (`compact/plan.rs`, `compact/policy/planner/upkeep.rs`).
//!
//! # What must hold
//!
//! *Readers.* `R` is the set of sequence numbers at which the output may be read: every live snapshot and cursor, and every number
//! from the visible floor on (a later snapshot or cursor, or an unregistered reader). The caller must read the floor first and the
//! snapshots second, and taking a snapshot must read the published number and register it in one step. Then every later
//! snapshot is at or above the floor. For cursors, which take no lock, see `Snapshots::register_cursor`. In what follows, a snapshot may be
//! that of a cursor.
//!
//! *Stored set.* `S` is everything stored for a key, newest first. The input of a merge is a contiguous part of `S`: no
//! version stored elsewhere lies between two versions of the input. With `bottom`, nothing older than the input exists.
//! In the following, "adjacent" means adjacent in `S`. A version is the *answer* of reader `r` if it is the newest one
//! at or below `r`. It *hides* if it is a tombstone or has expired. No reader's clock is behind `now`.
//!
//! `T` is the set of snapshots of live transactions that check for conflicts when they commit. A version is *evidence*
//! if it is newer than some member of `T`: that transaction may ask whether the key was written since.
//!
//! Every step keeps four invariants:
//!
//! * **Reads.** For each `r` in `R`, one of these holds: the answer stays the same version; or it was hiding and is now
//!   another hiding version; or it was hiding and there is now none.
//! * **Separation.** If the history had a tombstone between two puts, then these puts are not adjacent in `S`: a hiding
//!   version lies between them.
//! * **Single deletes.** Below a single delete in `S` lies at most one put before the next hiding version or the end.
//! * **Evidence.** If the newest version of a key is evidence, it stays, either unchanged or as a full delete with the
//!   same number.
//!
//! The user promises that a single delete follows at most one put since the last delete, where a commit that deletes
//! and puts a key is treated as the put alone. This promise and Separation give the third invariant when a single
//! delete is written. If there was a put since the last delete, Separation puts a hiding version (or nothing) below it.
//! If there was none, then by Reads the newest version hides or does not exist.
//!
//! # The rules, and why they keep the invariants
//!
//! Let `v` be a version and `n` the adjacent newer one, with no reader in `[v, n)`. So `v` is the answer of no reader,
//! and removing it changes no answer.
//!
//! 1. **`v` is a put: dropped** (`Shadowed`). Separation: if the neighbours `u` and `n` of `v` are puts, there was no
//!    tombstone between them and `v`, so there is none between `u` and `n`. Single deletes: there are fewer puts.
//! 2. **`v` is a tombstone and so is `n`: `v` dropped, `n` becomes a full delete if `v` was one** (`Shadowed`). `n`
//!    still separates. If `v` was a single delete, at most one put lay below it, so at most one lies below `n` now.
//!    Otherwise `n` is no longer a single delete.
//! 3. **`v` is a tombstone and `n` is a put**: `v` may be the only separation of `n` from an older put. So it is
//!    dropped only if the next older version hides (rule 5) or if `v` is the last version (rule 6). Otherwise it stays.
//! 4. **`n` is a single delete and `v` is a put: both dropped** (`Paired`). By the third invariant the version below
//!    `v` hides or does not exist, so readers whose answer was `n` still find nothing. No two puts become adjacent. A
//!    single delete above now meets the version below `v`, which hides, instead of `n`.
//! 5. **`t` hides and the adjacent older version hides: `t` dropped** (`Redundant`), whether it has readers or not. The
//!    older version is now the answer of these readers and separates what `t` separated. A single delete above meets it
//!    instead of `t`.
//! 6. **`t` hides and is the last of `S`: dropped** (`Bottom`; `Expired` for a put). Its readers find nothing, and
//!    there are no puts below it to be separated or counted.
//! 7. **`v` is an expired put: becomes a full delete** with the same sequence number. It still hides, and there is one
//!    put less below a single delete.
//! 8. **`v` is a tombstone with the sequence number of `n`, a put that stays** (one commit wrote the key twice):
//!    dropped (`SameCommit`), by the user's promise: such a commit is treated as the put alone.
//! 9. **With `renumber`: `v` is a put that stays and is the answer of every reader, and no evidence: its number becomes
//!    0.** Every older version is dropped: no reader needs it, and the input reaches the bottom. Every newer version is
//!    above 0, so the order stays. Readers and transactions only compare the number with their own, which is not below
//!    it. With `renumber`, no stored range tombstone is older than `v`, so none hides it now that did not before.
//!    Numbers that are all 0 take no space in a block.
//!
//! # Operands
//!
//! An operand answers with the versions below it: reader `r` needs the newest version at or below `r` and, as long as these are
//! operands, the next older one. So a version is needed if a reader lies between it and the nearest newer version that is no
//! operand, and the rules above take that version for `n`. An operand is treated as a put by Reads and Separation. No operand
//! lies below a single delete, because a family with a merge operator has only full deletes from then on.
//!
//! 10. **`n` is an operand that stays, `v` is the adjacent older version, no reader is in `[v, n)`, and no range tombstone between the
//!     two covers the key: `n` becomes their combination, and `v` is dropped** (`Folded`). Readers of `n` find the same value, and
//!     nobody else reads `v`. If `v` is an operand, `n` stays an operand. If `v` is a put, `n` becomes a put; then `v` must not expire
//!     later and its value must be in the table. Separation: the two were adjacent.
//! 11. **`n` is an operand that stays, and hides from its readers whatever is older: `v` hides, or a range tombstone lies between the
//!     two, or `n` is the last of `S`: `n` becomes a put** with its operand as the value.
//!
//! If the operator fails, both stay.
//!
//! # The compaction filter
//!
//! 12. **`v` is the newest version of its key in the input, a put that stays, at or below the floor, above every snapshot, and no
//!     evidence: the filter may change its value, or make it a full delete** with the same number. Reads does not hold for `v`: no
//!     snapshot has it as its answer, but later readers do, and they find what the filter decided. If there is no snapshot at all and
//!     the input reaches the bottom, all older versions are dropped, so the full delete is not written (`Filtered`).
//!
//! Rules 4, 5 and 6 do not drop a version that is evidence; under rule 4 the put below it is then dropped by rule 1. The other rules never
//! drop the newest version of a key: rules 1, 2 and 8 drop a version with a newer neighbour, and rules 7, 10 and 11 keep its number; rule 9
//! changes no number that is evidence. A transaction that begins later has a snapshot at or above all versions of the input, so none of
//! them is evidence for it.
//!
//! All other versions are kept. A hiding version stays pending until the next version of its key, or the end of the
//! key, decides between rules 4, 5, 6 and keeping it. So at most one tombstone is pending.

use std::ops::Range;

use crate::types::{Comparator, EntryRef, Kind, SeqNo, append_short, has_passed};

/// Inputs of the garbage collection rules. The fields are set once, at the start of the merge.
#[derive(Clone, Debug, Default)]
pub struct RetainRules {
    /// Number of every live snapshot and cursor, ascending. Read after the floor.
    pub snapshots: Vec<SeqNo>,
    /// Lowest number at which unregistered and later readers may read: the published sequence number when the merge
    /// began, or lower.
    pub visible_floor: SeqNo,
    /// Whether nothing older than the input is stored for any key in its range.
    pub bottom: bool,
    /// Wall time in milliseconds since the UNIX epoch, not after that of any later reader; `None` treats every version as not expired.
    pub now: Option<u64>,
    /// Oldest snapshot of a live transaction that checks for conflicts; `None` without such a transaction. Read after `snapshots`, so it is
    /// one of them or not below the floor.
    pub conflicts_since: Option<SeqNo>,
    /// Number of the newest live snapshot or cursor, which may be above the floor.
    pub newest_snapshot: Option<SeqNo>,
    /// Whether rule 9 applies. No stored range tombstone may then be older than an entry of the input that it covers.
    pub renumber: bool,
}

impl RetainRules {
    /// Returns whether a reader exists in `readers`: it sees the version at the start of the range, but not the one at
    /// its end.
    #[inline]
    pub fn reader_within(&self, readers: Range<SeqNo>) -> bool {
        if readers.is_empty() {
            return false;
        }
        if readers.end > self.visible_floor {
            return true;
        }
        if self.snapshots.is_empty() {
            return false;
        }
        let at = self.snapshots.partition_point(|&s| s < readers.start);
        self.snapshots.get(at).is_some_and(|&s| s < readers.end)
    }

    /// Returns whether a transaction may need version `seq` to detect a conflict when it commits.
    #[inline]
    pub fn is_evidence(&self, seq: SeqNo) -> bool {
        self.conflicts_since.is_some_and(|snapshot| seq > snapshot)
    }

    /// Returns the oldest sequence number at which the output may be read. All evidence is above it.
    pub fn oldest_reader(&self) -> SeqNo {
        let oldest = self.snapshots.first().copied().unwrap_or(self.visible_floor);
        oldest.min(self.visible_floor)
    }

    /// Returns the highest number that rule 9 changes to 0.
    fn renumbers_to(&self) -> SeqNo {
        if self.renumber && self.bottom { self.oldest_reader() } else { 0 }
    }

    /// Whether the oldest transaction is one of the readers.
    fn are_transactions_readers(&self) -> bool {
        let is_reader = |seq| seq >= self.visible_floor || self.snapshots.binary_search(&seq).is_ok();
        self.conflicts_since.is_none_or(is_reader)
    }

    #[inline]
    pub(super) fn expired(&self, expiry: u64) -> bool {
        self.now.is_some_and(|now| has_passed(expiry, now))
    }
}

/// Sentinel: no version has this number.
const NO_SEQ: SeqNo = SeqNo::MAX;

/// Why a version was dropped. The numbers in brackets refer to the rules above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The same commit wrote the key again \[1, 2, 8\].
    SameCommit,
    /// A newer version is the answer of all its readers \[1, 2\].
    Shadowed,
    /// A single delete met its put; counted for both \[4\].
    Paired,
    /// A tombstone directly above another hiding version \[5\].
    Redundant,
    /// A tombstone with nothing left to hide \[6\].
    Bottom,
    /// An expired put with nothing left to hide \[6\].
    Expired,
    /// A version that was combined with a newer operand \[10\].
    Folded,
    /// A put that the compaction filter removed and that hid nothing \[12\].
    Filtered,
}

/// Number of reasons.
const REASONS: usize = Reason::Filtered as usize + 1;

/// What a merge does with the entry just judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write it.
    Keep,
    /// Do not write it.
    Drop(Reason),
    /// Do not write it now. If it must stay, [`Retain::released`] or [`Retain::finish`] returns it later.
    Hold,
}

/// Counts of entries. At the end of the merge, `seen == kept + dropped_in_all()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetainCounts {
    /// Entries judged.
    pub seen: u64,
    /// Entries written, including those in `buried`.
    pub kept: u64,
    /// Older versions of a key that were kept, because a reader sees them or may.
    pub older: u64,
    /// Expired puts written as tombstones.
    pub buried: u64,
    /// Entries dropped, by reason.
    pub(super) dropped: [u64; REASONS],
}

impl RetainCounts {
    /// Returns the number of entries dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

/// A hiding version that stays pending until it is known whether it must be kept.
#[derive(Clone, Copy, Debug)]
struct PendingVersion {
    seq: SeqNo,
    kind: Kind,
    /// Whether it was a put that expired.
    buried: bool,
}

/// Judges the versions of a merge, which must be passed in merge order.
///
/// After each [`Retain::judge`], write the entry of [`Retain::released`], if any, then the entry itself if the action
/// is `Keep`. At the end write the entry of [`Retain::finish`], if any. [`RetainStream`](super::RetainStream) does
/// exactly that.
#[derive(Debug)]
pub struct Retain {
    rules: RetainRules,
    compare: Comparator,
    /// Highest number that rule 9 changes.
    renumbers_to: SeqNo,
    /// The key being judged; empty and meaningless before the first entry.
    key: Vec<u8>,
    /// Sequence number of the previous version of this key that is no operand; `NO_SEQ` if there is none.
    newer: SeqNo,
    /// Sequence number of the last put of this key that was kept, or `NO_SEQ`.
    kept: SeqNo,
    /// Sequence number of the newest version of this key.
    newest: SeqNo,
    held: Option<PendingVersion>,
    /// Key of a released tombstone, if judging has moved on to another key.
    released_key: Vec<u8>,
    released: Option<PendingVersion>,
    released_is_older_key: bool,
    counts: RetainCounts,
}

impl Retain {
    /// Creates a judge with `rules` for keys ordered by `compare`.
    pub fn new(rules: RetainRules, compare: Comparator) -> Self {
        debug_assert!(rules.snapshots.is_sorted() && rules.are_transactions_readers());
        Self {
            renumbers_to: rules.renumbers_to(),
            rules,
            compare,
            key: Vec::new(),
            newer: 0,
            kept: NO_SEQ,
            newest: 0,
            held: None,
            released_key: Vec::new(),
            released: None,
            released_is_older_key: false,
            counts: RetainCounts::default(),
        }
    }

    /// Decides on the next version in merge order.
    #[inline]
    pub fn judge(&mut self, key: &[u8], seq: SeqNo, kind: Kind, expiry: u64) -> Action {
        self.counts.seen += 1;
        self.released = None;
        let action = if self.counts.seen > 1 && self.same_key(key) {
            let newer = self.newer;
            if !kind.is_operand() {
                self.newer = seq;
            }
            debug_assert!(seq <= newer, "versions of a key must come newest first");
            self.judge_older(newer, seq, kind, expiry)
        } else {
            self.begin_key(key, if kind.is_operand() { NO_SEQ } else { seq });
            self.newest = seq;
            self.judge_answer(seq, kind, expiry)
        };
        match action {
            Action::Keep => self.counts.kept += 1,
            Action::Drop(reason) => self.drop(reason),
            Action::Hold => {}
        }
        action
    }

    /// Returns a tombstone that was pending and must be written before the entry just judged.
    #[inline]
    pub fn released(&self) -> Option<EntryRef<'_>> {
        let key = if self.released_is_older_key { &self.released_key } else { &self.key };
        self.released.map(|held| EntryRef { key, seq: held.seq, kind: held.kind, expiry: 0, value: &[] })
    }

    /// Ends the merge. Returns a last tombstone to write, if any. Later calls return `None`.
    pub fn finish(&mut self) -> Option<EntryRef<'_>> {
        self.released = None;
        self.end_key();
        self.released_is_older_key = false;
        self.released()
    }

    /// Notes that the operand judged last, which stays, is written as a put.
    pub(super) fn becomes_put(&mut self, seq: SeqNo) {
        (self.newer, self.kept) = (seq, seq);
    }

    /// Counts older versions of the key that are dropped: combined with the operand judged last, or by rule 1.
    pub(super) fn count_dropped(&mut self, reason: Reason, versions: u64) {
        self.counts.seen += versions;
        self.counts.dropped[reason as usize] += versions;
    }

    /// Returns whether rule 12 applies to version `seq` of the current key, a put that stays.
    pub(super) fn may_filter(&self, seq: SeqNo) -> bool {
        seq == self.newest
            && seq <= self.rules.visible_floor
            && self.rules.newest_snapshot.is_none_or(|snapshot| snapshot < seq)
            && !self.rules.is_evidence(seq)
    }

    /// Returns whether a put that the filter removes leaves a full delete. If not, it is counted as dropped instead of kept.
    pub(super) fn filtered_stays(&mut self) -> bool {
        let stays = !(self.rules.bottom && self.rules.snapshots.is_empty());
        if !stays {
            self.counts.kept -= 1;
            self.drop(Reason::Filtered);
        }
        stays
    }

    /// Returns whether rule 1 drops every older version of the current key that is a put, given that version `seq`, a put, stays.
    #[inline]
    pub(super) fn shadows_puts(&self, seq: SeqNo) -> bool {
        seq <= self.rules.visible_floor && self.rules.snapshots.first().is_none_or(|oldest| *oldest >= seq)
    }

    /// Counts an older operand that stays with the one judged last.
    pub(super) fn count_kept(&mut self) {
        self.counts.seen += 1;
        self.counts.kept += 1;
    }

    /// Returns the number to write with the entry just judged, a put that stays and has number `seq`.
    #[inline]
    pub fn number(&self, seq: SeqNo) -> SeqNo {
        if seq <= self.renumbers_to { 0 } else { seq } // rule 9
    }

    /// Returns the key judged last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the rules.
    pub(super) fn rules(&self) -> &RetainRules {
        &self.rules
    }

    pub(super) fn order(&self) -> &Comparator {
        &self.compare
    }

    /// Returns the counts so far; complete after [`Retain::finish`].
    pub fn counts(&self) -> &RetainCounts {
        &self.counts
    }

    #[inline]
    pub(super) fn same_key(&self, key: &[u8]) -> bool {
        self.compare.compare(&self.key, key).is_eq()
    }

    #[inline]
    fn begin_key(&mut self, key: &[u8], newer: SeqNo) {
        self.end_key();
        if self.released.is_some() {
            std::mem::swap(&mut self.key, &mut self.released_key);
            self.released_is_older_key = true;
        }
        self.key.clear();
        append_short(&mut self.key, key);
        self.newer = newer;
        self.kept = NO_SEQ;
    }

    /// Ends a key: the input has no older version of it. At the bottom, the pending version is the last one (rule 6).
    #[inline]
    fn end_key(&mut self) {
        let Some(held) = self.held else { return };
        if self.rules.bottom && !self.rules.is_evidence(held.seq) {
            self.drop_held(if held.buried { Reason::Expired } else { Reason::Bottom });
        } else {
            self.release();
        }
    }

    /// Judges version `seq`, whose adjacent newer version in the input is `newer`.
    fn judge_older(&mut self, newer: SeqNo, seq: SeqNo, kind: Kind, expiry: u64) -> Action {
        if self.rules.reader_within(seq..newer) {
            let action = self.judge_answer(seq, kind, expiry);
            self.counts.older += u64::from(action == Action::Keep);
            return action;
        }
        let reason = if seq == newer { Reason::SameCommit } else { Reason::Shadowed };
        match (&mut self.held, kind.is_tombstone()) {
            (Some(held), false) if kind.is_operand() => {
                held.kind = Kind::Delete; // a single delete follows no operand; if it did, it would have to hide more
                Action::Drop(reason)
            }
            (Some(held), false) if held.kind.is_single_delete() && !self.rules.is_evidence(held.seq) => {
                self.drop_held(Reason::Paired); // rule 4
                Action::Drop(Reason::Paired)
            }
            (_, false) => Action::Drop(reason), // rule 1
            (Some(held), true) => {
                if !kind.is_single_delete() {
                    held.kind = Kind::Delete;
                }
                Action::Drop(reason) // rule 2
            }
            (None, true) if seq == self.kept => Action::Drop(reason), // rule 8
            (None, true) => self.hold(seq, kind, false), // rule 3; or, after rule 4, the new answer of the readers of the pair
        }
    }

    /// Judges a version that is the answer of some reader or the newest of its key in the input.
    #[inline]
    fn judge_answer(&mut self, seq: SeqNo, kind: Kind, expiry: u64) -> Action {
        let expired = self.rules.expired(expiry);
        if !kind.is_tombstone() && !expired {
            if self.held.is_some() {
                self.release();
            }
            if !kind.is_operand() {
                self.kept = seq;
            }
            return Action::Keep;
        }
        match self.held {
            Some(held) if self.rules.is_evidence(held.seq) => self.release(),
            Some(held) => self.drop_held(if held.buried { Reason::Expired } else { Reason::Redundant }), // rule 5
            None => {}
        }
        let buried = !kind.is_tombstone();
        self.hold(seq, if buried { Kind::Delete } else { kind }, buried) // rule 7
    }

    fn hold(&mut self, seq: SeqNo, kind: Kind, buried: bool) -> Action {
        self.held = Some(PendingVersion { seq, kind, buried });
        Action::Hold
    }

    fn release(&mut self) {
        self.released = self.held.take();
        self.released_is_older_key = false;
        self.counts.kept += 1;
        self.counts.buried += u64::from(self.released.is_some_and(|held| held.buried));
    }

    fn drop_held(&mut self, reason: Reason) {
        self.held = None;
        self.drop(reason);
    }

    #[inline]
    fn drop(&mut self, reason: Reason) {
        self.counts.dropped[reason as usize] += 1;
    }
}
