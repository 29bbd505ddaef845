//! The body of a record: golden bytes, and malformed bytes.

use super::{Op, encode_op, ops};
use crate::types::{EXPIRY_MAX, FamilyId, Kind};
use crate::{Error, Result};

fn encode(list: &[Op<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    list.iter().for_each(|op| encode_op(&mut out, op));
    out
}

fn decode(body: &[u8]) -> Result<Vec<Op<'_>>> {
    ops(body, "000001.wal", 4128).collect()
}

fn op<'a>(kind: Kind, expiry: u64, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    Op { family: FamilyId(300), kind, expiry, key, value, rank: 0 }
}

#[test]
#[rustfmt::skip]
fn golden_bytes() {
    let list = [
        op(Kind::Put, 0, b"key", b"value"),
        op(Kind::PutPointer, 0x0605_0403_0201, b"k", b"a pointer has 24 bytes.."),
        op(Kind::Delete, 0, b"d", b""),
        op(Kind::SingleDelete, 0, b"s", b""),
    ];
    let bytes = [
        &[1, 0xAC, 2, 3, 5][..], b"key", b"value",
        &[0x42, 0xAC, 2, 1, 24, 1, 2, 3, 4, 5, 6], b"k", b"a pointer has 24 bytes..",
        &[3, 0xAC, 2, 1, 0], b"d",
        &[4, 0xAC, 2, 1, 0], b"s",
    ].concat();
    assert_eq!(encode(&list), bytes);
    assert_eq!(decode(&bytes).unwrap(), list);
}

#[test]
fn every_expiry_survives_the_log() {
    for expiry in [1, 999, 1000, 1_800_000_000_250, u64::from(u32::MAX) + 1, EXPIRY_MAX] {
        let list = [op(Kind::Put, expiry, b"k", b"v"), op(Kind::Put, 0, b"l", b"v")];
        assert_eq!(decode(&encode(&list)).unwrap(), list);
        assert_eq!(encode(&list[..1]).len(), encode(&list[1..]).len() + 6);
    }
}

#[test]
fn lengths_of_one_and_two_bytes() {
    let long = [7; 70_000];
    for (key, value) in [(1, 0), (127, 127), (128, 128), (16_384, 16_383), (65_536, 70_000)] {
        let list = [op(Kind::Put, 0, &long[..key], &long[..value]), op(Kind::Delete, 0, b"after", b"")];
        assert_eq!(decode(&encode(&list)).unwrap(), list);
    }
}

#[test]
fn a_body_cut_anywhere_is_refused_or_ends_between_operations() {
    let list = [op(Kind::Put, 9, b"key", b"value"), op(Kind::Delete, 0, b"d", b"")];
    let bytes = encode(&list);
    let first = encode(&list[..1]).len();
    for len in 0..bytes.len() {
        match decode(&bytes[..len]) {
            Ok(got) => assert!(got == list[..usize::from(len == first)] && (len == 0 || len == first)),
            Err(e) => assert!(
                matches!(&e, Error::Corrupt { file, offset, .. } if **file == *"000001.wal" && *offset >= 4128),
                "{e}"
            ),
        }
    }
}

#[test]
fn nonsense_is_refused() {
    let bad: [&[u8]; 18] = [
        &[2, 0, 1, 1, b'k', b'p'],                            // pointer too short
        &[3, 0, 1, 1, b'k', b'v'],                            // delete with a value
        &[4, 0, 1, 1, b'k', b'v'],                            // single delete with a value
        &[5, 0, 0, 0, 2, 0, 0, 0],                            // rank 2, the first is 1
        &[0, 0, 1, 0, b'k'],                                  // no kind
        &[5, 0, 1, 0, b'k'],                                  // unknown kind
        &[0x80, 0, 1, 0, 1, 1, 1, 1, b'k'],                   // expiry without a kind
        &[0x40, 0, 1, 0, 1, 1, 1, 1, 1, 1, b'k'],             // expiry without a kind
        &[0x41, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'k'],             // expiry of zero
        &[0x41, 0, 1, 0, 1, 1, 1, 1, b'k'],                   // expiry of four bytes
        &[0x81, 0, 1, 0, 1, 1, 1, 1, b'k'],                   // unknown bit
        &[0x46, 0, 1, 0, 1, 1, 1, 1, 1, 1, b'k'],             // merge with an expiry
        &[1, 0, 0, 1, b'v'],                                  // empty key
        &[1, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 1, 0, b'k'],       // family too large
        &[1, 0, 0x81, 0x80, 4, 0, b'k'],                      // key too long
        &[1, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, b'k', b'v'], // value longer than the body
        &[1, 0x80, 0, 1, 0, b'k'],                            // varint not in its shortest form
        &[1, 0, 1],
    ];
    for body in bad {
        assert!(decode(body).is_err(), "{body:?}");
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..20_000 {
        let body: Vec<u8> = (0..x % 40)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                if x & 0x100 == 0 { (x as u8) & 7 } else { x as u8 }
            })
            .collect();
        x = x.wrapping_add(1);
        if let Ok(list) = decode(&body) {
            assert_eq!(encode(&list), body);
        }
    }
}
