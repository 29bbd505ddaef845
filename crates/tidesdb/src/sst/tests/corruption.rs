//! All kinds of damage at every byte: it must be reported and never lead to a wrong answer.
//!
//! A table file has no padding. Every changed byte must be detected by `open` or `verify`, and every lookup and scan
//! must return the right answer or an error.

use super::*;
use crate::Error;
use crate::codec::bound_crc;
use crate::sst::TableCursor;
use crate::sst::block::{HEADER_BYTES, Shape};
use crate::sst::filter::FilterShape;
use crate::sst::index::{CurrentPartition, Fence, TopIndex};
use crate::sst::layout::{CRC_BYTES, FOOTER_BYTES};

/// Entries that fill several data blocks: versions of a key that continue over a block boundary, all kinds, expiries,
/// frames.
fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for i in 0..250u64 {
        let key = format!("k{:03}", i * 3);
        let value = if i % 40 == 0 { "text ".repeat(60) } else { "x".repeat((i % 3) as usize) };
        let kind = if i % 50 == 7 { Kind::Delete } else { Kind::Put };
        let value = if kind == Kind::Put { value.into_bytes() } else { Vec::new() };
        let expiry = if i % 9 == 0 { 1_800_000_000_250 + i } else { 0 };
        entries.push(Entry { key: key.into(), seq: 1000 + i, kind, expiry, value });
    }
    entries.extend((0..20).rev().map(|i| Entry::put("v", 5000 + i, "version")));
    let pointer = [3u8, 0, 0, 0, 9, 0, 0, 0].iter().copied().chain([0; 16]).collect();
    entries.push(Entry { kind: Kind::PutPointer, value: pointer, ..Entry::put("w", 1, "") });
    entries.push(Entry { kind: Kind::SingleDelete, ..Entry::put("x", 2, "") });
    entries
}

/// Returns the file of table `id` as bytes.
fn bytes(rig: &Rig, id: u64) -> Vec<u8> {
    rig.disk.read_file(rig.path(id)).unwrap()
}

/// Replaces the file with `bytes`, opens and uses the table in all ways, and returns whether the damage was reported.
/// Panics on a wrong answer or an error that is not corruption.
fn damage_is_seen(
    rig: &Rig,
    meta: &Arc<TableMeta>,
    bytes: &[u8],
    is_resident: bool,
    entries: &[Entry],
) -> bool {
    rig.disk.write_file(rig.path(meta.id.0), bytes).unwrap();
    let corrupt =
        |e: &Error| assert!(matches!(e, Error::Corrupt { file, .. } if file.ends_with(".klog")), "{e}");
    let table = match rig.open(meta, &Comparator::bytewise(), is_resident) {
        Ok(table) => table,
        Err(e) => {
            corrupt(&e);
            return true;
        }
    };
    for e in entries.iter().step_by(11) {
        match get(&table, &e.key, e.seq) {
            Ok(found) => assert_eq!(found.as_ref(), Some(e)),
            Err(e) => corrupt(&e),
        }
    }
    let (seen, end) = scan(&table);
    assert_eq!(seen, entries[..seen.len()]);
    match &end {
        Ok(()) => assert_eq!(seen.len(), entries.len()),
        Err(e) => corrupt(e),
    }
    let mut cursor = TableCursor::new(Arc::clone(&table));
    if cursor.seek_to_last().is_ok() {
        assert_eq!(cursor.key(), entries[entries.len() - 1].key);
    }
    match table.verify() {
        Ok(_) => false,
        Err(e) => {
            corrupt(&e);
            true
        }
    }
}

type Mutation = fn(u8) -> u8;

const MUTATIONS: [Mutation; 5] = [|b| b ^ 1, |b| b ^ 0x80, |_| 0, |_| 0xFF, |b| b.wrapping_add(1)];

#[test]
fn every_changed_byte_is_reported() {
    let entries = entries();
    let order = Comparator::bytewise();
    for compression in ALL {
        let rig = Rig::new();
        let meta = rig.write(1, &entries, options(compression), &order);
        let good = bytes(&rig, 1);
        assert!(!damage_is_seen(&rig, &meta, &good, true, &entries));
        let (mut tried, mut seen) = (0, 0);
        for at in 0..good.len() {
            for (m, mutate) in MUTATIONS.iter().enumerate() {
                let mut bad = good.clone();
                bad[at] = mutate(bad[at]);
                // Alternates between mapped and plain reads at each byte.
                if bad != good {
                    tried += 1;
                    let reported = damage_is_seen(&rig, &meta, &bad, (at + m) % 2 == 0, &entries);
                    assert!(
                        reported,
                        "{compression:?}: byte {at} of {} changed without being reported",
                        good.len()
                    );
                    seen += 1;
                }
            }
        }
        println!("{compression:?}: {} bytes, {seen} of {tried} changes reported", good.len());
    }
}

