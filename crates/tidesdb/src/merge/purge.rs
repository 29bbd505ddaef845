//! [`PurgeCursor`]: leaves out of a merge what range tombstones hide from every reader.
//!
//! A version `v` under a tombstone `t` (the oldest newer one that covers it) is seen only by readers from `v` on and before `t`.
//! If there is none, it goes, tombstone or not: what it hides is older still, so hidden by `t`, too. The range tombstone stays
//! where it is, so dropping a version changes no read; [`super::retain`] then judges what is left as if it were all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::RetainRules;
use crate::Result;
use crate::ranges::{Hidden, RangeSet};
use crate::types::{Comparator, EntryCursor, Kind, SEQ_MAX, SeqNo};

/// Range tombstones that a merge may rely on: whatever becomes of its output, they are in the manifest.
#[derive(Debug)]
pub struct Purge {
    /// The tombstones.
    pub ranges: RangeSet,
    /// They are all there are up to this sequence number.
    pub complete_to: SeqNo,
}

impl Purge {
    /// Of what is flushed or copied without regard to tombstones.
    pub fn nothing() -> Self {
        Self { ranges: RangeSet::default(), complete_to: 0 }
    }
}

/// Walks `C` forwards, past what is hidden.
pub struct PurgeCursor<C> {
    inner: C,
    order: Comparator,
    ranges: RangeSet,
    rules: RetainRules,
    hidden: Option<Hidden>,
    tally: Arc<PurgeTally>,
}

/// What a purge has done, for the writer of the output.
#[derive(Debug)]
pub struct PurgeTally {
    dropped: AtomicU64,
    purged_to: AtomicU64,
}

impl PurgeTally {
    /// Entries left out.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Nothing that was let through so far is covered by a tombstone of a number up to this one.
    pub fn purged_to(&self) -> SeqNo {
        self.purged_to.load(Ordering::Relaxed)
    }
}

impl<C: EntryCursor> PurgeCursor<C> {
    /// Walks `inner`, which is positioned.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn new(inner: C, order: Comparator, purge: &Purge, rules: RetainRules) -> Result<Self> {
        let tally = PurgeTally { dropped: AtomicU64::new(0), purged_to: AtomicU64::new(purge.complete_to) };
        let ranges = purge.ranges.clone();
        let hidden = Hidden::new(vec![ranges.clone()], SEQ_MAX);
        let mut this = Self { inner, order, ranges, rules, hidden, tally: Arc::new(tally) };
        this.skip()?;
        Ok(this)
    }

    /// What is done, also while the cursor is in the hands of others.
    pub fn tally(&self) -> Arc<PurgeTally> {
        Arc::clone(&self.tally)
    }

    #[inline]
    fn skip(&mut self) -> Result<()> {
        while self.hidden.is_some() && self.inner.valid() && self.drops() {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
            self.inner.next()?;
        }
        Ok(())
    }

    fn drops(&mut self) -> bool {
        let (key, seq) = (self.inner.key(), self.inner.seq());
        if !self.hidden.as_mut().is_some_and(|hidden| hidden.covers(&self.order, key, seq)) {
            return false;
        }
        let Some(by) = self.ranges.oldest_above(&self.order, key, seq) else { return false };
        if self.rules.reader_within(seq..by) {
            self.tally.purged_to.fetch_min(by - 1, Ordering::Relaxed);
            return false;
        }
        true
    }
}

impl<C: EntryCursor> EntryCursor for PurgeCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()?;
        self.skip()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        Err(crate::Error::internal("a merge walks forwards"))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek(target)?;
        self.skip()
    }

    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        Err(crate::Error::internal("a merge walks forwards"))
    }

    fn seek_version(&mut self, _: &[u8], _: SeqNo) -> Result<()> {
        Err(crate::Error::internal("a merge sees every version"))
    }

    fn next_key(&mut self) -> Result<()> {
        Err(crate::Error::internal("a merge sees every version"))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.skip()
    }

    fn prev(&mut self) -> Result<()> {
        Err(crate::Error::internal("a merge walks forwards"))
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.inner.seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    #[inline]
    fn expiry(&self) -> u32 {
        self.inner.expiry()
    }

    #[inline]
    fn value(&mut self) -> Result<&[u8]> {
        self.inner.value()
    }
}
