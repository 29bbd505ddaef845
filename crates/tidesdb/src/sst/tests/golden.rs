//! Checks `docs/formats/klog.md` against the code: the dump of a whole table, and the limits.

use super::*;
use crate::sst::{block, filter, index, layout};

const DOCUMENT: &str = include_str!("../../../../../docs/formats/klog.md");

/// Returns the documented dump of the table.
fn documented_bytes() -> Vec<u8> {
    let dump = DOCUMENT.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
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
    assert!(written == documented_bytes(), "the file is now:\n{}", dump(&written));
    for is_resident in [false, true] {
        let table = rig.open(&meta, &order, is_resident).unwrap();
        assert_eq!(scan(&table).0, entries());
        assert_eq!(table.verify().unwrap(), 4);
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

/// A format of another version is an error of its own, if the checksum of the footer is correct.
#[test]
fn other_formats_are_distinguished_from_damage() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries(), options(Compression::Lz4), &order);
    let bytes = rig.disk.read_file(rig.path(1)).unwrap();
    let footer_at = bytes.len() - layout::FOOTER_BYTES;
    let open_as = |format: u8, sealed: bool| {
        let mut bytes = bytes.clone();
        bytes[footer_at + 52] = format;
        let footer = &bytes[footer_at..];
        let crc = crate::codec::bound_crc(&meta.salt, footer_at as u64, &[&footer[..56], &footer[60..]]);
        if sealed {
            bytes[footer_at + 56..footer_at + 60].copy_from_slice(&crc.to_le_bytes());
        }
        rig.disk.write_file(rig.path(1), &bytes).unwrap();
        rig.open(&meta, &order, true).map(drop)
    };
    assert!(matches!(open_as(4, false), Err(crate::Error::Corrupt { .. })), "a changed byte is corruption");
    assert!(matches!(open_as(4, true), Err(crate::Error::FormatTooNew { found: 4, supported: 3, .. })));
    assert!(matches!(open_as(2, true), Err(crate::Error::FormatTooOld { found: 2, supported: 3, .. })));
    assert!(matches!(open_as(0, true), Err(crate::Error::Corrupt { .. })));
    assert!(open_as(3, true).is_ok());
}