#[test]
fn truncation_and_growth_are_reported() {
    let entries = entries();
    let rig = Rig::new();
    let meta = rig.write(1, &entries, options(Compression::Lz4), &Comparator::bytewise());
    let good = bytes(&rig, 1);
    for len in 0..good.len() {
        assert!(damage_is_seen(&rig, &meta, &good[..len], len % 2 == 0, &entries));
        // Must also fail if the manifest has the shorter length.
        let short = Arc::new(TableMeta { file_bytes: len as u64, ..(*meta).clone() });
        assert!(damage_is_seen(&rig, &short, &good[..len], len % 2 == 0, &entries));
    }
    for more in [1, 64, 4096] {
        let longer = [&*good, &vec![0; more]].concat();
        assert!(damage_is_seen(&rig, &meta, &longer, true, &entries));
    }
}

#[test]
fn moved_blocks_and_bursts_are_reported() {
    let entries = entries();
    let rig = Rig::new();
    let meta = rig.write(1, &entries, options(Compression::None), &Comparator::bytewise());
    let good = bytes(&rig, 1);
    let mut rng = Rng::new(9);
    for round in 0..4000 {
        let mut bad = good.clone();
        let most = [8, 64, 512, 4096][rng.below(4)];
        let len = 1 + rng.below(most).min(good.len() / 2 - 1);
        let (a, b) = (rng.below(good.len() - len), rng.below(good.len() - len));
        match rng.below(4) {
            0 => bad[a..a + len].fill(0),
            1 => bad.copy_within(a..a + len, b),
            2 => {
                let bytes = rng.bytes(len);
                bad[a..a + len].copy_from_slice(&bytes);
            }
            _ => {
                for i in 0..len {
                    bad.swap(a + i, b + i);
                }
            }
        }
        if bad != good {
            assert!(damage_is_seen(&rig, &meta, &bad, round % 2 == 0, &entries), "round {round}");
        }
    }
}

#[test]
fn parts_of_other_tables_are_reported() {
    let entries = entries();
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let options = options(Compression::None);
    let meta = rig.write(1, &entries, options, &order);
    let good = bytes(&rig, 1);
    // The same entries in another file: same layout and lengths, but another salt.
    rig.write(2, &entries, options, &order);
    let other = bytes(&rig, 2);
    assert_eq!(good.len(), other.len());
    assert!(damage_is_seen(&rig, &meta, &other, true, &entries), "the file of another table");
    let table = {
        rig.disk.write_file(rig.path(1), &good).unwrap();
        rig.open(&meta, &order, true).unwrap()
    };
    for b in 0..table.blocks().count() {
        let place = place(&table, b);
        let range = place.at as usize..(place.at + place.disk) as usize;
        let mut bad = good.clone();
        bad[range.clone()].copy_from_slice(&other[range]);
        assert!(damage_is_seen(&rig, &meta, &bad, b % 2 == 0, &entries), "block {b} of the other table");
    }
    // An older table with the same number, as a restored backup could contain.
    let older = rig.write(3, &entries[..100], options, &order);
    let renumbered = Arc::new(TableMeta { id: TableId(3), ..(*meta).clone() });
    assert!(matches!(rig.open(&renumbered, &order, true), Err(Error::Corrupt { .. })));
    assert!(rig.open(&older, &order, true).is_ok());
    // A manifest with a wrong description.
    rig.disk.write_file(rig.path(1), &good).unwrap();
    for wrong in [
        TableMeta { entries: 3, ..(*meta).clone() },
        TableMeta { smallest: b"a".to_vec(), ..(*meta).clone() },
        TableMeta { max_seq: 1, ..(*meta).clone() },
        TableMeta { compression: Compression::Zstd, ..(*meta).clone() },
        TableMeta { vlog_refs: Vec::new(), ..(*meta).clone() },
    ] {
        assert!(matches!(rig.open(&Arc::new(wrong), &order, true), Err(Error::Corrupt { .. })));
    }
    assert!(matches!(
        rig.open(&meta, &Comparator::reverse_bytewise(), true).and_then(|t| t.verify()),
        Err(Error::Corrupt { .. })
    ));
}

/// Returns the location of block `b`.
fn place(table: &Table, b: usize) -> Fence {
    table.blocks().index().fence(&mut CurrentPartition::default(), b).unwrap()
}

