//! Unit tests of the filter, the search tree and the sizes of tables.

use super::*;
use crate::codec::{Decoder, put_varint};
use crate::sst::VlogRef;
use crate::sst::filter::{Filter, FilterPartition, FilterShape};
use crate::sst::index::Tree;
use crate::types::{EXPIRY_MAX, SEQ_MAX, VlogId};

#[test]
fn a_filter_has_no_false_negatives_and_few_false_positives() {
    for (bits, limit) in [(1, 0.75), (4, 0.20), (10, 0.013), (16, 0.003), (32, 0.001)] {
        let n = 50_000;
        let hash = |i: u64| key_hash(&i.to_le_bytes());
        let hashes: Vec<_> = (0..n).map(hash).collect();
        let filter = Filter::build(&hashes, bits);
        assert!(hashes.iter().all(|&h| filter.may_contain(h)));
        let tries = 200_000;
        let wrong = (n..n + tries).filter(|&i| filter.may_contain(hash(i))).count();
        let rate = wrong as f64 / tries as f64;
        println!("{bits} bits per key: {rate:.5} false positives");
        assert!(rate < limit, "{bits} bits: {rate}");
        let (shape, mut bytes) = (filter.shape(), Vec::new());
        filter.encode(&salt(1), 77, &mut bytes);
        assert_eq!(bytes.len() as u64, shape.disk_bytes());
        let decode = |n: usize, from: u64| {
            let (at, len) = shape.place(n);
            let section = &bytes[at as usize..at as usize + len];
            FilterPartition::decode(section, &salt(1), "f", from + at)
        };
        let parts: Vec<_> = (0..shape.partitions()).map(|n| decode(n, 77).unwrap()).collect();
        assert!((0..parts.len()).all(|n| decode(n, 78).is_err()));
        // For its keys, a partition must give the same answers as the complete filter.
        for hash in (0..n + tries).map(hash) {
            let part = &parts[shape.partition_of(hash).unwrap()];
            assert_eq!(shape.may_contain(part, hash), filter.may_contain(hash));
        }
    }
    let (none, mut bytes) = (Filter::build(&[], 10), Vec::new());
    none.encode(&salt(1), 0, &mut bytes);
    assert!(none.may_contain(1) && bytes.is_empty() && none.shape().partition_of(1).is_none());
}

/// Found on 32 bits: the length of a filter of 2^26 lines, 4 GiB, was 0, so it fitted into any room.
#[test]
fn the_longest_filters_have_their_length_on_each_machine() {
    for lines in [1 << 26, u64::from(u32::MAX)] {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, lines);
        bytes.push(1);
        let read = |room| FilterShape::read(&mut Decoder::new(&bytes, "f", 0), room);
        let disk = lines * 64 + lines.div_ceil(32) * 4;
        assert!(read(disk - 1).is_err_and(|e| e.is_corruption()));
        let shape = read(disk).unwrap();
        let (last, len) = shape.place(shape.partitions() - 1);
        assert_eq!((shape.disk_bytes(), last + len as u64), (disk, disk));
    }
}

#[test]
fn table_overhead_per_entry_stays_small() {
    let entries: Vec<_> = (0..20_000u64)
        .map(|i| {
            Entry::put(format!("{:016x}", i * 0x1234_5678_9ABC), i, key_hash(&i.to_le_bytes()).to_le_bytes())
        })
        .collect();
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let overhead = meta.file_bytes as f64 / 20_000.0 - 8.0;
    println!("{overhead:.2} bytes per entry besides the value");
    assert!(overhead < 20.0);
    let table = rig.open(&meta, &order, true).unwrap();
    assert!(table.resident_bytes() < 20_000 * 2);
}

#[test]
fn the_file_size_estimate_is_within_3_percent() {
    let rig = Rig::new();
    let mut w =
        TableWriter::create(&rig.dir, TableId(1), salt(1), options(Compression::Lz4), Comparator::bytewise())
            .unwrap();
    let mut rng = Rng::new(3);
    for i in 0..30_000u64 {
        w.add(Entry::put(format!("{i:08}"), i, rng.bytes(100)).borrow()).unwrap();
    }
    let estimate = w.file_bytes_estimate() as f64;
    let meta = w.finish().unwrap();
    assert_eq!(meta.entries, 30_000);
    let ratio = estimate / meta.file_bytes as f64;
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
}

