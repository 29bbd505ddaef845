//! Tables whose index and filter are not in memory: their reads, their memory, and the effect of damage.

use tidesdb_io::sim::OpKind;

use super::*;
use crate::sst::TableCursor;
use crate::sst::open::Sections;

fn entries(n: u64) -> Vec<Entry> {
    let mut rng = Rng::new(n);
    (0..n).map(|i| Entry::put(format!("{:016}", i * 2), i, rng.bytes(40))).collect()
}

fn is_resident(table: &Table) -> bool {
    table.blocks().is_resident()
}

/// Returns number and bytes of the reads since operation `begin`.
fn reads(rig: &Rig, begin: usize) -> (usize, u64) {
    let ops = rig.disk.ops();
    let reads = ops[begin..].iter().filter(|op| op.kind == OpKind::Read);
    reads.fold((0, 0), |(n, bytes), op| (n + 1, bytes + op.len))
}

#[test]
fn a_partitioned_table_reads_its_top_level_and_then_only_needed_partitions() {
    let mut rig = Rig::new();
    rig.partition_bytes = 4096;
    let order = Comparator::bytewise();
    let entries = entries(200_000);
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let (context, _room) = rig.crowded(1 << 20);
    let begin = rig.disk.ops().len();
    let table = Table::open(&context, &order, Arc::clone(&meta)).unwrap();
    let (count, bytes) = reads(&rig, begin);
    let guide = table.footer().index_at - table.footer().filter_at;
    println!("opened with {count} reads of {bytes} bytes; index and filter have {guide} bytes");
    assert!(!is_resident(&table) && count <= 2 && bytes <= 8 << 10, "{count} reads, {bytes} bytes");
    assert!(guide > 250_000 && table.resident_bytes() < 2 << 10, "{}", table.resident_bytes());

    let cold = |key: &[u8], present: bool| {
        let begin = rig.disk.ops().len();
        assert_eq!(get(&table, key, u64::MAX).unwrap().is_some(), present);
        reads(&rig, begin)
    };
    assert_eq!(cold(b"0000000000000001", false), (1, 2052), "a lookup of a key that the filter rejects");
    let (first, second) = (cold(&entries[100_000].key, true), cold(&entries[100_000].key, true));
    println!("a cold get: {} reads of {} bytes; again: {}", first.0, first.1, second.0);
    assert!(first.0 >= 3 && second.0 < first.0 - 1, "the partitions must be cached");
    assert_eq!(second.0, 0);
}

#[test]
fn resident_tables_use_at_most_half_of_the_cache_memory() {
    let mut rig = Rig::new();
    rig.partition_bytes = 512;
    let order = Comparator::bytewise();
    let entries = entries(20_000);
    let metas: Vec<_> =
        (1..60).map(|id| rig.write(id, &entries, options(Compression::Lz4), &order)).collect();
    let capacity = 1 << 20;
    let context = rig.context(capacity);
    let open = |meta| Table::open(&context, &order, Arc::clone(meta)).unwrap();
    let mut tables: Vec<_> = metas.iter().map(open).collect();
    let resident = |tables: &[Arc<Table>]| tables.iter().filter(|t| is_resident(t)).count();
    let held = |tables: &[Arc<Table>]| tables.iter().map(|t| t.resident_bytes() + described(t)).sum::<u64>();
    assert!(is_resident(&tables[0]) && !is_resident(&tables[58]));
    let whole = tables[0].resident_bytes();
    assert!(whole > 25_000 && tables[58].resident_bytes() < whole / 20, "{whole}");
    assert_eq!(context.cache.stats().capacity, capacity - held(&tables).min(capacity / 2));
    let first = resident(&tables) as u64;
    assert!(first * whole > capacity * 2 / 5 && first * whole <= capacity / 2, "{first} tables are resident");
    // Every table must be readable, resident or not. The cache must stay within its remaining capacity.
    for (n, table) in tables.iter().enumerate() {
        for e in entries.iter().skip(n).step_by(997) {
            assert_eq!(get(table, &e.key, u64::MAX).unwrap().as_ref(), Some(e));
            let stats = context.cache.stats();
            assert!(
                stats.used_bytes <= stats.capacity && stats.used_bytes + held(&tables) <= capacity * 11 / 10
            );
        }
    }
    // Memory that closed tables release goes to the tables opened next.
    tables.drain(..first as usize);
    assert_eq!(resident(&tables), 0);
    let again: Vec<_> = metas.iter().rev().map(open).collect();
    // The descriptions of all tables take the room of some.
    let fewer = 1 + again.iter().map(|table| described(table)).sum::<u64>().div_ceil(whole);
    assert!(is_resident(&again[0]) && resident(&again) as u64 + fewer >= first);
    drop((tables, again));
    context.memory.settle();
    assert_eq!(context.cache.stats().capacity, capacity);
}

