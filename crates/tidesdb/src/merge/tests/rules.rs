//! One test for each rule of `retain`, by its number there. A script lists versions of key `k`, newest first.

use super::*;
use crate::merge::{Reason, Retain, RetainRules, RetainStream};
use Reason::{Bottom, Expired, Filtered, Folded, Paired, Redundant, SameCommit, Shadowed};

/// In the order in which they are counted.
const REASONS: [Reason; 8] = [SameCommit, Shadowed, Paired, Redundant, Bottom, Expired, Folded, Filtered];

const FLOOR: SeqNo = 100;
const NOW: u64 = 50;

fn p(seq: SeqNo) -> Version {
    put(b"k", seq)
}
fn d(seq: SeqNo) -> Version {
    version(b"k", seq, Kind::Delete)
}
fn s(seq: SeqNo) -> Version {
    version(b"k", seq, Kind::SingleDelete)
}
/// A put that has expired.
fn x(seq: SeqNo) -> Version {
    Version { expiry: NOW, ..p(seq) }
}

fn rules(snapshots: &[SeqNo], bottom: bool) -> RetainRules {
    RetainRules {
        snapshots: snapshots.to_vec(),
        visible_floor: FLOOR,
        bottom,
        now: Some(NOW),
        conflicts_since: None,
        newest_snapshot: snapshots.last().copied(),
        renumber: false,
    }
}

/// Feeds the entries, in this order, to a stream. Returns what it writes and why the rest was dropped.
fn run(rules: RetainRules, entries: Vec<Version>) -> (Vec<Version>, Vec<(Reason, u64)>) {
    let order = Comparator::bytewise();
    let seen = entries.len() as u64;
    let mut cursor = VecCursor::new(&order, entries.into());
    cursor.seek_to_first().unwrap();
    let mut stream = RetainStream::new(cursor, Retain::new(rules, order), None);
    let mut out = Vec::new();
    while let Some(e) = stream.next().unwrap() {
        out.push(Version {
            key: e.key.to_vec(),
            seq: e.seq,
            kind: e.kind,
            expiry: e.expiry,
            value: e.value.to_vec(),
        });
    }
    assert!(stream.next().unwrap().is_none());
    let counts = *stream.counts();
    assert_eq!((counts.seen, counts.kept), (seen, out.len() as u64));
    assert_eq!(counts.seen, counts.kept + counts.dropped_in_all());
    (out, REASONS.into_iter().zip(counts.dropped).filter(|(_, n)| *n > 0).collect())
}

#[track_caller]
fn check(
    snapshots: &[SeqNo],
    bottom: bool,
    entries: &[Version],
    kept: &[Version],
    dropped: &[(Reason, u64)],
) {
    let (out, reasons) = run(rules(snapshots, bottom), entries.to_vec());
    assert_eq!(out, kept);
    assert_eq!(reasons, dropped);
}

#[test]
fn rule_1_a_put_under_a_newer_version_is_dropped_unless_a_reader_needs_it() {
    check(&[], false, &[p(9), p(5), p(3)], &[p(9)], &[(Shadowed, 2)]);
    check(&[], false, &[d(9), p(5)], &[d(9)], &[(Shadowed, 1)]);
    check(&[5], false, &[p(9), p(5), p(3)], &[p(9), p(5)], &[(Shadowed, 1)]);
    check(&[8], false, &[p(9), p(5), p(3)], &[p(9), p(5)], &[(Shadowed, 1)]);
    check(&[4, 9], false, &[p(9), p(5), p(3)], &[p(9), p(3)], &[(Shadowed, 1)]);
    check(&[2, 9, 77], false, &[p(9), p(5), p(3)], &[p(9)], &[(Shadowed, 2)]);
}

#[test]
fn future_readers_are_assumed_from_the_floor_on() {
    check(&[], false, &[p(101), p(100), p(99)], &[p(101), p(100)], &[(Shadowed, 1)]);
    check(&[], false, &[p(101), p(99), p(98)], &[p(101), p(99)], &[(Shadowed, 1)]);
    check(&[], false, &[p(300), p(200), p(150)], &[p(300), p(200), p(150)], &[]);
    check(&[], false, &[p(100), p(99)], &[p(100)], &[(Shadowed, 1)]);
    check(&[], true, &[d(101), p(100)], &[d(101), p(100)], &[]);
    check(&[], true, &[d(100), p(99)], &[], &[(Shadowed, 1), (Bottom, 1)]);
}

#[test]
fn rule_2_a_tombstone_under_a_tombstone_is_dropped_and_a_full_delete_wins() {
    check(&[], false, &[d(9), d(5)], &[d(9)], &[(Shadowed, 1)]);
    check(&[], false, &[d(9), s(5)], &[d(9)], &[(Shadowed, 1)]);
    check(&[], false, &[s(9), s(5)], &[s(9)], &[(Shadowed, 1)]);
    check(&[], false, &[s(9), d(5)], &[d(9)], &[(Shadowed, 1)]);
    // If the first were still a single delete, it would pair with the put at 4 and uncover the one at 3.
    check(&[], false, &[s(9), d(5), p(4), p(3)], &[d(9)], &[(Shadowed, 3)]);
}