#[test]
fn the_tree_counts_like_a_binary_search() {
    let mut rng = Rng::new(11);
    for n in (0..40).chain([255, 256, 257, 271, 272, 273, 289, 4623, 4624, 4625, 80_000]) {
        for spread in [1, 3, u64::MAX] {
            let mut numbers: Vec<u64> = (0..n).map(|_| rng.next() % spread).collect();
            numbers.extend((n > 20).then_some(u64::MAX));
            numbers.sort_unstable();
            let tree = Tree::new(&numbers);
            for i in 0..300 {
                let near = numbers.get(rng.below(numbers.len().max(1))).map_or(0, |n| *n);
                let ask = [near, near.wrapping_add(1), near.wrapping_sub(1), rng.next()][i % 4];
                assert_eq!(tree.below(ask), numbers.partition_point(|&n| n < ask), "{n} numbers");
            }
            assert_eq!((0..numbers.len()).map(|i| tree.get(i)).collect::<Vec<_>>(), numbers);
        }
    }
}

#[test]
fn value_log_references_must_ascend() {
    let vlog_ref = |id| VlogRef { vlog: VlogId(id), bytes: 1, count: 1 };
    for (refs, good) in [([1, 2], true), ([2, 1], false), ([2, 2], false)] {
        let meta = TableMeta { id: TableId(1), vlog_refs: refs.map(vlog_ref).into(), ..TableMeta::default() };
        let mut encoded = Vec::new();
        meta.encode(&mut encoded);
        let decoded = TableMeta::decode(&mut Decoder::new(&encoded, "manifest", 0));
        assert_eq!(decoded.is_ok_and(|d| d == meta), good, "{refs:?}");
    }
}

/// Changes one field of a description.
type Bend = fn(&mut TableMeta);

/// Regression: counts near 2^64 in the description of a table overflowed sums over tables; a number of 2^64 - 1
/// overflowed the counter.
#[test]
fn numbers_outside_their_domain_are_corrupt() {
    let good =
        TableMeta { id: TableId(1), entries: 9, keys: 9, tombstones: 9, max_seq: 9, ..TableMeta::default() };
    let decoded = |meta: &TableMeta| {
        let mut encoded = Vec::new();
        meta.encode(&mut encoded);
        TableMeta::decode(&mut Decoder::new(&encoded, "manifest", 0))
    };
    assert_eq!(decoded(&good).unwrap(), good);
    let bends: [(&str, Bend); 16] = [
        ("table number 0", |m| m.id = TableId(0)),
        ("table number", |m| m.id = TableId(u64::MAX)),
        ("length", |m| m.file_bytes = u64::MAX),
        ("entries", |m| m.entries = u64::MAX),
        ("more keys than entries", |m| m.keys = 10),
        ("more tombstones than entries", |m| m.tombstones = 10),
        ("more single deletes than tombstones", |m| m.single_deletes = 10),
        ("smallest sequence number above the largest", |m| m.min_seq = 10),
        ("largest sequence number", |m| m.max_seq = SEQ_MAX + 1),
        ("bytes of keys", |m| m.raw_key_bytes = u64::MAX),
        ("bytes of values", |m| m.raw_value_bytes = u64::MAX),
        ("purged to", |m| m.purged_to = SEQ_MAX + 1),
        ("oldest expiry after the newest", |m| m.oldest_expiry = 1),
        ("expiry", |m| m.newest_expiry = EXPIRY_MAX + 1),
        ("value log 0", |m| m.vlog_refs.push(VlogRef { vlog: VlogId(0), bytes: 1, count: 1 })),
        ("bytes of a value log", |m| {
            m.vlog_refs.push(VlogRef { vlog: VlogId(1), bytes: u64::MAX, count: 1 })
        }),
    ];
    for (what, bend) in bends {
        let mut meta = good.clone();
        bend(&mut meta);
        assert!(decoded(&meta).is_err_and(|e| e.is_corruption()), "{what}");
    }
}
