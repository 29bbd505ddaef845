//! Which versions a flush or compaction may drop: the only place that decides it.
//!
//! # What must hold
//!
//! *Readers.* `R` is the set of sequence numbers at which the output may be read: every live snapshot, and every
//! number from the visible floor on (a later snapshot or an unregistered reader). The caller must take the floor first
//! and the snapshots second, and a snapshot must read the published number and register in one step;
//! then every later snapshot is at or above the floor.
//!
//! *Stored set.* `S` is everything stored of a key, newest first. The input of a merge is a contiguous piece of `S`:
//! no version stored elsewhere lies between two of the input. With `bottom`, nothing older than the input exists.
//! *Below*, "adjacent" means adjacent in `S`. A version is the *answer* of reader `r` if it is the newest at or below `r`.
//! It *hides* if it is a tombstone or has expired. No reader's clock runs behind `now`.
//!
//! `T` is the set of snapshots of live transactions whose commit looks for conflicts. A version is *evidence* if it is
//! newer than some member of `T`: that transaction may ask whether the key was written since.
//!
//! Every step keeps four laws:
//!
//! * **Reads.** For each `r` in `R`, the answer stays the same version, or was hiding and is now another
//!   hiding version, or was hiding and is now none.
//! * **Separation.** If the history had a tombstone between two puts that are adjacent in `S`, then they are not: one
//!   that hides lies between them.
//! * **Single deletes.** Below a single delete in `S` lies at most one put before the next hiding version or the end.
//! * **Evidence.** If the newest version of a key is evidence, it stays, as itself or as a full delete of the same number.
//!
//! The user's promise (a single delete follows at most one put since the last delete, where a commit that deletes
//! and puts a key counts as the put alone) and Separation give the third law for a single delete when it is written:
//! if there was a put since the last delete, Separation puts a hiding version (or nothing) below it; if there
//! was none, the newest version hides or there is none, by Reads.
//!
//! # The steps, and why they keep the laws
//!
//! Let `v` be a version and `n` the adjacent newer one, no reader in `[v, n)`. So `v` is nobody's answer, and to remove
//! it changes no answer.
//!
//! 1. **`v` is a put: dropped** (`Shadowed`). Separation: neighbours `u`, `n` of `v` that are puts had no tombstone
//!    between them and `v`, so none between each other. Single deletes: there are fewer puts.
//! 2. **`v` is a tombstone, `n` is one: `v` dropped, `n` becomes a full delete if `v` was one** (`Shadowed`).
//!    `n` still separates. If `v` was a single delete, at most one put lay below it, so at most one lies below `n` now;
//!    else `n` is no single delete any more.
//! 3. **`v` is a tombstone, `n` is a put**: `v` may be all that separates `n` from an older put, so it is dropped only if
//!    what follows turns out to hide (rule 5) or it is the last of all (rule 6). Otherwise it stays.
//! 4. **`n` is a single delete, `v` a put: both dropped** (`Paired`). By the third law what lies below `v` hides or is
//!    nothing, so readers that were answered `n` still find nothing. Two puts do not become adjacent. A
//!    single delete further up meets what lies below `v`, which hides, instead of `n`.
//! 5. **`t` hides, the adjacent older version hides: `t` dropped** (`Redundant`, readers or not), whose readers are now
//!    answered by the older one, which also separates what `t` separated; a single delete above meets it instead of `t`.
//! 6. **`t` hides, is the last of `S`: dropped** (`Bottom`; `Expired` for a put). Its readers find nothing, and there are
//!    no puts below to be separated or counted.
//! 7. **`v` is an expired put: becomes a full delete** with the same sequence number. Hiding stays hiding, and it
//!    takes a put away from below a single delete.
//! 8. **`v` is a tombstone with the sequence number of `n`, a put that stays** (one commit wrote the key twice): dropped
//!    (`SameCommit`), by the user's promise: such a commit counts as the put alone.
//!
//! Rules 4, 5 and 6 do not drop a version that is evidence; under rule 4 the put below it goes by rule 1. The other rules never
//! drop the newest version of a key: rules 1, 2 and 8 drop one that has a newer neighbour, and rule 7 keeps its number. A
//! transaction that begins later has a snapshot at or above all versions of the input, so they are no evidence for it.
//!
//! Everything else is kept. A version that hides is held back until the next version of its key, or the end of the
//! key, decides between rules 4, 5, 6 and keeping it; so one tombstone is all that is ever pending.

use std::ops::Range;

use crate::types::{Comparator, EntryRef, Kind, SeqNo};

