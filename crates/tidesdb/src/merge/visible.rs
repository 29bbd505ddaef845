//! Visibility: shows for each key the newest version at or below a sequence number, unless that version is a tombstone
//! or has expired. A dead newest version hides its key; no older version is shown instead.
//!
//! Forward, the inner cursor stands on the version shown. Backward, the newest visible version of a key is known only
//! after iteration has left the key, so the version is copied to buffers. A key with many versions is positioned by a
//! seek instead. The buffers are reused: no allocations once they have grown.
//!
//! If the newest version is an operand, the older versions are read down to the first that is not an operand, and the
//! combined value goes to the buffers. This read goes forward, also in a backward scan.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::dead::{DeadStretches, Passed};
use super::heap::MergeCursor;
use super::hide::HidingCursor;
use crate::types::{
    Comparator, EntryCursor, EntryMeta, Kind, Operands, ReadPoint, Rows, Scope, SeqNo, Stored, has_passed,
};
use crate::{Error, Result};

/// Versions to step over before the cursor seeks past the remaining ones of their key.
const WALK_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Not valid.
    Nowhere,
    /// The inner cursor stands on the version shown.
    OnEntry,
    /// The version shown is in the stash. The inner cursor stands before all versions of its key, or before the start.
    Stashed,
    /// A combined value is in the stash. The inner cursor stands on an older version of its key, on a later key, or past
    /// the end.
    Combined,
}

/// Combines the operands of a family.
pub trait Combine: fmt::Debug + Send + Sync {
    /// Returns `operands` combined with `base`, a version of the key that is live; `None` = the key does not exist.
    ///
    /// # Errors
    /// `Merge` if the operator fails; those of reading the value of `base`.
    fn combine(&self, operands: &Operands, base: Option<(Kind, &[u8])>) -> Result<Vec<u8>>;
}

/// A reader's cursor over any source of versions: shows each key at most once, only live versions, in both directions.
#[derive(Debug)]
pub struct VisibleCursor<C> {
    pub(super) inner: C,
    compare: Comparator,
    pub(super) snapshot: SeqNo,
    pub(super) now: u64,
    scope: Scope,
    place: Position,
    stash: Stash,
    hidden: u64,
    /// Start of the deleted keys that the current scan passes.
    fresh_from: SeqNo,
    fresh_dead: u64,
    /// Set for a reader to which no more rows become visible.
    dead: Option<DeadStretches>,
    /// Set for a family with a merge operator.
    combine: Option<Arc<dyn Combine>>,
    operands: Operands,
}

/// The version shown when iterating backward. `key` also holds the key whose remaining versions are skipped.
#[derive(Debug, Default)]
struct Stash {
    key: Vec<u8>,
    entry_meta: EntryMeta,
    value: Vec<u8>,
    /// Why there is no combined value.
    failed: Option<Error>,
}

impl<C: EntryCursor> VisibleCursor<C> {
    /// Shows `inner` as of sequence number `snapshot` and wall time `now` (milliseconds since the UNIX epoch), without bounds.
    pub fn new(inner: C, compare: Comparator, snapshot: SeqNo, now: u64) -> Self {
        Self {
            inner,
            compare,
            snapshot,
            now,
            scope: Scope::default(),
            place: Position::Nowhere,
            stash: Stash::default(),
            hidden: 0,
            fresh_from: SeqNo::MAX,
            fresh_dead: 0,
            dead: None,
            combine: None,
            operands: Operands::default(),
        }
    }

    /// Combines operands by `combine`.
    #[must_use]
    pub fn combining(mut self, combine: Option<Arc<dyn Combine>>) -> Self {
        self.combine = combine;
        self
    }

