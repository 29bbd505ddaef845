use super::*;
use crate::Error;
use crate::codec::Salt;
use crate::vlog::format::{FILE_HEADER_BYTES, FileHeader, RECORD_HEADER_BYTES, VlogRecordHeader};

/// Writes a small file of known values and returns the values and the bytes of the file.
fn small_file(env: &Env, id: u32, compression: Compression) -> (Vec<(VlogPointer, Vec<u8>)>, Vec<u8>) {
    let vlogs = set(env, id, 1 << 20);
    let values = [noise(1, 40), text(2, 120), Vec::new(), noise(3, 40), text(4, 90)];
    let written = values.map(|v| (vlogs.append(&v, compression).unwrap(), v)).to_vec();
    (written, read_file(env, &format!("{id:06}.vlog")))
}

/// Returns whether reading and whether verifying detects that the file was changed. Panics if a read returns a wrong
/// value.
fn notices(env: &Env, written: &[(VlogPointer, Vec<u8>)]) -> (bool, bool) {
    let vlogs = set(env, 99, 4096);
    let mut read = false;
    for (pointer, value) in written {
        match vlogs.read(pointer) {
            Ok(found) => assert_eq!(found, *value),
            Err(Error::Corrupt { .. } | Error::FormatTooNew { .. }) => read = true,
            Err(e) => panic!("{e}"),
        }
    }
    (read, !vlogs.scan(pointer_file(written), |_| {}).is_ok_and(|r| r.is_whole()))
}

fn pointer_file(written: &[(VlogPointer, Vec<u8>)]) -> VlogId {
    written[0].0.vlog
}

#[test]
fn every_changed_byte_is_detected_by_read_and_by_verify() {
    for compression in [Compression::None, Compression::Lz4] {
        let (env, _) = world();
        let (written, whole) = small_file(&env, 1, compression);
        assert_eq!(notices(&env, &written), (false, false));
        for at in 0..whole.len() {
            let mut forms: Vec<u8> = (0..8).map(|bit| whole[at] ^ (1 << bit)).collect();
            forms.extend([0, 0xFF]);
            for byte in forms.into_iter().filter(|b| *b != whole[at]) {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                write_file(&env, "000001.vlog", &bytes);
                assert_eq!(notices(&env, &written), (true, true), "{compression:?}: byte {at} became {byte}");
            }
        }
    }
}

#[test]
fn damage_to_one_record_does_not_hide_the_others() {
    let (env, _) = world();
    let (written, mut bytes) = small_file(&env, 1, Compression::None);
    let at = written[1].0.offset as usize;
    bytes[at + 12] ^= 0x40; // its length
    write_file(&env, "000001.vlog", &bytes);
    let report = set(&env, 2, 4096).scan(VlogId(1), |_| {}).unwrap();
    assert_eq!(report.records, 4);
    assert_eq!((report.gaps.len(), report.gaps[0].clone()), (1, written[1].0.offset..written[2].0.offset));
    assert_eq!(report.tail_bytes(), 0);
}

#[test]
fn swapped_records_are_corrupt() {
    let (env, _) = world();
    let (written, whole) = small_file(&env, 1, Compression::None);
    let (first, fourth) = (written[0].0.offset as usize, written[3].0.offset as usize);
    let len = RECORD_HEADER_BYTES + 40;
    let mut swapped = whole.clone();
    swapped.copy_within(fourth..fourth + len, first);
    swapped[fourth..fourth + len].copy_from_slice(&whole[first..first + len]);
    write_file(&env, "000001.vlog", &swapped);
    let vlogs = set(&env, 9, 4096);
    assert!(vlogs.read(&written[0].0).unwrap_err().is_corruption());
    assert!(vlogs.read(&written[3].0).unwrap_err().is_corruption());
    assert_eq!(vlogs.scan(VlogId(1), |_| {}).unwrap().records, 3);
    // A pointer changed to address another valid record is refused.
    write_file(&env, "000001.vlog", &whole);
    let led_astray = VlogPointer { offset: written[3].0.offset, ..written[0].0 };
    assert!(set(&env, 9, 4096).read(&led_astray).unwrap_err().is_corruption());
}

#[test]
fn files_with_wrong_name_family_or_salt_are_refused() {
    let (env, _) = world();
    let (written, whole) = small_file(&env, 1, Compression::None);
    write_file(&env, "000002.vlog", &whole);
    let vlogs = set(&env, 9, 4096);
    assert!(vlogs.read(&VlogPointer { vlog: VlogId(2), ..written[0].0 }).unwrap_err().is_corruption());
    assert!(vlogs.scan(VlogId(2), |_| {}).unwrap_err().is_corruption());

    let salt: Salt = whole[20..36].try_into().unwrap();
    let mut other = whole.clone();
    let header = FileHeader { family: FamilyId(4), vlog: VlogId(1), salt };
    other[..FILE_HEADER_BYTES].copy_from_slice(&header.encode());
    write_file(&env, "000001.vlog", &other);
    assert!(set(&env, 9, 4096).scan(VlogId(1), |_| {}).unwrap_err().is_corruption());

    let header = FileHeader { family: FAMILY, vlog: VlogId(1), salt: [7; 16] };
    other[..FILE_HEADER_BYTES].copy_from_slice(&header.encode());
    write_file(&env, "000001.vlog", &other);
    let vlogs = set(&env, 9, 4096);
    assert_eq!(vlogs.scan(VlogId(1), |_| {}).unwrap().records, 0);
    assert!(written.iter().all(|(p, _)| vlogs.read(p).is_err()));
}

