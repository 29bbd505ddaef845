//! The checker on hand-made records and on a real run.

use std::collections::BTreeMap;

use super::*;

fn record(level: Isolation, snapshot: u64, end: End) -> Record {
    Record { end, ..Record::new(level, 0, Some(snapshot)) }
}

impl Record {
    fn reads(mut self, key: Key, value: Option<u64>) -> Self {
        self.reads.push(Read { key, value, moment: (self.snapshot.unwrap_or(0), 100) });
        self
    }

    fn walks(mut self, low: Key, high: Key, found: &[(Key, u64)]) -> Self {
        self.walks.push(Scan { low, high, found: found.to_vec(), own: Vec::new(), moment: (0, 100) });
        self
    }

    fn writes(mut self, key: Key, value: u64) -> Self {
        self.writes.insert(key, Some(value));
        self
    }

    fn deletes_range(mut self, keys: std::ops::Range<Key>, had_written: bool) -> Self {
        self.writes.extend(keys.clone().map(|key| (key, None)));
        self.ranged.extend(keys.map(|key| (key, had_written)));
        self
    }

    fn by(mut self, thread: usize) -> Self {
        self.thread = thread;
        self
    }
}

fn base() -> BTreeMap<Key, u64> {
    BTreeMap::from([(1, 10), (2, 20)])
}

fn violations(records: &[Record]) -> usize {
    check(records, &base()).violations.len()
}

use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};

#[test]
fn a_correct_history_has_no_violations() {
    let history = [
        record(Serializable, 5, End::Committed(10)).reads(1, Some(10)).writes(1, 11),
        record(Serializable, 12, End::Committed(20))
            .by(1)
            .reads(1, Some(11))
            .walks(0, 9, &[(1, 11), (2, 20)])
            .writes(3, 30),
        record(Serializable, 12, End::Refused(25)).by(2).walks(3, 9, &[]).writes(4, 40),
        record(Snapshot, 25, End::Committed(30)).by(3).reads(3, Some(30)),
    ];
    let found = check(&history, &base());
    assert_eq!(found.violations, [""; 0]);
    assert_eq!((found.committed, found.refused), (2, 1));
}

#[test]
fn stale_aborted_and_future_reads_are_found() {
    let writer = record(Snapshot, 5, End::Committed(10)).writes(1, 11);
    let undone = record(Snapshot, 5, End::RolledBack).by(1).writes(1, 99);
    let reader = |snapshot, value| record(Snapshot, snapshot, End::Committed(50)).by(2).reads(1, Some(value));
    for (snapshot, value, bad) in [(9, 10, 0), (10, 11, 0), (10, 10, 1), (9, 11, 1), (20, 99, 1)] {
        let history = [writer.clone(), undone.clone(), reader(snapshot, value)];
        assert_eq!(violations(&history), bad, "{value} at {snapshot}");
    }
}

#[test]
fn half_a_commit_is_found() {
    let writer = record(Snapshot, 5, End::Committed(10)).writes(1, 11).writes(2, 21);
    let torn = record(Snapshot, 20, End::Committed(50)).by(1).walks(0, 9, &[(1, 11), (2, 20)]);
    assert_eq!(violations(&[writer.clone(), torn]), 1);
    let mut loose = record(ReadCommitted, 0, End::Committed(50)).by(1).walks(0, 9, &[(1, 11), (2, 20)]);
    loose.snapshot = None;
    assert_eq!(
        violations(&[writer.clone(), loose.clone()]),
        1,
        "a single call must be atomic at weak levels, too"
    );
    loose.walks[0].found = vec![(1, 10), (2, 20)];
    assert_eq!(violations(&[writer, loose]), 0);
}

