//! The code of this module against the C library: each reads what the other writes.

use lzzzz::lz4 as library;

use super::decode::{decompress, decompress_prefix};
use super::encode::compress;
use super::{bound, len};

/// Random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Rows as programs store them: JSON with few different names and values.
fn text(draw: &mut Draw, len: usize) -> Vec<u8> {
    let words = ["alice", "bob", "carol", "amount", "currency", "EUR", "pending", "status", "2026-11-27"];
    let mut out = Vec::new();
    while out.len() < len {
        let [a, b] = [0; 2].map(|_: u8| words[draw.below(words.len())]);
        let n = draw.below(100_000);
        out.extend_from_slice(format!("{{\"id\":{n},\"{a}\":\"{b}\",\"total\":{}}}\n", n % 977).as_bytes());
    }
    out.truncate(len);
    out
}

/// Bytes of which `share` in a hundred are random, in pieces of `piece`; the others are zeros.
fn zeros(draw: &mut Draw, len: usize, piece: usize, share: usize) -> Vec<u8> {
    let random = piece * share / 100;
    (0..len).map(|i| if i % piece < random { draw.below(256) as u8 } else { 0 }).collect()
}

/// Inputs of many lengths and kinds.
fn inputs() -> Vec<Vec<u8>> {
    let mut draw = Draw(7);
    let lens = (0..80).chain([255, 270, 273, 300, 1000, 4096, 6600, 65_534, 65_535, 65_536, 65_600, 200_000]);
    lens.flat_map(|len| {
        let period = draw.below(40) + 1;
        [
            text(&mut draw, len),
            zeros(&mut draw, len, 100, 50),
            zeros(&mut draw, len, 100, 100),
            zeros(&mut draw, len, 3000, 90),
            vec![b'x'; len],
            (0..len).map(|i| (i % period) as u8).collect(),
        ]
    })
    .collect()
}

fn packed(raw: &[u8], acceleration: i32) -> Vec<u8> {
    let mut out = vec![0xEE; bound(raw.len())];
    let n = compress(raw, &mut out, acceleration).unwrap();
    out.truncate(n);
    out
}

fn packed_by_library(raw: &[u8]) -> Vec<u8> {
    let mut out = vec![0; library::max_compressed_size(raw.len())];
    let n = library::compress(raw, &mut out, 1).unwrap();
    out.truncate(n);
    out
}

#[test]
fn each_reads_what_the_other_writes() {
    for raw in inputs() {
        assert_eq!(bound(raw.len()), library::max_compressed_size(raw.len()));
        let by_library = packed_by_library(&raw);
        for acceleration in [1, 8, 0, i32::MAX] {
            let ours = packed(&raw, acceleration);
            assert_eq!(len(&ours), Some(raw.len()));
            let mut back = vec![0xEE; raw.len()];
            // The library neither makes nor accepts the form of no bytes.
            if !raw.is_empty() {
                assert_eq!(library::decompress(&ours, &mut back).unwrap(), raw.len());
                assert!(back == raw, "{} bytes, read by the library", raw.len());
                back.fill(0xEE);
            }
            assert_eq!(decompress(&ours, &mut back), Some(raw.len()));
            assert!(back == raw, "{} bytes, read by us", raw.len());
            // Longer by at most a fiftieth than what the library makes.
            let most = by_library.len() + by_library.len() / 50 + 4;
            assert!(acceleration != 1 || ours.len() <= most, "{} and {}", ours.len(), by_library.len());
        }
        if !raw.is_empty() {
            let mut back = vec![0xEE; raw.len()];
            assert_eq!(decompress(&by_library, &mut back), Some(raw.len()));
            assert!(back == raw, "{} bytes, written by the library", raw.len());
        }
    }
}

#[test]
fn acceleration_leaves_matches_out() {
    let mut draw = Draw(3);
    let raw: Vec<u8> = (0..100_000).map(|_| draw.below(6) as u8).collect(); // with many short matches
    let lens = [1, 8, 64].map(|acceleration| packed(&raw, acceleration).len());
    assert!(lens.is_sorted_by(|a, b| a < b), "{lens:?}");
}

