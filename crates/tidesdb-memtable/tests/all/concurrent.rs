//! Many threads on one memtable: no entry is lost or out of order, and a read sees everything inserted before
//! it began.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use tidesdb_memtable::{KeyOrder, Memtable, Version};

use crate::maps::MapKind;

const KINDS: [MapKind; 2] = [MapKind::Tree, MapKind::SkipList];

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (x >> 32)
}

/// How thread `t` makes its `i`-th key. Keys named `Shared` are written by all threads.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Random,
    OwnAscending,
    SharedAscending,
    /// All threads write the same few keys and prefixes.
    SharedHot,
    NestedPrefix,
}

impl Shape {
    fn key(self, t: u64, i: u64) -> Vec<u8> {
        match self {
            Shape::Random => format!("{:016x}{t:02}", mix(t << 32 | i)).into_bytes(),
            Shape::OwnAscending => format!("{t:02}{i:014}").into_bytes(),
            Shape::SharedAscending => format!("{i:016}").into_bytes(),
            Shape::SharedHot => format!("{:04}", mix(i + t) % 200).into_bytes(),
            Shape::NestedPrefix => {
                let mut key = vec![b'x'; (mix(i) % 64) as usize];
                key.extend_from_slice(&(mix(i + 7) % 512).to_le_bytes()[..2]);
                key
            }
        }
    }
}

const SHAPES: [Shape; 5] =
    [Shape::Random, Shape::OwnAscending, Shape::SharedAscending, Shape::SharedHot, Shape::NestedPrefix];

/// Inserts arrive in any order of `seq`. Every (thread, step) has its own number.
fn seq_of(t: u64, i: u64) -> u64 {
    (mix(i * 64 + t) << 32) | (i * 64 + t)
}

fn insert_all(memtable: &Memtable, shape: Shape, t: u64, count: u64, progress: &AtomicU64) {
    for i in 0..count {
        let version = Version { seq: seq_of(t, i), kind: t as u8, expiry: i };
        memtable.insert(&shape.key(t, i), version, &[t as u8; 9]).expect("memory");
        progress.store(i + 1, Ordering::Release);
    }
}

/// Iterates once and returns the number of entries.
fn check_order(memtable: &Arc<Memtable>, forwards: bool) -> u64 {
    let mut cursor = memtable.cursor();
    let mut last: Option<(Vec<u8>, u64)> = None;
    let mut count = 0;
    if forwards {
        cursor.seek_to_first()
    } else {
        cursor.seek_to_last()
    }
    while cursor.valid() {
        let entry = cursor.entry();
        if let Some((key, seq)) = &last {
            let here = (entry.key, u64::MAX - entry.seq);
            let there = (key.as_slice(), u64::MAX - seq);
            assert!(if forwards { there < here } else { here < there }, "{there:?} and {here:?}");
        }
        last = Some((entry.key.to_vec(), entry.seq));
        count += 1;
        if forwards { cursor.next() } else { cursor.prev() }
    }
    count
}

/// Gets and seeks the entries that are inserted according to `progress`.
fn check_visible(memtable: &Arc<Memtable>, shape: Shape, progress: &[AtomicU64], round: u64) {
    let mut cursor = memtable.cursor();
    for (t, progress) in progress.iter().enumerate() {
        let done = progress.load(Ordering::Acquire);
        if done == 0 {
            continue;
        }
        for i in [done - 1, mix(round) % done] {
            let (key, seq) = (shape.key(t as u64, i), seq_of(t as u64, i));
            let entry = memtable.get(&key, seq).expect("inserted before the get");
            assert_eq!((entry.key, entry.seq, entry.expiry), (key.as_slice(), seq, i));
            cursor.seek(&key);
            while cursor.entry().seq != seq {
                assert_eq!(cursor.entry().key, key.as_slice(), "the cursor stays on the key");
                cursor.next();
            }
            cursor.seek_for_prev(&key);
            assert_eq!(cursor.entry().key, key.as_slice());
        }
    }
}

fn stress(order: KeyOrder, shape: Shape, threads: u64, count: u64) {
    println!("{order:?} {shape:?} {threads} threads");
    let memtable = Memtable::new(order, 4 << 20, 5);
    let progress: Vec<_> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let (memtable, progress, stop, start) = (&memtable, &progress, &stop, &start);
        let reader = scope.spawn(move || {
            let mut round = 0;
            while !stop.load(Ordering::Acquire) || round < 2 {
                check_order(memtable, round % 2 == 0);
                check_visible(memtable, shape, progress, round);
                round += 1;
            }
        });
        let writers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn(move || {
                    start.wait();
                    insert_all(memtable, shape, t, count, &progress[t as usize]);
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        stop.store(true, Ordering::Release);
        reader.join().expect("reader");
    });
    assert_eq!(memtable.entries(), threads * count);
    assert_eq!(check_order(&memtable, true), threads * count);
    assert_eq!(check_order(&memtable, false), threads * count);
    for t in 0..threads {
        for i in 0..count {
            let entry = memtable.get(&shape.key(t, i), seq_of(t, i)).expect("inserted");
            assert_eq!((entry.seq, entry.kind, entry.expiry), (seq_of(t, i), t as u8, i));
        }
    }
}

/// Most versions of a hot key arrive late here, and the steps between two skips are linear, so it gets fewer
/// inserts.
fn count_of(shape: Shape, threads: u64) -> u64 {
    match shape {
        Shape::SharedHot | Shape::NestedPrefix => 12_000 / threads,
        _ => 80_000 / threads,
    }
}

