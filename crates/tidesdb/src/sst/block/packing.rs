//! Packs the keys of a block whose bytes have few different values: digits, hexadecimal numbers, UUIDs, Base64.
//!
//! ```text
//! u8 number of symbols | symbols, ascending | bytes that are not packed | codes
//! ```
//!
//! A code is the position of a byte among the symbols, in as few bits as the number of symbols needs. Eight codes form a
//! group: a little-endian number whose lowest bits are the first code. Heads and then tails are packed; all other columns
//! and the prefix are not. LZ4 finds repeated sequences, but not that a hexadecimal digit needs half a byte.

use std::ops::Range;

/// Maximum number of symbols: with more, a code would take at least seven bits.
pub(in crate::sst) const SYMBOLS_MAX: usize = 64;
/// Codes in a group.
const GROUP: usize = 8;
/// Codes that are unpacked at once.
const BATCH: usize = 64;
/// Maximum number of bits of a code.
const WIDTH_MAX: usize = 6;
/// Maximum number of runs of consecutive symbols to unpack run by run: looking up each code is faster with more.
const RUNS_MAX: usize = 8;

/// The different bytes of the packed parts.
type Symbols = smallvec::SmallVec<[u8; SYMBOLS_MAX]>;

/// The packed parts of a raw key section.
#[derive(Clone, Debug)]
pub(super) struct PackedParts {
    /// Heads; a multiple of eight bytes.
    pub(super) heads: Range<usize>,
    /// Tails: the rest of the section.
    pub(super) tails: Range<usize>,
}

impl PackedParts {
    fn bytes(&self) -> usize {
        self.heads.len() + self.tails.len()
    }

    /// Returns how many bytes are not packed.
    fn plain(&self) -> usize {
        self.tails.end - self.bytes()
    }
}

/// Appends `section` to `out`, packed, and returns its length, if that saves at least `worth` bytes.
pub(super) fn pack(section: &[u8], parts: &PackedParts, worth: usize, out: &mut Vec<u8>) -> Option<usize> {
    let keys = [&section[parts.heads.clone()], &section[parts.tails.clone()]];
    let symbols = symbols_of(keys)?;
    let width = width_of(symbols.len())?;
    let len = 1 + symbols.len() + parts.plain() + parts.bytes().div_ceil(GROUP) * width;
    if section.len() < len + worth {
        return None;
    }
    let mut codes = [0; 256];
    for (code, &byte) in symbols.iter().enumerate() {
        codes[usize::from(byte)] = code as u8;
    }
    out.push(symbols.len() as u8);
    out.extend_from_slice(&symbols);
    out.extend_from_slice(&section[..parts.heads.start]);
    out.extend_from_slice(&section[parts.heads.end..parts.tails.start]);
    for group in keys.iter().flat_map(|part| part.chunks(GROUP)) {
        let append = |group: u64, &byte: &u8| group << width | u64::from(codes[usize::from(byte)]);
        let group = group.iter().rev().fold(0, append);
        // One store of known length, cut to the length of the group, is faster than a copy of variable length.
        out.extend_from_slice(&group.to_le_bytes());
        out.truncate(out.len() + width - GROUP);
    }
    Some(len)
}

/// Returns the different bytes of `keys`, ascending; `None` as soon as they are too many.
fn symbols_of(keys: [&[u8]; 2]) -> Option<Symbols> {
    // A byte for each, not a bit: a store waits for no earlier one. The sum is one of vectors.
    let mut seen = [0u8; 256];
    for piece in keys.iter().flat_map(|part| part.chunks(BATCH)) {
        piece.iter().for_each(|&byte| seen[usize::from(byte)] = 1);
        if seen.iter().map(|&seen| u16::from(seen)).sum::<u16>() > SYMBOLS_MAX as u16 {
            return None;
        }
    }
    let mut symbols = Symbols::new();
    for (first, eight) in (0..=u8::MAX).step_by(GROUP).zip(seen.as_chunks::<GROUP>().0) {
        // Most are far from all symbols.
        if *eight != [0; GROUP] {
            symbols
                .extend((first..=u8::MAX).zip(eight).filter(|&(_, &seen)| seen != 0).map(|(byte, _)| byte));
        }
    }
    Some(symbols)
}