#[test]
fn a_newer_format_returns_format_too_new() {
    let (env, _) = world();
    let (written, mut bytes) = small_file(&env, 1, Compression::None);
    bytes[8] = 2;
    let crc = crate::codec::bound_crc(&[0; 16], 0, &[&bytes[..36]]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    write_file(&env, "000001.vlog", &bytes);
    let e = set(&env, 9, 4096).read(&written[0].0).unwrap_err();
    assert!(matches!(e, Error::FormatTooNew { found: 2, supported: 1, .. }), "{e}");
}

#[test]
fn hostile_pointers_are_refused() {
    let (env, _) = world();
    let (written, whole) = small_file(&env, 1, Compression::Lz4);
    let vlogs = set(&env, 9, 4096);
    let good = written[1].0;
    let mut seeds = noise(5, 24 * 4000).chunks(24).map(<[u8]>::to_vec).collect::<Vec<_>>();
    for at in 0..24 {
        for byte in 0..=255 {
            let mut bytes = good.encode();
            bytes[at] = byte;
            seeds.push(bytes.to_vec());
        }
    }
    for bytes in seeds {
        let pointer = VlogPointer::decode(&bytes).unwrap();
        if pointer != good {
            assert!(vlogs.read(&pointer).unwrap_err().is_corruption());
            assert!(vlogs.read(&pointer).is_err());
        }
    }
    for offset in [u64::MAX, u64::MAX - 17, whole.len() as u64, whole.len() as u64 - 1, 0] {
        for disk_len in [0, 1, u32::MAX] {
            let pointer = VlogPointer { offset, disk_len, raw_len: u32::MAX, ..good };
            assert!(vlogs.read(&pointer).unwrap_err().is_corruption());
        }
    }
    // Neighbours, which one call reads.
    let last = |before_end: u64| VlogPointer { offset: u64::MAX - before_end, disk_len: 10, ..good };
    let mut refused = 0;
    vlogs.read_many(&[good, last(200), last(20)], |i, value| match i {
        0 => assert_eq!(value.unwrap(), written[1].1),
        _ => refused += usize::from(value.unwrap_err().is_corruption()),
    });
    assert_eq!(refused, 2);
}

#[test]
fn impossible_lengths_are_refused_even_with_a_valid_checksum() {
    let salt = [3; 16];
    let header = |codec, raw_len, payload: &[u8]| {
        let mut h = VlogRecordHeader::new(payload, raw_len, codec);
        h.bind(&salt, 40);
        VlogRecordHeader::decode(&h.encode(), &salt, 40)
    };
    assert!(header(Compression::None, 10, &[0; 10]).is_some());
    assert!(header(Compression::None, 11, &[0; 10]).is_none());
    assert!(header(Compression::Lz4, 10, &[0; 10]).is_none());
    assert!(header(Compression::Lz4, 2560, &[0; 10]).is_some());
    assert!(header(Compression::Lz4, 2561, &[0; 10]).is_none());
    assert!(header(Compression::Snappy, u32::MAX, &[0; 10]).is_none());
    // A Zstandard block decodes to at most 128 KiB and takes at least four bytes.
    assert!(header(Compression::Zstd, 14 * (128 << 10) / 4, &[0; 10]).is_some());
    assert!(header(Compression::Zstd, 14 * (128 << 10) / 4 + 1, &[0; 10]).is_none());
    assert!(header(Compression::Zstd, u32::MAX, &[0; 10]).is_none(), "4 GiB in ten bytes");
    assert!(VlogRecordHeader::decode(&[0; RECORD_HEADER_BYTES], &salt, 40).is_none());
}

#[test]
fn a_payload_that_does_not_decode_is_corrupt() {
    let (env, _) = world();
    for codec in [Compression::Lz4, Compression::Zstd, Compression::Snappy] {
        let salt = [3; 16];
        let payload = noise(4, 64);
        let mut record = VlogRecordHeader::new(&payload, 100, codec);
        record.bind(&salt, 40);
        let mut bytes = FileHeader { family: FAMILY, vlog: VlogId(1), salt }.encode().to_vec();
        bytes.extend(record.encode());
        bytes.extend(&payload);
        write_file(&env, "000001.vlog", &bytes);
        let pointer = record.pointer(VlogId(1), 40);
        let e = set(&env, 9, 4096).read(&pointer).unwrap_err();
        assert!(matches!(&e, Error::Corrupt { file, offset: 40, .. } if &**file == "000001.vlog"), "{e}");
    }
}
