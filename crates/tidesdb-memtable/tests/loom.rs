//! Loom models of both maps with small nodes, one property each:
//! `LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom" cargo test -p tidesdb-memtable --test loom --release`.
//!
//! Under loom a node has four slots and a tower two levels, so a handful of keys splits nodes and links upper
//! levels. Records, nodes and towers are plain memory to loom. Fresh memory is filled with junk, so the
//! assertions detect a read before the write.
#![cfg(loom)]

#[path = "all/maps.rs"]
mod maps;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use maps::MapKind;
use tidesdb_memtable::{KeyOrder, Memtable, Version};

/// Explores all schedules of `model` and prints how many there were.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
}

fn filled(kind: MapKind, keys: &[&[u8]]) -> Arc<Memtable> {
    let memtable = Memtable::new(kind.order(), 1 << 16, 1);
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

/// Runs `read` concurrently with the writers, in its own thread: loom finds more schedules than in the main
/// thread.
fn spawn_read(
    memtable: &Arc<Memtable>,
    read: impl FnOnce(&Arc<Memtable>) + 'static,
) -> thread::JoinHandle<()> {
    let memtable = Arc::clone(memtable);
    thread::spawn(move || read(&memtable))
}

/// Returns the sequence number found, after checking the rest of the entry.
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

/// Two inserts of new keys, with or without a split.
fn insert_insert(kind: MapKind, before: &'static [&'static [u8]], new: [&'static [u8]; 2]) {
    check(move || {
        let memtable = filled(kind, before);
        let writers = new.map(|key| spawn_insert(&memtable, key, 2));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let mut expected: Vec<_> = before.iter().map(|key| (key.to_vec(), 1)).collect();
        expected.extend(new.iter().map(|key| (key.to_vec(), 2)));
        expected.sort();
        assert_eq!(entries(&memtable), expected);
        assert!(new.iter().all(|key| get(&memtable, key, 9) == Some(2)));
    });
}

/// An insert of a new key while another thread gets the last of the old ones.
fn insert_read(kind: MapKind, before: &'static [&'static [u8]], new: &'static [u8]) {
    check(move || {
        let memtable = filled(kind, before);
        let writer = spawn_insert(&memtable, new, 2);
        let reader = spawn_read(&memtable, move |memtable| {
            let old = before.last().expect("some key");
            assert_eq!(get(memtable, old, 9), Some(1), "an old key is always visible");
        });
        reader.join().expect("reader");
        writer.join().expect("writer");
        assert_eq!(get(&memtable, new, 9), Some(2));
    });
}

#[test]
fn tree_two_inserts_into_one_leaf() {
    insert_insert(MapKind::Tree, &[b"m"], [b"a", b"z"]);
}

#[test]
fn tree_get_during_an_insert() {
    insert_read(MapKind::Tree, &[b"m"], b"a");
}

#[test]
fn tree_inserts_that_shrink_the_prefix() {
    insert_insert(MapKind::Tree, &[b"common-1"], [b"common-2", b"comma"]);
}

#[test]
fn tree_get_during_an_insert_that_shrinks_the_prefix() {
    insert_read(MapKind::Tree, &[b"common-1"], b"comma");
}

#[test]
fn tree_two_inserts_into_a_full_root() {
    insert_insert(MapKind::Tree, &[b"b", b"d", b"f", b"h"], [b"c", b"g"]);
}

#[test]
fn tree_get_during_a_split_of_the_root() {
    insert_read(MapKind::Tree, &[b"b", b"d", b"f", b"h"], b"c");
}

#[test]
fn tree_get_during_a_split_below_the_root() {
    insert_read(MapKind::Tree, &[b"b", b"d", b"f", b"h", b"j", b"l", b"n"], b"k");
}

