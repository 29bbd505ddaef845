//! The work of those who read a whole table is linear in its file, whatever its entries are.

use super::*;
use crate::sst::TableCursor;
use crate::types::KEY_BYTES_MAX;

/// Entry `i` of a table.
type Choose = fn(u64) -> Entry;

fn pointer(i: u64, vlog: u32) -> Entry {
    let mut value = vlog.to_le_bytes().to_vec();
    value.extend([9, 0, 0, 0]);
    value.resize(24, 0);
    Entry { kind: Kind::PutPointer, value, ..Entry::put(format!("k{i:08}"), i + 1, "") }
}

/// Kinds of entries, and how many of them a short table has.
const KINDS: [(&str, Choose, u64); 6] = [
    ("tiny rows", |i| Entry::put(format!("{i:08}"), i + 1, ""), 20_000),
    ("versions of one key", |i| Entry::put("k", (1 << 40) - i, "version"), 20_000),
    ("values of a block each", |i| Entry::put(format!("{i:08}"), i + 1, Rng::new(i).bytes(20_000)), 40),
    ("longest keys", |i| Entry::put(format!("{i:0width$}", width = KEY_BYTES_MAX - 1), i + 1, "v"), 40),
    ("values that shrink to nothing", |i| Entry::put(format!("{i:08}"), i + 1, vec![0; 1 << 20]), 20),
    ("pointers into as many value logs", |i| pointer(i, 2_000_000 - i as u32), 2_000),
];

/// Returns the bytes that `call` reads and checksums for each byte of a table of `count` entries.
fn work_of(choose: Choose, count: u64, call: impl Fn(&Arc<Table>)) -> f64 {
    let rig = Rig { partition_bytes: 4096, ..Rig::new() };
    let entries: Vec<_> = (0..count).map(choose).collect();
    let meta = rig.write(1, &entries, options(Compression::Lz4), &Comparator::bytewise());
    let table = rig.open(&meta, &Comparator::bytewise(), false).unwrap();
    rig.disk.work(|| call(&table)) as f64 / meta.file_bytes as f64
}

fn merge(table: &Arc<Table>) {
    let mut cursor = TableCursor::bypassing_cache(Arc::clone(table));
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        cursor.value().unwrap();
        cursor.next().unwrap();
    }
}

#[test]
fn a_table_is_verified_inspected_and_merged_in_linear_work() {
    type Call = fn(&Arc<Table>);
    let calls: [(&str, Call); 3] = [
        ("verified", |table| _ = table.verify().unwrap()),
        ("inspected", |table| table.inspect_blocks(&mut |block| _ = block.checked.unwrap()).unwrap()),
        ("merged", merge),
    ];
    for (name, choose, count) in KINDS {
        for (what, call) in calls {
            let (small, large) = (work_of(choose, count, call), work_of(choose, 8 * count, call));
            println!("{name}, {what}: {small:.2} and {large:.2} bytes for each byte of the table");
            assert!(large <= 5.0, "{name}, {what}: {large:.2} bytes for each byte of the table");
            assert!(large <= small * 1.2, "{name}, {what}: {large:.2} bytes, in a short table {small:.2}");
        }
    }
}
