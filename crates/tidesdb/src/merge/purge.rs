//! [`RangeFilter`]: drops from a merge what range tombstones hide from every reader.
//!
//! Let `v` be a version and `t` the oldest newer tombstone that covers it. Only readers at or after `v` and before `t`
//! see `v`. If there is no such reader, and no transaction needs `v` to detect a conflict, `v` is dropped, whether it
//! is a tombstone or not: what `v` hides is older still, so `t` hides it too. The range tombstone itself stays, so
//! dropping `v` changes no read. [`super::retain`] then judges the remaining versions as if they were all.

use super::RetainRules;
use crate::ranges::{Hidden, RangeSet};
use crate::types::{Comparator, SEQ_MAX, SeqNo};

/// Range tombstones that a merge may rely on: they are in the manifest, whether or not the merge succeeds. The default has none, for
/// copies that do not apply range tombstones.
#[derive(Debug, Default)]
pub struct CoveringRanges {
    /// The range tombstones.
    pub ranges: RangeSet,
    /// `ranges` is complete up to this sequence number.
    pub complete_to: SeqNo,
}

/// Judges each entry in order, before any other rule.
#[derive(Debug)]
pub(super) struct RangeFilter {
    order: Comparator,
    ranges: RangeSet,
    hidden: Option<Hidden>,
    /// `ranges` is complete up to this sequence number.
    complete_to: SeqNo,
    /// Number of entries dropped.
    pub(super) dropped: u64,
    /// No tombstone with a sequence number up to this one covers any entry let through so far.
    pub(super) purged_to: SeqNo,
}

impl RangeFilter {
    pub(super) fn new(purge: &CoveringRanges, order: Comparator) -> Self {
        let ranges = purge.ranges.clone();
        let hidden = Hidden::new(vec![ranges.clone()], SEQ_MAX);
        Self {
            order,
            ranges,
            hidden,
            complete_to: purge.complete_to,
            dropped: 0,
            purged_to: purge.complete_to,
        }
    }

    /// Returns whether a range tombstone newer than version `older` of `key`, but not newer than version `newer`, covers the
    /// key; `None` if it is not known.
    pub(super) fn covers_between(&self, key: &[u8], older: SeqNo, newer: SeqNo) -> Option<bool> {
        match self.ranges.oldest_above(&self.order, key, older) {
            Some(by) if by <= newer => Some(true),
            _ => (newer <= self.complete_to).then_some(false),
        }
    }

    /// Returns whether to drop version `seq` of `key`.
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
