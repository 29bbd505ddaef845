//! Read-ahead of scans, measured by the calls that reach the simulated disk.

use std::ops::Bound;
use std::sync::Arc;

use tidesdb_io::sim::{Fault, Op, OpKind};
use tidesdb_io::{Access, Disk, RealDisk};

use super::{Entry, Rig, Rng, get, salt};
use crate::codec::Compression;
use crate::memory::Memory;
use crate::sst::index::CurrentPartition;
use crate::sst::{Table, TableContext, TableCursor, TableMeta, TableOptions, TableWriter};
use crate::types::{Comparator, EntryCursor, Scope, TableId};

const ENTRIES: usize = 20_000;
const PIECE: u64 = 256 << 10;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:07}").into_bytes()
}

/// Writes a table of about 2 MB; with `long_values`, each value gets its own block.
fn write(rig: &Rig, long_values: bool) -> Arc<TableMeta> {
    let mut rng = Rng::new(5);
    let (count, len) = if long_values { (ENTRIES / 100, 9_000) } else { (ENTRIES, 100) };
    let entries: Vec<Entry> = (0..count).map(|i| Entry::put(key(i), 1 + i as u64, rng.bytes(len))).collect();
    let options = TableOptions { compression: Compression::Lz4, filter_bits_per_key: 0 };
    rig.write(1, &entries, options, &Comparator::bytewise())
}

/// Opens the table with an empty cache.
fn open(rig: &Rig, meta: &Arc<TableMeta>) -> Arc<Table> {
    let table = Table::open(&rig.context(1 << 16), &Comparator::bytewise(), Arc::clone(meta)).unwrap();
    rig.disk.log_ops(true);
    table
}

/// Returns the disk operations since the last call.
fn taken(rig: &Rig) -> Vec<Op> {
    let ops = rig.disk.ops();
    rig.disk.log_ops(true);
    ops
}

fn read_bytes(ops: &[Op]) -> u64 {
    ops.iter().filter(|op| op.kind == OpKind::Read).map(|op| op.len).sum()
}

/// Returns the bytes of reads, and of prefetched ranges that were never read.
fn loaded_bytes(ops: &[Op]) -> u64 {
    let reads: Vec<&Op> = ops.iter().filter(|op| op.kind == OpKind::Read).collect();
    let in_vain = ops.iter().filter(|op| op.kind == OpKind::Advise).filter(|ahead| {
        reads
            .iter()
            .all(|read| read.offset + read.len <= ahead.offset || ahead.offset + ahead.len <= read.offset)
    });
    read_bytes(ops) + in_vain.map(|op| op.len).sum::<u64>()
}

/// Scans up to `count` entries, with values, from the current one on. Returns their number and the last key.
fn walk(cursor: &mut TableCursor, count: usize, backwards: bool) -> (usize, Vec<u8>) {
    let (mut n, mut last) = (0, Vec::new());
    while cursor.valid() && n < count {
        cursor.entry().unwrap();
        last = cursor.key().to_vec();
        n += 1;
        if n < count {
            if backwards { cursor.prev().unwrap() } else { cursor.next().unwrap() }
        }
    }
    (n, last)
}

#[test]
fn a_long_scan_reads_each_byte_once_in_growing_pieces() {
    let rig = Rig::new();
    let meta = write(&rig, false);
    for backwards in [false, true] {
        let table = open(&rig, &meta);
        let mut cursor = TableCursor::new(Arc::clone(&table));
        if backwards {
            cursor.seek_to_last().unwrap()
        } else {
            cursor.seek_to_first().unwrap()
        }
        assert_eq!(walk(&mut cursor, usize::MAX, backwards).0, ENTRIES);
        let ops = taken(&rig);
        let reads: Vec<&Op> = ops.iter().filter(|op| op.kind == OpKind::Read).collect();
        let data = table.blocks_within(Bound::Unbounded, Bound::Unbounded).bytes;
        assert!(read_bytes(&ops) <= data + 8_192, "{} of {data}", read_bytes(&ops));
        assert!(reads.len() < 40, "{} reads", reads.len());
        assert!(reads.iter().any(|op| op.len > PIECE - 16_384) && reads.iter().all(|op| op.len <= PIECE));
        // Most bytes must have been prefetched.
        let ahead: u64 = ops.iter().filter(|op| op.kind == OpKind::Advise).map(|op| op.len).sum();
        assert!(ahead > data * 9 / 10, "{ahead} of {data} loaded ahead");
    }
}

