//! A cursor follows the tree: it moves to newer tables at the same sequence number.
//!
//! A cursor shows one moment, but not from the same files for as long as it lives: after a merge the newer tables are faster to read, and
//! the older ones can be removed. So a seek first looks whether the view of the family was replaced, which costs one load, and takes the
//! new one if it was. A cursor that only steps looks once in [`LOOK_EVERY`] steps and seeks its current key in the new view.
//!
//! The rows are the same in each view that is taken while the sequence number is registered:
//! [`Snapshots::register_cursor`](crate::mvcc::Snapshots::register_cursor). Only expiry is judged anew. A merge drops what has expired when
//! it begins, so the tables that it writes need a reader whose time is later.

use std::ops::Deref;
use std::sync::Arc;

use super::open::{base_bytes, runs};
use super::{Cursor, ReaderCursor};
use crate::Result;
use crate::context::ReadCtx;
use crate::family::{FamilyCore, ReadView, SEEK_CHARGE};
use crate::mvcc::{CursorPlace, SnapshotPin, TimePin};
use crate::stats::counts::{self, Counter};
use crate::types::{EntryCursor, ReadPoint, SeqNo};

/// Steps after which a cursor looks for newer tables. A step shows up to 16 rows. Few in tests, whose families have few rows.
const LOOK_EVERY: u32 = if cfg!(any(test, simulated)) { 8 } else { 1024 };

/// When a cursor that steps looks for newer tables. While a profile of its thread runs, it looks after each step, to count it.
#[derive(Debug)]
pub(super) struct Looks {
    /// Steps up to the next look.
    left: u32,
    /// Steps between the looks.
    span: u32,
    /// Steps at the last look since it looked for newer tables.
    steps: u32,
    /// [`ReaderCursor::hidden`] when it was last counted.
    hidden: u64,
}

impl Default for Looks {
    fn default() -> Self {
        Self { left: LOOK_EVERY, span: LOOK_EVERY, steps: 0, hidden: 0 }
    }
}

impl Looks {
    /// Prepares to count what the next move passes; `hidden` is [`ReaderCursor::hidden`].
    #[cold]
    #[inline(never)]
    pub(super) fn begin(&mut self, hidden: u64) {
        self.hidden = hidden;
        if counts::is_running() {
            self.restart(1);
        }
    }

    /// Counts the row on which the cursor stands, if it is valid, and what it passed before, for the profile of this thread, if one runs.
    #[cold]
    #[inline(never)]
    pub(super) fn count_row(&mut self, is_valid: bool, hidden: u64) {
        if counts::is_running() {
            self.restart(1);
            counts::add(Counter::Rows, u64::from(is_valid));
            counts::add(Counter::DeadKeys, hidden.saturating_sub(self.hidden));
            self.hidden = hidden;
        }
    }

    /// Looks again after `span` steps.
    fn restart(&mut self, span: u32) {
        self.steps += self.span - self.left;
        (self.left, self.span) = (span, span);
    }
}

/// How a cursor follows the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// It keeps the view of its creation: it reads uncommitted rows, or lives as long as one call.
    Never,
    /// It judges expiry as of its last move.
    InTime,
    /// It judges expiry as of its creation: merges keep what its transaction has seen.
    KeepingTime,
}

/// What a cursor reads of the database, and the registration of its sequence number.
#[derive(Debug)]
pub(super) struct Registered {
    reads: Arc<ReadCtx>,
    place: Option<CursorPlace>,
    /// For the cursor of a transaction that checks for conflicts.
    time: Option<TimePin>,
}

impl Registered {
    /// Registers nothing.
    pub(super) fn none(reads: &Arc<ReadCtx>) -> Self {
        Self { reads: Arc::clone(reads), place: None, time: None }
    }

    /// Registers the newest visible commit, and returns its number too. The caller takes its view afterwards.
    pub(super) fn newest(reads: &Arc<ReadCtx>) -> (Self, SeqNo) {
        let (place, seq) = reads.register_cursor();
        (Self { reads: Arc::clone(reads), place: Some(place), time: None }, seq)
    }

    /// Registers the number of `pin`.
    pub(super) fn at(reads: &Arc<ReadCtx>, pin: &SnapshotPin) -> Self {
        let place = Some(reads.register_cursor_at(pin.seq()));
        Self { reads: Arc::clone(reads), place, time: pin.keep_time() }
    }

    pub(super) fn follows(&self) -> Follows {
        match (&self.place, &self.time) {
            (None, _) => Follows::Never,
            (Some(_), None) => Follows::InTime,
            (Some(_), Some(_)) => Follows::KeepingTime,
        }
    }
}

impl Deref for Registered {
    type Target = Arc<ReadCtx>;

    fn deref(&self) -> &Arc<ReadCtx> {
        &self.reads
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.reads.snapshots.release_cursor(place);
        }
    }
}

/// The newest view of a family that is not dropped.
pub(super) struct NewestView {
    pub(super) view: Arc<ReadView>,
    /// [`FamilyCore::changes`] before the view was taken.
    pub(super) seen: u64,
}