#[test]
fn no_longer_input_than_the_format_has() {
    assert_eq!([bound(0x7E00_0000), bound(0x7E00_0001)].map(|n| n > 0), [true, false]);
    assert_eq!(compress(&[7; 100], &mut [0; 10], 1), None, "too little room");
}

/// A match of each offset and length, with little or much behind it.
#[test]
fn a_match_may_overlap_what_it_writes() {
    for offset in 1..40u8 {
        for len in (4..90).chain([255 + 19, 600]) {
            for behind in [0, 1, 7, 15, 16, 30] {
                let mut raw: Vec<u8> = (0..offset).map(|i| i.wrapping_mul(37) ^ 5).collect();
                (0..len).for_each(|i| raw.push(raw[i]));
                raw.extend((0..behind).map(|i| i ^ 0x80));
                let mut bytes = Vec::new();
                let count = |bytes: &mut Vec<u8>, half: usize, n: usize| {
                    if half == 15 {
                        bytes.extend(std::iter::repeat_n(255, (n - 15) / 255));
                        bytes.push(((n - 15) % 255) as u8);
                    }
                };
                let halves = (usize::from(offset).min(15), (len - 4).min(15));
                bytes.push((halves.0 << 4 | halves.1) as u8);
                count(&mut bytes, halves.0, offset.into());
                bytes.extend_from_slice(&raw[..usize::from(offset)]);
                bytes.extend([offset, 0]);
                count(&mut bytes, halves.1, len - 4);
                bytes.push(behind.min(15) << 4);
                count(&mut bytes, behind.min(15).into(), behind.into());
                bytes.extend_from_slice(&raw[raw.len() - usize::from(behind)..]);
                let mut back = vec![0xEE; raw.len()];
                assert_eq!(decompress(&bytes, &mut back), Some(raw.len()));
                assert_eq!(back, raw, "offset {offset}, length {len}, {behind} behind");
            }
        }
    }
}

#[test]
fn a_prefix_needs_only_the_sequences_that_it_lies_in() {
    let raw = text(&mut Draw(11), 3000);
    let bytes = packed(&raw, 1);
    for want in (1..raw.len()).step_by(7) {
        let mut out = vec![0xEE; raw.len()];
        let n = decompress_prefix(&bytes, &mut out, want).unwrap();
        assert!(n >= want && out[..want] == raw[..want], "{want}");
    }
    let mut out = vec![0xEE; raw.len()];
    assert!(decompress_prefix(&bytes[..bytes.len() / 4], &mut out, 200).is_some_and(|n| n >= 200));
    assert_eq!(decompress(&bytes[..bytes.len() / 4], &mut out), None);
}

/// Streams with each byte changed, cut at each length, and all short ones: an error or other bytes, never a panic. What both accept has
/// the same meaning; the library also accepts a match with the offset 0, which means nothing.
#[test]
fn damage_is_an_error_or_other_bytes() {
    let mut draw = Draw(5);
    let mut cases: Vec<Vec<u8>> = (0..1u32 << 16).map(|n| n.to_le_bytes()[..2].to_vec()).collect();
    for raw in [text(&mut draw, 400), zeros(&mut draw, 500, 60, 30), vec![9; 700]] {
        let bytes = packed(&raw, 1);
        cases.extend((0..bytes.len()).map(|n| bytes[..n].to_vec()));
        for at in 0..bytes.len() {
            for value in [0, 1, 15, 16, 0x0F, 0xF0, 0xFF, draw.below(256) as u8] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                cases.push(damaged);
            }
        }
    }
    for bytes in cases {
        for room in [1, 20, 500, 1000] {
            let (mut ours, mut theirs) = (vec![0xEE; room], vec![0xEE; room]);
            let n = decompress(&bytes, &mut ours);
            assert!(n.is_none_or(|n| n <= room && len(&bytes) == Some(n)), "{bytes:?}");
            let _ = decompress_prefix(&bytes, &mut ours.clone(), room / 2);
            if let (Some(n), Ok(m)) = (n, library::decompress(&bytes, &mut theirs)) {
                assert_eq!(n, m, "{bytes:?}");
                assert!(ours[..m] == theirs[..m], "{bytes:?}");
            }
        }
    }
}