/// Recomputes the checksum of the part of the file that contains byte `at`, as an attacker would.
fn reseal(bytes: &mut [u8], at: usize, (table, good): (&Table, &[u8])) {
    let salt = table.meta().salt;
    let f = *table.footer();
    let end = bytes.len() - FOOTER_BYTES;
    let mut seal = |start: u64, end: usize, part: std::ops::Range<usize>| {
        if part.contains(&at) {
            let crc = bound_crc(&salt, start, &[&bytes[start as usize + CRC_BYTES..end]]);
            bytes[start as usize..start as usize + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        }
    };
    let front = &good[f.index_at as usize..f.props_at as usize];
    let mut d = table.blocks().file().section(f.index_at, front, "top level").unwrap();
    let shape = FilterShape::read(&mut d, f.index_at - f.filter_at).unwrap();
    let how = (true, table.meta().compression);
    let top = TopIndex::read(&mut d, f.filter_at + shape.disk_bytes(), &f, how).unwrap();
    let filter =
        (0..shape.partitions()).map(|n| shape.place(n)).map(|(at, len)| (f.filter_at + at, len as u64));
    let index = top.partitions().map(|partition| (partition.at, partition.len));
    let rest = [(f.index_at, f.props_at - f.index_at), (f.props_at, end as u64 - f.props_at)];
    for (start, len) in filter.chain(index).chain(rest) {
        seal(start, (start + len) as usize, start as usize..(start + len) as usize);
    }
    for b in 0..table.blocks().count() {
        let place = place(table, b);
        let keys = place.at as usize + place.key_part;
        seal(place.at, keys, place.at as usize..keys);
    }
    if at >= end {
        let crc = bound_crc(&salt, end as u64, &[&bytes[end..end + 56], &bytes[end + 60..]]);
        bytes[end + 56..end + 60].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn verify_detects_errors_under_valid_checksums() {
    let entries = entries();
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let good = bytes(&rig, 1);
    let table = rig.open(&meta, &order, true).unwrap();
    let place = place(&table, 0);
    let shape = Shape::parse(&good[place.at as usize..]).unwrap();
    let column = |at: u32| place.at as usize + at as usize;
    let (heads, kinds, base_seq) = (column(shape.heads_at), column(shape.kinds_at), column(12));
    let filter = table.footer().filter_at as usize;
    for (at, byte, expected) in [
        (filter + CRC_BYTES + 8, 0, "filter denies"),
        (heads + 8 * 5, 0, "out of order"),
        (base_seq, 0xFF, "sequence number of an entry"),
        (kinds, 3, "value of a tombstone"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 8].fill(byte);
        reseal(&mut bad, at, (&table, &good));
        rig.disk.write_file(rig.path(1), &bad).unwrap();
        let table = rig.open(&meta, &order, true).unwrap();
        if expected.contains("order") {
            // Regression: unordered entries made a backward scan endless, and a forward scan wrong without an error.
            assert!(scan(&table).1.unwrap_err().is_corruption());
        }
        let error = table.verify().unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(expected), "{expected}: {error}");
    }
}

/// Entries that refer to more value logs than the properties name took a verification a step for each pair of logs.
#[test]
fn a_pointer_into_a_value_log_that_the_properties_do_not_name_ends_a_verification() {
    let pointer = |vlog: u8| [&[vlog, 0, 0, 0, 9, 0, 0, 0][..], &[0; 16]].concat();
    let mut entries: Vec<_> = (0..8u8).map(|i| Entry::put(format!("k{i}"), 9, pointer(9 - i))).collect();
    entries.push(Entry { kind: Kind::PutPointer, ..Entry::put("l", 9, pointer(9)) });
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let good = bytes(&rig, 1);
    let table = rig.open(&meta, &order, true).unwrap();
    assert_eq!(table.verify().unwrap(), 9);
    let at = place(&table, 0).at as usize;
    let kinds = at + Shape::parse(&good[at..]).unwrap().kinds_at as usize;
    let mut bad = good.clone();
    bad[kinds..kinds + 8].fill(Kind::PutPointer as u8);
    reseal(&mut bad, kinds, (&table, &good));
    rig.disk.write_file(rig.path(1), &bad).unwrap();
    let error = rig.open(&meta, &order, true).unwrap().verify().unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("do not name"), "{error}");
}

/// With addresses of 32 bits the length of all values of a block wrapped around: a build with overflow checks panicked, and others took 32
/// values of 2 GiB without a frame for empty ones.
#[test]
fn values_beyond_all_addresses_are_damage() {
    let damage = |len: u32| move |block: &mut [u8]| block[28..32].copy_from_slice(&len.to_le_bytes());
    for len in [1 << 31, 1 << 27, u32::MAX] {
        block_of_32_is_damaged("", damage(len));
        block_of_32_is_damaged("v", damage(len));
        block_of_32_is_damaged("v", move |block| {
            damage(len)(block);
            block[HEADER_BYTES..HEADER_BYTES + 2].fill(0xFF); // the entries of the frame
        });
    }
}

/// Panics unless a block of 32 entries with `value` is read as damaged after `change`, with a valid checksum.
fn block_of_32_is_damaged(value: &str, change: impl Fn(&mut [u8])) {
    let entries: Vec<_> = (0..32u64).map(|i| Entry::put(format!("k{i:02}"), 1 + i, value)).collect();
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let meta = rig.write(1, &entries, options(Compression::None), &order);
    let good = bytes(&rig, 1);
    let table = rig.open(&meta, &order, true).unwrap();
    let at = place(&table, 0).at as usize;
    let shape = Shape::parse(&good[at..]).unwrap();
    assert_eq!((shape.header.entries, shape.header.value as usize), (32, value.len()));
    assert_eq!(shape.header.frames as usize, value.len(), "a frame, unless the values are empty");
    let mut bad = good.clone();
    change(&mut bad[at..]);
    reseal(&mut bad, at, (&table, &good));
    rig.disk.write_file(rig.path(1), &bad).unwrap();
    for is_resident in [false, true] {
        let table = rig.open(&meta, &order, is_resident).unwrap();
        assert!(table.verify().unwrap_err().is_corruption());
        assert!(scan(&table).1.unwrap_err().is_corruption());
        assert!(get(&table, &entries[1].key, 2).unwrap_err().is_corruption());
    }
}

/// The section with the top level was copied, although it may be nearly as long as the file: with addresses of 32 bits the second copy
/// aborted the process.
#[cfg(target_pointer_width = "32")]
#[test]
fn a_long_section_is_not_copied() {
    use crate::sst::layout::Footer;
    use tidesdb_io::{Access, FileExt};
    sim::alone(|| {
        let rig = Rig::new();
        let order = Comparator::bytewise();
        let meta = rig.write(1, &entries(), options(Compression::None), &order);
        let table = rig.open(&meta, &order, false).unwrap();
        let (len, footer_bytes) = (1200u64 << 20, FOOTER_BYTES as u64);
        let footer = Footer { filter_at: 0, index_at: 0, props_at: len - footer_bytes, ..*table.footer() };
        let file = rig.dir.open(&crate::files::table(meta.id), Access::ReadWrite).unwrap();
        file.write_all_at(&footer.encode(len - footer_bytes), len - footer_bytes).unwrap();
        let meta = Arc::new(TableMeta { file_bytes: len, ..(*meta).clone() });
        let taken = Vec::<u8>::with_capacity(1536 << 20);
        assert!(rig.open(&meta, &order, false).unwrap_err().is_corruption(), "besides {}", taken.len());
    });
}

#[test]
fn forged_checksums_never_cause_a_panic() {
    for seed in 0..6000 {
        let mut rng = Rng::new(seed);
        let compression = ALL[seed as usize % 5];
        let entries = &entries()[rng.below(200)..];
        let order = if rng.one_in(4) { Comparator::u64_le() } else { Comparator::bytewise() };
        let mut entries = entries.to_vec();
        entries.sort_by(|a, b| order.compare(&a.key, &b.key).then(b.seq.cmp(&a.seq)));
        let rig = Rig::new();
        let meta = rig.write(1, &entries, options(compression), &order);
        let good = bytes(&rig, 1);
        let mut bad = good.clone();
        let table = rig.open(&meta, &order, true).unwrap();
        for _ in 0..1 + rng.below(3) {
            let at = if rng.one_in(3) { rng.below(50) } else { rng.below(bad.len()) };
            bad[at] = rng.next() as u8;
            reseal(&mut bad, at, (&table, &good));
        }
        rig.disk.write_file(rig.path(1), &bad).unwrap();
        for is_resident in [false, true] {
            let Ok(table) = rig.open(&meta, &order, is_resident) else { continue };
            let _ = table.verify();
            let _ = scan(&table);
            for e in entries.iter().step_by(17) {
                let _ = get(&table, &e.key, e.seq);
                let mut cursor = TableCursor::bypassing_cache(Arc::clone(&table));
                if cursor.seek_for_prev(&e.key).is_ok() && cursor.valid() {
                    let _ = at(&mut cursor);
                    let _ = cursor.prev();
                }
            }
        }
    }
}

#[test]
fn random_bytes_are_not_a_table() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let n = rng.below(400);
        let mut junk = rng.bytes(n);
        if let (true, Some(end)) = (rng.one_in(2), junk.last_chunk_mut::<4>()) {
            *end = *b"TKLG";
        }
        rig.disk.write_file(rig.path(1), &junk).unwrap();
        let meta = Arc::new(TableMeta { id: TableId(1), file_bytes: n as u64, ..TableMeta::default() });
        assert!(matches!(rig.open(&meta, &order, seed % 2 == 0), Err(Error::Corrupt { .. })), "seed {seed}");
        let mut d = crate::codec::Decoder::new(&junk, "manifest", 0);
        let _ = TableMeta::decode(&mut d);
    }
}