/// Unpacks `packed` into `section`, which has the length of the raw section.
///
/// # Errors
/// A description of what no writer produces.
pub(super) fn unpack(packed: &[u8], parts: &PackedParts, section: &mut [u8]) -> Result<(), &'static str> {
    const SHORT: &str = "packed keys shorter than their block";
    let (&count, rest) = packed.split_first().ok_or(SHORT)?;
    let width = width_of(usize::from(count)).ok_or("invalid number of symbols of packed keys")?;
    let (symbols, rest) = rest.split_at_checked(usize::from(count)).ok_or(SHORT)?;
    if !symbols.is_sorted_by(|a, b| a < b) {
        return Err("symbols of packed keys out of order");
    }
    let (plain, codes) = rest.split_at_checked(parts.plain()).ok_or(SHORT)?;
    if codes.len() != parts.bytes().div_ceil(GROUP) * width {
        return Err("wrong length of packed keys");
    }
    let (prefix, columns) = plain.split_at(parts.heads.start);
    section[..parts.heads.start].copy_from_slice(prefix);
    section[parts.heads.end..parts.tails.start].copy_from_slice(columns);
    let (heads, tails) = codes.split_at(parts.heads.len() / GROUP * width);
    let unpack_codes = match width {
        1 => unpack_codes::<1>,
        2 => unpack_codes::<2>,
        3 => unpack_codes::<3>,
        4 => unpack_codes::<4>,
        5 => unpack_codes::<5>,
        _ => unpack_codes::<WIDTH_MAX>,
    };
    let replace = if runs(symbols) <= RUNS_MAX { replace_by_runs } else { replace_by_table };
    for (groups, part) in [(heads, &parts.heads), (tails, &parts.tails)] {
        let to = &mut section[part.clone()];
        if unpack_codes(groups, to) >= count {
            return Err("invalid code of packed keys");
        }
        replace(to, symbols);
    }
    Ok(())
}

/// Unpacks groups of codes of `WIDTH` bits into `to`, one byte per code. Returns the highest code, or 255 if the bits
/// behind the last code are not zero.
fn unpack_codes<const WIDTH: usize>(groups: &[u8], to: &mut [u8]) -> u8 {
    for (i, to) in to.chunks_mut(BATCH).enumerate() {
        let groups = groups.get(i * BATCH / GROUP * WIDTH..).unwrap_or_default();
        let codes = match groups.first_chunk() {
            Some(groups) => unpack_batch::<WIDTH>(groups),
            None => unpack_batch::<WIDTH>(&padded(groups)),
        };
        if let Some(to) = to.first_chunk_mut() {
            *to = codes;
        } else {
            let (codes, behind) = codes.split_at(to.len());
            to.copy_from_slice(codes);
            if behind.iter().any(|&code| code != 0) {
                return u8::MAX;
            }
        }
    }
    to.iter().fold(0, |highest, &code| highest.max(code))
}

/// Returns `groups`, which are less than a batch, with zeros behind them.
fn padded(groups: &[u8]) -> [u8; BATCH] {
    let mut batch = [0; BATCH];
    batch[..groups.len()].copy_from_slice(groups);
    batch
}

/// Unpacks the groups at the start of `groups`. The compiler spreads several groups with each vector instruction.
#[inline]
fn unpack_batch<const WIDTH: usize>(groups: &[u8; BATCH]) -> [u8; BATCH] {
    let mut codes = [0; BATCH];
    for (i, codes) in codes.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        // Some of the eight bytes belong to the next groups: a load of an odd length would be slower.
        let group = groups[i * WIDTH..].first_chunk().map_or(0, |group| u64::from_le_bytes(*group));
        *codes = spread::<WIDTH>(group & low_bits(GROUP * WIDTH)).to_le_bytes();
    }
    codes
}