/// Memory of a table without its index and filter.
fn described(table: &Table) -> u64 {
    size_of::<Table>() as u64 + table.meta().memory_bytes()
}

#[test]
fn a_damaged_partition_fails_the_reads_that_need_it() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let entries = entries(20_000);
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let good = rig.disk.read_file(rig.path(1)).unwrap();
    let (context, _room) = rig.crowded(1 << 20);
    let table = Table::open(&context, &order, Arc::clone(&meta)).unwrap();
    let Sections { top, filter: shape, .. } = Sections::read(table.blocks().file(), true).unwrap();
    assert!(!is_resident(&table));
    let partition = top.partitions().nth(2).unwrap();
    let filter = table.footer().filter_at;
    let needs = |e: &Entry, at: u64| match at < partition.at {
        true => shape.partition_of(key_hash(&e.key)) == Some(1),
        false => top.find(|fences| fences.of(&order, &e.key, u64::MAX)) == Some(partition),
    };
    for (at, what) in [(filter + shape.place(1).0, "filter"), (partition.at, "index")] {
        let mut bad = good.clone();
        bad[at as usize + 9] ^= 4;
        rig.disk.write_file(rig.path(1), &bad).unwrap();
        for cached in [0, 1 << 20] {
            let (context, _room) = rig.crowded(cached);
            let table = Table::open(&context, &order, Arc::clone(&meta)).unwrap();
            let mut failed = 0;
            for e in entries.iter().step_by(3) {
                match get(&table, &e.key, u64::MAX) {
                    Ok(found) => assert!(found.as_ref() == Some(e) && !needs(e, at)),
                    Err(error) => {
                        assert!(needs(e, at) && is_damage(&error, what, at), "{error}");
                        failed += 1;
                    }
                }
            }
            assert!(failed > 10 && failed < 3000, "{failed}");
            let (seen, end) = scan(&table);
            assert_eq!(seen, entries[..seen.len()]);
            assert_eq!(end.is_err(), what == "index", "a scan does not need the filter");
            let mut cursor = TableCursor::bypassing_cache(Arc::clone(&table));
            cursor.seek_to_last().unwrap();
            assert!(cursor.valid());
            assert!(is_damage(&table.verify().unwrap_err(), what, at));
        }
        // A table with enough memory to be resident must not open.
        let error = Table::open(&rig.context(1 << 24), &order, Arc::clone(&meta)).unwrap_err();
        assert!(is_damage(&error, what, at), "{error}");
    }
}

fn is_damage(error: &crate::Error, what: &str, at: u64) -> bool {
    error.is_corruption() && error.to_string().contains(what) && error.to_string().contains(&at.to_string())
}

#[test]
fn swapped_partitions_are_corrupt() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries(20_000), options(Compression::None), &order);
    let mut bytes = rig.disk.read_file(rig.path(1)).unwrap();
    let table = rig.open(&meta, &order, false).unwrap();
    let filter = table.footer().filter_at as usize;
    let (first, second) = bytes[filter..filter + 2 * 2052].split_at_mut(2052);
    first.swap_with_slice(second);
    rig.disk.write_file(rig.path(1), &bytes).unwrap();
    let table = rig.open(&meta, &order, false).unwrap();
    assert!(table.verify().unwrap_err().is_corruption());
    assert!(rig.open(&meta, &order, true).unwrap_err().is_corruption());
}

#[test]
fn estimates_of_partitioned_and_resident_tables_are_equal() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let entries = entries(20_000);
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let (context, _room) = rig.crowded(1 << 20);
    let partitioned = Table::open(&context, &order, Arc::clone(&meta)).unwrap();
    let resident = rig.open(&meta, &order, true).unwrap();
    assert!(is_resident(&resident) && !is_resident(&partitioned));
    let mut rng = Rng::new(2);
    for _ in 0..500 {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let (a, b) = (format!("{:016}", rng.below(42_000)), format!("{:016}", rng.below(42_000)));
        let (a, b) = (a.as_bytes(), b.as_bytes());
        for bounds in [(Included(a), Excluded(b)), (Unbounded, Included(b)), (Excluded(a), Unbounded)] {
            assert_eq!(
                partitioned.blocks_within(bounds.0, bounds.1),
                resident.blocks_within(bounds.0, bounds.1)
            );
        }
        assert_eq!(partitioned.is_half_of(Some(a), Some(b)), resident.is_half_of(Some(a), Some(b)));
        assert_eq!(partitioned.is_half_of(None, Some(b)), resident.is_half_of(None, Some(b)));
    }
    // If the index cannot be read, a bound counts as the end of the table.
    rig.disk.inject(sim::Fault::errno(sim::errno::EIO).on(OpKind::Read).forever());
    let table = Table::open(&context, &order, meta);
    assert!(table.is_err());
    let found = partitioned.blocks_within(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    assert!(found.blocks == found.all && found.bytes <= partitioned.footer().filter_at);
}
