//! What a reader sees: for each key the newest version at or below a sequence number, unless that one is a tombstone
//! or has expired. A dead newest version hides its key; it never uncovers an older one.
//!
//! Forward, the cursor stands on the version it shows. Backward, the newest visible version of a key is known only
//! after the walk has left the key, so the version is kept in buffers; a key with many versions is
//! positioned by a seek instead. The buffers are re-used: nothing is allocated once they are warm.

use std::ops::Bound;

use crate::Result;
use crate::types::{Comparator, EntryCursor, Rows, Scope, SeqNo, Sight, Stamp, Stored};

/// Versions walked over before the cursor seeks past the others of their key.
const WALK_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not valid.
    Nowhere,
    /// The inner cursor stands on the version shown.
    OnEntry,
    /// The version shown is in the stash; the inner cursor stands before all versions of its key, or before the start.
    Stashed,
}

/// A reader's cursor over any source of versions: each key at most once, only live ones, both ways.
#[derive(Debug)]
pub struct VisibleCursor<C> {
    inner: C,
    compare: Comparator,
    snapshot: SeqNo,
    now: u32,
    scope: Scope,
    place: Place,
    stash: Stash,
    hidden: u64,
    /// Tombstones from this sequence number on are in the active memtable.
    fresh_from: SeqNo,
    /// Keys skipped because of those.
    fresh_dead: u64,
}

/// The version shown when walking backward. `key` also remembers the key whose further versions are skipped.
#[derive(Debug, Default)]
struct Stash {
    key: Vec<u8>,
    stamp: Stamp,
    value: Vec<u8>,
}

impl<C: EntryCursor> VisibleCursor<C> {
    /// Shows `inner` as of sequence number `snapshot` and wall time `now` (UNIX seconds), without bounds.
    pub fn new(inner: C, compare: Comparator, snapshot: SeqNo, now: u32) -> Self {
        Self {
            inner,
            compare,
            snapshot,
            now,
            scope: Scope::default(),
            place: Place::Nowhere,
            stash: Stash::default(),
            hidden: 0,
            fresh_from: SeqNo::MAX,
            fresh_dead: 0,
        }
    }

    /// The time as of which it looks, in UNIX seconds.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Looks as of another sequence number and time. The cursor must be positioned again.
    pub fn set_view(&mut self, snapshot: SeqNo, now: u32) {
        self.snapshot = snapshot;
        self.now = now;
        self.place = Place::Nowhere;
    }

    /// What is shown: only keys within the bounds, and with `keys_only` no values: [`EntryCursor::entry`] and [`EntryCursor::value`]
    /// must not be called then.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Keys skipped because their newest version was a tombstone or had expired, since the cursor was made.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Counts the keys that are skipped because of a tombstone from `seq` on.
    #[must_use]
    pub fn counting_from(mut self, seq: SeqNo) -> Self {
        self.fresh_from = seq;
        self
    }

    /// How many they were since they were last [taken](Self::take_fresh_dead).
    #[inline]
    pub fn fresh_dead(&self) -> u64 {
        self.fresh_dead
    }

    /// As [`Self::fresh_dead`]; counts from nothing.
    pub fn take_fresh_dead(&mut self) -> u64 {
        std::mem::take(&mut self.fresh_dead)
    }

    /// The source.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    /// Gives the source back.
    pub fn into_inner(self) -> C {
        self.inner
    }

    #[inline]
    fn is_dead(&self, stamp: Stamp) -> bool {
        stamp.kind.is_tombstone() || (stamp.expiry != 0 && stamp.expiry <= self.now)
    }

    /// Whether the inner cursor stands on a version of the remembered key.
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

    /// To the first key after the remembered one: in byte order the next possible key is the key and a zero.
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