    /// Returns the bytes that the buffers of the version shown take.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.stash.key.capacity() + self.stash.value.capacity() + self.operands.memory_bytes()
    }

    /// Returns the time at which expiry is judged, in milliseconds since the UNIX epoch.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the scope: only keys within its bounds are shown. With `keys_only`, [`EntryCursor::entry`] and [`EntryCursor::value`]
    /// must not be called.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns how many keys were skipped since creation because their newest version was a tombstone or had expired.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Counts the keys that are skipped because of a tombstone from `seq` on.
    #[must_use]
    pub fn counting_from(mut self, seq: SeqNo) -> Self {
        self.fresh_from = seq;
        self
    }

    /// Returns the number of these keys since they were last [taken](Self::take_fresh_dead).
    #[inline]
    pub fn fresh_dead(&self) -> u64 {
        self.fresh_dead
    }

    /// As [`Self::fresh_dead`]; counts from nothing.
    pub fn take_fresh_dead(&mut self) -> u64 {
        std::mem::take(&mut self.fresh_dead)
    }

    #[inline]
    fn is_dead(&self, entry_meta: EntryMeta) -> bool {
        entry_meta.kind().is_tombstone() || has_passed(entry_meta.expiry(), self.now)
    }

    /// Returns whether the inner cursor stands on a version of the remembered key.
    #[inline]
    fn same_key(&self) -> bool {
        let (a, b) = (self.inner.key(), self.stash.key.as_slice());
        if self.compare.is_bytewise() { a == b } else { self.compare.compare(a, b).is_eq() }
    }

    /// Whether the inner cursor stands above the scope. Where there is no upper bound, its key is not looked at.
    #[inline]
    fn is_above(&self) -> bool {
        self.scope.is_bounded() && self.scope.is_above(&self.compare, self.inner.key())
    }

    #[inline]
    fn remember_key(&mut self) {
        self.stash.key.clear();
        self.stash.key.extend_from_slice(self.inner.key());
    }

    /// Moves to the first key after the remembered one. In byte order, the successor of a key is the key followed by a
    /// zero byte.
    fn seek_after_key(&mut self) -> Result<()> {
        if self.compare.is_bytewise() {
            self.stash.key.push(0);
            let sought = self.inner.seek(&self.stash.key);
            self.stash.key.pop();
            return sought;
        }
        self.inner.seek(&self.stash.key)?;
        if self.inner.valid() && self.same_key() { self.inner.next_key() } else { Ok(()) }
    }

    /// Moves from the value in the stash, shown at `place`, to the next key.
    #[cold]
    fn leave_stash(&mut self, place: Position) -> Result<()> {
        match place {
            Position::Combined if self.inner.valid() && self.same_key() => self.inner.next_key(),
            Position::Combined => Ok(()),
            _ => self.seek_after_key(),
        }
    }

    /// Moves from a version of the remembered key to the last version of the previous key.
    fn leave_backward(&mut self) -> Result<()> {
        let mut left = WALK_MAX;
        while self.inner.valid() && self.same_key() {
            // A source that grows may have received newer versions since the last seek.
            if left > 0 {
                self.inner.prev()?;
                left -= 1;
            } else {
                self.leave_backward_far()?;
                left = WALK_MAX;
            }
        }
        Ok(())
    }

    /// Moves to the last entry before the newest version of the remembered key.
    #[cold]
    fn leave_backward_far(&mut self) -> Result<()> {
        self.inner.seek(&self.stash.key)?;
        if self.inner.valid() { self.inner.prev() } else { self.inner.seek_to_last() }
    }

    /// Moves one entry forward among versions above the snapshot, `newer` of which were passed in a row. Returns the
    /// new count. If the last versions all belong to one key, seeks to the version of that key that the snapshot sees.
    #[cold]
    fn pass_newer(&mut self, newer: usize, passed: &mut Passed) -> Result<usize> {
        if newer == WALK_MAX {
            self.remember_key();
        } else if newer == 2 * WALK_MAX {
            if self.same_key() {
                self.inner.seek_version(&self.stash.key, self.snapshot)?;
                return Ok(0);
            }
            passed.count_many(); // the remembered key has nothing but newer versions
            return self.leap_forward(*passed, true).map(|()| 0);
        }
        self.inner.next()?;
        Ok(newer + 1)
    }

    /// Moves forward from a key without a row, the remembered one or else that of the inner cursor, over all of which that is known.
    #[cold]
    #[inline(never)]
    fn leap_forward(&mut self, passed: Passed, remembered: bool) -> Result<()> {
        if let Some(dead) = &mut self.dead {
            let key = if remembered { &self.stash.key } else { self.inner.key() };
            if let Some(end) = dead.look(&self.compare, key, passed, false)
                && self.compare.compare(end, self.inner.key()).is_gt()
            {
                return self.inner.seek(end);
            }
        }
        if remembered { self.inner.next() } else { self.inner.next_key() }
    }

    /// Moves backward from the remembered key, in which there is no row, over all of which that is known.
    #[cold]
    #[inline(never)]
    fn leap_backward(&mut self, passed: Passed) -> Result<()> {
        if let Some(dead) = &mut self.dead
            && let Some(end) = dead.look(&self.compare, &self.stash.key, passed, true)
        {
            return self.inner.seek_for_prev(end);
        }
        Ok(())
    }

    /// Notes that a key was skipped because of its version `seq`.
    #[inline]
    fn pass_dead(&mut self, seq: SeqNo) {
        self.hidden += 1;
        self.fresh_dead += u64::from(seq >= self.fresh_from);
    }

    /// Moves to the row after the copied rows. Not inlined: a step of the cursor does so once in many rows.
    ///
    /// # Errors
    /// Errors of a step.
    pub fn resume(&mut self) -> Result<()> {
        self.find_forward()
    }

    /// Moves forward from the first version of some key to the first visible version.
    #[inline]
    fn find_forward(&mut self) -> Result<()> {
        let (mut newer, mut passed) = (0, Passed::default());
        while self.inner.valid() && !self.is_above() {
            let entry_meta = self.inner.entry_meta();
            if entry_meta.seq > self.snapshot {
                if newer < WALK_MAX {
                    self.inner.next()?;
                    newer += 1;
                } else {
                    newer = self.pass_newer(newer, &mut passed)?;
                }
                continue;
            }
            newer = 0;
            if entry_meta.kind().is_put() && !has_passed(entry_meta.expiry(), self.now) {
                self.place = Position::OnEntry;
                break;
            }
            if entry_meta.kind().is_operand() {
                return self.show_entry(entry_meta);
            }
            self.pass_dead(entry_meta.seq);
            if passed.count() {
                self.leap_forward(passed, false)?;
            } else {
                self.inner.next_key()?;
            }
        }
        Ok(())
    }

    /// Shows the entry on which the inner cursor stands, a live one.
    #[inline]
    fn show_entry(&mut self, entry_meta: EntryMeta) -> Result<()> {
        if entry_meta.kind().is_operand() && !self.scope.keys_only {
            return self.show_combined(entry_meta);
        }
        self.place = Position::OnEntry;
        Ok(())
    }

    /// Shows the combination of the operand on which the inner cursor stands and the older versions.
    #[cold]
    fn show_combined(&mut self, entry_meta: EntryMeta) -> Result<()> {
        self.remember_key();
        self.operands.clear();
        while self.inner.valid() && self.same_key() && self.inner.kind().is_operand() {
            self.operands.push(self.inner.value()?);
            self.inner.next()?;
        }
        let base = self.inner.valid() && self.same_key() && !self.is_dead(self.inner.entry_meta());
        let base = match base {
            true => self.inner.entry().map(|(_, kind, value)| Some((kind, value)))?,
            false => None,
        };
        let none = || Err(Error::internal("an operand in a family without a merge operator"));
        let combined =
            self.combine.as_ref().map_or_else(none, |combine| combine.combine(&self.operands, base));
        // An operator that fails does not end the scan: only the value cannot be read.
        self.stash.failed = None;
        match combined {
            Ok(value) => self.stash.value = value,
            Err(e @ Error::Merge { .. }) => self.stash.failed = Some(e),
            Err(e) => return Err(e),
        }
        self.stash.entry_meta = EntryMeta::new(entry_meta.seq, Kind::Put, 0);
        self.place = Position::Combined;
        Ok(())
    }

    /// Copies the current row and following rows of one source to `rows`, which must be empty. Stops at the first row
    /// that needs more work. If anything was copied, the cursor is invalid until [`VisibleCursor::resume`] moves it to
    /// the row after them, which may be far away.
    ///
    /// # Errors
    /// Errors of reading past the copied rows; the cursor is then invalid.
    pub fn take_rows(&mut self, rows: &mut Rows) -> Result<()> {
        if self.place != Position::OnEntry || self.scope.keys_only {
            return Ok(());
        }
        let bytewise = self.compare.is_bytewise();
        let end = self.scope.end().filter(|_| bytewise);
        let reader = ReadPoint { seq: self.snapshot, now: self.now };
        self.place = Position::Nowhere;
        let copied = self.inner.copy_rows(reader, end, rows);
        // In other orders sources do not compare with the bound.
        if !bytewise && rows.truncate(|key| !self.scope.is_above(&self.compare, key)) {
            return Ok(());
        }
        copied?;
        if rows.is_empty() {
            self.place = Position::OnEntry;
        }
        Ok(())
    }

    /// Moves backward from the oldest version of some key to the first visible key.
    fn find_backward(&mut self) -> Result<()> {
        let mut passed = Passed::default();
        while self.inner.valid() && !self.scope.is_below(&self.compare, self.inner.key()) {
            self.remember_key();
            if self.show_key_backward()? {
                return Ok(());
            }
            if passed.count() {
                self.leap_backward(passed)?;
            }
        }
        Ok(())
    }

    /// Starts at the oldest version of the remembered key. Shows the newest visible version if it is live; otherwise
    /// moves to the previous key and returns `false`.
    fn show_key_backward(&mut self) -> Result<bool> {
        let mut seen = 0;
        let mut newest = 0;
        let (mut live, mut operand) = (false, false);
        while self.inner.valid() && self.same_key() {
            let entry_meta = self.inner.entry_meta();
            if entry_meta.seq > self.snapshot {
                break;
            }
            seen += 1;
            if seen == WALK_MAX {
                return self.show_key_by_seek();
            }
            newest = entry_meta.seq;
            live = !self.is_dead(entry_meta);
            operand = entry_meta.kind().is_operand() && !self.scope.keys_only;
            if live && !operand {
                self.keep_version(entry_meta)?;
            }
            self.inner.prev()?;
        }
        if operand {
            return self.show_key_by_seek();
        }
        self.leave_backward()?;
        if live {
            self.place = Position::Stashed;
        } else if seen > 0 {
            self.pass_dead(newest);
        }
        Ok(live)
    }

    /// Does the work of `show_key_backward` for a key with many versions, at least one of them at or below the
    /// snapshot.
    #[cold]
    fn show_key_by_seek(&mut self) -> Result<bool> {
        self.inner.seek_version(&self.stash.key, self.snapshot)?;
        let found = self.inner.valid() && self.same_key();
        if found && !self.is_dead(self.inner.entry_meta()) {
            self.show_entry(self.inner.entry_meta())?;
            return Ok(true);
        }
        self.hidden += 1;
        if !found {
            self.inner.seek_for_prev(&self.stash.key)?;
        }
        self.leave_backward()?;
        Ok(false)
    }

    fn keep_version(&mut self, entry_meta: EntryMeta) -> Result<()> {
        self.stash.entry_meta = entry_meta;
        self.stash.value.clear();
        if !self.scope.keys_only {
            self.stash.value.extend_from_slice(self.inner.value()?);
        }
        Ok(())
    }
}

