//! Unit tests of the tree's parts: heads, searches, prefixes, splits, and behaviour when memory runs out.

use std::sync::Arc;

use super::node::FANOUT;
use super::search::{bisect, lower_bound};
use super::words::{copy_up, head_of, shared_prefix};
use super::*;
use crate::arena::Arena;
use crate::memtable::Memtable;
use crate::order::KeyOrder;
use crate::record::Version;
use crate::sync::AtomicU64;

/// Miri is slow, and checks memory accesses rather than results.
const STRIDE: usize = if cfg!(miri) { 20 } else { 1 };

fn record<'a>(arena: &'a Arena, key: &[u8]) -> RecordRef<'a> {
    RecordRef::create(arena, key, Version { seq: 1, kind: 0, expiry: 0 }, b"").expect("memory")
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn heads_order_like_the_key_bytes_they_contain() {
    let keys: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi", b"\xFF\xFF\xFF"];
    for a in keys {
        for b in keys {
            for at in 0..10 {
                let (x, y) = (a.get(at..).unwrap_or(b""), b.get(at..).unwrap_or(b""));
                if head_of(a, at) < head_of(b, at) {
                    assert!(x < y, "{a:?} {b:?} {at}");
                }
            }
            let shared = a.iter().zip(b).take_while(|(x, y)| x == y).count();
            assert_eq!(shared_prefix(a, b), shared, "{a:?} {b:?}");
        }
    }
    assert_eq!(head_of(b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", 1), 0x0203_0405_0607_0809);
    assert_eq!(head_of(b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", 7), 0x0809_0000_0000_0000);
    assert_eq!(head_of(b"\x01\x02", 1), 0x0200_0000_0000_0000);
}

#[test]
fn all_searches_agree() {
    let mut state = 7;
    for count in (0..=FANOUT).step_by(STRIDE) {
        let mut sorted: Vec<u64> = (0..count).map(|_| next_random(&mut state) >> (state % 64)).collect();
        sorted.sort_unstable();
        // Slots from the count on hold leftover values.
        let heads: [AtomicU64; FANOUT] =
            std::array::from_fn(|i| AtomicU64::new(sorted.get(i).copied().unwrap_or(state % 1000)));
        let probes =
            sorted.iter().flat_map(|h| [h.wrapping_sub(1), *h, h.wrapping_add(1)]).chain([0, u64::MAX]);
        for probe in probes {
            let expected = sorted.iter().filter(|head| **head < probe).count();
            assert_eq!(bisect(&heads, count, probe), expected);
            assert_eq!(lower_bound(&heads, count, probe), expected);
        }
    }
}

#[test]
fn slots_move_up_by_one() {
    for count in (0..FANOUT).step_by(STRIDE) {
        for from in 0..=count {
            let slots: [AtomicU64; FANOUT] = std::array::from_fn(|i| AtomicU64::new(i as u64));
            copy_up(&slots, from, count);
            let moved = |i: usize| if i > from && i <= count { i - 1 } else { i } as u64;
            assert!((0..FANOUT).all(|i| slots[i].load(Ordering::Relaxed) == moved(i)), "{from}..{count}");
        }
    }
}

/// Uses keys that share, lose and regain prefixes of every length around the inline one, one node at a time.
#[test]
fn a_node_finds_its_keys_while_its_prefix_shrinks() {
    for shared in (0..60).step_by(STRIDE) {
        let arena = Arena::new(1 << 20);
        let leaf = NodeRef::leaf(&arena).expect("memory");
        let seen = leaf.lock.read();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for cut in (0..=shared).rev() {
            let mut key = vec![b'p'; cut];
            key.extend_from_slice(&[b'a' + (cut % 26) as u8, cut as u8]);
            keys.push(key);
        }
        keys.truncate(FANOUT);
        for key in &keys {
            let place = leaf.locate(key, seen).expect("no other thread writes");
            assert!(place.found.is_none());
            leaf.insert_key(place.index, record(&arena, key));
        }
        keys.sort();
        for (index, key) in keys.iter().enumerate() {
            let place = leaf.locate(key, seen).expect("no other thread writes");
            assert_eq!((place.index, place.found.map(RecordRef::key)), (index, Some(key.as_slice())));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn an_ascending_load_leaves_full_leaves() {
    let arena = Arena::new(1 << 20);
    let tree = Tree::new();
    for i in 0..FANOUT as u64 * 50 {
        tree.insert(&arena, record(&arena, format!("{i:016}").as_bytes())).expect("memory");
    }
    let mut leaves = 0;
    let mut leaf = Some(tree.first_leaf());
    while let Some(node) = leaf {
        leaves += 1;
        let seen = node.lock.read();
        let last = node.next_leaf(seen).is_none();
        assert!(last || node.meta().count >= FANOUT - 1, "leaf {leaves}: {:?}", node.meta());
        leaf = node.next_leaf(seen);
    }
    assert!(leaves <= 52, "{leaves}");
}

#[test]
fn hints_of_a_dropped_tree_are_ignored_by_the_next() {
    for round in 0..if cfg!(miri) { 3 } else { 100 } {
        let memtable = Memtable::new(KeyOrder::Bytewise, 1 << 20, round);
        for i in 0..200_u64 {
            let version = Version { seq: i, kind: 0, expiry: 0 };
            memtable.insert(format!("{i:08}").as_bytes(), version, b"v").expect("memory");
        }
        assert_eq!(memtable.entries(), 200);
    }
}

#[test]
fn a_full_memtable_keeps_its_entries() {
    for order in [KeyOrder::Bytewise, KeyOrder::Custom(Arc::new(<[u8]>::cmp))] {
        let few = if cfg!(miri) { 2 } else { 4 };
        for limit in [4 << 10, 9 << 10, 50 << 10, 300 << 10].into_iter().take(few) {
            let arena = Arena::with_limit(1 << 20, limit);
            let memtable = Memtable::with_arena(order.clone(), arena, 1);
            let mut state = limit;
            let mut inserted = Vec::new();
            loop {
                let key = next_random(&mut state).to_le_bytes();
                let version = Version { seq: 1, kind: 0, expiry: 0 };
                if memtable.insert(&key, version, &[7; 20]).is_err() {
                    assert!(memtable.get(&key, 9).is_none());
                    break;
                }
                inserted.push(key);
            }
            assert!(inserted.len() as u64 > limit / 200, "{order:?} {limit}: {}", inserted.len());
            assert_eq!(memtable.entries(), inserted.len() as u64);
            assert!(inserted.iter().all(|key| memtable.get(key, 9).is_some()));
            let mut cursor = memtable.cursor();
            cursor.seek_to_first();
            let mut count = 0;
            while cursor.valid() {
                count += 1;
                cursor.next();
            }
            assert_eq!(count, inserted.len());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn ascending_runs_between_other_keys_leave_full_leaves() {
    let arena = Arena::new(1 << 20);
    let tree = Tree::new();
    // The first keys of eight ranges share one leaf; then each range is filled in turn.
    const RUN: usize = 1000;
    let keys =
        (0..8).map(|range| (range, 0)).chain((0..8).flat_map(|range| (1..RUN).map(move |n| (range, n))));
    for (range, n) in keys {
        let record = record(&arena, format!("{range}{n:06}").as_bytes());
        tree.insert(&arena, record).expect("memory");
    }
    let (mut leaves, mut count, mut leaf) = (0, 0, Some(tree.first_leaf()));
    while let Some(node) = leaf {
        (leaves, count) = (leaves + 1, count + node.meta().count);
        leaf = node.next_leaf(node.lock.read());
    }
    assert_eq!(count, 8 * RUN);
    assert!(count * 10 >= leaves * FANOUT * 9, "{leaves} leaves for {count} keys");
}
