//! [`ReadDemand`]: whether readers will want what a flush writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Flushed rows for each read, at most, where a flush keeps its blocks in the block cache. To keep a block costs about as much as one read of
/// it from the page cache, and it has some forty rows.
const ROWS_PER_READ: u64 = 4;

/// Reads and flushed rows of a database since it was opened. Those of earlier flushes count half as much as those of the next one.
#[derive(Debug, Default)]
pub struct ReadDemand {
    /// Reads at the last flush.
    seen: AtomicU64,
    reads: AtomicU64,
    rows: AtomicU64,
}

impl ReadDemand {
    /// Notes a flush of `rows` rows, which begins after `reads` reads since the open. Returns whether its blocks are worth their place in the
    /// block cache. An estimate: flushes at the same time may count a read twice.
    pub fn note(&self, reads: u64, rows: u64) -> bool {
        let new = reads.saturating_sub(self.seen.swap(reads, Ordering::Relaxed));
        let add = |sum: &AtomicU64, more: u64| {
            let sum_now = (sum.load(Ordering::Relaxed) / 2).saturating_add(more);
            sum.store(sum_now, Ordering::Relaxed);
            sum_now
        };
        let (reads, rows) = (add(&self.reads, new), add(&self.rows, rows));
        reads > 0 && reads.saturating_mul(ROWS_PER_READ) >= rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept_where_a_row_in_four_is_read_and_for_a_while_afterwards() {
        let demand = ReadDemand::default();
        assert!(!demand.note(0, 0) && !demand.note(0, 1000), "nothing was read");
        assert!(!demand.note(200, 1000));
        assert!(demand.note(2200, 1000));
        let after: Vec<bool> = (0..4).map(|_| demand.note(2200, 1000)).collect();
        assert_eq!(after, [true, true, false, false], "a load that nobody reads");
        assert!(demand.note(u64::MAX, u64::MAX), "reads beyond all numbers");
        demand.note(0, u64::MAX); // a counter that went back
    }
}