/// What a merge must respect. The fields are read once, at the start of the merge.
#[derive(Clone, Debug, Default)]
pub struct RetainRules {
    /// Every live snapshot, ascending. Read after the floor.
    pub snapshots: Vec<SeqNo>,
    /// All numbers from here on may be read: the published sequence number when the merge began, or lower.
    pub visible_floor: SeqNo,
    /// Whether nothing older than the input is stored of any key in its range.
    pub bottom: bool,
    /// Wall time in UNIX seconds at or before every later reader's; `None` treats every version as alive.
    pub now: Option<u32>,
    /// Oldest snapshot of a live transaction whose commit looks for conflicts; `None` if there is no such transaction.
    pub conflicts_since: Option<SeqNo>,
}

impl RetainRules {
    /// Whether some reader sees a version of number `from` but none of number `to`.
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

    /// Whether a transaction may ask for the version `seq` when it commits.
    #[inline]
    pub fn is_evidence(&self, seq: SeqNo) -> bool {
        self.conflicts_since.is_some_and(|snapshot| seq > snapshot)
    }

    #[inline]
    fn expired(&self, expiry: u32) -> bool {
        expiry != 0 && self.now.is_some_and(|now| expiry <= now)
    }
}

/// No version has this number.
const NO_SEQ: SeqNo = SeqNo::MAX;

/// Why a version was dropped. The numbers in brackets are the rules above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The same commit wrote the key again \[1, 2, 8\].
    SameCommit,
    /// A newer version answers all readers \[1, 2\].
    Shadowed,
    /// A single delete met its put: counted for each of the two \[4\].
    Paired,
    /// A tombstone above one that hides as much \[5\].
    Redundant,
    /// A tombstone with nothing left to hide \[6\].
    Bottom,
    /// An expired put with nothing left to hide \[6\].
    Expired,
}

const REASONS: [Reason; 6] = [
    Reason::SameCommit,
    Reason::Shadowed,
    Reason::Paired,
    Reason::Redundant,
    Reason::Bottom,
    Reason::Expired,
];

/// What to do with the entry just judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write it.
    Keep,
    /// Do not write it.
    Drop(Reason),
    /// Do not write it now: if it must stay, [`Retain::released`] or [`Retain::finish`] hands it out later.
    Hold,
}

/// Entries by fate. When the merge has ended, `seen == kept + dropped in all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetainCounts {
    /// Entries judged.
    pub seen: u64,
    /// Entries written, those of `buried` included.
    pub kept: u64,
    /// Expired puts written as tombstones.
    pub buried: u64,
    dropped: [u64; REASONS.len()],
}

impl RetainCounts {
    /// Entries dropped for `reason`.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Entries dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Reasons and how often each applied.
    pub fn by_reason(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        REASONS.into_iter().zip(self.dropped)
    }
}

/// A version that hides, held back until it is known whether it is needed.
#[derive(Clone, Copy, Debug)]
struct Held {
    seq: SeqNo,
    kind: Kind,
    /// It was a put that expired.
    buried: bool,
}

/// Judges the versions of a merge, fed in merge order.
///
/// After each [`Retain::judge`] write what [`Retain::released`] gives, then the entry itself if the verdict is `Keep`;
/// at the end write what [`Retain::finish`] gives. [`RetainStream`](super::RetainStream) does just that.
#[derive(Debug)]
pub struct Retain {
    rules: RetainRules,
    compare: Comparator,
    /// The key being judged; empty and meaningless before the first entry.
    key: Vec<u8>,
    /// Number of the last version of this key.
    newer: SeqNo,
    /// Number of the last put of this key that was kept, or `NO_SEQ`.
    kept: SeqNo,
    started: bool,
    held: Option<Held>,
    /// The key of a released tombstone, if the judge is at another key already.
    released_key: Vec<u8>,
    released: Option<Held>,
    released_is_older_key: bool,
    counts: RetainCounts,
}

impl Retain {
    /// A judge under `rules` for keys ordered by `compare`.
    pub fn new(rules: RetainRules, compare: Comparator) -> Self {
        debug_assert!(rules.snapshots.is_sorted());
        Self {
            rules,
            compare,
            key: Vec::new(),
            newer: 0,
            kept: NO_SEQ,
            started: false,
            held: None,
            released_key: Vec::new(),
            released: None,
            released_is_older_key: false,
            counts: RetainCounts::default(),
        }
    }

