//! The debt of the merges of a family.
//!
//! A table of level 1 is merged in two steps: a merge moves it into the levels between level 1 and the largest, and later ones move it, one
//! partition at a time, into the largest level. Each step is about half of the work. So the debt is the tables in level 1, and half of the
//! excess of the levels between, after a free part, in tables of level 1. Then the debt falls at the same rate whichever of the two steps runs,
//! and writers keep one pace. With the debt of level 1 alone, they would fill it while partitions are merged, and be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::{MergeRate, RunningReduction};

/// Running merges count the tables of level 1 that they have read in these parts.
const TABLE_PARTS: u64 = 1000;
/// Share of the work for a table of level 1 that remains once it is in the levels between.
const WORK_LEFT: f64 = 0.5;

/// What a merge takes off the debt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reduction {
    /// Tables of level 1 that it reads.
    pub level_1: u64,
    /// Raw bytes of these tables, as far as it rewrites them.
    pub raw_bytes: u64,
    /// Bytes that it moves into the levels between.
    pub sunk: u64,
    /// Bytes that it moves out of them.
    pub drained: u64,
}

/// The debt when a merge was planned last, and what running merges have taken off it.
#[derive(Debug, Default)]
pub struct MergeDebt {
    /// Tables in level 1.
    level_1: AtomicUsize,
    /// Tables of level 1 that running merges have read, in parts of a table.
    read: Arc<AtomicU64>,
    /// Bytes that running merges have moved into the levels between.
    sunk: Arc<AtomicU64>,
    /// Bytes that running merges have moved from there into the largest level.
    drained: Arc<AtomicU64>,
    /// Bytes that the levels between hold in excess, without what running merges have done; less than 0 if they have room.
    excess: AtomicI64,
    /// Bytes of a table of level 1, on average; 0 until a merge is planned.
    table_bytes: AtomicU64,
    /// Set while the last merge failed: the next one may read the same tables again and again.
    failing: AtomicBool,
    /// When the last merge of level 1 ended, in nanoseconds, if the next one was due already; else 0.
    due_since: AtomicU64,
}

impl MergeDebt {
    /// The levels between hold `excess` bytes more than they should, and a table of level 1 has `table_bytes` on average.
    pub fn set_excess(&self, excess: i64, table_bytes: u64) {
        self.table_bytes.store(table_bytes.max(1), Ordering::Relaxed);
        self.excess.store(excess, Ordering::Relaxed);
    }

    /// Level 1 has `tables` tables now.
    pub fn set_level_1(&self, tables: usize) {
        self.level_1.store(tables, Ordering::Relaxed);
    }

    /// Returns true if level 1 has more than `tables` tables, or if the levels between held more than that in excess when a merge was
    /// planned last. If not, there is no debt.
    #[inline]
    pub fn is_above(&self, tables: usize) -> bool {
        let excess = self.excess.load(Ordering::Relaxed);
        self.level_1.load(Ordering::Relaxed) > tables
            || excess > 0 && self.tables_of(excess as f64) > tables as f64
    }

    /// Tables in level 1 that running merges have not read.
    pub fn unread(&self) -> f64 {
        let read = self.read.load(Ordering::Relaxed) as f64 / TABLE_PARTS as f64;
        (self.level_1.load(Ordering::Relaxed) as f64 - read).max(0.0)
    }

    /// Returns the debt, in tables of level 1, without an excess of up to `free` tables in the levels between.
    pub fn in_tables(&self, free: f64) -> f64 {
        let part = |sum: &AtomicU64| sum.load(Ordering::Relaxed) as f64;
        let excess = self.excess.load(Ordering::Relaxed) as f64 + part(&self.sunk) - part(&self.drained);
        self.unread() + (self.tables_of(excess) - free).max(0.0) * WORK_LEFT
    }

    /// Converts `bytes` to tables of level 1.
    fn tables_of(&self, bytes: f64) -> f64 {
        match self.table_bytes.load(Ordering::Relaxed) {
            0 => 0.0,
            table_bytes => bytes / table_bytes as f64,
        }
    }

    /// Returns what a merge takes off the debt while it runs. The one after a failed merge may read the same tables again and again, so it
    /// lowers the debt only at its end.
    pub fn reduced_by(&self, merge: &Reduction) -> RunningReduction {
        match self.failing.load(Ordering::Relaxed) {
            true => RunningReduction::default(),
            false => {
                let read = merge.level_1.saturating_mul(TABLE_PARTS);
                RunningReduction::of([
                    (&self.read, read),
                    (&self.sunk, merge.sunk),
                    (&self.drained, merge.drained),
                ])
            }
        }
    }