#[test]
fn rule_3_a_tombstone_that_may_separate_two_puts_stays() {
    check(&[], false, &[p(9), d(5)], &[p(9), d(5)], &[]);
    check(&[], false, &[p(9), s(5)], &[p(9), s(5)], &[]);
    check(&[], false, &[p(9), p(7), d(5), p(3)], &[p(9), d(5)], &[(Shadowed, 2)]);
    check(&[3], false, &[p(9), d(5), p(3)], &[p(9), d(5), p(3)], &[]);
    check(&[3], false, &[p(9), d(5), d(3)], &[p(9), d(3)], &[(Redundant, 1)]);
    check(&[], true, &[p(9), d(5)], &[p(9)], &[(Bottom, 1)]);
    check(&[3], true, &[p(9), d(5), p(3)], &[p(9), d(5), p(3)], &[]);
}

#[test]
fn rule_4_a_single_delete_and_its_put_are_dropped_together() {
    check(&[], false, &[s(9), p(5)], &[], &[(Paired, 2)]);
    check(&[4, 9], false, &[s(9), p(5)], &[], &[(Paired, 2)]);
    check(&[5], false, &[s(9), p(5)], &[s(9), p(5)], &[]);
    check(&[8], true, &[s(9), p(5)], &[s(9), p(5)], &[]);
    check(&[], false, &[s(9), x(5)], &[], &[(Paired, 2)]);
    // Its put is not in the input; it may be in an older source.
    check(&[], false, &[s(9)], &[s(9)], &[]);
    check(&[], true, &[s(9)], &[], &[(Bottom, 1)]);
    check(&[], false, &[s(9), p(7), s(5), p(3)], &[], &[(Paired, 4)]);
    check(&[], false, &[p(11), s(9), p(7), s(5), p(3)], &[p(11)], &[(Paired, 4)]);
    // The version below a pair becomes the answer of the readers of its single delete.
    check(&[], false, &[s(9), p(7), d(5)], &[d(5)], &[(Paired, 2)]);
    check(&[], false, &[s(9), p(7), s(5)], &[s(5)], &[(Paired, 2)]);
    // A reader between the versions of a pair prevents the pairing; readers elsewhere do not.
    check(&[6], false, &[s(9), p(7), s(5), p(3)], &[], &[(Paired, 4)]);
    check(&[7], false, &[s(9), p(7), s(5), p(3)], &[s(9), p(7)], &[(Paired, 2)]);
}

#[test]
fn rule_5_a_tombstone_over_a_hiding_version_is_dropped() {
    check(&[5], false, &[d(9), d(5)], &[d(5)], &[(Redundant, 1)]);
    check(&[5], true, &[d(9), d(5)], &[], &[(Redundant, 1), (Bottom, 1)]);
    check(&[5], false, &[s(9), d(5)], &[d(5)], &[(Redundant, 1)]);
    check(&[5], false, &[d(9), x(5)], &[d(5)], &[(Redundant, 1)]);
    check(&[5], false, &[x(9), d(5)], &[d(5)], &[(Expired, 1)]);
    check(&[3, 5], true, &[d(9), d(5), p(3)], &[d(5), p(3)], &[(Redundant, 1)]);
}

#[test]
fn rule_6_at_the_bottom_a_hiding_version_with_nothing_below_is_dropped() {
    check(&[], true, &[d(9), p(5)], &[], &[(Shadowed, 1), (Bottom, 1)]);
    check(&[], false, &[d(9), p(5)], &[d(9)], &[(Shadowed, 1)]);
    // A snapshot older than both versions does not matter; one that sees the put does.
    check(&[2], true, &[d(9), p(5)], &[], &[(Shadowed, 1), (Bottom, 1)]);
    check(&[5], true, &[d(9), p(5)], &[d(9), p(5)], &[]);
    check(&[], true, &[x(9)], &[], &[(Expired, 1)]);
    check(&[], true, &[x(9), p(5)], &[], &[(Shadowed, 1), (Expired, 1)]);
    check(&[5], true, &[x(9), p(5)], &[d(9), p(5)], &[]);
}

#[test]
fn rule_7_an_expired_put_becomes_a_tombstone_above_the_bottom() {
    check(&[], false, &[x(9)], &[d(9)], &[]);
    check(&[], false, &[x(9), p(5)], &[d(9)], &[(Shadowed, 1)]);
    let alive = Version { expiry: NOW + 1, ..p(9) };
    check(&[], true, std::slice::from_ref(&alive), std::slice::from_ref(&alive), &[]);
    for bottom in [false, true] {
        let paused = RetainRules { now: None, ..rules(&[], bottom) };
        assert_eq!(run(paused, vec![x(9), p(5)]), (vec![x(9)], vec![(Shadowed, 1)]));
    }
}

