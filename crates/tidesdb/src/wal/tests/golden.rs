//! Bytes on disk. A change here is a change of the format: it needs a new format number, not a new constant.

use super::*;
use crate::Error;
use crate::wal::layout::{RecordHeader, RecordKind, SegmentHeader, record_bytes};

const SALT: [u8; 16] = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
/// First sequence number of segment 3 when a segment has 64 KiB.
const BASE: SeqNo = 0x6200;

#[rustfmt::skip]
const HEADER: [u8; 96] = [
    b'T', b'I', b'D', b'S', b'W', b'A', b'L', b'1',
    1, 0, 0, 0, // format
    2, 0, 0, 0, // span
    3, 0, 0, 0, 0, 0, 0, 0, // number
    0, 0, 1, 0, 0, 0, 0, 0, // bytes of a segment
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, // salt
    0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xAB, 0xAC, 0xAD, 0xAE, 0xAF, // database
    0xB0, 0xB1, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xBB, 0xBC, 0xBD, 0xBE, 0xBF, // boot
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0xE8, 0xF1, 0xEC, 0x7E, // checksum
];

#[rustfmt::skip]
const COMMIT: [u8; 32] = [
    0xC4, 0x9A, 0x56, 0x3F, // checksum
    5, 0, 0, 0, // bytes of the body
    0x64, 0x62, 0, 0, 0, 0, 0, 0, // sequence number
    3, 0, 0, 0, // complete: 3 before
    10, 0, 0, 0, // synced: 10 before
    2, 0, 0, 1, // 2 operations, kind commit
    0, 0, 0, 0,
];

#[rustfmt::skip]
const PAD: [u8; 32] = [
    0xC7, 0xE1, 0x25, 0x46,
    0xA0, 0x0F, 0, 0,
    0xC8, 0x62, 0, 0, 0, 0, 0, 0,
    5, 0, 0, 0,
    0xFF, 0xFF, 0xFF, 0xFF, // no claim
    0, 0, 0, 2,
    0, 0, 0, 0,
];

#[rustfmt::skip]
const SEAL: [u8; 32] = [
    0xFA, 0x04, 0x66, 0xEA,
    0, 0, 0, 0,
    0x2C, 0x63, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0,
    0, 0, 0, 0,
    0, 0, 0, 3,
    0, 0, 0, 0,
];

fn header() -> SegmentHeader {
    SegmentHeader {
        id: 3,
        segment_bytes: 65536,
        span: 2,
        salt: SALT,
        db_uuid: std::array::from_fn(|i| 0xA0 + i as u8),
        boot_id: std::array::from_fn(|i| 0xB0 + i as u8),
    }
}

fn of_kind(kind: RecordKind, seq: SeqNo) -> RecordHeader {
    RecordHeader { seq, body_len: 0, kind, ops: 0, complete: seq, synced: seq }
}

/// The record with this header and this padded body. Nothing is left of the bytes that were in place of the header.
fn encode(header: &RecordHeader, body: &[u8]) -> Vec<u8> {
    let mut record = [&[0xEE; 32], body].concat();
    header.write(&SALT, &mut record);
    record
}

#[test]
fn segment_header() {
    let bytes = header().encode();
    assert_eq!(bytes[..96], HEADER);
    assert_eq!(bytes[96..], [0; 4000]);
    assert_eq!(SegmentHeader::decode(&bytes, "f").unwrap(), header());
}

#[test]
fn every_bit_of_a_segment_header_is_checked() {
    let bytes = header().encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(SegmentHeader::decode(&bad, "f").is_err(), "bit {bit} of byte {at}");
        }
    }
    for len in (0..bytes.len()).step_by(7) {
        assert!(SegmentHeader::decode(&bytes[..len], "f").is_err(), "{len} bytes");
    }
}

