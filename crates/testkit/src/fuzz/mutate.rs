//! Random changes of an input: bits, boundary numbers in fixed fields and in varints, lengths, splices of other inputs.

use crate::rng::Rng;

/// Maximum size of an input in bytes.
const INPUT_BYTES_MAX: usize = 96 << 10;

/// Returns a mutation of one of `seeds`; it depends only on the seeds and the generator.
pub fn input(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| seeds.get(rng.below(seeds.len() as u64) as usize).cloned().unwrap_or_default();
    let mut data = pick(rng);
    let mut changes = 1 + rng.below(3);
    while rng.one_in(4) {
        changes += rng.below(8);
    }
    for _ in 0..changes {
        let other = if rng.one_in(12) { Some(pick(rng)) } else { None };
        change(&mut data, other.as_deref(), rng);
    }
    data.truncate(INPUT_BYTES_MAX);
    data
}

/// Returns a boundary value: near a power of two, the maximum of a width or of the engine, or a small number.
fn boundary(rng: &mut Rng) -> u64 {
    let near = rng.below(3).wrapping_sub(1);
    match rng.below(8) {
        0 => rng.below(4),
        1 => tidesdb::SEQ_MAX.wrapping_add(near),
        2 => u64::from(u32::MAX).wrapping_add(near),
        3 => u64::MAX.wrapping_sub(rng.below(20)),
        4 => (1u64 << 63).wrapping_add(near),
        5 => rng.next_u64() >> rng.below(64),
        _ => (1u64 << rng.below(64)).wrapping_add(near),
    }
}

/// Returns a random offset in `data` at which `width` bytes fit.
fn place(data: &[u8], width: usize, rng: &mut Rng) -> Option<usize> {
    let room = data.len().checked_sub(width)? as u64 + 1;
    // Choose an offset near the front or the end half of the time, because headers and footers are there.
    Some(match rng.below(4) {
        0 => rng.below(room.min(128)),
        1 => room - 1 - rng.below(room.min(256)),
        _ => rng.below(room),
    } as usize)
}

fn change(data: &mut Vec<u8>, other: Option<&[u8]>, rng: &mut Rng) {
    if let Some(other) = other.filter(|other| !other.is_empty()) {
        return splice(data, other, rng);
    }
    match rng.below(12) {
        0 | 1 => flip(data, rng),
        2 => {
            if let Some(at) = place(data, 1, rng) {
                data[at] = [0, 1, 0x7f, 0x80, 0xff, rng.next_u64() as u8][rng.below(6) as usize];
            }
        }
        3..6 => fixed(data, rng),
        6..9 => varint(data, rng),
        9 => cut(data, rng),
        10 => repeat(data, rng),
        _ => {
            let at = rng.below(data.len() as u64 + 1) as usize;
            let len = 1 + rng.below(16) as usize;
            let new = rng.bytes(len);
            data.splice(at..at, new);
        }
    }
}

fn flip(data: &mut [u8], rng: &mut Rng) {
    if let Some(at) = place(data, 1, rng) {
        data[at] ^= 1 << rng.below(8);
    }
}

/// Replaces a number of two, four or eight bytes by a boundary value or a number near the old one.
fn fixed(data: &mut [u8], rng: &mut Rng) {
    let width = [2, 4, 8][rng.below(3) as usize];
    let Some(at) = place(data, width, rng) else { return };
    let mut old = [0; 8];
    old[..width].copy_from_slice(&data[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = if rng.one_in(3) { old.wrapping_add(rng.below(33)).wrapping_sub(16) } else { boundary(rng) };
    data[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// Replaces the varint at a random offset by another number, which may change its length.
fn varint(data: &mut Vec<u8>, rng: &mut Rng) {
    let Some(at) = place(data, 1, rng) else { return };
    let long = data[at..].iter().take(9).take_while(|b| **b >= 0x80).count();
    let end = (at + long + 1).min(data.len());
    let mut new = Vec::new();
    let n = if rng.one_in(3) { u64::from(data[at]).wrapping_add(rng.below(5)) } else { boundary(rng) };
    tidesdb::internals::codec::put_varint(&mut new, n);
    data.splice(at..end, new);
}

fn cut(data: &mut Vec<u8>, rng: &mut Rng) {
    if let Some(at) = place(data, 1, rng) {
        if rng.one_in(4) {
            return data.truncate(at);
        }
        let end = (at + 1 + rng.below(40) as usize).min(data.len());
        data.drain(at..end);
    }
}

fn repeat(data: &mut Vec<u8>, rng: &mut Rng) {
    if let Some(at) = place(data, 1, rng) {
        let end = (at + 1 + rng.below(200) as usize).min(data.len());
        let part = data[at..end].to_vec();
        let times = if rng.one_in(8) { 1 + rng.below(60) } else { 1 };
        for _ in 0..times {
            data.splice(end..end, part.iter().copied());
        }
    }
}

/// Overwrites bytes with those of another input, or inserts them.
fn splice(data: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let from = rng.below(other.len() as u64) as usize;
    let end = (from + 1 + rng.below(400) as usize).min(other.len());
    let at = rng.below(data.len() as u64 + 1) as usize;
    let gone = if rng.one_in(2) { (at + end - from).min(data.len()) } else { at };
    data.splice(at..gone, other[from..end].iter().copied());
}