    /// What to do with the next version in merge order.
    #[inline]
    pub fn judge(&mut self, key: &[u8], seq: SeqNo, kind: Kind, expiry: u32) -> Verdict {
        self.counts.seen += 1;
        self.released = None;
        let verdict = if self.started && self.same_key(key) {
            let newer = std::mem::replace(&mut self.newer, seq);
            debug_assert!(seq <= newer, "versions come newest first");
            self.judge_older(newer, seq, kind, expiry)
        } else {
            self.begin_key(key, seq);
            self.judge_answer(seq, kind, expiry)
        };
        match verdict {
            Verdict::Keep => self.counts.kept += 1,
            Verdict::Drop(reason) => self.drop(reason),
            Verdict::Hold => {}
        }
        verdict
    }

    /// A tombstone, held back earlier, that must be written before the entry just judged.
    #[inline]
    pub fn released(&self) -> Option<EntryRef<'_>> {
        let key = if self.released_is_older_key { &self.released_key } else { &self.key };
        self.released.map(|held| EntryRef { key, seq: held.seq, kind: held.kind, expiry: 0, value: &[] })
    }

    /// Ends the merge: a last tombstone to be written, if any. Later calls give none.
    pub fn finish(&mut self) -> Option<EntryRef<'_>> {
        self.released = None;
        self.end_key();
        self.released_is_older_key = false;
        self.released()
    }

    /// The key last judged.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The order of the keys.
    pub(super) fn rules(&self) -> &RetainRules {
        &self.rules
    }

    pub(super) fn order(&self) -> &Comparator {
        &self.compare
    }

    /// What was done so far; complete after [`Retain::finish`].
    pub fn counts(&self) -> &RetainCounts {
        &self.counts
    }

    #[inline]
    fn same_key(&self, key: &[u8]) -> bool {
        if self.compare.is_bytewise() {
            self.key == key
        } else {
            self.compare.compare(&self.key, key).is_eq()
        }
    }

    #[inline]
    fn begin_key(&mut self, key: &[u8], seq: SeqNo) {
        self.end_key();
        if self.released.is_some() {
            std::mem::swap(&mut self.key, &mut self.released_key);
            self.released_is_older_key = true;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.newer = seq;
        self.kept = NO_SEQ;
        self.started = true;
    }

    /// No older version of the key is in the input: at the bottom the held one is the last of all (rule 6).
    #[inline]
    fn end_key(&mut self) {
        let Some(held) = self.held else { return };
        if self.rules.bottom && !self.rules.is_evidence(held.seq) {
            self.drop_held(if held.buried { Reason::Expired } else { Reason::Bottom });
        } else {
            self.release();
        }
    }

    /// A version `seq` with the adjacent newer one `newer` in the input.
    fn judge_older(&mut self, newer: SeqNo, seq: SeqNo, kind: Kind, expiry: u32) -> Verdict {
        if self.rules.reader_within(seq..newer) {
            return self.judge_answer(seq, kind, expiry);
        }
        let reason = if seq == newer { Reason::SameCommit } else { Reason::Shadowed };
        match (&mut self.held, kind.is_tombstone()) {
            (Some(held), false) if held.kind == Kind::SingleDelete && !self.rules.is_evidence(held.seq) => {
                self.drop_held(Reason::Paired); // rule 4
                Verdict::Drop(Reason::Paired)
            }
            (_, false) => Verdict::Drop(reason), // rule 1
            (Some(held), true) => {
                if kind == Kind::Delete {
                    held.kind = Kind::Delete;
                }
                Verdict::Drop(reason) // rule 2
            }
            (None, true) if seq == self.kept => Verdict::Drop(reason), // rule 8
            (None, true) => self.hold(seq, kind, false), // rule 3; or, after rule 4, the answer of those who lost theirs
        }
    }

    /// A version that some reader is answered, or that starts its key.
    #[inline]
    fn judge_answer(&mut self, seq: SeqNo, kind: Kind, expiry: u32) -> Verdict {
        let expired = self.rules.expired(expiry);
        if !kind.is_tombstone() && !expired {
            if self.held.is_some() {
                self.release();
            }
            self.kept = seq;
            return Verdict::Keep;
        }
        match self.held {
            Some(held) if self.rules.is_evidence(held.seq) => self.release(),
            Some(held) => self.drop_held(if held.buried { Reason::Expired } else { Reason::Redundant }), // rule 5
            None => {}
        }
        let buried = !kind.is_tombstone();
        self.hold(seq, if buried { Kind::Delete } else { kind }, buried) // rule 7
    }

    fn hold(&mut self, seq: SeqNo, kind: Kind, buried: bool) -> Verdict {
        self.held = Some(Held { seq, kind, buried });
        Verdict::Hold
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