#[test]
fn each_level_is_checked_by_its_own_condition() {
    // One transaction writes key 1 and the new key 3 at 10; the other began at 5 and commits at 20.
    let first = record(Snapshot, 5, End::Committed(10)).writes(1, 11).writes(3, 30);
    let second = |level, end| record(level, 5, end).by(1);
    let committed = End::Committed(20);
    let cases: [(Record, usize); 8] = [
        (second(Snapshot, committed).writes(1, 12), 1),
        (second(Snapshot, committed).reads(1, Some(10)).writes(2, 22), 0),
        (second(RepeatableRead, committed).reads(1, Some(10)).writes(2, 22), 1),
        (second(RepeatableRead, committed).walks(2, 9, &[(2, 20)]).writes(4, 44), 0),
        (second(RepeatableRead, committed).walks(0, 2, &[(1, 10)]).writes(4, 44), 1),
        (second(Serializable, committed).walks(2, 9, &[(2, 20)]).writes(4, 44), 1),
        (second(Serializable, committed).reads(3, None).writes(4, 44), 1),
        (second(Serializable, committed).writes(1, 12), 0),
    ];
    for (i, (record, bad)) in cases.into_iter().enumerate() {
        assert_eq!(violations(&[first.clone(), record]), bad, "case {i}");
    }
}

#[test]
fn a_range_delete_is_a_write_of_the_keys_that_it_removed() {
    let first = |had| record(Snapshot, 5, End::Committed(10)).deletes_range(1..4, had);
    let second = |end| record(Serializable, 5, end).by(1).writes(9, 90);
    let (committed, refused) = (End::Committed(20), End::Refused(15));
    for (n, (had, second, bad)) in [
        (false, second(committed).reads(1, Some(10)), 1),
        (false, second(refused).reads(1, Some(10)), 0),
        (false, second(committed).reads(3, None), 0),
        (false, second(refused).reads(3, None), 1),
        // A write that the range delete hides may be found, or not.
        (true, second(committed).walks(3, 9, &[]), 0),
        (true, second(refused).walks(3, 9, &[]), 0),
        (true, second(committed).walks(2, 9, &[(2, 20)]), 1),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(violations(&[first(had), second]), bad, "case {n}");
    }
    let reader = |value| record(Snapshot, 12, End::RolledBack).by(2).reads(1, value);
    assert_eq!(violations(&[first(false), reader(None)]), 0);
    assert_eq!(violations(&[first(false), reader(Some(10))]), 1, "a deleted row is read");
}

#[test]
fn a_refusal_needs_a_reason() {
    let first = record(Snapshot, 5, End::Committed(10)).writes(1, 11);
    let refused = |level| record(level, 5, End::Refused(15)).by(1);
    assert_eq!(violations(&[first.clone(), refused(Snapshot).writes(1, 12)]), 0);
    assert_eq!(violations(&[first.clone(), refused(Snapshot).writes(2, 12)]), 1);
    assert_eq!(violations(&[first.clone(), refused(Serializable).reads(2, Some(20)).writes(1, 12)]), 1);
    assert_eq!(
        violations(&[first, refused(Serializable).reads(1, Some(10))]),
        1,
        "a transaction without writes must not be refused"
    );
}

#[test]
fn a_thread_sees_its_own_commits() {
    let first = record(Snapshot, 5, End::Committed(10)).writes(1, 11);
    assert_eq!(violations(&[first.clone(), record(Snapshot, 9, End::RolledBack)]), 1);
    assert_eq!(violations(&[first, record(Snapshot, 9, End::RolledBack).by(1)]), 0);
}

#[test]
fn a_real_run_is_isolated() {
    let dir = tempfile::tempdir().unwrap();
    let (records, base) = run(dir.path(), 4, 2000, 3).unwrap();
    let found = check(&records, &base);
    assert!(found.violations.is_empty(), "{}", found.violations.join("\n"));
    assert!(found.committed > 2000, "{found:?}");
}

/// At read uncommitted, a value that its own transaction overwrote may be seen; at other levels it may not.
#[test]
fn an_intermediate_value_is_allowed_only_at_read_uncommitted() {
    let mut writer = record(Snapshot, 5, End::Committed(10)).writes(1, 12);
    writer.overwritten.push((1, Some(11)));
    for (level, violations) in [(ReadUncommitted, 0), (ReadCommitted, 1)] {
        let mut reader = record(level, 5, End::RolledBack).by(1).reads(1, Some(11));
        reader.snapshot = None;
        let found = check(&[writer.clone(), reader], &BTreeMap::new());
        assert_eq!(found.violations.len(), violations, "{level:?}: {:?}", found.violations);
    }
}
