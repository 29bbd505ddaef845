//! Checks `docs/formats/klog.md` against the code: the dump of a whole table, and the limits.

use super::*;
use crate::sst::{block, filter, index, layout};

const DOCUMENT: &str = include_str!("../../../../../docs/formats/klog.md");

/// Returns the documented dump of the table in the given format.
fn documented_bytes(format: usize) -> Vec<u8> {
    let dump = DOCUMENT.split("```hex\n").nth(3 - format).unwrap().split("```").next().unwrap();
    dump.lines()
        .flat_map(|line| line.split_whitespace().skip(1))
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

fn dump(bytes: &[u8]) -> String {
    let line = |(i, line): (usize, &[u8])| {
        let bytes: Vec<_> = line.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:04x}  {}\n", i * 16, bytes.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

fn entries() -> Vec<Entry> {
    let mut pointer = vec![0; 24];
    (pointer[0], pointer[4]) = (3, 9);
    vec![
        Entry::put("apple", 9, "red"),
        Entry { kind: Kind::Delete, ..Entry::put("apple", 4, "") },
        Entry { expiry: 1_800_000_000_000, ..Entry::put("apricot-tree", 5, "orange") },
        Entry { kind: Kind::PutPointer, ..Entry::put("b", 6, pointer) },
    ]
}

#[test]
fn the_documented_table_is_written_exactly_and_can_be_read() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = write_documented(&rig);
    let written = rig.disk.read_file(rig.path(7)).unwrap();
    assert!(written == documented_bytes(2), "the file is now:\n{}", dump(&written));
    for use_mmap in [false, true] {
        let table = rig.open(&meta, &order, use_mmap).unwrap();
        assert_eq!(scan(&table).0, entries());
        assert_eq!(table.verify().unwrap(), 4);
    }
}

#[test]
fn a_table_of_format_1_can_be_read() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = write_documented(&rig);
    let old = documented_bytes(1);
    let meta = Arc::new(TableMeta { file_bytes: old.len() as u64, ..(*meta).clone() });
    rig.disk.write_file(rig.path(7), &old).unwrap();
    for use_mmap in [false, true] {
        let table = rig.open(&meta, &order, use_mmap).unwrap();
        assert_eq!(scan(&table).0, entries());
        assert_eq!(get(&table, b"b", 9).unwrap().as_ref(), entries().last());
        assert!(!table.may_contain(key_hash(b"another")), "the filter must be in use");
        assert_eq!(table.verify().unwrap(), 4);
        let found = table.blocks_within(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        assert_eq!((found.blocks, found.all, found.bytes), (1, 1, 167));
    }
    for at in 0..old.len() {
        let mut bad = old.clone();
        bad[at] ^= 1 << (at % 8);
        rig.disk.write_file(rig.path(7), &bad).unwrap();
        let damage = rig.open(&meta, &order, at % 2 == 0).and_then(|table| table.verify()).unwrap_err();
        assert!(damage.is_corruption(), "byte {at}: {damage}");
    }
}

/// Writes the table that the document dumps.
fn write_documented(rig: &Rig) -> Arc<TableMeta> {
    let order = Comparator::bytewise();
    let salt: Salt = std::array::from_fn(|i| i as u8);
    let mut w =
        TableWriter::create(&rig.dir, TableId(7), salt, options(Compression::None), order.clone()).unwrap();
    for e in entries() {
        w.add(e.borrow()).unwrap();
    }
    Arc::new(w.finish().unwrap())
}

#[test]
fn the_documented_limits_match_the_code() {
    for (what, value) in [
        ("bytes of a footer", layout::FOOTER_BYTES),
        ("bytes of a block header", block::HEADER_BYTES),
        ("bytes of a frame table entry", block::FRAME_BYTES),
        ("entries of a block", block::ENTRIES_MAX),
        ("bytes of a block on disk, without padding", block::LIMITS.disk),
        ("bytes of padding", block::PADDING_MAX as usize),
        ("bytes of keys that close a block", block::LIMITS.keys),
        ("bytes of values that close a block", block::LIMITS.values),
        ("bytes of values in a frame, unless one value is longer", block::LIMITS.frame),
        ("bytes of a raw key section", block::KEY_SECTION_MAX),
        ("symbols of packed keys", block::SYMBOLS_MAX),
        ("bytes of a filter line", filter::LINE_BYTES),
        ("lines of a partition of a filter", filter::PARTITION_LINES),
        ("bytes that close a partition of an index", index::PARTITION_BYTES),
        (
            "bytes of full fences that also close a partition of an index",
            index::PARTITION_BYTES * index::WHOLE_FENCES,
        ),
        ("probes of a filter", filter::PROBES_MAX as usize),
    ] {
        let row = format!("| {what} | {value} |");
        assert!(DOCUMENT.contains(&row), "not documented: {row}");
    }
}

#[test]
fn a_newer_format_is_distinguished_from_damage() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries(), options(Compression::Lz4), &order);
    let mut bytes = rig.disk.read_file(rig.path(1)).unwrap();
    let footer_at = bytes.len() - layout::FOOTER_BYTES;
    bytes[footer_at + 52] = 3;
    let footer = &bytes[footer_at..];
    let crc = crate::codec::bound_crc(&meta.salt, footer_at as u64, &[&footer[..56], &footer[60..]]);
    rig.disk.write_file(rig.path(1), &bytes).unwrap();
    assert!(
        matches!(rig.open(&meta, &order, true), Err(crate::Error::Corrupt { .. })),
        "a changed version byte must be corruption"
    );
    bytes[footer_at + 56..footer_at + 60].copy_from_slice(&crc.to_le_bytes());
    rig.disk.write_file(rig.path(1), &bytes).unwrap();
    assert!(matches!(
        rig.open(&meta, &order, true),
        Err(crate::Error::FormatTooNew { found: 3, supported: 2, .. })
    ));
}