#[test]
fn a_scan_loads_at_most_twice_the_bytes_it_consumes() {
    for long_values in [false, true] {
        let rig = Rig::new();
        let meta = write(&rig, long_values);
        let table = open(&rig, &meta);
        let mut rng = Rng::new(8);
        for _ in 0..300 {
            let mut cursor = TableCursor::new(Arc::clone(&table));
            let backwards = rng.one_in(2);
            let most = 2 << rng.below(12);
            let (start, count) = (key(rng.below(meta.entries as usize)), 1 + rng.below(most));
            if backwards {
                cursor.seek_for_prev(&start).unwrap()
            } else {
                cursor.seek(&start).unwrap()
            }
            if !cursor.valid() {
                continue;
            }
            let first = cursor.key().to_vec();
            let (_, last) = walk(&mut cursor, count, backwards);
            let (low, high) = if backwards { (&last, &first) } else { (&first, &last) };
            let consumed = table.blocks_within(Bound::Included(low), Bound::Included(high)).bytes;
            let loaded = loaded_bytes(&taken(&rig));
            assert!(loaded <= 2 * consumed + (16 << 10), "{count} entries: {loaded} for {consumed}");
        }
    }
}

#[test]
fn a_scan_returns_all_entries_before_an_unreadable_block() {
    let rig = Rig::new();
    let meta = write(&rig, false);
    let blocks = open(&rig, &meta).blocks_within(Bound::Unbounded, Bound::Unbounded).all;
    for bad in [1, 7, 150, blocks as usize - 2] {
        let fence = open(&rig, &meta).blocks().index().fence(&mut CurrentPartition::default(), bad).unwrap();
        let fault = Fault::errno(5).on(OpKind::Read).within(fence.at, fence.at + fence.disk).forever();
        for (backwards, whole) in [(false, false), (true, false), (false, true)] {
            let table = open(&rig, &meta);
            let mut cursor = TableCursor::new(Arc::clone(&table));
            if whole {
                cursor = TableCursor::bypassing_cache(Arc::clone(&table));
            }
            rig.disk.inject(fault.clone());
            taken(&rig);
            if backwards {
                cursor.seek_to_last().unwrap()
            } else {
                cursor.seek_to_first().unwrap()
            }
            let error = loop {
                let step = if backwards { cursor.prev() } else { cursor.next() };
                if let Err(e) = step {
                    break e.to_string();
                }
                assert!(cursor.valid(), "the scan ended without an error");
            };
            assert!(error.contains(&format!("{}", fence.at)), "block {bad} at {}: {error}", fence.at);
            let failed = taken(&rig).iter().filter(|op| op.kind == OpKind::Read && !op.ok).count();
            assert!(failed <= 2, "{failed} reads failed");
            rig.disk.clear_faults();
        }
    }
}

#[test]
fn a_merge_reads_pieces_and_drops_their_pages() {
    let rig = Rig::new();
    let meta = write(&rig, false);
    let table = open(&rig, &meta);
    for dropping in [false, true] {
        let mut cursor = TableCursor::bypassing_cache(Arc::clone(&table));
        if dropping {
            cursor = cursor.dropping_pages();
        }
        cursor.seek_to_first().unwrap();
        assert_eq!(walk(&mut cursor, usize::MAX, false).0, ENTRIES);
        let ops = taken(&rig);
        let count = |kind| ops.iter().filter(|op| op.kind == kind).count();
        let times = |bytes: u64| table.meta().file_bytes.div_ceil(bytes) as usize;
        let (reads, advice) = (count(OpKind::Read), count(OpKind::Advise));
        assert!(reads <= times(256 << 10) + 1, "{reads} reads");
        // Without dropping, each hint asks for the next MiB.
        assert!(if dropping { advice > reads } else { advice <= times(1 << 20) }, "{advice} hints");
        assert_eq!(table.blocks().parts().cache().stats().entries, 0, "a merge must not fill the cache");
    }
}

