//! Tests of the patterns: bytes, order, distinctness, parsing, and the sequence of indexes.

use std::collections::HashSet;

use super::*;
use crate::rng::Rng;

const NUL: char = '\0';

fn key(keys: &Keys, index: u64) -> Vec<u8> {
    let mut buffer = keys.buffer();
    keys.write(keys.item(index).id, &mut buffer);
    buffer
}

fn keys(pattern: Pattern, bytes: usize, span: u64) -> Keys {
    Keys::new(pattern, bytes, span).unwrap()
}

/// The reference's formatting, as described: printed with a minimum width, then cut off.
fn reference_stride(index: u64, bytes: usize) -> Vec<u8> {
    let mut text = format!("{:0width$x}", index.swap_bytes(), width = bytes - 1).into_bytes();
    text.truncate(bytes - 1);
    text.push(0);
    text
}

#[test]
fn the_references_keys_are_exact() {
    for index in (0..70_000).chain([9_999_999, 49_999_999, 200_000_000]) {
        for bytes in [16, 17, 24, 256] {
            assert_eq!(
                key(&keys(Pattern::Stride, bytes, 1 << 40), index),
                reference_stride(index, bytes),
                "{index}"
            );
        }
        let text = format!("{index:015}{NUL}");
        assert_eq!(key(&keys(Pattern::Seq, 16, 1 << 40), index), text.as_bytes());
        let text = format!("{:019}{NUL}", 300_000_000 - index);
        assert_eq!(key(&keys(Pattern::Reverse, 20, 300_000_000), index), text.as_bytes());
    }
    assert_eq!(key(&keys(Pattern::Stride, 16, 99), 1), b"100000000000000\0");
    assert_eq!(key(&keys(Pattern::Stride, 16, 999), 0x1234), b"341200000000000\0");
    assert_eq!(key(&keys(Pattern::Timestamp, 16, 1), 0), b"6553f10000000000");
}

#[test]
fn the_number_of_distinct_stride_keys_equals_the_references() {
    for (n, distinct) in [(50_000, 47_600), (100_000, 96_160), (1_000_000, 996_160)] {
        let keys = keys(Pattern::Stride, 16, n);
        let ids: HashSet<u64> = (0..n).map(|i| keys.item(i).id).collect();
        assert_eq!(ids.len(), distinct);
        let twins = (0..n).filter(|i| keys.twin(*i).is_some_and(|t| t < n)).count();
        assert_eq!(n as usize - twins, distinct, "twins must be exactly the repeated keys");
    }
    let long = keys(Pattern::Stride, 256, 100_000);
    assert_eq!((0..100_000).map(|i| long.item(i).id).collect::<HashSet<_>>().len(), 100_000);
    assert!((0..100_000).all(|i| long.twin(i).is_none()));
}

#[test]
fn every_other_pattern_has_distinct_keys() {
    for pattern in Pattern::ALL.into_iter().filter(|p| *p != Pattern::Stride) {
        let keys = keys(pattern, 16, 100_000);
        let all: HashSet<Vec<u8>> = (0..100_000).map(|i| key(&keys, i)).collect();
        assert_eq!(all.len(), 100_000, "{pattern:?}");
    }
}

#[test]
fn keys_sort_like_their_identities_and_parse_back() {
    for pattern in Pattern::ALL {
        for bytes in [16, 17, 40] {
            let keys = keys(pattern, bytes, 3_000_000);
            let mut both: Vec<(u64, Vec<u8>)> =
                (0..3_000_000).step_by(997).map(|i| (keys.item(i).id, key(&keys, i))).collect();
            for (id, key) in &both {
                assert_eq!(keys.read(key), Some(*id), "{pattern:?}");
            }
            both.sort();
            assert!(both.is_sorted_by_key(|(_, key)| key.clone()), "{pattern:?}");
        }
    }
}

#[test]
fn keys_of_other_generators_are_rejected() {
    let keys = keys(Pattern::Seq, 20, 1000);
    let good = key(&keys, 77);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] = if bad[at] == b'x' { b'y' } else { b'x' };
        assert_eq!(keys.read(&bad), None, "byte {at}");
    }
    assert_eq!(keys.read(&good[1..]), None);
}

#[test]
fn patterns_produce_the_documented_order() {
    let sorted = |pattern| {
        let keys = keys(pattern, 16, 5_000_000);
        let all: Vec<_> = (0..5_000_000).step_by(499).map(|i| key(&keys, i)).collect();
        (all.is_sorted(), all.iter().rev().is_sorted())
    };
    assert_eq!(sorted(Pattern::Seq), (true, false));
    assert_eq!(sorted(Pattern::Timestamp), (true, false));
    assert_eq!(sorted(Pattern::Reverse), (false, true));
    assert_eq!(sorted(Pattern::Random), (false, false));
    let stride = keys(Pattern::Stride, 256, 1 << 30);
    let step = stride.item(0x21).id.wrapping_sub(stride.item(0x20).id);
    assert_eq!(step, 1 << 56, "the next key must be 1/256 of the key space away");
}

#[test]
fn lows_contain_the_low_byte_of_the_index() {
    for pattern in Pattern::ALL {
        let keys = keys(pattern, 16, 2_000_000);
        for index in (1..2_000_000).step_by(313) {
            let item = keys.item(index);
            assert!(keys.lows(item.id).contains(&item.low), "{pattern:?} {index}");
        }
    }
}

#[test]
fn streams_cover_the_documented_indexes() {
    for n in [1, 2, 10, 1000, 4096] {
        let mut sweep = Stream::sweep(n, 5);
        let met: HashSet<u64> = (0..n).map(|_| sweep.advance()).collect();
        assert_eq!(met, (0..n).collect());
        let mut rng = Rng::new(1, n);
        for _ in 0..3 {
            let mut shuffled = Stream::shuffled(n, &mut rng);
            let met: HashSet<u64> = (0..n).map(|_| shuffled.advance()).collect();
            assert_eq!(met, (0..n).collect());
        }
    }
    let mut lanes: Vec<u64> = Vec::new();
    for lane in 0..4 {
        let mut sweep = Stream::sweep(1000, lane * 250);
        lanes.extend((0..250).map(|_| sweep.advance()));
    }
    assert_eq!(lanes.iter().collect::<HashSet<_>>().len(), 1000, "four threads must cover one sweep");
    let mut up = Stream::ascending(3, 5);
    assert_eq!([up.advance(), up.advance(), up.advance()], [3, 4, 3]);
}

#[test]
fn impossible_sizes_are_refused() {
    assert!(Keys::new(Pattern::Seq, 15, 10).is_err());
    assert!(Keys::new(Pattern::Seq, 16, INDEX_MAX + 1).is_err());
}
