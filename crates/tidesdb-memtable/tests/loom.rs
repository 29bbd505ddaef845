//! Models of both maps with small nodes, one question each:
//! `LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-memtable --test loom --release`.
//!
//! Under loom a node has four slots and a tower two levels, so that a handful of keys splits nodes and links
//! upper levels. Records, nodes and towers are plain memory to loom; the assertions notice if one is read before
//! it was written, because fresh memory is filled with junk there.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use tidesdb_memtable::{KeyOrder, MapKind, Memtable, Version};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

fn filled(kind: MapKind, keys: &[&[u8]]) -> Arc<Memtable> {
    let memtable = Memtable::new(KeyOrder::Bytewise, kind, 1 << 16, 1);
    keys.iter().for_each(|key| insert(&memtable, key, 1));
    memtable
}

fn insert(memtable: &Memtable, key: &[u8], seq: u64) {
    memtable.insert(key, Version { seq, kind: 3, expiry: 5 }, key).expect("memory");
}

fn spawn_insert(memtable: &Arc<Memtable>, key: &'static [u8], seq: u64) -> thread::JoinHandle<()> {
    let memtable = Arc::clone(memtable);
    thread::spawn(move || insert(&memtable, key, seq))
}

/// The sequence number seen, after checking the rest of the entry.
fn get(memtable: &Memtable, key: &[u8], snapshot: u64) -> Option<u64> {
    memtable.get(key, snapshot).map(|entry| {
        assert_eq!((entry.key, entry.value, entry.kind, entry.expiry), (key, key, 3, 5));
        entry.seq
    })
}

fn entries(memtable: &Arc<Memtable>) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = memtable.cursor();
    let mut all = Vec::new();
    cursor.seek_to_first();
    while cursor.valid() {
        all.push((cursor.entry().key.to_vec(), cursor.entry().seq));
        cursor.next();
    }
    all
}

/// Two inserts of new keys, with or without a split, while a third thread reads an old key and a new one.
fn insert_insert_read(kind: MapKind, before: &'static [&'static [u8]], new: [&'static [u8]; 2]) {
    check(move || {
        let memtable = filled(kind, before);
        let writers = new.map(|key| spawn_insert(&memtable, key, 2));
        if let Some(old) = before.first() {
            assert_eq!(get(&memtable, old, 9), Some(1), "an old key is always there");
        }
        assert!(matches!(get(&memtable, new[0], 9), None | Some(2)));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let mut expected: Vec<_> = before.iter().map(|key| (key.to_vec(), 1)).collect();
        expected.extend(new.iter().map(|key| (key.to_vec(), 2)));
        expected.sort();
        assert_eq!(entries(&memtable), expected);
        assert!(new.iter().all(|key| get(&memtable, key, 9) == Some(2)));
    });
}

#[test]
fn tree_two_inserts_into_one_leaf() {
    insert_insert_read(MapKind::Tree, &[b"m"], [b"a", b"z"]);
}

#[test]
fn tree_inserts_that_shrink_the_prefix() {
    insert_insert_read(MapKind::Tree, &[b"common-1"], [b"common-2", b"comma"]);
}

#[test]
fn tree_two_inserts_into_a_full_root() {
    insert_insert_read(MapKind::Tree, &[b"b", b"d", b"f", b"h"], [b"c", b"g"]);
}

#[test]
fn tree_walk_during_a_split() {
    check(|| {
        let memtable = filled(MapKind::Tree, &[b"b", b"d", b"f", b"h"]);
        let writer = spawn_insert(&memtable, b"e", 2);
        let keys: Vec<_> = entries(&memtable).into_iter().map(|(key, _)| key[0]).collect();
        assert!(keys == b"bdfh" || keys == b"bdefh", "{keys:?}");
        writer.join().expect("writer");
    });
}

#[test]
fn tree_walk_back_during_a_split() {
    check(|| {
        let memtable = filled(MapKind::Tree, &[b"b", b"d", b"f", b"h", b"j"]);
        let writer = spawn_insert(&memtable, b"c", 2);
        let mut cursor = memtable.cursor();
        cursor.seek_for_prev(b"f");
        let mut keys = Vec::new();
        while cursor.valid() {
            keys.push(cursor.entry().key[0]);
            cursor.prev();
        }
        assert!(keys == b"fdb" || keys == b"fdcb", "{keys:?}");
        writer.join().expect("writer");
    });
}

/// A level of inner nodes splits as well.
#[test]
fn tree_inserts_into_a_full_inner_node() {
    check(|| {
        let memtable = Memtable::new(KeyOrder::Bytewise, MapKind::Tree, 1 << 16, 1);
        let old: Vec<_> = (0..17).map(|i| [b'a', i * 2]).collect();
        old.iter().for_each(|key| insert(&memtable, key, 1));
        let writer = spawn_insert(&memtable, b"a\x21", 2);
        assert_eq!(get(&memtable, &old[16], 9), Some(1));
        writer.join().expect("writer");
        assert_eq!(get(&memtable, b"a\x21", 9), Some(2));
        assert_eq!(entries(&memtable).len(), 18);
    });
}

/// Versions of one key from two threads, not in order; a reader at each snapshot.
fn version_chain(kind: MapKind) {
    check(move || {
        let memtable = filled(kind, &[b"k"]);
        let writers = [5, 3].map(|seq| spawn_insert(&memtable, b"k", seq));
        assert!(matches!(get(&memtable, b"k", 9), Some(1 | 3 | 5)));
        assert!(matches!(get(&memtable, b"k", 4), Some(1 | 3)));
        assert_eq!(get(&memtable, b"k", 2), Some(1));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [5, 3, 1]);
    });
}

#[test]
fn tree_version_chain() {
    version_chain(MapKind::Tree);
}

#[test]
fn skip_list_version_chain() {
    version_chain(MapKind::SkipList);
}

/// Both threads land in the middle of the chain, behind the same newest version.
#[test]
fn skip_list_two_late_versions() {
    check(|| {
        let memtable = filled(MapKind::SkipList, &[b"k"]);
        insert(&memtable, b"k", 9);
        let writers = [5, 3].map(|seq| spawn_insert(&memtable, b"k", seq));
        assert!(matches!(get(&memtable, b"k", 5), Some(1 | 3 | 5)));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [9, 5, 3, 1]);
    });
}

#[test]
fn skip_list_two_inserts_into_one_gap() {
    insert_insert_read(MapKind::SkipList, &[b"a", b"z"], [b"m", b"n"]);
}

#[test]
fn skip_list_two_inserts_of_one_new_key() {
    check(|| {
        let memtable = Memtable::new(KeyOrder::Bytewise, MapKind::SkipList, 1 << 16, 1);
        let writers = [5, 3].map(|seq| spawn_insert(&memtable, b"k", seq));
        assert!(matches!(get(&memtable, b"k", 9), None | Some(3 | 5)));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [5, 3]);
        assert_eq!(memtable.entries(), 2);
    });
}