/// A leaf splits between the search for a place in it and the insert there.
#[test]
fn tree_insert_at_a_place_beside_a_split() {
    check(|| {
        let memtable = filled(MapKind::Tree, &[b"b", b"d", b"f", b"h", b"j"]);
        let writers = [[b"g", b"i"], [b"k", b"l"]].map(|keys: [&'static [u8; 1]; 2]| {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                let places = keys.map(|key| memtable.place(key));
                for (place, key) in places.into_iter().zip(keys) {
                    place.insert(Version { seq: 2, kind: 3, expiry: 5 }, key).expect("memory");
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let keys: Vec<Vec<u8>> = entries(&memtable).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys.concat(), b"bdfghijkl");
        assert!([b"g", b"i", b"k", b"l"].into_iter().all(|key| get(&memtable, key, 9) == Some(2)));
    });
}

/// The leaf that splits is not the root: a descent may be between it and its parent.
#[test]
fn tree_insert_beside_a_split() {
    check(|| {
        let memtable = filled(MapKind::Tree, &[b"b", b"d", b"f", b"h", b"j", b"l", b"n"]);
        let writers = [b"k", b"m"].map(|key| spawn_insert(&memtable, key, 2));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        assert_eq!((get(&memtable, b"k", 9), get(&memtable, b"m", 9)), (Some(2), Some(2)));
        let keys: Vec<_> = entries(&memtable).into_iter().map(|(key, _)| key[0]).collect();
        assert_eq!(keys, b"bdfhjklmn");
    });
}

#[test]
fn tree_walk_during_a_split() {
    check(|| {
        let memtable = filled(MapKind::Tree, &[b"b", b"d", b"f", b"h"]);
        let writer = spawn_insert(&memtable, b"e", 2);
        let reader = spawn_read(&memtable, |memtable| {
            let keys: Vec<_> = entries(memtable).into_iter().map(|(key, _)| key[0]).collect();
            assert!(keys == b"bdfh" || keys == b"bdefh", "{keys:?}");
        });
        reader.join().expect("reader");
        writer.join().expect("writer");
    });
}

#[test]
fn tree_walk_back_during_a_split() {
    check(|| {
        let memtable = filled(MapKind::Tree, &[b"b", b"d", b"f", b"h", b"j"]);
        let writer = spawn_insert(&memtable, b"c", 2);
        let reader = spawn_read(&memtable, |memtable| {
            let mut cursor = memtable.cursor();
            cursor.seek_for_prev(b"f");
            let mut keys = Vec::new();
            while cursor.valid() {
                keys.push(cursor.entry().key[0]);
                cursor.prev();
            }
            assert!(keys == b"fdb" || keys == b"fdcb", "{keys:?}");
        });
        reader.join().expect("reader");
        writer.join().expect("writer");
    });
}

/// A level of inner nodes splits as well.
#[test]
fn tree_inserts_into_a_full_inner_node() {
    check(|| {
        let memtable = Memtable::new(KeyOrder::Bytewise, 1 << 16, 1);
        let old: Vec<_> = (0..17).map(|i| [b'a', i * 2]).collect();
        old.iter().for_each(|key| insert(&memtable, key, 1));
        let writer = spawn_insert(&memtable, b"a\x21", 2);
        let reader = spawn_read(&memtable, |memtable| assert_eq!(get(memtable, b"a\x20", 9), Some(1)));
        reader.join().expect("reader");
        writer.join().expect("writer");
        assert_eq!(get(&memtable, b"a\x21", 9), Some(2));
        assert_eq!(entries(&memtable).len(), 18);
    });
}

/// Versions of one key from two threads, not in order.
fn two_versions(kind: MapKind) {
    check(move || {
        let memtable = filled(kind, &[b"k"]);
        let writers = [5, 3].map(|seq| spawn_insert(&memtable, b"k", seq));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [5, 3, 1]);
    });
}

/// A version arrives, in order or late, while a reader reads at two snapshots.
fn version_and_reader(kind: MapKind, seqs: [u64; 2]) {
    check(move || {
        let memtable = filled(kind, &[b"k"]);
        insert(&memtable, b"k", seqs[0]);
        let writer = spawn_insert(&memtable, b"k", seqs[1]);
        let reader = spawn_read(&memtable, |memtable| {
            assert!(matches!(get(memtable, b"k", 4), Some(1 | 3)));
            assert_eq!(get(memtable, b"k", 2), Some(1));
        });
        reader.join().expect("reader");
        writer.join().expect("writer");
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [5, 3, 1]);
    });
}

#[test]
fn tree_version_chain() {
    two_versions(MapKind::Tree);
    version_and_reader(MapKind::Tree, [3, 5]);
    version_and_reader(MapKind::Tree, [5, 3]);
}

#[test]
fn skip_list_version_chain() {
    two_versions(MapKind::SkipList);
    version_and_reader(MapKind::SkipList, [3, 5]);
    version_and_reader(MapKind::SkipList, [5, 3]);
}

