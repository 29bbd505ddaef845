//! Hand-made histories, one for each anomaly, and the verdict at each level.

use std::collections::BTreeMap;

use super::*;
use crate::rng::Rng;

use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};

/// Returns a committed transaction. All transactions are concurrent unless `during` is used.
fn tx() -> Record {
    Record { ops: Vec::new(), end: End::Committed, begun: 0, ended: 1000 }
}

impl Record {
    fn reads(mut self, key: Key, list: &[u64]) -> Self {
        self.ops.push(Op::Read { key, list: list.to_vec() });
        self
    }

    fn walks(mut self, (low, high): (Key, Key), found: &[(Key, &[u64])]) -> Self {
        let found = found.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        self.ops.push(Op::Scan { low, high, found });
        self
    }

    /// Puts `element` after `after` (0 for none) without a read.
    fn puts(mut self, key: Key, after: u64, element: u64) -> Self {
        self.ops.push(Op::Append { key, after: (after != 0).then_some(after), element });
        self
    }

    fn undoes(mut self, key: Key) -> Self {
        self.ops.push(Op::Undo { key });
        self
    }

    /// Reads `list` and appends to it.
    fn appends(self, key: Key, list: &[u64], element: u64) -> Self {
        self.reads(key, list).puts(key, list.last().copied().unwrap_or(0), element)
    }

