//! [`HidingCursor`]: a source without the entries that range tombstones hide from one reader.
//!
//! A range tombstone visible to the reader hides the oldest versions of a key, never a newer version without all older
//! ones. So the remaining versions can be shown as if the hidden ones did not exist.

use super::dead::{DeadStretches, Passed};
use crate::Result;
use crate::ranges::{Hidden, tighter};
use crate::types::{Comparator, EntryCursor, EntryMeta, ReadPoint, Rows, Scope, SeqNo, Stored};

/// Hidden entries to step over before trying to skip whole tables and blocks.
const LEAP_AFTER: u64 = 8;

/// Iterates over `C` in both directions, skipping hidden entries. Costs one branch if nothing can be hidden.
#[derive(Debug)]
pub struct HidingCursor<C> {
    pub(super) inner: C,
    order: Comparator,
    hidden: Option<Hidden>,
    scope: Scope,
    /// See `VisibleCursor::begin_to_remember`.
    pub(super) dead: Option<DeadStretches>,
}

impl<C: EntryCursor> HidingCursor<C> {
    /// Creates a cursor over `inner` without the entries that `hidden` covers.
    pub fn new(inner: C, order: Comparator, hidden: Option<Hidden>) -> Self {
        Self { inner, order, hidden, scope: Scope::default(), dead: None }
    }

    #[inline]
    fn forwards(&mut self) -> Result<()> {
        if self.hidden.is_some() { self.skip_forwards() } else { Ok(()) }
    }

    #[inline]
    fn backwards(&mut self) -> Result<()> {
        if self.hidden.is_some() { self.skip_backwards() } else { Ok(()) }
    }

    #[inline]
    fn is_hidden(&mut self) -> bool {
        let Some(hidden) = &mut self.hidden else { return false };
        // Own writes that the transaction has deleted by range are left out by their source.
        self.inner.valid()
            && hidden.covers(&self.order, self.inner.key(), self.inner.seq())
            && !self.inner.is_own()
    }

    fn pieces(&self) -> u64 {
        self.hidden.as_ref().map_or(0, Hidden::pieces)
    }

    fn skip_forwards(&mut self) -> Result<()> {
        let mut steps = 0u64;
        let mut leap_at = LEAP_AFTER;
        let mut passed = Passed::default();
        while self.is_hidden() && !self.scope.is_above(&self.order, self.inner.key()) {
            if passed.count() {
                self.leap(passed, false)?;
            } else {
                self.inner.next_key()?; // older versions of this key are hidden too
            }
            steps += 1;
            // Above the scope, the sources leave entries out.
            if steps < leap_at || !self.is_hidden() || self.scope.is_above(&self.order, self.inner.key()) {
                continue;
            }
            passed.count_many();
            if self.go_around(passed, false)? {
                continue;
            }
            let Some(hidden) = &self.hidden else { continue };
            let piece = hidden.pieces();
            let until = tighter(hidden.high(), self.scope.end(), |a, b| self.order.compare(a, b).is_le());
            self.inner.skip_older(hidden.below(), until)?;
            if let Some(dead) = self.dead.as_mut().filter(|_| self.inner.valid()) {
                let is_above = self.scope.is_above(&self.order, self.inner.key());
                let end = if is_above { self.scope.end() } else { Some(self.inner.key()) };
                end.into_iter().for_each(|end| dead.pass_up_to(end));
            }
            // If the skip did not help, the next attempt is made after eight times as many steps.
            (steps, leap_at) = match self.is_hidden() && self.pieces() == piece {
                true => (steps, leap_at * 8),
                false => (0, LEAP_AFTER),
            };
        }
        Ok(())
    }

    fn skip_backwards(&mut self) -> Result<()> {
        let mut passed = Passed::default();
        while self.is_hidden() && !self.scope.is_below(&self.order, self.inner.key()) {
            if passed.count() {
                self.leap(passed, true)?;
            } else {
                self.inner.prev()?;
            }
        }
        Ok(())
    }

    /// Moves from a hidden entry over all that is known to be hidden.
    #[cold]
    #[inline(never)]
    fn leap(&mut self, passed: Passed, backwards: bool) -> Result<()> {
        if self.go_around(passed, backwards)? {
            return Ok(());
        }
        if backwards { self.inner.prev() } else { self.inner.next_key() }
    }

    /// As [`Self::leap`]; returns false if nothing is known.
    fn go_around(&mut self, passed: Passed, backwards: bool) -> Result<bool> {
        let Some(dead) = &mut self.dead else { return Ok(false) };
        match dead.look(&self.order, self.inner.key(), passed, backwards) {
            Some(end) if backwards => self.inner.seek_for_prev(end)?,
            Some(end) => self.inner.seek(end)?,
            None => return Ok(false),
        }
        Ok(true)
    }
}

impl<C: EntryCursor> EntryCursor for HidingCursor<C> {
    fn set_scope(&mut self, scope: &Scope) {
        self.scope = scope.clone();
        self.inner.set_scope(scope);
    }

    #[inline]
    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()?;
        self.forwards()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last()?;
        self.backwards()
    }

    #[inline]
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek(target)?;
        self.forwards()
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek_for_prev(target)?;
        self.backwards()
    }

    fn seek_version(&mut self, target: &[u8], seq: SeqNo) -> Result<()> {
        self.inner.seek_version(target, seq)?;
        self.forwards()
    }

    fn copy_rows(&mut self, reader: ReadPoint, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        if self.hidden.is_some() { Ok(()) } else { self.inner.copy_rows(reader, until, rows) }
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        self.inner.next_key()?;
        self.forwards()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.forwards()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.inner.prev()?;
        self.backwards()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    #[inline(always)]
    fn entry_meta(&self) -> EntryMeta {
        self.inner.entry_meta()
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        self.inner.entry()
    }
}
