//! Compares both forms of the set with a linear search.

use std::sync::Arc;

use super::{Hidden, RangeSet, RangeTombstone, SharedRanges};
use crate::types::{Comparator, SeqNo};

/// A small generator with reproducible numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn key(&mut self) -> Box<[u8]> {
        let len = 1 + self.below(2) as usize;
        (0..len).map(|_| b'a' + self.below(5) as u8).collect()
    }

    fn border(&mut self) -> Option<Box<[u8]>> {
        (self.below(8) > 0).then(|| self.key())
    }
}

fn number(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

fn newest(order: &Comparator, all: &[RangeTombstone], key: &[u8], at: SeqNo) -> SeqNo {
    all.iter().filter(|t| t.seq <= at && t.covers(order, key)).map(|t| t.seq).max().unwrap_or(0)
}

#[test]
fn lookups_agree_with_a_linear_search() {
    for (order, seed) in [(Comparator::bytewise(), 1), (Comparator::reverse_bytewise(), 2)] {
        let mut rng = Numbers(seed);
        let mut all = Vec::new();
        let shared = SharedRanges::default();
        assert!(shared.is_empty() && shared.to_owned().is_empty());
        for seq in 1..=200 {
            let tombstone = RangeTombstone { seq: seq * 3, start: rng.border(), end: rng.border() };
            all.push(tombstone.clone());
            shared.add(&order, tombstone);
            let grown = shared.to_owned();
            let whole = RangeSet::new(&order, all.iter().cloned().map(Arc::new).collect());
            assert_eq!((grown.len(), whole.len()), (all.len(), all.len()));
            let at = rng.below(seq * 3 + 3);
            let mut hidden = Hidden::new(vec![grown.clone(), RangeSet::default()], at).unwrap();
            for _ in 0..40 {
                let key = rng.key();
                let expected = newest(&order, &all, &key, at);
                assert_eq!(grown.newest(&order, &key, at), expected, "{key:?} at {at}, {all:?}");
                assert_eq!(whole.newest(&order, &key, at), expected);
                let above = all.iter().filter(|t| t.seq > at && t.covers(&order, &key)).map(|t| t.seq).min();
                assert_eq!(grown.oldest_above(&order, &key, at), above);
                assert_eq!(hidden.covers(&order, &key, at / 2), at / 2 < expected);
                assert_eq!(hidden.below(), expected);
                assert!(hidden.high().is_none_or(|high| order.compare(&key, high).is_lt()));
            }
        }
    }
}

#[test]
fn a_thousand_nested_ranges_use_few_tiers() {
    let order = Comparator::bytewise();
    let key = |n: u64| Some(number(n).into());
    let mut set = RangeSet::default();
    for n in 0..1000 {
        set = set.with(&order, RangeTombstone { seq: n + 1, start: key(n), end: key(4000 - n) });
    }
    assert_eq!(set.newest(&order, &number(2000), SeqNo::MAX), 1000);
    assert_eq!(set.newest(&order, &number(10), SeqNo::MAX), 11);
    assert!(set.tiers_for_test() <= 11, "{}", set.tiers_for_test());
}

#[test]
fn an_interval_meets_key_ranges_that_share_a_key_with_it() {
    let order = Comparator::bytewise();
    let t = RangeTombstone { seq: 1, start: Some((*b"c").into()), end: Some((*b"f").into()) };
    assert!(t.meets(&order, b"a", b"c") && t.meets(&order, b"d", b"e") && t.meets(&order, b"e", b"z"));
    assert!(!t.meets(&order, b"a", b"b") && !t.meets(&order, b"f", b"z"));
}
