//! What the merges of a family owe, counted in tables of level 1.
//!
//! A table of level 1 is paid for in two steps: a merge brings it into the levels between level 1 and the largest, and later ones bring it, one
//! partition at a time, into the largest level. Each step is about half of the work. So a table in level 1 counts as one, and what the
//! levels between hold in excess of what they should hold counts half, after a free part. Then the debt falls at the same rate whichever
//! of the two runs, and writers keep one pace; if only level 1 counted, they would fill it while partitions are merged, and be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Parts in which a table of level 1 is counted.
const TABLE_PARTS: u64 = 1000;
/// Work that is left for a table of level 1 once it is in the levels between, as a part of the whole.
const HALF_PAID: f64 = 0.5;

/// What a merge pays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paid {
    /// Tables of level 1 that it reads.
    pub level_1: u64,
    /// Bytes that it brings into the levels between.
    pub sunk: u64,
    /// Bytes that it takes away from them.
    pub drained: u64,
}

/// Sums that running merges change, and what was owed when a merge was planned last.
#[derive(Debug)]
pub struct MergeDebt {
    /// Tables in level 1.
    level_1: AtomicUsize,
    /// Tables of level 1 that running merges have read, in parts of a table.
    read: Arc<AtomicU64>,
    /// What running merges have brought into the levels between, in parts of a table of level 1.
    sunk: Arc<AtomicU64>,
    /// What running merges have brought from there into the largest level.
    drained: Arc<AtomicU64>,
    /// What the levels between hold in excess, without what running merges have done; less than 0 if they have room.
    excess: AtomicI64,
    /// Bytes of a table of level 1, on average.
    table_bytes: AtomicU64,
}

impl Default for MergeDebt {
    fn default() -> Self {
        let [read, sunk, drained] = [(); 3].map(|()| Arc::default());
        let (level_1, excess) = (AtomicUsize::new(0), AtomicI64::new(0));
        Self { level_1, read, sunk, drained, excess, table_bytes: AtomicU64::new(u64::MAX) }
    }
}

impl MergeDebt {
    /// The levels between hold `excess` bytes more than they should, and a table of level 1 has `table_bytes` on average.
    pub fn set_excess(&self, excess: i64, table_bytes: u64) {
        let table_bytes = table_bytes.max(1);
        let parts = excess as f64 / table_bytes as f64 * TABLE_PARTS as f64;
        self.table_bytes.store(table_bytes, Ordering::Relaxed);
        self.excess.store(parts as i64, Ordering::Relaxed);
    }

    /// Level 1 has `tables` tables now.
    pub fn set_level_1(&self, tables: usize) {
        self.level_1.store(tables, Ordering::Relaxed);
    }

    /// Returns true if level 1 has more than `tables` tables, or if the levels between held more than that in excess when a merge was
    /// planned last. If not, nothing is owed.
    #[inline]
    pub fn is_above(&self, tables: usize) -> bool {
        self.level_1.load(Ordering::Relaxed) > tables
            || self.excess.load(Ordering::Relaxed) > (tables as u64 * TABLE_PARTS) as i64
    }

    /// Tables of level 1, of which there are `level_1`, that running merges have not read.
    pub fn unread(&self, level_1: usize) -> f64 {
        (level_1 as f64 - tables(self.read.load(Ordering::Relaxed) as f64)).max(0.0)
    }

    /// What is owed with `level_1` tables in level 1, if an excess of `free` tables in the levels between does not count.
    pub fn owed(&self, level_1: usize, free: f64) -> f64 {
        let part = |sum: &AtomicU64| sum.load(Ordering::Relaxed) as f64;
        let excess = self.excess.load(Ordering::Relaxed) as f64 + part(&self.sunk) - part(&self.drained);
        self.unread(level_1) + (tables(excess) - free).max(0.0) * HALF_PAID
    }

    /// Returns the sums that a merge changes while it runs, with what it adds to each of them until it ends.
    pub fn of_merge(&self, merge: &Paid) -> [(&Arc<AtomicU64>, u64); 3] {
        [
            (&self.read, merge.level_1.saturating_mul(TABLE_PARTS)),
            (&self.sunk, self.parts(merge.sunk) as u64),
            (&self.drained, self.parts(merge.drained) as u64),
        ]
    }

    /// A merge was installed and has left the sums. The next plan measures the excess again.
    pub fn installed(&self, merge: &Paid) {
        let more = self.parts(merge.sunk) as i64 - self.parts(merge.drained) as i64;
        self.excess.fetch_add(more, Ordering::Relaxed);
    }

    /// `bytes` in parts of a table of level 1.
    fn parts(&self, bytes: u64) -> f64 {
        bytes as f64 / self.table_bytes.load(Ordering::Relaxed) as f64 * TABLE_PARTS as f64
    }
}

fn tables(parts: f64) -> f64 {
    parts / TABLE_PARTS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_half_paid_between_level_1_and_the_largest() {
        let debt = MergeDebt::default();
        assert_eq!((debt.owed(20, 12.0), debt.is_above(0)), (20.0, false));
        debt.set_excess(-300, 100);
        assert_eq!(debt.owed(20, 12.0), 20.0, "room in the levels between is no credit for level 1");
        // A merge of 20 tables sinks them into the levels between, of which 3 had been missing and 12 are free.
        let merge = Paid { level_1: 20, sunk: 2000, drained: 0 };
        let sums = debt.of_merge(&merge);
        let half_way =
            |part: u64| sums.iter().for_each(|(sum, all)| sum.store(all / part, Ordering::Relaxed));
        half_way(2);
        assert_eq!(debt.owed(25, 12.0), 15.0);
        half_way(1);
        assert_eq!((debt.owed(25, 12.0), debt.unread(25)), (7.5, 5.0));
        half_way(u64::MAX);
        debt.installed(&merge);
        assert_eq!(debt.owed(5, 12.0), 7.5, "as at its end");
        debt.set_excess(1700, 100);
        assert_eq!((debt.owed(5, 12.0), debt.is_above(16), debt.is_above(17)), (7.5, true, false));
        debt.set_level_1(18);
        assert_eq!((debt.is_above(17), debt.is_above(18)), (true, false));
        // Half of the excess is drained.
        let sums = debt.of_merge(&Paid { drained: 850, ..Paid::default() });
        sums.iter().for_each(|(sum, all)| sum.store(*all, Ordering::Relaxed));
        assert_eq!((debt.owed(5, 12.0), debt.owed(5, 6.0)), (5.0, 6.25));
    }

    #[test]
    fn no_figure_overflows() {
        let debt = MergeDebt::default();
        for (excess, table_bytes) in [(i64::MAX, 0), (i64::MIN, 0), (i64::MAX, u64::MAX)] {
            debt.set_excess(excess, table_bytes);
            let merge = Paid { level_1: u64::MAX, sunk: u64::MAX, drained: 0 };
            debt.of_merge(&merge);
            debt.installed(&merge);
            assert!(debt.owed(usize::MAX, 0.0).is_finite() && debt.owed(0, 0.0) >= 0.0);
        }
    }
}
