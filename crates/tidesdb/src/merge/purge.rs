//! [`Purger`]: leaves out of a merge what range tombstones hide from every reader.
//!
//! A version `v` under a tombstone `t` (the oldest newer one that covers it) is seen only by readers from `v` on and before `t`.
//! If there is none, and no transaction looks for it as a conflict, it goes, tombstone or not: what it hides is older still, so hidden by `t`, too. The range tombstone stays
//! where it is, so dropping a version changes no read; [`super::retain`] then judges what is left as if it were all.

use super::RetainRules;
use crate::ranges::{Hidden, RangeSet};
use crate::types::{Comparator, SEQ_MAX, SeqNo};

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

/// Asked of each entry in order, before any other rule.
#[derive(Debug)]
pub(super) struct Purger {
    order: Comparator,
    ranges: RangeSet,
    hidden: Option<Hidden>,
    /// Entries left out.
    pub(super) dropped: u64,
    /// Nothing that was let through so far is covered by a tombstone of a number up to this one.
    pub(super) purged_to: SeqNo,
}

impl Purger {
    pub(super) fn new(purge: &Purge, order: Comparator) -> Self {
        let ranges = purge.ranges.clone();
        let hidden = Hidden::new(vec![ranges.clone()], SEQ_MAX);
        Self { order, ranges, hidden, dropped: 0, purged_to: purge.complete_to }
    }

    /// Whether the version `seq` of `key` goes.
    #[inline]
    pub(super) fn drops(&mut self, rules: &RetainRules, key: &[u8], seq: SeqNo) -> bool {
        let Some(hidden) = &mut self.hidden else { return false };
        if !hidden.covers(&self.order, key, seq) {
            return false;
        }
        let Some(by) = self.ranges.oldest_above(&self.order, key, seq) else { return false };
        if rules.reader_within(seq..by) || rules.is_evidence(seq) {
            self.purged_to = self.purged_to.min(by - 1);
            return false;
        }
        self.dropped += 1;
        true
    }
}
