//! Prefixes and bounds that are longer than any key: what a range reads is what `delete_range` deletes.

use std::cmp::Ordering;
use std::ops::Bound;

use tidesdb::{Comparator, Db, Error, Family, Isolation, KEY_BYTES_MAX, WriteBatch};

use crate::common::{Sim, contents, pairs, small};

type Key = Vec<u8>;
type Range = (Bound<Key>, Bound<Key>);

/// Keys of all lengths, and of the greatest one.
fn keys() -> Vec<Key> {
    let max = KEY_BYTES_MAX;
    let last = |byte: u8| [&vec![b'k'; max - 1][..], &[byte]].concat();
    let mut keys = vec![vec![0], b"a".to_vec(), b"z".to_vec(), vec![0xff], vec![b'k'; 100], vec![0xff; max]];
    keys.extend([vec![b'k'; max - 1], last(b'j'), last(b'k'), last(b'l'), last(0), last(0xff)]);
    keys
}

/// Bounds of all lengths.
fn bounds() -> Vec<Key> {
    let max = KEY_BYTES_MAX;
    let mut bounds = vec![b"k".to_vec(), vec![b'k'; max], vec![b'k'; max + 1], vec![b'k'; 2 * max]];
    bounds.extend([vec![0xff; max], vec![0xff; max + 1], [&vec![b'k'; max][..], &[0]].concat()]);
    bounds
}

fn fill(family: &Family) {
    for key in keys() {
        family.put(key, "v").unwrap();
    }
}

fn is_within(order: &Comparator, range: &Range, key: &[u8]) -> bool {
    let after = match &range.0 {
        Bound::Included(start) => order.compare(start, key) != Ordering::Greater,
        Bound::Excluded(start) => order.compare(start, key) == Ordering::Less,
        Bound::Unbounded => true,
    };
    after
        && match &range.1 {
            Bound::Included(end) => order.compare(key, end) != Ordering::Greater,
            Bound::Excluded(end) => order.compare(key, end) == Ordering::Less,
            Bound::Unbounded => true,
        }
}

/// Deletes `range` in a transaction and compares with a range read and with every other call that takes a range.
fn check_range(db: &Db, family: &Family, order: &Comparator, range: &Range, commits: bool) {
    let rows = contents(family);
    let (inside, outside): (Vec<_>, Vec<_>) =
        rows.iter().cloned().partition(|(key, _)| is_within(order, range, key));
    assert_eq!(pairs(family.range(range).unwrap()), inside);
    assert!(family.estimate_range(range).memtable_entries >= inside.len() as u64);
    let mut cursor = family.cursor().unwrap();
    cursor.set_range(range);
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.valid().then(|| cursor.key()), inside.last().map(|(key, _)| &key[..]));
    let mut tx = db.begin(Isolation::Snapshot);
    tx.delete_range(family, range).unwrap();
    assert_eq!(pairs(tx.iter(family).unwrap()), outside);
    if commits {
        tx.commit().unwrap();
        assert_eq!(contents(family), outside);
        fill(family);
    }
}

#[test]
fn a_range_with_long_bounds_deletes_what_it_reads() {
    for order in [Comparator::bytewise(), Comparator::reverse_bytewise()] {
        let sim = Sim::new();
        let db = sim.open();
        let family =
            db.create_family("f", small().write_buffer_bytes(64 << 20).comparator(order.clone())).unwrap();
        fill(&family);
        let ends = || {
            let kinds = [Bound::Included, Bound::Excluded];
            bounds()
                .into_iter()
                .flat_map(move |key| kinds.map(|kind| kind(key.clone())))
                .chain([Bound::Unbounded])
        };
        for (n, start) in ends().enumerate() {
            for (m, end) in ends().enumerate() {
                check_range(&db, &family, &order, &(start.clone(), end), (n + m) % 16 == 0);
            }
        }
        family.compact_range(vec![b'k'; KEY_BYTES_MAX + 1]..vec![0xff; KEY_BYTES_MAX + 1]).unwrap();
        let kept = contents(&family);
        drop((family, db));
        assert_eq!(contents(&sim.open_as_stored().family("f").unwrap()), kept);
    }
}

/// A prefix longer than any key is the prefix of none.
#[test]
fn a_long_prefix_has_no_keys() {
    let max = KEY_BYTES_MAX;
    let db = Sim::new().open();
    let f = db.default_family();
    let long = [vec![b'k'; max + 1], vec![0xff; max + 1], [&vec![b'k'; max][..], &[0xff; 9]].concat()];
    fill(f);
    for prefix in &long {
        assert_eq!(f.prefix(prefix).unwrap().count(), 0);
        assert_eq!(f.prefix(prefix).unwrap().rev().count(), 0);
        let mut batch = WriteBatch::new();
        batch.delete_prefix(f, prefix).unwrap();
        let mut tx = db.begin(Isolation::Serializable);
        tx.delete_prefix(f, prefix).unwrap();
        assert!(batch.is_empty() && tx.is_empty());
        assert_eq!(tx.prefix(f, prefix).unwrap().count(), 0);
        f.delete_prefix(prefix).unwrap();
        db.delete_prefix(prefix).unwrap();
        assert_eq!(contents(f).len(), keys().len());
    }
    for prefix in [vec![b'k'; max], vec![0xff; max], vec![0xff], vec![b'k'; max - 1], vec![]] {
        fill(f);
        let mut expected = keys();
        expected.retain(|key| !key.starts_with(&prefix));
        expected.sort();
        assert_eq!(f.prefix(&prefix).unwrap().count(), keys().len() - expected.len());
        f.delete_prefix(&prefix).unwrap();
        assert_eq!(contents(f).into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
    }
}

/// Custom orders have no prefixes and take no longer bounds, and only byte order has a place for an empty bound. The errors say so.
#[test]
fn other_orders_say_what_they_cannot_delete() {
    let db = Sim::new().open();
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    for order in [Comparator::reverse_bytewise(), Comparator::case_insensitive()] {
        let family = db.create_family(order.name(), small().comparator(order.clone())).unwrap();
        fill(&family);
        let rows = contents(&family).len();
        if order.name() == "case-insensitive" {
            for prefix in [&b"k"[..], &long] {
                let error = family.delete_prefix(prefix).unwrap_err();
                assert!(error.to_string().contains("the key order \"case-insensitive\" may put"), "{error}");
            }
            let error = family.delete_range(&long[..]..).unwrap_err();
            assert!(error.to_string().contains("at most 65536 bytes, this one 65537"), "{error}");
        }
        let error = family.delete_range(.."").unwrap_err();
        assert!(
            matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("empty"),
            "{error}"
        );
        assert_eq!(contents(&family).len(), rows);
    }
}