    /// From a version of the remembered key to the last version of the key before.
    fn leave_backward(&mut self) -> Result<()> {
        let mut left = WALK_MAX;
        while self.inner.valid() && self.same_key() {
            // A source that grows may have got newer versions since the last seek.
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

    /// To the last entry before the newest version of the remembered key.
    #[cold]
    fn leave_backward_far(&mut self) -> Result<()> {
        self.inner.seek(&self.stash.key)?;
        if self.inner.valid() { self.inner.prev() } else { self.inner.seek_to_last() }
    }

    /// One entry on among versions above the snapshot, after `passed` of them without a break; how many it is then. If all
    /// of the last ones were of one key, to the version of that key that the snapshot sees.
    #[cold]
    fn pass_newer(&mut self, passed: usize) -> Result<usize> {
        if passed == WALK_MAX {
            self.remember_key();
        } else if passed == 2 * WALK_MAX && self.same_key() {
            self.inner.seek_version(&self.stash.key, self.snapshot)?;
            return Ok(0);
        }
        self.inner.next()?;
        Ok(if passed < 2 * WALK_MAX { passed + 1 } else { 0 })
    }

    /// Notes that a key was skipped because of its version `seq`.
    #[inline]
    fn pass_dead(&mut self, seq: SeqNo) {
        self.hidden += 1;
        self.fresh_dead += u64::from(seq >= self.fresh_from);
    }

    /// From the first version of some key on, finds the first visible one.
    #[inline]
    fn find_forward(&mut self) -> Result<()> {
        let mut newer = 0;
        while self.inner.valid() && !self.is_above() {
            let stamp = self.inner.stamp();
            if stamp.seq > self.snapshot {
                if newer < WALK_MAX {
                    self.inner.next()?;
                    newer += 1;
                } else {
                    newer = self.pass_newer(newer)?;
                }
                continue;
            }
            newer = 0;
            if !self.is_dead(stamp) {
                self.place = Place::OnEntry;
                break;
            }
            self.pass_dead(stamp.seq);
            self.inner.next_key()?;
        }
        Ok(())
    }

    /// Copies to `rows`, which is empty, the row stood on and those after it that are of one source and take but a look each. If there was
    /// anything to copy the cursor is not valid until [`VisibleCursor::resume`] takes it to the row after them, which may be
    /// a long way.
    ///
    /// # Errors
    /// Those of what comes after the rows that were copied; the cursor is then not valid.
    pub fn take_rows(&mut self, rows: &mut Rows) -> Result<()> {
        if self.place != Place::OnEntry || self.scope.keys_only {
            return Ok(());
        }
        let bytewise = self.compare.is_bytewise();
        let end = self.scope.end().filter(|_| bytewise);
        let sight = Sight { seq: self.snapshot, now: self.now };
        self.place = Place::Nowhere;
        let copied = self.inner.copy_rows(sight, end, rows);
        // In other orders sources do not compare with the bound.
        if !bytewise && rows.truncate(|key| !self.scope.is_above(&self.compare, key)) {
            return Ok(());
        }
        copied?;
        if rows.is_empty() {
            self.place = Place::OnEntry;
        }
        Ok(())
    }

    /// To the row after those that were taken.
    ///
    /// # Errors
    /// Those of a step.
    pub fn resume(&mut self) -> Result<()> {
        self.find_forward()
    }

    /// From the oldest version of some key back, finds the first key that is visible.
    fn find_backward(&mut self) -> Result<()> {
        while self.inner.valid() && !self.scope.is_below(&self.compare, self.inner.key()) {
            self.remember_key();
            if self.show_key_backward()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// From the oldest version of the remembered key: shows the newest visible version, if it is live, else goes to
    /// the key before and returns `false`.
    fn show_key_backward(&mut self) -> Result<bool> {
        let mut seen = 0;
        let mut newest = 0;
        let mut live = false;
        while self.inner.valid() && self.same_key() {
            let stamp = self.inner.stamp();
            if stamp.seq > self.snapshot {
                break;
            }
            seen += 1;
            if seen == WALK_MAX {
                return self.show_key_by_seek();
            }
            newest = stamp.seq;
            live = !self.is_dead(stamp);
            if live {
                self.keep_version(stamp)?;
            }
            self.inner.prev()?;
        }
        self.leave_backward()?;
        if live {
            self.place = Place::Stashed;
        } else if seen > 0 {
            self.pass_dead(newest);
        }
        Ok(live)
    }

    /// As `show_key_backward`, when there are many versions, at least one of them not newer than the snapshot.
    #[cold]
    fn show_key_by_seek(&mut self) -> Result<bool> {
        self.inner.seek_version(&self.stash.key, self.snapshot)?;
        let found = self.inner.valid() && self.same_key();
        if found && !self.is_dead(self.inner.stamp()) {
            self.place = Place::OnEntry;
            return Ok(true);
        }
        self.hidden += 1;
        if !found {
            self.inner.seek_for_prev(&self.stash.key)?;
        }
        self.leave_backward()?;
        Ok(false)
    }

    fn keep_version(&mut self, stamp: Stamp) -> Result<()> {
        self.stash.stamp = stamp;
        self.stash.value.clear();
        if !self.scope.keys_only {
            self.stash.value.extend_from_slice(self.inner.value()?);
        }
        Ok(())
    }
}

impl<C: EntryCursor> EntryCursor for VisibleCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.place != Place::Nowhere
    }

    fn set_scope(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.place = Place::Nowhere;
        self.inner.set_scope(scope);
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.place = Place::Nowhere;
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
        self.place = Place::Nowhere;
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

    /// To the first visible key at or after `target` and within the bounds.
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        if self.scope.is_below(&self.compare, target) {
            return self.seek_to_first();
        }
        self.place = Place::Nowhere;
        if self.scope.is_above(&self.compare, target) {
            return Ok(());
        }
        self.inner.seek(target)?;
        self.find_forward()
    }

    /// To the version of `target` that is shown, if it is at or below `seq`, else to the first visible key after it.
    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.seek(target)?;
        if self.valid() && self.compare.compare(self.key(), target).is_eq() && self.seq() > seq {
            return self.next();
        }
        Ok(())
    }

    /// To the last visible key at or before `target` and within the bounds.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        if self.scope.is_above(&self.compare, target) {
            return self.seek_to_last();
        }
        self.place = Place::Nowhere;
        if self.scope.is_below(&self.compare, target) {
            return Ok(());
        }
        self.inner.seek_for_prev(target)?;
        self.find_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        let place = std::mem::replace(&mut self.place, Place::Nowhere);
        if place == Place::OnEntry {
            self.inner.next_key()?;
        } else {
            self.seek_after_key()?;
        }
        self.find_forward()
    }

    /// As `next`: no key is shown twice.
    fn next_key(&mut self) -> Result<()> {
        self.next()
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        let place = std::mem::replace(&mut self.place, Place::Nowhere);
        if place == Place::OnEntry {
            self.remember_key();
            self.leave_backward()?;
        }
        self.find_backward()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.place == Place::Stashed { &self.stash.key } else { self.inner.key() }
    }

    #[inline(always)]
    fn stamp(&self) -> Stamp {
        if self.place == Place::Stashed { self.stash.stamp } else { self.inner.stamp() }
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        if self.place != Place::Stashed {
            return self.inner.entry();
        }
        Ok((&self.stash.key, self.stash.stamp.kind, &self.stash.value))
    }
}
