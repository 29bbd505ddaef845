//! The column of expiries of a block: the form in seconds, and numbers that no writer writes under a valid checksum.

use super::*;
use crate::sst::block::{Block, BlockBuilder, EXPIRY_IN_MILLIS, EXPIRY_UNIFORM, LIMITS, Shape};
use crate::types::{EXPIRY_MAX, SECOND, SEQ_MAX};

/// Offsets in the header of a block.
const KEY_RAW_AT: usize = 4;
const KEY_DISK_AT: usize = 8;
const EXPIRY_AT: usize = 32;
const FLAGS_AT: usize = 40;
const EXPIRY_WIDTH_AT: usize = 43;

/// The front of a block of entries with these expiries, and the length of its frames.
fn block(expiries: &[u64]) -> (Vec<u8>, u64) {
    let mut builder = BlockBuilder::new(false, Compression::None, LIMITS);
    for (i, &expiry) in expiries.iter().enumerate() {
        let (key, value) = ([0, 0, 0, i as u8], [i as u8; 3]);
        builder.add(&EntryRef { key: &key, seq: 7 + i as u64 % 3, kind: Kind::Put, expiry, value: &value });
    }
    let mut out = Vec::new();
    let built = builder.finish(&salt(1), 0, &mut out);
    assert_eq!(built.entries, expiries.len());
    out.truncate(built.key_part);
    (out, (built.disk - built.key_part) as u64)
}

/// The expiries of a block; `None` if it is refused.
fn read((bytes, values): &(Vec<u8>, u64)) -> Option<Vec<u64>> {
    let shape = Shape::parse(bytes).ok()?;
    if shape.is_compressed() {
        return None; // the numbers are of a section that is not stored so
    }
    let block = Block { shape: &shape, bytes };
    block.validate(*values, Compression::None, 0..=SEQ_MAX).ok()?;
    Some((0..block.len()).map(|i| block.expiry(i)).collect())
}

fn put_u32(bytes: &mut [u8], at: usize, n: usize) {
    bytes[at..at + 4].copy_from_slice(&(n as u32).to_le_bytes());
}

/// The same block as older versions wrote it, with these seconds.
fn in_seconds((bytes, values): &(Vec<u8>, u64), seconds: &[u32]) -> (Vec<u8>, u64) {
    let (shape, mut out) = (Shape::parse(bytes).unwrap(), bytes.clone());
    let column = shape.expiries_at as usize..shape.tails_at as usize;
    let removed = column.len();
    out[FLAGS_AT] &= !(EXPIRY_IN_MILLIS | EXPIRY_UNIFORM);
    out[EXPIRY_WIDTH_AT] = 0;
    let added = if seconds.iter().all(|s| *s == seconds[0]) {
        out[FLAGS_AT] |= EXPIRY_UNIFORM;
        put_u32(&mut out, EXPIRY_AT, seconds[0] as usize);
        Vec::new()
    } else {
        seconds.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<u8>>()
    };
    let section = shape.key_raw as usize - removed + added.len();
    out.splice(column, added);
    put_u32(&mut out, KEY_RAW_AT, section);
    put_u32(&mut out, KEY_DISK_AT, section);
    (out, *values)
}

fn random_expiries(rng: &mut Rng) -> Vec<u64> {
    let n = 1 + rng.below(40);
    let base = [1, 1_800_000_000_250, EXPIRY_MAX - 5, EXPIRY_MAX][rng.below(4)];
    let spread = [1, 6, 200, 60_000, 1 << 33, EXPIRY_MAX][rng.below(6)];
    let never = [2, 5, 1000][rng.below(3)];
    let expiry =
        |rng: &mut Rng| if rng.one_in(never) { 0 } else { (base + rng.next() % spread).min(EXPIRY_MAX) };
    (0..n).map(|_| expiry(rng)).collect()
}

#[test]
fn every_column_of_expiries_is_read_as_it_was_written() {
    let mut rng = Rng::new(31);
    for _ in 0..2000 {
        let expiries = random_expiries(&mut rng);
        assert_eq!(read(&block(&expiries)).as_ref(), Some(&expiries));
        let seconds: Vec<u32> = expiries
            .iter()
            .map(|e| if *e == 0 { 0 } else { [*e as u32, u32::MAX, 5][(*e % 3) as usize].max(1) })
            .collect();
        let old = in_seconds(&block(&expiries), &seconds);
        let wanted: Vec<u64> = seconds.iter().map(|s| u64::from(*s) * SECOND).collect();
        assert_eq!(read(&old), Some(wanted), "{expiries:?}");
    }
}

/// A block with absurd numbers is refused, or its expiries are in their domain.
#[test]
fn absurd_columns_of_expiries_are_refused() {
    let mut rng = Rng::new(32);
    let (mut refused, mut read_anyway) = (0, 0);
    for round in 0..30_000 {
        let expiries = random_expiries(&mut rng);
        let (mut bytes, values) = block(&expiries);
        let shape = Shape::parse(&bytes).unwrap();
        let column = shape.expiries_at as usize..shape.tails_at as usize;
        for _ in 0..1 + rng.below(2) {
            let at = match rng.below(3) {
                0 => FLAGS_AT + rng.below(4),
                1 => EXPIRY_AT + rng.below(4),
                _ if column.is_empty() => FLAGS_AT,
                _ => column.start + rng.below(column.len()),
            };
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff, rng.next() as u8][rng.below(6)];
        }
        match read(&(bytes, values)) {
            None => refused += 1,
            Some(all) => {
                read_anyway += 1;
                assert!(all.iter().all(|expiry| *expiry <= EXPIRY_MAX), "{all:?} in round {round}");
            }
        }
    }
    assert!(refused > 1000 && read_anyway > 1000, "{refused} {read_anyway}");
}
