use super::*;
use crate::merge::MergeCursor;

/// Keys of 0 to 11 bytes that differ early, late, and by trailing zeros only.
fn name(n: usize) -> Vec<u8> {
    match n % 4 {
        0 => format!("{n:02}").into_bytes(),
        1 => format!("12345678{n}").into_bytes(),
        2 => vec![0; n % 11],
        _ => [b"1234567".as_slice(), &vec![0; n % 5]].concat(),
    }
}

/// Random runs over few keys. With `newest_first`, lower runs hold newer versions of a key than higher ones.
fn runs(rng: &mut Rng, compare: &Comparator, newest_first: bool) -> Vec<Vec<Version>> {
    let n = 1 + rng.below(12);
    let keys = 1 + rng.below(30);
    (0..n)
        .map(|i| {
            let entries = (0..rng.below(40)).map(|_| {
                let band = if newest_first { (n - i) as u64 * 10 } else { 0 };
                put(&name(rng.below(keys)), band + rng.below(10) as u64)
            });
            let mut run: Vec<_> = entries.collect();
            run.sort_by(|a, b| order(compare, a, b));
            for (j, v) in run.iter_mut().enumerate() {
                v.value = format!("{i}/{j}").into_bytes();
            }
            run
        })
        .collect()
}

fn source(rng: &mut Rng, compare: &Comparator, run: &[Version]) -> Source {
    if rng.one_in(2) {
        Source::Level(LevelCursor::new(compare.clone(), cut(compare, run, 3)))
    } else {
        let mut cursor = VecCursor::new(compare, run.into());
        cursor.filter = rng.one_in(2);
        Source::Run(cursor)
    }
}

/// Moves a merge cursor at random and compares each step with the sorted concatenation.
fn random_walk(rng: &mut Rng, compare: &Comparator) {
    let newest_first = rng.one_in(2);
    let runs = runs(rng, compare, newest_first);
    let children: Vec<_> = runs.iter().map(|r| source(rng, compare, r)).collect();
    let mut model: Vec<Version> = runs.concat();
    model.sort_by(|a, b| order(compare, a, b)); // stable: lower runs first
    let mut cursor = if newest_first {
        MergeCursor::newest_first(compare.clone(), children)
    } else {
        MergeCursor::new(compare.clone(), children)
    };
    let mut at: Option<usize> = None;
    for _ in 0..300 {
        let target = name(rng.below(32));
        let step = rng.below(20);
        match (step, at) {
            (0, _) => {
                cursor.seek_to_first().unwrap();
                at = (!model.is_empty()).then_some(0);
            }
            (1, _) => {
                cursor.seek_to_last().unwrap();
                at = model.len().checked_sub(1);
            }
            (2, _) | (_, None) => {
                cursor.seek(&target).unwrap();
                let i = model.partition_point(|v| compare.compare(&v.key, &target).is_lt());
                at = (i < model.len()).then_some(i);
            }
            (3, _) => {
                cursor.seek_for_prev(&target).unwrap();
                at = model.partition_point(|v| compare.compare(&v.key, &target).is_le()).checked_sub(1);
            }
            (4, _) => {
                let seq = rng.below(130) as u64;
                cursor.seek_version(&target, seq).unwrap();
                let before = |v: &Version| compare.compare(&v.key, &target).then(seq.cmp(&v.seq)).is_lt();
                let i = model.partition_point(before);
                at = (i < model.len()).then_some(i);
            }
            (5 | 6, Some(i)) => {
                cursor.next_key().unwrap();
                let i = model.partition_point(|v| compare.compare(&v.key, &model[i].key).is_le());
                at = (i < model.len()).then_some(i);
            }
            (7..=12, Some(i)) => {
                cursor.next().unwrap();
                at = (i + 1 < model.len()).then_some(i + 1);
            }
            (_, Some(i)) => {
                cursor.prev().unwrap();
                at = i.checked_sub(1);
            }
        }
        assert_eq!(entry(&mut cursor), at.map(|i| model[i].clone()));
    }
}

