//! Measurements: `cargo test --profile dist -p tidesdb-engine --lib sst::tests::bench -- --ignored --nocapture`.

use std::hint::black_box;

use tidesdb_io::{Clock, Env, RealClock};

use super::*;
use crate::sst::TableCursor;
use crate::sst::index::CurrentPartition;

const KEYS: u64 = 2_000_000;
const VALUE: usize = 100;

/// Calls `each` for all of `0..n` in batches. Prints the time per call in the fastest batch, which other programs on
/// the machine disturbed least, and in the median batch.
fn time(what: &str, n: u64, mut each: impl FnMut(usize)) {
    let clock = RealClock::new();
    let batch = (n / 64).max(1);
    let mut spent: Vec<f64> = Vec::new();
    let mut i = 0;
    while i < n {
        let start = clock.mono();
        let end = (i + batch).min(n);
        (i..end).for_each(|i| each(i as usize));
        spent.push((clock.mono() - start).as_nanos() as f64 / (end - i) as f64);
        i = end;
    }
    spent.sort_by(f64::total_cmp);
    println!("{what:40} {:8.1} ns  (median {:.1})", spent[0], spent[spent.len() / 2]);
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    let mut n = i;
    for byte in key.iter_mut().rev() {
        *byte = b'0' + (n % 10) as u8;
        n /= 10;
    }
    key
}

fn value(i: u64, buf: &mut [u8; VALUE]) {
    // Half random, half text: LZ4 saves about half.
    let mut rng = Rng::new(i);
    for chunk in buf.chunks_mut(50) {
        chunk.fill(b'a' + (i % 26) as u8);
        chunk[..24].copy_from_slice(&rng.bytes(24));
    }
}

fn write(dir: &Arc<dyn Dir>, id: u64, compression: Compression) -> Arc<TableMeta> {
    let order = Comparator::bytewise();
    let mut w = TableWriter::create(dir, TableId(id), salt(id), options(compression), order).unwrap();
    let values: Vec<[u8; VALUE]> = (0..4096)
        .map(|i| {
            let mut v = [0; VALUE];
            value(i, &mut v);
            v
        })
        .collect();
    time(&format!("write {compression:?}"), KEYS, |i| {
        // Only even numbers: the odd ones are misses inside the range.
        let (key, value) = (key(i as u64 * 2), &values[i % values.len()]);
        w.add(EntryRef { key: &key, seq: i as u64, kind: Kind::Put, expiry: 0, value }).unwrap();
    });
    let mut w = Some(w);
    let mut meta = None;
    time("  finish and sync, per entry / 2M", 1, |_| meta = w.take().map(|w| w.finish().unwrap()));
    let meta = meta.unwrap();
    println!("  {:.1} bytes per entry", meta.file_bytes as f64 / KEYS as f64);
    Arc::new(meta)
}

fn measure(table: &Arc<Table>, what: &str) {
    println!(
        "{what}: resident {:.1} MB, {} blocks",
        table.resident_bytes() as f64 / 1e6,
        table.blocks().count()
    );
    let mut rng = Rng::new(5);
    let n = 400_000;
    let lookups = |name: &str, keys: &[[u8; 16]], want: bool| {
        time(name, n, |i| {
            let (key, guard) = (&keys[i], tidesdb_sync::pin());
            black_box(table.get(key, key_hash(key), u64::MAX, want, &guard).unwrap().is_some());
        });
    };
    let random: Vec<_> = (0..n).map(|_| key(rng.below(KEYS as usize) as u64 * 2)).collect();
    lookups("get random, first touch", &random, true);
    lookups("get random", &random, true);
    lookups("get random, keys only", &random, false);
    let near: Vec<_> = (0..n).map(|_| key(500_000 + rng.below(2000) as u64 * 2)).collect();
    lookups("get hot (2000 keys)", &near, true);
    lookups("get hot, keys only", &near, false);
    let absent: Vec<_> = (0..n).map(|_| key(rng.below(KEYS as usize) as u64 * 2 + 1)).collect();
    lookups("get miss", &absent, true);
    let hashes: Vec<_> = absent.iter().map(|k| key_hash(k)).collect();
    let mut passed = 0;
    time("filter", n, |i| passed += u64::from(table.may_contain(hashes[i])));
    println!("  {:.4} false positives", passed as f64 / n as f64);
    let mut held = CurrentPartition::default();
    time("index", n, |i| {
        black_box(table.blocks().index().first_block(&mut held, &random[i]).unwrap());
    });

    let mut cursor = TableCursor::new(Arc::clone(table));
    for (name, keys) in [("seek random", &random), ("seek hot", &near)] {
        time(name, n, |i| {
            cursor.seek(&keys[i]).unwrap();
            black_box(cursor.key());
        });
    }
    for want in [false, true] {
        cursor.seek_to_first().unwrap();
        time(if want { "next with value" } else { "next" }, KEYS - 1, |_| {
            black_box(cursor.key());
            if want {
                black_box(cursor.value().unwrap());
            }
            cursor.next().unwrap();
        });
        assert!(cursor.valid());
    }
}

#[test]
#[ignore = "a benchmark that runs for half a minute"]
fn table() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Env::real().disk.open_dir(temp.path(), true).unwrap();
    let order = Comparator::bytewise();
    for (id, compression) in [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().enumerate()
    {
        let meta = write(&dir, id as u64, compression);
        for use_mmap in [true, false] {
            let context = TableContext::new(&dir, &Memory::new(0), 64 << 20, use_mmap);
            let table = Table::open(&context, &order, Arc::clone(&meta)).unwrap();
            measure(&table, &format!("{compression:?}, mmap {use_mmap}"));
        }
    }
}