#[test]
fn dropped_pages_leave_the_page_cache() {
    let temp = tempfile::tempdir().unwrap();
    let dir = RealDisk::new().open_dir(temp.path(), true).unwrap();
    let order = Comparator::bytewise();
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 10 };
    let mut rng = Rng::new(5);
    let mut writer =
        TableWriter::create(&dir, TableId(1), salt(1), options, order.clone()).unwrap().dropping_pages();
    for i in 0..30_000 {
        writer.add(Entry::put(key(i), 1 + i as u64, rng.bytes(100)).borrow()).unwrap();
    }
    let meta = Arc::new(writer.finish().unwrap());
    let table = Table::open(&TableContext::new(&dir, &Memory::new(0), 1 << 20), &order, meta).unwrap();
    if table.is_in_page_cache() {
        println!("skipped: this file system keeps its pages");
        return;
    }
    let walk_over = |mut cursor: TableCursor| {
        cursor.seek_to_first().unwrap();
        assert_eq!(walk(&mut cursor, usize::MAX, false).0, 30_000);
    };
    // The system may keep pages that are in use when it gets the advice, and the check itself starts to load the pages it looks at.
    let dropped = (0..50).any(|_| {
        walk_over(TableCursor::bypassing_cache(Arc::clone(&table)).dropping_pages());
        !table.is_in_page_cache()
    });
    assert!(dropped, "the merge did not drop the pages it read");
    walk_over(TableCursor::new(Arc::clone(&table)));
    assert!(table.is_in_page_cache(), "a scan must keep its pages in the cache");
}

/// A full cache takes a block that the page cache has at the second look. A damaged one is reported at each look.
#[test]
fn a_full_cache_takes_a_block_from_the_page_cache_at_the_second_look() {
    let temp = tempfile::tempdir().unwrap();
    let dir = RealDisk::new().open_dir(temp.path(), true).unwrap();
    let order = Comparator::bytewise();
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 10 };
    let mut rng = Rng::new(5);
    let mut writer = TableWriter::create(&dir, TableId(1), salt(1), options, order.clone()).unwrap();
    let rows: Vec<_> = (0..30_000).map(|i| Entry::put(key(i), 1 + i as u64, rng.bytes(100))).collect();
    rows.iter().for_each(|row| writer.add(row.borrow()).unwrap());
    let meta = Arc::new(writer.finish().unwrap());
    let table =
        Table::open(&TableContext::new(&dir, &Memory::new(0), 1 << 20), &order, Arc::clone(&meta)).unwrap();
    let file = dir.open(&crate::files::table(TableId(1)), Access::Read).unwrap();
    let mut page = [0; 1];
    if file.read_cached_at(&mut page, 0).ok().flatten().is_none() {
        println!("skipped: this file system does not tell what the page cache has");
        return;
    }
    let look = |row: &Entry| {
        let before = table.blocks().parts().cache().stats();
        assert_eq!(get(&table, &row.key, u64::MAX).unwrap().as_ref(), Some(row));
        let after = table.blocks().parts().cache().stats();
        (after.misses - before.misses, after.inserts - before.inserts)
    };
    for row in rows[..15_000].iter().step_by(10) {
        look(row);
    }
    assert!(table.blocks().parts().cache().is_full());
    // Each lookup is the first one in its block.
    for row in rows[15_500..].iter().step_by(1000) {
        assert_eq!([look(row), look(row), look(row)], [(1, 0), (1, 1), (0, 0)]);
    }
    drop(file);
    let path = temp.path().join(crate::files::table(TableId(1)));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle..middle + 8192].fill(0xA5);
    std::fs::write(&path, bytes).unwrap();
    let damaged = Table::open(&TableContext::new(&dir, &Memory::new(0), 1 << 20), &order, meta).unwrap();
    let failed = |row: &&Entry| get(&damaged, &row.key, u64::MAX).is_err();
    let counts: Vec<usize> = (0..3).map(|_| rows.iter().filter(failed).count()).collect();
    assert!(damaged.blocks().parts().cache().is_full() && counts[0] > 30 && counts[0] < 200, "{counts:?}");
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn blocks_out_of_scope_are_neither_read_nor_loaded() {
    let rig = Rig::new();
    let meta = write(&rig, false);
    let order = Comparator::bytewise();
    for (low, high) in [(3_000, 3_001), (3_000, 3_200), (0, 9_000), (12_000, ENTRIES)] {
        let (low, high) = (key(low), key(high));
        let mut scope = Scope::default();
        scope.set_range(&order, Bound::Included(&low), Bound::Excluded(&high));
        for backwards in [false, true] {
            let table = open(&rig, &meta);
            let data = table.blocks_within(Bound::Included(&low), Bound::Excluded(&high)).bytes;
            let mut cursor = TableCursor::new(Arc::clone(&table));
            cursor.set_scope(&scope);
            if backwards { cursor.seek_to_last() } else { cursor.seek(&low) }.unwrap();
            let (n, _) = walk(&mut cursor, usize::MAX, backwards);
            assert!(n < ENTRIES - 1_000, "{n} entries");
            let loaded = loaded_bytes(&taken(&rig));
            assert!(loaded <= data + 4_096, "{loaded} of {data}, backwards {backwards}");
        }
    }
}