impl<C: EntryCursor> VisibleCursor<HidingCursor<MergeCursor<C>>> {
    /// Calls `visit` with each of the sources that it merges, in their order.
    pub fn each_source(&mut self, visit: impl FnMut(&mut C)) {
        self.inner.inner.children.iter_mut().for_each(visit);
    }
}

impl<C: EntryCursor> VisibleCursor<HidingCursor<C>> {
    /// Remembers where there is no row. Only for a reader at a fixed sequence number whose sources get no visible entries.
    pub fn begin_to_remember(&mut self) {
        (self.dead, self.inner.dead) = (Some(DeadStretches::default()), Some(DeadStretches::default()));
    }

    /// Remembers what `other` does, a reader at the same sequence number.
    pub fn remember(&mut self, other: &mut Self) {
        let (dead, hidden) = (other.dead.take(), other.inner.dead.take());
        let is_later = other.now <= self.now; // what has expired for it has expired for this one
        self.dead = Some(dead.filter(|_| is_later).unwrap_or_default());
        self.inner.dead = Some(hidden.unwrap_or_default());
    }

    /// Returns the bytes of what it remembers.
    #[inline]
    pub fn remembered_bytes(&self) -> usize {
        let bytes = |dead: &Option<DeadStretches>| dead.as_ref().map_or(0, DeadStretches::bytes);
        bytes(&self.dead) + bytes(&self.inner.dead)
    }
}

