//! The column of expiries of a block, and numbers in it that no writer writes under a valid checksum.

use super::*;
use crate::sst::block::{Block, BlockBuilder, LIMITS, Shape};
use crate::types::{EXPIRY_MAX, SEQ_MAX};

/// Offsets in the header of a block.
const RESERVED_AT: usize = 32;
const FLAGS_AT: usize = 40;

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
                1 => RESERVED_AT + rng.below(4),
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