    fn ends(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    fn during(mut self, begun: u64, ended: u64) -> Self {
        (self.begun, self.ended) = (begun, ended);
        self
    }
}

fn history(level: Isolation, records: &[Record], finals: &[(Key, &[u64])]) -> History {
    let finals: BTreeMap<Key, List> = finals.iter().map(|(key, list)| (*key, list.to_vec())).collect();
    History { level, records: records.to_vec(), finals }
}

/// Returns the anomalies of a history, each once, and checks the number of forbidden ones.
fn seen(level: Isolation, records: &[Record], finals: &[(Key, &[u64])]) -> Vec<Anomaly> {
    let found = check(&history(level, records, finals));
    let forbidden: u64 =
        found.seen.iter().filter(|(anomaly, _)| !anomaly.is_allowed(level)).map(|(_, n)| n).sum();
    assert_eq!(found.forbidden, forbidden);
    assert_eq!(found.reports.len() as u64, forbidden.min(10));
    found.seen.into_keys().collect()
}

/// Checks the anomalies at every level.
fn everywhere(records: &[Record], finals: &[(Key, &[u64])], expected: &[Anomaly]) {
    for level in crate::isolation::LEVELS {
        assert_eq!(seen(level, records, finals), expected, "{level:?}");
    }
}

#[test]
fn correct_histories_have_no_anomalies() {
    everywhere(&[], &[], &[]);
    let one_after_the_other = [
        tx().appends(1, &[], 10).appends(2, &[], 20),
        tx().appends(1, &[10], 11).reads(1, &[10, 11]).walks((0, 4), &[(1, &[10, 11]), (2, &[20])]),
        tx().reads(3, &[]).walks((1, 3), &[(1, &[10, 11]), (2, &[20])]).appends(2, &[20], 21),
        tx().reads(2, &[20, 21]).reads(1, &[10, 11]),
    ];
    everywhere(&one_after_the_other, &[(1, &[10, 11]), (2, &[20, 21])], &[]);
    let undone = [
        tx().appends(1, &[], 10)
            .puts(1, 10, 11)
            .reads(1, &[10, 11])
            .undoes(1)
            .reads(1, &[10])
            .puts(1, 10, 12),
        tx().reads(1, &[10, 12]).appends(2, &[], 20).ends(End::RolledBack),
        tx().reads(2, &[]).ends(End::Refused),
    ];
    everywhere(&undone, &[(1, &[10, 12])], &[]);
}

#[test]
fn g0_two_transactions_overwrite_each_other() {
    // Each transaction is the newest in one of two lists, as if half of each had been written first.
    let both =
        [tx().puts(1, 0, 10).puts(2, 0, 20), tx().puts(1, 10, 11).puts(2, 21, 22), tx().puts(2, 20, 21)];
    let bad = [both[0].clone(), tx().puts(1, 10, 11).puts(2, 0, 21)];
    let crossed = [tx().puts(1, 0, 10).puts(2, 21, 20), tx().puts(1, 10, 11).puts(2, 0, 21)];
    everywhere(&both, &[(1, &[10, 11]), (2, &[20, 21, 22])], &[]);
    everywhere(&crossed, &[(1, &[10, 11]), (2, &[21, 20])], &[Anomaly::G0]);
    // The element is overwritten without a trace: only the final read shows the order.
    assert_eq!(seen(ReadCommitted, &bad, &[(1, &[10, 11]), (2, &[20])]), [Anomaly::G0, Anomaly::LostUpdate]);
}

#[test]
fn g1a_an_undone_element_is_read() {
    for end in [End::Refused, End::RolledBack] {
        let records = [tx().appends(1, &[], 10).ends(end), tx().reads(1, &[10])];
        everywhere(&records, &[], &[Anomaly::G1a]);
    }
    let part = [tx().appends(1, &[], 10).undoes(1).appends(2, &[], 20), tx().reads(1, &[10])];
    everywhere(&part, &[(2, &[20])], &[Anomaly::G1a]);
    let built_on = [
        tx().appends(1, &[], 10).ends(End::RolledBack),
        tx().appends(1, &[10], 11),
        tx().reads(1, &[10, 11]),
    ];
    everywhere(&built_on, &[(1, &[10, 11])], &[Anomaly::G1a]);
}

#[test]
fn g1b_a_version_overwritten_by_its_writer_is_read() {
    let records = [tx().appends(1, &[], 10).puts(1, 10, 11), tx().reads(1, &[10])];
    everywhere(&records, &[(1, &[10, 11])], &[Anomaly::G1b]);
    let allowed = |level| Anomaly::G1b.is_allowed(level);
    assert_eq!(crate::isolation::LEVELS.map(allowed), [true, false, false, false, false]);
}

#[test]
fn g1c_two_transactions_read_each_other() {
    let records = [tx().appends(1, &[], 10).reads(2, &[20]), tx().appends(2, &[], 20).reads(1, &[10])];
    everywhere(&records, &[(1, &[10]), (2, &[20])], &[Anomaly::G1c]);
    let over_ww = [tx().puts(1, 0, 10).reads(2, &[20]), tx().puts(1, 10, 11).puts(2, 0, 20)];
    everywhere(&over_ww, &[(1, &[10, 11]), (2, &[20])], &[Anomaly::G1c]);
}

#[test]
fn internal_own_appends_are_not_seen() {
    let finals: &[(Key, &[u64])] = &[(1, &[10])];
    for list in [&[][..], &[11], &[10, 10]] {
        everywhere(&[tx().appends(1, &[], 10).reads(1, list)], finals, &[Anomaly::Internal]);
    }
    everywhere(&[tx().appends(1, &[], 10).walks((0, 3), &[])], finals, &[Anomaly::Internal]);
    everywhere(&[tx().reads(1, &[10]).appends(1, &[], 10)], finals, &[Anomaly::Internal]);
    let undone = tx().appends(1, &[], 11).undoes(1).reads(1, &[11]).appends(1, &[], 10);
    everywhere(&[undone], finals, &[Anomaly::Internal]);
}

#[test]
fn lists_that_were_never_written() {
    let writers = [tx().appends(1, &[], 10), tx().appends(1, &[10], 11), tx().appends(2, &[], 20)];
    let finals: &[(Key, &[u64])] = &[(1, &[10, 11]), (2, &[20])];
    let cases: [(&[u64], Anomaly); 6] = [
        (&[11], Anomaly::Unwritten),
        (&[99], Anomaly::Unwritten),
        (&[20], Anomaly::Unwritten),
        (&[11, 10], Anomaly::Unwritten),
        (&[10, 10], Anomaly::Duplicate),
        (&[10, 11, 10], Anomaly::Duplicate),
    ];
    for (list, expected) in cases {
        let records = [&writers[..], &[tx().reads(1, list)]].concat();
        everywhere(&records, finals, &[expected]);
    }
    for found in [&[(2, &[20][..]), (1, &[10, 11])][..], &[(1, &[10, 11]), (2, &[20]), (3, &[])]] {
        let records = [&writers[..], &[tx().walks((1, 4), found)]].concat();
        everywhere(&records, finals, &[Anomaly::Unwritten]);
    }
}

#[test]
fn lost_updates_and_incompatible_orders() {
    let lost = [tx().appends(1, &[], 10), tx().appends(1, &[10], 11), tx().appends(1, &[10], 12)];
    let finals: &[(Key, &[u64])] = &[(1, &[10, 12])];
    let found = check(&history(ReadCommitted, &lost, finals));
    assert_eq!((found.forbidden, found.count(Anomaly::LostUpdate)), (0, 1));
    for level in [RepeatableRead, Snapshot, Serializable] {
        // The last transaction has read the first version, so there is also a cycle with one `rw`.
        let found = check(&history(level, &lost, finals));
        assert_eq!((found.count(Anomaly::LostUpdate), found.count(Anomaly::GSingle)), (1, 1), "{level:?}");
        assert_eq!((found.forbidden, found.count(Anomaly::IncompatibleOrder)), (2, 0), "{level:?}");
    }
    let read = [&lost[..], &[tx().reads(1, &[10, 11])]].concat();
    for level in crate::isolation::LEVELS {
        let found = check(&history(level, &read, finals));
        assert_eq!(found.count(Anomaly::IncompatibleOrder), 1, "{level:?}");
        let weak = matches!(level, ReadUncommitted | ReadCommitted);
        assert_eq!(found.forbidden == 0, weak, "{level:?}: {found:?}");
    }
}

/// Returns the anomalies at a level, and whether it forbids any of them.
fn verdict(level: Isolation, records: &[Record], finals: &[(Key, &[u64])]) -> (Vec<Anomaly>, bool) {
    let forbidden = check(&history(level, records, finals)).forbidden > 0;
    (seen(level, records, finals), forbidden)
}

#[test]
fn g_single_read_skew() {
    let records = [tx().appends(1, &[], 10).appends(2, &[], 20), tx().reads(1, &[]).reads(2, &[20])];
    let finals: &[(Key, &[u64])] = &[(1, &[10]), (2, &[20])];
    for level in crate::isolation::LEVELS {
        let weak = matches!(level, ReadUncommitted | ReadCommitted);
        assert_eq!(verdict(level, &records, finals), (vec![Anomaly::GSingle], !weak), "{level:?}");
    }
    let walked = [records[0].clone(), tx().walks((0, 2), &[]).reads(2, &[20])];
    assert_eq!(verdict(RepeatableRead, &walked, finals), (vec![Anomaly::GSingle], true));
    let changed = [tx().appends(1, &[], 10), tx().reads(1, &[]).reads(1, &[10])];
    assert_eq!(verdict(Snapshot, &changed, &[(1, &[10])]), (vec![Anomaly::GSingle], true));
    assert_eq!(verdict(ReadCommitted, &changed, &[(1, &[10])]), (vec![Anomaly::GSingle], false));
}

#[test]
fn g_nonadjacent_two_readers_that_disagree() {
    // Each reader comes after one of two writers and before the other.
    let records = [
        tx().appends(1, &[], 10),
        tx().appends(2, &[], 20),
        tx().reads(1, &[10]).reads(2, &[]),
        tx().reads(1, &[]).reads(2, &[20]),
    ];
    let finals: &[(Key, &[u64])] = &[(1, &[10]), (2, &[20])];
    for level in crate::isolation::LEVELS {
        let weak = matches!(level, ReadUncommitted | ReadCommitted);
        assert_eq!(verdict(level, &records, finals), (vec![Anomaly::GNonadjacent], !weak), "{level:?}");
    }
}

#[test]
fn g2_item_write_skew() {
    let records = [tx().reads(1, &[]).appends(2, &[], 20), tx().reads(2, &[]).appends(1, &[], 10)];
    let finals: &[(Key, &[u64])] = &[(1, &[10]), (2, &[20])];
    for level in crate::isolation::LEVELS {
        let strong = matches!(level, RepeatableRead | Serializable);
        assert_eq!(verdict(level, &records, finals), (vec![Anomaly::G2Item], strong), "{level:?}");
    }
    // A key found in a scan is an item as well.
    let base = tx().appends(1, &[], 1).appends(2, &[], 2);
    let walked = [
        base,
        tx().walks((0, 4), &[(1, &[1]), (2, &[2])]).appends(2, &[2], 20),
        tx().walks((0, 4), &[(1, &[1]), (2, &[2])]).appends(1, &[1], 10),
    ];
    let finals: &[(Key, &[u64])] = &[(1, &[1, 10]), (2, &[2, 20])];
    assert_eq!(verdict(RepeatableRead, &walked, finals), (vec![Anomaly::G2Item], true));
    assert_eq!(verdict(Snapshot, &walked, finals), (vec![Anomaly::G2Item], false));
}

#[test]
fn g2_predicate_write_skew() {
    let records = [tx().walks((0, 9), &[]).appends(2, &[], 20), tx().walks((0, 9), &[]).appends(1, &[], 10)];
    let finals: &[(Key, &[u64])] = &[(1, &[10]), (2, &[20])];
    for level in crate::isolation::LEVELS {
        let strong = level == Serializable;
        assert_eq!(verdict(level, &records, finals), (vec![Anomaly::G2], strong), "{level:?}");
    }
    // One of the two read only an item, but the cycle still needs a range.
    let mixed = [records[0].clone(), tx().reads(2, &[]).appends(1, &[], 10)];
    assert_eq!(verdict(RepeatableRead, &mixed, finals), (vec![Anomaly::G2], false));
    // There is no conflict outside the scanned interval.
    let apart = [tx().walks((2, 9), &[]).appends(2, &[], 20), records[1].clone()];
    assert_eq!(verdict(Serializable, &apart, finals), (vec![], false));
}

#[test]
fn real_time_orders_transactions() {
    let writer = tx().appends(1, &[], 10).during(1, 2);
    let finals: &[(Key, &[u64])] = &[(1, &[10])];
    everywhere(&[writer.clone(), tx().reads(1, &[]).during(2, 5)], finals, &[]);
    for level in [ReadUncommitted, ReadCommitted] {
        let stale = [writer.clone(), tx().reads(1, &[]).during(3, 4)];
        assert_eq!(verdict(level, &stale, finals), (vec![Anomaly::RealTime], true));
    }
    everywhere(&[writer.clone(), tx().reads(1, &[]).during(3, 4)], finals, &[Anomaly::RealTime]);
    // A read of an element whose transaction began after the reader had ended.
    everywhere(&[writer, tx().reads(1, &[10]).during(0, 0)], finals, &[Anomaly::RealTime]);
    // The order is implied by a third transaction that shares no key with the others.
    let over = [
        tx().reads(1, &[]).appends(2, &[], 20).during(0, 10),
        tx().appends(1, &[], 10).during(1, 2),
        tx().reads(2, &[20]).during(3, 4),
        tx().reads(1, &[10]).reads(2, &[]).during(0, 9),
    ];
    let finals: &[(Key, &[u64])] = &[(1, &[10]), (2, &[20])];
    let found = check(&history(Serializable, &over, finals));
    assert!(found.forbidden > 0, "{found:?}");
}

/// Returns a serial history: `count` random transactions, one after the other.
fn serial(seed: u64, count: u64) -> (Vec<Record>, BTreeMap<Key, List>) {
    let mut rng = Rng::new(seed);
    let mut now: BTreeMap<Key, List> = BTreeMap::new();
    let mut records = Vec::new();
    for n in 0..count {
        let mut record = tx().during(2 * n, 2 * n + 1);
        let mut after = now.clone();
        for i in 0..1 + rng.below(5) {
            let key = (n / 40 * 4 + rng.below(6)) as Key;
            let list = after.get(&key).cloned().unwrap_or_default();
            match rng.below(3) {
                0 => {
                    record = record.appends(key, &list, 8 * n + i + 1);
                    after.entry(key).or_default().push(8 * n + i + 1);
                }
                1 => record = record.reads(key, &list),
                _ => {
                    let high = key + rng.below(8) as Key;
                    let found: Vec<_> = after.range(key..high).map(|(k, l)| (*k, &l[..])).collect();
                    record = record.walks((key, high), &found);
                }
            }
        }
        match rng.below(8) {
            0 => record.end = End::RolledBack,
            _ => now = after,
        }
        records.push(record);
    }
    (records, now)
}

#[test]
fn a_long_serial_history_is_clean() {
    let (records, finals) = serial(21, 10_000);
    let found = check(&History { level: Serializable, records, finals });
    assert_eq!(found.seen, BTreeMap::new(), "{:?}", found.reports);
    assert!(found.edges > 10_000 && found.committed > 8000, "{found:?}");
}

/// Changes one read: it loses its last element, or becomes an older version or the list of another key.
fn change_a_read(records: &mut [Record], rng: &mut Rng) -> bool {
    let n = rng.below(records.len() as u64) as usize;
    let other = rng.below(records.len() as u64) as usize;
    let lists = |record: &Record| -> Vec<List> {
        let list = |op: &Op| match op {
            Op::Read { list, .. } => Some(list.clone()),
            _ => None,
        };
        record.ops.iter().filter_map(list).collect()
    };
    let foreign = lists(&records[other]).pop().unwrap_or_default();
    let swap = rng.one_in(2);
    for op in &mut records[n].ops {
        let Op::Read { list, .. } = op else { continue };
        if swap && *list != foreign {
            *list = foreign;
            return true;
        }
        if !swap && list.pop().is_some() {
            return true;
        }
    }
    false
}

#[test]
fn one_changed_read_is_found() {
    let mut rng = Rng::new(22);
    let mut changed = 0;
    for seed in 0..400 {
        let (mut records, finals) = serial(1000 + seed, 60);
        if !change_a_read(&mut records, &mut rng) {
            continue;
        }
        changed += 1;
        let found = check(&History { level: Serializable, records, finals });
        assert!(found.forbidden > 0, "seed {seed}");
    }
    assert!(changed > 200, "{changed}");
}

#[test]
fn real_runs_are_isolated() {
    for (seed, level) in (30..).zip(crate::isolation::LEVELS) {
        let dir = tempfile::tempdir().unwrap();
        let history = run(dir.path(), level, (4, 500), seed).unwrap();
        let found = check(&history);
        assert_eq!(found.forbidden, 0, "{level:?}, seed {seed}: {}", found.reports.join("\n"));
        assert!(found.committed > 300 && found.edges > 1000, "{level:?}: {found:?}");
    }
}

/// The anomalies that a level allows occur in a real run, and are reported when the run is judged by a stronger level.
#[test]
fn a_real_run_of_a_weaker_level_is_found() {
    for (weak, strong) in [(ReadCommitted, Snapshot), (Snapshot, RepeatableRead), (Snapshot, Serializable)] {
        let dir = tempfile::tempdir().unwrap();
        let mut history = run(dir.path(), weak, (8, 1000), 40).unwrap();
        assert_eq!(check(&history).forbidden, 0, "{weak:?}");
        history.level = strong;
        assert!(check(&history).forbidden > 0, "{weak:?} as {strong:?}");
    }
}