impl<C: EntryCursor> EntryCursor for VisibleCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.place != Position::Nowhere
    }

    fn set_scope(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.place = Position::Nowhere;
        self.inner.set_scope(scope);
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.place = Position::Nowhere;
        match self.scope.low() {
            Bound::Unbounded => self.inner.seek_to_first()?,
            Bound::Included(low) | Bound::Excluded(low) => self.inner.seek(low)?,
        }
        if self.inner.valid() && self.scope.is_below(&self.compare, self.inner.key()) {
            self.inner.next_key()?;
        }
        self.find_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.place = Position::Nowhere;
        match self.scope.high() {
            Bound::Unbounded => self.inner.seek_to_last()?,
            Bound::Included(high) | Bound::Excluded(high) => self.inner.seek_for_prev(high)?,
        }
        if self.inner.valid() && self.is_above() {
            self.remember_key();
            self.leave_backward()?;
        }
        self.find_backward()
    }

    /// Moves to the first visible key at or after `target` and within the bounds.
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        if self.scope.is_below(&self.compare, target) {
            return self.seek_to_first();
        }
        self.place = Position::Nowhere;
        if self.scope.is_above(&self.compare, target) {
            return Ok(());
        }
        self.inner.seek(target)?;
        self.find_forward()
    }

    /// Moves to the visible version of `target` if it is at or below `seq`, otherwise to the first visible key after
    /// it.
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.seek(target)?;
        if self.valid() && self.compare.compare(self.key(), target).is_eq() && self.seq() > seq {
            return self.next();
        }
        Ok(())
    }

    /// Moves to the last visible key at or before `target` and within the bounds.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        if self.scope.is_above(&self.compare, target) {
            return self.seek_to_last();
        }
        self.place = Position::Nowhere;
        if self.scope.is_below(&self.compare, target) {
            return Ok(());
        }
        self.inner.seek_for_prev(target)?;
        self.find_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        let place = std::mem::replace(&mut self.place, Position::Nowhere);
        if place == Position::OnEntry {
            self.inner.next_key()?;
        } else {
            self.leave_stash(place)?;
        }
        self.find_forward()
    }

    /// Same as `next`: no key is shown twice.
    fn next_key(&mut self) -> Result<()> {
        self.next()
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        match std::mem::replace(&mut self.place, Position::Nowhere) {
            Position::OnEntry => {
                self.remember_key();
                self.leave_backward()?;
            }
            Position::Combined => {
                self.leave_backward_far()?;
                self.leave_backward()?;
            }
            _ => {}
        }
        self.find_backward()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.place == Position::OnEntry { self.inner.key() } else { &self.stash.key }
    }

    #[inline(always)]
    fn entry_meta(&self) -> EntryMeta {
        if self.place == Position::OnEntry { self.inner.entry_meta() } else { self.stash.entry_meta }
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        if self.place == Position::OnEntry {
            return self.inner.entry();
        }
        if let Some(e) = self.stash.failed.as_ref().filter(|_| self.place == Position::Combined) {
            return Err(e.clone());
        }
        Ok((&self.stash.key, self.stash.entry_meta.kind(), &self.stash.value))
    }
}
