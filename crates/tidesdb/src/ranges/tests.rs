//! Compares both forms of the set with a linear search.

use std::sync::Arc;

use super::{Cover, Covered, Hidden, RangeSet, RangeStack, RangeTombstone, SharedRanges};
use crate::memory::{Memory, Use};
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
            let tombstone = RangeTombstone::new(seq * 3, rng.border(), rng.border());
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

/// A stack, and the range deletes that are on it.
struct Stacked {
    order: Comparator,
    stack: RangeStack,
    all: Vec<RangeTombstone>,
}

impl Stacked {
    fn push(&mut self, rng: &mut Numbers, seq: SeqNo) {
        let (mut start, mut end) = (rng.border(), rng.border());
        if let (Some(a), Some(b)) = (&start, &end)
            && self.order.compare(a, b).is_gt()
        {
            std::mem::swap(&mut start, &mut end);
        }
        if start.is_some() && start == end {
            end = None; // no range is empty
        }
        let range = RangeTombstone::new(seq, start, end);
        self.all.push(range.clone());
        self.stack.push(&self.order, range);
    }

    fn pop(&mut self) {
        self.all.pop();
        self.stack.pop(&self.order);
    }
}

/// Compares `cover` with a search in `all`, key by key and in a walk.
fn check_cover(order: &Comparator, cover: &Cover, all: &[RangeTombstone], rng: &mut Numbers) {
    let mut walk = Covered::new(order, cover);
    assert_eq!(cover.is_empty(), all.is_empty());
    for _ in 0..20 {
        let (key, stamp) = (rng.key(), rng.below(1000));
        let expected = newest(order, all, &key, SeqNo::MAX);
        assert_eq!(cover.newest(order, &key), expected, "{key:?}, {all:?}");
        assert_eq!(walk.as_mut().is_some_and(|walk| walk.hides(&key, stamp)), stamp < expected);
    }
}

#[test]
fn a_stack_agrees_with_a_linear_search_after_each_undo() {
    for (order, seed) in [(Comparator::bytewise(), 1), (Comparator::reverse_bytewise(), 2)] {
        let mut rng = Numbers(seed);
        let memory = Memory::new(64 << 20);
        let mut s = Stacked { order: order.clone(), stack: RangeStack::new(&memory), all: Vec::new() };
        let mut old: Vec<(Cover, Vec<RangeTombstone>)> = Vec::new();
        let mut seq = 0;
        for _ in 0..300 {
            let grows = rng.below(2) == 0;
            for _ in 0..rng.below(6) {
                seq += 1 + rng.below(3);
                if grows || rng.below(3) == 0 { s.push(&mut rng, seq) } else { s.pop() }
            }
            check_cover(&order, s.stack.cover(), &s.all, &mut rng);
            old.push((s.stack.cover().clone(), s.all.clone()));
        }
        old.iter().for_each(|(cover, all)| check_cover(&order, cover, all, &mut rng));
        while !s.all.is_empty() {
            s.pop();
        }
        s.pop(); // there is nothing
        assert!(s.stack.cover().is_empty());
        memory.settle();
        assert!(memory.used_for(Use::Transactions) > 0, "the old states are counted");
        drop((old, s));
        memory.settle();
        assert_eq!(memory.used_for(Use::Transactions), 0);
    }
}

/// Whatever the order of the ends: in order, backwards, and from both sides.
#[test]
fn the_tree_of_a_stack_stays_low_and_its_memory_follows_the_range_deletes() {
    let order = Comparator::bytewise();
    let shapes: [fn(u64) -> (u64, u64); 4] = [
        |n| (2 * n, 2 * n + 1),
        |n| (20_000 - 2 * n, 20_001 - 2 * n),
        |n| (n, 30_000 - n),
        |n| (n * 7919 % 10_000 * 2, n * 7919 % 10_000 * 2 + 1),
    ];
    for shape in shapes {
        let memory = Memory::new(64 << 20);
        let mut stack = RangeStack::new(&memory);
        for n in 0..10_000 {
            let (start, end) = (Some(number(shape(n).0).into()), Some(number(shape(n).1).into()));
            stack.push(&order, RangeTombstone::new(n + 1, start, end));
        }
        let (borders, height) = stack.cover().shape();
        assert!((19_000..=20_000).contains(&borders) && height <= 22, "{borders} borders, height {height}");
        memory.settle();
        let bytes = memory.used_for(Use::Transactions);
        assert!((10_000 * 300..10_000 * 600).contains(&bytes), "{bytes}");
        for _ in 0..10_000 {
            stack.pop(&order);
        }
        assert!(stack.cover().is_empty());
        drop(stack);
        memory.settle();
        assert_eq!(memory.used_for(Use::Transactions), 0);
    }
}

#[test]
fn a_thousand_nested_ranges_use_few_tiers() {
    let order = Comparator::bytewise();
    let key = |n: u64| Some(number(n).into());
    let mut set = RangeSet::default();
    for n in 0..1000 {
        set = set.with(&order, RangeTombstone::new(n + 1, key(n), key(4000 - n)));
    }
    assert_eq!(set.newest(&order, &number(2000), SeqNo::MAX), 1000);
    assert_eq!(set.newest(&order, &number(10), SeqNo::MAX), 11);
    assert!(set.tiers_for_test() <= 11, "{}", set.tiers_for_test());
}

#[test]
fn an_interval_meets_key_ranges_that_share_a_key_with_it() {
    let order = Comparator::bytewise();
    let t = RangeTombstone::new(1, Some((*b"c").into()), Some((*b"f").into()));
    assert!(t.meets(&order, b"a", b"c") && t.meets(&order, b"d", b"e") && t.meets(&order, b"e", b"z"));
    assert!(!t.meets(&order, b"a", b"b") && !t.meets(&order, b"f", b"z"));
}
