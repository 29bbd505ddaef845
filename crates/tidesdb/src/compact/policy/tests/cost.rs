//! What a plan of a large tree costs. A plan is made under the lock on which merges of the family begin, so it should take less than a
//! millisecond. Comparisons of keys are counted, because other work on the machine changes the time; a build for release measures that too.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering as Access};
use std::time::{Duration, Instant};

use super::super::{Planner, PolicySettings, Run, TableView, Tree};
use crate::types::{Comparator, TableId};

/// Comparisons of keys that a plan may take, and what merges owe: most of them look for a merge that reads have charged for.
const COMPARISONS_MAX: u64 = 220_000;
/// Time that it may take in a build for release.
const TIME_MAX: Duration = Duration::from_millis(1);

static COMPARISONS: AtomicU64 = AtomicU64::new(0);

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    COMPARISONS.fetch_add(1, Access::Relaxed);
    a.cmp(b)
}

/// First and last keys of `count` tables that divide all keys.
#[expect(clippy::big_endian_bytes, reason = "numbers that sort as bytes do")]
fn ranges(count: u64) -> Vec<([u8; 8], [u8; 8])> {
    let key = |n: u64| (u64::MAX / count * n).to_be_bytes();
    (0..count).map(|n| (key(n), (u64::MAX / count * (n + 1) - 1).to_be_bytes())).collect()
}

/// The tables of a run of `level`; after `gap` tables one is not there.
fn run(level: u8, keys: &[([u8; 8], [u8; 8])], bytes: u64, gap: u64) -> Run<'_> {
    let tables = keys.iter().zip(1..).filter(|(_, n)| n % (gap + 1) != 0);
    let tables = tables.map(|((smallest, largest), n)| TableView {
        id: TableId(n),
        smallest,
        largest,
        bytes,
        entries: bytes / 100,
        tombstones: 0,
        max_seq: 1,
        expires: 0,
        taken: false,
    });
    Run { level, tables: tables.collect() }
}

#[test]
fn a_plan_of_ten_thousand_tables_takes_less_than_a_millisecond() {
    let settings = PolicySettings::default();
    let (largest, upper) = (ranges(8_500), ranges(125));
    let order =
        if cfg!(debug_assertions) { Comparator::custom("counted", compare) } else { Comparator::bytewise() };
    // Level 1 is not due, and the tiered level, level 4, has half of its runs in each partition: so each rule looks, and none has a plan.
    let flushed = ranges(3);
    let mut runs = vec![run(1, &flushed, 64 << 20, u64::MAX - 1)];
    runs.extend((0..settings.tiered_runs_max / 2).map(|n| run(4, &upper, 8 << 20, 5 + n)));
    runs.push(run(6, &largest, 128 << 20, u64::MAX - 1));
    let tables: usize = runs.iter().map(|run| run.tables.len()).sum();
    assert!((9_500..=10_500).contains(&tables), "{tables} tables");
    let tree = Tree { settles: true, probes_credit: 1 << 20, ..Tree::new(&order, runs) };
    let mut best = Duration::MAX;
    for _ in 0..50 {
        COMPARISONS.store(0, Access::Relaxed);
        let begin = Instant::now();
        let planner = Planner::new(&tree, &settings);
        let (excess, plan) = (planner.excess(), planner.next());
        best = best.min(begin.elapsed());
        assert!(excess < 0 && plan.is_none(), "{excess}: {plan:?}");
        assert_eq!((planner.shape().largest, planner.shape().tiered), (6, 4));
    }
    let comparisons = COMPARISONS.load(Access::Relaxed);
    println!("{comparisons} comparisons, {best:?}");
    assert!(comparisons <= COMPARISONS_MAX, "{comparisons} comparisons");
    assert!(cfg!(debug_assertions) || best < TIME_MAX, "{best:?}");
}

#[test]
fn writers_pay_for_one_of_the_partitions_that_got_all_their_runs_at_once() {
    let settings = PolicySettings { buffer_bytes: 16 << 20, ..PolicySettings::default() };
    let (order, keys) = (Comparator::bytewise(), ranges(32));
    let excess = |runs_here: u64| {
        let mut runs: Vec<_> = (0..runs_here).map(|n| run(2, &keys[..10], 3 << 19, 100 + n)).collect();
        runs.push(run(4, &keys, 100 << 20, u64::MAX - 1));
        let tree = Tree::new(&order, runs);
        let planner = Planner::new(&tree, &settings);
        (planner.excess(), planner.next().is_some(), planner.shape().partition_bytes().cast_signed())
    };
    let (before, is_due, one) = excess(settings.tiered_runs_max - 1);
    assert!(before < 0 && !is_due, "{before}");
    let (after, is_due, _) = excess(settings.tiered_runs_max);
    assert!(after > 0 && after < one && is_due, "{after} of {one}");
}