#[test]
fn a_table_out_of_scope_is_not_touched() {
    let rig = Rig::new();
    let meta = write(&rig, false);
    let order = Comparator::bytewise();
    for bounds in
        [(Bound::Unbounded, Bound::Excluded(&b"key0"[..])), (Bound::Included(&b"kez"[..]), Bound::Unbounded)]
    {
        let mut cursor = TableCursor::new(open(&rig, &meta));
        let mut scope = Scope::default();
        scope.set_range(&order, bounds.0, bounds.1);
        cursor.set_scope(&scope);
        cursor.seek_to_first().unwrap();
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        assert!(!cursor.valid());
        for target in [&b"a"[..], b"key0000500", b"z"] {
            cursor.seek(target).unwrap();
            assert!(!cursor.valid());
            cursor.seek_for_prev(target).unwrap();
            assert!(!cursor.valid());
        }
        assert!(taken(&rig).is_empty());
    }
}

#[test]
fn a_walk_over_keys_alone_leaves_long_values_unread_and_decodes_none() {
    for long_values in [false, true] {
        let rig = Rig::new();
        let meta = write(&rig, long_values);
        for backwards in [false, true] {
            let table = open(&rig, &meta);
            let mut cursor = TableCursor::new(Arc::clone(&table));
            let mut scope = Scope::default();
            scope.keys_only = true;
            cursor.set_scope(&scope);
            if backwards { cursor.seek_to_last() } else { cursor.seek_to_first() }.unwrap();
            let mut n = 0;
            while cursor.valid() {
                n += 1;
                if backwards { cursor.prev() } else { cursor.next() }.unwrap();
            }
            assert_eq!(n, table.meta().entries);
            let (loaded, all) = (loaded_bytes(&taken(&rig)), table.meta().file_bytes);
            assert!(!long_values || loaded < all / 20, "{loaded} of {all}");
            // The first blocks of a walk go into the cache with their values.
            assert!(
                table.blocks().parts().cache().stats().entries <= 3,
                "{} entries",
                table.blocks().parts().cache().stats().entries
            );
        }
    }
}

/// The oldest version of a key lies above the scope, in a block of its own behind newer ones: a walk backwards begins there.
#[test]
fn a_walk_backwards_comes_into_scope_over_versions_of_the_bound() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let mut entries = vec![Entry::put(key(1), 1, vec![7; 3_000])];
    entries.extend((0..20).rev().map(|seq| Entry::put(key(2), 2 + seq, vec![7; 3_000])));
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 0 };
    let meta = rig.write(1, &entries, options, &order);
    let mut cursor = TableCursor::new(open(&rig, &meta));
    let mut scope = Scope::default();
    scope.set_range(&order, Bound::Unbounded, Bound::Excluded(&key(2)));
    cursor.set_scope(&scope);
    cursor.seek_for_prev(&key(1)).unwrap();
    assert!(cursor.valid() && cursor.key() == key(1));
    let mut cursor = TableCursor::new(open(&rig, &meta));
    scope.set_range(&order, Bound::Unbounded, Bound::Included(&key(2)));
    cursor.set_scope(&scope);
    scope.set_range(&order, Bound::Unbounded, Bound::Excluded(&key(2)));
    cursor.seek_for_prev(&key(2)).unwrap();
    assert_eq!(cursor.seq(), 2);
    cursor.set_scope(&scope);
    cursor.seek_to_last().unwrap();
    let mut steps = 0;
    while cursor.valid() && cursor.key() != key(1) {
        cursor.prev().unwrap();
        steps += 1;
    }
    assert!(cursor.valid() && steps == 20, "{steps} steps");
}