#[test]
fn random_movements_match_a_sorted_list() {
    with_seeds(1500, |rng| random_walk(rng, &Comparator::bytewise()));
    with_seeds(300, |rng| random_walk(rng, &Comparator::reverse_bytewise()));
}

#[test]
fn a_merge_of_no_or_empty_children_is_never_valid() {
    let order = Comparator::bytewise();
    for n in [0, 1, 3] {
        let children = (0..n).map(|_| VecCursor::sorted(&order, vec![])).collect();
        let mut cursor = MergeCursor::newest_first(order.clone(), children);
        assert!(!cursor.valid());
        for seek in [MergeCursor::seek_to_first, MergeCursor::seek_to_last] {
            seek(&mut cursor).unwrap();
            assert!(!cursor.valid());
        }
        cursor.seek(b"a").unwrap();
        assert!(!cursor.valid());
        cursor.seek_for_prev(b"a").unwrap();
        assert!(!cursor.valid());
    }
}

#[test]
fn equal_versions_come_in_the_order_of_the_children_in_both_directions() {
    let order = Comparator::bytewise();
    let child = |value: &str| {
        let mut v = put(b"k", 5);
        v.value = value.into();
        VecCursor::sorted(&order, vec![v])
    };
    let mut cursor = MergeCursor::new(order.clone(), vec![child("new"), child("mid"), child("old")]);
    let values: Vec<_> = all(&mut cursor).into_iter().map(|v| v.value).collect();
    assert_eq!(values, [b"new", b"mid", b"old"]);
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.value().unwrap(), b"old");
    cursor.prev().unwrap();
    assert_eq!(cursor.value().unwrap(), b"mid");
    cursor.next().unwrap();
    assert_eq!(cursor.value().unwrap(), b"old");
}

#[test]
fn an_exact_hit_does_not_position_older_children() {
    let order = Comparator::bytewise();
    let runs = [
        vec![put(b"b", 9)],
        vec![put(b"a", 5), put(b"c", 5)],
        vec![put(b"a", 1), put(b"c", 1), put(b"d", 1)],
    ];
    let children = runs.map(|r| VecCursor::sorted(&order, r)).into_iter().collect();
    let mut cursor = MergeCursor::newest_first(order, children);
    cursor.seek(b"c").unwrap();
    assert_eq!((cursor.key(), cursor.seq()), (b"c".as_slice(), 5));
    let seeks = |c: &MergeCursor<VecCursor>| c.children.iter().map(|c| c.seeks).collect::<Vec<_>>();
    assert_eq!(seeks(&cursor), [0, 1, 0]); // the filter ruled out the first
    cursor.next().unwrap();
    assert_eq!((cursor.key(), cursor.seq()), (b"c".as_slice(), 1));
    assert_eq!(seeks(&cursor), [1, 1, 1]);
}

#[test]
fn a_failing_child_invalidates_the_cursor_and_a_new_seek_recovers() {
    let order = Comparator::bytewise();
    let mut bad = VecCursor::sorted(&order, vec![put(b"b", 1), put(b"d", 1)]);
    bad.fails_at = Some(1);
    let good = VecCursor::sorted(&order, vec![put(b"a", 1), put(b"c", 1), put(b"e", 1)]);
    let mut cursor = MergeCursor::new(order, vec![good, bad]);
    cursor.seek_to_first().unwrap();
    cursor.next().unwrap();
    assert_eq!(cursor.key(), b"b");
    assert!(cursor.next().unwrap_err().is_corruption());
    assert!(!cursor.valid());
    assert!(cursor.seek(b"c").is_err());
    assert!(!cursor.valid());
    cursor.seek(b"e").unwrap();
    assert_eq!(cursor.key(), b"e");
    assert!(cursor.prev().is_err());
    assert!(!cursor.valid());
    cursor.seek_for_prev(b"b").unwrap();
    assert_eq!(cursor.key(), b"b");
}