    /// Notes whether the last merge failed.
    pub fn set_failing(&self, yes: bool) {
        self.failing.store(yes, Ordering::Relaxed);
    }

    /// Notes that a merge that took `took` was installed `now`, and that its [`RunningReduction`] has ended. The next plan measures the excess
    /// again. `trigger` tables in level 1 make the next merge of it due.
    pub fn installed(
        &self,
        merge: &Reduction,
        rate: &MergeRate,
        now: Duration,
        took: Duration,
        trigger: usize,
    ) {
        let more = merge.sunk.cast_signed().wrapping_sub(merge.drained.cast_signed());
        self.excess.fetch_add(more, Ordering::Relaxed);
        if merge.level_1 > 0 {
            let took = self.reduced_in(now, took, trigger);
            if merge.raw_bytes > 0 {
                rate.note(merge.raw_bytes, took);
            }
        }
    }

    /// Returns the time in which a merge of level 1 took off its part of the debt. If it was due when the previous one ended, that includes
    /// the time in which its thread did other merges.
    fn reduced_in(&self, now: Duration, took: Duration, trigger: usize) -> Duration {
        let is_due = self.level_1.load(Ordering::Relaxed) >= trigger;
        let end = if is_due { now.as_nanos() as u64 } else { 0 };
        match self.due_since.swap(end, Ordering::Relaxed) {
            0 => took,
            before => took.max(now.saturating_sub(Duration::from_nanos(before))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_half_paid_between_level_1_and_the_largest() {
        let debt = MergeDebt::default();
        let owed = |level_1: usize, free: f64| {
            debt.set_level_1(level_1);
            debt.in_tables(free)
        };
        assert_eq!((owed(20, 12.0), debt.is_above(20)), (20.0, false));
        debt.set_excess(-300, 100);
        assert_eq!(owed(20, 12.0), 20.0, "room in the levels between is no credit for level 1");
        // A merge of 20 tables sinks them into the levels between, of which 3 had been missing and 12 are free.
        let merge = Reduction { level_1: 20, sunk: 2000, ..Reduction::default() };
        let running = debt.reduced_by(&merge);
        running.change(0.0, 0.5);
        assert_eq!(owed(25, 12.0), 15.0);
        running.change(0.5, 1.0);
        assert_eq!((owed(25, 12.0), debt.unread()), (7.5, 5.0));
        running.change(1.0, 0.0);
        debt.installed(&merge, &MergeRate::default(), Duration::ZERO, Duration::ZERO, 4);
        assert_eq!(owed(5, 12.0), 7.5, "as at its end");
        debt.set_excess(1700, 100);
        assert_eq!((owed(5, 12.0), debt.is_above(16), debt.is_above(17)), (7.5, true, false));
        debt.set_level_1(18);
        assert_eq!((debt.is_above(17), debt.is_above(18)), (true, false));
        // Half of the excess is drained.
        debt.reduced_by(&Reduction { drained: 850, ..Reduction::default() }).change(0.0, 1.0);
        assert_eq!((owed(5, 12.0), owed(5, 6.0)), (5.0, 6.25));
    }

    #[test]
    fn the_rate_of_merges_includes_what_delays_them() {
        let (debt, second) = (MergeDebt::default(), Duration::from_secs);
        let reduced_in = |now| debt.reduced_in(second(now), second(1), 1);
        debt.set_level_1(1);
        assert_eq!((reduced_in(10), reduced_in(14)), (second(1), second(4)), "a merge was due all the time");
        debt.set_level_1(0);
        assert_eq!(
            (reduced_in(20), reduced_in(30)),
            (second(6), second(1)),
            "nothing is due after the merge"
        );
    }

    #[test]
    fn no_figure_overflows() {
        let debt = MergeDebt::default();
        for (excess, table_bytes) in [(i64::MAX, 0), (i64::MIN, 0), (i64::MAX, u64::MAX)] {
            debt.set_excess(excess, table_bytes);
            let merge = Reduction { level_1: u64::MAX, sunk: u64::MAX, ..Reduction::default() };
            debt.reduced_by(&merge).change(0.0, 1.0);
            debt.installed(&merge, &MergeRate::default(), Duration::ZERO, Duration::ZERO, 4);
            for level_1 in [usize::MAX, 0] {
                debt.set_level_1(level_1);
                assert!(debt.in_tables(0.0).is_finite() && debt.in_tables(0.0) >= 0.0);
            }
        }
    }
}