/// A chain grows while a reader reads its old end. Under loom, every second record carries a skip, here those
/// of 3, 5 and 7.
fn growth_and_reader(kind: MapKind, new: &'static [u64], read: fn(&Arc<Memtable>)) {
    check(move || {
        let memtable = filled(kind, &[b"k"]);
        (2..=4).for_each(|seq| insert(&memtable, b"k", seq));
        let writer = {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || new.iter().for_each(|seq| insert(&memtable, b"k", *seq)))
        };
        let reader = spawn_read(&memtable, read);
        reader.join().expect("reader");
        writer.join().expect("writer");
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert!(seqs.into_iter().rev().eq(1..5 + new.len() as u64));
    });
}

fn read_old(memtable: &Arc<Memtable>) {
    assert_eq!(get(memtable, b"k", 1), Some(1));
}

/// Iterates from an old version back to the newest.
fn walk_back(memtable: &Arc<Memtable>) {
    let mut cursor = memtable.cursor();
    cursor.seek_version(b"k", 1);
    let mut seqs = Vec::new();
    while cursor.valid() {
        seqs.push(cursor.entry().seq);
        cursor.prev();
    }
    assert!(seqs.len() >= 4 && seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
}

/// Versions arrive during a read, among them 4, which lands directly after a record that carries a skip.
fn late_behind_a_skip(kind: MapKind, new: &'static [u64]) {
    check(move || {
        let memtable = Memtable::new(kind.order(), 1 << 16, 1);
        [1, 2, 5, 6].into_iter().for_each(|seq| insert(&memtable, b"k", seq));
        let writers: Vec<_> = new.iter().map(|seq| spawn_insert(&memtable, b"k", *seq)).collect();
        let reader = spawn_read(&memtable, |memtable| assert!(matches!(get(memtable, b"k", 4), Some(2 | 4))));
        reader.join().expect("reader");
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        assert_eq!(get(&memtable, b"k", 4), Some(4));
        assert_eq!(entries(&memtable).len(), 4 + new.len());
    });
}

/// Two threads race to insert a head that must carry a skip.
fn two_heads(kind: MapKind) {
    check(move || {
        let memtable = filled(kind, &[b"k"]);
        (2..=4).for_each(|seq| insert(&memtable, b"k", seq));
        let writers = [5, 6].map(|seq| spawn_insert(&memtable, b"k", seq));
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        (7..=8).for_each(|seq| insert(&memtable, b"k", seq));
        assert!((1..=8).all(|seq| get(&memtable, b"k", seq) == Some(seq)));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [8, 7, 6, 5, 4, 3, 2, 1]);
    });
}

#[test]
fn tree_skips() {
    growth_and_reader(MapKind::Tree, &[5], read_old);
    growth_and_reader(MapKind::Tree, &[5], walk_back);
    late_behind_a_skip(MapKind::Tree, &[4]);
    two_heads(MapKind::Tree);
}

#[test]
fn skip_list_skips() {
    growth_and_reader(MapKind::SkipList, &[5, 6, 7], read_old);
    growth_and_reader(MapKind::SkipList, &[5, 6, 7], walk_back);
    late_behind_a_skip(MapKind::SkipList, &[4, 7]);
    two_heads(MapKind::SkipList);
}

/// Both threads insert in the middle of the chain, after the same newest version.
#[test]
fn skip_list_two_late_versions() {
    check(|| {
        let memtable = filled(MapKind::SkipList, &[b"k"]);
        insert(&memtable, b"k", 9);
        let writers = [5, 3].map(|seq| spawn_insert(&memtable, b"k", seq));
        let reader =
            spawn_read(&memtable, |memtable| assert!(matches!(get(memtable, b"k", 5), Some(1 | 3 | 5))));
        reader.join().expect("reader");
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [9, 5, 3, 1]);
    });
}

#[test]
fn skip_list_two_inserts_into_one_gap() {
    insert_insert(MapKind::SkipList, &[b"a", b"z"], [b"m", b"n"]);
}

#[test]
fn skip_list_get_during_an_insert() {
    insert_read(MapKind::SkipList, &[b"a", b"z"], b"m");
}

#[test]
fn skip_list_two_inserts_of_one_new_key() {
    check(|| {
        let memtable = Memtable::new(MapKind::SkipList.order(), 1 << 16, 1);
        let writers = [5, 3].map(|seq| spawn_insert(&memtable, b"k", seq));
        let reader =
            spawn_read(&memtable, |memtable| assert!(matches!(get(memtable, b"k", 9), None | Some(3 | 5))));
        reader.join().expect("reader");
        writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        let seqs: Vec<_> = entries(&memtable).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [5, 3]);
        assert_eq!(memtable.entries(), 2);
    });
}