impl NewestView {
    /// Takes the view.
    ///
    /// # Errors
    /// `NotFound` for a dropped family.
    pub(super) fn of(family: &FamilyCore) -> Result<Self> {
        let seen = family.changes();
        // Before the check for a drop: a drop sets the flag first and empties the view afterwards.
        let view = family.owned_view();
        family.check_usable()?;
        Ok(Self { view, seen })
    }
}

impl Cursor {
    /// Moves to the newest tables if the view of the family was replaced, because a seek follows. The position is lost.
    #[inline]
    pub(super) fn follow(&mut self) {
        if self.seen != self.family.changes() {
            self.follow_change();
        }
    }

    #[cold]
    #[inline(never)]
    fn follow_change(&mut self) {
        if let Some((view, inner)) = self.newer() {
            self.adopt(view, inner);
        }
    }

    /// Counts a step, and moves to the newest tables once in many.
    #[inline]
    pub(super) fn count_step(&mut self, backwards: bool) {
        self.looks.left -= 1;
        if self.looks.left == 0 {
            self.look(backwards);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, backwards: bool) {
        match self.counts_rows() {
            true => self.looks.count_row(self.inner.valid(), self.inner.hidden()),
            false => self.looks.restart(LOOK_EVERY),
        }
        if self.looks.steps >= LOOK_EVERY {
            self.looks.steps = 0;
            self.follow_walk(backwards);
            self.looks.hidden = self.inner.hidden();
        }
    }

    /// Returns whether a profile counts the rows of this cursor. Begins to count them if one runs.
    pub(super) fn counts_rows(&mut self) -> bool {
        let is_running = counts::is_running();
        if is_running && self.looks.span != 1 {
            self.looks.begin(self.inner.hidden());
        }
        is_running
    }

    /// Moves to the newest tables, and there to the current row, or to the next one in the direction of the walk if the row has expired.
    /// Stays if that fails: the tables that it has can be read.
    #[cold]
    #[inline(never)]
    fn follow_walk(&mut self, backwards: bool) {
        if self.seen == self.family.changes() || !self.inner.valid() {
            return;
        }
        let Some((view, mut inner)) = self.newer() else { return };
        let key = self.inner.key();
        let sought = if backwards { inner.seek_for_prev(key) } else { inner.seek(key) };
        match sought {
            Ok(()) => {
                self.stored.forget(); // it reads the tables of the old view
                self.adopt(view, inner);
            }
            Err(_) => self.seen = u64::MAX, // looks again later
        }
    }

    /// Returns the newest view and a cursor over it, not positioned yet; `None` to stay. The view of a reader beside the writer is not
    /// replaced, so its cursors stay, too.
    fn newer(&mut self) -> Option<(Arc<ReadView>, ReaderCursor)> {
        if self.follows == Follows::Never || self.reads.check_open().is_err() {
            self.seen = self.family.changes();
            return None;
        }
        let Ok(NewestView { view, seen }) = NewestView::of(&self.family) else {
            self.seen = self.family.changes(); // a cursor of a family that was dropped reads on in its view
            return None;
        };
        self.seen = seen;
        if self.view.is_same_at(self.seq, &view) {
            self.view = view;
            return None;
        }
        let now = match self.follows {
            Follows::KeepingTime => self.inner.now(),
            _ => self.reads.now(), // after the view: no merge in it has a later time
        };
        let inner = self.over_view(&view, now);
        Some((view, inner))
    }

    /// Returns a cursor over `view` with the range and the sequence number of this one, and what it remembers, not positioned yet.
    fn over_view(&mut self, view: &ReadView, now: u64) -> ReaderCursor {
        let at = ReadPoint { seq: self.seq, now };
        let mut inner = Self::merged(&self.family, view, at, self.own.as_ref());
        inner.set_scope(self.inner.scope());
        if self.remembers() {
            inner.remember(&mut self.inner);
        }
        inner
    }

    /// Reads `view` by `inner` from now on.
    fn adopt(&mut self, view: Arc<ReadView>, inner: ReaderCursor) {
        let bytes = |view: &ReadView| base_bytes(view, self.seq, runs(view)).cast_signed();
        let more = bytes(&view) - bytes(&self.view);
        self.seek_charge = seek_charge(runs(&view));
        (self.view, self.inner) = (view, inner);
        self.grow_base(more);
    }

    /// Moves to the newest tables and the current time at the same sequence number. The position is lost.
    ///
    /// # Errors
    /// `NotFound` for a dropped family, `Closed`.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.reads.check_open()?;
        let NewestView { view, seen } = NewestView::of(&self.family)?;
        self.jump();
        self.seen = seen;
        let inner = self.over_view(&view, self.reads.now());
        self.adopt(view, inner);
        Ok(())
    }
}

/// Charge of each seek for the sorted runs above the first.
pub(super) fn seek_charge(runs: u32) -> u32 {
    runs.saturating_sub(1).saturating_mul(SEEK_CHARGE)
}

/// Number of sources that `cursor` merges.
#[cfg(test)]
pub(in super::super) fn cursor_sources(cursor: &Cursor) -> usize {
    cursor.view.memtables_at(cursor.seq).count() + runs(&cursor.view) as usize
}

/// Returns true if `cursor` reads the newest view of its family.
#[cfg(test)]
pub(in super::super) fn has_newest_view(cursor: &Cursor) -> bool {
    Arc::ptr_eq(&cursor.view, &cursor.family.owned_view())
}
