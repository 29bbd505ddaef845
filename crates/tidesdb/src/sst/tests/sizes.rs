//! Lengths of blocks on disk, and the reads that lookups cause.

use tidesdb_io::sim::OpKind;

use super::*;
use crate::sst::block::{ENTRIES_MAX, LIMITS, Limits};
use crate::sst::index::CurrentPartition;
use crate::sst::{AllowAllReads, TableCursor};

const PAGE: u64 = 4096;

/// Shape of the keys and values of a table.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Length of a key, at least 16 bytes.
    key: usize,
    /// Minimum and maximum length of values in bytes.
    values: (usize, usize),
    /// Number of random bytes in each eight; the others compress.
    random: usize,
    /// One of this many entries is a delete; 0 means none.
    deletes: usize,
}

/// Returns `n` entries in order.
fn entries(shape: Shape, n: u64, seed: u64) -> Vec<Entry> {
    let mut rng = Rng::new(seed);
    let mut keys: Vec<u64> = (0..n).map(|_| rng.next()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.iter()
        .map(|number| {
            let key = format!("{number:016x}{:>width$}", "", width = shape.key - 16);
            if shape.deletes > 0 && rng.one_in(shape.deletes) {
                return Entry { kind: Kind::Delete, ..Entry::put(key, rng.next() >> 20, "") };
            }
            let (from, to) = shape.values;
            let len = from + rng.below(to - from + 1);
            let random = len * shape.random / 8;
            let mut value = rng.bytes(random);
            value.resize(len, b'v');
            Entry::put(key, rng.next() >> 20, value)
        })
        .collect()
}

/// Returns the lengths on disk of the blocks of a table.
fn lengths(table: &Table) -> Vec<u64> {
    let near = &mut CurrentPartition::default();
    (0..table.blocks().count()).map(|b| table.blocks().index().fence(near, b).unwrap().disk).collect()
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() - 1) * percent / 100]
}

fn write(rig: &Rig, entries: &[Entry], compression: Compression, limits: Limits) -> Arc<TableMeta> {
    let order = Comparator::bytewise();
    let mut w = TableWriter::create(&rig.dir, TableId(1), salt(1), options(compression), order).unwrap();
    w.set_limits(limits);
    for e in entries {
        w.add(e.borrow()).unwrap();
    }
    Arc::new(w.finish().unwrap())
}

#[test]
fn blocks_of_several_entries_fit_in_a_page_and_fill_most_of_it() {
    let shape = |key, values, random| Shape { key, values, random, deletes: 0 };
    let shapes = [
        shape(16, (200, 200), 4),
        shape(16, (200, 200), 8),
        shape(16, (8, 8), 8),
        shape(16, (8, 8), 0),
        shape(16, (0, 0), 8),
        shape(24, (100, 100), 4),
        shape(16, (1000, 2000), 4),
        shape(16, (1, 1500), 4),
        shape(300, (50, 80), 2),
        shape(16, (400, 600), 1),
        Shape { deletes: 2, ..shape(16, (200, 200), 4) },
    ];
    for (seed, shape) in shapes.into_iter().enumerate() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let bytes = shape.key + usize::midpoint(shape.values.0, shape.values.1);
            let entries = entries(shape, (2_000_000 / bytes as u64).max(3000), seed as u64);
            let rig = Rig::new();
            let meta = write(&rig, &entries, compression, LIMITS);
            let table = rig.open(&meta, &Comparator::bytewise(), false).unwrap();
            let mut lengths = lengths(&table);
            let (blocks, per_block) = (lengths.len(), entries.len() / lengths.len());
            lengths.sort_unstable();
            let (median, most) = (percentile(&lengths, 50), percentile(&lengths, 100));
            println!(
                "{shape:?} {compression:?}: {blocks} blocks of {per_block}, median {median}, longest {most}"
            );
            assert!(most <= PAGE, "{shape:?} {compression:?}: {most}");
            // A block is closed before an entry that does not fit, or by one of its other limits.
            let room = shape.key + shape.values.1 + 64;
            let by_length = per_block < ENTRIES_MAX * 9 / 10 && per_block * bytes < LIMITS.values * 9 / 10;
            assert!(!by_length || median as usize + room + 200 > PAGE as usize, "{shape:?} {compression:?}");
        }
    }
}