/// Spreads eight codes of `WIDTH` bits into eight bytes: halves the codes three times, and moves the upper half of each
/// piece to the middle of its lane.
#[inline]
fn spread<const WIDTH: usize>(group: u64) -> u64 {
    let fours = low_bits(4 * WIDTH);
    let twos = low_bits(2 * WIDTH) * 0x0000_0001_0000_0001;
    let ones = low_bits(WIDTH) * 0x0001_0001_0001_0001;
    let group = (group & fours) | (group & !fours) << (32 - 4 * WIDTH);
    let group = (group & twos) | (group & !twos) << (16 - 2 * WIDTH);
    (group & ones) | (group & !ones) << (8 - WIDTH)
}

/// Returns a number whose lowest `bits` bits are set.
const fn low_bits(bits: usize) -> u64 {
    (1 << bits) - 1
}

/// Returns the number of runs of consecutive symbols: one for digits, two for hexadecimal numbers.
fn runs(symbols: &[u8]) -> usize {
    1 + symbols.windows(2).filter(|pair| pair[1] - pair[0] > 1).count()
}

/// Replaces codes by symbols: adds the gap before each run to all codes from the start of the run on. The compiler turns
/// each pass into vector instructions.
fn replace_by_runs(codes: &mut [u8], symbols: &[u8]) {
    // What the code of the next symbol has become so far.
    let mut reached = 0;
    for &symbol in symbols {
        let gap = symbol - reached;
        if gap > 0 {
            for code in &mut *codes {
                *code += if *code >= reached { gap } else { 0 };
            }
        }
        reached = symbol.wrapping_add(1);
    }
}

/// Replaces codes by symbols: looks up each one.
fn replace_by_table(codes: &mut [u8], symbols: &[u8]) {
    let mut table = [0; SYMBOLS_MAX];
    table[..symbols.len()].copy_from_slice(symbols);
    for code in codes {
        *code = table[usize::from(*code) % SYMBOLS_MAX];
    }
}

