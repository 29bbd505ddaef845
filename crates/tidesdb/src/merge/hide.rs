//! [`HidingCursor`]: a source without what range tombstones hide from one reader.
//!
//! A tombstone that the reader sees hides the oldest versions of a key, never a newer one before an older one. So what is left
//! may be shown as if the rest had never been.

use crate::Result;
use crate::ranges::{Hidden, tighter};
use crate::types::{Comparator, EntryCursor, Rows, SeqNo, Sight, Stamp, Stored};

/// Hidden entries after which whole tables are passed over.
const LEAP_AFTER: u64 = 8;

/// Walks `C` both ways, past what is hidden. Costs a branch where nothing is.
#[derive(Debug)]
pub struct HidingCursor<C> {
    inner: C,
    order: Comparator,
    hidden: Option<Hidden>,
}

impl<C: EntryCursor> HidingCursor<C> {
    /// Walks `inner` without what `hidden` covers.
    pub fn new(inner: C, order: Comparator, hidden: Option<Hidden>) -> Self {
        Self { inner, order, hidden }
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
        self.inner.valid() && hidden.covers(&self.order, self.inner.key(), self.inner.seq())
    }

    fn pieces(&self) -> u64 {
        self.hidden.as_ref().map_or(0, Hidden::pieces)
    }

    fn skip_forwards(&mut self) -> Result<()> {
        let mut steps = 0u64;
        let mut leap_at = LEAP_AFTER;
        while self.is_hidden() {
            self.inner.next_key()?; // what is older of this key is hidden, too
            steps += 1;
            if steps < leap_at || !self.is_hidden() {
                continue;
            }
            let Some(hidden) = &self.hidden else { continue };
            let piece = hidden.pieces();
            self.inner.skip_older(hidden.below(), hidden.high())?;
            // Where it does not help it is tried ever more seldom.
            (steps, leap_at) = match self.is_hidden() && self.pieces() == piece {
                true => (steps, leap_at * 8),
                false => (0, LEAP_AFTER),
            };
        }
        Ok(())
    }

    fn skip_backwards(&mut self) -> Result<()> {
        while self.is_hidden() {
            self.inner.prev()?;
        }
        Ok(())
    }
}

impl<C: EntryCursor> EntryCursor for HidingCursor<C> {
    /// Stays: this cursor has the sources below it skip what its range tombstones cover.
    fn skip_older(&mut self, _below: SeqNo, _until: Option<&[u8]>) -> Result<()> {
        Ok(())
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

    fn skip_dead(&mut self, seq: SeqNo, until: Option<&[u8]>, most: u64) -> Result<u64> {
        if self.is_hidden() {
            return Ok(0);
        }
        // Up to where something may be hidden: from there on there may be a leap.
        let high = self.hidden.as_ref().and_then(Hidden::high);
        let nearer = |until: &[u8], high: &[u8]| self.order.compare(until, high).is_le();
        let passed = self.inner.skip_dead(seq, tighter(until, high, nearer), most)?;
        if passed > 0 {
            self.forwards()?;
        }
        Ok(passed)
    }

    fn copy_rows(&mut self, sight: Sight, until: Option<&[u8]>, rows: &mut Rows) -> Result<()> {
        if self.hidden.is_some() { Ok(()) } else { self.inner.copy_rows(sight, until, rows) }
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
    fn stamp(&self) -> Stamp {
        self.inner.stamp()
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<Stored<'_>> {
        self.inner.entry()
    }
}