/// Values that change from very compressible to random: the estimate is wrong, and blocks must be shortened.
#[test]
fn blocks_fit_in_a_page_even_if_the_entries_change_abruptly() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut all = Vec::new();
        for part in 0..30u64 {
            let (from, more) = ([0, 0, 8, 200, 1000][rng.below(5)], [0, 3, 300][rng.below(3)]);
            let deletes = [0, 0, 2][rng.below(3)];
            let shape =
                Shape { key: 16 + rng.below(40), values: (from, from + more), random: rng.below(9), deletes };
            let n = 1 + rng.below(60) as u64;
            for mut e in entries(shape, n, seed * 100 + part) {
                e.key.splice(0..0, format!("{part:08}").into_bytes());
                all.push(e);
            }
        }
        let rig = Rig::new();
        let compression = ALL[rng.below(5)];
        let meta = write(&rig, &all, compression, LIMITS);
        let table = rig.open(&meta, &Comparator::bytewise(), false).unwrap();
        assert!(lengths(&table).iter().all(|&len| len <= PAGE), "seed {seed}");
        assert_eq!(scan(&table).0, all, "seed {seed}");
        assert_eq!(table.verify().unwrap(), all.len() as u64);
    }
}

/// A stretch of values that do not shrink does not end compression for the rest of the table.
#[test]
fn values_that_shrink_after_many_that_do_not_are_compressed() {
    let mut all = Vec::new();
    let mut apart = 0;
    for (part, random) in [8, 0].into_iter().enumerate() {
        let shape = Shape { key: 16, values: (100, 100), random, deletes: 0 };
        let entries = entries(shape, 4000, 5);
        apart += write(&Rig::new(), &entries, Compression::Lz4, LIMITS).file_bytes;
        let later = |e: Entry| Entry { key: [&[part as u8], &e.key[..]].concat(), ..e };
        all.extend(entries.into_iter().map(later));
    }
    let together = write(&Rig::new(), &all, Compression::Lz4, LIMITS).file_bytes;
    // One block of 16 is tried; until then they are stored as they are.
    assert!(together < apart + 20 * PAGE, "{together} bytes, as two tables {apart}");
}

/// Keys of 24 random letters of an alphabet take as many bits for each letter as the alphabet needs.
#[test]
fn keys_of_few_letters_are_packed() {
    let letters: Vec<u8> = (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').chain(*b"+/").collect();
    let bytes: Vec<u8> = (0..=255).collect();
    let mut rng = Rng::new(7);
    for order in [Comparator::bytewise(), Comparator::reverse_bytewise()] {
        for (alphabet, bits) in [(&letters[..10], 4), (&letters[..17], 5), (&letters[..], 6), (&bytes, 8)] {
            let mut keys: Vec<Vec<u8>> =
                (0..5000).map(|_| (0..24).map(|_| alphabet[rng.below(alphabet.len())]).collect()).collect();
            keys.sort_by(|a, b| order.compare(a, b));
            let all: Vec<_> = keys.iter().map(|key| Entry::put(key, 0, rng.bytes(8))).collect();
            let rig = Rig::new();
            let meta = rig.write(1, &all, options(Compression::Lz4), &order);
            let table = rig.open(&meta, &order, false).unwrap();
            let data = table.footer().filter_at as usize / all.len();
            // The common prefix of a block saves one or two letters.
            let (fewest, most) = (22 * bits / 8 + 8, 24 * bits / 8 + 8 + 2);
            assert!((fewest..=most).contains(&data), "{} letters: {data}", alphabet.len());
            assert_eq!(scan(&table).0, all);
            assert_eq!(table.verify().unwrap(), 5000);
            for e in all.iter().step_by(7) {
                assert_eq!(get(&table, &e.key, u64::MAX).unwrap().as_ref(), Some(e));
            }
        }
    }
}

/// Returns offset and length of each table read since the operation log was enabled.
fn reads(rig: &Rig) -> Vec<(u64, u64)> {
    rig.disk.ops().iter().filter(|op| op.kind == OpKind::Read).map(|op| (op.offset, op.len)).collect()
}

fn pages((at, len): (u64, u64)) -> u64 {
    (at + len - 1) / PAGE - at / PAGE + 1
}

const ROWS: Shape = Shape { key: 16, values: (200, 200), random: 4, deletes: 0 };

#[test]
fn a_cold_lookup_reads_one_page_once_and_a_cached_one_never() {
    let rows = entries(ROWS, 20_000, 1);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let rig = Rig::new();
        let meta = write(&rig, &rows, compression, LIMITS);
        let context = rig.context(64 << 20);
        let table = Table::open(&context, &Comparator::bytewise(), meta).unwrap();
        let mut read = Vec::new();
        // The stride is longer than a block, so each lookup is the first one in its block.
        for row in rows.iter().step_by(90) {
            for expected in [1, 0] {
                rig.disk.log_ops(true);
                assert_eq!(get(&table, &row.key, u64::MAX).unwrap().as_ref(), Some(row));
                let reads = reads(&rig);
                assert_eq!(reads.len(), expected, "{compression:?}");
                read.extend(reads);
            }
        }
        assert!(read.iter().all(|&read| pages(read) <= 2));
        let touched: u64 = read.iter().map(|&read| pages(read)).sum();
        assert!(
            touched as usize * 100 <= read.len() * 105,
            "{compression:?}: {touched} pages for {} reads",
            read.len()
        );
        let mut bytes: Vec<u64> = read.iter().map(|read| read.1).collect();
        bytes.sort_unstable();
        assert!((3500..=4096).contains(&percentile(&bytes, 50)), "{bytes:?}");
        assert!(percentile(&bytes, 100) <= 4608, "{bytes:?}");
    }
}