/// Returns the bits of a code, which are the bytes of a group. `None` if keys with so many symbols are not packed.
fn width_of(symbols: usize) -> Option<usize> {
    match symbols {
        1 => Some(1),
        2..=SYMBOLS_MAX => Some((symbols - 1).ilog2() as usize + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(heads: Range<usize>, tails: Range<usize>) -> PackedParts {
        PackedParts { heads, tails }
    }

    /// Returns `count` symbols in runs of `run` consecutive ones.
    fn symbols(count: usize, run: usize) -> Vec<u8> {
        (0..count).map(|i| (i + i / run * 2) as u8).collect()
    }

    #[test]
    fn every_number_of_symbols_and_runs_survives_the_round_trip() {
        for (count, run) in (1..=SYMBOLS_MAX + 1).flat_map(|count| [1, 3, 10, 64].map(|run| (count, run))) {
            let symbols = symbols(count, run);
            for (columns, tails) in [(0, 400), (3, 401), (11, 407)] {
                let head_end = 5 + 16;
                let tail_at = head_end + columns;
                let section: Vec<u8> = (0..tail_at + tails)
                    .map(|i| {
                        if (5..head_end).contains(&i) || i >= tail_at {
                            symbols[i * 7 % count]
                        } else {
                            255 - i as u8
                        }
                    })
                    .collect();
                check_round_trip(&section, &parts(5..head_end, tail_at..section.len()), count);
            }
        }
    }

    fn check_round_trip(section: &[u8], parts: &PackedParts, symbols: usize) {
        let mut packed = b"before".to_vec();
        let Some(len) = pack(section, parts, 1, &mut packed) else {
            assert!(symbols > SYMBOLS_MAX, "{symbols} symbols are not packed");
            assert_eq!(packed, b"before");
            return;
        };
        assert!(symbols <= SYMBOLS_MAX);
        let packed = &packed[6..];
        assert!(packed.len() == len && len < section.len());
        let mut raw = vec![0xEE; section.len()];
        unpack(packed, parts, &mut raw).unwrap();
        assert_eq!(raw, section);
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut], parts, &mut raw).is_err());
        }
        assert!(unpack(&[packed, &[0]].concat(), parts, &mut raw).is_err());
    }

    #[test]
    fn both_ways_to_replace_codes_agree() {
        for (count, run) in (1..=SYMBOLS_MAX).flat_map(|count| (1..=count).map(move |run| (count, run))) {
            let lowest = symbols(count, run);
            assert_eq!(runs(&lowest), count.div_ceil(run));
            let up = u8::MAX - lowest[count - 1];
            let highest: Vec<u8> = lowest.iter().map(|symbol| symbol + up).collect();
            for symbols in [lowest, highest] {
                let codes: Vec<u8> = (0..count as u8).collect();
                for replace in [replace_by_runs, replace_by_table] {
                    let mut replaced = codes.clone();
                    replace(&mut replaced, &symbols);
                    assert_eq!(replaced, symbols);
                }
            }
        }
    }

    #[test]
    fn codes_of_every_width_are_unpacked_and_checked() {
        check_codes::<1>();
        check_codes::<2>();
        check_codes::<3>();
        check_codes::<4>();
        check_codes::<5>();
        check_codes::<WIDTH_MAX>();
    }

    fn check_codes<const WIDTH: usize>() {
        let highest = (1 << WIDTH) - 1;
        for count in 0..4 * GROUP {
            let codes: Vec<u8> = (0..count).map(|i| (i * 29 + 3) as u8 & highest).collect();
            let mut groups = vec![0; count.div_ceil(GROUP) * WIDTH];
            for bit in 0..count * WIDTH {
                groups[bit / 8] |= (codes[bit / WIDTH] >> (bit % WIDTH) & 1) << (bit % 8);
            }
            let mut to = vec![0xEE; count];
            assert_eq!(unpack_codes::<WIDTH>(&groups, &mut to), codes.iter().copied().max().unwrap_or(0));
            assert_eq!(to, codes);
            for bit in count * WIDTH..groups.len() * 8 {
                let mut bad = groups.clone();
                bad[bit / 8] |= 1 << (bit % 8);
                assert_eq!(unpack_codes::<WIDTH>(&bad, &mut to), u8::MAX, "bit {bit} behind {count} codes");
            }
        }
    }

    #[test]
    fn packing_that_saves_too_little_is_rejected() {
        let section: Vec<u8> = (0..64).map(|i| b'0' + i % 10).collect();
        let parts = parts(0..8, 8..64);
        let mut packed = Vec::new();
        let len = pack(&section, &parts, 1, &mut packed).unwrap();
        assert_eq!((len, packed.len()), (1 + 10 + 32, 43));
        assert!(pack(&section, &parts, 64 - 43, &mut packed).is_some());
        assert_eq!(pack(&section, &parts, 64 - 42, &mut packed), None);
    }

    #[test]
    fn invalid_numbers_are_errors() {
        let section: Vec<u8> = (0..60).map(|i| b'0' + i % 10).collect();
        let parts = parts(0..8, 8..60);
        let mut packed = Vec::new();
        pack(&section, &parts, 1, &mut packed).unwrap();
        let check = |at: usize, byte: u8, error: &str| {
            let mut bad = packed.clone();
            bad[at] = byte;
            assert_eq!(unpack(&bad, &parts, &mut [0; 60]), Err(error));
        };
        check(0, 0, "invalid number of symbols of packed keys");
        check(0, 65, "invalid number of symbols of packed keys");
        check(0, 9, "wrong length of packed keys");
        check(1, b'1', "symbols of packed keys out of order");
        check(11, 0x0A, "invalid code of packed keys");
        // The last group has four codes; the bits behind them are zero.
        check(packed.len() - 1, 0x10, "invalid code of packed keys");
        assert!(unpack(&[], &parts, &mut [0; 60]).is_err());
    }
}
