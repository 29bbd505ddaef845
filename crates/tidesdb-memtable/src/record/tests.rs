//! Unit tests of the version chains: length of searches, and what remains after superseding.

use std::sync::Arc;

use super::*;
use crate::memtable::Memtable;
use crate::order::KeyOrder;

/// The orders of the two maps.
fn orders() -> [KeyOrder; 2] {
    [KeyOrder::Bytewise, KeyOrder::Custom(Arc::new(<[u8]>::cmp))]
}
/// Miri is slow, and checks memory accesses rather than results.
const VERSIONS: u64 = if cfg!(miri) { 100 } else { 100_000 };

fn version(seq: u64, kind: u8) -> Version {
    Version { seq, kind, expiry: 0 }
}

/// Builds a chain of `VERSIONS` records and returns the newest one.
fn long_chain(arena: &Arena) -> RecordRef<'_> {
    let create = |seq| RecordRef::create(arena, b"key", version(seq, 1), b"value").expect("memory");
    (2..=VERSIONS).fold(create(1), |newest, seq| {
        let record = create(seq);
        record.put_on(newest, arena);
        record
    })
}

#[test]
fn every_version_is_few_steps_from_the_newest() {
    let arena = Arena::new(1 << 20);
    let newest = long_chain(&arena);
    let stride = if cfg!(miri) { 1 } else { 37 };
    let mut most = 0;
    for seq in (1..VERSIONS).step_by(stride) {
        most = most.max(newest.steps_to(seq));
        assert_eq!(newest.visible_at(seq).map(RecordRef::seq), Some(seq));
    }
    // Twice the logarithm of the number of skips, plus the steps between two skips.
    let skips = (VERSIONS / 8).ilog2() as usize;
    println!("at most {most} steps among {VERSIONS} versions");
    assert!(most <= 3 * skips + 10, "{most}");
    assert!(newest.visible_at(0).is_none());
    assert_eq!((newest.oldest().seq(), newest.visible_at(u64::MAX).map(RecordRef::seq)), (1, Some(VERSIONS)));
}

#[test]
fn a_late_version_is_found_between_any_two_skips() {
    let arena = Arena::new(1 << 20);
    let create = |seq| RecordRef::create(&arena, b"key", version(seq, 1), b"value").expect("memory");
    let mut newest = create(10);
    for i in 2..=100 {
        let record = create(i * 10);
        record.put_on(newest, &arena);
        newest = record;
    }
    for i in 0..100 {
        newest.link_older(create(i * 10 + 5));
    }
    assert!(!newest.link_older_alone(create(3)));
    assert!(newest.link_older_alone(create(3)));
    let mut seqs: Vec<u64> = (0..100).flat_map(|i| [i * 10 + 5, i * 10 + 10]).chain([3]).collect();
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    let mut record = Some(newest);
    for seq in seqs {
        let here = record.expect("not the end");
        assert_eq!(here.seq(), seq);
        assert_eq!(newest.visible_at(seq).map(RecordRef::as_ptr), Some(here.as_ptr()));
        if let Some(older) = here.older() {
            assert_eq!(newest.newer_than(older).map(RecordRef::as_ptr), Some(here.as_ptr()));
        }
        record = here.older();
    }
    assert!(record.is_none());
}

/// A chain of any length counts its older versions, from each of them; one of another kind, or one that expires, makes it `None`.
#[test]
fn older_versions_of_one_kind_are_counted_without_a_look_at_each() {
    let arena = Arena::new(1 << 20);
    let chain = |odd: Option<(u64, u8, u64)>| {
        let mut chain: Vec<RecordRef<'_>> = Vec::new();
        for seq in 0..100 {
            let (kind, expiry) = odd.filter(|odd| odd.0 == seq).map_or((1, 0), |odd| (odd.1, odd.2));
            let record =
                RecordRef::create(&arena, b"key", Version { seq, kind, expiry }, b"value").expect("memory");
            if let Some(newest) = chain.last() {
                record.put_on(*newest, &arena);
            }
            chain.push(record);
        }
        chain
    };
    for (older, record) in (0..).zip(chain(None)) {
        assert_eq!(record.older_alike(), Some(older));
    }
    for odd in [(0, 2, 0), (50, 2, 0), (56, 1, 9), (99, 2, 0)] {
        let chain = chain(Some(odd));
        for (at, record) in (0..).zip(&chain) {
            let alike = at < odd.0 || at == odd.0 && odd.0 == 0 && odd.2 == 0;
            assert_eq!(record.older_alike(), alike.then_some(at), "{odd:?} {at}");
        }
    }
}

/// Puts one key several times, in order and late, with repeating kinds. Of each sequence number, the last put
/// must be visible, whichever versions were dropped.
#[test]
fn the_last_of_equal_versions_is_seen_at_every_snapshot() {
    let steps = if cfg!(miri) { 120 } else { 20_000 };
    for order in orders() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        println!("{order:?} seed {random}");
        let mut next = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 16) % n
        };
        let memtable = Memtable::new(order, 1 << 20, 1);
        let mut model = std::collections::BTreeMap::new();
        for step in 0..steps {
            let late = if next(4) == 0 { next(30) } else { 0 };
            let seq = (1 + step / 5_u64).saturating_sub(late);
            let record = version(seq, next(2) as u8);
            memtable.insert(b"key", record, &step.to_le_bytes()).expect("memory");
            model.insert(seq, (record.kind, step.to_le_bytes()));
        }
        for snapshot in 0..=steps / 5 + 1 {
            let seen = memtable.get(b"key", snapshot).map(|e| (e.seq, (e.kind, e.value.to_vec())));
            let expected = model.range(..=snapshot).next_back();
            assert_eq!(seen, expected.map(|(seq, (kind, value))| (*seq, (*kind, value.to_vec()))));
        }
        let mut cursor = memtable.cursor();
        let mut count = 0;
        cursor.seek_to_last();
        let mut last = 0;
        while cursor.valid() {
            assert!(cursor.entry().seq >= last);
            (last, count) = (cursor.entry().seq, count + 1);
            cursor.prev();
        }
        assert_eq!((count, last), (memtable.entries(), *model.last_key_value().expect("some").0));
    }
}

/// An expiry takes room only in the records that have one, and moves nothing else.
#[test]
fn only_records_that_expire_store_an_expiry() {
    const { assert!(KEY_AT == size_of::<Record>() && (KEY_AT == 24 || usize::BITS < 64)) };
    let arena = Arena::new(1 << 20);
    let mut newest: Option<RecordRef<'_>> = None;
    for (seq, expiry) in [0, 1, u64::from(u32::MAX) + 1, 0, (1 << 48) - 1, u64::MAX].into_iter().enumerate() {
        let version = Version { seq: seq as u64, kind: u8::MAX, expiry };
        let record = RecordRef::create(&arena, b"a key", version, b"its value").expect("memory");
        if let Some(newest) = newest {
            record.put_on(newest, &arena);
        }
        assert_eq!((record.key(), record.value()), (&b"a key"[..], &b"its value"[..]));
        assert_eq!((record.kind(), record.seq(), record.expiry()), (u8::MAX, seq as u64, expiry));
        newest = Some(record);
    }
    let longest = vec![7; MAX_KEY];
    let version = Version { seq: 1, kind: 0, expiry: 9 };
    let record = RecordRef::create(&arena, &longest, version, b"v").expect("memory");
    assert_eq!((record.key(), record.expiry(), record.kind()), (&longest[..], 9, 0));
    assert!(RecordRef::create(&arena, &vec![7; MAX_KEY + 1], version, b"v").is_err());
}