#[test]
fn rule_8_the_last_operation_of_a_commit_wins() {
    let first = Version { value: b"first".into(), ..p(9) };
    check(&[9], false, &[p(9), first.clone()], &[p(9)], &[(SameCommit, 1)]);
    check(&[9], false, &[p(9), d(9)], &[p(9)], &[(SameCommit, 1)]);
    check(&[9], false, &[d(9), p(9)], &[d(9)], &[(SameCommit, 1)]);
    check(&[9], false, &[s(9), p(9)], &[], &[(Paired, 2)]);
    // The commit's put was paired with a single delete. The tombstone below still hides older puts.
    check(&[], false, &[s(9), p(7), d(7)], &[d(7)], &[(Paired, 2)]);
    check(&[], false, &[p(9), p(7), d(7)], &[p(9), d(7)], &[(Shadowed, 1)]);
}

#[test]
fn rule_9_a_put_that_every_reader_sees_gets_number_0_at_the_bottom() {
    let numbers = |rules: RetainRules, entries: &[Version]| -> Vec<SeqNo> {
        run(rules, entries.to_vec()).0.iter().map(|v| v.seq).collect()
    };
    let rule = |snapshots: &[SeqNo]| RetainRules { renumber: true, ..rules(snapshots, true) };
    assert_eq!(numbers(rule(&[]), &[p(9), p(5)]), [0]);
    assert_eq!(numbers(rule(&[]), &[p(FLOOR + 1), p(FLOOR), p(5)]), [FLOOR + 1, 0]);
    assert_eq!(numbers(rule(&[8]), &[p(9), p(8), p(5)]), [9, 0], "a reader at 8 needs the difference");
    assert_eq!(numbers(rule(&[8]), &[d(9), p(5)]), [9, 0]);
    assert_eq!(numbers(rule(&[4]), &[p(9), p(5)]), [9], "a reader at 4 must not see it");
    assert_eq!(numbers(RetainRules { conflicts_since: Some(8), ..rule(&[8]) }, &[p(9), p(8)]), [9, 0]);
    assert_eq!(numbers(RetainRules { bottom: false, ..rule(&[]) }, &[p(9)]), [9]);
    assert_eq!(numbers(RetainRules { renumber: false, ..rule(&[]) }, &[p(9)]), [9]);
}

#[test]
fn keys_do_not_affect_each_other() {
    let entries = [
        version(b"a", 9, Kind::Delete),
        version(b"b", 5, Kind::SingleDelete),
        put(b"c", 4),
        version(b"d", 3, Kind::Delete),
    ];
    check(&[], false, &entries, &entries, &[]);
    check(&[], true, &entries, &entries[2..3], &[(Bottom, 3)]);
}

#[test]
fn keys_that_compare_equal_are_one_key() {
    let order = Comparator::case_insensitive();
    let mut retain = Retain::new(rules(&[], false), order);
    use crate::merge::Action;
    assert_eq!(retain.judge(b"Key", 9, Kind::Put, 0), Action::Keep);
    assert_eq!(retain.judge(b"kEY", 8, Kind::Put, 0), Action::Drop(Shadowed));
    assert!(retain.finish().is_none());
}

#[test]
fn a_stream_stops_at_its_end_and_after_an_error() {
    let order = Comparator::bytewise();
    let entries: Arc<[Version]> = vec![version(b"a", 2, Kind::Delete), put(b"b", 1), put(b"c", 1)].into();
    let mut cursor = VecCursor::new(&order, Arc::clone(&entries));
    cursor.seek_to_first().unwrap();
    let mut stream = RetainStream::new(cursor, Retain::new(rules(&[], false), order.clone()), Some(b"b"));
    assert_eq!(stream.next().unwrap().unwrap().key, b"a");
    assert!(stream.next().unwrap().is_none());

    let mut cursor = VecCursor::new(&order, entries);
    cursor.fails_at = Some(1);
    cursor.seek_to_first().unwrap();
    let mut stream = RetainStream::new(cursor, Retain::new(rules(&[], false), order), None);
    assert!(stream.next().unwrap_err().is_corruption());
    assert!(stream.next().is_err(), "a failed merge must not look finished");
}

#[test]
fn a_stream_calls_the_check_even_if_it_yields_nothing() {
    let order = Comparator::bytewise();
    let entries: Vec<_> =
        (0..20_000u32).map(|i| version(format!("{i:06}").as_bytes(), 1, Kind::Delete)).collect();
    for stop_at in [1, 3, u32::MAX] {
        let mut cursor = VecCursor::new(&order, entries.clone().into());
        cursor.seek_to_first().unwrap();
        let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let asks = Arc::clone(&asked);
        let retain = Retain::new(rules(&[], true), order.clone());
        let mut stream = RetainStream::new(cursor, retain, None).checking(move || {
            match asks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 {
                n if n < stop_at => Ok(()),
                _ => Err(Error::Busy { cause: "stopped" }),
            }
        });
        let ended = stream.next().map(|entry| entry.is_none());
        let asked = asked.load(std::sync::atomic::Ordering::SeqCst);
        match stop_at {
            u32::MAX => assert!(ended.unwrap() && asked == 4),
            _ => assert!(matches!(ended, Err(Error::Busy { .. })) && asked == stop_at),
        }
    }
}