#[test]
fn a_scan_reads_many_blocks_at_once() {
    let rows = entries(ROWS, 20_000, 2);
    let rig = Rig::new();
    let meta = write(&rig, &rows, Compression::Lz4, LIMITS);
    for (what, cache, most) in [("merge", 0, 20), ("reader", 0, 60), ("filling reader", 64 << 20, 60)] {
        let context = rig.context(cache);
        let table = Table::open(&context, &Comparator::bytewise(), Arc::clone(&meta)).unwrap();
        let mut cursor = match what {
            "merge" => TableCursor::bypassing_cache(table),
            _ => TableCursor::new(table),
        };
        rig.disk.log_ops(true);
        cursor.seek_to_first().unwrap();
        for row in &rows {
            assert_eq!(at(&mut cursor).unwrap(), *row);
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        let reads = reads(&rig);
        let bytes: u64 = reads.iter().map(|read| read.1).sum();
        println!("{what}: {} reads, {bytes} bytes", reads.len());
        assert!(reads.len() <= most, "{what}: {} reads", reads.len());
        // Nothing is read twice except blocks that straddle two reads.
        assert!(bytes <= meta.file_bytes + PAGE * reads.len() as u64, "{what}: {bytes} bytes");
    }
}

/// Older versions closed blocks at 16 KiB of values, with frames of 4 KiB of values.
#[test]
fn long_blocks_of_older_tables_are_read_in_parts() {
    let rows = entries(ROWS, 10_000, 3);
    for compression in [Compression::None, Compression::Lz4] {
        let rig = Rig::new();
        let meta = write(&rig, &rows, compression, OLD_LIMITS);
        let context = rig.context(64 << 20);
        let table = Table::open(&context, &Comparator::bytewise(), meta).unwrap();
        assert!(percentile(&lengths(&table), 50) > 2 * PAGE);
        // The last block has only the remaining entries, so it may be shorter.
        for row in rows[..rows.len() - 100].iter().step_by(97) {
            rig.disk.log_ops(true);
            assert_eq!(get(&table, &row.key, u64::MAX).unwrap().as_ref(), Some(row));
            let reads = reads(&rig);
            let bytes: u64 = reads.iter().map(|read| read.1).sum();
            assert!(reads.len() == 2 && bytes < 2 * PAGE, "{reads:?}");
            rig.disk.log_ops(true);
            assert_eq!(get(&table, &row.key, u64::MAX).unwrap().as_ref(), Some(row));
            assert!(self::reads(&rig).is_empty(), "the second lookup must be served from the cache");
        }
        assert_eq!(scan(&table).0, rows);
        assert_eq!(table.verify().unwrap(), rows.len() as u64);
    }
}

/// Frames that shrink are stored apart from the values until the block is complete, the others are not.
#[test]
fn frames_that_shrink_and_frames_that_do_not_share_a_block() {
    let mut rng = Rng::new(11);
    let value = |i: u64, rng: &mut Rng| if i % 16 < 8 { vec![i as u8; 500] } else { rng.bytes(500) };
    let rows: Vec<Entry> = (0..2000).map(|i| Entry::put(format!("{i:016}"), 1, value(i, &mut rng))).collect();
    let rig = Rig::new();
    let meta = write(&rig, &rows, Compression::Lz4, OLD_LIMITS);
    let table = rig.open(&meta, &Comparator::bytewise(), false).unwrap();
    let guard = tidesdb_sync::pin();
    let keys = table.blocks().keys(1, &guard, &mut AllowAllReads).unwrap().unwrap();
    let shrank: Vec<bool> = keys.block().unwrap().frames().map(|frame| frame.disk < frame.raw).collect();
    assert!(shrank.contains(&true) && shrank.contains(&false), "{shrank:?}");
    assert_eq!(scan(&table).0, rows);
    assert_eq!(table.verify().unwrap(), rows.len() as u64);
}