#[test]
fn other_formats_are_refused() {
    let decoded = |format| {
        let mut bytes = header().encode();
        bytes[8] = format;
        let crc = crate::codec::bound_crc(&SALT, 0, &[&bytes[..92]]);
        bytes[92..96].copy_from_slice(&crc.to_le_bytes());
        SegmentHeader::decode(&bytes, "f")
    };
    let e = decoded(2).unwrap_err();
    assert!(matches!(e, Error::FormatTooNew { found: 2, supported: 1, .. }), "{e}");
    assert!(matches!(decoded(0), Err(Error::Corrupt { offset: 8, .. })));
    decoded(1).unwrap();
}

#[test]
fn commit() {
    let seq = BASE + 100;
    let header = RecordHeader {
        seq,
        body_len: 5,
        kind: RecordKind::Commit,
        ops: 2,
        complete: seq - 3,
        synced: seq - 10,
    };
    let bytes = encode(&header, b"hello\0\0\0");
    assert_eq!(bytes, [&COMMIT[..], b"hello\0\0\0"].concat());
    assert_eq!(RecordHeader::decode(&bytes, seq, &SALT).unwrap(), (header, &b"hello"[..]));
    assert_eq!(header.record_bytes(), 40);
}

#[test]
fn pad() {
    let seq = BASE + 200;
    let header =
        RecordHeader { body_len: 4000, complete: seq - 5, synced: 0, ..of_kind(RecordKind::Pad, seq) };
    let mut bytes = encode(&header, &[]);
    assert_eq!(bytes, PAD);
    bytes.resize(32 + 4000, 0xEE); // its body is not written
    assert_eq!(RecordHeader::decode(&bytes, seq, &SALT).unwrap().0, header);
}

#[test]
fn seal() {
    let seq = BASE + 300;
    let header = of_kind(RecordKind::Seal, seq);
    assert_eq!(encode(&header, &[]), SEAL);
    assert_eq!(RecordHeader::decode(&SEAL, seq, &SALT).unwrap().0, header);
}

#[test]
fn every_bit_of_a_record_is_checked() {
    let seq = BASE + 100;
    let mut bytes = COMMIT.to_vec();
    bytes.extend_from_slice(b"hello\0\0\0");
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(RecordHeader::decode(&bad, seq, &SALT).is_none(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(RecordHeader::decode(&bytes[..len], seq, &SALT).is_none(), "{len} bytes");
    }
}

#[test]
fn a_record_is_bound_to_its_address_and_its_file() {
    let seq = BASE + 300;
    assert!(RecordHeader::decode(&SEAL, seq, &SALT).is_some());
    assert!(RecordHeader::decode(&SEAL, seq + 1, &SALT).is_none(), "another address");
    assert!(RecordHeader::decode(&SEAL, seq, &[7; 16]).is_none(), "another salt");
    // Moved with its number rewritten: the checksum still covers the address.
    let mut moved = SEAL;
    moved[8..16].copy_from_slice(&(seq + 1).to_le_bytes());
    assert!(RecordHeader::decode(&moved, seq + 1, &SALT).is_none());
}

#[test]
fn unrepresentable_claims_are_omitted() {
    let seq = 1 << 40;
    for (complete, claim) in [(0, 0), (seq + 1, 0), (seq - (1 << 33), 0), (seq - 7, seq - 7)] {
        let header = RecordHeader { complete, ..of_kind(RecordKind::Seal, seq) };
        let bytes = encode(&header, &[]);
        assert_eq!(RecordHeader::decode(&bytes, seq, &SALT).unwrap().0.complete, claim);
    }
}

#[test]
fn the_operation_count_saturates_and_leaves_the_kind_intact() {
    let header = RecordHeader { ops: u32::MAX, ..of_kind(RecordKind::Commit, BASE) };
    let bytes = encode(&header, &[]);
    let (read, _) = RecordHeader::decode(&bytes, BASE, &SALT).unwrap();
    assert_eq!((read.ops, read.kind), ((1 << 24) - 1, RecordKind::Commit));
}

#[test]
fn lengths_of_records() {
    assert_eq!([0, 1, 8, 9, 4096].map(record_bytes), [32, 40, 40, 48, 4128]);
    // A length that no buffer can hold is refused without a panic.
    let mut bytes = SEAL.to_vec();
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(RecordHeader::decode(&bytes, BASE + 300, &SALT).is_none());
}
