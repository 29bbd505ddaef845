//! The cost of reads that look into sorted runs which hold nothing for them, so that merges are planned from which these reads would
//! gain.
//!
//! A read that looks into several sorted runs finds its row in one of them; after a merge it would not look into the others. Reads are
//! charged for these others, and a merge that leaves fewer runs is due once they have cost as much as the merge will. So the merges
//! cost at most what reads have spent already; a family that is not read, and one with a single run, see no change.
//!
//! A thread adds its charges to the shared counter once in [`BATCH`], so reads of many threads do not contend. A batch is charged to
//! the family whose read fills it: on average, each family is charged its share.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FamilyIndex;
use crate::types::FamilyId;

/// Charge of a get for a table that does not have its key: mostly the cost of a filter that said no.
pub const GET_CHARGE: u32 = 1;
/// Charge of a seek for each run above the first: its position in each is a search, often a block.
pub const SEEK_CHARGE: u32 = 8;
/// Charge for which a merge rewrites one entry; both cost about 1 us.
const CHARGE_PER_ENTRY: u64 = 8;
/// Charges that a thread keeps before it adds them to the counter.
const BATCH: u32 = 1024;
/// Minimum charges before the planner is asked for a merge.
const DUE_MIN: u64 = 64 * BATCH as u64;

thread_local! {
    static KEPT: Cell<u32> = const { Cell::new(0) };
}

/// Charges of one family since merges last subtracted theirs.
#[derive(Debug)]
pub struct Probes {
    family: FamilyId,
    index: Arc<FamilyIndex>,
    charged: AtomicU64,
    /// The charges when the planner was last asked for a merge.
    looked_at: AtomicU64,
}

impl Probes {
    /// No charges of `family`. Tells `index` when a merge may be due.
    pub fn new(family: FamilyId, index: &Arc<FamilyIndex>) -> Self {
        let (charged, looked_at) = Default::default();
        Self { family, index: Arc::clone(index), charged, looked_at }
    }

    /// Charges a read.
    #[inline]
    pub fn charge(&self, n: u32) {
        let kept = KEPT.get().saturating_add(n);
        if kept < BATCH {
            return KEPT.set(kept);
        }
        KEPT.set(0);
        self.charged.fetch_add(kept.into(), Ordering::Relaxed);
        if self.is_due() {
            self.index.sweep_next(self.family);
        }
    }

    /// Returns true if the planner should be asked for a merge: the charges have doubled since it was asked last.
    pub fn is_due(&self) -> bool {
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        self.charged.load(Ordering::Relaxed) >= looked_at.saturating_mul(2).max(DUE_MIN)
    }

    /// Returns the number of entries that a merge may rewrite for the current charges.
    pub fn look(&self) -> u64 {
        let charged = self.charged.load(Ordering::Relaxed);
        if charged < DUE_MIN {
            return 0;
        }
        self.looked_at.store(charged, Ordering::Relaxed);
        charged / CHARGE_PER_ENTRY
    }

    /// Subtracts the cost of a merge of `entries`, which was installed, from the charges.
    pub fn credit(&self, entries: u64) {
        let credit = entries.saturating_mul(CHARGE_PER_ENTRY);
        let left = |charged: u64| Some(charged.saturating_sub(credit));
        let _always_some = self.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        self.looked_at.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_come_in_batches_and_are_credited() {
        let index = Arc::default();
        let probes = Probes::new(FamilyId(7), &index);
        let charge = |n: u64| (0..n).for_each(|_| probes.charge(SEEK_CHARGE));
        charge(DUE_MIN / u64::from(SEEK_CHARGE) - u64::from(BATCH));
        assert_eq!((probes.is_due(), probes.look()), (false, 0), "below the least");
        assert_eq!(index.to_sweep(), 0);
        charge(2 * u64::from(BATCH));
        assert!(probes.is_due() && index.to_sweep() == 1, "the next sweep looks at the family");
        let entries = probes.look();
        assert!(
            entries >= DUE_MIN / CHARGE_PER_ENTRY && !probes.is_due(),
            "not again before as much was charged"
        );
        charge(entries + u64::from(BATCH));
        assert!(probes.is_due());
        probes.credit(u64::MAX);
        assert_eq!((probes.is_due(), probes.look()), (false, 0));
    }
}