#[test]
fn two_threads() {
    for (kind, shape) in KINDS.into_iter().flat_map(|k| SHAPES.map(|s| (k, s))) {
        stress(kind.order(), shape, 2, count_of(shape, 2));
    }
}

#[test]
fn eight_threads() {
    for (kind, shape) in KINDS.into_iter().flat_map(|k| SHAPES.map(|s| (k, s))) {
        stress(kind.order(), shape, 8, count_of(shape, 8));
    }
}

/// Two threads insert versions of one key, roughly in order. Readers get old versions that are certainly there:
/// all below the number that each writer had seen when it took its own.
fn one_hot_key(kind: MapKind) {
    const VERSIONS: u64 = 60_000;
    let memtable = Memtable::new(kind.order(), 4 << 20, 5);
    memtable.insert(b"key", Version { seq: 0, kind: 0, expiry: 0 }, b"0").expect("memory");
    let taken = AtomicU64::new(1);
    let low = [const { AtomicU64::new(1) }; 2];
    let done = || low.iter().all(|low| low.load(Ordering::SeqCst) == VERSIONS);
    let write = |low: &AtomicU64| loop {
        low.store(taken.load(Ordering::SeqCst).min(VERSIONS), Ordering::SeqCst);
        let seq = taken.fetch_add(1, Ordering::SeqCst);
        if seq >= VERSIONS {
            return low.store(VERSIONS, Ordering::SeqCst);
        }
        memtable.insert(b"key", Version { seq, kind: 0, expiry: 0 }, &seq.to_le_bytes()).expect("memory");
    };
    let read = |seed: u64| {
        let mut cursor = memtable.cursor();
        let mut round = seed;
        loop {
            let last = done();
            let sure = low.iter().map(|low| low.load(Ordering::SeqCst)).min().expect("two");
            let seq = mix(round) % sure;
            round += 1;
            assert_eq!(memtable.get(b"key", seq).map(|entry| entry.seq), Some(seq));
            cursor.seek_version(b"key", seq);
            assert_eq!(cursor.entry().seq, seq);
            cursor.prev();
            assert!(!cursor.valid() || cursor.entry().seq > seq);
            cursor.seek_for_prev(b"key");
            assert_eq!(cursor.entry().seq, 0);
            if last {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let (write, read) = (&write, &read);
        low.iter().for_each(|low| drop(scope.spawn(move || write(low))));
        (0..2).for_each(|seed| drop(scope.spawn(move || read(seed << 32))));
    });
    assert_eq!(check_order(&memtable, true), VERSIONS);
    assert_eq!(check_order(&memtable, false), VERSIONS);
    assert!((0..VERSIONS).all(|seq| memtable.get(b"key", seq).is_some_and(|entry| entry.seq == seq)));
}

#[test]
fn old_versions_of_a_hot_key_stay_visible() {
    KINDS.into_iter().for_each(one_hot_key);
}

#[test]
fn one_thread_over_many_memtables_strands_no_memory() {
    let memtables: Vec<_> = (0..500).map(|i| Memtable::new(KeyOrder::Bytewise, 64 << 20, i)).collect();
    assert!(memtables.iter().all(|m| m.is_empty() && m.allocated_bytes() == 0));
    for i in 0..100_u64 {
        for memtable in &memtables {
            let version = Version { seq: i, kind: 0, expiry: 0 };
            memtable.insert(&mix(i).to_le_bytes(), version, &[1; 100]).expect("memory");
        }
    }
    // 100 entries of 136 bytes, two more leaves and an inner node.
    let sizes: Vec<_> = memtables.iter().map(|m| m.allocated_bytes()).collect();
    assert!(sizes.iter().all(|size| *size < 32 << 10), "{sizes:?}");
    assert!(memtables.iter().all(|m| m.entries() == 100));
}

#[test]
fn handles_and_cursors_outlive_their_memtable() {
    for kind in KINDS {
        let memtable = Memtable::new(kind.order(), 1 << 20, 1);
        memtable.insert(b"key", Version { seq: 1, kind: 0, expiry: 0 }, b"value").expect("memory");
        memtable.insert(b"none", Version { seq: 2, kind: 0, expiry: 0 }, b"").expect("memory");
        let value = memtable.value_handle(&memtable.get(b"key", 1).expect("inserted"));
        let empty = memtable.value_handle(&memtable.get(b"none", 9).expect("inserted"));
        let mut cursor = memtable.cursor();
        drop(memtable);
        let reader = std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    cursor.seek(b"l");
                    cursor.entry().key.to_vec()
                })
                .join()
        });
        assert_eq!(reader.expect("reader"), b"none");
        assert_eq!((&*value, &*empty, &*value.clone()), (&b"value"[..], &b""[..], &b"value"[..]));
    }
}

#[test]
#[should_panic(expected = "another memtable")]
fn a_handle_on_a_foreign_entry_is_refused() {
    let memtables = [1, 2].map(|seed| Memtable::new(KeyOrder::Bytewise, 1 << 20, seed));
    memtables[0].insert(b"key", Version { seq: 1, kind: 0, expiry: 0 }, b"value").expect("memory");
    let entry = memtables[0].get(b"key", 1).expect("inserted");
    let _ = memtables[1].value_handle(&entry);
}
